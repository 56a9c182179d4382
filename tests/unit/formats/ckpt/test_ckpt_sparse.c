/* Checkpoints that claim more than they hold: formats/ckpt/read/dist.c. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/torch/dcp_write.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_write.h"

#define LAYERS	4
#define PART	"__0_0.distcp"
#define BACKEND "{\"sharded_backend\": \"torch_dist\"}"

static struct mfs_error err;
static uint64_t shape[3] = {LAYERS, 0, 1};

static void add_int(struct mfs_pickle_writer *w, const char *name, int64_t value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_int(w, value);
}

/* common.pt with the arguments of a model of that many experts. */
static void write_common(const char *dir, int64_t experts)
{
	struct mfs_pickle_writer w;
	struct mfs_buf pickle = {0}, file = {0};

	mfs_pickle_begin(&w, &pickle, 2);
	mfs_pickle_dict_begin(&w);
	mfs_pickle_name(&w, "args");
	mfs_pickle_object_begin(&w, "argparse", "Namespace");
	add_int(&w, "num_layers", LAYERS);
	add_int(&w, "hidden_size", 1);
	add_int(&w, "num_attention_heads", 1);
	add_int(&w, "num_experts", experts);
	mfs_pickle_object_end(&w);
	mfs_pickle_dict_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_torch_save("common", pickle.data, pickle.len, NULL, 0, &file, &err), &err);
	unit_write(dir, "common.pt", file.data, file.len);
	mfs_buf_release(&pickle);
	mfs_buf_release(&file);
}

static int tensor_at(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *e)
{
	(void)arg, (void)i, (void)e;
	*ret = (struct mfs_dcp_write_tensor){
		.key = "decoder.layers.mlp.experts.experts.linear_fc1.weight",
		.dtype = MFS_BF16,
		.ndim = 3,
		.shape = shape,
		.chunk_count = 1};
	return 0;
}

static int chunk_at(void *arg, uint32_t tensor, uint32_t i, struct mfs_dcp_write_chunk *ret,
		    struct mfs_error *e)
{
	static const uint64_t lo[3];

	(void)arg, (void)tensor, (void)i, (void)e;
	*ret = (struct mfs_dcp_write_chunk){lo, shape, {PART, 0, 4 * shape[0] * shape[1]}};
	return 0;
}

/* A checkpoint of one stacked tensor, whose file is a hole. */
static int open_sparse(uint64_t experts, struct mfs_ckpt **ret)
{
	const struct mfs_dcp_write_ops w = {
		.tensor_count = 1, .tensor = tensor_at, .chunk = chunk_at};
	const char *dir = unit_tmpdir();
	struct mfs_buf metadata = {0};
	char path[400];

	shape[1] = experts;
	write_common(dir, (int64_t)experts);
	unit_ok(mfs_dcp_write(&w, &metadata, &err), &err);
	unit_write(dir, ".metadata", metadata.data, metadata.len);
	mfs_buf_release(&metadata);
	unit_write(dir, "metadata.json", BACKEND, strlen(BACKEND));
	unit_write(dir, PART, "", 0);
	snprintf(path, sizeof(path), "%s/" PART, dir);
	ck_assert_int_eq(truncate(path, (off_t)(4 * LAYERS * experts)), 0);
	return mfs_ckpt_open(dir, 0, ret, &err);
}

/* 4 layers of 20 million experts in a hole of 320 MB: 16 GB of memory, were they believed. */
START_TEST(experts_in_a_hole)
{
	struct mfs_ckpt *ckpt;

	unit_fails(open_sparse(20000000, &ckpt), &err, -EINVAL,
		   "20000000 experts: a model of more than 400000 weights");
}
END_TEST

/* What a model may have needs no bytes on the disk, which some file systems do not count. */
START_TEST(usual_counts_in_a_hole)
{
	struct mfs_ckpt *ckpt;

	unit_ok(open_sparse(4096, &ckpt), &err);
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), LAYERS * 4096);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("ckpt_sparse");
	TCase *c = unit_case(s, "hole", experts_in_a_hole);

	tcase_add_test(c, usual_counts_in_a_hole);
	return s;
}

/* Checkpoints as sets of global tensors: formats/ckpt. Real fixtures, and the same with one thing
 * wrong. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/extra_states.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/optim/read/optim_open.h"

#define DIST   "weights/qwen3-torch_dist-tp4/iter_0000040"
#define BRIDGE "bridge/llama/iter_0000000"
#define NEMO   "nemo/llama"
#define DCP    "dcp/llama"
#define ZARR   "zarr/llama-zarr-tp2/iter_0000001"
#define TORCH  "weights/mixtral-torch-pp2-ep2/iter_0000040"

static struct mfs_error err;
static struct mfs_ckpt *ckpt;

static const char *in(const char *dir, const char *name)
{
	static char paths[4][600];
	static unsigned next;
	char path[sizeof(paths[0])];

	/* dir may be one of them. */
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return strcpy(paths[next++ % 4], path);
}

/* Copies the files of a fixture's directory (and of its rank directories) below to. */
static void copy_tree(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *e;

	ck_assert_ptr_nonnull(dir);
	mkdir(to, 0755);
	while ((e = readdir(dir))) {
		char source[600], target[600];
		struct stat st;
		uint8_t *bytes;
		size_t len;

		if (e->d_name[0] == '.' && strcmp(e->d_name, ".metadata"))
			continue;
		snprintf(source, sizeof(source), "%s/%s", from, e->d_name);
		snprintf(target, sizeof(target), "%s/%s", to, e->d_name);
		ck_assert_int_eq(stat(source, &st), 0);
		if (S_ISDIR(st.st_mode)) {
			copy_tree(source, target);
			continue;
		}
		bytes = unit_slurp(source, &len);
		unit_write(to, e->d_name, bytes, len);
		free(bytes);
	}
	closedir(dir);
}

static const char *copy_of(const char *fixture)
{
	const char *to = in(unit_tmpdir(), "ckpt");

	copy_tree(unit_fixture(fixture), to);
	return to;
}

static const struct {
	const char *fixture;
	const char *format;
	struct mfs_ckpt_layout layout;
	uint32_t tensors;
	bool sums;
} fixtures[] = {
	{DIST, "torch_dist", {.tp = 4, .pp = 1, .ep = 1, .etp = 4, .vpp = 1}, 34, true},
	{TORCH, "torch", {.tp = 1, .pp = 2, .ep = 2, .etp = 1, .vpp = 1}, 55, true},
	{"weights/gpt2-torch-tp2-pp2/iter_0000040",
	 "torch",
	 {.tp = 2, .pp = 2, .ep = 1, .etp = 2, .vpp = 1},
	 52,
	 true},
	{"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040",
	 "torch_dist",
	 {.tp = 2, .pp = 2, .ep = 1, .etp = 2, .vpp = 2},
	 27,
	 true},
	{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
	 "torch_dist",
	 {.tp = 1, .pp = 2, .ep = 2, .etp = 1, .vpp = 1},
	 77,
	 true},
	{BRIDGE, "torch_dist", {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1}, 15, true},
	{"old/v1.0-tp2/iter_0000005",
	 "torch",
	 {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1},
	 28,
	 false},
	{"old/v2.5-tp2-pp2/iter_0000005",
	 "torch",
	 {.tp = 2, .pp = 2, .ep = 1, .etp = 2, .vpp = 1},
	 28,
	 true},
	{"old/core_v0.12-tp2/iter_0000005",
	 "torch",
	 {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1},
	 15,
	 true},
	{NEMO, "torch_dist", {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1}, 9, true},
	{DCP, "dcp", {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1}, 9, true},
	{ZARR, "zarr", {.tp = 2, .pp = 1, .ep = 1, .etp = 2, .vpp = 1}, 15, false},
};

/* Every storage is found, and its bytes have the CRC-32 that torch left, if it left any. */
static void check_storages(bool sums)
{
	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		ck_assert_ptr_eq(mfs_ckpt_find(ckpt, t->name, t->layer, t->expert), t);
		for (uint32_t k = 0; k < t->chunk_count; k++) {
			bool checked = false;

			unit_ok(mfs_ckpt_check_bytes(ckpt, t, mfs_ckpt_chunks(ckpt, t)[k].storage,
						     &checked, &err),
				&err);
			ck_assert(checked == sums);
		}
	}
}

START_TEST(fixtures_have_their_tensors_and_layouts)
{
	const struct mfs_ckpt_layout *l, *want = &fixtures[_i].layout;

	unit_ok(mfs_ckpt_open(unit_fixture(fixtures[_i].fixture), 0, &ckpt, &err), &err);
	l = mfs_ckpt_layout(ckpt);
	ck_assert_str_eq(mfs_ckpt_format(ckpt)->name, fixtures[_i].format);
	ck_assert_uint_eq(mfs_ckpt_count(ckpt), fixtures[_i].tensors);
	ck_assert(l->tp == want->tp && l->pp == want->pp && l->ep == want->ep &&
		  l->etp == want->etp && l->vpp == want->vpp);
	check_storages(fixtures[_i].sums);
	mfs_ckpt_free(ckpt);
}
END_TEST

/* Tensor ranks have equal offsets, so the items of one rank's file fit another's: one byte of the
 * file's name, stored once, would show the wrong weights. */
START_TEST(an_index_that_names_the_wrong_file)
{
	const char *dir = copy_of(DIST);
	size_t len;
	uint8_t *bytes = unit_slurp(in(dir, ".metadata"), &len);
	uint8_t *name = memmem(bytes, len, "__1_0.distcp", 12);

	ck_assert_ptr_nonnull(name);
	name[2] = '3';
	unit_write(dir, ".metadata", bytes, len);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -EINVAL, "share the bytes");
	free(bytes);
}
END_TEST

/* A model with an adapter in it must not be shown without it. */
START_TEST(an_adapter_in_torch_dist)
{
	const char *dir = copy_of(DIST);
	size_t len;
	uint8_t *bytes = unit_slurp(in(dir, ".metadata"), &len), *name = bytes;
	unsigned found = 0;

	while ((name = memmem(name, len - (size_t)(name - bytes), ".linear_proj.", 13))) {
		memcpy(name, ".lora_a_proj.", 13);
		found++;
	}
	ck_assert_uint_gt(found, 0);
	unit_write(dir, ".metadata", bytes, len);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENOTSUP, "is of a LoRA adapter");
	free(bytes);
}
END_TEST

START_TEST(a_metadata_json_that_was_cut)
{
	const char *dir = copy_of(DIST);

	unit_write(dir, "metadata.json", "{\"sharded_backend\": \"torch_dist", 31);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA, "metadata.json");
	unit_write(dir, "metadata.json", "{\"sharded_backend\": \"hdf5\"}", 27);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENOTSUP,
		   "'hdf5', expected torch_dist or zarr");
}
END_TEST

/* Megatron-Bridge's state has no arguments; readers of the state find those of run_config.yaml in
 * it. */
START_TEST(arguments_of_a_run_config)
{
	const char *dir = copy_of(BRIDGE), *broken = "model: [\n";
	const struct mfs_ckpt_common *state;
	const struct mfs_pickle *doc;
	int64_t layers, iteration;

	unit_ok(mfs_ckpt_open(dir, MFS_CKPT_COMMON, &ckpt, &err), &err);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->num_query_groups, 1);
	ck_assert(mfs_ckpt_args(ckpt)->swiglu && !mfs_ckpt_args(ckpt)->tied);
	state = mfs_ckpt_common(ckpt);
	doc = state->archive.doc;
	ck_assert(mfs_value_int(
		doc, mfs_value_attr(doc, mfs_value_get(doc, state->root, "args"), "num_layers"),
		&layers));
	ck_assert(mfs_value_int(doc, mfs_value_get(doc, state->root, "iteration"), &iteration));
	ck_assert(layers == 2 && !iteration);
	mfs_ckpt_free(ckpt);
	unit_write(dir, "run_config.yaml", broken, strlen(broken));
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -EINVAL, "run_config.yaml: line 2");
	ck_assert_int_eq(unlink(in(dir, "run_config.yaml")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENOTSUP, "no run_config.yaml");
}
END_TEST

/* NeMo has torch_dist in weights/, and says what it is in context/. */
START_TEST(a_nemo_checkpoint)
{
	const char *dir = copy_of(NEMO);

	unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	ck_assert_int_eq(mfs_ckpt_args(ckpt)->num_query_groups, 1);
	ck_assert(mfs_ckpt_args(ckpt)->swiglu && !mfs_ckpt_common(ckpt));
	ck_assert_ptr_nonnull(mfs_ckpt_find(ckpt, "decoder.layers.mlp.linear_fc1.weight", 0, -1));
	mfs_ckpt_free(ckpt);
	unit_fails(mfs_ckpt_open(in(dir, "weights"), 0, &ckpt, &err), &err, -ENOTSUP,
		   "SOURCE is the folder that holds weights/ and context/");
	unit_write(dir, "weights/metadata.json", "{\"sharded_backend\": \"hdf5\"}", 27);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENOTSUP,
		   "weights/metadata.json: sharded_backend is 'hdf5'");
	ck_assert_int_eq(unlink(in(dir, "weights/metadata.json")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA,
		   "weights/metadata.json is missing");
}
END_TEST

/* Renames a tensor in an index to one of the same length. */
static void rename_in(const char *dir, const char *index, const char *from, const char *to)
{
	size_t len, found = 0;
	uint8_t *bytes = unit_slurp(in(dir, index), &len), *at = bytes;

	ck_assert_uint_eq(strlen(from), strlen(to));
	while ((at = memmem(at, len - (size_t)(at - bytes), from, strlen(from)))) {
		memcpy(at, to, strlen(to));
		found++;
	}
	ck_assert_uint_gt(found, 0);
	unit_write(dir, index, bytes, len);
	free(bytes);
}

static unsigned warnings_of(const char *dir, const char *part)
{
	const char *const *warnings;
	unsigned found = 0;

	unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	for (uint32_t i = mfs_ckpt_warnings(ckpt, &warnings); i-- > 0;)
		found += strstr(warnings[i], part) != NULL;
	mfs_ckpt_free(ckpt);
	return found;
}

/* torch's own optimizers are left out, with a warning. */
START_TEST(optimizers_that_are_not_read)
{
	const char *dir = copy_of(DCP);

	ck_assert_uint_eq(warnings_of(dir, "the optimizer's state"), 0);
	rename_in(dir, ".metadata", "model.module.decoder.final_layernorm.weight",
		  "optimizer.state.exp_avg.model.module.norm__");
	ck_assert_uint_eq(warnings_of(dir, "such as 'optimizer.state.exp_avg."), 1);
}
END_TEST

START_TEST(a_nemo_checkpoint_without_a_context)
{
	const char *dir = copy_of(NEMO);

	ck_assert_int_eq(unlink(in(dir, "context/model.yaml")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA, "model.yaml is missing");
	ck_assert_int_eq(unlink(in(dir, "weights/__0_0.distcp")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA,
		   "weights/__0_0.distcp is missing");
}
END_TEST

/* The arguments are an item, the rows are cut unevenly, and gate and up are apart. */
START_TEST(a_plain_dcp_checkpoint)
{
	const char *dir = copy_of(DCP);
	const struct mfs_global_tensor *t;

	unit_ok(mfs_optim_open(dir, &ckpt, &err), &err);
	t = mfs_ckpt_find(ckpt, "decoder.layers.mlp.linear_fc1.weight", 0, -1);
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->shape[0], 64);
	ck_assert_uint_eq(t->chunk_count, 4);
	ck_assert(!mfs_ckpt_common(ckpt));
	mfs_ckpt_free(ckpt);
	ck_assert_int_eq(unlink(in(dir, "__1_0.distcp")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA, "__1_0.distcp is missing");
}
END_TEST

/* torch_dist without the file that a save writes last is no plain DCP. */
START_TEST(torch_dist_without_metadata_json)
{
	const char *dir = copy_of(DIST);

	ck_assert_int_eq(unlink(in(dir, "metadata.json")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA,
		   "metadata.json is missing (the save did not finish)");
}
END_TEST

START_TEST(a_rank_that_is_missing)
{
	const char *dir = copy_of(TORCH);

	/* An empty directory more is Megatron's own doing; one less with a state is a hole. */
	ck_assert_int_eq(mkdir(in(dir, "mp_rank_07_000_000"), 0755), 0);
	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	mfs_ckpt_free(ckpt);
	ck_assert_int_eq(unlink(in(dir, "mp_rank_00_001_001/model_optim_rng.pt")), 0);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -ENODATA, "mp_rank_00_001_001");
}
END_TEST

/* A bit that rots in a tensor is told by its CRC-32, with the tensor's name. */
START_TEST(bytes_that_have_changed)
{
	const char *dir = copy_of(DIST);
	const struct mfs_global_tensor *t;
	uint32_t file, storage;
	uint64_t at;
	uint8_t *bytes;
	size_t len;
	bool checked;

	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	t = mfs_ckpt_find(ckpt, "decoder.layers.mlp.linear_fc2.weight", 1, -1);
	ck_assert_ptr_nonnull(t);
	storage = mfs_ckpt_chunks(ckpt, t)->storage;
	unit_ok(mfs_ckpt_locate(ckpt, t, storage, &file, &at, &err), &err);
	bytes = unit_slurp(in(dir, mfs_fileset_name(mfs_ckpt_files(ckpt), file)), &len);
	bytes[at + 5] ^= 1;
	unit_write(dir, mfs_fileset_name(mfs_ckpt_files(ckpt), file), bytes, len);
	mfs_ckpt_free(ckpt);
	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	t = mfs_ckpt_find(ckpt, "decoder.layers.mlp.linear_fc2.weight", 1, -1);
	unit_fails(mfs_ckpt_check_bytes(ckpt, t, storage, &checked, &err), &err, -EINVAL,
		   "decoder.layers.1.mlp.linear_fc2.weight");
	mfs_ckpt_free(ckpt);
	free(bytes);
}
END_TEST

/* ---- stages' copies of a tied embedding ---- */

#define TIED "weights/gpt2-torch-tp2-pp2/iter_0000040"

/* Where the 64 bytes at the middle of tensor rank 1's part of the embedding lie in its last stage's
 * file. */
static size_t find_copy(const char *dir, const uint8_t *bytes, size_t len)
{
	const struct mfs_global_tensor *t;
	const struct mfs_chunk *c;
	uint32_t file;
	uint64_t at;
	size_t own_len;
	uint8_t *own, *found;

	unit_ok(mfs_ckpt_open(dir, 0, &ckpt, &err), &err);
	t = mfs_ckpt_find(ckpt, "embedding.word_embeddings.weight", -1, -1);
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->chunk_count, 2);
	c = &mfs_ckpt_chunks(ckpt, t)[1];
	ck_assert_uint_gt(c->lo[0], 0);
	unit_ok(mfs_ckpt_locate(ckpt, t, c->storage, &file, &at, &err), &err);
	ck_assert_str_eq(mfs_fileset_name(mfs_ckpt_files(ckpt), file),
			 "mp_rank_01_000/model_optim_rng.pt");
	at += (c->origin + c->size[0] / 2 * c->stride[0]) * mfs_dtype_size(t->dtype);
	own = unit_slurp(in(dir, mfs_fileset_name(mfs_ckpt_files(ckpt), file)), &own_len);
	found = memmem(bytes, len, own + at, 64);
	ck_assert_ptr_nonnull(found);
	free(own);
	mfs_ckpt_free(ckpt);
	return (size_t)(found - bytes);
}

#define COPIES_DIFFER                                                                              \
	"mp_rank_01_001: tensor 'output_layer.weight' differs from "                               \
	"'embedding.word_embeddings.weight' of mp_rank_01_000"

/* One bit of the last stage's head: which of the two models is it? */
START_TEST(copies_that_differ)
{
	const char *dir = copy_of(TIED), *file = in(dir, "mp_rank_01_001/model_optim_rng.pt");
	size_t len;
	uint8_t *bytes = unit_slurp(file, &len);

	bytes[find_copy(dir, bytes, len)] ^= 1;
	unit_write(dir, "mp_rank_01_001/model_optim_rng.pt", bytes, len);
	unit_fails(mfs_ckpt_open(dir, 0, &ckpt, &err), &err, -EINVAL, COPIES_DIFFER);
	unit_fails(mfs_optim_open(dir, &ckpt, &err), &err, -EINVAL, COPIES_DIFFER);
	free(bytes);
}
END_TEST

/* ---- before core ---- */

/* Where row r of 12 of a layer's q, k and v lies in a file: two heads of two channels. The files
 * say versions 0, 1.0 and 2.0. */
static const uint64_t qkv_rows[][12] = {
	{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11},
	{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11},
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
};

/* Writes the one file of a directory of tests/fuzz/ckpt_dir.h: a letter, its length, its bytes. */
static const char *one_rank(const char *input)
{
	const char *dir = in(unit_tmpdir(), "before-core"), *rank;
	size_t len;
	uint8_t *bytes = unit_slurp(input, &len);

	ck_assert_uint_gt(len, 5);
	ck_assert_int_eq(bytes[0], 'm');
	mkdir(dir, 0755);
	rank = in(dir, "mp_rank_00");
	mkdir(rank, 0755);
	unit_write(rank, "model_optim_rng.pt", bytes + 5, len - 5);
	free(bytes);
	return dir;
}

START_TEST(qkv_of_2020)
{
	const struct mfs_global_tensor *t;
	char input[64];
	unsigned rows = 0;

	snprintf(input, sizeof(input), "tests/fuzz/corpus/views/ok-before-core-%d", _i);
	unit_ok(mfs_ckpt_open(one_rank(input), 0, &ckpt, &err), &err);
	t = mfs_ckpt_find(ckpt, "decoder.layers.self_attention.linear_qkv.weight", 0, -1);
	ck_assert_ptr_nonnull(t);
	for (uint32_t k = 0; k < t->chunk_count; k++) {
		const struct mfs_chunk *c = &mfs_ckpt_chunks(ckpt, t)[k];

		ck_assert(c->size[1] == 4 && c->stride[1] == 1);
		for (uint64_t i = 0; i < c->size[0]; i++, rows++)
			ck_assert_uint_eq(c->origin + i * c->stride[0],
					  4 * qkv_rows[_i][c->lo[0] + i]);
	}
	ck_assert_uint_eq(rows, 12);
	mfs_ckpt_free(ckpt);
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} refused_before_core[] = {
	{"before-core-version", "checkpoint_version 0.5: expected 0, 1.0, 2.0 or 3.0", -ENOTSUP},
	{"core-of-version-1", "checkpoint_version 1: expected 2.0 or 3.0", -ENOTSUP},
	{"adapter", "of a LoRA adapter", -ENOTSUP},
	{"quantiser", "of a model quantised by ModelOpt", -ENOTSUP},
	{"before-core-rows", "expected 12 rows of q, k and v, found 18", -EINVAL},
	{"before-core-in-itself", "not a plain strided tensor", -ENOTSUP},
	{"before-core-optimizer", "Megatron-LM before core is not read", -ENOTSUP},
};

START_TEST(what_is_not_read_of_before_core_is_refused)
{
	char input[96];

	snprintf(input, sizeof(input), "tests/fuzz/reject/views/%s", refused_before_core[_i].input);
	unit_fails(mfs_optim_open(one_rank(input), &ckpt, &err), &err, refused_before_core[_i].code,
		   refused_before_core[_i].words);
}
END_TEST

/* ---- names ---- */

static const struct {
	const char *key, *canonical;
	int layer, expert;
	enum mfs_tp_split_kind tp;
	enum mfs_name_part part;
} names[] = {
	{"embedding.word_embeddings.weight", "embedding.word_embeddings.weight", -1, -1,
	 MFS_TP_ROWS, 0},
	{"decoder.layers.self_attention.linear_qkv.layer_norm_weight",
	 "decoder.layers.input_layernorm.weight", -1, -1, MFS_TP_NONE, 0},
	{"decoder.layers.12.mlp.linear_fc1.layer_norm_bias",
	 "decoder.layers.pre_mlp_layernorm.bias", 12, -1, MFS_TP_NONE, 0},
	{"decoder.layers.3.mlp.experts.local_experts.7.linear_fc1.weight",
	 "decoder.layers.mlp.experts.experts.linear_fc1.weight", 3, 7, MFS_TP_GATED, 0},
	{"decoder.layers.3.mlp.experts.linear_fc2.weight15",
	 "decoder.layers.mlp.experts.experts.linear_fc2.weight", 3, 15, MFS_TP_COLS, 0},
	{"decoder.layers.mlp.experts.experts.linear_fc1.weight",
	 "decoder.layers.mlp.experts.experts.linear_fc1.weight", -1, -1, MFS_TP_GATED, 0},
	{"decoder.layers.mlp.experts.experts.4.linear_fc1.weight_v",
	 "decoder.layers.mlp.experts.experts.linear_fc1.weight", -1, 4, MFS_TP_GATED, MFS_PART_UP},
	{"decoder.layers.0.mlp.linear_fc1.weight_w", "decoder.layers.mlp.linear_fc1.weight", 0, -1,
	 MFS_TP_GATED, MFS_PART_GATE},
	{"mtp.layers.0.mtp_model_layer.input_layernorm.weight",
	 "mtp.layers.transformer_layer.input_layernorm.weight", 0, -1, MFS_TP_NONE, 0},
	{"mtp.layers.0.mtp_model_layer.layers.1.mlp.linear_fc1.layer_norm_weight",
	 "mtp.layers.transformer_layer.pre_mlp_layernorm.weight", 0, -1, MFS_TP_NONE, 0},
	{"mtp.layers.1.eh_proj.weight", "mtp.layers.eh_proj.weight", 1, -1, MFS_TP_ROWS, 0},
	{"language_model.word_embeddings.weight", "embedding.word_embeddings.weight", -1, -1,
	 MFS_TP_ROWS, 0},
	{"language_model.transformer.layers.3.attention.query_key_value.bias",
	 "decoder.layers.self_attention.linear_qkv.bias", 3, -1, MFS_TP_ROWS, 0},
	{"language_model.encoder.layers.11.self_attention.dense.weight",
	 "decoder.layers.self_attention.linear_proj.weight", 11, -1, MFS_TP_COLS, 0},
	{"language_model.encoder.layers.0.post_attention_norm.weight",
	 "decoder.layers.pre_mlp_layernorm.weight", 0, -1, MFS_TP_NONE, 0},
	{"language_model.encoder.final_layernorm.bias", "decoder.final_layernorm.bias", -1, -1,
	 MFS_TP_NONE, 0},
	{"word_embeddings_for_head.weight", "output_layer.weight", -1, -1, MFS_TP_ROWS, 0},
	{"decoder.layers.2.self_attention.in_proj.layer_norm_weight",
	 "decoder.layers.input_layernorm.weight", 2, -1, MFS_TP_NONE, 0},
	{"decoder.layers.2.self_attention.in_proj.weight.alpha",
	 "decoder.layers.self_attention.in_proj.weight", 2, -1, MFS_TP_SECTIONS, 0},
	{"decoder.layers.0.self_attention.conv1d.weight.query",
	 "decoder.layers.self_attention.conv1d.weight", 0, -1, MFS_TP_SECTIONS, 0},
	{"decoder.layers.0.self_attention.out_proj.weight",
	 "decoder.layers.self_attention.out_proj.weight", 0, -1, MFS_TP_COLS, 0},
};

START_TEST(keys_of_each_release_have_one_name)
{
	struct mfs_name name;

	mfs_name_parse(names[_i].key, &name);
	ck_assert_str_eq(name.canonical, names[_i].canonical);
	ck_assert_int_eq(name.layer, names[_i].layer);
	ck_assert_int_eq(name.expert, names[_i].expert);
	ck_assert_int_eq(name.tp, names[_i].tp);
	ck_assert_int_eq(name.part, names[_i].part);
	ck_assert(name.known);
}
END_TEST

START_TEST(names_that_are_none)
{
	struct mfs_name name;

	mfs_name_parse("decoder.layers.0.mlp.linear_fc1._extra_state", &name);
	ck_assert(name.ignored);
	mfs_name_parse("decoder.layers.0.mlp.linear_fc1.lora_A.weight", &name);
	ck_assert(!name.known);
	mfs_name_parse("decoder.layers.99999999999.input_layernorm.weight", &name);
	ck_assert(!name.known);
	mfs_name_parse("decoder.layers.0.self_attention.in_proj.weight", &name);
	ck_assert(name.known && !name.section);
	mfs_name_parse("decoder.layers.0.self_attention.in_proj.weight.query", &name);
	ck_assert_uint_eq(name.section, 1);
	mfs_name_parse("decoder.layers.0.self_attention.in_proj.weight.alpha", &name);
	ck_assert_uint_eq(name.section, 6);
	/* The convolution has three sections. */
	mfs_name_parse("decoder.layers.0.self_attention.conv1d.weight.z", &name);
	ck_assert(!name.known && !name.section);
	mfs_name_parse("decoder.layers.0.self_attention.linear_qkv.weight.key", &name);
	ck_assert(!name.known && !name.section);
	mfs_name_parse("decoder.layers.0.mixer.in_proj.weight.dt", &name);
	ck_assert(name.known && name.section == 5);
	mfs_name_parse("decoder.layers.0.mixer.conv1d.bias.x", &name);
	ck_assert(name.known && name.section == 1);
	mfs_name_parse("decoder.layers.0.mixer.conv1d.weight.z", &name);
	ck_assert(!name.known && !name.section);
	mfs_name_parse("decoder.layers.0.mixer.in_proj.layer_norm_weight", &name);
	ck_assert_str_eq(name.canonical, "decoder.layers.norm.weight");
	mfs_name_parse("decoder.layers.0.mixer.conv1d_bias", &name);
	ck_assert_str_eq(name.canonical, "decoder.layers.mixer.conv1d.bias");
	ck_assert(name.known);
	mfs_name_parse("decoder.final_norm.weight", &name);
	ck_assert_str_eq(name.canonical, "decoder.final_layernorm.weight");
	mfs_name_parse("language_model.pooler.dense.weight", &name);
	ck_assert(!name.known);
	/* Sixteen of its digits are another layer's number. */
	mfs_name_parse("language_model.encoder.layers.00000000000000017.input_norm.weight", &name);
	ck_assert(!name.known);
	ck_assert(!mfs_name_is_model("optimizer.state.exp_avg.decoder.final_layernorm.weight"));
	ck_assert(mfs_name_is_model("decoder.final_layernorm.weight"));
}
END_TEST

static void found(struct mfs_ckpt *c, const char *name)
{
	struct mfs_found_chunk p = {.name = mfs_ckpt_intern(c, name),
				    .expert = -1,
				    .dtype = MFS_BF16,
				    .ndim = 1,
				    .shape = {8},
				    .chunk = {.size = {8}, .stride = {1}}};

	unit_ok(mfs_ckpt_add_found(c, &p, &err), &err);
}

/* No argument tells that norms follow attention and MLP only: the tensors do. */
START_TEST(norms_after_alone)
{
	struct mfs_ckpt *c;

	for (int before = 0; before < 2; before++) {
		unit_ok(mfs_ckpt_new(unit_tmpdir(), 0, NULL, &c, &err), &err);
		found(c, "decoder.layers.self_attention.linear_proj.post_layernorm.weight");
		if (before)
			found(c, "decoder.layers.input_layernorm.weight");
		unit_ok(mfs_ckpt_group(c, &err), &err);
		ck_assert(c->args.post_norms == !before);
		mfs_ckpt_free(c);
	}
}
END_TEST

/* Both layers of a HybridModel's block have their own states (make_views_seeds.py: a letter, a
 * length, the file). */
START_TEST(states_of_blocks)
{
	const char *to = in(unit_tmpdir(), "mp_rank_00");
	const struct mfs_global_tensor *attention, *mlp;
	struct mfs_extra_state first, second;
	struct mfs_arena arena = {0};
	size_t len;
	uint8_t *bytes = unit_slurp("tests/fuzz/corpus/views/ok-states-of-a-hybrid", &len);

	mkdir(to, 0755);
	unit_write(to, "model_optim_rng.pt", bytes + 5, len - 5);
	free(bytes);
	unit_ok(mfs_ckpt_open(unit_tmpdir(), MFS_CKPT_COMMON, &ckpt, &err), &err);
	attention = mfs_ckpt_find(ckpt, "decoder.layers.self_attention.linear_qkv.weight", 0, -1);
	mlp = mfs_ckpt_find(ckpt, "decoder.layers.mlp.linear_fc1.weight", 0, -1);
	unit_ok(mfs_ckpt_extra_state(ckpt, attention, &arena, &first, &err), &err);
	unit_ok(mfs_ckpt_extra_state(ckpt, mlp, &arena, &second, &err), &err);
	ck_assert_uint_eq(first.products, 1);
	ck_assert_uint_eq(second.products, 1);
	ck_assert(first.scale[MFS_FP8_FORWARD][0] != second.scale[MFS_FP8_FORWARD][0]);
	mfs_arena_release(&arena);
	mfs_ckpt_free(ckpt);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("ckpt");
	TCase *c = unit_case(s, "Damage", an_index_that_names_the_wrong_file);

	tcase_add_test(c, states_of_blocks);
	tcase_add_test(c, norms_after_alone);
	tcase_add_test(c, an_adapter_in_torch_dist);
	tcase_add_test(c, a_metadata_json_that_was_cut);
	tcase_add_test(c, arguments_of_a_run_config);
	tcase_add_test(c, a_nemo_checkpoint);
	tcase_add_test(c, a_nemo_checkpoint_without_a_context);
	tcase_add_test(c, optimizers_that_are_not_read);
	tcase_add_test(c, a_plain_dcp_checkpoint);
	tcase_add_test(c, torch_dist_without_metadata_json);
	tcase_add_test(c, a_rank_that_is_missing);
	tcase_add_test(c, bytes_that_have_changed);
	tcase_add_test(c, copies_that_differ);
	c = unit_case(s, "Names", names_that_are_none);
	tcase_add_loop_test(c, qkv_of_2020, 0, MFS_ARRAY_SIZE(qkv_rows));
	tcase_add_loop_test(c, what_is_not_read_of_before_core_is_refused, 0,
			    MFS_ARRAY_SIZE(refused_before_core));
	tcase_add_loop_test(c, keys_of_each_release_have_one_name, 0, MFS_ARRAY_SIZE(names));
	tcase_add_loop_test(c, fixtures_have_their_tensors_and_layouts, 0,
			    MFS_ARRAY_SIZE(fixtures));
	return s;
}

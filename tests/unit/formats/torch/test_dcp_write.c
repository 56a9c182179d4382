/* Writing the metadata of torch.distributed.checkpoint: formats/torch/dcp_write.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/torch/dcp.h"
#include "formats/torch/dcp_write.h"
#include "formats/torch/pickle_write.h"
#include "formats/torch/torch_file.h"
#include "formats/torch/torch_write.h"

static struct mfs_error err;
static struct mfs_dcp real, again;
static struct mfs_buf out;

static void teardown(void)
{
	mfs_dcp_release(&real);
	mfs_dcp_release(&again);
	mfs_buf_release(&out);
}

static void write_and_parse(const struct mfs_dcp_write_ops *w)
{
	unit_ok(mfs_dcp_write(w, &out, &err), &err);
	unit_ok(mfs_dcp_parse(out.data, out.len, "written", &again, &err), &err);
	for (uint32_t i = 0; i < again.tensor_count; i++)
		unit_ok(mfs_dcp_check(&again.tensors[i], "written", &err), &err);
}

/* ---- a parsed one, written again ---- */

static struct mfs_dcp_write_item item_of(const struct mfs_dcp_item *item)
{
	return (struct mfs_dcp_write_item){real.files[item->file], item->offset, item->length};
}

static int real_tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *e)
{
	const struct mfs_dcp_tensor *t = &real.tensors[i];

	(void)arg, (void)e;
	*ret = (struct mfs_dcp_write_tensor){.key = t->key,
					     .dtype = t->dtype,
					     .ndim = t->ndim,
					     .shape = t->shape,
					     .chunk_count = t->chunk_count};
	return 0;
}

static int real_chunk(void *arg, uint32_t i, uint32_t chunk, struct mfs_dcp_write_chunk *ret,
		      struct mfs_error *e)
{
	const struct mfs_dcp_chunk *c = &real.tensors[i].chunks[chunk];

	(void)arg, (void)e;
	*ret = (struct mfs_dcp_write_chunk){
		.lo = c->lo, .size = c->size, .item = item_of(&c->item)};
	return 0;
}

static int real_bytes(void *arg, uint32_t i, struct mfs_dcp_write_bytes *ret, struct mfs_error *e)
{
	(void)arg, (void)e;
	*ret = (struct mfs_dcp_write_bytes){.key = real.bytes[i].key,
					    .item = item_of(&real.bytes[i].item)};
	return 0;
}

static void assert_same_item(const struct mfs_dcp_item *a, const struct mfs_dcp_item *b)
{
	ck_assert(a->offset == b->offset && a->length == b->length);
	ck_assert_str_eq(real.files[a->file], again.files[b->file]);
}

static void assert_same_tensor(const struct mfs_dcp_tensor *a, const struct mfs_dcp_tensor *b)
{
	const size_t dims = a->ndim * sizeof(uint64_t);

	ck_assert_str_eq(a->key, b->key);
	ck_assert(a->dtype == b->dtype && a->ndim == b->ndim && a->chunk_count == b->chunk_count);
	ck_assert(!dims || !memcmp(a->shape, b->shape, dims));
	for (uint32_t i = 0; i < a->chunk_count; i++) {
		const struct mfs_dcp_chunk *x = &a->chunks[i], *y = &b->chunks[i];

		ck_assert(!dims || !memcmp(x->lo, y->lo, dims));
		ck_assert(!dims || !memcmp(x->size, y->size, dims));
		assert_same_item(&x->item, &y->item);
	}
}

static const char *const fixtures[] = {
	"resume/llama-torch_dist-tp2-pp2/iter_0000040/.metadata",
	"resume/llama-torch_dist-tp2-pp2-vpp2/iter_0000020/.metadata",
	"weights/deepseek-torch_dist-pp2-ep2/iter_0000040/.metadata",
	"weights/mixtral-torch_dist-pp2-ep2/iter_0000040/.metadata",
	"weights/qwen3-torch_dist-tp4/iter_0000040/.metadata",
	"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040/.metadata",
};

static void parse_fixture(const char *path, size_t *ret_len)
{
	uint8_t *bytes = unit_slurp(unit_fixture(path), ret_len);

	unit_ok(mfs_dcp_parse(bytes, *ret_len, ".metadata", &real, &err), &err);
	free(bytes);
}

START_TEST(real_metadata_again)
{
	struct mfs_dcp_write_ops w = {
		.tensor = real_tensor, .chunk = real_chunk, .bytes = real_bytes};
	size_t len;

	parse_fixture(fixtures[_i], &len);
	w.tensor_count = real.tensor_count;
	w.bytes_count = real.bytes_count;
	write_and_parse(&w);
	ck_assert_uint_lt(out.len, len); /* not larger than Python's own */
	ck_assert_uint_eq(again.tensor_count, real.tensor_count);
	ck_assert_uint_eq(again.bytes_count, real.bytes_count);
	ck_assert_uint_eq(again.file_count, real.file_count);
	for (uint32_t i = 0; i < real.tensor_count; i++)
		assert_same_tensor(&real.tensors[i], &again.tensors[i]);
	for (uint32_t i = 0; i < real.bytes_count; i++) {
		ck_assert_str_eq(real.bytes[i].key, again.bytes[i].key);
		assert_same_item(&real.bytes[i].item, &again.bytes[i].item);
	}
}
END_TEST

/* The item's lengths in real files are those of ours, dtype and chunk given. */
START_TEST(real_item_lengths)
{
	struct mfs_torch_items *items;
	struct mfs_torch_item item;
	size_t len;

	parse_fixture(fixtures[_i], &len);
	unit_ok(mfs_torch_items_new(&items, &err), &err);
	for (uint32_t i = 0; i < real.tensor_count; i++) {
		const struct mfs_dcp_tensor *t = &real.tensors[i];

		for (uint32_t c = 0; c < t->chunk_count; c++) {
			unit_ok(mfs_torch_item(items, t->dtype, t->chunks[c].size, t->ndim, &item,
					       &err),
				&err);
			ck_assert_msg(mfs_torch_item_size(&item) == t->chunks[c].item.length,
				      "%s: %lu instead of %lu", t->key,
				      (unsigned long)mfs_torch_item_size(&item),
				      (unsigned long)t->chunks[c].item.length);
		}
	}
	mfs_torch_items_free(items);
}
END_TEST

/* ---- a large one ---- */

#define EXPERTS 256
#define LAYERS	58

static int many_tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *e)
{
	static const uint64_t shape[] = {LAYERS, EXPERTS, 4096, 7168};
	static char key[64];

	(void)arg, (void)e;
	snprintf(key, sizeof key, "decoder.layers.mlp.experts.experts.linear_fc%u.weight", i);
	*ret = (struct mfs_dcp_write_tensor){.key = key,
					     .dtype = MFS_BF16,
					     .ndim = 4,
					     .shape = shape,
					     .chunk_count = LAYERS * EXPERTS};
	return 0;
}

static int many_chunk(void *arg, uint32_t i, uint32_t chunk, struct mfs_dcp_write_chunk *ret,
		      struct mfs_error *e)
{
	static const uint64_t size[] = {1, 1, 4096, 7168};
	static uint64_t lo[4];
	static char file[32];

	(void)arg, (void)e;
	lo[0] = chunk / EXPERTS;
	lo[1] = chunk % EXPERTS;
	snprintf(file, sizeof file, "__%u_0.distcp", chunk % 512);
	*ret = (struct mfs_dcp_write_chunk){
		.lo = lo, .size = size, .item = {file, (i * 1000ull + chunk) << 26, 58721257}};
	return 0;
}

START_TEST(a_hundred_thousand_chunks)
{
	const struct mfs_dcp_write_ops w = {
		.tensor_count = 7, .tensor = many_tensor, .chunk = many_chunk};

	write_and_parse(&w);
	ck_assert_uint_eq(again.tensor_count, 7);
	ck_assert_uint_eq(again.file_count, 512);
	ck_assert_uint_eq(again.tensors[6].chunk_count, LAYERS * EXPERTS);
	ck_assert_uint_eq(again.tensors[6].chunks[EXPERTS + 1].lo[1], 1);
	ck_assert_uint_lt(out.len, 7 * LAYERS * EXPERTS * 160);
}
END_TEST

static int no_tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *e)
{
	(void)arg, (void)ret;
	return mfs_fail(e, -ENODATA, "tensor %u is not there", i);
}

static int nameless(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *e)
{
	int rc = many_tensor(arg, i, ret, e);

	ret->dtype = MFS_DTYPE_NONE;
	return rc;
}

START_TEST(a_tensor_without_data_is_refused)
{
	struct mfs_dcp_write_ops w = {.tensor_count = 2, .tensor = no_tensor, .chunk = many_chunk};

	unit_fails(mfs_dcp_write(&w, &out, &err), &err, -ENODATA, "tensor 0");
	w.tensor = nameless;
	unit_fails(mfs_dcp_write(&w, &out, &err), &err, -EINVAL, "fc0");
}
END_TEST

/* ---- a checkpoint that tests/interop/test_written.py loads ---- */

/* Chunks of a regular grid; byte k of the tensor's chunk c is (7c + k) % 251, of bool (c + k) %
 * 2. */
static const struct tensor {
	const char *key;
	enum mfs_dtype dtype;
	unsigned ndim;
	uint64_t shape[3], chunk[3];
	uint32_t chunks;
} tensors[] = {
	{"decoder.weight", MFS_BF16, 2, {6, 8}, {3, 4}, 4},
	{"scalar", MFS_F32, 0, {0}, {0}, 1},
	{"float8", MFS_F8_E4M3, 2, {4, 5}, {2, 5}, 2},
	{"long", MFS_I64, 3, {3, 1, 2}, {1, 1, 2}, 3},
	{"bool", MFS_BOOL, 1, {300}, {100}, 3},
	{"empty", MFS_F32, 2, {0, 4}, {0, 4}, 1},
};

static const char *const objects[] = {"decoder._extra_state/shard_0_1", "common_state/shard_0_1"};

#define TENSORS MFS_ARRAY_SIZE(tensors)
#define OBJECTS MFS_ARRAY_SIZE(objects)

static struct mfs_torch_items *items;
static struct mfs_buf files[2]; /* of which items take turns */
static struct mfs_dcp_write_item placed[TENSORS][4], placed_objects[OBJECTS];

static struct mfs_dcp_write_item place(unsigned turn, uint64_t length)
{
	static const char *const names[] = {"__0_0.distcp", "__1_0.distcp"};

	return (struct mfs_dcp_write_item){names[turn % 2], files[turn % 2].len - length, length};
}

static void lay_out_tensor(unsigned i)
{
	const struct tensor *t = &tensors[i];
	struct mfs_torch_item item;

	unit_ok(mfs_torch_item(items, t->dtype, t->chunk, t->ndim, &item, &err), &err);
	for (uint32_t c = 0; c < t->chunks; c++) {
		struct mfs_buf *to = &files[(i + c) % 2];

		mfs_buf_add(to, item.head, item.head_len);
		for (uint64_t k = 0; k < item.payload; k++) {
			uint8_t byte = t->dtype == MFS_BOOL ? (c + k) % 2 : (7 * c + k) % 251;

			mfs_buf_add(to, &byte, 1);
		}
		mfs_buf_add(to, item.tail, item.tail_len);
		placed[i][c] = place(i + c, mfs_torch_item_size(&item));
	}
}

/* [None], and [{"iteration": 20, "args": Namespace(num_layers=4)}] */
static void lay_out_object(unsigned i)
{
	struct mfs_pickle_writer w;
	struct mfs_buf pickle = {0};
	const size_t before = files[i % 2].len;

	mfs_pickle_begin(&w, &pickle, 2);
	mfs_pickle_list_begin(&w);
	if (i == 0) {
		mfs_pickle_none(&w);
	} else {
		mfs_pickle_dict_begin(&w);
		mfs_pickle_name(&w, "iteration");
		mfs_pickle_int(&w, 20);
		mfs_pickle_name(&w, "args");
		mfs_pickle_object_begin(&w, "argparse", "Namespace");
		mfs_pickle_name(&w, "num_layers");
		mfs_pickle_int(&w, 4);
		mfs_pickle_object_end(&w);
		mfs_pickle_dict_end(&w);
	}
	mfs_pickle_list_end(&w);
	unit_ok(mfs_pickle_end(&w, &err), &err);
	unit_ok(mfs_torch_save("archive", pickle.data, pickle.len, NULL, 0, &files[i % 2], &err),
		&err);
	placed_objects[i] = place(i, files[i % 2].len - before);
	mfs_buf_release(&pickle);
}

static int small_tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret,
			struct mfs_error *e)
{
	const struct tensor *t = &tensors[i];

	(void)arg, (void)e;
	*ret = (struct mfs_dcp_write_tensor){t->key, t->dtype, t->ndim, t->shape, t->chunks};
	return 0;
}

static int small_chunk(void *arg, uint32_t i, uint32_t chunk, struct mfs_dcp_write_chunk *ret,
		       struct mfs_error *e)
{
	const struct tensor *t = &tensors[i];
	static uint64_t lo[3];
	uint32_t left = chunk;

	(void)arg, (void)e;
	for (unsigned d = t->ndim; d-- > 0;) {
		uint32_t fragments = t->chunk[d] ? (uint32_t)(t->shape[d] / t->chunk[d]) : 1;

		lo[d] = left % fragments * t->chunk[d];
		left /= fragments;
	}
	*ret = (struct mfs_dcp_write_chunk){t->ndim ? lo : NULL, t->chunk, placed[i][chunk]};
	return 0;
}

static int small_bytes(void *arg, uint32_t i, struct mfs_dcp_write_bytes *ret, struct mfs_error *e)
{
	(void)arg, (void)e;
	*ret = (struct mfs_dcp_write_bytes){objects[i], placed_objects[i]};
	return 0;
}

static void write_files(void)
{
	static const char json[] =
		"{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
		"\"common_backend\": \"torch\", \"common_backend_version\": 1}";
	const char *dir = getenv("MCOREFS_WRITTEN");

	if (!dir)
		return;
	unit_write(dir, ".metadata", out.data, out.len);
	unit_write(dir, "__0_0.distcp", files[0].data, files[0].len);
	unit_write(dir, "__1_0.distcp", files[1].data, files[1].len);
	unit_write(dir, "metadata.json", json, sizeof json - 1);
}

START_TEST(a_checkpoint_reads_back)
{
	const struct mfs_dcp_write_ops w = {.tensor_count = TENSORS,
					    .bytes_count = OBJECTS,
					    .tensor = small_tensor,
					    .chunk = small_chunk,
					    .bytes = small_bytes};

	unit_ok(mfs_torch_items_new(&items, &err), &err);
	for (unsigned i = 0; i < OBJECTS; i++)
		lay_out_object(i);
	for (unsigned i = 0; i < TENSORS; i++)
		lay_out_tensor(i);
	write_and_parse(&w);
	ck_assert_uint_eq(again.tensor_count, TENSORS);
	ck_assert_uint_eq(again.bytes_count, OBJECTS);
	for (uint32_t i = 0; i < again.tensor_count; i++) {
		const struct mfs_dcp_item *at = &again.tensors[i].chunks[0].item;
		const struct mfs_buf *b = &files[again.files[at->file][2] - '0'];
		struct mfs_source whole = mfs_source_memory(b->data, b->len, "file"), src;
		struct mfs_torch_file f;
		struct mfs_torch_tensor t;

		src = mfs_source_range(&whole, at->offset, at->length);
		unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
		unit_ok(mfs_torch_tensor(&f, mfs_pickle_root(f.doc), &t, &err), &err);
		ck_assert(t.dtype == again.tensors[i].dtype && t.ndim == again.tensors[i].ndim);
		mfs_torch_file_release(&f);
	}
	write_files();
	mfs_torch_items_free(items);
	mfs_buf_release(&files[0]);
	mfs_buf_release(&files[1]);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("dcp_write");
	TCase *c = tcase_create("metadata");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_loop_test(c, real_metadata_again, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_loop_test(c, real_item_lengths, 0, MFS_ARRAY_SIZE(fixtures));
	tcase_add_test(c, a_hundred_thousand_chunks);
	tcase_add_test(c, a_tensor_without_data_is_refused);
	tcase_add_test(c, a_checkpoint_reads_back);
	return s;
}

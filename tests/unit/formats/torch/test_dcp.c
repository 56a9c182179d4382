/* The metadata of torch.distributed.checkpoint: formats/torch/dcp.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/torch/dcp.h"

static struct mfs_error err;
static struct mfs_dcp dcp;

static void teardown(void)
{
	mfs_dcp_release(&dcp);
}

static void parse(const char *path)
{
	size_t len;
	uint8_t *bytes = unit_slurp(path, &len);

	unit_ok(mfs_dcp_parse(bytes, len, ".metadata", &dcp, &err), &err);
	free(bytes); /* nothing may point into it */
}

START_TEST(real_checkpoint)
{
	const struct mfs_dcp_tensor *t;
	const struct mfs_dcp_bytes *b;

	parse(unit_fixture("weights/deepseek-torch_dist-pp2-ep2/iter_0000040/.metadata"));
	ck_assert_uint_eq(dcp.file_count, 4);
	t = mfs_dcp_tensor(&dcp, "decoder.layers.1.mlp.experts.experts.linear_fc1.weight");
	ck_assert_ptr_nonnull(t);
	ck_assert(t->ndim == 3 && t->shape[0] == 4 && t->shape[1] == 96 && t->shape[2] == 64);
	ck_assert_uint_eq(t->chunk_count, 8);
	ck_assert_int_eq(t->dtype, MFS_BF16);
	t = mfs_dcp_tensor(&dcp, "decoder.layers.1.mlp.router.expert_bias");
	ck_assert_int_eq(t->dtype, MFS_F32);
	b = mfs_dcp_bytes(&dcp, "common_state/shard_0_1");
	ck_assert_ptr_nonnull(b);
	ck_assert_uint_eq(b->item.length, 31597);
	ck_assert_str_eq(dcp.files[b->item.file], "__0_0.distcp");
	ck_assert_ptr_null(mfs_dcp_tensor(&dcp, "common_state/shard_0_1"));
	ck_assert_ptr_null(mfs_dcp_bytes(&dcp, "output_layer.weight"));
	for (uint32_t i = 0; i < dcp.tensor_count; i++)
		unit_ok(mfs_dcp_check(&dcp.tensors[i], ".metadata", &err), &err);
}
END_TEST

/* Items tile every file without a gap (seen in all real files): offsets and lengths are right. */
START_TEST(items_tile_the_files)
{
	uint64_t total = 0;

	parse(unit_fixture("resume/llama-torch_dist-tp2-pp2/iter_0000040/.metadata"));
	for (uint32_t i = 0; i < dcp.tensor_count; i++)
		for (uint32_t c = 0; c < dcp.tensors[i].chunk_count; c++)
			total += dcp.tensors[i].chunks[c].item.length;
	for (uint32_t i = 0; i < dcp.bytes_count; i++)
		total += dcp.bytes[i].item.length;
	ck_assert_uint_eq(total, 1256200 + 1207439 + 1231487 + 1212874);
}
END_TEST

/* Chunks come out sorted by their place, whatever the order in the file. */
START_TEST(chunks_are_sorted)
{
	const struct mfs_dcp_tensor *t;

	parse(unit_fixture("weights/qwen3-torch_dist-tp4/iter_0000040/.metadata"));
	t = mfs_dcp_tensor(&dcp, "decoder.layers.mlp.linear_fc1.weight");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->chunk_count, 4 * 8);
	for (uint32_t i = 1; i < t->chunk_count; i++) {
		const uint64_t *a = t->chunks[i - 1].lo, *b = t->chunks[i].lo;

		ck_assert(a[0] < b[0] || (a[0] == b[0] && a[1] < b[1]));
	}
}
END_TEST

/* all_local_plans is read past, also where attributes follow it. */
START_TEST(plans_are_read_past)
{
	parse("tests/fuzz/corpus/dcp/ok-with-plans");
	ck_assert_uint_eq(dcp.tensor_count, 2);
	teardown();
	parse("tests/fuzz/corpus/dcp/ok-mcore-data-behind-plans");
	ck_assert_uint_eq(dcp.tensor_count, 2);
	ck_assert_uint_eq(mfs_dcp_tensor(&dcp, "scalar")->ndim, 0);
	ck_assert_uint_eq(mfs_dcp_tensor(&dcp, "scalar")->chunk_count, 1);
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} refused[] = {
	{"no-metadata", ".metadata", -EINVAL},
	{"no-storage-data", ".metadata", -EINVAL},
	{"chunk-leaves-tensor", "decoder.layers.w", -EINVAL},
	{"chunk-volume-short", "expected chunks of 24 elements, found 20", -EINVAL},
	{"chunk-without-place", "decoder.layers.w", -EINVAL},
	{"chunk-other-axes", "decoder.layers.w", -EINVAL},
	{"place-without-tensor", "other", -EINVAL},
	{"item-transformed", "transformed", -ENOTSUP},
	{"item-offset-negative", "decoder.layers.w", -EINVAL},
	{"unknown-dtype", "decoder.layers.w", -ENOTSUP},
	{"nine-axes", "decoder.layers.w", -EINVAL},
	{"volume-wraps", "decoder.layers.w", -EINVAL},
};

START_TEST(refused_with_a_reason)
{
	char path[128];
	uint8_t *bytes;
	size_t len;
	int rc;

	snprintf(path, sizeof path, "tests/fuzz/reject/dcp/%s", refused[_i].input);
	bytes = unit_slurp(path, &len);
	rc = mfs_dcp_parse(bytes, len, ".metadata", &dcp, &err);
	for (uint32_t i = 0; !rc && i < dcp.tensor_count; i++)
		rc = mfs_dcp_check(&dcp.tensors[i], ".metadata", &err);
	ck_assert_int_eq(rc, refused[_i].code);
	unit_sentence(err.msg, refused[_i].words);
	free(bytes);
}
END_TEST

/* ---- streams that refer to one value again and again ---- */

#define MANY 300000

/* A text of protocol 4, below 256 bytes. */
static void text(struct mfs_buf *b, const char *s)
{
	mfs_buf_printf(b, "\x8c%c%s", (int)strlen(s), s);
}

static void numbered(struct mfs_buf *b, unsigned i)
{
	mfs_buf_printf(b, "\x8c\x08k%07u", i);
}

static void begin(struct mfs_buf *b)
{
	mfs_buf_adds(b, "\x80\x04"
			"cm\nMetadata\n)\x81}(");
}

static int refused_or_not(struct mfs_buf *b)
{
	int rc;

	mfs_buf_adds(b, "ub.");
	ck_assert(!b->failed);
	rc = mfs_dcp_parse(b->data, b->len, ".metadata", &dcp, &err);
	mfs_buf_release(b);
	return rc;
}

/* The first tensor, without an axis, up to its chunks. */
static void begin_scalar(struct mfs_buf *b)
{
	begin(b);
	text(b, "state_dict_metadata");
	mfs_buf_adds(b, "}(");
	numbered(b, 0);
	mfs_buf_adds(b, "cm\nTensorStorageMetadata\n)\x81}(");
	text(b, "size");
	mfs_buf_adds(b, ")");
	text(b, "chunks");
}

/* A tensor without an axis and without a chunk, under many keys; what mcore_data says of each is
 * mcore_data itself, a dict as long. Walked for each key it would take minutes, which is the test's
 * limit. */
START_TEST(one_dict_many_times)
{
	struct mfs_buf b = {0};

	begin_scalar(&b);
	mfs_buf_adds(&b, "]ubq\x01");
	for (unsigned i = 1; i < MANY; i++) {
		numbered(&b, i);
		mfs_buf_adds(&b, "h\x01");
	}
	mfs_buf_adds(&b, "u");
	text(&b, "storage_data");
	mfs_buf_adds(&b, "}");
	text(&b, "mcore_data");
	mfs_buf_adds(&b, "}q\x02(");
	for (unsigned i = 0; i < MANY; i++) {
		numbered(&b, i);
		mfs_buf_adds(&b, "h\x02");
	}
	mfs_buf_adds(&b, "u");
	unit_ok(refused_or_not(&b), &err);
	ck_assert_uint_eq(dcp.tensor_count, MANY);
}
END_TEST

/* One list of chunks under many keys: copied for each it would be gigabytes. */
START_TEST(one_list_of_chunks_many_times)
{
	struct mfs_buf b = {0};

	begin_scalar(&b);
	mfs_buf_adds(&b, "](cm\nChunkStorageMetadata\n)\x81}(");
	text(&b, "offsets");
	mfs_buf_adds(&b, ")");
	text(&b, "sizes");
	mfs_buf_adds(&b, ")ubq\x02");
	for (unsigned i = 1; i < MANY / 10; i++)
		mfs_buf_adds(&b, "h\x02");
	mfs_buf_adds(&b, "eubq\x01");
	for (unsigned i = 1; i < MANY / 10; i++) {
		numbered(&b, i);
		mfs_buf_adds(&b, "h\x01");
	}
	mfs_buf_adds(&b, "u");
	text(&b, "storage_data");
	mfs_buf_adds(&b, "}");
	unit_fails(refused_or_not(&b), &err, -EINVAL, "chunks again and again");
}
END_TEST

/* A name of a megabyte under many keys. */
START_TEST(one_name_many_times)
{
	char *name = malloc(1 << 20);
	struct mfs_buf b = {0};

	memset(name, 'k', 1 << 20);
	begin(&b);
	text(&b, "state_dict_metadata");
	mfs_buf_adds(&b, "}(X");
	mfs_buf_add(&b, (const uint8_t[]){0, 0, 0x10, 0}, 4);
	mfs_buf_add(&b, name, 1 << 20);
	mfs_buf_adds(&b, "q\x01"
			 "cm\nBytesStorageMetadata\n)\x81q\x02");
	for (unsigned i = 1; i < MANY / 10; i++)
		mfs_buf_adds(&b, "h\x01h\x02");
	mfs_buf_adds(&b, "u");
	text(&b, "storage_data");
	mfs_buf_adds(&b, "}");
	unit_fails(refused_or_not(&b), &err, -EINVAL, "the same names or chunks again");
	free(name);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("dcp");
	TCase *c = tcase_create("metadata");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, real_checkpoint);
	tcase_add_test(c, items_tile_the_files);
	tcase_add_test(c, chunks_are_sorted);
	tcase_add_test(c, plans_are_read_past);
	tcase_add_test(c, one_dict_many_times);
	tcase_add_test(c, one_list_of_chunks_many_times);
	tcase_add_test(c, one_name_many_times);
	tcase_add_loop_test(c, refused_with_a_reason, 0, MFS_ARRAY_SIZE(refused));
	return s;
}

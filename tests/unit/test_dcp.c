/* The metadata of torch.distributed.checkpoint: formats/dcp.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp.h"

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

START_TEST(test_real_checkpoint)
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
START_TEST(test_items_tile_the_files)
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
START_TEST(test_chunks_are_sorted)
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
START_TEST(test_plans)
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

START_TEST(test_refused_with_a_reason)
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

Suite *mfs_suite(void)
{
	Suite *s = suite_create("dcp");
	TCase *c = tcase_create("metadata");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, test_real_checkpoint);
	tcase_add_test(c, test_items_tile_the_files);
	tcase_add_test(c, test_chunks_are_sorted);
	tcase_add_test(c, test_plans);
	tcase_add_loop_test(c, test_refused_with_a_reason, 0, sizeof refused / sizeof *refused);
	return s;
}

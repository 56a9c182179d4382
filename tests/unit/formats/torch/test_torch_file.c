/* torch.save archives: formats/torch/torch_file.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/torch/torch_file.h"

static struct mfs_error err;
static struct mfs_torch_file f;
static uint8_t *bytes;
static struct mfs_source src;

static void open_file(const char *path)
{
	size_t len;

	bytes = unit_slurp(path, &len);
	src = mfs_source_memory(bytes, len, "file.pt");
	unit_ok(mfs_torch_file_open(&src, &f, &err), &err);
}

static void teardown(void)
{
	mfs_torch_file_release(&f);
	free(bytes);
	bytes = NULL;
}

static struct mfs_torch_tensor model_tensor(const char *name)
{
	mfs_value model = mfs_value_get(f.doc, mfs_pickle_root(f.doc), "model");
	mfs_value v = mfs_value_get(f.doc, model, name);
	struct mfs_torch_tensor t;

	ck_assert_msg(mfs_torch_is_tensor(&f, v), "%s is no tensor", name);
	unit_ok(mfs_torch_tensor(&f, v, &t, &err), &err);
	return t;
}

START_TEST(real_legacy_file)
{
	struct mfs_torch_tensor t;
	mfs_value model;

	open_file(unit_fixture("weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_01_001/"
			       "model_optim_rng.pt"));
	t = model_tensor("decoder.layers.1.mlp.linear_fc2.weight");
	ck_assert_int_eq(t.dtype, MFS_BF16);
	ck_assert_uint_eq(t.ndim, 2);
	ck_assert(t.shape[0] == 64 && t.shape[1] == 88 && t.stride[0] == 88 && t.stride[1] == 1);
	ck_assert_uint_eq(t.offset, 0);
	ck_assert_str_eq(t.record->name, "model_optim_rng/data/11");
	t = model_tensor("decoder.final_layernorm.weight");
	ck_assert(t.ndim == 1 && t.shape[0] == 64);
	model = mfs_value_get(f.doc, mfs_pickle_root(f.doc), "model");
	ck_assert(
		!mfs_torch_is_tensor(&f, mfs_value_get(f.doc, model, "output_layer._extra_state")));
	ck_assert(!mfs_torch_is_tensor(&f, mfs_value_get(f.doc, model, "no such name")));
}
END_TEST

/* With the distributed optimizer all tensors are views into one storage, at offsets. */
START_TEST(views_into_one_storage)
{
	struct mfs_torch_tensor a, b;

	open_file(unit_fixture("resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_00/"
			       "model_optim_rng.pt"));
	a = model_tensor("embedding.word_embeddings.weight");
	b = model_tensor("decoder.layers.3.mlp.linear_fc2.weight");
	ck_assert_ptr_eq(a.record, b.record);
	ck_assert_uint_ne(a.offset, b.offset);
}
END_TEST

/* Saved with optimizer state: weights are wrapped by _rebuild_from_type_v2. */
START_TEST(wrapped_by_type)
{
	struct mfs_torch_tensor t;

	open_file(unit_fixture("resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_00_000/"
			       "model_optim_rng.pt"));
	t = model_tensor("decoder.layers.0.self_attention.linear_qkv.weight");
	ck_assert(t.dtype == MFS_BF16 && t.shape[0] == 64 && t.shape[1] == 64);
}
END_TEST

static struct mfs_torch_tensor seed_tensor(const char *path)
{
	struct mfs_torch_tensor t;

	open_file(path);
	unit_ok(mfs_torch_tensor(&f, mfs_pickle_root(f.doc), &t, &err), &err);
	return t;
}

START_TEST(other_forms)
{
	struct mfs_torch_tensor t = seed_tensor("tests/fuzz/corpus/torch_file/ok-strided");
	uint64_t at;

	ck_assert(t.shape[0] == 2 && t.stride[0] == 1 && t.stride[1] == 2);
	teardown();
	t = seed_tensor("tests/fuzz/corpus/torch_file/ok-untyped-fp8");
	ck_assert(t.dtype == MFS_F8_E4M3 && t.shape[0] == 4);
	teardown();
	t = seed_tensor("tests/fuzz/corpus/torch_file/ok-parameter");
	ck_assert(t.dtype == MFS_BF16 && t.shape[0] == 3);
	teardown();
	t = seed_tensor("tests/fuzz/corpus/torch_file/ok-from-type");
	ck_assert(t.offset == 1 && t.shape[0] == 3);
	teardown();
	/* Before torch 1.6: the bytes are the last of the file, and are found without a header. */
	t = seed_tensor("tests/fuzz/corpus/torch_file/ok-stream-of-tensor");
	ck_assert(t.dtype == MFS_BF16 && t.shape[0] == 2 && t.shape[1] == 3);
	unit_ok(mfs_zip_locate(&src, t.record, &at, &err), &err);
	ck_assert(t.record->size == 12 && at == src.size - 12);
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} refused[] = {
	{"torchscript", "TorchScript", -ENOTSUP},
	{"torchscript-saved", "TorchScript archive (torch.jit.save)",
	 -ENOTSUP}, /* by torch 2.5.1 */
	{"big-endian", "big-endian", -ENOTSUP},
	{"no-data.pkl", "data.pkl", -EINVAL},
	{"two-prefixes", "Archive/", -EINVAL},
	{"no-zip", "ZIP", -EINVAL},
	{"stream-version", "expected version 1001", -ENOTSUP},
	{"stream-big-endian", "big-endian", -ENOTSUP},
	{"stream-view", "storage '0' is a view of another one", -ENOTSUP},
	{"stream-cut-in-pickle", "ends", -EINVAL},
	{"stream-cut-in-storage", "storage '1' reaches beyond the file", -EINVAL},
	{"stream-too-long", "1 bytes follow", -EINVAL},
	{"stream-count", "expected 4 elements, found 5", -EINVAL},
	{"stream-unknown-key", "storage 0 of the file is of no tensor", -EINVAL},
	{"stream-key-twice", "storage '0'", -EINVAL},
	{"stream-more-keys", "2 storages, but tensors of 1", -EINVAL},
	{"stream-no-key", "16 bytes follow", -EINVAL},
	{"stream-key-a-number", "a storage without key or size", -EINVAL},
	{"stream-element-type", "QInt8Storage", -ENOTSUP},
};

START_TEST(refused_on_opening)
{
	struct mfs_torch_file other;
	char path[128];
	size_t len;

	snprintf(path, sizeof path, "tests/fuzz/reject/torch_file/%s", refused[_i].input);
	bytes = unit_slurp(path, &len);
	src = mfs_source_memory(bytes, len, "file.pt");
	unit_fails(mfs_torch_file_open(&src, &other, &err), &err, refused[_i].code,
		   refused[_i].words);
	ck_assert_ptr_nonnull(strstr(err.msg, "file.pt"));
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} bad_tensors[] = {
	{"record-missing", "data/0", -EINVAL},
	{"record-too-small", "expected 8 bytes, found 7", -EINVAL},
	{"record-too-large", "expected 8 bytes, found 9", -EINVAL},
	{"view-beyond-storage", "data/0", -EINVAL},
	{"offset-beyond-storage", "data/0", -EINVAL},
	{"negative-stride", "stride", -EINVAL},
	{"negative-offset", "offset", -EINVAL},
	{"stride-wraps", "data/0", -EINVAL},
	{"nine-axes", "9 axes", -EINVAL},
	{"unknown-storage", "QInt8Storage", -ENOTSUP},
	{"quantized", "strided", -ENOTSUP},
	{"numel-wraps", "data/0", -EINVAL},
};

START_TEST(refused_tensor)
{
	struct mfs_torch_tensor t;
	char path[128];

	snprintf(path, sizeof path, "tests/fuzz/reject/torch_file/%s", bad_tensors[_i].input);
	open_file(path);
	ck_assert(mfs_torch_is_tensor(&f, mfs_pickle_root(f.doc)));
	unit_fails(mfs_torch_tensor(&f, mfs_pickle_root(f.doc), &t, &err), &err,
		   bad_tensors[_i].code, bad_tensors[_i].words);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("torch_file");
	TCase *c = tcase_create("files");

	suite_add_tcase(s, c);
	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, real_legacy_file);
	tcase_add_test(c, views_into_one_storage);
	tcase_add_test(c, wrapped_by_type);
	tcase_add_test(c, other_forms);
	tcase_add_loop_test(c, refused_on_opening, 0, MFS_ARRAY_SIZE(refused));
	tcase_add_loop_test(c, refused_tensor, 0, MFS_ARRAY_SIZE(bad_tensors));
	return s;
}

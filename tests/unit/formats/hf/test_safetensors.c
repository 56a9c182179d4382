/* safetensors headers: formats/hf/safetensors.h. Refused ones: tests/fuzz/reject/safetensors. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"

static struct mfs_error err;

static struct mfs_safetensors_tensor tensor(const char *name, enum mfs_dtype dtype, uint64_t rows,
					    uint64_t columns)
{
	return (struct mfs_safetensors_tensor){
		.name = name, .dtype = dtype, .ndim = 2, .shape = {rows, columns}};
}

/* The bytes that safetensors.torch.save_file writes for these tensors. */
START_TEST(header_to_the_byte)
{
	static const char want[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"router.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
		"\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[16,28]},"
		"\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[28,30]}}";
	struct mfs_safetensors_tensor t[3] = {tensor("b.weight", MFS_BF16, 1, 1),
					      tensor("router.bias", MFS_F32, 4, 0),
					      tensor("a.weight", MFS_BF16, 2, 3)};
	struct mfs_buf buf = {0};
	size_t padded = (sizeof want - 1 + 7) / 8 * 8;

	t[1].ndim = 1;
	unit_ok(mfs_safetensors_layout(t, 3, &err), &err);
	mfs_safetensors_header(t, 3, &buf);
	ck_assert(!buf.failed);
	ck_assert_uint_eq(mfs_le64(buf.data), padded);
	ck_assert_uint_eq(buf.len, 8 + padded);
	ck_assert_msg(!memcmp(buf.data + 8, want, sizeof want - 1), "%s", buf.data + 8);
	for (size_t i = 8 + sizeof want - 1; i < buf.len; i++)
		ck_assert_int_eq(buf.data[i], ' ');
	mfs_buf_release(&buf);
}
END_TEST

/* Many tensors of all alignments: in order, without holes, each aligned to its element. */
START_TEST(layout_is_aligned_and_dense)
{
	static const enum mfs_dtype types[] = {MFS_U8,	MFS_F32, MFS_BF16,
					       MFS_I64, MFS_F16, MFS_F8_E4M3};
	struct mfs_safetensors_tensor t[300];
	char names[300][16];
	uint64_t at = 0;

	for (int i = 0; i < 300; i++) {
		snprintf(names[i], sizeof names[i], "t%d", i * 7919 % 300);
		t[i] = tensor(names[i], types[i % 6], (uint64_t)i % 5, (uint64_t)i % 11);
	}
	unit_ok(mfs_safetensors_layout(t, 300, &err), &err);
	for (int i = 0; i < 300; i++) {
		ck_assert_uint_eq(t[i].begin, at);
		ck_assert_uint_eq(t[i].begin % mfs_dtype_size(t[i].dtype), 0);
		ck_assert(!i || t[i - 1].dtype > t[i].dtype ||
			  (t[i - 1].dtype == t[i].dtype && strcmp(t[i - 1].name, t[i].name) < 0));
		at = t[i].end;
	}
}
END_TEST

START_TEST(layout_overflow)
{
	struct mfs_safetensors_tensor t[2] = {tensor("x", MFS_F64, 1ull << 61, 1),
					      tensor("y", MFS_U8, UINT64_MAX, 1)};

	unit_fails(mfs_safetensors_layout(t, 1, &err), &err, -EINVAL, "'x'");
	t[0] = tensor("x", MFS_U8, UINT64_MAX, 1);
	unit_fails(mfs_safetensors_layout(t, 2, &err), &err, -EINVAL, "'y'");
}
END_TEST

START_TEST(reads_back)
{
	struct mfs_safetensors_tensor t[2] = {tensor("q\"\\\n", MFS_BF16, 3, 5),
					      tensor("\xc3\xa9", MFS_F32, 2, 2)};
	struct mfs_buf buf = {0};
	struct mfs_safetensors st;
	struct mfs_source src;

	unit_ok(mfs_safetensors_layout(t, 2, &err), &err);
	mfs_safetensors_header(t, 2, &buf);
	for (uint64_t i = 0; i < t[1].end; i++)
		mfs_buf_add(&buf, "", 1);
	src = mfs_source_memory(buf.data, buf.len, "model.safetensors");
	unit_ok(mfs_safetensors_open(&src, &st, &err), &err);
	ck_assert_uint_eq(st.count, 2);
	ck_assert_uint_eq(st.data + t[1].end, buf.len);
	for (int i = 0; i < 2; i++) {
		ck_assert_str_eq(st.tensors[i].name, t[i].name);
		ck_assert_int_eq(st.tensors[i].dtype, t[i].dtype);
		ck_assert_uint_eq(st.tensors[i].begin, t[i].begin);
		ck_assert_uint_eq(st.tensors[i].shape[1], t[i].shape[1]);
	}
	mfs_safetensors_release(&st);
	mfs_buf_release(&buf);
}
END_TEST

static const struct {
	const char *input, *words;
	int code;
} refused[] = {
	{"hole-between", "b", -EINVAL},		  {"overlap", "b", -EINVAL},
	{"trailing-bytes", "input", -EINVAL},	  {"duplicate-name", "input", -EINVAL},
	{"unknown-dtype", "F31", -ENOTSUP},	  {"size-differs-from-shape", "a", -EINVAL},
	{"length-above-limit", "input", -EINVAL}, {"no-json", "input", -EINVAL},
};

START_TEST(refused_with_a_reason)
{
	struct mfs_safetensors st;
	struct mfs_source src;
	char path[128];
	uint8_t *bytes;
	size_t len;

	snprintf(path, sizeof path, "tests/fuzz/reject/safetensors/%s", refused[_i].input);
	bytes = unit_slurp(path, &len);
	src = mfs_source_memory(bytes, len, "input");
	unit_fails(mfs_safetensors_open(&src, &st, &err), &err, refused[_i].code,
		   refused[_i].words);
	free(bytes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("safetensors");
	TCase *c = unit_case(s, "writing", header_to_the_byte);

	tcase_add_test(c, layout_is_aligned_and_dense);
	tcase_add_test(c, layout_overflow);
	c = unit_case(s, "reading", reads_back);
	tcase_add_loop_test(c, refused_with_a_reason, 0, MFS_ARRAY_SIZE(refused));
	return s;
}

/* Element types and shapes: formats/base/tensor.h; loads and checked arithmetic:
 * formats/base/bytes.h. */
#include "tests/unit/unit.h"

#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/tensor.h"

static const struct {
	enum mfs_dtype type;
	unsigned size;
	const char *safetensors, *torch, *storage;
} types[] = {
	{MFS_BOOL, 1, "BOOL", "bool", "BoolStorage"},
	{MFS_U8, 1, "U8", "uint8", "ByteStorage"},
	{MFS_I8, 1, "I8", "int8", "CharStorage"},
	{MFS_F8_E5M2, 1, "F8_E5M2", "float8_e5m2", NULL},
	{MFS_F8_E4M3, 1, "F8_E4M3", "float8_e4m3fn", NULL},
	{MFS_I16, 2, "I16", "int16", "ShortStorage"},
	{MFS_U16, 2, "U16", "uint16", NULL},
	{MFS_F16, 2, "F16", "float16", "HalfStorage"},
	{MFS_BF16, 2, "BF16", "bfloat16", "BFloat16Storage"},
	{MFS_I32, 4, "I32", "int32", "IntStorage"},
	{MFS_U32, 4, "U32", "uint32", NULL},
	{MFS_F32, 4, "F32", "float32", "FloatStorage"},
	{MFS_F64, 8, "F64", "float64", "DoubleStorage"},
	{MFS_I64, 8, "I64", "int64", "LongStorage"},
	{MFS_U64, 8, "U64", "uint64", NULL},
	{MFS_C64, 8, NULL, "complex64", "ComplexFloatStorage"},
	{MFS_C128, 16, NULL, "complex128", "ComplexDoubleStorage"},
};

START_TEST(names_both_ways)
{
	enum mfs_dtype t = types[_i].type;

	ck_assert_uint_eq(mfs_dtype_size(t), types[_i].size);
	ck_assert_str_eq(mfs_dtype_torch(t), types[_i].torch);
	ck_assert_int_eq(mfs_dtype_from_torch(types[_i].torch), t);
	if (types[_i].safetensors) {
		ck_assert_str_eq(mfs_dtype_name(t), types[_i].safetensors);
		ck_assert_int_eq(mfs_dtype_from_safetensors(types[_i].safetensors), t);
	}
	if (types[_i].storage)
		ck_assert_int_eq(mfs_dtype_from_storage(types[_i].storage), t);
}
END_TEST

START_TEST(unknown_names)
{
	static const char *const names[] = {"", "?", "QInt8Storage", "BF", "BF161", "Bfloat16"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++) {
		ck_assert_int_eq(mfs_dtype_from_torch(names[i]), MFS_DTYPE_NONE);
		ck_assert_int_eq(mfs_dtype_from_safetensors(names[i]), MFS_DTYPE_NONE);
		ck_assert_int_eq(mfs_dtype_from_storage(names[i]), MFS_DTYPE_NONE);
	}
	ck_assert_uint_eq(mfs_dtype_size(MFS_DTYPE_NONE), 0);
}
END_TEST

/* Weights of eight bits come with scales, and are no plain numbers. */
START_TEST(four_types_are_plain_floats)
{
	unsigned floats = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++)
		if (mfs_dtype_is_float(types[i].type)) {
			ck_assert(strstr(types[i].torch, "float") == types[i].torch ||
				  !strcmp(types[i].torch, "bfloat16"));
			floats++;
		}
	ck_assert_uint_eq(floats, 4);
	ck_assert(!mfs_dtype_is_float(MFS_F8_E4M3) && !mfs_dtype_is_float(MFS_F8_E5M2));
	ck_assert(!mfs_dtype_is_float(MFS_DTYPE_NONE));
}
END_TEST

START_TEST(shape_count)
{
	uint64_t n;

	ck_assert(mfs_shape_count(NULL, 0, &n) && n == 1);
	ck_assert(mfs_shape_count((uint64_t[]){3, 4, 5}, 3, &n) && n == 60);
	ck_assert(mfs_shape_count((uint64_t[]){1ull << 63, 1}, 2, &n) && n == 1ull << 63);
	ck_assert(!mfs_shape_count((uint64_t[]){1ull << 32, 1ull << 32}, 2, &n));
	ck_assert(!mfs_shape_count((uint64_t[]){1ull << 32, 1ull << 31, 4}, 3, &n));
}
END_TEST

/* An empty axis may stand next to axes whose product overflows: torch allows the shape. */
START_TEST(shape_with_an_empty_axis)
{
	uint64_t n = 7;

	ck_assert(mfs_shape_count((uint64_t[]){5, 0, 3}, 3, &n) && n == 0);
}
END_TEST

START_TEST(shape_text_fits)
{
	char text[16];

	ck_assert_str_eq(mfs_shape_text((uint64_t[]){1024, 64}, 2, text, sizeof text),
			 "[1024, 64]");
	ck_assert_str_eq(mfs_shape_text(NULL, 0, text, sizeof text), "[]");
	mfs_shape_text((uint64_t[]){UINT64_MAX, UINT64_MAX, 1}, 3, text, sizeof text);
	ck_assert_uint_lt(strlen(text), sizeof text);
	mfs_shape_text((uint64_t[]){12345}, 1, text, 3);
	ck_assert_uint_lt(strlen(text), 3);
}
END_TEST

START_TEST(numbers_are_read_little_endian)
{
	const uint8_t b[] = {0xff, 1, 2, 3, 4, 5, 6, 7, 0x88};
	uint8_t out[8];

	ck_assert_uint_eq(mfs_le16(b + 1), 0x0201);
	ck_assert_uint_eq(mfs_le32(b + 5), 0x88070605u);
	ck_assert_uint_eq(mfs_le64(b + 1), 0x8807060504030201ull);
	mfs_put_le64(out, 0x8807060504030201ull);
	ck_assert(!memcmp(out, b + 1, 8));
}
END_TEST

START_TEST(sums_that_overflow_are_no_range)
{
	uint64_t r;

	ck_assert(mfs_range_ok(0, 0, 0) && mfs_range_ok(3, 7, 10) && mfs_range_ok(10, 0, 10));
	ck_assert(!mfs_range_ok(3, 8, 10) && !mfs_range_ok(11, 0, 10));
	ck_assert(!mfs_range_ok(UINT64_MAX, 2, 10) && !mfs_range_ok(2, UINT64_MAX, 10));
	ck_assert(mfs_add_overflows(UINT64_MAX, 1, &r) && !mfs_add_overflows(UINT64_MAX, 0, &r));
	ck_assert(mfs_mul_overflows(1ull << 32, 1ull << 32, &r));
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("tensor");
	TCase *c = unit_case(s, "dtype", unknown_names);

	tcase_add_loop_test(c, names_both_ways, 0, MFS_ARRAY_SIZE(types));
	c = unit_case(s, "shape", shape_count);
	tcase_add_test(c, shape_with_an_empty_axis);
	tcase_add_test(c, shape_text_fits);
	c = unit_case(s, "bytes", numbers_are_read_little_endian);
	tcase_add_test(c, sums_that_overflow_are_no_range);
	tcase_add_test(c, four_types_are_plain_floats);
	return s;
}

/* GGUF headers: formats/gguf/gguf.h. */
#include "tests/unit/unit.h"

#include <stdint.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/gguf/gguf.h"

static struct mfs_error err;

/* What gguf 0.19's GGUFWriter writes for these keys and tensors. */
START_TEST(header_to_the_byte)
{
	static const char want[] =
		"\x47\x47\x55\x46\x03\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00"
		"\x06\x00\x00\x00\x00\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x00"
		"\x67\x65\x6e\x65\x72\x61\x6c\x2e\x61\x72\x63\x68\x69\x74\x65\x63"
		"\x74\x75\x72\x65\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
		"\x6c\x6c\x61\x6d\x61\x11\x00\x00\x00\x00\x00\x00\x00\x6c\x6c\x61"
		"\x6d\x61\x2e\x62\x6c\x6f\x63\x6b\x5f\x63\x6f\x75\x6e\x74\x04\x00"
		"\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x66\x06"
		"\x00\x00\x00\x00\x40\x1c\x46\x01\x00\x00\x00\x00\x00\x00\x00\x62"
		"\x07\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x74\x09\x00"
		"\x00\x00\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00"
		"\x00\x00\x00\x00\x00\x00\x61\x03\x00\x00\x00\x00\x00\x00\x00\x62"
		"\x63\x64\x01\x00\x00\x00\x00\x00\x00\x00\x6e\x09\x00\x00\x00\x05"
		"\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\xff"
		"\xff\xff\xff\x08\x00\x00\x00\x00\x00\x00\x00\x78\x2e\x77\x65\x69"
		"\x67\x68\x74\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x02"
		"\x00\x00\x00\x00\x00\x00\x00\x1e\x00\x00\x00\x00\x00\x00\x00\x00"
		"\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x79\x2e\x77\x65\x69"
		"\x67\x68\x74\x01\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00"
		"\x00\x00\x00\x20\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00"
		"\x00\x00\x00\x7a\x2e\x77\x65\x69\x67\x68\x74\x03\x00\x00\x00\x08"
		"\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x04"
		"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x60\x00\x00\x00\x00"
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
	static const uint64_t x[] = {2, 3}, y[] = {9}, z[] = {4, 2, 8};
	struct mfs_gguf g = {0};
	struct mfs_buf out = {0};
	uint64_t padding[3];

	mfs_gguf_text(&g, "general.architecture", "llama");
	mfs_gguf_u32(&g, "llama.block_count", 2);
	mfs_gguf_f32(&g, "f", 10000.0);
	mfs_gguf_bool(&g, "b", true);
	mfs_gguf_array(&g, "t", MFS_GGUF_TEXT, 2);
	mfs_gguf_element_text(&g, "a", 1);
	mfs_gguf_element_text(&g, "bcd", 3);
	mfs_gguf_array(&g, "n", MFS_GGUF_I32, 2);
	mfs_gguf_element_i32(&g, 3);
	mfs_gguf_element_i32(&g, -1);
	unit_ok(mfs_gguf_tensor(&g, "x.weight", MFS_BF16, x, 2, &padding[0], &err), &err);
	unit_ok(mfs_gguf_tensor(&g, "y.weight", MFS_F32, y, 1, &padding[1], &err), &err);
	unit_ok(mfs_gguf_tensor(&g, "z.weight", MFS_F16, z, 3, &padding[2], &err), &err);
	ck_assert_uint_eq(padding[0], 32 - 12);
	ck_assert_uint_eq(padding[1], 64 - 36);
	ck_assert_uint_eq(padding[2], 0);
	ck_assert_uint_eq(g.data, 32 + 64 + 128);
	mfs_gguf_header(&g, &out);
	ck_assert(!out.failed);
	ck_assert_uint_eq(out.len, sizeof(want) - 1);
	ck_assert_mem_eq(out.data, want, out.len);
	mfs_buf_release(&out);
	mfs_gguf_release(&g);
}
END_TEST

/* Whatever the keys' length, tensors begin at a multiple of the alignment. */
START_TEST(tensors_begin_at_a_multiple_of_the_alignment)
{
	char text[40] = "";

	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		struct mfs_gguf g = {0};
		struct mfs_buf out = {0};

		text[i] = 'x';
		mfs_gguf_text(&g, "k", text);
		mfs_gguf_header(&g, &out);
		ck_assert_uint_eq(out.len % MFS_GGUF_ALIGNMENT, 0);
		ck_assert_uint_lt(out.len, 24 + 9 + 4 + 8 + i + 1 + MFS_GGUF_ALIGNMENT);
		mfs_buf_release(&out);
		mfs_gguf_release(&g);
	}
}
END_TEST

START_TEST(tensors_that_cannot_be)
{
	static const uint64_t shape[] = {1, 1, 1, 1, 1}, huge[] = {UINT64_MAX / 4, 2},
			      half[] = {UINT64_MAX / 8};
	static const char name[] =
		"a name of sixty-four bytes, which is one more than ggml can keep";
	struct mfs_gguf g = {0};
	uint64_t padding;

	_Static_assert(sizeof(name) - 1 == MFS_GGUF_NAME_MAX + 1, "one too long");
	ck_assert_int_eq(mfs_gguf_tensor(&g, "t", MFS_F64, shape, 1, &padding, &err), -ENOTSUP);
	ck_assert_int_eq(mfs_gguf_tensor(&g, "t", MFS_F32, shape, 5, &padding, &err), -ENOTSUP);
	ck_assert_int_eq(mfs_gguf_tensor(&g, name, MFS_F32, shape, 1, &padding, &err), -ENOTSUP);
	unit_ok(mfs_gguf_tensor(&g, name + 1, MFS_F32, shape, 4, &padding, &err), &err);
	ck_assert_int_eq(mfs_gguf_tensor(&g, "t", MFS_F32, huge, 2, &padding, &err), -EINVAL);
	unit_ok(mfs_gguf_tensor(&g, "t", MFS_F32, half, 1, &padding, &err), &err);
	unit_fails(mfs_gguf_tensor(&g, "u", MFS_F32, half, 1, &padding, &err), &err, -EINVAL,
		   "tensor 'u' is too large");
	ck_assert_uint_eq(g.tensor_count, 2);
	mfs_gguf_release(&g);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gguf");
	TCase *c = unit_case(s, "writing", header_to_the_byte);

	tcase_add_test(c, tensors_begin_at_a_multiple_of_the_alignment);
	tcase_add_test(c, tensors_that_cannot_be);
	return s;
}

/* Region allocator: formats/base/arena.h. */
#include "tests/unit/unit.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "formats/base/arena.h"

START_TEST(memory_is_zeroed_aligned_and_apart)
{
	struct mfs_arena a = {0};
	char *last = NULL;

	for (size_t size = 1; size < 300; size++) {
		char *p = mfs_arena_alloc(&a, size);

		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq((uintptr_t)p % alignof(max_align_t), 0);
		for (size_t i = 0; i < size; i++)
			ck_assert_int_eq(p[i], 0);
		memset(p, 0xee, size);
		ck_assert(!last || last[0] == (char)0xee);
		last = p;
	}
	mfs_arena_release(&a);
}
END_TEST

START_TEST(larger_than_a_block)
{
	struct mfs_arena a = {0};
	char *small = mfs_arena_strndup(&a, "kept", 4);
	char *large = mfs_arena_alloc(&a, 1 << 20);

	ck_assert_ptr_nonnull(large);
	memset(large, 1, 1 << 20);
	ck_assert_str_eq(small, "kept");
	ck_assert_uint_ge(a.total, 1 << 20);
	mfs_arena_release(&a);
	ck_assert_uint_eq(a.total, 0);
	ck_assert_ptr_null(a.blocks);
}
END_TEST

/* Few names cost little, and many are in few blocks. */
START_TEST(blocks_grow)
{
	struct mfs_arena a = {0};
	unsigned blocks = 0;

	ck_assert_ptr_nonnull(mfs_arena_strndup(&a, "a name", 6));
	ck_assert_uint_lt(a.total, 2048);
	for (unsigned i = 0; i < (1u << 20) / 64; i++) {
		const size_t before = a.total;

		ck_assert_ptr_nonnull(mfs_arena_alloc(&a, 64));
		blocks += a.total != before;
	}
	ck_assert_uint_lt(blocks, 32);
	ck_assert_uint_lt(a.total, (1u << 20) + (128u << 10));
	mfs_arena_release(&a);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
	struct mfs_arena a = {0};

	ck_assert_ptr_null(mfs_arena_alloc(&a, SIZE_MAX));
	ck_assert_ptr_null(mfs_arena_alloc(&a, SIZE_MAX - 20));
	ck_assert_ptr_null(mfs_arena_array(&a, SIZE_MAX / 2, 3));
	ck_assert_ptr_null(mfs_arena_strndup(&a, "", SIZE_MAX));
	ck_assert_ptr_nonnull(mfs_arena_array(&a, 0, 8));
	mfs_arena_release(&a);
}
END_TEST

START_TEST(text_is_copied_and_printed)
{
	struct mfs_arena a = {0};

	ck_assert_str_eq(mfs_arena_strndup(&a, "shortened", 5), "short");
	ck_assert_str_eq(mfs_arena_printf(&a, "%s.%d", "layers", 12), "layers.12");
	mfs_arena_release(&a);
	mfs_arena_release(&a);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("arena");
	TCase *c = unit_case(s, "arena", memory_is_zeroed_aligned_and_apart);

	tcase_add_test(c, larger_than_a_block);
	tcase_add_test(c, blocks_grow);
	tcase_add_test(c, impossible_sizes_are_refused);
	tcase_add_test(c, text_is_copied_and_printed);
	return s;
}

/* Arrays that grow, and searches in those that are in order: formats/base/grow.h, search.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/base/grow.h"
#include "formats/base/search.h"

struct item {
	uint32_t before;
	uint64_t key;
};

/* ---- growing ---- */

/* An address sanitizer sees what is written past the room that there is. */
START_TEST(grows_by_one)
{
	struct item *items = NULL;
	uint32_t count = 0;

	while (count < 5000) {
		ck_assert_int_eq(mfs_grow(&items, count), 0);
		items[count] = (struct item){count, 3 * (uint64_t)count};
		count++;
	}
	for (uint32_t i = 0; i < count; i++)
		ck_assert(items[i].before == i && items[i].key == 3 * (uint64_t)i);
	free(items);
}
END_TEST

/* The room follows from the count alone, wherever it comes from. */
START_TEST(grows_after_elements_went)
{
	uint64_t *list = NULL;
	size_t count = 0;

	for (size_t most = 0; most < 70; most++) {
		for (; count < most; count++) {
			ck_assert_int_eq(mfs_grow(&list, count), 0);
			list[count] = count;
		}
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(list[i], i);
		count = most / 3;
	}
	free(list);
}
END_TEST

START_TEST(an_array_grows_by_doubling)
{
	uint64_t *list = NULL, *before;
	unsigned moved = 0;

	for (size_t count = 0; count < 1024; count++) {
		before = list;
		list = NULL;
		ck_assert_int_eq(mfs_grow(&list, count), 0);
		moved += list != NULL;
		free(list);
		list = before;
	}
	ck_assert_uint_eq(moved, 1 + 8); /* at 0, 4, 8 ... 512 */
}
END_TEST

START_TEST(no_more_than_the_count_can_say)
{
	struct item *items = NULL;
	uint32_t words = (uint32_t)1 << 31;
	uint16_t halves = (uint16_t)1 << 15;
	size_t sizes = (size_t)1 << 63;

	ck_assert_int_eq(mfs_grow(&items, words), -ENOMEM);
	ck_assert_int_eq(mfs_grow(&items, halves), -ENOMEM);
	ck_assert_int_eq(mfs_grow(&items, sizes), -ENOMEM);
	ck_assert_ptr_null(items);
}
END_TEST

START_TEST(no_more_than_there_is_memory)
{
	struct item *items = NULL;
	size_t count = 0;

	for (; count < 4; count++) {
		ck_assert_int_eq(mfs_grow(&items, count), 0);
		items[count].key = count;
	}
	count = SIZE_MAX / sizeof(*items) / 4 +
		1; /* a power of two, of which twice is too many bytes */
	ck_assert_int_eq(mfs_grow(&items, count), -ENOMEM);
	count *= 2;
	ck_assert_int_eq(mfs_grow(&items, count), -ENOMEM);
	ck_assert_uint_eq(items[3].key, 3);
	free(items);
}
END_TEST

/* ---- searching ---- */

static size_t last_at(const struct item *items, uint32_t count, uint64_t key)
{
	return mfs_last_while(i, count, items[i].key <= key);
}

static size_t count_at(const struct item *items, uint32_t count, uint64_t key)
{
	return mfs_count_while(i, count, items[i].key <= key);
}

START_TEST(a_search_of_nothing_finds_nothing)
{
	ck_assert_uint_eq(last_at(NULL, 0, 5), 0);
	ck_assert_uint_eq(count_at(NULL, 0, 5), 0);
}
END_TEST

START_TEST(a_search_of_one_finds_it_or_not)
{
	static const struct item one = {.key = 7};

	for (uint64_t key = 6; key <= 8; key++) {
		ck_assert_uint_eq(last_at(&one, 1, key), 0);
		ck_assert_uint_eq(count_at(&one, 1, key), key >= 7);
	}
}
END_TEST

START_TEST(before_and_after_all)
{
	static const struct item items[] = {{.key = 10}, {.key = 20}, {.key = UINT64_MAX}};

	ck_assert_uint_eq(last_at(items, 3, 0), 0);
	ck_assert_uint_eq(count_at(items, 3, 0), 0);
	ck_assert_uint_eq(last_at(items, 3, 9), 0);
	ck_assert_uint_eq(last_at(items, 2, UINT64_MAX), 1);
	ck_assert_uint_eq(count_at(items, 2, UINT64_MAX), 2);
	ck_assert_uint_eq(last_at(items, 3, UINT64_MAX), 2);
	ck_assert_uint_eq(last_at(items, 3, UINT64_MAX - 1), 1);
}
END_TEST

START_TEST(last_of_equal_ones)
{
	static const struct item items[] = {{.key = 0}, {.key = 0}, {.key = 4}, {.key = 4},
					    {.key = 4}, {.key = 9}, {.key = 9}};

	ck_assert_uint_eq(last_at(items, 7, 0), 1);
	ck_assert_uint_eq(last_at(items, 7, 3), 1);
	ck_assert_uint_eq(last_at(items, 7, 4), 4);
	ck_assert_uint_eq(last_at(items, 7, 8), 4);
	ck_assert_uint_eq(last_at(items, 7, 9), 6);
	ck_assert_uint_eq(count_at(items, 7, 4), 5);
}
END_TEST

/* As a walk from the first to the last finds it, in arrays of all small sizes and in order of any
 * steepness. */
START_TEST(as_a_walk_finds_it)
{
	struct item items[40];
	uint64_t random = 88172645463325252;

	for (uint32_t count = 0; count <= 40; count++)
		for (unsigned step = 1; step < 5; step++) {
			uint64_t at = 0;

			for (uint32_t i = 0; i < count; i++) {
				random ^= random << 13;
				random ^= random >> 7;
				random ^= random << 17;
				at += random % step;
				items[i].key = at;
			}
			for (uint64_t key = 0; key <= at + 1; key++) {
				uint32_t n = 0;

				while (n < count && items[n].key <= key)
					n++;
				ck_assert_uint_eq(count_at(items, count, key), n);
				ck_assert_uint_eq(last_at(items, count, key), n ? n - 1 : 0);
			}
		}
}
END_TEST

/* No more elements are asked than there are halves, and never the first one for the last. */
START_TEST(few_are_asked)
{
	unsigned asked = 0, first = 0;
	size_t found;

	found = mfs_last_while(i, (size_t)1 << 40, (asked++, first += !i, i <= 123456789));
	ck_assert_uint_eq(found, 123456789);
	ck_assert_uint_le(asked, 41);
	ck_assert_uint_eq(first, 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("array");
	TCase *grow = unit_case(s, "grow", grows_by_one);
	TCase *search = unit_case(s, "search", a_search_of_nothing_finds_nothing);

	tcase_add_test(grow, grows_after_elements_went);
	tcase_add_test(grow, an_array_grows_by_doubling);
	tcase_add_test(grow, no_more_than_the_count_can_say);
	tcase_add_test(grow, no_more_than_there_is_memory);
	tcase_add_test(search, a_search_of_one_finds_it_or_not);
	tcase_add_test(search, before_and_after_all);
	tcase_add_test(search, last_of_equal_ones);
	tcase_add_test(search, as_a_walk_finds_it);
	tcase_add_test(search, few_are_asked);
	return s;
}

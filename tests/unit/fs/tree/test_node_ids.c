/* Ids of nodes: fs/tree/node_ids.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "fs/tree/node_ids.h"
#include "fs/tree/tree.h"

static const struct mfs_id_owner owner = {"", "/iter_0000040", 7};

/* An id that a mount has given is a promise: NFS clients hold it. */
START_TEST(ids_are_fixed)
{
	const uint64_t id = mfs_id_of_dir(&owner, "/iter_0000040/hf", 0);

	ck_assert_uint_eq(id, 17229754112040501248ull);
	ck_assert_uint_eq(mfs_id_generation("/iter_0000040/hf", 7), 1396714482u);
	ck_assert_uint_eq(mfs_id_in_view(id, 3), id + 6);
	ck_assert_uint_eq(mfs_id_view(id + 6), id);
	ck_assert_uint_eq(mfs_id_view(id), id);
}
END_TEST

START_TEST(an_id_tells_its_view_and_run)
{
	const struct mfs_id_owner saved_again = {"", "/iter_0000040", 8};
	const struct mfs_id_owner run = {"other", "/iter_0000040", 7};
	const uint64_t id = mfs_id_of_dir(&owner, "/iter_0000040/hf", 0);

	ck_assert(mfs_id_may_be_of(mfs_id_in_view(id, 5), &owner));
	ck_assert(!mfs_id_may_be_of(id, &saved_again));
	ck_assert(!mfs_id_may_be_of(id, &run));
	ck_assert(mfs_id_may_be_of_run(id, "") && !mfs_id_may_be_of_run(id, "other"));
	ck_assert(mfs_id_may_be_of_run(mfs_id_of_dir(&run, "/x", 0), "other"));
	ck_assert_uint_ne(mfs_id_of_dir(&owner, "/iter_0000040/hf", 1), id);
	for (unsigned i = 0; i < 100000; i++) {
		const uint64_t any = mfs_id_of_dir(&owner, "/iter_0000040/x", i);

		ck_assert(!(any & 1) && any == mfs_id_view(any) && any > MFS_ID_NUMBERS);
	}
}
END_TEST

#define COUNT 50000

/* Neighbours, as the numbers in a view are, and others: found until they are removed. */
START_TEST(ids_are_found_until_they_are_removed)
{
	struct mfs_node *nodes = calloc(COUNT, sizeof(*nodes)), other;
	struct mfs_node_ids ids;

	mfs_node_ids_init(&ids);
	ck_assert_ptr_null(mfs_node_ids_find(&ids, 2));
	for (unsigned i = 0; i < COUNT; i++) {
		nodes[i].id = i % 2 ? 2 * i + 2 : (i * 0x9e3779b97f4a7c15ull) << 1;
		ck_assert_int_eq(mfs_node_ids_put(&ids, &nodes[i]), 0);
	}
	for (unsigned i = 0; i < COUNT; i += 3)
		mfs_node_ids_remove(&ids, &nodes[i]);
	for (unsigned i = 0; i < COUNT; i++) {
		ck_assert_ptr_eq(mfs_node_ids_find(&ids, nodes[i].id), i % 3 ? &nodes[i] : NULL);
	}
	other = nodes[1];
	ck_assert_int_eq(mfs_node_ids_put(&ids, &other), 0);
	mfs_node_ids_remove(&ids, &nodes[1]);
	ck_assert_ptr_eq(mfs_node_ids_find(&ids, nodes[1].id), &other);
	mfs_node_ids_release(&ids);
	free(nodes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("node_ids");
	TCase *c = unit_case(s, "ids", ids_are_fixed);

	tcase_add_test(c, an_id_tells_its_view_and_run);
	tcase_add_test(c, ids_are_found_until_they_are_removed);
	return s;
}

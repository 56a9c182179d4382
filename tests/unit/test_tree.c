/* What the mount shows: fs/tree.h. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/plan/vfile.h"
#include "fs/root.h"
#include "fs/tree.h"

#define FROM "resume/llama-torch_dist-tp2-pp2"

static struct mfs_root *root;
static struct mfs_tree *tree;

static void open_tree(const char *source)
{
	const struct mfs_view_options none = {0};
	struct mfs_error err;

	unit_ok(mfs_root_open(source, &none, &root, &err), &err);
	unit_ok(mfs_tree_new(root, &tree, &err), &err);
}

static void close_tree(void)
{
	mfs_tree_free(tree);
	mfs_root_free(root);
}

static const struct mfs_dir *list(struct mfs_node *node)
{
	const struct mfs_dir *dir;
	struct mfs_error err;

	unit_ok(mfs_tree_list(tree, node, &dir, &err), &err);
	return dir;
}

/* "iter_0000040/hf/config.json"; NULL if a part of it is not there. */
static struct mfs_node *find(const char *path)
{
	struct mfs_node *node = mfs_tree_root(tree);
	char copy[128], *rest = copy, *name;

	snprintf(copy, sizeof(copy), "%s", path);
	while (node && (name = strtok_r(rest, "/", &rest)))
		node = mfs_dir_find(list(node), name);
	return node;
}

START_TEST(test_layout)
{
	struct mfs_node *node;
	struct stat st;

	open_tree(unit_fixture(FROM));
	ck_assert_uint_eq(list(mfs_tree_root(tree))->count, 3);
	node = find("latest");
	ck_assert_str_eq(node->target, "iter_0000040");
	mfs_node_stat(node, &st);
	ck_assert(S_ISLNK(st.st_mode) && st.st_size == 12);

	mfs_node_stat(mfs_tree_root(tree), &st);
	ck_assert(S_ISDIR(st.st_mode) && st.st_nlink == 4 && st.st_ino == 1);

	node = find("iter_0000020/hf/config.json");
	ck_assert_ptr_nonnull(node);
	ck_assert_str_eq(node->path, "/iter_0000020/hf/config.json");
	mfs_node_stat(node, &st);
	ck_assert(S_ISREG(st.st_mode) && st.st_nlink == 1 && !(st.st_mode & 0333));
	ck_assert_uint_eq((uint64_t)st.st_size, mfs_vfile_size(node->data));

	ck_assert_ptr_null(find("iter_0000030"));
	ck_assert_ptr_null(find("iter_0000020/config.json"));
	ck_assert_ptr_null(find("iter_0000020/hf/con"));
	close_tree();
}
END_TEST

START_TEST(test_file_is_no_directory)
{
	const struct mfs_dir *dir;
	struct mfs_error err;

	open_tree(unit_fixture(FROM));
	unit_fails(mfs_tree_list(tree, find("latest"), &dir, &err), &err, -ENOTDIR, "/latest");
	close_tree();
}
END_TEST

static void *visit(void *arg)
{
	struct mfs_node *node = find("iter_0000020/hf/model.safetensors");
	struct stat st;

	mfs_node_stat(node, &st);
	ck_assert_int_gt(st.st_size, 0);
	*(struct mfs_node **)arg = node;
	return NULL;
}

/* Whoever comes first builds; all see the same node. */
START_TEST(test_first_use_by_many_threads)
{
	enum { THREADS = 8 };
	struct mfs_node *seen[THREADS] = {0};
	pthread_t threads[THREADS];

	open_tree(unit_fixture(FROM));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, visit, &seen[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i < THREADS; i++)
		ck_assert_ptr_eq(seen[i], seen[0]);
	close_tree();
}
END_TEST

/* Iterations as links to the fixture's: a run that saves, and moves its tracker. */
START_TEST(test_refresh)
{
	static const char tracker[] = "latest_checkpointed_iteration.txt";
	const char *dir = unit_tmpdir();
	char from[4096], to[4096];
	struct mfs_node *first, *latest;
	struct mfs_error err;

	for (int i = 20; i <= 40; i += 20) {
		ck_assert_ptr_nonnull(realpath(unit_fixture(FROM), from));
		snprintf(from + strlen(from), 32, "/iter_%07d", i);
		snprintf(to, sizeof(to), "%s/iter_%07d", dir, i);
		ck_assert_int_eq(symlink(from, to), 0);
	}
	unit_write(dir, tracker, "20", 2);
	open_tree(dir);
	first = find("iter_0000020");
	latest = find("latest");
	ck_assert_str_eq(latest->target, "iter_0000020");
	ck_assert_ptr_null(find("iter_0000040"));

	unit_write(dir, tracker, "40", 2);
	unit_ok(mfs_root_refresh(root, true, &err), &err);
	usleep(1100000); /* a refresh that is not forced waits */
	unit_ok(mfs_tree_refresh(tree, &err), &err);
	ck_assert_str_eq(find("latest")->target, "iter_0000040");
	ck_assert_ptr_nonnull(find("iter_0000040/hf/config.json"));
	ck_assert_ptr_eq(find("iter_0000020"), first);
	ck_assert_str_eq(latest->target, "iter_0000020"); /* what is held stays */
	ck_assert_uint_eq(latest->ino, find("latest")->ino);
	close_tree();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("tree");
	TCase *c = unit_case(s, "shape", test_layout);

	tcase_add_test(c, test_file_is_no_directory);
	tcase_add_test(c, test_first_use_by_many_threads);
	tcase_add_test(c, test_refresh);
	return s;
}

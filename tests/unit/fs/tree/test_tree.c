/* What the mount shows: fs/tree/tree.h. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/plan/vfile.h"
#include "fs/source/root.h"
#include "fs/tree/tree.h"
#include "tests/unit/fake_views.h"

#define FROM "resume/llama-torch_dist-tp2-pp2"

static struct mfs_root *root;
static struct mfs_tree *tree;

static void open_tree_with(const char *source, const struct mfs_view_options *opt)
{
	struct mfs_error err;

	unit_ok(mfs_root_open(source, opt, &root, &err), &err);
	unit_ok(mfs_tree_new(root, &tree, &err), &err);
}

static void open_tree(const char *source)
{
	const struct mfs_view_options none = {0};

	open_tree_with(source, &none);
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

	unit_ok(mfs_tree_list(tree, node, &dir, NULL, &err), &err);
	return dir;
}

static struct mfs_node *look_up(struct mfs_node *dir, const char *name)
{
	struct mfs_node *node = NULL;
	struct mfs_error err;
	int rc = mfs_tree_lookup(tree, dir, name, &node, NULL, &err);

	ck_assert_msg(!rc || rc == -ENOENT, "%s: %d %s", name, rc, err.msg);
	return rc ? NULL : node;
}

/* "iter_0000040/hf/config.json"; NULL if a part of it is not there. */
static struct mfs_node *find(const char *path)
{
	struct mfs_node *node = mfs_tree_root(tree);
	char copy[128], *rest = copy, *name;

	snprintf(copy, sizeof(copy), "%s", path);
	while (node && (name = strtok_r(rest, "/", &rest)))
		node = look_up(node, name);
	return node;
}

static uint64_t bytes_of(struct mfs_node *node)
{
	struct mfs_open_file file;
	struct mfs_error err;
	uint64_t size;

	unit_ok(mfs_tree_open(node, &file, NULL, &err), &err);
	size = mfs_vfile_size(file.data);
	mfs_tree_close(&file);
	return size;
}

static unsigned links(const char *path)
{
	struct mfs_node *node = find(path);
	struct stat st;

	ck_assert_msg(node != NULL, "%s", path);
	mfs_node_stat(node, &st);
	return (unsigned)st.st_nlink;
}

START_TEST(the_tree_has_iterations_and_views)
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
	ck_assert_uint_eq((uint64_t)st.st_size, bytes_of(node));

	ck_assert_ptr_null(find("iter_0000030"));
	ck_assert_ptr_null(find("iter_0000020/config.json"));
	ck_assert_ptr_null(find("iter_0000020/hf/con"));
	close_tree();
}
END_TEST

START_TEST(file_is_no_directory)
{
	const struct mfs_dir *dir;
	struct mfs_error err;

	open_tree(unit_fixture(FROM));
	unit_fails(mfs_tree_list(tree, find("latest"), &dir, NULL, &err), &err, -ENOTDIR,
		   "/latest");
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

/* The first thread builds; all see the same node. */
START_TEST(first_use_by_many_threads)
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
START_TEST(a_tracker_that_moved_moves_latest)
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

/* Iterations that are gone are told in turn, however many of them stay known. */
START_TEST(gone_in_turn)
{
	const char *dir = unit_tmpdir();
	char from[4096], to[4096], *told[4] = {0};
	struct mfs_error err;

	ck_assert_ptr_nonnull(realpath(unit_fixture(FROM "/iter_0000040"), from));
	for (int i = 1; i <= 4; i++) {
		snprintf(to, sizeof(to), "%s/iter_%07d", dir, i);
		ck_assert_int_eq(symlink(from, to), 0);
	}
	open_tree(dir);
	for (int i = 1; i <= 4; i++) {
		snprintf(to, sizeof(to), "iter_%07d", i);
		ck_assert_ptr_nonnull(find(to));
	}
	ck_assert_uint_eq(mfs_tree_gone(tree, told, 4), 0);
	for (int i = 1; i <= 3; i++) {
		snprintf(to, sizeof(to), "%s/iter_%07d", dir, i);
		ck_assert_int_eq(unlink(to), 0);
	}
	unit_ok(mfs_root_refresh(root, true, &err), &err);
	usleep(1100000);
	unit_ok(mfs_tree_refresh(tree, &err), &err);
	ck_assert_uint_eq(mfs_tree_gone(tree, told, 2), 2);
	ck_assert_uint_eq(mfs_tree_gone(tree, told + 2, 2), 1);
	ck_assert_str_ne(told[2], told[0]);
	ck_assert_str_ne(told[2], told[1]);
	ck_assert_uint_eq(mfs_tree_gone(tree, told + 3, 1), 1);
	ck_assert_str_eq(told[3], told[0]);
	for (int i = 0; i < 4; i++)
		free(told[i]);
	close_tree();
}
END_TEST

#define ITERATION "iter_0000040/"
#define LAYOUTS	  ITERATION "megatron/torch"

/* The entries of an iteration: kinds, less three as four of them are in megatron/. */
#define ENTRIES (mfs_ckpt_views.count - 3)

START_TEST(views_of_an_iteration)
{
	const struct mfs_dir *dir;

	open_tree(unit_fixture(FROM));
	dir = list(find(ITERATION));
	ck_assert_uint_eq(dir->count, ENTRIES);
	ck_assert_str_eq(dir->entries[0]->name, "hf");
	ck_assert_str_eq(dir->entries[ENTRIES - 1]->name, "megatron");
	ck_assert_uint_eq(links(ITERATION), 2 + ENTRIES);
	ck_assert_uint_eq(links(ITERATION "hf"), 2);
	ck_assert_uint_eq(links(ITERATION "megatron"), 4);
	ck_assert_uint_eq(links(ITERATION "megatron/torch_dist"), 1);

	/* In the order of the listing; looking at one opens none. */
	dir = list(find(LAYOUTS));
	ck_assert_uint_eq(dir->count, 3);
	ck_assert_str_eq(dir->entries[0]->name, "tp2-pp2");
	ck_assert_str_eq(dir->entries[2]->name, "tp2-pp1");
	ck_assert_uint_eq(links(LAYOUTS "/tp2-pp1"), 1);
	ck_assert_uint_eq(fake_views_built, 0);
	ck_assert_uint_eq(fake_optims_opened, 0);
	close_tree();
}
END_TEST

/* What is known not to be there is no entry; a file says why, and nothing is built for it. */
START_TEST(views_that_cannot_be)
{
	const struct mfs_view_options gpt2 = {.arch = "gpt2"};
	struct mfs_open_file open;
	struct mfs_error err;
	struct mfs_node *file;
	unsigned place = 0;
	char text[2048] = "";
	size_t len;

	fake_no_megatron = true;
	open_tree_with(unit_fixture(FROM), &gpt2);
	ck_assert_uint_eq(list(find(ITERATION))->count, 2);
	ck_assert_uint_eq(links(ITERATION), 3);
	ck_assert_ptr_nonnull(find(ITERATION "raw"));
	ck_assert_ptr_null(find(ITERATION "hf"));
	ck_assert_ptr_null(find(ITERATION "megatron"));
	ck_assert_ptr_nonnull(
		strstr(mfs_tree_why_not(find(ITERATION), "hf", &place), "not a gpt2"));
	ck_assert_str_eq(mfs_tree_why_not(find(ITERATION), "megatron", &place),
			 "no module has linear_fc3");
	ck_assert_ptr_null(mfs_tree_why_not(find(ITERATION), "none", &place));
	file = find(ITERATION "why-not.txt");
	ck_assert_ptr_nonnull(file);
	unit_ok(mfs_tree_open(file, &open, NULL, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(open.data), file->size);
	unit_ok(mfs_vfile_pread(open.data, 0, text, sizeof(text) - 1, &len, &err), &err);
	ck_assert_uint_eq(len, file->size);
	ck_assert_ptr_nonnull(strstr(text, "\nmegatron: no module has linear_fc3\n"));
	ck_assert(!strncmp(text, "hf, hf-bf16, ", 13));
	mfs_tree_close(&open);
	ck_assert_uint_eq(fake_views_built, 0);
	close_tree();
	fake_no_megatron = false;
}
END_TEST

/* A directory of several views has those that can be; why the others cannot is asked of it. */
START_TEST(a_view_that_cannot_be_among_others)
{
	unsigned number = 0;

	fake_no_dist = true;
	open_tree(unit_fixture(FROM));
	ck_assert_uint_eq(list(find(ITERATION))->count, ENTRIES + 1);
	ck_assert_ptr_nonnull(find(ITERATION "why-not.txt"));
	ck_assert_uint_eq(list(find(ITERATION "megatron"))->count, 1);
	ck_assert_ptr_nonnull(find(LAYOUTS "/tp2-pp1"));
	ck_assert_ptr_null(find(ITERATION "megatron/torch_dist"));
	ck_assert_str_eq(mfs_tree_why_not(find(ITERATION "megatron"), "torch_dist", &number),
			 "no torch_dist");
	ck_assert_ptr_eq(mfs_ckpt_views.kinds[number], &mfs_view_kind_megatron_torch_dist);
	ck_assert_ptr_null(mfs_tree_why_not(find(ITERATION "megatron"), "torch", &number));
	ck_assert_ptr_null(mfs_tree_why_not(find(ITERATION), "megatron", &number));
	ck_assert_ptr_null(mfs_tree_why_not(find(ITERATION "hf"), "torch_dist", &number));
	close_tree();
	fake_no_dist = false;
}
END_TEST

START_TEST(nested_names)
{
	static const char file[] =
		LAYOUTS "/tp2-pp2/iter_0000040/mp_rank_01_000/model_optim_rng.pt";
	const struct mfs_dir *dir;
	struct mfs_node *node;
	uint64_t bytes, files;
	struct stat st;

	open_tree(unit_fixture(FROM));
	node = find(file);
	ck_assert_ptr_nonnull(node);
	ck_assert_str_eq(node->path + 1, file);
	ck_assert_str_eq(node->name, "model_optim_rng.pt");
	ck_assert_str_eq(node->parent->name, "mp_rank_01_000");
	mfs_node_stat(node, &st);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_uint_eq((uint64_t)st.st_size, bytes_of(node));

	dir = list(find(LAYOUTS "/tp2-pp2"));
	ck_assert_uint_eq(dir->count, 2);
	ck_assert_str_eq(dir->entries[0]->name, "iter_0000040");
	ck_assert_str_eq(dir->entries[1]->name, "latest_checkpointed_iteration.txt");
	dir = list(find(LAYOUTS "/tp2-pp2/iter_0000040"));
	ck_assert_uint_eq(dir->count, 4);
	ck_assert_str_eq(dir->entries[3]->name, "mp_rank_01_001");
	ck_assert_uint_eq(links(LAYOUTS "/tp2-pp2/iter_0000040"), 6);
	ck_assert_uint_eq(links(LAYOUTS "/tp2-pp2/iter_0000040/mp_rank_00_000"), 2);
	ck_assert_ptr_null(find(LAYOUTS "/tp2-pp2/iter_0000040/mp_rank_02_000"));
	ck_assert_ptr_null(find(LAYOUTS "/tp2-pp2/iter_0000040/mp_rank"));
	mfs_tree_totals(tree, &bytes, &files);
	ck_assert_uint_eq(files, 5);
	ck_assert_uint_eq(fake_views_built, 1);
	ck_assert_uint_eq(fake_optims_opened, 1);
	close_tree();
}
END_TEST

START_TEST(layouts_that_are_not_listed)
{
	struct mfs_node *node, *torch;

	open_tree(unit_fixture(FROM));
	torch = find(LAYOUTS);
	node = look_up(torch, "tp8-pp3");
	ck_assert_ptr_nonnull(node);
	ck_assert_ptr_eq(look_up(torch, "tp8-pp3"), node);
	ck_assert_str_eq(node->path, "/" LAYOUTS "/tp8-pp3");
	ck_assert_uint_eq(fake_views_built, 0);
	ck_assert_ptr_eq(look_up(torch, "tp2-pp1"), mfs_dir_find(list(torch), "tp2-pp1"));
	ck_assert_uint_eq(list(torch)->count, 3);
	ck_assert_uint_eq(list(find(LAYOUTS "/tp8-pp3/iter_0000040"))->count, 24);

	ck_assert_ptr_null(look_up(torch, "tp3-pp1"));
	ck_assert_ptr_null(look_up(torch, "tp08-pp3"));
	ck_assert_ptr_null(look_up(torch, "tp8-pp3-"));
	ck_assert_ptr_null(look_up(torch, ".git"));
	/* Of this directory alone. */
	ck_assert_ptr_null(look_up(find(ITERATION "megatron"), "tp2-pp1"));
	ck_assert_ptr_null(look_up(find(ITERATION), "tp2-pp1"));
	close_tree();
}
END_TEST

/* There is no end of names: what nobody knows any more is gone, and comes back with the same
 * number. */
START_TEST(unlisted_layouts_are_forgotten)
{
	struct mfs_node *torch, *known, *node;
	uint64_t ino = 0, bytes, files, after;
	char name[32];

	open_tree(unit_fixture(FROM));
	torch = find(LAYOUTS);
	known = look_up(torch, "tp8-pp1");
	for (unsigned i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "tp4-pp%u", i + 1);
		node = look_up(torch, name);
		ck_assert_msg(node != NULL, "%s", name);
		if (!i)
			ino = node->ino;
		mfs_tree_forget(tree, node, 1);
	}
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 1);
	ck_assert_ptr_eq(look_up(torch, "tp8-pp1"), known);
	ck_assert_uint_eq(list(known)->count, 2);

	/* With all that was found in it: each node that was looked up has to be forgotten. */
	mfs_tree_totals(tree, &bytes, &files);
	node = look_up(torch, "tp4-pp1");
	ck_assert_uint_eq(node->ino, ino);
	mfs_tree_know(tree, look_up(node, "iter_0000040"));
	mfs_tree_totals(tree, &bytes, &after);
	ck_assert_uint_eq(after, files + 5);
	mfs_tree_forget(tree, look_up(node, "iter_0000040"), 3);
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 2);
	mfs_tree_forget(tree, node, 1);
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 1);
	mfs_tree_totals(tree, &bytes, &after);
	ck_assert_uint_eq(after, files);

	/* Those that are listed stay, as long as their iteration is shown. */
	node = look_up(torch, "tp2-pp1");
	mfs_tree_forget(tree, node, 1);
	ck_assert_ptr_eq(look_up(torch, "tp2-pp1"), node);
	close_tree();
}
END_TEST

/* Ids of all nodes below a directory, depth first, with their paths' hashes. */
struct ids {
	uint64_t id[2000];
	uint32_t generation[2000];
	const char *path[2000];
	unsigned count;
};

static void collect(struct mfs_node *node, struct ids *ids)
{
	ck_assert_uint_lt(ids->count, 2000);
	ids->path[ids->count] = strdup(node->path);
	ids->generation[ids->count] = node->generation;
	ids->id[ids->count++] = node->id;
	for (uint32_t i = 0; S_ISDIR(node->type) && i < list(node)->count; i++)
		collect(list(node)->entries[i], ids);
}

static struct mfs_node *by_id(uint64_t id)
{
	struct mfs_node *node = NULL;
	struct mfs_error err;
	int rc = mfs_tree_find_id(tree, id, &node, &err);

	ck_assert_msg(!rc || rc == -ESTALE, "%d %s", rc, err.msg);
	ck_assert(rc || node);
	return rc ? NULL : node;
}

/* A tree that was made anew finds each node of an earlier one by its id, in any order, and nothing
 * by any other id. */
START_TEST(a_tree_made_anew_finds_each_node_by_its_id)
{
	static struct ids ids;
	struct mfs_node *node;

	ids.count = 0;
	open_tree(unit_fixture(FROM));
	collect(mfs_tree_root(tree), &ids);
	ck_assert_uint_gt(ids.count, 100);
	ck_assert_uint_eq(ids.id[0], 1);
	for (unsigned i = 1; i < ids.count; i++) {
		ck_assert(!(ids.id[i] & 1) && ids.generation[i]);
		for (unsigned k = 0; k < i; k++)
			ck_assert_uint_ne(ids.id[i], ids.id[k]);
	}
	close_tree();
	open_tree(unit_fixture(FROM));
	for (unsigned i = ids.count; i--;) {
		node = by_id(ids.id[i]);
		ck_assert_msg(node != NULL, "%s", ids.path[i]);
		ck_assert_str_eq(node->path, ids.path[i]);
		ck_assert_uint_eq(node->generation, ids.generation[i]);
		ck_assert_ptr_null(by_id(ids.id[i] + (1ull << 21)));
		free((char *)ids.path[i]);
	}
	for (uint64_t id = 0; id < 1000; id++)
		ck_assert(!by_id(id) || id == 1);
	close_tree();
}
END_TEST

/* A view that no listing names is found by its id if this tree knew it; else there is no way to
 * it. */
START_TEST(ids_of_unlisted_layouts)
{
	struct mfs_node *node;
	uint64_t id, top;

	open_tree(unit_fixture(FROM));
	node = find(LAYOUTS "/tp8-pp1/latest_checkpointed_iteration.txt");
	id = node->id;
	top = node->parent->id;
	mfs_tree_forget(tree, node, 2); /* with its directory, which was looked up too */
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 0);
	node = by_id(id);
	ck_assert_str_eq(node->path, "/" LAYOUTS "/tp8-pp1/latest_checkpointed_iteration.txt");
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 1);
	mfs_tree_forget(tree, node, 1);
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 0);
	ck_assert_uint_eq(by_id(top)->id, top);
	close_tree();
	open_tree(unit_fixture(FROM));
	ck_assert_ptr_null(by_id(id));
	ck_assert_ptr_null(by_id(top));
	close_tree();
}
END_TEST

static void *come_and_go(void *arg)
{
	for (int i = 0; i < 500; i++) {
		struct mfs_node *node = look_up(arg, i % 3 ? "tp4-pp3" : "tp4-pp5"), *inside;

		if (!(i % 50)) {
			inside = look_up(node, "latest_checkpointed_iteration.txt");
			ck_assert_ptr_nonnull(inside);
			mfs_tree_forget(tree, inside, 1);
		}
		mfs_tree_forget(tree, node, 1);
	}
	return NULL;
}

START_TEST(unlisted_layouts_by_many_threads)
{
	enum { THREADS = 6 };
	pthread_t threads[THREADS];

	open_tree(unit_fixture(FROM));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, find(LAYOUTS)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(mfs_tree_unlisted(tree), 0);
	close_tree();
}
END_TEST

START_TEST(damaged_optimizer)
{
	struct mfs_node *about = NULL, *torch, *dist;
	const struct mfs_dir *dir;
	struct mfs_error err;

	fake_optim_error = -EINVAL;
	open_tree(unit_fixture(FROM));
	torch = find(LAYOUTS "/tp2-pp1");
	dist = find(ITERATION "megatron/torch_dist");
	unit_fails(mfs_tree_list(tree, torch, &dir, &about, &err), &err, -EINVAL, "optimizer");
	/* What all of them have in common is one node's failure, and is looked for once. */
	ck_assert_ptr_eq(about, find(ITERATION "megatron"));
	unit_fails(mfs_tree_list(tree, dist, &dir, &about, &err), &err, -EINVAL, "optimizer");
	ck_assert_ptr_eq(about, find(ITERATION "megatron"));
	ck_assert_uint_eq(fake_optims_opened, 1);
	unit_fails(mfs_tree_lookup(tree, torch, "x", &dist, &about, &err), &err, -EINVAL,
		   "optimizer");
	/* The rest of the iteration goes on. */
	ck_assert_ptr_nonnull(find(ITERATION "hf/config.json"));
	ck_assert_uint_eq(list(find(LAYOUTS))->count, 3);
	close_tree();
}
END_TEST

/* Of a directory that cannot be had for the moment nobody says what is not in it. */
START_TEST(source_that_is_away)
{
	struct mfs_node *hf, *torch, *node;
	char path[300], command[1000];
	struct mfs_error err;

	snprintf(path, sizeof(path), "%s/run", unit_tmpdir());
	snprintf(command, sizeof(command), "cp -r '%s' '%s'", unit_fixture(FROM), path);
	ck_assert_msg(!system(command), "%s", command);
	open_tree(path);
	hf = find("iter_0000020/hf");
	torch = find("iter_0000020/megatron/torch");
	snprintf(command, sizeof(command), "mv '%s/iter_0000020' '%s/away'", path, path);
	ck_assert_msg(!system(command), "%s", command);
	unit_fails(mfs_tree_lookup(tree, hf, "config.json", &node, NULL, &err), &err, -EIO,
		   "iter_0000020");
	unit_fails(mfs_tree_lookup(tree, torch, "tp8-pp3", &node, NULL, &err), &err, -EIO,
		   "iter_0000020");
	snprintf(command, sizeof(command), "mv '%s/away' '%s/iter_0000020'", path, path);
	ck_assert_msg(!system(command), "%s", command);
	ck_assert_ptr_nonnull(look_up(hf, "config.json"));
	ck_assert_ptr_nonnull(look_up(torch, "tp8-pp3"));
	close_tree();
}
END_TEST

START_TEST(without_the_optimizer_none_is_opened)
{
	const struct mfs_view_options opt = {.no_optim = true};

	fake_optim_error = -EINVAL;
	open_tree_with(unit_fixture(FROM), &opt);
	ck_assert_uint_eq(list(find(LAYOUTS "/tp2-pp1"))->count, 2);
	ck_assert_uint_eq(fake_optims_opened, 0);
	close_tree();
}
END_TEST

static void *open_dist(void *arg)
{
	*(struct mfs_node **)arg =
		find(ITERATION "megatron/torch_dist/latest_checkpointed_iteration.txt");
	return NULL;
}

/* A view that takes its time holds up nobody who looks at others, or for new iterations. */
START_TEST(slow_view)
{
	struct mfs_node *slow = NULL;
	struct mfs_error err;
	sem_t begun, go;
	pthread_t thread;

	sem_init(&begun, 0, 0);
	sem_init(&go, 0, 0);
	fake_begun = &begun;
	fake_go = &go;
	open_tree(unit_fixture(FROM));
	ck_assert_int_eq(pthread_create(&thread, NULL, open_dist, &slow), 0);
	sem_wait(&begun);
	ck_assert_ptr_nonnull(find(ITERATION "hf/config.json"));
	ck_assert_uint_eq(list(find(LAYOUTS "/tp8-pp1/iter_0000040"))->count, 8);
	unit_ok(mfs_root_refresh(root, true, &err), &err);
	ck_assert_ptr_nonnull(find("iter_0000020/megatron/torch/tp1-pp1/iter_0000020"));
	sem_post(&go);
	pthread_join(thread, NULL);
	ck_assert_ptr_nonnull(slow);
	close_tree();
}
END_TEST

static void *visit_megatron(void *arg)
{
	struct mfs_node **seen = arg;

	seen[0] = find(LAYOUTS "/tp2-pp2/iter_0000040/mp_rank_01_001/model_optim_rng.pt");
	seen[1] = find(LAYOUTS "/tp4-pp7");
	return NULL;
}

START_TEST(megatron_views_by_many_threads)
{
	enum { THREADS = 8 };
	struct mfs_node *seen[THREADS][2] = {0};
	pthread_t threads[THREADS];

	open_tree(unit_fixture(FROM));
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, visit_megatron, seen[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert(seen[0][0] && seen[0][1]);
	for (int i = 1; i < THREADS; i++)
		ck_assert(seen[i][0] == seen[0][0] && seen[i][1] == seen[0][1]);
	ck_assert_uint_eq(fake_views_built, 1);
	ck_assert_uint_eq(fake_optims_opened, 1);
	close_tree();
}
END_TEST

/* No iterations: the views stand at the top. */
START_TEST(hf_directory)
{
	const char *dir = unit_tmpdir();
	char from[4096], to[4096];
	struct mfs_error err;
	struct stat st;

	ck_assert_ptr_nonnull(realpath(unit_fixture(FROM "/iter_0000040"), from));
	snprintf(to, sizeof(to), "%s/inside", dir);
	ck_assert_int_eq(symlink(from, to), 0);
	unit_write(dir, "config.json", "{}", 2);
	open_tree(dir);
	ck_assert_uint_eq(list(mfs_tree_root(tree))->count, ENTRIES);
	ck_assert_ptr_nonnull(find("hf"));
	ck_assert_ptr_nonnull(find("megatron/torch/tp1-pp1/release/mp_rank_00_000"));
	ck_assert_ptr_nonnull(find("megatron/torch/tp8-pp1"));
	ck_assert_ptr_null(find("latest"));
	ck_assert_uint_eq(fake_optims_opened, 0);
	mfs_node_stat(mfs_tree_root(tree), &st);
	ck_assert(S_ISDIR(st.st_mode) && st.st_nlink == 2 + ENTRIES && st.st_ino == 1 &&
		  st.st_mtime);
	ck_assert(!mfs_tree_root(tree)->moves && !find("hf")->moves);
	unit_ok(mfs_tree_refresh(tree, &err), &err);
	ck_assert_uint_eq(list(mfs_tree_root(tree))->count, ENTRIES);
	close_tree();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("tree");
	TCase *c = unit_case(s, "shape", the_tree_has_iterations_and_views);

	tcase_add_test(c, file_is_no_directory);
	tcase_add_test(c, views_that_cannot_be);
	tcase_add_test(c, first_use_by_many_threads);
	tcase_add_test(c, a_tracker_that_moved_moves_latest);
	tcase_add_test(c, gone_in_turn);
	c = unit_case(s, "megatron", views_of_an_iteration);
	tcase_add_test(c, a_view_that_cannot_be_among_others);
	tcase_add_test(c, nested_names);
	tcase_add_test(c, layouts_that_are_not_listed);
	tcase_add_test(c, unlisted_layouts_are_forgotten);
	tcase_add_test(c, a_tree_made_anew_finds_each_node_by_its_id);
	tcase_add_test(c, ids_of_unlisted_layouts);
	tcase_add_test(c, unlisted_layouts_by_many_threads);
	tcase_add_test(c, damaged_optimizer);
	tcase_add_test(c, source_that_is_away);
	tcase_add_test(c, without_the_optimizer_none_is_opened);
	tcase_add_test(c, slow_view);
	tcase_add_test(c, megatron_views_by_many_threads);
	unit_case(s, "hf", hf_directory);
	return s;
}

#include "fs/tree/tree.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/megatron/tracker.h"
#include "fs/tree/tree_i.h"
#include "fs/source/readers.h"
#include "fs/view/keeper.h"
#include "fs/view/views.h"

#define BLOCK_SIZE (1 << 20) /* st_blksize: the kernel's largest request */

static bool is_changing(const struct mfs_node *node)
{
	return node->changes && !(node->run && node->run->flat);
}

static int new_top(struct mfs_tree *tree, struct mfs_error *err)
{
	struct mfs_tree_run *run = &tree->one;
	char path[PATH_MAX];
	struct stat st;
	int rc;

	if (mfs_root_path(run->root, path, sizeof(path)) || stat(path, &st))
		return mfs_fail_errno(err, "%s", mfs_root_source(run->root));
	rc = mfs_tree_new_top(tree, run, &tree->top, err);
	if (rc)
		return rc;
	run->top = tree->top;
	run->mtime_ns = mfs_ns(st.st_mtim);
	tree->top->moves = mfs_root_has_iterations(run->root);
	return mfs_tree_set_readers(tree, tree->top, mfs_readers_of_path(path), err);
}

struct mfs_tree *mfs_tree_alloc(void)
{
	struct mfs_tree *tree = calloc(1, sizeof(*tree));

	if (!tree)
		return NULL;
	pthread_mutex_init(&tree->lock, NULL);
	pthread_mutex_init(&tree->looking, NULL);
	mfs_node_ids_init(&tree->ids);
	tree->one.name = "";
	tree->branches = calloc(MFS_BRANCHES, sizeof(struct mfs_branch *));
	if (tree->branches)
		return tree;
	mfs_tree_free(tree);
	return NULL;
}

int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err)
{
	struct mfs_tree *tree = mfs_tree_alloc();
	int rc;

	if (!tree)
		return mfs_fail_nomem(err);
	tree->one.root = root;
	rc = new_top(tree, err);
	if (!rc)
		rc = mfs_tree_fill_run(tree, &tree->one, err);
	if (rc) {
		mfs_tree_free(tree);
		return rc;
	}
	*ret = tree;
	return 0;
}

/* The kernel may still know nodes; it is gone. */
static void free_runs(struct mfs_tree *tree)
{
	if (tree->dir && tree->top)
		free(mfs_tree_top_dir(tree->top));
	while (tree->runs) {
		struct mfs_tree_run *run = tree->runs;

		run->entry->known++;
		if (run->root)
			mfs_tree_close_run(tree, run);
		mfs_tree_free_run(tree, run);
	}
	mfs_roots_free(tree->roots);
	mfs_keeper_free(tree->keeper);
	free(tree->dir);
}

static void free_one(struct mfs_tree *tree)
{
	struct mfs_tree_run *run = &tree->one;

	if (run->top && !run->flat)
		free(mfs_tree_top_dir(run->top));
	while (run->iterations)
		mfs_tree_remove_branch(tree, run->iterations);
}

void mfs_tree_free(struct mfs_tree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; tree->branches && i < MFS_BRANCHES; i++)
		while (tree->branches[i])
			mfs_tree_remove_branch(tree, tree->branches[i]);
	free_one(tree);
	free_runs(tree);
	free(tree->branches);
	for (unsigned i = 0; i < MFS_FORGOTTEN; i++)
		free(tree->forgotten[i].name);
	mfs_inode_set_release(&tree->inodes);
	mfs_node_ids_release(&tree->ids);
	for (uint32_t i = 0; i < tree->readers_count; i++)
		mfs_readers_free(tree->readers[i]);
	free(tree->readers);
	mfs_arena_release(&tree->arena);
	pthread_mutex_destroy(&tree->lock);
	pthread_mutex_destroy(&tree->looking);
	free(tree);
}

struct mfs_node *mfs_tree_root(struct mfs_tree *tree)
{
	return tree->top;
}

/* Once for each view, when its directory is filled. */
static void say_warnings(const struct mfs_tree *tree, const struct mfs_node *node,
			 const struct mfs_view *view)
{
	struct mfs_buf text = {0};
	const char *warning;

	for (uint32_t i = 0; tree->say && (warning = mfs_view_warning(view, i)); i++) {
		text.len = 0;
		mfs_buf_printf(&text, "%s: %s", node->path + 1, warning);
		if (!text.failed)
			tree->say(tree->say_arg, text.data);
	}
	mfs_buf_release(&text);
}

/* Fills the directory of a view, unless another thread has done so. */
static int show_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		     struct mfs_error *err)
{
	bool first;
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	first = !atomic_load(&node->dir);
	if (first) {
		node->stamp = view->stamp;
		rc = mfs_tree_fill_view(tree, node, view, err);
	}
	pthread_mutex_unlock(&tree->lock);
	if (first && !rc)
		say_warnings(tree, node, view);
	return rc;
}

/* A failure of a checkpoint is reported once for all views that are made of it. */
static int hold_view(struct mfs_node *node, struct mfs_held **ret, struct mfs_view **ret_view,
		     struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_held *origin = NULL;
	int rc = node->kind ? mfs_views_hold_origin(node->views, node->kind, &origin, err) : 0;

	if (rc) {
		*ret_about = node->group;
		return rc;
	}
	rc = mfs_views_hold(node->views, node->view, ret, ret_view, err);
	mfs_keeper_drop(origin);
	return rc;
}

static int open_view(struct mfs_tree *tree, struct mfs_node *node, struct mfs_node **ret_about,
		     struct mfs_error *err)
{
	struct mfs_held *held;
	struct mfs_view *view;
	int rc = hold_view(node, &held, &view, ret_about, err);

	if (rc)
		return rc;
	rc = show_view(tree, node, view, err);
	mfs_keeper_drop(held);
	return rc;
}

int mfs_tree_open(const struct mfs_node *node, struct mfs_open_file *ret,
		  struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_node *about = node->home;
	struct mfs_held *held;
	struct mfs_view *view;
	int rc = hold_view(node->home, &held, &view, &about, err);

	if (!rc && view->stamp != node->home->stamp) {
		rc = mfs_fail(err, -ESTALE, "%s: its sources have changed since it was shown first",
			      about->path);
		mfs_keeper_drop(held);
	}
	if (rc) {
		if (ret_about)
			*ret_about = about;
		return rc;
	}
	mfs_view_hold_sources(view);
	*ret = (struct mfs_open_file){held, view, view->files[node->file].data};
	return 0;
}

void mfs_tree_close(struct mfs_open_file *file)
{
	mfs_view_drop_sources(file->view);
	mfs_keeper_drop(file->held);
}

void mfs_tree_suspect(const struct mfs_node *node)
{
	const struct mfs_node *dir = node->home ? node->home : node;

	if (dir->iteration)
		mfs_iteration_suspect(dir->iteration);
	if (dir->run && !dir->changes)
		mfs_tree_suspect_run(dir->run);
}

static int open_layouts(struct mfs_tree *tree, struct mfs_node *node, struct mfs_error *err)
{
	const char *const *names;
	uint32_t count;
	int rc = mfs_views_list(node->views, node->kind, &names, &count, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	if (!atomic_load(&node->dir))
		rc = mfs_tree_fill_layouts(tree, node, names, count, err);
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

int mfs_tree_list(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		  struct mfs_node **ret_about, struct mfs_error *err)
{
	struct mfs_node *about = node;
	int rc = 0;

	if (!S_ISDIR(node->type))
		rc = mfs_fail(err, -ENOTDIR, "%s: not a directory", node->path);
	else if (!atomic_load_explicit(&node->dir, memory_order_acquire))
		rc = node->changes   ? mfs_tree_open_run(tree, node->run, err)
		     : node->layouts ? open_layouts(tree, node, err)
				     : open_view(tree, node, &about, err);
	if (!rc)
		*ret = atomic_load_explicit(&node->dir, memory_order_acquire);
	else if (ret_about)
		*ret_about = about;
	return rc;
}

int mfs_tree_open_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		      struct mfs_node **ret_about, struct mfs_error *err)
{
	int rc = mfs_tree_list(tree, node, ret, ret_about, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	mfs_tree_meet(node);
	if (is_changing(node)) {
		*ret = mfs_tree_top_dir(node);
		mfs_tree_top_dir(node)->holders++;
	}
	pthread_mutex_unlock(&tree->lock);
	return 0;
}

void mfs_tree_close_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir *dir)
{
	pthread_mutex_lock(&tree->lock);
	if (is_changing(node))
		mfs_tree_drop_top_dir(tree, (struct mfs_dir *)dir);
	mfs_tree_leave(tree, node, 1);
	pthread_mutex_unlock(&tree->lock);
}

void mfs_tree_know(struct mfs_tree *tree, struct mfs_node *node)
{
	if (!node->branch)
		return;
	pthread_mutex_lock(&tree->lock);
	mfs_tree_meet(node);
	pthread_mutex_unlock(&tree->lock);
}

void mfs_tree_forget(struct mfs_tree *tree, struct mfs_node *node, uint64_t times)
{
	if (!node->branch)
		return;
	pthread_mutex_lock(&tree->lock);
	mfs_tree_leave(tree, node, times);
	pthread_mutex_unlock(&tree->lock);
}

static unsigned count_iterations(const struct mfs_tree_run *run)
{
	unsigned count = 0;

	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		count++;
	return count;
}

unsigned mfs_tree_iterations(struct mfs_tree *tree)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = count_iterations(&tree->one);
	for (const struct mfs_tree_run *run = tree->runs; run; run = run->next)
		count += count_iterations(run);
	pthread_mutex_unlock(&tree->lock);
	return count;
}

unsigned mfs_tree_unlisted(struct mfs_tree *tree)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = tree->branch_count;
	pthread_mutex_unlock(&tree->lock);
	return count;
}

static bool is_shown(const struct mfs_dir *dir, const struct mfs_node *node)
{
	for (uint32_t i = 0; i < dir->count; i++)
		if (dir->entries[i] == node)
			return true;
	return false;
}

struct gone {
	char **paths;
	unsigned count, most;
};

/* Adds what is known and not shown any more, and was not told in this round. A run that is gone
 * takes its iterations along. */
static void add_gone(struct gone *g, const struct mfs_dir *dir, struct mfs_node *node)
{
	if (g->count == g->most || node->told_gone || !dir || is_shown(dir, node))
		return;
	g->paths[g->count] = strdup(node->path);
	node->told_gone = g->paths[g->count] != NULL;
	g->count += node->told_gone;
}

static void add_gone_of(struct gone *g, const struct mfs_tree_run *run)
{
	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		add_gone(g, mfs_tree_top_dir(run->top), b->top);
}

static unsigned add_all_gone(struct mfs_tree *tree, char **ret_paths, unsigned most)
{
	struct gone g = {ret_paths, 0, most};

	add_gone_of(&g, &tree->one);
	for (const struct mfs_tree_run *run = tree->runs; run; run = run->next) {
		add_gone(&g, mfs_tree_top_dir(tree->top), run->top);
		add_gone_of(&g, run);
	}
	return g.count;
}

static void tell_again_of(const struct mfs_tree_run *run)
{
	for (const struct mfs_branch *b = run->iterations; b; b = b->next)
		b->top->told_gone = false;
}

static void tell_again(struct mfs_tree *tree)
{
	tell_again_of(&tree->one);
	for (const struct mfs_tree_run *run = tree->runs; run; run = run->next) {
		run->top->told_gone = false;
		tell_again_of(run);
	}
}

unsigned mfs_tree_gone(struct mfs_tree *tree, char **ret_paths, unsigned most)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = add_all_gone(tree, ret_paths, most);
	if (!count) {
		tell_again(tree);
		count = add_all_gone(tree, ret_paths, most);
	}
	pthread_mutex_unlock(&tree->lock);
	return count;
}

/* The branch's directory, known once more. NULL: there is no such branch. */
static struct mfs_node *know_branch(struct mfs_tree *tree, const struct mfs_node *node,
				    const char *name, uint64_t ino)
{
	struct mfs_branch *b;

	pthread_mutex_lock(&tree->lock);
	b = mfs_tree_find_branch(tree, node, name, ino);
	if (b)
		mfs_tree_meet(b->top);
	pthread_mutex_unlock(&tree->lock);
	return b ? b->top : NULL;
}

/* Every possible layout or spec has a directory, even if no listing names it. */
static int find_layout(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		       struct mfs_node **ret, struct mfs_error *err)
{
	char view[MFS_VIEW_NAME_SIZE], path[PATH_MAX];
	struct mfs_branch *b;
	uint64_t ino;
	int rc;

	if ((size_t)snprintf(view, sizeof(view), "%s/%s", node->view, name) >= sizeof(view) ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s", node->path, name) >= sizeof(path))
		return -ENOENT;
	ino = mfs_inode_number(path);
	*ret = know_branch(tree, node, name, ino);
	if (*ret)
		return 0;
	rc = mfs_views_check(node->views, view, err);
	if (rc)
		return rc == -EINVAL ? -ENOENT : rc;
	pthread_mutex_lock(&tree->lock);
	b = mfs_tree_find_branch(tree, node, name, ino);
	if (!b)
		rc = mfs_tree_new_branch(tree, node, name, &b, err);
	if (!rc) {
		mfs_tree_meet(b->top);
		*ret = b->top;
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

/* An entry that comes and goes, known once more. NULL: there is none of that name. */
static struct mfs_node *look_up_top(struct mfs_tree *tree, const struct mfs_node *top,
				    const char *name)
{
	struct mfs_node *found;

	pthread_mutex_lock(&tree->lock);
	found = mfs_dir_find(mfs_tree_top_dir(top), name);
	if (found)
		mfs_tree_meet(found);
	pthread_mutex_unlock(&tree->lock);
	return found;
}

int mfs_tree_lookup(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		    struct mfs_node **ret, struct mfs_node **ret_about, struct mfs_error *err)
{
	const struct mfs_dir *dir;
	struct mfs_node *found;
	int rc;

	rc = mfs_tree_list(tree, node, &dir, ret_about, err);
	/* -ENOENT of a missing source must not tell the kernel that the name will never exist. */
	if (rc)
		return rc == -ENOENT ? -EIO : rc;
	if (is_changing(node)) {
		*ret = look_up_top(tree, node, name);
		if (!*ret && ret_about)
			*ret_about = node;
		return *ret ? 0 : -ENOENT;
	}
	found = mfs_dir_find(dir, name);
	if (!found && node->layouts)
		rc = find_layout(tree, node, name, &found, err);
	else if (!found)
		rc = -ENOENT;
	else
		mfs_tree_know(tree, found);
	if (!rc)
		*ret = found;
	else if (ret_about)
		*ret_about = node;
	return rc;
}

static bool is_lacking_some(const struct mfs_node *node)
{
	return node->view && !strcmp(node->view, MFS_WHY_NOT_VIEW);
}

/* node: the directory of an owner, or of several views. */
const char *mfs_tree_why_not(const struct mfs_node *node, const char *name, unsigned *ret_number)
{
	const bool top = is_lacking_some(node), in_top = is_lacking_some(node->parent);
	const size_t skip = strlen(node->name) + 1;
	struct mfs_views_entry e;

	for (unsigned i = 0; (top || in_top) && mfs_views_entry(node->views, i, &e); i = e.end) {
		*ret_number = e.first;
		if (top && !strcmp(name, e.name))
			return e.why_not;
		if (top || !e.is_group || strcmp(node->name, e.name))
			continue;
		for (; *ret_number < e.end; ++*ret_number)
			if (!strcmp(name, node->views->table->kinds[*ret_number]->name + skip))
				return node->views->why_not[*ret_number];
	}
	return NULL;
}

static int name_compare(const void *key, const void *entry)
{
	const struct mfs_node *const *node = entry;

	return strcmp(key, (*node)->name);
}

struct mfs_node *mfs_dir_find(const struct mfs_dir *dir, const char *name)
{
	struct mfs_node **found;

	found = bsearch(name, dir->by_name, dir->count, sizeof(*dir->by_name), name_compare);
	return found ? *found : NULL;
}

static struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static mode_t mode_of(mode_t type, mode_t readable)
{
	return S_ISLNK(type) ? 0777 : S_ISDIR(type) ? mfs_access_dir_mode(readable) : readable;
}

void mfs_node_stat(const struct mfs_node *node, struct stat *ret)
{
	const int64_t dir_mtime_ns =
		atomic_load_explicit(&node->dir_mtime_ns, memory_order_relaxed);
	const struct mfs_access told = mfs_readers_told(node->readers);

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = node->ino;
	ret->st_mode = node->type | mode_of(node->type, told.mode);
	ret->st_nlink =
		S_ISDIR(node->type) && !node->uncounted ? 2 + atomic_load(&node->subdirs) : 1;
	ret->st_uid = told.uid;
	ret->st_gid = told.gid;
	ret->st_size = (off_t)node->size;
	ret->st_blocks = S_ISREG(node->type) ? (blkcnt_t)((node->size + 511) / 512) : 0;
	ret->st_blksize = BLOCK_SIZE;
	ret->st_mtim = to_timespec(dir_mtime_ns ? dir_mtime_ns : node->mtime_ns);
	ret->st_ctim = ret->st_atim = ret->st_mtim;
}

bool mfs_tree_has_model(const struct mfs_tree *tree)
{
	return tree->dir || mfs_root_has_model(tree->one.root);
}

int mfs_tree_source_statvfs(const struct mfs_tree *tree, struct statvfs *ret)
{
	if (!tree->dir)
		return mfs_root_statvfs(tree->one.root, ret);
	return statvfs(tree->dir, ret) ? -errno : 0;
}

bool mfs_tree_remote(const struct mfs_tree *tree, struct mfs_cache_stats *ret)
{
	return !tree->dir && mfs_root_remote(tree->one.root, ret);
}

void mfs_tree_rest(struct mfs_tree *tree)
{
	if (!tree->dir)
		mfs_root_rest(tree->one.root);
}

void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files)
{
	*ret_bytes = atomic_load(&tree->bytes);
	*ret_files = atomic_load(&tree->files);
}

static void count_run(const struct mfs_tree_run *run, struct mfs_tree_counts *n)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(run->root);
	uint32_t shown = 0;

	for (uint32_t i = 0; i < s->count; i++)
		shown += !mfs_iteration_reason(s->iterations[i]);
	n->shown += shown;
	n->hidden += s->count - shown;
	if (n->several || !s->latest)
		return;
	n->latest_name = mfs_iteration_name(s->latest);
	if (!mfs_iteration_number_of_any(n->latest_name, &n->latest))
		n->latest = -1;
}

struct mfs_tree_counts mfs_tree_counts(struct mfs_tree *tree)
{
	struct mfs_tree_counts n = {
		.several = tree->dir, .known = mfs_tree_iterations(tree), .latest = -1};

	pthread_mutex_lock(&tree->lock);
	if (tree->dir)
		n.runs = mfs_tree_top_dir(tree->top)->count;
	else
		count_run(&tree->one, &n);
	for (const struct mfs_tree_run *run = tree->runs; run; run = run->next) {
		if (!run->root)
			continue;
		n.open++;
		count_run(run, &n);
	}
	pthread_mutex_unlock(&tree->lock);
	mfs_tree_totals(tree, &n.bytes, &n.files);
	return n;
}

#include "fs/mount/tree.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "fs/mount/tree_i.h"
#include "fs/source/readers.h"
#include "fs/source/root_changes.h"
#include "fs/view/keeper.h"
#include "fs/view/views.h"

#define BLOCK_SIZE (1 << 20) /* st_blksize: the kernel's largest request */

static int new_latest(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node **ret,
		      struct mfs_error *err)
{
	struct mfs_node *node;
	int rc = mfs_tree_new_node(tree, tree->top, "latest", &node, err);

	if (rc)
		return rc;
	node->type = S_IFLNK;
	node->mtime_ns = mfs_iteration_mtime(it);
	node->iteration = it;
	node->target = mfs_iteration_name(it);
	node->size = strlen(node->target);
	node->moves = true;
	*ret = node;
	return 0;
}

static struct mfs_node *find_shown(const struct mfs_dir *dir, const struct mfs_iteration *it,
				   mode_t type)
{
	for (uint32_t i = 0; dir && i < dir->count; i++) {
		if (dir->entries[i]->iteration == it && dir->entries[i]->type == type)
			return dir->entries[i];
	}
	return NULL;
}

/* Keeps the entry that the iteration had, with its open and cached files; else makes a new one. */
static int add_shown(struct mfs_tree *tree, struct mfs_iteration *it, mode_t type,
		     struct mfs_dir *dir, struct mfs_error *err)
{
	struct mfs_node *node = find_shown(atomic_load(&tree->top->dir), it, type);
	int rc = 0;

	if (!node)
		rc = type == S_IFLNK ? new_latest(tree, it, &node, err)
				     : mfs_tree_new_iteration(tree, it, &node, err);
	if (rc)
		return rc;
	mfs_tree_add_entry(dir, node);
	if (node->mtime_ns > dir->mtime_ns)
		dir->mtime_ns = node->mtime_ns;
	return 0;
}

static int build_top(struct mfs_tree *tree, const struct mfs_root_snapshot *snapshot,
		     struct mfs_error *err)
{
	struct mfs_dir *dir = mfs_tree_new_dir(tree, snapshot->count + 2, 0);
	int rc = dir ? 0 : mfs_fail_nomem(err);

	if (!rc && tree->data) {
		mfs_tree_add_entry(dir, tree->data);
		dir->mtime_ns = tree->data->mtime_ns;
	}
	if (!rc && snapshot->latest)
		rc = add_shown(tree, snapshot->latest, S_IFLNK, dir, err);
	for (uint32_t i = 0; i < snapshot->count && !rc; i++) {
		if (!mfs_iteration_reason(snapshot->iterations[i]))
			rc = add_shown(tree, snapshot->iterations[i], S_IFDIR, dir, err);
	}
	if (!rc && !dir->count)
		dir->mtime_ns = tree->mtime_ns;
	if (!rc)
		mfs_tree_publish(tree->top, dir);
	return rc;
}

static int build_flat_top(struct mfs_tree *tree, const struct mfs_root_snapshot *snapshot,
			  struct mfs_error *err)
{
	const bool model = mfs_root_has_model(tree->root);

	if (model && !snapshot->latest)
		return mfs_fail(err, -ENODATA, "'%s' cannot be shown: %s",
				mfs_root_source(tree->root), snapshot->latest_reason);
	tree->top->mtime_ns = model ? mfs_iteration_mtime(snapshot->latest) : tree->data->mtime_ns;
	return mfs_tree_fill_flat(tree, model ? snapshot->latest : NULL, tree->data, err);
}

static int show_snapshot(struct mfs_tree *tree, struct mfs_error *err)
{
	const struct mfs_root_snapshot *snapshot, *before;
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	snapshot = mfs_root_snapshot(tree->root);
	before = tree->shown;
	if (snapshot != before) {
		rc = tree->flat ? build_flat_top(tree, snapshot, err)
				: build_top(tree, snapshot, err);
		if (!rc)
			tree->shown = snapshot;
	}
	pthread_mutex_unlock(&tree->lock);
	if (!rc && tree->say && snapshot != before)
		mfs_root_say_changes(before, snapshot, tree->say, tree->say_arg);
	return rc;
}

void mfs_tree_watch(struct mfs_tree *tree, void (*say)(void *arg, const char *sentence), void *arg)
{
	tree->say_arg = arg;
	tree->say = say;
}

int mfs_tree_refresh(struct mfs_tree *tree, struct mfs_error *err)
{
	int rc = mfs_root_refresh(tree->root, false, err);

	return rc ? rc : show_snapshot(tree, err);
}

static int new_top(struct mfs_tree *tree, struct mfs_error *err)
{
	char path[PATH_MAX];
	struct stat st;
	int rc;

	if (mfs_root_path(tree->root, path, sizeof(path)) || stat(path, &st))
		return mfs_fail_errno(err, "%s", mfs_root_source(tree->root));
	rc = mfs_tree_new_node(tree, NULL, "", &tree->top, err);
	if (rc)
		return rc;
	tree->mtime_ns = mfs_ns(st.st_mtim);
	tree->top->type = S_IFDIR;
	tree->top->moves = !tree->flat;
	return mfs_tree_set_readers(tree, tree->top, mfs_readers_of_path(path), err);
}

/* ---- views that no listing names; under the lock ---- */

static struct mfs_branch **branch_list(const struct mfs_tree *tree, uint64_t ino)
{
	return &tree->branches[ino % MFS_BRANCHES];
}

static struct mfs_branch *find_branch(const struct mfs_tree *tree, const struct mfs_node *node,
				      const char *name, uint64_t ino)
{
	struct mfs_branch *b = *branch_list(tree, ino);

	while (b && (b->top->parent != node || strcmp(b->top->name, name)))
		b = b->next;
	return b;
}

static void free_branch(struct mfs_tree *tree, struct mfs_branch *b)
{
	for (const struct mfs_node *n = b->nodes; n; n = n->next)
		mfs_inode_release(&tree->inodes, n->ino);
	atomic_fetch_sub(&tree->bytes, b->bytes);
	atomic_fetch_sub(&tree->files, b->files);
	mfs_readers_free(b->readers);
	mfs_arena_release(&b->arena);
	free(b);
}

static int new_branch(struct mfs_tree *tree, const struct mfs_node *node, const char *name,
		      struct mfs_branch **ret, struct mfs_error *err)
{
	struct mfs_branch *b = calloc(1, sizeof(*b)), **list;
	int rc;

	if (!b)
		return mfs_fail_nomem(err);
	b->arena.block = 2048; /* a directory takes a few hundred bytes until somebody enters it */
	rc = mfs_tree_new_layout(tree, node, name, b, &b->top, err);
	if (rc) {
		free_branch(tree, b);
		return rc;
	}
	list = branch_list(tree, b->top->ino);
	b->next = *list;
	*list = b;
	tree->branch_count++;
	*ret = b;
	return 0;
}

static void remove_branch(struct mfs_tree *tree, struct mfs_branch *b)
{
	struct mfs_branch **p = branch_list(tree, b->top->ino);

	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	tree->branch_count--;
	free_branch(tree, b);
}

/* ---- all of it ---- */

int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err)
{
	struct mfs_tree *tree;
	int rc;

	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&tree->lock, NULL);
	tree->root = root;
	tree->branches = calloc(MFS_BRANCHES, sizeof(struct mfs_branch *));
	if (!tree->branches) {
		mfs_tree_free(tree);
		return mfs_fail_nomem(err);
	}
	tree->flat = !mfs_root_has_iterations(root);
	rc = new_top(tree, err);
	if (!rc && mfs_root_data(root))
		rc = mfs_tree_new_data(tree, mfs_root_data(root), &tree->data, err);
	if (!rc)
		rc = show_snapshot(tree, err);
	if (rc) {
		mfs_tree_free(tree);
		return rc;
	}
	*ret = tree;
	return 0;
}

void mfs_tree_free(struct mfs_tree *tree)
{
	if (!tree)
		return;
	for (size_t i = 0; tree->branches && i < MFS_BRANCHES; i++)
		while (tree->branches[i])
			remove_branch(tree, tree->branches[i]);
	free(tree->branches);
	mfs_inode_set_release(&tree->inodes);
	for (uint32_t i = 0; i < tree->readers_count; i++)
		mfs_readers_free(tree->readers[i]);
	free(tree->readers);
	mfs_arena_release(&tree->arena);
	pthread_mutex_destroy(&tree->lock);
	free(tree);
}

struct mfs_node *mfs_tree_root(struct mfs_tree *tree)
{
	return tree->top;
}

/* Fills the directory of a view, unless another thread has done so. */
static int show_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		     struct mfs_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	if (!atomic_load(&node->dir)) {
		node->stamp = view->stamp;
		rc = mfs_tree_fill_view(tree, node, view, err);
	}
	pthread_mutex_unlock(&tree->lock);
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
		rc = node->layouts ? open_layouts(tree, node, err)
				   : open_view(tree, node, &about, err);
	if (!rc)
		*ret = atomic_load_explicit(&node->dir, memory_order_acquire);
	else if (ret_about)
		*ret_about = about;
	return rc;
}

void mfs_tree_know(struct mfs_tree *tree, struct mfs_node *node)
{
	if (!node->branch)
		return;
	pthread_mutex_lock(&tree->lock);
	node->branch->known++;
	pthread_mutex_unlock(&tree->lock);
}

void mfs_tree_forget(struct mfs_tree *tree, struct mfs_node *node, uint64_t times)
{
	struct mfs_branch *b = node->branch;

	if (!b)
		return;
	pthread_mutex_lock(&tree->lock);
	b->known -= times;
	if (!b->known)
		remove_branch(tree, b);
	pthread_mutex_unlock(&tree->lock);
}

unsigned mfs_tree_unlisted(struct mfs_tree *tree)
{
	unsigned count;

	pthread_mutex_lock(&tree->lock);
	count = tree->branch_count;
	pthread_mutex_unlock(&tree->lock);
	return count;
}

/* The branch's directory, known once more. NULL: there is no such branch. */
static struct mfs_node *know_branch(struct mfs_tree *tree, const struct mfs_node *node,
				    const char *name, uint64_t ino)
{
	struct mfs_branch *b;

	pthread_mutex_lock(&tree->lock);
	b = find_branch(tree, node, name, ino);
	if (b)
		b->known++;
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
	b = find_branch(tree, node, name, ino);
	if (!b)
		rc = new_branch(tree, node, name, &b, err);
	if (!rc) {
		b->known++;
		*ret = b->top;
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

int mfs_tree_lookup(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		    struct mfs_node **ret, struct mfs_node **ret_about, struct mfs_error *err)
{
	const struct mfs_dir *dir;
	struct mfs_node *found;
	int rc = mfs_tree_list(tree, node, &dir, ret_about, err);

	/* -ENOENT of a missing source must not tell the kernel that the name will never exist. */
	if (rc)
		return rc == -ENOENT ? -EIO : rc;
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
	const struct mfs_dir *dir = atomic_load_explicit(&node->dir, memory_order_acquire);
	const struct mfs_access told = mfs_readers_told(node->readers);

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = node->ino;
	ret->st_mode = node->type | mode_of(node->type, told.mode);
	ret->st_nlink = S_ISDIR(node->type) && !node->uncounted ? 2 + (dir ? dir->subdirs : 0) : 1;
	ret->st_uid = told.uid;
	ret->st_gid = told.gid;
	ret->st_size = (off_t)node->size;
	ret->st_blocks = S_ISREG(node->type) ? (blkcnt_t)((node->size + 511) / 512) : 0;
	ret->st_blksize = BLOCK_SIZE;
	ret->st_mtim = to_timespec(dir ? dir->mtime_ns : node->mtime_ns);
	ret->st_ctim = ret->st_atim = ret->st_mtim;
}

bool mfs_tree_has_model(const struct mfs_tree *tree)
{
	return mfs_root_has_model(tree->root);
}

const struct mfs_root_snapshot *mfs_tree_snapshot(const struct mfs_tree *tree)
{
	return mfs_root_snapshot(tree->root);
}

int mfs_tree_source_statvfs(const struct mfs_tree *tree, struct statvfs *ret)
{
	return mfs_root_statvfs(tree->root, ret);
}

void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files)
{
	*ret_bytes = atomic_load(&tree->bytes);
	*ret_files = atomic_load(&tree->files);
}

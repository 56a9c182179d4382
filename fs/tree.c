#include "fs/tree.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "fs/inode.h"
#include "fs/root.h"

#define BLOCK_SIZE (1 << 20) /* what st_blksize advises: one request of the kernel's largest size */

struct mfs_tree {
	struct mfs_root *root;
	uid_t uid;
	gid_t gid;
	mode_t dir_mode;
	struct mfs_node *top;
	_Atomic uint64_t bytes, files;

	pthread_mutex_t lock; /* what follows: for the one thread that builds */
	struct mfs_arena arena;
	struct mfs_inode_set inodes;
	const struct mfs_root_snapshot *shown; /* what the root's entries were made from */
};

static int name_order(const void *a, const void *b)
{
	const struct mfs_node *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static struct mfs_dir *new_dir(struct mfs_tree *tree, uint32_t capacity, int64_t mtime_ns)
{
	struct mfs_dir *dir = mfs_arena_alloc(&tree->arena, sizeof(*dir));

	if (!dir)
		return NULL;
	dir->entries = mfs_arena_array(&tree->arena, (size_t)capacity + 1, sizeof(*dir->entries));
	dir->by_name = mfs_arena_array(&tree->arena, (size_t)capacity + 1, sizeof(*dir->by_name));
	dir->mtime_ns = mtime_ns;
	return dir->entries && dir->by_name ? dir : NULL;
}

static void add_entry(struct mfs_dir *dir, struct mfs_node *node)
{
	dir->entries[dir->count] = node;
	dir->by_name[dir->count] = node;
	dir->count++;
	dir->subdirs += S_ISDIR(node->mode);
}

static void publish(struct mfs_node *node, struct mfs_dir *dir)
{
	qsort(dir->by_name, dir->count, sizeof(*dir->by_name), name_order);
	atomic_store_explicit(&node->dir, dir, memory_order_release);
}

/* A node with its place and its number; the caller fills in the rest before publishing it. */
static int new_node(struct mfs_tree *tree, const struct mfs_node *parent, const char *name,
		    struct mfs_node **ret, struct mfs_error *err)
{
	struct mfs_node *node = mfs_arena_alloc(&tree->arena, sizeof(*node));
	const char *dir = parent ? parent->path : "";
	int rc;

	if (!node)
		return mfs_fail_nomem(err);
	node->path = mfs_arena_printf(&tree->arena, "%s/%s", strcmp(dir, "/") ? dir : "", name);
	if (!node->path)
		return mfs_fail_nomem(err);
	node->name = strrchr(node->path, '/') + 1;
	node->parent = parent ? parent : node;
	node->ino = mfs_inode_number(node->path);
	node->uid = tree->uid;
	node->gid = tree->gid;
	rc = mfs_inode_claim(&tree->inodes, node->ino, node->path);
	if (rc == -EEXIST)
		return mfs_fail(err, rc, "%s: its inode number is taken by another path",
				node->path);
	if (rc)
		return mfs_fail_nomem(err);
	*ret = node;
	return 0;
}

static int new_view_file(struct mfs_tree *tree, const struct mfs_node *parent,
			 const struct mfs_view *view, uint32_t i, struct mfs_dir *dir,
			 struct mfs_error *err)
{
	struct mfs_node *node;
	int rc = new_node(tree, parent, view->files[i].name, &node, err);

	if (rc)
		return rc;
	node->mode = S_IFREG | (view->mode & 0444);
	node->uid = view->uid;
	node->gid = view->gid;
	node->mtime_ns = view->mtime_ns;
	node->data = view->files[i].data;
	node->size = mfs_vfile_size(node->data);
	add_entry(dir, node);
	return 0;
}

static int build_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		      struct mfs_error *err)
{
	struct mfs_dir *dir = new_dir(tree, view->count, node->mtime_ns);
	uint64_t bytes = 0;
	int rc = dir ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; i < view->count && !rc; i++) {
		rc = new_view_file(tree, node, view, i, dir, err);
		if (!rc)
			bytes += dir->entries[i]->size;
	}
	if (rc)
		return rc;
	publish(node, dir);
	atomic_fetch_add(&tree->bytes, bytes);
	atomic_fetch_add(&tree->files, view->count);
	return 0;
}

static int new_iteration(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node **ret,
			 struct mfs_error *err)
{
	struct mfs_node *node, *hf;
	struct mfs_dir *dir;
	int rc;

	rc = new_node(tree, tree->top, mfs_iteration_name(it), &node, err);
	if (!rc)
		rc = new_node(tree, node, "hf", &hf, err);
	if (rc)
		return rc;
	dir = new_dir(tree, 1, mfs_iteration_mtime(it));
	if (!dir)
		return mfs_fail_nomem(err);
	node->mode = hf->mode = tree->dir_mode;
	node->mtime_ns = hf->mtime_ns = mfs_iteration_mtime(it);
	node->iteration = hf->iteration = it;
	node->moves = true;
	add_entry(dir, hf);
	publish(node, dir);
	*ret = node;
	return 0;
}

static int new_latest(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node **ret,
		      struct mfs_error *err)
{
	struct mfs_node *node;
	int rc = new_node(tree, tree->top, "latest", &node, err);

	if (rc)
		return rc;
	node->mode = S_IFLNK | 0777;
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
		if (dir->entries[i]->iteration == it && (dir->entries[i]->mode & S_IFMT) == type)
			return dir->entries[i];
	}
	return NULL;
}

/* The entry that stood for an iteration before stays, with what is open or cached of it; else a new one
 * is made. */
static int add_shown(struct mfs_tree *tree, struct mfs_iteration *it, mode_t type,
		     struct mfs_dir *dir, struct mfs_error *err)
{
	struct mfs_node *node = find_shown(atomic_load(&tree->top->dir), it, type);
	int rc = 0;

	if (!node)
		rc = type == S_IFLNK ? new_latest(tree, it, &node, err)
				     : new_iteration(tree, it, &node, err);
	if (rc)
		return rc;
	add_entry(dir, node);
	if (node->mtime_ns > dir->mtime_ns)
		dir->mtime_ns = node->mtime_ns;
	return 0;
}

static int build_top(struct mfs_tree *tree, const struct mfs_root_snapshot *snapshot,
		     struct mfs_error *err)
{
	struct mfs_dir *dir = new_dir(tree, snapshot->count + 1, 0);
	int rc = dir ? 0 : mfs_fail_nomem(err);

	if (!rc && snapshot->latest)
		rc = add_shown(tree, snapshot->latest, S_IFLNK, dir, err);
	for (uint32_t i = 0; i < snapshot->count && !rc; i++) {
		if (!mfs_iteration_reason(snapshot->iterations[i]))
			rc = add_shown(tree, snapshot->iterations[i], S_IFDIR, dir, err);
	}
	if (!rc)
		publish(tree->top, dir);
	return rc;
}

static int show_snapshot(struct mfs_tree *tree, struct mfs_error *err)
{
	const struct mfs_root_snapshot *snapshot;
	int rc = 0;

	pthread_mutex_lock(&tree->lock);
	snapshot = mfs_root_snapshot(tree->root);
	if (snapshot != tree->shown) {
		rc = build_top(tree, snapshot, err);
		if (!rc)
			tree->shown = snapshot;
	}
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

int mfs_tree_refresh(struct mfs_tree *tree, struct mfs_error *err)
{
	int rc = mfs_root_refresh(tree->root, false, err);

	return rc ? rc : show_snapshot(tree, err);
}

/* A directory can be entered by whom it can be read. */
static mode_t directory_mode(mode_t source)
{
	mode_t r = source & 0444;

	return S_IFDIR | r | r >> 2;
}

int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err)
{
	struct mfs_tree *tree;
	struct stat st;
	int rc;

	if (stat(mfs_root_source(root), &st))
		return mfs_fail(err, -errno, "%s: %s", mfs_root_source(root), strerror(errno));
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&tree->lock, NULL);
	tree->root = root;
	tree->uid = st.st_uid;
	tree->gid = st.st_gid;
	tree->dir_mode = directory_mode(st.st_mode);
	rc = new_node(tree, NULL, "", &tree->top, err);
	if (!rc) {
		tree->top->mode = tree->dir_mode;
		tree->top->moves = true;
		rc = show_snapshot(tree, err);
	}
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
	mfs_inode_set_release(&tree->inodes);
	mfs_arena_release(&tree->arena);
	pthread_mutex_destroy(&tree->lock);
	free(tree);
}

struct mfs_node *mfs_tree_root(struct mfs_tree *tree)
{
	return tree->top;
}

static int open_view(struct mfs_tree *tree, struct mfs_node *node, struct mfs_error *err)
{
	struct mfs_view *view;
	int rc = mfs_iteration_hf(node->iteration, &view, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&tree->lock);
	if (!atomic_load(&node->dir))
		rc = build_view(tree, node, view, err);
	pthread_mutex_unlock(&tree->lock);
	return rc;
}

int mfs_tree_list(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		  struct mfs_error *err)
{
	int rc;

	if (!S_ISDIR(node->mode))
		return mfs_fail(err, -ENOTDIR, "%s: not a directory", node->path);
	if (!atomic_load_explicit(&node->dir, memory_order_acquire)) {
		rc = open_view(tree, node, err);
		if (rc)
			return rc;
	}
	*ret = atomic_load_explicit(&node->dir, memory_order_acquire);
	return 0;
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

void mfs_node_stat(const struct mfs_node *node, struct stat *ret)
{
	const struct mfs_dir *dir = atomic_load_explicit(&node->dir, memory_order_acquire);

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = node->ino;
	ret->st_mode = node->mode;
	ret->st_nlink = S_ISDIR(node->mode) ? 2 + (dir ? dir->subdirs : 0) : 1;
	ret->st_uid = node->uid;
	ret->st_gid = node->gid;
	ret->st_size = (off_t)node->size;
	ret->st_blocks = S_ISREG(node->mode) ? (blkcnt_t)((node->size + 511) / 512) : 0;
	ret->st_blksize = BLOCK_SIZE;
	ret->st_mtim = to_timespec(dir ? dir->mtime_ns : node->mtime_ns);
	ret->st_ctim = ret->st_atim = ret->st_mtim;
}

void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files)
{
	*ret_bytes = atomic_load(&tree->bytes);
	*ret_files = atomic_load(&tree->files);
}

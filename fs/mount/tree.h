/*
 * What the mount shows, as nodes:
 *
 *   /                                      iterations come, and "latest" moves, while mounted
 *   /latest                                symbolic link to the newest complete iteration
 *   /iter_0000040/                         fixed
 *   /iter_0000040/hf/                      fixed; its view is opened on first use
 *   /iter_0000040/megatron/torch_dist/     likewise
 *   /iter_0000040/megatron/torch/          lists some layouts, and has every other that is possible
 *   /iter_0000040/megatron/torch/tp2-pp1/  fixed; its view is opened on first use
 *
 *   /data/NAME/hf/                         of a dataset: fixed; its view is opened on first use
 *   /data/NAME/samples/                    lists some specs, and has every other that is possible
 *
 * An HF directory has no iterations: /hf/ and /megatron/ stand at the top, and nothing moves.
 * Datasets alone have
 * /data/ alone.
 *
 * A node, once published, is not changed, and freed with the tree: FUSE uses its address as
 * the node's id, and readers follow pointers without a lock. The exception are views that no
 * listing names, of which there is no end: such a branch counts who knows a node of it, and goes
 * when nobody does (mfs_tree_forget()). A directory's entries are a snapshot published by an atomic
 * pointer; building one is for one thread at a time, and does no I/O under the lock.
 *
 * Nodes of files stay when their view is let go of (fs/view/keeper.h), with their sizes and
 * numbers. Opening a file opens the view again, if need be, and it is the same one or an error.
 */
#ifndef MFS_FS_MOUNT_TREE_H
#define MFS_FS_MOUNT_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "formats/base/error.h"

struct mfs_branch;
struct mfs_dir;
struct mfs_held;
struct mfs_iteration;
struct mfs_readers;
struct mfs_root;
struct statvfs;
struct mfs_root_snapshot;
struct mfs_tree;
struct mfs_vfile;
struct mfs_view;
struct mfs_view_kind;
struct mfs_views;

struct mfs_node {
	const char *path;	       /* from the mount's root: "/iter_0000040/hf/config.json" */
	const char *name;	       /* the last part of it */
	const struct mfs_node *parent; /* the root is its own */
	uint64_t ino;
	mode_t type; /* S_IFREG and its like */
	struct mfs_readers *readers;
	uint64_t size; /* bytes */
	int64_t mtime_ns;
	bool moves; /* the root and its entries: what a name means there may change */

	struct mfs_node *home;		  /* of a regular file: its view's directory */
	uint32_t file;			  /* and its number among the view's files */
	const char *target;		  /* of a symbolic link */
	struct mfs_iteration *iteration;  /* of what stands for one, and of its views */
	struct mfs_views *views;	  /* that lie in it and below, or that it is one of */
	const char *view;		  /* of a view's directory: "megatron/torch_dist" */
	const struct mfs_view_kind *kind; /* likewise; NULL: of one that tells what is lacking */
	uint64_t stamp;			  /* which files it shows; with dir */
	struct mfs_node *group; /* of a view's: itself, or where it lies together with others */
	const char *overlay;	/* of one that takes files: its path in fs/mount/overlay.h */
	_Atomic(const struct mfs_dir *) dir; /* of a directory; NULL: not opened yet */

	bool layouts; /* of views by their names (layouts, specs): view is its own name */
	struct mfs_branch
		*branch; /* that it is a part of, of a view that no listing names; NULL: it stays */
	struct mfs_node *next; /* of the branch */
	/* Directories below are not counted as links: how many there are shows when it is
	 * opened. */
	bool uncounted;

	atomic_ullong complaints; /* what has been logged about it, for the front end */
};

struct mfs_dir {
	struct mfs_node **entries; /* in the order of a listing */
	struct mfs_node **by_name;
	uint32_t count;
	uint32_t subdirs;
	int64_t mtime_ns;
};

/* The root must outlive the tree. */
int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err);
void mfs_tree_free(struct mfs_tree *tree);

struct mfs_node *mfs_tree_root(struct mfs_tree *tree);

/* Looks at SOURCE again, as often as fs/source/root.h allows, and publishes what has changed. On
 * failure the tree stays as it was. */
int mfs_tree_refresh(struct mfs_tree *tree, struct mfs_error *err);

/* From now on say is told of what changes in the root (fs/source/root_changes.h), each once, by the
 * thread that noticed. */
void mfs_tree_watch(struct mfs_tree *tree, void (*say)(void *arg, const char *sentence), void *arg);

/* The entries of a directory, valid as long as the tree. Opens a view on first use and fails as
 * mfs_views_hold() does (fs/view/views.h), which says too what a directory of layouts or specs
 * lists. *ret_about (which may be NULL) is set on failure: the node that it is a failure of, which
 * is another one where all Megatron views of an iteration have it in common. */
int mfs_tree_list(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		  struct mfs_node **ret_about, struct mfs_error *err);

/* An entry of a directory, of a listing or not; opens the directory as mfs_tree_list() does, but
 * never the entry. -ENOENT: there is none (err may have no sentence); others as mfs_tree_list(),
 * whose -ENOENT is -EIO here. Whoever is given the node knows it, until he forgets it. */
int mfs_tree_lookup(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		    struct mfs_node **ret, struct mfs_node **ret_about, struct mfs_error *err);

/* Why an entry that an iteration or a dataset would have is not there; NULL: it is no such name.
 * *ret_number: its number in the table of kinds. */
const char *mfs_tree_why_not(const struct mfs_node *node, const char *name, unsigned *ret_number);

/* A regular file while somebody has it open: its view is held, and the sources of that. */
struct mfs_open_file {
	struct mfs_held *held;
	const struct mfs_view *view;
	struct mfs_vfile *data;
};

/* Fails as mfs_tree_list() does, and -ESTALE: the view is not the one that was shown, as its
 * sources have changed. */
int mfs_tree_open(const struct mfs_node *node, struct mfs_open_file *ret,
		  struct mfs_node **ret_about, struct mfs_error *err);
void mfs_tree_close(struct mfs_open_file *file);

/* Somebody knows a node once more, who knows it already or knows its directory: the kernel, an open
 * file. */
void mfs_tree_know(struct mfs_tree *tree, struct mfs_node *node);
/* So many times less; the node, and all that it is a branch with, may be gone then. */
void mfs_tree_forget(struct mfs_tree *tree, struct mfs_node *node, uint64_t times);
/* Branches that there are, for tests and the status. */
unsigned mfs_tree_unlisted(struct mfs_tree *tree);

/* Somebody has met -ESTALE with a node: what it is made of is looked at thoroughly with the next
 * look at SOURCE. */
void mfs_tree_suspect(const struct mfs_node *node);

/* NULL: no such entry. */
struct mfs_node *mfs_dir_find(const struct mfs_dir *dir, const char *name);

/* Owner and permissions are such that those may read it who may read its sources
 * (fs/source/readers.h), as of the last look. */
void mfs_node_stat(const struct mfs_node *node, struct stat *ret);

/* False: datasets alone. */
bool mfs_tree_has_model(const struct mfs_tree *tree);

const struct mfs_root_snapshot *mfs_tree_snapshot(const struct mfs_tree *tree);

/* The file system of SOURCE. -errno. */
int mfs_tree_source_statvfs(const struct mfs_tree *tree, struct statvfs *ret);

/* Of all views opened so far. */
void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files);

#endif

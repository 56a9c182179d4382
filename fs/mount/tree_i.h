/* The inside of a tree. Private to tree.c and tree_build.c. */
#ifndef MFS_FS_MOUNT_TREE_I_H
#define MFS_FS_MOUNT_TREE_I_H

#include <pthread.h>

#include "formats/base/arena.h"
#include "fs/data/data.h"
#include "fs/mount/inode.h"
#include "fs/source/root.h"
#include "fs/mount/tree.h"
#include "fs/view/view.h"

#define MFS_BRANCHES 4096 /* hash buckets */

/* A view that no listing names: its directory and all below. All fields are under the tree's
 * lock. */
struct mfs_branch {
	struct mfs_arena arena;
	struct mfs_node *top;
	struct mfs_node *nodes;	     /* all of them; each has an inode number */
	uint64_t known;		     /* how many times its nodes are known */
	uint64_t bytes, files;	     /* its share of the tree's */
	struct mfs_readers *readers; /* of its files; NULL: nobody has entered it */
	struct mfs_branch *next;
};

struct mfs_tree {
	struct mfs_root *root;
	int64_t mtime_ns; /* of SOURCE, for a root without entries */
	struct mfs_node *top;
	_Atomic uint64_t bytes, files;
	void (*say)(void *arg, const char *sentence); /* NULL: nobody is told of changes */
	void *say_arg;
	bool flat; /* no iterations: an HF directory, or datasets alone */

	pthread_mutex_t lock; /* of the fields below: one thread builds at a time */
	struct mfs_arena arena;
	struct mfs_inode_set inodes;
	const struct mfs_root_snapshot *shown; /* what the root's entries were made from */
	struct mfs_node *data;		       /* NULL: no datasets */
	struct mfs_branch **branches;	       /* by their inode numbers */
	unsigned branch_count;
	struct mfs_readers **readers; /* all that nodes have */
	uint32_t readers_count;
};

/* Making nodes, under the lock. Readers see a node when a directory with it is published. */

/* A node with path, number and its parent's readers. The caller fills in the rest. parent NULL: the
 * root. */
int mfs_tree_new_node(struct mfs_tree *tree, const struct mfs_node *parent, const char *name,
		      struct mfs_node **ret, struct mfs_error *err);
/* An iteration's directory, with the entries that are known before its checkpoint is opened. */
int mfs_tree_new_iteration(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node **ret,
			   struct mfs_error *err);
/* The directory of a layout or spec, in that of all of them. branch: the branch that it begins;
 * NULL: it is listed. */
int mfs_tree_new_layout(struct mfs_tree *tree, const struct mfs_node *layouts, const char *name,
			struct mfs_branch *branch, struct mfs_node **ret, struct mfs_error *err);

/* Sets a node's readers, which its children inherit. The callee owns them, even if it fails.
 * readers NULL: -ENOMEM. */
int mfs_tree_set_readers(struct mfs_tree *tree, struct mfs_node *node, struct mfs_readers *readers,
			 struct mfs_error *err);

/* Filling directories, under the lock. All entries of a directory are published at once, or
 * none. */

/* Fills the root of a mount without iterations: with the views of an HF directory (it NULL: none),
 * and with data (NULL: none). */
int mfs_tree_fill_flat(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node *data,
		       struct mfs_error *err);
/* Makes and fills the directory of all datasets. */
int mfs_tree_new_data(struct mfs_tree *tree, const struct mfs_data *datasets, struct mfs_node **ret,
		      struct mfs_error *err);
/* Fills it with the files of a view, and with the directories in their names. */
int mfs_tree_fill_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		       struct mfs_error *err);
int mfs_tree_fill_layouts(struct mfs_tree *tree, struct mfs_node *node, const char *const *names,
			  uint32_t count, struct mfs_error *err);

/* Fills it entry by entry, in the order of a listing, then publishes. NULL: no memory. */
struct mfs_dir *mfs_tree_new_dir(struct mfs_tree *tree, uint32_t capacity, int64_t mtime_ns);
void mfs_tree_add_entry(struct mfs_dir *dir, struct mfs_node *node);
void mfs_tree_publish(struct mfs_node *node, struct mfs_dir *dir);

#endif

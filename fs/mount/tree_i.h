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

#define MFS_BRANCHES 4096 /* lists of them */

/* A view that no listing names, from its directory on; all of it is under the tree's lock. */
struct mfs_branch {
	struct mfs_arena arena;
	struct mfs_node *top;
	struct mfs_node *nodes;	     /* all, which hold inode numbers */
	uint64_t known;		     /* how many times somebody knows one of them */
	uint64_t bytes, files;	     /* counted in the tree's */
	struct mfs_readers *readers; /* of its files; NULL: nobody has entered it */
	struct mfs_branch *next;
};

struct mfs_tree {
	struct mfs_root *root;
	int64_t mtime_ns; /* SOURCE's own, for a root without an entry */
	struct mfs_node *top;
	_Atomic uint64_t bytes, files;
	void (*say)(void *arg, const char *sentence); /* NULL: nobody is told of changes */
	void *say_arg;
	bool flat; /* no iterations: an HF directory, or datasets alone */

	pthread_mutex_t lock; /* what follows: for the one thread that builds */
	struct mfs_arena arena;
	struct mfs_inode_set inodes;
	const struct mfs_root_snapshot *shown; /* what the root's entries were made from */
	struct mfs_node *data;		       /* NULL: no datasets */
	struct mfs_branch **branches;	       /* by their inode numbers */
	unsigned branch_count;
	struct mfs_readers **readers; /* all that nodes have */
	uint32_t readers_count;
};

/* Making nodes, under the lock: nobody sees them before they are an entry of what is published. */

/* A node with its place and its number, and its parent's readers; the caller fills in the rest.
 * parent NULL: the root. */
int mfs_tree_new_node(struct mfs_tree *tree, const struct mfs_node *parent, const char *name,
		      struct mfs_node **ret, struct mfs_error *err);
/* An iteration's directory, with all that is known of it before anything is opened. */
int mfs_tree_new_iteration(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node **ret,
			   struct mfs_error *err);
/* The directory of a layout or spec, below that of them all. branch: it begins one; NULL: it is
 * listed. */
int mfs_tree_new_layout(struct mfs_tree *tree, const struct mfs_node *layouts, const char *name,
			struct mfs_branch *branch, struct mfs_node **ret, struct mfs_error *err);

/* Gives a node readers of its own, which its children will have as well; they are the callee's,
 * whatever happens. NULL is a failure of memory. */
int mfs_tree_set_readers(struct mfs_tree *tree, struct mfs_node *node, struct mfs_readers *readers,
			 struct mfs_error *err);

/* Filling directories, under the lock: their entries are published, whole, or nothing is. */

/* The root of a mount without iterations: with what an HF directory has (it NULL: no such thing),
 * and data (NULL: none). */
int mfs_tree_fill_flat(struct mfs_tree *tree, struct mfs_iteration *it, struct mfs_node *data,
		       struct mfs_error *err);
/* The directory of all datasets, filled. */
int mfs_tree_new_data(struct mfs_tree *tree, const struct mfs_data *datasets, struct mfs_node **ret,
		      struct mfs_error *err);
/* With the files of a view, and directories as their names say. */
int mfs_tree_fill_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		       struct mfs_error *err);
int mfs_tree_fill_layouts(struct mfs_tree *tree, struct mfs_node *node, const char *const *names,
			  uint32_t count, struct mfs_error *err);

/* By hand: entries are added in the order of a listing, then published. NULL: no memory. */
struct mfs_dir *mfs_tree_new_dir(struct mfs_tree *tree, uint32_t capacity, int64_t mtime_ns);
void mfs_tree_add_entry(struct mfs_dir *dir, struct mfs_node *node);
void mfs_tree_publish(struct mfs_node *node, struct mfs_dir *dir);

#endif

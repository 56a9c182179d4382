/* The inside of a tree. Private to this folder. */
#ifndef MFS_FS_TREE_TREE_I_H
#define MFS_FS_TREE_TREE_I_H

#include <pthread.h>

#include "formats/base/arena.h"
#include "fs/data/data.h"
#include "fs/tree/inode.h"
#include "fs/tree/node_ids.h"
#include "fs/source/root.h"
#include "fs/source/roots.h"
#include "fs/tree/tree.h"
#include "fs/view/view.h"

#define MFS_BRANCHES 4096 /* hash buckets */

/* Nodes that come and go together: those of an iteration, of a view that no listing names, or of
 * one of several runs: the directory at the top, and all below that has no branch of its own. All
 * fields are under the tree's lock. */
struct mfs_branch {
	struct mfs_arena arena;
	struct mfs_tree_run *run;
	struct mfs_node *top;
	struct mfs_node *latest;  /* of an iteration: the symbolic link; NULL: not yet */
	struct mfs_iteration *it; /* NULL: it is of no iteration */
	struct mfs_branch *in;	  /* of an unlisted view: the branch around it, which knows it */
	struct mfs_node *nodes;	  /* all of them; each has an inode number */
	uint64_t known;		  /* how many times its nodes are known */
	uint64_t bytes, files;	  /* its share of the tree's */
	struct mfs_readers **readers; /* of its nodes */
	uint32_t readers_count;
	struct mfs_branch *next;
};

/*
 * A run: SOURCE itself, or one of several in SOURCE. The latter has a name before it is opened, and
 * closes when the kernel has forgotten all of its nodes. Fields but name are under the tree's lock;
 * a run that is known is not freed, and one that is open and known stays open.
 */
struct mfs_tree_run {
	const char *name;      /* "": SOURCE itself */
	struct mfs_node *top;  /* its directory; of SOURCE itself, the mount's root */
	struct mfs_root *root; /* NULL: it is not open */
	bool flat;	       /* no iterations: an HF directory, or datasets alone */
	int64_t mtime_ns;      /* of its SOURCE at the last look */
	const struct mfs_root_snapshot *shown; /* what its entries were made from */
	struct mfs_node *data;		       /* NULL: no datasets */
	struct mfs_branch *iterations;

	/* Of one of several. */
	struct mfs_tree_run *next;
	struct mfs_shared_root *shared; /* that root is */
	struct mfs_branch *entry;	/* of top alone; NULL: SOURCE itself */
	struct mfs_branch *content;	/* of nodes that stay while it is open */
	struct mfs_roots *roots;	/* shared is one of */
	uint64_t known; /* how many times the kernel and open files know its nodes */
	/* It has no iterations, and its sources have changed: another one takes its place. */
	atomic_bool stale;
	dev_t dev; /* this and ino: of its directory when it was listed first */
	ino_t ino;
	char *path; /* of its directory */
};

/* A branch of a view that no listing names, which was freed. Somebody may have its id. */
struct mfs_forgotten {
	uint64_t id, layouts; /* of its directory, and of the one around it */
	char *name;	      /* NULL: none */
};
#define MFS_FORGOTTEN 1024 /* the last ones */

struct mfs_tree {
	struct mfs_node *top;
	_Atomic uint64_t bytes, files;
	void (*say)(void *arg, const char *sentence); /* NULL: nobody is told of changes */
	void *say_arg;

	/* Of a mount of several runs. */
	char *dir;			 /* NULL: SOURCE is one run */
	struct mfs_view_options options; /* of each run */
	struct mfs_keeper *keeper;	 /* of all runs */
	struct mfs_roots *roots;
	pthread_mutex_t looking;   /* at dir; held by one thread */
	_Atomic int64_t looked_ns; /* monotonic, at dir */

	pthread_mutex_t lock;	   /* of the fields below: one thread builds at a time */
	struct mfs_tree_run one;   /* SOURCE itself */
	struct mfs_tree_run *runs; /* several: those that are shown or known */
	struct mfs_arena arena;
	struct mfs_inode_set inodes;
	struct mfs_node_ids ids;      /* it has a lock of its own */
	struct mfs_branch **branches; /* by their inode numbers */
	unsigned branch_count;
	struct mfs_forgotten forgotten[MFS_FORGOTTEN];
	unsigned next_forgotten;
	struct mfs_readers **readers; /* of nodes that are in no branch */
	uint32_t readers_count;
};

/* Branches, under the lock (branches.c). */

void mfs_tree_add_branch(struct mfs_tree *tree, struct mfs_branch *b);
void mfs_tree_free_branch(struct mfs_tree *tree, struct mfs_branch *b);
/* Takes it off its list first. */
void mfs_tree_remove_branch(struct mfs_tree *tree, struct mfs_branch *b);
/* Its branch is known once more, or less, by no kernel: by a listing, or by what it holds. */
void mfs_tree_keep(const struct mfs_node *node);
void mfs_tree_unkeep(struct mfs_tree *tree, const struct mfs_node *node, uint64_t times);
/* The kernel or a caller knows a node once more, and with it its run; or so many times less. */
void mfs_tree_meet(const struct mfs_node *node);
void mfs_tree_leave(struct mfs_tree *tree, const struct mfs_node *node, uint64_t times);
/* The branch of a view that no listing names, in the directory node. NULL: there is none. */
struct mfs_branch *mfs_tree_find_branch(const struct mfs_tree *tree, const struct mfs_node *node,
					const char *name, uint64_t ino);
/* Makes it. */
int mfs_tree_new_branch(struct mfs_tree *tree, const struct mfs_node *node, const char *name,
			struct mfs_branch **ret, struct mfs_error *err);

/* Entries of directories that change, under the lock: of the mount's root and of runs with
 * iterations (entries.c). */

/* Its entries are known as long as it is there. NULL: no memory. */
struct mfs_dir *mfs_tree_new_top_dir(uint32_t capacity);
void mfs_tree_drop_top_dir(struct mfs_tree *tree, struct mfs_dir *dir);
struct mfs_dir *mfs_tree_top_dir(const struct mfs_node *top);
/* Makes the entries of a run whose root is open. */
int mfs_tree_fill_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err);
/* Publishes what has changed since the last look at its root. */
int mfs_tree_show_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err);

/* An empty one. NULL: no memory. */
struct mfs_tree *mfs_tree_alloc(void);

/* Several runs (tree_runs.c). */

/* Looks at the directory of all runs, at most once a second unless force is set. */
int mfs_tree_look_at_runs(struct mfs_tree *tree, bool force, struct mfs_error *err);
/* Opens a run that is known, unless it is open. Errors of mfs_root_open(). */
int mfs_tree_open_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err);
/* Closes it; nobody knows its nodes. It may be freed. Under the lock. */
void mfs_tree_close_run(struct mfs_tree *tree, struct mfs_tree_run *run);
/* A reader of one of its nodes has met -ESTALE. Any thread. */
void mfs_tree_suspect_run(struct mfs_tree_run *run);
/* It is neither shown nor known. Under the lock. */
void mfs_tree_free_run(struct mfs_tree *tree, struct mfs_tree_run *run);
/* Calls each for all runs that are open, each of them known meanwhile. Of SOURCE itself, for
 * that. */
int mfs_tree_each_open(struct mfs_tree *tree,
		       int (*each)(struct mfs_tree *tree, struct mfs_tree_run *run,
				   struct mfs_error *err),
		       struct mfs_error *err);

/* Making nodes, under the lock. Readers see a node when a directory with it is published. */

/* The root. run: that it is of; NULL: of several. */
int mfs_tree_new_top(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_node **ret,
		     struct mfs_error *err);
/* The directory of one of several runs, in its entry. */
int mfs_tree_new_run(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_error *err);
/* An iteration's directory, the first node of a new branch, with the entries that are known before
 * its checkpoint is opened. */
int mfs_tree_new_iteration(struct mfs_tree *tree, struct mfs_branch *b, struct mfs_error *err);
/* The symbolic link to it, in the same branch. */
int mfs_tree_new_latest(struct mfs_tree *tree, struct mfs_branch *b, struct mfs_error *err);
/* What it is, for ids. */
struct mfs_id_owner mfs_tree_id_owner(const struct mfs_tree_run *run, const struct mfs_node *owner);
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

/* Fills the directory of a run without iterations: with the views of an HF directory (it NULL:
 * none), and with its datasets. */
int mfs_tree_fill_flat(struct mfs_tree *tree, struct mfs_tree_run *run, struct mfs_iteration *it,
		       int64_t mtime_ns, struct mfs_error *err);
/* Makes and fills the directory of all datasets of a run, as its data. */
int mfs_tree_new_data(struct mfs_tree *tree, struct mfs_tree_run *run,
		      const struct mfs_data *datasets, struct mfs_error *err);
/* Fills it with the files of a view, and with the directories in their names. */
int mfs_tree_fill_view(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_view *view,
		       struct mfs_error *err);
int mfs_tree_fill_layouts(struct mfs_tree *tree, struct mfs_node *node, const char *const *names,
			  uint32_t count, struct mfs_error *err);

/* Fills it entry by entry, in the order of a listing, then publishes. NULL: no memory. */
struct mfs_dir *mfs_tree_new_dir(struct mfs_tree *tree, const struct mfs_node *node,
				 uint32_t capacity, int64_t mtime_ns);
void mfs_tree_add_entry(struct mfs_dir *dir, struct mfs_node *node);
void mfs_tree_publish(struct mfs_node *node, struct mfs_dir *dir);

#endif

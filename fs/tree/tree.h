/*
 * What the mount shows, as nodes:
 *
 *     /                                      iterations appear, and "latest" moves, while mounted
 *   /latest                                symbolic link to the newest complete iteration
 *   /iter_0000040/                         fixed
 *   /iter_0000040/hf/                      fixed; its view is opened on first use
 *   /iter_0000040/megatron/torch_dist/     the same
 *   /iter_0000040/megatron/torch/          lists some layouts; others can be entered too
 *   /iter_0000040/megatron/torch/tp2-pp1/  fixed; its view is opened on first use
 *
 *   /data/NAME/hf/                         of a dataset: fixed; its view is opened on first use
 *   /data/NAME/samples/                    lists some specs; others can be entered too
 *
 * An HF directory has no iterations: /hf/ and /megatron/ are at the top, and nothing moves. A mount
 * of datasets alone has only /data/.
 *
 * A SOURCE of several runs has one directory for each (/RUN/latest, /RUN/iter_0000040/, ...). A run
 * is opened when somebody enters it, and closed when the kernel has forgotten all that is in it.
 *
 * A published node does not change, and readers follow pointers without a lock. Nodes of an
 * iteration are a branch, and so are those of a view that no listing names, since there may be any
 * number of either: a branch counts how often its nodes are known, and is freed when none is
 * (mfs_tree_forget()). The root's entries count, while they are shown or somebody has the root
 * open. All other nodes are freed with the tree.
 *
 * The entries of a directory are a snapshot, published by an atomic pointer. One thread at a time
 * builds a snapshot, and does no I/O under the lock.
 *
 * FUSE asks for nodes by their ids, which are the same after a remount (fs/tree/node_ids.h).
 *
 * Nodes of files stay, with their sizes and numbers, when their view is closed (fs/view/keeper.h).
 * Opening a file opens the view again if it has to. If the view is not the same as before, the open
 * fails.
 */
#ifndef MFS_FS_TREE_TREE_H
#define MFS_FS_TREE_TREE_H

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
struct mfs_tree_run;
struct mfs_tree;
struct mfs_vfile;
struct mfs_view;
struct mfs_view_kind;
struct mfs_view_options;
struct mfs_views;

struct mfs_node {
	const char *path;	       /* from the mount's root: "/iter_0000040/hf/config.json" */
	const char *name;	       /* the last part of it */
	const struct mfs_node *parent; /* the root is its own */
	uint64_t ino;
	uint64_t id; /* fs/tree/node_ids.h */
	uint32_t generation;
	uint32_t numbered; /* of a view's directory: how many nodes in it have a number */
	const struct mfs_node *owner; /* the iteration or dataset that it is of; NULL: none */
	uint64_t version;	      /* of that; after a new save another one */
	mode_t type;		      /* S_IFREG and its like */
	struct mfs_readers *readers;
	uint64_t size; /* bytes */
	int64_t mtime_ns;
	bool told_gone; /* in this round of mfs_tree_gone(); under its lock */
	bool moves;	/* the root and its entries: a name there may mean another thing later */
	bool changes;	/* a directory whose entries come and go: the root, a run */

	struct mfs_node *home;		 /* of a regular file: its view's directory */
	uint32_t file;			 /* of a regular file: its number in the view */
	const char *target;		 /* of a symbolic link */
	struct mfs_iteration *iteration; /* of an iteration's directory and those of its views */
	struct mfs_views *views; /* views in this directory and below, or that it is one of */
	const char *view;	 /* of a view's directory: "megatron/torch_dist" */
	const struct mfs_view_kind
		*kind;	/* of a view's directory; NULL: one that tells what lacks */
	uint64_t stamp; /* of the files that it shows; set with dir */
	struct mfs_node
		*group;	     /* of a view's directory: itself, or the directory of several views */
	const char *overlay; /* of a directory that takes files: its path in fs/overlay/overlay.h */
	_Atomic(const struct mfs_dir *) dir; /* entries of a directory; NULL: not opened yet */
	_Atomic uint32_t subdirs;	     /* of these */
	_Atomic int64_t dir_mtime_ns;	     /* 0: not opened yet */

	struct mfs_tree_run *run;  /* NULL: the root of several */
	bool layouts;		   /* the directory of all layouts or specs: view is its own name */
	struct mfs_branch *branch; /* that it is a part of; NULL: it stays */
	struct mfs_node *next;	   /* in the branch */
	bool unlisted;		   /* the directory of a view that no listing names */
	bool uncounted;		   /* st_nlink does not count directories: they are not known yet */

	atomic_ullong complaints; /* bits of what was logged about it, for the front end */
};

struct mfs_dir {
	struct mfs_node **entries; /* in the order of a listing */
	struct mfs_node **by_name;
	uint32_t count;
	uint32_t subdirs;
	int64_t mtime_ns;
	unsigned holders; /* of one that changes: under the tree's lock */
};

/* The root must outlive the tree. */
int mfs_tree_new(struct mfs_root *root, struct mfs_tree **ret, struct mfs_error *err);
/* Each directory in dir is a run (fs/source/runs.h). options are copied; what they point to must
 * outlive the tree. Opens no run. Of those that nobody knows MFS_ROOTS_OPEN stay open. */
int mfs_tree_new_runs(const char *dir, const struct mfs_view_options *options,
		      struct mfs_tree **ret, struct mfs_error *err);
void mfs_tree_free(struct mfs_tree *tree);

struct mfs_node *mfs_tree_root(struct mfs_tree *tree);

/* Looks again at all that is open of SOURCE, not more often than fs/source/root.h allows, and
 * publishes what has changed. After a failure the tree is as it was. */
int mfs_tree_refresh(struct mfs_tree *tree, struct mfs_error *err);
/* Like mfs_tree_refresh(), for one directory whose entries come and go, which the caller knows. A
 * run that is not open is not looked at. */
int mfs_tree_refresh_dir(struct mfs_tree *tree, struct mfs_node *dir, struct mfs_error *err);

/* From now on say() is called once for each change of the root (fs/source/root_changes.h) and for
 * each warning that a view alone has (fs/view/view.h), in the thread that finds it. */
void mfs_tree_watch(struct mfs_tree *tree, void (*say)(void *arg, const char *sentence), void *arg);

/*
 * The entries of a directory; they live as long as the node, those of the root until it changes.
 * The first call opens the view. Errors: those of mfs_views_hold() (fs/view/views.h). ret_about may
 * be NULL. After a failure *ret_about is the node that has failed; this is not node if the failure
 * concerns all Megatron views of an iteration.
 */
int mfs_tree_list(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		  struct mfs_node **ret_about, struct mfs_error *err);

/*
 * Finds an entry of a directory, listed or not. It opens the directory as mfs_tree_list() does, but
 * not the entry. The node is known once more, until mfs_tree_forget(). -ENOENT: there is no such
 * entry, and err may have no sentence. Other errors: those of mfs_tree_list(), with -EIO for its
 * -ENOENT.
 */
int mfs_tree_lookup(struct mfs_tree *tree, struct mfs_node *node, const char *name,
		    struct mfs_node **ret, struct mfs_node **ret_about, struct mfs_error *err);

/* The same as mfs_tree_list(), for somebody who opens the directory: the entries live until
 * mfs_tree_close_dir(), and the node is known once more until then. */
int mfs_tree_open_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir **ret,
		      struct mfs_node **ret_about, struct mfs_error *err);
/* dir: of the root; of other nodes it is not looked at. */
void mfs_tree_close_dir(struct mfs_tree *tree, struct mfs_node *node, const struct mfs_dir *dir);

/* The node of an id that the kernel knows. NULL: there is none. */
struct mfs_node *mfs_tree_by_id(struct mfs_tree *tree, uint64_t id);
/*
 * The node of any id, which the kernel or an earlier daemon may have had from this tree, or nobody.
 * The view that it is of is opened. It is known once more. -ESTALE: there is no such node, or it is
 * of a view that no listing names and that nobody has asked for by its name since the mount.
 */
int mfs_tree_find_id(struct mfs_tree *tree, uint64_t id, struct mfs_node **ret,
		     struct mfs_error *err);
/* The directory that a node is in, known once more. */
struct mfs_node *mfs_tree_parent(struct mfs_tree *tree, struct mfs_node *node);

/* Why an iteration or a dataset lacks the view of that name. *ret_number: its number in the table
 * of kinds. NULL: the name is of no lacking view. */
const char *mfs_tree_why_not(const struct mfs_node *node, const char *name, unsigned *ret_number);

/* An open regular file. It holds its view, which holds the sources. */
struct mfs_open_file {
	struct mfs_held *held;
	const struct mfs_view *view;
	struct mfs_vfile *data;
};

/* Opens a regular file, and its view if need be. -ESTALE: the sources have changed, and the view is
 * not the one that was shown. Other errors: those of mfs_tree_list(). */
int mfs_tree_open(const struct mfs_node *node, struct mfs_open_file *ret,
		  struct mfs_node **ret_about, struct mfs_error *err);
void mfs_tree_close(struct mfs_open_file *file);

/* The kernel or an open file knows a node once more. The caller must know the node or its directory
 * already. */
void mfs_tree_know(struct mfs_tree *tree, struct mfs_node *node);
/* It is known times times less. The node may then be freed, with its whole branch. */
void mfs_tree_forget(struct mfs_tree *tree, struct mfs_node *node, uint64_t times);
/* The number of branches, for tests and the status: of views that no listing names, and of
 * iterations. */
unsigned mfs_tree_unlisted(struct mfs_tree *tree);
unsigned mfs_tree_iterations(struct mfs_tree *tree);
/* Paths of runs and iterations that somebody knows although they are no longer shown; the caller
 * frees them. Returns how many there are, at most `most`. The next call continues after these, and
 * begins anew when none is left. */
unsigned mfs_tree_gone(struct mfs_tree *tree, char **ret_paths, unsigned most);

/* A reader of a node has met -ESTALE. The next look at SOURCE checks all files that the node is
 * made of. */
void mfs_tree_suspect(const struct mfs_node *node);

/* The entry of that name. NULL: the directory has none. */
struct mfs_node *mfs_dir_find(const struct mfs_dir *dir, const char *name);

/* Owner and permissions let those read it who could read its sources (fs/source/readers.h) at the
 * last look. */
void mfs_node_stat(const struct mfs_node *node, struct stat *ret);

/* Whether the tree shows models. False: SOURCE has only datasets. */
bool mfs_tree_has_model(const struct mfs_tree *tree);

/* The file system of SOURCE. -errno. */
int mfs_tree_source_statvfs(const struct mfs_tree *tree, struct statvfs *ret);

struct mfs_cache_stats;
/* What SOURCE's cache has counted (formats/remote/cache.h). False: SOURCE is no URL. */
bool mfs_tree_remote(const struct mfs_tree *tree, struct mfs_cache_stats *ret);
/* Ends the tree's fetchers until somebody reads again. Nobody may read during this call. */
void mfs_tree_rest(struct mfs_tree *tree);

struct mfs_tree_counts {
	bool several;	     /* SOURCE is several runs; the next two count these */
	uint32_t runs, open; /* that are shown; that are open */
	/* Of SOURCE itself, or of all runs that are open. */
	uint32_t shown, hidden;	 /* iterations of the last look; hidden: incomplete ones */
	uint32_t known;		 /* iterations that are shown, or were and somebody knows */
	int64_t latest;		 /* its number; below 0: there is none, or it has none */
	const char *latest_name; /* NULL: there is none; of several runs */
	uint64_t bytes, files;	 /* of all views that were opened */
};
struct mfs_tree_counts mfs_tree_counts(struct mfs_tree *tree);

/* Bytes and files of all views that were opened. */
void mfs_tree_totals(const struct mfs_tree *tree, uint64_t *ret_bytes, uint64_t *ret_files);

#endif

/*
 * The ids by which the kernel asks for nodes. NFS servers and open_by_handle_at(2) keep them, so an
 * id outlives the kernel's cache and the daemon: it says what the node is, and not where it lies in
 * memory.
 *
 *     bits 63..56  the run, where SOURCE has several: hash of its name
 *     bits 55..44  what has views (an iteration, a dataset): hash of its path and its version
 *     bits 43..23  a directory in it, such as a view's: hash of its path
 *     bits 22..1   0: that directory; else a file or a directory of the view, by its number
 *     bit 0        0 (fs/fuse/ops_overlay.c numbers its own files, and 1 is the root)
 *
 * So the first parts lead to the iteration, the next one to the view, and nothing else needs to be
 * opened to find an id of an earlier daemon. A new save of an iteration is another version and has
 * other ids. If two directories have one hash, the later one takes the next; the generation, which
 * is a hash of its own over all of this, keeps a handle from leading to the wrong one of them.
 */
#ifndef MFS_FS_TREE_NODE_IDS_H
#define MFS_FS_TREE_NODE_IDS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mfs_node;

#define MFS_ID_ROOT    1
#define MFS_ID_NUMBERS (1u << 22) /* of nodes in one view */

/* What has views. */
struct mfs_id_owner {
	const char *run;  /* its name; "": SOURCE is one run */
	const char *path; /* in the mount; "": none, as for datasets next to iterations */
	uint64_t version; /* another one after a new save */
};

/* dir: its path; attempt: 0, then more if the id is taken. */
uint64_t mfs_id_of_dir(const struct mfs_id_owner *owner, const char *dir, unsigned attempt);
/* The id of node number 1... of a view. */
uint64_t mfs_id_in_view(uint64_t view, uint32_t number);
/* The id of the view's directory, for the id of any node of that view. */
uint64_t mfs_id_view(uint64_t id);
/* True if what the id stands for may be of that owner, or of that run. */
bool mfs_id_may_be_of(uint64_t id, const struct mfs_id_owner *owner);
bool mfs_id_may_be_of_run(uint64_t id, const char *run);
/* 31 bits, not 0. stamp: of the view's files; of a directory, the version. */
uint32_t mfs_id_generation(const char *path, uint64_t stamp);

/* Nodes by their ids. Any thread may look for one; one thread at a time changes it. */
struct mfs_node_ids {
	pthread_rwlock_t lock;
	struct mfs_node **slots;
	size_t count, capacity;
};

void mfs_node_ids_init(struct mfs_node_ids *ids);
void mfs_node_ids_release(struct mfs_node_ids *ids);
/* The node that was put under this id. NULL: there is none. */
struct mfs_node *mfs_node_ids_find(struct mfs_node_ids *ids, uint64_t id);
/* Adds a node by its id, or puts it in the place of the one that has its id. -ENOMEM. */
int mfs_node_ids_put(struct mfs_node_ids *ids, struct mfs_node *node);
/* Removes a node, unless another one has its place. */
void mfs_node_ids_remove(struct mfs_node_ids *ids, const struct mfs_node *node);

#endif

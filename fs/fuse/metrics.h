/*
 * What a mount counts, and what it says of itself: Prometheus' text (-o metrics=, .mcorefs/stats)
 * and .mcorefs/info.json.
 */
#ifndef MFS_FS_FUSE_METRICS_H
#define MFS_FS_FUSE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "fs/stats/stats.h"

struct mfs_prefetch;
struct mfs_tree;

/* Rows of the mount's counters. The first ones are the operations, by how long they take. */
enum mfs_metric {
	MFS_OP_LOOKUP,
	MFS_OP_GETATTR,
	MFS_OP_READLINK,
	MFS_OP_OPENDIR,
	MFS_OP_READDIR,
	MFS_OP_OPEN,
	MFS_OP_READ,
	MFS_OP_FLUSH,
	MFS_OP_RELEASE,
	MFS_OP_STATFS,
	MFS_OPS,
	MFS_READ_SIZE = MFS_OPS, /* bytes of answered reads */
	MFS_INFLIGHT,
	MFS_REQUESTS, /* of each operation, by what it was answered with */
};

/* Counters of a mount, all 0. NULL: no memory. */
struct mfs_stats *mfs_metrics_new(void);
/* A request has come; one was answered: with which errno (0: none), and in how many ns. */
void mfs_metrics_begin(struct mfs_stats *s);
void mfs_metrics_end(struct mfs_stats *s, enum mfs_metric op, int code, uint64_t ns);
/* Opens and reads that failed for a reason of the sources or this process. */
uint64_t mfs_metrics_errors(const struct mfs_stats *s);

/* A mount, to be described. */
struct mfs_metrics_of {
	const struct mfs_stats *stats;
	struct mfs_tree *tree;
	struct mfs_prefetch *prefetch; /* NULL: none */
	const atomic_uint *open_files;
	const char *source, *mountpoint;
	int64_t began_ns; /* by mfs_now_ns() */
};

/* Any thread. */
void mfs_metrics_text(const struct mfs_metrics_of *m, struct mfs_buf *out);
/* What does not change by reading: version, source, mount point, iterations. */
void mfs_metrics_info(const struct mfs_metrics_of *m, struct mfs_buf *out);

/* Writes the text as a file that node_exporter's textfile collector reads: whole, by rename.
 * -errno. */
int mfs_metrics_file(const struct mfs_metrics_of *m, const char *path, struct mfs_error *err);

/* Answers GET /metrics over HTTP in a thread of its own. */
struct mfs_metrics_listener;
/* addr: as mfs_listen() takes it (fs/http/listen.h). m must outlive it. -EINVAL; -errno of
 * bind(2). */
int mfs_listener_start(const char *addr, const struct mfs_metrics_of *m,
		       struct mfs_metrics_listener **ret, struct mfs_error *err);
/* l may be NULL. */
void mfs_listener_stop(struct mfs_metrics_listener *l);

#endif

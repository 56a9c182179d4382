#include "fs/fuse/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/version.h"
#include "formats/io/whole.h"
#include "formats/remote/cache.h"
#include "fs/prefetch/prefetch.h"
#include "fs/tree/tree.h"
#include "fs/source/root.h"
#include "fs/stats/prom.h"
#include "fs/stats/prom_remote.h"
#include "fs/stats/prom_sources.h"

#define SECONDS	 "mcorefs_fuse_request_seconds"
#define REQUESTS "mcorefs_fuse_requests_total"

static const struct {
	int code;
	const char *name;
} errnos[] = {{0, "0"},		  {ENOENT, "ENOENT"}, {EIO, "EIO"}, {ESTALE, "ESTALE"},
	      {ENOMEM, "ENOMEM"}, {EROFS, "EROFS"},   {-1, "other"}};

#define ERRNOS MFS_ARRAY_SIZE(errnos)
#define ROWS   (MFS_REQUESTS + MFS_OPS * ERRNOS)

#define TIME(op)                                                                                   \
	{                                                                                          \
		SECONDS, NULL, "op=\"" op "\"", MFS_STATS_SECONDS                                  \
	}
#define ANSWER(op, code, help)                                                                     \
	{                                                                                          \
		REQUESTS, help, "op=\"" op "\",errno=\"" code "\"", MFS_STATS_COUNTER              \
	}
#define ANSWERS(op, help)                                                                          \
	ANSWER(op, "0", help), ANSWER(op, "ENOENT", NULL), ANSWER(op, "EIO", NULL),                \
		ANSWER(op, "ESTALE", NULL), ANSWER(op, "ENOMEM", NULL), ANSWER(op, "EROFS", NULL), \
		ANSWER(op, "other", NULL)

/* In the order of the operations' numbers; of each the errnos. */
static const struct mfs_stats_row rows[ROWS] = {
	{SECONDS, "Time to answer a request of the kernel.", "op=\"lookup\"", MFS_STATS_SECONDS},
	TIME("getattr"),
	TIME("readlink"),
	TIME("opendir"),
	TIME("readdir"),
	TIME("open"),
	TIME("read"),
	TIME("flush"),
	TIME("release"),
	TIME("statfs"),
	{"mcorefs_fuse_read_size_bytes",
	 "Bytes of answered reads; what the page cache answers is none.", NULL, MFS_STATS_BYTES},
	{"mcorefs_inflight", "Requests of the kernel that are being answered.", NULL,
	 MFS_STATS_GAUGE},
	ANSWERS("lookup", "Requests of the kernel, by what they were answered with (0: no error)."),
	ANSWERS("getattr", NULL),
	ANSWERS("readlink", NULL),
	ANSWERS("opendir", NULL),
	ANSWERS("readdir", NULL),
	ANSWERS("open", NULL),
	ANSWERS("read", NULL),
	ANSWERS("flush", NULL),
	ANSWERS("release", NULL),
	ANSWERS("statfs", NULL),
};

struct mfs_stats *mfs_metrics_new(void)
{
	return mfs_stats_new(rows, ROWS);
}

static unsigned answer_row(enum mfs_metric op, int code)
{
	unsigned i = 0;

	while (i < ERRNOS - 1 && errnos[i].code != code)
		i++;
	return MFS_REQUESTS + op * ERRNOS + i;
}

void mfs_metrics_begin(struct mfs_stats *s)
{
	mfs_stats_add(s, MFS_INFLIGHT, 1);
}

void mfs_metrics_end(struct mfs_stats *s, enum mfs_metric op, int code, uint64_t ns)
{
	mfs_stats_add(s, op, ns);
	mfs_stats_add(s, answer_row(op, code), 1);
	mfs_stats_add(s, MFS_INFLIGHT, MFS_STATS_DOWN);
}

uint64_t mfs_metrics_errors(const struct mfs_stats *s)
{
	static const int codes[] = {EIO, ESTALE, ENOMEM};
	uint64_t n = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(codes); i++)
		n += mfs_stats_count(s, answer_row(MFS_OP_OPEN, codes[i])) +
		     mfs_stats_count(s, answer_row(MFS_OP_READ, codes[i]));
	return n;
}

static void write_reads(const struct mfs_metrics_of *m, const char *common, struct mfs_buf *out)
{
	static const char name[] = "mcorefs_fuse_read_bytes_total";

	mfs_prom_head(out, name, "counter", "Bytes of answered reads, all together.");
	mfs_prom_value(out, name, "", common, NULL, (double)mfs_stats_sum(m->stats, MFS_READ_SIZE));
}

static void write_prefetch(const struct mfs_metrics_of *m, const char *common, struct mfs_buf *out)
{
	const struct mfs_prefetch_counts n = mfs_prefetch_counts(m->prefetch);

	mfs_prom_head(out, "mcorefs_prefetch_streams_total", "counter",
		      "Readers that were fetched ahead of.");
	mfs_prom_value(out, "mcorefs_prefetch_streams_total", "", common, NULL, (double)n.streams);
	mfs_prom_head(out, "mcorefs_prefetch_bytes_total", "counter",
		      "Bytes that were fetched ahead.");
	mfs_prom_value(out, "mcorefs_prefetch_bytes_total", "", common, NULL, (double)n.bytes);
}

static void write_tree(const struct mfs_metrics_of *m, const char *common, struct mfs_buf *out)
{
	const struct mfs_tree_counts n = mfs_tree_counts(m->tree);

	if (n.several) {
		mfs_prom_head(out, "mcorefs_runs", "gauge", "Runs of SOURCE.");
		mfs_prom_value(out, "mcorefs_runs", "", common, "state=\"shown\"", n.runs);
		mfs_prom_value(out, "mcorefs_runs", "", common, "state=\"open\"", n.open);
	}
	mfs_prom_head(out, "mcorefs_iterations", "gauge",
		      "Iterations of SOURCE; of several runs, of those that are open.");
	mfs_prom_value(out, "mcorefs_iterations", "", common, "state=\"shown\"", n.shown);
	mfs_prom_value(out, "mcorefs_iterations", "", common, "state=\"hidden\"", n.hidden);
	mfs_prom_gauge(out, "mcorefs_iterations_known",
		       "Iterations that are shown, or were and the kernel knows them.", common,
		       n.known);
	if (n.latest >= 0)
		mfs_prom_gauge(out, "mcorefs_latest_iteration", "Number of latest.", common,
			       (double)n.latest);
	mfs_prom_gauge(out, "mcorefs_view_files", "Files in views that were entered.", common,
		       (double)n.files);
	mfs_prom_gauge(out, "mcorefs_view_bytes", "Bytes of these.", common, (double)n.bytes);
}

/* Of a SOURCE that is a URL. */
static void write_remote(const struct mfs_metrics_of *m, const char *common, struct mfs_buf *out)
{
	struct mfs_cache_stats n;

	if (mfs_tree_remote(m->tree, &n))
		mfs_prom_remote(out, common, &n);
}

void mfs_metrics_text(const struct mfs_metrics_of *m, struct mfs_buf *out)
{
	struct mfs_buf common = {0};

	mfs_prom_label(&common, "vol_name", m->source);
	mfs_prom_label(&common, "mp", m->mountpoint);
	if (common.failed) {
		out->failed = true;
	} else {
		mfs_prom_build(out, common.data, "mount");
		mfs_stats_write(m->stats, common.data, out);
		write_reads(m, common.data, out);
		mfs_prom_sources(out, common.data);
		mfs_prom_gauge(out, "mcorefs_fuse_open_handlers", "Files that are open.",
			       common.data, atomic_load(m->open_files));
		write_tree(m, common.data, out);
		write_remote(m, common.data, out);
		if (m->prefetch)
			write_prefetch(m, common.data, out);
		mfs_prom_process(out, "mcorefs", common.data, m->began_ns);
	}
	mfs_buf_release(&common);
}

void mfs_metrics_info(const struct mfs_metrics_of *m, struct mfs_buf *out)
{
	const struct mfs_tree_counts n = mfs_tree_counts(m->tree);

	mfs_buf_adds(out, "{\"version\": ");
	mfs_buf_add_json(out, MFS_VERSION);
	mfs_buf_adds(out, ", \"source\": ");
	mfs_buf_add_json(out, m->source);
	mfs_buf_adds(out, ", \"mountpoint\": ");
	mfs_buf_add_json(out, m->mountpoint);
	if (n.several)
		mfs_buf_printf(out, ", \"runs\": %u, \"open\": %u", n.runs, n.open);
	mfs_buf_printf(out, ", \"pid\": %ld, \"iterations\": %u, \"hidden\": %u, \"latest\": ",
		       (long)getpid(), n.shown, n.hidden);
	if (n.latest >= 0)
		mfs_buf_printf(out, "%lld", (long long)n.latest);
	else
		mfs_buf_adds(out, "null");
	mfs_buf_adds(out, "}\n");
}

int mfs_metrics_file(const struct mfs_metrics_of *m, const char *path, struct mfs_error *err)
{
	struct mfs_buf text = {0};
	char temporary[PATH_MAX];
	int fd, rc;

	mfs_metrics_text(m, &text);
	if (text.failed) {
		mfs_buf_release(&text);
		return mfs_fail_nomem(err);
	}
	/* The collector reads names that end with .prom. */
	snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
	unlink(temporary); /* of an earlier process of this number */
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	rc = fd < 0 ? -errno : mfs_write_whole(fd, text.data, text.len);
	if (rc)
		mfs_fail(err, rc, "metrics: cannot write '%s': %s", temporary, strerror(-rc));
	if (fd >= 0)
		close(fd);
	if (!rc && rename(temporary, path))
		rc = mfs_fail_errno(err, "metrics: cannot write '%s'", path);
	if (rc)
		unlink(temporary);
	mfs_buf_release(&text);
	return rc;
}

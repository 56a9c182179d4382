/*
 * Counters and histograms of a front end, and their text for Prometheus (version 0.0.4).
 *
 * A front end has a table of rows. Any thread counts, without a lock: threads have cells of their
 * own, a cache line apart, which are summed up when somebody asks. So counting costs a few
 * nanoseconds on a path of reads, whatever the number of threads. A sum that is taken meanwhile may
 * lack the last few events; it never goes back.
 *
 *     static const struct mfs_stats_row rows[] = {
 *             {"x_ops_durations_seconds", "Time to answer.", "op=\"read\"", MFS_STATS_SECONDS},
 *             {"x_ops_durations_seconds", NULL, "op=\"open\"", MFS_STATS_SECONDS},
 *             {"x_errors_total", "Requests that failed.", NULL, MFS_STATS_COUNTER},
 *     };
 *
 * Neighbours of one name are one family of metrics: the first one has its help. Values that are
 * known only when somebody asks (gauges) are no rows: the front end writes them after the rows
 * (fs/stats/prom.h).
 */
#ifndef MFS_FS_STATS_STATS_H
#define MFS_FS_STATS_STATS_H

#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mfs_stats;

enum mfs_stats_kind {
	MFS_STATS_COUNTER,
	MFS_STATS_GAUGE,   /* what is going on: counts up, and down by MFS_STATS_DOWN */
	MFS_STATS_SECONDS, /* a histogram of durations, which are given in ns: 10 us to 100 s */
	MFS_STATS_BYTES,   /* a histogram of sizes: 4 KiB to 16 MiB */
	MFS_STATS_KINDS,
};

struct mfs_stats_row {
	const char *name, *help;
	const char *labels; /* as the text has them: "op=\"read\""; NULL: none */
	enum mfs_stats_kind kind;
};

/* rows must outlive it. NULL: no memory. */
struct mfs_stats *mfs_stats_new(const struct mfs_stats_row *rows, unsigned count);
void mfs_stats_free(struct mfs_stats *s);

#define MFS_STATS_DOWN UINT64_MAX
/* A counter counts n more; a histogram one value of n (ns, bytes). s may be NULL: nobody asks. */
void mfs_stats_add(struct mfs_stats *s, unsigned row, uint64_t n);

/* What was counted; of a histogram, how many values. */
uint64_t mfs_stats_count(const struct mfs_stats *s, unsigned row);
/* The sum of a histogram's values (ns, bytes); of a counter, what was counted. */
uint64_t mfs_stats_sum(const struct mfs_stats *s, unsigned row);

/* Writes all rows. common: labels of every line ("vol_name=\"a\""); NULL: none. */
void mfs_stats_write(const struct mfs_stats *s, const char *common, struct mfs_buf *out);

#endif

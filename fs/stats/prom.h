/*
 * Lines of Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats"): what they
 * are of, then one line a value. Numbers are written so that a whole number up to 2^53 is exact.
 */
#ifndef MFS_FS_STATS_PROM_H
#define MFS_FS_STATS_PROM_H

#include <math.h>
#include <stdint.h>

#include "formats/base/buf.h"

#define MFS_PROM_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define MFS_PROM_INF  INFINITY

/* The lines HELP and TYPE of a family. type: "counter", "gauge", "histogram". */
void mfs_prom_head(struct mfs_buf *out, const char *name, const char *type, const char *help);

/* One value. suffix: "", "_sum", "_count". Either list of labels may be NULL. */
void mfs_prom_value(struct mfs_buf *out, const char *name, const char *suffix, const char *common,
		    const char *labels, double value);
/* How many values of a histogram were at most le. */
void mfs_prom_bucket(struct mfs_buf *out, const char *name, const char *common, const char *labels,
		     double le, uint64_t count);

/* A whole family of one value. */
void mfs_prom_gauge(struct mfs_buf *out, const char *name, const char *help, const char *common,
		    double value);

/* mcorefs_build_info: the release, and which front end it is. */
void mfs_prom_build(struct mfs_buf *out, const char *common, const char *front);

/* Adds name="value" to a list of labels, with a comma if it is not the first. */
void mfs_prom_label(struct mfs_buf *labels, const char *name, const char *value);

/* What the process has used: NAME_memory (bytes), NAME_cpu_usage and NAME_uptime (seconds), as
 * JuiceFS names them. prefix: "mcorefs". began: by mfs_now_ns(). */
void mfs_prom_process(struct mfs_buf *out, const char *prefix, const char *common, int64_t began);

#endif

/* What a gateway counts, under the names of Prometheus. */
#ifndef MFS_FS_GATEWAY_WEB_GATEWAY_METRICS_H
#define MFS_FS_GATEWAY_WEB_GATEWAY_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/buf.h"

struct mfs_gateway;
struct mfs_stats;

/* Counters of a gateway, all 0. NULL: no memory. */
struct mfs_stats *mfs_gateway_stats_new(void);
/* A reply has ended. route: of a protocol; NULL: none had it. ns: from the request's first line. */
void mfs_gateway_count(struct mfs_stats *s, const char *route, unsigned status, bool whole,
		       uint64_t sent, uint64_t ns);
/* The form for signing in was sent a wrong token. */
void mfs_gateway_count_guess(struct mfs_stats *s);
void mfs_gateway_metrics(struct mfs_gateway *g, struct mfs_buf *out);

/* For the status page. */
struct mfs_gateway_sums {
	uint64_t bytes, cut, guesses;
	uint64_t replies[6]; /* by the first digit of their status */
};
struct mfs_gateway_sums mfs_gateway_sums(const struct mfs_stats *s);

#endif

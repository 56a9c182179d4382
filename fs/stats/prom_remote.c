#include "fs/stats/prom_remote.h"

#include "formats/remote/cache.h"
#include "fs/stats/prom.h"

static void write_counter(struct mfs_buf *out, const char *common, const char *name,
			  const char *help, uint64_t value)
{
	mfs_prom_head(out, name, "counter", help);
	mfs_prom_value(out, name, "", common, NULL, (double)value);
}

void mfs_prom_remote(struct mfs_buf *out, const char *common, const struct mfs_cache_stats *n)
{
	write_counter(out, common, "mcorefs_remote_bytes_total",
		      "Bytes that came over the network.", n->fetched);
	write_counter(out, common, "mcorefs_remote_requests_total", "Requests for ranges.",
		      n->requests);
	write_counter(out, common, "mcorefs_remote_failures_total", "Those that failed.",
		      n->failed);
	write_counter(out, common, "mcorefs_cache_hits_total",
		      "Ranges that were in the cache when they were read.", n->hits);
	write_counter(out, common, "mcorefs_cache_misses_total", "Ranges that were not.",
		      n->misses);
	write_counter(out, common, "mcorefs_cache_damaged_blocks_total",
		      "Blocks with a wrong sum, which were fetched again.", n->damaged);
	write_counter(out, common, "mcorefs_cache_evictions_total",
		      "Blocks that were taken out of the cache.", n->evicted);
	mfs_prom_gauge(out, "mcorefs_cache_bytes", "Bytes that the cache takes on the disk.",
		       common, (double)n->bytes);
	write_counter(out, common, "mcorefs_remote_stale_objects_total",
		      "Objects that have changed on their server.", n->stale);
}

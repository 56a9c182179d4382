#include "fs/stats/stats.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "fs/stats/prom.h"

#define SHARDS	   16 /* threads that share one cell are rare */
#define CACHE_LINE 64
#define MOST	   16 /* bounds of a histogram */

struct scale {
	const uint64_t bounds[MOST]; /* ascending, ended by 0 */
	double unit;		     /* what 1 is in the text */
};

static const struct scale scales[MFS_STATS_KINDS] = {
	[MFS_STATS_COUNTER] = {{0}, 1},
	[MFS_STATS_GAUGE] = {{0}, 1},
	[MFS_STATS_SECONDS] = {{10000, 30000, 100000, 300000, 1000000, 3000000, 10000000, 30000000,
				100000000, 300000000, 1000000000, 3000000000, 10000000000,
				30000000000, 100000000000},
			       1e-9},
	[MFS_STATS_BYTES] = {{4096, 16384, 65536, 131072, 262144, 524288, 1048576, 2097152, 4194304,
			      8388608, 16777216},
			     1},
};

/* The cells of a row: its sum; of a histogram, then one for each bound, and one for all beyond. */
struct mfs_stats {
	const struct mfs_stats_row *rows;
	unsigned count;
	unsigned *first; /* of each row, its first cell; then the number of cells */
	size_t stride;	 /* cells from one shard to the next */
	_Atomic uint64_t *cells;
};

static unsigned bounds_of(enum mfs_stats_kind kind)
{
	unsigned n = 0;

	while (n < MOST && scales[kind].bounds[n])
		n++;
	return n;
}

static bool is_histogram(enum mfs_stats_kind kind)
{
	return kind != MFS_STATS_COUNTER && kind != MFS_STATS_GAUGE;
}

static unsigned cells_of(enum mfs_stats_kind kind)
{
	return is_histogram(kind) ? 1 + bounds_of(kind) + 1 : 1;
}

struct mfs_stats *mfs_stats_new(const struct mfs_stats_row *rows, unsigned count)
{
	const size_t line = CACHE_LINE / sizeof(uint64_t);
	struct mfs_stats *s = calloc(1, sizeof(*s));
	unsigned cells = 0;

	if (!s)
		return NULL;
	s->rows = rows;
	s->count = count;
	s->first = calloc(count + 1, sizeof(*s->first));
	if (!s->first) {
		mfs_stats_free(s);
		return NULL;
	}
	for (unsigned i = 0; i < count; i++) {
		s->first[i] = cells;
		cells += cells_of(rows[i].kind);
	}
	s->first[count] = cells;
	s->stride = mfs_round_up(cells, line);
	s->cells = aligned_alloc(CACHE_LINE, (SHARDS * s->stride + line) * sizeof(*s->cells));
	if (!s->cells) {
		mfs_stats_free(s);
		return NULL;
	}
	memset(s->cells, 0, (SHARDS * s->stride + line) * sizeof(*s->cells));
	return s;
}

void mfs_stats_free(struct mfs_stats *s)
{
	if (!s)
		return;
	free(s->cells);
	free(s->first);
	free(s);
}

/* Threads are dealt over the shards in the order of their first event. */
static unsigned shard(void)
{
	static _Thread_local unsigned mine;
	static atomic_uint next;

	if (!mine)
		mine = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
	return mine % SHARDS;
}

static void count(_Atomic uint64_t *cell, uint64_t n)
{
	atomic_fetch_add_explicit(cell, n, memory_order_relaxed);
}

void mfs_stats_add(struct mfs_stats *s, unsigned row, uint64_t n)
{
	_Atomic uint64_t *cells;
	const uint64_t *bounds;
	unsigned i = 0;

	if (!s)
		return;
	cells = s->cells + shard() * s->stride + s->first[row];
	count(cells, n);
	if (!is_histogram(s->rows[row].kind))
		return;
	bounds = scales[s->rows[row].kind].bounds;
	while (i < MOST && bounds[i] && n > bounds[i])
		i++;
	count(cells + 1 + i, 1);
}

static uint64_t total(const struct mfs_stats *s, unsigned cell)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < SHARDS; i++)
		n += atomic_load_explicit(&s->cells[i * s->stride + cell], memory_order_relaxed);
	return n;
}

uint64_t mfs_stats_sum(const struct mfs_stats *s, unsigned row)
{
	return total(s, s->first[row]);
}

uint64_t mfs_stats_count(const struct mfs_stats *s, unsigned row)
{
	uint64_t n = 0;

	if (!is_histogram(s->rows[row].kind))
		return mfs_stats_sum(s, row);
	for (unsigned c = s->first[row] + 1; c < s->first[row + 1]; c++)
		n += total(s, c);
	return n;
}

/* The count is the sum of the buckets as they are written, so that a scrape agrees with itself. */
static void write_histogram(const struct mfs_stats *s, unsigned row, const char *common,
			    struct mfs_buf *out)
{
	const struct mfs_stats_row *r = &s->rows[row];
	const struct scale *scale = &scales[r->kind];
	const unsigned bounds = bounds_of(r->kind);
	uint64_t n = 0;

	for (unsigned i = 0; i < bounds; i++) {
		n += total(s, s->first[row] + 1 + i);
		mfs_prom_bucket(out, r->name, common, r->labels,
				(double)scale->bounds[i] * scale->unit, n);
	}
	n += total(s, s->first[row] + 1 + bounds);
	mfs_prom_bucket(out, r->name, common, r->labels, MFS_PROM_INF, n);
	mfs_prom_value(out, r->name, "_sum", common, r->labels,
		       (double)mfs_stats_sum(s, row) * scale->unit);
	mfs_prom_value(out, r->name, "_count", common, r->labels, (double)n);
}

/* One thread may have counted up, and another one down. While they do, a sum of all may be short of
 * the former: it is none then. */
static double value_of(const struct mfs_stats *s, unsigned row)
{
	const uint64_t sum = mfs_stats_sum(s, row);

	return s->rows[row].kind == MFS_STATS_GAUGE && sum > INT64_MAX ? 0 : (double)sum;
}

void mfs_stats_write(const struct mfs_stats *s, const char *common, struct mfs_buf *out)
{
	static const char *const types[MFS_STATS_KINDS] = {"counter", "gauge", "histogram",
							   "histogram"};
	const char *family = "";

	for (unsigned i = 0; i < s->count; i++) {
		const struct mfs_stats_row *r = &s->rows[i];

		if (strcmp(r->name, family))
			mfs_prom_head(out, r->name, types[r->kind], r->help);
		family = r->name;
		if (is_histogram(r->kind))
			write_histogram(s, i, common, out);
		else
			mfs_prom_value(out, r->name, "", common, r->labels, value_of(s, i));
	}
}

#include "formats/dataset/rows/arrow_rows.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/arena.h"
#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/base/threads.h"
#include "formats/dataset/rows/arrow_rows_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"
#include "formats/io/buffered.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are copied as they are on disk");

#define CHUNK	    512 /* list offsets that are read at once */
#define MAX_THREADS 64
/* What is counted as handed out for list offsets, so that their pages do not stay mapped for ever:
 * a place costs more than its bytes, as a fault maps its surroundings. Of rows far and wide each
 * maps a page, which is worth keeping for a while; who passes over many lets go of them himself. */
#define PLACE_BYTES (16u << 10)
#define ROW_BYTES   (2u << 10)

struct arrow_rows {
	struct mfs_rows rows;
	struct mfs_fileset *set; /* NULL: in memory */
	struct mfs_arrow_shard *shards;
	uint32_t shard_count; /* with one more behind them: where the rows end */
	bool narrowed;	      /* unsigned in the files; a top bit is no token */
	struct mfs_arena arena;
};

static const struct arrow_rows *rows_of(const struct mfs_rows *r)
{
	return (const struct arrow_rows *)r;
}

/* ---- bytes ---- */

/* Mapped: whoever asks sees to the file's identity. */
static int mapped_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		       struct mfs_error *err)
{
	struct mfs_fileset *set = (struct mfs_fileset *)(uintptr_t)s->object;
	const uint8_t *map;
	int rc = mfs_fileset_map(set, s->index, &map, err);

	if (rc)
		return rc;
	if (mfs_guard_copy(buf, map + off, len))
		return mfs_fail(err, -EIO, "%s: cannot read bytes %llu+%zu", s->name,
				(unsigned long long)off, len);
	return 0;
}

static const struct mfs_source_ops mapped_ops = {.read = mapped_read};

static void served(const struct arrow_rows *r, uint64_t bytes)
{
	if (r->set)
		mfs_fileset_served(r->set, bytes);
}

static int check_shard(const struct arrow_rows *r, const struct mfs_arrow_shard *p,
		       struct mfs_error *err)
{
	return r->set ? mfs_fileset_check(r->set, p->file, err) : 0;
}

/* ---- where a row or a token is ---- */

/* The last shard that begins at or before it: by rows, or by tokens. */
static const struct mfs_arrow_shard *shard_of_row(const struct arrow_rows *r, uint64_t row)
{
	return &r->shards[mfs_last_while(i, r->shard_count, r->shards[i].row <= row)];
}

static const struct mfs_arrow_shard *shard_of_token(const struct arrow_rows *r, uint64_t token)
{
	return &r->shards[mfs_last_while(i, r->shard_count, r->shards[i].token <= token)];
}

/* The same within a shard, which has at least one extent; row and token are counted from its
 * beginning. */
static const struct mfs_arrow_extent *extent_of_row(const struct mfs_arrow_shard *p, uint64_t row)
{
	return &p->extents[mfs_last_while(i, p->extent_count, p->extents[i].row <= row)];
}

static const struct mfs_arrow_extent *extent_of_token(const struct mfs_arrow_shard *p,
						      uint64_t token)
{
	return &p->extents[mfs_last_while(i, p->extent_count, p->extents[i].token <= token)];
}

/* ---- starts ---- */

static int bad_offset(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
		      uint64_t row, struct mfs_error *err)
{
	return mfs_fail(err, -EIO, "%s: the list offset of row %llu is damaged", p->src.name,
			(unsigned long long)(extent->row + row));
}

/* List offsets of the rows [first, first+count) of a extent, the last of which may be its end: as
 * tokens of the shard, checked to lie inside of the extent and in order. count <= CHUNK. */
static int read_offsets(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
			uint64_t first, uint64_t count, uint64_t *ret, struct mfs_error *err)
{
	const unsigned size = p->wide ? 8 : 4;
	const uint64_t tokens = extent[1].token - extent->token;
	uint8_t bytes[CHUNK * 8];
	uint64_t before = 0, v;
	int rc;

	if (!extent->offsets) {
		for (uint64_t i = 0; i < count; i++)
			ret[i] = extent->token + (first + i) * extent->length;
		return 0;
	}
	rc = mfs_source_read(&p->src, extent->offsets + first * size, bytes, count * size, err);
	for (uint64_t i = 0; i < count && !rc; i++, before = v) {
		v = (p->wide ? mfs_le64(bytes + 8 * i) : mfs_le32(bytes + 4 * i)) - extent->base;
		if (v < before || v > tokens)
			return bad_offset(p, extent, first + i, err);
		ret[i] = extent->token + v;
	}
	return rc;
}

/* Of rows of one shard, from `first` of it on; the end of its last row is the next shard's. */
static int shard_starts(const struct mfs_arrow_shard *p, uint64_t first, uint64_t count,
			uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_extent *extent = extent_of_row(p, first);
	uint64_t n;
	int rc = 0;

	for (; count && !rc; first += n, count -= n, ret += n) {
		while (first >= extent[1].row)
			extent++;
		n = mfs_min_u64(mfs_min_u64(count, CHUNK), extent[1].row - first);
		rc = read_offsets(p, extent, first - extent->row, n, ret, err);
		for (uint64_t i = 0; i < n && !rc; i++)
			ret[i] += p->token;
	}
	return rc;
}

static int arrow_starts(const struct mfs_rows *rows, uint64_t first, uint64_t count, uint64_t *ret,
			struct mfs_error *err)
{
	const struct arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_row(r, first);
	uint64_t n;
	int rc = 0;

	if (first + count > rows->rows) /* the end is in no shard */
		ret[--count] = rows->tokens;
	for (; count && !rc; first += n, count -= n, ret += n) {
		while (first >= p[1].row)
			p++;
		n = mfs_min_u64(count, p[1].row - first);
		rc = check_shard(r, p, err);
		if (!rc)
			rc = shard_starts(p, first - p->row, n, ret, err);
		served(r, mfs_max_u64(8 * n, PLACE_BYTES));
	}
	return rc;
}

/* The row of an extent that has its token t: binary search in the list offsets. */
static int find_in_extent(const struct mfs_arrow_shard *p, const struct mfs_arrow_extent *extent,
			  uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	uint64_t start;
	int rc = 0;

	if (!extent->offsets) {
		*ret = t / extent->length;
		return 0;
	}
	*ret = mfs_last_while(i, extent[1].row - extent->row,
			      !rc && !(rc = read_offsets(p, extent, i, 1, &start, err)) &&
				      start - extent->token <= t);
	return rc;
}

static int arrow_find(const struct mfs_rows *rows, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	const struct arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, t);
	const struct mfs_arrow_extent *extent = extent_of_token(p, t - p->token);
	uint64_t row;
	int rc = check_shard(r, p, err);

	if (!rc)
		rc = find_in_extent(p, extent, t - p->token - extent->token, &row, err);
	served(r, PLACE_BYTES);
	if (!rc)
		*ret = p->row + extent->row + row;
	return rc;
}

/* The start of a row, and if count is 2 its end. *shard is the one of the row before, or NULL: a
 * file's identity is looked at once while rows are in the same one. */
static int row_starts(const struct arrow_rows *r, uint64_t row, uint64_t count,
		      const struct mfs_arrow_shard **shard, uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = *shard;
	const struct mfs_arrow_extent *extent;
	int rc = 0;

	if (!p || row < p->row || row >= p[1].row) {
		p = *shard = shard_of_row(r, row);
		rc = check_shard(r, p, err);
	}
	extent = extent_of_row(p, row - p->row);
	if (!rc)
		rc = read_offsets(p, extent, row - p->row - extent->row, count, ret, err);
	for (uint64_t i = 0; i < count && !rc; i++)
		ret[i] += p->token;
	return rc;
}

static int arrow_gather_starts(const struct mfs_rows *rows, const int32_t *numbers, uint64_t count,
			       uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = row_starts(rows_of(rows), (uint64_t)numbers[i], 1, &p, &ret[i], err);
	served(rows_of(rows), count * ROW_BYTES);
	return rc;
}

static int arrow_gather_lengths(const struct mfs_rows *rows, const int32_t *numbers, uint64_t count,
				int32_t *ret, struct mfs_error *err)
{
	const struct mfs_arrow_shard *p = NULL;
	uint64_t ends[2];
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		rc = row_starts(rows_of(rows), (uint64_t)numbers[i], 2, &p, ends, err);
		if (!rc && ends[1] - ends[0] > INT32_MAX)
			rc = mfs_fail(err, -EINVAL,
				      "%s: row %d has %llu tokens, more than 2^31 - 1", rows->name,
				      numbers[i], (unsigned long long)(ends[1] - ends[0]));
		if (!rc)
			ret[i] = (int32_t)(ends[1] - ends[0]);
	}
	served(rows_of(rows), count * ROW_BYTES);
	return rc;
}

/* ---- tokens ---- */

/* Unsigned ids shown as signed ones: those with a top bit are none. t: the stream's number of the
 * first. */
static int check_narrowed(const struct mfs_rows *rows, const void *tokens, uint64_t count,
			  uint64_t t, struct mfs_error *err)
{
	const uint8_t *top = (const uint8_t *)tokens + rows->token_size - 1;
	uint64_t row = 0;

	for (uint64_t i = 0; i < count; i++, top += rows->token_size) {
		if (!(*top & 0x80))
			continue;
		if (arrow_find(rows, t + i, &row, err))
			return err ? err->code : -EIO;
		return mfs_fail(err, -EIO, "%s: row %llu has a token id that %s cannot hold",
				rows->name, (unsigned long long)row, mfs_dtype_torch(rows->dtype));
	}
	return 0;
}

static int arrow_read(const struct mfs_rows *rows, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, first), *checked = NULL;
	const struct mfs_arrow_extent *extent = extent_of_token(p, first - p->token);
	const unsigned size = rows->token_size;
	uint8_t *to = ret;
	uint64_t n;
	int rc = 0;

	for (; count && !rc; first += n, count -= n, to += n * size) {
		uint64_t at;

		while (first >= p[1].token) {
			p++;
			extent = p->extents;
		}
		if (p != checked)
			rc = check_shard(r, p, err);
		checked = p;
		at = first - p->token;
		while (at >= extent[1].token)
			extent++;
		n = mfs_min_u64(count, extent[1].token - at);
		if (!rc)
			rc = mfs_source_read(&p->src, extent->values + (at - extent->token) * size,
					     to, n * size, err);
		served(r, n * size);
		if (!rc && r->narrowed)
			rc = check_narrowed(rows, to, n, first, err);
	}
	return rc;
}

static int arrow_extent(const struct mfs_rows *rows, uint64_t t, uint64_t max,
			struct mfs_bin_extent *ret, struct mfs_error *err)
{
	const struct arrow_rows *r = rows_of(rows);
	const struct mfs_arrow_shard *p = shard_of_token(r, t);
	const struct mfs_arrow_extent *extent = extent_of_token(p, t - p->token);
	const uint64_t at = t - p->token;

	(void)err;
	if (!r->set || r->narrowed)
		return -ENODATA;
	*ret = (struct mfs_bin_extent){
		.set = r->set,
		.file = p->file,
		.offset = extent->values + (at - extent->token) * rows->token_size,
		.len = mfs_min_u64(max, extent[1].token - at) * rows->token_size,
	};
	return 0;
}

static void arrow_drop(const struct mfs_rows *rows)
{
	served(rows_of(rows), (uint64_t)1 << 30); /* so much that the set does it */
}

static void free_shards(struct arrow_rows *r)
{
	for (uint32_t i = 0; i < r->shard_count; i++)
		free(r->shards[i].extents);
	mfs_arena_release(&r->arena);
	free(r);
}

static void arrow_free(struct mfs_rows *rows)
{
	struct arrow_rows *r = (struct arrow_rows *)rows;

	mfs_fileset_free(r->set);
	free_shards(r);
}

static const struct mfs_rows_ops arrow_ops = {
	.starts = arrow_starts,
	.find = arrow_find,
	.read = arrow_read,
	.extent = arrow_extent,
	.gather_starts = arrow_gather_starts,
	.gather_lengths = arrow_gather_lengths,
	.drop = arrow_drop,
	.free = arrow_free,
};

/* ---- opening ---- */

/* A file is walked through a descriptor of its own, not through the mapping: a page fault reads
 * around itself. */
static int walk_file(struct mfs_fileset *set, struct mfs_arrow_shard *p,
		     struct mfs_arrow_token_column *column, struct mfs_error *err)
{
	struct mfs_buffered window;
	struct mfs_source src;
	int rc, stale;

	if (!set)
		return mfs_arrow_walk(p, &p->src, column, err);
	rc = mfs_buffered_open(set, p->file, &window, err);
	if (rc)
		return rc;
	src = mfs_buffered_source(&window, p->src.name);
	rc = mfs_arrow_walk(p, &src, column, err);
	stale = mfs_buffered_close(&window, rc ? NULL : err);
	return rc ? rc : stale;
}

/* Many files are walked by many threads, which mostly wait for their disk. */
struct walkers {
	struct arrow_rows *r;
	struct mfs_arrow_token_column column;
	_Atomic uint32_t next;
	pthread_mutex_t lock; /* of what follows: the first failure, by the order of files */
	uint32_t failed;
	struct mfs_error err;
};

static void *walk_some(void *arg)
{
	struct walkers *w = arg;
	uint32_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->r->shard_count) {
		struct mfs_arrow_token_column column = w->column;
		struct mfs_error err = {0};

		if (!walk_file(w->r->set, &w->r->shards[i], &column, &err))
			continue;
		pthread_mutex_lock(&w->lock);
		if (i < w->failed) {
			w->failed = i;
			w->err = err;
		}
		pthread_mutex_unlock(&w->lock);
		atomic_store(&w->next, w->r->shard_count);
	}
	return NULL;
}

/* The first file says of which dtype all are. */
static int walk_all(struct arrow_rows *r, const char *name, unsigned threads,
		    const struct mfs_arrow_rows_config *config, enum mfs_dtype *ret_dtype,
		    struct mfs_error *err)
{
	struct walkers w = {.r = r,
			    .column = {.name = name, .integers = config->integers},
			    .next = 1,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .failed = UINT32_MAX};
	int rc = walk_file(r->set, r->shards, &w.column, err);

	if (rc)
		return rc;
	threads = (unsigned)mfs_min_u64(mfs_min_u64(threads, MAX_THREADS), r->shard_count - 1);
	mfs_threads_run(threads, walk_some, &w);
	if (w.failed != UINT32_MAX)
		return mfs_fail(err, w.err.code, "%s", w.err.msg);
	*ret_dtype = w.column.dtype;
	return 0;
}

/* Counts what lies before each shard. */
static int sum_up(struct arrow_rows *r, struct mfs_error *err)
{
	struct mfs_arrow_shard *p = r->shards;

	for (uint32_t i = 0; i < r->shard_count; i++, p++) {
		const struct mfs_arrow_extent *end = &p->extents[p->extent_count];

		if (mfs_add_overflows(p->row, end->row, &p[1].row) || p[1].row > INT64_MAX ||
		    mfs_add_overflows(p->token, end->token, &p[1].token) || p[1].token > INT64_MAX)
			return mfs_fail(err, -EINVAL, "%s: it has too many rows or tokens",
					p->src.name);
	}
	r->rows.rows = p->row;
	r->rows.tokens = p->token;
	return 0;
}

/* The length that all rows have; 0 if they have not. */
static uint32_t common_length(const struct arrow_rows *r)
{
	uint32_t length = 0;

	for (uint32_t i = 0; i < r->shard_count; i++)
		for (size_t k = 0; k < r->shards[i].extent_count; k++) {
			const struct mfs_arrow_extent *extent = &r->shards[i].extents[k];

			if (extent->offsets || !extent->length ||
			    (length && extent->length != length))
				return 0;
			length = extent->length;
		}
	return length;
}

static int describe(struct arrow_rows *r, enum mfs_dtype dtype, struct mfs_error *err)
{
	r->narrowed = dtype == MFS_U32 || dtype == MFS_U64;
	r->rows.ops = &arrow_ops;
	r->rows.dtype = dtype == MFS_U32 ? MFS_I32 : dtype == MFS_U64 ? MFS_I64 : dtype;
	r->rows.token_size = mfs_dtype_size(dtype);
	r->rows.row_length = common_length(r);
	r->rows.sets = &r->set;
	r->rows.set_count = r->set ? 1 : 0;
	return sum_up(r, err);
}

static int open_shards(struct arrow_rows *r, const struct mfs_arrow_rows_config *config,
		       struct mfs_error *err)
{
	struct mfs_arrow_shard *first = r->shards;
	struct mfs_buffered window;
	struct mfs_source src = first->src;
	enum mfs_dtype dtype = MFS_DTYPE_NONE;
	char *name;
	int rc = 0;

	if (r->set)
		rc = mfs_buffered_open(r->set, first->file, &window, err);
	if (rc)
		return rc;
	if (r->set)
		src = mfs_buffered_source(&window, first->src.name);
	rc = mfs_arrow_choose_column(first, &src, config, &name, err);
	if (r->set)
		mfs_buffered_close(&window,
				   NULL); /* whether it is the same is asked when it is walked */
	if (rc)
		return rc;
	rc = walk_all(r, name, config->threads, config, &dtype, err);
	free(name);
	return rc ? rc : describe(r, dtype, err);
}

static struct arrow_rows *new_rows(uint32_t shards, const char *name)
{
	struct arrow_rows *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->rows.name = mfs_arena_strndup(&r->arena, name, strlen(name));
	r->shards = mfs_arena_array(&r->arena, (size_t)shards + 1, sizeof(*r->shards));
	if (r->shards && r->rows.name) {
		r->shard_count = shards;
		return r;
	}
	free_shards(r);
	return NULL;
}

int mfs_arrow_rows_open(struct mfs_fileset *set, const char *name,
			const struct mfs_arrow_rows_config *config, struct mfs_rows **ret,
			struct mfs_error *err)
{
	struct arrow_rows *r = new_rows(mfs_fileset_count(set), name);
	int rc = 0;

	if (!r)
		return mfs_fail_nomem(err);
	r->set = set;
	for (uint32_t i = 0; i < r->shard_count && !rc; i++) {
		struct mfs_arrow_shard *p = &r->shards[i];
		const char *path = mfs_arena_printf(&r->arena, "%s/%s", mfs_fileset_dir(set),
						    mfs_fileset_name(set, i));

		p->file = i;
		p->src = (struct mfs_source){.ops = &mapped_ops,
					     .name = path,
					     .size = mfs_fileset_size(set, i),
					     .object = set,
					     .index = i};
		rc = path ? 0 : mfs_fail_nomem(err);
	}
	if (!rc)
		rc = open_shards(r, config, err);
	if (rc) {
		free_shards(r);
		return rc;
	}
	*ret = &r->rows;
	return 0;
}

int mfs_arrow_rows_memory(const void *bytes, uint64_t size, const char *name,
			  const struct mfs_arrow_rows_config *config, struct mfs_rows **ret,
			  struct mfs_error *err)
{
	struct arrow_rows *r = new_rows(1, name);
	int rc;

	if (!r)
		return mfs_fail_nomem(err);
	r->shards->src = mfs_source_memory(bytes, size, name);
	rc = open_shards(r, config, err);
	if (rc) {
		free_shards(r);
		return rc;
	}
	*ret = &r->rows;
	return 0;
}

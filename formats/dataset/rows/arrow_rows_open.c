/* Opening the files of a column's rows: which column it is, and where its tokens lie. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/dataset/rows/arrow_rows_i.h"
#include "formats/io/buffered.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

#define MAX_THREADS 64

/* Reads through the mapping. The caller checks that the file is still the same. */
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

static void free_shards(struct mfs_arrow_rows *r)
{
	for (uint32_t i = 0; i < r->shard_count; i++)
		free(r->shards[i].extents);
	mfs_arena_release(&r->arena);
	free(r);
}

void mfs_arrow_rows_free(struct mfs_rows *rows)
{
	struct mfs_arrow_rows *r = (struct mfs_arrow_rows *)rows;

	mfs_fileset_free(r->set);
	free_shards(r);
}

/* A file is walked through a descriptor of its own. A page fault of the mapping would read far
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
	struct mfs_arrow_rows *r;
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

/* The dtype of the first file is that of all. */
static int walk_all(struct mfs_arrow_rows *r, const char *name, unsigned threads,
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
static int sum_up(struct mfs_arrow_rows *r, struct mfs_error *err)
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

/* The length that all rows have; 0: their lengths differ. */
static uint32_t common_length(const struct mfs_arrow_rows *r)
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

static int describe(struct mfs_arrow_rows *r, enum mfs_dtype dtype, struct mfs_error *err)
{
	r->narrowed = dtype == MFS_U32 || dtype == MFS_U64;
	r->rows.ops = &mfs_arrow_rows_ops;
	r->rows.dtype = dtype == MFS_U32 ? MFS_I32 : dtype == MFS_U64 ? MFS_I64 : dtype;
	r->rows.token_size = mfs_dtype_size(dtype);
	r->rows.row_length = common_length(r);
	r->rows.sets = &r->set;
	r->rows.set_count = r->set ? 1 : 0;
	return sum_up(r, err);
}

static int open_shards(struct mfs_arrow_rows *r, const struct mfs_arrow_rows_config *config,
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

static struct mfs_arrow_rows *new_rows(uint32_t shards, const char *name)
{
	struct mfs_arrow_rows *r = calloc(1, sizeof(*r));

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
	struct mfs_arrow_rows *r = new_rows(mfs_fileset_count(set), name);
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
	struct mfs_arrow_rows *r = new_rows(1, name);
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

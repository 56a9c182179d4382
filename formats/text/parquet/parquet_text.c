#include "formats/text/parquet/parquet_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/text/parquet/parquet_i.h"

#define ROOMS_MAX (UINT64_C(4) << 30) /* bytes of pages, of all columns that are read */

int mfs_pq_damaged(const struct mfs_pq_table *t, const char *what, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: its Parquet data is damaged: %s", t->src.name, what);
}

int mfs_pq_read(const struct mfs_pq_table *t, uint64_t offset, void *to, size_t len,
		struct mfs_error *err)
{
	return mfs_range_ok(offset, len, t->src.size)
		       ? mfs_source_read(&t->src, offset, to, len, err)
		       : mfs_pq_damaged(t, "a range lies outside of the file", err);
}

int mfs_pq_room(struct mfs_pq_table *t, struct mfs_pq_room *r, size_t size, struct mfs_error *err)
{
	uint8_t *at;

	if (size <= r->size)
		return 0;
	if (size - r->size > ROOMS_MAX - t->taken)
		return mfs_fail(
			err, -ENOTSUP,
			"%s: pages of its %zu columns that are read are too large together: "
			"at most 4 GiB are unpacked at a time",
			t->src.name, t->count);
	at = realloc(r->at, size);
	if (!at)
		return mfs_fail_nomem(err);
	t->taken += size - r->size;
	r->at = at;
	r->size = size;
	return 0;
}

static void close_table(void *arg)
{
	struct mfs_pq_table *t = arg;

	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++) {
		struct mfs_pq_column *c = &t->columns[i];

		free(c->chunks);
		free(c->packed.at);
		free(c->page.at);
		free(c->dictionary.at);
		free(c->words);
		free(c->lengths);
	}
	free(t->columns);
	free(t->group_rows);
	mfs_arena_release(&t->arena);
	free(t);
}

static int open_table(const struct mfs_source *src, const struct mfs_table_want *want, void **ret,
		      struct mfs_error *err)
{
	struct mfs_pq_table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return mfs_fail_nomem(err);
	t->src = *src;
	rc = mfs_pq_footer_read(t, want, err);
	if (rc)
		close_table(t);
	else
		*ret = t;
	return rc;
}

/* ---- rows ---- */

static void next_group(struct mfs_pq_table *t)
{
	t->rows = t->group_rows[t->group];
	for (size_t i = 0; i < t->count; i++) {
		struct mfs_pq_column *c = &t->columns[i];
		const struct mfs_pq_chunk *chunk = &c->chunks[t->group];

		c->at = chunk->offset;
		c->end = chunk->offset + chunk->size;
		c->codec = chunk->codec;
		c->values = chunk->values;
		c->page_values = 0;
		c->word_count = 0;
		c->has_levels = false;
		c->rep_levels = c->def_levels = c->numbers = (struct mfs_pq_runs){0};
		c->length_count = c->length_at = 0;
	}
	t->group++;
}

/* Lists may have more values than their rows take. */
static int end_group(const struct mfs_pq_table *t, struct mfs_error *err)
{
	for (size_t i = 0; t->group && i < t->count; i++)
		if (t->columns[i].values || t->columns[i].has_levels)
			return mfs_pq_damaged(t, "values after the last row of a row group", err);
	return 0;
}

static int next_row(void *arg, struct mfs_buf *to, bool *ret_end, struct mfs_error *err)
{
	struct mfs_pq_table *t = arg;
	struct mfs_table_row row = {to, to->len, t->src.name};
	bool first = true;
	int rc = 0;

	while (!t->rows) {
		rc = end_group(t, err);
		*ret_end = !rc && t->group == t->group_count;
		if (rc || *ret_end)
			return rc;
		next_group(t);
	}
	*ret_end = false;
	t->rows--;
	mfs_buf_adds(to, "{");
	for (size_t i = 0; i < t->root_count && !rc; i++) {
		if (!t->roots[i].name)
			continue;
		rc = mfs_table_row_member(&row, first, t->roots[i].name, err);
		first = false;
		if (!rc)
			rc = mfs_pq_json(t, &t->roots[i], &row, err);
	}
	return rc ? rc : mfs_table_row_add(&row, "}\n", err);
}

static bool is_parquet(const uint8_t *first, size_t len)
{
	return len >= 4 && !memcmp(first, "PAR1", 4);
}

const struct mfs_table_ops mfs_parquet_table = {
	.name = "Parquet",
	.is = is_parquet,
	.open = open_table,
	.next = next_row,
	.free = close_table,
};

/* Column chunks: where their pages are, and the bytes of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/files/parquet_image_i.h"

#define LENGTH 4 /* bytes of the length that stands before levels */
/* Levels of an empty row: its run, and one for the values after it. */
#define EMPTY_EXTRA 6

static uint64_t pages_of(const struct mfs_parquet_image *v, uint64_t entries)
{
	return (entries + v->config.page - 1) / v->config.page;
}

static uint64_t round_up(uint64_t size)
{
	return mfs_round_up(size, MFS_PARQUET_ALIGN);
}

uint64_t mfs_parquet_room(const struct mfs_parquet_image *v, const struct group *g, size_t column)
{
	const uint64_t rows = g->end - g->first, width = v->columns[column].width;
	const uint64_t empties = v->rows->row_length ? 0 : rows;

	if (mfs_parquet_is_text(v, column))
		return round_up(mfs_parquet_text_room(v, g));
	if (column)
		return round_up(pages_of(v, rows) * MFS_PARQUET_PAGE_EXTRA + rows * width);
	return round_up(pages_of(v, g->tokens + empties) * MFS_PARQUET_PAGE_EXTRA +
			(g->tokens + empties) / 8 + empties * EMPTY_EXTRA + g->tokens * width);
}

/* ---- sizes ---- */

static uint64_t page_size(uint64_t body, uint64_t entries)
{
	uint8_t header[MFS_PARQUET_PAGE_HEADER];

	return mfs_parquet_page_header(body, entries, header) + body;
}

uint64_t mfs_parquet_page_size(const struct column *c, uint64_t entries)
{
	uint64_t body = LENGTH + mfs_parquet_rle_size(entries) + entries * c->width;

	if (!c->number)
		body += LENGTH + mfs_parquet_packed_size(entries);
	return page_size(body, entries);
}

/* Of pages without empty rows. */
static uint64_t even_size(const struct mfs_parquet_image *v, const struct column *c,
			  uint64_t entries)
{
	const uint64_t rest = entries % v->config.page;

	return entries / v->config.page * c->full + (rest ? mfs_parquet_page_size(c, rest) : 0);
}

void mfs_parquet_measure(const struct mfs_parquet_image *v, const struct group *g,
			 const struct group_index *index, size_t column,
			 struct mfs_parquet_column_chunk *ret)
{
	uint64_t offset = g->offset;

	for (size_t c = 0; c < column; c++)
		offset += mfs_parquet_room(v, g, c);
	ret->offset = offset;
	if (mfs_parquet_is_text(v, column)) {
		ret->entries = g->end - g->first;
		ret->size = index->text->at[index->text->pages];
		return;
	}
	ret->entries = column ? g->end - g->first : g->tokens + index->empties;
	ret->size = column ? even_size(v, &v->columns[column], ret->entries) : index->size;
}

/* ---- empty rows ---- */

static int count_empties(const struct mfs_rows *rows, const struct group *g, uint64_t *ret,
			 struct mfs_error *err)
{
	uint64_t starts[MFS_PARQUET_STARTS + 1], empties = 0, n;

	for (uint64_t row = g->first; row < g->end; row += n) {
		int rc;

		n = mfs_min_u64(MFS_PARQUET_STARTS, g->end - row);
		rc = mfs_rows_starts(rows, row, n + 1, starts, err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < n; i++)
			empties += starts[i] == starts[i + 1];
	}
	*ret = empties;
	return 0;
}

/* One page of the table: its size, and on to the next one. */
static int place_page(const struct mfs_parquet_image *v, struct entries *e, uint64_t count,
		      struct levels *levels, uint64_t *at, struct mfs_error *err)
{
	int rc;

	levels->definition.len = 0;
	rc = mfs_parquet_levels(e, count, levels, err);
	if (!rc)
		*at += page_size(2 * LENGTH + mfs_parquet_packed_size(count) +
					 levels->definition.len +
					 levels->values * v->columns->width,
				 count);
	return rc;
}

static int place_pages(const struct mfs_parquet_image *v, const struct group *g,
		       struct group_index *x, struct mfs_error *err)
{
	struct levels levels = {.repetition = malloc((v->config.page + 7) / 8)};
	uint64_t left = g->tokens + x->empties;
	struct entries e;
	int rc = levels.repetition ? 0 : mfs_fail_nomem(err);

	mfs_parquet_entries(&e, v->rows, g, g->first, g->token);
	for (uint64_t p = 0; p < x->pages && !rc; p++) {
		const uint64_t count = mfs_min_u64(left, v->config.page);

		x->places[p] = (struct page_start){x->size, e.row, e.token};
		rc = place_page(v, &e, count, &levels, &x->size, err);
		left -= count;
	}
	free(levels.repetition);
	mfs_buf_release(&levels.definition);
	if (!rc && (e.row != g->end || e.token != g->token + g->tokens))
		rc = mfs_fail(err, -EIO, "%s: rows %llu to %llu have not as many tokens as before",
			      v->rows->name, (unsigned long long)g->first,
			      (unsigned long long)g->end);
	return rc;
}

static int new_index(const struct mfs_parquet_image *v, const struct group *g,
		     struct group_index **ret, struct mfs_error *err)
{
	struct group_index *x;
	uint64_t empties = 0, pages;
	int rc = v->rows->row_length ? 0 : count_empties(v->rows, g, &empties, err);

	if (rc)
		return rc;
	pages = empties ? pages_of(v, g->tokens + empties) : 0;
	x = calloc(1, sizeof(*x) + pages * sizeof(*x->places));
	if (!x)
		return mfs_fail_nomem(err);
	x->empties = empties;
	x->pages = pages;
	if (empties)
		rc = place_pages(v, g, x, err);
	else
		x->size = even_size(v, v->columns, g->tokens);
	if (!rc && v->text_rows)
		rc = mfs_parquet_text_places(v, g, &x->text, err);
	if (rc) {
		free(x);
		return rc;
	}
	*ret = x;
	return 0;
}

void mfs_parquet_free_index(struct group_index *x)
{
	if (x)
		free(x->text);
	free(x);
}

int mfs_parquet_index(const struct mfs_parquet_image *v, struct group *g,
		      const struct group_index **ret, struct mfs_error *err)
{
	struct group_index *x = atomic_load_explicit(&g->index, memory_order_acquire);
	struct group_index *first = NULL;
	int rc;

	if (!x) {
		rc = new_index(v, g, &x, err);
		if (rc)
			return rc;
		/* Two threads may have counted at once: the first one's result stays. */
		if (!atomic_compare_exchange_strong(&g->index, &first, x)) {
			mfs_parquet_free_index(x);
			x = first;
		}
	}
	*ret = x;
	return 0;
}

/* ---- pages ---- */

struct page {
	uint64_t at, size; /* in the column chunk */
	uint64_t entries, values;
	uint64_t first; /* value: a token, or a row of a column */
	uint64_t row; /* that holds the first entry; ROW_OF_TOKEN: the one that holds that token */
};

#define ROW_OF_TOKEN UINT64_MAX

/* The column chunk that is read. */
struct reading {
	const struct mfs_parquet_image *v;
	const struct group *g;
	const struct column *c;
	const struct group_index *index;
	struct mfs_parquet_column_chunk chunk;
};

static void even_page(const struct reading *r, uint64_t off, struct page *ret)
{
	const uint64_t number = off / r->c->full, entry = number * r->v->config.page;

	ret->at = number * r->c->full;
	ret->entries = mfs_min_u64(r->v->config.page, r->chunk.entries - entry);
	ret->values = ret->entries;
	ret->size = mfs_parquet_page_size(r->c, ret->entries);
	ret->first = (r->c->number ? r->g->first : r->g->token) + entry;
	ret->row = ROW_OF_TOKEN;
}

static void placed_page(const struct reading *r, uint64_t off, struct page *ret)
{
	const struct group_index *x = r->index;
	const uint64_t number = mfs_last_while(i, x->pages, x->places[i].at <= off);
	const struct page_start *p = &x->places[number];
	const bool last = number + 1 == x->pages;
	const uint64_t end = last ? r->g->token + r->g->tokens : p[1].token;

	ret->at = p->at;
	ret->size = (last ? x->size : p[1].at) - p->at;
	ret->entries =
		mfs_min_u64(r->v->config.page, r->chunk.entries - number * r->v->config.page);
	ret->values = end - p->token;
	ret->first = p->token;
	ret->row = p->row;
}

static void find_page(const struct reading *r, uint64_t off, struct page *ret)
{
	if (!r->c->number && r->index->pages)
		placed_page(r, off, ret);
	else
		even_page(r, off, ret);
}

static void add_length(struct mfs_buf *b, uint64_t len)
{
	uint8_t bytes[8];

	mfs_put_le64(bytes, len);
	mfs_buf_add(b, bytes, LENGTH);
}

/* The levels of the entries of a page. */
static int list_levels(const struct reading *r, const struct page *p, struct levels *levels,
		       struct mfs_error *err)
{
	uint64_t row = p->row;
	struct entries e;
	int rc = row == ROW_OF_TOKEN ? mfs_rows_find(r->v->rows, p->first, &row, err) : 0;

	if (rc)
		return rc;
	mfs_parquet_entries(&e, r->v->rows, r->g, row, p->first);
	rc = mfs_parquet_levels(&e, p->entries, levels, err);
	if (!rc && levels->values != p->values)
		rc = mfs_fail(err, -EIO, "%s: rows from %llu on have not as many tokens as before",
			      r->v->rows->name, (unsigned long long)row);
	return rc;
}

static int add_list_levels(const struct reading *r, const struct page *p, struct mfs_buf *b,
			   struct mfs_error *err)
{
	struct levels levels = {.repetition = malloc((p->entries + 7) / 8)};
	int rc = levels.repetition ? list_levels(r, p, &levels, err) : mfs_fail_nomem(err);

	if (!rc) {
		add_length(b, mfs_parquet_packed_size(p->entries));
		mfs_parquet_packed(b, levels.repetition, p->entries);
		add_length(b, levels.definition.len);
		mfs_buf_add(b, levels.definition.data, levels.definition.len);
	}
	free(levels.repetition);
	mfs_buf_release(&levels.definition);
	return rc;
}

static int add_value_levels(const struct page *p, struct mfs_buf *b)
{
	add_length(b, mfs_parquet_rle_size(p->entries));
	mfs_parquet_rle(b, MFS_PARQUET_VALUE, p->entries);
	return 0;
}

/* What stands before the values of a page. */
static int make_head(const struct reading *r, const struct page *p, struct mfs_buf *b,
		     struct mfs_error *err)
{
	const uint64_t values = p->values * r->c->width;
	uint8_t header[MFS_PARQUET_PAGE_HEADER];
	struct mfs_buf levels = {0};
	int rc = r->c->number ? add_value_levels(p, &levels) : add_list_levels(r, p, &levels, err);

	if (!rc) {
		mfs_buf_add(b, header,
			    mfs_parquet_page_header(levels.len + values, p->entries, header));
		mfs_buf_add(b, levels.data, levels.len);
		if (levels.failed || b->failed)
			rc = mfs_fail_nomem(err);
		else if (b->len + values != p->size)
			rc = mfs_fail(err, -EIO, "%s: lengths of rows have changed",
				      r->v->rows->name);
	}
	mfs_buf_release(&levels);
	return rc;
}

static int read_head(const struct reading *r, const struct page *p, uint64_t off, uint8_t *buf,
		     size_t len, struct mfs_error *err)
{
	struct mfs_buf b = {0};
	int rc = make_head(r, p, &b, err);

	if (!rc)
		memcpy(buf, b.data + off, len);
	mfs_buf_release(&b);
	return rc;
}

/* Bytes [off, off+len) of a page. */
static int read_page(const struct reading *r, const struct page *p, uint64_t off, uint8_t *buf,
		     size_t len, struct mfs_error *err)
{
	const uint64_t head = p->size - p->values * r->c->width;
	int rc = 0;

	if (off < head) {
		const size_t n = mfs_min_u64(len, head - off);

		rc = read_head(r, p, off, buf, n, err);
		off += n;
		buf += n;
		len -= n;
	}
	if (rc || !len)
		return rc;
	return mfs_elements_read(&r->c->values, p->first * r->c->width + (off - head), buf, len,
				 err);
}

int mfs_parquet_read_chunk(const struct mfs_parquet_image *v, struct group *g, size_t column,
			   uint64_t off, uint8_t *buf, size_t len, struct mfs_error *err)
{
	struct reading r = {.v = v, .g = g, .c = &v->columns[column]};
	struct page p;
	size_t n;
	int rc = mfs_parquet_index(v, g, &r.index, err);

	if (rc)
		return rc;
	mfs_parquet_measure(v, g, r.index, column, &r.chunk);
	if (mfs_parquet_is_text(v, column) && off < r.chunk.size) {
		n = mfs_min_u64(len, r.chunk.size - off);
		rc = mfs_parquet_read_text(v, g, r.index->text, off, buf, n, err);
		memset(buf + n, 0, len - n);
		return rc;
	}
	for (; len && off < r.chunk.size && !rc; off += n, buf += n, len -= n) {
		find_page(&r, off, &p);
		n = mfs_min_u64(len, p.at + p.size - off);
		rc = read_page(&r, &p, off - p.at, buf, n, err);
	}
	if (!rc)
		memset(buf, 0, len);
	return rc;
}

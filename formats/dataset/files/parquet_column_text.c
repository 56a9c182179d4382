/* The column of texts: pages of so many rows each. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/files/parquet_image_i.h"

#define LENGTH 4 /* bytes of the length that stands before levels */

/* Encodings.md, PLAIN: BYTE_ARRAY. */
static const struct mfs_text_layout layout = {.form = MFS_TEXT_PLAIN, .has_length = true};

int mfs_parquet_text_rows(struct mfs_parquet_image *v, struct mfs_error *err)
{
	const uint64_t rows = v->rows->rows;
	uint64_t size;
	int rc = mfs_row_text_at(v->config.text, &layout, rows, &size, err);

	if (rc)
		return rc;
	v->text_rows = rows && size > rows ? MFS_PARQUET_TEXT_PAGE / (size / rows) : rows;
	v->text_rows = mfs_min_u64(mfs_max_u64(v->text_rows, 1), v->config.page);
	return 0;
}

int mfs_parquet_text_size(const struct mfs_parquet_image *v, const struct group *g, uint64_t *ret,
			  struct mfs_error *err)
{
	uint64_t before, end;
	int rc = mfs_row_text_at(v->config.text, &layout, g->first, &before, err);

	if (!rc)
		rc = mfs_row_text_at(v->config.text, &layout, g->end, &end, err);
	if (!rc)
		*ret = end - before;
	return rc;
}

static uint64_t pages_of(const struct mfs_parquet_image *v, const struct group *g)
{
	return (g->end - g->first + v->text_rows - 1) / v->text_rows;
}

uint64_t mfs_parquet_text_room(const struct mfs_parquet_image *v, const struct group *g)
{
	return pages_of(v, g) * MFS_PARQUET_PAGE_EXTRA + g->text;
}

/* ---- pages ---- */

static uint64_t first_row(const struct mfs_parquet_image *v, const struct group *g, uint64_t page)
{
	return mfs_min_u64(g->first + page * v->text_rows, g->end);
}

/* What stands before the values of a page, of so many rows: its header and levels. */
static void add_head(struct mfs_buf *b, uint64_t rows, uint64_t values)
{
	uint8_t header[MFS_PARQUET_PAGE_HEADER], length[8];
	const uint64_t levels = mfs_parquet_rle_size(rows);

	mfs_buf_add(b, header, mfs_parquet_page_header(LENGTH + levels + values, rows, header));
	mfs_put_le64(length, levels);
	mfs_buf_add(b, length, LENGTH);
	mfs_parquet_rle(b, MFS_PARQUET_VALUE, rows);
}

static int place_page(const struct mfs_parquet_image *v, const struct group *g, uint64_t page,
		      uint64_t *size, struct mfs_error *err)
{
	const struct group rows = {.first = first_row(v, g, page),
				   .end = first_row(v, g, page + 1)};
	struct mfs_buf head = {0};
	uint64_t values;
	int rc = mfs_parquet_text_size(v, &rows, &values, err);

	if (!rc && values > INT32_MAX - MFS_PARQUET_PAGE_EXTRA)
		rc = mfs_fail(err, -ENOTSUP,
			      "%s: the texts of rows %llu to %llu are too large for a page",
			      v->rows->name, (unsigned long long)rows.first,
			      (unsigned long long)rows.end - 1);
	if (rc)
		return rc;
	add_head(&head, rows.end - rows.first, values);
	*size = head.len + values;
	if (head.failed)
		rc = mfs_fail_nomem(err);
	mfs_buf_release(&head);
	return rc;
}

int mfs_parquet_text_places(const struct mfs_parquet_image *v, const struct group *g,
			    struct text_places **ret, struct mfs_error *err)
{
	const uint64_t pages = pages_of(v, g);
	struct text_places *p = malloc(sizeof(*p) + (pages + 1) * sizeof(p->at[0]));
	uint64_t size;
	int rc = 0;

	if (!p)
		return mfs_fail_nomem(err);
	p->pages = pages;
	p->at[0] = 0;
	for (uint64_t i = 0; i < pages && !rc; i++) {
		rc = place_page(v, g, i, &size, err);
		p->at[i + 1] = rc ? 0 : p->at[i] + size;
	}
	if (rc)
		free(p);
	else
		*ret = p;
	return rc;
}

/* ---- bytes ---- */

/* Bytes [off, off+len) of a page. */
static int read_page(const struct mfs_parquet_image *v, const struct group *rows, uint64_t off,
		     uint8_t *buf, size_t len, struct mfs_error *err)
{
	struct mfs_buf head = {0};
	uint64_t before, values;
	size_t n = 0;
	int rc = mfs_parquet_text_size(v, rows, &values, err);

	if (!rc)
		rc = mfs_row_text_at(v->config.text, &layout, rows->first, &before, err);
	if (rc)
		return rc;
	add_head(&head, rows->end - rows->first, values);
	if (head.failed) {
		rc = mfs_fail_nomem(err);
	} else if (off < head.len) {
		n = mfs_min_u64(len, head.len - off);
		memcpy(buf, head.data + off, n);
	}
	if (!rc && n < len)
		rc = mfs_row_text_read(v->config.text, &layout, before + off + n - head.len,
				       buf + n, len - n, err);
	mfs_buf_release(&head);
	return rc;
}

int mfs_parquet_read_text(const struct mfs_parquet_image *v, const struct group *g,
			  const struct text_places *places, uint64_t off, uint8_t *buf, size_t len,
			  struct mfs_error *err)
{
	uint64_t page = mfs_last_while(i, places->pages, places->at[i] <= off);
	int rc = 0;

	for (size_t n; len && !rc; page++, off += n, buf += n, len -= n) {
		const struct group rows = {.first = first_row(v, g, page),
					   .end = first_row(v, g, page + 1)};

		n = mfs_min_u64(len, places->at[page + 1] - off);
		rc = read_page(v, &rows, off - places->at[page], buf, n, err);
	}
	return rc;
}

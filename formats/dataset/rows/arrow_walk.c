/* From the record batches of one file to extents of rows: two small reads of each batch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/arrow/arrow_ipc.h"
#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/dataset/rows/arrow_rows_i.h"

#define BLOCK 1024 /* rows whose validity is looked at at once; a multiple of 8 */

/* ---- which column ---- */

static int refuse_columns(const struct mfs_arrow *a, const struct mfs_arrow_shard *p,
			  const char *why, struct mfs_error *err)
{
	const uint32_t count = mfs_arrow_column_count(a);
	struct mfs_buf list = {0};
	char text[64];
	int rc;

	for (uint32_t i = 0; i < count && list.len < 400; i++) {
		const struct mfs_arrow_column *c = mfs_arrow_column(a, i);

		mfs_buf_printf(&list, "%s%s: %s", i ? ", " : "", c->name,
			       mfs_arrow_type_text(c, text, sizeof(text)));
	}
	rc = mfs_fail(err, -ENODATA, "%s: %s; its columns are %.400s", p->src.name, why,
		      count && !list.failed ? list.data : "none");
	mfs_buf_release(&list);
	return rc;
}

/* The columns of that name: one, if the file is sound. */
static uint32_t columns_called(const struct mfs_arrow *a, const char *name,
			       const struct mfs_arrow_column **ret)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < mfs_arrow_column_count(a); i++)
		if (!strcmp(mfs_arrow_column(a, i)->name, name)) {
			*ret = mfs_arrow_column(a, i);
			found++;
		}
	return found;
}

/* The column that config names, with the kind of values that it must have. */
static int named_column(const struct mfs_arrow *a, const struct mfs_arrow_shard *p,
			const char *name, bool integers, const struct mfs_arrow_column **ret,
			struct mfs_error *err)
{
	const struct mfs_arrow_column *c = NULL;
	const uint32_t found = columns_called(a, name, &c);
	char text[64], why[160];

	if (found != 1) {
		snprintf(why, sizeof(why), "it has %s column '%s'", found ? "more than one" : "no",
			 name);
		return refuse_columns(a, p, why, err);
	}
	if (integers ? !mfs_arrow_is_int(c) : !mfs_arrow_is_int_list(c))
		return mfs_fail(err, -ENOTSUP, "%s: column '%s' is %s, expected %s%s", p->src.name,
				name, mfs_arrow_type_text(c, text, sizeof(text)),
				integers ? "integers" : "lists of token ids",
				c->type == MFS_ARROW_UTF8 || c->type == MFS_ARROW_LARGE_UTF8
					? ": text must be tokenised first"
					: "");
	*ret = c;
	return 0;
}

static int only_column(const struct mfs_arrow *a, const struct mfs_arrow_shard *p,
		       const struct mfs_arrow_column **ret, struct mfs_error *err)
{
	const struct mfs_arrow_column *found = NULL;

	for (uint32_t i = 0; i < mfs_arrow_column_count(a); i++) {
		const struct mfs_arrow_column *c = mfs_arrow_column(a, i);

		if (!mfs_arrow_is_int_list(c))
			continue;
		if (found)
			return refuse_columns(
				a, p,
				"more than one column could be that of the token ids: name it",
				err);
		found = c;
	}
	if (!found)
		return refuse_columns(
			a, p,
			"no column of token ids (lists of integers): text must be tokenised first",
			err);
	*ret = found;
	return 0;
}

int mfs_arrow_choose_column(const struct mfs_arrow_shard *p, const struct mfs_source *src,
			    const struct mfs_arrow_rows_config *config, char **ret,
			    struct mfs_error *err)
{
	const struct mfs_arrow_column *c = NULL;
	struct mfs_arrow *a;
	int rc = mfs_arrow_open(src, &a, err);

	if (rc)
		return rc;
	if (config->column)
		rc = named_column(a, p, config->column, config->integers, &c, err);
	else if (columns_called(a, "input_ids", &c))
		rc = named_column(a, p, "input_ids", false, &c, err);
	else
		rc = only_column(a, p, &c, err);
	if (!rc) {
		*ret = strdup(c->name);
		if (!*ret)
			rc = mfs_fail_nomem(err);
	}
	mfs_arrow_free(a);
	return rc;
}

/* ---- extents ---- */

struct walk {
	struct mfs_arrow_shard *shard;
	struct mfs_source src;
	const struct mfs_arrow_column *column;
	unsigned size;	 /* bytes of a token */
	unsigned offset; /* of a list offset; 0: lists of a fixed size */
	uint32_t length; /* their size */
};

/* The last extent says where the rows end, and is there from the beginning. */
static int reserve(struct mfs_arrow_shard *p)
{
	if (!p->extents) {
		if (mfs_grow(&p->extents, p->extent_count))
			return -ENOMEM;
		p->extents[0] = (struct mfs_arrow_extent){0};
	}
	return mfs_grow(&p->extents, p->extent_count + 1);
}

/* extent.row and token are filled here. */
static int add_extent(struct walk *w, struct mfs_arrow_extent extent, uint64_t rows,
		      uint64_t tokens, struct mfs_error *err)
{
	struct mfs_arrow_shard *p = w->shard;
	struct mfs_arrow_extent *end;

	if (!rows)
		return 0;
	if (reserve(p))
		return mfs_fail_nomem(err);
	end = &p->extents[p->extent_count];
	extent.row = end->row;
	extent.token = end->token;
	*end++ = extent;
	p->extent_count++;
	*end = (struct mfs_arrow_extent){0};
	if (mfs_add_overflows(extent.row, rows, &end->row) || end->row > INT64_MAX ||
	    mfs_add_overflows(extent.token, tokens, &end->token) || end->token > INT64_MAX)
		return mfs_fail(err, -EINVAL, "%s: it has too many rows or tokens", p->src.name);
	return 0;
}

static int damaged(const struct walk *w, const struct mfs_arrow_batch *b, const char *what,
		   struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: record batch %llu, column '%s': %s", w->shard->src.name,
			(unsigned long long)b->number, w->column->name, what);
}

/* An offset below 0 is larger than any number of elements. */
static uint64_t offset_at(const struct walk *w, const uint8_t *offsets, uint64_t i)
{
	if (w->offset == 8)
		return mfs_le64(offsets + 8 * i);
	return (uint64_t)(int64_t)(int32_t)mfs_le32(offsets + 4 * i);
}

/* Elements [first, end) are rows' tokens: none of them may be null. */
static int check_items(struct walk *w, const struct mfs_arrow_batch *b,
		       const struct mfs_arrow_array *a, uint64_t first, uint64_t end,
		       struct mfs_error *err)
{
	uint8_t bits[BLOCK / 8];
	int rc = 0;

	while (first < end && !rc) {
		const uint64_t byte = first / 8,
			       n = mfs_min_u64(sizeof(bits), (end + 7) / 8 - byte);

		rc = mfs_source_read(&w->src, a->item_validity + byte, bits, n, err);
		for (; first < end && first / 8 < byte + n && !rc; first++)
			if (!(bits[first / 8 - byte] >> first % 8 & 1))
				rc = mfs_fail(
					err, -ENOTSUP,
					"%s: record batch %llu, column '%s': one of the tokens "
					"is null",
					w->shard->src.name, (unsigned long long)b->number,
					w->column->name);
	}
	return rc;
}

/* Rows [first, end) of a batch, whose elements are [base, base_end). */
static int add_rows(struct walk *w, const struct mfs_arrow_batch *b,
		    const struct mfs_arrow_array *a, uint64_t first, uint64_t end, uint64_t base,
		    uint64_t base_end, struct mfs_error *err)
{
	struct mfs_arrow_extent extent = {.values = a->values + base * w->size,
					  .length = w->length};

	if (w->offset) {
		extent.offsets = a->offsets + first * w->offset;
		extent.base = base;
	}
	if (a->item_nulls) {
		int rc = check_items(w, b, a, base, base_end, err);

		if (rc)
			return rc;
	}
	return add_extent(w, extent, end - first, base_end - base, err);
}

static int add_without_nulls(struct walk *w, const struct mfs_arrow_batch *b,
			     const struct mfs_arrow_array *a, struct mfs_error *err)
{
	uint64_t base = 0, end = a->rows * w->length; /* checked by mfs_arrow_array() */
	uint8_t bytes[2][8];
	int rc;

	if (w->offset && a->rows) {
		rc = mfs_source_read(&w->src, a->offsets, bytes[0], w->offset, err);
		if (!rc)
			rc = mfs_source_read(&w->src, a->offsets + a->rows * w->offset, bytes[1],
					     w->offset, err);
		if (rc)
			return rc;
		base = offset_at(w, bytes[0], 0);
		end = offset_at(w, bytes[1], 0);
	}
	if (base > end || end > a->items)
		return damaged(w, b, "list offsets point outside of its elements", err);
	return add_rows(w, b, a, 0, a->rows, base, end, err);
}

/* Rows of a batch with nulls, so far as they were looked at. */
struct null_pass {
	uint64_t first,
		/* of the rows that are not in the table yet: their number, their first element */
		base;
	bool hidden; /* they are null and have elements */
	uint64_t nulls;
};

static int end_rows(struct walk *w, const struct mfs_arrow_batch *b,
		    const struct mfs_arrow_array *a, const struct null_pass *n, uint64_t end,
		    uint64_t base_end, struct mfs_error *err)
{
	if (n->hidden)
		return add_extent(w, (struct mfs_arrow_extent){0}, end - n->first, 0, err);
	return add_rows(w, b, a, n->first, end, n->base, base_end, err);
}

/* One more row, of the elements [from, to). */
static int look_at_row(struct walk *w, const struct mfs_arrow_batch *b,
		       const struct mfs_arrow_array *a, struct null_pass *n, uint64_t row,
		       bool null, uint64_t from, uint64_t to, struct mfs_error *err)
{
	const bool hidden = null && to > from;
	int rc = 0;

	if (from > to || to > a->items)
		return damaged(w, b, "list offsets point outside of its elements", err);
	n->nulls += null;
	if (row && hidden == n->hidden)
		return 0;
	if (row)
		rc = end_rows(w, b, a, n, row, from, err);
	n->first = row;
	n->base = from;
	n->hidden = hidden;
	return rc;
}

static int look_at_block(struct walk *w, const struct mfs_arrow_batch *b,
			 const struct mfs_arrow_array *a, struct null_pass *n, uint64_t first,
			 uint64_t count, uint64_t *ret_end, struct mfs_error *err)
{
	uint8_t validity[BLOCK / 8], offsets[(BLOCK + 1) * 8];
	int rc = mfs_source_read(&w->src, a->validity + first / 8, validity, (count + 7) / 8, err);

	if (!rc && w->offset)
		rc = mfs_source_read(&w->src, a->offsets + first * w->offset, offsets,
				     (count + 1) * w->offset, err);
	for (uint64_t i = 0; i < count && !rc; i++) {
		const bool null = !(validity[i / 8] >> i % 8 & 1);
		uint64_t from = (first + i) * w->length, to = from + w->length;

		if (w->offset) {
			from = offset_at(w, offsets, i);
			to = offset_at(w, offsets, i + 1);
		}
		*ret_end = to;
		rc = look_at_row(w, b, a, n, first + i, null, from, to, err);
	}
	return rc;
}

/* A null row may have elements that are not shown, so all rows of a batch with nulls are looked
 * at. */
static int add_with_nulls(struct walk *w, const struct mfs_arrow_batch *b,
			  const struct mfs_arrow_array *a, struct mfs_error *err)
{
	struct null_pass n = {0};
	uint64_t end = 0;
	int rc = 0;

	if (w->column->type == MFS_ARROW_INT)
		return mfs_fail(err, -ENOTSUP, "%s: record batch %llu: column '%s' has nulls",
				w->shard->src.name, (unsigned long long)b->number, w->column->name);
	for (uint64_t first = 0; first < a->rows && !rc; first += BLOCK)
		rc = look_at_block(w, b, a, &n, first, mfs_min_u64(BLOCK, a->rows - first), &end,
				   err);
	if (!rc && n.nulls != a->nulls)
		rc = damaged(w, b, "it has another number of nulls than it says", err);
	return rc ? rc : end_rows(w, b, a, &n, a->rows, end, err);
}

static int walk_batches(struct walk *w, struct mfs_arrow *arrow, struct mfs_error *err)
{
	struct mfs_arrow_batch b;
	struct mfs_arrow_array a;
	bool end = false;
	int rc;

	for (;;) {
		rc = mfs_arrow_next(arrow, &b, &end, err);
		if (rc || end)
			return rc;
		rc = mfs_arrow_array(arrow, &b, w->column, &a, err);
		if (!rc)
			rc = a.nulls ? add_with_nulls(w, &b, &a, err)
				     : add_without_nulls(w, &b, &a, err);
		if (rc)
			return rc;
	}
}

static int walk_column(struct mfs_arrow_shard *p, const struct mfs_source *src,
		       struct mfs_arrow *arrow, struct mfs_arrow_token_column *column,
		       struct mfs_error *err)
{
	struct walk w = {.shard = p, .src = *src};
	int rc = named_column(arrow, p, column->name, column->integers, &w.column, err);

	if (rc)
		return rc;
	if (!column->dtype)
		column->dtype = w.column->dtype;
	if (w.column->dtype != column->dtype)
		return mfs_fail(err, -EINVAL,
				"%s: column '%s' has elements of %s, those of the files before it "
				"are %s",
				p->src.name, column->name, mfs_dtype_torch(w.column->dtype),
				mfs_dtype_torch(column->dtype));
	w.size = mfs_dtype_size(column->dtype);
	p->wide = w.column->type == MFS_ARROW_LARGE_LIST;
	if (p->wide || w.column->type == MFS_ARROW_LIST)
		w.offset = p->wide ? 8 : 4;
	else
		w.length = column->integers ? 1 : w.column->list_size;
	if (reserve(p))
		return mfs_fail_nomem(err);
	return walk_batches(&w, arrow, err);
}

int mfs_arrow_walk(struct mfs_arrow_shard *p, const struct mfs_source *src,
		   struct mfs_arrow_token_column *column, struct mfs_error *err)
{
	struct mfs_arrow *arrow;
	int rc = mfs_arrow_open(src, &arrow, err);

	if (rc)
		return rc;
	rc = walk_column(p, src, arrow, column, err);
	mfs_arrow_free(arrow);
	return rc;
}

/* The values of a column, one after the other, whatever pages they are in. */
#include "formats/text/parquet/parquet_i.h"

#include "formats/base/bytes.h"

static int begin_values(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	struct mfs_pq_runs lengths = {.at = c->next, .end = c->page_end};

	switch (c->encoding) {
	case MFS_PQ_PLAIN:
		return 0;
	case MFS_PQ_PLAIN_DICTIONARY:
	case MFS_PQ_RLE_DICTIONARY:
		c->numbers = (struct mfs_pq_runs){0};
		if (c->next == c->page_end)
			return 0; /* of nulls alone */
		c->numbers = (struct mfs_pq_runs){
			.at = c->next + 1, .end = c->page_end, .width = *c->next};
		return c->numbers.width <= 32 ? 0 : mfs_pq_damaged(t, "numbers of words", err);
	case MFS_PQ_DELTA_LENGTH:
		if (!mfs_pq_lengths_read(c, &lengths))
			return mfs_pq_damaged(t, "lengths", err);
		c->next = lengths.at;
		return 0;
	default:
		return mfs_fail(err, -ENOTSUP,
				"%s: its column '%s' has encoding %d: PLAIN, dictionaries and "
				"DELTA_LENGTH_BYTE_ARRAY are read here",
				t->src.name, c->name, c->encoding);
	}
}

static int begin_page(struct mfs_pq_table *t, struct mfs_pq_column *c, const struct mfs_pq_page *p,
		      struct mfs_error *err)
{
	uint64_t levels = (uint64_t)p->levels;
	int rc = mfs_pq_page_load(t, c, p, &c->page, err);

	if (rc)
		return rc;
	c->page_values = (uint64_t)p->values;
	c->encoding = (int)p->encoding;
	c->next = c->page.at + p->repetitions;
	c->page_end = c->page.at + p->size;
	if (p->type == MFS_PQ_DATA_PAGE && c->optional) {
		if (c->page_end - c->next < 4)
			return mfs_pq_damaged(t, "a page's levels", err);
		levels = mfs_le32(c->next);
		c->next += 4;
	}
	if (levels > (uint64_t)(c->page_end - c->next) || c->page_values > c->values)
		return mfs_pq_damaged(t, "a page's levels", err);
	c->levels = (struct mfs_pq_runs){.at = c->next, .end = c->next + levels, .width = 1};
	c->next += levels;
	return begin_values(t, c, err);
}

/* Goes on until there is a page with values. */
static int next_page(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	struct mfs_pq_page p;
	int rc = 0;

	while (!rc && !c->page_values) {
		if (c->at >= c->end)
			return mfs_pq_damaged(t, "a column ends too early", err);
		rc = mfs_pq_page_header(t, c, &p, err);
		if (rc)
			break;
		if (p.type == MFS_PQ_DICTIONARY_PAGE)
			rc = mfs_pq_dictionary_load(t, c, &p, err);
		else if (p.type == MFS_PQ_DATA_PAGE || p.type == MFS_PQ_DATA_PAGE_V2)
			rc = begin_page(t, c, &p, err);
		else
			c->at += (uint64_t)p.packed;
	}
	return rc;
}

static bool take_value(struct mfs_pq_column *c, struct mfs_pq_slice *ret)
{
	uint32_t n;

	switch (c->encoding) {
	case MFS_PQ_PLAIN:
		return mfs_pq_plain(&c->next, c->page_end, ret);
	case MFS_PQ_DELTA_LENGTH:
		if (c->length_at == c->length_count)
			return false;
		n = c->lengths[c->length_at++];
		if (n > (size_t)(c->page_end - c->next))
			return false;
		*ret = (struct mfs_pq_slice){c->next, n};
		c->next += n;
		return true;
	default:
		if (!mfs_pq_runs_next(&c->numbers, &n) || n >= c->word_count)
			return false;
		*ret = c->words[n];
		return true;
	}
}

/* The next value of a column; ret->at is NULL for null. */
int mfs_pq_value(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_slice *ret,
		 struct mfs_error *err)
{
	uint32_t there = 1;
	int rc = c->page_values ? 0 : next_page(t, c, err);

	if (rc)
		return rc;
	c->page_values--;
	c->values--;
	*ret = (struct mfs_pq_slice){NULL, 0};
	if ((c->optional && !mfs_pq_runs_next(&c->levels, &there)) || there > 1 ||
	    (there && !take_value(c, ret)))
		return mfs_pq_damaged(t, "a value", err);
	return 0;
}

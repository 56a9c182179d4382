/* The values of a column, one after the other, whatever pages they are in. */
#include "formats/text/parquet/parquet_i.h"

#include "formats/base/bytes.h"

static int begin_words(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	c->numbers = (struct mfs_pq_runs){0};
	if (c->next == c->page_end)
		return 0; /* of nulls alone */
	c->numbers = (struct mfs_pq_runs){.at = c->next + 1, .end = c->page_end, .width = *c->next};
	return c->numbers.width <= 32 ? 0 : mfs_pq_damaged(t, "numbers of words", err);
}

/* Of PLAIN they are bits, one after the other; of RLE runs, whose length stands before them. */
static int begin_booleans(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	c->numbers = (struct mfs_pq_runs){.at = c->next, .end = c->page_end, .width = 1};
	if (c->encoding == MFS_PQ_PLAIN) {
		c->numbers.packed = true;
		c->numbers.left = UINT64_MAX;
		return 0;
	}
	if (c->next == c->page_end)
		return 0;
	if (c->page_end - c->next < 4)
		return mfs_pq_damaged(t, "booleans", err);
	c->numbers.at += 4;
	return 0;
}

static int begin_values(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	struct mfs_pq_runs lengths = {.at = c->next, .end = c->page_end};
	const bool is_boolean = c->type == MFS_PQ_BOOLEAN, is_text = c->type == MFS_PQ_BYTE_ARRAY;

	if (is_boolean && (c->encoding == MFS_PQ_PLAIN || c->encoding == MFS_PQ_RLE))
		return begin_booleans(t, c, err);
	if (c->encoding == MFS_PQ_PLAIN)
		return 0;
	if (!is_boolean &&
	    (c->encoding == MFS_PQ_PLAIN_DICTIONARY || c->encoding == MFS_PQ_RLE_DICTIONARY))
		return begin_words(t, c, err);
	if (is_text && c->encoding == MFS_PQ_DELTA_LENGTH) {
		if (!mfs_pq_lengths_read(c, &lengths))
			return mfs_pq_damaged(t, "lengths", err);
		c->next = lengths.at;
		return 0;
	}
	return mfs_fail(err, -ENOTSUP,
			"%s: its column '%s' has encoding %d: PLAIN, dictionaries and %s are read "
			"here",
			t->src.name, c->name, c->encoding,
			is_text ? "DELTA_LENGTH_BYTE_ARRAY" : "RLE of booleans");
}

static unsigned bits_of(uint32_t most)
{
	unsigned bits = 0;

	for (; most; most >>= 1)
		bits++;
	return bits;
}

/* Levels up to a largest one, of stated bytes; of version 1 their length stands before them. */
static bool take_levels(struct mfs_pq_column *c, uint32_t most, bool has_length, uint64_t len,
			struct mfs_pq_runs *ret)
{
	if (has_length && most) {
		if (c->page_end - c->next < 4)
			return false;
		len = mfs_le32(c->next);
		c->next += 4;
	}
	if (len > (uint64_t)(c->page_end - c->next))
		return false;
	*ret = (struct mfs_pq_runs){.at = c->next, .end = c->next + len, .width = bits_of(most)};
	c->next += len;
	return true;
}

static int begin_page(struct mfs_pq_table *t, struct mfs_pq_column *c, const struct mfs_pq_page *p,
		      struct mfs_error *err)
{
	const bool first = p->type == MFS_PQ_DATA_PAGE;
	int rc = mfs_pq_page_load(t, c, p, &c->page, err);

	if (rc)
		return rc;
	c->page_values = (uint64_t)p->values;
	c->encoding = (int)p->encoding;
	c->next = c->page.at;
	c->page_end = c->page.at + p->size;
	if (!take_levels(c, c->rep_max, first, (uint64_t)p->repetitions, &c->rep_levels) ||
	    !take_levels(c, c->def_max, first, (uint64_t)p->levels, &c->def_levels) ||
	    c->page_values > c->values)
		return mfs_pq_damaged(t, "a page's levels", err);
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

static bool take_boolean(struct mfs_pq_column *c, struct mfs_pq_slice *ret)
{
	static const uint8_t values[] = {0, 1};
	uint32_t n;

	if (c->encoding == MFS_PQ_PLAIN ? !mfs_pq_runs_packed(&c->numbers, &n)
					: !mfs_pq_runs_next(&c->numbers, &n))
		return false;
	*ret = (struct mfs_pq_slice){&values[n & 1], 1};
	return true;
}

static bool take_value(struct mfs_pq_column *c, struct mfs_pq_slice *ret)
{
	uint32_t n;

	if (c->type == MFS_PQ_BOOLEAN)
		return take_boolean(c, ret);
	switch (c->encoding) {
	case MFS_PQ_PLAIN:
		return mfs_pq_plain(c, &c->next, c->page_end, ret);
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

int mfs_pq_peek(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_error *err)
{
	int rc = 0;

	if (c->has_levels)
		return 0;
	c->rep = c->def = 0;
	if (!c->values)
		return 0;
	if (!c->page_values)
		rc = next_page(t, c, err);
	if (rc)
		return rc;
	c->page_values--;
	c->values--;
	c->has_levels = true;
	if ((c->rep_max && !mfs_pq_runs_next(&c->rep_levels, &c->rep)) ||
	    (c->def_max && !mfs_pq_runs_next(&c->def_levels, &c->def)) || c->rep > c->rep_max ||
	    c->def > c->def_max)
		return mfs_pq_damaged(t, "a value", err);
	return 0;
}

int mfs_pq_take(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_pq_slice *ret,
		struct mfs_error *err)
{
	int rc = mfs_pq_peek(t, c, err);

	if (rc)
		return rc;
	if (!c->has_levels)
		return mfs_pq_damaged(t, "a column ends too early", err);
	c->has_levels = false;
	*ret = (struct mfs_pq_slice){NULL, 0};
	return c->def < c->def_max || take_value(c, ret) ? 0 : mfs_pq_damaged(t, "a value", err);
}

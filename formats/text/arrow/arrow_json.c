/* Values as JSON. Every length and number of a batch is checked where it is used. */
#include "formats/text/arrow/arrow_text_i.h"

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/base/tensor.h"

#define VIEW	   16 /* bytes: the length, and the string; or its beginning, a buffer, an offset */
#define VIEW_SHORT 12 /* the longest string that is in its view */

static int get_bit(struct mfs_arrow_bytes *bits, const struct mfs_arrow_table *t, uint64_t i,
		   bool *ret, struct mfs_error *err)
{
	const uint8_t *byte;
	int rc = mfs_arrow_bytes_get(bits, t, i / 8, 1, &byte, err);

	if (!rc)
		*ret = *byte >> i % 8 & 1;
	return rc;
}

static int get_int(struct mfs_arrow_bytes *data, const struct mfs_arrow_table *t,
		   enum mfs_dtype dtype, uint64_t i, uint64_t *ret, struct mfs_error *err)
{
	const uint64_t size = mfs_dtype_size(dtype);
	const uint8_t *at;
	int rc = mfs_arrow_bytes_get(data, t, i * size, size, &at, err);

	if (rc)
		return rc;
	*ret = size == 1 ? *at : size == 2 ? mfs_le16(at) : size == 4 ? mfs_le32(at) : mfs_le64(at);
	if (dtype == MFS_I8)
		*ret = (uint64_t)(int8_t)*ret;
	else if (dtype == MFS_I16)
		*ret = (uint64_t)(int16_t)*ret;
	else if (dtype == MFS_I32)
		*ret = (uint64_t)(int32_t)*ret;
	return 0;
}

/* Offsets i and i + 1 of strings or lists. */
static int get_range(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t i,
		     bool large, uint64_t ret[2], struct mfs_error *err)
{
	const uint64_t size = large ? 8 : 4;
	const uint8_t *at;
	int rc = mfs_arrow_bytes_get(&v->offsets, t, i * size, 2 * size, &at, err);

	if (rc)
		return rc;
	for (int k = 0; k < 2; k++)
		ret[k] = large ? mfs_le64(at + 8 * k) : mfs_le32(at + 4 * k);
	if (ret[0] > ret[1] || ret[1] > INT64_MAX || (!large && ret[1] > INT32_MAX))
		return mfs_arrow_damaged(t, "its offsets do not ascend", err);
	return 0;
}

/* ---- strings ---- */

static int add_string(struct mfs_arrow_bytes *bytes, const struct mfs_arrow_table *t, uint64_t at,
		      uint64_t len, struct mfs_table_row *to, struct mfs_error *err)
{
	const uint8_t *text;
	int rc;

	if (len > MFS_TABLE_ROW_MAX)
		return mfs_table_row_string(to, NULL, len, err);
	rc = mfs_arrow_bytes_get(bytes, t, at, len, &text, err);
	return rc ? rc : mfs_table_row_string(to, text, len, err);
}

static int add_view(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t i,
		    struct mfs_table_row *to, struct mfs_error *err)
{
	const uint8_t *view;
	uint32_t len, buffer;
	int rc = mfs_arrow_bytes_get(&v->offsets, t, i * VIEW, VIEW, &view, err);

	if (rc)
		return rc;
	len = mfs_le32(view);
	if (len <= VIEW_SHORT)
		return mfs_table_row_string(to, view + 4, len, err);
	buffer = mfs_le32(view + 8);
	if (buffer >= v->view_count)
		return mfs_arrow_damaged(t, "a view is of a buffer that is not there", err);
	return add_string(&v->views[buffer], t, mfs_le32(view + 12), len, to, err);
}

static int add_word(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		    struct mfs_table_row *to, struct mfs_error *err)
{
	struct mfs_arrow_dictionary *d = v->dictionary;
	uint64_t word, part;
	int rc = get_int(&v->data, t, v->column->index, row, &word, err);

	if (rc)
		return rc;
	if (d->part_count) {
		part = mfs_last_while(i, d->part_count, d->firsts[i] <= word);
		word -= d->firsts[part];
		if (word < d->parts[part].rows)
			return mfs_arrow_json(&d->parts[part], t, word, to, err);
	}
	return mfs_arrow_damaged(t, "a number of a word that its dictionary does not have", err);
}

/* ---- nested values ---- */

static int add_list(struct mfs_arrow_values *v, const struct mfs_arrow_table *t,
		    const uint64_t range[2], struct mfs_table_row *to, struct mfs_error *err)
{
	int rc = mfs_table_row_add(to, "[", err);

	if (!rc && range[1] > v->children->rows)
		rc = mfs_arrow_damaged(t, "a list has more elements than there are", err);
	for (uint64_t i = range[0]; i < range[1] && !rc; i++) {
		if (i > range[0])
			rc = mfs_table_row_add(to, ", ", err);
		if (!rc)
			rc = mfs_arrow_json(v->children, t, i, to, err);
	}
	return rc ? rc : mfs_table_row_add(to, "]", err);
}

static int add_fixed_list(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
			  struct mfs_table_row *to, struct mfs_error *err)
{
	uint64_t range[2];

	if (mfs_mul_overflows(row, v->column->list_size, &range[0]) ||
	    mfs_add_overflows(range[0], v->column->list_size, &range[1]))
		return mfs_arrow_damaged(t, "a list has more elements than there are", err);
	return add_list(v, t, range, to, err);
}

static int add_struct(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		      struct mfs_table_row *to, struct mfs_error *err)
{
	int rc = mfs_table_row_add(to, "{", err);

	for (uint32_t i = 0; i < v->column->child_count && !rc; i++) {
		rc = mfs_table_row_member(to, !i, v->column->children[i].name, err);
		if (!rc)
			rc = mfs_arrow_json(&v->children[i], t, row, to, err);
	}
	return rc ? rc : mfs_table_row_add(to, "}", err);
}

/* ---- all ---- */

static int add_int(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		   struct mfs_table_row *to, struct mfs_error *err)
{
	uint64_t value;
	int rc = get_int(&v->data, t, v->column->dtype, row, &value, err);

	if (rc)
		return rc;
	return v->column->dtype == MFS_U64 ? mfs_table_row_uint(to, value, err)
					   : mfs_table_row_int(to, (int64_t)value, err);
}

static int add_bool(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		    struct mfs_table_row *to, struct mfs_error *err)
{
	bool value;
	int rc = get_bit(&v->data, t, row, &value, err);

	return rc ? rc : mfs_table_row_add(to, value ? "true" : "false", err);
}

static int add_value(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		     struct mfs_table_row *to, struct mfs_error *err)
{
	const enum mfs_arrow_type type = v->column->type;
	const bool large = type == MFS_ARROW_LARGE_UTF8 || type == MFS_ARROW_LARGE_LIST;
	uint64_t range[2];
	int rc;

	switch (type) {
	case MFS_ARROW_UTF8_VIEW:
		return add_view(v, t, row, to, err);
	case MFS_ARROW_INT:
		return add_int(v, t, row, to, err);
	case MFS_ARROW_BOOL:
		return add_bool(v, t, row, to, err);
	case MFS_ARROW_STRUCT:
		return add_struct(v, t, row, to, err);
	case MFS_ARROW_FIXED_SIZE_LIST:
		return add_fixed_list(v, t, row, to, err);
	default:
		break;
	}
	rc = get_range(v, t, row, large, range, err);
	if (rc)
		return rc;
	return type == MFS_ARROW_UTF8 || type == MFS_ARROW_LARGE_UTF8
		       ? add_string(&v->data, t, range[0], range[1] - range[0], to, err)
		       : add_list(v, t, range, to, err);
}

int mfs_arrow_json(struct mfs_arrow_values *v, const struct mfs_arrow_table *t, uint64_t row,
		   struct mfs_table_row *to, struct mfs_error *err)
{
	bool there = true;
	int rc = 0;

	if (row >= v->rows)
		return mfs_arrow_damaged(t, "an array has fewer values than it is asked for", err);
	if (v->column->type == MFS_ARROW_NULL)
		return mfs_table_row_add(to, "null", err);
	if (v->nulls)
		rc = get_bit(&v->validity, t, row, &there, err);
	if (rc)
		return rc;
	if (!there)
		return mfs_table_row_add(to, "null", err);
	return v->dictionary ? add_word(v, t, row, to, err) : add_value(v, t, row, to, err);
}

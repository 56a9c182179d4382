#include "formats/text/arrow/arrow_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/text/arrow/arrow_text_i.h"

static void close_table(void *arg)
{
	struct mfs_arrow_table *t = arg;

	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++)
		mfs_arrow_values_release(&t->columns[i]);
	free(t->columns);
	for (uint32_t i = 0; i < t->dictionary_count; i++)
		mfs_arrow_dictionary_free(t->dictionaries[i]);
	free(t->dictionaries);
	mfs_arrow_free(t->arrow);
	free(t);
}

static const struct mfs_arrow_column *find(const struct mfs_arrow *a, const char *name)
{
	for (uint32_t i = 0; i < mfs_arrow_column_count(a); i++)
		if (!strcmp(mfs_arrow_column(a, i)->name, name))
			return mfs_arrow_column(a, i);
	return NULL;
}

static int find_columns(struct mfs_arrow_table *t, const struct mfs_table_want *want,
			struct mfs_error *err)
{
	int rc = 0;

	t->columns = calloc(want->count, sizeof(*t->columns));
	if (!t->columns)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < want->count && !rc; i++) {
		const struct mfs_arrow_column *c = find(t->arrow, want->columns[i]);

		if (c)
			rc = mfs_arrow_values_init(&t->columns[t->count++], t, c, want->any, err);
		else if (!want->any)
			rc = mfs_fail(err, -ENODATA, "%s has no column '%s'", t->src.name,
				      want->columns[i]);
	}
	if (!rc && !t->count)
		rc = mfs_table_none(t->src.name, want, err);
	return rc;
}

static int open_table(const struct mfs_source *src, const struct mfs_table_want *want, void **ret,
		      struct mfs_error *err)
{
	struct mfs_arrow_table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return mfs_fail_nomem(err);
	t->taken = &t->windows;
	t->src = *src;
	rc = mfs_arrow_open(src, &t->arrow, err);
	if (!rc)
		rc = find_columns(t, want, err);
	if (rc)
		close_table(t);
	else
		*ret = t;
	return rc;
}

static int begin_batch(struct mfs_arrow_table *t, struct mfs_error *err)
{
	int rc = 0;

	t->row = 0;
	if (t->batch.rows > INT32_MAX)
		return mfs_fail(err, -ENOTSUP,
				"%s: record batch %llu has %llu rows: fewer than 2^31 are read",
				t->src.name, (unsigned long long)t->batch.number,
				(unsigned long long)t->batch.rows);
	for (size_t i = 0; i < t->count && !rc; i++) {
		t->column = t->columns[i].column->name;
		rc = mfs_arrow_values_set(&t->columns[i], t, &t->batch, err);
		if (!rc && t->columns[i].rows != t->batch.rows)
			rc = mfs_arrow_damaged(
				t, "a column and the batch differ in their number of rows", err);
	}
	return rc;
}

/* Goes on until there is a batch with rows. */
static int next_batch(struct mfs_arrow_table *t, bool *ret_end, struct mfs_error *err)
{
	int rc = 0;

	for (*ret_end = false; !rc && !*ret_end && t->row == t->batch.rows;) {
		t->row = t->batch.rows = 0;
		rc = mfs_arrow_next_any(t->arrow, &t->batch, ret_end, err);
		if (rc || *ret_end)
			t->batch.rows = 0;
		else if (!t->batch.is_dictionary)
			rc = begin_batch(t, err);
		else {
			rc = mfs_arrow_dictionary_add(t, &t->batch, err);
			t->batch.rows = 0;
		}
	}
	return rc;
}

static int next_row(void *arg, struct mfs_buf *to, bool *ret_end, struct mfs_error *err)
{
	struct mfs_arrow_table *t = arg;
	struct mfs_table_row row = {to, to->len, t->src.name};
	int rc = next_batch(t, ret_end, err);

	if (rc || *ret_end)
		return rc;
	mfs_buf_adds(to, "{");
	for (size_t i = 0; i < t->count && !rc; i++) {
		t->column = t->columns[i].column->name;
		rc = mfs_table_row_member(&row, !i, t->column, err);
		if (!rc)
			rc = mfs_arrow_json(&t->columns[i], t, t->row, &row, err);
	}
	t->row++;
	return rc ? rc : mfs_table_row_add(&row, "}\n", err);
}

/* A file's magic; or a stream's first message, as Arrow has written it since 0.15. */
static bool is_arrow(const uint8_t *first, size_t len)
{
	return (len >= 8 && !memcmp(first, "ARROW1\0", 8)) ||
	       (len >= 4 && !memcmp(first, "\xff\xff\xff\xff", 4));
}

const struct mfs_table_ops mfs_arrow_table = {
	.name = "Arrow",
	.is = is_arrow,
	.open = open_table,
	.next = next_row,
	.free = close_table,
};

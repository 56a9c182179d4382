/*
 * Rows as JSON. Each leaf is a sequence of values with two levels: how much of the path to it is
 * there, and which list goes on with it (Dremel; apache/parquet-format: README.md, Nested
 * Encoding). What is above several leaves is decided by all of them, and they must agree.
 */
#include "formats/text/parquet/parquet_i.h"

#include <string.h>

#include "formats/base/bytes.h"

static int write_node(struct mfs_pq_table *t, const struct mfs_pq_node *n, struct mfs_table_row *to,
		      struct mfs_error *err);

static int disagree(const struct mfs_pq_table *t, struct mfs_error *err)
{
	return mfs_pq_damaged(t, "members of a value do not agree whether it is there", err);
}

/* Whether the next value of the leaves below n is there up to a level. */
static int is_there(struct mfs_pq_table *t, const struct mfs_pq_node *n, uint32_t def, bool *ret,
		    struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = n->first_leaf; i < n->leaf_end && !rc; i++) {
		struct mfs_pq_column *c = &t->columns[i];

		rc = mfs_pq_peek(t, c, err);
		if (!rc && !c->has_levels)
			rc = mfs_pq_damaged(t, "a column ends too early", err);
		else if (!rc && i > n->first_leaf && *ret != (c->def >= def))
			rc = disagree(t, err);
		else if (!rc)
			*ret = c->def >= def;
	}
	return rc;
}

/* Whether another element of the list of a level follows. */
static int goes_on(struct mfs_pq_table *t, const struct mfs_pq_node *n, uint32_t rep, bool *ret,
		   struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = n->first_leaf; i < n->leaf_end && !rc; i++) {
		struct mfs_pq_column *c = &t->columns[i];
		bool more;

		rc = mfs_pq_peek(t, c, err);
		more = c->has_levels && c->rep == rep;
		if (!rc && ((c->has_levels && c->rep > rep) || (i > n->first_leaf && more != *ret)))
			rc = disagree(t, err);
		*ret = more;
	}
	return rc;
}

/* Of a value that is not there each leaf has one entry. */
static int step_over(struct mfs_pq_table *t, const struct mfs_pq_node *n, struct mfs_error *err)
{
	struct mfs_pq_slice value;
	int rc = 0;

	for (size_t i = n->first_leaf; i < n->leaf_end && !rc; i++)
		rc = mfs_pq_take(t, &t->columns[i], &value, err);
	return rc;
}

static int write_leaf(struct mfs_pq_table *t, struct mfs_pq_column *c, struct mfs_table_row *to,
		      struct mfs_error *err)
{
	struct mfs_pq_slice v;
	int rc = mfs_pq_take(t, c, &v, err);

	if (rc)
		return rc;
	if (!v.at)
		return mfs_pq_damaged(t, "a value that must be there is missing", err);
	switch (c->type) {
	case MFS_PQ_BOOLEAN:
		return mfs_table_row_add(to, *v.at ? "true" : "false", err);
	case MFS_PQ_INT32:
		return c->is_unsigned ? mfs_table_row_uint(to, mfs_le32(v.at), err)
				      : mfs_table_row_int(to, (int32_t)mfs_le32(v.at), err);
	case MFS_PQ_INT64:
		return c->is_unsigned ? mfs_table_row_uint(to, mfs_le64(v.at), err)
				      : mfs_table_row_int(to, (int64_t)mfs_le64(v.at), err);
	default:
		return mfs_table_row_string(to, v.at, v.len, err);
	}
}

static int write_there(struct mfs_pq_table *t, const struct mfs_pq_node *n,
		       struct mfs_table_row *to, struct mfs_error *err);

/* The elements of a list, which n repeats. wrapped: they are below n. */
static int write_list(struct mfs_pq_table *t, const struct mfs_pq_node *n, bool wrapped,
		      struct mfs_table_row *to, struct mfs_error *err)
{
	bool more;
	int rc = is_there(t, n, n->def, &more, err);

	if (rc)
		return rc;
	if (!more) {
		rc = step_over(t, n, err);
		return rc ? rc : mfs_table_row_add(to, "[]", err);
	}
	rc = mfs_table_row_add(to, "[", err);
	while (!rc && more) {
		rc = wrapped ? write_node(t, n->children, to, err) : write_there(t, n, to, err);
		if (!rc)
			rc = goes_on(t, n, n->rep, &more, err);
		if (!rc && more)
			rc = is_there(t, n, n->def, &more, err);
		if (!rc && more)
			rc = mfs_table_row_add(to, ", ", err);
	}
	return rc ? rc : mfs_table_row_add(to, "]", err);
}

static int write_struct(struct mfs_pq_table *t, const struct mfs_pq_node *n,
			struct mfs_table_row *to, struct mfs_error *err)
{
	int rc = mfs_table_row_add(to, "{", err);

	for (uint32_t i = 0; i < n->child_count && !rc; i++) {
		rc = mfs_table_row_member(to, !i, n->children[i].name, err);
		if (!rc)
			rc = write_node(t, &n->children[i], to, err);
	}
	return rc ? rc : mfs_table_row_add(to, "}", err);
}

/* A value, or an element, that is there. */
static int write_there(struct mfs_pq_table *t, const struct mfs_pq_node *n,
		       struct mfs_table_row *to, struct mfs_error *err)
{
	if (!n->child_count)
		return write_leaf(t, &t->columns[n->first_leaf], to, err);
	if (n->is_list)
		return write_list(t, n->children, n->has_wrapped_elements, to, err);
	return write_struct(t, n, to, err);
}

static int write_node(struct mfs_pq_table *t, const struct mfs_pq_node *n, struct mfs_table_row *to,
		      struct mfs_error *err)
{
	bool there = true;
	int rc = 0;

	if (n->repeated)
		return write_list(t, n, false, to, err);
	if (n->optional)
		rc = is_there(t, n, n->def, &there, err);
	if (rc)
		return rc;
	if (there)
		return write_there(t, n, to, err);
	rc = step_over(t, n, err);
	return rc ? rc : mfs_table_row_add(to, "null", err);
}

int mfs_pq_json(struct mfs_pq_table *t, const struct mfs_pq_node *root, struct mfs_table_row *to,
		struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = root->first_leaf; i < root->leaf_end && !rc; i++) {
		rc = mfs_pq_peek(t, &t->columns[i], err);
		if (!rc && t->columns[i].rep)
			rc = mfs_pq_damaged(t, "a row goes on after its end", err);
	}
	return rc ? rc : write_node(t, root, to, err);
}

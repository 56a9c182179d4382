/* The schema: which columns are wanted, as trees, and the leaves below them. */
#include "formats/text/parquet/parquet_i.h"

#include <errno.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"

#define DEPTH 64 /* of groups in one another */

enum { REQUIRED, OPTIONAL, REPEATED }; /* FieldRepetitionType */
enum { MAP = 1, MAP_KEY_VALUE, LIST }; /* ConvertedType, and after those: */
enum { FIRST_INT = 11, LAST_UNSIGNED = 14, LAST_INT = 18 };
enum { LOGICAL_MAP = 2, LOGICAL_LIST, LOGICAL_INTEGER = 10 }; /* LogicalType */

struct element {
	int64_t type, repetition, children, converted;
	int logical; /* 0: none */
	struct mfs_pq_slice name;
};

/* Where the walk over the elements is: each is followed by its children. */
struct walk {
	struct mfs_pq_table *t;
	const struct mfs_table_want *want;
	struct mfs_thrift *f;
	uint32_t left;	    /* elements */
	uint32_t leaf;	    /* leaves so far */
	const char *column; /* of the top that is wanted; NULL: it is passed over */
};

/* A union: its one field says which it is. */
static int read_logical(struct mfs_thrift *f)
{
	struct mfs_thrift_field field = {.id = 0};
	int which = 0;

	while (mfs_thrift_next(f, &field)) {
		which = field.id;
		mfs_thrift_skip(f, field.type);
	}
	return which;
}

static void read_element(struct mfs_thrift *f, struct element *e)
{
	struct mfs_thrift_field field = {.id = 0};
	size_t len;

	*e = (struct element){.type = -1, .converted = -1, .name.at = (const uint8_t *)""};
	while (mfs_thrift_next(f, &field))
		switch (field.id) {
		case 1:
			e->type = mfs_thrift_int(f, field.type);
			break;
		case 3:
			e->repetition = mfs_thrift_int(f, field.type);
			break;
		case 4:
			e->name.at = (const uint8_t *)mfs_thrift_binary(f, field.type, &len);
			e->name.len = len;
			break;
		case 5:
			e->children = mfs_thrift_int(f, field.type);
			break;
		case 6:
			e->converted = mfs_thrift_int(f, field.type);
			break;
		case 10:
			if (field.type == MFS_THRIFT_STRUCT)
				e->logical = read_logical(f);
			else
				f->failed = true;
			break;
		default:
			mfs_thrift_skip(f, field.type);
		}
}

static int take_element(struct walk *w, struct element *e, struct mfs_error *err)
{
	if (w->left)
		read_element(w->f, e);
	if (!w->left || w->f->failed || e->children < 0 || e->children >= w->left ||
	    e->repetition < REQUIRED || e->repetition > REPEATED)
		return mfs_pq_damaged(w->t, "a schema's element", err);
	w->left--;
	return 0;
}

/* ---- what can be read ---- */

static int refuse(const struct walk *w, struct mfs_error *err)
{
	return mfs_fail(err, -ENOTSUP,
			w->want->any ? "%s: its column '%s' is not of strings, integers, booleans, "
				       "lists or structs"
				     : "%s: its column '%s' is not of strings",
			w->t->src.name, w->column);
}

static bool is_integer(const struct element *e)
{
	return (e->converted < 0 || (e->converted >= FIRST_INT && e->converted <= LAST_INT)) &&
	       (!e->logical || e->logical == LOGICAL_INTEGER);
}

static bool is_known(const struct element *e)
{
	switch (e->type) {
	case MFS_PQ_BYTE_ARRAY:
	case MFS_PQ_BOOLEAN:
		return true;
	case MFS_PQ_INT32:
	case MFS_PQ_INT64:
		return is_integer(e);
	default:
		return false;
	}
}

/* ---- the tree ---- */

static int add_leaf(struct walk *w, const struct element *e, struct mfs_pq_node *n,
		    struct mfs_error *err)
{
	struct mfs_pq_table *t = w->t;

	if (!is_known(e))
		return refuse(w, err);
	if (mfs_grow(&t->columns, t->count))
		return mfs_fail_nomem(err);
	t->columns[t->count++] = (struct mfs_pq_column){
		.name = w->column,
		.leaf = w->leaf++,
		.type = (int)e->type,
		.is_unsigned = e->converted >= FIRST_INT && e->converted <= LAST_UNSIGNED,
		.def_max = n->def,
		.rep_max = n->rep,
	};
	return 0;
}

/* A list is a group around a group that is repeated, which is around the elements; or that one is
 * the element (LogicalTypes.md, Lists). */
static void see_list(struct mfs_pq_node *n, const struct element *e)
{
	const struct mfs_pq_node *inner = n->children;

	n->is_list = (e->converted == LIST || e->logical == LOGICAL_LIST) && n->child_count == 1 &&
		     inner->repeated;
	if (!n->is_list)
		return;
	n->has_wrapped_elements = inner->child_count == 1 && strcmp(inner->name, "array") != 0 &&
				  !(strlen(inner->name) == strlen(n->name) + strlen("_tuple") &&
				    !strncmp(inner->name, n->name, strlen(n->name)) &&
				    !strcmp(inner->name + strlen(n->name), "_tuple"));
}

static int skip_children(struct walk *w, uint64_t count, struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t left = count; left && !rc; left--) {
		struct element e;

		rc = take_element(w, &e, err);
		if (rc)
			break;
		left += (uint64_t)e.children;
		w->leaf += !e.children;
	}
	return rc;
}

/* n has the levels of what it is in. */
static int read_node(struct walk *w, const struct element *e, unsigned depth, struct mfs_pq_node *n,
		     struct mfs_error *err)
{
	const bool is_map =
		e->converted == MAP || e->converted == MAP_KEY_VALUE || e->logical == LOGICAL_MAP;
	int rc = 0;

	n->name = mfs_arena_strndup(&w->t->arena, (const char *)e->name.at, e->name.len);
	n->optional = e->repetition == OPTIONAL;
	n->repeated = e->repetition == REPEATED;
	n->def += e->repetition != REQUIRED;
	n->rep += n->repeated;
	n->first_leaf = w->t->count;
	n->child_count = (uint32_t)e->children;
	n->children = mfs_arena_array(&w->t->arena, n->child_count, sizeof(*n->children));
	if (!n->name || (!n->children && n->child_count))
		return mfs_fail_nomem(err);
	if (depth > DEPTH || is_map)
		return refuse(w, err);
	if (!n->child_count)
		rc = add_leaf(w, e, n, err);
	for (uint32_t i = 0; i < n->child_count && !rc; i++) {
		struct element child;

		n->children[i] = (struct mfs_pq_node){.def = n->def, .rep = n->rep};
		rc = take_element(w, &child, err);
		if (!rc)
			rc = read_node(w, &child, depth + 1, &n->children[i], err);
	}
	n->leaf_end = w->t->count;
	if (!rc)
		see_list(n, e);
	return rc;
}

static size_t find(const struct mfs_table_want *want, const struct mfs_pq_slice *name)
{
	for (size_t i = 0; i < want->count; i++)
		if (strlen(want->columns[i]) == name->len &&
		    !memcmp(want->columns[i], name->at, name->len))
			return i;
	return SIZE_MAX;
}

static int read_top(struct walk *w, struct mfs_error *err)
{
	struct element e;
	int rc = take_element(w, &e, err);
	size_t i;

	if (rc)
		return rc;
	i = find(w->want, &e.name);
	if (i == SIZE_MAX || w->t->roots[i].name) {
		w->leaf += !e.children;
		return skip_children(w, (uint64_t)e.children, err);
	}
	w->column = w->want->columns[i];
	if (!w->want->any &&
	    (e.children || e.repetition == REPEATED || e.type != MFS_PQ_BYTE_ARRAY))
		return refuse(w, err);
	return read_node(w, &e, 0, &w->t->roots[i], err);
}

static int check_wanted(const struct mfs_pq_table *t, const struct mfs_table_want *want,
			struct mfs_error *err)
{
	for (size_t i = 0; i < want->count && !want->any; i++)
		if (!t->roots[i].name)
			return mfs_fail(err, -ENODATA, "%s has no column '%s'", t->src.name,
					want->columns[i]);
	return t->count ? 0 : mfs_table_none(t->src.name, want, err);
}

int mfs_pq_schema_read(struct mfs_pq_table *t, const struct mfs_table_want *want,
		       struct mfs_thrift *f, enum mfs_thrift_type type, struct mfs_error *err)
{
	enum mfs_thrift_type item;
	struct walk w = {.t = t, .want = want, .f = f};
	struct element root;
	int rc;

	w.left = mfs_thrift_list(f, type, &item);
	t->root_count = want->count;
	t->roots = mfs_arena_array(&t->arena, want->count, sizeof(*t->roots));
	if (!t->roots)
		return mfs_fail_nomem(err);
	rc = take_element(&w, &root, err);
	while (!rc && w.left)
		rc = read_top(&w, err);
	if (!rc && f->failed)
		rc = mfs_pq_damaged(t, "its schema", err);
	return rc ? rc : check_wanted(t, want, err);
}

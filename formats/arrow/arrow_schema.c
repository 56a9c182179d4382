/* Columns of a schema, and how many nodes and buffers each takes in a record batch. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/arrow/arrow_ipc_i.h"

#define V5	   4
#define DEPTH	   64	      /* of nested types: Arrow's own limit when it reads */
#define NODE_LIMIT (1u << 20) /* fields of all depths */

/* Fields of tables, by their order in Schema.fbs. */
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_TYPE_TYPE, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN };
enum { INT_BITS, INT_SIGNED };
enum { ENCODING_ID, ENCODING_INDEX };
enum { FIXED_SIZE_LIST_SIZE };
enum { UNION_MODE };

/* What a type has of its own in a record batch, in front of its children (Columnar.rst, "Buffer
 * Listing for Each Layout"). */
static const struct {
	const char *name;
	uint8_t buffers;
	bool children, view;
} types[MFS_ARROW_TYPES] = {
	[MFS_ARROW_NULL] = {"null", 0, false, false},
	[MFS_ARROW_INT] = {"int", 2, false, false},
	[MFS_ARROW_FLOATING_POINT] = {"float", 2, false, false},
	[MFS_ARROW_BINARY] = {"binary", 3, false, false},
	[MFS_ARROW_UTF8] = {"string", 3, false, false},
	[MFS_ARROW_BOOL] = {"bool", 2, false, false},
	[MFS_ARROW_DECIMAL] = {"decimal", 2, false, false},
	[MFS_ARROW_DATE] = {"date", 2, false, false},
	[MFS_ARROW_TIME] = {"time", 2, false, false},
	[MFS_ARROW_TIMESTAMP] = {"timestamp", 2, false, false},
	[MFS_ARROW_INTERVAL] = {"interval", 2, false, false},
	[MFS_ARROW_LIST] = {"list", 2, true, false},
	[MFS_ARROW_STRUCT] = {"struct", 1, true, false},
	[MFS_ARROW_UNION] = {"union", 1, true, false},
	[MFS_ARROW_FIXED_SIZE_BINARY] = {"fixed_size_binary", 2, false, false},
	[MFS_ARROW_FIXED_SIZE_LIST] = {"fixed_size_list", 1, true, false},
	[MFS_ARROW_MAP] = {"map", 2, true, false},
	[MFS_ARROW_DURATION] = {"duration", 2, false, false},
	[MFS_ARROW_LARGE_BINARY] = {"large_binary", 3, false, false},
	[MFS_ARROW_LARGE_UTF8] = {"large_string", 3, false, false},
	[MFS_ARROW_LARGE_LIST] = {"large_list", 2, true, false},
	[MFS_ARROW_RUN_END_ENCODED] = {"run_end_encoded", 0, true, false},
	[MFS_ARROW_BINARY_VIEW] = {"binary_view", 2, false, true},
	[MFS_ARROW_UTF8_VIEW] = {"string_view", 2, false, true},
	[MFS_ARROW_LIST_VIEW] = {"list_view", 3, true, false},
	[MFS_ARROW_LARGE_LIST_VIEW] = {"large_list_view", 3, true, false},
};

/* Before V5 unions have a validity, too. So have run ends if Arrow C++ writes that version
 * (HasValidityBitmap in cpp/src/arrow/ipc/util.h and its callers). */
static uint8_t buffers_of(const struct mfs_arrow *a, enum mfs_arrow_type type,
			  const struct mfs_flat_table *t)
{
	uint8_t n = types[type].buffers;

	if (type == MFS_ARROW_UNION && mfs_flat_i16(t, UNION_MODE, 0))
		n++; /* dense: offsets */
	if (a->version < V5 && (type == MFS_ARROW_UNION || type == MFS_ARROW_RUN_END_ENCODED))
		n++;
	return n;
}

static enum mfs_dtype int_dtype(const struct mfs_flat_table *t)
{
	static const enum mfs_dtype dtypes[2][4] = {{MFS_U8, MFS_U16, MFS_U32, MFS_U64},
						    {MFS_I8, MFS_I16, MFS_I32, MFS_I64}};
	const bool is_signed = mfs_flat_u8(t, INT_SIGNED, 0);

	switch (mfs_flat_i32(t, INT_BITS, 0)) {
	case 8:
		return dtypes[is_signed][0];
	case 16:
		return dtypes[is_signed][1];
	case 32:
		return dtypes[is_signed][2];
	case 64:
		return dtypes[is_signed][3];
	}
	return MFS_DTYPE_NONE;
}

static bool is_list(enum mfs_arrow_type type)
{
	return type == MFS_ARROW_LIST || type == MFS_ARROW_LARGE_LIST ||
	       type == MFS_ARROW_FIXED_SIZE_LIST;
}

static int read_column(struct mfs_arrow *a, const struct mfs_flat_vector *fields, uint32_t i,
		       unsigned depth, struct mfs_arrow_column *c, struct mfs_error *err);

static int too_many(const struct mfs_arrow *a, struct mfs_error *err)
{
	return mfs_fail(err, -ENOTSUP, "%s: types nested too deep, or too many of them",
			a->src.name);
}

/* field: c's. A list's one child says more of it. */
static int read_children(struct mfs_arrow *a, const struct mfs_flat_table *field,
			 struct mfs_arrow_column *c, unsigned depth, struct mfs_error *err)
{
	struct mfs_flat_vector fields = mfs_flat_vector(field, FIELD_CHILDREN, 4);
	struct mfs_arrow_column *children;
	int rc = 0;

	if (is_list(c->type) && fields.count != 1)
		return mfs_fail(err, -EINVAL, "%s: a list has %u types of elements, expected 1",
				a->src.name, fields.count);
	if (fields.count > NODE_LIMIT - a->nodes)
		return too_many(a, err);
	children = mfs_arena_array(&a->arena, fields.count, sizeof(*children));
	if (!children && fields.count)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < fields.count && !rc; i++)
		rc = read_column(a, &fields, i, depth + 1, &children[i], err);
	if (rc)
		return rc;
	c->children = children;
	c->child_count = fields.count;
	if (is_list(c->type)) {
		c->item = children->type;
		c->dtype = children->item ? MFS_DTYPE_NONE : children->dtype;
		c->dictionary |= children->dictionary;
	}
	return 0;
}

/* What a record batch has of a column with a dictionary are numbers, whatever the values are; those
 * are in messages of their own. */
static int read_encoding(struct mfs_arrow *a, const struct mfs_flat_table *encoding,
			 struct mfs_arrow_column *c, struct mfs_error *err)
{
	const struct mfs_flat_table index = mfs_flat_table(encoding, ENCODING_INDEX);

	c->dictionary_id = mfs_flat_i64(encoding, ENCODING_ID, 0);
	c->index = index.at ? int_dtype(&index) : MFS_I32;
	a->buffers += types[MFS_ARROW_INT].buffers;
	return c->index ? 0
			: mfs_fail(err, -EINVAL, "%s: the numbers of a dictionary have no width",
				   a->src.name);
}

/* Its type, and the nodes and buffers that it and its children take. */
static int read_field(struct mfs_arrow *a, struct mfs_flat_table *field, struct mfs_arrow_column *c,
		      unsigned depth, struct mfs_error *err)
{
	const struct mfs_flat_table type = mfs_flat_table(field, FIELD_TYPE),
				    encoding = mfs_flat_table(field, FIELD_DICTIONARY);
	const uint8_t code = mfs_flat_u8(field, FIELD_TYPE_TYPE, 0);
	int32_t list_size;

	if (field->flat->bad || !field->at || !type.at)
		return mfs_fail(err, -EINVAL, "%s: its schema is damaged", a->src.name);
	if (!code || code >= MFS_ARROW_TYPES)
		return mfs_fail(err, -ENOTSUP, "%s: a column of type number %u, which is not known",
				a->src.name, code);
	if (depth > DEPTH || a->nodes >= NODE_LIMIT)
		return too_many(a, err);
	c->type = (enum mfs_arrow_type)code;
	c->dictionary = encoding.at;
	a->nodes++;
	a->has_dictionaries |= c->dictionary;
	if (c->dictionary)
		return read_encoding(a, &encoding, c, err);
	a->buffers += buffers_of(a, c->type, &type);
	a->views += types[code].view;
	if (c->type == MFS_ARROW_INT)
		c->dtype = int_dtype(&type);
	if (c->type == MFS_ARROW_FIXED_SIZE_LIST) {
		list_size = mfs_flat_i32(&type, FIXED_SIZE_LIST_SIZE, 0);
		c->list_size = list_size > 0 ? (uint32_t)list_size : 0;
	}
	return types[code].children ? read_children(a, field, c, depth, err) : 0;
}

static int read_column(struct mfs_arrow *a, const struct mfs_flat_vector *fields, uint32_t i,
		       unsigned depth, struct mfs_arrow_column *c, struct mfs_error *err)
{
	struct mfs_flat_table field = mfs_flat_element_table(fields, i);
	const char *name = mfs_flat_string(&field, FIELD_NAME);

	*c = (struct mfs_arrow_column){
		.name = name ? name : "", .node = a->nodes, .buffer = a->buffers, .view = a->views};
	return read_field(a, &field, c, depth, err);
}

int mfs_arrow_read_schema(struct mfs_arrow *a, const struct mfs_flat_table *schema,
			  struct mfs_error *err)
{
	const struct mfs_flat_vector fields = mfs_flat_vector(schema, SCHEMA_FIELDS, 4);
	int rc = 0;

	if (!schema->at || schema->flat->bad)
		return mfs_fail(err, -EINVAL, "%s: its schema is damaged", a->src.name);
	if (mfs_flat_i16(schema, SCHEMA_ENDIANNESS, 0))
		return mfs_fail(err, -ENOTSUP, "%s: big-endian Arrow is not read", a->src.name);
	if (fields.count > NODE_LIMIT)
		return mfs_fail(err, -ENOTSUP, "%s: %u columns are too many", a->src.name,
				fields.count);
	a->columns = mfs_arena_array(&a->arena, fields.count, sizeof(*a->columns));
	if (!a->columns && fields.count)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < fields.count && !rc; i++)
		rc = read_column(a, &fields, i, 0, &a->columns[i], err);
	if (!rc && schema->flat->bad)
		rc = mfs_fail(err, -EINVAL, "%s: its schema is damaged", a->src.name);
	if (!rc)
		a->column_count = fields.count;
	return rc;
}

bool mfs_arrow_is_int(const struct mfs_arrow_column *c)
{
	return c->type == MFS_ARROW_INT && !c->dictionary && c->dtype;
}

bool mfs_arrow_is_int_list(const struct mfs_arrow_column *c)
{
	return is_list(c->type) && c->item == MFS_ARROW_INT && !c->dictionary && c->dtype &&
	       (c->type != MFS_ARROW_FIXED_SIZE_LIST || c->list_size);
}

const char *mfs_arrow_type_text(const struct mfs_arrow_column *c, char *text, size_t size)
{
	const char *item = types[is_list(c->type) ? c->item : c->type].name;
	const char *encoded = c->dictionary ? ", dictionary-encoded" : "";

	if (c->dtype)
		item = mfs_dtype_torch(c->dtype);
	if (is_list(c->type))
		snprintf(text, size, "%s<%s>%s", types[c->type].name, item ? item : "?", encoded);
	else
		snprintf(text, size, "%s%s", item, encoded);
	return text;
}

/* The footer: which columns there are, and where each lies in the row groups. */
#include "formats/text/parquet/parquet_i.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/text/parquet/thrift.h"

#define FOOTER_MAX (256u << 20)

/* ---- row groups ---- */

static void read_metadata(struct mfs_thrift *f, struct mfs_pq_chunk *c)
{
	struct mfs_thrift_field field = {.id = 0};
	int64_t data = 0, dictionary = 0;

	c->there = true;
	while (mfs_thrift_next(f, &field))
		switch (field.id) {
		case 4:
			c->codec = (int)mfs_thrift_int(f, field.type);
			break;
		case 5:
			c->values = (uint64_t)mfs_thrift_int(f, field.type);
			break;
		case 7:
			c->size = (uint64_t)mfs_thrift_int(f, field.type);
			break;
		case 9:
			data = mfs_thrift_int(f, field.type);
			break;
		case 11:
			dictionary = mfs_thrift_int(f, field.type);
			break;
		default:
			mfs_thrift_skip(f, field.type);
		}
	c->offset = (uint64_t)(dictionary > 0 && dictionary < data ? dictionary : data);
}

static void read_chunk(struct mfs_thrift *f, struct mfs_pq_chunk *c)
{
	struct mfs_thrift_field field = {.id = 0};

	*c = (struct mfs_pq_chunk){.offset = 0};
	while (mfs_thrift_next(f, &field))
		if (field.id == 3 && field.type == MFS_THRIFT_STRUCT)
			read_metadata(f, c);
		else
			mfs_thrift_skip(f, field.type);
}

/* Columns of the table are in the order of their leaves. */
static void read_chunks(struct mfs_pq_table *t, struct mfs_thrift *f, enum mfs_thrift_type type)
{
	enum mfs_thrift_type item;
	const uint32_t count = mfs_thrift_list(f, type, &item);
	size_t next = 0;

	for (uint32_t leaf = 0; leaf < count && !f->failed; leaf++) {
		struct mfs_pq_chunk chunk;

		read_chunk(f, &chunk);
		if (next < t->count && t->columns[next].leaf == leaf)
			t->columns[next++].chunks[t->group_count] = chunk;
	}
}

static int read_group(struct mfs_pq_table *t, struct mfs_thrift *f, struct mfs_error *err)
{
	struct mfs_thrift_field field = {.id = 0};
	int64_t rows = 0;
	bool chunks = false;
	int rc = 0;

	if (mfs_grow(&t->group_rows, t->group_count))
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < t->count; i++) {
		if (mfs_grow(&t->columns[i].chunks, t->group_count))
			return mfs_fail_nomem(err);
		t->columns[i].chunks[t->group_count] = (struct mfs_pq_chunk){.offset = 0};
	}
	while (mfs_thrift_next(f, &field))
		if (field.id == 1 && !chunks) {
			chunks = true;
			read_chunks(t, f, field.type);
		} else if (field.id == 3) {
			rows = mfs_thrift_int(f, field.type);
		} else {
			mfs_thrift_skip(f, field.type);
		}
	if (rows < 0 || f->failed)
		rc = mfs_pq_damaged(t, "a row group", err);
	for (size_t i = 0; i < t->count && !rc; i++) {
		const struct mfs_pq_chunk *c = &t->columns[i].chunks[t->group_count];

		if (!c->there || (!t->columns[i].rep_max && c->values != (uint64_t)rows) ||
		    !mfs_range_ok(c->offset, c->size, t->src.size))
			rc = mfs_pq_damaged(t, "a column of a row group", err);
	}
	t->group_rows[t->group_count++] = (uint64_t)rows;
	return rc;
}

static int read_groups(struct mfs_pq_table *t, struct mfs_thrift *f, enum mfs_thrift_type type,
		       struct mfs_error *err)
{
	enum mfs_thrift_type item;
	const uint32_t count = mfs_thrift_list(f, type, &item);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc && !f->failed; i++)
		rc = read_group(t, f, err);
	return rc;
}

static uint64_t rows_of_groups(const struct mfs_pq_table *t)
{
	uint64_t rows = 0;

	for (uint32_t i = 0; i < t->group_count; i++)
		rows += t->group_rows[i];
	return rows;
}

/* The schema comes before the row groups (parquet.thrift: FileMetaData). */
static int read_file(struct mfs_pq_table *t, const struct mfs_table_want *want,
		     struct mfs_thrift *f, struct mfs_error *err)
{
	struct mfs_thrift_field field = {.id = 0};
	bool schema = false, groups = false;
	int64_t rows = -1;
	int rc = 0;

	while (!rc && mfs_thrift_next(f, &field)) {
		if (field.id == 2 && !schema) {
			schema = true;
			rc = mfs_pq_schema_read(t, want, f, field.type, err);
		} else if (field.id == 4 && schema && !groups) {
			groups = true;
			rc = read_groups(t, f, field.type, err);
		} else if (field.id == 3) {
			rows = mfs_thrift_int(f, field.type);
		} else {
			mfs_thrift_skip(f, field.type);
		}
	}
	if (rc)
		return rc;
	if (f->failed || !groups)
		return mfs_pq_damaged(t, "its footer", err);
	return rows >= 0 && (uint64_t)rows == rows_of_groups(t)
		       ? 0
		       : mfs_pq_damaged(t, "its number of rows is not that of its row groups", err);
}

int mfs_pq_footer_read(struct mfs_pq_table *t, const struct mfs_table_want *want,
		       struct mfs_error *err)
{
	uint8_t tail[8], *footer;
	struct mfs_thrift f;
	uint32_t len;
	int rc;

	if (t->src.size < 12)
		return mfs_pq_damaged(t, "it is too short", err);
	rc = mfs_pq_read(t, t->src.size - 8, tail, 8, err);
	if (rc)
		return rc;
	len = mfs_le32(tail);
	if (!memcmp(tail + 4, "PARE", 4))
		return mfs_fail(err, -ENOTSUP, "%s is encrypted", t->src.name);
	if (memcmp(tail + 4, "PAR1", 4) != 0 || len > t->src.size - 12 || len > FOOTER_MAX)
		return mfs_pq_damaged(t, "it has no end", err);
	footer = malloc(len ? len : 1);
	if (!footer)
		return mfs_fail_nomem(err);
	rc = mfs_pq_read(t, t->src.size - 8 - len, footer, len, err);
	f = (struct mfs_thrift){footer, footer + len, false};
	if (!rc)
		rc = read_file(t, want, &f, err);
	free(footer);
	return rc;
}

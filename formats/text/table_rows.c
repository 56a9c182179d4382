#include "formats/text/table_rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int mfs_table_none(const char *name, const struct mfs_table_want *want, struct mfs_error *err)
{
	struct mfs_buf names = {0};
	int rc;

	for (size_t i = 0; i < want->count; i++)
		mfs_buf_printf(&names, "%s%s", i ? ", " : "", want->columns[i]);
	rc = mfs_fail(err, -ENODATA, "%s has none of the columns %s", name,
		      names.data ? names.data : "");
	mfs_buf_release(&names);
	return rc;
}

static int too_long(const struct mfs_table_row *r, struct mfs_error *err)
{
	return mfs_fail(err, -EFBIG, "%s: a row is longer than 1 GiB", r->name);
}

/* A value as JSON is at most six times as long. */
static bool has_room(size_t room, const uint8_t *bytes, size_t len)
{
	size_t json = len;

	if (len <= room / 6)
		return true;
	for (size_t i = 0; i < len && json <= room; i++)
		json += bytes[i] < 0x20 ? 5 : bytes[i] == '"' || bytes[i] == '\\';
	return json <= room;
}

int mfs_table_row_string(struct mfs_table_row *r, const void *bytes, size_t len,
			 struct mfs_error *err)
{
	const size_t have = r->to->len - r->start;

	if (have > MFS_TABLE_ROW_MAX || len > MFS_TABLE_ROW_MAX ||
	    !has_room(MFS_TABLE_ROW_MAX - have, bytes, len))
		return too_long(r, err);
	mfs_buf_add_json_bytes(r->to, bytes, len);
	return r->to->failed ? mfs_fail_nomem(err) : 0;
}

int mfs_table_row_add(struct mfs_table_row *r, const char *text, struct mfs_error *err)
{
	if (r->to->len - r->start > MFS_TABLE_ROW_MAX)
		return too_long(r, err);
	mfs_buf_adds(r->to, text);
	return r->to->failed ? mfs_fail_nomem(err) : 0;
}

int mfs_table_row_member(struct mfs_table_row *r, bool first, const char *name,
			 struct mfs_error *err)
{
	int rc = first ? 0 : mfs_table_row_add(r, ", ", err);

	if (!rc)
		rc = mfs_table_row_string(r, name, strlen(name), err);
	return rc ? rc : mfs_table_row_add(r, ": ", err);
}

int mfs_table_row_int(struct mfs_table_row *r, int64_t value, struct mfs_error *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)value);
	return mfs_table_row_add(r, text, err);
}

int mfs_table_row_uint(struct mfs_table_row *r, uint64_t value, struct mfs_error *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return mfs_table_row_add(r, text, err);
}

#include "formats/dataset/files/parquet_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/dataset/files/parquet_image_i.h"
#include "formats/dataset/files/text_lines.h"

/* Files that are enough for readers in parallel, and bounds on one of them, in bytes. */
#define ENOUGH_FILES 64
#define MIN_FILE     (1ull << 30)
#define MAX_FILE     (8ull << 30)
/* Readers read more than the footer from the end of a file at once. Nothing unreadable may lie
 * there. */
#define FOOTER_APART (1u << 20)
/* More rows or tokens are not laid out: offsets stay far below 2^63. */
#define MAX_COUNT (1ull << 56)

/* ---- values ---- */

#define WIDEN(type)                                                                                \
	for (uint64_t i = 0; i < count; i++)                                                       \
	to[i] = ((const type *)from)[i]

/* Integers of less than 32 bits as Parquet stores them. */
static void widen(enum mfs_dtype dtype, const void *from, uint64_t count, int32_t *to)
{
	switch (dtype) {
	case MFS_U8:
		WIDEN(uint8_t);
		break;
	case MFS_I8:
		WIDEN(int8_t);
		break;
	case MFS_U16:
		WIDEN(uint16_t);
		break;
	default:
		WIDEN(int16_t);
		break;
	}
}

static int get_stored(const struct column *c, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	return c->number ? mfs_rows_column(c->rows, c->number - 1, first, count, ret, err)
			 : mfs_rows_read(c->rows, first, count, ret, err);
}

static int get_values(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct column *c = object;
	uint16_t chunk[8192];
	int32_t *to = ret;
	int rc = 0;

	if (mfs_dtype_size(c->dtype) == c->width)
		return get_stored(c, first, count, ret, err);
	for (uint64_t n; count && !rc; first += n, count -= n, to += n) {
		n = mfs_min_u64(count, MFS_ARRAY_SIZE(chunk));
		rc = get_stored(c, first, n, chunk, err);
		if (!rc)
			widen(c->dtype, chunk, n, to);
	}
	return rc;
}

/* ---- columns ---- */

static int set_column(struct mfs_parquet_image *v, size_t i, const char *name, enum mfs_dtype dtype,
		      struct mfs_error *err)
{
	struct column *c = &v->columns[i];

	*c = (struct column){
		.rows = v->rows, .number = i, .dtype = dtype, .width = mfs_parquet_width(dtype)};
	if (!c->width)
		return mfs_fail(err, -ENOTSUP, "%s: Parquet has no type for %s of type %s",
				v->rows->name, name, mfs_dtype_torch(dtype));
	c->values = (struct mfs_elements){c->width, get_values, c};
	c->full = mfs_parquet_page_size(c, v->config.page);
	v->schema[i] = (struct mfs_parquet_column){.name = name, .dtype = dtype, .list = !i};
	return 0;
}

static int set_columns(struct mfs_parquet_image *v, struct mfs_error *err)
{
	const size_t own = v->rows->column_count + 1;
	int rc;

	v->column_count = own + !!v->config.text;
	v->columns = calloc(v->column_count, sizeof(*v->columns));
	v->schema = calloc(v->column_count, sizeof(*v->schema));
	if (!v->columns || !v->schema)
		return mfs_fail_nomem(err);
	rc = set_column(v, 0, "input_ids", v->rows->dtype, err);
	for (size_t i = 1; i < own && !rc; i++)
		rc = set_column(v, i, v->rows->columns[i - 1].name, v->rows->columns[i - 1].dtype,
				err);
	if (rc || !v->config.text)
		return rc;
	v->schema[own] = (struct mfs_parquet_column){.name = MFS_TEXT_COLUMN, .text = true};
	return mfs_parquet_text_rows(v, err);
}

/* ---- row groups ---- */

/* The next row at which rows become readable or unreadable. A row group must not hold both
 * kinds. */
static uint64_t next_change(const struct mfs_rows *rows, size_t *bad, uint64_t row)
{
	while (*bad < rows->bad.count && rows->bad.list[*bad].end <= row)
		++*bad;
	if (*bad == rows->bad.count)
		return rows->rows;
	return row < rows->bad.list[*bad].first ? rows->bad.list[*bad].first
						: rows->bad.list[*bad].end;
}

/* The end of a group that begins at a row and must end at `limit`: all rows that end within so many
 * tokens, or one. */
static int group_end(const struct mfs_parquet_image *v, uint64_t row, uint64_t start,
		     uint64_t limit, uint64_t *ret, struct mfs_error *err)
{
	const struct mfs_rows *rows = v->rows;
	uint64_t end;
	int rc;

	limit = mfs_min_u64(limit, row + v->config.group_rows);
	if (rows->row_length) {
		end = row + mfs_max_u64(1, v->config.group / rows->row_length);
		*ret = mfs_min_u64(end, limit);
		return 0;
	}
	if (rows->tokens - start <= v->config.group) {
		*ret = limit;
		return 0;
	}
	/* The row after the last one that begins at or before this is the one that ends too
	 * late. */
	rc = mfs_rows_lower_bound(rows, row, start + v->config.group + 1, &end, err);
	if (rc)
		return rc;
	*ret = mfs_min_u64(mfs_max_u64(end, row + 2) - 1, limit);
	return 0;
}

static int add_group(struct mfs_parquet_image *v, const struct group *g, struct mfs_error *err)
{
	if (mfs_grow(&v->groups, v->group_count))
		return mfs_fail_nomem(err);
	v->groups[v->group_count++] = *g;
	return v->text_rows ? mfs_parquet_text_size(v, g, &v->groups[v->group_count - 1].text, err)
			    : 0;
}

static int cut_groups(struct mfs_parquet_image *v, struct mfs_error *err)
{
	const struct mfs_rows *rows = v->rows;
	uint64_t start = 0, after, end;
	size_t bad = 0;

	for (uint64_t row = 0; row < rows->rows; row = end, start = after) {
		const uint64_t change = next_change(rows, &bad, row);
		int rc = group_end(v, row, start, change, &end, err);

		if (!rc)
			rc = mfs_rows_start(rows, end, &after, err);
		if (!rc && after < start)
			rc = mfs_fail(err, -EIO, "%s: row %llu begins before row %llu", rows->name,
				      (unsigned long long)end, (unsigned long long)row);
		if (!rc)
			rc = add_group(v,
				       &(struct group){.first = row,
						       .end = end,
						       .token = start,
						       .tokens = after - start,
						       .bad = bad < rows->bad.count &&
							      change == rows->bad.list[bad].end},
				       err);
		if (rc)
			return rc;
	}
	return 0;
}

uint64_t mfs_parquet_group_size(const struct mfs_parquet_image *v, const struct group *g)
{
	uint64_t size = 0;

	for (size_t c = 0; c < v->column_count; c++)
		size += mfs_parquet_room(v, g, c);
	return size;
}

/* ---- files ---- */

/* Bytes of a footer whose numbers are as large as they can be. */
static int footer_size(const struct mfs_parquet_image *v, size_t groups, uint64_t *ret,
		       struct mfs_error *err)
{
	struct mfs_parquet_footer f = {0};
	struct mfs_parquet_column_chunk *largest = calloc(v->column_count, sizeof(*largest));
	uint64_t group;
	bool failed;

	if (!largest)
		return mfs_fail_nomem(err);
	for (size_t c = 0; c < v->column_count; c++)
		largest[c] = (struct mfs_parquet_column_chunk){
			INT64_MAX, INT64_MAX / v->column_count, INT64_MAX};
	mfs_parquet_footer_begin(&f, v->schema, v->column_count, INT64_MAX, groups);
	group = f.b.len;
	mfs_parquet_footer_group(&f, largest, INT64_MAX);
	group = f.b.len - group;
	mfs_parquet_footer_end(&f);
	*ret = f.b.len + groups * group;
	failed = f.b.failed;
	mfs_buf_release(&f.b);
	free(largest);
	return failed ? mfs_fail_nomem(err) : 0;
}

static int add_file(struct mfs_parquet_image *v, size_t first, size_t end, uint64_t size,
		    struct mfs_error *err)
{
	struct parquet_file f = {.view = v, .first = first, .end = end};
	int rc;

	if (mfs_grow(&v->files, v->file_count))
		return mfs_fail_nomem(err);
	rc = footer_size(v, end - first, &f.footer_room, err);
	if (first < end && v->groups[end - 1].bad)
		f.footer_room += FOOTER_APART;
	f.size = size + f.footer_room;
	if (!rc)
		v->files[v->file_count++] = f;
	return rc;
}

/* Groups go into a file until it has the size that is wanted. */
static int cut_files(struct mfs_parquet_image *v, struct mfs_error *err)
{
	uint64_t offset = MFS_PARQUET_ALIGN;
	size_t first = 0;
	int rc = 0;

	for (size_t i = 0; i < v->group_count && !rc; i++) {
		if (offset >= v->config.file) {
			rc = add_file(v, first, i, offset, err);
			first = i;
			offset = MFS_PARQUET_ALIGN;
		}
		v->groups[i].offset = offset;
		offset += mfs_parquet_group_size(v, &v->groups[i]);
	}
	return rc ? rc : add_file(v, first, v->group_count, offset, err);
}

/* ---- the view ---- */

static int check_rows(const struct mfs_rows *rows, const struct mfs_parquet_config *config,
		      struct mfs_error *err)
{
	if (rows->rows > MAX_COUNT || rows->tokens > MAX_COUNT)
		return mfs_fail(err, -EINVAL, "%s: %llu rows of %llu tokens are too many",
				rows->name, (unsigned long long)rows->rows,
				(unsigned long long)rows->tokens);
	if (config->page > MFS_PARQUET_MAX_PAGE)
		return mfs_fail(err, -EINVAL, "pages of %llu entries are too large",
				(unsigned long long)config->page);
	return 0;
}

static void fill_config(struct mfs_parquet_config *c, const struct mfs_rows *rows)
{
	const uint64_t bytes = rows->tokens * mfs_parquet_width(rows->dtype);

	if (!c->group)
		c->group = MFS_PARQUET_GROUP;
	if (!c->group_rows)
		c->group_rows = MFS_PARQUET_GROUP_ROWS;
	if (!c->page)
		c->page = MFS_PARQUET_PAGE;
	if (!c->file)
		c->file = mfs_min_u64(mfs_max_u64(bytes / ENOUGH_FILES, MIN_FILE), MAX_FILE);
}

int mfs_parquet_image_new(const struct mfs_rows *rows, const struct mfs_parquet_config *config,
			  struct mfs_parquet_image **ret, struct mfs_error *err)
{
	struct mfs_parquet_image *v;
	int rc = check_rows(rows, config, err);

	if (rc)
		return rc;
	v = calloc(1, sizeof(*v));
	if (!v)
		return mfs_fail_nomem(err);
	v->rows = rows;
	v->config = *config;
	fill_config(&v->config, rows);
	rc = set_columns(v, err);
	if (!rc)
		rc = cut_groups(v, err);
	if (!rc)
		rc = cut_files(v, err);
	if (rc) {
		mfs_parquet_image_free(v);
		return rc;
	}
	*ret = v;
	return 0;
}

void mfs_parquet_image_free(struct mfs_parquet_image *v)
{
	if (!v)
		return;
	for (size_t i = 0; i < v->group_count; i++)
		mfs_parquet_free_index(v->groups[i].index);
	for (uint32_t i = 0; i < v->file_count; i++)
		mfs_parquet_free_footer(v->files[i].footer);
	free(v->groups);
	free(v->files);
	free(v->columns);
	free(v->schema);
	free(v);
}

uint32_t mfs_parquet_image_files(const struct mfs_parquet_image *v)
{
	return v->file_count;
}

int mfs_parquet_image_file(struct mfs_parquet_image *v, uint32_t file, struct mfs_vfile **ret,
			   struct mfs_error *err)
{
	struct mfs_vfile *f;
	int rc = mfs_vfile_new(&f, err);

	if (rc)
		return rc;
	rc = mfs_vfile_add_computed(f, &mfs_parquet_file_computed, &v->files[file], 0,
				    v->files[file].size, err);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

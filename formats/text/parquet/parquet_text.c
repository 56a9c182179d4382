#include "formats/text/parquet/parquet_text.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/text/parquet/parquet_i.h"

#define ROW_MAX (1u << 30)

int mfs_pq_damaged(const struct mfs_pq_table *t, const char *what, struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: its Parquet data is damaged: %s", t->name, what);
}

int mfs_pq_read(const struct mfs_pq_table *t, uint64_t offset, void *to, size_t len,
		struct mfs_error *err)
{
	if (!mfs_range_ok(offset, len, t->size))
		return mfs_pq_damaged(t, "a range lies outside of the file", err);
	for (size_t done = 0; done < len;) {
		const ssize_t n =
			pread(t->fd, (uint8_t *)to + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? mfs_fail_errno(err, "cannot read %s", t->name)
				 : mfs_fail(err, -EIO, "%s has become shorter", t->name);
		done += (size_t)n;
	}
	return 0;
}

int mfs_pq_room(struct mfs_pq_room *r, size_t size, struct mfs_error *err)
{
	uint8_t *at;

	if (size <= r->size)
		return 0;
	at = realloc(r->at, size);
	if (!at)
		return mfs_fail_nomem(err);
	r->at = at;
	r->size = size;
	return 0;
}

int mfs_pq_table_open(int fd, const char *name, const char *const *columns, size_t count,
		      struct mfs_pq_table **ret, struct mfs_error *err)
{
	struct mfs_pq_table *t = calloc(1, sizeof(*t));
	struct stat st;
	int rc;

	if (t)
		t->columns = calloc(count, sizeof(*t->columns));
	if (!t || !t->columns || fstat(fd, &st)) {
		free(t);
		return mfs_fail_nomem(err);
	}
	t->fd = fd;
	t->name = name;
	t->count = count;
	t->size = (uint64_t)st.st_size;
	for (size_t i = 0; i < count; i++)
		t->columns[i] = (struct mfs_pq_column){.name = columns[i], .leaf = UINT32_MAX};
	rc = mfs_pq_footer_read(t, err);
	if (rc)
		mfs_pq_table_free(t);
	else
		*ret = t;
	return rc;
}

void mfs_pq_table_free(struct mfs_pq_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->count; i++) {
		struct mfs_pq_column *c = &t->columns[i];

		free(c->chunks);
		free(c->packed.at);
		free(c->page.at);
		free(c->dictionary.at);
		free(c->words);
		free(c->lengths);
	}
	free(t->columns);
	free(t->group_rows);
	free(t);
}

/* ---- rows ---- */

static void next_group(struct mfs_pq_table *t)
{
	t->rows = t->group_rows[t->group];
	for (size_t i = 0; i < t->count; i++) {
		struct mfs_pq_column *c = &t->columns[i];
		const struct mfs_pq_chunk *chunk = &c->chunks[t->group];

		c->at = chunk->offset;
		c->end = chunk->offset + chunk->size;
		c->codec = chunk->codec;
		c->values = chunk->values;
		c->page_values = 0;
		c->word_count = 0;
		c->levels = c->numbers = (struct mfs_pq_runs){0};
		c->length_count = c->length_at = 0;
	}
	t->group++;
}

/* A value as JSON is at most six times as long. */
static bool has_room(size_t room, const struct mfs_pq_slice *value)
{
	size_t len = value->len;

	if (len <= room / 6)
		return true;
	for (size_t i = 0; i < value->len && len <= room; i++)
		len += value->at[i] < 0x20 ? 5 : value->at[i] == '"' || value->at[i] == '\\';
	return len <= room;
}

int mfs_pq_table_next(struct mfs_pq_table *t, struct mfs_buf *to, bool *ret_end,
		      struct mfs_error *err)
{
	const size_t start = to->len;
	struct mfs_pq_slice value;

	while (!t->rows && t->group < t->group_count)
		next_group(t);
	*ret_end = !t->rows;
	if (*ret_end)
		return 0;
	t->rows--;
	for (size_t i = 0; i < t->count; i++) {
		int rc = mfs_pq_value(t, &t->columns[i], &value, err);

		if (rc)
			return rc;
		if (to->len - start > ROW_MAX || !has_room(ROW_MAX - (to->len - start), &value))
			return mfs_fail(err, -EFBIG, "%s: a row is longer than 1 GiB", t->name);
		mfs_buf_adds(to, i ? ", " : "{");
		mfs_buf_add_json(to, t->columns[i].name);
		mfs_buf_adds(to, ": ");
		if (value.at)
			mfs_buf_add_json_bytes(to, value.at, value.len);
		else
			mfs_buf_adds(to, "null");
	}
	mfs_buf_adds(to, "}\n");
	return to->failed ? mfs_fail_nomem(err) : 0;
}

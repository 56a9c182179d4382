#define _GNU_SOURCE
#include "formats/sft/row_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/regular.h"
#include "formats/sft/conversation_i.h"
#include "formats/sft/row_paths.h"
#include "formats/text/tables/table_text.h"

struct reading {
	const char *path;    /* of the file at hand */
	uint64_t first, end; /* rows that are wanted */
	uint64_t rows;	     /* so far, of all files */
	const struct mfs_row_hooks *hooks;
};

static bool is_wanted(const struct reading *r)
{
	return r->rows >= r->first && r->rows < r->end;
}

static int pass_row(const struct reading *r, const char *line, size_t len, struct mfs_error *err)
{
	json_error_t why;
	json_t *row = json_loadb(line, len, 0, &why);
	int rc;

	if (!row)
		return mfs_fail(err, -EINVAL, "no JSON: %s", why.text);
	rc = r->hooks->row(r->hooks->arg, row, err);
	json_decref(row);
	return rc;
}

/* ---- JSON lines ---- */

/* Zeros are not blank: a file with a hole in it has lost lines. */
static bool is_blank(const char *line, size_t len)
{
	return strspn(line, " \t\r\n") == len;
}

static int read_lines(struct reading *r, FILE *f, struct mfs_error *err)
{
	uint64_t number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = 0;

	while (!rc && (len = getline(&line, &room, f)) > 0) {
		number++;
		if (is_blank(line, (size_t)len))
			continue;
		if (is_wanted(r))
			rc = pass_row(r, line, (size_t)len, err);
		r->rows++;
	}
	/* getline() sets no error where it has no memory. */
	if (!rc && !feof(f))
		rc = mfs_fail(err, -EIO, "it cannot be read");
	free(line);
	return rc ? mfs_fail_in(err, "%s, line %llu", r->path, (unsigned long long)number) : 0;
}

/* ---- tables ---- */

static int read_rows(struct reading *r, struct mfs_table_text *t, struct mfs_error *err)
{
	struct mfs_buf line = {0};
	uint64_t number = 0;
	bool end = false;
	int rc = 0;

	while (!rc) {
		line.len = 0;
		rc = mfs_table_text_next(t, &line, &end, err);
		if (rc || end)
			break;
		number++;
		if (is_wanted(r))
			rc = pass_row(r, line.data, line.len, err);
		if (rc)
			mfs_fail_in(err, "%s, row %llu", r->path, (unsigned long long)number);
		r->rows++;
	}
	mfs_buf_release(&line);
	return rc;
}

static int read_table(struct reading *r, const struct mfs_table_ops *ops, int fd,
		      struct mfs_error *err)
{
	const struct mfs_row_hooks *h = r->hooks; /* NULL: rows are counted alone */
	const bool own = h && h->columns;
	const struct mfs_table_want want = {.columns = own ? h->columns : mfs_row_members,
					    .count = own ? h->column_count : mfs_row_member_count,
					    .any = true};
	struct mfs_table_text *t;
	int rc = mfs_table_text_open(ops, fd, r->path, &want, &t, err);

	if (rc)
		return rc;
	rc = read_rows(r, t, err);
	mfs_table_text_free(t);
	return rc;
}

/* ---- files ---- */

static int read_file(struct reading *r, struct mfs_error *err)
{
	const struct mfs_table_ops *table = NULL;
	uint8_t look[MFS_TABLE_LOOK];
	ssize_t len;
	FILE *f;
	int fd, rc = mfs_open_regular(AT_FDCWD, r->path, 0, &fd, NULL);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", r->path, mfs_open_regular_why(rc));
	len = pread(fd, look, sizeof(look), 0);
	if (len > 0)
		table = mfs_table_ops_of(look, (size_t)len);
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return mfs_fail_nomem(err);
	}
	rc = table ? read_table(r, table, fd, err) : read_lines(r, f, err);
	fclose(f);
	return rc;
}

int mfs_row_file_read(const char *path, uint64_t first, uint64_t end,
		      const struct mfs_row_hooks *hooks, uint64_t *ret_rows, struct mfs_error *err)
{
	struct reading r = {.first = first, .end = end, .hooks = hooks};
	struct mfs_arena arena = {0};
	const char *const *paths;
	uint32_t count;
	int rc = mfs_row_paths(path, &arena, &paths, &count, err);

	for (uint32_t i = 0; !rc && i < count; i++) {
		r.path = paths[i];
		rc = read_file(&r, err);
	}
	mfs_arena_release(&arena);
	*ret_rows = r.rows;
	return rc;
}

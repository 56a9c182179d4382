#define _GNU_SOURCE
#include "formats/sft/row_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/regular.h"

static bool is_blank(const char *line)
{
	return !line[strspn(line, " \t\r\n")];
}

static int open_rows(const char *path, FILE **ret, struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, NULL);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", path, mfs_open_regular_why(rc));
	*ret = fdopen(fd, "r");
	if (*ret)
		return 0;
	close(fd);
	return mfs_fail_nomem(err);
}

static int read_row(const struct mfs_row_hooks *hooks, const char *line, size_t len,
		    struct mfs_error *err)
{
	json_error_t why;
	json_t *row = json_loadb(line, len, 0, &why);
	int rc;

	if (!row)
		return mfs_fail(err, -EINVAL, "no JSON: %s", why.text);
	rc = hooks->row(hooks->arg, row, err);
	json_decref(row);
	return rc;
}

int mfs_row_file_read(const char *path, uint64_t first, uint64_t end,
		      const struct mfs_row_hooks *hooks, uint64_t *ret_rows, struct mfs_error *err)
{
	FILE *f;
	uint64_t number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = open_rows(path, &f, err);

	if (rc)
		return rc;
	for (*ret_rows = 0; !rc && (len = getline(&line, &room, f)) > 0;) {
		number++;
		if (is_blank(line))
			continue;
		if (*ret_rows >= first && *ret_rows < end)
			rc = read_row(hooks, line, (size_t)len, err);
		++*ret_rows;
	}
	if (!rc && ferror(f))
		rc = mfs_fail(err, -EIO, "it cannot be read");
	free(line);
	fclose(f);
	return rc ? mfs_fail_in(err, "%s, line %llu", path, (unsigned long long)number) : 0;
}

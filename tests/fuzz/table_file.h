/* A table as one input: whatever is in it, its rows are read or refused; what is read is lines. */
#ifndef MFS_TESTS_FUZZ_TABLE_FILE_H
#define MFS_TESTS_FUZZ_TABLE_FILE_H

#define _GNU_SOURCE

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/text/tables/table_text.h"
#include "tests/fuzz/fuzz.h"

#define MOST_ROWS 1000

static int read_all(struct mfs_table_text *t, struct mfs_error *err)
{
	struct mfs_buf rows = {0};
	bool end = false;
	int rc = 0;

	for (int i = 0; i < MOST_ROWS && !rc && !end; i++) {
		rows.len = 0;
		rc = mfs_table_text_next(t, &rows, &end, err);
		if (!rc && !end)
			fuzz_require(rows.len > 2 && rows.data[0] == '{' &&
				     !memchr(rows.data, '\n', rows.len - 1));
	}
	mfs_buf_release(&rows);
	return rc;
}

static int fuzz_table(const struct mfs_table_ops *kind, const struct mfs_table_want *want,
		      const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const int fd = memfd_create("input", MFD_CLOEXEC);
	struct mfs_table_text *t;
	int rc;

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	rc = mfs_table_text_open(kind, fd, "input", want, &t, err);
	if (!rc) {
		rc = read_all(t, err);
		mfs_table_text_free(t);
	}
	close(fd);
	return rc;
}

#endif

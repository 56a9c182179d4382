/* Input: a Parquet file. Whatever is in it, rows of two columns are read or refused; what is read
 * is lines. */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/text/parquet/parquet_text.h"

#define MOST_ROWS 1000

static int read_all(struct mfs_pq_table *t, struct mfs_error *err)
{
	struct mfs_buf rows = {0};
	bool end = false;
	int rc = 0;

	for (int i = 0; i < MOST_ROWS && !rc && !end; i++) {
		rows.len = 0;
		rc = mfs_pq_table_next(t, &rows, &end, err);
		if (!rc && !end)
			fuzz_require(rows.len > 2 && rows.data[0] == '{' &&
				     !memchr(rows.data, '\n', rows.len - 1));
	}
	mfs_buf_release(&rows);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	static const char *const columns[] = {"text", "w"};
	const int fd = memfd_create("input", MFD_CLOEXEC);
	struct mfs_pq_table *t;
	int rc;

	fuzz_require(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	rc = mfs_pq_table_open(fd, "input", columns, 2, &t, err);
	if (!rc) {
		rc = read_all(t, err);
		mfs_pq_table_free(t);
	}
	close(fd);
	return rc;
}

FUZZ_TARGET

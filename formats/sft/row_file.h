/*
 * Rows of training data, each as an object of JSON: lines of a file of JSON lines, of which those
 * of blanks alone are no rows; rows of a table (Parquet, Arrow), of which the columns that
 * the caller wants are read; or both, of all files of an HF dataset (row_paths.h).
 */
#ifndef MFS_FORMATS_SFT_ROW_FILE_H
#define MFS_FORMATS_SFT_ROW_FILE_H

#include <jansson.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_row_hooks {
	void *arg;
	int (*row)(void *arg, json_t *row, struct mfs_error *err); /* borrows the row */
	/* of a table, those that are read; NULL: those that a row of conversation.h may have */
	const char *const *columns;
	size_t column_count;
};

/* Calls the hook for the rows [first, end). end UINT64_MAX: all. *ret_rows: how many there are; the
 * others are not parsed. -EINVAL: a row is no JSON, or a table is damaged; or what the hook fails
 * with, each with the file and the line or row; -errno of opening; or as mfs_row_paths() and tables
 * fail. */
int mfs_row_file_read(const char *path, uint64_t first, uint64_t end,
		      const struct mfs_row_hooks *hooks, uint64_t *ret_rows, struct mfs_error *err);

#endif

/*
 * A file of rows of training data, each as an object of JSON: JSON lines. Lines of blanks alone are
 * no rows.
 */
#ifndef MFS_FORMATS_SFT_ROW_FILE_H
#define MFS_FORMATS_SFT_ROW_FILE_H

#include <jansson.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_row_hooks {
	void *arg;
	int (*row)(void *arg, json_t *row, struct mfs_error *err); /* borrows the row */
};

/* Calls the hook for the rows [first, end). end UINT64_MAX: all. *ret_rows: how many the file has;
 * the others are not parsed. -EINVAL: a row is no JSON; or what the hook fails with, each with the
 * file and the line; -errno of opening. */
int mfs_row_file_read(const char *path, uint64_t first, uint64_t end,
		      const struct mfs_row_hooks *hooks, uint64_t *ret_rows, struct mfs_error *err);

#endif

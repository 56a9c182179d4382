/*
 * A column of Arrow IPC streams or files as rows (rows.h). Of a column of lists of integers, each
 * list is a row; of a column of integers, each integer is a row of one token.
 *
 * What is kept is a table of extents: rows whose tokens lie back to back. Mostly an extent is a
 * record batch. Null rows are empty; where one has elements all the same, which the format permits,
 * it parts two extents.
 */
#ifndef MFS_DATASET_ROWS_ARROW_ROWS_H
#define MFS_DATASET_ROWS_ARROW_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"

struct mfs_fileset;

struct mfs_arrow_rows_config {
	const char *column; /* NULL: "input_ids", or else the only column of lists of integers */
	bool integers;	    /* column is one of integers instead */
	unsigned threads;   /* that open files; 0: one */
};

/* The rows of all files of set, in the order in which files were added. There is at least one file.
 * name is for messages. On success the rows own set. Errors: hf_dataset.h. */
int mfs_arrow_rows_open(struct mfs_fileset *set, const char *name,
			const struct mfs_arrow_rows_config *config, struct mfs_rows **ret,
			struct mfs_error *err);
/* Like mfs_arrow_rows_open(), for a file in memory, which stays the caller's. */
int mfs_arrow_rows_memory(const void *bytes, uint64_t size, const char *name,
			  const struct mfs_arrow_rows_config *config, struct mfs_rows **ret,
			  struct mfs_error *err);

#endif

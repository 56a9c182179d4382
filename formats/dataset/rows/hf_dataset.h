/*
 * Datasets of HuggingFace `datasets` with token ids, as rows (rows.h): what save_to_disk wrote, a
 * cache directory, any directory of *.arrow files, or one such file (docs/formats/hf-datasets.md:
 * which files, in which order). A row is a row of the dataset, its tokens are a column of lists of
 * integers. Null rows are empty rows. uint32 and uint64 are shown as int32 and int64: ids from 2^31
 * (2^63) on are -EIO when they are read.
 *
 * Opening reads two small pieces of each record batch and keeps 48 bytes of it. Indices of rows,
 * where there are some, cost a pass over all rows and 8 bytes for every few of them.
 */
#ifndef MFS_DATASET_ROWS_HF_DATASET_H
#define MFS_DATASET_ROWS_HF_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"

/* By names alone: a *.arrow file, or a directory with one of the files above. No Arrow file is
 * read. */
bool mfs_hf_dataset_looks_like_one(const char *path);

/* Its splits, in their own order, allocated in arena; *ret_count is 0 if it has none. */
int mfs_hf_dataset_splits(const char *path, struct mfs_arena *arena, const char *const **ret,
			  uint32_t *ret_count, struct mfs_error *err);

/* NULL or false: not given. */
struct mfs_hf_dataset_options {
	const char *column; /* NULL: input_ids, or else the only column of lists of integers */
	bool has_eod;	    /* eod follows the tokens of each row, as one more of it */
	int64_t eod;
};

/*
 * split: one of its splits, NULL where there are none. opt may be NULL.
 *
 * -ENOENT: no such file or split; -ENODATA: no such column, none with token ids (the sentence lists
 * what there is), several that could be, or a file of several is missing; -ENOTSUP: compressed or
 * dictionary-encoded, no list of integers, a null among tokens; -EINVAL: a damaged file, files that
 * do not agree, an eod that the dtype cannot hold.
 */
int mfs_hf_dataset_open(const char *path, const char *split,
			const struct mfs_hf_dataset_options *opt, struct mfs_rows **ret,
			struct mfs_error *err);

#endif

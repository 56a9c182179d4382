/*
 * Which files the rows of a path are in: the path itself, or those of an HF dataset, in the order
 * of their rows.
 *
 *   save_to_disk's directory, or a cache:   its *.arrow files (formats/dataset/rows/hf_files.h)
 *   a repository of the Hub:                data/SPLIT-00000-of-00002.parquet, ..., or the same
 *                                           without data/; also .jsonl and .arrow
 *
 * DIR/SPLIT is a split of DIR, and DIR is the only split that it has.
 */
#ifndef MFS_FORMATS_SFT_ROW_PATHS_H
#define MFS_FORMATS_SFT_ROW_PATHS_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

/* *ret lies in arena. Nothing is opened: a path that is not there is a file. -ENOENT: its rows are
 * in several splits, which the sentence lists; -EINVAL: a split has files in two forms, as
 * train.jsonl and train.parquet; -ENODATA: a directory without such files, or one of them is
 * missing; -ENOTSUP: its rows are in another order than their files. */
int mfs_row_paths(const char *path, struct mfs_arena *arena, const char *const **ret,
		  uint32_t *ret_count, struct mfs_error *err);

#endif

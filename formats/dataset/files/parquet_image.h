/*
 * Rows as Parquet files of which any byte can be computed (parquet_write.h): uncompressed, PLAIN,
 * version 1 data pages of so many entries each, whatever rows they cut. An entry is a token or an
 * empty row.
 *
 *   input_ids: list<element: T>   T = int32, uint16, ... as the rows' dtype; 16 bits and less take
 *     32 there
 *   NAME: T                       one for each column of the rows
 *   text: string                  where a text is given
 *
 * Sizes and places of row groups follow from the numbers of rows and tokens in them: each column
 * chunk gets room for its tokens and for as many empty rows as it has rows. Zeros fill what it does
 * not need. How many rows are empty is counted when a row group, or the footer of its file, is
 * first read: a pass over the starts of its rows. Where there are empty rows, 24 bytes are kept of
 * each page from then on.
 *
 * Each column chunk begins at a multiple of MFS_PARQUET_ALIGN, which is a page of memory, and rows
 * that cannot be read (rows->bad) have row groups of their own: they share no page with others.
 */
#ifndef MFS_DATASET_FILES_PARQUET_IMAGE_H
#define MFS_DATASET_FILES_PARQUET_IMAGE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/text/row_text.h"
#include "formats/plan/vfile.h"

#define MFS_PARQUET_ALIGN      4096
#define MFS_PARQUET_GROUP      (16u << 20) /* tokens in a row group */
#define MFS_PARQUET_GROUP_ROWS (1u << 20)  /* rows in it, at most */
/* entries of a page: 1 MiB of int32, as others write them */
#define MFS_PARQUET_PAGE     (256u << 10)
#define MFS_PARQUET_MAX_PAGE (512u << 10)

/* 0: as above. */
struct mfs_parquet_config {
	uint64_t group;	     /* tokens; a row that has more is a row group by itself */
	uint64_t group_rows; /* rows */
	uint64_t page;	     /* entries, at most MFS_PARQUET_MAX_PAGE */
	/* bytes of a file, about; 0: a choice by the size of all, for parallel readers */
	uint64_t file;
	struct mfs_row_text *text; /* of the rows; NULL: there is no such column */
};

struct mfs_parquet_image;

/* Decides where row groups and files begin: a few starts are read for each. rows and text must
 * outlive it. No rows: one file without a row group. -ENOTSUP: tokens or a column have a type that
 * Parquet has not. */
int mfs_parquet_image_new(const struct mfs_rows *rows, const struct mfs_parquet_config *config,
			  struct mfs_parquet_image **ret, struct mfs_error *err);
void mfs_parquet_image_free(struct mfs_parquet_image *v);

uint32_t mfs_parquet_image_files(const struct mfs_parquet_image *v);
/* A new virtual file, to be freed before the view. */
int mfs_parquet_image_file(struct mfs_parquet_image *v, uint32_t file, struct mfs_vfile **ret,
			   struct mfs_error *err);

#endif

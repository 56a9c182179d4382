/*
 * Rows as Arrow IPC stream files, byte for byte computable (Columnar.rst, "IPC Streaming Format"; Message.fbs,
 * Schema.fbs): a schema message, few large record batches, an end of stream.
 *
 *   input_ids: list<item: T>, T = int32, uint16, ... as the rows' dtype, or fixed_size_list<item: T>[row_length]
 *   NAME: T    one for each column of the rows
 *
 * Each message begins and each buffer of values lies at a multiple of MFS_ARROW_ALIGN, which is a page: rows that
 * cannot be read (rows->bad) have batches of their own and so never share a page with others.
 */
#ifndef MFS_DATASET_ARROW_VIEW_H
#define MFS_DATASET_ARROW_VIEW_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows.h"
#include "formats/plan/vfile.h"

#define MFS_ARROW_ALIGN 4096
#define MFS_ARROW_BATCH (256u << 20) /* bytes of tokens in a batch, about */

struct mfs_arrow_config {
	uint64_t batch; /* bytes of tokens; 0: MFS_ARROW_BATCH */
	uint64_t
		file; /* bytes of tokens in a file; 0: a choice by the size of all, for parallel readers */
};

struct mfs_arrow_view;

/* Decides where batches and files begin: a few starts are read for each, whatever the number of rows. rows must outlive it. No rows: one
 * file without a batch. */
int mfs_arrow_view_new(const struct mfs_rows *rows, const struct mfs_arrow_config *config,
		       struct mfs_arrow_view **ret, struct mfs_error *err);
void mfs_arrow_view_free(struct mfs_arrow_view *v);

uint32_t mfs_arrow_view_files(const struct mfs_arrow_view *v);
/* A new virtual file, to be freed before the view. Values pass through where rows know extents. */
int mfs_arrow_view_file(struct mfs_arrow_view *v, uint32_t file, struct mfs_vfile **ret,
			struct mfs_error *err);

#endif

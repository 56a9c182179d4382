/*
 * Datasets as Megatron reads them: PREFIX.idx and PREFIX.bin (indexed_dataset.h). Each is a new
 * virtual file, and what it is made of must outlive it.
 */
#ifndef MFS_DATASET_FILES_IDX_IMAGE_H
#define MFS_DATASET_FILES_IDX_IMAGE_H

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/plan/vfile.h"

/*
 * Each row is a sequence and a document. The .bin is the rows' tokens, which pass through where
 * they can. -ENOTSUP: their dtype has no code; -EINVAL: there are more than MFS_MAX_SEQUENCES rows.
 * The length of a row of 2^31 tokens or more cannot be read, nor that of a row whose place is
 * unknown.
 */
int mfs_idx_image_idx(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_idx_image_bin(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);

/* The files of an indexed dataset: the .idx merged and its pointers repaired, the .bin files whole
 * and back to back. */
int mfs_idx_image_merged_idx(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err);
int mfs_idx_image_merged_bin(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err);
/* Document entries [first, first+count) of the merged .idx; there are as many. */
int mfs_idx_image_read_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, void *ret, struct mfs_error *err);

#endif

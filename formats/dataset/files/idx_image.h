/*
 * Datasets as Megatron reads them, PREFIX.idx and PREFIX.bin (indexed_dataset.h), each a new virtual file that
 * what it is made of must outlive.
 */
#ifndef MFS_DATASET_FILES_IDX_IMAGE_H
#define MFS_DATASET_FILES_IDX_IMAGE_H

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/plan/vfile.h"

/*
 * Of rows: each is a sequence and a document. The .bin is their tokens, which pass through where they can.
 * -ENOTSUP: their dtype has no code; -EINVAL: more than MFS_MAX_SEQUENCES rows. A row of 2^31 tokens or more,
 * or one that cannot be located, makes the .idx unreadable, when its length is read.
 */
int mfs_idx_image_idx(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_idx_image_bin(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);

/* Of an indexed dataset: the .idx merged and its pointers repaired, the .bin files whole and back to back. */
int mfs_idx_image_merged_idx(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err);
int mfs_idx_image_merged_bin(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err);
/* Document entries [first, first+count) of the merged .idx; there are as many. */
int mfs_idx_image_read_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, void *ret, struct mfs_error *err);

#endif

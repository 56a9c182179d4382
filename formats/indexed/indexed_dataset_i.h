/* Private to indexed_dataset*.c. */
#ifndef MFS_INDEXED_INDEXED_DATASET_I_H
#define MFS_INDEXED_INDEXED_DATASET_I_H

#include "formats/indexed/indexed_members.h"

/* Copies bytes of an .idx; the range must lie inside. -EIO if a page cannot be read. */
int mfs_idx_copy(const struct mfs_idx_member *p, uint64_t off, void *buf, uint64_t len,
		 struct mfs_error *err);

/* Decides whether the pointers are believed, and fills pointers, sums and bin_short. */
int mfs_idx_judge_pointers(struct mfs_idx_member *p, struct mfs_error *err);

/* -EINVAL, with a sentence, if [first, first+count) is not inside of total. */
int mfs_idx_check_range(const char *what, uint64_t first, uint64_t count, uint64_t total,
			struct mfs_error *err);

#endif

/* Private to dist*.c, the reader of torch_dist. */
#ifndef MFS_CKPT_READ_DIST_I_H
#define MFS_CKPT_READ_DIST_I_H

#include "formats/ckpt/read/dist.h"

/* Reads the index, adds its files, and checks that all items lie in them (dist_index.c). */
int mfs_dist_open_index(struct mfs_dist_reader *r);
/* Makes an index of zarr's directories, and adds their files (dist_arrays.c). */
int mfs_dist_index_arrays(struct mfs_dist_reader *r);
/* Whether any tensor of the index is the model's. */
bool mfs_dist_has_model(const struct mfs_dist_reader *r);
/* Adds the found chunks of the model's tensors (dist_tensors.c). */
int mfs_dist_add_tensors(struct mfs_dist_reader *r);

#endif

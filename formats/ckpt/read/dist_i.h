/* Private to dist*.c, the reader of torch_dist. */
#ifndef MFS_CKPT_READ_DIST_I_H
#define MFS_CKPT_READ_DIST_I_H

#include "formats/ckpt/read/dist.h"

/* dist_index.c: reads the index, adds its files, and checks that all of the items are in them. */
int mfs_dist_open_index(struct mfs_dist_reader *r);
/* dist_tensors.c: the found chunks of the model's tensors. */
int mfs_dist_add_tensors(struct mfs_dist_reader *r);

#endif

/* The items of torch_dist that hold what a module of Transformer Engine keeps
 * (torch/extra_state.h): a list of a tensor of bytes. */
#ifndef MFS_MEGATRON_WRITE_EXTRA_ITEMS_H
#define MFS_MEGATRON_WRITE_EXTRA_ITEMS_H

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/torch/extra_state.h"

/* Appends the item. s: NULL, or without products: a list of None. Items of states of the same
 * products, length and recipe have the same number of bytes, whatever is in the arrays. */
int mfs_extra_item_write(const struct mfs_extra_state *s, struct mfs_buf *out,
			 struct mfs_error *err);

#endif

/* Every kind of view that is made of a checkpoint, in the order of a listing; of a dataset:
 * fs/data/kinds.h. Those that have a directory in common stand one behind the other. */
#ifndef MFS_FS_VIEW_KINDS_H
#define MFS_FS_VIEW_KINDS_H

/* X(NAME): a file defines mfs_view_kind_NAME (fs/view/kind.h). */
#define MFS_CKPT_VIEWS(X)                                                                          \
	X(hf)                                                                                      \
	X(megatron_torch)                                                                          \
	X(megatron_torch_dist)

#endif

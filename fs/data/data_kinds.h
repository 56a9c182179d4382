/* Every kind of view that is made of a dataset, in the order of a listing. */
#ifndef MFS_FS_DATA_DATA_KINDS_H
#define MFS_FS_DATA_DATA_KINDS_H

#include "fs/view/kind.h"

/* X(NAME): a file defines mfs_view_kind_NAME. */
#define MFS_DATA_VIEWS(X)                                                                          \
	X(data_hf)                                                                                 \
	X(data_jsonl)                                                                              \
	X(data_megatron)                                                                           \
	X(data_npy)                                                                                \
	X(data_parquet)                                                                            \
	X(data_text)                                                                               \
	X(data_samples)                                                                            \
	X(data_cache)

MFS_DATA_VIEWS(MFS_VIEW_DECLARE)

extern const struct mfs_view_table mfs_data_views;

#endif

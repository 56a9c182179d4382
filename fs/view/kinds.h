/* Every kind of view, in the order of a listing. Those that have a directory in common stand one behind the other. */
#ifndef MFS_FS_VIEW_KINDS_H
#define MFS_FS_VIEW_KINDS_H

/* X(NAME): a file defines mfs_view_kind_NAME (fs/view/kind.h). */
#define MFS_VIEW_TABLE(X)                                                                          \
	X(hf)                                                                                      \
	X(megatron_torch)                                                                          \
	X(megatron_torch_dist)                                                                     \
	X(data_hf)                                                                                 \
	X(data_jsonl)                                                                              \
	X(data_megatron)                                                                           \
	X(data_npy)                                                                                \
	X(data_parquet)                                                                            \
	X(data_samples)                                                                            \
	X(data_cache)

#endif

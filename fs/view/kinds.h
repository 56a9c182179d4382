/* The kinds of views that are made of a checkpoint, in the order of a listing. Kinds in one
 * directory follow each other. Those of datasets are in fs/data/data_kinds.h. */
#ifndef MFS_FS_VIEW_KINDS_H
#define MFS_FS_VIEW_KINDS_H

/* X(NAME): a file defines mfs_view_kind_NAME (fs/view/kind.h). */
#define MFS_CKPT_VIEWS(X)                                                                          \
	X(hf)                                                                                      \
	X(hf_bf16)                                                                                 \
	X(hf_fp16)                                                                                 \
	X(hf_fp32)                                                                                 \
	X(hf_fp8)                                                                                  \
	X(hf_fp8_tensor)                                                                           \
	X(hf_bin)                                                                                  \
	X(vllm)                                                                                    \
	X(vllm_fp8)                                                                                \
	X(vllm_fp8_tensor)                                                                         \
	X(sglang)                                                                                  \
	X(gguf)                                                                                    \
	X(gguf_f16)                                                                                \
	X(raw)                                                                                     \
	X(megatron_torch)                                                                          \
	X(megatron_torch_dist)                                                                     \
	X(megatron_hybrid_torch)                                                                   \
	X(megatron_hybrid_torch_dist)

#endif

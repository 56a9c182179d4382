/* Axes of Megatron's parameters. */
#ifndef MFS_CKPT_DIM_H
#define MFS_CKPT_DIM_H

/* Sizes of Megatron's tensors, from the arguments (dims.c). X2: gate and up rows together, or the
 * two inputs of eh_proj. */
enum mfs_dim {
	MFS_DIM_NONE,
	MFS_DIM_ONE,
	MFS_DIM_HIDDEN,
	MFS_DIM_HIDDEN_X2,
	MFS_DIM_FFN,
	MFS_DIM_FFN_X2,
	MFS_DIM_HEAD_COUNT,
	/* (heads + 2 groups) * head; with an output gate (2 heads + 2 groups) * head */
	MFS_DIM_QKV,
	MFS_DIM_HEADS, /* heads * head */
	MFS_DIM_HEAD,  /* kv_channels */
	MFS_DIM_KEYS,  /* groups * head */
	MFS_DIM_VOCAB, /* padded */
	MFS_DIM_POSITIONS,
	MFS_DIM_EXPERTS,
	MFS_DIM_MOE_FFN,
	MFS_DIM_MOE_FFN_X2,
	MFS_DIM_SHARED_FFN,
	MFS_DIM_SHARED_FFN_X2,
	MFS_DIM_Q_LORA,
	MFS_DIM_KV_LORA,
	MFS_DIM_KV_DOWN, /* kv_lora_rank + qk_pos_emb_head_dim */
	MFS_DIM_MLA_Q,	 /* heads * (qk_head_dim + qk_pos_emb_head_dim) */
	MFS_DIM_MLA_KV,	 /* heads * (qk_head_dim + v_head_dim) */
	MFS_DIM_MLA_OUT, /* heads * v_head_dim */
	/* of a gated delta net: rows of in_proj, channels and width of its convolution, value
	 * heads, numbers of one and of all of these */
	MFS_DIM_LINEAR_IN,
	MFS_DIM_LINEAR_CONV,
	MFS_DIM_LINEAR_KERNEL,
	MFS_DIM_LINEAR_HEAD_COUNT,
	MFS_DIM_LINEAR_HEAD,
	MFS_DIM_LINEAR_HEADS,
	/* of a Mamba-2 mixer: rows of in_proj, channels and width of its convolution, heads,
	 * numbers of all of these */
	MFS_DIM_MAMBA_IN,
	MFS_DIM_MAMBA_CONV,
	MFS_DIM_MAMBA_KERNEL,
	MFS_DIM_MAMBA_HEAD_COUNT,
	MFS_DIM_MAMBA_HEADS,
	MFS_DIM_COUNT
};

/* Axes of a parameter; those that there are not are MFS_DIM_NONE. */
#define MFS_PARAM_AXES 3

/* How many axes there are. */
static inline unsigned mfs_param_ndim(const enum mfs_dim axes[MFS_PARAM_AXES])
{
	unsigned ndim = 0;

	while (ndim < MFS_PARAM_AXES && axes[ndim] != MFS_DIM_NONE)
		ndim++;
	return ndim;
}

#endif

#include "formats/model/dims.h"

#include "formats/base/bytes.h"

/* Saturates: no tensor has such a size, so a check of shapes fails with both numbers. */
static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return mfs_mul_overflows(a, b, &product) ? UINT64_MAX : product;
}

/* MFS_UNSET becomes 0. */
static uint64_t size_of(int64_t argument)
{
	return argument > 0 ? (uint64_t)argument : 0;
}

void mfs_dims(const struct mfs_megatron_args *a, uint64_t padded, uint64_t dims[MFS_DIM_COUNT])
{
	const uint64_t heads = size_of(a->num_attention_heads), head = size_of(a->kv_channels);
	const uint64_t nope = size_of(a->qk_head_dim), rope = size_of(a->qk_pos_emb_head_dim);

	dims[MFS_DIM_NONE] = 0;
	dims[MFS_DIM_HIDDEN] = size_of(a->hidden_size);
	dims[MFS_DIM_HIDDEN_X2] = times(2, dims[MFS_DIM_HIDDEN]);
	dims[MFS_DIM_FFN] = size_of(a->ffn_hidden_size);
	dims[MFS_DIM_FFN_X2] = times(2, dims[MFS_DIM_FFN]);
	dims[MFS_DIM_QKV] = times(heads + 2 * size_of(a->num_query_groups), head);
	dims[MFS_DIM_HEADS] = times(heads, head);
	dims[MFS_DIM_HEAD] = head;
	dims[MFS_DIM_VOCAB] = padded;
	dims[MFS_DIM_POSITIONS] = size_of(a->max_position_embeddings);
	dims[MFS_DIM_EXPERTS] = size_of(a->num_experts);
	dims[MFS_DIM_MOE_FFN] = size_of(a->moe_ffn_hidden_size);
	dims[MFS_DIM_MOE_FFN_X2] = times(2, dims[MFS_DIM_MOE_FFN]);
	dims[MFS_DIM_SHARED_FFN] = size_of(a->moe_shared_expert_intermediate_size);
	dims[MFS_DIM_SHARED_FFN_X2] = times(2, dims[MFS_DIM_SHARED_FFN]);
	dims[MFS_DIM_Q_LORA] = size_of(a->q_lora_rank);
	dims[MFS_DIM_KV_LORA] = size_of(a->kv_lora_rank);
	dims[MFS_DIM_KV_DOWN] = size_of(a->kv_lora_rank) + rope;
	dims[MFS_DIM_MLA_Q] = times(heads, nope + rope);
	dims[MFS_DIM_MLA_KV] = times(heads, nope + size_of(a->v_head_dim));
	dims[MFS_DIM_MLA_OUT] = times(heads, size_of(a->v_head_dim));
}

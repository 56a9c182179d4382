#include "fs/view/vllm_layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/ckpt.h"

/* "tpN" or "tpN-epN". False: spec has another form. */
static bool read_spec(const char *spec, uint32_t *ret_tp, uint32_t *ret_ep)
{
	char again[32];

	*ret_tp = *ret_ep = 0;
	if (sscanf(spec, "tp%3" SCNu32 "-ep%3" SCNu32, ret_tp, ret_ep) < 1 || !*ret_tp)
		return false;
	snprintf(again, sizeof(again), *ret_ep ? "tp%" PRIu32 "-ep%" PRIu32 : "tp%" PRIu32, *ret_tp,
		 *ret_ep);
	return !strcmp(again, spec);
}

/* True if any layers have no experts. */
static bool has_dense(const struct mfs_megatron_args *a)
{
	return !a->moe_layers || mfs_args_layers_differ(a);
}

/* Numbers that N workers share; 0: the model has no such. */
static int check_shares(const struct mfs_ckpt *ckpt, const struct mfs_vllm_layout *layout,
			struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const int64_t moe = a->moe_layers ? a->moe_ffn_hidden_size : 0;
	const int64_t shared = a->moe_layers ? a->moe_shared_expert_intermediate_size : 0;
	const struct {
		const char *what;
		int64_t size;
	} shares[] = {{"the padding of the vocabulary", MFS_VLLM_PADDING},
		      {"num_attention_heads", a->num_attention_heads},
		      {"ffn_hidden_size", has_dense(a) ? a->ffn_hidden_size : 0},
		      {"moe_ffn_hidden_size", layout->ep || moe < 0 ? 0 : moe},
		      {"moe_shared_expert_intermediate_size", shared < 0 ? 0 : shared}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(shares); i++)
		if (shares[i].size % layout->tp)
			return mfs_fail(err, -EINVAL,
					"%s: %s is %lld, which %u workers cannot share",
					mfs_ckpt_dir(ckpt), shares[i].what,
					(long long)shares[i].size, layout->tp);
	return 0;
}

/* Groups are at more than one worker where these are more. */
static int check_groups(const struct mfs_ckpt *ckpt, uint32_t tp, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const int64_t groups = a->num_query_groups;

	if (a->multi_latent_attention || (groups > 0 && (!(groups % tp) || !(tp % groups))))
		return 0;
	return mfs_fail(err, -EINVAL, "%s: num_query_groups is %lld, which %u workers cannot share",
			mfs_ckpt_dir(ckpt), (long long)groups, tp);
}

static const char *engine_name(const struct mfs_vllm_layout *layout)
{
	return layout->engine == MFS_ENGINE_SGLANG ? "SGLang" : "vLLM";
}

static int check_experts(const struct mfs_ckpt *ckpt, const struct mfs_vllm_layout *layout,
			 uint32_t ep, struct mfs_error *err)
{
	const uint32_t tp = layout->tp;
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);

	if (!a->moe_layers)
		return mfs_fail(err, -EINVAL, "%s: a model without experts, expected tpN",
				mfs_ckpt_dir(ckpt));
	if (ep != tp)
		return mfs_fail(err, -EINVAL,
				"tp%u-ep%u: %s has experts at all workers of an engine, "
				"expected tp%u-ep%u",
				tp, ep, engine_name(layout), tp, tp);
	/* sglang/srt/layers/moe/fused_moe_triton/layer.py */
	if (layout->engine == MFS_ENGINE_SGLANG && a->num_experts % ep)
		return mfs_fail(err, -EINVAL, "%s: %lld experts, which %u workers cannot share",
				mfs_ckpt_dir(ckpt), (long long)a->num_experts, ep);
	if (ep > a->num_experts)
		return mfs_fail(err, -EINVAL, "%s: %lld experts, fewer than %u workers",
				mfs_ckpt_dir(ckpt), (long long)a->num_experts, ep);
	return 0;
}

int mfs_vllm_layout_parse(const struct mfs_ckpt *ckpt, const char *spec,
			  struct mfs_vllm_layout *ret, struct mfs_error *err)
{
	uint32_t ep;
	int rc = 0;

	if (!read_spec(spec, &ret->tp, &ep))
		return mfs_fail(err, -ENOENT, "'%s' are no workers of %s's: name tpN or tpN-epN",
				spec, engine_name(ret));
	ret->ep = ep != 0;
	if (ret->ep)
		rc = check_experts(ckpt, ret, ep, err);
	if (!rc)
		rc = check_shares(ckpt, ret, err);
	return rc ? rc : check_groups(ckpt, ret->tp, err);
}

/* ---- blocks ---- */

/* What a worker has of a number that it shares; 0 of one that the model lacks. */
static uint64_t part_of(int64_t size, uint32_t workers)
{
	return size > 0 ? (uint64_t)size / workers : 0;
}

/* A worker has one group at least. */
static uint64_t groups_of(const struct mfs_megatron_args *a, uint32_t tp)
{
	const uint64_t groups = part_of(a->num_query_groups, tp);

	return groups ? groups : 1;
}

int mfs_vllm_layout_blocks(const struct mfs_ckpt *ckpt, const struct mfs_vllm_layout *layout,
			   uint64_t block, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const bool latent = a->multi_latent_attention, moe = a->moe_layers != NULL;
	const uint32_t tp = layout->tp;
	/* A matrix that is whole, and alone, may end inside of a block. */
	const uint64_t heads = latent && tp == 1 ? 0 : part_of(a->num_attention_heads, tp);
	const struct {
		const char *what;
		uint64_t size;
	} parts[] = {{"queries", heads * part_of(latent ? a->qk_head_dim + a->qk_pos_emb_head_dim
							: a->kv_channels,
						 1)},
		     {"keys", latent ? 0 : groups_of(a, tp) * part_of(a->kv_channels, 1)},
		     {"keys and values",
		      latent ? heads * part_of(a->qk_head_dim + a->v_head_dim, 1) : 0},
		     {"values", latent ? heads * part_of(a->v_head_dim, 1) : 0},
		     {"q_lora_rank", latent ? part_of(a->q_lora_rank, 1) : 0},
		     {"ffn_hidden_size", has_dense(a) ? part_of(a->ffn_hidden_size, tp) : 0},
		     {"moe_ffn_hidden_size",
		      moe ? part_of(a->moe_ffn_hidden_size, layout->ep ? 1 : tp) : 0},
		     {"moe_shared_expert_intermediate_size",
		      moe ? part_of(a->moe_shared_expert_intermediate_size, tp) : 0},
		     {"hidden_size", moe ? part_of(a->hidden_size, 1) : 0}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts); i++)
		if (parts[i].size % block)
			return mfs_fail(err, -EINVAL,
					"%s: each of %u workers has %llu of %s, expected a "
					"multiple of %llu",
					mfs_ckpt_dir(ckpt), tp, (unsigned long long)parts[i].size,
					parts[i].what, (unsigned long long)block);
	return 0;
}

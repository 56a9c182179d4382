/*
 * Random models of every family and random layouts that are possible for them; and where Megatron
 * puts layers, by the formulas of get_num_layers_to_build() and get_transformer_layer_offset()
 * (megatron/core/transformer/transformer_block.py, transformer_layer.py), not by
 * formats/megatron's.
 */
#ifndef MFS_TESTS_RANDOM_LAYOUT_H
#define MFS_TESTS_RANDOM_LAYOUT_H

#include "formats/megatron/layout.h"
#include "tests/unit/fake_ckpt.h"

static inline uint32_t random_of(uint32_t n)
{
	return (uint32_t)rand() % n;
}

#define RANDOM_FAMILIES 10

static const struct {
	const char *name;
	struct mfs_megatron_args (*args)(void);
	bool mtp;
} random_families[RANDOM_FAMILIES] = {
	{"llama", fake_llama, false},
	{"qwen2", fake_qwen2, false},
	{"qwen3", fake_qwen3, false},
	{"mixtral", fake_mixtral, false},
	{"gpt2", fake_gpt2, false},
	{"deepseek", fake_deepseek, true},
	{"llama with MTP", fake_llama, true},
	{"qwen2 with MTP", fake_qwen2, true},
	{"qwen3-next", fake_qwen3_next, true},
	{"nemotron-h", fake_nemotron_h, false},
};

/* Layers of chunk (vp, pp) and the number of its first, as Megatron computes both. */
static inline uint32_t random_layout_layers(const struct mfs_layout *p,
					    const struct mfs_megatron_args *a, uint32_t vp,
					    uint32_t pp, uint32_t *ret_first)
{
	const uint32_t layers = (uint32_t)a->num_layers;
	const uint32_t middle_stages = p->pp - (p->first ? 1 : 0) - (p->last ? 1 : 0);
	const uint32_t middle = layers - p->first - p->last;
	uint32_t each = middle_stages ? middle / middle_stages : 0, chunks, before;

	if (!p->first && !p->last) {
		each = layers / p->pp / p->vpp;
		*ret_first = vp * (layers / p->vpp) + pp * each;
		return each;
	}
	chunks = p->first / p->vpp + middle / p->vpp + p->last / p->vpp;
	before = pp - (p->first ? 1 : 0); /* middle stages in front; of stage 0 not asked for */
	*ret_first = vp * chunks;
	if (pp)
		*ret_first += p->first / p->vpp +
			      before * (middle_stages ? middle / p->vpp / middle_stages : 0);
	if (!pp && p->first)
		each = p->first;
	if (pp == p->pp - 1 && p->last)
		each = p->last;
	return each / p->vpp;
}

/* Stages of random sizes: num_layers follows from them. */
static inline void random_stages(struct mfs_megatron_args *a, struct mfs_layout *p)
{
	p->pp = 1 + random_of(4);
	p->vpp = p->pp > 1 && !a->hybrid_layers ? 1 + random_of(3) : 1;
	if (p->pp > 1 && random_of(3) == 0)
		p->first = p->vpp * (1 + random_of(2));
	if (p->pp > 1 && random_of(3) == 0)
		p->last = p->vpp * (1 + random_of(2));
	a->num_layers = p->first + p->last;
	a->num_layers += (int64_t)(p->pp - !!p->first - !!p->last) * p->vpp * (1 + random_of(2));
}

/* Linear attention in some of the layers. */
static inline void random_delta_net(struct mfs_megatron_args *a, const struct mfs_layout *p)
{
	static uint8_t linear[64];

	if (!a->linear_layers)
		return;
	for (size_t i = 0; i < sizeof(linear); i++)
		linear[i] = random_of(4) != 0;
	a->linear_layers = linear;
	a->linear_num_key_heads = p->tp * (1 + random_of(2));
	a->linear_num_value_heads = a->linear_num_key_heads * (1 + random_of(3));
	a->linear_key_head_dim = 1 + random_of(4);
	a->linear_value_head_dim = 1 + random_of(4);
}

/* Layers of any kinds, in any order. */
static inline void random_pattern(struct mfs_megatron_args *a, const struct mfs_layout *p)
{
	static char letters[65];
	static uint8_t moe[64];

	if (!a->hybrid_layers)
		return;
	for (int64_t i = 0; i < a->num_layers; i++) {
		letters[i] = "M*-E"[random_of(4)];
		moe[i] = letters[i] == 'E';
	}
	letters[a->num_layers] = '\0';
	a->hybrid_layers = letters;
	a->moe_layers = moe;
	a->first_dense_layers = 0;
	a->mamba_num_groups = p->tp * (1 + random_of(2));
	a->mamba_num_heads = a->mamba_num_groups * (1 + random_of(3));
	a->mamba_head_dim = 1 + random_of(4);
	a->mamba_state_dim = 1 + random_of(4);
	a->mamba_conv_params = random_of(2);
}

/* Sizes that tp and etp divide, and hardly anything else does. */
static inline void random_widths(struct mfs_megatron_args *a, const struct mfs_layout *p)
{
	static uint8_t moe[64];

	a->hidden_size = 8;
	a->num_attention_heads = p->tp * (1 + random_of(3));
	a->num_query_groups = a->num_attention_heads;
	if (!a->multi_latent_attention && random_of(2)) /* fewer groups than ranks, too */
		a->num_query_groups = p->tp > 1 && random_of(2) ? p->tp / 2 : p->tp;
	if (a->num_attention_heads % a->num_query_groups)
		a->num_attention_heads = a->num_query_groups * 2;
	a->kv_channels = 2 * (1 + random_of(3));
	a->ffn_hidden_size = p->tp * (1 + random_of(5));
	a->make_vocab_size_divisible_by = 1 + random_of(8);
	a->padded_vocab_size = p->tp * (3 + random_of(9)) + random_of(2) * random_of(3);
	a->max_position_embeddings = 5;
	a->q_lora_rank =
		a->multi_latent_attention && random_of(2) ? (int64_t)p->tp * 3 : MFS_ABSENT;
	a->kv_lora_rank = p->tp * 2;
	a->qk_head_dim = 2;
	a->v_head_dim = 3;
	random_delta_net(a, p);
	/* With the local spec the joint down projection is split as well. */
	a->qk_pos_emb_head_dim = p->tp;
	if (!a->moe_layers)
		return;
	a->num_experts = p->ep * (1 + random_of(2));
	a->moe_ffn_hidden_size = p->etp * (1 + random_of(3));
	if (a->moe_shared_expert_intermediate_size != MFS_ABSENT)
		a->moe_shared_expert_intermediate_size = p->tp * 2;
	memset(moe, 1, sizeof(moe));
	a->first_dense_layers = random_of(2) && a->num_layers > 1;
	moe[0] = !a->first_dense_layers;
	a->moe_layers = moe;
	a->moe_grouped_gemm = random_of(2);
	random_pattern(a, p);
}

/* A model of a family and a layout that it can have; sizes are small. */
static inline void random_layout(int family, struct mfs_megatron_args *a, struct mfs_layout *p)
{
	struct mfs_error err;

	*a = random_families[family].args();
	*p = (struct mfs_layout){.tp = 1u << random_of(3), .ep = 1};
	p->etp = p->tp;
	if (a->moe_layers) {
		p->ep = 1 + random_of(3);
		p->etp = p->tp >> random_of(2);
		p->etp = p->etp ? p->etp : 1;
	}
	random_stages(a, p);
	random_widths(a, p);
	if (random_families[family].mtp)
		a->mtp_num_layers = random_of(3);
	unit_ok(mfs_layout_check(p, a, &err), &err);
}

#endif

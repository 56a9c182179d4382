#include "trainer/report/flops.h"

#define PASSES 3 /* forward, gradients of inputs, gradients of weights */
#define FMA    2 /* operations of a product that is added */

/* Products a token of a layer's projections, and a pair of tokens of its attention. */
struct attention {
	double projections, core;
};

static double set_or_0(int64_t value)
{
	return value == MFS_ABSENT ? 0 : (double)value;
}

static struct attention latent_attention(const struct mfs_megatron_args *m)
{
	const double h = (double)m->hidden_size, heads = (double)m->num_attention_heads;
	const double qk = (double)(m->qk_head_dim + m->qk_pos_emb_head_dim);
	const double v = (double)m->v_head_dim, q_rank = set_or_0(m->q_lora_rank);
	const double q = q_rank > 0 ? q_rank * (h + heads * qk + 1) : h * heads * qk;
	const double kv = (double)m->kv_lora_rank * (h + heads * ((double)m->qk_head_dim + v) + 1);

	return (struct attention){
		.projections = q + kv + h * (double)m->qk_pos_emb_head_dim + heads * v * h,
		.core = heads * qk / 2 + heads * v / 2,
	};
}

static struct attention attention_of(const struct mfs_megatron_args *m)
{
	const double h = (double)m->hidden_size;
	const double q = (double)(m->kv_channels * m->num_attention_heads);
	const double kv = (double)(m->kv_channels * m->num_query_groups);
	const double gate = m->attention_output_gate ? q : 0;

	if (m->multi_latent_attention)
		return latent_attention(m);
	return (struct attention){.projections = h * (q + 2 * kv + gate) + q * h, .core = q};
}

static struct attention delta_net(const struct mfs_megatron_args *m)
{
	const double h = (double)m->hidden_size, heads = (double)m->linear_num_value_heads;
	const double dim = (double)m->linear_value_head_dim;
	const double k = (double)(m->linear_key_head_dim * m->linear_num_key_heads);
	const double v = dim * heads;

	return (struct attention){
		.projections = h * (2 * k + 2 * v + 2 * heads) +
			       (double)m->linear_conv_kernel_dim * (2 * k + v) +
			       4 * heads * dim * dim + v * h,
	};
}

/* Layers with a gated delta net; of MTP's as below. */
static double delta_nets(const struct mfs_megatron_args *m)
{
	const int64_t mtp = m->mtp_num_layers > 0 ? m->mtp_num_layers : 0;
	int64_t count = 0;

	for (int64_t i = 0; i < m->num_layers; i++)
		count += mfs_args_is_linear(m, i);
	if (m->num_layers && mfs_args_is_linear(m, m->num_layers - 1))
		count += mtp;
	return (double)count;
}

/* An MTP layer is of the kind of the last layer. */
static void count_layers(const struct mfs_megatron_args *m, double *ret_dense, double *ret_moe)
{
	const int64_t mtp = m->mtp_num_layers > 0 ? m->mtp_num_layers : 0;
	int64_t moe = 0;

	for (int64_t i = 0; i < m->num_layers; i++)
		moe += mfs_args_is_moe(m, i);
	if (m->num_layers && mfs_args_is_moe(m, m->num_layers - 1))
		moe += mtp;
	*ret_moe = (double)moe;
	*ret_dense = (double)(m->num_layers + mtp - moe);
}

/* Products a token of all layers' MLPs, but for the hidden size. */
static double mlps(const struct mfs_megatron_args *m)
{
	const double matrices = m->swiglu ? 3 : 2, ffn = (double)m->ffn_hidden_size;
	const double expert =
		m->moe_ffn_hidden_size == MFS_ABSENT ? ffn : (double)m->moe_ffn_hidden_size;
	const double routed = expert * set_or_0(m->moe_router_topk);
	const double shared = set_or_0(m->moe_shared_expert_intermediate_size);
	double dense, moe;

	count_layers(m, &dense, &moe);
	return matrices * (ffn * dense + (routed + shared) * moe);
}

double mft_flops(const struct mfs_megatron_args *model, uint64_t seq_length, uint64_t padded_vocab,
		 uint64_t batch)
{
	const double h = (double)model->hidden_size;
	const double mtp = model->mtp_num_layers > 0 ? (double)model->mtp_num_layers : 0;
	const double layers = (double)model->num_layers + mtp;
	const double tokens = (double)batch * (double)seq_length;
	const double linear = delta_nets(model), full = layers - linear;
	const struct attention a = attention_of(model), d = delta_net(model);
	const double token = h * mlps(model) + full * a.projections + linear * d.projections +
			     mtp * (3 * h + 2 * h * h) + h * (double)padded_vocab * (mtp + 1);

	return PASSES * FMA * (tokens * token + tokens * (double)seq_length * full * a.core);
}

double mft_flops_share(double flops, double seconds, double peak)
{
	return peak > 0 && seconds > 0 ? flops / peak / seconds : 0;
}

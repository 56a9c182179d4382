/*
 * Tables of sines and cosines for rotary positions.
 *
 * A position is the token's place in its sequence, also where --reset-position-ids restarts the ids
 * of learned positions: GPTModel asks for the angles of 0 to S-1. Angles are fp32 products.
 *
 * Sources: megatron/core/models/common/embeddings/{rotary,yarn_rotary}_pos_embedding.py.
 */
#include <math.h>
#include <stdlib.h>

#include "formats/base/str.h"
#include "trainer/model/attention/attention_i.h"

/* Llama 3's scaling: waves longer than LOW_LENGTH / LOW are slowed down by the factor, those
 * shorter than LENGTH / HIGH are not, and between them is a slope. */
#define LLAMA3_LENGTH 8192.0
#define LLAMA3_LOW    1.0
#define LLAMA3_HIGH   4.0

static bool is_yarn(const struct mfs_megatron_args *a)
{
	return a->multi_latent_attention && mfs_str_is(a->rope_type, "yarn");
}

static bool has_rope(const struct mfs_megatron_args *a)
{
	return a->multi_latent_attention || mfs_str_is(a->position_embedding_type, "rope");
}

static int64_t rotary_dim(const struct mfs_megatron_args *a)
{
	const int64_t whole = a->multi_latent_attention ? a->qk_pos_emb_head_dim : a->kv_channels;

	if (!has_rope(a))
		return 0;
	return is_yarn(a) ? whole : (int64_t)((double)whole * a->rotary_percent);
}

int mft_rope_plan(struct mft_net *net, struct mfs_error *err)
{
	struct mft_rope *rope = mfs_arena_array(&net->arena, 1, sizeof(*rope));
	uint64_t bytes;

	if (!rope)
		return mfs_fail_nomem(err);
	net->rope = rope;
	rope->dim = rotary_dim(net->args);
	if (!rope->dim)
		return 0;
	/* Megatron would turn a half and a half and a bit. */
	if (rope->dim % 2)
		return mfs_fail(err, -ENOTSUP,
				"--rotary-percent: expected an even number of a head's elements, "
				"found %lld",
				(long long)rope->dim);
	bytes = mft_matrix_bytes(MFK_F32, mft_net_longest(net), rope->dim / 2);
	rope->cos = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, bytes);
	rope->sin = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, bytes);
	rope->positions = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH,
					 (uint64_t)net->tokens * sizeof(int32_t));
	return 0;
}

/* ---- frequencies ---- */

static double plain_frequency(double base, int64_t dim, int64_t i)
{
	return (float)(1 / pow(base, 2 * (double)i / (double)dim));
}

static double llama3_frequency(double frequency, double factor)
{
	const double wave = 2 * M_PI / frequency;
	const double slope = (LLAMA3_LENGTH / wave - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);

	if (wave > LLAMA3_LENGTH / LLAMA3_LOW)
		return frequency / factor;
	if (wave < LLAMA3_LENGTH / LLAMA3_HIGH)
		return frequency;
	return (1 - slope) * frequency / factor + slope * frequency;
}

/* The pair of dimensions that turns so many times within the length of the first training. */
static double yarn_pair(const struct mfs_megatron_args *a, int64_t dim, double turns)
{
	return (double)dim * log((double)a->original_max_position_embeddings / (turns * 2 * M_PI)) /
	       (2 * log(a->rotary_base));
}

static double yarn_frequency(const struct mfs_megatron_args *a, int64_t dim, int64_t i)
{
	const double frequency = plain_frequency(a->rotary_base, dim, i);
	const double low = fmax(floor(yarn_pair(a, dim, a->beta_fast)), 0);
	double high = fmin(ceil(yarn_pair(a, dim, a->beta_slow)), (double)dim - 1), slow;

	if (low == high)
		high += 0.001;
	slow = fmin(fmax(((double)i - low) / (high - low), 0), 1);
	return slow * frequency / a->rotary_scaling_factor + (1 - slow) * frequency;
}

double mft_yarn_mscale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* YaRN multiplies sines and cosines by this. */
static double magnitude(const struct mfs_megatron_args *a)
{
	return is_yarn(a) ? mft_yarn_mscale(a->rotary_scaling_factor, a->mscale) /
				    mft_yarn_mscale(a->rotary_scaling_factor, a->mscale_all_dim)
			  : 1;
}

static float frequency(const struct mfs_megatron_args *a, int64_t dim, int64_t i)
{
	double f = plain_frequency(a->rotary_base, dim, i);

	if (is_yarn(a))
		f = yarn_frequency(a, dim, i);
	else if (a->use_rope_scaling && !a->multi_latent_attention)
		f = llama3_frequency(f, a->rope_scaling_factor);
	return (float)f;
}

/* ---- tables ---- */

static void fill(const struct mft_net *net, float *cosines, float *sines, int32_t *positions)
{
	const double stretch = net->args->multi_latent_attention
				       ? 0
				       : net->args->rotary_seq_len_interpolation_factor;
	const double size = magnitude(net->args);
	const int64_t half = net->rope->dim / 2;

	for (int64_t i = 0; i < half; i++) {
		const float f = frequency(net->args, net->rope->dim, i);

		for (int64_t s = 0; s < mft_net_longest(net); s++) {
			const float at = stretch > 0 ? (float)s * (float)(1 / stretch) : (float)s;

			cosines[s * half + i] = (float)(cos(at * f) * size);
			sines[s * half + i] = (float)(sin(at * f) * size);
		}
	}
	for (int64_t t = 0; t < net->tokens; t++)
		positions[t] = (int32_t)mft_context_position(net->context.size, net->context.rank,
							     net->context.whole, t % net->seq);
}

void mft_rope_turn_by(const struct mft_net *net, const struct mft_pass *pass)
{
	if (net->rope->dim)
		net->backend->device->copy(pass->ctx, mft_net_at(net, net->rope->positions),
					   pass->positions, (size_t)net->tokens * sizeof(int32_t));
}

/* Waits until the tables are on the device: they are filled once in a run. */
int mft_rope_fill(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = net->backend->device;
	const size_t table = (size_t)(mft_net_longest(net) * (net->rope->dim / 2)) * sizeof(float);
	const size_t positions = (size_t)net->tokens * sizeof(int32_t);
	char why[MFK_WHY] = "";
	float *host;
	int r;

	if (!net->rope->dim)
		return 0;
	host = malloc(2 * table + positions);
	if (!host)
		return mfs_fail_nomem(err);
	fill(net, host, host + table / sizeof(float),
	     (int32_t *)(host + 2 * table / sizeof(float)));
	dev->copy_in(ctx, mft_net_at(net, net->rope->cos), host, table);
	dev->copy_in(ctx, mft_net_at(net, net->rope->sin), (char *)host + table, table);
	dev->copy_in(ctx, mft_net_at(net, net->rope->positions), (char *)host + 2 * table,
		     positions);
	r = dev->sync(ctx, why);
	free(host);
	return r ? mfs_fail(err, r, "%s", why) : 0;
}

#include "trainer/model/net.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "trainer/base/dtype.h"
#include "trainer/model/attention/attention.h"
#include "trainer/model/attention/qk_clip.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/mlp/mlp.h"
#include "trainer/model/net_i.h"

/* ---- life ---- */

static int check_supported(const struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;
	const char *positions = a->position_embedding_type;

	if (a->untrainable)
		return mfs_fail(err, -ENOTSUP, "%s cannot be trained here", a->untrainable);
	if (a->hybrid_layers)
		return mfs_fail(err, -ENOTSUP, "--hybrid-layer-pattern cannot be trained here");
	/* An HF directory has these without an argument that says so. */
	if (a->learnable_softmax)
		return mfs_fail(err, -ENOTSUP, "--softmax-type learnable cannot be trained here");
	if (mfs_args_gated(a) && (a->glu_linear_offset != 0 || a->activation_func_clamp_value != 0))
		return mfs_fail(err, -ENOTSUP,
				"--glu-linear-offset and --activation-func-clamp-value cannot be "
				"trained here");
	if (a->qk_l2_norm)
		return mfs_fail(err, -ENOTSUP, "--qk-l2-norm cannot be trained here");
	if (a->window_layers)
		return mfs_fail(err, -ENOTSUP, "--window-attn-skip-freq cannot be trained here");
	/* GPTModel's own yarn has arguments that no command line gives: yarn_rotary_scaling_factor.
	 * MLA's is --rope-type yarn. */
	if (!mfs_str_is(positions, "rope") && !mfs_str_is(positions, "learned_absolute") &&
	    !mfs_str_is(positions, "none"))
		return mfs_fail(err, -ENOTSUP,
				"--position-embedding-type: expected rope, learned_absolute or "
				"none, found %s",
				positions);
	return 0;
}

static int find_embeddings(struct mft_net *net, struct mfs_error *err)
{
	struct mft_chain *chain = net->chain;
	const int64_t longest = mft_net_longest(net);

	if (!chain->chunks[0].embeds && !chain->mtp.count)
		return 0;
	chain->word_embeddings =
		mft_params_find(net->params, "embedding.word_embeddings.weight", -1, -1);
	chain->position_embeddings =
		mft_params_find(net->params, "embedding.position_embeddings.weight", -1, -1);
	if (!chain->word_embeddings)
		return mfs_fail(err, -ENODATA, "the model has no embedding.word_embeddings.weight");
	if (chain->position_embeddings && mft_param_size(chain->position_embeddings, 0) < longest)
		return mfs_fail(err, -EINVAL,
				"--max-position-embeddings: expected at least %s %lld, found %lld",
				net->cache.length ? "the longest sequence's" : "--seq-length",
				(long long)longest,
				(long long)mft_param_size(chain->position_embeddings, 0));
	return 0;
}

static int make_chunks(struct mft_net *net, struct mfs_error *err)
{
	struct mft_chain *chain = net->chain;
	const struct mfs_layout *layout = &net->params->layout;
	const uint32_t stage = net->parallel->place.pp;
	uint32_t first;

	chain->chunk_count = layout->vpp;
	chain->chunks = mfs_arena_array(&net->arena, chain->chunk_count, sizeof(*chain->chunks));
	if (!chain->chunks)
		return mfs_fail_nomem(err);
	for (uint32_t c = 0; c < chain->chunk_count; c++) {
		chain->chunks[c].count = mfs_layout_layers(layout, net->args, c, stage, &first);
		chain->layer_count += chain->chunks[c].count;
	}
	chain->chunks[0].embeds = mft_is_first_stage(net->parallel);
	chain->chunks[chain->chunk_count - 1].ends = mft_is_last_stage(net->parallel);
	if (chain->chunks[chain->chunk_count - 1].ends && net->args->mtp_num_layers > 0)
		chain->mtp.count = (uint32_t)net->args->mtp_num_layers;
	chain->layer_count += chain->mtp.count;
	chain->layers = mfs_arena_array(&net->arena, chain->layer_count, sizeof(*chain->layers));
	chain->mtp.layers =
		mfs_arena_array(&net->arena, chain->mtp.count, sizeof(*chain->mtp.layers));
	if (!chain->layers || !chain->mtp.layers)
		return mfs_fail_nomem(err);
	for (uint32_t c = 0, i = 0; c < chain->chunk_count; i += chain->chunks[c++].count)
		chain->chunks[c].layers = chain->layers + i;
	for (uint32_t k = 0; k < chain->mtp.count; k++)
		chain->mtp.layers[k].layer =
			&chain->layers[chain->layer_count - chain->mtp.count + k];
	return 0;
}

static int fill(struct mft_net *net, struct mfs_error *err)
{
	int r = check_supported(net, err);

	if (!r)
		r = make_chunks(net, err);
	if (!r)
		r = find_embeddings(net, err);
	if (r)
		return r;
	net->replaced = mfs_arena_array(&net->arena, net->params->count, sizeof(*net->replaced));
	net->term = mfs_arena_array(&net->arena, net->params->count, sizeof(*net->term));
	if (!net->replaced || !net->term)
		return mfs_fail_nomem(err);
	r = mft_stream_divide(net, err);
	if (!r)
		r = mft_eight_new(net, err);
	return r ? r : mft_net_plan(net, err);
}

struct whole {
	struct mft_net net; /* the first member: a caller that frees it frees both */
	struct mft_chain chain;
};

int mft_net_new(const struct mft_train_config *config, struct mft_params *params,
		struct mft_memory *memory, const struct mfk_backend *backend,
		struct mfk_device *device, const struct mft_parallel *parallel,
		struct mft_net **ret, struct mfs_error *err)
{
	struct whole *whole = calloc(1, sizeof(*whole));
	struct mft_net *net;
	int r;

	if (!whole)
		return mfs_fail_nomem(err);
	net = &whole->net;
	net->chain = &whole->chain;
	net->config = config;
	net->args = &config->model;
	net->params = params;
	net->memory = memory;
	net->backend = backend;
	net->device = device;
	net->parallel = parallel;
	net->io = mft_mfk_dtype(params->weight_type);
	net->grad = mft_mfk_dtype(params->grad_type);
	net->batch = config->micro_batch_size;
	net->cache.sequences = config->cached_sequences;
	net->cache.length = config->cached_length;
	mft_context_find(parallel, config->seq_length, &net->context);
	net->seq = config->seq_length / net->context.size;
	net->tokens = net->batch * net->seq;
	net->hidden = config->model.hidden_size;
	r = fill(net, err);
	if (r) {
		mft_net_free(net);
		return r;
	}
	*ret = net;
	return 0;
}

void mft_net_free(struct mft_net *net)
{
	if (!net)
		return;
	mft_batch_release(net);
	mft_stages_release(net);
	mft_side_release(net, &net->experts_side);
	mft_side_release(net, &net->tensor_side);
	mft_side_release(net, &net->context_side);
	if (net->chain->host_sums)
		net->backend->device->host_free(net->device, net->chain->host_sums,
						MFT_SUM_COUNT * sizeof(double));
	mfs_arena_release(&net->arena);
	free(net);
}

static int begin_part(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part,
		      struct mfs_error *err)
{
	return part->kind->begin ? part->kind->begin(net, ctx, part, err) : 0;
}

int mft_net_begin(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	int r = mft_batch_begin(net, err);

	if (!r)
		r = mft_stages_begin(net, err);
	if (!r)
		r = mft_experts_side_begin(net, err);
	if (!r)
		r = mft_tensor_side_begin(net, err);
	if (!r)
		r = mft_context_side_begin(net, err);
	if (!r && !net->chain->host_sums) {
		net->chain->host_sums = net->backend->device->host_alloc(
			net->device, MFT_SUM_COUNT * sizeof(double));
		r = net->chain->host_sums ? 0 : mfs_fail_nomem(err);
	}
	if (!r)
		r = mft_rope_fill(net, ctx, err);
	if (!r)
		r = mft_context_fill(net, ctx, err);
	if (!r)
		r = mft_shared_groups_fill(net, ctx, err);
	if (!r)
		r = mft_eight_begin(net, ctx, err);
	for (uint32_t i = 0; !r && i < net->chain->layer_count; i++) {
		r = begin_part(net, ctx, &net->chain->layers[i].attention.part, err);
		if (!r)
			r = begin_part(net, ctx, &net->chain->layers[i].mlp.part, err);
	}
	if (!r)
		mft_net_clear_losses(net, ctx);
	return r;
}

bool mft_net_find_scales(struct mft_net *net)
{
	return mft_eight_find_scales(net);
}

void mft_net_set_hooks(struct mft_net *net, const struct mft_net_hooks *hooks)
{
	net->chain->hooks = *hooks;
}

void mft_net_sum_gradients(struct mft_net *net, struct mfk_ctx *ctx)
{
	mft_tensor_sum_gradients(net, ctx);
}

/* ---- losses ---- */

void mft_net_clear_losses(struct mft_net *net, struct mfk_ctx *ctx)
{
	net->backend->device->zero(ctx, mft_net_at(net, net->sums), MFT_SUM_COUNT * sizeof(double));
	mft_eight_begin_step(net);
	mft_qk_clip_begin(net, ctx);
	for (uint32_t i = 0; i < net->chain->layer_count; i++) {
		const struct mft_part *part = &net->chain->layers[i].mlp.part;

		if (part->kind->begin_step)
			part->kind->begin_step(net, ctx, part);
	}
}

int mft_net_clip_qk(struct mft_net *net, struct mfk_ctx *ctx, double *ret_max,
		    struct mfs_error *err)
{
	return mft_qk_clip(net, ctx, ret_max, err);
}

void mft_net_copy_loss(struct mft_net *net, struct mfk_ctx *ctx, double *ret)
{
	const double *sums = mft_net_at(net, net->sums);

	net->backend->device->copy_out(ctx, ret, sums + MFT_SUM_LOSS, sizeof(*ret));
}

int mft_net_copy_log_probs(struct mft_net *net, struct mfk_ctx *ctx, float *host)
{
	const struct mft_chain *chain = net->chain;

	if (!chain->chunks[chain->chunk_count - 1].ends || !chain->head.loss.kind->gives_log_probs)
		return -ENOTSUP;
	net->backend->device->copy_out(ctx, host, mft_pass_at(net, chain->head.log_probs),
				       (size_t)net->tokens * sizeof(float));
	return 0;
}

const char *const *mft_net_loss_terms(const struct mft_train_config *config)
{
	return mft_loss_kind(config)->terms;
}

int mft_net_losses(struct mft_net *net, struct mfk_ctx *ctx, struct mft_net_losses *ret,
		   struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	int r;

	net->backend->device->copy_out(ctx, net->chain->host_sums, mft_net_at(net, net->sums),
				       MFT_SUM_COUNT * sizeof(double));
	r = net->backend->device->sync(ctx, why);
	if (r)
		return mfs_fail(err, r, "%s", why);
	*ret = (struct mft_net_losses){
		.z_loss = net->chain->host_sums[MFT_SUM_Z_LOSS],
	};
	for (int i = 0; i < MFT_LOSS_TERMS; i++)
		ret->loss[i] = net->chain->host_sums[MFT_SUM_LOSS + i];
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		ret->aux[i] = net->chain->host_sums[MFT_SUM_AUX_LOSS + i];
	for (int i = 0; i < MFT_MTP_MOST; i++)
		ret->mtp[i] = net->chain->host_sums[MFT_SUM_MTP_LOSS + i];
	return 0;
}

int mft_net_update_expert_bias(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < net->chain->layer_count && !rc; i++) {
		const struct mft_part *part = &net->chain->layers[i].mlp.part;

		if (part->kind->end_step)
			rc = part->kind->end_step(net, ctx, part, err);
	}
	return rc;
}

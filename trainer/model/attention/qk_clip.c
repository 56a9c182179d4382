#include "trainer/model/attention/qk_clip.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/model/attention/attention_i.h"
#include "trainer/model/base/linear.h"

int mft_qk_clip_add(struct mft_net *net, uint32_t layer, const struct mft_qk_clip *clip,
		    struct mft_qk_clip **ret, struct mfs_error *err)
{
	const struct mft_train_config *c = net->config;
	struct mft_qk_clip *own;

	*ret = NULL;
	if ((!c->qk_clip && !c->log_max_attention_logit) || layer >= net->args->num_layers)
		return 0;
	own = mfs_arena_alloc(&net->arena, sizeof(*own));
	if (!own)
		return mfs_fail_nomem(err);
	*own = *clip;
	own->max = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH,
				  (uint64_t)clip->heads * sizeof(float));
	own->next = net->qk_clips;
	net->qk_clips = own;
	*ret = own;
	return 0;
}

void mft_qk_clip_note(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_qk_clip *clip, const struct mfk_attention *a)
{
	if (clip && pass->train)
		net->backend->ops->attention_max(pass->ctx, a, mft_net_at(net, clip->max));
}

void mft_qk_clip_begin(const struct mft_net *net, struct mfk_ctx *ctx)
{
	for (const struct mft_qk_clip *l = net->qk_clips; l; l = l->next)
		net->backend->device->zero(ctx, mft_net_at(net, l->max),
					   (size_t)l->heads * sizeof(float));
}

/* ---- after the update ---- */

/* The factor's base of a unit. */
static double eta_of(const struct mft_net *net, const struct mft_qk_clip *l, const float *max,
		     int64_t unit)
{
	const int64_t heads = l->heads / l->units;
	float most = 0;

	for (int64_t i = unit * heads; i < (unit + 1) * heads; i++)
		most = fmaxf(most, max[i]);
	return fmin(1, net->config->qk_clip_threshold / (double)most);
}

static void scale_rows(const struct mft_net *net, struct mfk_ctx *ctx, void *matrix,
		       enum mfk_dtype type, struct mfk_copy_rows a)
{
	a.from = a.to = matrix;
	a.from_type = a.to_type = type;
	net->backend->ops->copy_rows(ctx, &a);
}

/* Both the weight and its main parameter, as Megatron does it. Only the distributed optimizer has
 * main parameters of 16 bits (--use-precision-aware-optimizer). */
static void clip_unit(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_qk_rows *r,
		      int64_t unit, double eta)
{
	const uint64_t cols = r->param->part.base.shape[1];
	const uint64_t first = (uint64_t)(unit * r->unit_rows + r->from) * cols;
	const struct mft_flat main =
		mft_params_flat(net->params, MFS_STATE_MAIN, r->param->start + first);
	const struct mfk_copy_rows a = {.rows = r->rows,
					.cols = (int64_t)cols,
					.ld_from = (int64_t)cols,
					.ld_to = (int64_t)cols,
					.scale = (float)pow(eta, r->power)};
	char *weight = (char *)mft_weight(net, r->param);

	scale_rows(net, ctx, weight + first * mfk_dtype_size(net->io), net->io, a);
	if (main.at)
		scale_rows(net, ctx, main.at, MFK_F32, a);
}

static void clip_layer(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_qk_clip *l,
		       const float *max)
{
	for (int64_t unit = 0; unit < l->units; unit++) {
		const double eta = eta_of(net, l, max, unit);

		for (unsigned i = 0; eta < 1 && i < MFT_QK_ROWS && l->rows[i].param; i++)
			clip_unit(net, ctx, &l->rows[i], unit, eta);
	}
}

/* The scores of all who share samples, as the host sees them; one layer's follow the other's. */
static int read_scores(const struct mft_net *net, struct mfk_ctx *ctx, float *to,
		       struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	for (const struct mft_qk_clip *l = net->qk_clips; l; l = l->next) {
		float *max = mft_net_at(net, l->max);

		mft_parallel_all_reduce(net->parallel, MFT_GROUP_GRADS, ctx, MFK_MAX, MFK_F32, max,
					(uint64_t)l->heads);
		net->backend->device->copy_out(ctx, to, max, (size_t)l->heads * sizeof(float));
		to += l->heads;
	}
	rc = net->backend->device->sync(ctx, why);
	return rc ? mfs_fail(err, rc, "the scores of --qk-clip: %s", why) : 0;
}

int mft_qk_clip(const struct mft_net *net, struct mfk_ctx *ctx, double *ret_max,
		struct mfs_error *err)
{
	int64_t count = 0, at = 0;
	float *scores;
	int rc;

	*ret_max = 0;
	for (const struct mft_qk_clip *l = net->qk_clips; l; l = l->next)
		count += l->heads;
	scores = calloc((size_t)count + 1, sizeof(*scores));
	rc = scores ? read_scores(net, ctx, scores, err) : mfs_fail_nomem(err);
	for (int64_t i = 0; i < count && !rc; i++)
		*ret_max = fmax(*ret_max, (double)scores[i]);
	for (const struct mft_qk_clip *l = net->qk_clips; l && !rc; at += l->heads, l = l->next)
		if (net->config->qk_clip)
			clip_layer(net, ctx, l, scores + at);
	free(scores);
	return rc;
}

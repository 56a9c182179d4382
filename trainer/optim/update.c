#include "trainer/optim/update.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/model/dtype.h"
#include "trainer/optim/offload.h"

/* Parameters that are neighbours and updated alike. */
struct update_range {
	uint64_t first, count;
	bool decays, decoupled;
};

/* What a whole model has in different processes: dense parameters, and experts if they are divided
 * in another way. */
enum kind { DENSE, EXPERTS, KINDS };

static const enum mfs_group whole_model[KINDS] = {MFS_GROUP_MODEL, MFS_GROUP_EXPERT_MODEL};

/* No more elements are updated in one go, so that a save in flight holds back little at a time. */
#define RANGE_MAX (UINT64_C(32) << 20)

#define SUMS_BYTES (KINDS * 2 * sizeof(double))

struct mfs_update {
	const struct mfs_train_config *config;
	const struct mfs_params *params;
	const struct mfs_memory *memory;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	const struct mfs_parallel *parallel;
	uint64_t sums; /* offset of mfk_ops.sum_squares()'s two doubles, of each kind */
	double *host;  /* [KINDS][2]: where they are copied to */
	struct stretch {
		uint64_t first, count;
		enum kind kind;
	} * stretches; /* all of the flat buffers */
	uint32_t stretch_count;
	uint64_t gaps[KINDS]; /* elements between parameters */
	struct update_range *ranges;
	uint32_t range_count;
	struct mfs_offload *offload; /* NULL: nothing is offloaded */
};

/* The end of the stretch of a parameter, with the alignment behind it. */
static uint64_t end_of(const struct mfs_params *p, uint32_t i)
{
	return i + 1 < p->count ? p->list[i + 1].start : p->elements;
}

static void add_range(struct mfs_update *u, const struct mfs_param *p, uint64_t end)
{
	struct update_range *last = u->range_count ? &u->ranges[u->range_count - 1] : NULL;

	if (last && last->decays == p->decays && last->decoupled == p->decoupled &&
	    p->start != u->params->offloaded && last->count + (end - p->start) <= RANGE_MAX) {
		last->count += end - p->start;
		return;
	}
	u->ranges[u->range_count++] = (struct update_range){
		.first = p->start,
		.count = end - p->start,
		.decays = p->decays,
		.decoupled = p->decoupled,
	};
}

/* One, or dense parameters and experts by turns. */
static void find_stretches(struct mfs_update *u)
{
	const struct mfs_params *p = u->params;
	const bool apart = mfs_experts_are_apart(u->parallel);
	struct mfs_stretch s;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mfs_param *q = &p->list[i];

		u->gaps[apart && q->is_expert ? EXPERTS : DENSE] +=
			end_of(p, i) - q->start - q->elements;
	}
	if (!apart) {
		u->stretches[u->stretch_count++] =
			(struct stretch){.count = p->elements, .kind = DENSE};
		return;
	}
	for (uint32_t i = 0; i < p->count;) {
		i = mfs_params_stretch(p, i, &s);
		u->stretches[u->stretch_count++] =
			(struct stretch){s.first, s.count, s.experts ? EXPERTS : DENSE};
	}
}

/* The host adds up the squares of what it has, whatever it is. */
static int check(const struct mfs_update *u, struct mfs_error *err)
{
	if (u->params->offloaded && u->config->log_params_norm &&
	    mfs_experts_are_apart(u->parallel))
		return mfs_fail(err, -ENOTSUP,
				"--log-params-norm with --optimizer-cpu-offload and experts that "
				"are divided over processes is not supported; leave out one of "
				"them");
	return 0;
}

int mfs_update_new(const struct mfs_train_config *config, struct mfs_params *params,
		   struct mfs_memory *memory, const struct mfk_backend *backend,
		   struct mfk_device *device, const struct mfs_parallel *parallel,
		   struct mfs_update **ret, struct mfs_error *err)
{
	struct mfs_update *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return mfs_fail_nomem(err);
	*u = (struct mfs_update){
		.config = config,
		.params = params,
		.memory = memory,
		.backend = backend,
		.device = device,
		.parallel = parallel,
		.sums = mfs_memory_add(memory, MFS_MEMORY_SCRATCH, SUMS_BYTES),
		.ranges = calloc(params->count, sizeof(*u->ranges)),
		.stretches = calloc(params->count + 1u, sizeof(*u->stretches)),
	};
	if (backend)
		u->host = backend->device->host_alloc(device, SUMS_BYTES);
	if (!u->ranges || !u->stretches || (backend && !u->host)) {
		mfs_update_free(u);
		return mfs_fail_nomem(err);
	}
	find_stretches(u);
	for (uint32_t i = 0; i < params->count; i++)
		add_range(u, &params->list[i], end_of(params, i));
	rc = check(u, err);
	if (!rc && params->offloaded)
		rc = mfs_offload_new(config, params, memory, backend, device, &u->offload, err);
	if (rc)
		mfs_update_free(u);
	else
		*ret = u;
	return rc;
}

void mfs_update_free(struct mfs_update *u)
{
	if (!u)
		return;
	if (u->host)
		u->backend->device->host_free(u->device, u->host, SUMS_BYTES);
	mfs_offload_free(u->offload);
	free(u->ranges);
	free(u->stretches);
	free(u);
}

static int wait(struct mfs_update *u, struct mfk_ctx *ctx, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = u->backend->device->sync(ctx, why);

	return rc ? mfs_fail(err, rc, "%s: %s", u->backend->name, why) : 0;
}

/* Sums of a flat buffer from element begin on into u->host: of squares, and whether one is not
 * finite. What lies between parameters is zero. */
static int sum_squares(struct mfs_update *u, struct mfk_ctx *ctx, enum mfs_dtype type,
		       const void *flat, uint64_t begin, struct mfs_error *err)
{
	const struct mfk_device_ops *device = u->backend->device;
	double *sums = mfs_memory_at(u->memory, u->sums);

	device->zero(ctx, sums, SUMS_BYTES);
	for (uint32_t i = 0; i < u->stretch_count; i++) {
		const struct stretch *s = &u->stretches[i];
		const uint64_t end = s->first + s->count;
		const uint64_t first = s->first > begin ? s->first : begin;

		if (first < end)
			u->backend->ops->sum_squares(ctx, mfs_mfk_dtype(type),
						     (const char *)flat +
							     (first - begin) * mfs_dtype_size(type),
						     (int64_t)(end - first), sums + 2 * s->kind);
	}
	device->copy_out(ctx, u->host, sums, SUMS_BYTES);
	return wait(u, ctx, err);
}

/* Of a whole model. */
static int sum_ranks(struct mfs_update *u, struct mfs_error *err)
{
	int rc = 0;

	for (int k = 0; k < KINDS && !rc; k++)
		rc = mfs_parallel_sum(u->parallel, whole_model[k], u->host + 2 * k, 2, err);
	for (int i = 0; i < 2; i++)
		u->host[i] += u->host[2 * EXPERTS + i];
	return rc;
}

/* optimizer/__init__.py: who has a grad_scaler. */
static bool has_loss_scale(const struct mfs_train_config *c)
{
	return c->params_dtype == MFS_F16 || (c->params_dtype == MFS_BF16 && c->loss_scale > 0);
}

int mfs_update_norm(struct mfs_update *u, struct mfk_ctx *ctx, const struct mfs_update_step *step,
		    struct mfs_update_result *ret, struct mfs_error *err)
{
	const struct mfs_params *p = u->params;
	int rc = sum_squares(u, ctx, p->grad_type, p->grads, 0, err);

	if (!rc)
		rc = sum_ranks(u, err);
	if (rc)
		return rc;
	*ret = (struct mfs_update_result){
		.grad_norm = sqrt(u->host[0]) / step->grad_divisor,
		.not_finite = u->host[1] != 0,
		.skipped = u->host[1] != 0 && has_loss_scale(u->config),
	};
	return 0;
}

/* AdamW of a range, without pointers. */
static struct mfk_adamw adamw_of(const struct mfs_update *u, const struct update_range *r,
				 const struct mfs_update_step *step, double grad_scale)
{
	const struct mfs_train_config *c = u->config;
	const struct mfs_params *p = u->params;

	return (struct mfk_adamw){
		.weight_type = mfs_mfk_dtype(p->weight_type),
		.grad_type = mfs_mfk_dtype(p->grad_type),
		.main_type = mfs_mfk_dtype(p->main_type),
		.m_type = mfs_mfk_dtype(p->m_type),
		.v_type = mfs_mfk_dtype(p->v_type),
		.count = (int64_t)r->count,
		.lr = (float)(r->decoupled ? step->decoupled_lr : step->lr),
		.beta1 = (float)c->adam_beta1,
		.beta2 = (float)c->adam_beta2,
		.eps = (float)c->adam_eps,
		.wd = r->decays ? (float)step->weight_decay : 0,
		.correction1 = (float)(1 - pow(c->adam_beta1, (double)step->number)),
		.correction2 = (float)(1 - pow(c->adam_beta2, (double)step->number)),
		.grad_scale = (float)grad_scale,
		.l2 = !c->decoupled_weight_decay,
	};
}

static void update_on_device(struct mfs_update *u, struct mfk_ctx *ctx,
			     const struct update_range *r, struct mfk_adamw a)
{
	const struct mfs_params *p = u->params;

	a.weight = mfs_params_flat(p, MFS_STATE_MODEL, r->first).at;
	a.main = mfs_params_flat(p, MFS_STATE_MAIN, r->first).at;
	a.m = mfs_params_flat(p, MFS_STATE_EXP_AVG, r->first).at;
	a.v = mfs_params_flat(p, MFS_STATE_EXP_AVG_SQ, r->first).at;
	a.grad = (const char *)p->grads + r->first * mfs_dtype_size(p->grad_type);
	u->backend->ops->adamw(ctx, &a);
}

static int update_piece(struct mfs_update *u, struct mfk_ctx *ctx, const struct update_range *r,
			const struct mfs_update_step *step, double grad_scale,
			struct mfs_error *err)
{
	const bool offloaded = r->first < u->params->offloaded;
	const struct mfk_adamw a = adamw_of(u, r, step, grad_scale);

	if (step->fence)
		step->fence(step->fence_arg, offloaded ? mfs_offload_ctx(u->offload) : ctx,
			    r->first, r->count);
	if (offloaded)
		return mfs_offload_add(u->offload, &a, r->first, err);
	update_on_device(u, ctx, r, a);
	return 0;
}

/* One large parameter is a range of its own, and several pieces. */
static int update_range(struct mfs_update *u, struct mfk_ctx *ctx, struct update_range r,
			const struct mfs_update_step *step, double grad_scale,
			struct mfs_error *err)
{
	const uint64_t end = r.first + r.count;
	const uint64_t most = r.first < u->params->offloaded ? MFS_OFFLOAD_PIECE : RANGE_MAX;
	int rc = 0;

	for (; r.first < end && !rc; r.first += r.count) {
		r.count = end - r.first < most ? end - r.first : most;
		rc = update_piece(u, ctx, &r, step, grad_scale, err);
	}
	return rc;
}

/* What is offloaded comes last: the device updates its part meanwhile. */
static int update_all(struct mfs_update *u, struct mfk_ctx *ctx, const struct mfs_update_step *step,
		      double grad_scale, struct mfs_error *err)
{
	uint32_t offloaded = 0;
	int rc = 0;

	while (offloaded < u->range_count && u->ranges[offloaded].first < u->params->offloaded)
		offloaded++;
	for (uint32_t i = offloaded; i < u->range_count && !rc; i++)
		rc = update_range(u, ctx, u->ranges[i], step, grad_scale, err);
	for (uint32_t i = 0; i < offloaded && !rc; i++)
		rc = update_range(u, ctx, u->ranges[i], step, grad_scale, err);
	return rc || !offloaded ? rc : mfs_offload_finish(u->offload, err);
}

int mfs_update_apply(struct mfs_update *u, struct mfk_ctx *ctx, const struct mfs_update_step *step,
		     const struct mfs_update_result *result, struct mfs_error *err)
{
	const double most = u->config->clip_grad;
	double scale = 1 / step->grad_divisor;

	if (result->skipped)
		return 0;
	/* clip_grads.py: the coefficient has 1e-6 in its denominator; NaN clips nothing. */
	if (most > 0 && most / (result->grad_norm + 1e-6) < 1)
		scale *= most / (result->grad_norm + 1e-6);
	return update_all(u, ctx, step, scale, err);
}

/* ---- what the log may say ---- */

int mfs_update_params_norm(struct mfs_update *u, struct mfk_ctx *ctx, double *ret,
			   struct mfs_error *err)
{
	const struct mfs_params *p = u->params;
	int rc = p->main ? sum_squares(u, ctx, p->main_type, p->main, p->offloaded, err)
			 : sum_squares(u, ctx, p->weight_type, p->weights, 0, err);

	if (!rc && u->offload)
		rc = mfs_offload_sum_squares(u->offload, u->host, err);
	if (!rc)
		rc = sum_ranks(u, err);
	if (!rc)
		*ret = sqrt(u->host[0]);
	return rc;
}

int mfs_update_zeros(struct mfs_update *u, struct mfk_ctx *ctx, double *ret, struct mfs_error *err)
{
	const struct mfs_params *p = u->params;
	const struct mfk_device_ops *device = u->backend->device;
	double *zeros = mfs_memory_at(u->memory, u->sums);
	int rc;

	device->zero(ctx, zeros, KINDS * sizeof(*zeros));
	for (uint32_t i = 0; i < u->stretch_count; i++) {
		const struct stretch *s = &u->stretches[i];

		u->backend->ops->count_zeros(ctx, mfs_mfk_dtype(p->grad_type),
					     (const char *)p->grads +
						     s->first * mfs_dtype_size(p->grad_type),
					     (int64_t)s->count, zeros + s->kind);
	}
	device->copy_out(ctx, u->host, zeros, KINDS * sizeof(*zeros));
	rc = wait(u, ctx, err);
	*ret = 0;
	for (int k = 0; k < KINDS && !rc; k++) {
		/* What lies between parameters is zero, and no parameter's. */
		u->host[k] -= (double)u->gaps[k];
		rc = mfs_parallel_sum(u->parallel, whole_model[k], u->host + k, 1, err);
		*ret += u->host[k];
	}
	return rc;
}

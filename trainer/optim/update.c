#include "trainer/optim/update.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/names.h"
#include "trainer/base/dtype.h"
#include "trainer/config/precision.h"
#include "trainer/optim/offload.h"

/* Neighbours that the process owns and that are updated alike. */
struct update_range {
	uint64_t first, count;
	bool decays, decoupled, mup;
	const struct mft_optimizer_kind *kind;
	const struct mft_param *matrix; /* updated as a whole; NULL: elements */
};

/* No more elements are updated in one go, so that a save in flight holds back little at a time. */
#define RANGE_MAX (UINT64_C(32) << 20)

/* Dense parameters and routed experts are divided among other processes. */
enum { DENSE, EXPERTS, KINDS };
#define SUMS (2 * KINDS) /* of each, the two of mfk_ops.sum_squares() */

/* Neighbours that count here: no other process counts the same. */
struct counted {
	uint64_t first, count;
	int kind;
};

struct mft_update {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mft_memory *memory;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	const struct mft_parallel *parallel;
	uint64_t sums; /* offset of double [SUMS] */
	double *host;  /* where they are copied to */
	struct update_range *ranges;
	uint32_t range_count;
	struct counted *counted;
	uint32_t counted_count;
	uint64_t gaps[KINDS];	     /* elements of counted between parameters: zeros */
	struct mft_offload *offload; /* NULL: nothing is offloaded */
	uint64_t scratch;	     /* offset of what updates of matrices work in */
};

/* The end of the stretch of a parameter, with the alignment after it. */
static uint64_t end_of(const struct mft_params *p, uint32_t i)
{
	return i + 1 < p->count ? p->list[i + 1].start : p->elements;
}

static void add_range(struct mft_update *u, const struct mft_param *p, uint64_t first,
		      uint64_t count)
{
	struct update_range *last = u->range_count ? &u->ranges[u->range_count - 1] : NULL;

	if (last && !last->matrix && last->kind == p->optimizer && last->decays == p->decays &&
	    last->decoupled == p->decoupled && last->mup == p->mup &&
	    last->first + last->count == first && first != u->params->offloaded &&
	    last->count + count <= RANGE_MAX) {
		last->count += count;
		return;
	}
	u->ranges[u->range_count++] = (struct update_range){
		.first = first,
		.count = count,
		.decays = p->decays,
		.decoupled = p->decoupled,
		.mup = p->mup,
		.kind = p->optimizer,
	};
}

/* A matrix that is updated as a whole. */
static void add_matrix(struct mft_update *u, const struct mft_param *p)
{
	u->ranges[u->range_count++] = (struct update_range){
		.first = p->start,
		.count = p->elements,
		.decays = p->decays,
		.decoupled = p->decoupled,
		.mup = p->mup,
		.kind = p->optimizer,
		.matrix = p,
	};
}

static void add_counted(struct mft_update *u, const struct mft_param *p, uint64_t first,
			uint64_t count)
{
	const uint64_t after = p->start + p->elements, end = first + count;
	const int kind = mft_experts_are_apart(u->parallel) && p->is_expert ? EXPERTS : DENSE;
	struct counted *last = u->counted_count ? &u->counted[u->counted_count - 1] : NULL;

	if (end > after)
		u->gaps[kind] += end - (first > after ? first : after);
	if (last && last->kind == kind && last->first + last->count == first)
		last->count += count;
	else
		u->counted[u->counted_count++] = (struct counted){first, count, kind};
}

static void add_param(struct mft_update *u, uint32_t i)
{
	const struct mft_params *p = u->params;
	const uint64_t end = end_of(p, i);

	if (p->list[i].optimizer->step_matrix)
		add_matrix(u, &p->list[i]);
	for (uint64_t at = p->list[i].start, n; (n = mft_params_owned(p, &at, end)); at += n) {
		if (!p->list[i].optimizer->step_matrix)
			add_range(u, &p->list[i], at, n);
		if (p->list[i].counts)
			add_counted(u, &p->list[i], at, n);
	}
}

static struct mft_matrix matrix_of(const struct mft_param *p)
{
	const bool divided = p->part.split != MFS_TP_NONE;

	return (struct mft_matrix){
		.rows = mft_param_size(p, 0),
		.cols = mft_param_size(p, 1),
		.among = p->is_expert ? MFT_GROUP_EXPERT_TENSOR : MFT_GROUP_TENSOR,
		.axis = !divided		       ? -1
			: p->part.split == MFS_TP_COLS ? 1
						       : 0,
		.is_qkv = mfs_str_ends(p->tensor->name, "linear_qkv.weight"),
	};
}

/* Each matrix is updated in the same memory. */
static uint64_t plan_scratch(struct mft_update *u, struct mft_memory *memory)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < u->range_count; i++) {
		const struct update_range *r = &u->ranges[i];
		struct mft_matrix m;

		if (!r->matrix)
			continue;
		m = matrix_of(r->matrix);
		most = mfs_max_u64(most, r->kind->scratch(u->config, u->parallel, &m));
	}
	return most ? mft_memory_add(memory, MFT_MEMORY_SCRATCH, most) : 0;
}

int mft_update_new(const struct mft_train_config *config, struct mft_params *params,
		   struct mft_memory *memory, const struct mfk_backend *backend,
		   struct mfk_device *device, const struct mft_parallel *parallel,
		   struct mft_update **ret, struct mfs_error *err)
{
	struct mft_update *u = calloc(1, sizeof(*u));
	int rc = 0;

	if (!u)
		return mfs_fail_nomem(err);
	*u = (struct mft_update){
		.config = config,
		.params = params,
		.memory = memory,
		.backend = backend,
		.device = device,
		.parallel = parallel,
		.sums = mft_memory_add(memory, MFT_MEMORY_SCRATCH, SUMS * sizeof(double)),
		.ranges = calloc(params->count + params->owned_count, sizeof(*u->ranges)),
		.counted = calloc(params->count + params->owned_count, sizeof(*u->counted)),
	};
	if (backend)
		u->host = backend->device->host_alloc(device, SUMS * sizeof(double));
	if (!u->ranges || !u->counted || (backend && !u->host)) {
		mft_update_free(u);
		return mfs_fail_nomem(err);
	}
	for (uint32_t i = 0; i < params->count; i++)
		add_param(u, i);
	u->scratch = plan_scratch(u, memory);
	if (params->offloaded_owned)
		rc = mft_offload_new(config, params, memory, backend, device, &u->offload, err);
	if (rc)
		mft_update_free(u);
	else
		*ret = u;
	return rc;
}

void mft_update_free(struct mft_update *u)
{
	if (!u)
		return;
	if (u->host)
		u->backend->device->host_free(u->device, u->host, SUMS * sizeof(double));
	mft_offload_free(u->offload);
	free(u->counted);
	free(u->ranges);
	free(u);
}

static int wait(struct mft_update *u, struct mfk_ctx *ctx, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = u->backend->device->sync(ctx, why);

	return rc ? mfs_fail(err, rc, "%s: %s", u->backend->name, why) : 0;
}

static double *sums_of(const struct mft_update *u, int kind)
{
	return (double *)mft_memory_at(u->memory, u->sums) + 2 * kind;
}

static void clear_sums(const struct mft_update *u, struct mfk_ctx *ctx)
{
	u->backend->device->zero(ctx, sums_of(u, 0), SUMS * sizeof(double));
}

/* Into u->host. */
static int read_sums(struct mft_update *u, struct mfk_ctx *ctx, struct mfs_error *err)
{
	u->backend->device->copy_out(ctx, u->host, sums_of(u, 0), SUMS * sizeof(double));
	return wait(u, ctx, err);
}

/* u->host's two sums of what counts here become those of the whole model, in its first two. What
 * is divided counts in one process of an instance. */
static int sum_ranks(struct mft_update *u, struct mfs_error *err)
{
	const bool divided = u->params->sharding != MFT_SHARD_NONE;
	const enum mft_group among = mft_parallel_in_instance(u->parallel, MFT_GROUP_WORLD);
	double *dense = u->host, *experts = u->host + 2;
	int rc = mft_parallel_sum(u->parallel, divided ? among : MFT_GROUP_MODEL, dense, 2, err);

	if (!rc)
		rc = mft_parallel_sum(u->parallel, divided ? among : MFT_GROUP_EXPERT_MODEL,
				      experts, 2, err);
	dense[0] += experts[0];
	dense[1] += experts[1];
	return rc;
}

/* optimizer/__init__.py: who has a grad_scaler. */
static bool has_loss_scale(const struct mft_train_config *c)
{
	return mft_precision_needs_scale(c->params_dtype) ||
	       (!mft_precision_is_main(c->params_dtype) && c->loss_scale > 0);
}

int mft_update_norm(struct mft_update *u, struct mfk_ctx *ctx, const struct mft_update_step *step,
		    struct mft_update_result *ret, struct mfs_error *err)
{
	const struct mft_params *p = u->params;
	int rc;

	clear_sums(u, ctx);
	for (uint32_t i = 0; i < u->counted_count; i++)
		u->backend->ops->sum_squares(ctx, mft_mfk_dtype(p->grad_type),
					     mft_params_grads_at(p, u->counted[i].first),
					     (int64_t)u->counted[i].count,
					     sums_of(u, u->counted[i].kind));
	rc = read_sums(u, ctx, err);
	if (!rc)
		rc = sum_ranks(u, err);
	if (rc)
		return rc;
	*ret = (struct mft_update_result){
		.grad_norm = sqrt(u->host[0]) / step->grad_divisor,
		.not_finite = u->host[1] != 0,
		.skipped = u->host[1] != 0 && has_loss_scale(u->config),
	};
	return 0;
}

static float lr_of(const struct update_range *r, const struct mft_update_step *step)
{
	return (float)(r->decoupled ? step->decoupled_lr : r->mup ? step->mup_lr : step->lr);
}

/* A range without pointers. */
static struct mft_update_piece piece_of(const struct mft_update *u, const struct update_range *r,
					const struct mft_update_step *step, double grad_scale)
{
	const struct mft_params *p = u->params;
	struct mft_update_piece piece = {
		.count = (int64_t)r->count,
		.weight_type = mft_mfk_dtype(p->weight_type),
		.grad_type = mft_mfk_dtype(p->grad_type),
		.number = step->number,
		.lr = lr_of(r, step),
		.wd = r->decays ? (float)step->weight_decay : 0,
		.grad_scale = (float)grad_scale,
		.mup = r->mup,
	};

	for (unsigned i = 0; i < MFT_SLOTS; i++)
		piece.slot_type[i] = mft_mfk_dtype(p->slot[i].type);
	return piece;
}

static void update_matrix(struct mft_update *u, struct mfk_ctx *ctx, const struct update_range *r,
			  const struct mft_update_piece *piece)
{
	const struct mft_matrix m = matrix_of(r->matrix);
	const struct mft_matrix_place at = {
		.backend = u->backend,
		.ctx = ctx,
		.config = u->config,
		.parallel = u->parallel,
		.scratch = mft_memory_at(u->memory, u->scratch),
	};

	r->kind->step_matrix(&at, piece, &m);
}

static void update_on_device(struct mft_update *u, struct mfk_ctx *ctx,
			     const struct update_range *r, struct mft_update_piece *piece)
{
	const struct mft_params *p = u->params;
	const uint64_t first = r->first;

	piece->weight = mft_params_flat(p, MFS_STATE_MODEL, first).at;
	piece->grad = mft_params_grads_at(p, first);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		piece->slot[i] = mft_params_slot(p, i, first).at;
	if (r->matrix)
		update_matrix(u, ctx, r, piece);
	else
		r->kind->step(u->backend->ops, ctx, u->config, piece);
}

static int update_piece(struct mft_update *u, struct mfk_ctx *ctx, const struct update_range *r,
			const struct mft_update_step *step, double grad_scale,
			struct mfs_error *err)
{
	const bool offloaded = r->first < u->params->offloaded;
	struct mft_update_piece piece = piece_of(u, r, step, grad_scale);

	if (step->fence)
		step->fence(step->fence_arg, offloaded ? mft_offload_ctx(u->offload) : ctx,
			    r->first, r->count);
	if (offloaded)
		return mft_offload_add(u->offload, &piece, r->first, err);
	update_on_device(u, ctx, r, &piece);
	return 0;
}

/* One large parameter is a range of its own, and several pieces. */
static int update_range(struct mft_update *u, struct mfk_ctx *ctx, struct update_range r,
			const struct mft_update_step *step, double grad_scale,
			struct mfs_error *err)
{
	const uint64_t end = r.first + r.count;
	const uint64_t most = r.matrix			       ? r.count
			      : r.first < u->params->offloaded ? MFT_OFFLOAD_PIECE
							       : RANGE_MAX;
	int rc = 0;

	for (; r.first < end && !rc; r.first += r.count) {
		r.count = end - r.first < most ? end - r.first : most;
		rc = update_piece(u, ctx, &r, step, grad_scale, err);
	}
	return rc;
}

/* What is offloaded comes last: the device updates its part meanwhile. */
static int update_all(struct mft_update *u, struct mfk_ctx *ctx, const struct mft_update_step *step,
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
	return rc || !offloaded ? rc : mft_offload_finish(u->offload, err);
}

int mft_update_apply(struct mft_update *u, struct mfk_ctx *ctx, const struct mft_update_step *step,
		     const struct mft_update_result *result, struct mfs_error *err)
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

static void sum_params(struct mft_update *u, struct mfk_ctx *ctx, const struct counted *c)
{
	const struct mft_params *p = u->params;
	const enum mfs_state state =
		mft_precision_is_main(p->weight_type) ? MFS_STATE_MODEL : MFS_STATE_MAIN;
	const struct mft_flat flat = mft_params_flat(p, state, c->first);

	u->backend->ops->sum_squares(ctx, mft_mfk_dtype(flat.type), flat.at, (int64_t)c->count,
				     sums_of(u, c->kind));
}

/* Main parameters on the host, into u->host. */
static int sum_offloaded(struct mft_update *u, struct mfs_error *err)
{
	const uint64_t end = u->params->offloaded;
	int rc = 0;

	for (uint32_t i = 0; i < u->counted_count && !rc; i++) {
		const struct counted *c = &u->counted[i];

		if (c->first < end)
			rc = mft_offload_sum_squares(u->offload, c->first,
						     c->first + c->count < end ? c->count
									       : end - c->first,
						     u->host + 2 * c->kind, err);
	}
	return rc;
}

int mft_update_params_norm(struct mft_update *u, struct mfk_ctx *ctx, double *ret,
			   struct mfs_error *err)
{
	/* In fp32 weights are the main parameters, which are on the device. */
	const bool split = u->offload && !mft_precision_is_main(u->params->weight_type);
	const uint64_t from = split ? u->params->offloaded : 0;
	int rc;

	clear_sums(u, ctx);
	for (uint32_t i = 0; i < u->counted_count; i++) {
		struct counted c = u->counted[i];
		const uint64_t end = c.first + c.count;

		c.first = c.first < from ? from : c.first;
		c.count = end - c.first;
		if (c.first < end)
			sum_params(u, ctx, &c);
	}
	rc = read_sums(u, ctx, err);
	if (!rc && split)
		rc = sum_offloaded(u, err);
	if (!rc)
		rc = sum_ranks(u, err);
	if (!rc)
		*ret = sqrt(u->host[0]);
	return rc;
}

int mft_update_zeros(struct mft_update *u, struct mfk_ctx *ctx, double *ret, struct mfs_error *err)
{
	const struct mft_params *p = u->params;
	int rc;

	clear_sums(u, ctx);
	for (uint32_t i = 0; i < u->counted_count; i++)
		u->backend->ops->count_zeros(ctx, mft_mfk_dtype(p->grad_type),
					     mft_params_grads_at(p, u->counted[i].first),
					     (int64_t)u->counted[i].count,
					     sums_of(u, u->counted[i].kind));
	rc = read_sums(u, ctx, err);
	if (rc)
		return rc;
	/* What lies between parameters is zero, and no parameter's. */
	for (int kind = 0; kind < KINDS; kind++)
		u->host[2 * kind] -= (double)u->gaps[kind];
	rc = sum_ranks(u, err);
	*ret = u->host[0];
	return rc;
}

#include "trainer/optim/sync.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/base/dtype.h"
#include "trainer/optim/windows.h"

struct bucket {
	struct mfk_event *ready, *done; /* in the run's context, and in that of communication */
	uint32_t missing;		/* parameters without their last gradient */
	bool reduced;			/* in this step */
	bool gathering;			/* and not waited for */
};

struct mft_sync {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mfk_backend *backend;
	const struct mft_parallel *parallel;
	struct mfk_ctx *side;	/* NULL: nothing overlaps, and all is the run's context's */
	struct bucket *buckets; /* [params->bucket_count] */
	struct mft_windows *windows;
};

/* ---- life ---- */

static int open_side(struct mft_sync *s, struct mfk_device *device, struct mfs_error *err)
{
	const struct mfk_device_ops *ops = s->backend->device;
	char why[MFK_WHY] = "";
	int rc = ops->ctx_new(device, false, &s->side, why);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", s->backend->name, why);
	for (uint32_t i = 0; i < s->params->bucket_count && !rc; i++) {
		rc = ops->event_new(device, &s->buckets[i].ready);
		if (!rc)
			rc = ops->event_new(device, &s->buckets[i].done);
	}
	return rc ? mfs_fail(err, rc, "%s: no event could be made", s->backend->name) : 0;
}

int mft_sync_new(const struct mft_train_config *config, struct mft_params *params,
		 struct mft_memory *memory, const struct mfk_backend *backend,
		 struct mfk_device *device, const struct mft_parallel *parallel,
		 struct mft_sync **ret, struct mfs_error *err)
{
	struct mft_sync *s = calloc(1, sizeof(*s));
	int rc = 0;

	if (!s)
		return mfs_fail_nomem(err);
	*s = (struct mft_sync){
		.config = config,
		.params = params,
		.backend = backend,
		.parallel = parallel,
		.buckets = calloc(params->bucket_count + 1u, sizeof(*s->buckets)),
	};
	if (!s->buckets)
		rc = mfs_fail_nomem(err);
	if (!rc && backend && config->overlap_grad_reduce)
		rc = open_side(s, device, err);
	if (!rc)
		rc = mft_windows_new(config, params, memory, backend, device, parallel, s->side,
				     &s->windows, err);
	if (rc)
		mft_sync_free(s);
	else
		*ret = s;
	return rc;
}

void mft_sync_free(struct mft_sync *s)
{
	char why[MFK_WHY];

	if (!s)
		return;
	if (s->side)
		s->backend->device->sync(s->side, why);
	for (uint32_t i = 0; s->side && i < s->params->bucket_count; i++) {
		if (s->buckets[i].ready)
			s->backend->device->event_free(s->buckets[i].ready);
		if (s->buckets[i].done)
			s->backend->device->event_free(s->buckets[i].done);
	}
	mft_windows_free(s->windows);
	if (s->side)
		s->backend->device->ctx_free(s->side);
	free(s->buckets);
	free(s);
}

/* ---- a bucket ---- */

static char *bucket_at(const struct mft_bucket *b, enum mfs_dtype type, void *flat)
{
	return (char *)flat + b->first * mfs_dtype_size(type);
}

/* The process's slice of a bucket of a flat buffer. */
static char *slice_of(const struct mft_sync *s, const struct mft_bucket *b, enum mfs_dtype type,
		      void *flat)
{
	const uint64_t own = s->parallel->group[b->group].rank;

	return bucket_at(b, type, flat) + own * (b->count / b->parts) * mfs_dtype_size(type);
}

/* The context of communication, after what ctx has so far. */
static struct mfk_ctx *begin(struct mft_sync *s, uint32_t i, struct mfk_ctx *ctx)
{
	if (!s->side)
		return ctx;
	s->backend->device->event_record(ctx, s->buckets[i].ready);
	s->backend->device->event_wait(s->side, s->buckets[i].ready);
	return s->side;
}

static void end(struct mft_sync *s, uint32_t i)
{
	if (s->side)
		s->backend->device->event_record(s->side, s->buckets[i].done);
}

/* group: that spoke last of the bucket. */
static void await(struct mft_sync *s, uint32_t i, enum mft_group group, struct mfk_ctx *ctx)
{
	if (s->side)
		mft_parallel_wait(s->parallel, group, s->backend->device, ctx, s->buckets[i].done);
}

static void await_grads(struct mft_sync *s, uint32_t i, struct mfk_ctx *ctx)
{
	const bool across = s->parallel->group[MFT_GROUP_ACROSS_INSTANCES].size > 1;

	await(s, i, across ? MFT_GROUP_ACROSS_INSTANCES : s->params->buckets[i].group, ctx);
}

static void await_weights(struct mft_sync *s, uint32_t i, struct mfk_ctx *ctx)
{
	await(s, i, s->params->buckets[i].group, ctx);
}

/* Gradients of experts have those of other processes' tokens already. Theirs are divided as dense
 * ones are (distributed_data_parallel.py: expert_gradient_scaling_factor). */
static void reduce(struct mft_sync *s, uint32_t i, struct mfk_ctx *ctx)
{
	const struct mft_bucket *b = &s->params->buckets[i];
	const enum mfs_dtype type = s->params->grad_type;
	char *grads = mft_params_grads_at(s->params, b->first);
	char *own = b->parts > 1 ? slice_of(s, b, type, s->params->grads) : grads;

	ctx = begin(s, i, ctx);
	if (b->parts > 1)
		mft_parallel_reduce_scatter(s->parallel, b->group, ctx, mft_mfk_dtype(type), own,
					    grads, b->count / b->parts);
	else
		mft_parallel_all_reduce(s->parallel, b->group, ctx, MFK_SUM, mft_mfk_dtype(type),
					grads, b->count);
	mft_parallel_all_reduce(s->parallel, MFT_GROUP_ACROSS_INSTANCES, ctx, MFK_SUM,
				mft_mfk_dtype(type), own, b->count / b->parts);
	end(s, i);
	s->buckets[i].reduced = true;
}

static void gather(struct mft_sync *s, uint32_t i, struct mfk_ctx *ctx)
{
	const struct mft_bucket *b = &s->params->buckets[i];
	const enum mfs_dtype type = s->params->weight_type;

	if (b->parts == 1 || mft_bucket_weights_part(s->params, b))
		return;
	mft_parallel_all_gather(s->parallel, b->group, begin(s, i, ctx), mft_mfk_dtype(type),
				bucket_at(b, type, s->params->weights),
				slice_of(s, b, type, s->params->weights), b->count / b->parts);
	end(s, i);
	s->buckets[i].gathering = true;
}

/* ---- what a net tells ---- */

/* The last gradients of a unit's parameters: buckets that wait for no other are reduced. All
 * processes come to them in one order. */
static void wrote(struct mft_sync *s, struct mfk_ctx *ctx, int32_t unit)
{
	for (uint32_t i = s->params->count; i-- > 0;) {
		const struct mft_param *p = &s->params->list[i];
		const struct mft_bucket *b = &s->params->buckets[p->bucket];

		if (p->unit == unit && !mft_bucket_grads_part(s->params, b) &&
		    !--s->buckets[p->bucket].missing)
			reduce(s, p->bucket, ctx);
	}
}

static void reads(struct mft_sync *s, struct mfk_ctx *ctx, int32_t unit)
{
	for (uint32_t i = 0; i < s->params->count; i++) {
		const struct mft_param *p = &s->params->list[i];
		struct bucket *b = &s->buckets[p->bucket];

		if (p->unit != unit || !b->gathering)
			continue;
		await_weights(s, p->bucket, ctx);
		b->gathering = false;
	}
}

static void begins(void *arg, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	struct mft_sync *s = arg;

	if (s->side && v->reads)
		reads(s, ctx, v->unit);
	mft_windows_begins(s->windows, ctx, v);
}

static void ends(void *arg, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	struct mft_sync *s = arg;

	mft_windows_ends(s->windows, ctx, v);
	if (s->side && v->writes && v->last && !v->later)
		wrote(s, ctx, v->unit);
}

struct mft_net_hooks mft_sync_hooks(struct mft_sync *s)
{
	return (struct mft_net_hooks){.begins = begins, .ends = ends, .arg = s};
}

/* ---- a step ---- */

void mft_sync_begin(struct mft_sync *s)
{
	for (uint32_t i = 0; i < s->params->bucket_count; i++) {
		const struct mft_bucket *b = &s->params->buckets[i];

		s->buckets[i].missing = b->params;
		s->buckets[i].reduced = mft_bucket_grads_part(s->params, b); /* by its window */
	}
	mft_windows_begin_step(s->windows);
}

/* The first and the last stage have the embedding of a tied head, each with gradients of its own
 * (finalize_model_grads.py: _allreduce_word_embedding_grads). It is alone in its bucket where
 * buckets are divided: both stages' processes own the same of it. */
static void add_shared(const struct mft_sync *s, struct mfk_ctx *ctx)
{
	const struct mft_params *p = s->params;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		const uint64_t end = q->start + q->elements;

		if (!q->part.is_shared)
			continue;
		for (uint64_t at = q->start, n; (n = mft_params_owned(p, &at, end)); at += n)
			mft_parallel_all_reduce(s->parallel, MFT_GROUP_EMBEDDING, ctx, MFK_SUM,
						mft_mfk_dtype(p->grad_type),
						mft_params_grads_at(p, at), n);
	}
}

void mft_sync_reduce(struct mft_sync *s, struct mfk_ctx *ctx)
{
	for (uint32_t i = s->params->bucket_count; i-- > 0;)
		if (!s->buckets[i].reduced)
			reduce(s, i, ctx);
	for (uint32_t i = 0; i < s->params->bucket_count; i++)
		await_grads(s, i, ctx);
	mft_windows_end_step(s->windows, ctx);
	add_shared(s, ctx);
}

void mft_sync_gather(struct mft_sync *s, struct mfk_ctx *ctx)
{
	for (uint32_t i = 0; i < s->params->bucket_count; i++)
		gather(s, i, ctx);
	mft_windows_updated(s->windows, ctx);
	if (!s->config->overlap_param_gather)
		mft_sync_await(s, ctx);
}

void mft_sync_await(struct mft_sync *s, struct mfk_ctx *ctx)
{
	for (uint32_t i = 0; i < s->params->bucket_count; i++) {
		if (s->buckets[i].gathering)
			await_weights(s, i, ctx);
		s->buckets[i].gathering = false;
	}
}

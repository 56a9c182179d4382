#include "trainer/optim/windows.h"

#include <stdlib.h>

#include "trainer/base/dtype.h"

/* Units that share windows. */
enum { LAYERS, OUTER, HEAD, LANES };
#define MOST_WINDOWS 2

struct window {
	uint64_t at;			/* offset in memory */
	int32_t unit;			/* that it has; MFT_UNIT_NONE */
	bool busy;			/* a pass uses it */
	bool waits;			/* for done */
	enum mft_group group;		/* that spoke last of it */
	uint64_t used;			/* when, by the order of visits */
	struct mfk_event *ready, *done; /* in the passes' context, and in `side`; NULL: none is */
};

/* The windows of weights, or of gradients, of a lane. */
struct pool {
	uint64_t elements; /* of each */
	uint32_t count;
	struct window windows[MOST_WINDOWS];
};

struct mft_windows {
	struct mft_params *params;
	const struct mft_memory *memory;
	const struct mfk_backend *backend;
	const struct mft_parallel *parallel;
	/* The context of all communication, as a group uses one context alone. NULL: the
	 * passes'. */
	struct mfk_ctx *side;
	bool ahead, after; /* gathers before a pass's unit, sums after it */
	bool both;	   /* a pass uses head and embedding at once */
	int32_t first;	   /* unit of a step's first pass */
	struct pool weights[LANES], grads[LANES];
	uint64_t now;
	struct place {
		uint64_t at; /* elements from the unit's beginning */
		bool summed; /* what is owned has sums of this step */
	} * places;	     /* [params->bucket_count] */
};

/* ---- where units lie ---- */

static int lane_of(const struct mft_windows *w, int32_t unit)
{
	if (unit == MFT_UNIT_HEAD && w->both)
		return HEAD;
	return unit == MFT_UNIT_HEAD || unit == MFT_UNIT_EMBEDDING ? OUTER : LAYERS;
}

typedef bool is_part(const struct mft_params *p, const struct mft_bucket *b);

/* Elements of a unit's buckets that are gathered. Where weights and gradients both are, they are
 * the same buckets. */
static uint64_t unit_elements(struct mft_windows *w, int32_t unit, is_part *part)
{
	const struct mft_params *p = w->params;
	uint64_t elements = 0;

	for (uint32_t i = 0; i < p->bucket_count; i++) {
		if (p->buckets[i].unit != unit || !part(p, &p->buckets[i]))
			continue;
		w->places[i].at = elements;
		elements += p->buckets[i].count;
	}
	return elements;
}

static void size_pools(struct mft_windows *w, struct pool *pools, is_part *part)
{
	for (uint32_t i = 0; i < w->params->bucket_count; i++) {
		const int32_t unit = w->params->buckets[i].unit;
		struct pool *pool = &pools[lane_of(w, unit)];
		const uint64_t elements = unit_elements(w, unit, part);

		if (elements > pool->elements)
			pool->elements = elements;
	}
}

static int open_window(struct mft_windows *w, struct mfk_device *device, struct window *window,
		       struct mfs_error *err)
{
	int rc = w->backend->device->event_new(device, &window->ready);

	if (!rc)
		rc = w->backend->device->event_new(device, &window->done);
	return rc ? mfs_fail(err, rc, "%s: no event could be made", w->backend->name) : 0;
}

/* overlaps: one window is used while another is filled or emptied. */
static int plan_pools(struct mft_windows *w, struct pool *pools, enum mfs_dtype type, bool overlaps,
		      struct mft_memory *memory, struct mfk_device *device, struct mfs_error *err)
{
	int rc = 0;

	for (int lane = 0; lane < LANES; lane++) {
		struct pool *pool = &pools[lane];

		pool->count = !pool->elements ? 0 : overlaps && lane == LAYERS ? MOST_WINDOWS : 1;
		for (uint32_t i = 0; i < pool->count && !rc; i++) {
			struct window *window = &pool->windows[i];

			window->unit = MFT_UNIT_NONE;
			window->group = MFT_GROUP_GRADS;
			window->at = mft_memory_add(memory, MFT_MEMORY_UNITS,
						    pool->elements * mfs_dtype_size(type));
			if (w->side)
				rc = open_window(w, device, window, err);
		}
	}
	return rc;
}

/* ---- life ---- */

static int32_t first_unit(const struct mft_params *p, const struct mft_parallel *parallel)
{
	int32_t unit = MFT_UNIT_HEAD;

	if (mft_is_first_stage(parallel))
		return MFT_UNIT_EMBEDDING;
	for (uint32_t i = 0; i < p->count; i++)
		if (p->list[i].unit >= 0 && p->list[i].unit < unit)
			unit = p->list[i].unit;
	return unit;
}

int mft_windows_new(const struct mft_train_config *config, struct mft_params *params,
		    struct mft_memory *memory, const struct mfk_backend *backend,
		    struct mfk_device *device, const struct mft_parallel *parallel,
		    struct mfk_ctx *side, struct mft_windows **ret, struct mfs_error *err)
{
	struct mft_windows *w = calloc(1, sizeof(*w));
	int rc = 0;

	if (!w)
		return mfs_fail_nomem(err);
	*w = (struct mft_windows){
		.params = params,
		.memory = memory,
		.backend = backend,
		.parallel = parallel,
		.side = side,
		.ahead = config->overlap_param_gather,
		.after = config->overlap_grad_reduce,
		.both = config->model.tied || config->model.mtp_num_layers > 0,
		.first = first_unit(params, parallel),
		.places = calloc(params->bucket_count + 1u, sizeof(*w->places)),
	};
	if (!w->places)
		rc = mfs_fail_nomem(err);
	if (!rc) {
		size_pools(w, w->weights, mft_bucket_weights_part);
		size_pools(w, w->grads, mft_bucket_grads_part);
		rc = plan_pools(w, w->weights, params->weight_type, w->ahead, memory, device, err);
	}
	if (!rc)
		rc = plan_pools(w, w->grads, params->grad_type, w->after, memory, device, err);
	if (rc)
		mft_windows_free(w);
	else
		*ret = w;
	return rc;
}

static void close_pool(struct mft_windows *w, struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		if (pool->windows[i].ready)
			w->backend->device->event_free(pool->windows[i].ready);
		if (pool->windows[i].done)
			w->backend->device->event_free(pool->windows[i].done);
	}
}

void mft_windows_free(struct mft_windows *w)
{
	if (!w)
		return;
	for (int lane = 0; lane < LANES; lane++) {
		close_pool(w, &w->weights[lane]);
		close_pool(w, &w->grads[lane]);
	}
	free(w->places);
	free(w);
}

/* ---- a window ---- */

static struct window *window_of(struct pool *pool, int32_t unit)
{
	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->windows[i].unit == unit)
			return &pool->windows[i];
	return NULL;
}

/* The one that nobody uses for the longest time. NULL: all are used. */
static struct window *free_window(struct pool *pool)
{
	struct window *found = NULL;

	for (uint32_t i = 0; i < pool->count; i++) {
		struct window *window = &pool->windows[i];

		if (!window->busy && (!found || window->used < found->used))
			found = window;
	}
	return found;
}

/* Where a bucket lies in a window; window NULL: nowhere. */
static void *bucket_at(const struct mft_windows *w, const struct window *window, uint32_t bucket,
		       enum mfs_dtype type)
{
	if (!window)
		return NULL;
	return (char *)mft_memory_at(w->memory, window->at) +
	       w->places[bucket].at * mfs_dtype_size(type);
}

static void set_weights(struct mft_windows *w, int32_t unit, const struct window *window)
{
	struct mft_params *p = w->params;

	for (uint32_t i = 0; i < p->bucket_count; i++)
		if (p->buckets[i].unit == unit && mft_bucket_weights_part(p, &p->buckets[i]))
			p->buckets[i].weights = bucket_at(w, window, i, p->weight_type);
}

static void set_grads(struct mft_windows *w, int32_t unit, const struct window *window)
{
	struct mft_params *p = w->params;

	for (uint32_t i = 0; i < p->bucket_count; i++)
		if (p->buckets[i].unit == unit && mft_bucket_grads_part(p, &p->buckets[i]))
			p->buckets[i].grads = bucket_at(w, window, i, p->grad_type);
}

/* The context of communication, after what ctx has so far. */
static struct mfk_ctx *begin(struct mft_windows *w, struct window *window, struct mfk_ctx *ctx)
{
	if (!w->side)
		return ctx;
	w->backend->device->event_record(ctx, window->ready);
	w->backend->device->event_wait(w->side, window->ready);
	return w->side;
}

static void end(struct mft_windows *w, struct window *window)
{
	if (!w->side)
		return;
	w->backend->device->event_record(w->side, window->done);
	window->waits = true;
}

static void await(struct mft_windows *w, struct window *window, struct mfk_ctx *ctx)
{
	if (window->waits)
		mft_parallel_wait(w->parallel, window->group, w->backend->device, ctx,
				  window->done);
	window->waits = false;
}

/* Communication has one order: a wait for a window counts for the group that came last. */
static void spoke(const struct mft_windows *w, struct window *window, const struct mft_bucket *b)
{
	if (w->parallel->group[b->group].size > 1)
		window->group = b->group;
}

/* The first element that the process owns of a bucket. */
static uint64_t owned_first(const struct mft_windows *w, const struct mft_bucket *b)
{
	return b->first + w->parallel->group[b->group].rank * (b->count / b->parts);
}

/* ---- weights ---- */

static void gather(struct mft_windows *w, struct window *window, int32_t unit, struct mfk_ctx *ctx)
{
	const struct mft_params *p = w->params;

	set_weights(w, window->unit, NULL);
	window->unit = unit;
	set_weights(w, unit, window);
	ctx = begin(w, window, ctx);
	for (uint32_t i = 0; i < p->bucket_count; i++) {
		const struct mft_bucket *b = &p->buckets[i];

		if (b->unit != unit || !mft_bucket_weights_part(p, b))
			continue;
		mft_parallel_all_gather(w->parallel, b->group, ctx, mft_mfk_dtype(p->weight_type),
					b->weights,
					mft_params_flat(p, MFS_STATE_MODEL, owned_first(w, b)).at,
					b->count / b->parts);
		spoke(w, window, b);
	}
	end(w, window);
}

/* Gets the unit's weights into a window, or on the way there. NULL: they are in no window, or a
 * pass uses all of the room. */
static struct window *fetch(struct mft_windows *w, int32_t unit, struct mfk_ctx *ctx)
{
	struct pool *pool = &w->weights[lane_of(w, unit)];
	struct window *window = window_of(pool, unit);

	if (window || unit == MFT_UNIT_NONE)
		return window;
	window = free_window(pool);
	if (window)
		gather(w, window, unit, ctx);
	return window;
}

static void begin_reading(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	struct window *window = fetch(w, v->unit, ctx);

	if (window) {
		await(w, window, ctx);
		window->busy = true;
		window->used = ++w->now;
	}
	if (w->ahead && v->next != MFT_UNIT_NONE)
		fetch(w, v->next, ctx);
}

static void end_reading(struct mft_windows *w, const struct mft_net_visit *v)
{
	struct window *window = window_of(&w->weights[lane_of(w, v->unit)], v->unit);

	if (window)
		window->busy = false;
}

void mft_windows_updated(struct mft_windows *w, struct mfk_ctx *ctx)
{
	for (int lane = 0; lane < LANES; lane++) {
		struct pool *pool = &w->weights[lane];

		for (uint32_t i = 0; i < pool->count; i++) {
			set_weights(w, pool->windows[i].unit, NULL);
			pool->windows[i].unit = MFT_UNIT_NONE;
		}
	}
	if (w->ahead)
		fetch(w, w->first, ctx);
}

/* ---- gradients ---- */

static void begin_writing(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	struct window *window = v->again ? NULL : free_window(&w->grads[lane_of(w, v->unit)]);

	if (!window)
		return;
	await(w, window, ctx);
	window->unit = v->unit;
	window->busy = true;
	window->used = ++w->now;
	set_grads(w, v->unit, window);
}

/* The sum over the processes of a bucket's gradients, added to what the step has of it: by the
 * process that owns it, before they are added up. */
static void reduce(struct mft_windows *w, uint32_t i, struct mfk_ctx *ctx)
{
	const struct mft_params *p = w->params;
	const struct mft_bucket *b = &p->buckets[i];
	const enum mfk_dtype type = mft_mfk_dtype(p->grad_type);
	const uint64_t first = owned_first(w, b), count = b->count / b->parts;
	char *own = (char *)b->grads + (first - b->first) * mfk_dtype_size(type);
	void *sum = mft_params_grads_at(p, first);

	if (w->places[i].summed)
		w->backend->ops->add(ctx, type, own, own, sum, (int64_t)count);
	mft_parallel_reduce_scatter(w->parallel, b->group, ctx, type, sum, b->grads, count);
	w->places[i].summed = true;
}

static void end_writing(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	struct window *window = window_of(&w->grads[lane_of(w, v->unit)], v->unit);
	const struct mft_params *p = w->params;

	if (!window || v->later)
		return;
	ctx = begin(w, window, ctx);
	for (uint32_t i = 0; i < p->bucket_count; i++)
		if (p->buckets[i].unit == v->unit && mft_bucket_grads_part(p, &p->buckets[i])) {
			reduce(w, i, ctx);
			spoke(w, window, &p->buckets[i]);
		}
	end(w, window);
	set_grads(w, v->unit, NULL);
	window->unit = MFT_UNIT_NONE;
	window->busy = false;
}

/* ---- what the net tells ---- */

void mft_windows_begins(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	if (v->reads)
		begin_reading(w, ctx, v);
	if (v->writes)
		begin_writing(w, ctx, v);
}

void mft_windows_ends(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v)
{
	if (v->reads)
		end_reading(w, v);
	if (v->writes)
		end_writing(w, ctx, v);
}

void mft_windows_begin_step(struct mft_windows *w)
{
	for (uint32_t i = 0; i < w->params->bucket_count; i++)
		w->places[i].summed = false;
}

static void await_pool(struct mft_windows *w, struct pool *pool, struct mfk_ctx *ctx)
{
	for (uint32_t i = 0; i < pool->count; i++)
		await(w, &pool->windows[i], ctx);
}

void mft_windows_end_step(struct mft_windows *w, struct mfk_ctx *ctx)
{
	for (int lane = 0; lane < LANES; lane++) {
		await_pool(w, &w->weights[lane], ctx);
		await_pool(w, &w->grads[lane], ctx);
	}
}

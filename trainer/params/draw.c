#include "trainer/params/draw.h"

#include "trainer/base/dtype.h"

/* Who draws, and where. */
struct drawer {
	const struct mft_params *params;
	uint64_t seed;
	const struct mfk_backend *backend;
	struct mfk_ctx *ctx;
};

struct drawing {
	const struct drawer *by;
	const struct mft_param *param;
	uint64_t at; /* the element that `to` is */
	enum mfk_dtype type;
	char *to;
};

static int draw_run(void *arg, const struct mft_param_run *run)
{
	const struct drawing *d = arg;
	const struct mft_param *q = d->param;
	const struct mfk_uniform uniform = {
		.dtype = d->type,
		.x = d->to + (run->first - d->at) * mfk_dtype_size(d->type),
		.count = (int64_t)run->count,
		.low = q->init_uniform.low,
		.high = q->init_uniform.high,
		.logarithm = q->init_uniform.logarithm,
		.seed = d->by->seed,
		.offset = q->drawn_from + run->whole_first,
	};

	if (q->init_std < 0)
		d->by->backend->ops->fill_uniform(d->by->ctx, &uniform);
	else
		d->by->backend->ops->fill_normal(d->by->ctx, d->type, uniform.x, uniform.count, 0,
						 (float)q->init_std, uniform.seed, uniform.offset);
	return 0;
}

static bool is_drawn(const struct mft_param *q)
{
	return q->init_std >= 0 || q->init_uniform.high != 0;
}

/* Numbers of a parameter, from element at on. They depend on the seed and on their place in the
 * whole model alone. */
static void draw_numbers(const struct drawer *by, const struct mft_param *q, uint64_t at,
			 uint64_t count, enum mfk_dtype type, void *to)
{
	struct drawing d = {by, q, at, type, to};

	if (!is_drawn(q))
		by->backend->ops->fill(by->ctx, type, to, (int64_t)count, q->init_value);
	else
		mft_param_runs(q, at, count, draw_run, &d);
}

/* Elements of a parameter that are drawn: first is that of the flat buffers. */
struct stretch {
	const struct mft_param *param;
	uint64_t first, count;
};

/* Main parameters that are offloaded are drawn in the memory of gradients, which are zeroed again
 * afterwards. Main parameters have two times the bytes of gradients at most, and of these there are
 * MFT_PARAM_ALIGN: so there is room for a piece. */
#define DRAWN_AT_ONCE (MFT_PARAM_ALIGN / 2)

static void draw_offloaded(const struct drawer *by, const struct stretch *s)
{
	const struct mft_params *p = by->params;
	const struct mfk_device_ops *device = by->backend->device;
	const size_t main_size = mfs_dtype_size(p->slot[MFT_SLOT_MAIN].type);
	const uint64_t bytes = mft_params_grad_elements(p) * mfs_dtype_size(p->grad_type);
	const uint64_t most = bytes / main_size / DRAWN_AT_ONCE * DRAWN_AT_ONCE;
	const uint64_t end = s->first + s->count;

	for (uint64_t at = s->first, n; at < end; at += n) {
		const struct mft_flat weight = mft_params_flat(p, MFS_STATE_MODEL, at);
		const struct mft_flat main = mft_params_flat(p, MFS_STATE_MAIN, at);

		n = end - at < most ? end - at : most;
		draw_numbers(by, s->param, at - s->param->start, n, mft_mfk_dtype(main.type),
			     p->grads);
		by->backend->ops->cast(by->ctx, mft_mfk_dtype(weight.type), weight.at,
				       mft_mfk_dtype(main.type), p->grads, (int64_t)n);
		device->copy_out(by->ctx, main.at, p->grads, n * main_size);
		device->zero(by->ctx, p->grads, n * main_size);
	}
}

/* Draws in the main parameters' type, and rounds to the weights. */
static void draw(const struct drawer *by, const struct stretch *s)
{
	const struct mft_flat weight = mft_params_flat(by->params, MFS_STATE_MODEL, s->first);
	const struct mft_flat main = mft_params_flat(by->params, MFS_STATE_MAIN, s->first);
	const enum mfk_dtype type = mft_mfk_dtype(weight.type);
	const uint64_t at = s->first - s->param->start;

	if (!main.at) {
		draw_numbers(by, s->param, at, s->count, type, weight.at);
	} else if (main.on_host) {
		draw_offloaded(by, s);
	} else {
		draw_numbers(by, s->param, at, s->count, mft_mfk_dtype(main.type), main.at);
		by->backend->ops->cast(by->ctx, type, weight.at, mft_mfk_dtype(main.type), main.at,
				       (int64_t)s->count);
	}
}

void mft_params_draw(const struct mft_params *params, uint64_t seed,
		     const struct mfk_backend *backend, struct mfk_ctx *ctx)
{
	const struct drawer by = {params, seed, backend, ctx};

	for (uint32_t i = 0; i < params->count; i++) {
		struct stretch s = {.param = &params->list[i], .first = params->list[i].start};
		const uint64_t end = s.first + params->list[i].elements;

		for (; (s.count = mft_params_owned(params, &s.first, end)); s.first += s.count)
			draw(&by, &s);
	}
}

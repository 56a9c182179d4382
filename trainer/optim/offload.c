#include "trainer/optim/offload.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "kernels/record/record.h"
#include "kernels/ref/cpu.h"
#include "trainer/base/dtype.h"

/* Pinned: what a piece has in addition to the state. */
struct slot {
	void *grads, *weights;
	struct mfk_event *down, *up; /* gradients are here; weights are on the device */
	struct mft_update_piece piece;
	uint64_t first;
	bool waits; /* for its update */
};

struct mft_offload {
	const struct mft_train_config *config;
	struct mft_params *params;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	struct mfk_ctx *down, *up;
	/* A plan computes nothing on the host either: what is here says nothing of the machine. */
	const struct mfk_backend *host_backend;
	struct mfk_device *host;
	struct mfk_ctx *cpu;
	uint64_t piece; /* elements of a slot */
	struct slot slots[2];
	unsigned turn;
};

/* ---- memory ---- */

static size_t bytes_of(enum mfs_dtype type, uint64_t elements)
{
	return type == MFS_DTYPE_NONE ? 0 : elements * mfs_dtype_size(type);
}

static uint64_t state_bytes(const struct mft_params *p)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < MFT_SLOTS; i++)
		bytes += bytes_of(p->slot[i].type, p->offloaded_owned);
	return bytes;
}

static uint64_t slot_bytes(const struct mft_params *p, uint64_t piece)
{
	return bytes_of(p->grad_type, piece) + bytes_of(p->weight_type, piece);
}

static int too_large(const struct mft_offload *o, struct mfs_error *err)
{
	struct mfk_device_info info;

	o->host_backend->device->info(o->host, &info);
	return mfs_fail(err, -ENOMEM,
			"--optimizer-cpu-offload: the host has %.2f GiB, and the optimizer's state "
			"needs %.2f GiB; a smaller --optimizer-offload-fraction needs less",
			(double)info.memory / (1 << 30),
			(double)state_bytes(o->params) / (1 << 30));
}

/* False: the host has less. Sizes beyond its memory are refused before they are touched. */
static bool has_room(const struct mft_offload *o)
{
	struct mfk_device_info info;

	o->host_backend->device->info(o->host, &info);
	return !info.memory || state_bytes(o->params) <= info.memory;
}

static bool make_buffer(struct mft_offload *o, struct mft_slot *s)
{
	const size_t bytes = bytes_of(s->type, o->params->offloaded_owned);

	if (!bytes)
		return true;
	s->host = o->host_backend->device->alloc(o->host, bytes);
	if (s->host)
		o->host_backend->device->zero(o->cpu, s->host, bytes);
	return s->host;
}

static int make_state(struct mft_offload *o, struct mfs_error *err)
{
	if (!has_room(o))
		return too_large(o, err);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		if (!make_buffer(o, &o->params->slot[i]))
			return too_large(o, err);
	return 0;
}

static int make_slot(struct mft_offload *o, struct slot *s, struct mfs_error *err)
{
	const struct mfk_device_ops *device = o->backend->device;

	s->grads = device->host_alloc(o->device, bytes_of(o->params->grad_type, o->piece));
	s->weights = device->host_alloc(o->device, bytes_of(o->params->weight_type, o->piece));
	if (!s->grads || !s->weights || device->event_new(o->device, &s->down) ||
	    device->event_new(o->device, &s->up))
		return mfs_fail_nomem(err);
	return 0;
}

/* ---- the whole ---- */

static int open_host(struct mft_offload *o, struct mfs_error *err)
{
	const struct mfk_device_ops *device = o->backend->device;
	char why[MFK_WHY] = "";
	int rc = o->host_backend->device->open(0, (unsigned)o->config->threads, &o->host, why);

	if (!rc)
		rc = o->host_backend->device->ctx_new(o->host, false, &o->cpu, why);
	if (!rc)
		rc = device->ctx_new(o->device, false, &o->down, why);
	if (!rc)
		rc = device->ctx_new(o->device, false, &o->up, why);
	return rc ? mfs_fail(err, rc, "--optimizer-cpu-offload: %s", why) : 0;
}

int mft_offload_new(const struct mft_train_config *config, struct mft_params *params,
		    struct mft_memory *memory, const struct mfk_backend *backend,
		    struct mfk_device *device, struct mft_offload **ret, struct mfs_error *err)
{
	const uint64_t piece = mfs_min_u64(params->offloaded_owned, MFT_OFFLOAD_PIECE);
	struct mft_offload *o = calloc(1, sizeof(*o));
	int rc = 0;

	if (!o)
		return mfs_fail_nomem(err);
	*o = (struct mft_offload){.config = config,
				  .params = params,
				  .backend = backend,
				  .host_backend =
					  backend == &mfk_recorder ? &mfk_recorder : &mfk_cpu,
				  .device = device,
				  .piece = piece};
	mft_memory_add(memory, MFT_MEMORY_HOST, state_bytes(params));
	mft_memory_add(memory, MFT_MEMORY_HOST, 2 * slot_bytes(params, piece));
	if (backend)
		rc = open_host(o, err);
	if (!rc && backend)
		rc = make_state(o, err);
	for (int i = 0; !rc && backend && i < 2; i++)
		rc = make_slot(o, &o->slots[i], err);
	if (rc)
		mft_offload_free(o);
	else
		*ret = o;
	return rc;
}

static void free_slot(struct mft_offload *o, struct slot *s)
{
	const struct mfk_device_ops *device = o->backend->device;

	if (s->grads)
		device->host_free(o->device, s->grads, bytes_of(o->params->grad_type, o->piece));
	if (s->weights)
		device->host_free(o->device, s->weights,
				  bytes_of(o->params->weight_type, o->piece));
	if (s->down)
		device->event_free(s->down);
	if (s->up)
		device->event_free(s->up);
}

static void free_state(struct mft_offload *o)
{
	for (unsigned i = 0; i < MFT_SLOTS; i++) {
		struct mft_slot *s = &o->params->slot[i];

		if (s->host)
			o->host_backend->device->free(o->host, s->host);
		s->host = NULL;
	}
}

void mft_offload_free(struct mft_offload *o)
{
	if (!o)
		return;
	if (o->down)
		o->backend->device->ctx_free(o->down);
	if (o->up)
		o->backend->device->ctx_free(o->up);
	for (int i = 0; o->backend && i < 2; i++)
		free_slot(o, &o->slots[i]);
	free_state(o);
	if (o->cpu)
		o->host_backend->device->ctx_free(o->cpu);
	if (o->host)
		o->host_backend->device->close(o->host);
	free(o);
}

/* ---- an update ---- */

struct mfk_ctx *mft_offload_ctx(struct mft_offload *o)
{
	return o->down;
}

static int await(const struct mft_offload *o, struct mfk_event *e, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = o->backend->device->event_sync(e, why);

	return rc ? mfs_fail(err, rc, "%s: %s", o->backend->name, why) : 0;
}

static int await_all(const struct mfk_backend *backend, struct mfk_ctx *ctx, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	const int rc = backend->device->sync(ctx, why);

	return rc ? mfs_fail(err, rc, "%s: %s", backend->name, why) : 0;
}

/* Without main parameters the weights are the state, and are copied down with the gradients. The
 * slot's weights of two pieces ago must have left it. */
static void begin(struct mft_offload *o, struct slot *s)
{
	const struct mfk_device_ops *device = o->backend->device;
	const struct mft_params *p = o->params;
	const uint64_t count = (uint64_t)s->piece.count;
	const struct mft_flat weights = mft_params_flat(p, MFS_STATE_MODEL, s->first);
	const size_t grad_size = mfs_dtype_size(p->grad_type);

	device->event_wait(o->down, s->up);
	device->copy_out(o->down, s->grads, mft_params_grads_at(p, s->first), count * grad_size);
	if (!p->slot[MFT_SLOT_MAIN].host)
		device->copy_out(o->down, s->weights, weights.at, bytes_of(weights.type, count));
	device->event_record(o->down, s->down);
	s->waits = true;
}

static int compute(struct mft_offload *o, struct slot *s, struct mfs_error *err)
{
	const struct mfk_device_ops *device = o->backend->device;
	const struct mft_params *p = o->params;
	const struct mft_flat weights = mft_params_flat(p, MFS_STATE_MODEL, s->first);
	int rc = await(o, s->down, err);

	s->waits = false;
	if (rc)
		return rc;
	s->piece.weight = s->weights;
	s->piece.grad = s->grads;
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		s->piece.slot[i] = mft_params_slot(p, i, s->first).at;
	p->optimizer->step(o->host_backend->ops, o->cpu, o->config, &s->piece);
	device->copy_in(o->up, weights.at, s->weights,
			bytes_of(weights.type, (uint64_t)s->piece.count));
	device->event_record(o->up, s->up);
	return 0;
}

int mft_offload_add(struct mft_offload *o, const struct mft_update_piece *piece, uint64_t first,
		    struct mfs_error *err)
{
	struct slot *s = &o->slots[o->turn], *before = &o->slots[o->turn ^ 1];

	s->piece = *piece;
	s->first = first;
	begin(o, s);
	o->turn ^= 1;
	return before->waits ? compute(o, before, err) : 0;
}

int mft_offload_finish(struct mft_offload *o, struct mfs_error *err)
{
	struct slot *last = &o->slots[o->turn ^ 1];
	int rc = last->waits ? compute(o, last, err) : 0;

	if (!rc)
		rc = await_all(o->backend, o->down, err);
	if (!rc)
		rc = await_all(o->backend, o->up, err);
	return rc ? rc : await_all(o->host_backend, o->cpu, err);
}

/* ---- what the log may say ---- */

int mft_offload_sum_squares(struct mft_offload *o, uint64_t first, uint64_t count, double sums[2],
			    struct mfs_error *err)
{
	const struct mft_flat main = mft_params_flat(o->params, MFS_STATE_MAIN, first);

	o->host_backend->ops->sum_squares(o->cpu, mft_mfk_dtype(main.type), main.at, (int64_t)count,
					  sums);
	return await_all(o->host_backend, o->cpu, err);
}

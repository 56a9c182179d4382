/*
 * The tensors of a checkpoint into the flat buffers of the device.
 *
 * Every parameter's tensors are cut into pieces. As many pieces as a staging buffer holds are read
 * together, in the order of the files (formats/megatron/read/rank_part.h), cast on the host, and
 * copied to the device while the next ones are read into the other staging buffer. So the host
 * needs two staging buffers, whatever the size of the model.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/threads.h"
#include "formats/megatron/read/rank_part.h"
#include "formats/numbers/cast.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/base/dtype.h"
#include "trainer/config/precision.h"

#define STAGE (UINT64_C(256) << 20) /* bytes of a staging buffer, at most */
#define PIECE (UINT64_C(4) << 20)   /* elements of a piece: with a cast it takes 48 MiB at most */

/* Elements of a source's tensor, and where they go. */
struct piece {
	struct mfs_part_tensor part; /* in the source's type */
	unsigned char *to;	     /* the device's memory, or the host's */
	enum mfs_dtype type;	     /* there */
	bool on_host;
};

struct stage {
	unsigned char *host;
	struct mfk_event *copied; /* the device has all of it */
};

struct loader {
	struct mft_load *load;
	struct mft_params *params;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct piece *pieces;
	size_t count;
	struct stage stages[2];
	uint64_t stage; /* bytes of each */
	struct mfs_error *err;
};

/* ---- what is read ---- */

static size_t load_name(const struct mfs_target *base, char *text, size_t size)
{
	return strlen(
		mfs_global_tensor_name(((const struct mfs_rank_tensor *)base)->src, text, size));
}

/* What the process has of the model's tensor, filled by the source's. Rows of the vocabulary that
 * one of them lacks are padding: zeros, or left out. */
static const struct mfs_target_ops load_ops = {.boxes = mfs_rank_tensor_boxes, .name = load_name};

static int bad_shape(const struct loader *l, const struct mfs_global_tensor *ours,
		     const struct mfs_global_tensor *src)
{
	char name[MFS_CKPT_NAME_SIZE], a[96], b[96];

	return mfs_fail(l->err, -EINVAL, "%s: tensor '%s' is %s, that of the arguments' model %s",
			mfs_ckpt_dir(l->load->ckpt),
			mfs_global_tensor_name(src, name, sizeof(name)),
			mfs_shape_text(src->shape, src->ndim, a, sizeof(a)),
			mfs_shape_text(ours->shape, ours->ndim, b, sizeof(b)));
}

static int check(const struct loader *l, const struct mfs_global_tensor *ours,
		 const struct mfs_global_tensor *src)
{
	const bool padded = mfs_global_tensor_is_vocabulary(ours);
	char name[MFS_CKPT_NAME_SIZE];

	if (src->ndim != ours->ndim)
		return bad_shape(l, ours, src);
	for (unsigned a = 0; a < ours->ndim; a++)
		if (src->shape[a] != ours->shape[a] && !(padded && !a))
			return bad_shape(l, ours, src);
	if (!mfs_cast_is_possible(src->dtype, MFS_F32))
		return mfs_fail(l->err, -ENOTSUP, "%s: tensor '%s' is %s: expected floats",
				mfs_ckpt_dir(l->load->ckpt),
				mfs_global_tensor_name(src, name, sizeof(name)),
				mfs_dtype_torch(src->dtype));
	return 0;
}

/* Elements of a part, and where the first one goes. */
struct stretch {
	uint64_t first, count;
	struct mft_flat to;
};

static struct stretch all_of(const struct mfs_rank_tensor *t, struct mft_flat to)
{
	return (struct stretch){0, t->base.bytes / mfs_dtype_size(t->base.dtype), to};
}

/* Adds elements of the process's part of a tensor as pieces. */
static int add_pieces(struct loader *l, const struct mfs_rank_tensor *ours,
		      const struct mfs_global_tensor *src, const struct stretch *s)
{
	struct mfs_rank_tensor t = *ours;
	int rc = check(l, ours->src, src);

	t.src = src;
	t.base.ops = &load_ops;
	t.base.ckpt = l->load->ckpt;
	t.base.dtype = src->dtype;
	if (!rc)
		rc = mfs_target_shape(&t.base, ours->base.shape, ours->base.ndim, l->err);
	if (rc)
		return rc;
	for (uint64_t at = 0; at < s->count; at += PIECE) {
		const uint64_t n = mfs_min_u64(PIECE, s->count - at);

		if (mfs_grow(&l->pieces, l->count))
			return mfs_fail_nomem(l->err);
		l->pieces[l->count++] = (struct piece){
			.part = {.tensor = t,
				 .state = (enum mfs_state)src->state,
				 .first = s->first + at,
				 .count = n,
				 .bytes = n * mfs_dtype_size(src->dtype)},
			.to = (unsigned char *)s->to.at + at * mfs_dtype_size(s->to.type),
			.type = s->to.type,
			.on_host = s->to.on_host};
	}
	return 0;
}

static int missing(const struct loader *l, const struct mfs_global_tensor *ours,
		   enum mfs_state state)
{
	struct mfs_global_tensor t = *ours;
	char name[MFS_CKPT_NAME_SIZE];

	t.state = state;
	return mfs_fail(l->err, -ENODATA, "%s: tensor '%s' is missing; the arguments' model has it",
			mfs_ckpt_dir(l->load->ckpt),
			mfs_global_tensor_name(&t, name, sizeof(name)));
}

/* What the process owns of a parameter's state. */
static int add_owned(struct loader *l, const struct mft_param *p,
		     const struct mfs_global_tensor *src, enum mfs_state to)
{
	const uint64_t end = p->start + p->elements;
	uint64_t at = p->start, n;
	int rc = 0;

	while (!rc && (n = mft_params_owned(l->params, &at, end))) {
		rc = add_pieces(
			l, &p->part, src,
			&(struct stretch){at - p->start, n, mft_params_flat(l->params, to, at)});
		at += n;
	}
	return rc;
}

/* from: the source's state; to: the run's. */
static int add_state(struct loader *l, const struct mft_param *p, enum mfs_state from,
		     enum mfs_state to)
{
	const struct mfs_global_tensor *ours = p->tensor;
	const struct mfs_global_tensor *src =
		mfs_ckpt_find_state(l->load->ckpt, from, ours->name, ours->layer, ours->expert);
	struct stretch all;

	if (!src)
		return missing(l, ours, from);
	if (to != MFS_STATE_MODEL || l->params->sharding >= MFT_SHARD_WEIGHTS)
		return add_owned(l, p, src, to);
	all = all_of(&p->part, mft_params_flat(l->params, to, p->start));
	return add_pieces(l, &p->part, src, &all);
}

/* The source's optimizer has fp32 parameters in addition to the weights. */
static bool has_main(const struct loader *l)
{
	const struct mfs_global_tensor *t = l->params->list[0].tensor;

	return l->load->optimizer &&
	       mfs_ckpt_find_state(l->load->ckpt, MFS_STATE_MAIN, t->name, t->layer, t->expert);
}

/* All parameters of one state. */
static int add_buffer(struct loader *l, enum mfs_state from, enum mfs_state to)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->params->count && !rc; i++) {
		const struct mft_param *p = &l->params->list[i];
		const struct mfs_global_tensor *t = p->tensor;

		if (mfs_ckpt_find_state(l->params->ckpt, to, t->name, t->layer, t->expert))
			rc = add_state(l, p, from, to);
	}
	return rc;
}

static int add_model_buffers(struct loader *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->params->buffer_count && !rc; i++) {
		const struct mft_model_buffer *b = &l->params->buffer_list[i];
		const struct mfs_global_tensor *t = b->tensor;
		const struct mfs_global_tensor *src =
			mfs_ckpt_find(l->load->ckpt, t->name, t->layer, t->expert);
		const struct mft_flat to = {.at = l->params->buffers + b->start, .type = MFS_F32};
		const struct stretch all = all_of(&b->part, to);

		rc = src ? add_pieces(l, &b->part, src, &all) : missing(l, t, MFS_STATE_MODEL);
	}
	return rc;
}

/* A run in fp32 takes the fp32 parameters of a source that has both these and 16-bit weights. */
static int add_all(struct loader *l)
{
	const struct mft_params *p = l->params;
	const bool main = has_main(l);
	int rc = add_buffer(
		l, main && mft_precision_is_main(p->weight_type) ? MFS_STATE_MAIN : MFS_STATE_MODEL,
		MFS_STATE_MODEL);

	if (!rc)
		rc = add_model_buffers(l);
	if (!rc && main && p->slot[MFT_SLOT_MAIN].type != MFS_DTYPE_NONE)
		rc = add_buffer(l, MFS_STATE_MAIN, MFS_STATE_MAIN);
	if (rc || !l->load->optimizer)
		return rc;
	for (enum mfs_state s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT && !rc; s++)
		if (mfs_ckpt_has_state(p->ckpt, s))
			rc = add_buffer(l, s, s);
	return rc;
}

/* A tensor that the model does not have means that it computes something else. */
static int check_rest(const struct loader *l)
{
	const struct mfs_ckpt *ckpt = l->load->ckpt;
	char name[MFS_CKPT_NAME_SIZE];

	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt); i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		if (!mfs_ckpt_find(l->params->ckpt, t->name, t->layer, t->expert))
			return mfs_fail(
				l->err, -EINVAL, "%s: the arguments' model has no tensor '%s'",
				mfs_ckpt_dir(ckpt), mfs_global_tensor_name(t, name, sizeof(name)));
	}
	return 0;
}

/* ---- reading ---- */

/* Bytes that a piece takes of a staging buffer: as it is read, and cast. */
static uint64_t read_room(const struct piece *p)
{
	return (p->part.bytes + 63) / 64 * 64;
}

static bool is_cast(const struct piece *p)
{
	return p->part.tensor.base.dtype != p->type;
}

static uint64_t room(const struct piece *p)
{
	const uint64_t cast = p->part.count * mfs_dtype_size(p->type);

	return read_room(p) + (is_cast(p) && !p->on_host ? (cast + 63) / 64 * 64 : 0);
}

/* Pieces that are read together. */
struct group {
	const struct piece *pieces;
	size_t count;
	void **at; /* where each lies in the staging buffer */
	atomic_size_t next;
};

/* HF stores the norm of a gated delta net whole, though norms of such a run are weight - 1. */
static void subtract_one(const struct piece *p, void *at)
{
	const size_t size = mfs_dtype_size(p->type);
	float some[256];

	for (uint64_t i = 0, n; i < p->part.count; i += n) {
		unsigned char *here = (unsigned char *)at + i * size;

		n = mfs_min_u64(p->part.count - i, MFS_ARRAY_SIZE(some));
		mfs_cast(MFS_F32, some, p->type, here, n);
		for (uint64_t k = 0; k < n; k++)
			some[k] -= 1;
		mfs_cast(p->type, here, MFS_F32, some, n);
	}
}

/* The host's pieces are at their place then. */
static void *cast_pieces(void *arg)
{
	struct group *g = arg;
	size_t i;

	while ((i = atomic_fetch_add(&g->next, 1)) < g->count) {
		const struct piece *p = &g->pieces[i];
		void *to = p->on_host ? p->to : (unsigned char *)g->at[i] + read_room(p);

		if (is_cast(p))
			mfs_cast(p->type, to, p->part.tensor.base.dtype, g->at[i], p->part.count);
		else if (p->on_host)
			memcpy(to, g->at[i], p->part.bytes);
		if (mfs_megatron_op(p->part.tensor.src) == MFS_OP_SUBTRACT_ONE)
			subtract_one(p, is_cast(p) || p->on_host ? to : g->at[i]);
	}
	return NULL;
}

static void send(struct loader *l, const struct group *g, struct stage *s)
{
	for (size_t i = 0; i < g->count; i++) {
		const struct piece *p = &g->pieces[i];
		const unsigned char *from = g->at[i];

		if (p->on_host)
			continue;
		l->backend->device->copy_in(l->ctx, p->to, from + (is_cast(p) ? read_room(p) : 0),
					    p->part.count * mfs_dtype_size(p->type));
	}
	l->backend->device->event_record(l->ctx, s->copied);
}

static int read_group(struct loader *l, struct group *g, struct stage *s)
{
	struct mfs_part_tensor *tensors = calloc(g->count, sizeof(*tensors));
	const struct mfs_rank_part part = {
		.ckpt = l->load->ckpt, .tensors = tensors, .count = (uint32_t)g->count};
	uint64_t used = 0;
	int rc;

	g->at = calloc(g->count, sizeof(*g->at));
	if (!tensors || !g->at) {
		free(tensors);
		return mfs_fail_nomem(l->err);
	}
	for (size_t i = 0; i < g->count; i++) {
		tensors[i] = g->pieces[i].part;
		g->at[i] = s->host + used;
		used += room(&g->pieces[i]);
	}
	rc = mfs_rank_part_read(&part, g->at, 0, l->err);
	free(tensors);
	if (rc)
		return rc;
	mfs_threads_run(mfs_threads_count(0, (unsigned)mfs_min_u64(g->count, 16)), cast_pieces, g);
	send(l, g, s);
	return 0;
}

static int wait_for(struct loader *l, struct stage *s)
{
	char why[MFK_WHY] = "";
	int rc = l->backend->device->event_sync(s->copied, why);

	return rc ? mfs_fail(l->err, rc, "copying weights to the device: %s", why) : 0;
}

static int read_all(struct loader *l)
{
	unsigned turn = 0;
	int rc = 0;

	for (size_t i = 0; i < l->count && !rc; turn ^= 1) {
		struct group g = {.pieces = &l->pieces[i]};
		uint64_t used = 0;

		while (i < l->count && used + room(&l->pieces[i]) <= l->stage) {
			used += room(&l->pieces[i++]);
			g.count++;
		}
		rc = wait_for(l, &l->stages[turn]);
		if (!rc)
			rc = read_group(l, &g, &l->stages[turn]);
		free(g.at);
	}
	return rc;
}

/* ---- the whole ---- */

static int open_stages(struct loader *l)
{
	for (size_t i = 0; i < l->count && l->stage < STAGE; i++)
		l->stage += room(&l->pieces[i]);
	l->stage = mfs_min_u64(l->stage, STAGE);
	for (int i = 0; i < 2; i++) {
		l->stages[i].host = l->backend->device->host_alloc(l->device, l->stage);
		if (!l->stages[i].host)
			return mfs_fail(l->err, -ENOMEM,
					"no memory for a staging buffer of %llu MiB",
					(unsigned long long)(l->stage >> 20));
		if (l->backend->device->event_new(l->device, &l->stages[i].copied))
			return mfs_fail(l->err, -EIO, "the device makes no event");
	}
	return 0;
}

static void close_stages(struct loader *l)
{
	for (int i = 0; i < 2; i++) {
		if (l->stages[i].copied)
			l->backend->device->event_free(l->stages[i].copied);
		if (l->stages[i].host)
			l->backend->device->host_free(l->device, l->stages[i].host, l->stage);
	}
}

static void zero(struct loader *l, void *p, enum mfs_dtype type, uint64_t elements)
{
	if (p)
		l->backend->device->zero(l->ctx, p, elements * mfs_dtype_size(type));
}

/* What lies between parameters, and the moments of a new optimizer, are zeros. The host's are that
 * already. */
static void zero_all(struct loader *l)
{
	const struct mft_params *p = l->params;

	zero(l, p->weights, p->weight_type, mft_params_weight_elements(p));
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		zero(l, p->slot[i].device, p->slot[i].type,
		     p->slot[i].elements - p->offloaded_owned);
	zero(l, p->buffers, MFS_F32, p->buffer_elements);
}

/* Weights that are widened to main parameters on the host. */
struct widening {
	struct mft_flat from, to;
	uint64_t count;
	atomic_ullong next; /* element */
};

#define WIDEN_PART 65536 /* elements */

static void *widen_parts(void *arg)
{
	struct widening *w = arg;
	uint64_t at;

	while ((at = atomic_fetch_add(&w->next, WIDEN_PART)) < w->count)
		mfs_cast(w->to.type, (unsigned char *)w->to.at + at * mfs_dtype_size(w->to.type),
			 w->from.type,
			 (unsigned char *)w->from.at + at * mfs_dtype_size(w->from.type),
			 mfs_min_u64(WIDEN_PART, w->count - at));
	return NULL;
}

static int wait_all(struct loader *l)
{
	char why[MFK_WHY] = "";
	const int rc = l->backend->device->sync(l->ctx, why);

	return rc ? mfs_fail(l->err, rc, "copying weights to the device: %s", why) : 0;
}

/* Neighbours that are owned; the device has their weights as they are rounded. */
static int widen_on_host(struct loader *l, uint64_t first, uint64_t count)
{
	const struct mft_params *p = l->params;
	const uint64_t most = l->stage / mfs_dtype_size(p->weight_type);

	for (uint64_t at = first, end = first + count, n; at < end; at += n) {
		const struct mft_flat weights = mft_params_flat(p, MFS_STATE_MODEL, at);
		struct widening w = {.from = {.at = l->stages[0].host, .type = weights.type},
				     .to = mft_params_flat(p, MFS_STATE_MAIN, at)};
		int rc;

		n = w.count = mfs_min_u64(most, end - at);
		l->backend->device->copy_out(l->ctx, w.from.at, weights.at,
					     n * mfs_dtype_size(weights.type));
		rc = wait_all(l);
		if (rc)
			return rc;
		mfs_threads_run(mfs_threads_count(0, 16), widen_parts, &w);
	}
	return 0;
}

/* optimizer.py: reload_model_params: main parameters are the weights, widened. */
static int make_main(struct loader *l)
{
	const struct mft_params *p = l->params;
	int rc = 0;

	if (p->slot[MFT_SLOT_MAIN].type == MFS_DTYPE_NONE || has_main(l))
		return 0;
	for (uint64_t at = p->offloaded, n; (n = mft_params_owned(p, &at, p->elements)); at += n)
		l->backend->ops->cast(l->ctx, mft_mfk_dtype(p->slot[MFT_SLOT_MAIN].type),
				      mft_params_flat(p, MFS_STATE_MAIN, at).at,
				      mft_mfk_dtype(p->weight_type),
				      mft_params_flat(p, MFS_STATE_MODEL, at).at, (int64_t)n);
	for (uint64_t at = 0, n; !rc && (n = mft_params_owned(p, &at, p->offloaded)); at += n)
		rc = widen_on_host(l, at, n);
	return rc;
}

static int load_all(struct loader *l)
{
	char why[MFK_WHY] = "";
	int rc = add_all(l);

	if (!rc)
		rc = check_rest(l);
	if (!rc)
		rc = open_stages(l);
	if (rc)
		return rc;
	zero_all(l);
	rc = read_all(l);
	if (!rc)
		rc = make_main(l);
	/* Staging buffers stay until the device has read them, also after a failure. */
	if (l->backend->device->sync(l->ctx, why) && !rc)
		rc = mfs_fail(l->err, -EIO, "copying weights to the device: %s", why);
	return rc;
}

int mft_load_tensors(struct mft_load *load, struct mft_params *params,
		     const struct mfk_backend *backend, struct mfk_device *device,
		     struct mfk_ctx *ctx, struct mfs_error *err)
{
	struct loader l = {.load = load,
			   .params = params,
			   .backend = backend,
			   .device = device,
			   .ctx = ctx,
			   .err = err};
	int rc = load_all(&l);

	close_stages(&l);
	free(l.pieces);
	return rc;
}

#include "trainer/model/base/eight.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "kernels/eight_bits.h"
#include "trainer/model/base/part.h"

/* A weight's operands. */
struct weight {
	bool planned;
	uint64_t rows, columns, scales; /* offsets in memory */
	uint64_t made;			/* in which step; 0: never */
	int64_t first;			/* number of its first group among all linears' groups */
	int64_t groups;
	int64_t most;		 /* rows of its operands at most */
	bool fresh[MFT_FACTORS]; /* its scale is still to be found; mft_eight_find_scales() */
};

/* Memory that is shared by all linears, one after the other. */
enum area {
	AREA_ROWS,    /* of x or of dy */
	AREA_COLUMNS, /* of x */
	AREA_DY_COLUMNS,
	AREA_WEIGHT, /* with FSDP */
	AREA_SCALES, /* of x, of the weight and of dy, one after the other */
	AREAS,
};

struct mft_eight {
	struct mft_recipe recipe;
	struct weight *weights; /* [params->count], of the first of a group */
	uint64_t step;
	uint64_t bytes[AREAS], at[AREAS];
	uint64_t scales; /* bytes of one matrix's */
	struct delayed {
		int64_t groups; /* of all linears */
		/* Scales of a direction, [count], and what was seen before; forward has those of
		 * inputs and weights, two for each group. */
		struct table {
			int64_t count;
			uint64_t scales, history, amax; /* offsets in memory */
		} forward, backward;
		struct mft_at now;	  /* of forward's, what a pass uses */
		struct mft_scales scales; /* of both, for checkpoints */
	} delayed;
};

void mft_operands_set(struct mfk_gemm *g, const struct mft_operand *a, const struct mft_operand *b)
{
	g->dtype_a = a->type;
	g->a = a->at;
	g->lda = a->ld;
	g->scale_a = a->scale;
	g->dtype_b = b->type;
	g->b = b->at;
	g->ldb = b->ld;
	g->scale_b = b->scale;
	if (!mfk_is_scaled(a->type))
		return;
	g->trans_a = false;
	g->trans_b = true;
}

/* ---- the plan ---- */

/* A net that generates computes with the weights as they are. */
int mft_eight_new(struct mft_net *net, struct mfs_error *err)
{
	struct mft_recipe recipe = {0};
	struct mft_eight *e;

	if (net->cache.sequences || !mft_recipe_find(net->config, &recipe))
		return 0;
	e = mfs_arena_alloc(&net->arena, sizeof(*e));
	if (e)
		e->weights = mfs_arena_array(&net->arena, net->params->count, sizeof(*e->weights));
	if (!e || !e->weights)
		return mfs_fail_nomem(err);
	e->recipe = recipe;
	e->step = 1;
	net->eight = e;
	return 0;
}

const struct mft_recipe *mft_eight_recipe(const struct mft_net *net, const char *prefix,
					  int64_t layer)
{
	if (!net->eight || !mft_recipe_is_for(net->config, prefix, layer))
		return NULL;
	return &net->eight->recipe;
}

int mft_eight_check(const char *prefix, int64_t layer, int64_t out, int64_t in,
		    struct mfs_error *err)
{
	if (out % MFK_SCALED_STEP == 0 && in % MFK_SCALED_STEP == 0)
		return 0;
	return mfs_fail(err, -EINVAL,
			"--fp8-format: %s of layer %lld has %lld rows and %lld columns in a "
			"process; expected multiples of %d",
			prefix, (long long)layer, (long long)out, (long long)in, MFK_SCALED_STEP);
}

static uint64_t bytes_of(int64_t rows, int64_t cols)
{
	return mft_matrix_bytes(MFK_E4M3, rows, cols);
}

static void need(struct mft_eight *e, enum area area, uint64_t bytes)
{
	if (bytes > e->bytes[area])
		e->bytes[area] = bytes;
}

static bool is_divided(const struct mft_net *net, const struct mft_eight_weight *w)
{
	return mft_bucket_weights_part(net->params, &net->params->buckets[w->first->bucket]);
}

static struct weight *weight_of(const struct mft_net *net, const struct mft_eight_weight *w)
{
	return &net->eight->weights[w->first - net->params->list];
}

static void plan_weight(const struct mft_net *net, const struct mft_eight_weight *w)
{
	const uint64_t bytes = bytes_of(w->groups * w->out, w->in);
	struct weight *to = weight_of(net, w);

	if (to->planned)
		return;
	to->planned = true;
	to->first = net->eight->delayed.groups;
	to->groups = w->groups;
	net->eight->delayed.groups += w->groups;
	if (is_divided(net, w)) {
		need(net->eight, AREA_WEIGHT, bytes);
		return;
	}
	to->rows = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS, bytes);
	to->columns = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS, bytes);
	to->scales = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS,
				    (uint64_t)w->groups * sizeof(struct mfk_scale));
}

/* Elements between rows of transposed matrices. Experts' rows are others in each pass, and
 * libraries look for a kernel at each new shape: theirs are as far apart as the most rows are. */
static int64_t ld_of(const struct mft_net *net, const struct mft_eight_weight *w,
		     const struct mfk_quantise *x)
{
	return x->groups ? mfk_group_columns(weight_of(net, w)->most, x->groups)
			 : mfk_scaled_round(x->rows);
}

void mft_eight_plan(const struct mft_net *net, const struct mft_eight_weight *w, int64_t rows)
{
	struct mft_eight *e = net->eight;
	const int64_t columns = mfk_group_columns(rows, w->groups);

	plan_weight(net, w);
	if (rows > weight_of(net, w)->most)
		weight_of(net, w)->most = rows;
	need(e, AREA_ROWS, bytes_of(rows, w->out > w->in ? w->out : w->in));
	need(e, AREA_COLUMNS, bytes_of(columns, w->in));
	need(e, AREA_DY_COLUMNS, bytes_of(columns, w->out));
	if ((uint64_t)w->groups * sizeof(struct mfk_scale) > e->scales)
		e->scales = (uint64_t)w->groups * sizeof(struct mfk_scale);
}

static uint64_t table_bytes(const struct table *t)
{
	return (uint64_t)t->count * sizeof(struct mfk_scale);
}

static void place_table(struct mft_net *net, struct table *t, int64_t count)
{
	const int64_t length = net->config->fp8_amax_history_len;

	t->count = count;
	t->scales = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS, table_bytes(t));
	t->history = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS,
				    mft_matrix_bytes(MFK_F32, length, count));
	t->amax = mft_memory_add(net->memory, MFT_MEMORY_WEIGHTS,
				 mft_matrix_bytes(MFK_F32, 1, count));
}

void mft_eight_place_slot(struct mft_net *net, uint64_t *slot)
{
	struct mft_eight *e = net->eight;

	if (!e || !e->recipe.delayed)
		return;
	place_table(net, &e->delayed.forward, 2 * e->delayed.groups);
	place_table(net, &e->delayed.backward, e->delayed.groups);
	e->delayed.now.in_slot = true;
	e->delayed.now.offset = mft_memory_after(slot, table_bytes(&e->delayed.forward));
}

void mft_eight_place(struct mft_net *net)
{
	struct mft_eight *e = net->eight;

	if (!e)
		return;
	e->scales = mfs_round_up(e->scales, MFT_MEMORY_ALIGN);
	e->bytes[AREA_SCALES] = MFT_FACTORS * e->scales;
	for (int i = 0; i < AREAS; i++)
		e->at[i] = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, e->bytes[i]);
}

/* ---- weights ---- */

void mft_eight_begin_step(const struct mft_net *net)
{
	if (net->eight)
		net->eight->step++;
}

/* With delayed scaling: those of a linear's groups in the tables. */
static struct mfk_scale *table_scales(const struct mft_net *net, const struct mft_eight_weight *w,
				      enum mft_factor which)
{
	const struct delayed *d = &net->eight->delayed;
	const int64_t first = weight_of(net, w)->first;
	struct mfk_scale *forward = mft_pass_at(net, d->now);

	if (which == MFT_DY)
		return (struct mfk_scale *)mft_net_at(net, d->backward.scales) + first;
	return forward + 2 * first + (which == MFT_WEIGHT ? w->groups : 0);
}

static struct mfk_scale *scratch_scales(const struct mft_net *net, enum mft_factor which)
{
	const struct mft_eight *e = net->eight;

	return mft_net_at(net, e->at[AREA_SCALES] + (uint64_t)which * e->scales);
}

/* Scales are given, or made of the numbers. */
static bool is_given(const struct mft_net *net, const struct mft_eight_weight *w,
		     enum mft_factor which)
{
	return net->eight->recipe.delayed && !weight_of(net, w)->fresh[which];
}

static void quantise(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mfk_quantise *a)
{
	if (!a->given)
		net->backend->ops->amax(pass->ctx, a);
	net->backend->ops->quantise(pass->ctx, a);
}

/* Each of a group is a matrix, at rows and columns that may be NULL. */
static void quantise_weight(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_eight_weight *w, char *rows, char *columns,
			    struct mfk_scale *scales)
{
	const char *x = mft_param_weights(net->params, w->first);

	for (int64_t i = 0; i < w->groups; i++) {
		const size_t at = (size_t)(i * w->out * w->in);
		const struct mfk_quantise a = {
			.from = net->io,
			.to = net->eight->recipe.type[MFT_WEIGHT],
			.rows = w->out,
			.cols = w->in,
			.ld = w->in,
			.x = x + (size_t)(i * w->stride) * mfk_dtype_size(net->io),
			.q = rows ? rows + at : NULL,
			.qt = columns ? columns + at : NULL,
			.ld_qt = w->out,
			.scales = scales + i,
			.given = is_given(net, w, MFT_WEIGHT),
		};

		quantise(net, pass, &a);
	}
	weight_of(net, w)->fresh[MFT_WEIGHT] &= !pass->train;
}

/* Both operands for the step. They keep the scales that they were made with. */
static void make_weight(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_eight_weight *w, struct weight *of)
{
	struct mfk_scale *own = mft_net_at(net, of->scales), *scales = own;

	if (of->made == net->eight->step)
		return;
	if (net->eight->recipe.delayed)
		scales = table_scales(net, w, MFT_WEIGHT);
	quantise_weight(net, pass, w, mft_net_at(net, of->rows), mft_net_at(net, of->columns),
			scales);
	if (scales != own)
		net->backend->device->copy(pass->ctx, own, scales,
					   (size_t)w->groups * sizeof(*own));
	of->made = net->eight->step;
}

static struct mft_operand whole_for_a_while(const struct mft_net *net, const struct mft_pass *pass,
					    const struct mft_eight_weight *w, bool transposed)
{
	char *at = mft_net_at(net, net->eight->at[AREA_WEIGHT]);
	struct mfk_scale *scales = net->eight->recipe.delayed ? table_scales(net, w, MFT_WEIGHT)
							      : scratch_scales(net, MFT_WEIGHT);

	quantise_weight(net, pass, w, transposed ? NULL : at, transposed ? at : NULL, scales);
	return (struct mft_operand){.at = at, .scale = scales};
}

struct mft_operand mft_eight_weight(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_eight_weight *w, bool transposed)
{
	struct weight *of = weight_of(net, w);
	struct mft_operand ret;

	if (is_divided(net, w)) {
		ret = whole_for_a_while(net, pass, w, transposed);
	} else {
		make_weight(net, pass, w, of);
		ret = (struct mft_operand){
			.at = mft_net_at(net, transposed ? of->columns : of->rows),
			.scale = mft_net_at(net, of->scales)};
	}
	ret.type = net->eight->recipe.type[MFT_WEIGHT];
	ret.ld = transposed ? w->out : w->in;
	return ret;
}

/* ---- other matrices ---- */

int64_t mft_eight_columns(int64_t rows)
{
	return mfk_scaled_round(rows);
}

void mft_eight_matrix(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_eight_weight *w, enum mft_factor which,
		      const struct mfk_quantise *x, struct mft_operand *rows,
		      struct mft_operand *columns)
{
	const struct mft_eight *e = net->eight;
	const enum area area = which == MFT_DY ? AREA_DY_COLUMNS : AREA_COLUMNS;
	struct mfk_quantise a = *x;

	a.from = net->io;
	a.to = e->recipe.type[which];
	a.given = is_given(net, w, which);
	a.q = rows ? mft_net_at(net, e->at[AREA_ROWS]) : NULL;
	if (!columns)
		a.qt = NULL;
	else if (!a.qt)
		a.qt = mft_net_at(net, e->at[area]);
	a.ld_qt = ld_of(net, w, x);
	if (e->recipe.delayed)
		a.scales = table_scales(net, w, which);
	else if (!a.scales)
		a.scales = scratch_scales(net, which);
	quantise(net, pass, &a);
	weight_of(net, w)->fresh[which] &= !pass->train;
	if (rows)
		*rows = (struct mft_operand){a.to, a.q, a.cols, a.scales};
	if (columns)
		*columns = (struct mft_operand){a.to, a.qt, a.ld_qt, a.scales};
}

/* ---- what is kept ---- */

/* Scales lie before the columns. */
static uint64_t scale_bytes(int64_t groups)
{
	return mfs_round_up((uint64_t)(groups ? groups : 1) * sizeof(struct mfk_scale),
			    MFT_MEMORY_ALIGN);
}

uint64_t mft_eight_kept_bytes(const struct mft_eight_weight *w, int64_t rows)
{
	return scale_bytes(w->groups) + bytes_of(w->in, mfk_group_columns(rows, w->groups));
}

void mft_eight_keep(const struct mft_net *net, const struct mft_kept_columns *to,
		    struct mfk_quantise *x)
{
	x->scales = mft_part_kept(net, to->part, to->offset);
	x->qt = (char *)x->scales + scale_bytes(x->groups);
}

struct mft_operand mft_eight_kept(const struct mft_net *net, const struct mft_eight_weight *w,
				  const struct mft_kept_columns *from, const struct mfk_quantise *x)
{
	struct mfk_quantise a = *x;

	mft_eight_keep(net, from, &a);
	if (net->eight->recipe.delayed)
		a.scales = table_scales(net, w, MFT_X);
	return (struct mft_operand){net->eight->recipe.type[MFT_X], a.qt, ld_of(net, w, x),
				    a.scales};
}

/* ---- delayed scaling ---- */

static int fill_table(const struct mft_net *net, struct mfk_ctx *ctx, const struct table *t,
		      struct mfs_error *err)
{
	const struct mfk_device_ops *device = net->backend->device;
	const uint64_t history =
		mft_matrix_bytes(MFK_F32, net->config->fp8_amax_history_len, t->count);
	struct mfk_scale *ones = calloc((size_t)t->count + 1, sizeof(*ones));
	char why[MFK_WHY] = "";
	int rc;

	if (!ones)
		return mfs_fail_nomem(err);
	for (int64_t i = 0; i < t->count; i++)
		ones[i].inverse = ones[i].scale = 1;
	device->zero(ctx, mft_net_at(net, t->history), history);
	device->copy_in(ctx, mft_net_at(net, t->scales), ones, table_bytes(t));
	rc = device->sync(ctx, why);
	free(ones);
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

/* The weights of a group are parameters of their own. */
static void place_weight(const struct mft_net *net, uint32_t first)
{
	const struct mfs_global_tensor *t = net->params->list[first].tensor;
	const struct weight *w = &net->eight->weights[first];
	struct mft_scale_place *places = net->eight->delayed.scales.places;

	for (int64_t i = 0; i < w->groups; i++) {
		const struct mft_param *p = &net->params->list[first];

		if (i)
			p = mft_params_find(net->params, t->name, t->layer, t->expert + (int32_t)i);
		if (p)
			places[p - net->params->list] =
				(struct mft_scale_place){.exists = true,
							 .x = 2 * w->first + i,
							 .weight = 2 * w->first + w->groups + i,
							 .dy = w->first + i};
	}
}

static struct mft_scale_table table_at(const struct mft_net *net, const struct table *t)
{
	return (struct mft_scale_table){.count = t->count,
					.scales = mft_net_at(net, t->scales),
					.history = mft_net_at(net, t->history)};
}

/* Checkpoints find them by the parameters. */
static int show_scales(struct mft_net *net, struct mfs_error *err)
{
	struct delayed *d = &net->eight->delayed;

	d->scales.places =
		mfs_arena_array(&net->arena, net->params->count, sizeof(*d->scales.places));
	if (!d->scales.places)
		return mfs_fail_nomem(err);
	d->scales.length = net->config->fp8_amax_history_len;
	d->scales.forward = table_at(net, &d->forward);
	d->scales.backward = table_at(net, &d->backward);
	for (uint32_t i = 0; i < net->params->count; i++)
		if (net->eight->weights[i].planned)
			place_weight(net, i);
	net->params->scales = &d->scales;
	return 0;
}

int mft_eight_begin(struct mft_net *net, struct mfk_ctx *ctx, struct mfs_error *err)
{
	const struct mft_eight *e = net->eight;
	int rc;

	if (!e || !e->recipe.delayed)
		return 0;
	rc = fill_table(net, ctx, &e->delayed.forward, err);
	if (!rc)
		rc = fill_table(net, ctx, &e->delayed.backward, err);
	return rc ? rc : show_scales(net, err);
}

bool mft_eight_find_scales(const struct mft_net *net)
{
	const struct mft_eight *e = net->eight;

	if (!e || !e->recipe.delayed)
		return false;
	for (uint32_t i = 0; i < net->params->count; i++)
		for (int k = 0; k < MFT_FACTORS; k++)
			e->weights[i].fresh[k] = true;
	return true;
}

/* Copies amax of the scales to numbers that follow each other, or back. */
static void copy_amax(const struct mft_net *net, const struct mft_pass *pass, const struct table *t,
		      struct mfk_scale *seen, bool back)
{
	const int64_t apart = sizeof(*seen) / sizeof(seen->amax);
	float *numbers = mft_net_at(net, t->amax);
	const struct mfk_copy_rows rows = {
		.from_type = MFK_F32,
		.to_type = MFK_F32,
		.rows = t->count,
		.cols = 1,
		.ld_from = back ? 1 : apart,
		.ld_to = back ? apart : 1,
		.from = back ? numbers : &seen->amax,
		.to = back ? &seen->amax : numbers,
		.scale = 1,
	};

	net->backend->ops->copy_rows(pass->ctx, &rows);
}

/* The greatest amax of all processes that have the same linears. */
static void share(const struct mft_net *net, const struct mft_pass *pass, const struct table *t,
		  struct mfk_scale *seen)
{
	const struct {
		enum mft_group group;
		const struct mft_side *side; /* in which the group communicates; NULL: the pass's */
	} all[] = {{MFT_GROUP_TENSOR, &net->tensor_side},
		   {MFT_GROUP_CONTEXT, &net->context_side},
		   {MFT_GROUP_DATA, NULL}};
	bool shared = false;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		if (net->parallel->group[all[i].group].size < 2)
			continue;
		if (!shared)
			copy_amax(net, pass, t, seen, false);
		shared = true;
		mft_parallel_all_reduce(
			net->parallel, all[i].group,
			all[i].side ? mft_side_submit(net, all[i].side, pass->ctx) : pass->ctx,
			MFK_MAX, MFK_F32, mft_net_at(net, t->amax), (uint64_t)t->count);
		if (all[i].side)
			mft_side_await(net, all[i].side, all[i].group, pass->ctx);
	}
	if (shared)
		copy_amax(net, pass, t, seen, true);
}

static void update(const struct mft_net *net, const struct mft_pass *pass, const struct table *t,
		   enum mfk_dtype type, struct mfk_scale *seen)
{
	const struct mfk_update_scales u = {
		.count = t->count,
		.length = net->config->fp8_amax_history_len,
		.most = ldexpf(mfk_scaled_most(type), -(int)net->config->fp8_margin),
		.greatest = mfs_str_is(net->config->fp8_amax_compute_algo, "max"),
		.scales = mft_net_at(net, t->scales),
		.seen = seen,
		.history = mft_net_at(net, t->history),
	};

	if (!t->count)
		return;
	share(net, pass, t, seen);
	net->backend->ops->update_scales(pass->ctx, &u);
}

static bool updates(const struct mft_net *net, const struct mft_pass *pass)
{
	return net->eight && net->eight->recipe.delayed && pass->train;
}

void mft_eight_begin_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (e && e->recipe.delayed)
		net->backend->device->copy(pass->ctx, mft_pass_at(net, e->delayed.now),
					   mft_net_at(net, e->delayed.forward.scales),
					   table_bytes(&e->delayed.forward));
}

void mft_eight_end_forward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (updates(net, pass))
		update(net, pass, &e->delayed.forward, e->recipe.type[MFT_X],
		       mft_pass_at(net, e->delayed.now));
}

void mft_eight_end_backward(const struct mft_net *net, const struct mft_pass *pass)
{
	const struct mft_eight *e = net->eight;

	if (updates(net, pass))
		update(net, pass, &e->delayed.backward, e->recipe.type[MFT_DY],
		       mft_net_at(net, e->delayed.backward.scales));
}

#include "trainer/model/base/eight_i.h"

#include "formats/base/bytes.h"
#include "kernels/eight_bits.h"
#include "trainer/model/base/part.h"

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

static void need(struct mft_eight *e, enum mft_eight_area area, uint64_t bytes)
{
	if (bytes > e->bytes[area])
		e->bytes[area] = bytes;
}

static bool is_divided(const struct mft_net *net, const struct mft_eight_weight *w)
{
	return mft_bucket_weights_part(net->params, &net->params->buckets[w->first->bucket]);
}

static struct mft_eight_operands *weight_of(const struct mft_net *net,
					    const struct mft_eight_weight *w)
{
	return &net->eight->weights[w->first - net->params->list];
}

static void plan_weight(const struct mft_net *net, const struct mft_eight_weight *w)
{
	const uint64_t bytes = bytes_of(w->groups * w->out, w->in);
	struct mft_eight_operands *to = weight_of(net, w);

	if (to->planned)
		return;
	to->planned = true;
	to->first = net->eight->delayed.groups;
	to->groups = w->groups;
	net->eight->delayed.groups += w->groups;
	if (is_divided(net, w)) {
		need(net->eight, MFT_AREA_WEIGHT, bytes);
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
	need(e, MFT_AREA_ROWS, bytes_of(rows, w->out > w->in ? w->out : w->in));
	need(e, MFT_AREA_COLUMNS, bytes_of(columns, w->in));
	need(e, MFT_AREA_DY_COLUMNS, bytes_of(columns, w->out));
	if ((uint64_t)w->groups * sizeof(struct mfk_scale) > e->scales)
		e->scales = (uint64_t)w->groups * sizeof(struct mfk_scale);
}

void mft_eight_place(struct mft_net *net)
{
	struct mft_eight *e = net->eight;

	if (!e)
		return;
	e->scales = mfs_round_up(e->scales, MFT_MEMORY_ALIGN);
	e->bytes[MFT_AREA_SCALES] = MFT_FACTORS * e->scales;
	for (int i = 0; i < MFT_EIGHT_AREAS; i++)
		e->at[i] = mft_memory_add(net->memory, MFT_MEMORY_SCRATCH, e->bytes[i]);
}

/* ---- weights ---- */

void mft_eight_begin_step(const struct mft_net *net)
{
	if (net->eight)
		net->eight->step++;
}

static struct mfk_scale *scratch_scales(const struct mft_net *net, enum mft_factor which)
{
	const struct mft_eight *e = net->eight;

	return mft_net_at(net, e->at[MFT_AREA_SCALES] + (uint64_t)which * e->scales);
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
			const struct mft_eight_weight *w, struct mft_eight_operands *of)
{
	struct mfk_scale *own = mft_net_at(net, of->scales), *scales = own;

	if (of->made == net->eight->step)
		return;
	if (net->eight->recipe.delayed)
		scales = mft_eight_table_scales(net, w, MFT_WEIGHT);
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
	char *at = mft_net_at(net, net->eight->at[MFT_AREA_WEIGHT]);
	struct mfk_scale *scales = net->eight->recipe.delayed
					   ? mft_eight_table_scales(net, w, MFT_WEIGHT)
					   : scratch_scales(net, MFT_WEIGHT);

	quantise_weight(net, pass, w, transposed ? NULL : at, transposed ? at : NULL, scales);
	return (struct mft_operand){.at = at, .scale = scales};
}

struct mft_operand mft_eight_weight(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_eight_weight *w, bool transposed)
{
	struct mft_eight_operands *of = weight_of(net, w);
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
	const enum mft_eight_area area = which == MFT_DY ? MFT_AREA_DY_COLUMNS : MFT_AREA_COLUMNS;
	struct mfk_quantise a = *x;

	a.from = net->io;
	a.to = e->recipe.type[which];
	a.given = is_given(net, w, which);
	a.q = rows ? mft_net_at(net, e->at[MFT_AREA_ROWS]) : NULL;
	if (!columns)
		a.qt = NULL;
	else if (!a.qt)
		a.qt = mft_net_at(net, e->at[area]);
	a.ld_qt = ld_of(net, w, x);
	if (e->recipe.delayed)
		a.scales = mft_eight_table_scales(net, w, which);
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
		a.scales = mft_eight_table_scales(net, w, MFT_X);
	return (struct mft_operand){net->eight->recipe.type[MFT_X], a.qt, ld_of(net, w, x),
				    a.scales};
}

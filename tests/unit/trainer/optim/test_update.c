/*
 * The update of a step (trainer/optim/update.h): what lies on the host gets the same bits as what
 * lies on the device, for all types of state and all fractions. Muon's updates of matrices have
 * rows or columns that are orthogonal.
 */
#include "trainer/optim/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/numbers/half.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "formats/optim/rules/optimizers.h"
#include "tests/unit/run_of.h"

#define CKPT "weights/llama-torch-tp2-pp2/iter_0000040"

struct optimizer {
	struct run run;
	struct mft_memory memory;
	struct mft_parallel parallel;
	struct mft_update *update;
	struct mft_train_config config;
	uint64_t fenced; /* elements that were announced */
};

static struct mfs_error err;

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ z >> 31;
}

/* Zeros between parameters, as in a run; numbers around mean elsewhere. */
static void draw(const struct mft_params *p, void *to, enum mfs_dtype type, float mean,
		 uint64_t seed)
{
	memset(to, 0, p->elements * mfs_dtype_size(type));
	for (uint32_t i = 0; i < p->count; i++)
		for (uint64_t e = 0; e < p->list[i].elements; e++) {
			const uint64_t at = p->list[i].start + e;
			const float x = mean + (float)(next(&seed) >> 40) / (float)(1 << 24) - 0.5f;

			if (type == MFS_F32)
				((float *)to)[at] = x;
			else
				((uint16_t *)to)[at] = type == MFS_BF16 ? mfs_float_to_bf16(x)
									: mfs_float_to_f16(x);
		}
}

static void fill(struct optimizer *o, enum mfs_state state, float mean)
{
	const struct mft_params *p = o->run.params;
	const enum mfs_dtype type = mft_params_flat(p, state, p->elements).type;
	unsigned char *all;

	if (type == MFS_DTYPE_NONE)
		return;
	all = malloc(p->elements * mfs_dtype_size(type));
	draw(p, all, type, mean, (uint64_t)state + 1);
	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];

		memcpy(mft_params_flat(p, state, q->start).at,
		       all + q->start * mfs_dtype_size(type), q->elements * mfs_dtype_size(type));
	}
	free(all);
}

static void optimizer_new(struct optimizer *o, const struct mft_train_config *config)
{
	struct mft_params *p;

	*o = (struct optimizer){.config = *config};
	mft_parallel_one(&o->parallel);
	run_new(&o->run, &o->config);
	p = o->run.params;
	p->grads = run_alloc(&o->run, p->grad_type, p->elements);
	unit_ok(mft_update_new(&o->config, p, &o->memory, &mfk_cpu, o->run.device, &o->parallel,
			       &o->update, &err),
		&err);
	draw(p, p->weights, p->weight_type, 0, 1);
	for (unsigned i = 0; i < MFT_SLOTS; i++)
		if (p->slot[i].device)
			memset(p->slot[i].device, 0, p->elements * mfs_dtype_size(p->slot[i].type));
	unit_ok(mft_memory_place(&o->memory, &mfk_cpu, o->run.device, &err), &err);
	fill(o, MFS_STATE_MAIN, 0);
	fill(o, MFS_STATE_EXP_AVG, 0);
	fill(o, MFS_STATE_EXP_AVG_SQ, 0.6f);
}

static void optimizer_free(struct optimizer *o)
{
	mft_update_free(o->update);
	mft_memory_release(&o->memory, &mfk_cpu, o->run.device);
	mfk_cpu.device->free(o->run.device, o->run.params->grads);
	run_free(&o->run);
}

/* The first gradient of each parameter is zero, and what lies between them is not counted. */
static void check_zeros(struct optimizer *o)
{
	const struct mft_params *p = o->run.params;
	const size_t size = mfs_dtype_size(p->grad_type);
	double zeros;

	for (uint32_t i = 0; i < p->count; i++)
		memset((char *)p->grads + p->list[i].start * size, 0, size);
	unit_ok(mft_update_zeros(o->update, o->run.ctx, &zeros, &err), &err);
	ck_assert_double_eq(zeros, p->count);
}

static void fence(void *arg, struct mfk_ctx *ctx, uint64_t first, uint64_t count)
{
	struct optimizer *o = arg;

	ck_assert_ptr_nonnull(ctx);
	ck_assert_uint_le(first + count, o->run.params->elements);
	o->fenced += count;
}

static void step(struct optimizer *o, uint64_t number)
{
	const struct mft_update_step s = {.number = number,
					  .lr = 1e-2,
					  .decoupled_lr = 2e-2,
					  .weight_decay = 0.1,
					  .grad_divisor = 4,
					  .fence = fence,
					  .fence_arg = o};
	const struct mft_params *p = o->run.params;
	struct mft_update_result result;
	char why[MFK_WHY];

	draw(p, p->grads, p->grad_type, 0, 100 + number);
	check_zeros(o);
	o->fenced = 0;
	unit_ok(mft_update_norm(o->update, o->run.ctx, &s, &result, &err), &err);
	unit_ok(mft_update_apply(o->update, o->run.ctx, &s, &result, &err), &err);
	ck_assert_int_eq(mfk_cpu.device->sync(o->run.ctx, why), 0);
	ck_assert(!result.skipped && result.grad_norm > 1);
	ck_assert_uint_eq(o->fenced, p->elements);
}

static void same(const struct optimizer *a, const struct optimizer *b, enum mfs_state state)
{
	const struct mft_params *p = a->run.params, *q = b->run.params;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_flat x = mft_params_flat(p, state, p->list[i].start);
		const struct mft_flat y = mft_params_flat(q, state, q->list[i].start);
		const bool on_host = p->list[i].start < p->offloaded && state != MFS_STATE_MODEL;

		ck_assert(x.on_host == on_host && !y.on_host);
		ck_assert_int_eq(x.type, y.type);
		if (x.type != MFS_DTYPE_NONE)
			ck_assert_msg(
				!memcmp(x.at, y.at, p->list[i].elements * mfs_dtype_size(x.type)),
				"state %d of '%s' differs", state, p->list[i].tensor->name);
	}
}

static void check_norm(struct optimizer *a, struct optimizer *b)
{
	double x, y;

	unit_ok(mft_update_params_norm(a->update, a->run.ctx, &x, &err), &err);
	unit_ok(mft_update_params_norm(b->update, b->run.ctx, &y, &err), &err);
	ck_assert(y > 1 && fabs(x / y - 1) < 1e-12);
}

static void check(const struct mft_train_config *config, double fraction)
{
	struct mft_train_config c = *config;
	struct optimizer a, b;

	optimizer_new(&b, &c);
	c.optimizer_cpu_offload = true;
	c.optimizer_offload_fraction = fraction;
	optimizer_new(&a, &c);
	ck_assert_uint_eq(b.memory.bytes[MFT_MEMORY_HOST], 0);
	ck_assert((a.memory.bytes[MFT_MEMORY_HOST] > 0) == (fraction > 0));
	ck_assert_uint_eq(a.memory.total, b.memory.total);
	for (uint64_t i = 1; i <= 3; i++) {
		step(&a, i);
		step(&b, i);
	}
	for (int state = MFS_STATE_MODEL; state < MFS_STATE_COUNT; state++)
		same(&a, &b, (enum mfs_state)state);
	check_norm(&a, &b);
	optimizer_free(&a);
	optimizer_free(&b);
}

static struct mfs_ckpt *ckpt; /* whose arguments are those of the runs */

static void open_ckpt(void)
{
	unit_ok(mfs_ckpt_open(unit_fixture(CKPT), MFS_CKPT_COMMON, &ckpt, &err), &err);
}

static void close_ckpt(void)
{
	mfs_ckpt_free(ckpt);
}

static struct mft_train_config config_of(enum mfs_dtype io)
{
	struct mft_train_config c = run_config(ckpt);
	c.params_dtype = io;
	c.decoupled_weight_decay = true;
	c.decoupled_lr = 2e-2;
	c.adam_beta1 = 0.9;
	c.adam_beta2 = 0.95;
	c.adam_eps = 1e-8;
	c.clip_grad = 1;
	c.threads = 2;
	return c;
}

static const double fractions[] = {0, 0.01, 0.5, 1};

START_TEST(an_update_on_the_host_is_that_on_the_device)
{
	static const enum mfs_dtype io[] = {MFS_BF16, MFS_F16, MFS_F32};
	const struct mft_train_config c = config_of(io[_i / 4]);

	check(&c, fractions[_i % 4]);
}
END_TEST

/* --main-grads-dtype, --main-params-dtype, --exp-avg-dtype, --exp-avg-sq-dtype */
START_TEST(offloaded_types)
{
	static const enum mfs_dtype types[][4] = {
		{MFS_BF16, MFS_F32, MFS_F32, MFS_F32},
		{MFS_F32, MFS_F16, MFS_BF16, MFS_F16},
		{MFS_BF16, MFS_F16, MFS_F16, MFS_BF16},
	};
	struct mft_train_config c = config_of(MFS_BF16);

	c.main_grads_dtype = types[_i][0];
	c.main_params_dtype = types[_i][1];
	c.exp_avg_dtype = types[_i][2];
	c.exp_avg_sq_dtype = types[_i][3];
	check(&c, 0.5);
}
END_TEST

/* Wherever the host's part ends, also between neighbours that are updated alike. */
START_TEST(offloaded_to_each)
{
	const struct mft_train_config c = config_of(MFS_BF16);
	struct mft_params *p;
	uint64_t elements = 0;

	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	for (uint32_t i = 0; i < p->count && i < 20; i++) {
		elements += p->list[i].elements;
		check(&c, ((double)elements - 0.5) / (double)p->parameters);
	}
	mft_params_free(p);
}
END_TEST

/* Parameters are offloaded whole, until they are the fraction. */
START_TEST(parameters_are_offloaded_whole_up_to_the_fraction)
{
	struct mft_train_config c = config_of(MFS_BF16);
	struct mft_params *p;
	uint64_t elements = 0, i = 0;

	c.optimizer_cpu_offload = true;
	c.optimizer_offload_fraction = fractions[_i];
	unit_ok(mft_params_new(&c, NULL, &p, &err), &err);
	for (; i < p->count && p->list[i].start < p->offloaded; i++)
		elements += p->list[i].elements;
	ck_assert((double)elements >= fractions[_i] * (double)p->parameters);
	if (i)
		ck_assert((double)(elements - p->list[i - 1].elements) <
			  fractions[_i] * (double)p->parameters);
	ck_assert_uint_eq(p->offloaded, i < p->count ? p->list[i].start : p->elements);
	mft_params_free(p);
}
END_TEST

/* A matrix of an update: rows [first, first + rows) of each `group` rows of x [all, cols]. */
struct matrix {
	const double *x;
	int64_t all, cols, first, rows, group;
};

static double at(const struct matrix *m, int64_t row, int64_t col)
{
	return m->x[(row / m->rows * m->group + m->first + row % m->rows) * m->cols + col];
}

/* Its rows, or its columns if they are fewer, are orthogonal, and as long as "spectral" says. */
static void orthogonal(const struct matrix *m, double scale)
{
	const int64_t rows = m->all / m->group * m->rows;
	const int64_t less = rows < m->cols ? rows : m->cols, more = rows + m->cols - less;

	for (int64_t i = 0; i < less; i++)
		for (int64_t j = 0; j < less; j++) {
			double sum = 0;

			for (int64_t k = 0; k < more; k++)
				sum += less == rows ? at(m, i, k) * at(m, j, k)
						    : at(m, k, i) * at(m, k, j);
			ck_assert_double_eq_tol(sum / (scale * scale * (double)more), i == j, 2e-3);
		}
}

/* Queries, keys and values are matrices for themselves. */
static void check_matrix(const struct mft_train_config *c, const struct mft_param *q,
			 const double *x)
{
	const int64_t head = c->model.kv_channels;
	const int64_t queries = c->model.num_attention_heads / c->model.num_query_groups * head;
	const int64_t rows = mft_param_size(q, 0), group = queries + 2 * head;
	struct matrix m = {x, rows, mft_param_size(q, 1), 0, rows, rows};

	if (strstr(q->tensor->name, "linear_qkv")) {
		m.group = group;
		m.rows = queries;
		orthogonal(&m, c->muon.extra_scale_factor);
		m.first = queries;
		m.rows = head;
		orthogonal(&m, c->muon.extra_scale_factor);
		m.first = queries + head;
	}
	orthogonal(&m, c->muon.extra_scale_factor);
}

/* What a step of rate 1e-2 has added to a matrix, over that; decay is taken off. */
static void check_added(const struct optimizer *o, const struct mft_param *q, const float *before)
{
	const float *now = mft_params_flat(o->run.params, MFS_STATE_MAIN, q->start).at;
	double *x = malloc(q->elements * sizeof(*x));

	ck_assert_ptr_nonnull(x);
	for (uint64_t i = 0; i < q->elements; i++)
		x[i] = ((double)before[q->start + i] * (1 - 1e-3) - (double)now[i]) / 1e-2;
	check_matrix(&o->config, q, x);
	free(x);
}

START_TEST(muon_orthogonalises_matrices_alone)
{
	struct mft_train_config c = config_of(MFS_BF16);
	const struct mft_params *p;
	struct optimizer o;
	uint64_t others = 0;
	float *before;

	c.optimizer = "muon";
	c.muon.momentum = 0.9;
	c.muon.nesterov = c.muon.split_qkv = true;
	c.muon.extra_scale_factor = 0.5;
	c.muon.num_ns_steps = 16;
	c.muon.coefficient_type = "polar_express";
	c.muon.fp32_matmul_prec = "high";
	c.muon.scale_mode = "spectral";
	c.muon.tp_mode = "duplicated";
	optimizer_new(&o, &c);
	p = o.run.params;
	before = malloc(p->elements * sizeof(*before));
	ck_assert_ptr_nonnull(before);
	memcpy(before, p->slot[MFT_SLOT_MAIN].device, p->elements * sizeof(*before));
	step(&o, 1);
	for (uint32_t i = 0; i < p->count; i++) {
		if (p->list[i].optimizer == p->optimizer)
			check_added(&o, &p->list[i], before);
		else
			others += p->list[i].elements;
	}
	/* Second moments are of what Adam updates, and of no more. */
	ck_assert_uint_ge(p->slot[MFT_SLOTS - 1].elements, others);
	ck_assert_uint_lt(p->slot[MFT_SLOTS - 1].elements, others + p->count * MFT_PARAM_ALIGN);
	free(before);
	optimizer_free(&o);
}
END_TEST

/* What the trainer keeps of a kind of optimizer is what readers of its saves expect. */
START_TEST(kinds_keep_what_their_saves_have)
{
#define ROW(name, states) {#name, states},
	static const struct mfs_optimizer rows[] = {MFS_OPTIMIZERS(ROW)};
#undef ROW

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++)
		for (unsigned s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT; s++)
			ck_assert_int_eq(mft_optimizer_slot(mft_optimizer_kind(rows[i].name), s) <
						 MFT_SLOTS,
					 rows[i].states >> s & 1);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("update");
	TCase *c = tcase_create("offload");

	tcase_add_checked_fixture(c, open_ckpt, close_ckpt);
	tcase_add_loop_test(c, an_update_on_the_host_is_that_on_the_device, 0, 12);
	tcase_add_loop_test(c, offloaded_types, 0, 3);
	tcase_add_test(c, offloaded_to_each);
	tcase_add_loop_test(c, parameters_are_offloaded_whole_up_to_the_fraction, 0, 4);
	tcase_add_test(c, muon_orthogonalises_matrices_alone);
	tcase_add_test(c, kinds_keep_what_their_saves_have);
	suite_add_tcase(s, c);
	return s;
}

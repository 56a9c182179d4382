/*
 * The parameters of each process (trainer/params/params.h: mft_params_new() with places), for
 * random models and layouts: every element of every tensor is in exactly the ranks that Megatron
 * gives it to, mft_param_runs() agree with the boxes, and random numbers do not depend on the
 * layout.
 */
#include "trainer/params/params.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "kernels/ref/cpu.h"
#include "tests/unit/random_layout.h"
#include "tests/unit/unit.h"

static struct mfs_error err;

/* Families without MTP, which is not trained. */
#define FAMILIES 6

/* ---- a model and its processes ---- */

struct model {
	struct mft_train_config config;
	struct mfs_layout layout;
	struct mft_params *whole;
	uint32_t dp; /* so that experts have room: etp ep divides tp dp */
};

static void model_new(struct model *m, int family)
{
	struct mfs_megatron_args *a = &m->config.model;

	m->config = (struct mft_train_config){.embedding_init_method_std = -1,
					      .decoupled_lr = -1,
					      .params_dtype = MFS_F32,
					      .main_grads_dtype = MFS_F32,
					      .main_params_dtype = MFS_F32,
					      .exp_avg_dtype = MFS_F32,
					      .exp_avg_sq_dtype = MFS_F32};
	random_layout(family, a, &m->layout);
	/* Groups that ranks share are not trained. */
	a->num_query_groups = a->num_attention_heads;
	a->mtp_num_layers = 0;
	a->padded_vocab_size = m->layout.tp * (3 + random_of(9));
	a->virtual_pipeline_model_parallel_size = m->layout.vpp;
	a->first_stage_layers = m->layout.first;
	a->last_stage_layers = m->layout.last;
	a->local_spec = false;
	m->dp = m->layout.etp * m->layout.ep;
	unit_ok(mft_params_new(&m->config, NULL, &m->whole, &err), &err);
}

static void place(const struct model *m, uint32_t rank, struct mft_parallel *ret)
{
	const struct mfs_layout *l = &m->layout;
	const struct mft_parallel_sizes s = {.tp = l->tp,
					     .cp = 1,
					     .dp = m->dp,
					     .pp = l->pp,
					     .etp = l->etp,
					     .ep = l->ep,
					     .edp = l->tp * m->dp / (l->etp * l->ep)};

	mft_parallel_places(&(struct mft_launch){.rank = rank, .size = s.tp * s.dp * s.pp}, &s,
			    ret);
}

/* ---- what Megatron gives to whom ---- */

static bool is_in(const char *name, const char *const *ends)
{
	for (; *ends; ends++)
		if (mfs_str_ends(name, *ends))
			return true;
	return false;
}

/* The axis that tensor parallelism divides (column- and row-parallel linears, embeddings); -1: each
 * rank has all. */
static int divided_axis(const struct mfs_global_tensor *t)
{
	static const char *const columns[] = {"word_embeddings.weight",	  "output_layer.weight",
					      "linear_qkv.weight",	  "linear_qkv.bias",
					      "linear_q_proj.weight",	  "linear_q_up_proj.weight",
					      "linear_kv_up_proj.weight", "linear_fc1.weight",
					      "linear_fc1.bias",	  NULL};
	static const char *const rows[] = {"linear_proj.weight", "linear_fc2.weight", NULL};

	return is_in(t->name, columns) ? 0 : is_in(t->name, rows) ? 1 : -1;
}

static uint32_t stage_of(const struct model *m, int32_t layer)
{
	for (uint32_t vp = 0; vp < m->layout.vpp; vp++)
		for (uint32_t pp = 0; pp < m->layout.pp; pp++) {
			uint32_t first;
			const uint32_t n =
				random_layout_layers(&m->layout, &m->config.model, vp, pp, &first);

			if ((uint32_t)layer >= first && (uint32_t)layer < first + n)
				return pp;
		}
	ck_abort_msg("layer %d is nowhere", layer);
}

/* Whether a stage has a tensor. The last one has a copy of a tied embedding. */
static bool has_stage(const struct model *m, const struct mfs_global_tensor *t, uint32_t pp)
{
	const bool last = pp == m->layout.pp - 1;

	if (t->layer >= 0)
		return pp == stage_of(m, t->layer);
	if (mfs_str_is(t->name, "embedding.word_embeddings.weight"))
		return pp == 0 || (last && m->config.model.tied);
	return !strncmp(t->name, "embedding.", 10) ? pp == 0 : last;
}

static bool has_expert(const struct model *m, const struct mft_parallel *p,
		       const struct mfs_global_tensor *t)
{
	return t->expert < 0 ||
	       (uint32_t)t->expert / ((uint32_t)m->config.model.num_experts / p->size.ep) ==
		       p->place.ep;
}

/* Whether a process has the element at row, column of a tensor. */
static bool has_element(const struct model *m, const struct mft_parallel *p,
			const struct mfs_global_tensor *t, uint64_t row, uint64_t column)
{
	const struct mfs_megatron_args *a = &m->config.model;
	const bool expert = t->expert >= 0;
	const uint32_t parts = expert ? p->size.etp : p->size.tp;
	const uint32_t part = expert ? p->place.etp : p->place.tp;
	const int axis = divided_axis(t);
	uint64_t size = axis == 1 ? t->shape[1] : t->shape[0], at = axis == 1 ? column : row;

	if (!has_expert(m, p, t))
		return false;
	if (axis < 0)
		return true;
	/* A gate and what it multiplies are divided each for itself. */
	if (axis == 0 && a->swiglu && strstr(t->name, "linear_fc1.")) {
		size /= 2;
		at %= size;
	}
	return at / (size / parts) == part;
}

/* ---- what a process has ---- */

/* The whole tensor's element that each of the process's is, twice: by runs and by boxes. */
struct map {
	uint64_t *whole, count, next;
};

static int add_run(void *arg, const struct mft_param_run *r)
{
	struct map *m = arg;

	ck_assert_uint_gt(r->count, 0);
	ck_assert_uint_eq(r->first, m->next);
	for (uint64_t i = 0; i < r->count; i++)
		m->whole[r->first + i] = r->whole_first + i;
	m->next += r->count;
	return 0;
}

struct boxes {
	const struct mft_param *param;
	const uint64_t *whole;
	uint64_t count;
};

/* Each element of a box, from its indices. */
static int compare_box(const struct mfs_box_map *b, void *arg)
{
	struct boxes *of = arg;
	const struct mfs_target *t = &of->param->part.base;
	uint64_t count = 1, index[MFS_CKPT_DIMS];

	ck_assert_ptr_eq(b->src, of->param->tensor);
	for (unsigned a = 0; a < t->ndim; a++)
		count *= b->size[a];
	for (uint64_t i = 0; i < count; i++) {
		uint64_t left = i, local = 0, whole = 0, at[MFS_CKPT_DIMS];

		for (unsigned a = t->ndim; a-- > 0; left /= b->size[a])
			index[a] = left % b->size[a];
		memcpy(at, b->src_lo, sizeof(at));
		for (unsigned a = 0; a < t->ndim; a++) {
			local = local * t->shape[a] + b->lo[a] + index[a];
			at[b->src_axis[a]] += index[a] * b->step[a];
		}
		for (unsigned a = 0; a < b->src->ndim; a++)
			whole = whole * b->src->shape[a] + at[a];
		ck_assert_uint_eq(of->whole[local], whole);
	}
	of->count += count;
	return 0;
}

static struct map map_of(const struct mft_param *q)
{
	struct map m = {.whole = calloc(q->elements + 1, sizeof(*m.whole)), .count = q->elements};
	struct boxes boxes = {q, m.whole, 0};

	unit_ok(mft_param_runs(q, 0, q->elements, add_run, &m), &err);
	ck_assert_uint_eq(m.next, q->elements);
	unit_ok(mfs_target_boxes(&q->part.base, compare_box, &boxes), &err);
	ck_assert_uint_eq(boxes.count, q->elements);
	return m;
}

static int compare_run(void *arg, const struct mft_param_run *r)
{
	struct map *m = arg;

	ck_assert_uint_eq(r->first, m->next);
	for (uint64_t i = 0; i < r->count; i++)
		ck_assert_uint_eq(m->whole[r->first + i], r->whole_first + i);
	m->next += r->count;
	return 0;
}

/* Any range of a parameter has the same runs, cut. */
static void check_range(const struct mft_param *q, struct map *m)
{
	const uint64_t first = random_of((uint32_t)q->elements);
	const uint64_t count = 1 + random_of((uint32_t)(q->elements - first));

	m->next = first;
	unit_ok(mft_param_runs(q, first, count, compare_run, m), &err);
	ck_assert_uint_eq(m->next, first + count);
}

static void check_param(const struct model *m, const struct mft_parallel *p,
			const struct mft_param *q, struct map *map)
{
	const struct mfs_global_tensor *t = q->tensor;
	const uint64_t columns = t->ndim == 2 ? t->shape[1] : 1, elements = t->shape[0] * columns;
	uint64_t expected = 0;

	ck_assert_msg(has_stage(m, t, p->place.pp), "%s %d is in stage %u", t->name, t->layer,
		      p->place.pp);
	for (uint64_t i = 0; i < elements; i++)
		expected += has_element(m, p, t, i / columns, i % columns);
	ck_assert_msg(q->elements == expected, "%s: %llu elements of tp %u, not %llu", t->name,
		      (unsigned long long)q->elements, p->place.tp, (unsigned long long)expected);
	/* As many as expected, in ascending order, and each is expected: it is exactly those. */
	for (uint64_t i = 0; i < q->elements; i++) {
		ck_assert(!i || map->whole[i - 1] < map->whole[i]);
		ck_assert_msg(
			has_element(m, p, t, map->whole[i] / columns, map->whole[i] % columns),
			"%s: element %llu is in tp %u", t->name, (unsigned long long)map->whole[i],
			p->place.tp);
	}
}

/* The numbers of runs are the slice of those that one process draws. */
static void check_draws(const struct model *m, const struct mft_param *q, const struct map *map,
			struct mfk_ctx *ctx)
{
	const struct mft_param *one =
		mft_params_find(m->whole, q->tensor->name, q->tensor->layer, q->tensor->expert);
	float *whole = calloc(one->elements, sizeof(*whole)), number;

	ck_assert_uint_eq(one->drawn_from, q->drawn_from);
	ck_assert_double_eq(one->init_std, q->init_std);
	mfk_cpu.ops->fill_normal(ctx, MFK_F32, whole, (int64_t)one->elements, 0, 1, 7,
				 one->drawn_from);
	for (uint64_t i = 0; i < q->elements; i += 1 + random_of(9)) {
		mfk_cpu.ops->fill_normal(ctx, MFK_F32, &number, 1, 0, 1, 7,
					 q->drawn_from + map->whole[i]);
		ck_assert(number == whole[map->whole[i]]);
	}
	free(whole);
}

static void check_rank(const struct model *m, uint32_t rank, struct mfk_ctx *ctx)
{
	struct mft_parallel p;
	struct mft_params *own;
	uint32_t expected = 0;

	place(m, rank, &p);
	unit_ok(mft_params_new(&m->config, &p, &own, &err), &err);
	for (uint32_t i = 0; i < own->count; i++) {
		struct map map = map_of(&own->list[i]);

		check_param(m, &p, &own->list[i], &map);
		check_range(&own->list[i], &map);
		if (rank % 3 == 0)
			check_draws(m, &own->list[i], &map, ctx);
		free(map.whole);
	}
	/* None is missing. */
	for (uint32_t i = 0; i < m->whole->count; i++) {
		const struct mfs_global_tensor *t = m->whole->list[i].tensor;

		expected += has_expert(m, &p, t) && has_stage(m, t, p.place.pp);
	}
	ck_assert_uint_eq(own->count, expected);
	mft_params_free(own);
}

START_TEST(places_are_those_of_the_saved_optimizer)
{
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	char why[MFK_WHY];

	srand(100 + (unsigned)_i);
	ck_assert_int_eq(mfk_cpu.device->open(0, 1, &device, why), 0);
	ck_assert_int_eq(mfk_cpu.device->ctx_new(device, false, &ctx, why), 0);
	for (int i = 0; i < 6; i++) {
		struct model m;

		model_new(&m, _i);
		for (uint32_t rank = 0; rank < m.layout.tp * m.dp * m.layout.pp; rank++)
			check_rank(&m, rank, ctx);
		mft_params_free(m.whole);
	}
	mfk_cpu.device->ctx_free(ctx);
	mfk_cpu.device->close(device);
}
END_TEST

/* No two tensors are drawn from the same numbers. */
START_TEST(draws_apart)
{
	struct model m;
	uint64_t end = 0;

	srand(7);
	model_new(&m, _i);
	for (uint32_t i = 0; i < m.whole->count; i++) {
		ck_assert_uint_ge(m.whole->list[i].drawn_from, end);
		end = m.whole->list[i].drawn_from + m.whole->list[i].elements;
	}
	mft_params_free(m.whole);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("params of each process");
	TCase *c = tcase_create("places");

	tcase_add_loop_test(c, places_are_those_of_the_saved_optimizer, 0, FAMILIES);
	tcase_add_loop_test(c, draws_apart, 0, FAMILIES);
	suite_add_tcase(s, c);
	return s;
}

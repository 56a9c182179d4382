/*
 * The three products of a linear in 8 bits (trainer/model/base), on the CPU, against what they are
 * by definition: elements that are made one by one, and sums of doubles.
 */
#include "trainer/model/base/eight.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "kernels/eight_bits.h"
#include "tests/unit/train_model.h"
#include "trainer/loop/device.h"
#include "trainer/model/mlp/mlp_i.h"
#include "trainer/model/net_i.h"

#define ROWS 20 /* no multiple of 16 */
#define IN   32
#define OUT  48

/* One layer, whose fc1 is [OUT, IN]. */
static struct mft_train_config config_of(const char *recipe, const char *format, bool wgrad)
{
	struct mft_train_config c = {.micro_batch_size = 1,
				     .seq_length = ROWS,
				     .model = train_plain_model(),
				     .fp8 = format,
				     .fp8_recipe = recipe,
				     .fp8_wgrad = wgrad,
				     .fp8_amax_history_len = 1,
				     .fp8_amax_compute_algo = "most_recent"};

	c.model.num_layers = 1;
	c.model.hidden_size = IN;
	c.model.ffn_hidden_size = OUT;
	c.model.num_attention_heads = 2;
	c.model.num_query_groups = 2;
	c.model.kv_channels = 16;
	c.model.max_position_embeddings = ROWS;
	c.model.vocab_size = c.model.padded_vocab_size = 64;
	c.model.tied = true;
	train_config_types(&c, MFS_BF16);
	return c;
}

/* Numbers of a matrix, as bf16 and as they are. */
struct numbers {
	uint16_t bf16[OUT * OUT];
	float x[OUT * OUT];
	int count;
};

static void draw(struct numbers *n, int count, float spread, uint64_t seed)
{
	n->count = count;
	for (int i = 0; i < count; i++) {
		n->bf16[i] = mfs_float_to_bf16(spread * train_uniform(&seed));
		n->x[i] = mfs_bf16_to_float(n->bf16[i]);
	}
}

/* What an operand is worth. scale 0: the one that is made of the numbers. */
static void become(struct numbers *n, enum mfk_dtype type, float scale)
{
	float amax = 0;

	for (int i = 0; i < n->count; i++)
		amax = fmaxf(amax, fabsf(n->x[i]));
	if (scale == 0)
		scale = mfk_scaled_most(type) / amax;
	for (int i = 0; i < n->count; i++)
		n->x[i] = type == MFK_E4M3
				  ? mfk_from_e4m3(mfk_to_e4m3(n->x[i] * scale)) * (1 / scale)
				  : mfk_from_e5m2(mfk_to_e5m2(n->x[i] * scale)) * (1 / scale);
}

struct pass {
	struct train_model *m;
	const struct mft_linear *l;
	struct mft_pass pass;
	struct numbers x, w, dy;
	_Alignas(16) uint16_t y[ROWS * OUT], dx[ROWS * IN]; /* as malloc() aligns, too */
	float dw[OUT * IN];
};

/* A sum of products, and of their magnitudes. */
struct sum {
	double of, most;
};

/* Elements of a and b are so many apart. */
static struct sum sum(const float *a, int step_a, const float *b, int step_b, int count)
{
	struct sum s = {0, 0};

	for (int k = 0; k < count; k++) {
		const double p = (double)a[k * step_a] * (double)b[k * step_b];

		s.of += p;
		s.most += fabs(p);
	}
	return s;
}

/* own: the rounding of what is found. */
static void near(const char *what, int at, float found, struct sum want, double own)
{
	ck_assert_msg(fabs((double)found - want.of) <= want.most * 1e-6 + fabs(want.of) * own,
		      "%s[%d] is %g instead of %g", what, at, (double)found, want.of);
}

static void check_products(const struct pass *p)
{
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < OUT; j++)
			near("y", i * OUT + j, mfs_bf16_to_float(p->y[i * OUT + j]),
			     sum(p->x.x + i * IN, 1, p->w.x + j * IN, 1, IN), 0x1p-8);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < IN; j++)
			near("dx", i * IN + j, mfs_bf16_to_float(p->dx[i * IN + j]),
			     sum(p->dy.x + i * OUT, 1, p->w.x + j, IN, OUT), 0x1p-8);
}

static void check_weight_gradient(const struct pass *p)
{
	for (int i = 0; i < OUT; i++)
		for (int j = 0; j < IN; j++)
			near("dw", i * IN + j, p->dw[i * IN + j],
			     sum(p->dy.x + i, OUT, p->x.x + j, IN, ROWS), 0x1p-23);
}

/* Forward and backward, of new numbers. What was kept of x is all that backward has of it, if
 * anything was. */
static void run(struct pass *p, uint64_t seed)
{
	struct mft_net *net = p->m->net;
	const struct mft_microbatch_info info = {.first = true};
	const struct mft_param *weight = p->l->weight;
	uint16_t *weights = (uint16_t *)p->m->params->weights + weight->start;

	p->pass = (struct mft_pass){.ctx = p->m->ctx, .train = true, .info = &info};
	draw(&p->x, ROWS * IN, 3, seed);
	draw(&p->w, OUT * IN, 0.05f, seed + 1);
	draw(&p->dy, ROWS * OUT, 1e-3f, seed + 2);
	memcpy(weights, p->w.bf16, OUT * IN * sizeof(*weights));
	mft_net_clear_losses(net, p->m->ctx); /* weights have changed */
	mft_eight_begin_forward(net, &p->pass);
	mft_linear_forward(net, &p->pass, p->l, ROWS, p->x.bf16, p->y);
	mft_eight_end_forward(net, &p->pass);
	mft_linear_backward(net, &p->pass, p->l, ROWS, p->l->kept.part ? NULL : p->x.bf16,
			    p->dy.bf16, p->dx);
	mft_eight_end_backward(net, &p->pass);
	train_model_sync(p->m);
	memcpy(p->dw, (float *)p->m->params->grads + weight->start, sizeof(p->dw));
}

static struct pass *pass_new(const char *recipe, const char *format, bool wgrad)
{
	const struct mft_train_config config = config_of(recipe, format, wgrad);
	struct pass *p = calloc(1, sizeof(*p));
	const struct mft_mlp *mlp;

	p->m = train_model_new(&config);
	mlp = p->m->net->chain->layers[0].mlp.part.own;
	p->l = &mlp->fc1;
	ck_assert_int_eq(p->l->out, OUT);
	ck_assert_int_eq(p->l->in, IN);
	return p;
}

static void pass_free(struct pass *p)
{
	train_model_free(p->m);
	free(p);
}

START_TEST(scales_of_the_moment)
{
	const bool hybrid = _i % 2, wgrad = _i < 2;
	struct pass *p = pass_new("tensorwise", hybrid ? "hybrid" : "e4m3", wgrad);
	struct numbers x, dy;

	ck_assert(!p->l->kept.part == !wgrad);
	for (uint64_t seed = 1; seed < 8; seed += 3) {
		run(p, seed);
		x = p->x;
		dy = p->dy;
		become(&p->x, MFK_E4M3, 0);
		become(&p->w, MFK_E4M3, 0);
		become(&p->dy, hybrid ? MFK_E5M2 : MFK_E4M3, 0);
		check_products(p);
		if (!wgrad) {
			p->x = x;
			p->dy = dy;
		}
		check_weight_gradient(p);
	}
	pass_free(p);
}
END_TEST

static float scale_after(const struct numbers *n, enum mfk_dtype type)
{
	float amax = 0;

	for (int i = 0; i < n->count; i++)
		amax = fmaxf(amax, fabsf(n->x[i]));
	return mfk_scaled_most(type) / amax;
}

/* The first pass has the scale 1, and each other one that of what the one before it saw; a run
 * that was loaded begins with its first numbers'. */
START_TEST(scales_of_the_pass_before)
{
	struct pass *p = pass_new("delayed", "hybrid", true);
	float x = 1, w = 1, dy = 1;

	if (_i) {
		ck_assert(mft_net_find_scales(p->m->net));
		x = w = dy = 0;
	}
	for (uint64_t seed = 1; seed < 8; seed += 3) {
		float next[3];

		run(p, seed);
		next[0] = scale_after(&p->x, MFK_E4M3);
		next[1] = scale_after(&p->w, MFK_E4M3);
		next[2] = scale_after(&p->dy, MFK_E5M2);
		become(&p->x, MFK_E4M3, x);
		become(&p->w, MFK_E4M3, w);
		become(&p->dy, MFK_E5M2, dy);
		check_products(p);
		check_weight_gradient(p);
		x = next[0], w = next[1], dy = next[2];
	}
	pass_free(p);
}
END_TEST

/* Layers in bf16 do not make MTP's projection one of them, which has the number of its depth. */
START_TEST(linears_with_8_bits)
{
	static const struct {
		const char *prefix;
		int64_t layer;
		bool eight;
	} rows[] = {
		{"decoder.layers.mlp.linear_fc1", 0, false},
		{"decoder.layers.mlp.linear_fc1", 1, true},
		{"decoder.layers.mlp.linear_fc1", 2, false},
		{"decoder.layers.mlp.router", 1, false},
		{"mtp.layers.eh_proj", 0, true},
		{"mtp.layers.eh_proj", 2, true},
		{"output_layer", -1, false},
	};
	struct mft_train_config c = config_of("tensorwise", "hybrid", true);

	c.model.num_layers = 3;
	c.first_last_layers_bf16 = true;
	c.num_layers_at_start_in_bf16 = c.num_layers_at_end_in_bf16 = 1;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++)
		ck_assert_msg(mft_recipe_is_for(&c, rows[i].prefix, rows[i].layer) == rows[i].eight,
			      "%s of %lld", rows[i].prefix, (long long)rows[i].layer);
	c.fp8 = NULL;
	ck_assert(!mft_recipe_is_for(&c, "mtp.layers.eh_proj", 0));
}
END_TEST

/* 0: of a CPU. */
START_TEST(gpus_that_have_8_bits)
{
	static const struct {
		unsigned capability;
		int with; /* 8 bits; without them all will do */
	} rows[] = {{0, 0}, {80, -ENODEV}, {86, -ENODEV}, {89, 0}, {90, 0}};
	struct mft_train_config c = config_of("tensorwise", "hybrid", true);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rows); i++) {
		struct mfs_error err = {0};
		const struct mfk_device_info info = {.name = "A", .capability = rows[i].capability};

		c.fp8 = "hybrid";
		if (rows[i].with)
			unit_fails(mft_device_check(&c, &info, &err), &err, rows[i].with,
				   "A has compute capability 8.");
		else
			unit_ok(mft_device_check(&c, &info, &err), &err);
		c.fp8 = NULL;
		unit_ok(mft_device_check(&c, &info, &err), &err);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("eight");
	TCase *c = tcase_create("products");

	tcase_add_loop_test(c, scales_of_the_moment, 0, 4);
	tcase_add_loop_test(c, scales_of_the_pass_before, 0, 2);
	tcase_add_test(c, linears_with_8_bits);
	tcase_add_test(c, gpus_that_have_8_bits);
	suite_add_tcase(s, c);
	return s;
}

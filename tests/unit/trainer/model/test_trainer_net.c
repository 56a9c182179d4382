/*
 * The model as a computation (trainer/model), on the CPU: logits against Megatron's own; gradients
 * against differences of the loss; recomputation, accumulation, masks and dropout.
 */
#include "trainer/model/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/dims.h"
#include "formats/ckpt/read/ckpt_open.h"
#include "tests/unit/npz.h"
#include "tests/unit/small_models.h"
#include "tests/unit/train_model.h"
#include "trainer/model/net_i.h"

static struct mfs_error err;

/* ---- Megatron's logits ---- */

#define LOGITS_BATCH 2
#define LOGITS_SEQ   48
#define LOGITS_MOST  2e-4

static struct mft_batch *tokens_of(const char *npz, int64_t vocab)
{
	size_t len;
	uint8_t *npy = npz_member(npz, "tokens.npy", &len);
	struct mft_batch *b = train_batch_new(LOGITS_BATCH, LOGITS_SEQ, vocab, 1);
	uint64_t rows;
	const uint8_t *tokens = npy_elements(npy, len, "<i8", &rows);

	ck_assert_uint_eq(len, NPY_HEADER + LOGITS_BATCH * LOGITS_SEQ * 8);
	for (int64_t t = 0; t < LOGITS_BATCH * LOGITS_SEQ; t++)
		b->tokens[t] = (int32_t)mfs_le64(tokens + 8 * t);
	train_batch_finish(b, LOGITS_BATCH * LOGITS_SEQ);
	free(npy);
	return b;
}

static void check_logits(const char *checkpoint, const char *npz)
{
	struct mft_train_config config = {.micro_batch_size = LOGITS_BATCH,
					  .seq_length = LOGITS_SEQ};
	struct train_model *m;
	struct mft_batch *b;
	struct mfs_ckpt *ckpt;
	uint64_t rows;
	size_t len, count;
	uint8_t *npy;
	float *found, worst = 0;
	const float *want;

	unit_ok(mfs_ckpt_open(unit_fixture(checkpoint), 0, &ckpt, &err), &err);
	config.model = *mfs_ckpt_args(ckpt);
	config.model.padded_vocab_size = (int64_t)mfs_dims_padded_vocab(ckpt);
	train_config_types(&config, MFS_F32);
	m = train_model_new(&config);
	train_model_load(m, ckpt);
	b = tokens_of(unit_fixture(npz), config.model.padded_vocab_size);
	npy = npz_member(unit_fixture(npz), "logits.npy", &len);
	want = npy_elements(npy, len, "<f4", &rows);
	count = (len - NPY_HEADER) / sizeof(float);
	ck_assert_uint_eq(count, LOGITS_BATCH * LOGITS_SEQ * m->params->padded_vocab);
	found = malloc(count * sizeof(*found));
	unit_ok(mft_net_logits(m->net, m->ctx, b, found, &err), &err);
	for (size_t i = 0; i < count; i++) {
		const float off = fabsf(found[i] - want[i]);

		worst = off <= worst ? worst : off; /* a NaN is worse */
	}
	ck_assert_msg(worst <= LOGITS_MOST, "%s: logits differ by %g", checkpoint, worst);
	free(found);
	free(npy);
	train_batch_free(b);
	train_model_free(m);
	mfs_ckpt_free(ckpt);
}

START_TEST(logits_are_megatrons)
{
	static const char *const fixtures[][2] = {
		{"weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040",
		 "weights/llama-torch_dist-tp2-pp2-vpp2/logits.npz"},
		{"weights/gpt2-torch-tp2-pp2/iter_0000040",
		 "weights/gpt2-torch-tp2-pp2/logits.npz"},
		{"weights/qwen3-torch_dist-tp4/iter_0000040",
		 "weights/qwen3-torch_dist-tp4/logits.npz"},
		{"resume/qwen2-torch-tp2-dp2-distopt/iter_0000020",
		 "resume/qwen2-torch-tp2-dp2-distopt/logits.npz"},
		{"resume/llama-torch_dist-tp2-pp2/iter_0000020",
		 "resume/llama-torch_dist-tp2-pp2/logits.npz"},
		{"weights/mixtral-torch_dist-pp2-ep2/iter_0000040",
		 "weights/mixtral-torch_dist-pp2-ep2/logits.npz"},
		{"weights/deepseek-torch_dist-pp2-ep2/iter_0000040",
		 "weights/deepseek-torch_dist-pp2-ep2/logits.npz"},
	};

	check_logits(fixtures[_i][0], fixtures[_i][1]);
}
END_TEST

/* ---- gradients ---- */

#define PICKED 6

/* The loss's difference along the gradient's signs at a few elements, against the sum of the
 * gradient's magnitudes there. */
static void check_gradient(struct train_model *m, const struct mft_batch *b,
			   const struct mft_param *p, const float *grads, uint64_t *seed)
{
	float *weights = m->params->weights, saved[PICKED];
	uint64_t at[PICKED];
	double want = 0, up, down, found, step;
	char name[MFS_CKPT_NAME_SIZE];

	for (int i = 0; i < PICKED; i++) {
		bool twice = true;

		while (twice) {
			at[i] = p->start + train_random(seed) % p->elements;
			twice = false;
			for (int k = 0; k < i; k++)
				twice |= at[k] == at[i];
		}
		saved[i] = weights[at[i]];
		want += fabs(grads[at[i]]);
	}
	/* Where the loss is steep it is curved, too. */
	step = 2e-3 / fmax(1, want / 10);
	for (int i = 0; i < PICKED; i++)
		weights[at[i]] = saved[i] + copysignf((float)step, grads[at[i]]);
	up = train_run(m, b, true);
	for (int i = 0; i < PICKED; i++)
		weights[at[i]] = saved[i] - copysignf((float)step, grads[at[i]]);
	down = train_run(m, b, true);
	for (int i = 0; i < PICKED; i++)
		weights[at[i]] = saved[i];
	found = (up - down) / (2 * step);
	ck_assert_msg(fabs(found - want) <= 0.005 * want + 0.005,
		      "%s: the loss changes by %g, the gradient says %g",
		      mfs_global_tensor_name(p->tensor, name, sizeof(name)), found, want);
}

/* A seed of weights with which no token changes its experts within a difference. */
START_TEST(gradients_are_differences)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(_i, 5);
	const size_t bytes = m->params->elements * sizeof(float);
	float *grads = malloc(bytes);
	uint64_t seed = 17;

	train_model_random(m, 14, 0.4f);
	train_run(m, b, true);
	memcpy(grads, m->params->grads, bytes);
	for (uint32_t i = 0; i < m->params->count; i++)
		check_gradient(m, b, &m->params->list[i], grads, &seed);
	free(grads);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* Gaps between parameters stay zero. */
START_TEST(gaps_stay_zero)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(_i, 5);
	const float *grads = m->params->grads;
	uint64_t end = 0;

	train_model_random(m, 7, 0.4f);
	train_run(m, b, true);
	for (uint32_t i = 0; i < m->params->count; i++) {
		const struct mft_param *p = &m->params->list[i];

		for (; end < p->start; end++)
			ck_assert_msg(grads[end] == 0, "element %zu", (size_t)end);
		end = p->start + p->elements;
	}
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* ---- recomputation ---- */

static const char *const outer[] = {"core_attn", "layernorm", "mlp", "moe"};
static const char *const inner[] = {"layernorm", "moe_act", "shared_experts", "mla_up_proj"};

static const struct {
	enum mft_recompute granularity;
	const char *method;
	int64_t layers;
	const char *const *modules;
} recomputed[] = {
	{MFT_RECOMPUTE_SELECTIVE, NULL, MFS_ABSENT, outer},
	{MFT_RECOMPUTE_SELECTIVE, NULL, MFS_ABSENT, inner},
	{MFT_RECOMPUTE_FULL, "uniform", 1, outer},
	{MFT_RECOMPUTE_FULL, "uniform", 2, outer},
	{MFT_RECOMPUTE_FULL, "uniform", 3, outer},
	{MFT_RECOMPUTE_FULL, "block", 1, outer},
	{MFT_RECOMPUTE_FULL, "block", 3, outer},
};
#define RECOMPUTED ((int)(MFS_ARRAY_SIZE(recomputed)))

/* Loss and gradients of a model, the same bits in each way to recompute. */
START_TEST(recomputed_is_the_same)
{
	struct mft_train_config config = small_models[_i]();
	struct train_model *kept = train_model_new(&config);
	struct mft_batch *b = batch_for(_i, 9);
	const size_t bytes = kept->params->elements * sizeof(float);
	double loss;

	train_model_random(kept, 11, 0.3f);
	loss = train_run(kept, b, true);
	for (int i = 0; i < RECOMPUTED; i++) {
		struct train_model *again;

		config.recompute_granularity = recomputed[i].granularity;
		config.recompute_method = recomputed[i].method;
		config.recompute_num_layers = recomputed[i].layers;
		config.recompute_modules = (struct mfs_arg_words){recomputed[i].modules, 4};
		again = train_model_new(&config);
		train_model_random(again, 11, 0.3f);
		ck_assert(train_run(again, b, true) == loss);
		ck_assert_msg(!memcmp(again->params->grads, kept->params->grads, bytes), "%s %lld",
			      recomputed[i].method, (long long)recomputed[i].layers);
		ck_assert_uint_lt(again->memory.bytes[MFT_MEMORY_ACTIVATIONS],
				  kept->memory.bytes[MFT_MEMORY_ACTIVATIONS]);
		train_model_free(again);
	}
	train_batch_free(b);
	train_model_free(kept);
}
END_TEST

/* ---- microbatches ---- */

START_TEST(gradients_add_up)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *first = batch_for(_i, 21), *second = batch_for(_i, 22);
	const size_t count = m->params->elements;
	const float *grads = m->params->grads;
	float *sum = calloc(count, sizeof(*sum)), most = 0;

	train_model_random(m, 3, 0.3f);
	train_run(m, first, true);
	memcpy(sum, grads, count * sizeof(*sum));
	train_clear_grads(m);
	train_run(m, second, true);
	for (size_t i = 0; i < count; i++) {
		sum[i] += grads[i];
		most = fmaxf(most, fabsf(sum[i]));
	}
	train_clear_grads(m);
	train_run(m, first, true);
	train_run(m, second, true);
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(fabsf(sum[i] - grads[i]) <= 1e-5f * most, "element %zu: %g, not %g",
			      i, grads[i], sum[i]);
	free(sum);
	train_batch_free(first);
	train_batch_free(second);
	train_model_free(m);
}
END_TEST

/* The first microbatch writes what would otherwise be zeroed and added to, whatever is there. */
START_TEST(first_microbatch_replaces)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(_i, 21);
	const struct mft_microbatch_info info = {.batch = b,
						 .grad_scale = 1,
						 .backward = true,
						 .first = true,
						 .iteration = 3,
						 .microbatch = 1};
	const struct mft_params *p = m->params;
	const size_t bytes = p->elements * sizeof(float);
	float *added = malloc(bytes), *grads = p->grads;

	train_model_random(m, 3, 0.3f);
	train_run(m, b, true);
	memcpy(added, grads, bytes);
	for (uint32_t i = 0; i < p->count; i++)
		memset(grads + p->list[i].start, 0xff, p->list[i].elements * sizeof(float));
	m->net->chain->head.chunk = _i % 2 ? 5 : m->net->chain->head.chunk;
	mft_net_clear_grads(m->net, m->ctx);
	unit_ok(mft_net_run(m->net, m->ctx, &info, &err), &err);
	train_model_sync(m);
	for (size_t i = 0; i < p->elements; i++)
		ck_assert_msg(fabsf(grads[i] - added[i]) <= 1e-5f * (1 + fabsf(added[i])),
			      "element %zu: %g, not %g", i, grads[i], added[i]);
	free(added);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* An eighth of the gradient at an eighth of the scale; the loss does not change. */
START_TEST(scale_is_of_gradients)
{
	struct mft_train_config config = llama_like();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(1, 4);
	const struct mft_microbatch_info info = {.batch = b,
						 .grad_scale = 0.125f,
						 .backward = true,
						 .iteration = 3,
						 .microbatch = 1};
	const size_t count = m->params->elements;
	const float *grads = m->params->grads;
	float *whole = malloc(count * sizeof(*whole));

	train_model_random(m, 3, 0.3f);
	train_run(m, b, true);
	memcpy(whole, grads, count * sizeof(*whole));
	train_clear_grads(m);
	unit_ok(mft_net_run(m->net, m->ctx, &info, &err), &err);
	train_model_sync(m);
	for (size_t i = 0; i < count; i++) /* a power of two: the same bits */
		ck_assert(grads[i] == 0.125f * whole[i]);
	free(whole);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* Logits that come in chunks: 5 rows at a time, of which the last ones are 4. */
START_TEST(head_in_chunks)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(_i, 4);
	const size_t count = m->params->elements, logits = BATCH * SEQ * m->params->padded_vocab;
	const float *grads = m->params->grads;
	float *whole = malloc(count * sizeof(*whole)), most = 0;
	float *want = malloc(logits * sizeof(*want)), *found = malloc(logits * sizeof(*found));
	double loss;

	train_model_random(m, 3, 0.3f);
	loss = train_run(m, b, true);
	memcpy(whole, grads, count * sizeof(*whole));
	unit_ok(mft_net_logits(m->net, m->ctx, b, want, &err), &err);
	train_clear_grads(m);
	ck_assert_int_eq(m->net->chain->head.chunk, BATCH * SEQ);
	m->net->chain->head.chunk = 5;
	ck_assert(fabs(train_run(m, b, true) - loss) <= 1e-6 * loss);
	for (size_t i = 0; i < count; i++)
		most = fmaxf(most, fabsf(whole[i]));
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(fabsf(grads[i] - whole[i]) <= 1e-5f * most, "element %zu", i);
	unit_ok(mft_net_logits(m->net, m->ctx, b, found, &err), &err);
	for (size_t i = 0; i < logits; i++)
		ck_assert_msg(fabsf(found[i] - want[i]) <= 1e-5f, "logit %zu", i);
	free(want);
	free(found);
	free(whole);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* ---- validation, dropout ---- */

START_TEST(validation_has_no_dropout)
{
	struct mft_train_config config = gpt2_like();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(0, 4);
	double validated, trained;

	train_model_random(m, 3, 0.3f);
	validated = train_run(m, b, false);
	for (uint64_t i = 0; i < m->params->elements; i++)
		ck_assert(((float *)m->params->grads)[i] == 0);
	trained = train_run(m, b, true);
	ck_assert(validated != trained);
	ck_assert(train_run(m, b, true) == trained); /* a function of its place in the run */
	train_model_free(m);

	config.hidden_dropout = config.attention_dropout = 0;
	m = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	ck_assert(train_run(m, b, true) == validated);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* Each of seed, iteration and microbatch gives other numbers. */
START_TEST(dropout_depends_on_place)
{
	const struct mft_train_config config = gpt2_like();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(0, 4);
	double seen[4];

	train_model_random(m, 3, 0.3f);
	for (int i = 0; i < 4; i++) {
		const struct mft_microbatch_info info = {.batch = b,
							 .grad_scale = 1,
							 .backward = true,
							 .iteration = i == 1,
							 .microbatch = i == 2};
		struct mft_net_losses losses;

		m->config.seed = i == 3;
		mft_net_clear_losses(m->net, m->ctx);
		unit_ok(mft_net_run(m->net, m->ctx, &info, &err), &err);
		unit_ok(mft_net_losses(m->net, m->ctx, &losses, &err), &err);
		seen[i] = losses.loss[0];
		for (int k = 0; k < i; k++)
			ck_assert(seen[k] != seen[i]);
	}
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* ---- who sees whom ---- */

/* Whether the logits of a position change with the token at another. */
static bool sees(struct train_model *m, struct mft_batch *b, int64_t position, int64_t other)
{
	const uint64_t vocab = m->params->padded_vocab;
	float *before = malloc(BATCH * SEQ * vocab * sizeof(float));
	float *after = malloc(BATCH * SEQ * vocab * sizeof(float));
	bool differ;

	unit_ok(mft_net_logits(m->net, m->ctx, b, before, &err), &err);
	b->tokens[other] = (b->tokens[other] + 1) % (VOCAB - 3);
	unit_ok(mft_net_logits(m->net, m->ctx, b, after, &err), &err);
	differ = memcmp(before + (uint64_t)position * vocab, after + (uint64_t)position * vocab,
			vocab * sizeof(float)) != 0;
	free(before);
	free(after);
	return differ;
}

START_TEST(tokens_see_their_past)
{
	struct mft_train_config config = plain();
	struct train_model *m = train_model_new(&config);
	struct mft_batch *b = batch_for(0, 4);

	train_model_random(m, 3, 0.3f);
	ck_assert(sees(m, b, 11, 0));
	ck_assert(sees(m, b, 4, 4));
	ck_assert(!sees(m, b, 4, 5));
	ck_assert(!sees(m, b, 3, SEQ + 3));
	ck_assert(!sees(m, b, SEQ + 3, 3));
	train_batch_split(b, BATCH, SEQ, 5);
	ck_assert(sees(m, b, 4, 0));
	ck_assert(!sees(m, b, 5, 4));
	ck_assert(sees(m, b, 11, 5));
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* A state goes on from token to token, to the end of a sequence. */
START_TEST(delta_nets_see_their_past)
{
	struct mft_train_config config = qwen_next_like();
	struct train_model *m;
	struct mft_batch *b = batch_for(0, 4);

	config.model.num_layers = 1;
	m = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	ck_assert(sees(m, b, 11, 0));
	ck_assert(!sees(m, b, 4, 5));
	ck_assert(!sees(m, b, 3, SEQ + 3));
	ck_assert(!sees(m, b, SEQ, SEQ - 1));
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* A window of w tokens over L layers reaches L (w - 1) tokens back. */
START_TEST(window_limits_the_past)
{
	struct mft_train_config config = plain();
	struct train_model *m;
	struct mft_batch *b = batch_for(0, 4);

	config.model.num_layers = 2;
	config.model.window_size = 3;
	m = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	ck_assert(sees(m, b, 10, 6));
	ck_assert(!sees(m, b, 10, 5));
	ck_assert(sees(m, b, SEQ + 10, SEQ + 6));
	train_batch_split(b, BATCH, SEQ, 8);
	ck_assert(sees(m, b, 10, 8));
	ck_assert(!sees(m, b, 10, 7));
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* ---- 16 bits ---- */

/* The cosine of the angle between gradients of a parameter, or of all (NULL). */
static double cosine(const struct train_model *m, const struct train_model *other,
		     const struct mft_param *p)
{
	const float *x = m->params->grads, *y = other->params->grads;
	const uint64_t first = p ? p->start : 0, count = p ? p->elements : m->params->elements;
	double dot = 0, a = 0, b = 0;

	for (uint64_t i = first; i < first + count; i++) {
		dot += (double)x[i] * y[i];
		a += (double)x[i] * x[i];
		b += (double)y[i] * y[i];
	}
	return dot / sqrt(a * b);
}

/* The loss is fp32's to a few of the type's digits, and gradients point the same way: of all, and
 * of the last layer's router, where there is one. */
START_TEST(results_in_16_bits_are_near)
{
	static struct mft_train_config (*const models[])(void) = {qwen_like, mixtral_like,
								  deepseek_like, qwen_next_like};
	const enum mfs_dtype type = _i % 2 ? MFS_F16 : MFS_BF16;
	struct mft_train_config config = models[_i / 2]();
	struct train_model *m = train_model_new(&config), *half;
	struct mft_batch *b = batch_for(1, 4);
	const struct mft_param *router =
		mft_params_find(m->params, "decoder.layers.mlp.router.weight", 2, -1);
	double loss, near, angle;
	float *logits;

	train_model_random(m, 3, 0.125f);
	loss = train_run(m, b, true);
	config.params_dtype = type;
	half = train_model_new(&config);
	train_model_random(half, 3, 0.125f);
	near = train_run(half, b, true);
	ck_assert_msg(fabs(near - loss) <= 0.01 * loss, "%g, not %g", near, loss);
	angle = cosine(m, half, NULL);
	ck_assert_msg(angle > 0.99, "cosine %g", angle);
	angle = router ? cosine(m, half, router) : 1;
	ck_assert_msg(angle > 0.98, "the router's cosine %g", angle);

	logits = malloc(BATCH * SEQ * half->params->padded_vocab * sizeof(*logits));
	unit_ok(mft_net_logits(half->net, half->ctx, b, logits, &err), &err);
	for (uint64_t i = 0; i < BATCH * SEQ * half->params->padded_vocab; i++)
		ck_assert(isfinite(logits[i]));
	free(logits);
	train_batch_free(b);
	train_model_free(m);
	train_model_free(half);
}
END_TEST

/* ---- experts ---- */

/* --moe-router-dtype fp32 with --main-grads-dtype bf16: the router's gradient is rounded after each
 * of two microbatches. */
START_TEST(router_of_more_digits)
{
	struct mft_train_config config = deepseek_like();
	struct mft_batch *b = batch_for(0, 4);
	struct train_model *m, *rounded;
	const struct mft_param *p;
	float most = 0;

	config.params_dtype = MFS_BF16;
	m = train_model_new(&config);
	config.main_grads_dtype = MFS_BF16;
	rounded = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	train_model_random(rounded, 3, 0.3f);
	for (int i = 0; i < 2; i++) {
		train_run(m, b, true);
		train_run(rounded, b, true);
	}
	p = mft_params_find(m->params, "decoder.layers.mlp.router.weight", 2, -1);
	for (uint64_t i = p->start; i < p->start + p->elements; i++)
		most = fmaxf(most, fabsf(((float *)m->params->grads)[i]));
	ck_assert(most > 0);
	for (uint64_t i = p->start; i < p->start + p->elements; i++) {
		const float want = ((float *)m->params->grads)[i];
		const float found = train_to_float(MFS_BF16, rounded->params->grads, i);

		ck_assert_msg(fabsf(found - want) <= 0.01f * most, "%g, not %g", found, want);
	}
	train_batch_free(b);
	train_model_free(m);
	train_model_free(rounded);
}
END_TEST

static float *expert_bias(struct train_model *m, int32_t layer)
{
	const struct mft_model_buffer *b =
		mft_params_find_buffer(m->params, "decoder.layers.mlp.router.expert_bias", layer);

	ck_assert_ptr_nonnull(b);
	return m->params->buffers + b->start;
}

/* All tokens go to the four experts of the greatest bias: theirs falls, the others' rises, once in
 * a step, whatever is run again. */
START_TEST(biases_of_full_experts_fall)
{
	struct mft_train_config config = deepseek_like();
	struct mft_batch *b = batch_for(0, 4);
	struct train_model *m;

	config.recompute_granularity = _i ? MFT_RECOMPUTE_FULL : MFT_RECOMPUTE_NONE;
	config.recompute_method = "uniform";
	config.recompute_num_layers = 1;
	m = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	for (int32_t layer = 1; layer < 3; layer++)
		for (int e = 0; e < 8; e++)
			expert_bias(m, layer)[e] = e < 4 ? 0 : 10;
	train_run(m, b, false);
	ck_assert_int_eq(mft_net_update_expert_bias(m->net, m->ctx, &err), 0);
	ck_assert(expert_bias(m, 1)[0] == 0); /* validation does not count */
	for (int step = 1; step < 3; step++) {
		train_run(m, b, true);
		train_run(m, b, true);
		ck_assert_int_eq(mft_net_update_expert_bias(m->net, m->ctx, &err), 0);
		train_model_sync(m);
		for (int32_t layer = 1; layer < 3; layer++)
			for (int e = 0; e < 8; e++)
				ck_assert(expert_bias(m, layer)[e] ==
					  (e < 4 ? 0.125f : -0.125f) * (float)step +
						  (e < 4 ? 0 : 10));
	}
	ck_assert_int_eq(mft_net_update_expert_bias(m->net, m->ctx, &err), 0);
	ck_assert(expert_bias(m, 2)[7] == 9.75f); /* nothing was counted */
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* With equal logits everything is balanced: the losses are 1, and (ln experts)^2. */
START_TEST(auxiliary_losses)
{
	struct mft_train_config config = mixtral_like();
	struct mft_batch *b = batch_for(0, 4);
	struct mft_net_losses l;
	struct train_model *m;

	memset(config.moe_aux_loss_coeffs, 0, sizeof(config.moe_aux_loss_coeffs));
	if (_i < MFT_AUX_LOSSES)
		config.moe_aux_loss_coeffs[_i] = 0.1;
	m = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	for (int32_t layer = 0; layer < 3; layer++) {
		const struct mft_param *p =
			mft_params_find(m->params, "decoder.layers.mlp.router.weight", layer, -1);

		memset((float *)m->params->weights + p->start, 0, p->elements * sizeof(float));
	}
	l = train_losses(m, b, true);
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		ck_assert_msg(fabs(l.aux[i] - (_i == i)) < 1e-5, "%d: %g", i, l.aux[i]);
	ck_assert_msg(fabs(l.z_loss - log(4) * log(4)) < 1e-5, "%g", l.z_loss);
	l = train_losses(m, b, false);
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		ck_assert(l.aux[i] == 0);
	ck_assert(l.z_loss == 0);
	train_batch_free(b);
	train_model_free(m);
}
END_TEST

/* The last layer's router, times a number. */
static void scale_router(struct train_model *m, float by)
{
	const struct mft_param *p =
		mft_params_find(m->params, "decoder.layers.mlp.router.weight", 2, -1);

	for (uint64_t i = p->start; i < p->start + p->elements; i++)
		((float *)m->params->weights)[i] *= by;
}

/* Random logits: the router's weights decide nothing, and experts get about as many tokens each.
 * Its gradient is that of its weights all the same. Layers that run again have the same logits. */
START_TEST(random_logits)
{
	struct mft_train_config config = mixtral_like();
	struct mft_batch *b = batch_for(0, 4);
	struct mft_net_losses first, scaled;
	struct train_model *m, *again;
	const struct mft_param *router;
	float most = 0;

	config.moe_router_force_load_balancing = true;
	m = train_model_new(&config);
	config.recompute_granularity = MFT_RECOMPUTE_FULL;
	config.recompute_method = "uniform";
	config.recompute_num_layers = 1;
	again = train_model_new(&config);
	train_model_random(m, 3, 0.3f);
	train_model_random(again, 3, 0.3f);
	first = train_losses(m, b, true);
	ck_assert_msg(first.aux[MFT_AUX_LOSS] > 0.9 && first.aux[MFT_AUX_LOSS] < 1.1, "%g",
		      first.aux[MFT_AUX_LOSS]);
	router = mft_params_find(m->params, "decoder.layers.mlp.router.weight", 2, -1);
	for (uint64_t i = router->start; i < router->start + router->elements; i++)
		most = fmaxf(most, fabsf(((float *)m->params->grads)[i]));
	ck_assert(most > 0);
	train_losses(again, b, true);
	ck_assert_mem_eq(m->params->grads, again->params->grads,
			 m->params->elements * sizeof(float));

	scale_router(m, -100);
	scaled = train_losses(m, b, false);
	ck_assert_double_eq(scaled.loss[0], first.loss[0]);
	train_batch_free(b);
	train_model_free(m);
	train_model_free(again);
}
END_TEST

/* ---- what is refused, and plans alone ---- */

static void refuses(const struct mft_train_config *config, int code, const char *part)
{
	struct mft_memory memory = {0};
	struct mft_parallel one;
	struct mft_params *params;
	struct mft_net *net;

	mft_parallel_one(&one);
	unit_ok(mft_params_new(config, NULL, &params, &err), &err);
	unit_fails(mft_net_new(config, params, &memory, NULL, NULL, &one, &net, &err), &err, code,
		   part);
	mft_params_free(params);
}

START_TEST(arguments_without_a_computation_are_refused)
{
	static const char *const unknown[] = {"attention"};
	struct mft_train_config c = plain();

	c.recompute_granularity = MFT_RECOMPUTE_FULL;
	refuses(&c, -EINVAL, "--recompute-method uniform or block, found none");
	c.recompute_method = "block";
	c.recompute_num_layers = 4;
	refuses(&c, -EINVAL, "--recompute-num-layers: expected 1 to 3, found 4");
	c = plain();
	c.recompute_granularity = MFT_RECOMPUTE_SELECTIVE;
	c.recompute_modules = (struct mfs_arg_words){unknown, 1};
	refuses(&c, -ENOTSUP, "found attention");
	c = plain();
	c.model.position_embedding_type = "mrope";
	refuses(&c, -ENOTSUP, "found mrope");
	c = plain();
	c.model.kv_channels = 4;
	c.model.rotary_percent = 0.75;
	refuses(&c, -ENOTSUP, "--rotary-percent: expected an even number");
	c = gpt2_like();
	c.model.max_position_embeddings = SEQ - 1;
	refuses(&c, -EINVAL, "--max-position-embeddings");
}
END_TEST

START_TEST(refused_delta_nets)
{
	struct mft_train_config c = qwen_next_like();

	c.model.swiglu = false;
	refuses(&c, -ENOTSUP, "--linear-attention-freq without --swiglu");
	c = qwen_next_like();
	c.reset_attention_mask = true;
	refuses(&c, -ENOTSUP, "--reset-attention-mask and --sft with --linear-attention-freq");
	c = deepseek_like();
	c.model.attention_output_gate = true;
	refuses(&c, -ENOTSUP, "--attention-output-gate with --multi-latent-attention");
}
END_TEST

START_TEST(refused_experts)
{
	struct mft_train_config c = mixtral_like();

	c.model.moe_router_topk = 5;
	refuses(&c, -EINVAL, "--moe-router-topk: expected at most 4, found 5");
	c = mixtral_like();
	c.model.moe_router_enable_expert_bias = true;
	refuses(&c, -EINVAL, "--moe-router-enable-expert-bias");
	c = mixtral_like();
	c.model.moe_router_score_function = "tanh";
	refuses(&c, -ENOTSUP, "found tanh");
	c = deepseek_like();
	c.model.moe_router_group_topk = 1;
	refuses(&c, -EINVAL, "8 experts in 4 groups cannot give 4");
	c = deepseek_like();
	c.model.moe_mlp_glu_interleave_size = 8;
	refuses(&c, -ENOTSUP, "--moe-mlp-glu-interleave-size");
	c = deepseek_like();
	c.model.rotary_interleaved = true;
	refuses(&c, -ENOTSUP, "--rotary-interleaved");
	c = deepseek_like();
	c.model.mtp_num_layers = MFT_MTP_MOST + 1;
	refuses(&c, -ENOTSUP, "--mtp-num-layers: expected at most 8, found 9");
	c = deepseek_like();
	c.model.window_layers = c.model.moe_layers;
	refuses(&c, -ENOTSUP, "--window-attn-skip-freq");
	c = deepseek_like();
	c.model.learnable_softmax = true;
	refuses(&c, -ENOTSUP, "--softmax-type learnable");
	c = deepseek_like();
	c.model.activation_func_clamp_value = 7;
	refuses(&c, -ENOTSUP, "--activation-func-clamp-value");
}
END_TEST

/* --dry-run: without a device the plan is as large, but for what attention works in. */
START_TEST(plan_alone)
{
	const struct mft_train_config config = small_models[_i]();
	struct train_model *m = train_model_new(&config);
	struct mft_memory memory = {0};
	struct mft_net *net;

	unit_ok(mft_net_new(&config, m->params, &memory, NULL, NULL, &m->parallel, &net, &err),
		&err);
	ck_assert_uint_eq(memory.bytes[MFT_MEMORY_ACTIVATIONS],
			  m->memory.bytes[MFT_MEMORY_ACTIVATIONS]);
	ck_assert_uint_eq(memory.bytes[MFT_MEMORY_BATCH], m->memory.bytes[MFT_MEMORY_BATCH]);
	mft_net_free(net);
	train_model_free(m);
}
END_TEST

START_TEST(memory_is_added_up_by_kind)
{
	struct mft_memory m = {0}, of_experts = {0};
	struct mfk_device *device;
	char why[MFK_WHY] = "";

	ck_assert_uint_eq(mft_memory_add(&m, MFT_MEMORY_WEIGHTS, 1), 0);
	ck_assert_uint_eq(mft_memory_add(&m, MFT_MEMORY_BATCH, 300), MFT_MEMORY_ALIGN);
	ck_assert_uint_eq(mft_memory_add(&m, MFT_MEMORY_BATCH, 0), 3 * MFT_MEMORY_ALIGN);
	ck_assert_uint_eq(m.total, 3 * MFT_MEMORY_ALIGN);
	ck_assert_uint_eq(m.bytes[MFT_MEMORY_BATCH], 2 * MFT_MEMORY_ALIGN);
	mft_memory_add(&m, MFT_MEMORY_MOMENTS, UINT64_MAX);
	mft_memory_add(&m, MFT_MEMORY_MOMENTS, UINT64_MAX);
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &device, why), "%s", why);
	unit_fails(mft_memory_place(&m, &mfk_cpu, device, &err), &err, -ENOMEM, "moments");
	unit_fails(mft_memory_place(&m, &mfk_cpu, device, &err), &err, -ENOMEM,
		   "--recompute-granularity full");
	mft_memory_add(&of_experts, MFT_MEMORY_WEIGHTS, UINT64_C(1) << 58);
	mft_memory_add(&of_experts, MFT_MEMORY_ACTIVATIONS, UINT64_C(1) << 59);
	of_experts.experts = (UINT64_C(1) << 58) - 1;
	unit_fails(mft_memory_place(&of_experts, &mfk_cpu, device, &err), &err, -ENOMEM,
		   "--recompute-granularity full");
	of_experts.experts = UINT64_C(1) << 58;
	unit_fails(mft_memory_place(&of_experts, &mfk_cpu, device, &err), &err, -ENOMEM,
		   "; --recompute-granularity selective --recompute-modules moe, ");
	mfk_cpu.device->close(device);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("trainer_net");
	TCase *c = tcase_create("models");

	tcase_add_loop_test(c, logits_are_megatrons, 0, 7);
	tcase_add_loop_test(c, gradients_are_differences, 0, SMALL_MODELS);
	tcase_add_loop_test(c, gaps_stay_zero, 0, SMALL_MODELS);
	tcase_add_loop_test(c, recomputed_is_the_same, 0, SMALL_MODELS);
	tcase_add_loop_test(c, gradients_add_up, 0, SMALL_MODELS);
	tcase_add_loop_test(c, first_microbatch_replaces, 0, SMALL_MODELS);
	tcase_add_loop_test(c, head_in_chunks, 0, SMALL_MODELS);
	tcase_add_loop_test(c, plan_alone, 0, SMALL_MODELS);
	tcase_add_loop_test(c, results_in_16_bits_are_near, 0, 8);
	tcase_add_loop_test(c, biases_of_full_experts_fall, 0, 2);
	tcase_add_loop_test(c, auxiliary_losses, 0, 4);
	tcase_add_test(c, random_logits);
	suite_add_tcase(s, c);
	unit_case(s, "router", router_of_more_digits);
	unit_case(s, "scale", scale_is_of_gradients);
	unit_case(s, "validation", validation_has_no_dropout);
	unit_case(s, "dropout", dropout_depends_on_place);
	unit_case(s, "past", tokens_see_their_past);
	unit_case(s, "delta_nets", delta_nets_see_their_past);
	unit_case(s, "window", window_limits_the_past);
	unit_case(s, "refused", arguments_without_a_computation_are_refused);
	unit_case(s, "refused_experts", refused_experts);
	unit_case(s, "refused_delta_nets", refused_delta_nets);
	unit_case(s, "memory", memory_is_added_up_by_kind);
	return s;
}

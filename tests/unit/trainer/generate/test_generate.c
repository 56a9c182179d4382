/*
 * The sampler against the forward pass of training: logits of each position, and so what is drawn;
 * and that nothing but a request decides what its response is.
 */
#include "trainer/generate/generate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/unit/small_models.h"
#include "tests/unit/unit.h"
#include "trainer/model/net_i.h"

static struct mfs_error err;

typedef struct mft_train_config model(void);

/* Output gates, in front of keys that two heads share. */
static struct mft_train_config gates_like(void)
{
	struct mft_train_config c = qwen_next_like();

	c.model.linear_layers = NULL;
	return c;
}

static struct mft_train_config mup_like(void)
{
	struct mft_train_config c = llama_like();

	c.model.mup.on = true;
	c.model.mup.embedding = 3;
	c.model.mup.output = 0.5;
	c.model.mup.attention = 0.2;
	return c;
}

static struct train_model *with_weights(model *make)
{
	struct mft_train_config c = make();
	struct train_model *m = train_model_new(&c);

	train_model_random(m, 7, 0.2f);
	memset(m->params->buffers, 0, m->params->buffer_elements * 4);
	return m;
}

static struct mft_sampler *sampler_of(struct train_model *m, uint32_t slots, uint32_t length)
{
	struct mft_sampler *s;

	unit_ok(mft_sampler_new(&m->config, m->params, &mfk_cpu, m->device, &m->parallel, slots,
				length, &s, &err),
		&err);
	return s;
}

/* log softmax of row t of logits, over the true vocabulary, at a token. */
static float log_prob(const float *row, int64_t vocab, uint32_t token, double temperature)
{
	double most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < vocab; i++)
		most = fmax(most, (double)row[i] / temperature);
	for (int64_t i = 0; i < vocab; i++)
		sum += exp((double)row[i] / temperature - most);
	return (float)((double)row[token] / temperature - most - log(sum));
}

static uint32_t greatest(const float *row, int64_t vocab)
{
	uint32_t at = 0;

	for (uint32_t i = 1; i < vocab; i++)
		if (row[i] > row[at])
			at = i;
	return at;
}

/* ---- against the forward pass of training ---- */

static model *const models[] = {
	plain,		gpt2_like,   llama_like,  qwen_like,  neox_like,    relu_like,
	geglu_like,	gated_like,  gpt2_ahead,  mup_like,   mixtral_like, deepseek_like,
	deepseek_ahead, biased_like, biased_wide, alike_like, gates_like,
};

#define PROMPT 5

/* A response's tokens and log-probs are those of the logits of a forward pass of all of them. */
static void compare(struct train_model *m, const int32_t *prompt, const struct mft_response *r,
		    double temperature)
{
	const int64_t vocab = m->config.model.vocab_size, cols = m->config.model.padded_vocab_size;
	struct mft_batch *b = train_batch_new(BATCH, SEQ, vocab, 3);
	float *logits = malloc((size_t)(BATCH * SEQ * cols) * sizeof(*logits));

	memcpy(b->tokens, prompt, PROMPT * sizeof(*prompt));
	for (uint32_t i = 0; i < r->count; i++)
		b->tokens[PROMPT + i] = (int32_t)r->tokens[i];
	train_batch_finish(b, BATCH * SEQ);
	unit_ok(mft_net_logits(m->net, m->ctx, b, logits, &err), &err);
	ck_assert_uint_eq(r->count, SEQ - PROMPT);
	for (uint32_t i = 0; i < r->count; i++) {
		const float *row = logits + (PROMPT - 1 + i) * cols;
		const double by = temperature > 0 ? temperature : 1;

		ck_assert_uint_lt(r->tokens[i], vocab);
		if (temperature <= 0)
			ck_assert_uint_eq(r->tokens[i], greatest(row, vocab));
		ck_assert_float_eq_tol(r->log_probs[i], log_prob(row, vocab, r->tokens[i], by),
				       1e-5f);
	}
	free(logits);
	train_batch_free(b);
}

START_TEST(goes_on_as_the_forward_pass_says)
{
	struct train_model *m = with_weights(models[_i]);
	struct mft_sampler *s = sampler_of(m, 3, SEQ);
	uint32_t tokens[PROMPT];
	int32_t prompt[PROMPT];
	uint64_t state = 5;
	struct mft_sampling how = {.top_p = 1, .max_tokens = 100};
	const struct mft_request request = {tokens, PROMPT, 99};
	struct mft_response r;

	for (int i = 0; i < PROMPT; i++)
		prompt[i] = (int32_t)(tokens[i] = (uint32_t)(train_random(&state) % (VOCAB - 3)));
	for (int t = 0; t < 2; t++) {
		how.temperature = t * 0.8;
		unit_ok(mft_sampler_run(s, m->ctx, &request, 1, &how, &r, &err), &err);
		ck_assert_int_eq(r.finish, MFT_FINISH_LENGTH);
		compare(m, prompt, &r, how.temperature);
		mft_response_release(&r);
	}
	mft_sampler_free(s);
	train_model_free(m);
}
END_TEST

/* ---- what decides ---- */

#define REQUESTS 7
#define LENGTH	 48

static struct mft_request requests[REQUESTS];

static void make_requests(void)
{
	static uint32_t tokens[REQUESTS][LENGTH];
	uint64_t state = 11;

	for (uint32_t i = 0; i < REQUESTS; i++) {
		requests[i] = (struct mft_request){tokens[i], 1 + i * 5, train_random(&state)};
		for (uint32_t k = 0; k < requests[i].count; k++)
			tokens[i][k] = (uint32_t)(train_random(&state) % (VOCAB - 3));
	}
}

static void check_same(const struct mft_response *a, const struct mft_response *b)
{
	ck_assert_uint_eq(a->count, b->count);
	ck_assert_int_eq(a->finish, b->finish);
	ck_assert_mem_eq(a->tokens, b->tokens, a->count * sizeof(*a->tokens));
	ck_assert_mem_eq(a->log_probs, b->log_probs, a->count * sizeof(*a->log_probs));
}

/* The same bits with any number of slots, in any order, and alone. */
START_TEST(company_changes_nothing)
{
	static model *const some[] = {llama_like, deepseek_like};
	static const uint32_t stops[] = {3, 17, 40};
	static const uint32_t slots[] = {2, 5, 30};
	const struct mft_sampling how = {.temperature = 0.9,
					 .top_p = 0.95,
					 .top_k = 50,
					 .max_tokens = 12,
					 .stops = stops,
					 .stop_count = 3};
	struct train_model *m = with_weights(some[_i]);
	struct mft_sampler *s = sampler_of(m, 3, LENGTH);
	struct mft_response first[REQUESTS], then[REQUESTS];
	struct mft_request reversed[REQUESTS];
	bool stopped = false;

	make_requests();
	for (int i = 0; i < REQUESTS; i++)
		reversed[i] = requests[REQUESTS - 1 - i];
	unit_ok(mft_sampler_run(s, m->ctx, requests, REQUESTS, &how, first, &err), &err);
	unit_ok(mft_sampler_run(s, m->ctx, reversed, REQUESTS, &how, then, &err), &err);
	for (int i = 0; i < REQUESTS; i++) {
		check_same(&first[i], &then[REQUESTS - 1 - i]);
		mft_response_release(&then[REQUESTS - 1 - i]);
		stopped |= first[i].finish == MFT_FINISH_STOP;
		ck_assert(first[i].finish == MFT_FINISH_LENGTH ||
			  mft_sampling_stops(&how, first[i].tokens[first[i].count - 1]));
	}
	ck_assert(stopped);
	unit_ok(mft_sampler_run(s, m->ctx, &requests[4], 1, &how, then, &err), &err);
	check_same(&first[4], then);
	mft_response_release(then);
	mft_sampler_free(s);
	for (size_t k = 0; k < MFS_ARRAY_SIZE(slots); k++) {
		s = sampler_of(m, slots[k], LENGTH + 3);
		unit_ok(mft_sampler_run(s, m->ctx, requests, REQUESTS, &how, then, &err), &err);
		for (int i = 0; i < REQUESTS; i++) {
			check_same(&first[i], &then[i]);
			mft_response_release(&then[i]);
		}
		mft_sampler_free(s);
	}
	for (int i = 0; i < REQUESTS; i++)
		mft_response_release(&first[i]);
	train_model_free(m);
}
END_TEST

/* Responses end where there is no room, and say which weights they are of. */
static void count_tokens(void *arg, size_t number, const struct mft_response *so_far)
{
	uint32_t *counts = arg;

	ck_assert_uint_eq(so_far->count, ++counts[number]);
}

START_TEST(says_what_it_did)
{
	const struct mft_sampling how = {.top_p = 1, .max_tokens = 6};
	struct train_model *m = with_weights(plain);
	struct mft_sampler *s = sampler_of(m, 2, LENGTH);
	struct mft_response r[REQUESTS];
	uint32_t counts[REQUESTS] = {0};

	make_requests();
	requests[6].count = LENGTH - 2;
	mft_sampler_set_version(s, 5);
	mft_sampler_tell(s, count_tokens, counts);
	unit_ok(mft_sampler_run(s, m->ctx, requests, REQUESTS, &how, r, &err), &err);
	for (int i = 0; i < REQUESTS; i++) {
		ck_assert_uint_eq(r[i].count, i == 6 ? 2 : 6);
		ck_assert_uint_eq(counts[i], r[i].count);
		ck_assert_uint_eq(r[i].first_version, 5);
		ck_assert_uint_eq(r[i].last_version, 5);
		mft_response_release(&r[i]);
	}
	unit_ok(mft_sampler_run(s, m->ctx, NULL, 0, &how, NULL, &err), &err);
	mft_sampler_free(s);
	train_model_free(m);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refuses_requests)
{
	const struct mft_sampling how = {.top_p = 1, .max_tokens = 6};
	struct train_model *m = with_weights(plain);
	struct mft_sampler *s = sampler_of(m, 2, LENGTH);
	uint32_t tokens[LENGTH] = {0};
	struct mft_request request = {tokens, LENGTH, 0};
	struct mft_response r;

	unit_fails(mft_sampler_run(s, m->ctx, &request, 1, &how, &r, &err), &err, -EINVAL,
		   "prompt 1 has 48 tokens");
	request.count = 0;
	unit_fails(mft_sampler_run(s, m->ctx, &request, 1, &how, &r, &err), &err, -EINVAL,
		   "prompt 1 has 0 tokens");
	request.count = 2;
	tokens[1] = VOCAB - 3; /* padding */
	unit_fails(mft_sampler_run(s, m->ctx, &request, 1, &how, &r, &err), &err, -EINVAL,
		   "token 61");
	tokens[1] = 1;
	train_put_weight(m->params, m->params->list[m->params->count - 1].start, NAN);
	unit_fails(mft_sampler_run(s, m->ctx, &request, 1, &how, &r, &err), &err, -EDOM,
		   "not finite");
	mft_sampler_free(s);
	train_model_free(m);
}
END_TEST

START_TEST(refuses_what_does_not_generate)
{
	struct train_model *m = with_weights(qwen_next_like);
	struct mft_parallel parallel = m->parallel;
	struct mft_sampler *s;

#define REFUSES(part)                                                                              \
	unit_fails(mft_sampler_new(&m->config, m->params, &mfk_cpu, m->device, &parallel, 1, 9,    \
				   &s, &err),                                                      \
		   &err, -ENOTSUP, part)
	REFUSES("gated delta nets");
	parallel.size.pp = 2;
	REFUSES("--pipeline-model-parallel-size");
	parallel = m->parallel;
	parallel.size.cp = 2;
	REFUSES("--context-parallel-size");
	parallel = m->parallel;
	m->config.sharding = MFT_SHARD_WEIGHTS;
	REFUSES("optim_grads_params");
	train_model_free(m);
	m = with_weights(gpt2_like); /* whose positions end */
	unit_fails(mft_sampler_new(&m->config, m->params, &mfk_cpu, m->device, &m->parallel, 1,
				   SEQ + 5, &s, &err),
		   &err, -EINVAL, "--max-position-embeddings");
	train_model_free(m);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("generate");
	TCase *c = tcase_create("against training");

	tcase_add_loop_test(c, goes_on_as_the_forward_pass_says, 0, MFS_ARRAY_SIZE(models));
	suite_add_tcase(s, c);
	c = tcase_create("company");
	tcase_add_loop_test(c, company_changes_nothing, 0, 2);
	suite_add_tcase(s, c);
	unit_case(s, "says what it did", says_what_it_did);
	unit_case(s, "refuses requests", refuses_requests);
	unit_case(s, "refuses what does not generate", refuses_what_does_not_generate);
	return s;
}

/*
 * Processes that share sequences (trainer/model/attention/context.c, core*.c;
 * trainer/parallel/context_parallel.h): of random small models, their losses and the gradients of
 * every parameter are those of one process.
 */
#include "trainer/parallel/context_parallel.h"

#include "tests/unit/fake_group.h"
#include "tests/unit/train_model.h"
#include "trainer/model/net_i.h"

#define VOCAB  64
#define LENGTH 48 /* a multiple of 2 and all numbers of processes, twice */
#define WITHIN 2e-5

static struct mfs_error err;

/* ---- where tokens lie ---- */

START_TEST(places_of_parts_are_all_places)
{
	for (uint32_t parts = 1; parts <= 6; parts++) {
		int32_t seen[LENGTH] = {0};

		if (LENGTH % (2 * parts))
			continue;
		for (uint32_t part = 0; part < parts; part++)
			for (int64_t i = 0; i < LENGTH / parts; i++) {
				const int64_t at = mft_context_position(parts, part, LENGTH, i);

				ck_assert_int_eq(seen[at]++, 0);
				ck_assert(!i ||
					  at > mft_context_position(parts, part, LENGTH, i - 1));
			}
	}
	/* get_batch_on_this_cp_rank of 8 tokens */
	ck_assert_int_eq(mft_context_position(2, 0, 8, 1), 1);
	ck_assert_int_eq(mft_context_position(2, 0, 8, 2), 6);
	ck_assert_int_eq(mft_context_position(2, 1, 8, 0), 2);
	ck_assert_int_eq(mft_context_position(2, 1, 8, 3), 5);
}
END_TEST

/* ---- models ---- */

static int64_t one_of(uint64_t *random, int64_t a, int64_t b, int64_t c)
{
	const int64_t of[] = {a, b, c};

	return of[train_random(random) % 3];
}

static void add_latents(struct mft_train_config *c, uint64_t *random)
{
	c->model.multi_latent_attention = true;
	c->model.rope_type = "rope";
	c->model.kv_lora_rank = 10;
	c->model.qk_head_dim = 8;
	c->model.qk_pos_emb_head_dim = 4;
	c->model.v_head_dim = 6;
	c->model.q_lora_rank = one_of(random, MFS_ABSENT, 9, 12);
	c->model.rotary_scaling_factor = c->model.mscale = 1;
}

static void add_experts(struct mft_train_config *c, uint64_t *random)
{
	static const uint8_t every[] = {1, 1, 1};

	c->model.swiglu = true;
	c->model.num_experts = 6;
	c->model.moe_router_topk = 2;
	c->model.moe_ffn_hidden_size = 24;
	c->model.moe_layers = every;
	c->moe_z_loss_coeff = 0.01;
	c->moe_aux_loss_coeffs[one_of(random, MFT_AUX_LOSS, MFT_SEQ_AUX_LOSS, MFT_AUX_LOSSES - 1)] =
		0.1;
}

/* What one word says of all layers, or three of each. */
static const char *const all_p2p[] = {"p2p"}, *const all_gather[] = {"all_gather"};
static const char *const all_a2a[] = {"a2a"}, *const all_levels[] = {"a2a+p2p"};
static const char *const mixed[] = {"a2a", "p2p", "allgather"};
static const char *const mixed_levels[] = {"a2a", "a2a+p2p", "p2p"};
enum kind { P2P, GATHER, A2A, LEVELS, MIXED, MIXED_LEVELS, KINDS };
static const struct mfs_arg_words kinds[KINDS] = {
	[P2P] = {all_p2p, 1},	    [GATHER] = {all_gather, 1}, [A2A] = {all_a2a, 1},
	[LEVELS] = {all_levels, 1}, [MIXED] = {mixed, 3},	[MIXED_LEVELS] = {mixed_levels, 3},
};

static struct mft_train_config random_model(uint64_t *random, int number)
{
	struct mft_train_config c = {
		.micro_batch_size = one_of(random, 1, 2, 3),
		.seq_length = LENGTH,
		.cp_comm_type = kinds[number % KINDS],
		.model = train_plain_model(),
	};

	c.model.num_layers = 3;
	c.model.hidden_size = 32;
	c.model.ffn_hidden_size = 40;
	c.model.num_attention_heads = 8;
	c.model.num_query_groups = one_of(random, 4, 8, 4);
	c.model.kv_channels = one_of(random, 4, 8, 12);
	c.model.seq_length = LENGTH;
	c.model.max_position_embeddings = LENGTH + 4;
	c.model.vocab_size = VOCAB - 3;
	c.model.padded_vocab_size = VOCAB;
	if (!one_of(random, 0, 1, 1))
		c.model.position_embedding_type = "learned_absolute";
	c.model.window_size = one_of(random, MFS_ABSENT, MFS_ABSENT, 7);
	c.model.swiglu = one_of(random, 0, 1, 1);
	c.model.layernorm = one_of(random, 0, 0, 1);
	c.model.qk_layernorm = one_of(random, 0, 1, 0);
	c.model.tied = one_of(random, 0, 1, 1);
	train_config_types(&c, MFS_F32);
	c.hidden_dropout = (double)one_of(random, 0, 0, 1) / 8;
	c.attention_dropout = (double)one_of(random, 0, 0, 1) / 8;
	if (number / KINDS % 3 == 2)
		add_latents(&c, random);
	if (number / KINDS % 3 == 1)
		add_experts(&c, random);
	if (one_of(random, 0, 0, 1)) {
		c.recompute_granularity = MFT_RECOMPUTE_FULL;
		c.recompute_method = "uniform";
		c.recompute_num_layers = 2;
	}
	return c;
}

/* ---- processes ---- */

struct process {
	pthread_t thread;
	struct train_model *model;
	struct mft_batch *batch;
	double loss;
};

/* A process's tokens of the whole batch. */
static struct mft_batch *part_of(const struct mft_batch *whole, int64_t batch, uint32_t parts,
				 uint32_t part)
{
	const int64_t seq = LENGTH / parts;
	struct mft_batch *b = train_batch_new(batch, seq, VOCAB, 1);

	if (whole->old)
		train_batch_add_policy(b, batch, seq, 1);
	for (int64_t t = 0; t < batch * seq; t++) {
		const int64_t from =
			t / seq * LENGTH + mft_context_position(parts, part, LENGTH, t % seq);

		b->tokens[t] = whole->tokens[from];
		b->labels[t] = whole->labels[from];
		b->positions[t] = whole->positions[from];
		b->first_key[t] = whole->first_key[from];
		b->loss_mask[t] = whole->loss_mask[from];
		if (!whole->old)
			continue;
		b->old[t] = whole->old[from];
		b->reference[t] = whole->reference[from];
		b->rollout[t] = whole->rollout[from];
		b->advantage[t] = whole->advantage[from];
		b->sequence[t] = whole->sequence[from];
	}
	train_batch_finish(b, batch * seq);
	b->counted = whole->counted;
	b->documents = whole->documents;
	return b;
}

/* All processes of a sequence, and those of each level: neighbours, and those of one place among
 * them. */
struct team {
	uint32_t size, neighbours; /* neighbours 0: there are no levels */
	struct fake_group all, heads[FAKE_GROUP_MOST], ring[FAKE_GROUP_MOST];
	struct mfk_comm of_all[FAKE_GROUP_MOST];
	struct mfk_comm of_heads[FAKE_GROUP_MOST][FAKE_GROUP_MOST];
	struct mfk_comm of_ring[FAKE_GROUP_MOST][FAKE_GROUP_MOST];
};

static void team_init(struct team *t, uint32_t size, uint32_t neighbours)
{
	t->size = size;
	t->neighbours = neighbours;
	fake_group_init(&t->all, size, t->of_all);
	for (uint32_t i = 0; neighbours && i < size / neighbours; i++)
		fake_group_init(&t->heads[i], neighbours, t->of_heads[i]);
	for (uint32_t i = 0; i < neighbours; i++)
		fake_group_init(&t->ring[i], size / neighbours, t->of_ring[i]);
}

static void team_end(struct team *t)
{
	fake_group_end(&t->all);
	for (uint32_t i = 0; t->neighbours && i < t->size / t->neighbours; i++)
		fake_group_end(&t->heads[i]);
	for (uint32_t i = 0; i < t->neighbours; i++)
		fake_group_end(&t->ring[i]);
}

static struct mft_group_place place_of(struct mfk_comm *comm)
{
	return (struct mft_group_place){comm->rank, comm->group->size, comm};
}

static void join(struct mft_parallel *p, struct team *t, uint32_t rank)
{
	mft_parallel_one(p);
	p->ops = &fake_group_ops;
	p->size.cp = t->size;
	p->size.neighbours = t->neighbours;
	p->place.cp = rank;
	p->group[MFT_GROUP_CONTEXT] = place_of(&t->of_all[rank]);
	if (!t->neighbours)
		return;
	p->group[MFT_GROUP_CONTEXT_HEADS] =
		place_of(&t->of_heads[rank / t->neighbours][rank % t->neighbours]);
	p->group[MFT_GROUP_CONTEXT_RING] =
		place_of(&t->of_ring[rank % t->neighbours][rank / t->neighbours]);
}

static struct train_model *model_of(const struct mft_train_config *config, struct team *team,
				    uint32_t rank)
{
	struct train_model *m = calloc(1, sizeof(*m));
	char why[MFK_WHY] = "";

	m->config = *config;
	join(&m->parallel, team, rank);
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &m->device, why), "%s", why);
	ck_assert_msg(!mfk_cpu.device->ctx_new(m->device, false, &m->ctx, why), "%s", why);
	unit_ok(mft_params_new(&m->config, NULL, &m->params, &m->err), &m->err);
	train_model_place(m);
	unit_ok(mft_net_begin(m->net, m->ctx, &m->err), &m->err);
	return m;
}

static void *work(void *arg)
{
	struct process *p = arg;

	p->loss = train_run(p->model, p->batch, true);
	return NULL;
}

/* Gradients of all parameters, as doubles. */
static void add_gradients(const struct train_model *m, double *sums)
{
	for (uint64_t i = 0; i < m->params->elements; i++)
		sums[i] += ((const float *)m->params->grads)[i];
}

/* Within so much of the greatest gradient of the parameter, or a tenth of the model's: some are
 * sums that would be 0 without rounding (a bias of keys that do not turn). */
static void compare(const struct mft_params *p, const double *found, const double *want)
{
	double greatest = 0;

	for (uint64_t e = 0; e < p->elements; e++)
		greatest = fmax(greatest, fabs(want[e]) / 10);
	for (uint32_t i = 0; i < p->count; i++) {
		const struct mft_param *q = &p->list[i];
		double most = 0, off = 0;

		for (uint64_t e = q->start; e < q->start + q->elements; e++) {
			most = fmax(most, fabs(want[e]));
			off = fabs(found[e] - want[e]) <= off ? off : fabs(found[e] - want[e]);
		}
		/* No token may have chosen an expert. */
		ck_assert_msg(most > 0 || q->is_expert, "%s has no gradient", q->tensor->name);
		ck_assert_msg(off <= WITHIN * fmax(most, greatest), "%s, layer %d: %g apart of %g",
			      q->tensor->name, q->tensor->layer, off, most);
	}
}

static void run_parts(const struct mft_train_config *config, const struct mft_batch *whole,
		      uint32_t parts, uint32_t neighbours, uint64_t seed, double loss,
		      const double *want)
{
	struct process process[FAKE_GROUP_MOST] = {0};
	struct team team;
	double sum = 0, *found;

	team_init(&team, parts, neighbours);
	for (uint32_t i = 0; i < parts; i++) {
		process[i].model = model_of(config, &team, i);
		process[i].batch = part_of(whole, config->micro_batch_size, parts, i);
		train_model_random(process[i].model, seed, 0.3f);
	}
	for (uint32_t i = 0; i < parts; i++)
		ck_assert_int_eq(pthread_create(&process[i].thread, NULL, work, &process[i]), 0);
	for (uint32_t i = 0; i < parts; i++)
		pthread_join(process[i].thread, NULL);
	found = calloc(process[0].model->params->elements, sizeof(*found));
	for (uint32_t i = 0; i < parts; i++) {
		add_gradients(process[i].model, found);
		sum += process[i].loss;
	}
	ck_assert_msg(fabs(sum - loss) <= WITHIN * fabs(loss), "a loss of %.9g, not %.9g", sum,
		      loss);
	compare(process[0].model->params, found, want);
	for (uint32_t i = 0; i < parts; i++) {
		train_batch_free(process[i].batch);
		train_model_free(process[i].model);
	}
	team_end(&team);
	free(found);
}

START_TEST(gradients_are_those_of_one_process)
{
	uint64_t random = (uint64_t)_i * 7919 + 1;
	const struct mft_train_config config = random_model(&random, _i);
	const int64_t batch = config.micro_batch_size;
	const enum kind kind = (enum kind)(_i % KINDS);
	struct mft_batch *whole = train_batch_new(batch, LENGTH, VOCAB - 3, (uint64_t)_i + 5);
	struct train_model *m = train_model_new(&config);
	double loss, *want = calloc(m->params->elements, sizeof(*want));

	if (one_of(&random, 0, 1, 1))
		train_batch_split(whole, batch, LENGTH, 5 + (int64_t)(train_random(&random) % 38));
	train_model_random(m, random, 0.3f);
	loss = train_run(m, whole, true);
	add_gradients(m, want);
	if (kind == LEVELS || kind == MIXED_LEVELS) {
		run_parts(&config, whole, 4, 2, random, loss, want);
		/* Levels of one are a ring of all, or an exchange of all. */
		run_parts(&config, whole, 4, _i % 2 ? 1 : 4, random, loss, want);
	} else {
		run_parts(&config, whole, _i / KINDS % 2 ? 4 : 2, 0, random, loss, want);
	}
	if (kind == LEVELS)
		run_parts(&config, whole, 6, 2, random, loss, want);
	if (kind == P2P || kind == GATHER)
		run_parts(&config, whole, 3, 0, random, loss, want);
	free(want);
	train_batch_free(whole);
	train_model_free(m);
}
END_TEST

/* The ratio of a response is one of all its tokens, which several processes have. */
START_TEST(ratios_are_those_of_whole_responses)
{
	uint64_t random = 4;
	struct mft_train_config config = random_model(&random, P2P);
	struct mft_batch *whole = train_batch_new(config.micro_batch_size, LENGTH, VOCAB - 3, 5);
	struct train_model *m;
	double loss, *want;

	config.perform_rl_step = true;
	config.rl_loss = "gspo";
	config.rl_kl_type = "k3";
	config.rl_importance_sampling_level = "token";
	config.rl_importance_sampling_mode = "truncate";
	config.grpo_clamp_eps_lower = config.grpo_clamp_eps_upper = 0.2;
	config.grpo_kl_beta = 0.1;
	config.rl_default_temperature = 1;
	train_batch_add_policy(whole, config.micro_batch_size, LENGTH, 9);
	m = train_model_new(&config);
	want = calloc(m->params->elements, sizeof(*want));
	train_model_random(m, 3, 0.3f);
	loss = train_run(m, whole, true);
	add_gradients(m, want);
	run_parts(&config, whole, 2, 0, 3, loss, want);
	run_parts(&config, whole, 4, 0, 3, loss, want);
	free(want);
	train_batch_free(whole);
	train_model_free(m);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(heads_are_divided)
{
	uint64_t random = 1;
	struct mft_train_config config = random_model(&random, A2A);
	struct mft_memory memory = {0};
	struct mft_parallel parallel;
	struct mft_params *params;
	struct mft_net *net;

	config.model.num_query_groups = 2;
	mft_parallel_one(&parallel);
	parallel.size.cp = 4;
	unit_ok(mft_params_new(&config, NULL, &params, &err), &err);
	unit_fails(mft_net_new(&config, params, &memory, NULL, NULL, &parallel, &net, &err), &err,
		   -EINVAL, "--num-query-groups that is a multiple of --context-parallel-size 4");
	config.model.num_query_groups = 4;
	config.model.num_attention_heads = 4;
	parallel.size.cp = 3;
	config.cp_comm_type = kinds[MIXED];
	unit_fails(mft_net_new(&config, params, &memory, NULL, NULL, &parallel, &net, &err), &err,
		   -EINVAL, "number of heads that is a multiple of --context-parallel-size 3");
	parallel.size.cp = 12;
	parallel.size.neighbours = 3;
	config.cp_comm_type = kinds[LEVELS];
	unit_fails(mft_net_new(&config, params, &memory, NULL, NULL, &parallel, &net, &err), &err,
		   -EINVAL,
		   "number of heads that is a multiple of the first of "
		   "--hierarchical-context-parallel-sizes, 3, found 4");
	mft_params_free(params);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("context");
	TCase *c = tcase_create("gradients");

	tcase_add_loop_test(c, gradients_are_those_of_one_process, 0, 6 * KINDS);
	suite_add_tcase(s, c);
	unit_case(s, "policies", ratios_are_those_of_whole_responses);
	unit_case(s, "places", places_of_parts_are_all_places);
	unit_case(s, "heads", heads_are_divided);
	return s;
}

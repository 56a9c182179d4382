#include "trainer/generate/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/megatron_args.h"
#include "trainer/data/loader.h"
#include "trainer/model/net.h"
#include "trainer/params/memory.h"

#define CPU_TOKENS    16  /* tokens of a step are a multiple, which products like */
#define GPU_TOKENS    256 /* up to which a product's time is that of reading weights */
#define PROMPT_TOKENS 12  /* that prompts can have of a step, at least */
#define MOST_SLOTS    4096
#define LOOK	      64 /* steps after which processes that share tensors ask whether to stop */

/* A sequence that is being generated. */
struct slot {
	size_t number; /* of its request */
	uint32_t fed;  /* its tokens that are in the cache */
	bool used;
};

struct mft_sampler {
	struct mft_train_config config;
	struct mft_memory memory;
	struct mft_net *net;
	const struct mfk_backend *backend;
	struct mfk_device *device;
	const struct mft_parallel *parallel;
	uint32_t slots, length, tokens;
	int64_t vocab; /* without padding */
	struct slot *slot;
	struct mft_batch batch;
	struct mft_cached_step step;
	void *batch_block, *step_block; /* pinned */
	uint64_t version;
	mft_sampler_told *told;
	void *told_arg;
	mft_sampler_stop *stop; /* NULL: none */
};

/* A call of mft_sampler_run(). */
struct run {
	struct mft_sampler *s;
	struct mfk_ctx *ctx;
	const struct mft_request *requests;
	size_t count, next; /* next: the first request that has had no slot */
	const struct mft_sampling *how;
	struct mft_response *ret;
	uint32_t *slot_of; /* [T]: of each draw of the step */
	uint64_t steps;
};

/* ---- life ---- */

static int check(const struct mft_train_config *c, const struct mft_parallel *p,
		 struct mfs_error *err)
{
	if (p->size.pp > 1)
		return mfs_fail(err, -ENOTSUP,
				"--pipeline-model-parallel-size %u: a pipeline does not generate "
				"here; use tensor parallelism, or 1",
				p->size.pp);
	if (p->size.cp > 1)
		return mfs_fail(err, -ENOTSUP,
				"--context-parallel-size %u: processes that share sequences do not "
				"generate here; use 1",
				p->size.cp);
	if (c->sharding == MFT_SHARD_WEIGHTS)
		return mfs_fail(err, -ENOTSUP,
				"--data-parallel-sharding-strategy optim_grads_params: divided "
				"weights do not generate here; use optim_grads");
	return 0;
}

/* The config of a net that generates: a microbatch is so many tokens, and nothing of training is
 * left. */
static void derive(struct mft_sampler *s, const struct mft_train_config *from)
{
	struct mft_train_config *c = &s->config;

	*c = *from;
	c->cached_sequences = s->slots;
	c->cached_length = s->length;
	c->micro_batch_size = s->tokens;
	c->seq_length = 1;
	c->global_batch_size = c->eval_global_batch_size =
		(int64_t)s->tokens * s->parallel->size.dp;
	c->batch_steps = NULL;
	c->batch_step_count = 0;
	c->full_validation = false;
	c->hidden_dropout = c->attention_dropout = 0;
	c->recompute_granularity = MFT_RECOMPUTE_NONE;
	c->model.mtp_num_layers = 0;
	c->moe_z_loss_coeff = 0;
	memset(c->moe_aux_loss_coeffs, 0, sizeof(c->moe_aux_loss_coeffs));
	c->moe_expert_capacity_factor = 0;
	c->moe_router_force_load_balancing = false;
	c->sft = c->reset_attention_mask = c->perform_rl_step = false;
}

static uint32_t round_up(uint32_t x, uint32_t to)
{
	return (x + to - 1) / to * to;
}

/* Prompts get the rows that are more than places. */
static void choose_sizes(struct mft_sampler *s, const char *backend, uint32_t slots)
{
	const uint32_t multiple = backend && !strcmp(backend, "cpu") ? CPU_TOKENS : GPU_TOKENS;

	s->slots = slots < MOST_SLOTS ? slots : MOST_SLOTS;
	s->tokens = round_up(round_up(s->slots + PROMPT_TOKENS, multiple), s->parallel->size.tp);
}

/* Host memory: what a step is copied from. */
static int make_blocks(struct mft_sampler *s, struct mfs_error *err)
{
	const struct mfk_device_ops *dev = s->backend->device;
	const size_t batch = mft_batch_bytes(s->tokens, 0, false);
	const size_t step = mft_cached_step_bytes(s->tokens);

	s->slot = calloc(s->slots, sizeof(*s->slot));
	s->batch_block = dev->host_alloc(s->device, batch);
	s->step_block = dev->host_alloc(s->device, step);
	if (!s->slot || !s->batch_block || !s->step_block)
		return mfs_fail_nomem(err);
	memset(s->batch_block, 0, batch);
	memset(s->step_block, 0, step);
	mft_batch_place(&s->batch, s->tokens, 0, false, s->batch_block);
	mft_cached_step_place(&s->step, s->tokens, s->step_block);
	return 0;
}

static int begin(struct mft_sampler *s, struct mft_params *params, struct mfs_error *err)
{
	char why[MFK_WHY] = "";
	struct mfk_ctx *ctx;
	int rc = mft_net_new(&s->config, params, &s->memory, s->backend, s->device, s->parallel,
			     &s->net, err);

	if (!rc)
		rc = mft_memory_place(&s->memory, s->backend, s->device, err);
	if (rc)
		return rc;
	rc = s->backend->device->ctx_new(s->device, false, &ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s", why);
	/* Rows that are no tokens are computed, too. */
	s->backend->device->zero(ctx, s->memory.base, s->memory.total);
	rc = mft_net_begin(s->net, ctx, err);
	if (!rc && s->backend->device->sync(ctx, why))
		rc = mfs_fail(err, -EIO, "%s", why);
	s->backend->device->ctx_free(ctx);
	return rc;
}

int mft_sampler_new(const struct mft_train_config *config, struct mft_params *params,
		    const struct mfk_backend *backend, struct mfk_device *device,
		    const struct mft_parallel *parallel, uint32_t slots, uint32_t max_length,
		    struct mft_sampler **ret, struct mfs_error *err)
{
	const uint64_t vocab = mfs_args_true_vocab(&config->model, params->padded_vocab);
	struct mft_sampler *s;
	int rc = check(config, parallel, err);

	if (rc)
		return rc;
	if (!slots || max_length < 2 || max_length > INT32_MAX)
		return mfs_fail(err, -EINVAL,
				"a sampler of %u sequences of %u tokens: expected at least 1 of 2",
				slots, max_length);
	s = calloc(1, sizeof(*s));
	if (!s)
		return mfs_fail_nomem(err);
	s->backend = backend;
	s->device = device;
	s->parallel = parallel;
	s->length = max_length;
	s->vocab = (int64_t)(vocab ? vocab : params->padded_vocab);
	choose_sizes(s, backend->name, slots);
	derive(s, config);
	rc = make_blocks(s, err);
	if (!rc)
		rc = begin(s, params, err);
	if (rc) {
		mft_sampler_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int mft_sampler_plan(const struct mft_train_config *config, struct mft_params *params,
		     const struct mft_parallel *parallel, uint32_t slots, uint32_t max_length,
		     uint64_t *ret, struct mfs_error *err)
{
	struct mft_sampler s = {.parallel = parallel, .length = max_length};
	int rc = check(config, parallel, err);

	if (rc)
		return rc;
	choose_sizes(&s, config->backend, slots);
	derive(&s, config);
	rc = mft_net_new(&s.config, params, &s.memory, NULL, NULL, parallel, &s.net, err);
	*ret = s.memory.total;
	mft_net_free(s.net);
	return rc;
}

void mft_sampler_free(struct mft_sampler *s)
{
	const struct mfk_device_ops *dev;

	if (!s)
		return;
	dev = s->backend->device;
	mft_net_free(s->net);
	mft_memory_release(&s->memory, s->backend, s->device);
	if (s->batch_block)
		dev->host_free(s->device, s->batch_block, mft_batch_bytes(s->tokens, 0, false));
	if (s->step_block)
		dev->host_free(s->device, s->step_block, mft_cached_step_bytes(s->tokens));
	free(s->slot);
	free(s);
}

void mft_sampler_set_version(struct mft_sampler *s, uint64_t version)
{
	s->version = version;
}

void mft_sampler_tell(struct mft_sampler *s, mft_sampler_told *told, void *arg)
{
	s->told = told;
	s->told_arg = arg;
}

void mft_sampler_stop_on(struct mft_sampler *s, mft_sampler_stop *stop)
{
	s->stop = stop;
}

/* ---- requests ---- */

static int check_request(const struct mft_sampler *s, const struct mft_request *r, size_t number,
			 struct mfs_error *err)
{
	if (!r->count || r->count >= s->length)
		return mfs_fail(
			err, -EINVAL,
			"prompt %zu has %u tokens: expected 1 to %u, so that one may follow",
			number + 1, r->count, s->length - 1);
	for (uint32_t i = 0; i < r->count; i++)
		if (r->tokens[i] >= (uint64_t)s->vocab)
			return mfs_fail(err, -EINVAL,
					"prompt %zu has token %u: expected less than the "
					"vocabulary's %lld",
					number + 1, r->tokens[i], (long long)s->vocab);
	return 0;
}

/* Tokens that a response has at most. */
static uint32_t room_of(const struct run *r, size_t number)
{
	const uint32_t left = r->s->length - r->requests[number].count;

	return left < r->how->max_tokens ? left : r->how->max_tokens;
}

static int make_room(const struct run *r, struct mfs_error *err)
{
	for (size_t i = 0; i < r->count; i++) {
		r->ret[i].tokens = malloc(room_of(r, i) * sizeof(*r->ret[i].tokens));
		r->ret[i].log_probs = malloc(room_of(r, i) * sizeof(*r->ret[i].log_probs));
		if (!r->ret[i].tokens || !r->ret[i].log_probs)
			return mfs_fail_nomem(err);
	}
	return 0;
}

/* Tokens of a sequence so far, and one of them. */
static uint32_t length_of(const struct run *r, const struct slot *slot)
{
	return r->requests[slot->number].count + r->ret[slot->number].count;
}

static uint32_t token_at(const struct run *r, const struct slot *slot, uint32_t position)
{
	const struct mft_request *request = &r->requests[slot->number];

	return position < request->count ? request->tokens[position]
					 : r->ret[slot->number].tokens[position - request->count];
}

/* ---- a step ---- */

/* Gives free slots to requests that wait. Returns how many slots are in use. */
static uint32_t fill_slots(struct run *r)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < r->s->slots; i++) {
		struct slot *slot = &r->s->slot[i];

		if (!slot->used && r->next < r->count)
			*slot = (struct slot){.number = r->next++, .used = true};
		used += slot->used;
	}
	return used;
}

/* The next `count` tokens of a sequence, from row on; after its last one a token is drawn. */
static void add_tokens(struct run *r, uint32_t i, uint32_t row, uint32_t count)
{
	struct mft_sampler *s = r->s;
	struct slot *slot = &s->slot[i];
	struct mft_cached_step *step = &s->step;

	for (uint32_t k = 0; k < count; k++) {
		s->batch.tokens[row + k] = (int32_t)token_at(r, slot, slot->fed + k);
		s->batch.positions[row + k] = (int32_t)(slot->fed + k);
		step->sequence[row + k] = (int32_t)i;
	}
	slot->fed += count;
	if (slot->fed < length_of(r, slot))
		return;
	r->slot_of[step->draws] = i;
	step->row[step->draws] = (int32_t)(row + count - 1);
	step->seed[step->draws] = r->requests[slot->number].seed;
	step->number[step->draws++] = slot->fed; /* the position that it gets */
}

/* Each sequence that is generated has one token in the step, and prompts have what is left, but one
 * each at least. */
static void make_step(struct run *r, uint32_t used)
{
	struct mft_sampler *s = r->s;
	uint32_t left = s->tokens - used, row = 0;

	s->step.draws = 0;
	for (uint32_t i = 0; i < s->slots; i++) {
		const struct slot *slot = &s->slot[i];
		uint32_t count;

		if (!slot->used)
			continue;
		count = length_of(r, slot) - slot->fed;
		if (count > left + 1)
			count = left + 1;
		add_tokens(r, i, row, count);
		left -= count - 1;
		row += count;
	}
	for (; row < s->tokens; row++) {
		s->batch.tokens[row] = s->batch.positions[row] = 0;
		s->step.sequence[row] = -1;
	}
}

static int submit(struct run *r, struct mfs_error *err)
{
	struct mft_sampler *s = r->s;
	const struct mft_draw how = {
		.temperature = (float)r->how->temperature,
		.top_p = (float)r->how->top_p,
		.top_k = r->how->top_k,
		.vocab = s->vocab,
	};
	char why[MFK_WHY] = "";
	int rc = mft_net_extend(s->net, r->ctx, &s->batch, &s->step, err);

	if (rc)
		return rc;
	if (s->step.draws)
		mft_net_draw(s->net, r->ctx, &how, &s->step);
	rc = s->backend->device->sync(r->ctx, why);
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

/* What was drawn goes to its responses, some of which end with it. */
static int take_draws(struct run *r, struct mfs_error *err)
{
	struct mft_sampler *s = r->s;

	for (int64_t i = 0; i < s->step.draws; i++) {
		struct slot *slot = &s->slot[r->slot_of[i]];
		struct mft_response *to = &r->ret[slot->number];
		const int32_t token = s->step.token[i];

		if (token < 0)
			return mfs_fail(err, -EDOM,
					"prompt %zu, token %u of its response: the logits are not "
					"finite",
					slot->number + 1, to->count + 1);
		to->tokens[to->count] = (uint32_t)token;
		to->log_probs[to->count] = s->step.log_prob[i];
		to->first_version = to->count ? to->first_version : s->version;
		to->last_version = s->version;
		to->count++;
		to->finish = mft_sampling_stops(r->how, (uint32_t)token) ? MFT_FINISH_STOP
									 : MFT_FINISH_LENGTH;
		slot->used = to->finish != MFT_FINISH_STOP && to->count < room_of(r, slot->number);
		if (s->told)
			s->told(s->told_arg, slot->number, to);
	}
	return 0;
}

/* Whether a step is due. Where experts are divided no process can go without the others; where
 * tensors are, those that share them stop together. */
static int is_due(const struct run *r, uint32_t used, bool *ret, struct mfs_error *err)
{
	const struct mft_sampler *s = r->s;
	double all[] = {used, s->stop && s->stop()};
	int rc = 0;

	if (s->parallel->group[MFT_GROUP_EXPERT_TOKENS].size > 1)
		rc = mft_parallel_sum(s->parallel, MFT_GROUP_WORLD, all, 2, err);
	else if (s->stop && s->parallel->group[MFT_GROUP_TENSOR].size > 1 && r->steps % LOOK)
		all[1] = 0;
	else if (s->stop)
		rc = mft_parallel_sum(s->parallel, MFT_GROUP_TENSOR, &all[1], 1, err);
	*ret = all[0] > 0 && !(all[1] > 0);
	return rc;
}

static int go_on(struct run *r, struct mfs_error *err)
{
	bool due = true;
	int rc = 0;

	while (!rc && due) {
		const uint32_t used = fill_slots(r);

		rc = is_due(r, used, &due, err);
		if (rc || !due)
			break;
		make_step(r, used);
		r->steps++;
		rc = submit(r, err);
		if (!rc)
			rc = take_draws(r, err);
	}
	return rc;
}

int mft_sampler_run(struct mft_sampler *s, struct mfk_ctx *ctx, const struct mft_request *requests,
		    size_t count, const struct mft_sampling *how, struct mft_response *ret,
		    struct mfs_error *err)
{
	struct run r = {
		.s = s, .ctx = ctx, .requests = requests, .count = count, .how = how, .ret = ret};
	int rc = mft_sampling_check(how, err);

	for (size_t i = 0; !rc && i < count; i++)
		rc = check_request(s, &requests[i], i, err);
	if (rc)
		return rc;
	if (count)
		memset(ret, 0, count * sizeof(*ret));
	memset(s->slot, 0, s->slots * sizeof(*s->slot));
	r.slot_of = calloc(s->tokens, sizeof(*r.slot_of));
	rc = r.slot_of ? make_room(&r, err) : mfs_fail_nomem(err);
	if (!rc)
		rc = go_on(&r, err);
	free(r.slot_of);
	for (size_t i = 0; rc && i < count; i++)
		mft_response_release(&ret[i]);
	return rc;
}

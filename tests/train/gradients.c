/*
 * Gradients of every parameter, losses and the gradient's norm of several processes against those
 * of one: models of random shapes, the same weights and the same microbatches. Each process
 * computes both, and compares what it has. fp32, in which sums differ by their order alone.
 *
 *   CK_FORK=no LAYOUTS=100 mpirun -n 4 build/obj/tests/train/gradients
 *   CK_FORK=no TP=2 SP=1 mpirun -n 2 build/obj/tests/train/gradients
 *
 * LAYOUTS: so many models, each divided in another way: all dimensions, the ways to attend
 * together, chunks of stages, and what FSDP divides are drawn. FIRST: the number of the first one.
 *
 * TP: --tensor-model-parallel-size; SP: --sequence-parallel; EP, ETP: of experts, which the models
 * have then. FSDP: --use-megatron-fsdp, with each strategy, and two microbatches for each place.
 * LATE: communication in parallel with the passes comes as late as they allow. MPI: the plugin's
 * path.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/train/late.h"
#include "tests/train/drawn_layout.h"
#include "tests/unit/train_model.h"
#include "trainer/optim/sync.h"
#include "trainer/parallel/launch.h"

#define MODELS 12
#define SPREAD 0.3f
/* Of a parameter's greatest gradient. 2.1e-5 was seen: products add up in another order on another
 * processor. A term that is missing or counted twice is off by a good part of the whole. */
#define WITHIN 5e-5
/* Tokens of a policy pull in both directions, and what is left may be small. */
#define WITHIN_OF_POLICY 3e-4

static struct mfs_error err;
static uint64_t seed;

static struct layout layout; /* of the model at hand */

static int64_t below(int64_t end)
{
	return layout_below(&seed, end);
}

/* ---- models of random shapes ---- */

/* Llama: RMSNorm, RoPE, a gated MLP. Everything is divided by as many as four, but for the groups
 * of queries: as few as one are shared. */
static struct mft_train_config plain(void)
{
	struct mft_train_config c = {
		.micro_batch_size = 1 + below(3),
		.seq_length = layout_tokens(&layout) * (1 + below(4)),
		.sequence_parallel = layout.sequence_parallel,
		.model = train_plain_model(),
	};

	c.model.num_layers = layout_draw_count(&layout, &seed);
	c.model.hidden_size = 8 * (1 + below(5));
	c.model.ffn_hidden_size = 4 * (1 + below(12));
	c.model.num_attention_heads = 4 * (1 + below(2));
	c.model.num_query_groups = 1 << below(3);
	c.model.kv_channels = 2 * (1 + below(8));
	c.model.vocab_size = 61;
	c.model.padded_vocab_size = 64 + 4 * below(6);
	c.model.make_vocab_size_divisible_by = 4;
	c.model.swiglu = true;
	c.model.local_spec = false;
	c.model.seq_length = c.seq_length;
	c.model.max_position_embeddings = c.seq_length + 3;
	/* Each process drops scores of its own heads. */
	if (layout.drawn && layout.size.tp == 1 && below(2))
		c.attention_dropout = 0.2;
	train_config_types(&c, MFS_F32);
	return c;
}

/* LayerNorm, biases, learned positions, a tied head, dropout of the stream. */
static struct mft_train_config gpt2_like(void)
{
	struct mft_train_config c = plain();

	c.model.layernorm = c.model.add_bias_linear = c.model.tied = true;
	c.model.swiglu = false;
	c.model.num_query_groups = c.model.num_attention_heads;
	c.model.position_embedding_type = "learned_absolute";
	c.hidden_dropout = 0.2;
	return c;
}

static struct mft_train_config qwen2_like(void)
{
	struct mft_train_config c = plain();

	c.model.add_qkv_bias = c.model.tied = true;
	c.model.window_size = 3;
	return c;
}

static struct mft_train_config qwen3_like(void)
{
	struct mft_train_config c = plain();

	c.model.qk_layernorm = true;
	c.model.layernorm = below(2);
	/* Of two numbers a LayerNorm leaves little but their signs: where they are near each other
	 * their gradients are mostly rounding. */
	if (c.model.layernorm)
		c.model.kv_channels += 4;
	c.recompute_granularity = MFT_RECOMPUTE_FULL;
	c.recompute_method = "uniform";
	c.recompute_num_layers = 1;
	return c;
}

/* The local spec's down projections: four processes share their rows. */
static void divide_downs(struct mfs_megatron_args *m)
{
	m->local_spec = true;
	if (m->q_lora_rank != MFS_ABSENT)
		m->q_lora_rank = (m->q_lora_rank + 3) / 4 * 4;
	m->kv_lora_rank = (m->kv_lora_rank + 3) / 4 * 4 + m->qk_pos_emb_head_dim % 4;
}

/* The dense layers of deepseek. */
static struct mft_train_config deepseek_like(void)
{
	static const char *const modules[] = {"layernorm", "mlp"};
	struct mft_train_config c = plain();

	c.model.multi_latent_attention = true;
	c.model.num_query_groups = c.model.num_attention_heads;
	c.model.qk_layernorm = below(2);
	c.model.rope_type = "rope";
	c.model.q_lora_rank = below(2) ? MFS_ABSENT : 5 + below(9);
	c.model.kv_lora_rank = 3 + below(9);
	c.model.qk_head_dim = 1 + below(9);
	c.model.qk_pos_emb_head_dim = 2 * (1 + below(3));
	c.model.v_head_dim = 1 + below(9);
	c.model.rotary_scaling_factor = c.model.mscale = 1;
	if (below(2))
		divide_downs(&c.model);
	c.recompute_granularity = MFT_RECOMPUTE_SELECTIVE;
	c.recompute_modules = (struct mfs_arg_words){modules, 2};
	return c;
}

/* Layers of one kind or the other that predict further tokens. */
static struct mft_train_config ahead_like(void)
{
	struct mft_train_config c = below(2) ? deepseek_like() : gpt2_like();

	c.model.mtp_num_layers = 1 + below(2);
	c.mtp_loss_scaling_factor = 0.5;
	/* The last of several stages has no copy of position embeddings. */
	if (layout.size.pp > 1)
		c.model.position_embedding_type = "rope";
	return c;
}

static struct mft_train_config (*const families[])(void) = {plain,	gpt2_like,     qwen2_like,
							    qwen3_like, deepseek_like, ahead_like};
#define FAMILIES ((int)(MFS_ARRAY_SIZE(families)))

/* Layers, or parts of them, that are run again. Stages may have as few as one layer. */
static void draw_again(struct mft_train_config *c)
{
	static const char *const modules[] = {
		"core_attn", "moe_act", "layernorm", "shared_experts", "mla_up_proj", "mlp", "moe"};
	const int64_t first = below(7);
	const int64_t layers = layout.size.pp > 1 ? 1 : c->model.num_layers;

	c->recompute_granularity = (enum mft_recompute)below(MFT_RECOMPUTE_FULL + 1);
	c->recompute_method = below(2) ? "uniform" : "block";
	c->recompute_num_layers = 1 + below(layers);
	c->recompute_modules =
		(struct mfs_arg_words){modules + first, (size_t)(1 + below(7 - first))};
}

/* ---- models of experts ---- */

/* Often more experts than a microbatch has tokens. Everything is divided by as many as four. */
static void add_experts(struct mft_train_config *c)
{
	static const uint8_t all[] = {1, 1, 1, 1, 1, 1, 1, 1}, later[] = {0, 1, 1, 1, 1, 1, 1, 1};

	c->model.num_experts = 4 * (1 + below(5));
	c->model.moe_router_topk = 1 + below(4);
	c->model.moe_layers = c->model.num_layers > 1 && below(2) ? later : all;
	c->model.moe_ffn_hidden_size = 4 * (1 + below(6));
	c->moe_aux_loss_coeffs[below(2) ? MFT_AUX_LOSS : MFT_SEQ_AUX_LOSS] = 0.1;
	c->moe_router_bias_update_rate = 0.125;
}

/* Experts of some groups alone. */
static void add_groups(struct mft_train_config *c)
{
	const int64_t each = c->model.num_experts / 2, topk = c->model.moe_router_topk;

	c->model.moe_router_num_groups = 2;
	c->model.moe_router_group_topk = topk > each || (topk % 2 == 0 && below(2)) ? 2 : 1;
}

static struct mft_train_config mixtral_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c);
	c.moe_z_loss_coeff = 0.01;
	c.model.moe_router_pre_softmax = below(2);
	if (layout.drawn && below(2))
		add_groups(&c);
	c.hidden_dropout = below(2) ? 0.2 : 0;
	return c;
}

/* A bias, shared experts, a router of more digits. */
static struct mft_train_config biased_like(void)
{
	static const char *const modules[] = {"moe_act", "shared_experts"};
	struct mft_train_config c = plain();

	add_experts(&c);
	c.model.moe_router_score_function = "sigmoid";
	c.model.moe_router_enable_expert_bias = true;
	c.model.moe_shared_expert_intermediate_size = 4 * (1 + below(6));
	c.moe_router_dtype = "fp32";
	c.model.mtp_num_layers = below(2);
	c.mtp_loss_scaling_factor = 0.5;
	c.moe_shared_expert_overlap = layout.drawn && below(2);
	c.recompute_granularity = below(2) ? MFT_RECOMPUTE_SELECTIVE : MFT_RECOMPUTE_NONE;
	c.recompute_modules = (struct mfs_arg_words){modules, 2};
	return c;
}

/* Biases of experts and of their router; each expert is whole. */
static struct mft_train_config all_biased_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c);
	c.model.layernorm = true;
	c.model.add_bias_linear = layout.size.etp == 1;
	c.model.swiglu = below(2);
	c.moe_router_dtype = below(2) ? "fp32" : NULL;
	return c;
}

/* A gate of shared experts, per-token loss, layers that are run again, random logits. */
static struct mft_train_config gated_like(void)
{
	struct mft_train_config c = plain();

	add_experts(&c);
	c.model.moe_shared_expert_intermediate_size = 4 * (1 + below(6));
	c.model.moe_shared_expert_gate = true;
	c.moe_router_force_load_balancing = layout.drawn && below(2);
	c.calculate_per_token_loss = true;
	c.recompute_granularity = MFT_RECOMPUTE_FULL;
	c.recompute_method = "uniform";
	c.recompute_num_layers = 1;
	return c;
}

static struct mft_train_config (*const expert_families[])(void) = {mixtral_like, biased_like,
								   all_biased_like, gated_like};
#define EXPERT_FAMILIES ((int)(MFS_ARRAY_SIZE(expert_families)))

/* ---- the same model, divided ---- */

static struct mft_parallel parallel;

/* MPI ends with the last group: a test that opens some again has another one until then. */
static void open_groups(const struct mft_launch *launch, const struct mft_parallel_sizes *sizes,
			struct mft_parallel *ret)
{
	mft_parallel_places(launch, sizes, ret);
	unit_ok(mft_parallel_open(ret, &mfk_cpu, NULL, 600, &err), &err);
}

static struct mft_sync *sync_of_part;

/* What processes that have the same parameters divide of them, and what runs in parallel with the
 * passes. */
static void divide(struct mft_train_config *c)
{
	c->ddp_num_buckets = c->ddp_bucket_size = MFS_ABSENT;
	if (!layout.sharded)
		return;
	c->sharding = (enum mft_sharding)below(MFT_SHARD_WEIGHTS + 1);
	if (layout.size.instances > 1)
		c->sharding = MFT_SHARD_STATE;
	c->overlap_grad_reduce = below(2);
	c->overlap_param_gather = c->overlap_grad_reduce && below(2);
	if (below(2))
		c->ddp_bucket_size = 100 + below(2000);
}

static void open_sync(struct train_model *m)
{
	struct mft_net_hooks hooks;

	unit_ok(mft_sync_new(&m->config, m->params, &m->memory, &mfk_cpu, m->device, &parallel,
			     &sync_of_part, &err),
		&err);
	train_model_place(m);
	hooks = mft_sync_hooks(sync_of_part);
	mft_net_set_hooks(m->net, &hooks);
}

static struct train_model *divided_new(const struct mft_train_config *config)
{
	struct train_model *m = calloc(1, sizeof(*m));
	char why[MFK_WHY] = "";

	m->config = *config;
	m->parallel = parallel;
	divide(&m->config);
	ck_assert_msg(!mfk_cpu.device->open(0, 1, &m->device, why), "%s", why);
	ck_assert_msg(!mfk_cpu.device->ctx_new(m->device, false, &m->ctx, why), "%s", why);
	unit_ok(mft_params_new(&m->config, &parallel, &m->params, &err), &err);
	open_sync(m);
	if (getenv("LATE"))
		late_begin(&parallel, m->net);
	unit_ok(mft_net_begin(m->net, m->ctx, &err), &err);
	return m;
}

static const struct mft_param *whole_of(const struct train_model *one, const struct mft_param *p)
{
	const struct mfs_global_tensor *t = p->tensor;
	const struct mft_param *whole = mft_params_find(one->params, t->name, t->layer, t->expert);

	ck_assert_ptr_nonnull(whole);
	return whole;
}

struct copy {
	float *to;
	const float *from;
};

static int copy_run(void *arg, const struct mft_param_run *run)
{
	const struct copy *c = arg;

	memcpy(c->to + run->first, c->from + run->whole_first, run->count * sizeof(float));
	return 0;
}

/* This process's elements of what one process has in a flat buffer. */
static void take_part(const struct mft_param *p, const struct mft_param *whole, const void *flat,
		      float *to)
{
	struct copy c = {to, (const float *)flat + whole->start};

	mft_param_runs(p, 0, p->elements, copy_run, &c);
}

static float *part_of(const struct mft_param *p, const struct mft_param *whole, const void *flat)
{
	float *to = malloc(p->elements * sizeof(*to));

	take_part(p, whole, flat, to);
	return to;
}

/* The elements of a parameter that a flat buffer has. */
static uint64_t next_stretch(const struct mft_params *p, bool owned, uint64_t *at, uint64_t end)
{
	return owned ? mft_params_owned(p, at, end) : end - *at;
}

static void take_weights(struct train_model *part, const struct train_model *one)
{
	const struct mft_params *all = part->params;

	for (uint32_t i = 0; i < all->count; i++) {
		const struct mft_param *p = &all->list[i];
		float *from = part_of(p, whole_of(one, p), one->params->weights);
		const uint64_t end = p->start + p->elements;
		uint64_t n;

		for (uint64_t at = p->start;
		     (n = next_stretch(all, all->sharding >= MFT_SHARD_WEIGHTS, &at, end)); at += n)
			memcpy(mft_params_flat(all, MFS_STATE_MODEL, at).at, from + (at - p->start),
			       n * sizeof(*from));
		free(from);
	}
}

/* Of those that a stage has. */
static float *whole_buffer(const struct train_model *one, const struct mft_model_buffer *b)
{
	const struct mft_model_buffer *whole =
		mft_params_find_buffer(one->params, b->tensor->name, b->tensor->layer);

	ck_assert_ptr_nonnull(whole);
	ck_assert_uint_eq(whole->elements, b->elements);
	return one->params->buffers + whole->start;
}

/* Where there is a bias, all tokens go to the same few experts. */
static void skew(struct train_model *part, struct train_model *one)
{
	for (uint32_t i = 0; i < one->params->buffer_count; i++) {
		const struct mft_model_buffer *b = &one->params->buffer_list[i];

		one->params->buffers[b->start + (uint64_t)below((int64_t)b->elements)] = 10;
	}
	for (uint32_t i = 0; i < part->params->buffer_count; i++) {
		const struct mft_model_buffer *b = &part->params->buffer_list[i];

		memcpy(part->params->buffers + b->start, whole_buffer(one, b),
		       b->elements * sizeof(float));
	}
}

/* ---- comparisons ---- */

/* Elements of a parameter that the process owns, from at on. */
static void compare_stretch(const struct train_model *part, const struct mft_param *p, uint64_t at,
			    uint64_t count, const float *want, float most, double *squares)
{
	const double within = part->config.perform_rl_step ? WITHIN_OF_POLICY : WITHIN;
	const float *found = mft_params_grads_at(part->params, at);
	char name[MFS_CKPT_NAME_SIZE];

	for (uint64_t e = 0; e < count; e++) {
		ck_assert_msg(fabsf(found[e] - want[e]) <= within * most,
			      "model %d, %s, element %zu of %zu: %g instead of %g, the greatest is "
			      "%g",
			      layout.model, mfs_global_tensor_name(p->tensor, name, sizeof(name)),
			      (size_t)(at - p->start + e), (size_t)p->elements, found[e], want[e],
			      most);
		squares[p->is_expert] += p->counts ? (double)found[e] * found[e] : 0;
	}
}

static void compare_gradient(const struct train_model *part, const struct train_model *one,
			     const struct mft_param *p, double *squares)
{
	const struct mft_param *whole = whole_of(one, p);
	const float *all = (const float *)one->params->grads + whole->start;
	const uint64_t end = p->start + p->elements;
	float *want = part_of(p, whole, one->params->grads), most = 0;
	char name[MFS_CKPT_NAME_SIZE];

	for (uint64_t e = 0; e < whole->elements; e++)
		most = fmaxf(most, fabsf(all[e]));
	/* No token may have chosen an expert. */
	ck_assert_msg(most > 0 || p->is_expert, "model %d, %s has no gradient", layout.model,
		      mfs_global_tensor_name(p->tensor, name, sizeof(name)));
	for (uint64_t at = p->start, n; (n = mft_params_owned(part->params, &at, end)); at += n)
		compare_stretch(part, p, at, n, want + (at - p->start), most, squares);
	free(want);
}

/* Each element of the model counts in one process of an instance, or, where nothing is divided, in
 * as many as have the same. squares: of dense parameters, of experts. */
static void compare_norms(const struct train_model *one, const struct train_model *part,
			  double squares[2])
{
	const bool divided = part->params->sharding != MFT_SHARD_NONE;
	const enum mft_group among = mft_parallel_in_instance(&parallel, MFT_GROUP_WORLD);
	const float *grads = one->params->grads;
	double want = 0, found;

	for (uint64_t e = 0; e < one->params->elements; e++)
		want += (double)grads[e] * grads[e];
	unit_ok(mft_parallel_sum(&parallel, divided ? among : MFT_GROUP_MODEL, &squares[0], 1,
				 &err),
		&err);
	unit_ok(mft_parallel_sum(&parallel, divided ? among : MFT_GROUP_EXPERT_MODEL, &squares[1],
				 1, &err),
		&err);
	found = squares[0] + squares[1];
	ck_assert_msg(fabs(found - want) <= 1e-4 * want,
		      "model %d, the squares are %g instead of %g", layout.model, found, want);
}

/* Those of a layer are no parameters, and whole in each process that has it. */
static void compare_biases(struct train_model *part, struct train_model *one)
{
	struct train_model *const both[] = {part, one};

	for (int i = 0; i < 2; i++) {
		unit_ok(mft_net_update_expert_bias(both[i]->net, both[i]->ctx, &err), &err);
		train_model_sync(both[i]);
	}
	for (uint32_t i = 0; i < part->params->buffer_count; i++) {
		const struct mft_model_buffer *b = &part->params->buffer_list[i];

		ck_assert(!memcmp(part->params->buffers + b->start, whole_buffer(one, b),
				  b->elements * sizeof(float)));
	}
}

/* ---- microbatches ---- */

#define MOST_MICROBATCHES 32

/* Microbatches of data parallel places: each has its own, numbered as one process would. */
struct batches {
	uint64_t seed, counted; /* tokens of each */
	uint32_t count;
	int64_t split; /* where they become two documents; 0: they do not */
};

static struct mft_batch *batch_new(const struct mft_train_config *c, const struct batches *all,
				   uint32_t number)
{
	struct mft_batch *b = train_batch_new(c->micro_batch_size, c->seq_length, 61,
					      all->seed + number * UINT64_C(1000));

	if (all->split)
		train_batch_split(b, c->micro_batch_size, c->seq_length, all->split);
	train_batch_look_ahead(b, c->micro_batch_size, c->seq_length, c->model.mtp_num_layers);
	if (c->perform_rl_step)
		train_batch_add_policy(b, c->micro_batch_size, c->seq_length, all->seed + number);
	return b;
}

/* The tokens of a batch that are the process's. */
static void take_tokens(struct mft_batch *to, const struct mft_batch *from, int64_t t, int64_t at)
{
	to->tokens[t] = from->tokens[at];
	to->labels[t] = from->labels[at];
	to->positions[t] = from->positions[at];
	to->first_key[t] = from->first_key[at];
	to->loss_mask[t] = from->loss_mask[at];
	for (uint32_t k = 0; k < from->ahead_count; k++) {
		to->ahead[k].tokens[t] = from->ahead[k].tokens[at];
		to->ahead[k].labels[t] = from->ahead[k].labels[at];
		to->ahead[k].positions[t] = from->ahead[k].positions[at];
		to->ahead[k].loss_mask[t] = from->ahead[k].loss_mask[at];
	}
}

static void take_policy(struct mft_batch *to, const struct mft_batch *from, int64_t t, int64_t at)
{
	to->old[t] = from->old[at];
	to->reference[t] = from->reference[at];
	to->rollout[t] = from->rollout[at];
	to->advantage[t] = from->advantage[at];
	to->sequence[t] = from->sequence[at];
}

static struct mft_batch *part_of_batch(const struct mft_train_config *c, struct mft_batch *whole)
{
	const uint32_t parts = layout.size.cp;
	const int64_t seq = c->seq_length / parts, tokens = c->micro_batch_size * seq;
	struct mft_batch *b;

	if (parts == 1)
		return whole;
	b = train_batch_new(c->micro_batch_size, seq, 61, 1);
	train_batch_look_ahead(b, c->micro_batch_size, seq, c->model.mtp_num_layers);
	if (c->perform_rl_step)
		train_batch_add_policy(b, c->micro_batch_size, seq, 1);
	for (int64_t t = 0; t < tokens; t++) {
		const int64_t at =
			t / seq * c->seq_length +
			mft_context_position(parts, parallel.place.cp, c->seq_length, t % seq);

		take_tokens(b, whole, t, at);
		if (c->perform_rl_step)
			take_policy(b, whole, t, at);
	}
	train_batch_finish(b, tokens);
	b->counted = whole->counted;
	b->documents = whole->documents;
	for (uint32_t k = 0; k < b->ahead_count; k++) {
		train_sort(b->ahead[k].order, b->ahead[k].tokens, tokens);
		train_sort(b->ahead[k].position_order, b->ahead[k].positions, tokens);
		b->ahead[k].counted = whole->ahead[k].counted;
	}
	train_batch_free(whole);
	return b;
}

/* ---- runs ---- */

static double loss_of(struct train_model *m, const struct batches *all)
{
	struct mft_net_losses losses;

	unit_ok(mft_net_losses(m->net, m->ctx, &losses, &err), &err);
	return train_loss_of(&m->config, &losses, all->counted);
}

/* The loss of all microbatches. */
static double run_one(struct train_model *m, struct batches *all)
{
	mft_net_clear_losses(m->net, m->ctx);
	for (uint32_t i = 0; i < all->count; i++) {
		struct mft_batch *b = batch_new(&m->config, all, i);
		const struct mft_microbatch_info info = {.batch = b,
							 .grad_scale = 1,
							 .backward = true,
							 .iteration = 3,
							 .microbatch = i};

		unit_ok(mft_net_run(m->net, m->ctx, &info, &err), &err);
		train_model_sync(m);
		all->counted = b->counted;
		train_batch_free(b);
	}
	return loss_of(m, all);
}

/* Brings a microbatch of this place to the device. */
static struct mft_batch *take(struct train_model *m, const struct batches *all,
			      const struct mft_pipeline_step *step)
{
	const struct mft_group_place *data = &parallel.group[MFT_GROUP_DATA];
	const uint64_t number = step->microbatch * data->size + data->rank;
	struct mft_batch *b =
		part_of_batch(&m->config, batch_new(&m->config, all, (uint32_t)number));
	const struct mft_microbatch_info info = {
		.batch = b,
		.grad_scale = 1,
		.backward = true,
		.first = step->microbatch == 0,
		.last = step->microbatch + 1 == layout.microbatches,
		.iteration = 3,
		.microbatch = number,
	};

	unit_ok(mft_net_take(m->net, m->ctx, step->batch, &info, &err), &err);
	return b;
}

/* Runs the steps of a stage, and what processes do after them. */
static void run_steps(struct train_model *m, const struct batches *all,
		      const struct mft_pipeline *p)
{
	struct mft_batch *taken[MOST_MICROBATCHES];
	uint32_t count = 0;

	for (uint64_t i = 0; i < p->count; i++) {
		if (p->steps[i].first)
			taken[count++] = take(m, all, &p->steps[i]);
		mft_net_step(m->net, m->ctx, &p->steps[i]);
	}
	mft_net_end(m->net, m->ctx);
	mft_sync_reduce(sync_of_part, m->ctx);
	mft_net_sum_gradients(m->net, m->ctx);
	train_model_sync(m);
	while (count)
		train_batch_free(taken[--count]);
}

static double run_part(struct train_model *m, const struct batches *all)
{
	struct mft_pipeline_shape shape;
	struct mft_pipeline p;
	double loss;

	ck_assert_uint_le(layout.microbatches, MOST_MICROBATCHES);
	mft_net_pipeline(m->net, layout.microbatches, true, &shape);
	unit_ok(mft_pipeline_new(&shape, parallel.place.pp, &p, &err), &err);
	ck_assert(mft_net_has_room(m->net, &p));
	mft_net_clear_grads(m->net, m->ctx);
	mft_net_clear_losses(m->net, m->ctx);
	mft_sync_begin(sync_of_part);
	run_steps(m, all, &p);
	mft_pipeline_release(&p);
	loss = loss_of(m, all);
	unit_ok(mft_parallel_sum(&parallel, MFT_GROUP_GRADS, &loss, 1, &err), &err);
	unit_ok(mft_parallel_sum(&parallel, MFT_GROUP_PIPELINE, &loss, 1, &err), &err);
	return loss;
}

static void compare(const struct mft_train_config *config)
{
	struct train_model *one = train_model_new(config), *part = divided_new(config);
	struct batches all = {.seed = seed,
			      .count = layout.microbatches * layout.size.dp,
			      .split = below(2) ? 3 + below(config->seq_length - 3) : 0};
	double squares[2] = {0}, want, found;

	train_model_random(one, seed, SPREAD);
	take_weights(part, one);
	if (below(3) == 0)
		skew(part, one);
	want = run_one(one, &all);
	found = run_part(part, &all);
	/* A policy's losses have both signs. */
	ck_assert_msg(fabs(found - want) <=
			      1e-6 * fmax(fabs(want), config->perform_rl_step ? all.counted : 0),
		      "model %d, the loss is %.9g instead of %.9g", layout.model, found, want);
	for (uint32_t i = 0; i < part->params->count; i++) {
		const struct mft_param *p = &part->params->list[i];

		/* Of two copies of an embedding, that which nobody reads. */
		if (!p->part.is_copy || p->part.is_shared)
			compare_gradient(part, one, p, squares);
	}
	compare_norms(one, part, squares);
	compare_biases(part, one);
	train_model_sync(part);
	mft_sync_free(sync_of_part);
	sync_of_part = NULL;
	train_model_free(part);
	train_model_free(one);
}

/* ---- tests ---- */

/* The loss of a policy, in the place of the model's own. */
static void draw_policy(struct mft_train_config *c)
{
	static const char *const losses[] = {"clip", "gspo", "cispo", "plain"};
	static const char *const kls[] = {"k1", "k2", "k3"};

	c->perform_rl_step = true;
	c->rl_loss = losses[below(4)];
	c->rl_kl_type = kls[below(3)];
	c->rl_dual_clip = 2 * (double)below(2);
	c->rl_importance_sampling_level = "token";
	c->rl_importance_sampling_mode = below(2) ? "mask" : "truncate";
	c->rl_inference_logprobs_is_correction = below(2);
	c->rl_importance_sampling_truncation_coef = 1.1;
	c->grpo_clamp_eps_lower = 0.2;
	c->grpo_clamp_eps_upper = 0.3;
	c->grpo_kl_beta = 0.1; /* or nothing has a gradient, where all tokens are clipped */
	c->grpo_entropy_term_weight = 0.05 * (double)below(2);
	c->rl_default_temperature = 0.5 * (double)(1 + below(3));
}

static void run_model(struct mft_train_config (*family)(void), int number)
{
	struct mft_train_config config = family();

	layout.model = number;
	if (layout.drawn && below(2))
		draw_again(&config);
	if (layout.drawn && config.model.mtp_num_layers <= 0 && below(4) == 0)
		draw_policy(&config);
	layout_tell(&layout, &seed, &config);
	if (layout.drawn && !parallel.launch.rank)
		layout_print(&layout, &config);
	compare(&config);
}

/* Each model at a layout of its own. Of experts with nearly the same score a token may choose
 * another one when sums are added up in another order: of 14000 models one had such a token. */
static void run_layouts(const struct mft_launch *launch)
{
	const int first = (int)layout_setting("FIRST", 0);

	for (int i = first; i < first + (int)layout_setting("LAYOUTS", 0); i++) {
		const int of = i % (FAMILIES + EXPERT_FAMILIES);
		const bool experts = of >= FAMILIES;

		seed = (uint64_t)i;
		layout_draw(&layout, &seed, launch->size, experts);
		open_groups(launch, &layout.size, &parallel);
		run_model(experts ? expert_families[of - FAMILIES] : families[of], i);
		unit_ok(mft_parallel_close(&parallel, &err), &err);
	}
}

/* All models at the layout that the environment says. */
static void run_models(const struct mft_launch *launch)
{
	const bool experts = getenv("EP") || getenv("ETP");
	const int count = experts ? EXPERT_FAMILIES : FAMILIES;

	layout_from_environment(&layout, launch->size);
	open_groups(launch, &layout.size, &parallel);
	for (int i = 0; i < MODELS * count; i++) {
		seed = (uint64_t)i;
		run_model((experts ? expert_families : families)[i % count], i);
	}
	unit_ok(mft_parallel_close(&parallel, &err), &err);
}

START_TEST(test_processes_compute_as_one)
{
	const char *plugin = getenv("MPI");
	struct mft_parallel_sizes sizes = {.tp = 1, .cp = 1, .pp = 1, .etp = 1, .ep = 1};
	struct mft_launch launch;
	struct mft_parallel all;
	char why[MFK_WHY] = "";

	unit_ok(mft_launch_find(&launch, &err), &err);
	if (launch.size > 1)
		ck_assert_msg(!mfk_mpi_load(plugin ? plugin : "build/libmcorefs-mpi.so", why), "%s",
			      why);
	sizes.dp = sizes.edp = launch.size;
	open_groups(&launch, &sizes, &all);
	if (getenv("LAYOUTS"))
		run_layouts(&launch);
	else
		run_models(&launch);
	ck_assert(!getenv("LATE") || late_count > 0);
	unit_ok(mft_parallel_close(&all, &err), &err);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gradients");

	unit_case(s, "gradients", test_processes_compute_as_one);
	return s;
}

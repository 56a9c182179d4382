#include "trainer/params/params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/str.h"
#include "formats/ckpt/names.h"
#include "formats/megatron/blank.h"
#include "formats/megatron/rank.h"
#include "formats/optim/rules/optim_rules.h"
#include "trainer/config/precision.h"

#define DECODER	  "decoder.layers."
#define MTP	  "mtp.layers."
#define MTP_INNER "mtp.layers.transformer_layer."

static const struct mfs_layout whole = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};

/* ---- the rules of this run ---- */

/* Rows of the embedding. megatron/core/tokenizers/utils/build_tokenizer.py:
 * vocab_size_with_padding. */
static int find_vocab(const struct mfs_megatron_args *a, uint32_t tp, uint64_t *ret,
		      struct mfs_error *err)
{
	const uint64_t divisor =
		(a->make_vocab_size_divisible_by > 0 ? (uint64_t)a->make_vocab_size_divisible_by
						     : 1) *
		tp;
	uint64_t rows;

	if (a->padded_vocab_size > 0) {
		*ret = (uint64_t)a->padded_vocab_size;
		return 0;
	}
	if (a->vocab_size <= 0)
		return mfs_fail(err, -EINVAL,
				"the size of the vocabulary is not known: --vocab-size, or a "
				"tokenizer, says it");
	rows = (uint64_t)a->vocab_size + divisor - 1;
	*ret = rows - rows % divisor;
	return 0;
}

/* A Megatron of today: docs/formats/optimizer.md. */
static struct mfs_optim_rules rules_of(const struct mft_train_config *config)
{
	return (struct mfs_optim_rules){.sorted_groups = true,
					.expert_tensor_groups = true,
					.grad_fp32 = true,
					.aligned = true,
					.decay_qk_norms = config->apply_wd_to_qk_layernorm,
					.decoupled_lr = config->decoupled_lr >= 0};
}

static bool is_norm(const char *name)
{
	return strstr(name, "layernorm.") || mfs_str_ends(name, "norm.weight");
}

/* A gated delta net's: core/ssm/gated_delta_net.py: reset_parameters; a Conv1d begins as torch's
 * does. False: it is no such parameter. */
static bool set_delta_init(const struct mfs_megatron_args *a, struct mft_param *p)
{
	const char *name = p->tensor->name;
	const float bound = 1 / sqrtf((float)a->linear_conv_kernel_dim);

	if (mfs_str_ends(name, ".conv1d.weight")) {
		p->init_uniform.low = -bound;
		p->init_uniform.high = bound;
	} else if (mfs_str_ends(name, ".A_log")) {
		p->init_uniform.low = 1;
		p->init_uniform.high = 16;
		p->init_uniform.logarithm = true;
	} else if (mfs_str_ends(name, ".dt_bias")) {
		p->init_value = 1;
	} else {
		return false;
	}
	return true;
}

/* What the matrices that end a sublayer are divided by the root of: twice the layers, of which a
 * HybridModel has two a block; with --is-hybrid-model its layers, once. */
static double sublayers(const struct mft_train_config *config)
{
	const double blocks = (double)config->model.num_layers;

	return config->model.hybrid_form && !config->is_hybrid_model ? 4 * blocks : 2 * blocks;
}

/* How a parameter begins: core/transformer/transformer_config.py: init_method,
 * output_layer_init_method, embedding_init_method; core/utils.py: scaled_init_method_normal;
 * core/transformer/moe/router.py: Router.reset_parameters, which draws the bias, too. */
static void set_init(const struct mft_train_config *config, struct mft_param *p)
{
	const char *name = p->tensor->name;
	const struct mfs_megatron_args *a = &config->model;
	const double std = a->init_method_std, narrow = sqrt(a->mup.on ? a->mup.width : 1);
	const double embedding =
		config->embedding_init_method_std >= 0 ? config->embedding_init_method_std : std;

	p->init_std = -1;
	if (set_delta_init(a, p))
		return;
	if (mfs_str_ends(name, ".bias") && !mfs_str_ends(name, "router.bias"))
		return;
	if (is_norm(name)) {
		p->init_value = a->zero_centered_gamma ? 0 : 1;
		return;
	}
	p->init_std = std / narrow;
	if (mfs_str_ends(name, "linear_proj.weight") || mfs_str_ends(name, "out_proj.weight") ||
	    mfs_str_ends(name, "linear_fc2.weight"))
		p->init_std = std / (sqrt(sublayers(config)) * narrow);
	/* gpt_model.py: a head of its own begins as the embedding does. */
	if (strstr(name, "_embeddings.") || (a->mup.on && !strcmp(name, "output_layer.weight")))
		p->init_std = embedding;
}

/* optimizer/__init__.py: get_mup_config_overrides: the rate of matrices, with SGD that of all
 * else. */
static bool has_mup_rate(const struct mft_train_config *config, const char *name, unsigned ndim)
{
	const bool vector = ndim <= 1 || !strncmp(name, "embedding.", 10) ||
			    !strcmp(name, "output_layer.weight");

	return config->model.mup.on && config->model.mup.width != 1 &&
	       vector == mft_optimizer_kind(config->optimizer)->mup_of_vectors;
}

/* ---- the list ---- */

/* Gives elements of a tensor a place at the end of a buffer. */
static int place(const struct mfs_rank_tensor *t, uint64_t *end, uint64_t *ret_start,
		 uint64_t *ret_elements, struct mfs_error *err)
{
	const uint64_t elements = t->base.bytes / mfs_dtype_size(t->base.dtype);
	char name[MFS_CKPT_NAME_SIZE];

	*ret_start = *end;
	*ret_elements = elements;
	if (mfs_add_overflows(*end, mfs_round_up(elements, MFT_PARAM_ALIGN), end) ||
	    *end > UINT64_MAX / 16)
		return mfs_fail(err, -EINVAL, "the model is too large: '%s' does not fit",
				mfs_global_tensor_name(t->src, name, sizeof(name)));
	return 0;
}

static uint32_t index_of(const struct mft_params *p, const struct mfs_global_tensor *t)
{
	return (uint32_t)(t - mfs_ckpt_at(p->ckpt, 0));
}

/* Whole tensors are drawn one after the other, as one process would have them: numbers do not
 * depend on who has which part. */
static int number_draws(struct mft_params *p, uint64_t **ret, struct mfs_error *err)
{
	struct mfs_rank_list *list;
	uint64_t *from = calloc(mfs_ckpt_count(p->ckpt) + 1u, sizeof(*from)), end = 0;
	int rc = from ? mfs_rank_list_new(p->ckpt, &whole, &(struct mfs_rank){0},
					  mfs_layer_spec_of(p->ckpt), 0, &list, err)
		      : mfs_fail_nomem(err);

	if (rc) {
		free(from);
		return rc;
	}
	for (uint32_t i = 0; i < list->count; i++) {
		const struct mfs_rank_tensor *t = &list->tensors[i];

		if (!t->base.ops || !t->is_parameter)
			continue;
		from[index_of(p, t->src)] = end;
		end += mfs_round_up(t->base.bytes / mfs_dtype_size(t->base.dtype), MFT_PARAM_ALIGN);
	}
	mfs_rank_list_free(list);
	*ret = from;
	return 0;
}

static bool counts_here(const struct mft_parallel *parallel, const struct mfs_rank_tensor *t)
{
	if (t->is_copy)
		return false;
	return !parallel || t->split != MFS_TP_NONE ||
	       !(t->is_expert ? parallel->place.etp : parallel->place.tp);
}

static bool is_mtp(const struct mfs_global_tensor *t)
{
	return !strncmp(t->name, MTP, strlen(MTP));
}

static int32_t unit_of(const struct mfs_megatron_args *args, const struct mfs_global_tensor *t)
{
	if (t->layer >= 0)
		return t->layer + (is_mtp(t) ? (int32_t)args->num_layers : 0);
	return strncmp(t->name, "embedding.", 10) ? MFT_UNIT_HEAD : MFT_UNIT_EMBEDDING;
}

static int add_param(struct mft_params *p, const struct mft_train_config *config,
		     const struct mft_parallel *parallel, const struct mfs_optim_rules *rules,
		     const struct mfs_rank_tensor *t, struct mfs_error *err)
{
	struct mft_param *param = &p->list[p->count++];
	char name[MFS_CKPT_NAME_SIZE];
	int rc;

	mfs_rank_tensor_name(t, name, sizeof(name));
	*param = (struct mft_param){
		.tensor = t->src,
		.part = *t,
		.decays = mfs_optim_decays(rules, name, t->base.ndim),
		.decoupled = mfs_optim_decoupled(rules, name),
		.mup = has_mup_rate(config, name, t->base.ndim) &&
		       !mfs_optim_decoupled(rules, name),
		.unit = unit_of(&config->model, t->src),
		.is_expert = t->is_expert,
		.optimizer = mft_optimizer_of(p->optimizer, t->src->name, t->src->ndim),
		.counts = counts_here(parallel, t)};
	set_init(config, param);
	rc = place(t, &p->elements, &param->start, &param->elements, err); /* until it is cut */
	p->parameters += param->elements;
	return rc;
}

static int add_buffer(struct mft_params *p, const struct mfs_rank_tensor *t, struct mfs_error *err)
{
	struct mft_model_buffer *b = &p->buffer_list[p->buffer_count++];

	b->tensor = t->src;
	b->part = *t;
	return place(t, &p->buffer_elements, &b->start, &b->elements, err);
}

static int add_all(struct mft_params *p, const struct mft_train_config *config,
		   const struct mft_parallel *parallel, struct mfs_error *err)
{
	const struct mfs_optim_rules rules = rules_of(config);
	const struct mfs_rank_list *list = p->parts;
	int rc = 0;

	p->list = calloc(list->count + 1u, sizeof(*p->list));
	p->buffer_list = calloc(list->count + 1u, sizeof(*p->buffer_list));
	if (!p->list || !p->buffer_list)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < list->count && !rc; i++) {
		const struct mfs_rank_tensor *t = &list->tensors[i];

		if (!t->base.ops) /* an _extra_state */
			continue;
		rc = t->is_parameter ? add_param(p, config, parallel, &rules, t, err)
				     : add_buffer(p, t, err);
	}
	return rc;
}

static int set_draws(struct mft_params *p, struct mfs_error *err)
{
	uint64_t *drawn_from;
	int rc = number_draws(p, &drawn_from, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->count; i++)
		p->list[i].drawn_from = drawn_from[index_of(p, p->list[i].tensor)];
	free(drawn_from);
	return 0;
}

/* Of two copies of the embedding on one stage, it is the one that is used
 * (formats/megatron/rank.c). */
static bool is_shared(const struct mft_params *p, uint32_t number)
{
	return number < p->count && p->list[number].part.is_shared;
}

static int number_all(struct mft_params *p, struct mfs_error *err)
{
	const uint32_t tensors = mfs_ckpt_count(p->ckpt);

	p->number = calloc(tensors + 1u, sizeof(*p->number));
	if (!p->number)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < tensors; i++)
		p->number[i] = UINT32_MAX;
	for (uint32_t i = 0; i < p->count; i++)
		if (!is_shared(p, p->number[index_of(p, p->list[i].tensor)]))
			p->number[index_of(p, p->list[i].tensor)] = i;
	for (uint32_t i = 0; i < p->buffer_count; i++)
		p->number[index_of(p, p->buffer_list[i].tensor)] = p->count + i;
	return 0;
}

/* ---- how it is divided ---- */

/* training/training.py: resolve_ddp_bucket_size. */
static uint64_t bucket_size(const struct mft_train_config *config, const struct mft_params *p,
			    uint32_t processes)
{
	const uint64_t least = 40000000, of_each = (uint64_t)processes * 1000000;

	if (!config->overlap_grad_reduce || config->sharding >= MFT_SHARD_GRADS)
		return UINT64_MAX;
	if (config->ddp_num_buckets > 0)
		return p->parameters / (uint64_t)config->ddp_num_buckets;
	if (config->ddp_bucket_size > 0)
		return (uint64_t)config->ddp_bucket_size;
	return of_each > least ? of_each : least;
}

static struct mft_bucket_parts bucket_parts(const struct mft_train_config *config,
					    const struct mft_parallel *parallel, enum mft_group g)
{
	const struct mft_group_place *place;

	if (config->sharding == MFT_SHARD_NONE)
		return (struct mft_bucket_parts){.group = g, .count = 1};
	g = mft_parallel_in_instance(parallel, g);
	place = &parallel->group[g];
	return (struct mft_bucket_parts){.group = g, .count = place->size, .own = place->rank};
}

static int divide(struct mft_params *p, const struct mft_train_config *config,
		  const struct mft_parallel *parallel, struct mfs_error *err)
{
	struct mft_parallel one;
	struct mft_bucket_rule rule;

	mft_parallel_one(&one);
	if (!parallel)
		parallel = &one;
	rule = (struct mft_bucket_rule){
		.size = bucket_size(config, p, parallel->group[MFT_GROUP_GRADS].size),
		.dense = bucket_parts(config, parallel, MFT_GROUP_GRADS),
		.experts = bucket_parts(config, parallel, MFT_GROUP_EXPERT_GRADS),
		.apart = mft_experts_are_apart(parallel),
		.shared_alone = config->sharding != MFT_SHARD_NONE && parallel->size.pp > 1,
		.units = config->sharding >= MFT_SHARD_GRADS,
	};
	return mft_buckets_lay_out(p, &rule, err);
}

static uint64_t owned_of(const struct mft_params *p, const struct mft_param *q)
{
	return mft_params_owned_before(p, q->start + q->elements) -
	       mft_params_owned_before(p, q->start);
}

/* Where each parameter lies in the slots: those of one optimizer may be a few of all. */
static void fill_slots(struct mft_params *p)
{
	uint64_t skipped[MFT_SLOTS] = {0};

	for (uint32_t i = 0; i < p->count; i++) {
		struct mft_param *q = &p->list[i];
		const uint64_t end = i + 1 < p->count ? p->list[i + 1].start : p->elements;

		memcpy(q->skipped, skipped, sizeof(skipped));
		for (unsigned slot = 0; slot < MFT_SLOTS; slot++)
			if (!mft_optimizer_keeps(q->optimizer, slot))
				skipped[slot] += mft_params_owned_before(p, end) -
						 mft_params_owned_before(p, q->start);
	}
	for (unsigned slot = 0; slot < MFT_SLOTS; slot++)
		p->slot[slot].elements = p->owned_elements - skipped[slot];
}

/* What the host has: parameters from the first on, until what is owned of them is the fraction.
 * core/optimizer/cpu_offloading/hybrid_optimizer.py: _get_sub_optimizer_param_groups. */
static void offload(struct mft_params *p, double fraction)
{
	uint64_t all = 0, elements = 0;
	uint32_t i = 0;

	for (uint32_t k = 0; k < p->count; k++)
		all += owned_of(p, &p->list[k]);
	while (i < p->count && (double)elements < fraction * (double)all)
		elements += owned_of(p, &p->list[i++]);
	p->offloaded = i < p->count ? p->list[i].start : p->elements;
	p->offloaded_owned = mft_params_owned_before(p, p->offloaded);
}

/* ---- the whole ---- */

static void set_types(struct mft_params *p, const struct mft_train_config *config)
{
	p->weight_type = config->params_dtype;
	p->grad_type = config->main_grads_dtype;
	p->optimizer = mft_optimizer_kind(config->optimizer);
	p->slot[MFT_SLOT_MAIN].type =
		mft_precision_is_main(p->weight_type) ? MFS_DTYPE_NONE : config->main_params_dtype;
	for (unsigned i = MFT_SLOT_KEPT; i < MFT_SLOTS; i++)
		p->slot[i].type = mft_optimizer_type(p->optimizer, config, i);
}

static uint32_t count_or(int64_t count, uint32_t none)
{
	return count > 0 ? (uint32_t)count : none;
}

static struct mfs_layout layout_of(const struct mft_train_config *config,
				   const struct mft_parallel *parallel)
{
	const struct mfs_megatron_args *a = &config->model;
	const struct mft_parallel_sizes *s;
	struct mfs_layout layout;

	if (!parallel)
		return whole;
	s = &parallel->size;
	layout = (struct mfs_layout){
		.tp = s->tp,
		.pp = s->pp,
		.ep = s->ep,
		.etp = s->etp,
		.vpp = count_or(a->virtual_pipeline_model_parallel_size, 1),
		.first = count_or(a->first_stage_layers, 0),
		.last = count_or(a->last_stage_layers, 0),
		.chunk_layers = config->chunk_layers,
		.hybrid = a->hybrid_form,
	};
	return layout;
}

/* Whether a parameter has a state. arg: the run's kind of optimizer. */
static bool has_state(void *arg, const char *name, unsigned ndim, enum mfs_state state)
{
	const struct mft_optimizer_kind *kind = mft_optimizer_of(arg, name, ndim);
	const unsigned slot = mft_optimizer_slot(kind, state);

	return slot < MFT_SLOTS && mft_optimizer_keeps(kind, slot) &&
	       (slot == MFT_SLOT_MAIN || kind->kept[slot - MFT_SLOT_KEPT].state == state);
}

static int make_ckpt(struct mft_params *p, const struct mft_train_config *config,
		     struct mfs_error *err)
{
	struct mfs_blank_options options = {.vocab = p->padded_vocab,
					    .dtype = {p->weight_type},
					    .has = has_state,
					    .arg = (void *)(uintptr_t)p->optimizer};

	for (enum mfs_state s = MFS_STATE_MAIN; s < MFS_STATE_COUNT; s++) {
		const unsigned slot = mft_optimizer_slot(p->optimizer, s);

		options.dtype[s] = slot < MFT_SLOTS ? p->slot[slot].type : MFS_DTYPE_NONE;
	}
	return mfs_blank_ckpt(&config->model, &options, &p->ckpt, err);
}

static int build(struct mft_params *p, const struct mft_train_config *config,
		 const struct mft_parallel *parallel, struct mfs_error *err)
{
	const struct mft_parallel_sizes here =
		parallel ? parallel->place : (struct mft_parallel_sizes){0};
	const struct mfs_rank rank = {here.tp, here.pp, here.ep, here.etp};
	int rc;

	p->layout = layout_of(config, parallel);
	rc = find_vocab(&config->model, p->layout.tp, &p->padded_vocab, err);
	if (rc)
		return rc;
	set_types(p, config);
	p->sharding = config->sharding;
	rc = p->is_other ? 0 : make_ckpt(p, config, err);
	if (rc)
		return rc;
	rc = mfs_layout_check_model(&p->layout, &config->model, err);
	if (!rc)
		rc = mfs_rank_list_new(p->ckpt, &p->layout, &rank, mfs_layer_spec_of(p->ckpt),
				       p->padded_vocab, &p->parts, err);
	if (!rc)
		rc = add_all(p, config, parallel, err);
	if (!rc)
		rc = divide(p, config, parallel, err);
	if (!rc)
		rc = number_all(p, err);
	if (!rc && !p->is_other)
		rc = set_draws(p, err);
	fill_slots(p);
	if (!rc && config->optimizer_cpu_offload)
		offload(p, config->optimizer_offload_fraction);
	return rc;
}

/* ckpt: that of another process; NULL: it gets one of its own. */
static int make(const struct mft_train_config *config, const struct mft_parallel *parallel,
		struct mfs_ckpt *ckpt, struct mft_params **ret, struct mfs_error *err)
{
	struct mft_params *p;
	int rc;

	if (config->model.untrainable)
		return mfs_fail(err, -ENOTSUP, "a model with %s cannot be trained here",
				config->model.untrainable);
	p = calloc(1, sizeof(*p));
	if (!p)
		return mfs_fail_nomem(err);
	p->ckpt = ckpt;
	p->is_other = ckpt != NULL;
	rc = build(p, config, parallel, err);
	if (rc)
		mft_params_free(p);
	else
		*ret = p;
	return rc;
}

int mft_params_new(const struct mft_train_config *config, const struct mft_parallel *parallel,
		   struct mft_params **ret, struct mfs_error *err)
{
	return make(config, parallel, NULL, ret, err);
}

int mft_params_of_other(const struct mft_params *own, const struct mft_train_config *config,
			const struct mft_parallel *other, struct mft_params **ret,
			struct mfs_error *err)
{
	return make(config, other, own->ckpt, ret, err);
}

void mft_params_free(struct mft_params *p)
{
	if (!p)
		return;
	mfs_rank_list_free(p->parts);
	if (!p->is_other)
		mfs_ckpt_free(p->ckpt);
	free(p->list);
	free(p->buffer_list);
	free(p->number);
	free(p->buckets);
	free(p->owned);
	free(p);
}

/* ---- by name ---- */

uint32_t mft_params_number(const struct mft_params *p, const char *name, int32_t layer,
			   int32_t expert)
{
	const int32_t layers = (int32_t)mfs_ckpt_args(p->ckpt)->num_layers;
	const struct mfs_global_tensor *t;
	char inner[MFS_NAME_MAX + sizeof(MTP_INNER)];

	if (layer >= layers && !strncmp(name, DECODER, strlen(DECODER))) {
		snprintf(inner, sizeof(inner), MTP_INNER "%s", name + strlen(DECODER));
		name = inner;
		layer -= layers;
	}
	t = mfs_ckpt_find(p->ckpt, name, layer, expert);

	return t ? p->number[index_of(p, t)] : UINT32_MAX;
}

const struct mft_param *mft_params_find(const struct mft_params *p, const char *name, int32_t layer,
					int32_t expert)
{
	const uint32_t number = mft_params_number(p, name, layer, expert);

	return number < p->count ? &p->list[number] : NULL;
}

const struct mft_model_buffer *mft_params_find_buffer(const struct mft_params *p, const char *name,
						      int32_t layer)
{
	const uint32_t number = mft_params_number(p, name, layer, -1);

	return number >= p->count && number != UINT32_MAX ? &p->buffer_list[number - p->count]
							  : NULL;
}

bool mft_experts_are_apart(const struct mft_parallel *parallel)
{
	return parallel->size.ep > 1 || parallel->size.etp != parallel->size.tp;
}

/*
 * The model of a checkpoint against the model of the arguments.
 *
 * Sources: megatron/training/checkpointing.py: check_checkpoint_args, load_args_from_checkpoint.
 * Megatron compares three sizes, and learns of other differences when tensors do not fit or, like
 * --swiglu, not at all. All that decides which tensors there are is compared here.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/torch/pickle.h"
#include "trainer/ckpt/load_i.h"

enum kind { COUNT, FLAG };

struct field {
	const char *name;
	size_t at; /* in struct mfs_megatron_args */
	enum kind kind;
};

#define OF(kind_, field_)                                                                          \
	{                                                                                          \
#field_, offsetof(struct mfs_megatron_args, field_), kind_                         \
	}

static const struct field fields[] = {
	OF(COUNT, num_layers),
	OF(COUNT, hidden_size),
	OF(COUNT, num_attention_heads),
	OF(COUNT, num_query_groups),
	OF(COUNT, kv_channels),
	OF(COUNT, ffn_hidden_size),
	OF(COUNT, num_experts),
	OF(FLAG, layernorm),
	OF(FLAG, zero_centered_gamma),
	OF(FLAG, swiglu),
	OF(FLAG, quick_geglu),
	OF(FLAG, squared_relu),
	OF(FLAG, add_bias_linear),
	OF(FLAG, qk_layernorm),
	OF(FLAG, tied),
	OF(FLAG, rotary_interleaved),
	OF(FLAG, multi_latent_attention),
};

static void value_of(const struct mfs_megatron_args *a, const struct field *f, char text[32])
{
	const char *at = (const char *)a + f->at;
	int64_t count;

	if (f->kind == FLAG) {
		snprintf(text, 32, "%s", *(const bool *)at ? "True" : "False");
		return;
	}
	memcpy(&count, at, sizeof(count));
	if (count == MFS_UNSET)
		snprintf(text, 32, "None");
	else
		snprintf(text, 32, "%lld", (long long)count);
}

/* Megatron's names where a field has another one. */
static const char *argument_of(const struct field *f)
{
	if (!strcmp(f->name, "layernorm"))
		return "normalization == LayerNorm";
	if (!strcmp(f->name, "zero_centered_gamma"))
		return "apply_layernorm_1p";
	if (!strcmp(f->name, "tied"))
		return "tied embeddings (not untie_embeddings_and_output_weights)";
	return f->name;
}

static int compare(const struct mfs_load *l, const struct mfs_megatron_args *ours,
		   struct mfs_error *err)
{
	const struct mfs_megatron_args *theirs = mfs_ckpt_args(l->ckpt);
	char a[32], b[32];

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		value_of(theirs, &fields[i], a);
		value_of(ours, &fields[i], b);
		if (strcmp(a, b))
			return mfs_fail(err, -EINVAL,
					"%s: %s is %s, the arguments say %s; "
					"--use-checkpoint-args takes the checkpoint's model",
					l->what, argument_of(&fields[i]), a, b);
	}
	if (!mfs_str_is(theirs->position_embedding_type, ours->position_embedding_type))
		return mfs_fail(err, -EINVAL,
				"%s: position_embedding_type is %s, the arguments say %s; "
				"--use-checkpoint-args takes the checkpoint's model",
				l->what, theirs->position_embedding_type,
				ours->position_embedding_type);
	return 0;
}

/* ---- the checkpoint's model ---- */

static int copy_text(struct mfs_arena *arena, const char **text)
{
	if (!*text)
		return 0;
	*text = mfs_arena_strndup(arena, *text, strlen(*text));
	return *text ? 0 : -ENOMEM;
}

/* The checkpoint is closed before the run ends. */
static int copy_memory(struct mfs_arena *arena, struct mfs_megatron_args *m)
{
	const char **const texts[] = {&m->position_embedding_type,
				      &m->rope_type,
				      &m->moe_router_score_function,
				      &m->foreign,
				      &m->params_dtype,
				      &m->tokenizer_type,
				      &m->tokenizer_model};
	uint8_t *layers;
	int rc = 0;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && !rc; i++)
		rc = copy_text(arena, texts[i]);
	if (rc || !m->moe_layers)
		return rc;
	layers = mfs_arena_alloc(arena, (size_t)m->num_layers);
	if (!layers)
		return -ENOMEM;
	memcpy(layers, m->moe_layers, (size_t)m->num_layers);
	m->moe_layers = layers;
	return 0;
}

/* What is the run's and not the model's stays. */
static void keep_run(struct mfs_megatron_args *m, const struct mfs_megatron_args *run)
{
	if (run->seq_length > 0)
		m->seq_length = run->seq_length;
	if (run->max_position_embeddings > 0)
		m->max_position_embeddings = run->max_position_embeddings;
	if (run->padded_vocab_size > 0)
		m->padded_vocab_size = run->padded_vocab_size;
	m->make_vocab_size_divisible_by = run->make_vocab_size_divisible_by;
	m->init_method_std = run->init_method_std;
	m->moe_aux_loss_coeff = run->moe_aux_loss_coeff;
	m->moe_grouped_gemm = run->moe_grouped_gemm;
	m->local_spec = run->local_spec;
	m->tensor_model_parallel_size = run->tensor_model_parallel_size;
	m->pipeline_model_parallel_size = run->pipeline_model_parallel_size;
	m->virtual_pipeline_model_parallel_size = run->virtual_pipeline_model_parallel_size;
	m->expert_model_parallel_size = run->expert_model_parallel_size;
	m->expert_tensor_parallel_size = run->expert_tensor_parallel_size;
	m->data_parallel_size = run->data_parallel_size;
	m->world_size = run->world_size;
	m->first_stage_layers = run->first_stage_layers;
	m->last_stage_layers = run->last_stage_layers;
	m->other_stages = run->other_stages;
	m->account_for_embedding = run->account_for_embedding;
	m->account_for_loss = run->account_for_loss;
	m->use_distributed_optimizer = run->use_distributed_optimizer;
	m->params_dtype = run->params_dtype;
	if (run->tokenizer_type)
		m->tokenizer_type = run->tokenizer_type;
	if (run->tokenizer_model)
		m->tokenizer_model = run->tokenizer_model;
	m->iteration = run->iteration;
}

/* What Megatron takes besides from the arguments that a checkpoint keeps. */
static void take_training(const struct mfs_load *l, struct mfs_train_config *config)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(l->ckpt);
	const struct mfs_pickle *doc = state ? state->archive.doc : NULL;
	mfs_value args;

	if (!doc)
		return;
	args = mfs_value_get(doc, state->root, "args");
	mfs_value_float(doc, mfs_value_attr(doc, args, "attention_dropout"),
			&config->attention_dropout);
	mfs_value_float(doc, mfs_value_attr(doc, args, "hidden_dropout"), &config->hidden_dropout);
	mfs_value_bool(doc, mfs_value_attr(doc, args, "apply_query_key_layer_scaling"),
		       &config->apply_query_key_layer_scaling);
}

int mfs_load_args(struct mfs_load *l, struct mfs_train_config *config, struct mfs_error *err)
{
	struct mfs_megatron_args m = *mfs_ckpt_args(l->ckpt);

	if (!config->use_checkpoint_args && mfs_ckpt_format(l->ckpt) != MFS_CKPT_HF)
		return compare(l, &config->model, err);
	if (copy_memory(&config->arena, &m))
		return mfs_fail_nomem(err);
	keep_run(&m, &config->model);
	config->model = m;
	take_training(l, config);
	return 0;
}

/* The command line of a run that goes on from a checkpoint, as a person would type it. */
#ifndef MFS_TESTS_RUN_COMMAND_H
#define MFS_TESTS_RUN_COMMAND_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/dims.h"
#include "tests/unit/unit.h"
#include "trainer/config/parse/parse.h"
#include "trainer/config/settle/settle.h"

struct run_words {
	const char *words[128];
	size_t count;
	char text[8192];
	size_t used;
};

/* Adds words, which spaces separate. */
__attribute__((format(printf, 2, 3))) static inline void run_say(struct run_words *w,
								 const char *fmt, ...)
{
	char *at = w->text + w->used, *save = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at, sizeof(w->text) - w->used, fmt, ap);
	va_end(ap);
	w->used += (size_t)n + 1;
	ck_assert_uint_lt(w->used, sizeof(w->text));
	for (char *word = strtok_r(at, " ", &save); word; word = strtok_r(NULL, " ", &save))
		w->words[w->count++] = word;
}

static inline void run_say_moe(struct run_words *w, const struct mfs_megatron_args *a)
{
	run_say(w, "--num-experts %lld --moe-router-topk %lld --moe-ffn-hidden-size %lld",
		(long long)a->num_experts, (long long)a->moe_router_topk,
		(long long)a->moe_ffn_hidden_size);
	if (a->first_dense_layers)
		run_say(w, "--moe-layer-freq ([0]*%lld+[1]*%lld)", (long long)a->first_dense_layers,
			(long long)(a->num_layers - a->first_dense_layers));
	if (a->moe_shared_expert_intermediate_size != MFS_ABSENT)
		run_say(w, "--moe-shared-expert-intermediate-size %lld",
			(long long)a->moe_shared_expert_intermediate_size);
	if (!strcmp(a->moe_router_score_function, "sigmoid"))
		run_say(w, "--moe-router-score-function sigmoid");
	if (a->moe_router_enable_expert_bias)
		run_say(w, "--moe-router-enable-expert-bias");
	if (a->moe_grouped_gemm)
		run_say(w, "--moe-grouped-gemm");
	if (a->moe_router_num_groups > 0)
		run_say(w, "--moe-router-num-groups %lld --moe-router-group-topk %lld",
			(long long)a->moe_router_num_groups, (long long)a->moe_router_group_topk);
	if (a->moe_router_topk_scaling_factor != 0)
		run_say(w, "--moe-router-topk-scaling-factor %g",
			a->moe_router_topk_scaling_factor);
}

static inline void run_say_mla(struct run_words *w, const struct mfs_megatron_args *a)
{
	run_say(w,
		"--multi-latent-attention --kv-lora-rank %lld --qk-head-dim %lld "
		"--qk-pos-emb-head-dim %lld --v-head-dim %lld --rope-type %s",
		(long long)a->kv_lora_rank, (long long)a->qk_head_dim,
		(long long)a->qk_pos_emb_head_dim, (long long)a->v_head_dim, a->rope_type);
	if (a->q_lora_rank != MFS_ABSENT)
		run_say(w, "--q-lora-rank %lld", (long long)a->q_lora_rank);
}

/* The model, in bf16. */
static inline void run_say_model(struct run_words *w, const struct mfs_ckpt *ckpt)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);

	run_say(w,
		"--num-layers %lld --hidden-size %lld --num-attention-heads %lld "
		"--ffn-hidden-size %lld --kv-channels %lld --seq-length 32 "
		"--max-position-embeddings %lld --norm-epsilon %g --init-method-std %g",
		(long long)a->num_layers, (long long)a->hidden_size,
		(long long)a->num_attention_heads, (long long)a->ffn_hidden_size,
		(long long)a->kv_channels, (long long)a->max_position_embeddings, a->norm_epsilon,
		a->init_method_std);
	run_say(w, "--vocab-size %lld --padded-vocab-size %lld --tokenizer-type NullTokenizer",
		(long long)mfs_dims_padded_vocab(ckpt) - 1, (long long)mfs_dims_padded_vocab(ckpt));
	run_say(w, "--position-embedding-type %s --rotary-base %.0f --normalization %s",
		a->position_embedding_type, a->rotary_base, a->layernorm ? "LayerNorm" : "RMSNorm");
	if (a->num_query_groups != a->num_attention_heads)
		run_say(w, "--group-query-attention --num-query-groups %lld",
			(long long)a->num_query_groups);
	if (a->swiglu)
		run_say(w, "--swiglu");
	if (!a->add_bias_linear)
		run_say(w, "--disable-bias-linear");
	if (a->add_qkv_bias)
		run_say(w, "--add-qkv-bias");
	if (a->qk_layernorm)
		run_say(w, "--qk-layernorm");
	if (!a->tied)
		run_say(w, "--untie-embeddings-and-output-weights");
	if (a->local_spec)
		run_say(w, "--transformer-impl local");
	if (a->moe_layers)
		run_say_moe(w, a);
	if (a->multi_latent_attention)
		run_say_mla(w, a);
	run_say(w, "--micro-batch-size 2 --global-batch-size 8 --train-iters 40 --lr 1e-3 "
		   "--min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 5 --weight-decay 0.1 "
		   "--mock-data");
}

static inline void run_parse(const struct run_words *w, struct mft_train_config *ret)
{
	struct mfs_error err;

	unit_ok(mft_train_config_parse_words(w->words, w->count, ret, &err), &err);
	unit_ok(mft_train_config_settle(ret, &err), &err);
}

#endif

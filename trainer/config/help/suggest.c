#include "trainer/config/help/suggest.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/nearest.h"
#include "formats/base/str.h"

#define MOST_PARTS 16

/* ---- by meaning ---- */

/* What transformers, Accelerate, DeepSpeed, NeMo, torchtitan and tables in books call it. */
static const struct {
	const char *word, *dest;
} meanings[] = {
	{"learning_rate", "lr"},
	{"finetune_lr", "lr"},
	{"max_lr", "lr"},
	{"minimum_learning_rate", "min_lr"},
	{"warmup_steps", "lr_warmup_iters"},
	{"warmup_ratio", "lr_warmup_fraction"},
	{"lr_scheduler_type", "lr_decay_style"},
	{"max_steps", "train_iters"},
	{"train_steps", "train_iters"},
	{"num_train_steps", "train_iters"},
	{"per_device_train_batch_size", "micro_batch_size"},
	{"train_micro_batch_size_per_gpu", "micro_batch_size"},
	{"train_batch_size", "global_batch_size"},
	{"max_grad_norm", "clip_grad"},
	{"gradient_clipping", "clip_grad"},
	{"grad_clip", "clip_grad"},
	{"beta1", "adam_beta1"},
	{"beta2", "adam_beta2"},
	{"epsilon", "adam_eps"},
	{"num_hidden_layers", "num_layers"},
	{"n_layer", "num_layers"},
	{"n_layers", "num_layers"},
	{"n_head", "num_attention_heads"},
	{"n_heads", "num_attention_heads"},
	{"n_embd", "hidden_size"},
	{"d_model", "hidden_size"},
	{"intermediate_size", "ffn_hidden_size"},
	{"head_dim", "kv_channels"},
	{"num_key_value_heads", "num_query_groups"},
	{"max_seq_length", "seq_length"},
	{"max_seq_len", "seq_length"},
	{"sequence_length", "seq_length"},
	{"rope_theta", "rotary_base"},
	{"rms_norm_eps", "layernorm_epsilon"},
	{"dropout", "hidden_dropout"},
	{"tie_word_embeddings", "untie_embeddings_and_output_weights"},
	{"num_local_experts", "num_experts"},
	{"n_routed_experts", "num_experts"},
	{"num_experts_per_tok", "moe_router_topk"},
	{"aux_loss_coef", "moe_aux_loss_coeff"},
	{"router_aux_loss_coef", "moe_aux_loss_coeff"},
	{"tp_size", "tensor_model_parallel_size"},
	{"tensor_parallel_size", "tensor_model_parallel_size"},
	{"pp_size", "pipeline_model_parallel_size"},
	{"pipeline_parallel_size", "pipeline_model_parallel_size"},
	{"cp_size", "context_parallel_size"},
	{"ep_size", "expert_model_parallel_size"},
	{"expert_parallel_size", "expert_model_parallel_size"},
	{"activation_checkpointing", "recompute_granularity"},
	{"gradient_checkpointing", "recompute_granularity"},
	{"dp_comm_overlap_bucket_size", "ddp_bucket_size"},
	{"reduce_bucket_size", "ddp_bucket_size"},
	{"cpu_offload", "optimizer_cpu_offload"},
	{"offload_optimizer", "optimizer_cpu_offload"},
	{"enable_straggler_detection", "log_straggler"},
	{"straggler_detection", "log_straggler"},
	{"output_dir", "save"},
	{"checkpoint_dir", "save"},
	{"resume_from_checkpoint", "load"},
	{"model_name_or_path", "load"},
	{"save_steps", "save_interval"},
	{"eval_steps", "eval_interval"},
	{"logging_steps", "log_interval"},
	{"logging_dir", "tensorboard_dir"},
	{"dataset_path", "data_path"},
	{"dataloader_num_workers", "num_workers"},
	{"flash_attention", "attention_backend"},
	{"use_flash_attention", "attention_backend"},
	{"precision", "bf16"},
};

static bool is_like(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return *a == *b;
}

static const char *by_meaning(const char *word)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(meanings); i++)
		if (is_like(meanings[i].word, word))
			return meanings[i].dest;
	return NULL;
}

/* ---- by words ---- */

struct parts {
	char text[MFT_FLAG_SPELLING];
	const char *list[MOST_PARTS];
	size_t count;
};

static void cut(const char *word, struct parts *p)
{
	char *rest = NULL;

	p->count = 0;
	snprintf(p->text, sizeof(p->text), "%s", word);
	for (char *part = strtok_r(p->text, "-_", &rest); part && p->count < MOST_PARTS;
	     part = strtok_r(NULL, "-_", &rest))
		p->list[p->count++] = part;
}

static bool has_part(const struct parts *p, const char *part)
{
	for (size_t i = 0; i < p->count; i++)
		if (!strcmp(p->list[i], part))
			return true;
	return false;
}

static size_t in_both(const struct parts *a, const struct parts *b)
{
	size_t count = 0;

	for (size_t i = 0; i < a->count; i++)
		count += has_part(b, a->list[i]);
	return count;
}

/* How many words differ: all of the shorter's are the longer's, and there are two or more. */
static bool are_same_words(const struct parts *a, const struct parts *b, unsigned *ret)
{
	const size_t least = a->count < b->count ? a->count : b->count;
	const size_t most = a->count < b->count ? b->count : a->count;

	*ret = (unsigned)(most - least);
	return least >= 2 && most - least <= 1 && in_both(a, b) >= least && in_both(b, a) >= least;
}

/* ---- by letters ---- */

static bool is_typo(const struct parts *a, const struct parts *b, unsigned *ret)
{
	*ret = 0;
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		struct mfs_nearest n = {.word = a->list[i]};

		mfs_nearest_try(&n, b->list[i]);
		if (!n.name)
			return false;
		*ret += n.distance;
	}
	return true;
}

/* Without what stands between words: --numlayers. */
static bool is_joined(const struct parts *a, const struct parts *b, unsigned *ret)
{
	char x[MFT_FLAG_SPELLING] = "", y[MFT_FLAG_SPELLING] = "";
	struct mfs_nearest n = {.word = x};

	for (size_t i = 0; i < a->count; i++)
		strcat(x, a->list[i]);
	for (size_t i = 0; i < b->count; i++)
		strcat(y, b->list[i]);
	mfs_nearest_try(&n, y);
	*ret = n.distance;
	return a->count != b->count && n.name && n.distance <= 2 && strlen(x) >= 6;
}

/* ---- all of it ---- */

/* A greater number is a worse reason. */
static unsigned reason(const struct parts *word, const struct parts *name)
{
	unsigned d;

	if (is_typo(word, name, &d))
		return d;
	if (are_same_words(word, name, &d))
		return 10 + d;
	return is_joined(word, name, &d) ? 20 + d : UINT32_MAX;
}

const char *mft_flag_suggest(const char *word)
{
	const char *ret = by_meaning(word + strspn(word, "-"));
	unsigned least = UINT32_MAX;
	struct parts given, name;
	char spelling[MFT_FLAG_SPELLING];
	bool on;

	if (ret)
		return ret;
	cut(word, &given);
	for (size_t i = 0; given.count && i < mft_flag_count(); i++) {
		const struct mft_flag *f = mft_flag_at(i);

		for (unsigned k = 0; mft_flag_spelling(f, k, spelling, &on); k++) {
			unsigned r;

			cut(spelling, &name);
			r = reason(&given, &name);
			if (r < least) {
				least = r;
				ret = f->dest;
			}
		}
	}
	return ret;
}

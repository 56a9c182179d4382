#include "trainer/config/yaml_names.h"

#include <stddef.h>
#include <string.h>

static const char *const sections[] = {
	"model",      "train",	"optimizer", "scheduler", "dataset",
	"checkpoint", "logger", "rng",	     "tokenizer", "ddp",
	"validation", "dist",	"profiling", "straggler", "rerun_state_machine",
};

/* Keys that have the dest's name are not here. */
static const struct mfs_yaml_alias aliases[] = {
	{"model", "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights",
	 true},
	{"model", "num_moe_experts", "num_experts", false},
	{"model", "gated_linear_unit", "swiglu", false},
	{"model", "bias_activation_fusion", "bias_swiglu_fusion", false},
	{"dataset", "sequence_length", "seq_length", false},
	{"dataset", "random_seed", "seed", false},
	{"dataset", "path_to_cache", "data_cache_path", false},
	{"dataset", "create_attention_mask", "create_attention_mask_in_dataloader", false},
	{"checkpoint", "load_optim", "no_load_optim", true},
	{"checkpoint", "load_rng", "no_load_rng", true},
	{"checkpoint", "save_optim", "no_save_optim", true},
	{"checkpoint", "save_rng", "no_save_rng", true},
	{"checkpoint", "fully_parallel_save", "ckpt_fully_parallel_save", false},
	{"checkpoint", "fully_parallel_load", "ckpt_fully_parallel_load", false},
	{"ddp", "grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32", false},
	{"ddp", "average_in_collective", "ddp_average_in_collective", false},
	{"ddp", "check_for_nan_in_grad", "check_for_nan_in_loss_and_grad", false},
	{"ddp", "bucket_size", "ddp_bucket_size", false},
	{"ddp", "pad_buckets_for_high_nccl_busbw", "ddp_pad_buckets_for_high_nccl_busbw", false},
};

bool mfs_yaml_is_section(const char *name)
{
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		if (!strcmp(sections[i], name))
			return true;
	return false;
}

const struct mfs_yaml_alias *mfs_yaml_alias(const char *section, const char *key)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (!strcmp(aliases[i].section, section) && !strcmp(aliases[i].key, key))
			return &aliases[i];
	return NULL;
}

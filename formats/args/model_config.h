/*
 * The configuration of a model as Megatron-Bridge and NeMo write it, as the arguments of a run of
 * Megatron-LM.
 *
 * These programs save no argparse.Namespace. They write the model's dataclass as YAML:
 *
 *   model:                                  NeMo's model.yaml: config
 *     _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
 *     num_layers: 32                        fields of megatron.core's TransformerConfig
 *     num_moe_experts: null                 and of the provider of GPTModel
 *     activation_func:
 *       _target_: torch.nn.functional.silu
 *       _call_: false
 *     params_dtype:
 *       _target_: torch.bfloat16
 *       _call_: false
 *
 * Newer ones have the fields of TransformerConfig apart, under `transformer`, and activation
 * functions by their names alone (Megatron-Bridge: models/gpt/model_config.py,
 * utils/yaml_utils.py). NeMo: nemo/lightning/io/mixin.py.
 *
 * The fields become arguments: a source for the reader of them, or a Namespace in a state, so that
 * all who read a run's state find them there.
 */
#ifndef MFS_ARGS_MODEL_CONFIG_H
#define MFS_ARGS_MODEL_CONFIG_H

#include "formats/args/args_source.h"
#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/base/yaml_tree.h"
#include "formats/torch/pickle_write.h"

/* The arguments that the fields give, in the order of a Namespace. A name may come again: the last
 * one counts. */
struct mfs_model_config {
	struct mfs_model_argument *arguments;
	size_t count;
};

/*
 * Reads a parsed run_config.yaml or model.yaml. Names and texts are the tree's, lists are put into
 * arena. name: the file's, for messages. -EINVAL: a field has a form that it cannot have, or there
 * is no model in it; -ENODATA: the file ends in the model; -ENOTSUP: the checkpoint holds adapters
 * (LoRA) and not a model, unless adapters is true; -ENOMEM.
 */
int mfs_model_config_read(const struct mfs_yaml_node *root, const char *name, bool adapters,
			  struct mfs_arena *arena, struct mfs_model_config *ret,
			  struct mfs_error *err);

/* config outlives the source. */
struct mfs_args_source mfs_args_of_config(const struct mfs_model_config *config);

/* Reads the tree and writes it as one value, a Namespace. Errors: those of mfs_model_config_read().
 * The writer is then useless. */
int mfs_model_config_write(struct mfs_pickle_writer *w, const struct mfs_yaml_node *root,
			   const char *name, bool adapters, struct mfs_error *err);

/* What a run with adapters says of them (megatron/bridge/peft/lora.py: LoRA). */
struct mfs_lora_config {
	uint64_t rank;
	float scale; /* alpha / rank */
};

/* Reads it from a parsed run_config.yaml. -ENOTSUP: the adapters are of another kind, or there are
 * none; -EINVAL: a field has a value that it cannot have. */
int mfs_model_config_lora(const struct mfs_yaml_node *root, const char *name,
			  struct mfs_lora_config *ret, struct mfs_error *err);

#endif

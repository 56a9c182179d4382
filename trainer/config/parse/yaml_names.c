#include "trainer/config/parse/yaml_names.h"

#include <stddef.h>
#include <string.h>

#include "formats/base/array.h"

static const char *const sections[] = {
	"model",	   "train",	     "optimizer", "scheduler", "dataset",
	"checkpoint",	   "logger",	     "rng",	  "tokenizer", "ddp",
	"validation",	   "dist",	     "profiling", "straggler", "rerun_state_machine",
	"mixed_precision", "tensor_inspect",
};

/* Keys that have the dest's name are not here. */
static const struct mft_yaml_alias aliases[] = {
	{"model", "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights",
	 true},
	{"model", "num_moe_experts", "num_experts", false},
	{"model", "seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor", false},
	{"model", "rope_scaling", "use_rope_scaling", false},
	{"model", "scale_factor", "rope_scaling_factor", false},
	{"model", "num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers", false},
	{"model", "num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers", false},
	{"model", "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
	 false},
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
	{"ddp", "use_custom_fsdp", "use_megatron_fsdp", false},
	{"ddp", "average_in_collective", "ddp_average_in_collective", false},
	{"ddp", "check_for_nan_in_grad", "check_for_nan_in_loss_and_grad", false},
	{"ddp", "bucket_size", "ddp_bucket_size", false},
	{"ddp", "pad_buckets_for_high_nccl_busbw", "ddp_pad_buckets_for_high_nccl_busbw", false},
	{"optimizer", "muon_use_nesterov", "muon_nesterov", false},
	{"rerun_state_machine", "check_for_nan_in_loss", "check_for_nan_in_loss_and_grad", false},
};

/* Bridge's defaults are what changes nothing: a saved file has all fields. */
static const struct mft_yaml_field fields[] = {
	{"model", "timers", NULL, false},
	{"model", "finalize_model_grads_func", NULL, false},
	{"model", "grad_scale_func", NULL, false},
	{"model", "no_sync_func", NULL, false},
	{"model", "grad_sync_func", NULL, false},
	{"model", "param_sync_func", NULL, false},
	{"model", "autocast_dtype", NULL, false},
	{"model", "pipeline_dtype", NULL, false},
	{"model", "hf_model_id", NULL, false},
	{"model", "hf_model_revision", NULL, false},
	{"model", "hybrid_stack_spec", "null", false},
	{"model", "hybrid_attention_ratio", "0.0", false},
	{"model", "hybrid_mlp_ratio", "0.0", false},
	{"model", "mamba_chunk_size", NULL, false},
	{"model", "logit_dtype", "null", false},
	{"model", "keep_mtp_spec_in_bf16", NULL, false},
	{"model", "generation_config", NULL, false},
	{"model", "extra_checkpoint_metadata", NULL, false},
	{"model", "transformer_layer_spec",
	 "megatron.bridge.models.gpt_provider.default_layer_spec", false},
	{"model", "num_microbatches_with_partial_activation_checkpoints", "null", false},
	{"model", "use_arbitrary_attention_mask", "null", false},
	{"model", "async_tensor_model_parallel_allreduce", "true", false},
	{"model", "batch_p2p_comm", "true", false},
	{"model", "batch_p2p_sync", "true", false},
	{"model", "deallocate_pipeline_outputs", "true", false},
	{"model", "cpu_offloading_activations", "true", false},
	{"model", "parallel_output", "true", false},
	{"model", "scatter_embedding_sequence_parallel", "true", false},
	{"model", "cpu_offloading", "false", false},
	{"model", "cpu_offloading_weights", "false", false},
	{"model", "cpu_offloading_double_buffering", "false", false},
	{"model", "tp_comm_atomic_ag", "false", false},
	{"model", "tp_comm_atomic_rs", "false", false},
	{"model", "tp_comm_overlap_disable_qkv", "false", false},
	{"model", "tp_comm_overlap_disable_fc1", "false", false},
	{"model", "tp_only_amax_red", "false", false},
	{"model", "persist_layer_norm", "false", false},
	{"model", "memory_efficient_layer_norm", "false", false},
	{"model", "fused_single_qkv_rope", "false", false},
	{"model", "disable_parameter_transpose_cache", "false", false},
	{"model", "bias_dropout_add_fusion", "true|false", false},
	{"model", "cuda_graph_scope", "null|[]|full", false},
	{"model", "cuda_graph_use_single_mempool", "false", false},
	{"model", "cuda_graph_retain_backward_graph", "false", false},
	{"model", "use_te_rng_tracker", "false", false},
	{"model", "use_inference_optimized_layers", "false", false},
	{"model", "use_transformer_engine_full_layer_spec", "false", false},
	{"model", "hetereogenous_dist_checkpoint", "false", false},
	{"model", "moe_use_legacy_grouped_gemm", "false", false},
	{"model", "mtp_enabled", "false", false},
	{"model", "inference_sampling_seed", "42", false},
	{"model", "softmax_scale", "null", true},
	{"model", "quant_recipe", "null", true},
	{"model", "moe_router_topk_limited_devices", "null", true},
	{"model", "enable_autocast", "false", true},
	{"model", "activation_func_fp8_input_store", "false", true},
	{"model", "moe_extended_tp", "false", true},
	{"model", "moe_token_dropping", "false", true},
	{"model", "heterogeneous_block_specs", "false", true},
	{"model", "restore_modelopt_state", "false", true},
	{"model", "use_kitchen", "false", true},
	{"model", "variable_seq_lengths", "false", true},
	{"model", "fp8_param", "null|false", true},
	{"model", "fp8_dot_product_attention", "null|false", true},
	{"model", "fp8_multi_head_attention", "null|false", true},
	{"model", "fp4_param", "null|false", true},
	{"model", "original_max_position_embeddings", "4096", true},
	{"model", "beta_fast", "32", true},
	{"model", "beta_slow", "1", true},
	{"model", "low_freq_factor", "1", true},
	{"model", "high_freq_factor", "4", true},
	{"model", "old_context_len", "8192", true},
	{"train", "manual_gc_eval", "true", false}, /* recipes have 100 */
	{"optimizer", "timers", NULL, false},
	{"optimizer", "store_param_remainders", "true", false},
	{"optimizer", "decoupled_weight_decay", "true", true},
	{"scheduler", "lr_warmup_steps", NULL, false},
	{"scheduler", "lr_decay_steps", NULL, false},
	{"scheduler", "wd_incr_steps", NULL, false},
	{"scheduler", "wsd_decay_steps", NULL, false},
	{"dataset", "split_matrix", NULL, false},
	{"dataset", "tokenizer", NULL, false},
	{"dataset", "sequences_per_dataset", NULL, false},
	{"dataset", "token_dtype_code", NULL, false},
	{"dataset", "context_parallel_size", NULL, false},
	{"dataset", "data_parallel_size", NULL, false},
	{"dataset", "sequence_parallel_size", NULL, false},
	{"dataset", "pin_memory", "true", false},
	{"dataset", "skip_getting_attention_mask_from_dataset", "true", false},
	{"dataset", "persistent_workers", "false", false},
	{"dataset", "fast_cache_load", "false", false},
	{"dataset", "defer_npy_index_mmap", "false", false},
	{"dataset", "drop_last_partial_validation_sequence", "true", true},
	{"dataset", "add_extra_token_to_sequence", "true", true},
	{"logger", "log_throughput_to_tensorboard", "false", false},
	{"logger", "log_l2_norm_grad_to_tensorboard", "false", false},
	{"logger", "log_runtime_to_tensorboard", "false", false},
	{"logger", "set_level_for_all_loggers", "false", false},
	{"logger", "filter_warnings", "true", false},
	{"logger", "memory_keys", "null", false},
	{"logger", "mlflow_experiment", "null", false},
	{"logger", "mlflow_run_name", "null", false},
	{"logger", "mlflow_tracking_uri", "null", false},
	{"logger", "mlflow_tags", "null", false},
	{"logger", "modules_to_filter", "null", false},
	{"logger", "save_config_filepath", "null", false},
	{"logger", "throughput_window_size", "100", false},
	{"logger", "runtime_time_unit", "hours", false},
	{"logger", "logging_level", "20", false},
	{"tokenizer", "legacy_tokenizer", "null|false", true},
	{"tokenizer", "tiktoken_special_tokens", "null", false},
	{"tokenizer", "tokenizer_prompt_format", "null", false},
	{"tokenizer", "image_tag_type", "null", false},
	{"tokenizer", "hf_tokenizer_kwargs", "null|{}", false},
	{"tokenizer", "sp_tokenizer_kwargs", "null|{}", false},
	{"ddp", "reduce_scatter_with_fp32_accumulation", "false", false},
	{"ddp", "preserve_fp32_weights", "true", true},
	{"dist", "lazy_init", "false", false},
	{"dist", "external_gpu_device_mapping", "false", false},
	{"dist", "enable_megatron_core_experimental", "false", false},
	{"dist", "use_decentralized_pg", "false", false},
	{"profiling", "use_nsys_profiler", "false", false},
	{"profiling", "profile_ranks", NULL, false},
	{"straggler", "enable_straggler_on_startup", "true", false},
	{"rerun_state_machine", "spiky_loss_factor", "10", false},
	{"mixed_precision", "fp32", NULL, false},
	{"mixed_precision", "pipeline_dtype", NULL, false},
	{"mixed_precision", "autocast_dtype", NULL, false},
	{"mixed_precision", "autocast_enabled", "false", true},
	{"mixed_precision", "fp8_dot_product_attention", "null|false", true},
	{"mixed_precision", "fp8_multi_head_attention", "null|false", true},
	{"mixed_precision", "fp8_param", "null|false", true},
	{"tensor_inspect", "enabled", "false", true},
	{"tensor_inspect", "features", NULL, false},
	{"tensor_inspect", "feature_dirs", NULL, false},
	{"tensor_inspect", "log_dir", NULL, false},
	{"tensor_inspect", "init_training_step", NULL, false},
};

/* Stems of classes whose modules are GPTModel's, as their fields say. */
static const char *const plain_models[] = {
	"GPT",
	"BridgeGPT",
	"MLA",
	"DeepSeek",
	"DeepSeekV2",
	"DeepSeekV2Lite",
	"DeepSeekV3",
	"Moonlight",
	"KimiK2",
	"GLMMoE",
	"GLM45",
	"GLM45Air",
	"Llama",
	"Llama2",
	"Llama3",
	"Llama31",
	"Llama32",
	"CodeLlama",
	"Mistral",
	"MistralSmall3",
	"Mixtral",
	"Nemotron",
	"Nemotron3",
	"Nemotron4",
	"Qwen2",
	"Qwen25",
	"Qwen3",
	"Qwen3MoE",
	"Llama31NemotronNano8B",
	"Llama31Nemotron70B",
	"Hybrid", /* a pattern that is not a GPTModel's is refused */
};

bool mft_yaml_is_section(const char *name)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sections); i++)
		if (!strcmp(sections[i], name))
			return true;
	return false;
}

const struct mft_yaml_alias *mft_yaml_alias(const char *section, const char *key)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(aliases); i++)
		if (!strcmp(aliases[i].section, section) && !strcmp(aliases[i].key, key))
			return &aliases[i];
	return NULL;
}

const struct mft_yaml_field *mft_yaml_field(const char *section, const char *key)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].section, section) && !strcmp(fields[i].key, key))
			return &fields[i];
	return NULL;
}

void mft_yaml_try_names(const char *section, struct mfs_nearest *near)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].section, section))
			mfs_nearest_try(near, fields[i].key);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(aliases); i++)
		if (!strcmp(aliases[i].section, section))
			mfs_nearest_try(near, aliases[i].key);
}

/* A kind of class, and maybe a size, follow a stem. A config of a builder has core's own in it. */
bool mft_yaml_is_plain_model(const char *class_name)
{
	static const char *const kinds[] = {"ModelProvider", "ModelConfig", "Provider"};

	if (!strcmp(class_name, "TransformerConfig") || !strcmp(class_name, "MLATransformerConfig"))
		return true;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(plain_models); i++) {
		const size_t len = strlen(plain_models[i]);

		if (strncmp(class_name, plain_models[i], len) != 0)
			continue;
		for (size_t k = 0; k < MFS_ARRAY_SIZE(kinds); k++)
			if (!strncmp(class_name + len, kinds[k], strlen(kinds[k])))
				return true;
	}
	return false;
}

/* The flags of other programs and services that share the parser of pretrain_gpt.py. */
#include "trainer/config/flags_i.h"

static const char *const graph_modules[] = {"attn",	      "mlp",   "moe", "moe_router",
					    "moe_preprocess", "mamba", NULL};
/* cuda_graph_config.py: normalize_cuda_graph_modules. Today --cuda-graph-impl gives them. */
static const char *const old_scopes[] = {"full", "full_iteration", "full_iteration_inference",
					 NULL};
static const struct mft_flag_enum graph_module = {"megatron.core.transformer.enums",
						  "CudaGraphModule", graph_modules, old_scopes};

static const struct mft_flag rl[] = {
	{ON, "perform_rl_step", "False", TO(perform_rl_step)},
	{INT, "rl_prompts_per_eval", "32", UNUSED},
	{INT, "grpo_prompts_per_step", "32", TO(grpo_prompts_per_step)},
	{INT, "grpo_group_size", "2", TO(grpo_group_size)},
	{REAL, "rl_generation_lag", "None", TO_OR(rl_generation_lag, 0)},
	{INT, "rl_max_inflight_requests", "None", TO_OR(rl_max_inflight_requests, 64)},
	{TEXT, "rl_submission_granularity", "'B'", CHOICES("R|G|B"), UNUSED},
	{TEXT, "rl_consumption_granularity", "'B'", CHOICES("R|G|B"), UNUSED},
	{ON, "rl_durable_rollout_bank", "False", UNUSED},
	{TEXT, "rl_rollout_bank_dir", "None", UNUSED},
	{INT, "rl_rollout_bank_max_bytes", "0", UNUSED},
	{INT, "grpo_iterations", "2", TO(grpo_iterations)},
	{REAL, "grpo_clamp_eps_lower", "0.01", TO(grpo_clamp_eps_lower)},
	{REAL, "grpo_clamp_eps_upper", "0.01", TO(grpo_clamp_eps_upper)},
	{REAL, "grpo_kl_beta", "0.001", TO(grpo_kl_beta)},
	{REAL, "grpo_entropy_term_weight", "0.0", TO(grpo_entropy_term_weight)},
	{ON, "grpo_filter_groups_with_same_reward", "False",
	 TO(grpo_filter_groups_with_same_reward)},
	{TEXT, "langrl_env_config", "None", UNUSED},
	{REAL, "rl_default_temperature", "1.0", TO(rl_default_temperature)},
	{REAL, "rl_default_top_p", "0", TO(rl_default_top_p)},
	{INT, "rl_default_top_k", "-1", TO(rl_default_top_k)},
	{ON, "rl_offload_optimizer_during_inference", "False", UNUSED},
	{TEXT, "rl_kv_cache_management_mode", "'persist'", CHOICES("persist|offload|recompute"),
	 UNUSED},
	{SWITCH, "rl_persist_cuda_graphs", "False", UNUSED},
	{SWITCH, "rl_partial_rollouts", "False", UNUSED},
	{SWITCH, "rl_inference_logprobs_is_correction", "False",
	 TO(rl_inference_logprobs_is_correction)},
	{REAL, "rl_importance_sampling_truncation_coef", "None",
	 TO_OR(rl_importance_sampling_truncation_coef, 0)},
	{SWITCH, "rl_use_sequence_packing", "False", TO(rl_use_sequence_packing)},
	{INT, "rl_sequence_packing_max_sequences_per_bin", "50",
	 TO(rl_sequence_packing_max_sequences_per_bin)},
	{TEXT, "rl_sequence_packing_algo", "'fifo'", CHOICES("fifo|round-robin"), UNUSED},
	{SWITCH, "rl_training_cuda_graphs", "False", UNUSED},
	{INT, "rl_inference_tensor_model_parallel_size", "None", UNUSED},
	{INT, "rl_inference_pipeline_model_parallel_size", "None", UNUSED},
	{INT, "rl_inference_expert_model_parallel_size", "None", UNUSED},
	{INT, "rl_inference_expert_tensor_model_parallel_size", "None", UNUSED},
	{INT, "rl_inference_model_unified_memory_level", "0", CHOICES("0|1"), UNUSED},
	{SWITCH, "rl_offload_inference_model_weights_when_idle", "False", UNUSED},
	{TEXT, "refit_method", "'gloo'", CHOICES("nccl|gloo|nvshmem"), UNUSED},
	{SWITCH, "rl_verify_model_weights_swap", "False", TO(rl_verify_model_weights_swap)},
	{SWITCH, "rl_skip_bos_token", "False", UNUSED},
	{ON, "rl_profile", "False", UNUSED},
	{TEXT, "rl_profile_dir", "None", UNUSED},
	{TEXTS, "rl_inference_parsers", "[]", .words = '*', UNUSED},
};
GROUP(rl, "rl");

static const struct mft_flag inference[] = {
	{INT, "inference_batch_times_seqlen_threshold", "-1", UNUSED},
	{INT, "max_tokens_to_oom", "12000", UNUSED},
	{ON, "output_bert_embeddings", "False", UNUSED},
	{TEXT, "bert_embedder_type", "'megatron'", CHOICES("megatron|huggingface"), UNUSED},
	{ENUM, "cuda_graph_scope_deprecated", "None", NAMES("--cuda-graph-scope"),
	 .of = &graph_module, .words = '+', .gone = true, UNUSED},
	{ENUM, "cuda_graph_modules", "[]", .of = &graph_module, .words = '+', UNUSED},
	{ON, "use_legacy_static_engine", "False", UNUSED},
	{INT, "inference_max_requests", "8", UNUSED},
	{INT, "inference_max_seq_length", "2560", UNUSED},
	{ON, "inference_dynamic_batching", "False", UNUSED},
	{REAL, "inference_dynamic_batching_buffer_size_gb", "40.0", UNUSED},
	{REAL, "inference_dynamic_batching_paused_buffer_size_gb", "None", UNUSED},
	{REAL, "inference_dynamic_batching_mamba_memory_ratio", "None", UNUSED},
	{INT, "inference_dynamic_batching_block_size", "256", UNUSED},
	{INT, "inference_dynamic_batching_max_requests", "None", UNUSED},
	{INT, "inference_dynamic_batching_max_tokens", "None", UNUSED},
	{INT, "inference_dynamic_batching_num_cuda_graphs", "16", UNUSED},
	{ON, "inference_dynamic_batching_track_paused_request_events", "False", UNUSED},
	{ON, "inference_dynamic_batching_track_generated_token_events", "False", UNUSED},
	{ON, "decode_only_cuda_graphs", "False", UNUSED},
	{ON, "inference_cuda_graph_all_prefills", "False", UNUSED},
	{INT, "inference_cuda_graph_max_tokens", "512", UNUSED},
	{INT, "inference_dynamic_batching_unified_memory_level", "0", CHOICES("0|1"), UNUSED},
	{ON, "enable_chunked_prefill", "False", UNUSED},
	{INT, "num_speculative_tokens", "0", UNUSED},
	{SWITCH, "inference_dynamic_batching_enable_prefix_caching", "False",
	 NAMES("--inference-dynamic-batching-prefix-caching"), UNUSED},
	{TEXT, "inference_dynamic_batching_prefix_caching_eviction_policy", "'ref_zero'",
	 CHOICES("ref_zero|lru"), UNUSED},
	{TEXT, "inference_dynamic_batching_prefix_caching_coordinator_policy", "'load_balanced'",
	 CHOICES("longest_prefix|first_prefix_block|load_balanced"), UNUSED},
	{REAL, "inference_dynamic_batching_prefix_caching_routing_alpha", "0.5", UNUSED},
	{REAL, "inference_dynamic_batching_prefix_caching_mamba_gb", "None", UNUSED},
	{INT, "inference_dynamic_batching_cuda_graph_mixed_prefill_count", "16", UNUSED},
	{TEXT, "inference_dynamic_batching_cuda_graph_sizing_distribution", "'exponential'",
	 CHOICES("exponential|linear"), UNUSED},
	{TEXT, "inference_dynamic_batching_sampling_backend", "'torch'",
	 CHOICES("torch|flashinfer"), UNUSED},
	{OFF, "offset_sampling_seed_by_dp_rank", "True",
	 NAMES("--use-same-sampling-seed-across-dp-ranks"), UNUSED},
	{TEXT, "inference_dynamic_batching_async_sched_mode", "'legacy'", CHOICES("legacy|async"),
	 UNUSED},
	{TEXT, "inference_dynamic_batching_logprobs_mode", "'raw_logprobs'",
	 CHOICES("raw_logprobs|processed_logprobs"), UNUSED},
	{INT, "inference_logging_step_interval", "0", UNUSED},
	{SWITCH, "inference_text_gen_server_logging", "False", UNUSED},
	{SWITCH, "inference_wandb_logging", "False", UNUSED},
	{INT, "inference_coordinator_port", "None", UNUSED},
	{DTYPE, "mamba_inference_conv_states_dtype", "'bf16'", CHOICES("bf16|fp16|fp32"), UNUSED},
	{DTYPE, "mamba_inference_ssm_states_dtype", "'bf16'", CHOICES("bf16|fp16|fp32"), UNUSED},
	{SWITCH, "inference_use_synchronous_zmq_collectives", "False", UNUSED},
	{SWITCH, "inference_disable_ep_consensus", "False", UNUSED},
	{TEXT, "inference_shards", "None", UNUSED},
};
GROUP(inference, "inference");

static const struct mft_flag autoresume[] = {
	{ON, "adlr_autoresume", "False", UNUSED},
	{INT, "adlr_autoresume_interval", "1000", UNUSED},
};
GROUP(autoresume, "autoresume");

static const struct mft_flag biencoder[] = {
	{INT, "ict_head_size", "None", UNUSED},
	{INT, "biencoder_projection_dim", "0", UNUSED},
	{ON, "biencoder_shared_query_context_model", "False", UNUSED},
	{TEXT, "ict_load", "None", UNUSED},
	{TEXT, "bert_load", "None", UNUSED},
	{TEXT, "titles_data_path", "None", UNUSED},
	{REAL, "query_in_block_prob", "0.1", UNUSED},
	{ON, "use_one_sent_docs", "False", UNUSED},
	{TEXT, "evidence_data_path", "None", UNUSED},
	{INTS, "retriever_report_topk_accuracies", "[]", .words = '+', UNUSED},
	{ON, "retriever_score_scaling", "False", UNUSED},
	{TEXT, "block_data_path", "None", UNUSED},
	{TEXT, "embedding_path", "None", UNUSED},
	{INT, "indexer_batch_size", "128", UNUSED},
	{INT, "indexer_log_interval", "1000", UNUSED},
};
GROUP(biencoder, "biencoder");

static const struct mft_flag vision[] = {
	{INT, "num_classes", "1000", UNUSED},
	{INT, "img_h", "224", UNUSED},
	{INT, "img_w", "224", UNUSED},
	{INT, "num_channels", "3", UNUSED},
	{INT, "patch_dim", "16", UNUSED},
	{REAL, "classes_fraction", "1.0", UNUSED},
	{REAL, "data_per_class_fraction", "1.0", UNUSED},
	{OFF, "data_sharding", "True", NAMES("--no-data-sharding"), INVERSE(no_data_sharding)},
	{REAL, "head_lr_mult", "1.0", UNUSED},
	{ON, "vision_pretraining", "False", UNUSED},
	{TEXT, "vision_pretraining_type", "'classify'", CHOICES("classify|inpaint|dino"), UNUSED},
	{TEXT, "vision_backbone_type", "'vit'", CHOICES("vit|mit|swin"), UNUSED},
	{TEXT, "swin_backbone_type", "'tiny'", CHOICES("tiny|base|h3"), UNUSED},
	{TEXT, "mask_type", "'random'", CHOICES("random|row"), UNUSED},
	{REAL, "mask_factor", "1.0", UNUSED},
	{INT, "iter_per_epoch", "1250", UNUSED},
	{INT, "dino_local_img_size", "96", UNUSED},
	{INT, "dino_local_crops_number", "10", UNUSED},
	{INT, "dino_head_hidden_size", "2048", UNUSED},
	{INT, "dino_bottleneck_size", "256", UNUSED},
	{REAL, "dino_freeze_last_layer", "1", UNUSED},
	{ON, "dino_norm_last_layer", "False", UNUSED},
	{REAL, "dino_warmup_teacher_temp", "0.04", UNUSED},
	{REAL, "dino_teacher_temp", "0.07", UNUSED},
	{INT, "dino_warmup_teacher_temp_epochs", "30", UNUSED},
};
GROUP(vision, "vision");

static const struct mft_flag logits_distillation[] = {
	{INT, "logits_save_top_k", "None", UNUSED},
	{REAL, "logits_save_top_p", "None", UNUSED},
	{INT, "logits_save_top_p_min_k", "1", UNUSED},
	{TEXT, "logits_save_dir", "None", REFUSED("leave it out; there is no distillation")},
	{TEXT, "logits_save_dtype", "'fp16'", CHOICES("fp16|bf16|fp32"), UNUSED},
	{TEXT, "logits_load_dir", "None", REFUSED("leave it out; there is no distillation")},
	{INT, "logits_load_decode_threads", "4", UNUSED},
	{INT, "logits_load_prefetch_factor", "3", UNUSED},
	{INT, "logits_load_msc_prefetch_depth", "2", UNUSED},
	{REAL, "logits_load_kd_loss_alpha", "1.0", UNUSED},
	{ON, "logits_load_ignore_errors", "False", UNUSED},
};
GROUP(logits_distillation, "Logits Distillation");

static const struct mft_flag workload_inspector[] = {
	{ON, "run_workload_inspector_server", "False", UNUSED},
};
GROUP(workload_inspector, "workload inspector");

static const struct mft_flag one_logger[] = {
	{OFF, "enable_one_logger", "True", NAMES("--no-one-logger"), UNUSED},
	{TEXT, "one_logger_project", "'megatron-lm'", UNUSED},
	{TEXT, "one_logger_run_name", "None", UNUSED},
	{ON, "one_logger_async", "False", UNUSED},
	{TEXT, "app_tag_run_name", "None", UNUSED},
	{TEXT, "app_tag_run_version", "'0.0.0'", UNUSED},
};
GROUP(one_logger, "one logger");

static const struct mft_flag in_process_restart[] = {
	{ON, "inprocess_restart", "False", UNUSED},
	{INT, "inprocess_max_iterations", "None", UNUSED},
	{REAL, "inprocess_monitor_thread_interval", "1.0", UNUSED},
	{REAL, "inprocess_monitor_process_interval", "1.0", UNUSED},
	{REAL, "inprocess_progress_watchdog_interval", "1.0", UNUSED},
	{REAL, "inprocess_heartbeat_interval", "30", UNUSED},
	{REAL, "inprocess_soft_timeout", "60", UNUSED},
	{REAL, "inprocess_hard_timeout", "90", UNUSED},
	{REAL, "inprocess_heartbeat_timeout", "60", UNUSED},
	{REAL, "inprocess_barrier_timeout", "120", UNUSED},
	{REAL, "inprocess_completion_timeout", "120", UNUSED},
	{REAL, "inprocess_last_call_wait", "1", UNUSED},
	{REAL, "inprocess_termination_grace_time", "1", UNUSED},
	{TEXT, "inprocess_granularity", "'node'", CHOICES("node|rank"), UNUSED},
	{INT, "inprocess_active_world_size", "1", UNUSED},
	{ON, "inprocess_empty_cuda_cache", "False", UNUSED},
};
GROUP(in_process_restart, "In-process restart");

static const struct mft_flag ft_package[] = {
	{ON, "enable_ft_package", "False", UNUSED},
	{ON, "calc_ft_timeouts", "False", UNUSED},
	{INT, "ft_num_warmup_iters", "5", UNUSED},
};
GROUP(ft_package, "ft_package");

static const struct mft_flag msc[] = {
	{ON, "enable_msc", "False", REFUSED("leave it out")},
	{ON, "disable_msc_deprecated", "False", NAMES("--disable-msc"), UNUSED},
};
GROUP(msc, "msc");

static const struct mft_flag sft[] = {
	{ON, "sft", "False", TO(sft)},
	{TEXT, "sft_tokenizer_prompt_format", "'nemotron-h-aligned'",
	 CHOICES("nemotron-h-aligned|nemotron-nano-v2|identity|default"),
	 TO(sft_tokenizer_prompt_format)},
};
GROUP(sft, "sft");

static const struct mft_flag fault_injector[] = {
	{TEXT, "fault_injector_ranks", "None", REFUSED("leave it out; no faults are made")},
	{INT, "fault_injector_num_ranks", "None", REFUSED("leave it out; no faults are made")},
	{TEXT, "fault_injector_fault_types", "None", UNUSED},
	{TEXT, "fault_injector_fault_probabilities", "None", UNUSED},
	{REAL, "fault_injector_fault_delay", "None", UNUSED},
	{INT, "fault_injector_delay_start_iteration", "None", UNUSED},
	{REAL, "fault_injector_mtti_seconds", "None", UNUSED},
	{REAL, "fault_injector_offset_seconds", "None", UNUSED},
	{INT, "fault_injector_seed", "None", UNUSED},
};
GROUP(fault_injector, "fault injector");

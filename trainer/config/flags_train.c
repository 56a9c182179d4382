/* The flags of training: batches, length, optimizer, precision. */
#include "trainer/config/flags_i.h"

static const char *const signal_names[] = {
	"SIGHUP",  "SIGINT",  "SIGQUIT", "SIGILL",  "SIGTRAP", "SIGABRT", "SIGBUS",  "SIGFPE",
	"SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", NULL};
static const struct mft_flag_enum signals = {"signal", "Signals", signal_names, NULL};

static const struct mft_flag training[] = {
	{INT, "micro_batch_size", "None", TO(micro_batch_size)},
	{INT, "global_batch_size", "None", TO(global_batch_size)},
	{INTS, "rampup_batch_size", "None", .words = '3', USED},
	{TEXT, "step_batch_size_schedule", "None", USED},
	{ON, "decrease_batch_size_if_needed", "False", TO(decrease_batch_size_if_needed)},
	{INT, "empty_unused_memory_level", "0", CHOICES("0|1|2"), UNUSED},
	{INT, "check_weight_hash_across_dp_replicas_interval", "None", UNUSED},
	{INT, "gpu_sniff_test_interval", "None", UNUSED},
	{INT, "train_sync_interval", "None", UNUSED},
	{INT, "train_iters", "None", TO(train_iters)},
	{INT, "train_samples", "None", TO(train_samples)},
	{INT, "exit_interval", "None", TO(exit_interval)},
	{INT, "exit_duration_in_mins", "None", TO_OR(exit_duration_in_mins, -1)},
	{ON, "exit_signal_handler", "False", USED,
	 .help = "SIGTERM and SIGINT save and end a run, with it or without"},
	{ENUM, "exit_signal", "'SIGTERM'", .of = &signals, USED,
	 .help = "another signal that saves and ends a run"},
	{ON, "exit_signal_handler_for_dataloader", "False", UNUSED},
	{ON, "exit_signal_handler_for_training", "False", UNUSED},
	{ON, "manual_gc", "False", UNUSED},
	{INT, "manual_gc_interval", "0", UNUSED},
	{OFF, "manual_gc_eval", "True", UNUSED},
	{INTS, "iterations_to_skip", "[]", .words = '+', USED},
	{ON, "recompute_activations", "False", .gone = true, USED},
	{OFF, "check_for_nan_in_loss_and_grad", "True",
	 NAMES("--no-check-for-nan-in-loss-and-grad"), TO(check_for_nan_in_loss_and_grad)},
	{ON, "check_for_large_grads", "False", TO(check_for_large_grads)},
	{TEXT, "result_rejected_tracker_filename", "None", REFUSED("leave it out")},
	{TEXT, "tp_comm_overlap_cfg", "None", UNUSED},
	{OFF, "masked_softmax_fusion", "True", NAMES("--no-masked-softmax-fusion"), UNUSED},
	{OFF, "bias_gelu_fusion", "True", NAMES("--no-bias-gelu-fusion"), USED},
	{OFF, "bias_swiglu_fusion", "True", NAMES("--no-bias-swiglu-fusion"), UNUSED},
	{OFF, "bias_dropout_fusion", "True", NAMES("--no-bias-dropout-fusion"), UNUSED},
	{OFF, "apply_rope_fusion", "True", NAMES("--no-rope-fusion"), UNUSED},
	{TEXT, "rope_type", "None", CHOICES("rope|yarn"), USED},
	{ON, "use_flash_attn", "False", UNUSED},
	{TEXT, "optimizer", "'adam'", CHOICES("adam|sgd|muon|dist_muon|lion|soap|adaptive_muon"),
	 TO(optimizer), HAVE("adam|sgd|muon|dist_muon", "use adam or muon")},
	{ON, "optimizer_cpu_offload", "False", TO(optimizer_cpu_offload)},
	{ON, "optimizer_cuda_graph", "False", UNUSED},
	{REAL, "optimizer_offload_fraction", "1.0", TO(optimizer_offload_fraction)},
	{ON, "use_torch_optimizer_for_cpu_offload", "False", UNUSED},
	{ON, "overlap_cpu_optimizer_d2h_h2d", "False", UNUSED},
	{TEXT, "dump_param_to_param_group_map", "None", UNUSED},
	{OFF, "pin_cpu_grads", "True", NAMES("--no-pin-cpu-grads"), UNUSED},
	{OFF, "pin_cpu_params", "True", NAMES("--no-pin-cpu-params"), UNUSED},
	{TEXT, "dataloader_type", "None", CHOICES("single|cyclic|external"), TO(dataloader_type),
	 HAVE("single|cyclic", "use single or cyclic")},
	{ON, "no_persist_layer_norm", "False", UNUSED},
	{OFF, "gradient_accumulation_fusion", "True", NAMES("--no-gradient-accumulation-fusion"),
	 UNUSED},
	{ON, "deprecated_use_mcore_models", "False", NAMES("--use-mcore-models"), UNUSED},
};
GROUP(training, "training");

static const struct mft_flag regularization[] = {
	{REAL, "weight_decay", "0.01", TO(weight_decay)},
	{ON, "apply_wd_to_qk_layernorm", "False", TO(apply_wd_to_qk_layernorm)},
	{REAL, "clip_grad", "1.0", TO(clip_grad)},
	{REAL, "adam_beta1", "0.9", TO(adam_beta1)},
	{REAL, "adam_beta2", "0.999", TO(adam_beta2)},
	{REAL, "adam_eps", "1e-08", TO(adam_eps)},
	{REAL, "sgd_momentum", "0.9", TO(sgd_momentum)},
	{REAL, "muon_momentum", "0.9", TO(muon.momentum)},
	{OFF, "muon_split_qkv", "True", NAMES("--muon-no-split-qkv"), TO(muon.split_qkv)},
	{ON, "muon_nesterov", "False", TO(muon.nesterov)},
	{TEXT, "muon_scale_mode", "'spectral'", CHOICES("spectral|unit_rms_norm|shape_scaling"),
	 TO(muon.scale_mode)},
	{TEXT, "muon_fp32_matmul_prec", "'medium'", CHOICES("low|medium|high"),
	 TO(muon.fp32_matmul_prec), HAVE("medium|high", "use medium or high")},
	{TEXT, "muon_coefficient_type", "'quintic'", TO(muon.coefficient_type)},
	{INT, "muon_num_ns_steps", "5", TO(muon.num_ns_steps)},
	{TEXT, "muon_tp_mode", "'duplicated'", CHOICES("blockwise|duplicated|distributed"),
	 TO(muon.tp_mode), .help = "distributed computes what duplicated does"},
	{ON, "muon_use_syrk", "False", UNUSED},
	{REAL, "muon_extra_scale_factor", "1.0", TO(muon.extra_scale_factor)},
	{TEXT, "muon_scalar_optimizer", "'adam'", CHOICES("adam|lion"), USED,
	 HAVE("adam", "use adam")},
	{REAL, "lion_beta1", "0.95", UNUSED},
	{REAL, "lion_beta2", "0.98", UNUSED},
	{TEXT, "no_weight_decay_cond_type", "None", CHOICES("apply_wd_to_qk_layernorm"), USED},
};
GROUP(regularization, "regularization");

static const struct mft_flag learning_rate_and_weight_decay[] = {
	{TEXT, "lr_decay_style", "'linear'",
	 CHOICES("constant|linear|cosine|inverse-square-root|WSD"), CHOICE_TO(lr_decay_style)},
	{TEXT, "lr_wsd_decay_style", "'exponential'",
	 CHOICES("exponential|linear|cosine|minus_sqrt"), CHOICE_TO(lr_wsd_decay_style)},
	{INT, "lr_decay_iters", "None", TO(lr_decay_iters)},
	{INT, "lr_decay_samples", "None", TO(lr_decay_samples)},
	{INT, "lr_wsd_decay_iters", "None", TO(lr_wsd_decay_iters)},
	{INT, "lr_wsd_decay_samples", "None", TO(lr_wsd_decay_samples)},
	{REAL, "lr_warmup_fraction", "None", TO_OR(lr_warmup_fraction, -1)},
	{INT, "lr_warmup_iters", "0", TO(lr_warmup_iters)},
	{INT, "lr_warmup_samples", "0", TO(lr_warmup_samples)},
	{REAL, "lr_warmup_init", "0.0", TO(lr_warmup_init)},
	{ON, "override_opt_param_scheduler", "False",
	 NAMES("--override-opt_param-scheduler --override-opt-param-scheduler"),
	 TO(override_opt_param_scheduler)},
	{ON, "use_checkpoint_opt_param_scheduler", "False",
	 NAMES("--use-checkpoint-opt_param-scheduler --use-checkpoint-opt-param-scheduler"),
	 TO(use_checkpoint_opt_param_scheduler)},
	{REAL, "start_weight_decay", "None", TO(start_weight_decay)},
	{REAL, "end_weight_decay", "None", TO(end_weight_decay)},
	{TEXT, "weight_decay_incr_style", "'constant'", CHOICES("constant|linear|cosine"),
	 CHOICE_TO(weight_decay_incr_style)},
	{REAL, "lr", "None", TO(lr)},
	{REAL, "min_lr", "0.0", TO(min_lr)},
	{REAL, "decoupled_lr", "None", TO_OR(decoupled_lr, -1)},
	{REAL, "decoupled_min_lr", "None", TO_OR(decoupled_min_lr, -1)},
	{ON, "freeze_all_layers", "False", REFUSED("leave it out")},
};
GROUP(learning_rate_and_weight_decay, "learning rate and weight decay");

static const struct mft_flag mixed_precision[] = {
	{ON, "grad_reduce_in_bf16", "False", USED},
	{REAL, "loss_scale", "None", TO_OR(loss_scale, 0)},
	{REAL, "initial_loss_scale", "4294967296", TO(initial_loss_scale)},
	{REAL, "min_loss_scale", "1.0", TO(min_loss_scale)},
	{REAL, "loss_scale_window", "1000", TO(loss_scale_window)},
	{INT, "hysteresis", "2", TO(hysteresis)},
	{ON, "attention_softmax_in_fp32", "False", UNUSED},
	{ON, "accumulate_allreduce_grads_in_fp32", "False", TO(accumulate_allreduce_grads_in_fp32)},
	{ON, "fp16_lm_cross_entropy", "False",
	 REFUSED("leave it out; the loss is computed in fp32")},
	{DTYPE, "logit_dtype", "None", NAMES("--output-logit-dtype"), CHOICES("bf16|fp32"),
	 REFUSED("leave it out; the loss is computed in fp32")},
	{ON, "reuse_grad_buf_for_mxfp8_param_ag", "False", UNUSED},
	{DTYPE, "mamba_training_ssm_states_dtype", "None", CHOICES("fp32|bf16"), UNUSED},
};
GROUP(mixed_precision, "mixed precision");

static const struct mft_flag rng_and_initialization[] = {
	{INT, "seed", "1234", TO(seed)},
	{ON, "te_rng_tracker", "False", UNUSED},
	{ON, "inference_rng_tracker", "False", UNUSED},
	{ON, "data_parallel_random_init", "False", UNUSED},
	{ON, "init_method_xavier_uniform", "False",
	 REFUSED("use --init-method-std; weights are normal")},
};
GROUP(rng_and_initialization, "RNG and initialization");

static const struct mft_flag validation[] = {
	{INT, "eval_iters", "100", TO(eval_iters)},
	{INT, "eval_interval", "None", TO(eval_interval)},
	{INT, "start_eval_at_iter", "None", TO_OR(start_eval_at_iter, 0)},
	{INT, "eval_global_batch_size", "None", TO(eval_global_batch_size)},
	/* A loss is a mean over tokens, however they are divided. */
	{INT, "eval_micro_batch_size", "None", UNUSED},
	{ON, "skip_train", "False", TO(skip_train)},
	{ON, "test_mode", "False", UNUSED},
	{ON, "full_validation", "False", TO(full_validation)},
	{ON, "multiple_validation_sets", "False", TO(multiple_validation_sets)},
	{TEXTS, "validation_set_names", "None", .words = '+', TO(validation_set_names)},
};
GROUP(validation, "validation");

static const struct mft_flag transformer_engine[] = {
	{ON, "fp4_param_gather", "False", REFUSED("use --bf16")},
	{ON, "fp8_param_gather", "False", USED},
	{TEXT, "te_precision_config_file", "None", REFUSED("use --bf16")},
};
GROUP(transformer_engine, "Transformer-Engine");

static const struct mft_flag experimental[] = {
	{ON, "enable_experimental", "False", UNUSED},
	{TEXTS, "spec", "None", .words = '*', USED},
	{TEXT, "hybrid_layer_pattern", "None", USED},
	{TEXT, "hybrid_override_pattern", "None", USED},
	{TEXT, "yaml_cfg", "None", NAMES("--yaml-cfg --config"), USED},
	{ON, "use_precision_aware_optimizer", "False", USED},
	{DTYPE, "main_grads_dtype", "'fp32'", CHOICES("fp32|bf16"), DTYPE_TO(main_grads_dtype)},
	{DTYPE, "main_params_dtype", "'fp32'", CHOICES("fp32|fp16"), DTYPE_TO(main_params_dtype),
	 HAVE("fp32|fp16", NULL)},
	{DTYPE, "exp_avg_dtype", "'fp32'", CHOICES("fp32|fp16|bf16|fp8"), DTYPE_TO(exp_avg_dtype),
	 HAVE("fp32|bf16", "use bf16")},
	{DTYPE, "exp_avg_sq_dtype", "'fp32'", CHOICES("fp32|fp16|bf16|fp8"),
	 DTYPE_TO(exp_avg_sq_dtype), HAVE("fp32|bf16", "use bf16")},
	{DTYPE, "megatron_fsdp_main_params_dtype", "'fp32'", CHOICES("fp32|bf16|fp16|auto"), USED},
	{DTYPE, "megatron_fsdp_main_grads_dtype", "'auto'", CHOICES("fp32|bf16|fp16|auto"), USED,
	 .help = "auto: --main-grads-dtype"},
	{DTYPE, "megatron_fsdp_grad_comm_dtype", "'auto'", CHOICES("fp32|fp16|bf16|auto"), USED},
	{ON, "megatron_fsdp_enable_fine_grained_param_gather", "False", UNUSED},
	{ON, "megatron_fsdp_max_pool_double_buffer", "False", UNUSED},
	{ON, "fsdp_db_use_persist_buf_on_alloc_fail", "False", UNUSED},
};
GROUP(experimental, "experimental");

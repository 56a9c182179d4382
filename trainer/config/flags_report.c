/* The flags of what a run says of itself. */
#include "trainer/config/flags_i.h"

static const struct mft_flag logging[] = {
	{INT, "log_interval", "100", TO(log_interval)},
	{ON, "log_params_norm", "False", TO(log_params_norm)},
	{ON, "log_throughput", "False", TO(log_throughput)},
	{ON, "log_progress", "False", UNUSED},
	{INT, "timing_log_level", "0", CHOICES("0|1|2"), UNUSED},
	{TEXT, "timing_log_option", "'minmax'", CHOICES("max|minmax|all"), UNUSED},
	{TEXT, "tensorboard_dir", "None", TO(tensorboard_dir)},
	{INT, "tensorboard_log_interval", "1", TO(tensorboard_log_interval)},
	{INT, "tensorboard_queue_size", "1000", UNUSED},
	{ON, "log_timers_to_tensorboard", "False", TO(log_timers_to_tensorboard)},
	{OFF, "log_loss_scale_to_tensorboard", "True", TO(log_loss_scale_to_tensorboard)},
	{ON, "log_validation_ppl_to_tensorboard", "False", TO(log_validation_ppl_to_tensorboard)},
	{ON, "log_memory_to_tensorboard", "False", TO(log_memory_to_tensorboard)},
	{INT, "log_memory_interval", "None", UNUSED},
	{ON, "log_device_memory_used", "False", UNUSED},
	{ON, "log_num_zeros_in_grad", "False", TO(log_num_zeros_in_grad)},
	{ON, "log_max_attention_logit", "False", TO(log_max_attention_logit)},
	{OFF, "barrier_with_L1_time", "True", NAMES("--no-barrier-with-level-1-timing"), UNUSED},
	{ON, "log_world_size_to_tensorboard", "False", TO(log_world_size_to_tensorboard)},
	{TEXT, "wandb_project", "None", TO(wandb_project),
	 .help = "write what Weights & Biases would be told as JSON, to be sent later"},
	{TEXT, "wandb_exp_name", "None", TO(wandb_exp_name)},
	{TEXT, "wandb_save_dir", "None", TO(wandb_save_dir),
	 .help = "where to; otherwise wandb in the directory of --save"},
	{TEXT, "wandb_entity", "None", TO(wandb_entity)},
	{INT, "logging_level", "None", UNUSED},
	{ON, "log_energy", "False", UNUSED},
	{TEXT, "moe_routing_trace_path", "None", REFUSED("leave it out")},
	{INT, "moe_routing_trace_max_training_iters", "None", UNUSED},
	{ON, "moe_routing_trace_capture_logits", "False", UNUSED},
	{ON, "moe_routing_trace_capture_hidden_states", "False", UNUSED},
	{ON, "moe_routing_trace_dump_weights", "False", UNUSED},
};
GROUP(logging, "logging");

static const struct mft_flag profiling[] = {
	{ON, "profile", "False", UNUSED},
	{INT, "profile_step_start", "10", UNUSED},
	{INT, "profile_step_end", "12", UNUSED},
	{ON, "use_pytorch_profiler", "False", UNUSED},
	{ON, "pytorch_profiler_collect_shapes", "False", UNUSED},
	{ON, "pytorch_profiler_collect_callstack", "False", UNUSED},
	{ON, "pytorch_profiler_collect_chakra", "False", UNUSED},
	{INTS, "profile_ranks", "[]", .words = '+', UNUSED},
	{ON, "record_memory_history", "False", UNUSED},
	{TEXT, "memory_snapshot_path", "'snapshot.pickle'", UNUSED},
	{ON, "record_shapes", "False", UNUSED},
	{ON, "nvtx_ranges", "False", TO(nvtx_ranges)},
};
GROUP(profiling, "profiling");

static const struct mft_flag straggler[] = {
	{ON, "log_straggler", "False", TO(log_straggler)},
	{INT, "straggler_ctrlr_port", "65535", TO(straggler_ctrlr_port)},
	{INT, "straggler_minmax_count", "1", TO(straggler_minmax_count)},
	{ON, "disable_straggler_on_startup", "False", TO(disable_straggler_on_startup)},
};
GROUP(straggler, "straggler");

static const struct mft_flag opentelemetry[] = {
	{ON, "otel_enabled", "False", UNUSED},
	{TEXT, "otel_service_name", "None", UNUSED},
	{TEXT, "otel_span_groups", "None", UNUSED},
};
GROUP(opentelemetry, "opentelemetry");

static const struct mft_flag rerun_engine[] = {
	{INT, "error_injection_rate", "0", UNUSED, .help = "no faults are made"},
	{TEXT, "error_injection_type", "'transient_error'",
	 CHOICES("correct_result|transient_error|persistent_error"), UNUSED},
	{TEXT, "rerun_mode", "'validate_results'",
	 CHOICES("disabled|validate_results|report_stats"), TO(rerun_mode),
	 HAVE("disabled|validate_results", "steps are not run again; leave it out")},
	{ON, "check_for_spiky_loss", "False", TO(check_for_spiky_loss)},
};
GROUP(rerun_engine, "rerun engine");

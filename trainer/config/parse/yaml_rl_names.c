/* The tables of yaml_rl.h. What another row needs stands before it. */
#include "formats/base/array.h"
#include "trainer/config/parse/yaml_rl.h"

#define TAKEN(path, dest)                                                                          \
	{                                                                                          \
		path, MFT_RL_TAKEN, dest, NULL, NULL                                               \
	}
#define TAKEN_OR(path, dest, or)                                                                   \
	{                                                                                          \
		path, MFT_RL_TAKEN, dest, NULL, or                                                 \
	}
#define CHOICE(path, dest, words)                                                                  \
	{                                                                                          \
		path, MFT_RL_CHOICE, dest, words, NULL                                             \
	}
#define CHOICE_OR(path, dest, words, or)                                                           \
	{                                                                                          \
		path, MFT_RL_CHOICE, dest, words, or                                               \
	}
/* These values alone, which change nothing. */
#define ONLY(path, words)                                                                          \
	{                                                                                          \
		path, MFT_RL_CHOICE, NULL, words, NULL                                             \
	}
#define COUNTED(kind, path, dest)                                                                  \
	{                                                                                          \
		path, MFT_RL_##kind, dest, NULL, NULL                                              \
	}
#define COUNTED_OR(kind, path, dest, or)                                                           \
	{                                                                                          \
		path, MFT_RL_##kind, dest, NULL, or                                                \
	}
#define SECTION(path, section)                                                                     \
	{                                                                                          \
		path, MFT_RL_SECTION, section, NULL, NULL                                          \
	}
#define UNUSED(path)                                                                               \
	{                                                                                          \
		path, MFT_RL_UNUSED, NULL, NULL, NULL                                              \
	}
#define UNUSED_BUT(path, words)                                                                    \
	{                                                                                          \
		path, MFT_RL_UNUSED, NULL, words, NULL                                             \
	}
#define ELSEWHERE(path)                                                                            \
	{                                                                                          \
		path, MFT_RL_ELSEWHERE, NULL, NULL, NULL                                           \
	}

/* Ratios of log-probs are of nets without dropout. */
#define NO_DROPOUT TAKEN_OR(NULL, "hidden_dropout", "0"), TAKEN_OR(NULL, "attention_dropout", "0")
#define KL_TYPES   "k1=k1|kl=k1|k2=k2|mse=k2|k3=k3|low_var_kl=k3"

/* ---- Oumi ---- */

static const struct mft_yaml_rl_row oumi[] = {
	NO_DROPOUT,
	ELSEWHERE("training.trainer_type"),
	TAKEN_OR("grpo.num_generations", "grpo_group_size", "8"),
	TAKEN_OR(NULL, "grpo_iterations", "1"),
	COUNTED(PROMPTS, "megatron.global_batch_size", "grpo_prompts_per_step"),
	TAKEN("megatron.global_batch_size", "global_batch_size"),
	TAKEN_OR("grpo.temperature", "rl_default_temperature", "0.9"),
	TAKEN("megatron.sampling_config.temperature", "rl_default_temperature"),
	TAKEN("megatron.sampling_config.top_p", "rl_default_top_p"),
	TAKEN("megatron.sampling_config.top_k", "rl_default_top_k"),
	TAKEN_OR("grpo.max_completion_length", "rl_max_response_length", "256"),
	TAKEN("megatron.sampling_config.max_tokens", "rl_max_response_length"),
	COUNTED(ROOM, "grpo.max_prompt_length", "seq_length"),
	ONLY("grpo.repetition_penalty", "1"),
	ONLY("megatron.sampling_config.repetition_penalty", "1"),
	TAKEN_OR("grpo.epsilon", "grpo_clamp_eps_lower", "0.2"),
	TAKEN_OR("grpo.epsilon", "grpo_clamp_eps_upper", "0.2"),
	TAKEN("megatron.grpo_config.clamp_eps_lower", "grpo_clamp_eps_lower"),
	TAKEN("megatron.grpo_config.clamp_eps_upper", "grpo_clamp_eps_upper"),
	TAKEN("megatron.grpo_config.kl_beta", "grpo_kl_beta"),
	TAKEN("megatron.grpo_config.entropy_weight", "grpo_entropy_term_weight"),
	CHOICE_OR("megatron.grpo_config.normalize_advantages", "rl_advantage_norm",
		  "true=std|false=none", "true"),
	ONLY("megatron.grpo_config.reference_update_interval", "0"),
	ONLY("grpo.rollout_function", "null"),
	UNUSED("grpo.use_vllm"),
	UNUSED("grpo.vllm_mode"),
	UNUSED("grpo.vllm_gpu_memory_utilization"),
	UNUSED("grpo.log_completions"),
	TAKEN("megatron.enable_sequence_packing", "rl_use_sequence_packing"),
	ONLY("megatron.enable_weight_sync", "true"),
	UNUSED_BUT("megatron.weight_sync_method", "checkpoint"), /* which engines read here */
	UNUSED("megatron.inference_backend"),
	ONLY("megatron.vllm_weight_sync_interval", "1"),
	SECTION("megatron.ddp_config", "ddp"),
	SECTION("megatron.optimizer_config", "optimizer"),
	SECTION("megatron.transformer_config", "model"),
	SECTION("megatron.checkpoint_config", "checkpoint"),
	SECTION("megatron.*", "megatron"),
	TAKEN("training.max_steps", "train_iters"),
	TAKEN("training.learning_rate", "lr"),
	TAKEN("training.output_dir", "save"),
	TAKEN("training.save_steps", "save_interval"),
	TAKEN("training.logging_steps", "log_interval"),
	TAKEN("training.seed", "seed"),
	TAKEN("training.weight_decay", "weight_decay"),
	TAKEN("training.adam_beta1", "adam_beta1"),
	TAKEN("training.adam_beta2", "adam_beta2"),
	TAKEN("training.adam_epsilon", "adam_eps"),
	TAKEN("training.max_grad_norm", "clip_grad"),
	TAKEN("training.warmup_steps", "lr_warmup_iters"),
	TAKEN("training.warmup_ratio", "lr_warmup_fraction"),
	CHOICE("training.lr_scheduler_type", "lr_decay_style",
	       "linear=linear|cosine=cosine|constant=constant"),
	CHOICE("training.optimizer", "optimizer",
	       "adamw=adam|adamw_torch=adam|adamw_torch_fused=adam|sgd=sgd"),
	TAKEN("training.per_device_train_batch_size", "micro_batch_size"),
	/* megatron.global_batch_size is the product. */
	UNUSED("training.gradient_accumulation_steps"),
	UNUSED("training.reward_functions"),
	UNUSED("training.enable_wandb"),
	UNUSED("training.enable_tensorboard"),
	UNUSED("training.run_name"),
	UNUSED("training.num_train_epochs"),
	UNUSED("training.dataloader_num_workers"),
	UNUSED("training.include_performance_metrics"),
	UNUSED("training.log_model_summary"),
	UNUSED("model.*"),
	UNUSED("data.*"),
};

/* ---- verl ---- */

#define ACTOR	"actor_rollout_ref.actor."
#define ROLLOUT "actor_rollout_ref.rollout."
#define CORRECT "algorithm.rollout_correction."

static const struct mft_yaml_rl_row verl[] = {
	NO_DROPOUT,
	TAKEN_OR(NULL, "lr_decay_style", "constant"),
	TAKEN_OR("data.train_batch_size", "grpo_prompts_per_step", "1024"),
	TAKEN_OR(ROLLOUT "n", "grpo_group_size", "1"),
	TAKEN_OR(ACTOR "ppo_epochs", "grpo_iterations", "1"),
	COUNTED_OR(RESPONSES, ACTOR "ppo_mini_batch_size", "global_batch_size", "256"),
	TAKEN(ACTOR "ppo_micro_batch_size_per_gpu", "micro_batch_size"),
	ONLY(ACTOR "ppo_micro_batch_size", "null"),
	TAKEN_OR("data.max_response_length", "rl_max_response_length", "512"),
	COUNTED_OR(ROOM, "data.max_prompt_length", "seq_length", "512"),
	COUNTED(FILE, "data.train_files", "rl_prompt_data"),
	TAKEN("data.prompt_key", "rl_prompt_key"),
	TAKEN("data.seed", "seed"),
	TAKEN_OR(ROLLOUT "temperature", "rl_default_temperature", "1"),
	TAKEN(ROLLOUT "top_p", "rl_default_top_p"),
	TAKEN(ROLLOUT "top_k", "rl_default_top_k"),
	TAKEN_OR(ACTOR "clip_ratio_low", "grpo_clamp_eps_lower", "0.2"),
	TAKEN_OR(ACTOR "clip_ratio_high", "grpo_clamp_eps_upper", "0.2"),
	UNUSED(ACTOR "clip_ratio"), /* the two before it have defaults of their own */
	TAKEN_OR(ACTOR "clip_ratio_c", "rl_dual_clip", "3"),
	CHOICE_OR(ACTOR "policy_loss.loss_mode", "rl_loss", "vanilla=clip|gspo=gspo|cispo=cispo",
		  "vanilla"),
	UNUSED(ACTOR "policy_loss.*"),
	TAKEN_OR(ACTOR "kl_loss_coef", "grpo_kl_beta", "0.001"),
	CHOICE_OR(ACTOR "use_kl_loss", "grpo_kl_beta", "true|false=0", "false"),
	CHOICE_OR(ACTOR "kl_loss_type", "rl_kl_type", KL_TYPES, "k3"),
	TAKEN_OR(ACTOR "entropy_coeff", "grpo_entropy_term_weight", "0"),
	CHOICE_OR(ACTOR "loss_agg_mode", "rl_loss_aggregation",
		  "token-mean=token-mean|seq-mean-token-mean=seq-mean-token-mean|"
		  "seq-mean-token-sum=seq-mean-token-sum|"
		  "seq-mean-token-sum-norm=seq-mean-token-sum-norm",
		  "token-mean"),
	ONLY(ACTOR "loss_scale_factor", "null"),
	TAKEN(ACTOR "optim.lr", "lr"),
	TAKEN(ACTOR "optim.min_lr", "min_lr"),
	TAKEN(ACTOR "optim.weight_decay", "weight_decay"),
	CHOICE(ACTOR "optim.lr_decay_style", "lr_decay_style",
	       "constant=constant|linear=linear|cosine=cosine"),
	ONLY(ACTOR "optim.optimizer", "adam|AdamW"),
	TAKEN_OR(ACTOR "optim.clip_grad", "clip_grad", "1"),
	TAKEN(ACTOR "grad_clip", "clip_grad"),
	COUNTED(FIRST, ACTOR "optim.betas", "adam_beta1"),
	COUNTED(SECOND, ACTOR "optim.betas", "adam_beta2"),
	CHOICE_OR("algorithm.adv_estimator", "rl_advantage_norm", "grpo=std|rloo=rloo", "grpo"),
	CHOICE("algorithm.norm_adv_by_std_in_grpo", "rl_advantage_norm", "true|false=none"),
	ONLY("algorithm.use_kl_in_reward", "false"),
	CHOICE(CORRECT "rollout_is", "rl_inference_logprobs_is_correction",
	       "token=true|sequence=true"),
	CHOICE(CORRECT "rollout_is", "rl_importance_sampling_level",
	       "token=token|sequence=sequence"),
	TAKEN_OR(CORRECT "rollout_is_threshold", "rl_importance_sampling_truncation_coef", "2"),
	ONLY(CORRECT "rollout_rs", "null"),
	UNUSED(CORRECT "rollout_rs_threshold"),
	ONLY(CORRECT "rollout_is_batch_normalize", "false"),
	ONLY(CORRECT "bypass_mode", "false"),
	TAKEN("algorithm.filter_groups.enable", "grpo_filter_groups_with_same_reward"),
	UNUSED("algorithm.filter_groups.*"),
	UNUSED("algorithm.gamma"),
	UNUSED("algorithm.lam"),
	UNUSED("algorithm.kl_penalty"),
	UNUSED("algorithm.kl_ctrl"),
	TAKEN(ACTOR "megatron.tensor_model_parallel_size", "tensor_model_parallel_size"),
	TAKEN(ACTOR "megatron.pipeline_model_parallel_size", "pipeline_model_parallel_size"),
	TAKEN(ACTOR "megatron.virtual_pipeline_model_parallel_size",
	      "num_virtual_stages_per_pipeline_rank"),
	TAKEN(ACTOR "megatron.context_parallel_size", "context_parallel_size"),
	TAKEN(ACTOR "megatron.expert_model_parallel_size", "expert_model_parallel_size"),
	TAKEN(ACTOR "megatron.expert_tensor_parallel_size", "expert_tensor_parallel_size"),
	TAKEN(ACTOR "megatron.sequence_parallel", "sequence_parallel"),
	TAKEN(ACTOR "megatron.use_distributed_optimizer", "use_distributed_optimizer"),
	TAKEN(ACTOR "megatron.seed", "seed"),
	SECTION(ACTOR "megatron.override_transformer_config", "model"),
	SECTION(ACTOR "megatron.override_ddp_config", "ddp"),
	UNUSED(ACTOR "megatron.*"),
	TAKEN("actor_rollout_ref.model.use_remove_padding", "rl_use_sequence_packing"),
	UNUSED("actor_rollout_ref.model.*"),
	UNUSED(ACTOR "strategy"),
	UNUSED(ACTOR "fsdp_config"),
	UNUSED(ACTOR "use_torch_compile"),
	UNUSED(ACTOR "use_dynamic_bsz"),
	UNUSED(ACTOR "ppo_max_token_len_per_gpu"),
	UNUSED(ACTOR "shuffle"),
	UNUSED(ACTOR "checkpoint"),
	UNUSED(ACTOR "profiler"),
	UNUSED(ROLLOUT "*"),
	UNUSED("actor_rollout_ref.ref"),
	UNUSED("actor_rollout_ref.hybrid_engine"),
	UNUSED("data.*"),
	COUNTED(STEPS, ACTOR "optim.lr_warmup_steps", "lr_warmup_iters"),
	TAKEN(ACTOR "optim.lr_warmup_steps_ratio", "lr_warmup_fraction"),
	COUNTED(STEPS, "trainer.total_training_steps", "train_iters"),
	COUNTED(STEPS, "trainer.save_freq", "save_interval"),
	TAKEN("trainer.default_local_dir", "save"),
	UNUSED("trainer.*"),
	UNUSED("critic"),
	UNUSED("reward"),
	UNUSED("reward_model"),
	UNUSED("custom_reward_function"),
	UNUSED("ray_kwargs"),
	UNUSED("ray_init"),
	UNUSED("global_profiler"),
	UNUSED("defaults"),
	UNUSED("hydra"),
};

/* ---- SkyRL ---- */

#define OFF "trainer.algorithm.off_policy_correction."

static const struct mft_yaml_rl_row skyrl[] = {
	NO_DROPOUT,
	TAKEN_OR(NULL, "lr_decay_style", "constant"),
	TAKEN_OR("trainer.train_batch_size", "grpo_prompts_per_step", "1024"),
	TAKEN_OR("generator.n_samples_per_prompt", "grpo_group_size", "5"),
	TAKEN_OR("trainer.update_epochs_per_batch", "grpo_iterations", "1"),
	COUNTED_OR(RESPONSES, "trainer.policy_mini_batch_size", "global_batch_size", "256"),
	TAKEN("trainer.micro_train_batch_size_per_gpu", "micro_batch_size"),
	TAKEN_OR("generator.sampling_params.max_generate_length", "rl_max_response_length", "1024"),
	COUNTED_OR(ROOM, "trainer.max_prompt_length", "seq_length", "512"),
	TAKEN_OR("generator.sampling_params.temperature", "rl_default_temperature", "1"),
	TAKEN("generator.sampling_params.top_p", "rl_default_top_p"),
	TAKEN("generator.sampling_params.top_k", "rl_default_top_k"),
	TAKEN_OR("trainer.algorithm.eps_clip_low", "grpo_clamp_eps_lower", "0.2"),
	TAKEN_OR("trainer.algorithm.eps_clip_high", "grpo_clamp_eps_upper", "0.2"),
	TAKEN_OR("trainer.algorithm.clip_ratio_c", "rl_dual_clip", "3"),
	CHOICE_OR("trainer.algorithm.policy_loss_type", "rl_loss",
		  "regular=clip|dual_clip=clip|gspo=gspo|cispo=cispo", "regular"),
	CHOICE_OR("trainer.algorithm.policy_loss_type", "rl_dual_clip",
		  "regular=0|dual_clip|gspo=0|cispo=0", "regular"),
	TAKEN_OR("trainer.algorithm.kl_loss_coef", "grpo_kl_beta", "0.001"),
	CHOICE_OR("trainer.algorithm.use_kl_loss", "grpo_kl_beta", "true|false=0", "true"),
	CHOICE_OR("trainer.algorithm.kl_estimator_type", "rl_kl_type", KL_TYPES, "k3"),
	ONLY("trainer.algorithm.use_kl_in_reward", "false"),
	TAKEN_OR("trainer.algorithm.entropy_loss_coef", "grpo_entropy_term_weight", "0.01"),
	CHOICE_OR("trainer.algorithm.use_entropy_loss", "grpo_entropy_term_weight", "true|false=0",
		  "false"),
	CHOICE_OR("trainer.algorithm.loss_reduction", "rl_loss_aggregation",
		  "token_mean=token-mean|sequence_mean=seq-mean-token-mean|"
		  "seq_mean_token_sum_norm=seq-mean-token-sum-norm|prompt_mean=prompt-mean",
		  "token_mean"),
	UNUSED("trainer.algorithm.max_seq_len"),
	CHOICE_OR("trainer.algorithm.advantage_estimator", "rl_advantage_norm",
		  "grpo=std|rloo=rloo", "grpo"),
	CHOICE("trainer.algorithm.grpo_norm_by_std", "rl_advantage_norm", "true|false=none"),
	ONLY("trainer.algorithm.advantage_batch_normalize", "false"),
	UNUSED("trainer.algorithm.gamma"),
	UNUSED("trainer.algorithm.lambd"),
	TAKEN("trainer.algorithm.zero_variance_filter", "grpo_filter_groups_with_same_reward"),
	CHOICE("trainer.algorithm.dynamic_sampling.type", "grpo_filter_groups_with_same_reward",
	       "filter=true"),
	UNUSED("trainer.algorithm.dynamic_sampling.*"),
	CHOICE(OFF "tis_ratio_type", "rl_inference_logprobs_is_correction",
	       "token=true|sequence=true"),
	CHOICE(OFF "tis_ratio_type", "rl_importance_sampling_level",
	       "token=token|sequence=sequence"),
	TAKEN_OR(OFF "token_tis_ratio_clip_high", "rl_importance_sampling_truncation_coef", "2"),
	CHOICE(OFF "tis_ratio_type", "rl_importance_sampling_truncation_coef", "token|sequence=5"),
	ONLY(OFF "sequence_tis_ratio_clip_high", "5"),
	ONLY(OFF "sequence_mask_metric", "null"),
	TAKEN("generator.apply_overlong_filtering", "rl_mask_truncated"),
	ONLY("generator.zero_reward_on_non_stop", "false"),
	TAKEN("generator.external_server_urls", "rl_inference_url"),
	COUNTED(FILE, "data.train_data", "rl_prompt_data"),
	UNUSED("generator.*"),
	TAKEN("trainer.policy.optimizer_config.lr", "lr"),
	TAKEN("trainer.policy.optimizer_config.weight_decay", "weight_decay"),
	TAKEN("trainer.policy.optimizer_config.max_grad_norm", "clip_grad"),
	COUNTED(FIRST, "trainer.policy.optimizer_config.adam_betas", "adam_beta1"),
	COUNTED(SECOND, "trainer.policy.optimizer_config.adam_betas", "adam_beta2"),
	/* SkyRL counts steps of the optimizer. */
	TAKEN("trainer.policy.optimizer_config.num_warmup_steps", "lr_warmup_iters"),
	CHOICE("trainer.policy.optimizer_config.scheduler", "lr_decay_style",
	       "constant_with_warmup=constant|constant=constant|linear=linear|cosine=cosine"),
	UNUSED("trainer.policy.optimizer_config.offload_after_step"),
	TAKEN("trainer.policy.megatron_config.tensor_model_parallel_size",
	      "tensor_model_parallel_size"),
	TAKEN("trainer.policy.megatron_config.pipeline_model_parallel_size",
	      "pipeline_model_parallel_size"),
	TAKEN("trainer.policy.megatron_config.context_parallel_size", "context_parallel_size"),
	TAKEN("trainer.policy.megatron_config.expert_model_parallel_size",
	      "expert_model_parallel_size"),
	TAKEN("trainer.policy.megatron_config.expert_tensor_parallel_size",
	      "expert_tensor_parallel_size"),
	SECTION("trainer.policy.megatron_config.ddp_config", "ddp"),
	SECTION("trainer.policy.megatron_config.optimizer_config_kwargs", "optimizer"),
	SECTION("trainer.policy.megatron_config.transformer_config_kwargs", "model"),
	UNUSED("trainer.policy.megatron_config.*"),
	UNUSED("trainer.policy.*"),
	TAKEN("trainer.use_sample_packing", "rl_use_sequence_packing"),
	TAKEN("trainer.seed", "seed"),
	TAKEN("trainer.ckpt_path", "save"),
	COUNTED(STEPS, "trainer.ckpt_interval", "save_interval"),
	UNUSED("trainer.ref"),
	UNUSED("trainer.critic"),
	UNUSED("trainer.placement"),
	UNUSED("trainer.fully_async"),
	UNUSED("trainer.strategy"),
	UNUSED("trainer.epochs"),
	UNUSED("trainer.logger"),
	UNUSED("trainer.project_name"),
	UNUSED("trainer.run_name"),
	UNUSED("trainer.export_path"),
	UNUSED("trainer.hf_save_interval"),
	UNUSED("trainer.resume_mode"),
	UNUSED("trainer.eval_batch_size"),
	UNUSED("trainer.eval_before_train"),
	UNUSED("trainer.eval_interval"),
	UNUSED("trainer.critic_mini_batch_size"),
	UNUSED("trainer.micro_forward_batch_size_per_gpu"),
	UNUSED("trainer.gradient_checkpointing"),
	UNUSED("trainer.flash_attn"),
	UNUSED("data.*"),
	UNUSED("environment"),
	UNUSED("defaults"),
};

/* ---- NeMo-RL, around policy.megatron_cfg ---- */

static const struct mft_yaml_rl_row nemo[] = {
	NO_DROPOUT,
	TAKEN_OR(NULL, "grpo_iterations", "1"),
	TAKEN_OR("grpo.num_prompts_per_step", "grpo_prompts_per_step", "32"),
	TAKEN_OR("grpo.num_generations_per_prompt", "grpo_group_size", "16"),
	TAKEN_OR("policy.train_global_batch_size", "global_batch_size", "512"),
	COUNTED(STEPS, "grpo.max_num_steps", "train_iters"),
	CHOICE_OR("grpo.normalize_rewards", "rl_advantage_norm", "true=std|false=none", "true"),
	COUNTED_OR(OTHERS, "grpo.use_leave_one_out_baseline", "rl_advantage_norm", "true"),
	TAKEN("grpo.use_dynamic_sampling", "grpo_filter_groups_with_same_reward"),
	TAKEN("grpo.overlong_filtering", "rl_mask_truncated"),
	TAKEN("grpo.seed", "seed"),
	UNUSED("grpo.*"),
	TAKEN("policy.train_micro_batch_size", "micro_batch_size"),
	TAKEN("policy.max_total_sequence_length", "seq_length"),
	TAKEN("policy.max_grad_norm", "clip_grad"),
	TAKEN("policy.generation.max_new_tokens", "rl_max_response_length"),
	TAKEN_OR("policy.generation.temperature", "rl_default_temperature", "1"),
	TAKEN("policy.generation.top_p", "rl_default_top_p"),
	TAKEN("policy.generation.top_k", "rl_default_top_k"),
	TAKEN("policy.sequence_packing.enabled", "rl_use_sequence_packing"),
	UNUSED("policy.*"),
	ELSEWHERE("policy.megatron_cfg"), /* as without --perform-rl-step */
	TAKEN_OR("loss_fn.reference_policy_kl_penalty", "grpo_kl_beta", "0.01"),
	CHOICE_OR("loss_fn.reference_policy_kl_type", "rl_kl_type", KL_TYPES, "k3"),
	TAKEN_OR("loss_fn.ratio_clip_min", "grpo_clamp_eps_lower", "0.2"),
	TAKEN_OR("loss_fn.ratio_clip_max", "grpo_clamp_eps_upper", "0.2"),
	TAKEN("loss_fn.ratio_clip_c", "rl_dual_clip"),
	CHOICE_OR("loss_fn.token_level_loss", "rl_loss_aggregation",
		  "true=token-mean|false=seq-mean-token-mean", "true"),
	CHOICE("loss_fn.sequence_level_importance_ratios", "rl_loss", "true=gspo|false"),
	CHOICE("loss_fn.use_cispo", "rl_loss", "true=cispo|false"),
	CHOICE("loss_fn.disable_ppo_ratio", "rl_loss", "true=plain|false"),
	TAKEN("loss_fn.use_importance_sampling_correction", "rl_inference_logprobs_is_correction"),
	CHOICE("loss_fn.truncated_importance_sampling_type", "rl_importance_sampling_mode",
	       "tis=truncate|icepop=mask"),
	TAKEN("loss_fn.truncated_importance_sampling_ratio",
	      "rl_importance_sampling_truncation_coef"),
	TAKEN("loss_fn.truncated_importance_sampling_ratio_min", "rl_importance_sampling_lower"),
	ONLY("loss_fn.use_on_policy_kl_approximation", "false"),
	ONLY("loss_fn.use_kl_in_reward", "false"),
	ONLY("loss_fn.force_on_policy_ratio", "false"),
	UNUSED("defaults"),
	UNUSED("checkpointing"),
	UNUSED("data"),
	UNUSED("env"),
	UNUSED("logger"),
	UNUSED("cluster"),
};

#define PROGRAM(name, rows)                                                                        \
	{                                                                                          \
		name, rows, MFS_ARRAY_SIZE(rows)                                                   \
	}
const struct mft_yaml_rl_program mft_yaml_rl_oumi = PROGRAM("Oumi", oumi);
const struct mft_yaml_rl_program mft_yaml_rl_verl = PROGRAM("verl", verl);
const struct mft_yaml_rl_program mft_yaml_rl_skyrl = PROGRAM("SkyRL", skyrl);
const struct mft_yaml_rl_program mft_yaml_rl_nemo = PROGRAM("NeMo-RL", nemo);

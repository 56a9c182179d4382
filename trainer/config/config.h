/*
 * What a training run was asked to do: the arguments of pretrain_gpt.py, with types.
 *
 * The model's are struct mfs_megatron_args, as they are read from checkpoints. Here are those of
 * training. Names are the dest of Megatron's arguments (megatron/training/arguments.py and
 * megatron/training/config/training_config.py). An argument that was not given has Megatron's
 * default. MFS_ABSENT: an integer that is None; NULL: a text that is None.
 */
#ifndef MFT_TRAINER_CONFIG_CONFIG_H
#define MFT_TRAINER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/tensor.h"
#include "formats/args/megatron_args.h"
#include "formats/args/megatron_data_args.h"
#include "trainer/config/loss_list.h"

enum mft_lr_decay_style {
	MFT_LR_CONSTANT,
	MFT_LR_LINEAR,
	MFT_LR_COSINE,
	MFT_LR_INVERSE_SQUARE_ROOT,
	MFT_LR_WSD
};
enum mft_wsd_decay_style {
	MFT_WSD_EXPONENTIAL,
	MFT_WSD_LINEAR,
	MFT_WSD_COSINE,
	MFT_WSD_MINUS_SQRT
};
enum mft_wd_incr { MFT_WD_CONSTANT, MFT_WD_LINEAR, MFT_WD_COSINE };
/* What the processes that share the samples divide, each with what stands before it: the choices of
 * --data-parallel-sharding-strategy. The distributed optimizer divides the state. */
enum mft_sharding { MFT_SHARD_NONE, MFT_SHARD_STATE, MFT_SHARD_GRADS, MFT_SHARD_WEIGHTS };
/* Losses that balance experts: over a microbatch, over each sequence of it, and over the
 * microbatches that all processes have computed of the step. */
enum mft_aux_loss { MFT_AUX_LOSS, MFT_SEQ_AUX_LOSS, MFT_GLOBAL_AUX_LOSS, MFT_AUX_LOSSES };
/* Terms of the loss that a step reports, at most (trainer/model/loss/loss.h). */
#define MFT_LOSS_TERMS 8
#define MFT_MTP_MOST   8 /* MTP layers at most, --mtp-num-layers */
enum mft_recompute { MFT_RECOMPUTE_NONE, MFT_RECOMPUTE_SELECTIVE, MFT_RECOMPUTE_FULL };

/* --step-batch-size-schedule: from so many consumed samples (or tokens) on, this global batch size.
 */
struct mft_batch_step {
	uint64_t threshold; /* samples */
	uint64_t batch;
};

/* Below --save and --load, where --non-persistent-global-ckpt-dir is not given
 * (checkpointing.py: _NON_PERSISTENT_CKPT_SUBDIR). */
#define MFT_NON_PERSISTENT_DIR "non_persistent"

/* What a checkpoint's model has and no flag says. */
struct mft_adopted_yarn {
	bool taken;
	double beta_fast, beta_slow;
	int64_t original_max_position_embeddings;
};

struct mft_train_config {
	struct mfs_megatron_args model;

	/* model, training alone */
	double hidden_dropout, attention_dropout;
	bool apply_query_key_layer_scaling;	    /* scores are divided by the layer's number, and
					       multiplied in fp32 */
	double embedding_init_method_std;	    /* < 0: init_method_std */
	double moe_z_loss_coeff;		    /* 0: none */
	double moe_aux_loss_coeffs[MFT_AUX_LOSSES]; /* 0: none */
	double mtp_loss_scaling_factor;		    /* of the mean of all MTP layers' losses */
	bool moe_logs_aux_loss[MFT_AUX_LOSSES];	    /* Megatron's line has them */
	bool moe_sinkhorn;			    /* instead of losses */
	bool moe_router_force_load_balancing;	    /* logits are random, for benchmarks */
	const char *moe_router_dtype;		    /* "fp32", "fp64"; NULL: the io type */
	double moe_router_bias_update_rate;
	double moe_expert_capacity_factor; /* 0, or below: dropless */
	bool moe_pad_expert_input_to_capacity;
	bool moe_shared_expert_overlap;	   /* rows go to experts while shared ones compute */
	const char *moe_token_drop_policy; /* "probs", "position" */

	/* precision */
	enum mfs_dtype params_dtype; /* MFS_BF16, MFS_F16, MFS_F32: the io type */
	/* main_grads_dtype: bf16 with --grad-reduce-in-bf16, too; fp16 with --fp16, unless
	 * --accumulate-allreduce-grads-in-fp32 is given as well */
	enum mfs_dtype main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype;
	bool accumulate_allreduce_grads_in_fp32;
	/* products of 8 bits (recipe_words.h): --fp8-format, NULL: none; --fp8-recipe */
	const char *fp8, *fp8_recipe;
	bool fp8_wgrad, first_last_layers_bf16;
	int64_t num_layers_at_start_in_bf16, num_layers_at_end_in_bf16;
	int64_t fp8_margin, fp8_amax_history_len; /* of recipe delayed, as the next one */
	const char *fp8_amax_compute_algo;	  /* "most_recent", "max" */
	double loss_scale;			  /* 0: dynamic (fp16) */
	double initial_loss_scale, min_loss_scale;
	int64_t loss_scale_window, hysteresis;

	/* batches */
	int64_t micro_batch_size, global_batch_size;
	/* processes that share the samples, and this one's number; 0 of 0: it is alone */
	int64_t data_parallel_rank, data_parallel_size;
	/* microbatches that go through a model chunk before the next one's turn; MFS_ABSENT: as
	 * many as there are stages */
	int64_t microbatch_group_size;
	/* [model chunks]: layers of each, Megatron's vp * P + pp (formats/megatron/layout.h); NULL:
	 * equal shares, or as the model's first_stage_layers and last_stage_layers say */
	const uint32_t *chunk_layers;
	/* processes that share a sequence; the model's own sizes are in `model` */
	int64_t context_parallel_size, context_parallel_rank;
	struct mfs_arg_words
		cp_comm_type; /* of each layer, or one of all (model/attention/core.c) */
	/* of those that share a sequence, neighbours that exchange tokens for heads where a layer's
	 * type is a2a+p2p; 0: no layer's is */
	int64_t context_neighbours;
	bool sequence_parallel;
	/* without progress, before and after the first iteration; <= 0: the former */
	double distributed_timeout_minutes, distributed_timeout_seconds_after_init;
	const struct mft_batch_step *batch_steps; /* --step-batch-size-schedule; NULL: none */
	uint32_t batch_step_count;
	uint64_t rampup_samples; /* --rampup-batch-size, whose batches are batch_steps; 0: none */
	bool decrease_batch_size_if_needed;
	int64_t eval_global_batch_size;
	int64_t seed;

	/* length */
	int64_t train_iters, train_samples; /* MFS_ABSENT: the other one says */
	int64_t exit_interval;		    /* MFS_ABSENT: none */
	double exit_duration_in_mins;	    /* < 0: none */
	int64_t exit_signal;		    /* its number; it ends a run as SIGTERM does */
	const int64_t *iterations_to_skip;
	size_t skip_count;
	int64_t eval_iters, eval_interval; /* eval_interval MFS_ABSENT: no validation */
	int64_t start_eval_at_iter;
	bool full_validation;
	bool multiple_validation_sets;
	struct mfs_arg_words validation_set_names; /* NULL: their numbers */
	bool skip_train;

	/* optimizer */
	const char *optimizer; /* "adam", "sgd", "muon", "dist_muon" */
	bool decoupled_weight_decay;
	double lr, min_lr, lr_warmup_init;
	enum mft_lr_decay_style lr_decay_style;
	enum mft_wsd_decay_style lr_wsd_decay_style;
	int64_t lr_decay_iters, lr_decay_samples, lr_wsd_decay_iters, lr_wsd_decay_samples;
	int64_t lr_warmup_iters, lr_warmup_samples; /* 0: none */
	double lr_warmup_fraction;		    /* < 0: not given */
	double decoupled_lr, decoupled_min_lr;	    /* < 0: none, and min_lr */
	double weight_decay, start_weight_decay, end_weight_decay;
	enum mft_wd_incr weight_decay_incr_style;
	bool apply_wd_to_qk_layernorm;
	double clip_grad, adam_beta1, adam_beta2, adam_eps;
	double sgd_momentum; /* 0: SGD keeps nothing of a parameter */
	struct {	     /* --muon-* */
		double momentum, extra_scale_factor;
		bool nesterov, split_qkv;
		int64_t num_ns_steps;
		const char *scale_mode, *fp32_matmul_prec, *coefficient_type, *tp_mode;
	} muon;
	bool qk_clip, log_max_attention_logit;
	double qk_clip_alpha, qk_clip_threshold;
	bool override_opt_param_scheduler, use_checkpoint_opt_param_scheduler;
	bool calculate_per_token_loss;
	bool use_distributed_optimizer, overlap_grad_reduce, overlap_param_gather;
	bool overlap_p2p_comm;
	int64_t num_distributed_optimizer_instances;
	enum mft_sharding sharding;		  /* settled, with FSDP and without */
	int64_t ddp_bucket_size, ddp_num_buckets; /* elements of a bucket; MFS_ABSENT: not given */
	bool optimizer_cpu_offload;
	double optimizer_offload_fraction; /* of the parameters */

	/* memory */
	enum mft_recompute recompute_granularity;
	const char *recompute_method; /* "uniform", "block"; NULL */
	int64_t recompute_num_layers;
	bool is_hybrid_model; /* of --hybrid-layer-pattern: matrices begin as a GPTModel's do */
	struct mfs_arg_words recompute_modules; /* of selective; NULL: core_attn */

	/* data */
	struct mfs_arg_words data_path, split_data_path[3]; /* train, valid, test */
	const char *data_args_path, *per_split_data_args_path, *split;
	const char *dataloader_type; /* "single", "cyclic" */
	int64_t seq_length;
	bool mock_data, reset_position_ids, reset_attention_mask, eod_mask_loss, no_data_sharding;
	bool sft, sft_answer_only_loss;
	const char *sft_tokenizer_prompt_format, *sft_packing;
	int64_t sft_now; /* seconds since 1970 that templates have; all processes have the same */
	double mid_level_dataset_surplus;
	int64_t num_workers; /* batches that are prefetched are at least this many */
	int64_t eod;	     /* token that ends a document; MFS_ABSENT: not known */
	int64_t pad;	     /* token that is padding; MFS_ABSENT: none is */
	bool pad_unknown;    /* the tokenizer may have one, and its files are not there */
	bool pad_ambiguous; /* it has one that ends documents, too, and so none counts as padding */

	/* tokenizer: its files go along with checkpoints; vocab_size of the model follows from it
	 */
	const char *tokenizer_type, *tokenizer_model;

	/* checkpoints */
	const char *load, *save, *pretrained_checkpoint;
	const char *ckpt_format; /* as it was given */
	bool saves_torch;	 /* saves are legacy `torch`; else torch_dist */
	int64_t save_interval, ckpt_step, save_retain_interval;
	/* "global": saves that do not stay, below save or in a directory of their own */
	const char *non_persistent_ckpt_type, *non_persistent_global_ckpt_dir;
	int64_t non_persistent_save_interval;
	int64_t save_keep_last; /* ours: --save-keep-last N; 0: all */
	bool no_load_optim, no_save_optim, no_save_rng, finetune, use_checkpoint_args;
	bool exit_on_missing_checkpoint, save_tokenizer_assets, verify_integrity;

	/* reports */
	int64_t log_interval, tensorboard_log_interval;
	const char *tensorboard_dir;
	/* project NULL or empty: nothing is written */
	const char *wandb_project, *wandb_exp_name, *wandb_entity, *wandb_save_dir;
	bool log_throughput, log_params_norm, log_num_zeros_in_grad, log_memory_to_tensorboard;
	bool log_validation_ppl_to_tensorboard, log_loss_scale_to_tensorboard;
	bool log_timers_to_tensorboard, log_world_size_to_tensorboard;
	bool check_for_nan_in_loss_and_grad, check_for_spiky_loss, check_for_large_grads;
	bool nvtx_ranges, log_straggler, disable_straggler_on_startup;
	int64_t straggler_ctrlr_port, straggler_minmax_count;
	const char *rerun_mode; /* "disabled": a rejected step saves nothing */

	/* ours */
	const char *backend; /* --backend "cpu", "cuda"; NULL: CUDA where there is a GPU */
	int64_t device;	     /* --device N */
	int64_t threads;     /* --threads N of the CPU; 0: one a processor */
	bool dry_run;
	const char *machine;	/* --machine FILE */
	int64_t gpus;		/* --gpus N of a dry run; 0: not given */
	bool suggest_layout;	/* --suggest-layout */
	bool log_communication; /* --log-communication */
	bool attention_atomics; /* --attention-atomics: its gradient has no fixed order of sums */
	bool log_args;		/* --log-args: print Megatron's list of arguments at the start */

	/* reinforcement learning */
	bool perform_rl_step;
	double grpo_clamp_eps_lower, grpo_clamp_eps_upper, grpo_kl_beta, grpo_entropy_term_weight;
	double rl_default_temperature, rl_default_top_p, rl_generation_lag;
	int64_t rl_default_top_k;
	int64_t grpo_prompts_per_step, grpo_group_size, grpo_iterations;
	int64_t rl_max_inflight_requests; /* of an engine */
	bool grpo_filter_groups_with_same_reward, rl_use_sequence_packing;
	bool rl_verify_model_weights_swap;
	int64_t rl_sequence_packing_max_sequences_per_bin;
	bool rl_inference_logprobs_is_correction;
	double rl_importance_sampling_truncation_coef; /* 0: none */

	/* ours, of reinforcement learning */
	const char *rl_prompt_data, *rl_prompt_key, *rl_label_key, *rl_log_samples;
	struct mfs_arg_words rl_reward, rl_inference_url;
	const char *rl_reward_pattern, *rl_reward_url, *rl_reward_command, *rl_reward_key;
	double rl_reward_seconds, rl_overlong_factor;
	int64_t rl_overlong_buffer;	/* tokens */
	int64_t rl_max_response_length; /* tokens */
	int64_t rl_sampler_slots;
	bool rl_mask_truncated;
	const char *rl_sync_dir, *rl_mount, *rl_delta_dir;
	int64_t rl_request_seconds, rl_engine_wait_seconds;

	struct mft_generate_config { /* --generate */
		bool on, log_probs, stream;
		struct mfs_arg_words prompts;
		const char *prompt_file, *format; /* format NULL: by the number of prompts */
		int64_t tokens, top_k, slots;
		double temperature, top_p; /* top_p 0: off */
	} generate;

	/* Of a net that generates (trainer/generate): sequences whose keys and values it keeps, and
	 * how many tokens of each; 0: it trains. A microbatch is micro_batch_size tokens of any of
	 * them then, and seq_length is 1. */
	int64_t cached_sequences, cached_length;

	/* losses' flags */
#define MEMBER(kind, type, dest, ...) type dest;
	MFT_LOSSES(MFT_LOSSES_NOT, MEMBER)
#undef MEMBER

	/* Everything that was parsed, by dest, for the args of checkpoints
	 * (config/run_namespace.h). */
	struct mft_flag_values *values; /* in arena */
	struct mft_adopted_yarn adopted;
	bool settled; /* all fields are filled (config/settle.h) */
	bool refused; /* they could not be: the arguments are wrong */
	struct mfs_arena arena;
};

#endif

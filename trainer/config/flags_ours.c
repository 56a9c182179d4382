/* Flags that are not Megatron's, and what Megatron puts into the Namespace in addition to its
 * flags. */
#include "trainer/config/flags_i.h"

#define OURS	   .ours = true, .gone = true
#define SAYS(text) .help = (text)

static const struct mft_flag ours[] = {
	{TEXTS, "help", "None", NAMES("-h --help"), .words = '*', USED, OURS,
	 SAYS("print the flags, or those of a topic, and exit")},
	{ON, "version", "False", USED, OURS, SAYS("print the version and exit")},
	{TEXT, "completions", "None", CHOICES("bash|zsh"), USED, OURS,
	 SAYS("print a shell's completion of these flags and exit")},
	{TEXT, "backend", "None", CHOICES("cpu|cuda"), TO(backend), OURS,
	 SAYS("what computes; otherwise a GPU if there is one")},
	{INT, "device", "0", TO(device), OURS,
	 SAYS("the GPU's number; otherwise the process's on its host")},
	{INT, "threads", "0", TO(threads), OURS,
	 SAYS("of the CPU; 0: one a processor, of which a host's processes have a share")},
	{ON, "dry_run", "False", TO(dry_run), OURS,
	 SAYS("print what memory the run would take, and exit")},
	{TEXT, "sft_packing", "'none'", CHOICES("none|first_fit_decreasing"), TO(sft_packing), OURS,
	 SAYS("with --sft: none, where a line of the file is a sample, as in Megatron; or put "
	      "conversations of all lines together")},
	{ON, "sft_answer_only_loss", "False", TO(sft_answer_only_loss), OURS,
	 SAYS("with --sft and the tokenizer's own template: only what assistants say counts")},
	{TEXT, "machine", "None", TO(machine), OURS,
	 SAYS("with --dry-run: a file that describes machines (configs/machines); print how long a "
	      "step takes on them, too, and what processes send to each other")},
	{INT, "gpus", "0", TO(gpus), OURS,
	 SAYS("with --dry-run: on how many; 0: as many as were started, or as the model is divided "
	      "among")},
	{ON, "suggest_layout", "False", TO(suggest_layout), OURS,
	 SAYS("with --dry-run, --machine and --gpus: try the layouts that the model can have, with "
	      "the distributed optimizer, and print the fastest that fit; what is given of a "
	      "layout stays")},
	{ON, "log_communication", "False", TO(log_communication), OURS,
	 SAYS("print at the end what processes sent to each other in the last step, and how long "
	      "the passes stood still for it")},
	{ON, "log_args", "False", TO(log_args), OURS,
	 SAYS("print all arguments at the start, as Megatron does")},
	{ON, "attention_atomics", "False", TO(attention_atomics), OURS,
	 SAYS("attention's gradient may be added up in no fixed order: faster on a GPU, and not "
	      "the same bits twice")},
	{TEXT, "rl_prompt_data", "None", TO(rl_prompt_data), OURS,
	 SAYS("with --perform-rl-step: JSON lines, Parquet or Arrow, whose rows are prompts")},
	{TEXT, "rl_prompt_key", "'prompt'", TO(rl_prompt_key), OURS,
	 SAYS("the member of a row that is the prompt: a text, token ids, or messages; dots for "
	      "objects in objects")},
	{TEXT, "rl_label_key", "None", TO(rl_label_key), OURS,
	 SAYS("the member of a row that rewards compare with")},
	{TEXTS, "rl_reward", "None", .words = '+', TO(rl_reward), OURS,
	 SAYS("what responses are worth: match, gsm8k, boxed, regex, length, url or command; "
	      "several are added")},
	{TEXT, "rl_reward_pattern", "None", TO(rl_reward_pattern), OURS,
	 SAYS("with --rl-reward regex: PCRE2's; with a group, the group is to be the label")},
	{TEXT, "rl_reward_url", "None", TO(rl_reward_url), OURS,
	 SAYS("with --rl-reward url: a server that is sent a response and answers its reward")},
	{TEXT, "rl_reward_command", "None", TO(rl_reward_command), OURS,
	 SAYS("with --rl-reward command: a program that reads a line for each response, and "
	      "writes one with its reward")},
	{TEXT, "rl_reward_key", "None", TO(rl_reward_key), OURS,
	 SAYS("the member of such an answer; otherwise reward or score")},
	{REAL, "rl_reward_seconds", "120", TO(rl_reward_seconds), OURS,
	 SAYS("that such an answer may take")},
	{INT, "rl_overlong_buffer", "0", TO(rl_overlong_buffer), OURS,
	 SAYS("with --rl-reward length: the last tokens of --rl-max-response-length, each of which "
	      "costs")},
	{REAL, "rl_overlong_factor", "1.0", TO(rl_overlong_factor), OURS,
	 SAYS("with --rl-reward length: what all of them cost")},
	{INT, "rl_max_response_length", "None", TO(rl_max_response_length), OURS,
	 SAYS("tokens of a response, at most; otherwise --inference-max-seq-length, or half of "
	      "--seq-length if that is less")},
	{ON, "rl_mask_truncated", "False", TO(rl_mask_truncated), OURS,
	 SAYS("responses that had no room for their end do not count")},
	{TEXT, "rl_log_samples", "None", TO(rl_log_samples), OURS,
	 SAYS("a file that all responses and their rewards are written to, as JSON lines")},
	{INT, "rl_sampler_slots", "64", TO(rl_sampler_slots), OURS,
	 SAYS("tokens that the sampler here computes at a time")},
	{TEXTS, "rl_inference_url", "None", .words = '+', TO(rl_inference_url), OURS,
	 SAYS("engines that answer, vLLM or SGLang: http://host:8000; otherwise the sampler here "
	      "does")},
	{TEXT, "rl_sync_dir", "None", TO(rl_sync_dir), OURS,
	 SAYS("with --rl-inference-url: where weights are saved for the engines, in memory")},
	{TEXT, "rl_mount", "None", TO(rl_mount), OURS,
	 SAYS("with --rl-inference-url: where mcorefs shows --rl-sync-dir to the engines")},
	{TEXT, "rl_delta_dir", "None", TO(rl_delta_dir), OURS,
	 SAYS("with --rl-sync-dir: a directory that gets what changes between versions of the "
	      "weights, as mcorefs delta writes it")},
	{INT, "rl_request_seconds", "600", TO(rl_request_seconds), OURS,
	 SAYS("that an engine may take to answer")},
	{INT, "rl_engine_wait_seconds", "1800", TO(rl_engine_wait_seconds), OURS,
	 SAYS("that a run waits for its engines to start")},
	{INT, "eod_id", "None", TO(eod), OURS,
	 SAYS("the token that ends a document, where no tokenizer says it")},
	{INT, "pad_id", "None", TO(pad), OURS,
	 SAYS("the token that is padding, and does not count as a label, where no tokenizer says "
	      "it; -1: none is")},
	{INT, "extra_vocab_rows", "None", USED, OURS,
	 SAYS("rows of the embedding beyond the tokenizer's tokens, in place of "
	      "--make-vocab-size-divisible-by")},
	{INT, "ffn_multiple_of", "None", USED, OURS,
	 SAYS("with --swiglu and without --ffn-hidden-size: it is 8/3 of --hidden-size, and the "
	      "next multiple of this")},
	{REAL, "ffn_multiplier", "None", USED, OURS,
	 SAYS("with --ffn-multiple-of: 8/3 of --hidden-size is multiplied by this first")},
	{INT, "save_keep_last", "0", TO(save_keep_last), OURS,
	 SAYS("keep so many checkpoints and remove older ones; 0: keep all")},
	{ON, "generate", "False", TO(generate.on), OURS,
	 SAYS("go on with prompts, by the model of --load, instead of training: --prompts, or "
	      "lines of --prompt-file or of standard input")},
	{TEXTS, "prompts", "None", .words = '+', TO(generate.prompts), OURS,
	 SAYS("with --generate: texts to go on with")},
	{TEXT, "prompt_file", "None", TO(generate.prompt_file), OURS,
	 SAYS("with --generate: a file of JSON lines, each with prompt (or text), messages or "
	      "input_ids")},
	{INT, "num_tokens_to_generate", "30", TO(generate.tokens), OURS,
	 SAYS("with --generate: tokens of an answer, at most")},
	{REAL, "temperature", "1.0", TO(generate.temperature), OURS,
	 SAYS("with --generate: what logits are divided by; 0: the greatest is taken")},
	{INT, "top_k", "1", NAMES("--top_k --top-k"), TO(generate.top_k), OURS,
	 SAYS("with --generate: of so many greatest logits a token is drawn; 0: of all")},
	{REAL, "top_p", "0.0", NAMES("--top_p --top-p"), TO(generate.top_p), OURS,
	 SAYS("with --generate: of the fewest tokens whose probabilities sum up to this; 0: of "
	      "all")},
	{ON, "return_log_probs", "False", TO(generate.log_probs), OURS,
	 SAYS("with --generate: JSON lines have the log-probs of answers' tokens, too")},
	{TEXT, "generate_format", "None", CHOICES("text|jsonl"), TO(generate.format), OURS,
	 SAYS("with --generate: what is printed; otherwise the text of one prompt, and JSON lines "
	      "of several")},
	{ON, "stream", "False", TO(generate.stream), OURS,
	 SAYS("with --generate and one prompt: print its text token by token, as on a terminal")},
	{INT, "generate_slots", "8", TO(generate.slots), OURS,
	 SAYS("with --generate: answers at a time")},
#define FLAG(kind, type, dest, initial, help, ...)                                                 \
	{kind, #dest, initial, TO(dest), OURS, SAYS(help), __VA_ARGS__},
	MFT_LOSSES(MFT_LOSSES_NOT, FLAG)
#undef FLAG
};
GROUP(ours, "mcorefs-train");

static const struct mft_flag derived[] = {
	{DERIVED, "_is_global_batch_size_explicitly_specified", "False", USED},
	{DERIVED, "consumed_train_samples", "0", USED},
	{DERIVED, "consumed_valid_samples", "0", USED},
	{DERIVED, "curr_iteration", "0", USED},
	{DERIVED, "data_parallel_size", "1", TO(data_parallel_size)},
	{DERIVED, "do_test", "0", USED},
	{DERIVED, "do_train", "1", USED},
	{DERIVED, "do_valid", "0", USED},
	{DERIVED, "expert_gtp_weight_remat_size", "1", USED},
	{DERIVED, "gtp_weight_remat_size", "1", USED},
	{DERIVED, "iteration", "0", USED},
	{DERIVED, "num_floating_point_operations_so_far", "0", USED},
	{DERIVED, "params_dtype", "None", USED},
	{DERIVED, "rank", "0", USED},
	{DERIVED, "skipped_train_samples", "0", USED},
	{DERIVED, "transformer_pipeline_model_parallel_size", "1", USED},
	{DERIVED, "use_dist_ckpt", "True", USED},
	{DERIVED, "use_layer_wise_distributed_optimizer", "False", USED},
	{DERIVED, "variable_seq_lengths", "False", USED},
	{DERIVED, "virtual_pipeline_model_parallel_size", "None", USED},
	{DERIVED, "world_size", "1", USED},
};
GROUP(derived, "derived");

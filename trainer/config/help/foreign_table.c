/*
 * The table of foreign.h. Sources: the history of megatron/training/arguments.py from 2019 on; of
 * the forks their arguments.py, and the files that read what it says.
 */
#include "formats/base/array.h"
#include "trainer/config/help/foreign.h"

#define UNUSED(name, whose, words)                                                                 \
	{                                                                                          \
		name, whose, words, NULL, MFT_FOREIGN_UNUSED, NULL, NULL                           \
	}
#define BECOMES(name, whose, words, flags)                                                         \
	{                                                                                          \
		name, whose, words, NULL, MFT_FOREIGN_BECOMES, flags, NULL                         \
	}
#define REFUSED(name, whose, words, todo)                                                          \
	{                                                                                          \
		name, whose, words, NULL, MFT_FOREIGN_REFUSED, NULL, todo                          \
	}
/* Of these values alone. */
#define UNUSED_OF(name, whose, values)                                                             \
	{                                                                                          \
		name, whose, '1', values, MFT_FOREIGN_UNUSED, NULL, NULL                           \
	}
#define BECOMES_OF(name, whose, values, to)                                                        \
	{                                                                                          \
		name, whose, '1', values, MFT_FOREIGN_BECOMES, to, NULL                            \
	}
#define REFUSED_OF(name, whose, values, to)                                                        \
	{                                                                                          \
		name, whose, '1', values, MFT_FOREIGN_REFUSED, NULL, to                            \
	}

#define PAI	    "Pai-Megatron-Patch"
#define LLMJP	    "LLM-jp"
#define FLAGSCALE   "FlagScale"
#define BIGCODE	    "BigCode"
#define SWISSAI	    "swiss-ai"
#define SLIME	    "slime"
#define DEEPSPEED   "Megatron-DeepSpeed"
#define MEGABLOCKS  "MegaBlocks"
#define MODELOPT    "ModelOpt"
#define UNTIL(year) "Megatron-LM until " year

#define OTHER_MODEL   "this architecture is not trained here"
#define OTHER_INIT    "leave it out; norms begin at 1"
#define OTHER_DATA    "name the data by --data-path, --data-args-path or --train-data-path"
#define PRETRAINING   "leave it out; this is pretraining"
#define NO_RETRO      "leave it out; there is no retrieval"
#define NO_DISTILLING "leave it out; there is no distillation"
#define NO_QUANTISING "leave it out; weights are not quantised"
#define NO_ADAPTERS   "leave it out; adapters are not trained"
#define BY_THE_FLAGS  "leave it out, and say what it holds by Megatron's flags"
#define OTHER_ENGINES "leave it out; engines are started by themselves, for --rl-inference-url"
#define OTHER_SOFTMAX "leave it out; the loss has no z-loss of logits"

const struct mft_foreign mft_foreign_table[] = {
	/* Megatron's own that it has no longer: kernels, and how processes talk */
	UNUSED("--DDP-impl", UNTIL("2023"), '1'),
	UNUSED("--no-contiguous-buffers-in-local-ddp", UNTIL("2023"), '0'),
	UNUSED("--use-contiguous-buffers-in-ddp", UNTIL("2021"), '0'),
	UNUSED("--no-async-tensor-model-parallel-allreduce", UNTIL("2026"), '0'),
	UNUSED("--async-tensor-parallel-allreduce", UNTIL("2021"), '0'),
	UNUSED("--no-scatter-gather-tensors-in-pipeline", UNTIL("2026"), '0'),
	UNUSED("--scatter-gather-tensors-in-pipeline", UNTIL("2021"), '0'),
	UNUSED("--deallocate-pipeline-outputs", UNTIL("2022"), '0'),
	UNUSED("--overlap-p2p-communication", UNTIL("2023"), '0'),
	UNUSED("--no-delay-grad-reduce", UNTIL("2024"), '0'),
	UNUSED("--delay-grad-reduce", UNTIL("2024"), '0'),
	UNUSED("--delay-param-gather", UNTIL("2024"), '0'),
	UNUSED("--align-param-gather", UNTIL("2024"), '0'),
	UNUSED("--initialize-socket-comms", UNTIL("2025"), '0'),
	UNUSED("--use-gpu-initialization", UNTIL("2024"), '0'),
	UNUSED("--local_rank", UNTIL("2024"), '1'),
	UNUSED("--tp-comm-bulk-wgrad", UNTIL("2023"), '0'),
	UNUSED("--tp-comm-bulk-dgrad", UNTIL("2023"), '0'),
	UNUSED("--tp-comm-split-ag", UNTIL("2023"), '0'),
	UNUSED("--tp-comm-split-rs", UNTIL("2023"), '0'),
	UNUSED("--scaled-upper-triang-masked-softmax-fusion", UNTIL("2021"), '0'),
	UNUSED("--scaled-masked-softmax-fusion", UNTIL("2021"), '0'),
	UNUSED("--bias-dropout-fusion", UNTIL("2021"), '0'),
	UNUSED("--bias-swiglu-fusion", UNTIL("2023"), '0'),
	UNUSED("--distribute-checkpointed-activations", UNTIL("2022"), '0'),
	UNUSED("--model-parallel-memory-opt", UNTIL("2020"), '0'),
	UNUSED("--empty-unused-memory-each-iter", UNTIL("2021"), '0'),
	UNUSED("--keep-fp8-transpose-cache-when-using-custom-fsdp", UNTIL("2025"), '0'),
	UNUSED("--moe-use-legacy-grouped-gemm", UNTIL("2026"), '0'),
	UNUSED("--use-legacy-models", UNTIL("2026"), '0'),
	UNUSED("--max-seqlen-per-cp-rank", UNTIL("2026"), '1'),
	UNUSED("--offload-optimizer-states", "Megatron-LM's branch dev", '0'),
	UNUSED("--bias-gelu-fusion", UNTIL("2021"), '0'),
	/* The scaling had been on unless this was given. Now it is off unless --apply-... is
	 * given. */
	UNUSED("--no-query-key-layer-scaling", UNTIL("2023"), '0'),
	/* data, logs, other programs of the same parser */
	UNUSED("--data-impl", UNTIL("2023"), '1'),
	UNUSED("--mmap-warmup", UNTIL("2023"), '0'),
	UNUSED("--skip-mmap-warmup", UNTIL("2020"), '0'),
	UNUSED("--log-batch-size-to-tensorboard", UNTIL("2024"), '0'),
	UNUSED("--no-log-learnig-rate-to-tensorboard", UNTIL("2024"), '0'),
	UNUSED("--no-log-memory-to-tensorboard", UNTIL("2021"), '0'),
	UNUSED("--enable-one-logger", UNTIL("2024"), '0'),
	UNUSED("--one-logger-entity", UNTIL("2024"), '1'),
	UNUSED("--legacy-tokenizer", UNTIL("2026"), '0'),
	UNUSED("--tokenizer-hf-use-fast", UNTIL("2026"), '0'),
	UNUSED("--tokenizer-hf-include-special-tokens", UNTIL("2026"), '0'),
	UNUSED("--load-model-opt-format", UNTIL("2025"), '0'),
	UNUSED("--disable-chunked-prefill", UNTIL("2026"), '0'),
	UNUSED("--inference-max-batch-size", UNTIL("2026"), '1'),
	UNUSED("--inference-mp-coordinator-port", UNTIL("2025"), '1'),
	UNUSED("--inference-flask-server-logging", UNTIL("2026"), '0'),
	UNUSED("--inference-wandb-logging-step-interval", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-chunk-size", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-max-requests-override", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-max-tokens-override", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-buffer-guaranteed-fraction", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-buffer-overflow-factor", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-active-buffer-size-gb", UNTIL("2025"), '1'),
	UNUSED("--inference-dynamic-batching-cuda-graph-max-tokens", UNTIL("2026"), '1'),
	UNUSED("--inference-dynamic-batching-mamba-triton-conv1d", UNTIL("2026"), '0'),
	/* that have other names today */
	BECOMES("--model-parallel-size", UNTIL("2020"), '1', "--tensor-model-parallel-size @"),
	BECOMES("--batch-size", UNTIL("2020"), '1', "--micro-batch-size @"),
	BECOMES("--warmup", UNTIL("2020"), '1', "--lr-warmup-fraction @"),
	BECOMES("--min-scale", UNTIL("2021"), '1', "--min-loss-scale @"),
	BECOMES("--use-checkpoint-lr-scheduler", UNTIL("2022"), '0',
		"--use-checkpoint-opt_param-scheduler"),
	BECOMES("--override-lr-scheduler", UNTIL("2022"), '0', "--override-opt_param-scheduler"),
	BECOMES("--layernorm-epsilon", UNTIL("2023"), '1', "--norm-epsilon @"),
	BECOMES("--fp8-e4m3", UNTIL("2023"), '0', "--fp8-format e4m3"),
	BECOMES("--fp8-hybrid", UNTIL("2023"), '0', "--fp8-format hybrid"),
	BECOMES("--use-custom-fsdp", UNTIL("2025"), '0', "--use-megatron-fsdp"),
	BECOMES("--muon-use-nesterov", UNTIL("2026"), '0', "--muon-nesterov"),
	BECOMES("--checkpoint-activations", UNTIL("2022"), '0',
		"--recompute-granularity full --recompute-method uniform "
		"?--recompute-num-layers 1"),
	BECOMES("--activations-checkpoint-method", UNTIL("2022"), '1',
		"--recompute-granularity full --recompute-method @ ?--recompute-num-layers 1"),
	BECOMES("--activations-checkpoint-num-layers", UNTIL("2022"), '1',
		"--recompute-num-layers @"),
	BECOMES("--checkpoint-method", UNTIL("2022"), '1',
		"--recompute-granularity full --recompute-method @ ?--recompute-num-layers 1"),
	BECOMES("--checkpoint-num-layers", UNTIL("2022"), '1', "--recompute-num-layers @"),
	BECOMES("--checkpoint-granularity", UNTIL("2022"), '1', "--recompute-granularity @"),
	/* that change the result */
	REFUSED("--fp32-allreduce", UNTIL("2021"), '0', "use --accumulate-allreduce-grads-in-fp32"),
	REFUSED("--fp32-embedding", UNTIL("2020"), '0', "leave it out"),
	REFUSED("--embedding-weights-in-fp32", UNTIL("2023"), '0', "leave it out"),
	REFUSED("--fp32-tokentypes", UNTIL("2020"), '0', "leave it out"),
	REFUSED("--fp32-layernorm", UNTIL("2020"), '0', "leave it out; norms compute in fp32"),
	REFUSED("--standalone-embed-stage", UNTIL("2022"), '0',
		"use --pipeline-model-parallel-layout"),
	REFUSED("--standalone-embedding-stage", UNTIL("2025"), '0',
		"use --pipeline-model-parallel-layout"),
	REFUSED("--pipeline-model-parallel-split-rank", UNTIL("2025"), '1',
		"leave it out; a GPT model has no encoder"),
	REFUSED("--encoder-tensor-model-parallel-size", UNTIL("2025"), '1',
		"leave it out; a GPT model has no encoder"),
	REFUSED("--encoder-pipeline-model-parallel-size", UNTIL("2025"), '1',
		"leave it out; a GPT model has no encoder"),
	REFUSED("--expert-parallel", UNTIL("2023"), '0', "use --expert-model-parallel-size N"),
	REFUSED("--moe-extended-tp", UNTIL("2026"), '0', "use --expert-tensor-parallel-size N"),
	REFUSED("--moe-token-dropping", UNTIL("2024"), '0', "use --moe-expert-capacity-factor X"),
	REFUSED("--moe-router-type", UNTIL("2024"), '1',
		"use --moe-router-topk and --moe-router-load-balancing-type"),
	REFUSED("--moe-router-topk-limited-devices", UNTIL("2025"), '1',
		"use --moe-router-num-groups with the size of expert parallelism, and "
		"--moe-router-group-topk with the number of devices"),
	REFUSED("--model-spec", UNTIL("2023"), '*', "leave it out; layers follow from other flags"),
	REFUSED("--renormalize-blend-weights", UNTIL("2025"), '0', "leave it out"),
	REFUSED("--s3-cache-path", UNTIL("2025"), '1', "leave it out, and mount the data"),
	REFUSED("--tiktoken-special-tokens", UNTIL("2026"), '*', "use --padded-vocab-size"),
	REFUSED("--hybrid-attention-ratio", UNTIL("2026"), '1',
		"Mamba layers are not trained here"),
	REFUSED("--hybrid-mlp-ratio", UNTIL("2026"), '1', "Mamba layers are not trained here"),
	REFUSED("--kitchen-config-file", UNTIL("2026"), '1', NO_QUANTISING),
	REFUSED("--kitchen-recipe-number", UNTIL("2026"), '1', NO_QUANTISING),
	REFUSED("--num-unique-layers", UNTIL("2020"), '1', "leave it out; layers share nothing"),
	REFUSED("--param-sharing-style", UNTIL("2020"), '1', "leave it out; layers share nothing"),
	REFUSED("--retro-*", UNTIL("2026"), '*', NO_RETRO),
	REFUSED("--train-data", UNTIL("2020"), '*', OTHER_DATA),
	REFUSED("--valid-data", UNTIL("2020"), '*', OTHER_DATA),
	REFUSED("--test-data", UNTIL("2020"), '*', OTHER_DATA),
	REFUSED("--fp32", "no flag of Megatron", '0',
		"leave it out; a run without --bf16 and --fp16 is in fp32"),

	/* Pai-Megatron-Patch: the tokenizer is that of --tokenizer-type, and samples of an indexed
	 * dataset are as long as --seq-length says */
	UNUSED("--max-padding-length", PAI, '1'),
	UNUSED("--patch-tokenizer-type", PAI, '1'),
	UNUSED_OF("--dataset", PAI, "MMAP|LLama-Pretrain-Idxmap"),
	REFUSED("--dataset", PAI, '1', "give tokens of an indexed dataset, and leave it out"),
	UNUSED_OF("--train-mode", PAI, "pretrain"),
	REFUSED("--train-mode", PAI, '1', PRETRAINING),
	BECOMES("--extra-vocab-size", PAI, '1', "--extra-vocab-rows @"),
	BECOMES("--sliding-window", PAI, '1', "--window-size @-1,0"),
	BECOMES("--intermediate-size", PAI, '1', "--ffn-hidden-size @"),
	UNUSED("--optimizer-offload-policy", PAI, '1'),
	UNUSED("--optimizer-offload-auto-threshold", PAI, '1'),
	UNUSED("--optimizer-offload-chunk-size", PAI, '1'),
	UNUSED("--cpu-offloading", PAI, '0'),
	UNUSED("--transformer-timers", PAI ", " BIGCODE, '0'),
	UNUSED("--dataloader-save", PAI ", " FLAGSCALE, '1'),
	REFUSED("--epochs", PAI, '1', "use --train-iters or --train-samples"),
	REFUSED("--keep-last", PAI, '0',
		"leave it out; a batch that is not full is not trained on"),
	REFUSED("--use-alibi-mask", PAI, '0', OTHER_MODEL),
	REFUSED("--embed-layernorm", PAI, '0', OTHER_MODEL),
	REFUSED("--position-encoding-2d", PAI, '0', OTHER_MODEL),
	REFUSED("--shared-moe-ffn-hidden-size", PAI, '1',
		"use --moe-shared-expert-intermediate-size"),
	REFUSED("--enable-shared-expert", PAI, '0', "use --moe-shared-expert-intermediate-size"),
	REFUSED("--num-shared-experts", PAI, '1',
		"use --moe-shared-expert-intermediate-size with the size of all of them"),
	REFUSED("--qk-nope-head-dim", PAI, '1', "use --qk-head-dim"),
	REFUSED("--qk-rope-head-dim", PAI, '1', "use --qk-pos-emb-head-dim"),
	REFUSED("--n-head-kv", PAI, '1', "use --group-query-attention --num-query-groups"),
	REFUSED("--moe-topk", PAI, '1', "use --moe-router-topk"),
	REFUSED("--moe-loss-coeff", PAI, '1', "use --moe-aux-loss-coeff"),
	REFUSED("--z-loss-weight", PAI, '1', OTHER_SOFTMAX),
	REFUSED("--freeze-LM", PAI, '0', "leave it out; all weights are trained"),
	REFUSED("--freeze-ViT", PAI, '0', "leave it out; there is no vision"),

	/* LLM-jp, Swallow */
	UNUSED("--use-mpi", LLMJP ", Swallow", '0'),
	UNUSED("--wandb-id", "Swallow", '1'),
	BECOMES("--wandb-name", LLMJP ", Swallow", '1', "--wandb-exp-name @"),
	REFUSED("--use-z-loss", LLMJP, '0', OTHER_SOFTMAX),
	UNUSED_OF("--z-loss-strength", LLMJP, "0|0.0"),
	REFUSED("--z-loss-strength", LLMJP, '1', OTHER_SOFTMAX),

	/* FlagScale */
	BECOMES("--tokenizer-path", FLAGSCALE, '1', "--tokenizer-model @"),
	/* Sizes and ends of documents that are not the tokenizer's own. */
	REFUSED_OF("--tokenizer-type", FLAGSCALE,
		   "QwenTokenizerFS|Qwen2TokenizerFS|HFTokenizersTokenizerFS",
		   "use HuggingFaceTokenizer with --padded-vocab-size, --eod-id and --pad-id"),
	BECOMES_OF("--tokenizer-type", FLAGSCALE, "Llama3TokenizerFS|HFTokenizerFS",
		   "--tokenizer-type HuggingFaceTokenizer"),
	BECOMES_OF("--tokenizer-type", FLAGSCALE, "AquilaTokenizerFS",
		   "--tokenizer-type GPT2BPETokenizer"),
	BECOMES("--multiple-of", FLAGSCALE, '1', "--ffn-multiple-of @"),
	BECOMES("--hidden-dim-multiplier", FLAGSCALE, '1', "--ffn-multiplier @"),
	UNUSED("--no-shared-fs", FLAGSCALE, '0'),
	UNUSED("--special-tokens-file", FLAGSCALE, '1'),
	UNUSED("--wandb-mode", FLAGSCALE ", " SLIME, '1'),
	UNUSED("--wandb-log-model", FLAGSCALE, '0'),
	UNUSED("--wandb-log-model-interval", FLAGSCALE, '1'),
	UNUSED("--use-partial-reduce-for-shared-embedding", FLAGSCALE, '0'),
	UNUSED("--save-when-num-microbatches-change", FLAGSCALE, '0'),
	UNUSED("--moe-fb-overlap", FLAGSCALE, '0'),
	UNUSED("--recompute-granularity-per-stage-micro-batch", FLAGSCALE, '*'),
	UNUSED("--recompute-method-per-stage-micro-batch", FLAGSCALE, '*'),
	UNUSED("--recompute-num-layers-per-stage-micro-batch", FLAGSCALE, '*'),
	UNUSED_OF("--norm-init-weight", FLAGSCALE, "1|1.0"),
	REFUSED("--norm-init-weight", FLAGSCALE, '1', OTHER_INIT),
	REFUSED("--use-dualpipev", FLAGSCALE, '0', "use --num-layers-per-virtual-pipeline-stage"),
	REFUSED("--enable-hetero", FLAGSCALE, '0', "leave it out; all processes are of one kind"),
	REFUSED("--hetero-*", FLAGSCALE, '*', "leave it out; all processes are of one kind"),
	REFUSED("--skip-samples-range", FLAGSCALE, '*', "use --iterations-to-skip"),
	REFUSED("--skip-iters-range", FLAGSCALE, '*', "use --iterations-to-skip"),
	REFUSED("--auto-skip-spiky-loss", FLAGSCALE, '0', "leave it out"),
	REFUSED("--num-mtp-predictor", FLAGSCALE, '1', "use --mtp-num-layers"),
	REFUSED("--mtp-loss-coeff", FLAGSCALE, '1', "use --mtp-loss-scaling-factor"),
	REFUSED("--qk-layernorm-hidden-dim", FLAGSCALE, '0', OTHER_MODEL),
	REFUSED("--peft-type", FLAGSCALE, '1', NO_ADAPTERS),
	REFUSED("--lora-*", FLAGSCALE, '*', NO_ADAPTERS),

	/* BigCode */
	BECOMES_OF("--attention-head-type", BIGCODE, "multiquery",
		   "--group-query-attention --num-query-groups 1"),
	UNUSED_OF("--attention-head-type", BIGCODE, "multihead"),
	REFUSED("--attention-head-type", BIGCODE, '1', "use multihead or multiquery"),
	BECOMES_OF("--tokenizer-type", BIGCODE, "TokenizerFromFile",
		   "--tokenizer-type HuggingFaceTokenizer"),
	REFUSED_OF("--tokenizer-type", BIGCODE, "TokenizerFromFileWithFIM|GPT2BPETokenizerWithFIM",
		   "use --tokenizer-type HuggingFaceTokenizer, and --fim-data where samples are to "
		   "have their middle filled in"),
	BECOMES("--tokenizer-file", BIGCODE, '1', "--tokenizer-model @"),
	BECOMES("--wandb-entity-name", BIGCODE, '1', "--wandb-entity @"),
	BECOMES("--wandb-project-name", BIGCODE, '1', "--wandb-project @"),
	BECOMES("--rotary-theta", BIGCODE, '1', "--rotary-base @"),
	UNUSED("--valid-num-workers", BIGCODE, '1'),
	UNUSED("--structured-logs", BIGCODE, '0'),
	UNUSED("--structured-logs-dir", BIGCODE, '1'),
	UNUSED("--distributed-timeout", BIGCODE, '1'),
	UNUSED("--sanity-check-dataloader-interval", BIGCODE, '1'),
	REFUSED("--train-weighted-split-paths", BIGCODE, '*', OTHER_DATA),
	REFUSED("--valid-weighted-split-paths", BIGCODE, '*', OTHER_DATA),
	REFUSED("--test-weighted-split-paths", BIGCODE, '*', OTHER_DATA),
	REFUSED("--train-weighted-split-paths-path", BIGCODE, '*', OTHER_DATA),
	REFUSED("--valid-weighted-split-paths-path", BIGCODE, '*', OTHER_DATA),
	REFUSED("--test-weighted-split-paths-path", BIGCODE, '*', OTHER_DATA),
	REFUSED("--fragment-fim-rate", BIGCODE, '1', "use --fim-data with --fim-fragment-rate"),

	/* swiss-ai */
	UNUSED("--trigger-path", SWISSAI, '1'),
	UNUSED("--qknorm-impl", SWISSAI, '1'),
	UNUSED("--log-params-norm-per-param", SWISSAI, '0'),
	BECOMES_OF("--lr-wsd-decay-style", SWISSAI, "1-sqrt", "--lr-wsd-decay-style minus_sqrt"),
	REFUSED_OF("--optimizer", SWISSAI, "ademamix", "use --optimizer adam"),
	REFUSED("--ademamix-*", SWISSAI, '1', "leave it out, and use --optimizer adam"),
	REFUSED("--xielu", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--xiprelu", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--xiprelup", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--goldfish-loss", SWISSAI, '0', "leave it out; the loss is of all tokens"),
	REFUSED("--goldfish-*", SWISSAI, '1', "leave it out; the loss is of all tokens"),
	REFUSED("--layernorm-init", SWISSAI, '1', OTHER_INIT),
	REFUSED("--input-embeddings-multiplier", SWISSAI, '1', OTHER_MODEL),
	REFUSED("--post-layer-norm", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--no-attn-layernorm", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--no-mlp-layernorm", SWISSAI, '0', OTHER_MODEL),
	REFUSED("--no-final-layernorm", SWISSAI, '0', OTHER_MODEL),

	/* slime */
	UNUSED("--data-pad-size-multiplier", SLIME, '1'),
	REFUSED("--use-gated-attention", SLIME, '0', OTHER_MODEL),
	REFUSED("--post-self-attn-layernorm", SLIME, '0', OTHER_MODEL),
	REFUSED("--post-mlp-layernorm", SLIME, '0', OTHER_MODEL),
	REFUSED("--use-dynamic-batch-size", SLIME, '0', "use --micro-batch-size"),
	REFUSED("--max-tokens-per-gpu", SLIME, '1', "use --micro-batch-size"),
	BECOMES("--rollout-batch-size", SLIME, '1', "--grpo-prompts-per-step @"),
	BECOMES("--n-samples-per-prompt", SLIME, '1', "--grpo-group-size @"),
	BECOMES("--eps-clip", SLIME, '1', "--grpo-clamp-eps-lower @ ?--grpo-clamp-eps-upper @"),
	BECOMES("--eps-clip-high", SLIME, '1', "--grpo-clamp-eps-upper @"),
	BECOMES("--eps-clip-c", SLIME, '1', "--rl-dual-clip @"),
	UNUSED("--use-kl-loss", SLIME, '0'),
	BECOMES("--kl-loss-coef", SLIME, '1', "--grpo-kl-beta @"),
	BECOMES_OF("--kl-loss-type", SLIME, "low_var_kl", "--rl-kl-type k3"),
	BECOMES_OF("--kl-loss-type", SLIME, "k1|k2|k3", "--rl-kl-type @"),
	REFUSED("--kl-loss-type", SLIME, '1', "use --rl-kl-type"),
	BECOMES("--entropy-coef", SLIME, '1', "--grpo-entropy-term-weight @"),
	BECOMES_OF("--advantage-estimator", SLIME, "grpo",
		   "--rl-loss clip ?--rl-advantage-norm std"),
	BECOMES_OF("--advantage-estimator", SLIME, "gspo",
		   "--rl-loss gspo ?--rl-advantage-norm std"),
	REFUSED("--advantage-estimator", SLIME, '1', "use --rl-loss and --rl-advantage-norm"),
	BECOMES("--disable-grpo-std-normalization", SLIME, '0', "--rl-advantage-norm none"),
	BECOMES("--use-tis", SLIME, '0', "--rl-inference-logprobs-is-correction"),
	BECOMES("--tis-clip", SLIME, '1', "--rl-importance-sampling-truncation-coef @"),
	BECOMES("--tis-clip-low", SLIME, '1', "--rl-importance-sampling-lower @"),
	BECOMES("--prompt-data", SLIME, '1', "--rl-prompt-data @"),
	BECOMES("--input-key", SLIME, '1', "--rl-prompt-key @"),
	BECOMES("--label-key", SLIME, '1', "--rl-label-key @"),
	REFUSED("--rm-type", SLIME, '1', "use --rl-reward"),
	BECOMES("--rm-url", SLIME, '1', "--rl-reward url --rl-reward-url @"),
	REFUSED("--num-rollout", SLIME, '1', "use --train-iters, which counts steps"),
	REFUSED("--num-steps-per-rollout", SLIME, '1', "use --global-batch-size"),
	BECOMES("--rollout-temperature", SLIME, '1', "--rl-default-temperature @"),
	BECOMES("--rollout-top-p", SLIME, '1', "--rl-default-top-p @"),
	BECOMES("--rollout-top-k", SLIME, '1', "--rl-default-top-k @"),
	BECOMES("--rollout-max-response-len", SLIME, '1', "--rl-max-response-length @"),
	REFUSED("--rollout-max-prompt-len", SLIME, '1',
		"use --seq-length, which has room for a prompt and a response"),
	REFUSED("--rollout-external-engine-addrs", SLIME, '*', "use --rl-inference-url"),
	REFUSED("--rollout-*", SLIME, '*', OTHER_ENGINES),
	REFUSED("--sglang-*", SLIME, '*', OTHER_ENGINES),
	REFUSED("--actor-num-*", SLIME, '1', "leave it out; who starts processes says how many"),
	REFUSED("--hf-checkpoint", SLIME, '1', "use --load, which reads HuggingFace models, too"),
	BECOMES("--ref-load", SLIME, '1', "--pretrained-checkpoint @"),

	/* Megatron-DeepSpeed */
	BECOMES_OF("--normalization", DEEPSPEED, "rmsnorm", "--normalization RMSNorm"),
	BECOMES_OF("--normalization", DEEPSPEED, "layernorm", "--normalization LayerNorm"),
	BECOMES("--num-key-value-heads", DEEPSPEED, '1',
		"--group-query-attention --num-query-groups @"),
	UNUSED("--deepspeed", DEEPSPEED, '0'),
	UNUSED("--deepspeed-activation-checkpointing", DEEPSPEED, '0'),
	UNUSED("--no-pipeline-parallel", DEEPSPEED, '0'),
	UNUSED("--use-pin-memory", DEEPSPEED, '0'),
	UNUSED("--use-flash-attn-v1", DEEPSPEED, '0'),
	UNUSED("--use-flash-attn-v2", DEEPSPEED, '0'),
	UNUSED("--use-flash-attn-triton", DEEPSPEED, '0'),
	UNUSED_OF("--zero-stage", DEEPSPEED, "0"),
	BECOMES_OF("--zero-stage", DEEPSPEED, "1", "--use-distributed-optimizer"),
	REFUSED("--zero-stage", DEEPSPEED, '1',
		"use --use-megatron-fsdp with --data-parallel-sharding-strategy"),
	REFUSED("--deepspeed_config", DEEPSPEED, '1', BY_THE_FLAGS),
	REFUSED("--ds-sequence-parallel-size", DEEPSPEED, '1',
		"use --context-parallel-size and --cp-comm-type a2a"),
	REFUSED("--train-tokens", DEEPSPEED, '1', "use --train-samples"),
	REFUSED("--lr-decay-tokens", DEEPSPEED, '1', "use --lr-decay-samples"),
	REFUSED("--lr-warmup-tokens", DEEPSPEED, '1', "use --lr-warmup-samples"),

	/* MegaBlocks: routers choose by other sums, and no expert drops a token */
	REFUSED("--moe-num-experts", MEGABLOCKS, '1', "use --num-experts"),
	REFUSED("--moe-top-k", MEGABLOCKS, '1', "use --moe-router-topk --moe-router-pre-softmax"),
	REFUSED("--moe-loss-weight", MEGABLOCKS, '1', "use --moe-aux-loss-coeff"),
	REFUSED("--moe-capacity-factor", MEGABLOCKS, '1', "use --moe-expert-capacity-factor"),
	REFUSED("--moe-expert-model-parallelism", MEGABLOCKS, '0',
		"use --expert-model-parallel-size N"),

	/* Megatron's programs for ModelOpt */
	UNUSED_OF("--export-model-type", MODELOPT, "GPTModel"),
	REFUSED("--export-model-type", MODELOPT, '1', "Mamba layers are not trained here"),
	UNUSED("--export-te-mcore-model", MODELOPT, '0'),
	UNUSED("--export-default-te-spec", MODELOPT, '0'),
	UNUSED("--export-force-local-attention", MODELOPT, '0'),
	UNUSED("--export-legacy-megatron", MODELOPT, '0'),
	REFUSED("--export-qk-l2-norm", MODELOPT, '0', OTHER_MODEL),
	REFUSED("--export-moe-apply-probs-on-input", MODELOPT, '0', OTHER_MODEL),
	REFUSED("--enable-gpt-oss", MODELOPT, '0',
		"its YaRN and learned softmax are not trained here"),
	REFUSED("--export-kd-*", MODELOPT, '1', NO_DISTILLING),
	REFUSED("--export-quant-cfg", MODELOPT, '1', NO_QUANTISING),
	REFUSED("--export-real-quant-cfg", MODELOPT, '1', NO_QUANTISING),
	REFUSED("--export-kv-cache-quant", MODELOPT, '1', NO_QUANTISING),
	REFUSED("--export-offline-model", MODELOPT, '0', "leave it out; a model has its layers"),
	REFUSED("--finetune-hf-dataset", MODELOPT, '1', PRETRAINING),
	REFUSED("--finetune-data-split", MODELOPT, '1', PRETRAINING),
	REFUSED("--finetune-data-files", MODELOPT, '*', PRETRAINING),
};
const size_t mft_foreign_count = MFS_ARRAY_SIZE(mft_foreign_table);

# bash completion for mcorefs-train, made by --completions bash

_mcorefs_train() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	case $prev in
	--completions) mapfile -t COMPREPLY < <(compgen -W 'bash zsh' -- "$cur") && return ;;
	--backend) mapfile -t COMPREPLY < <(compgen -W 'cpu cuda' -- "$cur") && return ;;
	--normalization) mapfile -t COMPREPLY < <(compgen -W 'LayerNorm RMSNorm' -- "$cur") && return ;;
	--recompute-granularity) mapfile -t COMPREPLY < <(compgen -W 'full selective' -- "$cur") && return ;;
	--recompute-method) mapfile -t COMPREPLY < <(compgen -W 'uniform block' -- "$cur") && return ;;
	--moe-router-score-function) mapfile -t COMPREPLY < <(compgen -W 'softmax sigmoid sqrtsoftplus' -- "$cur") && return ;;
	--moe-router-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 fp64' -- "$cur") && return ;;
	--position-embedding-type) mapfile -t COMPREPLY < <(compgen -W 'learned_absolute rope none' -- "$cur") && return ;;
	--moe-router-load-balancing-type) mapfile -t COMPREPLY < <(compgen -W 'aux_loss seq_aux_loss none' -- "$cur") && return ;;
	--rope-type) mapfile -t COMPREPLY < <(compgen -W 'rope yarn' -- "$cur") && return ;;
	--optimizer) mapfile -t COMPREPLY < <(compgen -W 'adam' -- "$cur") && return ;;
	--dataloader-type) mapfile -t COMPREPLY < <(compgen -W 'single cyclic' -- "$cur") && return ;;
	--no-weight-decay-cond-type) mapfile -t COMPREPLY < <(compgen -W 'apply_wd_to_qk_layernorm' -- "$cur") && return ;;
	--lr-decay-style) mapfile -t COMPREPLY < <(compgen -W 'constant linear cosine inverse-square-root WSD' -- "$cur") && return ;;
	--lr-wsd-decay-style) mapfile -t COMPREPLY < <(compgen -W 'exponential linear cosine minus_sqrt' -- "$cur") && return ;;
	--weight-decay-incr-style) mapfile -t COMPREPLY < <(compgen -W 'constant linear cosine' -- "$cur") && return ;;
	--yaml-cfg | --config)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--main-grads-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 bf16' -- "$cur") && return ;;
	--main-params-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 fp16' -- "$cur") && return ;;
	--exp-avg-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 bf16' -- "$cur") && return ;;
	--exp-avg-sq-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 bf16' -- "$cur") && return ;;
	--megatron-fsdp-main-params-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 bf16 fp16 auto' -- "$cur") && return ;;
	--megatron-fsdp-main-grads-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 bf16 fp16 auto' -- "$cur") && return ;;
	--megatron-fsdp-grad-comm-dtype) mapfile -t COMPREPLY < <(compgen -W 'fp32 fp16 bf16 auto' -- "$cur") && return ;;
	--data-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--train-data-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--valid-data-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--test-data-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--data-args-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--per-split-data-args-path)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--vocab-file)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--merge-file)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--tokenizer-type) mapfile -t COMPREPLY < <(compgen -W 'BertWordPieceLowerCase BertWordPieceCase GPT2BPETokenizer SentencePieceTokenizer GPTSentencePieceTokenizer HuggingFaceTokenizer Llama2Tokenizer TikTokenizer MultimodalTokenizer NullTokenizer NullMultimodalTokenizer SFTTokenizer' -- "$cur") && return ;;
	--tokenizer-model)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--save)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--load)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--non-persistent-ckpt-type) mapfile -t COMPREPLY < <(compgen -W 'global' -- "$cur") && return ;;
	--non-persistent-global-ckpt-dir)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--pretrained-checkpoint)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--ckpt-format) mapfile -t COMPREPLY < <(compgen -W 'torch_dist' -- "$cur") && return ;;
	--megatron-fsdp-version) mapfile -t COMPREPLY < <(compgen -W '1' -- "$cur") && return ;;
	--data-parallel-sharding-strategy) mapfile -t COMPREPLY < <(compgen -W 'no_shard optim optim_grads optim_grads_params' -- "$cur") && return ;;
	--tensorboard-dir)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--rerun-mode) mapfile -t COMPREPLY < <(compgen -W 'disabled validate_results' -- "$cur") && return ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W '
		-h --help
		--version
		--completions
		--backend
		--device
		--threads
		--dry-run
		--machine
		--gpus
		--log-communication
		--log-args
		--attention-atomics
		--eod-id
		--save-keep-last
		--tensor-model-parallel-size
		--pipeline-model-parallel-size
		--sequence-parallel
		--context-parallel-size
		--expert-model-parallel-size
		--expert-tensor-parallel-size
		--fp16
		--bf16
		--microbatch-group-size-per-virtual-pipeline-stage
		--num-layers
		--account-for-embedding-in-pipeline-split
		--account-for-loss-in-pipeline-split
		--hidden-size
		--num-attention-heads
		--num-query-groups
		--ffn-hidden-size
		--kv-channels
		--hidden-dropout
		--attention-dropout
		--norm-epsilon
		--apply-layernorm-1p
		--disable-bias-linear
		--add-qkv-bias
		--rotary-interleaved
		--normalization
		--qk-layernorm
		--calculate-per-token-loss
		--multi-latent-attention
		--init-method-std
		--embedding-init-method-std
		--apply-query-key-layer-scaling
		--use-transformer-engine-op-fuser
		--recompute-granularity
		--recompute-method
		--recompute-num-layers
		--recompute-modules
		--moe-shared-expert-intermediate-size
		--moe-shared-expert-gate
		--moe-ffn-hidden-size
		--moe-router-topk
		--moe-router-num-groups
		--moe-router-group-topk
		--moe-router-pre-softmax
		--moe-router-topk-scaling-factor
		--moe-router-score-function
		--moe-router-dtype
		--moe-router-enable-expert-bias
		--moe-router-bias-update-rate
		--moe-grouped-gemm
		--moe-z-loss-coeff
		--use-te-activation-func
		--encoder-num-layers
		--group-query-attention
		--window-size
		--max-position-embeddings
		--position-embedding-type
		--use-rotary-position-embeddings
		--rotary-base
		--rotary-percent
		--rotary-seq-len-interpolation-factor
		--use-rope-scaling
		--rope-scaling-factor
		--no-position-embedding
		--make-vocab-size-divisible-by
		--squared-relu
		--swiglu
		--quick-geglu
		--untie-embeddings-and-output-weights
		--num-experts
		--moe-layer-freq
		--moe-router-load-balancing-type
		--moe-aux-loss-coeff
		--q-lora-rank
		--kv-lora-rank
		--qk-head-dim
		--qk-pos-emb-head-dim
		--v-head-dim
		--rotary-scaling-factor
		--mscale
		--mscale-all-dim
		--micro-batch-size
		--global-batch-size
		--rampup-batch-size
		--step-batch-size-schedule
		--decrease-batch-size-if-needed
		--train-iters
		--train-samples
		--exit-interval
		--exit-duration-in-mins
		--exit-signal-handler
		--exit-signal
		--iterations-to-skip
		--recompute-activations
		--no-check-for-nan-in-loss-and-grad
		--check-for-large-grads
		--no-bias-gelu-fusion
		--rope-type
		--optimizer
		--optimizer-cpu-offload
		--optimizer-offload-fraction
		--dataloader-type
		--weight-decay
		--apply-wd-to-qk-layernorm
		--clip-grad
		--adam-beta1
		--adam-beta2
		--adam-eps
		--no-weight-decay-cond-type
		--lr-decay-style
		--lr-wsd-decay-style
		--lr-decay-iters
		--lr-decay-samples
		--lr-wsd-decay-iters
		--lr-wsd-decay-samples
		--lr-warmup-fraction
		--lr-warmup-iters
		--lr-warmup-samples
		--lr-warmup-init
		--override-opt_param-scheduler --override-opt-param-scheduler
		--use-checkpoint-opt_param-scheduler --use-checkpoint-opt-param-scheduler
		--start-weight-decay
		--end-weight-decay
		--weight-decay-incr-style
		--lr
		--min-lr
		--decoupled-lr
		--decoupled-min-lr
		--grad-reduce-in-bf16
		--loss-scale
		--initial-loss-scale
		--min-loss-scale
		--loss-scale-window
		--hysteresis
		--accumulate-allreduce-grads-in-fp32
		--seed
		--eval-iters
		--eval-interval
		--start-eval-at-iter
		--eval-global-batch-size
		--skip-train
		--full-validation
		--yaml-cfg --config
		--use-precision-aware-optimizer
		--main-grads-dtype
		--main-params-dtype
		--exp-avg-dtype
		--exp-avg-sq-dtype
		--megatron-fsdp-main-params-dtype
		--megatron-fsdp-main-grads-dtype
		--megatron-fsdp-grad-comm-dtype
		--data-path
		--split
		--train-data-path
		--valid-data-path
		--test-data-path
		--data-args-path
		--per-split-data-args-path
		--mock-data
		--seq-length
		--encoder-seq-length
		--num-workers
		--reset-position-ids
		--reset-attention-mask
		--eod-mask-loss
		--mid-level-dataset-surplus
		--vocab-size
		--padded-vocab-size
		--no-pad-vocab-size --disable-pad-vocab-size
		--vocab-file
		--merge-file
		--tokenizer-type
		--tokenizer-model
		--null-tokenizer-eod-id
		--save
		--save-interval --persistent-save-interval
		--save-retain-interval
		--load
		--non-persistent-save-interval
		--non-persistent-ckpt-type
		--non-persistent-global-ckpt-dir
		--finetune
		--pretrained-checkpoint
		--ckpt-step
		--use-checkpoint-args
		--no-use-tokenizer-model-from-checkpoint-args --disable-use-tokenizer-model-from-checkpoint-args
		--exit-on-missing-checkpoint
		--ckpt-format
		--async-save
		--no-save-tokenizer-assets --disable-save-tokenizer-assets
		--verify-integrity
		--no-save-optim
		--no-save-rng
		--no-load-optim
		--distributed-timeout-minutes
		--use-megatron-fsdp
		--use-torch-fsdp2
		--distributed-timeout-seconds-after-init
		--decoder-first-pipeline-num-layers
		--decoder-last-pipeline-num-layers
		--num-layers-per-virtual-pipeline-stage
		--num-virtual-stages-per-pipeline-rank
		--overlap-grad-reduce
		--ddp-num-buckets
		--ddp-bucket-size
		--overlap-param-gather
		--use-distributed-optimizer
		--megatron-fsdp-version
		--data-parallel-sharding-strategy
		--cp-comm-type
		--log-interval
		--log-params-norm
		--log-throughput
		--tensorboard-dir
		--tensorboard-log-interval
		--log-timers-to-tensorboard
		--no-log-loss-scale-to-tensorboard --disable-log-loss-scale-to-tensorboard
		--log-validation-ppl-to-tensorboard
		--log-memory-to-tensorboard
		--log-num-zeros-in-grad
		--log-world-size-to-tensorboard
		--log-straggler
		--straggler-ctrlr-port
		--straggler-minmax-count
		--disable-straggler-on-startup
		--rerun-mode
		--check-for-spiky-loss
		--no-data-sharding' -- "$cur")
}

complete -F _mcorefs_train mcorefs-train

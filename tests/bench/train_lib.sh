# What train.sh and train_io.sh share; sourced after lib.sh. They set train, backend and work, a folder for logs.

common="--transformer-impl local --tokenizer-type NullTokenizer --optimizer adam --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0
--attention-dropout 0 --hidden-dropout 0 --lr 1e-4 --min-lr 1e-4 --lr-decay-style constant --eval-iters 0 --log-interval 1 --log-throughput"
llama="--normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope --rotary-base 500000 --group-query-attention
--make-vocab-size-divisible-by 1"
# Gradients, and where the peer has them so both moments, in bf16.
bf16_gradients="--use-precision-aware-optimizer --main-grads-dtype bf16"
bf16_moments="$bf16_gradients --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
qwen2="$llama --add-qkv-bias --rotary-base 1000000 --norm-epsilon 1e-6 --vocab-size 151936 $bf16_moments"
declare -A shape=(
	[llama-8b-8l]="$llama --num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 128256 --untie-embeddings-and-output-weights"
	[llama-8b-16l]="$llama --num-layers 16 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 128256 --untie-embeddings-and-output-weights"
	[llama-8b]="$llama --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 128256 --untie-embeddings-and-output-weights"
	[llama-32k]="$llama --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 128256"
	[mixtral-2l]="$llama --num-layers 2 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 32000 --untie-embeddings-and-output-weights --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2
		--moe-grouped-gemm --moe-token-dispatcher-type alltoall"
	[llama-1b]="$llama --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --num-query-groups 8
		--vocab-size 128256"
	[llama-3b]="$llama --num-layers 28 --hidden-size 3072 --ffn-hidden-size 8192 --num-attention-heads 24 --num-query-groups 8
		--vocab-size 128256"
	[qwen3-0.6b]="$llama --num-layers 28 --hidden-size 1024 --ffn-hidden-size 3072 --num-attention-heads 16 --num-query-groups 8
		--kv-channels 128 --qk-layernorm --vocab-size 151936"
	[gpt2-1558m]="--num-layers 48 --hidden-size 1600 --num-attention-heads 25 --vocab-size 50257 $bf16_gradients"
	[qwen2.5-0.5b]="$qwen2 --num-layers 24 --hidden-size 896 --ffn-hidden-size 4864 --num-attention-heads 14 --num-query-groups 2"
	[qwen2.5-1.5b]="$qwen2 --num-layers 28 --hidden-size 1536 --ffn-hidden-size 8960 --num-attention-heads 12 --num-query-groups 2"
	[gpt2-124m]="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257"
	[tiny]="--num-layers 2 --hidden-size 64 --num-attention-heads 2 --vocab-size 1000"
	[cpu]="$llama --num-layers 6 --hidden-size 384 --ffn-hidden-size 1024 --num-attention-heads 6 --num-query-groups 2 --vocab-size 8192"
)
declare -A seq=([llama-8b-8l]=4096 [llama-1b]=4096 [llama-3b]=4096 [qwen3-0.6b]=4096 [gpt2-1558m]=1024 [qwen2.5-0.5b]=1024 [qwen2.5-1.5b]=1024
	[llama-8b-16l]=4096 [llama-8b]=4096 [llama-32k]=32768 [mixtral-2l]=4096 [gpt2-124m]=1024 [tiny]=64 [cpu]=512)

# flags SHAPE MICRO BATCH STEPS: the arguments of mcorefs-train, one a line
flags() {
	# shellcheck disable=SC2086
	printf '%s\n' $common ${shape[$1]} --seq-length "${seq[$1]}" --max-position-embeddings "${seq[$1]}" --backend "$backend" \
		$([ "$backend" = cpu ] || echo --bf16) --micro-batch-size "$2" --global-batch-size "$3" --train-iters "$4"
}

# clock LOG PATTERN COUNT COMMAND...: writes what it prints, each line with the microseconds since its start. The command is ended
# behind COUNT lines of PATTERN: what peers do after their last step is not waited for.
clock() {
	local log=$1 pattern=$2 left=$3 start=${EPOCHREALTIME/./} line
	shift 3
	: >"$log"
	coproc "$@" </dev/null 2>&1
	local pid=$COPROC_PID
	exec {lines}<&"${COPROC[0]}"
	while ((left)) && IFS= read -r -u "$lines" line; do
		printf '%s %s\n' "$((${EPOCHREALTIME/./} - start))" "$line" >>"$log"
		[[ ! $line =~ $pattern ]] || ((left--))
	done
	exec {lines}<&-
	kill -KILL "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	return "$((left != 0))"
}

# steps LOG SED-PATTERN: "microseconds milliseconds" of each step; the pattern's one group is the milliseconds
steps() {
	sed -nE "s/^([0-9]+) .*$2.*/\1 \2/p" "$1"
}

our_step='elapsed time per iteration \(ms\): ([0-9.]+)'

#!/bin/bash
# tokens/s of mcorefs-train beside a plain PyTorch loop of the same shape, in turn in one run.
#
#   tests/bench/train.sh [SHAPE...]      BACKEND=cuda|cpu  BENCH_STEPS=12  BENCH_RUNS=1  PYTHON=python3  MICRO=1 ACCUMULATE=4
#
# Shapes: llama-8b-8l, llama-1b, qwen3-0.6b; on CPUs: cpu. What PyTorch may do there is in peers/torch_train.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh
train=$(realpath -m "${O:-build}")/mcorefs-train
backend=${BACKEND:-cuda} steps=${BENCH_STEPS:-12} python=${PYTHON:-python3}
micro=${MICRO:-1} accumulate=${ACCUMULATE:-4}

common="--transformer-impl local --tokenizer-type NullTokenizer --mock-data --normalization RMSNorm --swiglu --disable-bias-linear
--position-embedding-type rope --rotary-base 500000 --group-query-attention --optimizer adam --adam-beta2 0.95 --weight-decay 0.1
--clip-grad 1.0 --attention-dropout 0 --hidden-dropout 0 --lr 1e-4 --min-lr 1e-4 --lr-decay-style constant --eval-iters 0
--log-interval 1 --log-throughput --make-vocab-size-divisible-by 1"
declare -A shape=(
	[llama-8b-8l]="--num-layers 8 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8
		--seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --untie-embeddings-and-output-weights"
	[llama-1b]="--num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --num-query-groups 8
		--seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256"
	[qwen3-0.6b]="--num-layers 28 --hidden-size 1024 --ffn-hidden-size 3072 --num-attention-heads 16 --num-query-groups 8 --kv-channels 128
		--qk-layernorm --seq-length 4096 --max-position-embeddings 4096 --vocab-size 151936"
	[cpu]="--num-layers 6 --hidden-size 384 --ffn-hidden-size 1024 --num-attention-heads 6 --num-query-groups 2
		--seq-length 512 --max-position-embeddings 512 --vocab-size 8192"
)

# The median tokens/s of the iterations behind the first quarter.
ours() {
	local seq
	seq=$(sed -n 's/.*--seq-length \([0-9]*\).*/\1/p' <<<"${shape[$1]}")
	# shellcheck disable=SC2086
	"$train" $common ${shape[$1]} --backend "$backend" $([ "$backend" = cpu ] || echo --bf16) --micro-batch-size "$micro" \
		--global-batch-size $((micro * accumulate)) --train-iters "$steps" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
	grep -E '^(device|memory|data)' "$work/log" >&2
	sed -nE 's/.*elapsed time per iteration \(ms\): ([0-9.]+).*/\1/p' "$work/log" | tail -n +$((steps / 4 + 2)) |
		median | awk -v tokens=$((micro * accumulate * seq)) '{ print tokens / $1 * 1e3 }'
}

theirs() {
	local dtype=bfloat16
	[ "$backend" != cpu ] || dtype=float32
	"$python" tests/bench/peers/torch_train.py --shape "$1" --device "$backend" --dtype $dtype --micro "$micro" --accumulate "$accumulate" \
		--steps "$steps" | tee -a "$work/peer" | sed -nE 's/.*"tokens_per_s": ([0-9.]+).*/\1/p'
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
results=${O:-build}/bench-train.txt
: >"$results"
[ $# != 0 ] || { if [ "$backend" = cpu ]; then set -- cpu; else set -- llama-8b-8l llama-1b qwen3-0.6b; fi; }
row "tokens/s, $backend" "ours" "torch" "ratio"
for s; do
	for ((i = 0; i < ${BENCH_RUNS:-1}; i++)); do
		o=$(ours "$s") && t=$(theirs "$s") && row "$s" "$(two "$o")" "$(two "$t")" "$(ratio "$o" "$t")"
	done
done
cat "$work/peer" 2>/dev/null

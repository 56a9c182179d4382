#!/bin/bash
# tokens/s of mcorefs-train compared with other trainers of the same shape, in turn in one run.
#
#   tests/bench/train.sh [SHAPE...]      BACKEND=cuda|cpu  BENCH_STEPS=8  BENCH_RUNS=1  PYTHON=python3  LLMC=DIR  LLMQ=DIR
#                                        MICRO='1 2'  PEER_MICRO='1 2'  BATCH=8  TORCH_COMPILE=model  BENCH_DIR=/tmp  BENCH_KEEP=DIR
#                                        FP8=tensorwise|delayed|blockwise
#
# Shapes: llama-8b-8l, llama-1b and qwen3-0.6b against a plain PyTorch loop (peers/torch_train.py); gpt2-1558m against llm.c, whose built
# tree is LLMC; qwen2.5-0.5b and qwen2.5-1.5b against LLM.Q, whose tree is LLMQ; on CPUs: cpu. A peer that is not there is left out.
# docs/PERFORMANCE.md says how the peers are built. MICRO and PEER_MICRO: sequences a microbatch that are tried; the fastest counts.
# BATCH: sequences a step, of all. FP8: both sides multiply in 8 bits, ours by that recipe and the peer by a scale for each tensor (torchao, LLM.Q). BENCH_KEEP: the logs are copied there. Shares are of the faster of two large products, the short one.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh
. tests/bench/train_lib.sh
train=$(realpath -m "${O:-build}")/mcorefs-train
results=${O:-build}/bench-train.txt
backend=${BACKEND:-cuda} runs=${BENCH_RUNS:-1} python=${PYTHON:-python3} llmc=${LLMC:-} llmq=${LLMQ:-}
count=${BENCH_STEPS:-8}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
watcher=''

clean_up() {
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
	[ -z "${BENCH_KEEP:-}" ] || cp "$work"/*.log "$BENCH_KEEP" 2>/dev/null
	rm -rf "${work:?}"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

declare -A peer=([gpt2-1558m]=llmc [qwen2.5-0.5b]=llmq [qwen2.5-1.5b]=llmq)
declare -A goal=([torch]=1.10 [llmc]=1.05 [llmq]=1.05)
declare -A batch=([llama-8b-8l]=8 [llama-1b]=8 [qwen3-0.6b]=8 [gpt2-1558m]=64 [qwen2.5-0.5b]=128 [qwen2.5-1.5b]=64 [cpu]=4)
declare -A micro=([llama-8b-8l]='1 2' [llama-1b]='1 2' [qwen3-0.6b]='1 2' [gpt2-1558m]=32 [qwen2.5-0.5b]=32 [qwen2.5-1.5b]=32 [cpu]=1)

# ---- the trainers: NAME_run SHAPE MICRO BATCH LOG ----

# Which lines of theirs are steps; the group is the milliseconds.
declare -A step=([ours]=$our_step [torch]='step [0-9]+: ([0-9.]+) ms' [llmc]='\| ([0-9.]+) ms \|' [llmq]='\[T\] step .* time: +([0-9]+) ms')

ours_run() {
	local arguments
	mapfile -t arguments < <(flags "$1" "$2" "$3" "$count")
	# shellcheck disable=SC2086
	clock "$4" "${step[ours]}" "$count" "$train" "${arguments[@]}" --mock-data ${FP8:+--fp8-format hybrid --fp8-recipe $FP8}
}

torch_run() {
	clock "$4" peak_gib 1 "$python" tests/bench/peers/torch_train.py --shape "$1" --device "$backend" --micro "$2" \
		--accumulate $(($3 / $2)) --steps "$count" --dtype "$([ "$backend" = cpu ] && echo float32 || echo bfloat16)" \
		--compile "${TORCH_COMPILE:-model}" ${FP8:+--fp8}
}

llmc_run() {
	tokens llmc 50257 && { [ -e "$work/gpt2.bin" ] || "$python" tests/bench/peers/token_files.py gpt2 "$work/gpt2.bin" 48 1600; } || return
	clock "$4" "${step[llmc]}" "$count" stdbuf -oL "$llmc/train_gpt2cu" -i "$work/llmc.bin" -j "$work/llmc.bin" -e "$work/gpt2.bin" \
		-b "$2" -t 1024 -d $(($3 * 1024)) -x "$count" -v 1000000 -m 1 -s 0 -h 0 -l 1e-4 -q 1.0 -u 0 -c 0.1 -w 1 -r 0
}

llmq_run() {
	tokens llmq 151936 || return
	clock "$4" "${step[llmq]}" "$count" stdbuf -oL "$llmq/build/train" --model="${1^}" --from-scratch --train-file="$work/llmq.bin" \
		--eval-file="$work/llmq.bin" --seq-length=1024 --model-dtype=bf16 --matmul-dtype="$([ -n "${FP8:-}" ] && echo e4m3 || echo bf16)" --opt-m-dtype=bf16 --opt-v-dtype=bf16 --gpus=1 \
		--use-cuda-graphs --batch-size="$2" --grad-accumulation=$(($3 / $2)) --steps="$count" --ckpt-interval=0 --eval-every-n-steps=0 \
		--learning-rate=1e-4 --log-file="$work/llmq.json" --out-dir="$work/llmq" --checkpoint-dir="$work/llmq"
}

# tokens FORMAT VOCABULARY: random ones, enough for a run, in work
tokens() {
	[ -e "$work/$1.bin" ] || "$python" tests/bench/peers/token_files.py "$1" "$work/$1.bin" $((8 << 20)) "$2"
}

available() {
	case $1 in
	torch) [ "$product" != 0 ] ;;
	llmc) [ -x "$llmc/train_gpt2cu" ] ;;
	llmq) [ -x "$llmq/build/train" ] ;;
	esac
}

# ---- what is measured ----

# The memory of the whole device, in MiB, while a run goes on.
watch_memory() {
	watcher=''
	[ "$backend" != cpu ] && command -v nvidia-smi >/dev/null || return 0
	nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits -lms 250 >"$work/memory" 2>/dev/null &
	watcher=$!
}

# Sets gib.
stop_watching() {
	gib=-
	[ -n "$watcher" ] || return 0
	kill "$watcher" 2>/dev/null
	wait "$watcher" 2>/dev/null
	watcher=''
	gib=$(sort -g "$work/memory" | tail -n 1 | awk '{ printf "%.1f", $1 / 1024 }')
}

declare -A speed first memory best_micro

# one TRAINER SHAPE MICRO BATCH: the median of the steps after the first quarter. The fastest run of a trainer counts.
one() {
	local trainer=$1 log=$work/$2-$1-$3.log ms gib now rc
	watch_memory
	"${trainer}_run" "$2" "$3" "$4" "$log"
	rc=$?
	stop_watching
	if [ $rc != 0 ]; then
		echo "$trainer with $3 sequences a microbatch failed:" >&2
		tail -n 5 "$log" >&2
		return 1
	fi
	ms=$(steps "$log" "${step[$trainer]}" | tail -n +$((count / 4 + 2)) | awk '{ print $2 }' | median)
	now=$(awk -v tokens=$(($4 * seq[$2])) -v ms="$ms" 'BEGIN { print tokens / ms * 1e3 }')
	printf '  %s, %s, %s a microbatch: %.0f tokens/s, %s GiB\n' "$2" "$trainer" "$3" "$now" "$gib" >&2
	awk -v a="$now" -v b="${speed[$trainer]:-0}" 'BEGIN { exit !(a > b) }' || return 0
	speed[$trainer]=$now memory[$trainer]=$gib best_micro[$trainer]=$3
	first[$trainer]=$(steps "$log" "${step[$trainer]}" | awk 'NR == 1 { printf "%.1f", $1 / 1e6 }')
	[ "$trainer" != ours ] || flops=$(sed -nE "s/.*$our_step.*\(TFLOP\/s\/GPU\): ([0-9.]+).*/\1 \2/p" "$log" | tail -n 1 |
		awk -v tokens=$(($4 * seq[$2])) '{ print $2 * $1 / 1e3 / tokens }')
}

teraflops() {
	awk -v a="${speed[$1]:-0}" -v f="$flops" 'BEGIN { print a * f }'
}

report() {
	local s=$1 p=$2 a b
	a=$(teraflops ours) b=$(teraflops "$p")
	row "$s, $p: tokens/s" "$(printf %.0f "${speed[ours]:-0}")" "$(printf %.0f "${speed[$p]:-0}")" \
		"$(ratio "${speed[ours]:-0}" "${speed[$p]:-0}")" ">= ${goal[$p]}"
	row "  TFLOP/s" "$(printf %.3g "$a")" "$(printf %.3g "$b")" "" ""
	row "  of the product" "$(ratio "$a" "$product")" "$(ratio "$b" "$product")" "" "$([ "$s" != llama-8b-8l ] || echo '>= 0.65')"
	row "  memory of the device, GiB" "${memory[ours]:--}" "${memory[$p]:--}" "" ""
	row "  start to the end of the first step, s" "${first[ours]:--}" "${first[$p]:--}" "" ""
	row "  sequences a microbatch" "${best_micro[ours]:--}" "${best_micro[$p]:--}" "" "${batch[$s]} a step"
}

: >"$results"
if [ $# = 0 ]; then
	if [ "$backend" = cpu ]; then set -- cpu; else set -- llama-8b-8l llama-1b qwen3-0.6b gpt2-1558m qwen2.5-0.5b qwen2.5-1.5b; fi
fi
product=0 lasting=0
read -r product lasting < <("$python" tests/bench/peers/torch_train.py --product --device "$backend" 2>/dev/null || echo 0 0)
row "$backend" ours peer ratio goal
row "a large product, TFLOP/s; for a second" "" "$(printf %.3g "$product")" "" "$(printf %.3g "$lasting")"
for s; do
	[ -n "${shape[$s]:-}" ] || die "there is no shape $s"
	p=${peer[$s]:-torch} speed=() first=() memory=() best_micro=() flops=0
	batch[$s]=${BATCH:-${batch[$s]}}
	available "$p" || echo "$s: $p is not there" >&2
	for ((i = 0; i < runs; i++)); do
		for m in ${MICRO:-${micro[$s]}}; do one ours "$s" "$m" "${batch[$s]}"; done
		! available "$p" || for m in ${PEER_MICRO:-${MICRO:-${micro[$s]}}}; do one "$p" "$s" "$m" "${batch[$s]}"; done
	done
	report "$s" "$p"
done

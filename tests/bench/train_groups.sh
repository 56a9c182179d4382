#!/bin/bash
# tokens/s of mcorefs-train on several GPUs of one host, compared with PyTorch on as many, in turn in one run.
#
#   tests/bench/train_groups.sh [CASE...]      GPUS=2  BENCH_STEPS=8  PYTHON=python3  PEER_MICRO='1 2'  EXPERT_MICRO=4
#       BENCH_DIR=/tmp  BENCH_KEEP=DIR
#
#   one   Llama-3-8B of 8 layers on one GPU
#   dp    the same on each, the distributed optimizer divided among them: tokens/s against so many times those of one
#   fsdp, tp, pp   a larger model, divided in each way; peers: FSDP2, and tensor parallelism with sequences divided. pp has the faster one
#   cp, a2a   Llama-3.2-1B at 32 768 tokens, the sequence in a ring, and by heads; peer: tensor parallelism
#   io    Llama-3.2-1B, samples shared: the slowest step while all save, against the median of others; loading that save with no page of it in
#         memory, against reading its files one by one
#   ep    two layers of 8 experts of Mixtral's size: tokens/s against so many times those of one GPU, and against the faster one of two peers,
#         which have all experts on each GPU, and FSDP2: dp adds up gradients once a step. Logits of the router are random, so that no GPU
#         waits for one with more tokens
# A goal is of the ratio. Batches grow with the number of GPUs where they share the samples. Exposed communication is the trainer's own
# (--log-communication). BENCH_KEEP: the logs are copied there.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh
backend=cuda
. tests/bench/train_lib.sh
train=$(realpath -m "${O:-build}")/mcorefs-train
results=${O:-build}/bench-train-groups.txt
count=${BENCH_STEPS:-8} expert_micro=${EXPERT_MICRO:-4} python=${PYTHON:-python3} n=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
trap '[ -z "${BENCH_KEEP:-}" ] || cp "$work"/*.log "$BENCH_KEEP" 2>/dev/null; rm -rf "${work:?}"' EXIT
[ "${n:-0}" -ge 2 ] || die "several GPUs are needed"

large="llama-8b-16l"
[ "$n" -lt 4 ] || large="llama-8b"
declare -A speed=()

# tokens_per_s LOG PATTERN TOKENS: of the median of the steps after the first quarter
tokens_per_s() {
	local ms
	ms=$(sed -nE "s/.*$2.*/\1/p" "$1" | tail -n +$((count / 4 + 2)) | median)
	awk -v t="$3" -v ms="${ms:-0}" 'BEGIN { printf "%.0f", (ms > 0 ? t / ms * 1e3 : 0) }'
}

# failed NAME LOG
failed() {
	echo "$1 failed:" >&2
	tail -n 4 "$2" | cut -c 1-300 >&2
}

# ours NAME PROCESSES SHAPE MICRO BATCH FLAG...: sets speed[NAME]
ours() {
	local name=$1 processes=$2 s=$3 batch=$5 log=$work/$1.log run=("$train") arguments
	mapfile -t arguments < <(flags "$3" "$4" "$5" "$count")
	shift 5
	[ "$processes" = 1 ] || run=(tests/gpu/launch.sh "$processes" "$train" --log-communication)
	timeout -k 5 "${BENCH_LIMIT:-300}" "${run[@]}" "${arguments[@]}" --mock-data "$@" >"$log" 2>&1 || failed "$name" "$log"
	speed[$name]=$(tokens_per_s "$log" "$our_step" $((batch * seq[$s])))
}

# peer NAME SHAPE BATCH: PyTorch by that name, at the fastest of some sizes of a microbatch
peer() {
	local m now log samples=1
	[ "$1" = tp ] || samples=$n
	for m in ${PEER_MICRO:-1 2}; do
		log=$work/torch-$1-$2-$m.log
		timeout -k 5 "${BENCH_LIMIT:-300}" tests/gpu/launch.sh "$n" "$python" tests/bench/peers/torch_train.py --shape "$2" --micro "$m" \
			--accumulate $(($3 / m / samples)) --steps "$count" --parallel "$1" >"$log" 2>&1 || failed "torch $1 $2 $m" "$log"
		now=$(tokens_per_s "$log" 'step [0-9]+: ([0-9.]+) ms' $(($3 * seq[$2])))
		printf '  torch, %s, %s, %s a microbatch: %s tokens/s\n' "$1" "$2" "$m" "$now" >&2
		[ "$now" -le "${speed[torch-$1-$2]:-0}" ] || speed[torch-$1-$2]=$now
	done
	: "${speed[torch-$1-$2]:=0}"
}

# need NAME FUNCTION ARGUMENT...: once
need() {
	[ -n "${speed[$1]:-}" ] || "${@:2}"
}

exposed() {
	local said
	said=$(sed -nE 's/^exposed communication of a step: (.*)/\1/p' "$work/$1.log")
	[ -z "$said" ] || row "  exposed: $said" "" "" "" ""
}

# beside NAME OTHER FACTOR GOAL
beside() {
	row "$1" "${speed[$1]}" "$(awk -v a="${speed[$2]:-0}" -v f="$3" 'BEGIN { printf "%.0f", a * f }')" \
		"$(ratio "${speed[$1]}" "$(awk -v a="${speed[$2]:-0}" -v f="$3" 'BEGIN { print a * f }')")" "$4"
	exposed "$1"
}

divided=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
fsdp_peer() { peer fsdp $large $((8 * n)); }
expert_peer() { PEER_MICRO=${PEER_MICRO:-1 2 4} peer "$1" mixtral-2l $((8 * n)); }
tp_peer() { peer tp $large 8; }
long_peer() { PEER_MICRO=1 peer tp llama-32k 2; }
one_gpu() { ours one 1 llama-8b-8l 2 8; }
one_expert_gpu() { ours ep-one 1 mixtral-2l "$expert_micro" 8 --moe-router-force-load-balancing; }

# The step in which a save begins is one of those in flight. There is one save: where training waits for one, the GPUs cool, and the fourth
# step after it takes 8 % longer.
io() {
	local at=24 steps=$((24 + ${SAVE_STEPS:-20})) log=$work/save.log load=$work/load.log arguments most before usual seconds bytes began
	mapfile -t arguments < <(flags llama-1b 1 $((4 * n)) $steps)
	arguments+=(--mock-data "${divided[@]}")
	timeout -k 5 "${BENCH_LIMIT:-300}" tests/gpu/launch.sh "$n" "$train" "${arguments[@]}" --save "$work/save" --save-interval $at \
		--exit-interval $steps >"$log" 2>&1 || failed save "$log"
	usual=$(sed -nE "s/.*$our_step.*/\1/p" "$log" | sed -n "3,${at}p" | median)
	before=$(sed -nE "s/.*$our_step.*/\1/p" "$log" | sed -n "3,${at}p" | sort -g | tail -n 1)
	most=$(sed -nE "s/.*$our_step.*/\1/p" "$log" | tail -n +$((at + 1)) | sort -g | tail -n 1)
	row "slowest step while all save, median of others, ms" "$most" "$usual" "$(ratio "$most" "$usual")" "+ 10 ms"
	row "slowest step while all save, slowest of others, ms" "$most" "$before" "$(ratio "$most" "$before")" ""
	row "  $(sed -nE 's/.* (saved [0-9.]+ GiB in [0-9.]+ s).*/\1/p' "$log" | head -n 1)" "" "" "" ""
	drop_caches || { row "load" skipped "" "" "caches can be dropped by root alone"; return; }
	timeout -k 5 "${BENCH_LIMIT:-300}" tests/gpu/launch.sh "$n" "$train" "${arguments[@]}" --load "$work/save" --ckpt-step $at \
		--exit-interval $((at + 1)) >"$load" 2>&1 || failed load "$load"
	seconds=$(sed -nE 's/^weights: .*, in ([0-9.]+) s$/\1/p' "$load" | head -n 1)
	drop_caches
	began=${EPOCHREALTIME/./}
	cat "$work"/save/iter_*"$at"/*.distcp >/dev/null
	bytes=$(awk -v us=$((${EPOCHREALTIME/./} - began)) 'BEGIN { printf "%.2f", us / 1e6 }')
	row "load by all, and its files one by one, s" "${seconds:--}" "$bytes" "$(ratio "${seconds:-0}" "$bytes")" ""
	rm -rf "$work/save"
}

# Two chunks a stage, of which the loss takes as long as two layers and a half.
chunks="Ettttt|tttt|tttt|tttL"
[ $large != llama-8b ] || chunks="Ettttt|ttttt|tttt|ttt|tttt|tttt|tttt|tttL"

: >"$results"
[ $# != 0 ] || set -- one dp fsdp tp pp cp a2a ep io
row "$n x $(nvidia-smi -i 0 --query-gpu=name --format=csv,noheader), tokens/s" ours other ratio goal
for c; do
	case $c in
	one)
		need one one_gpu
		row one "${speed[one]}" "" "" ""
		;;
	dp)
		need one one_gpu
		ours dp "$n" llama-8b-8l 2 $((8 * n)) "${divided[@]}"
		beside dp one "$n" ">= 0.97"
		;;
	fsdp)
		ours fsdp "$n" $large 2 $((8 * n)) --use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather
		need torch-fsdp-$large fsdp_peer
		beside fsdp torch-fsdp-$large 1 ">= 1.10"
		;;
	tp)
		ours tp "$n" $large 2 8 --tensor-model-parallel-size "$n" --sequence-parallel
		need torch-tp-$large tp_peer
		beside tp torch-tp-$large 1 ">= 1.10"
		;;
	pp)
		ours pp "$n" $large 1 $((8 * n)) --pipeline-model-parallel-size "$n" --pipeline-model-parallel-layout "$chunks"
		need torch-fsdp-$large fsdp_peer
		need torch-tp-$large tp_peer
		best=torch-tp-$large
		[ "${speed[torch-fsdp-$large]}" -le "${speed[$best]}" ] || best=torch-fsdp-$large
		beside pp "$best" 1 ">= 1.10"
		;;
	cp | a2a)
		ours "$c" "$n" llama-32k 1 2 --context-parallel-size "$n" --cp-comm-type "${c/#cp/p2p}"
		need torch-tp-llama-32k long_peer
		beside "$c" torch-tp-llama-32k 1 ">= 1.10"
		;;
	ep)
		need ep-one one_expert_gpu
		ours ep "$n" mixtral-2l "$expert_micro" $((8 * n)) "${divided[@]}" --expert-model-parallel-size "$n" --moe-router-force-load-balancing
		beside ep ep-one "$n" ""
		for p in fsdp dp; do need torch-$p-mixtral-2l expert_peer $p; done
		best=torch-fsdp-mixtral-2l
		[ "${speed[torch-dp-mixtral-2l]}" -le "${speed[$best]}" ] || best=torch-dp-mixtral-2l
		beside ep "$best" 1 ">= 1.10"
		;;
	io) io ;;
	*) die "there is no case $c" ;;
	esac
done

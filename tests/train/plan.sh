#!/bin/bash
# Plans of runs on machines that are not here (--dry-run --machine): what they say that processes say to each other is what processes say.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin plan
machine=configs/machines/h200.yaml

# plan ARGUMENT...: of args
plan() {
	"$train" --dry-run --machine "$machine" "${args[@]}" "$@" >"$work/log" 2>&1
}

# said LOG: what the first process sends others in a step
said() {
	sed -n 's/^\(stage 0 of [0-9]*: \)*communication of a step: //p' "$1"
}

# exposes LOG: it says of the same groups how long the passes stood still for them
exposes() {
	local groups
	groups=$(said "$1" | sed -E 's/ [0-9]+ bytes in [0-9]+ operations//g')
	[ -n "$groups" ] && [ "$(sed -nE '/^exposed communication of a step: /{s///;s/ [0-9]+\.[0-9] ms//g;p}' "$1")" = "$groups" ]
}

# says NAME FAMILY LAYOUT [EDIT] ARGUMENT...: a plan says what the run does. EDIT: of both lines, by sed.
says() {
	local n=${3%%-*} bad=0
	family_args "$2"
	layout_flags "$3"
	run "$n" "$work/n1.log" "${layout[@]}" --log-communication --exit-interval 2 "${@:5}" || bad=1
	plan --gpus "$n" "${layout[@]}" "${@:5}" || bad=1
	said "$work/n1.log" | sed -E "$4" >"$work/is"
	said "$work/log" | sed -E "$4" >"$work/planned"
	[ -s "$work/is" ] && diff "$work/is" "$work/planned" || bad=1
	exposes "$work/n1.log" && ! grep -q exposed.comm "$work/log" || bad=1
	verdict $bad "$1"
}

says "heads, sequences, documents" llama 2-tp2-sp '' --reset-attention-mask --reset-position-ids --eod-id 11
says "stages with chunks, two copies" llama 4-pp2-vpp2 ''
says "the distributed optimizer's buckets" qwen2 2-dp2 '' --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
	--ddp-bucket-size 20000
says "two instances of the distributed optimizer" qwen2 4-inst2 '' --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
	--ddp-bucket-size 20000
says "as many instances as processes" qwen2 2-inst2 '' --use-distributed-optimizer
says "parts of sequences" gpt2 2-cp2 ''
says "parts of sequences, by neighbours" llama 4-cp2x2 ''
says "FSDP, layers run again" llama 4-fsdp-tp2 '' --overlap-grad-reduce --overlap-param-gather --recompute-granularity full \
	--recompute-method uniform --recompute-num-layers 1
# A plan fails where a group's operations are in two streams.
says "FSDP, gradients alone beside the passes" llama 2-fsdp '' --overlap-grad-reduce
# Which rows go to whom depends on the tokens.
says "experts" mixtral 2-ep2 's/(ep|expt_tp-ep) [0-9]+ bytes/\1/'
says "experts' rows beside shared experts" deepseek 2-ep2 's/(ep|expt_tp-ep) [0-9]+ bytes/\1/' --moe-shared-expert-overlap
says "experts and two instances" mixtral 8-tp2-sp-ep2-etp1-inst2 's/(ep|expt_tp-ep) [0-9]+ bytes/\1/' --use-distributed-optimizer --overlap-grad-reduce
says "all of them" mixtral 8-tp2-sp-pp2-ep2-etp1 's/(ep|expt_tp-ep) [0-9]+ bytes/\1/' --use-distributed-optimizer

# milliseconds ARGUMENT...: of a step of four stages, as a plan has it
milliseconds() {
	plan --gpus 4 --pipeline-model-parallel-size 4 --num-layers 16 --hidden-size 4096 --ffn-hidden-size 14336 --seq-length 4096 \
		--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 --bf16 "$@" || return
	sed -nE 's/^a step on .*: ([0-9.]+) ms,.*/\1/p' "$work/log"
}
family_args llama
times="$(milliseconds) $(milliseconds --num-virtual-stages-per-pipeline-rank 4) $(milliseconds --num-virtual-stages-per-pipeline-rank 4 \
	--no-overlap-p2p-communication)"
# The pipeline is full for 8 microbatches of 8 + 3, or, with chunks, of 8 + 3/4.
awk -v all="$times" 'BEGIN { exit split(all, t, " ") != 3 || t[2] > 0.83 * t[1] || t[3] < 1.1 * t[2] }'
verdict $? "chunks make a pipeline's bubble smaller, and messages go beside the passes: $times ms"

# exposed ARGUMENT...: of the time of what tensor parallel processes say in a step, the part that makes the step longer
exposed() {
	plan --gpus 2 --tensor-model-parallel-size 2 --num-layers 16 --hidden-size 4096 --ffn-hidden-size 14336 --seq-length 4096 \
		--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 2 --bf16 "$@" || return
	sed -nE 's/^ +tp: ([0-9.]+) ms, of which ([0-9.]+) ms are exposed$/\1 \2/p' "$work/log"
}
# What goes on in parallel with a product costs it nothing here.
sed 's/^busy_link: .*/busy_link: 1e-9/' "$machine" >"$work/free.yaml"
times="$(machine=$work/free.yaml exposed) $(machine=$work/free.yaml exposed --sequence-parallel)"
# Of two sums of each part the one of backward goes on in parallel with a product. Of five messages, where the stream is shared, two do.
awk -v all="$times" 'BEGIN { exit split(all, t, " ") != 4 || t[2] > 0.6 * t[1] || t[4] > 0.65 * t[3] }'
verdict $? "sums of dx and gathered rows go beside products: $times ms"

# What is suggested is what its plan says, and nothing that is given of a layout is tried otherwise.
suggests() {
	local line first
	plan --gpus 4 --num-layers 8 --hidden-size 1024 --ffn-hidden-size 4096 --seq-length 1024 --max-position-embeddings 1024 --bf16 \
		--micro-batch-size 2 --suggest-layout || return 1
	grep -q '^11 layouts are possible on 4 of NVIDIA H200, and 11 fit; the fastest, with --use-dist' "$work/log" || return 1
	[ "$(grep -c ' ms, .* tokens/s, ' "$work/log")" = 8 ] && ! grep -q micro-batch-size "$work/log" || return 1
	sed -nE 's/^ *([0-9.]+) ms, .*/\1/p' "$work/log" | sort -cg || return 1
	line=$(grep ' ms, .*--pipeline-model-parallel-size 2' "$work/log" | head -n 1)
	read -r first _ <<<"$line"
	# shellcheck disable=SC2086
	plan --gpus 4 --num-layers 8 --hidden-size 1024 --ffn-hidden-size 4096 --seq-length 1024 --max-position-embeddings 1024 --bf16 \
		--micro-batch-size 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather ${line#* GiB } || return 1
	grep -q "^a step on 4 of NVIDIA H200: $first ms," "$work/log"
}
suggests
verdict $? "the layouts that are suggested"

# runs_again: layers run again where a layout does not fit otherwise.
runs_again() {
	sed 's/^memory_gib: .*/memory_gib: 1/' "$machine" >"$work/small.yaml"
	machine=$work/small.yaml plan --gpus 4 --num-layers 8 --hidden-size 1024 --ffn-hidden-size 4096 --seq-length 1024 \
		--max-position-embeddings 1024 --bf16 --suggest-layout && grep -q 'GiB .*--recompute-granularity full' "$work/log"
}
runs_again
verdict $? "layers that run again where they must"

# Experts alone run again where what they keep is the most, which is faster than layers.
runs_experts_again() {
	local layout=(--gpus 4 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --expert-model-parallel-size 2 --micro-batch-size 64
		--global-batch-size 256 --hidden-size 256 --moe-ffn-hidden-size 2048 --bf16)
	family_args mixtral
	sed 's/^memory_gib: .*/memory_gib: 1/' "$machine" >"$work/few.yaml"
	machine=$work/few.yaml plan "${layout[@]}" --suggest-layout &&
		grep ' ms, .*GiB ' "$work/log" | head -n 1 | grep -q -- ' --recompute-granularity selective --recompute-modules moe$'
}
runs_experts_again
verdict $? "experts that run again where they must"

# Where experts' rows are the largest part, what runs them again is named, with a machine and without one.
of_experts() {
	local remedy='--recompute-granularity selective --recompute-modules moe' rows=(--gpus 2 --expert-model-parallel-size 2 --micro-batch-size 8
		--global-batch-size 16)
	family_args mixtral
	sed 's/^memory_gib: .*/memory_gib: 0.01/' "$machine" >"$work/tiny.yaml"
	"$train" "${args[@]}" "${rows[@]}" --dry-run >"$work/log" 2>&1 &&
		grep -q "^rows of experts are the largest part: $remedy, .* needs less$" "$work/log" || return
	machine=$work/tiny.yaml plan "${rows[@]}" && grep -q "^WARNING: .* GiB; $remedy, " "$work/log" || return
	# shellcheck disable=SC2086
	machine=$work/tiny.yaml plan "${rows[@]}" $remedy && grep -q '^WARNING: .* GiB; a smaller --micro-batch-size, ' "$work/log" || return
	"$train" "${args[@]}" "${rows[@]}" $remedy --dry-run >"$work/log" 2>&1 && ! grep -q 'rows of experts' "$work/log" || return
	family_args llama
	"$train" "${args[@]}" --dry-run >"$work/log" 2>&1 && ! grep -q 'rows of experts' "$work/log"
}
of_experts
verdict $? "rows of experts that are the largest part"

# Where batches grow, a plan is of the first one: its time and its tokens.
first_batch() {
	local schedule
	family_args llama
	plan && grep '^a step on' "$work/log" >"$work/planned" || return
	args=("${args[@]/#--global-batch-size/--eval-global-batch-size}")
	plan --step-batch-size-schedule 0:8,1M:16 && grep '^a step on' "$work/log" | diff "$work/planned" - || return
	args=("${args[@]/#--train-iters/--train-samples}")
	args=("${args[@]/#--lr-decay-iters/--lr-decay-samples}")
	args=("${args[@]/#--lr-warmup-iters/--lr-warmup-samples}")
	plan --global-batch-size 16 --rampup-batch-size 8 8 30 && grep '^a step on' "$work/log" | diff "$work/planned" -
}
first_batch
verdict $? "batches that grow"

# Whose host has as much as the file says, whatever this one has.
elsewhere() {
	local large=(--num-layers 100 --hidden-size 8192 --ffn-hidden-size 32768 --bf16 --use-distributed-optimizer --optimizer-cpu-offload
		--use-precision-aware-optimizer --gpus 2)
	sed 's/^host_memory_gib: .*/host_memory_gib: 500/' "$machine" >"$work/host.yaml"
	grep -v ^host_memory_gib "$machine" >"$work/unsaid.yaml"
	plan_large() {
		"$train" "${args[@]}" "${large[@]}" --dry-run --machine "$1" >"$work/log" 2>&1 && grep -q '^a step on 2 of' "$work/log"
	}
	plan_large "$machine" && ! grep -q 'WARNING: a host' "$work/log" || return
	plan_large "$work/host.yaml" && grep -q 'WARNING: a host of NVIDIA H200 has 500 GiB, and 2 processes would take [0-9]* GiB' "$work/log" || return
	plan_large "$work/unsaid.yaml" && grep -q '^simulating a step of 2 processes' "$work/log"
}
elsewhere
verdict $? "a machine whose host has more than this one"

# What it refuses.
must_fail() {
	local bad=0
	"$train" "${args[@]}" "${@:3}" >"$work/log" 2>&1 && bad=1
	grep -q -- "$2" "$work/log" || bad=1
	verdict $bad "$1"
}
echo 'name: x' >"$work/short.yaml"
sed 's/^multiprocessors: .*/multiprocessors: none/' "$machine" >"$work/word.yaml"
sed 's/^launch_us/launch/' "$machine" >"$work/other.yaml"
must_fail "a machine without memory" "short.yaml: 'memory_gib' is missing" --dry-run --machine "$work/short.yaml"
must_fail "a machine with a word for a number" "word.yaml: line 7: expected a number above 0" --dry-run --machine "$work/word.yaml"
must_fail "a machine with something else" "other.yaml: line $(grep -n ^launch_us "$machine" | cut -d: -f1): 'launch' is nothing that a machine has" --dry-run --machine "$work/other.yaml"
must_fail "no machine" "none.yaml: No such file" --dry-run --machine "$work/none.yaml"
must_fail "a machine to train on" "--machine .*--dry-run" --machine "$machine"
must_fail "suggestions for nothing" "suggest-layout: expected --dry-run, --machine and --gpus" --dry-run --suggest-layout
must_fail "no layout" "no layout is possible; the first: .*exclude each other" --dry-run --machine "$machine" --gpus 4 --suggest-layout --mock-data
must_fail "too few" "3 processes: expected a multiple of" --dry-run --gpus 3 --tensor-model-parallel-size 2

processes_end

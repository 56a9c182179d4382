#!/bin/bash
# Products of 8 bits, on the CPU: runs are near those of bf16, train in several processes as in one, and go on bit by bit.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin eight_bits
hybrid=(--bf16 --fp8-format hybrid --fp8-recipe tensorwise)
delayed=(--bf16 --fp8-format hybrid --fp8-amax-history-len 4 --fp8-amax-compute-algo max)

# small FAMILY: short runs of two layers, whose sizes do for 8 bits; MTP, latent attention and experts in deepseek
small() {
	family_args "$1"
	args+=(--num-layers 2 --seq-length 64 --global-batch-size 4 --exit-interval 4 --ffn-hidden-size 192 --transformer-impl transformer_engine)
	[ "$1" != deepseek ] || args+=(--moe-layer-freq "[0,1]" --kv-lora-rank 32 --qk-pos-emb-head-dim 16 --mtp-num-layers 1 --moe-ffn-hidden-size 64
		--moe-shared-expert-intermediate-size 64)
}

# says FILE PATTERN
says() {
	grep -qE -- "$2" "$1" || { echo "$1 does not say: $2" && return 1; }
}

same() {
	cmp <(rows "$1") <(rows "$2")
}

# In a distance of bf16's, and not the same.
near_bf16() {
	run 1 "$work/n1.log" --bf16 &&
		run 1 "$work/n2.log" "${hybrid[@]}" && alike "$work/n1.log" "$work/n2.log" 4 5e-3 && ! same "$work/n1.log" "$work/n2.log" >/dev/null &&
		run 1 "$work/n3.log" "${hybrid[@]}" --fp8-format e4m3 && alike "$work/n1.log" "$work/n3.log" 4 5e-3 &&
		! same "$work/n2.log" "$work/n3.log" >/dev/null &&
		run 1 "$work/n4.log" "${hybrid[@]}" --no-fp8-wgrad && alike "$work/n1.log" "$work/n4.log" 4 5e-3 &&
		! same "$work/n2.log" "$work/n4.log" >/dev/null && says "$work/n4.log" '^--no-fp8-wgrad: gradients of weights are computed in bf16'
}

# Both layers are first or last ones, but for MTP's; then one of them is not.
has_layers_in_bf16() {
	run 1 "$work/n3.log" "${hybrid[@]}" --first-last-layers-bf16 && { [ "$1" = deepseek ] || same "$work/n1.log" "$work/n3.log"; } &&
		run 1 "$work/n3.log" "${hybrid[@]}" --first-last-layers-bf16 --num-layers-at-end-in-bf16 0 && alike "$work/n1.log" "$work/n3.log" 4 5e-3 &&
		! same "$work/n1.log" "$work/n3.log" >/dev/null && ! same "$work/n2.log" "$work/n3.log" >/dev/null
}

# What is computed again has the same bits.
recomputes() {
	run 1 "$work/n3.log" "${hybrid[@]}" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 &&
		same "$work/n2.log" "$work/n3.log" &&
		run 1 "$work/n3.log" "${hybrid[@]}" --recompute-granularity selective --recompute-modules layernorm mlp moe_act shared_experts &&
		same "$work/n2.log" "$work/n3.log"
}

goes_on() {
	run 1 "$work/n3.log" "${hybrid[@]}" --fp8-param-gather --use-distributed-optimizer --save "$work/$1" --save-interval 2 --exit-interval 2 &&
		run 1 "$work/n4.log" "${hybrid[@]}" --load "$work/$1" && same "$work/n2.log" <(cat "$work/n3.log" "$work/n4.log")
}

# divided LAYOUT ARGUMENT...: two processes are in a distance of one, and do not compute what they do in bf16
divided() {
	layout_flags "$1"
	shift
	run 2 "$work/n3.log" "$@" "${layout[@]}" && alike "$work/n2.log" "$work/n3.log" 4 5e-3 && run 2 "$work/n4.log" --bf16 "${layout[@]}" &&
		alike "$work/n4.log" "$work/n3.log" 4 5e-3 && ! same "$work/n4.log" "$work/n3.log" >/dev/null
}

# Scales are of what a process has: where weights or tokens are divided, they are others.
trains_as_one() {
	local n
	for n in $(todays "eight bits, whole" 2 2-pp2 2-fsdp); do
		layout_flags "$n"
		run 2 "$work/n3.log" "${hybrid[@]}" "${layout[@]}" && alike "$work/n2.log" "$work/n3.log" 4 || return 1
	done
	# shellcheck disable=SC2086
	for n in $(todays "eight bits, divided" 2-tp2-sp 2-cp2 $1); do
		divided "$n" "${hybrid[@]}" || return 1
	done
}

# resumes FILE PROCESSES ARGUMENT...: a run that goes on from the second iteration of $work/delayed has the rows of an uninterrupted one
resumes() {
	local of=$1 processes=$2
	shift 2
	run "$processes" "$work/n4.log" "${delayed[@]}" --load "$work/delayed" --ckpt-step 2 "$@" && cmp <(rows "$of" | tail -n 2) <(rows "$work/n4.log") &&
		! says "$work/n4.log" 'scales are not loaded' >/dev/null
}

# Scales of earlier passes: stages train as one process does, and processes that share weights or samples have one scale. A run that goes on
# has the scales that it had, in as many stages or fewer.
is_delayed() {
	local saves=(--save "$work/delayed" --save-interval 2)
	run 1 "$work/n1.log" --bf16 && run 1 "$work/n2.log" "${delayed[@]}" "${saves[@]}" && alike "$work/n1.log" "$work/n2.log" 4 5e-3 &&
		! same "$work/n1.log" "$work/n2.log" >/dev/null && resumes "$work/n2.log" 1 &&
		run 1 "$work/n4.log" "${delayed[@]}" --fp8-amax-history-len 8 --load "$work/delayed" &&
		says "$work/n4.log" 'scales are not loaded, .* the checkpoint.s are of --fp8-amax-history-len 4, the run.s of 8$' &&
		run 1 "$work/n3.log" "${delayed[@]}" --fp8-amax-compute-algo most_recent && alike "$work/n1.log" "$work/n3.log" 4 5e-3 &&
		! same "$work/n2.log" "$work/n3.log" >/dev/null &&
		run 1 "$work/n3.log" "${delayed[@]}" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 &&
		same "$work/n2.log" "$work/n3.log" && layout_flags 2-pp2 && rm -r "$work/delayed" &&
		run 2 "$work/n3.log" "${delayed[@]}" "${layout[@]}" "${saves[@]}" && alike "$work/n2.log" "$work/n3.log" 4 &&
		resumes "$work/n3.log" 2 "${layout[@]}" && resumes "$work/n2.log" 1 &&
		divided "$(todays delayed 2 2-tp2-sp 2-cp2 2-fsdp)" "${delayed[@]}"
}

# 9.6 million parameters, of which 8.4 million have two bytes more.
plans() {
	local wide=(--hidden-size 512 --ffn-hidden-size 2048 --dry-run)
	family_args llama
	args+=(--num-layers 2 "${wide[@]}")
	run 1 "$work/n3.log" "${hybrid[@]}" --machine configs/machines/h200.yaml && run 1 "$work/n4.log" --bf16 &&
		says "$work/n3.log" ' weights 0.03[0-9],' && says "$work/n4.log" ' weights 0.01[0-9],' && says "$work/n3.log" '^a step on 1 of NVIDIA H200'
}

# refuses PATTERN ARGUMENT...
refuses() {
	local pattern=$1
	shift
	! run 1 "$work/n3.log" --bf16 "$@" && says "$work/n3.log" "$pattern"
}

for of in llama deepseek; do
	small "$of"
	near_bf16
	verdict $? "$of: near bf16"
	has_layers_in_bf16 "$of"
	verdict $? "$of: first and last layers"
	run 1 "$work/n2.log" "${hybrid[@]}"
	recomputes
	verdict $? "$of: recomputation"
	goes_on "$of"
	verdict $? "$of: a run that goes on"
	trains_as_one "$([ "$of" = llama ] || echo 2-ep2)"
	verdict $? "$of: several processes"
done
small llama
is_delayed
verdict $? "delayed scaling"
small deepseek
(plans)
verdict $? "a plan"
layout_flags 2-tp2-sp
run 2 "$work/n3.log" "${hybrid[@]}" "${layout[@]}" --transformer-impl local --exit-interval 1
verdict $? "latent attention whose down projections are gathered, in bf16, have 24 rows in a process"
refuses 'mxfp8 is not supported: it needs a GPU of compute capability 10.0' --fp8-format e4m3 --fp8-recipe mxfp8
verdict $? "mxfp8"
refuses 'custom is not supported: its quantizers are functions of Python' --fp8-format e4m3 --fp8-recipe custom --fp8-quantizer-factory a.b
verdict $? "quantizers of Python"
refuses 'fp4-format e2m1 is not supported; use --fp8-format: it needs a GPU of compute capability 10.0' --fp4-format e2m1
verdict $? "4 bits"
refuses 'linear_kv_down_proj of layer 0 has 24 rows and 64 columns in a process; expected multiples of 16' --fp8-format e4m3 \
	--fp8-recipe tensorwise --kv-lora-rank 16 --qk-pos-emb-head-dim 8
verdict $? "sizes"

processes_end

#!/bin/bash
# Layouts of several kinds of processes together, on the CPU: bf16 runs follow Megatron's own log, fp32 ones train as one process does.
#
# The run of qwen2 is not followed: in its rows 23 and 25 norms jump, and there the products of some BLAS kernels are 1.1 to 1.6 % from
# Megatron's, with one process and with several.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin layouts
at[gpt2]=$fixtures/gpt2-torch-tp2-pp2
at[stages]=$fixtures/llama-torch_dist-tp2-pp2-vpp2
divided=--use-distributed-optimizer

# follows LAYOUT "FAMILY..." FLAG...: the run of one of the families, another one each day
follows() {
	local of from=() families
	layout_flags "$1"
	# shellcheck disable=SC2086
	families=$(todays "$1" $2)
	for of in $families; do from+=("${at[$of]}"); done
	BACKEND=cpu LAUNCH="${launcher[*]} ${1%%-*}" FLAGS="--threads 1 ${layout[*]} ${*:3}" tests/train/follow.sh "${from[@]}" >"$work/log" 2>&1
	verdict $? "bf16: $1 ${*:3} follows the runs of $families"
}

follows 2 "llama gpt2 deepseek stages" $divided
follows 2-fsdp "llama gpt2 deepseek"
follows 4-tp2-pp2 "llama gpt2"
follows 4-tp2-sp-pp2 "stages" --num-layers-per-virtual-pipeline-stage 1
follows 4-ep2-pp2 deepseek
follows 8-tp2-sp-pp2-cp2 "llama gpt2 deepseek" $divided
follows 8-tp2-sp-pp2-ep2 deepseek $divided

as_one "eight processes that share samples, sequences, layers and their chain" llama "8-tp2-sp-pp2 8-tp2-sp-pp2-cp2" 6 $divided --eval-interval 2 \
	--eval-iters 2 --log-params-norm --log-num-zeros-in-grad
as_one "eight processes that share experts, too" deepseek "8-tp2-sp-pp2-ep2 8-fsdp-tp2-sp-cp2-ep2" 4 --log-params-norm
processes_end

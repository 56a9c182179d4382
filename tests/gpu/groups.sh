#!/bin/bash
# tests/gpu/groups.sh: processes on this machine's GPUs, one a GPU, which talk through NCCL. Each operation against its definition; data
# parallelism compared with one GPU, and with Megatron's run; a process that is killed. O: the folder of the build (build).
# Where there is one GPU, processes share it (launch.sh: ONE_GPU): the results are the same, the speed is not.
# Exit status 77: there is no GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
plugin=$(realpath -m "${O:-build}")/libmcorefs-cuda.so
program=$(realpath -m "${O:-build}")/obj/tests/kernels/check_comm
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ "$gpus" -ge 1 ] || { echo "skipped: there is no GPU here"; exit 77; }
if [ "$gpus" = 1 ]; then
	export ONE_GPU=1
	gpus=4
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/groups-XXXXXX") || exit 1
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$work"' EXIT
launcher=(timeout -k 5 180 tests/gpu/launch.sh)
backend=(--backend cuda)
# Where CUDA's libraries are not in the linker's cache, a Python package may have them.
if ldd "$plugin" | grep -q 'cublasLt.*not found'; then
	lib=$(find / -xdev -name 'libcublasLt.so.13' -print -quit 2>/dev/null)
	export LD_LIBRARY_PATH=${lib%/*}:${LD_LIBRARY_PATH:-}
fi
if [ -z "${MCOREFS_NCCL:-}" ] && ! ldconfig -p | grep -q 'libnccl\.so\.2'; then
	MCOREFS_NCCL=$(find / -xdev -name 'libnccl.so.2' -print -quit 2>/dev/null)
	export MCOREFS_NCCL
fi

for n in 2 $([ "$gpus" = 2 ] || echo "$gpus"); do
	"${launcher[@]}" "$n" "$program" cuda "$plugin" >"$work/log" 2>&1
	status=$?
	cat "$work/log"
	verdict $status "every operation, $n GPUs"
done

ONE_GPU='' CUDA_VISIBLE_DEVICES=0 MFK_DEVICE=0 "${launcher[@]}" 2 "$program" cuda "$plugin" >"$work/log" 2>&1
[ $? != 0 ] && grep -q "have one GPU" "$work/log"
verdict $? "two processes on one GPU are refused"

as_one "llama, 2 GPUs" llama 2 6 --eval-interval 2 --eval-iters 2
as_one "dropout, tied" qwen2 2 4 --attention-dropout 0.1 --hidden-dropout 0.1
as_one "experts with a bias" deepseek "2 2-ep2" 4
as_one "heads divided, with sequences and without" llama "2-tp2 2-tp2-sp" 4
as_one "layers in two stages, of one and two chunks" llama "2-pp2 2-pp2-vpp2" 4
as_one "halves of sequences, in a ring and by heads" llama 2-cp2 4 --cp-comm-type p2p a2a p2p all_gather
divided=(--overlap-grad-reduce --overlap-param-gather)
as_one "the distributed optimizer" qwen2 2 4 --use-distributed-optimizer "${divided[@]}"
as_one "two instances of it" qwen2 "2-inst2$([ "$gpus" -lt 4 ] || echo " 4-inst2")" 4 --use-distributed-optimizer "${divided[@]}"
as_one "FSDP" deepseek "2 2-ep2" 4 --use-megatron-fsdp "${divided[@]}"
[ "$gpus" -lt 4 ] || as_one "halves of sequences, by neighbours" llama 4-cp2x2 4
[ "$gpus" -lt 4 ] || as_one "all of them" mixtral "4-tp2-sp-pp2-ep2-etp1 4-cp2-ep2" 4 --use-distributed-optimizer "${divided[@]}"
within=1e-2 as_one "gradients in bf16" llama 2 4 --bf16 --grad-reduce-in-bf16
# With cuDNN's attention one row's norm is 1.35 % off, with one GPU as well (README.md).
MFK_ATTENTION=flash BACKEND=cuda LAUNCH="${launcher[*]} 2" tests/train/follow.sh "${at[qwen2]}" >"$work/log" 2>&1
status=$?
cat "$work/log"
verdict $status "bf16: two GPUs follow the run that two GPUs made"

# The second of two processes that train is killed: the other one says so, and ends.
family_args llama
: >"$work/log"
"${launcher[@]}" 2 "$train" "${args[@]}" "${backend[@]}" --train-iters 100000 --data-cache-path "$work/killed" >"$work/log" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
	! grep -q "iteration       20/" "$work/log" || break
	sleep 0.1
done
began=$SECONDS
kill -KILL "$(ranks "--data-cache-path $work/killed" | tail -n 1)"
! wait "$pid" && [ $((SECONDS - began)) -lt 60 ] && grep -qE "rank [01] on .* has ended" "$work/log"
verdict $? "a process that is killed ends the other"
pid=

processes_end

#!/bin/bash
# tests/gpu/launch.sh N COMMAND...: N processes of a command on this host, with what torchrun puts into their environment. Ends with the
# status of the first one that fails. A signal to it goes to all. ONE_GPU=1: all share the first GPU, as hosts of their own to NCCL.
set -u
n=$1
shift
export WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-$((20000 + RANDOM % 10000))}
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' TERM INT
for ((rank = 0; rank < n; rank++)); do
	RANK=$rank LOCAL_RANK=$rank ${ONE_GPU:+env "NCCL_HOSTID=$rank" CUDA_VISIBLE_DEVICES=0 MFK_DEVICE=0 NCCL_SOCKET_IFNAME=lo} "$@" &
	pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
	wait "$pid"
	ended=$?
	while kill -0 "$pid" 2>/dev/null; do # a signal came, not its end
		wait "$pid"
		ended=$?
	done
	[ $status != 0 ] || status=$ended
done
exit $status

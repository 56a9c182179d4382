#!/bin/bash
#SBATCH --job-name=grpo
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# Reinforcement learning on several nodes: the last one answers with vLLM, the others train.
#
#   sbatch grpo.sh --config policy.yaml --perform-rl-step --rl-prompt-data gsm8k.jsonl --rl-label-key answer --rl-reward gsm8k
#
# Weights go through SYNC, a directory that all nodes see. It is mounted at the same place on the first node, whose process looks whether a
# version is whole, and on the engine's.
set -eu
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
engine=${nodes[-1]}
export MASTER_ADDR=${nodes[0]} MASTER_PORT=${MASTER_PORT:-29500}
export SYNC=${SYNC:-$PWD/policy-$SLURM_JOB_ID} MOUNT=${MOUNT:-/tmp/policy-$SLURM_JOB_ID}
mkdir -p "$SYNC"

# A mount on each of both nodes, as soon as there are weights to show.
# shellcheck disable=SC2016
srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --gpus-per-node=0 --nodelist="$MASTER_ADDR,$engine" sh -c '
	until [ -s "$SYNC/latest_checkpointed_iteration.txt" ]; do sleep 1; done
	mkdir -p "$MOUNT" && exec mcorefs -f "$SYNC" "$MOUNT" -o vocab_size=tokenizer' &
# What each option is for: configs/train/grpo-vllm.sh. These routes know no key: keep the port within the cluster.
# shellcheck disable=SC2016
srun --overlap --nodes=1 --ntasks=1 --nodelist="$engine" sh -c '
	until [ -s "$MOUNT/latest/hf/config.json" ]; do sleep 1; done
	VLLM_SERVER_DEV_MODE=1 exec vllm serve "$MOUNT/latest/hf" --served-model-name policy --tensor-parallel-size 8 \
		--enable-scale-out --logprobs-mode processed_logprobs --generation-config vllm --skip-tokenizer-init \
		--safetensors-load-strategy prefetch' &

status=0
srun --mpi="${MPI:-none}" --nodes=$((${#nodes[@]} - 1)) --exclude="$engine" --kill-on-bad-exit=1 "${TRAIN:-mcorefs-train}" "$@" \
	--rl-sync-dir "$SYNC" --rl-mount "$MOUNT" --rl-inference-url "http://$engine:8000" || status=$?
# shellcheck disable=SC2046
kill $(jobs -p) 2>/dev/null || true
wait
rm -rf "$SYNC"
exit $status

#!/bin/bash
# Reinforcement learning with vLLM on one host: the trainer saves its weights to memory, a mount shows them as a HuggingFace model, and vLLM
# reads each new version there.
#
#   configs/train/grpo-vllm.sh MOUNTPOINT COMMAND...     MCOREFS=mcorefs  VLLM="vllm serve"  PORT=8000  SYNC=/dev/shm/policy
#                                                        TRAINER_GPUS=0,1  ENGINE_GPUS=2,3
#
#   configs/train/grpo-vllm.sh /mnt/policy configs/train/mpirun.sh 2 --perform-rl-step --load Qwen3-0.6B \
#       --rl-prompt-data gsm8k.jsonl --rl-label-key answer --rl-reward gsm8k
#
# COMMAND trains; it is given --rl-sync-dir, --rl-mount and --rl-inference-url after its own arguments. The exit status is its own.
set -u
[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mount=$1 sync=${SYNC:-/dev/shm/policy} port=${PORT:-8000}
shift
mounted='' engine='' run=''
# shellcheck disable=SC2317
cleanup() {
	# It saves where it has come to, while there is an engine; what it still writes into $sync would stay.
	[ -z "$run" ] || { kill "$run" 2>/dev/null; wait "$run"; }
	[ -z "$engine" ] || { kill "$engine" 2>/dev/null; wait "$engine"; }
	[ -z "$mounted" ] || fusermount3 -u "$mount"
	rm -rf "$sync"
} 2>/dev/null
trap cleanup EXIT
trap 'exit 143' TERM INT
[ ! -e "$sync" ] || { echo "$sync is there; an earlier run has left it, or another one is using it" >&2; exit 2; }
mkdir -p "$sync" "$mount"

# Without TRAINER_GPUS and ENGINE_GPUS each sees what this shell sees.
trainer_sees=(${TRAINER_GPUS+"CUDA_VISIBLE_DEVICES=$TRAINER_GPUS"})
engine_sees=(${ENGINE_GPUS+"CUDA_VISIBLE_DEVICES=$ENGINE_GPUS"})
env "${trainer_sees[@]}" "$@" --rl-sync-dir "$sync" --rl-mount "$mount" \
	--rl-inference-url "http://127.0.0.1:$port" &
run=$!

# The trainer saves the weights that it begins with, and waits for the engine.
until last=$(cat "$sync/latest_checkpointed_iteration.txt" 2>/dev/null) && [[ $last =~ ^[0-9]+$ ]]; do
	kill -0 "$run" 2>/dev/null || break
	sleep 0.2
done
if [[ ${last:-} =~ ^[0-9]+$ ]]; then
	"${MCOREFS:-mcorefs}" "$sync" "$mount" -o vocab_size=tokenizer || exit 1
	mounted=1
	# Versions are told by /collective_rpc (VLLM_SERVER_DEV_MODE) and answers come from /inference/v1/generate (--enable-scale-out), with
	# log-probs of what was sampled, after temperature (processed_logprobs). Ids go in and come out. What a request does not say is neutral
	# (--generation-config vllm). These routes know no key: they listen to this host alone.
	# shellcheck disable=SC2086
	env VLLM_SERVER_DEV_MODE=1 "${engine_sees[@]}" ${VLLM:-vllm serve} \
		"$mount/$(printf 'iter_%07d' "$((10#$last))")/hf" --served-model-name policy --host 127.0.0.1 --port "$port" \
		--enable-scale-out --logprobs-mode processed_logprobs --generation-config vllm --skip-tokenizer-init \
		--safetensors-load-strategy prefetch &
	engine=$!
fi
wait "$run"
status=$?
run=
exit $status

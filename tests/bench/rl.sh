#!/bin/bash
# Reinforcement learning, timed.
#
#   tests/bench/rl.sh sampler [SHAPE...]     tokens/s of answers by the sampler, and of training on them
#   tests/bench/rl.sh sync [SHAPE...]        seconds to save, to fetch ahead, and of the pause, each time vLLM gets new weights through a
#                                            mount; next to them what a plain copy of as many bytes to the GPU takes
#
# BACKEND=cuda|cpu  PROMPTS=64  GROUP=8  RESPONSE=512  ROLLOUTS=3  SLOTS=256  MICRO=1  RL_DIR=/dev/shm  PYTHON=python3 (has torch, vllm)  LOAD_FORMAT=auto
# SERVE_FLAGS: of vLLM. RL_FLAGS: of the trainer. Shapes are those of train_lib.sh. Weights are random, and so are the prompts' ids. Of each
# run the first rollout warms up and does not count. Exit status 77: there is no vLLM or no FUSE.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh
. tests/bench/train_lib.sh
results=${O:-build}/bench-rl.txt backend=${BACKEND:-cuda} python=${PYTHON:-python3}
train=$(realpath -m "${O:-build}")/mcorefs-train mcorefs=$(realpath -m "${O:-build}")/mcorefs
prompts=${PROMPTS:-64} group=${GROUP:-8} response=${RESPONSE:-512} rollouts=${ROLLOUTS:-3}
mode=${1:-} server='' run=''
[ "$mode" = sampler ] || [ "$mode" = sync ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shift
work=$(mktemp -d "${RL_DIR:-/dev/shm}/mcorefs-rl-XXXXXX") || exit 1
mkdir "$work/mnt" "$work/sync"

stop() {
	[ -z "$run" ] || { kill "$run" && wait "$run"; } 2>/dev/null
	[ -z "$server" ] || { kill -- "-$server" && wait "$server"; } 2>/dev/null
	unmount "$work/mnt" 2>/dev/null
	run='' server=''
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# ids COUNT LENGTH VOCABULARY: prompts, a line each
ids() {
	awk -v count="$1" -v length_="$2" -v words="$3" 'BEGIN { srand(3)
		for (i = 0; i < count; i++) {
			printf "{\"prompt\": ["
			for (j = 0; j < length_; j++) printf "%s%d", j ? ", " : "", int(rand() * words)
			print "], \"answer\": 1}"
		} }'
}

# arguments SHAPE: those of a run, one a line
arguments() {
	flags "$1" "${MICRO:-1}" $((prompts * group)) "$rollouts"
	# shellcheck disable=SC2086
	printf '%s\n' --perform-rl-step --rl-prompt-data "$work/prompts.jsonl" --rl-reward length --rl-overlong-buffer $((response / 2)) \
		--grpo-prompts-per-step "$prompts" --grpo-group-size "$group" --grpo-iterations 1 --grpo-kl-beta 0 \
		--rl-max-response-length "$response" --rl-sampler-slots "${SLOTS:-256}" --rl-use-sequence-packing ${RL_FLAGS:-}
}

# Length of all prompts: a quarter of what responses leave.
begin() {
	local words
	words=$(sed -nE 's/.*--vocab-size ([0-9]+).*/\1/p' <<<"${shape[$1]//$'\n'/ }")
	ids $((prompts * rollouts)) $(((seq[$1] - response) / 4)) "$words" >"$work/prompts.jsonl"
	mapfile -t args < <(arguments "$1")
}

# The rollouts but the first: tokens answered a second, and tokens of steps a second, by the lines of the run.
sampler() {
	begin "$1"
	"$train" "${args[@]}" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; die "$1: the run failed"; }
	awk -v shape="$1" -v responses=$((prompts * group)) -v prompt=$(((seq[$1] - response) / 4)) '
		/^ rollout/ { match($0, /mean length: [0-9.]+/); length_ = substr($0, RSTART + 13, RLENGTH - 13)
			match($0, /seconds: [0-9.]+/); answer = substr($0, RSTART + 9, RLENGTH - 9)
			match($0, /[0-9.]+ for log-probs/); passes = $0; sub(/ for log-probs.*/, "", passes); sub(/.* /, "", passes)
			if (rows++) { answered += responses * length_; seconds += answer; log_probs += passes } }
		/elapsed time per iteration/ { match($0, /\(ms\): [0-9.]+/); if (steps++) { step += substr($0, RSTART + 6, RLENGTH - 6) / 1000
			trained += responses * (length_ + prompt) } }
		END { printf "%-14s %8.0f tokens/s answered, %8.0f trained (a step with its rollout %.2f s: %.2f to answer, %.2f for log-probs)\n", shape, answered / seconds,
			trained / (step - seconds), step / (steps - 1), seconds / (rows - 1), log_probs / (rows - 1) }' "$work/log" | tee -a "$results"
	grep '^ rollout' "$work/log" | tail -n 1
}

port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# copied BYTES: seconds of a plain copy of as many bytes from pinned memory
copied() {
	"$python" - "$1" <<'PY'
import sys, time, torch
n, chunk = int(float(sys.argv[1])), 1 << 28
a, b = torch.empty(chunk, dtype=torch.uint8).pin_memory(), torch.empty(chunk, dtype=torch.uint8, device="cuda")
b.copy_(a, non_blocking=True)
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(8):
    b.copy_(a, non_blocking=True)
torch.cuda.synchronize()
print("%.4f" % ((time.perf_counter() - start) / (8 * chunk) * n))
PY
}

sync() {
	local at last log=$work/log
	begin "$1"
	at=$(port)
	"$train" "${args[@]}" --rl-sync-dir "$work/sync" --rl-mount "$work/mnt" --rl-inference-url "http://127.0.0.1:$at" \
		--rl-engine-wait-seconds 240 >"$log" 2>&1 &
	run=$!
	until last=$(cat "$work/sync/latest_checkpointed_iteration.txt" 2>/dev/null) && [ -n "$last" ]; do
		kill -0 "$run" 2>/dev/null || { tail -n 5 "$log" >&2; die "$1: the run failed"; }
		sleep 0.2
	done
	"$mcorefs" "$work/sync" "$work/mnt" || die "no mount"
	# shellcheck disable=SC2086
	VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 setsid "$python" -m vllm.entrypoints.openai.api_server \
		--model "$work/mnt/$(printf 'iter_%07d' "$((10#$last))")/hf" --served-model-name policy --host 127.0.0.1 --port "$at" \
		--logprobs-mode processed_logprobs --generation-config vllm --skip-tokenizer-init \
		--load-format "${LOAD_FORMAT:-auto}" --max-model-len "${seq[$1]}" ${SERVE_FLAGS---enable-scale-out} >"$work/server.log" 2>&1 &
	server=$!
	wait "$run" || { tail -n 5 "$log" >&2; tail -n 40 "$work/server.log" >&2; die "$1: the run failed"; }
	run=''
	grep -E '^ (weights|rollout)' "$log"
	sed -nE 's/^ weights .*\| ([0-9.]+) GB \| seconds: ([0-9.]+) to save, ([0-9.]+) to fetch ahead, ([0-9.]+) paused.*/\1 \2 \3 \4/p' "$log" | tail -n 1 >"$work/row"
	read -r gb save ahead paused <"$work/row"
	plain=$(copied "${gb}e9")
	printf '%-14s %7s GB: save %s s, ahead %s s, paused %s s; a plain copy %s s (%s)\n' "$1" "$gb" "$save" "$ahead" "$paused" "$plain" \
		"$(ratio "$paused" "$plain")" | tee -a "$results"
	stop
	rm -rf "$work/sync"/*
}

if [ "$mode" = sync ]; then
	[ -c /dev/fuse ] || { echo "skipped: there is no FUSE" && exit 77; }
	"$python" -c 'import importlib.util as u; raise SystemExit(not u.find_spec("vllm"))' || { echo "skipped: $python has no vllm" && exit 77; }
fi
[ $# -gt 0 ] || set -- qwen2.5-0.5b
for one; do "$mode" "$one"; done

#!/bin/bash
# make wheel, then tests/bench/serve.sh: seconds from the start of vLLM's server until it is ready, in one run: of a converted
# copy, of a mount of the Megatron checkpoint, and of a stub with the load format mcorefs. With each comes vLLM's own line on how
# long it loaded weights: nearly all else is imports. BILLIONS (0.5): parameters; SERVE_DIR (/tmp): where they lie; RUNS (1): rounds;
# SERVE_FLAGS: of the server. PYTHON has torch and vllm, and may be without a GPU (that of tests/interop/run.sh:
# PYTHON=~/.cache/mcorefs-interop/main/bin/python). Exit status 77: there is no wheel, no vLLM or no FUSE.
set -u
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3} mcorefs=${MCOREFS:-${O:-build}/mcorefs} server=
wheel=$(find "${O:-build}" -maxdepth 1 -name "mcorefs-*.whl" 2>/dev/null | tail -n 1)
[ -n "$wheel" ] || { echo "skipped: there is no wheel; make wheel" && exit 77; }
[ -c /dev/fuse ] || { echo "skipped: there is no FUSE" && exit 77; }
"$python" -c 'import importlib.util as u; raise SystemExit(not u.find_spec("vllm"))' || { echo "skipped: $python has no vllm" && exit 77; }
work=$(mktemp -d "${SERVE_DIR:-/tmp}/mcorefs-serve-XXXXXX") || exit 1
flags=(--dtype bfloat16 --enforce-eager --max-num-seqs 16 --max-model-len 512 --skip-tokenizer-init)
[ -z "${SERVE_FLAGS-}" ] || read -ra flags <<<"$SERVE_FLAGS"

# vLLM's processes are a group of their own.
stop() {
	[ -z "$server" ] || { kill -- "-$server" && wait "$server"; } 2>/dev/null
	server=
}

clean() {
	stop
	if [ "$(id -u)" = 0 ]; then umount "$work/mnt"; else fusermount3 -u "$work/mnt"; fi 2>/dev/null
	rm -rf "$work"
}
trap clean EXIT
"$python" -m zipfile -e "$wheel" "$work/site" || exit 1
export PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_CI_ENV=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TORCHDYNAMO_DISABLE=1

port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# serve NAME DIRECTORY [FLAG...]: starts a server, and waits until it is ready.
serve() {
	local name=$1 at=$2 log=$work/log port start now
	shift 2
	port=$(port)
	start=$EPOCHREALTIME
	setsid "$python" -m vllm.entrypoints.openai.api_server --model "$at" --port "$port" "${flags[@]}" "$@" >"$log" 2>&1 &
	server=$!
	until curl -fs -o "$work/health" "http://127.0.0.1:$port/health"; do
		kill -0 "$server" 2>/dev/null || { echo "$name: the server has ended:" && tail -n 20 "$log" && exit 1; }
		sleep 0.2
	done
	now=$EPOCHREALTIME
	awk -v name="$name" -v took="$(((${now/./} - ${start/./}) / 1000))" -v said="$(grep -oE "(Loading weights|Each worker's own part) took [0-9.]+ seconds" "$log" |
		head -n 1)" 'BEGIN { printf "%-8s ready after %6.1f s; %s\n", name, took / 1000, said }'
	stop
}

"$python" tests/bench/load.py make "$work/m" "${BILLIONS:-0.5}" --layouts tp2pp2 || exit 1
mkdir "$work/mnt"
"$mcorefs" "$work/m/tp2pp2" "$work/mnt" -o no_optim || exit 1
"$mcorefs" stub "$work/m/tp2pp2" "$work/stub" >"$work/log" || exit 1
for ((run = 0; run < ${RUNS:-1}; run++)); do
	serve copy "$work/m/hf"
	serve mount "$work/mnt/latest/hf"
	serve stub "$work/stub" --load-format mcorefs
done

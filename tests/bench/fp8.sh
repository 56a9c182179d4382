#!/bin/bash
# What other element types cost, on one processor. 8-bit floats: reading hf-fp8 against hf, both by the weights that are
# shown, and hf of a directory of 8-bit floats against hf of the same model in bfloat16. Casts of bfloat16: bytes of the
# view a second against hf's; hf-bf16 casts nothing. BENCH_GIB (1), BENCH_RUNS (3), BENCH_DIR as in
# bench.sh. Caches are warm. A mount of its own each time: scales that were found out once are kept.
# Seconds are the processor's, the daemon's and the reader's together, and each run of a view has one of hf before it. By
# the clock the size of what is shown counts for more than its type: a virtual machine may wait for each page of memory
# that its host has not given it yet, or has taken back.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$PWD/${O:-build}/mcorefs
runs=${BENCH_RUNS:-3}
results=${O:-build}/bench-fp8.txt
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
mnt=$work/mnt
mkdir "$mnt"
trap 'unmount "$mnt"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

python3 tests/giants/make.py llama "$work/source" --gib "${BENCH_GIB:-1}" --tp 4 --hidden 4096 >/dev/null || die "cannot make a checkpoint"
find "$work/source" -name '*.pt' -exec cat {} + >/dev/null

# on_processor PID: nanoseconds that its threads have run
on_processor() {
	cat "/proc/$1"/task/*/schedstat | awk '{ ns += $1 } END { print ns }'
}

# first_read SOURCE VIEW
first_read() {
	local daemon before reader TIMEFORMAT='%3U %3S'
	taskset -c 0 "$mcorefs" "$1" "$mnt" -f -o prefetch=0 >/dev/null 2>&1 &
	daemon=$!
	until mountpoint -q "$mnt"; do
		kill -0 "$daemon" 2>/dev/null || die "cannot mount"
		sleep 0.05
	done
	ls "$mnt/$2" >/dev/null
	before=$(on_processor "$daemon")
	reader=$({ time taskset -c 0 sh -c 'cat "$1"/*.safetensors >/dev/null' - "$mnt/$2"; } 2>&1)
	awk -v a="$before" -v b="$(on_processor "$daemon")" '{ printf "%.3f\n", (b - a) / 1e9 + $1 + $2 }' <<<"$reader"
	unmount "$mnt"
	wait "$daemon"
}

# compare NAME SOURCE VIEW N GOAL: the view has N times the bytes that are compared
compare() {
	local pairs
	pairs=$(for ((i = 0; i < runs; i++)); do
		echo "$(first_read "$work/source" latest/hf) $(first_read "$2" "$3")"
	done)
	row "$1" "$(cut -d' ' -f2 <<<"$pairs" | median)" "$(cut -d' ' -f1 <<<"$pairs" | median)" \
		"$(awk -v n="$4" '{ printf "%.2f\n", $1 * n / $2 }' <<<"$pairs" | median)" "$5"
}

: >"$results"
row "case, one processor" "seconds" "plain" "ratio" "goal"
for view in hf-fp8 hf-fp8-tensor; do
	compare "$view: all weights" "$work/source" "latest/$view" 1 ">= 0.50 of hf's speed"
done
for cast in hf-bf16:1 hf-fp16:1 hf-fp32:2; do
	compare "${cast%:*}: all bytes" "$work/source" "latest/${cast%:*}" "${cast#*:}" ">= 0.80 of hf's speed"
done
"$mcorefs" export "$work/source" latest/hf-fp8 "$work/fp8" >/dev/null 2>&1 || die "cannot export"
cat "$work"/fp8/*.safetensors >/dev/null
compare "hf of 8-bit floats" "$work/fp8" hf 1 ">= 0.50 of hf's speed"

#!/bin/bash
# What other element types cost, on one processor. 8-bit floats: reading hf-fp8 against hf, both by the weights that are
# shown, and hf of a directory of 8-bit floats against hf of the same model in bfloat16. Casts of bfloat16: bytes of the
# view a second against hf's; hf-bf16 casts nothing. BENCH_GIB (1), BENCH_RUNS (3), BENCH_DIR as in
# bench.sh. Caches are warm. A mount of its own each time: scales that were found out once are kept.
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

# first_read SOURCE VIEW
first_read() {
	taskset -c 0 "$mcorefs" "$1" "$mnt" -o prefetch=0 2>/dev/null || die "cannot mount"
	seconds taskset -c 0 sh -c 'cat "$1"/*.safetensors' - "$mnt/$2" && echo
	unmount "$mnt"
}

median_of() {
	for ((i = 0; i < runs; i++)); do "$@"; done | median
}

: >"$results"
row "case, one processor" "seconds" "plain" "ratio" "goal"
plain=$(median_of first_read "$work/source" latest/hf)
for view in hf-fp8 hf-fp8-tensor; do
	shown=$(median_of first_read "$work/source" "latest/$view")
	row "$view: all weights" "$shown" "$plain" "$(ratio "$plain" "$shown")" ">= 0.50 of hf's speed"
done
for cast in hf-bf16:1 hf-fp16:1 hf-fp32:2; do
	shown=$(median_of first_read "$work/source" "latest/${cast%:*}")
	as_large=$(awk -v s="$plain" -v n="${cast#*:}" 'BEGIN { print s * n }')
	row "${cast%:*}: all bytes" "$shown" "$plain" "$(ratio "$as_large" "$shown")" ">= 0.80 of hf's speed"
done
"$mcorefs" export "$work/source" latest/hf-fp8 "$work/fp8" >/dev/null 2>&1 || die "cannot export"
cat "$work"/fp8/*.safetensors >/dev/null
shown=$(median_of first_read "$work/fp8" hf)
row "hf of 8-bit floats" "$shown" "$plain" "$(ratio "$plain" "$shown")" ">= 0.50 of hf's speed"

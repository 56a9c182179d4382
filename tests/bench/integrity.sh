#!/bin/bash
# What sums cost: a first read of the HF view with -o verify=crc|sha256 against one without, and mcorefs sum against
# sha256sum and openssl on one processor. BENCH_GIB (1), BENCH_RUNS (3), BENCH_DIR as in bench.sh. Caches are warm.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$PWD/${O:-build}/mcorefs
runs=${BENCH_RUNS:-3}
results=${O:-build}/bench-integrity.txt
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
mnt=$work/mnt
mkdir "$mnt"
trap 'unmount "$mnt"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

python3 tests/giants/make.py llama "$work/source" --gib "${BENCH_GIB:-1}" --tp 4 --hidden 4096 --crcs >/dev/null || die "cannot make a checkpoint"
mapfile -t files < <(find "$work/source" -name '*.pt')
(cd "$work"/source/iter_* && python3 -c "
import hashlib, json, sys
json.dump({'algorithm': 'sha256', 'files': {n: hashlib.sha256(open(n, 'rb').read()).hexdigest() for n in sys.argv[1:]}}, open('integrity.json', 'w'))" \
	mp_rank_*/*.pt) || die "sums"
cat "${files[@]}" >/dev/null

# A mount of its own each time: what is proved once is not read again.
first_read() {
	"$mcorefs" "$work/source" "$mnt" -o "log=$work/log$1" 2>/dev/null || die "cannot mount"
	seconds cat "$mnt"/latest/hf/*.safetensors && echo
	unmount "$mnt"
}

median_of() {
	for ((i = 0; i < runs; i++)); do "$@"; done | median
}

on_one() {
	seconds taskset -c 0 "$@" && echo
}

: >"$results"
row "case, $(nproc) cores" "seconds" "plain" "ratio" "goal"
plain=$(median_of first_read "")
for verify in crc sha256; do
	checked=$(median_of first_read ",verify=$verify")
	row "first read of hf, verify=$verify" "$checked" "$plain" "$(ratio "$checked" "$plain")" ""
	grep verify= "$work/log" && die "nothing was checked"
done
ours=$(median_of on_one "$mcorefs" sum "$work/source")
for peer in sha256sum "openssl dgst -sha256"; do
	# shellcheck disable=SC2086
	theirs=$(median_of on_one $peer "${files[@]}")
	row "mcorefs sum, one processor, and ${peer%% *}" "$ours" "$theirs" "$(ratio "$theirs" "$ours")" ">= 0.80 of its speed"
done

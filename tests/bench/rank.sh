#!/bin/bash
# tests/bench/rank.sh: what reading one rank's part costs, against read(2) of as many bytes of the same files
# in the same run; the best of BENCH_RUNS (5). BENCH_GIB (2) and BENCH_DIR as for bench.sh. A row-parallel weight
# of one rank is read whole from the disk by each of eight: its rows are shorter than read-ahead.
set -u
cd "$(dirname "$0")/../.." || exit 1
bench=$PWD/${O:-build}/obj/tests/bench/bench_rank
runs=${BENCH_RUNS:-5}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-rank-XXXXXX") || exit 1
trap 'rm -rf "${work:?}"' EXIT
trap 'exit 130' INT TERM
[ -x "$bench" ] || { echo "rank.sh: run make tests first" >&2; exit 1; }

# speed OPTION...: GB/s
speed() {
	for ((i = 0; i < runs; i++)); do
		"$bench" "$@" || exit 1
	done | awk '{ print $1 / $2 / 1e9 }' | sort -g | tail -n 1
}

# compare TEXT OPTION...
compare() {
	local text=$1 native part one tensors
	shift
	native=$(speed -m read "$@") && part=$(speed "$@") && one=$(speed -t 1 "$@") && tensors=$(speed -m tensors "$@") || exit 1
	awk -v t="$text" -v n="$native" -v p="$part" -v o="$one" -v s="$tensors" 'BEGIN {
		printf "%-36s %8.2f %8.2f %6.2f %8.2f %6.2f %8.2f %6.2f\n", t, n, p, p / n, o, o / n, s, s / n }'
}

printf '%-36s %8s %8s %6s %8s %6s %8s %6s\n' 'GB/s' read part ratio '1 thread' ratio tensors ratio
for tp in 1 8; do
	python3 tests/giants/make.py llama "$work/tp$tp" --gib "${BENCH_GIB:-2}" --tp "$tp" --format torch >/dev/null || exit 1
	dir=$(echo "$work/tp$tp"/iter_*)
	cat "$dir"/*/* >/dev/null
	for layout in tp1-pp1 tp8-pp1; do
		compare "tp$tp read at $layout, cached" "$dir" "$layout" 0 0
		compare "tp$tp read at $layout, from the disk" -c "$dir" "$layout" 0 0
	done
	rm -rf "${work:?}/tp$tp"
done

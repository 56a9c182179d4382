#!/bin/bash
# Index build and blends against megatron-core's own, in the same run, one thread each (and all for ours).
#
#   tests/bench/bench_dataset.sh      BENCH_DOCUMENTS=100000000 BENCH_RUNS=3 BENCH_BLENDS="2 8 64 300 1000" BENCH_DIR=/tmp
#
# MCOREFS_PYTHON: an interpreter with megatron-core (tests/interop/run.sh makes one). Of runs the best counts, of both.
# The first line of each pair of numbers is ours. 1e8 documents need 2 GB of disk and 6 GB of memory.
set -u
cd "$(dirname "$0")/../.." || exit 1
export OMP_NUM_THREADS=1
bench=$(realpath -m "${O:-build}")/obj/tests/bench/bench_dataset
python=${MCOREFS_PYTHON:-${MCOREFS_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/mcorefs-interop}/main/bin/python}
documents=${BENCH_DOCUMENTS:-100000000}
runs=${BENCH_RUNS:-3}
[ -x "$bench" ] || { echo "bench_dataset: make $bench first" >&2; exit 1; }
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

best() { # FIELD COMMAND...: the least of that field over the runs
	local field=$1
	shift
	for ((i = 0; i < runs; i++)); do "$@" 2>/dev/null; done | awk -v f="$field" 'NF >= f { print $f }' | sort -g | head -n 1
}

row() { # NAME OURS THEIRS UNIT
	awk -v n="$1" -v a="$2" -v b="${3:-0}" -v u="$4" 'BEGIN {
		printf "%-52s %10.2f %10s %8s  %s\n", n, a, b ? sprintf("%.2f", b) : "-", b ? sprintf("%.1f x", b / a) : "-", u }'
}

megatron() {
	[ -x "$python" ] && "$python" tests/bench/megatron_dataset.py "$@"
}

weights() { # COUNT KIND
	awk -v n="$1" -v kind="$2" 'BEGIN { srand(1); for (i = 0; i < n; i++) print kind == "real" ? rand() + .01 : int(1 + 19 * rand()) }'
}

printf '%-52s %10s %10s %8s\n' "" ours Megatron ratio
"$bench" make "$work/data" "$documents"
row "indices of $documents documents, 1 thread (CPU s)" \
	"$(best 2 "$bench" index "$work/data" 4096 0 1)" "$(best 2 megatron index "$work/data" 4096 0)" s
row "indices of $documents documents, all threads (s)" \
	"$(best 1 "$bench" index "$work/data" 4096 0 "$(nproc)")" "$(best 1 megatron index "$work/data" 4096 0)" s
row "shuffle of 100000000" "$(best 1 "$bench" shuffle 100000000)" 0 ns
row "where a random sample lies" "$(best 1 "$bench" sample "$work/data" 4096 0 300000)" 0 ns
"$bench" make "$work/small" 100000
cat "$work/small.bin" >/dev/null
row "samples in order, 1 MiB a read (CPU, per token)" "$(best 1 "$bench" read "$work/small" 4096 0 2000)" 0 ns
for n in ${BENCH_BLENDS:-2 8 64 300 1000}; do
	for kind in real integer; do
		mapfile -t w < <(weights "$n" "$kind")
		row "blend of $n, $kind weights" "$(best 1 "$bench" blend 400000 "${w[@]}")" "$(best 1 megatron blend 400000 "${w[@]}")" ns
	done
done
"$bench" sparse "$work/sparse" 1000000000
row "opening 1000000000 sequences (ms)" "$("$bench" open "$work/sparse" | awk '{ print 1000 * $1 }')" 0 ms
row "  resident (MiB)" "$("$bench" open "$work/sparse" | awk '{ print $2 }')" 0 MiB

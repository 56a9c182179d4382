#!/bin/bash
# Datasets on a mount against the same bytes as others keep them, in the same run; make bench runs it at the end.
#
#   tests/bench/data.sh            BENCH_DATA_MIB=768 BENCH_RUNS=3 BENCH_DOCUMENTS=10000000 BENCH_DIR=/tmp
#
# BENCH_DATA_MIB: size of the .bin; BENCH_DOCUMENTS: of the index builds (bench_dataset.sh). MCOREFS_PYTHON: an interpreter with
# `datasets` and megatron-core (tests/interop/run.sh makes one); without it, what needs it is skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

build=$(realpath -m "${O:-build}")
mcorefs=$build/mcorefs
bin=$build/obj/tests/bench
results=$build/bench.txt
runs=${BENCH_RUNS:-3}
mib=${BENCH_DATA_MIB:-768}
documents=${BENCH_DOCUMENTS:-10000000}
python=${MCOREFS_PYTHON:-${MCOREFS_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/mcorefs-interop}/main/bin/python}
[ -x "$mcorefs" ] && [ -x "$bin/bench_dataset" ] && [ -x "$bin/bench_read" ] || die "run make tests first"
[ -c /dev/fuse ] || die "there is no /dev/fuse"
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
mnt=$work/mnt
mkdir "$mnt"

clean_up() {
	unmount "$mnt"
	rm -rf "${work:?}"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

has_datasets() {
	[ -x "$python" ] && HF_HUB_OFFLINE=1 "$python" -c 'import datasets' 2>/dev/null
}

hf_dataset() {
	HF_HUB_OFFLINE=1 "$python" tests/bench/hf_dataset.py "$@"
}

daemon() {
	pgrep -f "^$mcorefs .*$mnt" | head -n 1
}

# Random tokens in documents of 1 to 2000.
make_data() {
	"$bin/bench_dataset" make "$work/data" $((mib * 1024 * 1024 / 4000)) || die "cannot make a dataset"
	head -c "$(stat -c %s "$work/data.bin")" /dev/urandom >"$work/data.bin.new" && mv "$work/data.bin.new" "$work/data.bin" || die "no room for $mib MiB"
}

remount() {
	unmount "$mnt"
	"$mcorefs" "$1" "$mnt" || die "cannot mount $1"
}

# sequential NAME FILE...: read(2) of 1 MiB, against the .bin
sequential() {
	local name=$1 ours native
	shift
	cat "$work/data.bin" "$@" >/dev/null
	native=$(speed "$work/data.bin")
	ours=$(speed -d "$@")
	row "$name: first touch" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.50"
	ours=$(speed "$@")
	row "$name: second touch" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.97"
	if ! drop_caches; then
		row "$name: cold" skipped "" "" "caches can be dropped by root alone"
		return
	fi
	native=$(cold "$work/data.bin")
	ours=$(cold "$@")
	row "$name: cold" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.95"
}

cold() {
	for ((i = 0; i < runs; i++)); do
		drop_caches
		"$bin/bench_read" "$@" | awk '{ print $1 / $2 / 1e9 }'
	done | median
}

# Through `datasets`, against what it writes itself. The mount is fresh, the files under it are in memory.
rows() {
	if ! has_datasets; then
		row "datasets: open, random rows" skipped "" "" "no python with datasets: tests/interop/run.sh makes one"
		return
	fi
	row "datasets writes the same, s" "" "$(hf_dataset save "$mnt/data/data/hf" "$work/theirs")" "" ""
	cat "$work/data.bin" "$work"/theirs/*.arrow >/dev/null
	remount "$work/data"
	hf_dataset read "$mnt/data/data/hf" "$work/theirs" "$runs" >"$work/rows" || die "datasets cannot read both"
	while IFS=$'\t' read -r name ours theirs; do
		row "datasets: $name" "$ours" "$theirs" "$(ratio "$theirs" "$ours")" "ratio of speeds"
	done <"$work/rows"
}

rss() {
	awk '/^VmRSS/ { printf "%.0f", $2 / 1024 }' "/proc/$(daemon)/status"
}

mount_and_list() {
	remount "$work/sparse" && ls -l "$mnt/data/sparse/hf"
}

read_ends() {
	for file in "$mnt"/data/sparse/hf/*.arrow; do
		head -c 65536 "$file" && tail -c 65536 "$file" || return
	done
}

a_billion_rows() {
	"$bin/bench_dataset" sparse "$work/sparse" 1000000000 || die "cannot make a sparse dataset"
	row "1e9 rows: mount and list hf/" "$(seconds mount_and_list) s" "" "" "< 1 s"
	row "1e9 rows: first and last bytes of each file" "$(seconds read_ends) s" "" "" ""
	row "1e9 rows: daemon resident, MiB" "$(rss)" "" "" "< 100"
	if has_datasets; then
		row "1e9 rows: datasets opens, first and last row" "$(hf_dataset ends "$mnt/data/sparse/hf") s" "" "" ""
	fi
	head -c 1G "$mnt/data/sparse/npy/offsets.npy" >/dev/null
	row "1e9 rows: daemon resident, 1 GiB later, MiB" "$(rss)" "" "" "< 100"
	unmount "$mnt"
	rm -f "$work"/sparse.*
}

echo | tee -a "$results"
row "datasets, $mib MiB" "ours GB/s" "native" "ratio" "goal"
make_data
remount "$work/data"
sequential "hf/*.arrow" "$mnt"/data/data/hf/*.arrow
sequential "npy/tokens.npy" "$mnt/data/data/npy/tokens.npy"
rows
unmount "$mnt"
rm -rf "$work"/data.* "$work/theirs"
a_billion_rows
BENCH_DOCUMENTS=$documents BENCH_RUNS=1 BENCH_BLENDS=${BENCH_BLENDS:-64} tests/bench/bench_dataset.sh | tee -a "$results"

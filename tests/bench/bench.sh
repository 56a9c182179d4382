#!/bin/bash
# make bench: what reading through the mount costs, against a native copy of the same bytes on the same
# file system in the same run. BENCH_GIB (2): size of the model; BENCH_RUNS (3): the median of so many;
# BENCH_DIR: where (TMPDIR); BENCH_ONLY=layouts: Megatron views alone; BENCH_ONLY=data: datasets alone
# (data.sh); BENCH_ONLY=prefetch: fetching ahead alone (prefetch.sh). Goals are those of two cores; ratios, not speeds, are what counts.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$PWD/${O:-build}/mcorefs
bin=$PWD/${O:-build}/obj/tests/bench
gib=${BENCH_GIB:-2}
runs=${BENCH_RUNS:-3}
base=${BENCH_DIR:-${TMPDIR:-/tmp}}
results=${O:-build}/bench.txt

command -v python3 >/dev/null || die "python3 is needed to make the checkpoints"
[ -c /dev/fuse ] || die "there is no /dev/fuse"
free=$(df --output=avail -B 1G "$base" | tail -n 1)
need=$(awk -v g="$gib" 'BEGIN { print int(g * 3) + 2 }')
[ "$free" -ge "$need" ] || die "$base has $free GiB free, $need are needed (BENCH_DIR, BENCH_GIB)"
work=$(mktemp -d "$base/mcorefs-bench-XXXXXX") || exit 1
mnt=$work/mnt
mkdir "$mnt" "$work/null"

queue=''
read_ahead=''
restore_read_ahead() {
	[ -z "$read_ahead" ] || echo "$read_ahead" >"$queue/read_ahead_kb"
}

clean_up() {
	restore_read_ahead
	unmount "$mnt"
	unmount "$work/null"
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# compare CASE GOAL OPTION...: over the files of the mount (cached pages dropped) and of the copy
compare() {
	local name=$1 goal=$2 ours native
	shift 2
	warm_sources
	ours=$(speed -d "$@" "${ours_files[@]}")
	native=$(speed "$@" "${native_files[@]}")
	row "$name" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" "$goal"
	last=$ours
}

warm_sources() {
	find "$source" -type f -exec cat {} + >/dev/null
	[ "${#native_files[@]}" = 0 ] || cat "${native_files[@]}" >/dev/null
}

daemon() {
	pgrep -f "^$mcorefs .*$mnt" | head -n 1
}

# user and system seconds of the daemon and its fetchers so far
cpu() {
	local pid stats=()
	for pid in $(daemon) $(pgrep -P "$(daemon)"); do stats+=("/proc/$pid/stat"); done
	awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); sum += $12 + $13 } END { print sum / hz }' "${stats[@]}"
}

# A Megatron view at another layout: reading it, and writing it out against cp of the same bytes with a sync.
layouts() {
	local hf view ours native
	mount_only "$work/source"
	warm_sources
	ours_files=("$mnt"/latest/hf/*.safetensors)
	hf=$(speed -d -b 0x100000 "${ours_files[@]}")
	mapfile -t ours_files < <(find "$mnt/latest/megatron/torch/$2" -name '*.pt' | sort)
	rm -rf "$work/native"
	view=latest/megatron/torch/$2
	"$mcorefs" export "$source" "$view" "$work/native" >/dev/null || die "cannot export $view"
	mapfile -t native_files < <(find "$work/native" -name '*.pt' | sort)
	compare "$1: first touch, read 1 MiB" "" -b 0x100000
	row "  of the HF view of the same source" "" "" "$(ratio "$last" "$hf")" ">= 0.90"
	ours=$(for ((i = 0; i < runs; i++)); do timed_export "$view"; done | median)
	native=$(for ((i = 0; i < runs; i++)); do timed_copy; done | median)
	row "$1: export, s (native: cp -r and sync)" "$ours" "$native" "$(ratio "$native" "$ours")" ">= 0.95"
	unmount "$mnt"
}

timed_export() {
	rm -rf "$work/out"
	seconds "$mcorefs" export "$source" "$1" "$work/out"
	echo
}

copy_and_sync() {
	cp -r "$work/native" "$work/out" && sync -f "$work/out"
}

timed_copy() {
	rm -rf "$work/out"
	seconds copy_and_sync
	echo
}

mount_source() {
	"$mcorefs" "$source" "$mnt" -o shard_size=512MiB || die "cannot mount $source"
}

mount_only() {
	source=$1
	native_files=()
	mount_source
}

# prepare SOURCE: mounts it and writes the native copy
prepare() {
	source=$1
	mount_source
	rm -rf "$work/native"
	"$mcorefs" export "$source" hf "$work/native" -o shard_size=512MiB >/dev/null || die "cannot export $source"
	ours_files=("$mnt"/latest/hf/*.safetensors)
	native_files=("$work"/native/*.safetensors)
	[ "${#ours_files[@]}" = "${#native_files[@]}" ] || die "the mount and the copy have different files"
}

# The price of FUSE alone, for the columns that are measured against it.
null_ceiling() {
	"$bin/null_fs" $((2 << 30)) "$work/null" || die "null_fs does not mount"
	local dev
	dev=$(stat -c %d "$work/null")
	echo 2048 2>/dev/null >"/sys/class/bdi/$((dev >> 8 & 0xfff)):$((dev & 0xff | dev >> 12 & 0xfff00))/read_ahead_kb"
	null_read=$(speed -d "$work/null/data")
	null_mmap=$(speed -d -m mmap "$work/null/data")
	null_direct=$(speed -d -m direct -b 0x1000000 "$work/null/data")
	unmount "$work/null"
	row "null daemon: read 1 MiB" "$(two "$null_read")" "" "" "the ceiling of FUSE here"
	row "null daemon: mmap" "$(two "$null_mmap")" "" "" ""
	row "null daemon: O_DIRECT 16 MiB" "$(two "$null_direct")" "" "" ""
}

against_null() {
	row "  of the null daemon" "" "" "$(ratio "$last" "$1")" "$2"
}

first_touch() {
	local before after bytes
	warm_sources
	before=$(cpu)
	compare "$1: first touch, read 1 MiB" ">= 0.50" -b 0x100000
	after=$(cpu)
	against_null "$null_read" ">= 0.90"
	bytes=$(cat "${ours_files[@]}" | wc -c)
	row "$1: daemon CPU, s/GiB" "$(awk -v s="$after" -v t="$before" -v b="$bytes" -v r="$runs" \
		'BEGIN { printf "%.3f", (s - t) / (b * r / 2^30) }')" "" "" "<= 0.2"
	compare "$1: first touch, mmap" "" -m mmap
	against_null "$null_mmap" ">= 0.90"
	compare "$1: first touch, 8 readers" "" -n 8
}

# Native O_DIRECT goes to the disk: ours is compared with the buffered native read of the same size.
direct() {
	local ours native
	warm_sources
	ours=$(speed -d -m direct -b 0x1000000 "${ours_files[@]}")
	native=$(speed -b 0x1000000 "${native_files[@]}")
	row "$1: first touch, O_DIRECT 16 MiB" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.75 (native: buffered)"
	row "  of the null daemon" "" "" "$(ratio "$ours" "$null_direct")" ""
}

second_touch() {
	local ours native
	cat "${ours_files[@]}" >/dev/null
	ours=$(speed "${ours_files[@]}")
	native=$(speed "${native_files[@]}")
	row "$1: second touch, read" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.97"
	ours=$(speed -m copy "${ours_files[@]}")
	native=$(speed -m copy "${native_files[@]}")
	row "$1: second touch, copy out of an mmap" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" ">= 0.97"
}

# The disk that holds the work directory, where its read-ahead can be set.
queue_of() {
	local dev
	dev=$(findmnt -n -o MAJ:MIN -T "$work" | tr -d ' ')
	readlink -f "/sys/dev/block/$dev/queue" 2>/dev/null
}

cold_once() {
	drop_caches
	"$bin/bench_read" "$@" | awk '{ print $1 / $2 / 1e9 }'
}

# cold CASE GOAL: with nothing in memory, by read(2) and by mmap
cold() {
	local ours native mode
	for mode in read mmap; do
		ours=$(for ((i = 0; i < runs; i++)); do cold_once -m "$mode" "${ours_files[@]}"; done | median)
		native=$(for ((i = 0; i < runs; i++)); do cold_once -m "$mode" "${native_files[@]}"; done | median)
		row "$1, $mode" "$(two "$ours")" "$(two "$native")" "$(ratio "$ours" "$native")" "$2"
	done
}

cold_all() {
	local kb goal
	if ! drop_caches; then
		row "$1: cold" "skipped" "" "" "caches can be dropped by root alone"
		return
	fi
	# What a daemon has mapped is not dropped; page faults leave half of a source mapped.
	unmount "$mnt"
	mount_source
	queue=$(queue_of)
	read_ahead=$(cat "$queue/read_ahead_kb" 2>/dev/null)
	if [ ! -w "$queue/read_ahead_kb" ]; then
		cold "$1: cold, disk reads ahead ${read_ahead:-?} KiB" ">= 0.95, at 128 KiB >= 1.2"
		read_ahead=''
		return
	fi
	while read -r kb goal; do
		echo "$kb" >"$queue/read_ahead_kb"
		cold "$1: cold, disk reads ahead $kb KiB" "$goal"
	done <<-END
		128 >= 1.2
		4096 >= 0.95
	END
	restore_read_ahead
}

# gather CASE TENSORS: row-parallel tensors against contiguous ones of the same mount
gather() {
	local pieces whole
	warm_sources
	pieces=$(speed -d -t "$2" "${ours_files[@]}")
	whole=$(speed -d -t q_proj "${ours_files[@]}")
	row "$1" "$(two "$pieces")" "$(two "$whole")" "$(ratio "$pieces" "$whole")" ">= 0.90 (of contiguous, ours)"
}

faults() {
	local one eight
	warm_sources
	one=$("$bin/bench_read" -d -m fault "${ours_files[@]}")
	eight=$("$bin/bench_read" -d -m fault -n 8 "${ours_files[@]}")
	row "page faults, 1 process: median and p99 us" "$one" "" "" ""
	row "page faults, 8 processes: median and p99 us" "$eight" "" "$(ratio "${eight#* }" "${one#* }")" "p99 <= 2 times one"
}

mount_and_list() {
	"$mcorefs" "$1" "$mnt" && ls -lL "$mnt/latest/hf"
}

# Mount time against the number of source files: sparse models of real shapes.
mount_times() {
	local files
	while read -r name options; do
		rm -rf "$work/sparse"
		# shellcheck disable=SC2086
		files=$(python3 tests/giants/make.py "$name" "$work/sparse" $options) || die "cannot make $name"
		row "mount and list: ${files%% *} files, $name" "$(seconds mount_and_list "$work/sparse") s" "" "" "< 1 s"
		unmount "$mnt"
	done <<-END
		llama --gib 16 --tp 4 --sparse
		llama --gib 16 --tp 16 --sparse
		llama-405b
		deepseek-671b
	END
	rm -rf "$work/sparse"
}

make_checkpoint() {
	rm -rf "$work/source"
	python3 tests/giants/make.py llama "$work/source" --gib "$gib" "$@" >/dev/null || die "cannot make a checkpoint"
	sync
}

: >"$results"
{
	echo "$(nproc) cores, $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), kernel $(uname -r), $gib GiB, median of $runs"
	echo
} | tee -a "$results"
if [ "${BENCH_ONLY:-}" = data ]; then
	tests/bench/data.sh
	exit
fi
if [ "${BENCH_ONLY:-}" = prefetch ]; then
	tests/bench/prefetch.sh
	exit
fi
row "case" "ours GB/s" "native" "ratio" "goal"
null_ceiling

make_checkpoint --tp 4 --hidden 4096
layouts "torch TP4 as TP8" tp8-pp1
layouts "torch TP4 as TP1" tp1-pp1
rm -rf "$work/native" "$work/out"
[ "${BENCH_ONLY:-}" != layouts ] || exit 0

make_checkpoint --tp 8 --hidden 4096
prepare "$work/source"
first_touch "torch TP8"
direct "torch TP8"
second_touch "torch TP8"
gather "torch TP8: gather of 1 KiB pieces" o_proj
faults
cold_all "torch TP8"
unmount "$mnt"

make_checkpoint --tp 8 --hidden 4096 --format torch_dist
prepare "$work/source"
first_touch "torch_dist TP8"
direct "torch_dist TP8"
cold_all "torch_dist TP8"
unmount "$mnt"

make_checkpoint --tp 2 --hidden 8192
prepare "$work/source"
gather "torch TP2: gather of 8 KiB pieces" o_proj
unmount "$mnt"
rm -rf "$work/source" "$work/native"

mount_times
tests/bench/data.sh
echo
echo "written to $results"

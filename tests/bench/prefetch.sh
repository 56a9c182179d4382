#!/bin/bash
# First touch with and without processes that fetch ahead (-o prefetch=N), and of a native copy, in turn in one run.
#
#   tests/bench/prefetch.sh                 BENCH_GIB=2 BENCH_RUNS=5 BENCH_DIR=/tmp BENCH_COLD=1 PREFETCH='1 2'
#
# Mounts of the same source and the copy are read one after the other, again and again, in another order in each round;
# medians count. PREFETCH: numbers of processes to compare with none; without it the machine's default. BENCH_COLD=0 leaves
# out the cold cases. For others than root there are none, and the kernel's read-ahead is 128 KiB.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$(realpath -m "${O:-build}")/mcorefs
bin=$(realpath -m "${O:-build}")/obj/tests/bench
gib=${BENCH_GIB:-2}
runs=${BENCH_RUNS:-5}
results=${O:-build}/bench-prefetch.txt
[ -x "$mcorefs" ] && [ -x "$bin/bench_read" ] || die "make $mcorefs $bin/bench_read first"
command -v python3 >/dev/null || die "python3 is needed to make the checkpoint"
[ -c /dev/fuse ] || die "there is no /dev/fuse"
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
default=$(($(nproc) / 8 < 2 ? $(nproc) / 8 : 2))
read -ra counts <<<"${PREFETCH:-$((default ? default : 1))}"

mount_all() {
	local n
	for n in 0 "${counts[@]}"; do
		mkdir -p "$work/mnt$n"
		"$mcorefs" "$source" "$work/mnt$n" -o "shard_size=512MiB,prefetch=$n" || die "cannot mount with prefetch=$n"
	done
}

unmount_all() {
	local n
	for n in 0 "${counts[@]}"; do unmount "$work/mnt$n"; done
}

clean_up() {
	unmount_all
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

source=$work/source
python3 tests/giants/make.py llama "$source" --gib "$gib" --tp 8 --hidden 4096 >/dev/null || die "cannot make a checkpoint"
"$mcorefs" export "$source" hf "$work/native" -o shard_size=512MiB >/dev/null || die "cannot export it"
mount_all

# The files of native, or of the mount with so many processes.
files_of() {
	if [ "$1" = native ]; then echo "$work"/native/*.safetensors; else echo "$work/mnt$1"/latest/hf/*.safetensors; fi
}

warm() {
	find "$source" "$work/native" -type f -exec cat {} + >/dev/null
}

# once WHOM OPTION...: GB/s, or of faults the 99th percentile in us. Of a mount the first touch.
once() {
	local drop=-d whom=$1 said
	shift
	[ "$whom" != native ] || drop=
	# shellcheck disable=SC2046,SC2086
	said=$("$bin/bench_read" $drop "$@" $(files_of "$whom")) || die "bench_read $*"
	case " $* " in
	*' fault '*) echo "${said#* }" ;;
	*) awk '{ print $1 / $2 / 1e9 }' <<<"$said" ;;
	esac
}

# compare CASE BEFORE OPTION...: BEFORE is run before each reading
compare() {
	local name=$1 before=$2 whom=(native 0 "${counts[@]}") i n value off
	shift 2
	rm -f "$work"/of.*
	for ((i = 0; i < runs; i++)); do
		for n in "${whom[@]}"; do
			$before
			once "$n" "$@" >>"$work/of.$n"
		done
		whom=("${whom[@]:1}" "${whom[0]}")
	done
	native=$(median <"$work/of.native")
	off=$(median <"$work/of.0")
	for n in 0 "${counts[@]}"; do
		value=$(median <"$work/of.$n")
		row "$name, prefetch=$n" "$(two "$value")" "$(two "$native")" "$(ratio "$value" "$native")" "$(ratio "$value" "$off")"
	done
}

: >"$results"
{
	echo "$(nproc) cores, $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), kernel $(uname -r), $gib GiB, median of $runs"
	echo
} | tee -a "$results"
row "case" "ours" "native" "ratio" "of prefetch=0"
warm
compare "read 1 MiB, GB/s" true
compare "read 128 KiB" true -b 0x20000
compare "mmap" true -m mmap
compare "copy out of an mmap" true -m copy
compare "read, 2 readers" true -n 2
compare "mmap, 2 readers" true -m mmap -n 2
compare "read, 8 readers" true -n 8
compare "O_DIRECT 16 MiB" true -m direct -b 0x1000000
compare "gathers of 1 KiB pieces" true -t o_proj
compare "page faults at random, p99 us" true -m fault
compare "… of 8 processes" true -m fault -n 8
if [ "${BENCH_COLD:-1}" = 1 ] && drop_caches; then
	runs=$(((runs + 1) / 2))
	# What a daemon has mapped is not dropped; page faults leave half of a source mapped.
	unmount_all
	mount_all
	compare "cold, read" drop_caches
	compare "cold, mmap" drop_caches -m mmap
fi
echo
echo "written to $results"

#!/bin/bash
# What saves and data cost a run of mcorefs-train.
#
#   tests/bench/train_io.sh [save] [data]    BACKEND=cuda|cpu  PYTHON=python3  FIO=fio  BENCH_DIR=/tmp  BENCH_KEEP=DIR
#                                            SAVE_SHAPE=llama-1b  SAVE_STEPS=16  DATA_SHAPE=gpt2-124m  DATA_STEPS=600  DATA_MIB=1536
#
# save: the time of one save with its optimizer, against the time that fio needs for as many bytes with O_DIRECT on the same file
# system in the same run; and the slowest step with a save in flight, against the median of the others. SAVE_STEPS must outlast a save.
# data: how long a step waited for tokens of random documents of an indexed dataset, at the 99th percentile; cold is with no page of it
# in memory. Disk: two checkpoints, or DATA_MIB.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh
. tests/bench/train_lib.sh
train=$(realpath -m "${O:-build}")/mcorefs-train
results=${O:-build}/bench-train-io.txt
backend=${BACKEND:-cuda} python=${PYTHON:-python3} fio=${FIO:-fio}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1

clean_up() {
	[ -z "${BENCH_KEEP:-}" ] || cp "$work"/*.log "$BENCH_KEEP" 2>/dev/null
	rm -rf "${work:?}"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# ---- a save ----

# GB/s of one file of so many bytes, written in order past the page cache and synced.
disk() {
	"$fio" --name=disk --filename="$work/disk" --rw=write --bs=4M --size="$1" --direct=1 --ioengine=io_uring --iodepth=16 --fallocate=posix \
		--end_fsync=1 --output-format=terse --terse-version=3 2>>"$work/disk.log" | awk -F';' 'NF > 50 { print $48 * 1024 / 1e9 }'
	rm -f "$work/disk"
}

# slowest LOG: milliseconds of the slowest step after SAVE_STEPS, while its save was in flight, of the median of those before, and how
# many were slowest of.
slowest() {
	steps "$1" "$our_step" | tail -n +$((save_steps + 1)) | awk '$2 > most { most = $2 } END { printf "%s %d ", most, NR }'
	steps "$1" "$our_step" | sed -n "3,${save_steps}p" | awk '{ print $2 }' | median
}

# The run is ended when its save is done.
save() {
	local log=$work/save.log arguments gib seconds most usual count bytes bandwidth
	mapfile -t arguments < <(flags "$save_shape" 1 8 $((save_steps * 2)))
	clock "$log" ' the host waited' 1 "$train" "${arguments[@]}" --mock-data --save "$work/save" --save-interval "$save_steps" ||
		{ tail -n 5 "$log" >&2; die "no save"; }
	read -r gib seconds < <(sed -nE 's/.* saved ([0-9.]+) GiB in ([0-9.]+) s.*/\1 \2/p' "$log")
	read -r most count usual < <(slowest "$log")
	rm -rf "$work/save"
	sync
	row "save of $save_shape, GiB" "$gib" "" "" "$(sed -nE 's/.*GiB\/s, ([a-z_ ]+).*/\1/p' "$log")"
	row "  slowest of $count steps in flight, median of others, ms" "$most" "$usual" "$(ratio "$most" "$usual")" "+ 10 ms or 0.5 %"
	bytes=$(awk -v g="$gib" 'BEGIN { printf "%d", g * 1024 * 256 }')
	bandwidth=$(disk "$((bytes * 4096))")
	[ -n "$bandwidth" ] || { row "  s, and fio's" "$seconds" skipped "" "no fio"; return; }
	bytes=$(awk -v g="$gib" -v b="$bandwidth" 'BEGIN { printf "%.3f", g * 1.073741824 / b }')
	row "  s, and fio's of as many bytes ($(two "$bandwidth") GB/s)" "$seconds" "$bytes" "$(ratio "$seconds" "$bytes")" "<= 1.15"
}

# ---- data ----

# stall NAME
stall() {
	local log=$work/data-$1.log arguments
	mapfile -t arguments < <(flags "$data_shape" "$data_micro" "$data_micro" "$data_steps")
	clock "$log" '^data: [0-9]+ microbatches' 1 "$train" "${arguments[@]}" --data-path "$work/tokens" --split 100,0,0 ||
		{ tail -n 5 "$log" >&2; die "no run over data"; }
	row "data, $1: wait for a microbatch, p99, ms" \
		"$(sed -nE 's/.* waited for ([0-9.]+) ms each at the 99th.*/\1/p' "$log")" "" "" "<= 1"
	row "  ms a step of $data_shape, $data_micro sequences" "$(steps "$log" "$our_step" | awk '{ print $2 }' | median)" "" "" \
		"$(sed -nE 's/.*data: (read by.*)/\1/p' "$log")"
	row "  start to the end of the first step, s" "$(steps "$log" "$our_step" | awk 'NR == 1 { printf "%.2f", $1 / 1e6 }')" "" "" ""
}

data() {
	local vocab
	vocab=$(sed -nE 's/.*--vocab-size ([0-9]+).*/\1/p' <<<"${shape[$data_shape]//$'\n'/ }")
	"$python" tests/bench/peers/token_files.py megatron "$work/tokens" $((data_mib * 262144)) "$vocab" || die "no tokens"
	if drop_caches; then
		stall cold
	else
		row "data, cold" skipped "" "" "caches can be dropped by root alone"
	fi
	cat "$work/tokens.bin" "$work/tokens.idx" >/dev/null
	stall warm
	rm -f "$work"/tokens.*
}

save_shape=${SAVE_SHAPE:-llama-1b} save_steps=${SAVE_STEPS:-16} data_shape=${DATA_SHAPE:-gpt2-124m} data_steps=${DATA_STEPS:-600}
data_micro=${DATA_MICRO:-8} data_mib=${DATA_MIB:-1536}
[ "$backend" != cpu ] || { save_shape=${SAVE_SHAPE:-cpu} data_shape=${DATA_SHAPE:-cpu}; }
: >"$results"
[ $# != 0 ] || set -- save data
row "$backend" ours other ratio goal
for part; do
	case $part in
	save | data) "$part" ;;
	*) die "there is no part $part" ;;
	esac
done

#!/bin/bash
# A page of a source that cannot be read: EIO for what needs it, under 8 readers, and nothing else.
. "$(dirname "$0")/lib.sh"
[ -x "$BIN/failing_fs" ] || fail "$BIN/failing_fs is not built"

original=$FIXTURES/weights/llama-torch-tp2-pp2
victim=mp_rank_00_000/model_optim_rng.pt
size=$(stat -c %s "$original"/iter_*/$victim)
"$MCOREFS" export "$original" hf "$work/good" -o shard_size=40KB >/dev/null || fail "export"
mkdir "$work/disk"
"$BIN/failing_fs" "$original" "$work/disk" "$victim" $((size / 2)) 2>"$work/disk.log" &
disk=$!
wait_until "the failing disk stands" mountpoint -q "$work/disk"

# The files that differ from their copy, by reader number $1.
read_all() {
	local f
	for f in "$work"/good/*; do
		cmp -s "$f" "$mnt/latest/hf/${f##*/}" 2>/dev/null && continue
		cat "$mnt/latest/hf/${f##*/}" 2>"$work/said.$1" >/dev/null
		grep -q 'Input/output error' "$work/said.$1" || echo "not EIO:"
		echo "${f##*/}"
	done
}

mount_foreground "$work/disk" -o shard_size=40KB
for i in 1 2 3 4 5 6 7 8; do
	read_all "$i" >"$work/failed.$i" &
	readers[i]=$!
done
wait "${readers[@]}"
kill -0 "$daemon" || fail "the daemon has ended"
failed=$(<"$work/failed.1")
[ -n "$failed" ] || fail "no file is affected"
grep -q 'not EIO' "$work"/failed.* && fail "another error than EIO"
for i in 2 3 4 5 6 7 8; do
	same "files that reader $i could not read" "$(<"$work/failed.$i")" "$failed"
done
[ "$(wc -l <<<"$failed")" -lt 4 ] || fail "one page makes too many files unreadable: $failed"
same "files named in the log, once each" "$(errors | cut -d: -f2 | sed 's|.*/||' | sort)" "$(sort <<<"$failed")"
errors | grep -v "$victim" && fail "a line that does not name $victim"
unmount

"$MCOREFS" verify "$work/disk" --deep >"$log" 2>&1 && fail "verify --deep finds nothing"
"$MCOREFS" export "$work/disk" hf "$work/bad" >"$log" 2>&1 && fail "export succeeds"
[ ! -e "$work/bad" ] || fail "a failed export left its result"
umount "$work/disk" && wait "$disk"

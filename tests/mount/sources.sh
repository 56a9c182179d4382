#!/bin/bash
# Sources that change under 8 readers: an error for what depends on them, one line in the log, and the
# rest of the mount goes on.
. "$(dirname "$0")/lib.sh"

fixture=weights/llama-torch-tp2-pp2
victim=mp_rank_01_000/model_optim_rng.pt

reader() {
	local file
	while [ ! -e "$work/stop" ]; do
		for file in "$mnt"/latest/hf/*; do
			cat "$file" >/dev/null 2>>"$work/read.$1"
			dd if="$file" of=/dev/null bs=64K iflag=direct status=none 2>>"$work/read.$1"
			touch "$work/begun.$1"
			[ ! -e "$work/stop" ] || break
		done
	done
}

all_have_begun() {
	[ "$(find "$work" -name 'begun.*' | wc -l)" = 8 ]
}

two_have_failed() {
	[ "$(find "$work" -name 'read.*' -size +0 | wc -l)" -ge 2 ]
}

damage() {
	case $1 in
	truncate) truncate -s 5000 "$2" ;;
	delete) rm "$2" ;;
	replace) cp "$2" "$2.new" && mv "$2.new" "$2" ;;
	rewrite) dd if=/dev/urandom of="$2" bs=4096 seek=4 count=4 conv=notrunc status=none ;;
	extend) echo >>"$2" ;;
	touch) touch "$2" ;;
	esac
}

for how in truncate delete replace rewrite extend touch; do
	copy_fixture "$fixture"
	touch -d @1000000000 "$ckpt"/iter_*/$victim # a change shows in it, however coarse the times are
	rm -f "$log" "$work/stop" "$work"/read.* "$work"/begun.*
	mount_foreground "$ckpt" -o shard_size=40KB
	cached=$(echo "$mnt"/latest/hf/model-00001-of-*)
	sum=$(sha256sum <"$cached")
	readers=()
	for i in 1 2 3 4 5 6 7 8; do
		reader "$i" &
		readers+=($!)
	done
	wait_until "$how: all have begun" all_have_begun
	damage $how "$(echo "$ckpt"/iter_*/$victim)"
	wait_until "$how: readers meet errors" two_have_failed
	touch "$work/stop"
	wait "${readers[@]}"

	kill -0 "$daemon" || fail "$how: the daemon has ended"
	# What the page cache still holds are the right bytes; what it let go of is an error, never others.
	if cat "$cached" >"$work/cached" 2>/dev/null; then
		same "$how: what the page cache holds" "$(sha256sum <"$work/cached")" "$sum"
	fi
	grep -hv 'Stale file handle\|Input/output error' "$work"/read.* && fail "$how: other errors"
	[ -n "$(errors)" ] || fail "$how: nothing was logged"
	same "$how: files with more than one line in the log" "$(errors | cut -d: -f2 | sort | uniq -d)" ""
	errors | grep -v "$victim" && fail "$how: a line that does not name $victim"
	unmount
done

# What does not depend on the source is whole all the time, and a second look fails in the same way.
read_all() {
	(cd "$mnt/latest/hf" && for f in *; do cat "$f" >/dev/null 2>&1 || echo "$f"; done)
}

copy_fixture "$fixture"
mount_source "$ckpt" -o shard_size=40KB
same "files that cannot be read before" "$(read_all)" ""
unmount
mount_source "$ckpt" -o shard_size=40KB
rm "$(echo "$ckpt"/iter_*/$victim)"
failed=$(read_all)
[ -n "$failed" ] || fail "a deleted source goes unnoticed"
same "a second look" "$(read_all)" "$failed"
[ "$(wc -l <<<"$failed")" -lt "$(find "$mnt/latest/hf/" -name 'model-*' | wc -l)" ] ||
	fail "all files fail though one source of four is gone"

#!/bin/bash
# Sources that change under 8 readers: an error for what depends on them, one line in the log, and the
# rest of the mount goes on.
. "$(dirname "$0")/lib.sh"

fixture=weights/llama-torch-tp2-pp2
victim=mp_rank_01_000/model_optim_rng.pt
untouched=mp_rank_01_001

# The shards that hold nothing of the first pipeline stage are read right to the end of each case.
reader() {
	local file
	while [ ! -e "$work/stop" ]; do
		for file in "$mnt"/latest/hf/*; do
			cat "$file" >/dev/null 2>>"$work/errors.$1"
			dd if="$file" of=/dev/null bs=64K iflag=direct status=none 2>>"$work/errors.$1"
		done
	done
}

read_all() {
	(cd "$mnt/latest/hf" && for f in *; do cat "$f" >/dev/null 2>&1 || echo "$f"; done)
}

for damage in truncate delete replace rewrite extend touch; do
	copy_fixture "$fixture"
	file=$(echo "$ckpt"/iter_*/$victim)
	rm -f "$log" "$work/stop" "$work"/errors.*
	mount_foreground "$ckpt" -o shard_size=40KB
	cached=$mnt/latest/hf/model-00001-of-$(printf %05d "$(find "$mnt/latest/hf/" -name 'model-*' ! -name '*.json' | wc -l)").safetensors
	sum=$(sha256sum <"$cached")
	readers=
	for i in 1 2 3 4 5 6 7 8; do
		reader "$i" &
		readers="$readers $!"
	done
	sleep 0.3
	case $damage in
	truncate) truncate -s 5000 "$file" ;;
	delete) rm "$file" ;;
	replace) cp "$file" "$file.new" && mv "$file.new" "$file" ;;
	rewrite) dd if=/dev/urandom of="$file" bs=4096 seek=4 count=4 conv=notrunc status=none ;;
	extend) echo >>"$file" ;;
	touch) touch "$file" ;;
	esac
	sleep 0.7
	touch "$work/stop"
	# shellcheck disable=SC2086
	wait $readers

	kill -0 "$daemon" || fail "$damage: the daemon has ended"
	same "$damage: what a page cache holds" "$(sha256sum <"$cached")" "$sum"
	cat "$work"/errors.* | grep -v 'Stale file handle\|Input/output error' && fail "$damage: other errors"
	[ -s "$(find "$work" -name 'errors.*' -size +0 | head -1)" ] || fail "$damage: no reader met an error"
	bad=$(awk -F': ' '!/is mounted on/ { print $2 }' "$log")
	[ -n "$bad" ] || fail "$damage: nothing was logged"
	same "$damage: files with more than one line in the log" "$(sort <<<"$bad" | uniq -d)" ""
	grep -v 'is mounted on' "$log" | grep -qv "$victim" && fail "$damage: a line that does not name $victim"
	# Drop what is cached: now exactly the files that depend on the victim fail.
	unmount
	mount_before=$log
	copy_fixture "$fixture"
	[ -s "$mount_before" ]
done

# Another stage's files are whole all the time.
copy_fixture "$fixture"
mount_foreground "$ckpt" -o shard_size=40KB
rm "$(echo "$ckpt"/iter_*/$victim)"
failed=$(read_all)
[ -n "$failed" ] || fail "a deleted source goes unnoticed"
same "a second look" "$(read_all)" "$failed"
[ "$(wc -l <<<"$failed")" -lt "$(find "$mnt/latest/hf/" -name '*.safetensors' | wc -l)" ] ||
	fail "all files fail though one source of four is gone"
grep -q "$untouched" "$log" && fail "a file that is there is blamed"
unmount

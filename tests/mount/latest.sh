#!/bin/bash
# latest never goes back: not even for a process that reads a listing that it has opened before it moved.
. "$(dirname "$0")/lib.sh"
late=$BIN/late_listing
[ -x "$late" ] || fail "$late is not built"

ckpt=$work/ckpt
cp -a "$FIXTURES/resume/llama-torch_dist-tp2-pp2" "$ckpt"
mount_foreground "$ckpt"
for i in 60 80 100; do
	mkfifo "$work/go.$i" "$work/said.$i"
	"$late" "$mnt" "$mnt/latest" <"$work/go.$i" >"$work/said.$i" &
	exec 5>"$work/go.$i" 6<"$work/said.$i"
	read -r said <&6
	same 'the listing' "$said" opened
	name=$(printf 'iter_%07d' "$i")
	cp -a "$ckpt/iter_0000040" "$ckpt/new"
	mv "$ckpt/new" "$ckpt/$name"
	echo -n "$i" >"$ckpt/latest_checkpointed_iteration.txt"
	moved() { [ "$(readlink "$mnt/latest")" = "$name" ]; }
	wait_until "latest is $name" moved
	echo go >&5
	read -r before <&6
	read -r after <&6
	same "$name: before the old listing is read" "$before" "$name"
	same "$name: after it" "$after" "$name"
	exec 5>&- 6<&-
done
unmount

#!/bin/bash
# What was listed of iterations that are deleted is given back, without the kernel being short of memory; what somebody has open
# is read on.
. "$(dirname "$0")/lib.sh"

ckpt=$work/ckpt
cp -a "$FIXTURES/resume/llama-torch_dist-tp2-pp2" "$ckpt"
known() {
	sed -n 's/^mcorefs_iterations_known{.*} //p' "$mnt/.mcorefs/stats"
}
# known_is COUNT: the daemon looks when it is told to.
known_is() {
	kill -HUP "$daemon"
	[ "$(known)" = "$1" ]
}

mount_foreground "$ckpt"
find "$mnt" -type f -size -100k -exec cat {} + >/dev/null || fail 'reading all'
same 'known at first' "$(known)" 2
for i in 60 80 100 120; do
	cp -a "$ckpt/iter_0000040" "$ckpt/new" && mv "$ckpt/new" "$ckpt/$(printf 'iter_%07d' $i)"
	echo -n $i >"$ckpt/latest_checkpointed_iteration.txt"
	wait_until "iteration $i is shown" test -d "$mnt/$(printf 'iter_%07d' $i)"
	find "$mnt" -type f | wc -l >"$work/count"
done
same 'known' "$(known)" 6
exec 5<"$mnt/iter_0000060/hf/model.safetensors"
sum=$(sha256sum <"$mnt/iter_0000060/hf/model.safetensors")
rm -r "$ckpt/iter_0000060" "$ckpt/iter_0000080" "$ckpt/iter_0000100"
wait_until 'two of the three are forgotten' known_is 4
sleep 1.1
known_is 4 || fail "with a file open: $(known)"
same 'the open file' "$(sha256sum <&5)" "$sum"
exec 5<&-
cat "$mnt/iter_0000120/hf/config.json" >/dev/null || fail 'the last one'
unmount

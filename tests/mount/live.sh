#!/bin/bash
# A training run goes on: iterations appear when they are whole, latest moves, and what is open stays.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/resume/llama-torch_dist-tp2-pp2
tracker=latest_checkpointed_iteration.txt
ckpt=$work/ckpt
mkdir "$ckpt"
cp -a "$from/iter_0000020" "$ckpt"
printf 20 >"$ckpt/$tracker"
mount_foreground "$ckpt"
same "latest" "$(readlink "$mnt/latest")" iter_0000020
old=$(sha256sum <"$mnt/latest/hf/model.safetensors")
exec 5<"$mnt/latest/hf/model.safetensors"
inode=$(stat -c %i "$mnt/iter_0000020/hf/model.safetensors")

# A save in the making: files, but the tracker does not name them yet.
cp -a "$from/iter_0000040" "$ckpt"
for _ in 1 2 3 4 5 6; do
	same "entries while a save is being written" "$(ls "$mnt")" "$(printf 'iter_0000020\nlatest')"
	same "latest while a save is being written" "$(readlink "$mnt/latest")" iter_0000020
	[ ! -e "$mnt/iter_0000040" ] || fail "an iteration that the tracker does not name is shown"
	sleep 0.4
done

printf 40 >"$ckpt/$tracker.new"
mv "$ckpt/$tracker.new" "$ckpt/$tracker"
latest_is() {
	[ "$(readlink "$mnt/latest")" = "$1" ]
}
wait_until "latest has moved" latest_is iter_0000040
same "entries after the save" "$(ls "$mnt")" "$(printf 'iter_0000020\niter_0000040\nlatest')"
same "links of the root" "$(stat -c %h "$mnt")" 4
new=$(sha256sum <"$mnt/latest/hf/model.safetensors")
[ "$new" != "$old" ] || fail "latest has moved, its weights have not"
same "the new iteration" "$(sha256sum <"$mnt/iter_0000040/hf/model.safetensors")" "$new"
same "the old iteration" "$(sha256sum <"$mnt/iter_0000020/hf/model.safetensors")" "$old"
same "a file opened before" "$(sha256sum <&5)" "$old"
same "inode number of the old iteration" "$(stat -c %i "$mnt/iter_0000020/hf/model.safetensors")" "$inode"
exec 5<&-

# Old iterations are cleaned up by the run.
rm -r "$ckpt/iter_0000020"
gone() {
	[ ! -e "$mnt/iter_0000020" ]
}
wait_until "a deleted iteration is gone" gone
same "entries after the clean-up" "$(ls "$mnt")" "$(printf 'iter_0000040\nlatest')"
unmapped() {
	! grep -q "iter_0000020" "/proc/$daemon/maps"
}
wait_until "no mapping keeps the deleted files' disk space" unmapped # the kernel tells of a closed file when it likes

# The same iteration written again is another one, under the same name and numbers.
cp -a "$from/iter_0000020" "$ckpt"
back() {
	[ -e "$mnt/iter_0000020/hf/config.json" ]
}
wait_until "an iteration written again is shown" back
same "bytes of an iteration written again" "$(sha256sum <"$mnt/iter_0000020/hf/model.safetensors")" "$old"
same "its inode number" "$(stat -c %i "$mnt/iter_0000020/hf/model.safetensors")" "$inode"
unmount
same "messages" "$(errors)" ""

#!/bin/bash
# Old iterations are deleted under their readers: who has a file open reads on to its end, in spite of the new one of that name
# if there is one, and the space is given back when the last one closes.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/resume/llama-torch_dist-tp2-pp2
ckpt=$work/ckpt
mkdir "$ckpt"
cp -a "$from"/iter_0000020 "$from"/iter_0000040 "$ckpt"
printf 40 >"$ckpt/latest_checkpointed_iteration.txt"
rank=megatron/torch/tp1-pp2/iter_0000020/mp_rank_00_001/model_optim_rng.pt

mount_foreground "$ckpt"
hf_sum=$(sha256sum <"$mnt/iter_0000020/hf/model.safetensors")
rank_sum=$(sha256sum <"$mnt/iter_0000020/$rank")
unmount

# What the daemon has of deleted files, as a mapping or a descriptor.
pinned() {
	grep -c "iter_0000020.*(deleted)" "/proc/$daemon/maps"
	find "/proc/$daemon/fd" -lname '*iter_0000020*(deleted)'
}
nothing_pinned() {
	[ "$(pinned)" = 0 ]
}
gone() {
	[ ! -e "$mnt/iter_0000020" ]
}

# Neither has been read: all bytes come from the deleted files.
mount_foreground "$ckpt"
exec 5<"$mnt/iter_0000020/hf/model.safetensors" 6<"$mnt/iter_0000020/$rank"
head -c 100 <&5 >"$work/head"
rm -r "$ckpt/iter_0000020"
wait_until "a deleted iteration is gone" gone
same "a file that was open" "$(cat "$work/head" - <&5 | sha256sum)" "$hf_sum"
same "a file that was open and is read for the first time" "$(sha256sum <&6)" "$rank_sum"
nothing_pinned && fail "nothing of the deleted files is left, while they are read"

# Another save of that name is another matter.
cp -a "$from/iter_0000040" "$ckpt/iter_0000020"
back() {
	[ -e "$mnt/iter_0000020/hf/config.json" ]
}
wait_until "an iteration written again is shown" back
[ "$(sha256sum <"$mnt/iter_0000020/hf/model.safetensors")" != "$hf_sum" ] || fail "the new one has the old one's bytes"
exec 5<&- 6<&-
wait_until "the space is given back" nothing_pinned
same "messages" "$(errors)" ""
unmount

# Nobody looks at the mount any more, and nobody has a file open: the deleted files are let go of all the same.
mount_foreground "$ckpt"
cat "$mnt"/iter_0000020/hf/* >/dev/null
grep -q iter_0000020 "/proc/$daemon/maps" || fail "nothing is mapped after reading"
rm -r "$ckpt/iter_0000020"
wait_until "the space is given back though nobody asks" nothing_pinned
unmount
same "messages" "$(errors)" ""

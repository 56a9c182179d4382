#!/bin/bash
# A run is mounted before it has saved, or while its last save is not whole: what is not there yet appears.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/resume/llama-torch_dist-tp2-pp2
tracker=latest_checkpointed_iteration.txt
ckpt=$work/ckpt
mkdir "$ckpt"

# What is wrong for certain is still refused.
refused 'no SOURCE' 1 'No such file or directory' "$MCOREFS" "$work/none" "$mnt"
refused 'a family that does not exist' 1 'no such family' "$MCOREFS" "$ckpt" "$mnt" -o arch=frobnicate
refused 'a reference that does not exist' 1 "$work/none" "$MCOREFS" "$ckpt" "$mnt" -o "ref=$work/none"
refused 'commands on an empty directory' 1 'holds no Megatron checkpoint' "$MCOREFS" inspect "$ckpt"
mkdir "$work/models"
mkdir "$work/models/llama"
refused 'a directory of something else' 1 'holds no Megatron checkpoint' "$MCOREFS" "$work/models" "$mnt"
not_mounted || fail 'something was mounted'

is_shown() {
	[ -s "$mnt/$1/hf/config.json" ]
}

"$MCOREFS" "$ckpt" "$mnt" -o arch=LlamaForCausalLM 2>/dev/null || fail 'a family by the name of its architecture'
unmount

if is_root || command -v fusermount3 >/dev/null; then
	"$MCOREFS" --mount-helper "$ckpt" "$mnt" -o rw 2>"$log" || fail "mount(8) of a run that has not saved: status $?"
	grep -q 'no iteration was saved yet' "$log" || fail 'mount(8) of a run that has not saved: no warning'
	unmount
fi

for before in nothing logs; do
	rm -rf "$ckpt" "$log"
	mkdir "$ckpt"
	[ $before = nothing ] || mkdir "$ckpt/tensorboard" "$ckpt/wandb"
	[ $before = nothing ] || touch "$ckpt/progress.txt" "$ckpt/train-0.log"
	mount_foreground "$ckpt"
	grep -q "^mcorefs: $ckpt: no iteration was saved yet; " "$log" || fail "$before: no warning"
	same "$before: entries" "$(ls -A "$mnt")" ''
	same "$before: time" "$(stat -c %Y "$mnt")" "$(stat -c %Y "$ckpt")"
	[ ! -e "$mnt/latest" ] || fail "$before: latest is there"
	cp -a "$from/iter_0000020" "$ckpt"
	printf 20 >"$ckpt/$tracker"
	wait_until "$before: the first save is shown" is_shown latest
	same "$before: entries after the first save" "$(ls "$mnt")" "$(printf 'iter_0000020\nlatest')"
	same "$before: bytes" "$("$MCOREFS" verify "$ckpt" --deep --sums | (cd "$mnt/latest/hf" && sha256sum -c --quiet - 2>&1))" ''
	unmount
done

# The tracker names what is not whole: the others are shown.
rm -rf "$ckpt" "$log"
mkdir "$ckpt"
cp -a "$from/iter_0000020" "$from/iter_0000040" "$ckpt"
victim=$(find "$ckpt/iter_0000040" -name '*.distcp' | sort | head -n 1)
mv "$victim" "$work/kept"
printf 40 >"$ckpt/$tracker"
mount_foreground "$ckpt"
grep -q "^mcorefs: $ckpt: iter_0000040, which the tracker names, is incomplete: .*${victim##*/}" "$log" || fail 'no warning names the file'
same 'entries beside one that is not whole' "$(ls "$mnt")" iter_0000020
is_shown iter_0000020 || fail 'the other iteration is not shown'
mv "$work/kept" "$victim"
wait_until 'it is shown once it is whole' is_shown latest
same 'latest' "$(readlink "$mnt/latest")" iter_0000040
unmount

# The tracker is ahead, or nonsense; one iteration directory whose save has not begun.
for text in 60 soon; do
	printf %s $text >"$ckpt/$tracker"
	mount_source "$ckpt" 2>"$log"
	grep -q "$text" "$log" || fail "tracker $text: no warning"
	same "tracker $text: entries" "$(ls "$mnt")" "$(printf 'iter_0000020\niter_0000040')"
	printf 40 >"$ckpt/$tracker"
	wait_until "tracker $text: latest" is_shown latest
	unmount
done
mkdir "$work/iter_0000060"
mount_source "$work/iter_0000060" 2>/dev/null
same 'an iteration that has not begun' "$(ls -A "$mnt")" ''
cp -a "$from/iter_0000040/." "$work/iter_0000060"
wait_until 'it is shown' is_shown latest
same 'an iteration by itself' "$(ls "$mnt")" "$(printf 'iter_0000060\nlatest')"

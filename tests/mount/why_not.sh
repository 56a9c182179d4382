#!/bin/bash
# Views that a model cannot have are not listed; why-not.txt says why, and so does the log.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/resume/llama-torch_dist-tp2-pp2
tracker=latest_checkpointed_iteration.txt
ckpt=$work/ckpt
mkdir "$ckpt"
cp -a "$from/iter_0000020" "$ckpt"
printf 20 >"$ckpt/$tracker"

without_hf=$(printf 'megatron\nraw\nwhy-not.txt')
mount_foreground "$ckpt" -o arch=gpt2
same 'entries of the root' "$(ls "$mnt")" "$(printf 'iter_0000020\nlatest')"
same 'entries' "$(ls "$mnt/latest/")" "$without_hf"
grep -q '^hf, hf-bf16, .*: .*this model is not a gpt2: it has SwiGLU' "$mnt/latest/why-not.txt" || fail "why-not.txt: $(cat "$mnt/latest/why-not.txt")"
same 'lines' "$(wc -l <"$mnt/latest/why-not.txt")" 1
same 'size' "$(stat -c %s "$mnt/latest/why-not.txt")" "$(wc -c <"$mnt/latest/why-not.txt")"
same 'mode' "$(stat -c %A "$mnt/latest/why-not.txt")" -r--r--r--
same 'links' "$(stat -L -c %h "$mnt/latest")" 4
for _ in 1 2 3; do
	[[ $(ls "$mnt/latest/hf" 2>&1) == *'No such file or directory' ]] || fail "hf is no ENOENT"
done
same 'lines in the log' "$(errors | wc -l)" 1
errors | grep -q "^mcorefs: $mnt/iter_0000020: there is no hf: .*not a gpt2" || fail "the log does not say why: $(errors)"
[ -s "$mnt/latest/megatron/torch/tp1-pp1/$tracker" ] || fail 'megatron cannot be entered'
[ -s "$mnt/latest/raw/model.safetensors" ] || fail 'raw cannot be entered'
[ ! -e "$mnt/latest/none" ] || fail 'a name that is none'
find "$mnt" -type f -exec cat {} + >/dev/null || fail 'what is listed cannot be read'

# An iteration that comes later, and a remount: the same.
before=$(stat -c '%i %s %Y' "$mnt/iter_0000020/why-not.txt")
cp -a "$from/iter_0000040" "$ckpt"
printf 40 >"$ckpt/$tracker"
is_there() {
	[ -s "$mnt/iter_0000040/why-not.txt" ]
}
wait_until 'a new iteration is there' is_there
same 'entries of a new iteration' "$(ls "$mnt/iter_0000040")" "$without_hf"
unmount
mount_source "$ckpt" -o arch=gpt2 2>/dev/null
same 'after a remount' "$(stat -c '%i %s %Y' "$mnt/iter_0000020/why-not.txt")" "$before"
unmount

# ls says the same; the commands that want the view say why.
out=$("$MCOREFS" ls "$ckpt" -o arch=gpt2 2>"$log")
same 'ls: exit status' "$?" 1
same 'ls' "$(awk '{ print $5 }' <<<"$out" | grep -xc 'why-not.txt\|megatron/\|hf/')" 4
grep -q '^mcorefs: iter_0000040/hf: .*not a gpt2' "$log" || fail 'ls does not say why'
refused 'verify' 1 'not a gpt2' "$MCOREFS" verify "$ckpt" -o arch=gpt2

# What is missing when an iteration comes: the reference.
rm -rf "$ckpt/iter_0000040" "$log"
printf 20 >"$ckpt/$tracker"
"$MCOREFS" export "$ckpt" hf "$work/ref" >/dev/null || fail 'export'
mount_foreground "$ckpt" -o "ref=$work/ref"
[ -d "$mnt/latest/hf" ] && [ ! -e "$mnt/latest/why-not.txt" ] || fail 'entries with a reference'
rm "$work/ref/config.json"
cp -a "$from/iter_0000040" "$ckpt"
printf 40 >"$ckpt/$tracker"
wait_until 'an iteration without a reference is there' is_there
same 'entries without a reference' "$(ls "$mnt/iter_0000040")" "$without_hf"
grep -q "^hf, hf-bf16, .*: .*$work/ref.*config.json" "$mnt/iter_0000040/why-not.txt" || fail "why-not.txt: $(cat "$mnt/iter_0000040/why-not.txt")"

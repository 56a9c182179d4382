#!/bin/bash
# A mount of many iterations, all of them walked: what nobody reads is let go of, and what was shown stays.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/weights/llama-torch-tp2-pp2
count=40
ckpt=$work/ckpt
mkdir "$ckpt"
# Links do not reach another file system, and leave directories when they fail.
link=l
cp -al "$from"/iter_* "$work/probe" 2>/dev/null || link=
rm -rf "$work/probe"
for i in $(seq "$count"); do
	cp -a$link "$from"/iter_* "$ckpt/$(printf 'iter_%07d' "$i")"
done
cp -a "$FIXTURES/data/notes_text_document".{bin,idx} "$work"

descriptors() {
	find "/proc/$daemon/fd" -mindepth 1 | wc -l
}

walk() {
	(cd "$mnt" && find . -type f ! -path './data/*' -printf '%p %i %s %T@\n' | sort)
}

mount_foreground "$ckpt" -o data="$work/notes_text_document"
before=$(descriptors)
exec 5<"$mnt/iter_0000001/hf/model.safetensors"
exec 6<"$mnt/data/notes_text_document/npy/$(ls "$mnt/data/notes_text_document/npy" | head -n 1)"
sum=$(sha256sum <"$mnt/iter_0000001/hf/model.safetensors")
walk >"$work/first"
[ "$(wc -l <"$work/first")" -gt $((count * 10)) ] || fail "few files: $(wc -l <"$work/first")"
# Three each, were they kept: of the model, of what Megatron views are made of, of the tokenizer.
[ "$(descriptors)" -lt $((before + count)) ] ||
	fail "$before descriptors before the walk, $(descriptors) after it"

# Views that were let go of are opened again: the same names, numbers, sizes and times, and the same bytes.
walk | cmp - "$work/first" || fail "a second walk shows something else"
for i in 1 20 "$count"; do
	iteration=$mnt/$(printf 'iter_%07d' "$i")
	same "weights of iteration $i" "$(sha256sum <"$iteration/hf/model.safetensors")" "$sum"
	cat "$iteration"/megatron/torch/tp2-pp1/iter_*/mp_rank_00/model_optim_rng.pt >"$work/rank"
	[ -s "$work/rank" ] || fail "iteration $i: an empty rank file"
	[ ! -s "$work/rank.1" ] || [ "$(stat -c %s "$work/rank")" = "$(stat -c %s "$work/rank.1")" ] ||
		fail "iteration $i: a rank file of another size"
	cp "$work/rank" "$work/rank.1"
done
same "a file that was open all the time" "$(sha256sum <&5)" "$sum"
[ "$(descriptors)" -lt $((before + count)) ] || fail "descriptors after reading: $(descriptors)"

# Specs of samples that were entered likewise.
for i in $(seq 1 60); do
	ls "$mnt/data/notes_text_document/samples/train-s8-n$i" >/dev/null || fail "spec number $i"
done
cat "$mnt/data/notes_text_document/samples/train-s8-n1"/* >/dev/null || fail "reading a spec entered first"
cat <&6 >/dev/null || fail "a dataset's file that was open all the time"
exec 5<&- 6<&-
unmount
same "messages" "$(errors)" ""

#!/bin/bash
# File handles, as NFS servers keep them, lead to the same files when the kernel has forgotten these, and when another daemon
# serves the mount; to nothing when the iteration was saved again.
. "$(dirname "$0")/lib.sh"
is_root || skip 'needs root, for open_by_handle_at(2)'
handles=$BIN/handles
[ -x "$handles" ] || fail "$handles is not built"

cp -a "$FIXTURES/resume/llama-torch_dist-tp2-pp2" "$work/ckpt"
ckpt=$work/ckpt
cp -a "$FIXTURES/data/notes_text_document".{bin,idx} "$work"
hf=iter_0000020/hf
paths=(. iter_0000020 $hf $hf/config.json $hf/model.safetensors iter_0000020/raw iter_0000020/megatron
	iter_0000020/megatron/torch_dist/iter_0000020/.metadata iter_0000040/megatron/torch
	iter_0000040/megatron/torch/tp2-pp1/iter_0000040/mp_rank_00/model_optim_rng.pt
	iter_0000040/megatron/torch/tp2-pp1/iter_0000040 data/notes_text_document/hf/state.json
	data/notes_text_document/samples)

# What can be had again without its name: nothing that the kernel knew is needed.
forget() {
	for _ in 1 2 3; do
		echo 2 >/proc/sys/vm/drop_caches || return
	done 2>/dev/null
}

# opened TEXT: each handle leads to what its path leads to.
opened() {
	"$handles" check "$work/handles" "$mnt" >"$work/found" || fail "$1: the handles cannot be read"
	cmp "$work/expected" "$work/found" || fail "$1: $(diff "$work/expected" "$work/found")"
}

mount_foreground "$ckpt" -o data="$work/notes_text_document"
cd "$mnt" || fail 'cannot enter the mount'
"$handles" save "$work/handles" "${paths[@]}" 2>"$work/why" ||
	{ cd / && grep -q 'not supported' "$work/why" && skip "the kernel gives no handles: $(cat "$work/why")"; }
cd / || exit 1
"$handles" check "$work/handles" "$mnt" >"$work/expected"
same 'handles' "$(wc -l <"$work/expected")" "${#paths[@]}"
same 'config.json by its handle' "$(sed -n 4p "$work/expected" | cut -d' ' -f1)" "$(stat -c %i "$mnt/$hf/config.json")"
grep -qE '^E' "$work/expected" && fail "fresh handles: $(cat "$work/expected")"

forget || skip 'the kernel cannot be told to forget (drop_caches)'
opened 'after the kernel has forgotten them'

# A view that no listing names, while this daemon lives.
(cd "$mnt/iter_0000040/megatron/torch/tp2-pp2-vpp2/iter_0000040/mp_rank_01_001" && "$handles" save "$work/unlisted" model_optim_rng.pt)
"$handles" check "$work/unlisted" "$mnt" >"$work/expected.unlisted"
grep -qE '^[0-9]+ f' "$work/expected.unlisted" || fail "an unlisted view: $(cat "$work/expected.unlisted")"
forget
same 'an unlisted view' "$("$handles" check "$work/unlisted" "$mnt")" "$(cat "$work/expected.unlisted")"

# Another daemon, which nobody has asked for a name yet.
unmount
mount_foreground "$ckpt" -o data="$work/notes_text_document"
opened 'after a remount'
same 'an unlisted view that nobody has named' "$("$handles" check "$work/unlisted" "$mnt")" ESTALE
"$handles" parent "$work/handles" "$mnt" >"$work/parents"
same 'the parent of hf/' "$(sed -n 3p "$work/parents")" "$(stat -c %i "$mnt/iter_0000020")"
same 'the parent of an iteration' "$(sed -n 2p "$work/parents")" "$(stat -c %i "$mnt")"

# The same files with other inodes, as a network file system that was mounted again has other device numbers.
unmount
cp -a "$ckpt" "$work/copied"
rm -r "$ckpt"
mv "$work/copied" "$ckpt"
for file in "$work"/notes_text_document.*; do
	cp -a "$file" "$file.copied"
	mv "$file.copied" "$file"
done
mount_foreground "$ckpt" -o data="$work/notes_text_document"
opened 'with other inodes'

# Killed, with a file open by its handle.
exec 5<"$mnt/$hf/model.safetensors"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
daemon=
exec 5<&-
umount -l "$mnt"
mount_foreground "$ckpt" -o data="$work/notes_text_document"
opened 'after the daemon was killed'

same 'handles that nobody gave' "$("$handles" flood 2000 "$mnt")" '1 opened, 1999 ESTALE, 0 other'

# Saved again: the same names, other handles; the old ones lead to nothing.
before=$(stat -c %i "$mnt/$hf/model.safetensors")
for file in $(cd "$ckpt" && find iter_0000040 -type f ! -path '*/tokenizer/*'); do
	[ ! -e "$ckpt/iter_0000020/${file#*/}" ] || cat "$ckpt/$file" >"$ckpt/iter_0000020/${file#*/}"
done
saved_again() { ls "$mnt" >/dev/null && grep -q 'iter_0000020 was saved again' "$log"; }
wait_until 'the new save is seen' saved_again
same 'the number of a name' "$(stat -c %i "$mnt/$hf/model.safetensors")" "$before"
cat "$mnt/$hf/model.safetensors" >/dev/null || fail 'the new save cannot be read'
forget
"$handles" check "$work/handles" "$mnt" >"$work/found"
same 'handles of the save before' "$(sed -n '2,8p' "$work/found" | sort | uniq -c | sed 's/^ *//')" '7 ESTALE'
sed -n '9,13p' "$work/expected" | cmp - <(sed -n '9,13p' "$work/found") || fail 'handles of the other iteration'
unmount
mount_foreground "$ckpt" -o data="$work/notes_text_document"
"$handles" check "$work/handles" "$mnt" >"$work/found"
same 'handles of the save before, after a remount' "$(sed -n '2,8p' "$work/found" | sort | uniq -c | sed 's/^ *//')" '7 ESTALE'
unmount

# Files of dataset_cache: their handles end with them, and lead to none that was made later.
mkdir "$work/cache"
mount_foreground "$ckpt" -o "data=$work/notes_text_document,dataset_cache=$work/cache"
cd "$mnt/data/notes_text_document/hf" || fail 'cannot enter a dataset'
names=(cache-{1..50})
for name in "${names[@]}"; do echo old >"$name"; done
"$handles" save "$work/handles" "${names[@]}"
rm "${names[@]}"
forget
for name in "${names[@]}"; do echo new >"$name.new"; done
cd / || exit 1
same 'handles of deleted files' "$("$handles" check "$work/handles" "$mnt" | sort | uniq -c | sed 's/^ *//')" '50 ESTALE'
unmount

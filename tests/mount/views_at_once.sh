#!/bin/bash
# Many readers enter views that nobody has opened, in different orders: all see the same bytes.
. "$(dirname "$0")/lib.sh"

sums() {
	(cd "$mnt/latest" && find hf megatron/torch_dist "megatron/torch/$1" -type f -exec sha256sum {} + | sort -k 2)
}

for source in "$FIXTURES"/weights/llama-torch-tp2-pp2 "$FIXTURES"/weights/mixtral-torch_dist-*; do
	name=${source##*/}
	mount_source "$source"
	mapfile -t layouts < <(ls "$mnt/latest/megatron/torch")
	[ "${#layouts[@]}" -gt 2 ] || fail "$name: few layouts"
	for layout in "${layouts[@]}" tp1-pp2-vpp2; do
		sums "$layout" >"$work/one.$layout" || fail "$name: $layout"
		[ -s "$work/one.$layout" ] || fail "$name: $layout is empty"
	done
	unmount

	mount_foreground "$source"
	readers=()
	for i in 1 2 3 4 5 6 7 8; do
		(
			for layout in $(printf '%s\n' "${layouts[@]}" tp1-pp2-vpp2 | sort -R | head -n 4); do
				ls "$mnt" "$mnt/latest/megatron/torch" >/dev/null
				[ ! -e "$mnt/latest/megatron/torch/tp7-pp$i" ] || exit 1
				sums "$layout" | cmp - "$work/one.$layout" || exit 1
			done
		) &
		readers+=($!)
	done
	for reader in "${readers[@]}"; do
		wait "$reader" || fail "$name: a reader saw something else"
	done
	unmount
	same "$name: messages" "$(errors)" ""
done

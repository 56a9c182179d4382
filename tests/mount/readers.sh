#!/bin/bash
# 10 000 random preads, mmap from 8 processes at once, O_DIRECT and the sequential read agree.
. "$(dirname "$0")/lib.sh"
[ -x "$BIN/reader" ] || fail "$BIN/reader is not built"

for source in "$FIXTURES"/weights/*; do
	name=${source##*/}
	"$MCOREFS" export "$source" hf "$work/$name" || fail "$name: export"
	for threads in "" -s; do
		for file in "$work/$name"/*; do
			# Each file anew: the first touch is the one that counts.
			# shellcheck disable=SC2086
			mount_source "$source" $threads
			"$BIN/reader" "$mnt/latest/hf/${file##*/}" "$file" 8 10000 || fail "$name: ${file##*/} $threads"
			unmount
		done
		case $name in llama-torch_dist-*) ;; *) break ;; esac
	done
done

#!/bin/bash
# cp -r, rsync, tar and export give the same directory.
. "$(dirname "$0")/lib.sh"

for source in "$FIXTURES"/weights/mixtral-torch_dist-* "$FIXTURES"/weights/gpt2-*; do
	name=${source##*/}
	mount_source "$source" -o shard_size=200KB
	rm -rf "$work"/out && mkdir "$work/out"
	"$MCOREFS" export "$source" hf "$work/out/export" -o shard_size=200KB || fail "$name: export"
	cp -r "$mnt/latest/hf" "$work/out/cp" || fail "$name: cp -r"
	tar -C "$mnt/latest" -cf - hf | tar -C "$work/out" -xf - || fail "$name: tar"
	[ "$(find "$work/out/cp" -name 'model-*.safetensors' | wc -l)" -gt 1 ] || fail "$name: one shard only"
	diff -r "$work/out/export" "$work/out/cp" || fail "$name: export and cp differ"
	diff -r "$work/out/export" "$work/out/hf" || fail "$name: export and tar differ"
	if command -v rsync >/dev/null; then
		rsync -a "$mnt/latest/hf/" "$work/out/rsync" || fail "$name: rsync"
		diff -r "$work/out/export" "$work/out/rsync" || fail "$name: export and rsync differ"
		same "$name: what a second rsync sends" \
			"$(rsync -a --out-format=%n "$mnt/latest/hf/" "$work/out/rsync")" ""
	fi
	unmount
done

#!/bin/bash
# cp -r, rsync, tar and export give the same directory.
. "$(dirname "$0")/lib.sh"

for source in "$FIXTURES"/weights/mixtral-torch_dist-* "$FIXTURES"/weights/gpt2-*; do
	name=${source##*/}
	mount_source "$source" -o shard_size=200KB
	out=$work/out-$name # copies keep the modes, by which their owner cannot remove them
	mkdir "$out"
	"$MCOREFS" export "$source" hf "$out/export" -o shard_size=200KB || fail "$name: export"
	cp -r "$mnt/latest/hf" "$out/cp" || fail "$name: cp -r"
	tar -C "$mnt/latest" -cf - hf | tar -C "$out" -xf - || fail "$name: tar"
	[ "$(find "$out/cp" -name 'model-*.safetensors' | wc -l)" -gt 1 ] || fail "$name: one shard only"
	diff -r "$out/export" "$out/cp" || fail "$name: export and cp differ"
	diff -r "$out/export" "$out/hf" || fail "$name: export and tar differ"
	if command -v rsync >/dev/null; then
		rsync -a "$mnt/latest/hf/" "$out/rsync" || fail "$name: rsync"
		diff -r "$out/export" "$out/rsync" || fail "$name: export and rsync differ"
		same "$name: what a second rsync sends" \
			"$(rsync -a --out-format=%n "$mnt/latest/hf/" "$out/rsync")" ""
	fi
	unmount
done

#!/bin/bash
# -o verify=crc|sha256: who reads gets bytes that have the source's sums, or EIO; one line says which have not.
. "$(dirname "$0")/lib.sh"

copy_fixture "$(cd "$FIXTURES" && echo weights/qwen3-torch_dist-*)"
chmod -R u+w "$ckpt"
it=$(echo "$ckpt"/iter_*)
"$MCOREFS" export "$ckpt" hf "$work/good" >/dev/null || fail export

# The files of hf that reader $1 sees differ from the good ones, or cannot read.
differing() {
	local f
	for f in "$work"/good/*; do
		cmp -s "$f" "$mnt/latest/hf/${f##*/}" 2>/dev/null || echo "${f##*/}"
	done >"$work/differ.$1"
}

# read_at_once: eight readers, who all see the same.
read_at_once() {
	local i readers=()
	for i in 1 2 3 4 5 6 7 8; do
		differing "$i" &
		readers+=($!)
	done
	wait "${readers[@]}"
	for i in 2 3 4 5 6 7 8; do
		cmp "$work/differ.1" "$work/differ.$i" || fail "$1: readers disagree"
	done
}

write_sums() {
	local f comma=
	{
		printf '{"algorithm": "sha256", "files": {'
		for f in .metadata metadata.json $(cd "$it" && ls -- *.distcp); do
			printf '%s"%s": "%s"' "$comma" "$f" "$(sha256sum "$it/$f" | cut -d ' ' -f 1)"
			comma=', '
		done
		printf '}}'
	} >"$it/integrity.json"
}

mount_foreground "$ckpt" -o verify=sha256
grep -q 'verify=sha256: there is no integrity.json' "$log" || fail 'no sums: the mount does not say so'
unmount
write_sums
printf '\377' | dd of="$it/__2_0.distcp" bs=1 seek=5000 conv=notrunc status=none
for verify in crc sha256; do
	: >"$log"
	mount_foreground "$ckpt" -o "verify=$verify"
	grep -q 'verify=' "$log" && fail "$verify: a warning, though there are sums"
	read_at_once "$verify"
	same "$verify: files" "$(<"$work/differ.1")" model.safetensors
	cat "$mnt/latest/hf/model.safetensors" 2>"$work/said" >/dev/null
	grep -q 'Input/output error' "$work/said" || fail "$verify: not EIO: $(<"$work/said")"
	unmount
	same "$verify: lines" "$(errors | wc -l)" 1
	for part in "tensor 'embedding" /__2_0.distcp 'hf/model.safetensors: ' ' \(expected\|integrity.json says\) [0-9a-f]'; do
		errors | grep -q -- "$part" || fail "$verify: no '$part' in: $(errors)"
	done
	refused "$verify: export" 1 '__2_0.distcp' "$MCOREFS" export "$ckpt" hf "$work/out" -o "verify=$verify"
done
cp "$FIXTURES"/weights/qwen3-torch_dist-*/iter_*/__2_0.distcp "$it"
write_sums
for verify in crc sha256; do
	mount_foreground "$ckpt" -o "verify=$verify"
	read_at_once "$verify"
	same "$verify: files that differ" "$(<"$work/differ.1")" ''
	unmount
done
refused 'verify=md5' 2 "takes 'crc' or 'sha256', not 'md5'" "$MCOREFS" ls "$ckpt" -o verify=md5

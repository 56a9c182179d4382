#!/bin/bash
# The tree and its attributes, the same after a remount.
. "$(dirname "$0")/lib.sh"

# Python is a peer that need not be here; without it the braces must do.
is_json() {
	if command -v python3 >/dev/null; then
		python3 -m json.tool "$1" >/dev/null
	else
		[ "$(head -c 1 "$1")" = "{" ] && [ "$(tail -n 1 "$1")" = "}" ]
	fi
}

attributes() {
	(cd "$mnt" && find . -exec stat -c '%n %i %s %b %f %h %u %g %Y %y' {} +) | sort
}

for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	[ -d "$source" ] || continue
	name=${source##*/}
	mount_source "$source"
	latest=$(printf 'iter_%07d' "$(<"$source/latest_checkpointed_iteration.txt")")
	same "$name: latest" "$(readlink "$mnt/latest")" "$latest"
	same "$name: iterations" "$(cd "$mnt" && echo iter_*)" "$(cd "$source" && echo iter_*)"
	same "$name: in an iteration" "$(ls "$mnt/latest/")" "$(views_of "$name")"
	same "$name: in megatron" "$(ls "$mnt/latest/megatron")" "$(megatron_of "$name")"
	for file in config.json generation_config.json; do
		[ -f "$mnt/latest/hf/$file" ] || fail "$name: no $file"
		is_json "$mnt/latest/hf/$file" || fail "$name: $file is not JSON"
	done
	compgen -G "$mnt/latest/hf/model*.safetensors" >/dev/null || fail "$name: no weights"

	same "$name: names found by lookup" "$(cd "$mnt/latest/hf" && stat -c %n -- *)" "$(ls "$mnt/latest/hf")"
	same "$name: links of the root" "$(stat -c %h "$mnt")" "$((2 + $(find "$mnt"/* -maxdepth 0 -type d | wc -l)))"
	same "$name: links of an iteration" "$(stat -L -c %h "$mnt/latest")" "$((2 + $(views_of "$name" | wc -l)))"
	same "$name: links of megatron" "$(stat -c %h "$mnt/latest/megatron")" "$((2 + $(megatron_of "$name" | wc -l)))"
	same "$name: inode numbers" "$(find "$mnt" -printf '%i\n' | sort | uniq -d)" ""
	same "$name: types" "$(find "$mnt" -type f ! -perm 444)" ""
	same "$name: du" "$(du -s -B1 "$mnt" | cut -f1)" \
		"$(find "$mnt" -type f -printf '%s\n' | awk '{ n += int(($1 + 511) / 512) * 512 } END { print n }')"
	find "$mnt" -type f -size 0 | grep . && fail "$name: empty files"
	[ ! -e "$mnt/latest/hf/no-such-file" ] || fail "$name: a file that is not there was found"
	[ ! -e "$mnt/no-such-file" ] || fail "$name: an entry that is not there was found"

	before=$(attributes)
	sums=$(cd "$mnt/latest/hf" && sha256sum -- *)
	unmount
	[ -n "${waited-}" ] || sleep 1.1 # a time that follows the clock would differ
	waited=1
	mount_source "$source" -s
	same "$name: attributes after a remount" "$(attributes)" "$before"
	same "$name: bytes after a remount" "$(cd "$mnt/latest/hf" && sha256sum -- *)" "$sums"
	unmount
done

# One iteration's directory as SOURCE.
source=$(echo "$FIXTURES"/weights/llama-torch-*/iter_*)
mount_source "$source"
same "a single iteration" "$(readlink "$mnt/latest")" "${source##*/}"
[ -s "$mnt/latest/hf/config.json" ] || fail "a single iteration shows no config.json"

# A tree that is listed while it is big enough for several requests.
unmount
mount_source "$source" -o shard_size=32KB
[ "$(find "$mnt/latest/hf/" -name 'model-*.safetensors' | wc -l)" -gt 3 ] || fail "shard_size=32KB makes few shards"

#!/bin/bash
# A HuggingFace directory as SOURCE: its views stand at the top of the mount, and hf is the same model.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
hf=$work/hf

for source in "$FIXTURES"/weights/*; do
	name=${source##*/}
	rm -rf "$hf"
	"$m" export "$source" hf "$hf" -o shard_size=200kB >/dev/null || fail "$name: export"
	echo '{{ messages }}' >"$hf/chat_template.jinja"
	mount_source "$hf" -o shard_size=200kB
	same "$name: the root" "$(ls "$mnt")" "$(views_of "$name")"
	same "$name: in megatron" "$(ls "$mnt/megatron")" "$(megatron_of "$name")"
	same "$name: links of the root" "$(stat -c %h "$mnt")" "$((2 + $(views_of "$name" | wc -l)))"
	# config.json is written anew: the same keys, but for its order and what says where it is from.
	diff -r -x config.json "$hf" "$mnt/hf" || fail "$name: hf of an HF directory differs"
	before=$(cd "$mnt" && find hf megatron -maxdepth 0 -exec stat -c '%n %i %h %u %g %y' {} + && sha256sum hf/*)
	unmount
	mount_source "$hf" -o shard_size=200kB
	same "$name: after a remount" "$(cd "$mnt" &&
		find hf megatron -maxdepth 0 -exec stat -c '%n %i %h %u %g %y' {} + && sha256sum hf/*)" "$before"
	unmount

	same "$name: ls" "$("$m" ls "$hf" hf -o shard_size=200kB | awk '{ print $5 }')" \
		"$(cd "$hf" && LC_ALL=C && printf '%s\n' * | sort)"
	same "$name: ls without a view" "$("$m" ls "$hf" | awk '/^d/ { print $5 }' | grep -v '^tp' | sort)" \
		"$(printf '%s/\n' $(views_of "$name") $(megatron_of "$name") | sort)"
	"$m" verify "$hf" --deep >"$log" || fail "$name: verify"
	tail -1 "$log" | grep -q '^hf: .* complete' || fail "$name: $(tail -1 "$log")"
	rm -rf "$work/again"
	"$m" export "$hf" hf "$work/again" -o shard_size=200kB >/dev/null || fail "$name: export of hf"
	diff -r -x config.json "$hf" "$work/again" || fail "$name: export of hf differs"
	"$m" inspect "$hf" >"$log" || fail "$name: inspect"
	grep -q 'format .* hf, ' "$log" || fail "$name: no format"
	grep -q iterations "$log" && fail "$name: iterations"
done

refused 'no iterations' 1 "has no view 'latest/hf': name hf, hf-bf16, .*megatron/torch/" "$m" verify "$hf" latest/hf
refused 'an iteration' 1 "has no view 'iter_0000040/hf'" "$m" ls "$hf" iter_0000040/hf

# config.json ties a head that is no copy of the embedding: readers must not be told so.
"$m" export "$FIXTURES"/weights/llama-torch-tp2-pp2 hf "$work/untied" >/dev/null || fail 'untied: export'
cp "$work/untied/config.json" "$work/config.json"
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$work/untied/config.json"
cmp -s "$work/config.json" "$work/untied/config.json" && fail 'untied: config.json is as before'
mount_source "$work/untied"
diff -r -x config.json "$work/untied" "$mnt/hf" || fail 'untied: other files or weights'
same 'untied: config.json' "$(cat "$mnt/hf/config.json")" "$(cat "$work/config.json")"
unmount
"$m" inspect "$work/untied" >"$log" || fail 'untied: inspect'
tr -d '│\n' <"$log" | tr -s ' ' | grep -q "'lm_head.weight' differs from 'model.embed_tokens.weight'" || fail 'untied: inspect'
same 'untied: with a vocabulary' "$("$m" export "$work/untied" hf "$work/cropped" -o vocab_size=100 2>&1 >/dev/null | grep -v differs)" ''
grep -q '"tie_word_embeddings": false' "$work/cropped/config.json" || fail 'untied: config.json with a vocabulary'
rm "$log"

# Llama 3.2's rotary scaling: no argument makes Megatron compute with another factor than 8.
cp -a "$work/untied" "$work/rope"
scaling='{"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "factor": 32.0}'
sed "/\"rope_parameters\": {/,/}/d; s/\"rope_scaling\": null/\"rope_scaling\": $scaling/" "$work/config.json" >"$work/rope/config.json"
"$m" ls "$work/rope" hf >"$log" || fail 'rope: hf'
refused 'rope' 1 'rotary scaling is 32, expected 8: releases of Megatron up to core 0.19 do not pass' "$m" ls "$work/rope" megatron/torch_dist
sed -i 's/"factor": 32.0/"factor": 8.0/' "$work/rope/config.json"
"$m" ls "$work/rope" megatron/torch_dist >"$log" || fail 'rope: a factor of 8'
rm "$log"

# What is wrong with one that cannot be shown.
cp -a "$hf" "$work/damaged"
victim=$(find "$work/damaged" -name 'model-*.safetensors' | sort | tail -1)
mv "$victim" "$work/kept"
refused 'a shard is missing' 1 "${victim##*/}" "$m" "$work/damaged" "$mnt"
refused 'a shard is missing: ls' 1 "cannot be shown: .*${victim##*/}" "$m" ls "$work/damaged"
refused 'a shard is missing: verify' 1 "cannot be shown: .*${victim##*/}" "$m" verify "$work/damaged"
"$m" inspect "$work/damaged" >"$log" && fail 'a shard is missing: inspect'
tr -d '│\n' <"$log" | tr -s ' ' | grep -q "${victim##*/}" || fail "a shard is missing: $(cat "$log")"
rm "$log"
mv "$work/kept" "$victim"

# A source that changes under the mount.
mount_foreground "$work/damaged" -o shard_size=200kB
same 'files that cannot be read before' "$(cat "$mnt"/hf/* 2>&1 >/dev/null)" ''
unmount
mount_foreground "$work/damaged" -o shard_size=200kB
truncate -s 1000 "$victim"
cat "$mnt/hf/${victim##*/}" 2>&1 >/dev/null | grep -q 'Stale file handle' || fail 'a cut shard goes unnoticed'
same 'the rest' "$(cat "$mnt/hf/config.json" 2>&1 >/dev/null)" ''
unmount

# Not an HF directory: no weights, or no config.json.
mkdir "$work/none"
cp "$hf/config.json" "$work/none"
refused 'no weights' 1 'looked for .*config.json with model' "$m" ls "$work/none"
exit 0

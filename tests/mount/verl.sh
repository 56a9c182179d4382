#!/bin/bash
# Saves of verl's Megatron workers, which do not say what model they are of: the config next to them does, or -o ref=.
. "$(dirname "$0")/lib.sh"

fixture=$FIXTURES/weights/llama-torch_dist-tp2-pp2-vpp2
run=$work/run
"$MCOREFS" export "$fixture" latest/hf "$work/whole" >/dev/null || fail "the fixture itself"

# save STEP WEIGHTS HF: the fixture's tensors and its model's config and tokenizer, where verl has them.
save() {
	local actor=$run/global_step_$1/actor
	mkdir -p "$actor/$(dirname "$2")" "$actor/$3"
	cp -r "$fixture/iter_0000040" "$actor/$2"
	mv "$actor/$2/tokenizer"/* "$actor/$3" && rmdir "$actor/$2/tokenizer"
	cp "$work/whole/config.json" "$actor/$3"
}

# Weights and tokenizer are the fixture's, byte by byte; config.json has another remark on the vocabulary.
same_model() {
	local file
	for file in "$1"/*; do
		[ "$(basename "$file")" = config.json ] || cmp "$file" "$work/whole/$(basename "$file")" || fail "$2: $file"
	done
	same "$2: files" "$(ls "$1")" "$(ls "$work/whole")"
}

save 10 dist_ckpt huggingface
save 20 model/dist_ckpt model/huggingface
echo -n 10 >"$run/latest_checkpointed_iteration.txt"

mount_foreground "$run"
same "the run" "$(ls "$mnt")" "$(printf 'global_step_10\nlatest')"
same "latest" "$(readlink "$mnt/latest")" global_step_10
same_model "$mnt/latest/hf" "the first layout"
same "a Megatron view" "$(ls "$mnt/latest/megatron/torch/tp1-pp1")" "$(printf 'iter_0000010\nlatest_checkpointed_iteration.txt')"
echo -n 20 >"$run/latest_checkpointed_iteration.txt"
newest() { [ "$(readlink "$mnt/latest")" = global_step_20 ]; }
wait_until "the newer step is there" newest
same_model "$mnt/latest/hf" "the second layout"
unmount

for source in "$run/global_step_20" "$run/global_step_20/actor" "$run/global_step_10/actor"; do
	mount_source "$source"
	same_model "$mnt/latest/hf" "$source"
	unmount
done

# What was saved in these Megatron views is the same model again.
"$MCOREFS" export "$run" latest/megatron/torch_dist "$work/again" >/dev/null || fail "a Megatron view"
"$MCOREFS" diff "$work/again" "$fixture" -q || fail "a Megatron view of verl's save differs"

config=$run/global_step_20/actor/model/huggingface/config.json
sed -i 's/"intermediate_size": 176/"intermediate_size": 192/' "$config"
refused "another model's config" 1 "linear_fc1.weight' is \[352, 64\], but by model/huggingface/config.json's ffn_hidden_size it should be \[384, 64\]" \
	"$MCOREFS" export "$run/global_step_20/actor" latest/hf "$work/none"
rm "$config"
refused "no config" 1 "model/huggingface/config.json is missing" \
	"$MCOREFS" export "$run/global_step_20/actor" latest/hf "$work/none"
"$MCOREFS" export "$run/global_step_20/actor" latest/hf "$work/ref" -o ref="$work/whole" >/dev/null || fail "-o ref="
same_model "$work/ref" "-o ref="
rm -r "$run/global_step_20/actor/model/dist_ckpt"
cp "$work/whole/config.json" "$config"
refused "no weights of Megatron's" 1 "SOURCE can be .*/actor/model/huggingface" \
	"$MCOREFS" export "$run/global_step_20/actor" latest/hf "$work/none"

#!/bin/bash
# A run_config.yaml that Megatron-Bridge has saved is the YAML of a run: the run is that of Megatron's arguments for the same model.
set -u
cd "$(dirname "$0")/../.." || exit 1
train=${MCOREFS_TRAIN:-$(realpath -m "${O:-build}")/mcorefs-train}
work=$(mktemp -d "${TMPDIR:-/tmp}/bridge-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
fixture=tests/fixtures/bridge/llama
config=$fixture/iter_0000000/run_config.yaml
# What no saved model says: data, batches, how long.
run=(--backend cpu --load "$fixture" --finetune --mock-data --eod-id 0 --micro-batch-size 1 --global-batch-size 2 --train-iters 6 --lr 1e-2
	--eval-iters 0 --log-interval 1)
model=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --group-query-attention --num-query-groups 1 --kv-channels 8
	--ffn-hidden-size 32 --swiglu --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope
	--untie-embeddings-and-output-weights --seq-length 32 --max-position-embeddings 32 --attention-dropout 0 --hidden-dropout 0
	--padded-vocab-size 48 --bf16 --adam-beta2 0.999)

verdict() {
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
	else
		echo "FAIL: $2"
		tail -n 20 "$work/log"
		failed=$((failed + 1))
	fi
}

# losses LOG: what each iteration says that the clock does not
losses() {
	sed -nE 's/.* iteration +([0-9]+)\/.*(learning rate.*)/\1 \2/p' "$1"
}

# ends STATUS ARGUMENT...: what it says goes to $work/log
ends() {
	"$train" "${@:2}" >"$work/log" 2>&1
	[ $? = "$1" ]
}

for saved in tests/fixtures/bridge/*/iter_*/run_config.yaml; do
	ends 0 --config "$saved" --dry-run --mock-data --micro-batch-size 1 --train-iters 6 --lr 1e-2 && grep -q '^memory: ' "$work/log"
	verdict $? "$saved is planned"
done

ends 0 "${run[@]}" "${model[@]}" && losses "$work/log" >"$work/flags" && [ "$(wc -l <"$work/flags")" = 6 ] &&
	ends 0 "${run[@]}" --config "$config" --save "$work/out" --non-persistent-save-interval 2 --non-persistent-ckpt-type global &&
	losses "$work/log" | diff - "$work/flags" && grep -q 'without effect here: .*model.transformer_layer_spec' "$work/log"
verdict $? "a saved file and a few flags train as arguments do"

[ "$(cat "$work/out/latest_checkpointed_iteration.txt")" = 6 ] && [ "$(ls "$work/out" | grep -c '^iter_')" = 1 ]
verdict $? "where nobody says how often, the end alone is saved"

sed 's/torch.nn.functional.silu/torch.nn.functional.gelu/' "$config" >"$work/other.yaml"
ends 2 "${run[@]}" --config "$work/other.yaml" &&
	grep -q "line $(grep -n gelu "$work/other.yaml" | cut -d: -f1 | awk '{ print $1 - 1 }'): activation_func 'gelu' with gated_linear_unit true" "$work/log"
verdict $? "another activation is refused"

sed 's/^  softmax_scale: null/  softmax_scale: 0.25/' "$config" >"$work/other.yaml"
ends 2 "${run[@]}" --config "$work/other.yaml" && grep -q "model.softmax_scale '0.25' is not supported; expected null" "$work/log"
verdict $? "a field that would change results is refused"

sed 's/^  rope_scaling: /  rope_scalling: /' "$config" >"$work/other.yaml"
ends 2 "${run[@]}" --config "$work/other.yaml" && grep -q "unknown name 'rope_scalling' in model; did you mean 'rope_scaling'" "$work/log"
verdict $? "a name that nobody knows is refused"

# They are wrong before the checkpoint is open, or when it is.
excluded="--fp16 and --bf16 exclude each other"
ends 2 "${run[@]}" --config "$config" --fp16 && grep -qe "$excluded" "$work/log" &&
	ends 2 "${run[@]}" --config "$config" --fp16 --dry-run && grep -qe "$excluded" "$work/log" &&
	ends 2 --config "$config" --mock-data --micro-batch-size 1 --train-iters 6 --lr 1e-2 --fp16 && grep -qe "$excluded" "$work/log"
verdict $? "arguments that are wrong end a run with 2, with a checkpoint and without"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]

#!/bin/bash
# delta: what changes between two models, as versions that engines pull.
. "$(dirname "$0")/lib.sh"
[ -d "${work:?}" ] || exit 1

m=$MCOREFS
run=$FIXTURES/resume/llama-torch_dist-tp2-pp2
legacy=$FIXTURES/resume/llama-torch-tp2-pp2 # iteration 20 of the same run
chain=$work/chain

# Two steps and one back, from other formats and layouts; the second from where the first has led.
"$m" export "$run/iter_0000040" hf "$work/v1" >/dev/null || fail 'export'
"$m" delta "$legacy" "$work/v1" "$chain" >"$work/out" || fail 'a first version'
[[ $(<"$work/out") = *"weight_v000001: 55.60 % of 632 kB differ, in 39 of 39 tensors;"* ]] || fail "it prints: $(<"$work/out")"
"$m" delta "$work/v1" "$run/iter_0000020" "$chain" --mode overwrite --json >"$work/out" || fail 'a second version'
grep -q '"base_version": 1' "$work/out" || fail "--json: $(<"$work/out")"
same 'files' "$(cd "$chain" && find . -type f | sort | xargs)" "./weight_base.json ./weight_v000001/model-00000-of-00001.safetensors\
 ./weight_v000001/model.safetensors.index.json ./weight_v000002/model-00000-of-00001.safetensors ./weight_v000002/model.safetensors.index.json"
grep -qF "\"base\": \"$legacy/iter_0000020\"" "$chain/weight_base.json" || fail "the base: $(head -3 "$chain/weight_base.json")"

# The same bytes change nothing, whatever their layout.
"$m" delta "$legacy" "$run/iter_0000020" "$work/same" >"$work/out" || fail 'equal models'
[[ $(<"$work/out") = *' 0.00 % of 632 kB differ, in 0 of 39 tensors'* ]] || fail "equal models: $(<"$work/out")"

refused 'a version that is there' 1 "has weight_v000002 already" "$m" delta "$work/v1" "$run/iter_0000020" "$chain" --version 2
refused 'not the version before' 1 "A is not version 2 of the chain: tensor '.*' has the checksum [0-9a-f]{32} there, and [0-9a-f]{32} in A" \
	"$m" delta "$run/iter_0000040" "$legacy" "$chain"
"$m" export "$legacy" hf-fp32 "$work/fp32" >/dev/null || fail 'export of fp32'
refused 'other types' 1 "tensor '.*' is \[.*\] of bfloat16 in A and \[.*\] of float32 in B" "$m" delta "$legacy" "$work/fp32" "$work/other"
refused 'other tensors' 1 "tensor '.*' is in [AB] alone \(A has [0-9]+ tensors, B [0-9]+\)" "$m" delta "$legacy" "$FIXTURES/weights/qwen3-torch_dist-tp4" "$work/other"
refused 'another encoding' 1 "the encoding of a delta is 'xor' or 'overwrite', found 'add'" "$m" delta "$legacy" "$run" "$work/other" --mode add
same 'nothing is left' "$(find "$chain" "$work/same" -name '.*.partial')" ''

#!/bin/bash
# diff: equal whatever the format and layout; what differs, where; and an exit status to rely on.
. "$(dirname "$0")/lib.sh"
[ -d "${work:?}" ] || exit 1
command -v python3 >/dev/null || skip 'python3 is missing'

m=$MCOREFS

# expect TEXT STATUS PATTERN ARGUMENT...: of diff; what it says is in $out.
expect() {
	local text=$1 status=$2 pattern=$3
	shift 3
	out=$("$m" diff "$@" 2>&1)
	same "$text: exit status" "$?" "$status"
	[[ $out =~ $pattern ]] || fail "$text: expected '$pattern', found: $out"
}

# poke FILE TENSOR INDEX BYTES: overwrites bytes of a safetensors file, from that 16-bit element's on.
poke() {
	python3 -c '
import json, struct, sys
name, tensor, index, data = sys.argv[1:]
with open(name, "r+b") as f:
    n, = struct.unpack("<Q", f.read(8))
    t = json.loads(f.read(n))[tensor]
    f.seek(8 + n + t["data_offsets"][0] + int(index) * 2)
    f.write(bytes.fromhex(data))
' "$@" || fail "poke $*"
}

# Every fixture equals its HuggingFace directory, exported or mounted, either way round.
for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	name=$(basename "$(dirname "$source")")-$(basename "$source")
	"$m" export "$source" hf "$work/$name" >/dev/null || fail "$name: export"
	expect "$name" 0 'equal: [0-9]+ tensors' "$source" "$work/$name"
	expect "$name: reversed" 0 'equal: ' "$work/$name" "$source"
done
source=$FIXTURES/weights/llama-torch-tp2-pp2
hf=$work/weights-llama-torch-tp2-pp2
qwen=$FIXTURES/weights/qwen3-torch_dist-tp4
dist=$FIXTURES/resume/llama-torch_dist-tp2-pp2
legacy=$FIXTURES/resume/llama-torch-tp2-pp2
mount_source "$source" 2>/dev/null
expect 'a mount' 0 'equal: ' "$mnt/latest/hf" "$hf"
unmount

# One run saved in two formats, its optimizer included.
expect 'two formats' 0 'torch tp2-pp2.*torch_dist tp2-pp2.*equal: ' "$legacy" "$dist/iter_0000020"
expect 'optimizers of two formats' 0 'with its optimizer.*equal: 108 tensors' --optim "$legacy" "$dist/iter_0000020"

# Another layout, written out.
"$m" export "$legacy" megatron/torch/tp1-pp4 "$work/tp1-pp4" >/dev/null || fail 'export at another layout'
expect 'another layout' 0 'tp2-pp2.*tp1-pp4.*equal: 108 tensors' --optim "$legacy" "$work/tp1-pp4"
"$m" export "$hf" megatron/torch/tp4-pp2 "$work/tp4-pp2" >/dev/null || fail 'export of an HF directory'
expect 'from HF' 0 'equal: 27 tensors' "$source" "$work/tp4-pp2"

# Two states of one run; a bound on what is listed.
expect 'iterations' 1 'elements differ, by at most' "$dist/iter_0000020" "$dist/iter_0000040" -o no_optim
same 'listed' "$(grep -c 'elements differ' <<<"$out")" 20
[[ $out = *'and 7 more (-n 27 lists them)'* ]] || fail "the rest is not counted: $out"
expect 'iterations, -n' 1 'and 26 more' "$dist/iter_0000020" "$dist/iter_0000040" -o no_optim -n 1
expect 'iterations, quiet' 1 '^$' -q "$dist/iter_0000020" "$dist/iter_0000040"
expect 'equal, quiet' 0 '^$' "$hf" "$source" --quiet
expect 'optimizers differ' 1 'iteration +20 against 40.*exp_avg of' "$dist/iter_0000020" "$dist/iter_0000040" -n 100

# One element: which, and its values.
cp -a "$hf" "$work/changed"
chmod -R u+w "$work/changed"
weights=$work/changed/model.safetensors
poke "$weights" model.layers.3.self_attn.k_proj.weight $((17 * 64 + 5)) 803f
expect 'one element' 1 '26 tensors equal, 1 different' "$source" "$work/changed"
pattern='decoder.layers.3.self_attention.linear_qkv.weight: .*1 of 8,192 elements differ, by at most '
[[ $out =~ $pattern ]] || fail "one element: $out"
[[ $out = *'first [97, 5] (query group 1, its key, row 1): '*' against 1'* ]] || fail "its place: $out"
"$m" diff --json "$source" "$work/changed" >"$work/json"
same 'status with --json' "$?" 1
python3 -c '
import json, sys
j = json.load(open(sys.argv[1]))
assert not j["equal"] and j["tensors_different"] == 1 and j["tensors_equal"] == 26, j
d, = j["different"]
assert d["differing"] == 1 and d["first"]["index"] == [97, 5] and d["first"]["b"] == 1, d
assert d["a"] == d["b"] == {"dtype": "bfloat16", "shape": [128, 64]}, d
' "$work/json" || fail '--json'
poke "$weights" model.layers.3.self_attn.k_proj.weight $((17 * 64 + 5)) c07f
expect 'NaN' 1 '1 of 8,192 elements differ; 1 with NaN.*against nan' "$source" "$work/changed"

# The vocabulary: rows of padding do not make models different.
"$m" export "$source" hf "$work/cropped" -o vocab_size=1000 >/dev/null || fail 'export -o vocab_size'
expect 'cropped' 0 'rows 1000..1023 of the vocabulary are padding that A alone has' "$source" "$work/cropped"
expect 'cropped, reversed' 0 'padding that B alone has' "$work/cropped" "$source"
"$m" export "$source" hf "$work/short" -o vocab_size=500 >/dev/null || fail 'export -o vocab_size'
expect 'another vocabulary' 1 'word_embeddings.weight: bfloat16 .1024, 64. against bfloat16 .500, 64.' "$source" "$work/short"

# Arguments come first; tensors that one side alone has.
cp -a "$hf" "$work/arguments"
chmod -R u+w "$work/arguments"
sed -i 's/"rope_theta": 10000/"rope_theta": 500000/' "$work/arguments/config.json"
expect 'arguments' 1 'arguments differ:.*rotary_base +10000 against 500000.*27 tensors equal' "$source" "$work/arguments"
expect 'arguments, quiet' 1 '^$' -q "$source" "$work/arguments"
expect 'other families' 1 'qk_layernorm +false against true.*in A alone:.*output_layer.weight.*in B alone:' "$source" "$qwen"

# Optimizers that are not there.
expect 'no optimizer' 0 'B has no optimizer: the weights alone were compared' "$legacy" "$work/resume-llama-torch-tp2-pp2"
expect '--optim' 2 'has no optimizer' --optim "$legacy" "$work/resume-llama-torch-tp2-pp2"

# Weights of 8-bit floats are what Transformer Engine dequantises them to, as each of its releases has pickled them.
python3 "$(dirname "$0")/../giants/make_te.py" "$work/te" || fail 'make_te.py'
for save in "$work"/te/*-*; do
	twin=${save%-*} other=$work/te/blocks
	[ "$twin" != "$other" ] || other=$work/te/whole
	expect "$save" 0 'equal: (9|36) tensors' "$twin" "$save"
	expect "$save, changed" 1 'different' "$other" "$save"
done
for form in optimizer buckets gathered; do
	expect "8-bit parameters, $form" 0 'equal: 36 tensors' --optim "$work/te/$form" "$work/te/$form-2.17"
done
for view in hf megatron/torch/tp1-pp1 megatron/torch_dist; do
	for save in blocks blocks-2.6; do
		"$m" export "$work/te/$save" "$view" "$work/te-$save-${view//\//-}" >/dev/null || fail "export of $view of $save"
	done
	diff -r "$work/te-blocks-${view//\//-}" "$work/te-blocks-2.6-${view//\//-}" || fail "$view of 8-bit weights differs from that of bfloat16"
done
refused '8 bits again' 1 'float8_e4m3fn already' "$m" export "$work/te/blocks-2.3" hf-fp8 "$work/te-again"

# Trouble is 2, and one sentence.
refused 'one argument' 2 'expected mcorefs diff A B' "$m" diff "$source"
refused '-n' 2 'takes a number' "$m" diff "$source" "$source" -n x
refused 'unknown letter' 2 "unknown option '-z'" "$m" diff "$source" "$source" -z
refused 'nothing there' 2 'No such file' "$m" diff "$source" "$work/none"
refused '--optim and no_optim' 2 'contradict' "$m" diff "$source" "$source" --optim -o no_optim
copy_fixture weights/llama-torch-tp2-pp2
chmod -R u+w "$ckpt"
rm "$ckpt"/iter_*/mp_rank_01_001/model_optim_rng.pt
refused 'incomplete' 2 'mp_rank_01_001' "$m" diff "$ckpt" "$source"
"$m" diff "$source" "$qwen" >/dev/full 2>&1
same 'a full disk' "$?" 2
exit 0

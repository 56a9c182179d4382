#!/bin/bash
# diff: equal whatever the format and layout; what differs, where; and an exit status to rely on.
. "$(dirname "$0")/lib.sh"
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

# patch FILE TENSOR INDEX BYTES: overwrites bytes of a safetensors file, from that element's on.
patch() {
	python3 - "$@" <<'PY'
import json, struct, sys
name, tensor, index, data = sys.argv[1:]
with open(name, "r+b") as f:
    n, = struct.unpack("<Q", f.read(8))
    t = json.loads(f.read(n))[tensor]
    f.seek(8 + n + t["data_offsets"][0] + int(index) * 2)
    f.write(bytes.fromhex(data))
PY
}

# Every fixture equals its HuggingFace directory, exported or mounted, either way round.
for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	name=$(basename "$(dirname "$source")")-$(basename "$source")
	"$m" export "$source" hf "$work/$name" >/dev/null || fail "$name: export"
	expect "$name" 0 'equal: [0-9]+ tensors' "$source" "$work/$name"
	expect "$name: reversed" 0 'equal: ' "$work/$name" "$source"
done
source=$(echo "$FIXTURES"/weights/llama-torch-*)
name=weights-$(basename "$source")
mount_source "$source"
expect 'a mount' 0 'equal: ' "$mnt/latest/hf" "$work/$name"
unmount

# One run saved in two formats.
expect 'two formats' 0 'torch tp2-pp2.*torch_dist tp2-pp2.*equal: ' "$FIXTURES/resume/llama-torch-tp2-pp2" \
	"$FIXTURES/resume/llama-torch_dist-tp2-pp2/iter_0000020"

# Two states of one run; a bound on what is listed.
dist=$FIXTURES/resume/llama-torch_dist-tp2-pp2
expect 'iterations' 1 'elements differ, by at most' "$dist/iter_0000020" "$dist/iter_0000040" -o no_optim
same 'listed' "$(grep -c 'elements differ' <<<"$out")" 20
[[ $out =~ 'and 7 more (-n 27 lists them)' ]] || fail "the rest is not counted: $out"
expect 'iterations, -n' 1 '26 more' "$dist/iter_0000020" "$dist/iter_0000040" -o no_optim -n 1
expect 'iterations, quiet' 1 '^$' -q "$dist/iter_0000020" "$dist/iter_0000040"
expect 'equal, quiet' 0 '^$' "$work/$name" "$source" --quiet

# One element: which, and its values.
cp -a "$work/$name" "$work/changed"
file=$work/changed/model.safetensors
patch "$file" model.layers.3.self_attn.k_proj.weight $((17 * 64 + 5)) 803f
expect 'one element' 1 '26 different|26 tensors equal, 1 different' "$source" "$work/changed"
[[ $out =~ decoder.layers.3.self_attention.linear_qkv.weight.*'1 of 8,192 elements differ, by at most'.*'first [97, 5] (query group 1, its key, row 1): '.*' against 1'$'\n' ]] ||
	fail "one element: $out"
python3 - "$("$m" diff --json "$source" "$work/changed")" <<'EOF' || fail '--json'
import json, sys
j = json.loads(sys.argv[1])
assert not j["equal"] and j["tensors_different"] == 1 and j["tensors_equal"] == 26, j
d, = j["different"]
assert d["differing"] == 1 and d["first"]["index"] == [97, 5] and d["first"]["b"] == 1, d
assert d["a"] == d["b"] == {"dtype": "bfloat16", "shape": [128, 64]}, d

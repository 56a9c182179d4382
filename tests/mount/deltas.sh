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
for n in 0 4294967296; do
	refused "--version $n" 2 "--version is from 1 to 4294967295, found $n" "$m" delta "$work/v1" "$legacy" "$work/other" --version "$n"
done
mkdir -p "$work/last/weight_v4294967295"
refused 'no version is after the last' 1 "has version 4294967295, which is the last one" "$m" delta "$work/v1" "$legacy" "$work/last"
refused 'not the version before' 1 "A is not version 2 of the chain: tensor '.*' has the checksum [0-9a-f]{32} there, and [0-9a-f]{32} in A" \
	"$m" delta "$run/iter_0000040" "$legacy" "$chain"
"$m" export "$legacy" hf-fp32 "$work/fp32" >/dev/null || fail 'export of fp32'
refused 'other types' 1 "tensor '.*' is \[.*\] of bfloat16 in A and \[.*\] of float32 in B" "$m" delta "$legacy" "$work/fp32" "$work/other"
refused 'other tensors' 1 "tensor '.*' is in [AB] alone \(A has [0-9]+ tensors, B [0-9]+\)" "$m" delta "$legacy" "$FIXTURES/weights/qwen3-torch_dist-tp4" "$work/other"
refused 'another encoding' 1 "the encoding of a delta is 'xor' or 'overwrite', found 'add'" "$m" delta "$legacy" "$run" "$work/other" --mode add
same 'nothing is left' "$(find "$chain" "$work/same" -name '.*.partial')" ''

# Each version is an iteration, whole: its hf view has the bytes of what it was made from.
export XDG_CACHE_HOME=$work/cache-home
options=cache=$work/cache
"$m" export "$legacy" hf "$work/v2" >/dev/null || fail 'export'
mount_source "$chain" -o "$options" 2>/dev/null
same 'iterations' "$(ls "$mnt" | xargs)" 'iter_0000001 iter_0000002 latest'
same 'latest' "$(readlink "$mnt/latest")" iter_0000002
cmp "$work/v1/model.safetensors" "$mnt/iter_0000001/hf/model.safetensors" || fail 'version 1'
diff -r "$work/v2" "$mnt/iter_0000002/hf" || fail 'version 2, whose config.json and tokenizer are those of the base'
# A version that comes while it is mounted.
"$m" delta "$legacy" "$run" "$chain" --checksum adler32 >/dev/null || fail 'a third version'
ls "$mnt" >/dev/null
wait_until 'the third version is latest' eval '[ "$(readlink "$mnt/latest")" = iter_0000003 ]'
cmp "$work/v1/model.safetensors" "$mnt/latest/hf/model.safetensors" || fail 'version 3'
unmount
wait_until 'its place in the cache is gone' eval '[ -z "$(ls "$work/cache/mounts")" ]'

# Versions are SOURCEs of their own; all that is made of a HuggingFace directory is made of them.
"$m" diff "$chain/weight_v000001" "$run/iter_0000040" -q -o "no_optim,$options" || fail 'diff'
"$m" export "$chain" iter_0000002/megatron/torch_dist "$work/dist" -o "$options" >/dev/null || fail 'export of a Megatron view'
"$m" diff "$work/dist" "$legacy" -q -o no_optim || fail 'a Megatron view of a version'
"$m" delta "$legacy" "$chain/weight_v000003" "$work/one" -o "$options" >/dev/null || fail 'a chain made of a chain'
cmp "$work/one/weight_v000001/model-00000-of-00001.safetensors" "$chain/weight_v000001/model-00000-of-00001.safetensors" || fail 'the same change'

# A little room for tensors: they are made again.
"$m" export "$chain" iter_0000001/hf "$work/small" -o "$options,cache_size=64KiB" >/dev/null || fail 'with little room'
cmp "$work/v1/model.safetensors" "$work/small/model.safetensors" || fail 'bytes with little room'

# In a sandbox, with a version that comes later.
if "$m" "$chain" "$mnt" -o "sandbox,$options" 2>"$work/out"; then
	cmp "$work/v2/model.safetensors" "$mnt/iter_0000002/hf/model.safetensors" || fail 'in a sandbox'
	"$m" delta "$work/v1" "$legacy" "$chain" >/dev/null || fail 'a fourth version'
	ls "$mnt" >/dev/null
	wait_until 'a version comes in a sandbox' test -e "$mnt/iter_0000004"
	cmp "$work/v2/model.safetensors" "$mnt/latest/hf/model.safetensors" || fail 'a new version in a sandbox'
	"$m" umount "$mnt" || fail 'umount'
	rm -r "$chain/weight_v000004"
elif ! grep -q 'the kernel has no Landlock\|5.19' "$work/out"; then
	fail "sandbox: $(<"$work/out")"
fi

# In a sandbox, a chain whose base is a chain.
"$m" delta "$chain/weight_v000001" "$work/v2" "$work/nested" -o "$options" >/dev/null || fail 'a chain of a version'
if "$m" "$work/nested" "$mnt" -o "sandbox,$options" 2>"$work/out"; then
	cmp "$work/v2/model.safetensors" "$mnt/latest/hf/model.safetensors" || fail 'a chain of a chain in a sandbox'
	"$m" umount "$mnt" || fail 'umount'
fi

# A base by a relative path is written with its whole path, and read from the chain's directory.
(cd "$work" && "$m" delta v1 v2 relative --base ./v1 >/dev/null) || fail '--base ./v1'
grep -qF "\"base\": \"$(realpath "$work")/v1\"" "$work/relative/weight_base.json" || fail "--base ./v1: $(head -2 "$work/relative/weight_base.json")"
refused 'a base that is nowhere' 1 "--base 'v9'" "$m" delta "$work/v1" "$work/v2" "$work/nowhere" --base v9
sed -i 's|"base": .*|"base": "../v1",|' "$work/relative/weight_base.json"
"$m" diff "$work/relative" "$work/v2" -q -o "$options" || fail 'a relative base'

refused 'a base of no chain' 1 "base=.*/v1: '.*' is no directory of deltas \(weight_v000001, ...\), and changes no base" \
	"$m" ls "$legacy" -o "base=$work/v1"
"$m" diff "$chain/weight_v000001" "$work/v1" -q -o "base=$legacy,$options" || fail 'a base of one of two'

# A whole model among versions: those after it change it.
cp -r "$chain" "$work/reset"
mkdir "$work/reset/weight_v000004"
cp "$work/v2"/* "$work/reset/weight_v000004"
"$m" delta "$work/v2" "$work/v1" "$work/reset" >/dev/null || fail 'a version of a whole model'
rm -r "$work/reset/weight_v00000"[123] "$work/reset/weight_base.json"
"$m" export "$work/reset" latest/hf "$work/after" -o "$options" >/dev/null || fail 'after a whole model'
cmp "$work/v1/model.safetensors" "$work/after/model.safetensors" || fail 'bytes after a whole model'

# What is damaged, missing or of another model is refused, with the tensor.
bad() { # TEXT PATTERN [OPTION]: exporting a version of $work/bad fails
	refused "$1" 1 "$2" "$m" export "$work/bad" "iter_${version-0000002}/hf" "$work/refused" -o "$options${3+,$3}"
	rm -rf "$work/bad" "$work/refused.mcorefs-partial"
	cp -r "$chain" "$work/bad"
}
cp -r "$chain" "$work/bad"
flip() { # FILE OFFSET FROM THE END
	python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-int(sys.argv[2]), 2); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 1]))' "$@"
}
if command -v python3 >/dev/null; then
	flip "$work/bad/weight_v000002/model-00000-of-00001.safetensors" 3
	bad 'a damaged delta' "weight_v000002/?.*: tensor '.*' has the checksum [0-9a-f]{32} after the change, expected [0-9a-f]{32}|weight_v000002: .*: tensor '.*': "
	flip "$work/bad/weight_v000001/model-00000-of-00001.safetensors" 3
	bad 'a damaged delta before' "weight_v000001/?.*: tensor '.*' has the checksum [0-9a-f]{32} after the change, expected [0-9a-f]{32}|weight_v000001: .*: tensor '.*': "
fi
truncate -s -1 "$work/bad/weight_v000001/model-00000-of-00001.safetensors"
bad 'a cut file' 'iter_0000002 .*: it changes version 1, which cannot be shown: .*weight_v000001: .*expected [0-9]+ bytes of tensors, found [0-9]+'
rm -r "$work/bad/weight_v000001"
bad 'a missing link' 'iter_0000002 .*: version 1, which it changes, is missing'
rm "$work/bad/weight_v000002"/model-*
bad 'a missing file' "iter_0000002 .*: .*weight_v000002: tensor '.*' is missing in model-00000-of-00001.safetensors"
sed -i 's/"version": "000002"/"version": "000003"/' "$work/bad/weight_v000002/model.safetensors.index.json"
bad 'another version' 'its index says that it is version 3 and changes version 1, expected 2 and 1'
bad 'another base' "tensor '.*' of the base has the checksum [0-9a-f]{32}, and the chain was made from one with [0-9a-f]{32}: another model is its base" "base=$work/v1"
rm "$work/bad/weight_base.json"
version=0000001 bad 'another base, and no sums' "weight_v000001/model-00000-of-00001.safetensors: tensor '.*' has the checksum .* after the change, expected .*: the delta is damaged, or changes another model" "base=$work/v1"
rm "$work/bad/weight_base.json"
bad 'no base' "nothing names the model that '.*' changes: there is no weight_base.json, so name it with -o base=SOURCE"
rm "$work/bad/weight_base.json"
"$m" export "$work/bad" iter_0000002/hf "$work/named" -o "$options,base=$work/v2" >/dev/null || fail '-o base='
cmp "$work/v2/model.safetensors" "$work/named/model.safetensors" || fail 'bytes by -o base='

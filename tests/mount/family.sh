#!/bin/bash
# A family that a text file alone describes: names and keys of its own, there and back.
. "$(dirname "$0")/lib.sh"
[ -d "${work:?}" ] || exit 1
command -v python3 >/dev/null || skip 'python3 is missing'

m=$MCOREFS
source=$FIXTURES/weights/llama-torch-tp2-pp2
cat >"$work/heron.conf" <<'CONF'
[family]
name = heron
architecture = HeronModel
model_type = heron
layers = nest.{i}.
requires = swiglu, rope
allows = eps-not-1e6, gqa, head-dim, tied

[before]
words = embedding.word_embeddings.weight

[after]
last.norm = decoder.final_layernorm.weight
beak = output_layer.weight, unless tied

[layer]
n1 = input_layernorm.weight
n2 = pre_mlp_layernorm.weight
qkv = qkv of self_attention.linear_qkv.weight, transposed
out = self_attention.linear_proj.weight, transposed

[layer dense]
glu = mlp.linear_fc1.weight
down = mlp.linear_fc2.weight

[config]
architectures = computed architectures
model_type = computed model_type
vocab_size = computed vocab_size, reference loses
tied = has tied
wide = hidden_size
inner = ffn_hidden_size
deep = num_layers
heads = num_attention_heads
groups = num_query_groups
head = kv_channels
eps = norm_epsilon
reach = max_position_embeddings
rope_theta = rotary_base
wings = 2

[aliases]
width = wide
CONF

# names FILE: of the tensors, with their shapes.
names() {
	python3 -c '
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    n, = struct.unpack("<Q", f.read(8))
    print(*sorted(k + str(v["shape"]) for k, v in json.loads(f.read(n)).items() if k != "__metadata__"), sep="\n")
' "$1"
}

"$m" export "$source" hf "$work/heron" -o "family=$work/heron.conf" >/dev/null || fail export
same "tensors outside of layers" "$(names "$work/heron/model.safetensors" | grep -c '^nest')" "$(($(names "$work/heron/model.safetensors" | wc -l) - 3))"
grep -q '"architectures": \[' "$work/heron/config.json" && grep -q '"wings": 2' "$work/heron/config.json" || fail "config.json: $(cat "$work/heron/config.json")"
out=$("$m" diff "$source" "$work/heron" -o "family=$work/heron.conf" 2>&1) || fail "there and back: $out"
"$m" export "$work/heron" megatron/torch_dist "$work/back" -o "family=$work/heron.conf" >/dev/null || fail 'export back'
"$m" diff "$source" "$work/back" >/dev/null || fail 'the checkpoint that comes back differs'
"$m" families -o "family=$work/heron.conf" | grep -q HeronModel || fail 'families does not list it'
"$m" families -o "family=$work/heron.conf" --json | python3 -c '
import json, sys
heron = json.load(sys.stdin)["families"][0]
assert heron["name"] == "heron" and not heron["built_in"] and heron["proved"] is None, heron
assert heron["tensors"]["nest.{i}.qkv"] == "self_attention.linear_qkv.weight", heron' || fail 'families --json'

# Without it nothing knows the class; a wrong one is named with its line, and nothing is shown.
! out=$("$m" inspect "$work/heron" 2>&1) || fail "known without its file: $out"
[[ $out =~ "'model_type' is \"heron\"" ]] || fail "without its file: $out"
sed 's/^out = .*/out = self_attention.linear_prj.weight/' "$work/heron.conf" >"$work/wrong.conf"
! out=$("$m" ls "$source" hf -o "family=$work/wrong.conf" 2>&1) || fail 'a wrong file is taken'
[[ $out =~ "wrong.conf:20: 'self_attention.linear_prj.weight' is no parameter" && $out =~ "did you mean 'self_attention.linear_proj.weight'" ]] || fail "a wrong file: $out"
! out=$("$m" ls "$source" hf -o family=/none.conf 2>&1) || fail 'a missing file is taken'
[[ $out =~ 'family=/none.conf: No such file' ]] || fail "a missing file: $out"
exit 0

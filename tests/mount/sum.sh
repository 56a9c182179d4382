#!/bin/bash
# mcorefs sum: the same lines for every layout of the same weights, also through the mount; and what differs is told.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
for source in "$FIXTURES"/weights/llama-torch-tp2-pp2 "$FIXTURES"/weights/mixtral-torch_dist-*; do
	name=${source##*/}
	"$m" sum "$source" -o vocab_size=1000 >"$work/sums" || fail "$name"
	mount_source "$source" -o vocab_size=1000
	for view in hf megatron/torch_dist megatron/torch/tp1-pp1 megatron/torch/tp2-pp1-vpp2; do
		[ -e "$mnt/latest/$view" ] || continue
		"$m" sum "$mnt/latest/$view" -o vocab_size=1000 | cmp - "$work/sums" || fail "$name: $view"
		# Padded again, and nothing records the true size: the rows of the sums count.
		"$m" sum "$mnt/latest/$view" --check "$work/sums" -q || fail "$name: --check of $view"
	done
	unmount
done

# The same weights by other means: a file's tensors as safetensors have them.
"$m" export "$source" hf "$work/hf" >/dev/null || fail export
if command -v python3 >/dev/null; then
	python3 - "$work/hf/model.safetensors" "$work/sums" <<'END' || fail 'sums of others'
import hashlib, json, struct, sys
f = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", f[:8])
header = json.loads(f[8:8 + n])
lines = {l.split(" ", 2)[2].split("] ")[1]: l.split()[0] for l in open(sys.argv[2]).read().split("\n")[1:-2]}
for hf, ours in {"model.norm.weight": "decoder.final_layernorm.weight",
                 "model.layers.1.self_attn.o_proj.weight": "decoder.layers.1.self_attention.linear_proj.weight"}.items():
    a, b = header[hf]["data_offsets"]
    assert hashlib.sha256(f[8 + n + a:8 + n + b]).hexdigest() == lines[ours], hf
END
fi

# What is not right.
copy_fixture weights/llama-torch-tp2-pp2
chmod -R u+w "$ckpt"
"$m" sum "$ckpt" 2>"$work/said" >"$work/sums" || fail sum
grep -q 'the sums are of all 1024 padded rows' "$work/said" || fail "padding: $(<"$work/said")"
f=$(echo "$ckpt"/iter_*/mp_rank_00_000/model_optim_rng.pt)
printf '\377' | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none
"$m" sum "$ckpt" --check "$work/sums" >/dev/null 2>"$work/said"
same 'a changed byte: exit status' "$?" 1
same 'a changed byte: tensors' "$(grep -c "tensor '.*: SHA-256 is [0-9a-f]*, .*/sums says " "$work/said")" 1
grep -q ': 1 problem found' "$work/said" || fail "a changed byte: $(<"$work/said")"
grep -v final_layernorm "$work/sums" | sed 's/^end .*/end 26/' >"$work/fewer"
"$m" sum "$FIXTURES/weights/llama-torch-tp2-pp2" --check "$work/fewer" 2>"$work/said" && fail 'a tensor too many'
grep -q "tensor 'decoder.final_layernorm.weight' is not in " "$work/said" || fail "a tensor too many: $(<"$work/said")"
sed 's/^end .*/'"$(tail -n 2 "$work/sums" | head -n 1 | sed 's/ [^ ]*$/ z/;s|[][/]|\\&|g')"'\nend 28/' "$work/sums" >"$work/more"
"$m" sum "$FIXTURES/weights/llama-torch-tp2-pp2" --check "$work/more" 2>"$work/said" && fail 'a tensor that lacks'
grep -q "tensor 'z' of .* is missing" "$work/said" || fail "a tensor that lacks: $(<"$work/said")"
sed 's/BF16 \[64\]/F16 [64]/' "$work/sums" >"$work/typed"
"$m" sum "$FIXTURES/weights/llama-torch-tp2-pp2" --check "$work/typed" 2>"$work/said" && fail 'another type'
grep -q "expected F16 \[64\], found BF16 \[64\]" "$work/said" || fail "another type: $(<"$work/said")"
refused 'a file that is none' 1 'not a file of mcorefs sum' "$m" sum "$ckpt" --check README.md
refused '--key alone' 2 'need --check' "$m" sum "$ckpt" --key "$work/key"
refused 'datasets' 1 'holds datasets' "$m" sum "$FIXTURES/data"

# Signed by its maker, checked through a resharded view.
command -v openssl >/dev/null || skip 'all but signatures: openssl is missing'
source=$FIXTURES/weights/llama-torch-tp2-pp2
"$m" sum "$source" >"$work/sums" 2>/dev/null
for kind in ed25519 rsa; do
	openssl genpkey -algorithm "$kind" -out "$work/$kind" 2>/dev/null || fail "genpkey $kind"
	openssl pkey -in "$work/$kind" -pubout -out "$work/$kind.pem" || fail "pubout $kind"
	if [ "$kind" = rsa ]; then
		openssl dgst -sha256 -sign "$work/rsa" -out "$work/sums.sig" "$work/sums" || fail 'sign, rsa'
	else
		openssl pkeyutl -sign -inkey "$work/$kind" -rawin -in "$work/sums" -out "$work/sums.sig" || fail "sign, $kind"
	fi
	mount_source "$source"
	"$m" sum "$mnt/latest/megatron/torch/tp1-pp1" --check "$work/sums" --key "$work/$kind.pem" >"$work/said" || fail "$kind"
	unmount
	grep -q 'right, and signed' "$work/said" || fail "$kind: $(<"$work/said")"
	cp "$work/sums.sig" "$work/$kind.sig"
done
refused 'another key' 1 'is not a signature of' "$m" sum "$source" --check "$work/sums" --key "$work/ed25519.pem"
"$m" sum "$source" --check "$work/sums" --key "$work/ed25519.pem" --signature "$work/ed25519.sig" -q || fail --signature
sed -i '2s/^./0/' "$work/sums"
refused 'changed sums' 1 'is not a signature of' "$m" sum "$source" --check "$work/sums" --key "$work/rsa.pem"
exit 0

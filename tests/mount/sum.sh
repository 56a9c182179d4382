#!/bin/bash
# mcorefs sum, verify --check: the same lines for every layout of the same weights, also through the mount; what differs is
# told; and what its maker has signed is checked through a resharded view.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS

# refused_by TEXT PATTERN COMMAND...: exit status 1, one problem like PATTERN and the line that counts it.
refused_by() {
	"${@:3}" >/dev/null 2>"$work/said"
	same "$1: exit status" "$?" 1
	same "$1: lines" "$(wc -l <"$work/said")" 2
	grep -q "$2" "$work/said" || fail "$1: expected a line like '$2', found '$(<"$work/said")'"
	grep -q ': 1 problem found' "$work/said" || fail "$1: $(<"$work/said")"
}

for source in "$FIXTURES"/weights/llama-torch-tp2-pp2 "$FIXTURES"/weights/mixtral-torch_dist-*; do
	name=${source##*/}
	"$m" sum "$source" -o vocab_size=1000 >"$work/sums" || fail "$name"
	mount_source "$source" -o vocab_size=1000
	for view in hf megatron/torch_dist megatron/torch/tp1-pp1 megatron/torch/tp2-pp1-vpp2; do
		[ -e "$mnt/latest/$view" ] || continue
		"$m" sum "$mnt/latest/$view" -o vocab_size=1000 | cmp - "$work/sums" || fail "$name: $view"
		# Padded again, and nothing records the true size: the rows of the sums count.
		"$m" verify "$mnt/latest/$view" --check "$work/sums" >/dev/null || fail "$name: --check of $view"
	done
	# A cast has other sums; one to the type that the weights have is none.
	refused "$name: hf-fp32" 1 'hf-fp32 casts the weights, and sums are of weights as they are stored' \
		"$m" verify "$source" hf-fp32 --check "$work/sums" -o vocab_size=1000
	"$m" verify "$source" hf-bf16 --check "$work/sums" -o vocab_size=1000 >/dev/null || fail "$name: hf-bf16"
	refused_by "$name: hf-fp32 of the mount" 'the weights are cast: .* is F32, and BF16 where .*/sums was made' \
		"$m" verify "$mnt/latest/hf-fp32" --check "$work/sums"
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
refused_by 'a changed byte' "tensor '.*: SHA-256 is [0-9a-f]*, .*/sums says " "$m" verify "$ckpt" --check "$work/sums"
"$m" verify "$ckpt" --check "$work/sums" --json 2>/dev/null | grep -q '"tensors_right": 26' || fail 'a changed byte: --json'
source=$FIXTURES/weights/llama-torch-tp2-pp2
grep -v final_layernorm "$work/sums" | sed 's/^end .*/end 26/' >"$work/fewer"
refused_by 'a tensor too many' "tensor 'decoder.final_layernorm.weight' is not in " "$m" verify "$source" --check "$work/fewer"
sed 's/^end .*/'"$(tail -n 2 "$work/sums" | head -n 1 | sed 's/ [^ ]*$/ z/;s|[][/]|\\&|g')"'\nend 28/' "$work/sums" >"$work/more"
refused_by 'a tensor that lacks' "tensor 'z' of .* is missing" "$m" verify "$source" --check "$work/more"
sed 's/BF16 \[64\] decoder.final/F16 [64] decoder.final/' "$work/sums" >"$work/typed"
refused_by 'another type' "expected F16 \[64\], found BF16 \[64\]" "$m" verify "$source" --check "$work/typed"
refused 'a file that is none' 1 'not a file of mcorefs sum' "$m" verify "$ckpt" --check README.md
refused '--key alone' 2 'needs --check' "$m" verify "$ckpt" --key "$work/key"
refused '--signature alone' 2 'needs --key' "$m" verify "$ckpt" --check "$work/sums" --signature "$work/key"
refused 'datasets' 1 'holds datasets' "$m" sum "$FIXTURES/data"
refused 'datasets, --check' 1 'is for models|holds datasets|datasets' "$m" verify "$FIXTURES/data" data --check "$work/sums"

# With the optimizer.
source=$FIXTURES/resume/llama-torch_dist-tp2-pp2
"$m" sum "$source" --optim --output "$work/optim" 2>/dev/null || fail --optim
grep -q ' exp_avg_sq of ' "$work/optim" || fail '--optim: no optimizer'
mount_source "$source"
"$m" verify "$mnt/latest/megatron/torch/tp1-pp1" megatron/torch_dist --check "$work/optim" >"$work/said" || fail '--optim: verify'
unmount
grep -q "the SHA-256 of $(($(wc -l <"$work/optim") - 2)) tensors are those of " "$work/said" || fail "--optim: $(<"$work/said")"

# Signed by its maker, checked through a resharded view.
command -v openssl >/dev/null || skip 'all but signatures: openssl is missing'
source=$FIXTURES/weights/llama-torch-tp2-pp2
for kind in ed25519 ed448 rsa ec; do
	case $kind in
	ec) openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/$kind" 2>/dev/null ;;
	*) openssl genpkey -algorithm "$kind" -out "$work/$kind" 2>/dev/null ;;
	esac || fail "genpkey $kind"
	openssl pkey -in "$work/$kind" -pubout -out "$work/$kind.pem" || fail "pubout $kind"
	# What we sign openssl verifies, and what openssl signs we verify.
	"$m" sum "$source" --output "$work/sums" --sign "$work/$kind" 2>/dev/null || fail "sign, $kind"
	case $kind in
	ed*)
		openssl pkeyutl -verify -pubin -inkey "$work/$kind.pem" -rawin -in "$work/sums" -sigfile "$work/sums.sig" >/dev/null ||
			fail "openssl does not verify ours, $kind"
		openssl pkeyutl -sign -inkey "$work/$kind" -rawin -in "$work/sums" -out "$work/$kind.sig" || fail "openssl, $kind"
		;;
	*)
		openssl dgst -sha256 -verify "$work/$kind.pem" -signature "$work/sums.sig" "$work/sums" >/dev/null ||
			fail "openssl does not verify ours, $kind"
		openssl dgst -sha256 -sign "$work/$kind" -out "$work/$kind.sig" "$work/sums" || fail "openssl, $kind"
		;;
	esac
	mount_source "$source"
	"$m" verify "$mnt/latest/megatron/torch/tp1-pp1" --check "$work/sums" --key "$work/$kind.pem" >"$work/said" || fail "$kind"
	grep -q 'tensors are those of .*, which is signed' "$work/said" || fail "$kind: $(<"$work/said")"
	"$m" verify "$mnt/latest/hf" --check "$work/sums" --key "$work/$kind.pem" --signature "$work/$kind.sig" >/dev/null || fail "$kind of openssl"
	unmount
done
refused 'another key' 1 'is not a signature of' "$m" verify "$source" --check "$work/sums" --key "$work/ed25519.pem"
refused 'a private key in its place' 1 'is no public key' "$m" verify "$source" --check "$work/sums" --key "$work/ed25519"
refused 'no signature' 1 'cannot open .*none' "$m" verify "$source" --check "$work/sums" --key "$work/ec.pem" --signature "$work/none"
refused 'sign with a public key' 1 'is no private key' "$m" sum "$source" --output "$work/new" --sign "$work/ed25519.pem"
[ ! -e "$work/new" ] || fail 'sums that could not be signed were written'
refused '--sign to stdout' 2 'needs --output' "$m" sum "$source" --sign "$work/ec"
sed -i '2s/^./0/' "$work/sums"
refused 'changed sums' 1 'is not a signature of' "$m" verify "$source" --check "$work/sums" --key "$work/ec.pem"
exit 0

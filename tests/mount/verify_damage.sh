#!/bin/bash
# verify: all problems by the tensor's name and an exit status of 1; never "ok" for half a file.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS

for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	name=$(basename "$source")
	"$m" verify "$source" >"$log" || fail "$name: verify"
	grep -q ': complete (--deep reads the bytes too)$' "$log" || fail "$name: no conclusion"
	same "$name: files" "$(grep -c '^ok ' "$log")" "$("$m" ls "$source" hf | wc -l)"
	"$m" verify "$source" --deep >"$log" || fail "$name: verify --deep"
	same "$name: sums" "$(grep -o '[0-9a-f]\{64\}' "$log")" "$("$m" verify "$source" latest/hf --sums | cut -d ' ' -f 1)"
done

# Zeros in the middle of one file of four: several tensors suffer, all are told, the rest is fine.
copy_fixture "$(cd "$FIXTURES" && echo weights/qwen3-torch_dist-*)"
chmod -R u+w "$ckpt"
dd if=/dev/zero of="$(echo "$ckpt"/iter_*)/__1_0.distcp" bs=1000 seek=30 count=40 conv=notrunc status=none
"$m" verify "$ckpt" >"$log" 2>"$work/problems"
same 'zeros: exit status' "$?" 1
grep -q '^DAMAGED .*model.safetensors' "$log" || fail 'zeros: the file is not named'
grep -q '^ok .*config.json' "$log" || fail 'zeros: config.json is fine'
same 'zeros: conclusion' "$(grep -c ': complete' "$log")" 0
[ "$(grep -c "tensor '.*__1_0.distcp" "$work/problems")" -ge 2 ] || fail "zeros: $(cat "$work/problems")"
same 'zeros: each is told once' "$(sort "$work/problems" | uniq -d | wc -l)" 0
"$m" verify "$ckpt" --deep --sums >"$log" 2>"$work/deep"
same 'zeros, deep: exit status' "$?" 1
grep -q model.safetensors "$log" && fail 'zeros, deep: a sum for a damaged file'
refused 'zeros: export' 1 "tensor '.*__1_0.distcp" "$m" export "$ckpt" hf "$work/out"
same 'zeros: nothing was left' "$(find "$work" -maxdepth 1 -name 'out*')" ''

# Sums that the run has left itself.
if command -v python3 >/dev/null; then
	copy_fixture "$(cd "$FIXTURES" && echo weights/qwen3-torch_dist-*)"
	chmod -R u+w "$ckpt"
	(cd "$ckpt"/iter_* && python3 -c "
import hashlib, json, os
names = [n for n in os.listdir('.') if os.path.isfile(n)]
sums = {n: hashlib.sha256(open(n, 'rb').read()).hexdigest() for n in names}
json.dump({'algorithm': 'sha256', 'files': sums}, open('integrity.json', 'w'))")
	"$m" verify --deep "$ckpt" | grep -q 'the sums of .* source files are right' || fail 'integrity.json'
	# A bit of a weight: no structure breaks, only the sum tells.
	printf '\377' | dd of="$(echo "$ckpt"/iter_*)/__2_0.distcp" bs=1 seek=5000 conv=notrunc status=none
	"$m" verify "$ckpt" >/dev/null || fail 'a changed weight is no matter of structure'
	"$m" verify --deep "$ckpt" >/dev/null 2>"$log"
	same 'a changed weight: exit status' "$?" 1
	grep -q "'__2_0.distcp': SHA-256 is" "$log" || fail 'a changed weight: the file is not named'
	rm "$log"
fi
exit 0

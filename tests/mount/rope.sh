#!/bin/bash
# The factor of Llama 3's rotary scaling: a checkpoint does not say whether Megatron passed the one in its arguments to
# the model, and a reference does.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is missing'

m=$MCOREFS

# A checkpoint whose arguments say 32, made from a HuggingFace model with a factor of 8.
"$m" export "$FIXTURES"/weights/llama-torch-tp2-pp2 hf "$work/hf" >/dev/null || fail 'export'
scaling='{"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "factor": 8.0}'
sed -i "/\"rope_parameters\": {/,/}/d; s/\"rope_scaling\": null/\"rope_scaling\": $scaling/" "$work/hf/config.json"
"$m" export "$work/hf" megatron/torch/tp1-pp1 "$work/llama32" >"$log" || fail 'export'
python3 - "$work/llama32/release/mp_rank_00/model_optim_rng.pt" <<'END' || fail 'planting'
import struct, sys, zipfile, zlib
with zipfile.ZipFile(sys.argv[1]) as z:
    entry = next(e for e in z.infolist() if e.filename.endswith("/data.pkl"))
    old = z.read(entry)
at = old.index(struct.pack(">cd", b"G", 8.0), old.index(b"rope_scaling_factor")) + 1
new = old[:at] + struct.pack(">d", 32.0) + old[at + 8:]
data = open(sys.argv[1], "rb").read()
for a, b in (old, new), (struct.pack("<I", zlib.crc32(old)), struct.pack("<I", zlib.crc32(new))):
    assert a in data
    data = data.replace(a, b)
open(sys.argv[1], "wb").write(data)
END

# Leaves in $log what the mount has logged.
factor_is() {
	rm -f "$log"
	mount_foreground "$work/llama32" "${@:2}"
	same "${*:2}" "$(tr -d ' \n' <"$mnt/latest/hf/config.json" | grep -o '"rope_\(parameters\|scaling\)":{[^}]*}' |
		grep -o '"factor":[0-9.]*' | tr '\n' ' ')" "\"factor\":$1.0 \"factor\":$1.0 "
	unmount
}

factor_is 8
grep -q 'rope_scaling_factor is 32, but config.json has 8' "$log" || fail "the log: $(cat "$log")"
for n in 8 32; do
	sed -i "s/\"factor\": [0-9]*.0/\"factor\": $n.0/" "$work/hf/config.json"
	factor_is $n -o "ref=$work/hf"
	grep -q factor "$log" && fail "the log with a reference: $(cat "$log")"
	"$m" ls "$work/llama32" megatron/torch_dist -o "ref=$work/hf" >/dev/null || fail 'a Megatron view of it'
done
sed -i 's/"low_freq_factor": 1.0/"low_freq_factor": 2.0/' "$work/hf/config.json"
refused 'another frequency' 1 "'rope_scaling' is .*low_freq_factor.:2.0" "$m" ls "$work/llama32" hf -o "ref=$work/hf"

# An HF model with another factor has no Megatron views. If its HF view cannot be built either, as for
# too many files, it is mounted all the same, and why-not.txt says why.
"$m" export "$FIXTURES"/weights/llama-torch-tp2-pp2 hf "$work/many" >/dev/null || fail 'export'
cp "$work/hf/config.json" "$work/many"
sed -i 's/"low_freq_factor": 2.0/"low_freq_factor": 1.0/' "$work/many/config.json"
(cd "$work/many" && seq -f '%g.txt' 4097 | xargs touch)
rm -f "$log"
mount_foreground "$work/many"
grep -q 'there is no HF view.*more than 4096 files' "$log" || fail "the log of a mount without views: $(cat "$log")"
[ -d "$mnt/hf" ] && [ -d "$mnt/raw" ] && [ ! -e "$mnt/megatron" ] || fail "entries without views: $(ls "$mnt")"
grep -q '^megatron: .*rotary scaling is 32' "$mnt/why-not.txt" || fail "why-not.txt: $(cat "$mnt/why-not.txt")"
unmount
exit 0

#!/bin/bash
# Tokens outside of the vocabulary: the rows that hold one are an error, and no others.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is missing'

name=tales_text_document
d=$mnt/data/$name
mkdir "$work/data" "$work/whole"
cp "$FIXTURES/data/$name".* "$work/data"

# Token 65535 in rows 0 and 1, in the middle and at the ends of others.
python3 - "$work/data/$name" <<'END' || fail 'planting'
import struct, sys
data = open(sys.argv[1] + ".idx", "rb").read()
rows, = struct.unpack_from("<Q", data, 18)
lengths = struct.unpack_from(f"<{rows}i", data, 34)
starts = struct.unpack_from(f"<{rows}q", data, 34 + 4 * rows)
with open(sys.argv[1] + ".bin", "r+b") as f:
    for row, token in (0, 0), (1, 3), (40, lengths[40] - 1), (41, lengths[41] // 2), (150, 0), (150, 1), (rows - 1, lengths[-1] - 1):
        assert token < lengths[row]
        f.seek(starts[row] + 2 * token)
        f.write(b"\xff\xff")
END

# The reference does not look; 65534 has as many digits as 65535, so that lines of JSON are as wide.
"$MCOREFS" "$work/data" "$work/whole" || fail 'mount of the reference'
w=$work/whole/data/$name
mount_foreground "$work/data" -o vocab_size=65535
grep -q 'tales_text_document: 6 rows hold tokens outside of a vocabulary of 65535' "$log" || fail "the log: $(cat "$log")"
for view in hf samples/train-s128 samples/valid-s128-n40 samples/train-s16-n5000; do
	said=$(python3 tests/mount/data_rows.py hf "$w/$view" "$d/$view" 2>&1) || fail "$view: $said"
	echo "$view: $said"
	[[ $said =~ ^[0-9]+\ rows,\ [1-9][0-9]*\ errors,\ 0\ beside ]] || fail "$view: $said"
done
for view in hf npy jsonl; do
	said=$(python3 tests/mount/data_rows.py $view "$w/$view" "$d/$view" 2>&1) || fail "$view: $said"
	echo "$view: $said"
	[[ $said =~ ^240\ rows,\ 6\ errors ]] || fail "$view: $said"
done
cmp "$d/npy/offsets.npy" "$w/npy/offsets.npy" || fail 'offsets.npy'
unmount
umount "$work/whole" 2>/dev/null || fusermount3 -u "$work/whole"
said=$("$MCOREFS" verify "$work/data" --deep -o vocab_size=65535 2>&1) && fail 'verify finds nothing'
for row in 0 1 40 41 150 239; do
	grep -q "row $row holds token 65535, outside of a vocabulary of 65535" <<<"$said" || fail "verify: row $row: $said"
done
grep -q ': 6 problems found' <<<"$said" || fail "verify: $said"

# ---- more tokens than are looked at without being asked ----

# 34 rows of 2^20 tokens: zeros, but for one.
python3 - "$work/large" <<'END' || fail 'a large dataset'
import os, struct, sys
rows, length = 34, 1 << 20
with open(sys.argv[1] + ".idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, rows, rows + 1) + struct.pack(f"<{rows}i", *[length] * rows)
            + struct.pack(f"<{rows}q", *[2 * length * i for i in range(rows)]) + struct.pack(f"<{rows + 1}q", *range(rows + 1)))
with open(sys.argv[1] + ".bin", "wb") as f:
    f.truncate(2 * rows * length)
    os.pwrite(f.fileno(), b"\1", 2 * length * 20 + 1001)
END
said=$("$MCOREFS" inspect "$work/large" --json -o vocab_size=256 2>&1) || fail "inspect: $said"
grep -q vocabulary <<<"$said" && fail "all of a large dataset was looked at: $said"
said=$("$MCOREFS" inspect "$work/large" --json -o vocab_size=256,vocab_scan 2>&1) || fail "inspect, vocab_scan: $said"
grep -q '1 row holds tokens outside of a vocabulary of 256' <<<"$said" || fail "vocab_scan: $said"
refused 'vocab_scan alone' 1 'vocab_size=N' "$MCOREFS" inspect "$work/large" -o vocab_scan

"""Makes corpus/deltas and reject/deltas: python3 tests/fuzz/make_deltas_seeds.py. As make_idx_seeds.py; an input: fuzz_deltas.c."""

import json
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
TENSOR = bytes(range(8))
FILE = "model-00000-of-00001.safetensors"
META = {"version": "000002", "base_version": "000001", "delta_encoding": "xor", "compression_format": "zstd", "checksum_format": "adler32"}


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/deltas", exist_ok=True)
    with open(f"{HERE}/{kind}/deltas/{name}", "wb") as f:
        f.write(data)


def frame(data, window=None, size=None):
    """A frame of zstd whose one block is not compressed (RFC 8878)."""
    size = len(data) if size is None else size
    header = bytes([0xa0]) + struct.pack("<I", size) if window is None else bytes([0x00, (window - 10) << 3])
    return b"\x28\xb5\x2f\xfd" + header + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def change(kind, size, data):
    return kind.encode() + struct.pack("<I", size) + data


def overwrite(positions, values, count=None):
    count = len(positions) if count is None else count
    return struct.pack(f"<I{len(positions)}I", count, *positions) + bytes(values)


def safetensors(tensors, sums, types="U8"):
    header, data = {"__metadata__": sums}, b""
    for name, stored in tensors.items():
        header[name] = {"dtype": types, "shape": [len(stored)], "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps({k: v for k, v in header.items() if v is not None}).encode()
    return struct.pack("<Q", len(text)) + text + data


def adler(data):
    return f"{zlib.adler32(data):08x}"


def version(metadata=META, weight_map={"t": FILE}, weights=None, text=None):
    index = json.dumps({k: v for k, v in (("metadata", metadata), ("weight_map", weight_map)) if v is not None}).encode() if text is None else text
    return b"v" + struct.pack("<I", len(index)) + index + (weights or b"")


def main():
    xor = bytes([1, 0, 0, 0, 0, 0, 0, 128])
    new = bytes(a ^ b for a, b in zip(TENSOR, xor))
    sums = {"t": adler(new)}
    weights = safetensors({"t": frame(xor)}, sums)
    over = frame(overwrite([0, 7], [1, 135]))

    save("corpus", "ok-xor", change("x", 8, frame(xor)))
    save("corpus", "ok-xor-without-a-size", change("x", 8, frame(xor, window=17)))
    save("corpus", "ok-xor-of-nothing", change("x", 0, frame(b"")))
    save("corpus", "ok-overwrite", change("o", 8, over))
    save("corpus", "ok-overwrite-nothing", change("o", 8, frame(overwrite([], []))))
    save("corpus", "ok-overwrite-all", change("o", 5000, frame(overwrite(range(5000), bytes(5000)))))
    save("corpus", "ok-base", b"b" + json.dumps({"base": "/run", "view": "", "checksum_format": "xxh3-128", "checksums": {"b": "1", "a": "2"}}).encode())
    save("corpus", "ok-version", version(weights=weights))
    save("corpus", "ok-version-by-numbers", version({**META, "version": 2, "base_version": 1}, weights=weights))
    save("corpus", "ok-version-of-overwrite", version({**META, "delta_encoding": "overwrite"}, weights=safetensors({"t": over}, sums)))
    save("corpus", "ok-version-without-changes", version(weight_map={}))
    save("corpus", "ok-version-with-a-tensor-that-is-not-in-the-index", version(weight_map={}, weights=weights))

    save("reject", "nothing", b"")
    for name, data in {
        "cut": frame(xor)[:-1],
        "empty": b"",
        "no-zstd": xor,
        "shorter-than-the-tensor": frame(xor[:-1]),
        "longer-than-the-tensor": frame(xor + b"\0"),
        "two-frames": frame(xor[:4]) + frame(xor[4:]),
        "bytes-after-the-frame": frame(xor) + b"\0",
        "window-of-32-mib": frame(xor, window=25),
        "size-that-is-not-true": frame(xor, size=9),
    }.items():
        save("reject", f"xor-{name}", change("x", 8, data))
    for name, data in {
        "cut": over[:-1],
        "no-count": frame(b"\1\0"),
        "more-bytes-than-the-tensor": frame(overwrite(range(9), bytes(9))),
        "fewer-positions-than-it-says": frame(overwrite([0], [1], count=2)),
        "fewer-values-than-it-says": frame(overwrite([0, 7], [1])),
        "more-values-than-it-says": frame(overwrite([0, 7], [1, 2, 3])),
        "a-position-twice": frame(overwrite([3, 3], [1, 2])),
        "positions-that-descend": frame(overwrite([7, 0], [1, 2])),
        "a-position-beyond-the-end": frame(overwrite([0, 8], [1, 2])),
    }.items():
        save("reject", f"overwrite-{name}", change("o", 8, data))
    base = {"base": "/run", "view": "hf", "checksum_format": "xxh3-128", "checksums": {}}
    for name, text in {
        "no-json": b"{",
        "a-list": b"[]",
        "without-a-base": json.dumps({**base, "base": None}).encode(),
        "without-a-view": json.dumps({**base, "view": 1}).encode(),
        "of-other-checksums": json.dumps({**base, "checksum_format": "md5"}).encode(),
        "with-a-checksum-that-is-a-number": json.dumps({**base, "checksums": {"t": 1}}).encode(),
    }.items():
        save("reject", f"base-{name}", b"b" + text)
    for key in META:
        save("reject", f"version-without-{key.replace('_', '-')}", version({k: v for k, v in META.items() if k != key}, weights=weights))
    for name, data in {
        "without-an-index": b"v\0\0\0\0",
        "of-no-json": version(text=b"{", weights=weights),
        "without-metadata": version(None, weights=weights),
        "without-a-map": version(weight_map=None, weights=weights),
        "of-another-encoding": version({**META, "delta_encoding": "add"}, weights=weights),
        "of-another-compression": version({**META, "compression_format": "lz4"}, weights=weights),
        "of-blake3": version({**META, "checksum_format": "blake3"}, weights=weights),
        "negative": version({**META, "version": -1}, weights=weights),
        "with-letters": version({**META, "version": "00000b"}, weights=weights),
        "of-a-sum-of-another-kind": version({**META, "checksum_format": "xxh3-128"}, weights=weights),
        "without-its-file": version(),
        "whose-file-is-cut": version(weights=weights[:-1]),
        "whose-file-is-elsewhere": version(weight_map={"t": "../" + FILE}, weights=weights),
        "whose-map-names-a-number": version(weight_map={"t": 1}, weights=weights),
        "without-a-tensor": version(weight_map={"t": FILE, "u": FILE}, weights=weights),
        "without-a-checksum": version(weights=safetensors({"t": frame(xor)}, {"u": adler(new)})),
        "without-checksums": version(weights=safetensors({"t": frame(xor)}, None)),
        "with-a-checksum-in-capitals": version(weights=safetensors({"t": frame(xor)}, {"t": "0A" + adler(new)[2:]})),
        "with-another-checksum": version(weights=safetensors({"t": frame(xor)}, {"t": adler(TENSOR)})),
    }.items():
        save("reject", f"version-{name}", data)


main()

"""Makes corpus/scan, reject/scan, corpus/integrity and reject/integrity: python3 tests/fuzz/make_scan_seeds.py

Seeds called ok-* must be accepted. Each input under reject/ breaks one rule, which its name says.
"""

import bz2
import collections
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
STATE = pickle.dumps({"a": collections.OrderedDict(x=1)}, 2)  # it imports collections OrderedDict
PLAIN = pickle.dumps([1, 2], 2)
CUT = STATE[:-1]  # STOP is missing after an import
BROKEN = b"\x80\x02cos\nsystem\nR."  # a call of nothing, after an import


def save(kind, target, name, data):
    os.makedirs(f"{HERE}/{kind}/{target}", exist_ok=True)
    with open(f"{HERE}/{kind}/{target}/{name}", "wb") as f:
        f.write(data)


def archive(method=zipfile.ZIP_STORED, **records):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in records.items():
            z.writestr(zipfile.ZipInfo(f"archive/{name.replace('_', '.')}"), data, method)
    return out.getvalue()


def npy(data, descr="|O"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def tar(*members, kind=tarfile.REGTYPE):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for i, data in enumerate(members):
            info = tarfile.TarInfo(f"member{i}")
            info.size, info.type = len(data), kind
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()[:-tarfile.RECORDSIZE + 512 * (1 + 2 * len(members))]


def lying(data, name=None, method=None):
    """The local header of the first record says another name or method than the directory."""
    data = bytearray(data)
    if name:
        data[30:30 + len(name)] = name
    if method is not None:
        struct.pack_into("<H", data, 8, method)
    return bytes(data)


def nested(data, times):
    for _ in range(times):
        data = zlib.compress(data, 9)
    return data


save("corpus", "scan", "ok-archive", archive(data_pkl=STATE, byteorder=b"little"))
save("corpus", "scan", "ok-two-archives", archive(data_pkl=STATE) + archive(data_pkl=PLAIN))
save("corpus", "scan", "ok-stream", PLAIN * 3 + STATE + b"storage")
save("corpus", "scan", "ok-objects-of-numpy", npy(STATE))
save("corpus", "scan", "ok-numbers-compressed", archive(zipfile.ZIP_DEFLATED, a_npy=npy(bytes(8), "<i8")))
save("corpus", "scan", "ok-no-pickle", b"nothing of this is a pickle")
save("corpus", "scan", "ok-empty", b"")
save("corpus", "scan", "ok-deflated", archive(zipfile.ZIP_DEFLATED, data_pkl=STATE))
save("corpus", "scan", "ok-objects-deflated", archive(zipfile.ZIP_DEFLATED, a_npy=npy(STATE)))
save("corpus", "scan", "ok-lying-name", lying(archive(data_pkl=STATE), name=b"archive/text"))
save("corpus", "scan", "ok-lying-method", lying(archive(zipfile.ZIP_DEFLATED, data_pkl=STATE), method=0))
save("corpus", "scan", "ok-tar", tar(STATE, PLAIN))
save("corpus", "scan", "ok-gzip", gzip.compress(STATE, mtime=0) + gzip.compress(PLAIN, mtime=0))
save("corpus", "scan", "ok-zlib", zlib.compress(STATE))
save("corpus", "scan", "ok-tar-gzip", gzip.compress(tar(STATE), mtime=0))
save("corpus", "scan", "ok-zip-in-zip", archive(zipfile.ZIP_DEFLATED, x_zip=archive(zipfile.ZIP_DEFLATED, data_pkl=STATE)))
save("corpus", "scan", "ok-storage-by-name", b"\x80\x02c\x01x\nFloatStorage\n.")
save("corpus", "scan", "ok-registry-no-end", b"\x82\x01\xff\xff")
save("corpus", "scan", "ok-numbers-are-no-names", b"K\x01K\x02\x93.")
save("reject", "scan", "record-bzip2", archive(zipfile.ZIP_BZIP2, data_pkl=STATE))
save("reject", "scan", "record-lzma", archive(zipfile.ZIP_LZMA, data_pkl=STATE))
save("reject", "scan", "record-bzip2-says-the-directory", lying(archive(zipfile.ZIP_BZIP2, data_pkl=STATE), method=0))
save("reject", "scan", "record-damaged", lying(archive(data_pkl=STATE), method=8))
save("reject", "scan", "record-of-torchscript", archive(constants_pkl=PLAIN))
save("reject", "scan", "deflated-broken-behind-import", archive(zipfile.ZIP_DEFLATED, data_pkl=BROKEN))
save("reject", "scan", "tar-sparse", tar(STATE, kind=b"S"))
save("reject", "scan", "tar-broken-behind-import", tar(PLAIN, BROKEN))
save("reject", "scan", "bzip2", bz2.compress(STATE))
save("reject", "scan", "xz", lzma.compress(STATE))
save("reject", "scan", "lzma", lzma.compress(STATE, lzma.FORMAT_ALONE))
save("reject", "scan", "zstd", b"\x28\xb5\x2f\xfd" + bytes(16))
save("reject", "scan", "lz4", b"\x04\x22\x4d\x18" + bytes(16))
save("reject", "scan", "skipped-frame", b"\x5a\x2a\x4d\x18" + bytes(16))
save("reject", "scan", "compressed-nine-times", nested(STATE, 9))
save("reject", "scan", "joblib-arrays", b"\x80\x02cjoblib.numpy_pickle\nNumpyArrayWrapper\n.")
save("reject", "scan", "record-cut-behind-import", archive(data_pkl=CUT)[:-1 - len(archive(data_pkl=CUT).split(CUT)[1])])
save("reject", "scan", "record-broken-behind-import", archive(data_pkl=BROKEN))
save("reject", "scan", "stream-broken-behind-import", PLAIN + BROKEN)
save("reject", "scan", "stream-cut-behind-import", PLAIN + CUT)
save("reject", "scan", "65-pickles", PLAIN * 65)

SUMS = {".metadata": hashlib.sha256(b"m").hexdigest(), "common.pt": hashlib.sha256(b"c").hexdigest()}


def manifest(files=SUMS, algorithm="sha256", **more):
    return json.dumps(dict(algorithm=algorithm, files=files, **more)).encode()


save("corpus", "integrity", "ok-plain", manifest())
save("corpus", "integrity", "ok-capitals", manifest({name: value.upper() for name, value in SUMS.items()}))
save("corpus", "integrity", "ok-more-keys", manifest(version=[1, None]))
save("reject", "integrity", "no-json", manifest()[:-1])
save("reject", "integrity", "empty", b"")
save("reject", "integrity", "a-list", b"[]")
save("reject", "integrity", "no-algorithm", json.dumps(dict(files=SUMS)).encode())
save("reject", "integrity", "algorithm-md5", manifest(algorithm="md5"))
save("reject", "integrity", "algorithm-a-number", manifest(algorithm=256))
save("reject", "integrity", "no-files", json.dumps(dict(algorithm="sha256")).encode())
save("reject", "integrity", "files-a-list", manifest(list(SUMS)))
save("reject", "integrity", "file-twice", manifest().replace(b'".metadata"', b'"common.pt"'))
save("reject", "integrity", "file-not-named", manifest({"common.pt": SUMS["common.pt"]}))
save("reject", "integrity", "file-missing", manifest(SUMS | {"__0_0.distcp": SUMS["common.pt"]}))
save("reject", "integrity", "file-above", manifest(SUMS | {"../common.pt": SUMS["common.pt"]}))
save("reject", "integrity", "file-of-root", manifest(SUMS | {"/etc/hostname": SUMS["common.pt"]}))
save("reject", "integrity", "file-is-the-directory", manifest(SUMS | {".": SUMS["common.pt"]}))
save("reject", "integrity", "file-is-the-parent", manifest(SUMS | {"..": SUMS["common.pt"]}))
save("reject", "integrity", "name-with-nul", manifest().replace(b"common.pt", b"common.pt\\u0000"))
save("reject", "integrity", "sum-of-another", manifest(SUMS | {"common.pt": SUMS[".metadata"]}))
save("reject", "integrity", "sum-short", manifest(SUMS | {"common.pt": SUMS["common.pt"][:-1]}))
save("reject", "integrity", "sum-a-number", manifest(SUMS | {"common.pt": 5}))
save("reject", "integrity", "sum-null", manifest(SUMS | {"common.pt": None}))

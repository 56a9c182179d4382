"""Deltas of weights as slime writes them (disk_delta.py, update_weight_from_disk_delta.py) and SGLang's /pull_weights applies them
(local_checkpoint.py of slime's patch), in the same steps with the same libraries. Their own code is not in a package: with
MCOREFS_SLIME=CLONE, a clone of slime, its functions take the place of these."""
import glob
import json
import mmap
import os
import struct
import subprocess
import types
import zlib

import numpy as np
import safetensors.numpy
import xxhash
import zstandard

PATCH = "docker/patch/latest/sglang-pull_weights.patch"
RECEIVER = "b/python/sglang/srt/weight_sync/local_checkpoint.py\n@@"


def checksum(kind, data):
    return xxhash.xxh3_128(data).hexdigest() if kind == "xxh3-128" else f"{zlib.adler32(data):08x}"


def overwrite_encode(new, changed):
    positions = np.flatnonzero(changed).astype("<u4")
    return np.concatenate([np.array([positions.size], "<u4").view(np.uint8), positions.view(np.uint8), new[changed]])


def tensors(directory):
    """NAME: (file, offset, bytes), by every header."""
    found = {}
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        with open(path, "rb") as f:
            length, = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
        found |= {name: (path, 8 + length + t["data_offsets"][0], t["data_offsets"][1] - t["data_offsets"][0])
                  for name, t in header.items() if name != "__metadata__"}
    return found


def read(directory):
    found = {}
    for name, (path, offset, size) in tensors(directory).items():
        found[name] = np.fromfile(path, np.uint8, size, offset=offset)
    return found


def write(old, new, out, version, encoding, kind, files=2):
    """Publishes what changes between two dicts of bytes; `files` ranks write one file each."""
    place = os.path.join(out, f"weight_v{version:06d}")
    os.makedirs(place)
    parts = [({}, {}) for _ in range(files)]
    for number, name in enumerate(new):
        changed = old[name] != new[name]
        if changed.any():
            data = new[name] ^ old[name] if encoding == "xor" else overwrite_encode(new[name], changed)
            compressed, sums = parts[number % files]
            compressed[name] = np.frombuffer(zstandard.ZstdCompressor(level=1).compress(data), np.uint8)
            sums[name] = checksum(kind, new[name])
    parts = [part for part in parts if part[0]]
    where = {}
    for number, (compressed, sums) in enumerate(parts):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        with open(os.path.join(place, file), "wb") as f:
            f.write(safetensors.numpy.save(compressed, metadata=sums))
        where |= dict.fromkeys(compressed, file)
    meta = {"version": f"{version:06d}", "base_version": f"{version - 1:06d}", "delta_encoding": encoding, "compression_format": "zstd",
            "checksum_format": kind}
    with open(os.path.join(place, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": meta, "weight_map": where}, f)


def apply(local, version_dir):
    """Changes a directory's safetensors in place, and raises where a checksum is wrong."""
    with open(os.path.join(version_dir, "model.safetensors.index.json")) as f:
        meta = json.load(f)["metadata"]
    assert meta["compression_format"] == "zstd"
    places = tensors(local)
    for name, (path, offset, size) in tensors(version_dir).items():
        with open(path, "rb") as f:
            length, = struct.unpack("<Q", f.read(8))
            want = json.loads(f.read(length))["__metadata__"][name]
            f.seek(offset)
            stored = f.read(size)
        delta = np.frombuffer(zstandard.ZstdDecompressor().decompress(stored), np.uint8)
        path, offset, size = places[name]
        with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
            region = np.ndarray((size,), np.uint8, mapped, offset)
            if meta["delta_encoding"] == "xor":
                region ^= delta
            else:
                count = int(delta[:4].view("<u4")[0])
                region[delta[4:4 + 4 * count].copy().view("<u4")] = delta[4 + 4 * count:]
            found = checksum(meta["checksum_format"], region.tobytes())
            del region
        if found != want:
            raise RuntimeError(f"checksum mismatch: {name}")


def pull(local, base, source, version):
    """Brings a copy of base to a version."""
    os.makedirs(local)
    for entry in os.scandir(base):
        with open(entry.path, "rb") as f, open(os.path.join(local, entry.name), "wb") as to:
            to.write(f.read())
    for number in range(1, version + 1):
        apply(local, os.path.join(source, f"weight_v{number:06d}"))


def theirs(clone):
    """Their functions in the place of these."""
    def show(path):
        return subprocess.run(["git", "-C", clone, "show", f"HEAD:{path}"], capture_output=True, text=True, check=True).stdout

    patch, sender, receiver = show(PATCH), types.ModuleType("disk_delta"), types.ModuleType("local_checkpoint")
    added = patch[patch.index(RECEIVER):].splitlines()[2:]
    exec("\n".join(line[1:] for line in added if line.startswith("+")), receiver.__dict__)
    exec(show("slime/utils/disk_delta.py"), sender.__dict__)
    globals().update(pull=receiver.pull, overwrite_encode=sender.overwrite_encode, checksum=sender.checksum)


if os.environ.get("MCOREFS_SLIME"):
    theirs(os.environ["MCOREFS_SLIME"])

"""Mounts the giants and looks at them. The last line counts, as tests/run.sh expects.

Times are printed beside their goals and never decide: the machine may be busy. Memory and counts do.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MCOREFS = os.environ.get("MCOREFS", f"{HERE}/../../build/mcorefs")
MIB = 1 << 20
RSS_LIMIT = 100 * MIB
counts = {"passed": 0, "failed": 0}


def check(ok, what):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAILED {what}", flush=True)


def measured(what, value, unit, goal):
    print(f"measured: {what}: {value:.3g} {unit} (goal: {goal})", flush=True)


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        fields = dict(line.split(":", 1) for line in f if line.startswith(("Vm", "Rss")))
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}


def check_memory(pid, when, name, fields=("VmRSS", "VmHWM", "RssAnon")):
    values = memory(pid)
    for field in fields:
        value = values[field]
        check(value < RSS_LIMIT, f"{name}: {field} {when}: {value / MIB:.1f} MiB, expected less than 100")
    print(f"measured: {name}: memory {when}: " + ", ".join(f"{k} {v / MIB:.1f} MiB" for k, v in values.items()) +
          " (goal: < 100)", flush=True)


def daemon_of(mnt):
    """The process that serves mnt: mounts in the foreground name themselves."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if mnt.encode() in words and b"mcorefs" in os.path.basename(words[0]):
            return int(pid)
    return None


def listing(directory):
    return {e.name: e.stat().st_size for e in os.scandir(directory)}


def header(path):
    """Tensors of a safetensors file, and where their data starts."""
    with open(path, "rb", buffering=0) as f:
        size, = struct.unpack("<Q", f.read(8))
        text = b""
        while len(text) < size:
            text += f.read(size - len(text))
    tensors = json.loads(text)
    tensors.pop("__metadata__")
    return tensors, 8 + size


def read_at(path, offset, size):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


def check_shards(name, hf, sizes, expected_tensors, expected_bytes):
    with open(f"{hf}/model.safetensors.index.json") as f:
        index = json.load(f)
    shards = {n: s for n, s in sizes.items() if n.endswith(".safetensors")}
    check(len(index["weight_map"]) == expected_tensors,
          f"{name}: expected {expected_tensors} tensors, found {len(index['weight_map'])}")
    check(index["metadata"]["total_size"] == expected_bytes,
          f"{name}: expected {expected_bytes} bytes, found {index['metadata']['total_size']}")
    check(set(index["weight_map"].values()) == set(shards), f"{name}: the index names other files than are there")
    rng, data_bytes, tensor_count, bad = random.Random(7), 0, 0, []
    for shard, size in sorted(shards.items()):
        tensors, start = header(f"{hf}/{shard}")
        ends = [t["data_offsets"][1] for t in tensors.values()]
        if start + max(ends) != size:
            bad.append(f"{shard}: expected {start + max(ends)} bytes, found {size}")
        data_bytes += max(ends)
        tensor_count += len(tensors)
        tensor, entry = rng.choice(sorted(tensors.items()))
        begin, end = entry["data_offsets"]
        piece = read_at(f"{hf}/{shard}", start + begin, min(end - begin, 65536))
        if piece != bytes(min(end - begin, 65536)):
            bad.append(f"{shard}: {tensor} is not what its hole holds")
    check(not bad, f"{name}: {'; '.join(bad[:5])}")
    check(data_bytes == expected_bytes and tensor_count == expected_tensors, f"{name}: shards do not add up to the index")
    print(f"measured: {name}: {len(shards)} shards, {tensor_count} tensors, {data_bytes} bytes", flush=True)


def first_tensor(hf, sizes):
    """Opens a shard from the middle and reads the first megabyte of its first tensor, as a loader would."""
    shards = sorted(n for n in sizes if n.endswith(".safetensors"))
    path = f"{hf}/{shards[len(shards) // 2]}"
    start = time.monotonic()
    tensors, data = header(path)
    begin, end = min(t["data_offsets"] for t in tensors.values())
    read_at(path, data + begin, min(end - begin, MIB))
    return time.monotonic() - start


def look(name, source, mnt, tensors, total):
    start = time.monotonic()
    subprocess.run([MCOREFS, source, mnt], check=True)
    mounted = time.monotonic()
    hf = f"{mnt}/latest/hf"
    sizes = listing(hf)
    listed = time.monotonic()
    pid = daemon_of(mnt)
    measured(f"{name}: mount and first listing", listed - start, "s", "< 1")
    measured(f"{name}: of it the listing", listed - mounted, "s", "part of it")
    check_memory(pid, "after the listing", name)
    measured(f"{name}: first tensor", 1000 * first_tensor(hf, sizes), "ms", "< 50")
    check_memory(pid, "after the first tensor", name)
    start = time.monotonic()
    check_shards(name, hf, sizes, tensors, total)
    measured(f"{name}: all headers and a piece of each shard", time.monotonic() - start, "s", "none")
    # The high-water mark now has pages of the sources in it, which are the kernel's to keep or to drop.
    check_memory(pid, "after a piece of each shard", name, ("VmRSS", "RssAnon"))


# A layout of each that it was not saved at; stages of the 405 B are named by nobody, its uneven ends carry over.
RESHARDED = {"llama-405b": ("tp2-pp4", 8), "deepseek-671b": ("tp4-pp16-ep16-first16", 16 * 64)}


def look_resharded(name, source, mnt, total):
    layout, ranks = RESHARDED[name]
    subprocess.run([MCOREFS, source, mnt], check=True)
    start = time.monotonic()
    files = {}
    for directory, _, names in os.walk(f"{mnt}/latest/megatron/torch/{layout}"):
        files.update({f"{directory}/{n}": os.stat(f"{directory}/{n}").st_size for n in names})
    measured(f"{name}: listing of {layout}", time.monotonic() - start, "s", "< 1")
    archives = {p: s for p, s in files.items() if p.endswith("/model_optim_rng.pt")}
    check(len(archives) == ranks, f"{name}: expected {ranks} files, found {len(archives)}")
    check(sum(archives.values()) >= total, f"{name}: expected {total} bytes and more, found {sum(archives.values())}")
    path = sorted(archives)[len(archives) // 2]
    check(read_at(path, 0, 4) == b"PK\3\4" and read_at(path, archives[path] - 22, 4) == b"PK\5\6", f"{name}: {path} is no archive")
    check_memory(daemon_of(mnt), f"after listing {layout}", name, ("VmRSS", "RssAnon") if name == "llama-405b" else ())


def peak_of(command):
    """Peak resident size of a command, through a shell's child of its own."""
    script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    run = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
    return int(run.stdout) * 1024 if run.returncode == 0 else None


def unmount(mnt):
    """Returns when the daemon has ended: the next one at this place is to be told from it."""
    pid = daemon_of(mnt)
    done = subprocess.run(["umount", mnt] if os.getuid() == 0 else ["fusermount3", "-u", mnt])
    while done.returncode == 0 and pid and os.path.exists(f"/proc/{pid}/cmdline"):
        time.sleep(0.01)


def giant(kind, work):
    source, mnt = f"{work}/{kind}", f"{work}/{kind}-mnt"
    os.mkdir(mnt)
    made = subprocess.run([sys.executable, f"{HERE}/make.py", kind, source], check=True, capture_output=True, text=True)
    files, tensors, parameters, total = map(int, made.stdout.split())
    print(f"measured: {kind}: {files} files, {parameters / 1e9:.1f} billion parameters", flush=True)
    try:
        look(kind, source, mnt, tensors, total)
    finally:
        unmount(mnt)
    try:
        look_resharded(kind, source, mnt, total)
    finally:
        unmount(mnt)
    start = time.monotonic()
    peak = peak_of([MCOREFS, "inspect", source])
    check(peak is not None, f"{kind}: inspect failed")
    if peak is not None:
        print(f"measured: {kind}: inspect: {time.monotonic() - start:.3g} s, peak {peak / MIB:.1f} MiB", flush=True)
    shutil.rmtree(source)


def main():
    subprocess.run([sys.executable, f"{HERE}/selftest.py"], check=True)
    work = tempfile.mkdtemp(prefix="mcorefs-giants-", dir=os.environ.get("TMPDIR"))
    try:
        free = shutil.disk_usage(work).free
        for kind in ("llama-405b", "deepseek-671b"):
            if free < 600 * MIB:
                print(f"skipped: giants/{kind}: {free / MIB:.0f} MiB free, 600 are needed")
                counts["skipped"] = counts.get("skipped", 0) + 1
                continue
            giant(kind, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts.get('skipped', 0)} skipped")
    return 1 if counts["failed"] else 0


sys.exit(main())

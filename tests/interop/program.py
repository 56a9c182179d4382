"""Runs mcorefs: mounts, exports, and the directory that a test looks at."""
import contextlib
import gc
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

BINARY = os.environ.get("MCOREFS_BINARY", "mcorefs")
SECONDS = 600  # for one command: a hang is a failure, not a wait


def run(*arguments):
    """The finished process; its output is text."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS)


def options(values):
    """Mount options as arguments: {"shard_size": 100000, "no_optim": True} gives -o shard_size=100000,no_optim."""
    return ["-o", ",".join(key if value is True else f"{key}={value}" for key, value in values.items())] if values else []


def can_mount():
    """MCOREFS_NO_MOUNT=1 tests the way of a machine without FUSE."""
    return not os.environ.get("MCOREFS_NO_MOUNT") and os.access("/dev/fuse", os.R_OK | os.W_OK)


def unmount(path):
    """A model in float32 may still map a tensor that is stored so; then the mount goes with its last user."""
    fuse = shutil.which("fusermount3")
    polite, lazy = ([fuse, "-u"], [fuse, "-u", "-z"]) if fuse else (["umount"], ["umount", "-l"])
    gc.collect()
    if subprocess.run([*polite, path], capture_output=True, timeout=SECONDS).returncode:
        subprocess.run([*lazy, path], check=True, timeout=SECONDS)


@contextlib.contextmanager
def mounted(source, **values):
    """The mount point of `source`."""
    with tempfile.TemporaryDirectory(prefix="mcorefs-mount-") as point:
        done = run(source, point, *options(values))
        assert done.returncode == 0, f"mount of {source}: {done.stderr}"
        try:
            yield pathlib.Path(point)
        finally:
            unmount(point)


@contextlib.contextmanager
def serving(*arguments):
    """The address of `mcorefs serve` with these arguments."""
    process = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if "serving on " in line:
            break
    # Nobody reads what it says later: a pipe that is full would stop it.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        assert said and "serving on " in said[-1], "".join(said)
        yield said[-1].split("serving on ")[1].strip()
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


def export(source, view, destination, **values):
    return run("export", source, view, destination, *options(values))


@contextlib.contextmanager
def hf(source, view="latest/hf", **values):
    """The HF directory of `source`: through a mount, or exported where nothing can be mounted."""
    if can_mount():
        with mounted(source, **values) as point:
            yield point / view
        return
    with tempfile.TemporaryDirectory(prefix="mcorefs-export-") as parent:
        done = export(source, view, f"{parent}/hf", **values)
        assert done.returncode == 0, f"export of {source}: {done.stderr}"
        yield pathlib.Path(parent) / "hf"

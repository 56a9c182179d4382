"""Checkpoints written for this run by megatron-core, each once, kept in MCOREFS_VENVS for as long as their recipe stands."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import checkpoints
import venvs

HERE = pathlib.Path(__file__).parent
RECIPE = [HERE / "checkpoints.py", HERE / "peers" / "mcore_cpu.py", HERE / "peers" / "write_megatron.py", HERE / "peers" / "write_others.py"]


def store():
    """A directory named after the recipe; those of other recipes go."""
    name = hashlib.sha256(b"".join(path.read_bytes() for path in RECIPE)).hexdigest()[:12]
    parent = venvs.ROOT / "checkpoints"
    for old in parent.glob("*"):
        if old.name != name:
            shutil.rmtree(old)
    (parent / name).mkdir(parents=True, exist_ok=True)
    return parent / name


def interpreter(core, zarr=False):
    """The Python and the environment in which this version of megatron-core runs, and finds zarr if it is to write that."""
    environment = dict(os.environ)
    if core == checkpoints.Spec.core:
        return sys.executable, environment
    old = tuple(map(int, core.split("."))) <= (0, 12, 99)
    python = venvs.python("old", "megatron-core <= 0.12") if old else sys.executable
    environment["PYTHONPATH"] = str(venvs.core(core, python))
    if zarr:
        environment["PYTHONPATH"] += f":{venvs.folder('zarr', 'zarr 2', python)}"
    return python, environment


class Writer:
    def __init__(self, wanted):
        self.wanted, self.store, self.tried, self.missing = wanted, store(), set(), {}

    def path(self, spec):
        """Where `spec` lies; writes all wanted checkpoints of its version first, once."""
        place = self.store / spec.name
        if not place.exists() and spec.name not in self.tried:
            asked = [s for s in checkpoints.ALL if s.core == spec.core and s.name not in self.tried and (s.name in self.wanted or s == spec)]
            self.tried.update(s.name for s in asked)
            self.write(asked)
        if spec.core in self.missing:
            pytest.skip(self.missing[spec.core])
        if not place.exists():
            log = place.with_suffix(place.suffix + ".log") if place.suffix else place.parent / f"{place.name}.log"
            pytest.fail(f"megatron-core {spec.core} did not write {spec.name}:\n{log.read_text()[-2000:] if log.exists() else ''}")
        return place

    def write(self, specs):
        core = specs[0].core
        try:
            python, environment = interpreter(core, any(s.format == "zarr" for s in specs))
        except venvs.Missing as reason:
            self.missing[core] = str(reason)
            return
        with open(self.store / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may share the store
            names = [s.name for s in specs if not (self.store / s.name).exists()]
            subprocess.run([python, HERE / "peers" / "write_megatron.py", self.store, *names], env=environment, timeout=3600,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

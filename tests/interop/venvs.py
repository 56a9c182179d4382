"""Virtual environments beside the main one (which run.sh makes): installed when first asked for, kept, never in the tree."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path(os.environ["MCOREFS_VENVS"])
UV = os.environ["MCOREFS_UV"]
SECONDS = 1800
OLD_CORES = ("0.10.0", "0.12.3")  # which run in the environment of requirements-old.txt
CORES = ("0.14.0", "0.15.3")  # in the main one, in addition to the core that it has


class Missing(Exception):
    """What could not be installed, and why, in one line."""


def uv(what, *arguments):
    try:
        done = subprocess.run([UV, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: could not be installed within {SECONDS} s") from None
    if done.returncode:
        raise Missing(f"{what}: could not be installed: {' '.join(done.stderr.split())[-300:]}")


def once(what, place, recipe, install):
    """Runs `install` unless `place` was made by the same recipe; half an installation does not count, and two runs may ask for one."""
    stamp, wanted = place / "installed", hashlib.sha256(recipe.encode()).hexdigest()
    with open(ROOT / f".{place.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return place
        shutil.rmtree(place, ignore_errors=True)
        install()
        stamp.write_text(wanted)
    return place


def python(name, what):
    """The interpreter of the environment of requirements-NAME.txt."""
    place, requirements = ROOT / name, HERE / f"requirements-{name}.txt"

    def install():
        uv(what, "venv", "--quiet", "--python", "3.11", place)
        uv(what, "pip", "install", "--quiet", "--python", place / "bin" / "python", "-r", requirements)

    return once(what, place, requirements.read_text(), install) / "bin" / "python"


def core(version, interpreter):
    """A folder with that version of megatron-core alone, for PYTHONPATH."""
    place, what = ROOT / f"core-{version}", f"megatron-core {version}"

    def install():
        uv(what, "pip", "install", "--quiet", "--python", interpreter, "--no-deps", "--target", place, f"megatron-core=={version}")

    return once(what, place, version, install)


def folder(name, what, interpreter):
    """What requirements-NAME.txt names and nothing that it needs, for PYTHONPATH: the rest is the interpreter's."""
    place, requirements = ROOT / name, HERE / f"requirements-{name}.txt"

    def install():
        uv(what, "pip", "install", "--quiet", "--python", interpreter, "--no-deps", "--target", place, "-r", requirements)

    return once(what, place, requirements.read_text(), install)


def install_all():
    """All of them beforehand. What is missing is said here, and again by the test that asks for it."""
    wanted = [lambda name=path.stem.removeprefix("requirements-"): python(name, name)
              for path in sorted(HERE.glob("requirements-*.txt")) if path.stem not in ("requirements-lean", "requirements-bridge", "requirements-streamer",
                                                                                         "requirements-zarr", "requirements-gguf", "requirements-peft", "requirements-rl", "requirements-sglang",
                                                                                         "requirements-deltas")]
    wanted += [lambda version=version: core(version, python("old", version) if version in OLD_CORES else sys.executable)
               for version in OLD_CORES + CORES]
    wanted.append(lambda: folder("bridge", "Megatron-Bridge", sys.executable))
    wanted.append(lambda: folder("deltas", "zstandard", sys.executable))
    wanted.append(lambda: folder("gguf", "gguf and accelerate", sys.executable))
    wanted.append(lambda: folder("peft", "PEFT", sys.executable))
    wanted.append(lambda: folder("rl", "verl and TRL", sys.executable))
    wanted.append(lambda: folder("sglang", "SGLang", sys.executable))
    wanted.append(lambda: folder("streamer", "run:ai's streamer", sys.executable))
    wanted.append(lambda: folder("zarr", "zarr 2", python("old", "zarr 2")))
    missing = 0
    for install in wanted:
        try:
            install()
        except Missing as why:
            print(why)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(install_all())

"""Virtual environments beside the main one (which run.sh makes): installed when first asked for, kept, never in the tree."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path(os.environ["MCOREFS_VENVS"])
UV = os.environ["MCOREFS_UV"]
SECONDS = 1800


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

"""formats/dataset against megatron-core's own Python and C++: indices, blends, sizes, splits, files, samples; random cases.

One process a kind and version (peers/dataset_oracle.py) asks Megatron and a small C program (peers/dataset_indices.c) the same.
MCOREFS_DATASET_CASES=1 runs it; larger numbers multiply the cases.
"""
import os
import pathlib
import subprocess
import sys

import pytest

import venvs

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
SECONDS = 1800
TIMES = int(os.environ.get("MCOREFS_DATASET_CASES", "0"))

pytestmark = pytest.mark.skipif(not TIMES, reason="takes minutes: MCOREFS_DATASET_CASES=1 runs it")

CASES = {"gpt": 400, "blend": 80, "exhaustive": 60, "sizes": 400, "arguments": 1000, "splits": 600, "shuffle": 100, "files": 40, "samples": 8, "sets": 12}
OLDER = {"0.10.0": ["gpt", "blend", "sizes"], "0.12.3": ["sizes"], "0.14.0": ["gpt", "sets"], "0.15.3": ["sets"]}


@pytest.fixture(scope="session")
def helper(tmp_path_factory):
    """dataset_indices.c with the library that the program under test was linked with."""
    library = pathlib.Path(os.environ["MCOREFS_BINARY"]).resolve().parent / "obj" / "libmcorefs.a"
    program = tmp_path_factory.mktemp("helper") / "dataset_indices"
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{ROOT}", "-o", program,
         HERE / "peers" / "dataset_indices.c", library, "-pthread", "-lm", "-lz", "-lcrypto"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return program


def run(kind, seed, cases, helper, version=None):
    environment = dict(os.environ)
    if version:
        environment["PYTHONPATH"] = str(venvs.core(version, sys.executable))
    done = subprocess.run([sys.executable, HERE / "peers" / "dataset_oracle.py", kind, str(seed), str(cases * TIMES), helper],
                          capture_output=True, text=True, timeout=SECONDS * TIMES, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    assert not version or last.startswith(f"core {version}"), last
    print(last)


@pytest.mark.parametrize("kind", CASES)
def test_as_megatron(kind, helper):
    run(kind, 1, CASES[kind], helper)


@pytest.mark.parametrize("version,kind", [(version, kind) for version, kinds in OLDER.items() for kind in kinds])
def test_as_older_megatron(version, kind, helper):
    try:
        run(kind, 2, CASES[kind] // 4, helper, version)
    except venvs.Missing as why:
        pytest.skip(str(why))

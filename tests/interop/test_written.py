"""What our writers of pickles, torch.save archives and DCP metadata wrote, loaded by each torch and megatron-core.

The unit tests write the files (MCOREFS_WRITTEN), peers/load_written.py loads them and knows what must be in them.
"""
import os
import pathlib
import subprocess
import sys

import pytest

import generated
import venvs

PEER = pathlib.Path(__file__).parent / "peers" / "load_written.py"
PROGRAMS = pathlib.Path(os.environ["MCOREFS_BINARY"]).parent / "obj" / "tests" / "unit"
CORES = ["0.10.0", "0.12.3", "0.14.0", "0.15.3"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    programs = [PROGRAMS / name for name in ("test_torch_write", "test_dcp_write")]
    if not all(path.exists() for path in programs):
        pytest.skip("the unit tests are not built: run make tests first")
    directory = tmp_path_factory.mktemp("written")
    for path in programs:
        done = subprocess.run([path], env=os.environ | {"MCOREFS_WRITTEN": str(directory)}, cwd=pathlib.Path(__file__).parents[2],
                              capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stdout
    return directory


def load(directory, fixtures, what, python=sys.executable, environment=None):
    for left in ("store", "common.pt"):
        (directory / left).unlink(missing_ok=True)
    done = subprocess.run([python, PEER, directory, fixtures, what], env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0 and done.stdout.endswith("loaded\n"), done.stderr[-3000:]


@pytest.mark.parametrize("what", ["state_dict", "copies", "dcp", "megatron"])
def test_new_torch(written, fixtures, what):
    load(written, fixtures, what)


@pytest.mark.parametrize("what", ["state_dict", "dcp"])
def test_old_torch(written, fixtures, what):
    try:
        python = venvs.python("old", "torch 2.5")
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    load(written, fixtures, what, python)


@pytest.mark.parametrize("core", CORES)
def test_megatron(written, fixtures, core):
    try:
        python, environment = generated.interpreter(core)
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    load(written, fixtures, "megatron", python, environment)

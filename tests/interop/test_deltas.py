"""Deltas of weights: what slime writes is shown whole, and SGLang's receiver makes the same bytes of what is written here."""
import sys

import pytest

import program
import venvs
from swept import todays

RUNS = ("resume/llama-torch_dist-tp2-pp2", "resume/llama-torch-tp2-pp2")  # iterations 20 and 40, and 20 again
ENCODINGS = [("xor", "xxh3-128"), ("overwrite", "adler32")]


@pytest.fixture(scope="module")
def peer():
    try:
        sys.path.insert(0, str(venvs.folder("deltas", "zstandard", sys.executable)))
        sys.path.insert(0, str(venvs.HERE / "peers"))
        import weight_deltas
        return weight_deltas
    except venvs.Missing as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module", params=todays(["hf", "hf-fp32"], 1))
def states(request, fixtures, tmp_path_factory):
    """Two states as HuggingFace directories, and the view that they are of."""
    place = tmp_path_factory.mktemp("states")
    done = [program.run("export", fixtures / RUNS[0], f"iter_{number:07d}/{request.param}", place / str(number)) for number in (20, 40)]
    assert not any(each.returncode for each in done), done
    return request.param, place / "20", place / "40"


def ok(*arguments):
    done = program.run(*arguments)
    assert done.returncode == 0, done.stderr


def same(a, b):
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()


@pytest.mark.parametrize("encoding, kind", ENCODINGS)
def test_ours_is_pulled(peer, fixtures, states, encoding, kind, tmp_path):
    """From other formats and layouts than the engine's copy was made of."""
    view, first, second = states
    how = "--mode", encoding, "--checksum", kind, "--view", view
    ok("delta", fixtures / RUNS[1], fixtures / RUNS[0], tmp_path / "chain", *how)
    ok("delta", fixtures / RUNS[0], fixtures / RUNS[1], tmp_path / "chain", *how)
    peer.pull(str(tmp_path / "one"), str(first), str(tmp_path / "chain"), 1)
    same(tmp_path / "one", second)
    peer.pull(str(tmp_path / "two"), str(first), str(tmp_path / "chain"), 2)
    same(tmp_path / "two", first)


@pytest.mark.parametrize("encoding, kind", ENCODINGS)
def test_theirs_is_shown(peer, states, encoding, kind, tmp_path):
    """Of their base, which no file names; the second version changes one tensor back."""
    _, first, second = states
    old, new = peer.read(first), peer.read(second)
    name = "model.norm.weight"
    peer.write(old, new, tmp_path / "chain", 1, encoding, kind)
    peer.write(new, new | {name: old[name]}, tmp_path / "chain", 2, encoding, kind)
    ok("export", tmp_path / "chain", "iter_0000001/hf", tmp_path / "one", "-o", f"base={first}")
    same(tmp_path / "one", second)
    ok("export", tmp_path / "chain", "latest/hf", tmp_path / "two", "-o", f"base={first}")
    shown = peer.read(tmp_path / "two")
    assert shown.keys() == new.keys() and all((shown[n] == (old if n == name else new)[n]).all() for n in new)

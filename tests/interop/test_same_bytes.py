"""The same weights are the same bytes, whoever reads them, from whatever layout."""
import filecmp
import json
import os
import pathlib
import subprocess
import sys

import pytest

import checkpoints
import program
from swept import share
from test_fixtures import WITH_LOGITS

# Written from one seed by the same stages and tensor ranks, so that only the format differs.
TWINS = [("llama-torch-tp4-groups2", "llama-dist-tp4-groups2"), ("llama-torch-uneven-pp3", "llama-dist-uneven-pp3"),
         ("qwen2-torch-tp4-groups2", "qwen2-dist-tp4-groups2"), ("mixtral-torch-tp2-ep2-etp1", "mixtral-dist-tp2-ep2-etp1")]


def weights(source, view="latest/hf"):
    with program.hf(source, view) as directory:
        return (directory / "model.safetensors").read_bytes()


def assert_same_tree(one, other):
    compared = filecmp.dircmp(one, other, ignore=[])
    assert not compared.left_only and not compared.right_only
    _, different, unread = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    assert not different and not unread
    for name in compared.common_dirs:
        assert_same_tree(pathlib.Path(one, name), pathlib.Path(other, name))


def test_formats_of_a_trained_model(fixtures):
    resume = fixtures / "resume"
    assert weights(resume / "llama-torch-tp2-pp2", "iter_0000020/hf") == weights(resume / "llama-torch_dist-tp2-pp2", "iter_0000020/hf")


@pytest.mark.parametrize("names", share(TWINS, 2), ids=lambda names: names[0])
def test_formats_of_a_written_model(checkpoint, names):
    one, other = (weights(checkpoint(checkpoints.BY_NAME[name])) for name in names)
    assert one == other


def test_iterations_differ(fixtures):
    source = fixtures / "resume" / "llama-torch_dist-tp2-pp2"
    assert weights(source, "iter_0000020/hf") != weights(source, "iter_0000040/hf") == weights(source)


@pytest.mark.parametrize("shard_size", ["5GB", 200_000])
@pytest.mark.parametrize("name, view", WITH_LOGITS, ids=[name for name, _ in WITH_LOGITS])
def test_copy_is_export(needs_mount, fixtures, tmp_path, name, view, shard_size):
    with program.mounted(fixtures / name, shard_size=shard_size) as point:
        subprocess.run(["cp", "-r", point / view, tmp_path / "copied"], check=True, timeout=program.SECONDS)
    done = program.export(fixtures / name, view, tmp_path / "exported", shard_size=shard_size)
    assert done.returncode == 0, done.stderr
    assert_same_tree(tmp_path / "copied", tmp_path / "exported")


def test_remount_is_the_same(needs_mount, fixtures):
    """Sizes, inode numbers and times stay, so that a page cache or an rsync of yesterday is not thrown away."""
    def look():
        with program.mounted(fixtures / WITH_LOGITS[0][0]) as point:
            found = {path.relative_to(point): os.lstat(path) for path in sorted(point.rglob("*"))}
            return {str(path): (s.st_size, s.st_ino, s.st_mtime_ns, s.st_mode) for path, s in found.items()}

    first = look()
    assert len(first) > 3 and first == look()


@pytest.mark.parametrize("name", ["weights/llama-torch_dist-tp2-pp2-vpp2", "weights/gpt2-torch-tp2-pp2", "weights/deepseek-torch_dist-pp2-ep2"])
def test_readers_agree(needs_mount, fixtures, name):
    with program.mounted(fixtures / name) as point:
        script = pathlib.Path(__file__).parent / "peers" / "readers_agree.py"
        done = subprocess.run([sys.executable, script, point / "latest" / "hf" / "model.safetensors"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["preads"] == 10_000

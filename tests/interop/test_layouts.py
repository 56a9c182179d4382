"""Checkpoints that megatron-core writes here, in layouts nobody trained: transformers must give Megatron's logits."""
import shutil

import pytest

import checkpoints
import models
import program
import swept


@pytest.mark.parametrize("spec", checkpoints.OTHERS + checkpoints.PEERS + swept.WRITTEN, ids=lambda spec: spec.name)
def test_logits_are_megatrons(checkpoint, spec):
    source = checkpoint(spec)
    with program.hf(source) as directory:
        model = models.load(directory)
        assert model.config.vocab_size == (spec.set.get("vocab_size", 1000) or spec.set.get("padded_vocab_size", 1024))
        assert models.difference(model, source / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("spec", swept.share(checkpoints.RIGHT_OR_REFUSED, 3), ids=lambda spec: spec.name)
def test_right_or_refused(checkpoint, spec, tmp_path):
    source = checkpoint(spec)
    done = program.export(source, "latest/hf", tmp_path / "hf")
    if done.returncode == 0:
        assert models.difference(models.load(tmp_path / "hf"), source / "logits.npz") <= models.LOGIT_TOLERANCE
        return
    assert done.returncode > 0, f"killed by signal {-done.returncode}"
    assert len(done.stderr.strip()) > 20, f"refused without a reason: {done.stderr!r}"
    assert not (tmp_path / "hf").exists(), "refused, and still left something"


DAMAGED = [checkpoints.BY_NAME[name] for name in ("llama-torch-tp2-pp2-vpp2", "mixtral-torch-tp2-ep2-etp1", "qwen2-dist-optimizer",
                                                  "llama-dist-singleton-tp2-pp2", "llama-torch_dcp-dp2")]


def assert_refused(source, destination, what):
    done = program.export(source, "latest/hf", destination)
    assert done.returncode > 0, f"{what}: exported all the same ({done.returncode})"
    assert done.stderr.strip() and not destination.exists(), f"{what}: {done.stderr!r}"


@pytest.mark.parametrize("spec", swept.share(DAMAGED, 2), ids=lambda spec: spec.name)
def test_incomplete_is_refused(checkpoint, spec, tmp_path):
    """A checkpoint with any one file missing, or cut in half, is not shown: never a partial model."""
    source = tmp_path / "checkpoint"
    shutil.copytree(checkpoint(spec), source)
    files = [path for path in source.glob("iter_*/**/*") if path.is_file()]
    assert len(files) >= 2
    for path in files:
        whole = path.read_bytes()
        path.unlink()
        assert_refused(source, tmp_path / "hf", f"without {path.name}")
        path.write_bytes(whole[:len(whole) // 2])
        assert_refused(source, tmp_path / "hf", f"with half of {path.name}")
        path.write_bytes(whole)
    assert program.export(source, "latest/hf", tmp_path / "hf").returncode == 0

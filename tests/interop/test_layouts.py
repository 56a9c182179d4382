"""Checkpoints that megatron-core writes here, in layouts nobody trained: transformers must give Megatron's logits."""
import pytest

import checkpoints
import models
import program


@pytest.mark.parametrize("spec", checkpoints.LAYOUTS + checkpoints.PEERS + checkpoints.CORES + checkpoints.SWEEP, ids=lambda spec: spec.name)
def test_logits_are_megatrons(checkpoint, spec):
    source = checkpoint(spec)
    with program.hf(source) as directory:
        model = models.load(directory)
        assert model.config.vocab_size == (spec.set.get("vocab_size", 1000) or spec.set.get("padded_vocab_size", 1024))
        assert models.difference(model, source / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("spec", checkpoints.RIGHT_OR_REFUSED, ids=lambda spec: spec.name)
def test_right_or_refused(checkpoint, spec, tmp_path):
    source = checkpoint(spec)
    done = program.export(source, "latest/hf", tmp_path / "hf")
    if done.returncode == 0:
        assert models.difference(models.load(tmp_path / "hf"), source / "logits.npz") <= models.LOGIT_TOLERANCE
        return
    assert done.returncode > 0, f"killed by signal {-done.returncode}"
    assert len(done.stderr.strip()) > 20, f"refused without a reason: {done.stderr!r}"
    assert not (tmp_path / "hf").exists(), "refused, and still left something"

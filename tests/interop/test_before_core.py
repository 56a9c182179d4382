"""Checkpoints that Megatron-LM before core, and core's legacy model, saved on CPUs: transformers must give their logits.

peers/write_before_core.py wrote them with the code of their time. tests/fixtures/old/README.md has the commands.
"""
import json

import pytest
from safetensors.torch import load_file

import models
import program
from views import export

# (directory, activation_function): the row order of q, k and v is [3, n, d], [n, d, 3] and [n, 3, d] in turn
SOURCES = [("v1.0-tp2", "gelu"), ("2020-09", "gelu"), ("v2.5-tp2-pp2", "gelu_new"), ("core_v0.12-tp2", "silu")]


@pytest.mark.parametrize("name, activation", SOURCES, ids=[name for name, _ in SOURCES])
def test_logits_are_megatrons(fixtures, name, activation):
    source = fixtures / "old" / name
    with program.hf(source) as directory:
        config = json.loads((directory / "config.json").read_text())
        assert config.get("activation_function", config.get("hidden_act")) == activation
        assert models.difference(models.load(directory), source / "logits.npz") <= models.LOGIT_TOLERANCE


@pytest.mark.parametrize("name, view", [("v1.0-tp2", "megatron/torch/tp2-pp2"), ("2020-09", "megatron/torch_dist"),
                                        ("core_v0.12-tp2", "megatron/torch/tp1-pp2")])
def test_views_of_core_hold_the_same_model(fixtures, tmp_path, name, view):
    """There and back: core's own names, row order and arguments, and the same HF directory."""
    there = export(fixtures / "old" / name, view, tmp_path / "megatron")
    one, other = (export(source, "hf", tmp_path / f"hf{i}") for i, source in enumerate((fixtures / "old" / name, there)))
    assert (one / "config.json").read_text() == (other / "config.json").read_text()
    want, got = (load_file(directory / "model.safetensors") for directory in (one, other))
    assert want.keys() == got.keys() and all(want[key].equal(got[key]) for key in want)

"""-o adapter=DIR against PEFT's own merge_and_unload() on a CPU: the same bytes, whatever the model comes from."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import hf_models
import program
import venvs
from test_hf_to_megatron import assert_same_tensors_of_files, tensors
from views import export

PEER = pathlib.Path(__file__).parent / "peers" / "merge_peft.py"
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Name: the model, its type, LoraConfig's fields.
CASES = {
    "all-linear": ("llama-odd", torch.bfloat16, dict(r=12, lora_alpha=20, target_modules=[*LINEAR, "lm_head"])),
    "half": ("qwen2", torch.float16, dict(r=8, lora_alpha=16, target_modules=LINEAR)),
    "rslora": ("llama-odd", torch.float32, dict(r=12, lora_alpha=20, use_rslora=True, target_modules=["q_proj", "down_proj"])),
    "transposed": ("gpt2", torch.float32, dict(r=5, lora_alpha=7, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
}


@pytest.fixture(scope="module")
def folder():
    try:
        return venvs.folder("peft", "PEFT", sys.executable)
    except venvs.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def all_merged(folder, tmp_path_factory):
    """Of each case the model, an adapter of it, and what PEFT makes of both: in one process, most of whose time are imports."""
    made, arguments = {}, []
    for name, (family, dtype, options) in CASES.items():
        place = tmp_path_factory.mktemp(name)
        made[name] = hf_models.make(family, place / "source", dtype=dtype), place / "adapter", place / "merged"
        arguments += [*made[name], json.dumps(options)]
    done = subprocess.run([sys.executable, PEER, *arguments], capture_output=True, text=True, timeout=600,
                          env=dict(os.environ, PYTHONPATH=str(folder)))
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.fixture(scope="module", params=CASES)
def merged(request, all_merged):
    return all_merged[request.param]


def changed(source, merged):
    before, after = tensors(source), tensors(merged)
    return [name for name in after if not torch.equal(before[name], after[name])]


def test_hf_source(merged):
    source, adapter, want = merged
    assert changed(source, want)
    with program.hf(source, "hf", adapter=adapter) as got:
        assert_same_tensors_of_files(tensors(got), tensors(want))


@pytest.mark.parametrize("view", ["megatron/torch/tp2-pp2", "megatron/torch_dist"])
def test_megatron_source(merged, view, tmp_path):
    source, adapter, want = merged
    export(source, view, tmp_path / "ckpt")
    with program.hf(tmp_path / "ckpt", adapter=adapter) as got:
        assert_same_tensors_of_files(tensors(got), tensors(want))


def test_through_a_megatron_view(merged, tmp_path):
    source, adapter, want = merged
    export(source, "megatron/torch/tp2-pp2", tmp_path / "ckpt", adapter=adapter)
    with program.hf(tmp_path / "ckpt") as got:
        assert_same_tensors_of_files(tensors(got), tensors(want))

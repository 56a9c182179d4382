"""Megatron-Bridge saves a model with its optimizer on two data-parallel ranks; Megatron views of it have, bit for bit, what the live one held."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import hf_models
import megatron_files
import program
import venvs
from views import export

FAMILIES = {"llama": {}, "qwen3-moe-plain": dict(head_dim=32, norm_topk_prob=True)}  # Bridge 0.3.1 takes norm_topk_prob for granted
KINDS = ["float16", "dp_reshardable", "fully_reshardable"]
WRITTEN = [*KINDS, "nameless"]
PEER = pathlib.Path(__file__).parent / "peers" / "save_bridge.py"
STEP, RATE = 3, 1e-3  # as in PEER


@pytest.fixture(scope="module", params=FAMILIES)
def saved(request, tmp_path_factory):
    """{kind: (what Bridge saved, error)} of a family, from one process."""
    try:
        folder = venvs.folder("bridge", "Megatron-Bridge", sys.executable)
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    place = tmp_path_factory.mktemp("bridge")
    hf = hf_models.make(request.param, place / "hf", vocab_size=256, **FAMILIES[request.param])
    done = subprocess.run([sys.executable, PEER, hf, *(f"{place / kind}={kind}" for kind in WRITTEN)], capture_output=True, text=True, timeout=1800,
                          env=dict(os.environ, PYTHONPATH=str(folder)))
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"out"')]
    assert len(said) == len(WRITTEN), done.stdout[-1000:] + done.stderr[-3000:]
    return {kind: (pathlib.Path(line["out"]), line["error"]) for kind, line in zip(WRITTEN, said)}


def held(path, args):
    """What the live model and optimizer held."""
    want = megatron_files.Contents(args, {}, {}, {kind: {} for kind in megatron_files.STATES}, {float(STEP)}, [])
    for key, tensor in load_file(path).items():
        kind, name = key.split(".", 1)
        (want.weights if kind == "model" else want.states[kind]).update(megatron_files.whole_names({name: tensor}, 0, 0, args))
    return want


@pytest.mark.parametrize("kind", KINDS)
def test_megatron_views_have_the_optimizer_of_bridge(saved, kind, tmp_path):
    path, error = saved[kind]
    assert not error, error
    for view in ("megatron/torch_dist", "megatron/torch/tp2-pp2"):
        got = megatron_files.read(export(path, view, tmp_path / view.replace("/", "-")))
        assert not got.unread
        megatron_files.assert_same_contents(got, held(path.with_suffix(".safetensors"), got.args), f"{kind}: {view}")
        (_, part), = megatron_files.optimizer_parts(got.common)
        groups = part.get("optimizer", part)["param_groups"]
        assert [(group["wd_mult"], group["lr"], group["weight_decay"]) for group in groups] == [(1.0, RATE, 0.1), (0.0, RATE, 0.0)]
        assert got.common["opt_param_scheduler"]["num_steps"] == STEP


def test_buffers_in_another_order_are_refused(saved, tmp_path):
    """Their layers are core's own, which nothing says: parameters would be taken for one another."""
    path, error = saved["nameless"]
    assert not error, error
    done = program.export(path, "megatron/torch_dist", tmp_path / "view")
    assert done.returncode and "is not that of the weights: its flat buffers have parameters in another order" in done.stderr, done.stderr
    done = program.run("export", path, "megatron/torch_dist", tmp_path / "weights", "-o", "no_optim")
    assert done.returncode == 0, done.stderr

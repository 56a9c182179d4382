"""Megatron-Bridge saves a model with its optimizer on two data-parallel ranks; Megatron views of it have, bit for bit, what the live one held,
and mcorefs-train goes on from it."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from safetensors.torch import load_file

import hf_models
import megatron_files
import program
import venvs
from swept import todays
from views import export

FAMILIES = {"llama": {}, "qwen3-moe-plain": dict(head_dim=32, norm_topk_prob=True)}  # Bridge 0.3.1 takes norm_topk_prob for granted
KINDS = ["float16", "dp_reshardable", "fully_reshardable"]
WRITTEN = [*KINDS, "nameless"]
PEER = pathlib.Path(__file__).parent / "peers" / "save_bridge.py"
TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
STEP, RATE = 3, 1e-3  # as in PEER


@pytest.fixture(scope="module", params=todays(FAMILIES, 1))
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
    assert done.returncode and "is not that of the weights: its flat buffers, or files of ranks, have parameters in another order" in done.stderr, done.stderr
    done = program.run("export", path, "megatron/torch_dist", tmp_path / "weights", "-o", "no_optim")
    assert done.returncode == 0, done.stderr


def losses(saved, path, out, *more):
    """What mcorefs-train says of two more iterations of the run whose configuration `saved` holds; it saves to `out`."""
    config = saved / f"iter_{STEP:07d}" / "run_config.yaml"
    done = subprocess.run([TRAIN, "--backend", "cpu", "--config", config, "--load", path, "--mock-data", "--eod-id", "0", "--micro-batch-size", "1",
                           "--global-batch-size", "2", "--seq-length", "32", "--train-iters", str(STEP + 2), "--lr", str(RATE), "--min-lr", "1e-5",
                           "--lr-decay-style", "constant", "--use-checkpoint-opt-param-scheduler", "--eval-iters", "0", "--log-interval", "1",
                           "--save", out, *more],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"iteration +(\d+)/.*lm loss: (\S+).*grad norm: (\S+)", done.stdout + done.stderr)
    assert [number for number, _, _ in found] == [str(STEP + 1), str(STEP + 2)], done.stdout
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_goes_on_from_bridge(saved, kind, tmp_path):
    """The run goes on as from the view, whose state is the live one; without the optimizer it would be another."""
    path, error = saved[kind]
    assert not error, error
    view = export(path, "megatron/torch/tp1-pp1", tmp_path / "view")
    went_on = losses(path, path, tmp_path / "one")
    assert went_on == losses(path, view, tmp_path / "other")
    assert went_on[1] != losses(path, path, tmp_path / "another", "--no-load-optim")[1]

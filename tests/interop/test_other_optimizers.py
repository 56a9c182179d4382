"""Optimizers that other programs than Megatron-LM have saved: Megatron views of them have, bit for bit, what the live one held, and mcorefs-train
goes on from it."""
import os
import pathlib
import re
import subprocess
import types

import pytest
import torch
from safetensors.torch import load_file

import checkpoints
import layouts
import megatron_files
import program
import test_megatron_core
from views import export

TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
RATE = 1e-3  # as in peers/write_megatron.py
LOADED = [  # of few, since Megatron's processes take time
    checkpoints.BY_NAME[name] for name in ("llama-torch_dcp-optimizer", "llama-torch_dcp-optimizer-fp16",
                                            "qwen2-fsdp_dtensor-optimizer", "mixtral-fsdp_dtensor-optimizer")]
VIEWS = [layouts.Layout(2, 1), layouts.Layout(1, 2)]  # of the first the legacy view, of the second torch_dist


def scheduled(common):
    """Megatron's scheduler of a run that brings its own schedule, after loading."""
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    scheduler = OptimizerParamScheduler(types.SimpleNamespace(param_groups=[]), init_lr=0.0, max_lr=RATE, min_lr=0.0, lr_warmup_steps=0, lr_decay_steps=10,
                                        lr_decay_style="constant", start_wd=0.1, end_wd=0.1, wd_incr_steps=10, wd_incr_style="constant",
                                        use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=True)
    scheduler.load_state_dict(common["opt_param_scheduler"])
    return scheduler


def scalers(contents):
    """What fp16 runs scale the loss by. Megatron-FSDP does not save it."""
    return [part["grad_scaler"] for _, part in megatron_files.optimizer_parts(contents.common) if "grad_scaler" in part]


@pytest.mark.parametrize("spec", checkpoints.OTHER_OPTIMIZERS, ids=lambda spec: spec.name)
def test_megatron_views_have_the_optimizer(checkpoint, spec, tmp_path):
    source = checkpoint(spec)
    live = megatron_files.read_torch(source / "live")
    assert not live.unread and all(live.states.values())
    for view in ("megatron/torch_dist", "megatron/torch/tp1-pp2"):
        got = megatron_files.read(export(source, f"latest/{view}", tmp_path / view.replace("/", "-")))
        assert not got.unread
        if spec.dtype == "float32":  # it is its own main parameter
            for contents in (got, live):
                contents.states.pop("param", None)
        megatron_files.assert_same_contents(got, live, f"{spec.name}: {view}")
        assert got.common["iteration"] == 1
        groups = [group for _, part in megatron_files.optimizer_parts(got.common) for group in part.get("optimizer", part)["param_groups"]]
        assert {(group["wd_mult"], group["lr_mult"], group["lr"]) for group in groups} == {(1.0, 1.0, RATE), (0.0, 1.0, RATE)}
        assert scalers(got) == (scalers(live) if spec.format == "torch_dcp" else [])
        if spec.format != "nemo":
            schedule = got.common["opt_param_scheduler"]
            assert (schedule["max_lr"], schedule["num_steps"], schedule["lr_decay_style"]) == (RATE, spec.samples, "constant")
            assert [getattr(got.args, f"use_{kind}") for kind in ("megatron_fsdp", "torch_fsdp2") if hasattr(got.args, f"use_{kind}")] == [False]
        if spec.format == "nemo":
            assert got.args.consumed_train_samples == scheduled(got.common).num_steps == spec.samples


def train(path, args, *more):
    """Two more iterations of the run at `path`."""
    return subprocess.run([TRAIN, "--backend", "cpu", "--load", path, "--use-checkpoint-args", "--mock-data", "--eod-id", "0", "--micro-batch-size", "1",
                           "--global-batch-size", "2", "--seq-length", "32", "--train-iters", "3", "--lr", str(RATE), "--min-lr", "1e-5",
                           *(["--fp16", "--initial-loss-scale", "1024"] if args.params_dtype is torch.float16 else ["--bf16"]),
                           "--lr-decay-style", "constant", "--eval-iters", "0", "--log-interval", "1",
                           "--vocab-size", str(args.padded_vocab_size), "--make-vocab-size-divisible-by", "1", *more],
                          capture_output=True, text=True, timeout=600)


def losses(path, args, *more):
    done = train(path, args, "--override-opt-param-scheduler", *more)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"iteration +(\d+)/.*lm loss: (\S+).*loss scale: (\S+).*grad norm: (\S+)", done.stdout + done.stderr)
    assert [number for number, *_ in found] == ["2", "3"], done.stdout
    return found


@pytest.mark.parametrize("spec", checkpoints.OTHER_OPTIMIZERS, ids=lambda spec: spec.name)
def test_the_trainer_goes_on(checkpoint, spec, tmp_path):
    """The run goes on as from the view, whose state is the live one; without the optimizer it would be another."""
    source = checkpoint(spec)
    view = export(source, "latest/megatron/torch/tp1-pp1", tmp_path / "view")
    args = megatron_files.read(view).args
    path = source / "iter_0000001"
    went_on = losses(path, args)
    assert went_on == losses(view, args)
    if spec.dtype == "float16":
        assert {float(scale) for _, _, scale, _ in went_on} == {512 if spec.format == "torch_dcp" else 1024}
    assert went_on[1] != losses(path, args, "--no-load-optim")[1]
    if spec.format == "nemo":
        done = train(path, args)
        assert done.returncode and "its scheduler says no max_lr: --override-opt-param-scheduler" in done.stderr, done.stderr


@pytest.fixture(scope="module")
def loaded(checkpoint, tmp_path_factory):
    """{spec: (Megatron's answer, what its live optimizer held) of the live save and of two views}, from one process."""
    place, jobs = tmp_path_factory.mktemp("loads"), []
    for number, spec in enumerate(LOADED):
        root = place / f"{number}-live"
        root.mkdir()
        (root / "iter_0000001").symlink_to(checkpoint(spec) / "live")
        (root / "latest_checkpointed_iteration.txt").write_text("1")
        places = [(root, layouts.own(megatron_files.read(root).args))]
        places += [(export(checkpoint(spec), view, place / f"{number}-{layout}"), layout)
                   for layout in VIEWS for view in [layout.view if layout.tp > 1 else "megatron/torch_dist"]]
        jobs += [test_megatron_core.job(path, layout, dump=str(place / f"{number}-{i}.safetensors"), optimizer=True, logits=None)
                 for i, (path, layout) in enumerate(places)]
    said = test_megatron_core.answers(checkpoints.Spec.core, jobs, place)
    return {spec.name: [(said[3 * number + i], place / f"{number}-{i}.safetensors") for i in range(3)] for number, spec in enumerate(LOADED)}


@pytest.mark.parametrize("spec", LOADED, ids=lambda spec: spec.name)
def test_megatron_loads_the_views(loaded, spec):
    """Weights in the run's type, main parameters and moments are those of the live optimizer."""
    for said, _ in loaded[spec.name]:
        assert not said["error"], said["error"]
    want, *others = [load_file(path) for _, path in loaded[spec.name]]
    for got in others:
        megatron_files.assert_same_tensors(got, want, spec.name, 1000)

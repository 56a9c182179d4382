"""--tensorboard-dir: TensorBoard itself reads what a run has logged, under the tags that Megatron gives."""
import json
import math
import os
import pathlib
import re
import subprocess

import pytest

import program
import venvs

HERE = pathlib.Path(__file__).parent
FIXTURES = pathlib.Path(os.environ["MCOREFS_FIXTURES"])
TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
STEPS, BATCH = 6, 8


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The log of a run, and the scalars that TensorBoard finds."""
    try:
        python = venvs.python("tensorboard", "tensorboard")
    except venvs.Missing as why:
        pytest.skip(str(why))
    where = tmp_path_factory.mktemp("events") / "made" / "by" / "the" / "run"
    words = f"--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 2 " \
        f"--global-batch-size {BATCH} --train-iters {STEPS} --lr 1e-3 --min-lr 1e-4 --lr-warmup-iters 2 --lr-decay-style cosine --split 90,10,0 " \
        f"--tokenizer-type NullTokenizer --vocab-size 1000 --eval-interval 3 --eval-iters 1 --log-interval 1 --backend cpu " \
        f"--log-validation-ppl-to-tensorboard --data-path {FIXTURES / 'data' / 'tales_text_document'} --tensorboard-dir {where} " \
        f"--wandb-project tales --wandb-exp-name small --wandb-save-dir {where / 'lines'}"
    done = subprocess.run([TRAIN, *words.split()], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines, = (where / "lines").iterdir()
    lines = [json.loads(line) for line in lines.rename(where.parent / "lines.jsonl").open()]
    (where / "lines").rmdir()
    file, = where.iterdir()
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..*", file.name)
    read = subprocess.run([python, HERE / "peers" / "read_events.py", where], capture_output=True, text=True, timeout=600)
    assert read.returncode == 0, read.stderr
    return done.stdout, json.loads(read.stdout), lines


def close(values, wanted):
    assert len(values) == len(wanted) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(values, wanted)), (values, wanted)


@pytest.mark.parametrize("tag,pattern", [("lm loss", r" lm loss: (\S+) \|"), ("learning-rate", r" learning rate: (\S+) \|"),
                                         ("loss-scale", r" loss scale: (\S+) \|"), ("batch-size", r" global batch size: +(\S+) \|")])
def test_by_iteration_and_by_samples(tag, pattern, logged):
    log, scalars, _ = logged
    wanted = [float(value) for value in re.findall(pattern, log)]
    assert [step for step, _ in scalars[tag]] == list(range(1, STEPS + 1))
    close([value for _, value in scalars[tag]], wanted)
    assert scalars[f"{tag} vs samples"] == [[step * BATCH, value] for step, value in scalars[tag]]


def test_gradient_norm(logged):
    log, scalars, _ = logged
    wanted = [float(value) for value in re.findall(r" grad norm: (\S+) \|", log)]
    assert len(wanted) == STEPS and all(abs(value - want) <= 6e-4 for (_, value), want in zip(scalars["grad-norm"], wanted))


def test_validation(logged):
    log, scalars, _ = logged
    wanted = [float(value) for value in re.findall(r" lm loss value: (\S+) \|", log)]
    assert [step for step, _ in scalars["lm loss validation"]] == [3, 6, 6]  # and once after the last iteration
    close([value for _, value in scalars["lm loss validation"]], wanted)
    close([value for _, value in scalars["lm loss validation ppl"]], [math.exp(min(20, value)) for value in wanted])


def test_lines_for_weights_and_biases(logged):
    """Lines that can be sent later say the same, under the same tags."""
    _, scalars, (first, *lines) = logged
    assert first["init"]["project"] == "tales" and first["init"]["name"] == "small" and first["init"]["config"]["hidden_size"] == 64
    said = {}
    for line in lines:
        for tag, value in line["log"].items():
            said.setdefault(tag, []).append((line["step"], value))
    assert said.pop("samples vs steps") == [(step, step * BATCH) for step in range(1, STEPS + 1)]
    assert said.keys() == {tag for tag in scalars if not tag.endswith(" vs samples")}
    for tag, values in said.items():
        assert [step for step, _ in values] == [step for step, _ in scalars[tag]]
        close([value for _, value in scalars[tag]], [value for _, value in values])

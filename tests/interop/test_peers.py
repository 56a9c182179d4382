"""vLLM and MLX open the directory and say what transformers says: tokens and log-probabilities."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

import checkpoints
import hf_models
import models
import program
import venvs
from swept import ENGINES

HERE = pathlib.Path(__file__).parent / "peers"
MLX = checkpoints.PEERS[:4] + [checkpoints.BY_NAME[name] for name in (
    "deepseek-dist-tp2-ep2", "deepseek-dist-no-q-lora", "llama-dist-bias-tp2", "llama-dist-rope-llama3", "llama-dist-rope-linear")]


def ask(python, script, directories, environment=None):
    """{directory: answer} of a peer's process."""
    prompt = ",".join(map(str, models.PROMPT))
    done = subprocess.run([python, HERE / script, prompt, str(models.COUNT), *map(str, directories)], capture_output=True, text=True, timeout=1800,
                          env=os.environ | (environment or {}))
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(directories), done.stderr[-3000:]
    return {answer["dir"]: answer for answer in answers}


class Peer:
    """Mounts every model that this run asks about, and asks about all of them in one process."""

    def __init__(self, sources, python, script, directories=None, environment=None):
        self.stack, self.directories, self.failed = contextlib.ExitStack(), dict(directories or {}), {}
        for name, source in sources.items():
            try:
                self.directories[name] = self.stack.enter_context(program.hf(source))
            except AssertionError as error:  # one model's failure, not that of all of them
                self.failed[name] = error
        self.answers = ask(python, script, self.directories.values(), environment)

    def check(self, name, like=None):
        """like: the directory that transformers reads, if it cannot read what was asked about."""
        if name in self.failed:
            raise self.failed[name]
        directory = self.directories[name]
        models.assert_same_text(self.answers[str(directory)], models.load(like or directory), name)


def asked(request, checkpoint, specs):
    return {spec.name: checkpoint(spec) for spec in specs if spec.name in request.config.wanted}


def stub(source, place, *options):
    done = program.run("stub", source, place, *options)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def stubs(request, fixtures, tmp_path_factory):
    """Directories without tensors, for the load format that the Python package registers: of a checkpoint, and of the parts of one worker."""
    try:
        path = request.getfixturevalue("package_path")
    except pytest.skip.Exception:
        return {}, {}, None
    place = tmp_path_factory.mktemp("stubs")
    hf = hf_models.make("llama", place / "hf", head_dim=32, vocab_size=1000)
    made = {"stub": stub(fixtures / "sample", place / "stub"), "stub-shard": stub(hf, place / "shard", "--view", "vllm/tp1")}
    return made, {"PYTHONPATH": str(path)}, hf


@pytest.fixture(scope="module")
def vllm(request, checkpoint, fixtures):
    if "text" not in ENGINES:
        pytest.skip("vLLM's text: another day's turn (MCOREFS_ALL_LAYOUTS=1)")
    if os.environ.get("MCOREFS_NO_VLLM"):
        pytest.skip(f"vLLM: could not be installed: {os.environ['MCOREFS_NO_VLLM']}")
    sources = asked(request, checkpoint, checkpoints.PEERS) | {"sample": fixtures / "sample"}
    peer = Peer(sources, sys.executable, "greedy_vllm.py", *request.getfixturevalue("stubs")[:2])
    with peer.stack:
        yield peer


@pytest.fixture(scope="module")
def mlx(request, checkpoint):
    try:
        python = venvs.python("mlx", "MLX")
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    peer = Peer(asked(request, checkpoint, MLX), python, "greedy_mlx.py")
    with peer.stack:
        yield peer


@pytest.mark.parametrize("spec", checkpoints.PEERS, ids=lambda spec: spec.name)
def test_vllm(vllm, spec):
    vllm.check(spec.name)


def test_vllm_sample(vllm):
    """What make demo mounts."""
    vllm.check("sample")


@pytest.mark.parametrize("name, like", [("stub", "sample"), ("stub-shard", None)])
def test_vllm_without_a_mount(vllm, stubs, name, like):
    """--load-format mcorefs reads the source that the stub names."""
    if not stubs[0]:
        pytest.skip("the Python package is missing: make wheel")
    vllm.check(name, vllm.directories[like] if like else stubs[2])


@pytest.mark.parametrize("spec", MLX, ids=lambda spec: spec.name)
def test_mlx(mlx, spec):
    mlx.check(spec.name)

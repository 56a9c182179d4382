"""`mcorefs serve`: programs that download from the HuggingFace Hub read the bytes of an export from it, unchanged."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

import checkpoints
import models
import program
import venvs

PEERS = pathlib.Path(__file__).parent / "peers"
SECONDS = 900
MODEL = "weights/llama-torch-tp2-pp2"


def python(name):
    try:
        return venvs.python(name, name) if name != "main" else sys.executable
    except venvs.Missing as why:
        pytest.skip(str(why))


@pytest.fixture
def client(tmp_path):
    """Runs a script of a peer with a cache of its own, and returns what it prints."""

    def run(endpoint, interpreter, *arguments, **more):
        home = tmp_path / "home"
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                       "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", **more}
        done = subprocess.run([interpreter, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def exported(fixtures, tmp_path):
    done = program.export(fixtures / MODEL, "hf", tmp_path / "hf", vocab_size=1000, shard_size=200000)
    assert done.returncode == 0, done.stderr
    return tmp_path / "hf"


@pytest.fixture
def rules(tmp_path):
    """The path of a file of tokens, or of secrets, with that text."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


@pytest.mark.parametrize("version", ["hub0", "datasets3", "datasets4", "main"])
def test_hub(version, client, exported, fixtures):
    with program.serving(f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000,shard_size=200000") as endpoint:
        client(endpoint, python(version), PEERS / "use_hub.py", "lab/llama", exported, "iter_0000040")


@pytest.mark.parametrize("version", ["hub0", "main"])
def test_lists(version, client, fixtures, tmp_path, rules):
    """Names that are looked for, commits in pages, refs, and whose token it is."""
    source, run = fixtures / MODEL, tmp_path / "run"
    for i in range(1, 61):
        shutil.copytree(source / "iter_0000040", run / f"iter_{i:07}")
    (run / "latest_checkpointed_iteration.txt").write_text("60")
    served = [f"lab/run={run}", f"lab/other={source}", f"team/run={source}", f"lab/tales={fixtures / 'data/tales_text_document'}"]
    tokens = rules("some", "alice hf_alice_12345 lab/* team/* datasets/lab/*\n")
    with program.serving(*served, "-o", "vocab_size=1000", "--tokens", tokens) as endpoint:
        client(endpoint, python(version), PEERS / "list_hub.py", "alice", HF_TOKEN="hf_alice_12345")


def test_view_of_a_layout(client, fixtures, tmp_path):
    """Directories of a Megatron view, with the client that lists trees."""
    done = program.export(fixtures / MODEL, "megatron/torch/tp1-pp2", tmp_path / "megatron", vocab_size=1000)
    assert done.returncode == 0, done.stderr
    with program.serving(f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000") as endpoint:
        client(endpoint, sys.executable, PEERS / "use_hub.py", "lab/llama__megatron.torch.tp1-pp2", tmp_path / "megatron", "40")


def test_tokens(client, exported, fixtures, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("alice hf_alice_12345 lab/*\n")
    tokens.chmod(0o600)
    with program.serving(f"lab/llama={fixtures / MODEL}", "--tokens", tokens, "-o", "vocab_size=1000,shard_size=200000") as endpoint:
        client(endpoint, sys.executable, PEERS / "use_hub.py", "lab/llama", exported, "40", HF_TOKEN="hf_alice_12345")
        with pytest.raises(AssertionError, match="RepositoryNotFoundError"):
            client(endpoint, sys.executable, PEERS / "use_hub.py", "lab/llama", exported, "40", HF_TOKEN="hf_bob_1234567")


@pytest.mark.parametrize("version", ["hub0", "main"])
def test_data_node(version, client, exported, fixtures, tmp_path, rules):
    """A gateway with tokens sends clients to a node that knows none of them, and the node sends the bytes."""
    served = [f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000,shard_size=200000", "--url-secret", rules("secret", "0123456789abcdef" * 2)]
    logs = {name: tmp_path / name for name in ("node", "gateway")}
    none, some = rules("none", "nobody hf_nobody_1234 x/*\n"), rules("some", "alice hf_alice_12345 lab/*\n")
    with program.serving(*served, "--tokens", none, "--access-log", logs["node"]) as node, \
            program.serving(*served, "--tokens", some, "--access-log", logs["gateway"], "--data-node", node) as endpoint:
        client(endpoint, python(version), PEERS / "use_hub.py", "lab/llama", exported, "40", HF_TOKEN="hf_alice_12345")
    lines = {name: [line.split('"') for line in log.read_text().splitlines()] for name, log in logs.items()}
    resolved = [line for line in lines["gateway"] if "/resolve/" in line[3]]
    assert resolved and all(line[4].split()[0] in ("302", "404") for line in resolved), resolved
    assert lines["node"] and all(" (signed) " in line[0] and line[3].endswith("&signature=*") for line in lines["node"]), lines["node"]


TRANSFORMERS = """
import sys, torch
from transformers import AutoModelForCausalLM as M
a, b = M.from_pretrained(sys.argv[1]).state_dict(), M.from_pretrained(sys.argv[2]).state_dict()
assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
"""


def test_transformers(client, exported, fixtures, rules):
    """By way of a data node."""
    served = [f"runs/*={fixtures / 'weights'}", "-o", "vocab_size=1000,shard_size=200000", "--url-secret", rules("secret", "0123456789abcdef" * 2)]
    with program.serving(*served) as node, program.serving(*served, "--data-node", node) as endpoint:
        client(endpoint, sys.executable, "-c", TRANSFORMERS, "runs/llama-torch-tp2-pp2", exported)


DATASETS = """
import os, sys, json, datasets
rows = [json.loads(line)["input_ids"] for line in open(sys.argv[2])]
for name in sys.argv[1], sys.argv[1] + "__jsonl":
    assert list(datasets.load_dataset(name, split="train")["input_ids"]) == rows, name
streamed = datasets.load_dataset(sys.argv[1], split="train", streaming=True)
assert [list(row["input_ids"]) for row in streamed.take(5)] == rows[:5]
os._exit(0)  # a stream that was not read to its end has threads, which once aborted the interpreter's own exit
"""


@pytest.mark.parametrize("version", ["datasets2", "datasets3", "datasets4", "main"])
def test_load_dataset(version, client, fixtures, tmp_path):
    done = program.export(fixtures / "data/tales_text_document", "data/tales_text_document/jsonl", tmp_path / "jsonl")
    assert done.returncode == 0, done.stderr
    (lines,) = (tmp_path / "jsonl").iterdir()
    with program.serving(f"lab/tales={fixtures / 'data/tales_text_document'}") as endpoint:
        client(endpoint, python(version), "-c", DATASETS, "lab/tales", lines)


FSSPEC = """
import pathlib, sys, fsspec
url, wanted = sys.argv[1], pathlib.Path(sys.argv[2])
fs = fsspec.filesystem("http")
assert sorted(u.rsplit("/", 1)[1] for u in fs.ls(url, detail=False)) == sorted(p.name for p in wanted.iterdir())
for p in wanted.iterdir():
    assert fs.cat_file(url + p.name) == p.read_bytes()
    assert fs.cat_file(url + p.name, start=10, end=30) == p.read_bytes()[10:30]
"""


def test_fsspec(client, exported, fixtures):
    with program.serving(f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000,shard_size=200000") as endpoint:
        client(endpoint, sys.executable, "-c", FSSPEC, f"{endpoint}/files/lab/llama/main/", exported)


@pytest.mark.parametrize("form", ["simple", "tensor"])
def test_loss_by_tensorboard(form, client, fixtures, tmp_path):
    """The page of a model has the loss that TensorBoard's own writer has written beside its iterations."""
    shutil.copytree(fixtures / MODEL, tmp_path / "run")
    with program.serving(f"lab/llama={tmp_path / 'run'}") as endpoint:
        client(endpoint, python("tensorboard"), PEERS / "write_events.py", tmp_path / "run" / "tensorboard", form)
        page = client(endpoint, sys.executable, "-c", f"import urllib.request as r; print(r.urlopen('{endpoint}/lab/llama').read().decode())")
    assert "<td class=n>6.2500<" in page and "<polyline" in page and "not read to its end" not in page, page


@pytest.mark.parametrize("spec", checkpoints.PEERS[:1], ids=lambda spec: spec.name)
def test_vllm(client, checkpoint, spec):
    """It resolves, lists and downloads by routes of its own, and says what transformers says of the export."""
    if not os.environ.get("MCOREFS_VLLM_HUB"):
        pytest.skip("vLLM by HF_ENDPOINT: MCOREFS_VLLM_HUB=1 runs it, for a minute or more")
    if os.environ.get("MCOREFS_NO_VLLM"):
        pytest.skip(f"vLLM: could not be installed: {os.environ['MCOREFS_NO_VLLM']}")
    source = checkpoint(spec)
    with program.serving(f"lab/model={source}") as endpoint, program.hf(source) as directory:
        said = client(endpoint, sys.executable, PEERS / "greedy_vllm.py", ",".join(map(str, models.PROMPT)), models.COUNT, "lab/model")
        (answer,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        models.assert_same_text(answer, models.load(directory), spec.name)


@pytest.fixture
def s3_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


@pytest.mark.parametrize("keys", [(), ("alice", "hf_alice_12345")])
def test_boto3(keys, client, exported, fixtures, tmp_path, s3_address):
    more = []
    if keys:
        tokens = tmp_path / "tokens"
        tokens.write_text(f"{keys[0]} {keys[1]} lab/*\n")
        tokens.chmod(0o600)
        more = ["--tokens", tokens]
    with program.serving(f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000,shard_size=200000", "--listen-s3", s3_address, *more):
        use = [python("s3"), PEERS / "use_s3.py", f"http://{s3_address}", "lab"]
        client("", *use, "llama/iter_0000040/", exported, *keys)
        if keys:
            with pytest.raises(AssertionError, match="SignatureDoesNotMatch"):
                client("", *use, "llama/main/", exported, keys[0], "hf_alice_12346")


def test_boto3_directories(client, fixtures, tmp_path, s3_address):
    done = program.export(fixtures / MODEL, "megatron/torch/tp1-pp2", tmp_path / "megatron", vocab_size=1000)
    assert done.returncode == 0, done.stderr
    with program.serving(f"lab/llama={fixtures / MODEL}", "-o", "vocab_size=1000", "--listen-s3", s3_address):
        prefix = "llama__megatron.torch.tp1-pp2/main/"
        client("", python("s3"), PEERS / "use_s3.py", f"http://{s3_address}", "lab", prefix, tmp_path / "megatron")


def test_streamer(client, exported, fixtures, s3_address, rules):
    """run:ai's model streamer, as vLLM's --load-format runai_streamer uses it: signed from S3, and from a mount."""
    try:
        more = {"PYTHONPATH": str(venvs.folder("streamer", "run:ai's streamer", sys.executable))}
    except venvs.Missing as why:
        pytest.skip(str(why))
    more |= {"AWS_ENDPOINT_URL": f"http://{s3_address}", "RUNAI_STREAMER_S3_ENDPOINT": f"http://{s3_address}",
             "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "RUNAI_STREAMER_S3_REQUEST_TIMEOUT_MS": "30000", "AWS_EC2_METADATA_DISABLED": "true",
             "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "alice", "AWS_SECRET_ACCESS_KEY": "hf_alice_12345"}
    values = {"vocab_size": 1000, "shard_size": 200000}
    with program.serving(f"lab/llama={fixtures / MODEL}", *program.options(values), "--listen-s3", s3_address,
                         "--tokens", rules("some", "alice hf_alice_12345 lab/*\n")), program.hf(fixtures / MODEL, **values) as directory:
        client("", sys.executable, PEERS / "use_streamer.py", exported, directory, "s3://lab/llama/main/", **more)

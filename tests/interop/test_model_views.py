"""The views beside hf: casts, pytorch_model.bin and raw, judged by torch, transformers, safetensors and torch's DCP."""
import contextlib
import json
import re
import subprocess

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import transformers

import hf_models
import models
import program
import swept
import views
from sft_runs import TRAIN

SOURCES = ["weights/llama-torch-tp2-pp2", "weights/deepseek-torch_dist-pp2-ep2", "weights/gpt2-torch-tp2-pp2"]
CASTS = {"hf-bf16": torch.bfloat16, "hf-fp16": torch.float16, "hf-fp32": torch.float32}
BUFFER = "e_score_correction_bias"  # float32 in models of any type


def weights(directory):
    """All tensors of the safetensors files."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        found |= {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}
    assert found
    return found


def same(a, b):
    """Equal to the bit. NaN's bits are left out: torch's own differ between its vector and its scalar code."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = {2: torch.int16, 4: torch.int32, 1: torch.uint8, 8: torch.int64}[a.element_size()]
    nan = a.float().isnan() & b.float().isnan()
    return bool(((a.contiguous().view(bits) == b.contiguous().view(bits)) | nan).all())


@pytest.fixture(scope="module")
def extremes(tmp_path_factory):
    """A float32 llama of arbitrary bits: infinities, subnormals, what overflows float16, ties."""
    directory = tmp_path_factory.mktemp("extremes")
    hf_models.make("llama", directory, dtype=torch.float32)
    torch.manual_seed(1)
    tensors = {}
    for name, tensor in safetensors.torch.load_file(directory / "model.safetensors").items():
        random = torch.randint(-(1 << 31), 1 << 31, tensor.shape, dtype=torch.int64).to(torch.int32)
        scale = torch.randint(0, 3, tensor.shape)
        half = torch.randn(tensor.shape).half().float().view(torch.int32) + 0x1000  # ties of float16
        near = random & 0x07FF_FFFF | 0x3800_0000  # where float16 becomes subnormal
        tensors[name] = torch.where(scale == 0, random, torch.where(scale == 1, half, near)).view(torch.float32)
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return directory


@contextlib.contextmanager
def source(request, name):
    with views.views(request.getfixturevalue("extremes") if name == "extremes" else request.getfixturevalue("fixtures") / name) as view:
        yield view


@pytest.mark.parametrize("name", [*SOURCES, "extremes"])
def test_casts_are_torchs(request, name):
    with source(request, name) as view:
        plain = weights(view("hf"))
        for cast, dtype in CASTS.items():
            shown = weights(view(cast))
            assert shown.keys() == plain.keys()
            for key, tensor in plain.items():
                assert same(shown[key], tensor if BUFFER in key else tensor.to(dtype)), f"{cast}: {key}"
            config = json.loads((view(cast) / "config.json").read_text())
            assert config["dtype"] == config["torch_dtype"] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("shard_size", [None, 200_000])
def test_bin(fixtures, name, shard_size):
    with views.views(fixtures / name, **(dict(shard_size=shard_size) if shard_size else {})) as view:
        directory, plain = view("hf-bin"), weights(view("hf"))
        found, files = {}, sorted(directory.glob("*.bin"))
        for path in files:
            found |= torch.load(path, mmap=True, weights_only=True)
        assert found.keys() == plain.keys() and all(same(found[key], plain[key]) for key in plain)
        assert (len(files) > 1) == bool(shard_size)
        if shard_size:
            index = json.loads((directory / "pytorch_model.bin.index.json").read_text())
            assert index["weight_map"].keys() == plain.keys()
        assert not list(directory.glob("*.safetensors*"))
        del found


def test_transformers_loads_them(fixtures):
    """Each view by itself: its config.json says what its weights are."""
    with views.views(fixtures / SOURCES[0]) as view:
        plain = weights(view("hf"))
        for name, dtype in (CASTS | {"hf-bin": torch.bfloat16}).items():
            model = transformers.AutoModelForCausalLM.from_pretrained(view(name), dtype="auto")
            assert model.dtype == dtype
            state = model.state_dict()
            assert plain.keys() <= state.keys()
            assert all(same(state[key].clone(), tensor.to(dtype)) for key, tensor in plain.items()), name
            del model, state


# ---- text ----

@pytest.mark.parametrize("name", swept.todays([*SOURCES, "weights/mixtral-torch_dist-pp2-ep2", "weights/qwen3-torch_dist-tp4"], 3))
def test_trainer_generates_as_transformers(fixtures, tmp_path, name):
    """Greedy tokens and their log-probs: of the checkpoint by mcorefs-train, and of its hf view by transformers."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"input_ids": models.PROMPT}) + "\n")
    command = [TRAIN, "--generate", "--backend", "cpu", "--load", fixtures / name, "--prompt-file", tmp_path / "prompts.jsonl", "--temperature", "0",
               "--num-tokens-to-generate", models.COUNT, "--generate-format", "jsonl", "--return-log-probs"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    answer = dict(tokens=said["token_ids"], logprobs=[{token: value} for token, value in zip(said["token_ids"], said["log_probs"])])
    with program.hf(fixtures / name) as directory, torch.no_grad():
        models.assert_same_text(answer, models.load(directory), name)


# ---- raw ----

NORMS = {"self_attention.linear_qkv.layer_norm_": "input_layernorm.", "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
         "self_attention.linear_q_up_proj.layer_norm_": "self_attention.q_layernorm.",
         "self_attention.linear_kv_up_proj.layer_norm_": "self_attention.kv_layernorm."}


def slices(directory):
    """What torch's DCP reads of a torch_dist checkpoint, under the names of raw: each layer and each expert by itself."""
    metadata = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    wanted = {key: torch.empty(tuple(item.size), dtype=item.properties.dtype) for key, item in metadata.items()
              if isinstance(item, dcp.metadata.TensorStorageMetadata) and not key.startswith(("optimizer.", "rng_state"))}
    dcp.load(wanted, checkpoint_id=directory, no_dist=True)
    for key, tensor in wanted.items():
        for fused, plain in NORMS.items():
            key = key.replace(fused, plain)
        layers = [""] if not re.match(r"decoder\.layers\.[a-z]", key) else [f"{i}." for i in range(len(tensor))]
        for i, layer in enumerate(layers):
            part = tensor[i] if layer else tensor
            name = re.sub(r"^decoder\.layers\.", f"decoder.layers.{layer}", key)
            if ".experts.experts." not in name:
                yield name, part
                continue
            for expert, matrix in enumerate(part):
                yield name.replace(".experts.experts.", f".experts.experts.{expert}."), matrix


TORCH_DIST = ["llama-torch_dist-tp2-pp2-vpp2", "mixtral-torch_dist-pp2-ep2", "qwen3-torch_dist-tp4", "deepseek-torch_dist-pp2-ep2"]


@pytest.mark.parametrize("name", TORCH_DIST)
def test_raw_is_what_dcp_reads(fixtures, name):
    iteration = next((fixtures / "weights" / name).glob("iter_*"))
    expected = dict(slices(iteration))
    with program.hf(fixtures / "weights" / name, "latest/raw", shard_size=200_000) as directory:
        found = weights(directory)
        assert len(list(directory.glob("*.safetensors"))) > 1
    assert found.keys() == expected.keys()
    assert all(same(found[key], expected[key].contiguous()) for key in expected)


def test_raw_without_a_family(fixtures):
    """Said to be of a family that it is not, a model has no hf, and raw shows the same as before."""
    source = fixtures / "weights" / TORCH_DIST[0]
    with program.hf(source, "latest/raw") as directory:
        known = weights(directory)
    if not program.can_mount():
        pytest.skip("nothing can be mounted")
    with program.mounted(source, arch="gpt2") as point:
        assert not (point / "latest/hf").exists()
        assert "not a gpt2" in (point / "latest/why-not.txt").read_text()
        assert (point / "latest/megatron/torch_dist").is_dir()
        unknown = weights(point / "latest/raw")
    assert known.keys() == unknown.keys() and all(same(known[key], unknown[key]) for key in known)

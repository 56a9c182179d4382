"""Heads that config.json ties to the embedding: transformers ties those whose weights are equal, and so do all views."""
import json

import numpy
import pytest
import torch

import hf_models
import megatron_files
import models
import program
from views import export, views

SOURCES = [("qwen2", "safetensors"), ("qwen3", "bin-shards"), ("gpt2", "bin"), ("deepseek", "shards"), ("llama", "bin")]
NAMES = ["-".join(source) for source in SOURCES]


def say_tied(directory):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    return directory


@torch.no_grad()
def copy_embedding(directory, family, how):
    """The head becomes a copy of the embedding, a tensor of its own."""
    model = models.load(directory).to(torch.bfloat16)
    model.lm_head.weight.copy_(model.get_input_embeddings().weight)
    for path in [*directory.glob("*.safetensors"), *directory.glob("*.bin"), *directory.glob("*.index.json")]:
        path.unlink()
    model.save_pretrained(directory, **(dict(max_shard_size="100KB") if how.endswith("shards") else {}))
    if how.startswith("bin"):
        hf_models.as_bin(directory)


def is_tied(model):
    return model.lm_head.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("tied", [False, True], ids=["another-head", "a-copy"])
@pytest.mark.parametrize("family,how", SOURCES, ids=NAMES)
def test_tied(family, how, tied, tmp_path):
    source = hf_models.make(family, tmp_path / "hf", how, tie_word_embeddings=False)
    tokens = numpy.load(source / "logits.npz")["tokens"]
    (source / "logits.npz").unlink()
    if tied:
        copy_embedding(source, family, how)
    own = models.load(say_tied(source))
    assert is_tied(own) == tied  # what transformers takes the directory for
    with views(source) as view:
        assert json.loads((view("hf") / "config.json").read_text())["tie_word_embeddings"] == tied
        shown = models.load(view("hf"))
        assert is_tied(shown) == tied
        assert numpy.array_equal(models.logits(shown, tokens), models.logits(own, tokens))
        megatron = megatron_files.read(view("megatron/torch_dist"))
        assert megatron.args.untie_embeddings_and_output_weights != tied
        assert ("output_layer.weight" in megatron.weights) != tied


def with_mtp(directory):
    """The last layer once more, as the one that predicts a second token."""
    from safetensors.torch import load_file, save_file
    path = directory / "model.safetensors"
    tensors = load_file(path)
    hidden = tensors["model.norm.weight"].shape[0]
    extra = {name.replace("layers.3.", "layers.4."): tensor.clone() for name, tensor in tensors.items() if ".layers.3." in name}
    extra |= {f"model.layers.4.{name}.weight": torch.rand(hidden, dtype=torch.bfloat16) for name in ("enorm", "hnorm", "shared_head.norm")}
    extra["model.layers.4.eh_proj.weight"] = torch.rand(hidden, 2 * hidden, dtype=torch.bfloat16)
    save_file(tensors | extra, path, {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    return directory


def test_copies_of_stages(tmp_path):
    """With MTP the last stage has the embedding a second time, and a head of its own that nothing uses (gpt_model.py)."""
    source = with_mtp(hf_models.make("deepseek", tmp_path / "hf", tie_word_embeddings=True))
    directory = export(source, "megatron/torch/tp1-pp2", tmp_path / "megatron", spec="local")
    path, = directory.glob("*/mp_rank_00_001/model_optim_rng.pt")
    state = torch.load(path, weights_only=False)
    for name, refused in (("output_layer.weight", False), ("embedding.word_embeddings.weight", True)):
        state["model"][name] = state["model"][name].clone()
        state["model"][name][-1, -1] += 1
        torch.save(state, path)
        done = program.run("ls", directory, "latest/hf")
        assert (done.returncode != 0) == refused, done.stderr
        assert not refused or f"'{name}' differs" in done.stderr

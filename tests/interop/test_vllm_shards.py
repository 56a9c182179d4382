"""vllm/tpN: vLLM loads its sharded_state from it and says what transformers says; each worker has what vLLM's layers cut for it."""
import contextlib
import json
import os
import sys

import pytest
import safetensors.torch
import torch

import hf_models
import models
import program
import views
from test_model_views import same, weights
from test_peers import ask

# A vocabulary that vLLM pads (to 1024), biases, a head of its own; and a tied head with norms of queries and keys, and few keys.
MODELS = {
    "llama": dict(head_dim=32, vocab_size=1000, attention_bias=True, mlp_bias=True),
    "qwen2": dict(hidden_size=128, vocab_size=1000),
    "qwen3-odd": dict(head_dim=32, vocab_size=1000, hidden_size=128, num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True)}
SCALES = ("_k_scale", "_v_scale", "_q_scale", "_prob_scale")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return {family: hf_models.make(family, tmp_path_factory.mktemp(family), **keys) for family, keys in MODELS.items()}


def padded(tensor):
    return torch.nn.functional.pad(tensor, (0, 0, 0, -len(tensor) % 64))


def heads(tensor, count, tp, rank):
    """A worker's heads: vLLM's QKVParallelLinear copies one to several workers where there are fewer than workers."""
    each = tensor.unflatten(0, (count, -1))
    each = each.chunk(tp)[rank] if count >= tp else each[rank // (tp // count)][None]
    return each.flatten(0, 1)


def worker(hf, config, tp, rank):
    """From the names of HF: ColumnParallelLinear, RowParallelLinear and VocabParallelEmbedding of vLLM, in Python."""
    held = {}
    for name, tensor in hf.items():
        end = ".".join(name.split(".")[-2:])
        if end.split(".")[0] in ("k_proj", "v_proj", "up_proj"):
            continue
        if end.startswith("q_proj"):
            held[name.replace("q_proj", "qkv_proj")] = torch.cat(
                [heads(tensor, config["num_attention_heads"], tp, rank),
                 *(heads(hf[name.replace("q_proj", part)], config["num_key_value_heads"], tp, rank) for part in ("k_proj", "v_proj"))])
            for scale in SCALES:
                held[f"{name.rsplit('.', 2)[0]}.attn.{scale}"] = torch.tensor(1.0)
        elif end.startswith("gate_proj"):
            held[name.replace("gate_proj", "gate_up_proj")] = torch.cat([tensor.chunk(tp)[rank], hf[name.replace("gate", "up")].chunk(tp)[rank]])
        elif end in ("o_proj.weight", "down_proj.weight"):
            held[name] = tensor.chunk(tp, 1)[rank]
        elif "embed_tokens" in name or "lm_head" in name:
            held["lm_head.weight" if config["tie_word_embeddings"] else name] = padded(tensor).chunk(tp)[rank]
        else:
            held[name] = tensor
    return held


@pytest.mark.parametrize("family", MODELS)
def test_workers(made, family):
    config = json.loads((made[family] / "config.json").read_text())
    hf = weights(made[family])
    with views.views(made[family]) as at:
        for tp in (1, 2, 4):
            directory = at(f"vllm/tp{tp}")
            assert len(list(directory.glob("*.safetensors"))) == tp and (directory / "config.json").exists()
            for rank in range(tp):
                shown = safetensors.torch.load_file(directory / f"model-rank-{rank}-part-0.safetensors")
                expected = worker(hf, config, tp, rank)
                assert shown.keys() == expected.keys()
                assert all(same(shown[key], expected[key].contiguous()) for key in expected), (tp, rank)
                del shown


@pytest.mark.parametrize("view, sentence", [("vllm/tp3", "padding of the vocabulary is 64"), ("vllm/tp16", "num_attention_heads"), ("vllm/2", "tpN")])
def test_refused(made, view, sentence):
    done = program.run("ls", made["llama"], view)
    assert done.returncode and sentence in done.stderr


def test_other_families_are_refused(fixtures):
    done = program.run("ls", fixtures / "weights/gpt2-torch-tp2-pp2", "vllm/tp1")
    assert done.returncode and "how vLLM's workers hold a gpt2 is not known" in done.stderr


def test_vllm_loads_them(made):
    """A minute of a processor, so only when asked for."""
    if os.environ.get("MCOREFS_NO_VLLM") or not os.environ.get("MCOREFS_VLLM_SHARDS"):
        pytest.skip("vLLM: could not be installed, or MCOREFS_VLLM_SHARDS=1 is not set")
    with contextlib.ExitStack() as stack:
        places = {family: stack.enter_context(views.views(source))("vllm/tp1") for family, source in made.items() if family != "qwen2"}
        answers = ask(sys.executable, "greedy_vllm.py", places.values())
        for family, place in places.items():
            models.assert_same_text(answers[str(place)], models.load(made[family]), family)

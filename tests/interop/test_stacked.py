"""-o stack_experts: what transformers 5 makes of each expert's tensors, so the same model; and such files are read as a source."""
import json
import re

import pytest
import torch
import transformers

import hf_models
import program
import views
from swept import todays
from test_model_views import same, weights

# Those that Mixtral's names are of, those with gate_proj and up_proj, and those with more than experts in a layer; of each some a day.
KINDS = [["mixtral", "minimax-m2"], ["qwen3-moe", "olmoe"], ["qwen2-moe", "glm4-moe", "glm4-moe-lite", "deepseek-v2"], ["deepseek-mtp"],
         ["qwen3-next", "qwen3.5-moe"]]
FAMILIES = [family for kind in KINDS for family in todays(kind, 1)]
PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
MIXTRALS = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)}


def stacked(apart):
    """MergeModulelist(dim=0) and Concatenate(dim=1) of transformers' conversion_mapping.py."""
    found = {}
    for name, tensor in apart.items():
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name)
        if not expert:
            found[name] = tensor
        elif expert[2] == "0":
            for whole, parts in (MIXTRALS if expert[3].startswith("w") else PARTS).items():
                count = sum(bool(re.fullmatch(rf"{re.escape(expert[1])}\.\d+\.{parts[0]}\.weight", other)) for other in apart)
                found[f"{expert[1]}.{whole}"] = torch.cat(
                    [torch.stack([apart[f"{expert[1]}.{e}.{part}.weight"] for e in range(count)]) for part in parts], 1)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_stacked(family, tmp_path):
    source = hf_models.make(family, tmp_path / "source")
    ids = torch.arange(24).reshape(1, 24) * 5 % 250
    with views.views(source) as plain, views.views(source, stack_experts=True) as at, torch.no_grad():
        expected, shown = stacked(weights(plain("hf"))), weights(at("hf"))
        assert shown.keys() == expected.keys() and any(name.endswith("experts.gate_up_proj") for name in shown)
        assert all(same(shown[name], tensor) for name, tensor in expected.items())
        cast, wide = weights(at("hf-fp32")), weights(plain("hf-fp32"))
        assert all(same(cast[name], tensor) for name, tensor in stacked(wide).items())
        models = [transformers.AutoModelForCausalLM.from_pretrained(view("hf"), dtype=torch.float32) for view in (plain, at)]
        assert torch.equal(*(model(ids).logits for model in models))
        held, layers = models[1].state_dict(), models[1].config.num_hidden_layers  # without layers of multi-token prediction
        for name, tensor in shown.items():
            if tensor.ndim == 3 and "experts." in name and int(name.split(".")[2]) < layers:
                assert torch.equal(held[name.replace("block_sparse_moe", "mlp")], tensor.float()), name
        with views.views(at("hf")) as back:
            again, before = weights(back("hf")), weights(plain("hf"))
        assert again.keys() == before.keys() and all(same(again[name], before[name]) for name in before)


def test_from_megatron(fixtures):
    for name in ("mixtral-torch-pp2-ep2", "deepseek-torch_dist-pp2-ep2"):
        with views.views(fixtures / "weights" / name) as plain, views.views(fixtures / "weights" / name, stack_experts=True, shard_size=200_000) as at:
            expected, shown = stacked(weights(plain("hf"))), weights(at("hf"))
            assert json.loads((at("hf") / "model.safetensors.index.json").read_text())["weight_map"].keys() == expected.keys()
        assert shown.keys() == expected.keys() and all(same(shown[key], expected[key]) for key in expected)


def test_what_has_no_experts_or_no_names(fixtures, tmp_path):
    """Dense models are as they are; a class whose experts have no gate is refused."""
    llama = fixtures / "weights/llama-torch-tp2-pp2"
    assert program.run("ls", llama, "hf", "-o", "stack_experts").stdout == program.run("ls", llama, "hf").stdout
    done = program.run("ls", hf_models.make("nemotron-h-moe", tmp_path), "hf", "-o", "stack_experts")
    assert done.returncode and "what a nemotron-h calls its stacked experts" in done.stderr

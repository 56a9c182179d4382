"""-o part=language: the language model of a vision-language one, as a model of text alone."""
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import models
import program
import vl_models
from views import export

PEER = pathlib.Path(__file__).parent / "peers" / "write_llava.py"
VIEWS = ["megatron/torch/tp2-pp2", "megatron/torch_dist"]
OF_THE_SOURCE = {"mcorefs", "max_window_layers", "bos_token_id", "eos_token_id", "pad_token_id"}  # keys of which Megatron's arguments know nothing
# What names begin with in the files, and in those of a model of text.
PREFIXES = [("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."), ("model.language_model.", "model."),
            ("model.visual.", None), ("model.", "model."), ("lm_head.", "lm_head.")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(name): the directory of that model, made once."""
    place, there = tmp_path_factory.mktemp("whole"), {}
    return lambda name: there.setdefault(name, None) or there.__setitem__(name, vl_models.make(name, place / name)) or there[name]


def tensors(directory):
    return load_file(directory / "model.safetensors")


def language_tensors(directory):
    found = {}
    for name, tensor in tensors(directory).items():
        prefix, other = next((pair for pair in PREFIXES if name.startswith(pair[0])), ("", None))
        if other:
            found |= unfused(other + name.removeprefix(prefix), tensor)
    return found


def unfused(name, tensor):
    """Qwen3-VL-MoE has all experts of a layer in one tensor, gate and up as one."""
    place, experts, part = name.partition(".mlp.experts.")
    parts = dict(gate_up_proj=["gate_proj", "up_proj"], down_proj=["down_proj"]).get(part)
    if not parts:
        return {name: tensor}
    return {f"{place}{experts}{e}.{kind}.weight": matrix for e, expert in enumerate(tensor) for kind, matrix in zip(parts, expert.chunk(len(parts)))}


def assert_same(got, want):
    assert got.keys() == want.keys(), sorted(got.keys() ^ want.keys())[:5]
    assert all(torch.equal(got[key].view(torch.uint8), want[key].view(torch.uint8)) for key in want)


@pytest.mark.parametrize("name", vl_models.CONFIGS)
def test_the_language_model_is_the_whole_ones(made, name, tmp_path):
    source = made(name)
    shown = export(source, "hf", tmp_path / "hf", part="language")
    assert_same(tensors(shown), language_tensors(source))
    assert models.difference(models.load(shown), source / "logits.npz") <= models.LOGIT_TOLERANCE
    view = VIEWS[len(name) % 2]
    again = export(export(source, view, tmp_path / "megatron", part="language"), "hf", tmp_path / "again")
    assert_same(tensors(again), tensors(shown))
    said, written = (json.loads((place / "config.json").read_text()) for place in (shown, again))
    assert {key for key in written if written[key] != said.get(key)} <= OF_THE_SOURCE


def test_a_whole_model_is_refused_by_name(made, tmp_path):
    source = made("qwen3-vl")
    others = len(tensors(source)) - len(language_tensors(source))
    done = program.export(source, "hf", tmp_path / "hf")
    for word in ("qwen3-vl", "Qwen3VLForConditionalGeneration", f"{others} of its {len(tensors(source))} tensors", "part=language", "qwen3"):
        assert word in done.stderr, done.stderr
    assert done.returncode and not (tmp_path / "hf").exists()


EXPERTS = "model.language_model.layers.1.mlp.experts.gate_up_proj"


def published(stored):
    """As Qwen's own files, and transformers 4, have the experts: [in, out]."""
    for name in [name for name in stored if ".mlp.experts." in name]:
        stored[name] = stored[name].transpose(1, 2).contiguous()


def test_experts_of_published_files(made, tmp_path):
    source = made("qwen3-vl-moe")
    assert tensors(source)[EXPERTS].shape == (6, 80, 96)
    shown = export(changed(source, tmp_path / "published", weights=published), "hf", tmp_path / "hf", part="language")
    assert_same(tensors(shown), language_tensors(source))


def fused(stored):
    """As Qwen 3.5's published files have the experts, which transformers saves one by one."""
    layers = {name.partition(".mlp.experts.")[0] for name in stored if ".mlp.experts." in name}
    for layer in layers:
        each = [{kind: stored.pop(f"{layer}.mlp.experts.{e}.{kind}.weight") for kind in ("gate_proj", "up_proj", "down_proj")} for e in range(6)]
        stored[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack([torch.cat([e["gate_proj"], e["up_proj"]]) for e in each])
        stored[f"{layer}.mlp.experts.down_proj"] = torch.stack([e["down_proj"] for e in each])
    stored["mtp.norm.weight"] = torch.zeros(96, dtype=torch.bfloat16)
    assert layers


def test_published_files_of_qwen35(made, tmp_path):
    source = made("qwen3.5-moe-vl")
    shown = export(changed(source, tmp_path / "published", weights=fused), "hf", tmp_path / "hf", part="language")
    assert_same(tensors(shown), language_tensors(source))


def square(stored):
    """Gate and up of all experts are as wide as the stream, and who reads them sees no order."""
    for name in [name for name in stored if ".mlp.experts." in name]:
        stored[name] = torch.zeros((6, 96, 96) if "gate_up" in name else (6, 96, 48), dtype=torch.bfloat16)


EXPERTS_REFUSED = {
    "another size": (dict(weights=lambda t: t.update({EXPERTS: t[EXPERTS][:, 2:].contiguous()})),
                     "'model.layers.1.mlp.experts.gate_up_proj' is [6, 78, 96], but by config.json it should be [6, 80, 96], or that transposed"),
    "fewer experts": (dict(weights=lambda t: t.update({EXPERTS: t[EXPERTS][1:].contiguous()})), "is [5, 80, 96], but by config.json it should be [6, 80, 96]"),
    "each expert, too": (dict(weights=lambda t: t.update({EXPERTS.replace("gate_up_proj", "3.up_proj.weight"): torch.zeros((40, 96), dtype=torch.bfloat16)})),
                         "tensor 'model.layers.1.mlp.experts.3.up_proj.weight' is in model.safetensors and in model.safetensors"),
    "either way": (dict(weights=square, config=lambda c: c["text_config"].update(moe_intermediate_size=48)),
                   "is [6, 96, 96]: its shape does not tell whether it is transposed"),
}


@pytest.mark.parametrize("what", EXPERTS_REFUSED)
def test_experts_that_are_refused(made, what, tmp_path):
    change, sentence = EXPERTS_REFUSED[what]
    done = program.export(changed(made("qwen3-vl-moe"), tmp_path / "changed", **change), "hf", tmp_path / "hf", part="language")
    assert done.returncode > 0 and sentence in done.stderr, done.stderr
    assert not (tmp_path / "hf").exists()


def changed(source, place, config=None, weights=None):
    shutil.copytree(source, place)
    if config:
        said = json.loads((place / "config.json").read_text())
        config(said)
        (place / "config.json").write_text(json.dumps(said))
    if weights:
        stored = tensors(place)
        weights(stored)
        save_file(stored, place / "model.safetensors", {"format": "pt"})
    return place


NORM = "language_model.model.norm.weight"
REFUSED = {
    "no text config": (dict(config=lambda c: c.pop("text_config")), "'text_config' is missing"),
    "text config of text": (dict(config=lambda c: c.update(text_config="llama")), "'text_config' is \"llama\", expected an object"),
    "another text family": (dict(config=lambda c: c["text_config"].update(model_type="gemma2")), "expected one of llama, mistral"),
    "no table": (dict(config=lambda c: c.update(architectures=["LlavoForConditionalGeneration"], model_type="llavo")),
                 "did you mean 'LlavaForConditionalGeneration'"),
    "no norm": (dict(weights=lambda t: t.pop(NORM)), "'model.norm.weight' is missing"),
    "two prefixes": (dict(weights=lambda t: t.update({"model.language_model.norm.weight": t[NORM].clone()})),
                     "'language_model.model....' and 'model.language_model....'"),
    "a module of none": (dict(weights=lambda t: t.update({"ear.weight": torch.zeros(4)})), "'ear.weight' is of none of the modules that the file of llava names"),
    "text alone": (dict(config=lambda c: [c.update(c.pop("text_config"), architectures=["LlamaForCausalLM"]), c.pop("vision_config")]),
                   "no vision-language model"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(made, what, tmp_path):
    change, sentence = REFUSED[what]
    done = program.export(changed(made("llava"), tmp_path / "changed", **change), "hf", tmp_path / "hf", part="language")
    assert done.returncode > 0 and sentence in done.stderr, done.stderr
    assert not (tmp_path / "hf").exists()


def test_a_person_names_the_tensors(made, tmp_path):
    """A family's file for a model that none of the built-in ones knows."""
    def rename(stored):
        for name in list(stored):
            stored[name.replace("language_model.", "mouth.").replace("vision_tower.", "eye.").replace("multi_modal_projector.", "nerve.")] = stored.pop(name)

    source = changed(made("llava"), tmp_path / "parrot", weights=rename, config=lambda c: c.update(
        architectures=["ParrotForConditionalGeneration"], model_type="parrot", beak=c.pop("text_config")))
    family = tmp_path / "parrot.conf"
    family.write_text("""[family]
name = parrot
architecture = ParrotForConditionalGeneration
model_type = parrot
[language]
family = llama
config = beak
[language hf]
mouth.model. = model.
mouth.lm_head. = lm_head.
eye. = none
nerve. = none
""")
    shown = export(source, "hf", tmp_path / "hf", part="language", family=family)
    assert_same(tensors(shown), language_tensors(made("llava")))


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    """llava(name): what megatron-core's LLaVAModel has saved."""
    place = tmp_path_factory.mktemp("llava")
    done = subprocess.run([sys.executable, PEER, place, "llava-torch-tp2-pp2", "llava-dist-tp2"], capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stdout + done.stderr[-2000:] + "".join(log.read_text()[-1500:] for log in place.glob("*.log"))
    return place.joinpath


@pytest.mark.parametrize("name", ["llava-torch-tp2-pp2", "llava-dist-tp2"])
def test_megatrons_own_llava(llava, name, tmp_path):
    source = llava(name)
    done = program.export(source, "latest/hf", tmp_path / "whole")
    assert done.returncode and "vision-language model (llava: " in done.stderr and "part=language" in done.stderr, done.stderr
    shown = export(source, "latest/hf", tmp_path / "hf", part="language")
    assert models.difference(models.load(shown), source / "logits.npz") <= models.LOGIT_TOLERANCE
    again = export(export(source, "latest/megatron/torch/tp1-pp4", tmp_path / "megatron", part="language"), "latest/hf", tmp_path / "again")
    assert_same(tensors(again), tensors(shown))

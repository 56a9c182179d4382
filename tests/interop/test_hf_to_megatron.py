"""HuggingFace directories as Megatron checkpoints: megatron-core loads them and gives transformers' logits; and back, byte for byte."""
import pytest
import torch
from safetensors.torch import load_file

import hf_models
import megatron_files
import models
from layouts import Layout, cover
from test_megatron_core import answers, job
from views import export, views

# The ways to save and the types go round; every family is read once as the legacy view of a layout, once as torch_dist.
SOURCES = [("llama", "safetensors", "bfloat16"), ("llama", "bin-shards", "float16"), ("qwen2", "shards", "bfloat16"), ("qwen3", "bin", "float32"),
           ("mixtral", "shards", "bfloat16"), ("deepseek", "safetensors", "bfloat16"), ("gpt2", "bin-shards", "float32")]
LAYOUTS = dict(llama=(Layout(2, 2), Layout(4, 1)), qwen2=(Layout(1, 2, vpp=2), Layout(2, 1)), qwen3=(Layout(1, 3, first=2, last=1), Layout(1, 2)),
               mixtral=(Layout(2, 1, ep=2), Layout(1, 1, ep=4)), deepseek=(Layout(1, 2, ep=2), Layout(2, 1)), gpt2=(Layout(4, 1), Layout(2, 2)))
NAMES = ["-".join(source) for source in SOURCES]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    made = {}

    def make(number):
        if number not in made:
            family, how, dtype = SOURCES[number]
            made[number] = hf_models.make(family, tmp_path_factory.mktemp(family) / "hf", how, getattr(torch, dtype))
        return made[number]

    return make


@pytest.fixture(scope="module")
def answered(request, sources, tmp_path_factory):
    """What megatron-core says of both views of the sources that this run asks for, from one process."""
    asked = sorted({item.callspec.params["number"] for item in request.session.items if item.originalname == "test_logits_are_transformers"})
    jobs, place = [], tmp_path_factory.mktemp("loads")
    for number in asked:
        source = sources(number)
        for kind, layout in zip((None, "megatron/torch_dist"), LAYOUTS[SOURCES[number][0]]):
            directory = export(source, kind or layout.view, place / str(len(jobs)), spec="local")  # the modules that need no Transformer Engine
            jobs.append(job(directory, layout, logits=str(source / "logits.npz")))
    said = answers("0.16.1", jobs, place)
    return {number: said[2 * i:2 * i + 2] for i, number in enumerate(asked)}


@pytest.mark.parametrize("number", range(len(SOURCES)), ids=NAMES)
def test_logits_are_transformers(answered, number):
    for said in answered[number]:
        assert not said["error"], said["error"]
        assert models.measured("logit", said["difference"], NAMES[number]) <= models.LOGIT_TOLERANCE


def tensors(directory):
    return {name: tensor for path in directory.glob("*.safetensors") for name, tensor in load_file(path).items()}


def assert_same_model(directory, source, what):
    """transformers loads both without a blemish, and every parameter is the same to the bit."""
    got, want = (models.load(path).state_dict() for path in (directory, source))
    assert got.keys() == want.keys() and all(megatron_files.same(got[name], tensor) for name, tensor in want.items()), what


@pytest.mark.parametrize("number", range(len(SOURCES)), ids=NAMES)
def test_every_layout_has_the_model(sources, number):
    """All views have the same tensors, under both specs' names, and each is a source with the same HuggingFace model."""
    source = sources(number)
    with views(source, spec="te") as view, views(source, spec="local") as local:
        want = megatron_files.read(view("megatron/torch_dist"))
        layouts = cover(want.args)
        for layout in layouts:
            megatron_files.assert_same_contents(megatron_files.read(view(layout.view)), want, f"{NAMES[number]}: {layout}")
        megatron_files.assert_same_contents(megatron_files.read(local(layouts[0].view)), want, f"{NAMES[number]}: local {layouts[0]}")
        direct = tensors(view("hf"))
        if SOURCES[number][1] in ("safetensors", "shards"):
            assert_same_tensors_of_files(direct, tensors(source))
        for name in (layouts[0].view, "megatron/torch_dist"):
            with views(view(name)) as back:
                assert_same_tensors_of_files(tensors(back("hf")), direct)
                assert_same_model(back("hf"), source, name)


def assert_same_tensors_of_files(got, want):
    assert got.keys() == want.keys(), sorted(got.keys() ^ want.keys())[:5]
    wrong = [name for name, tensor in want.items() if not megatron_files.same(got[name], tensor)]
    assert not wrong, wrong[:5]

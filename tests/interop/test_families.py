"""Each family: transformers' model as Megatron checkpoints gives transformers' logits in megatron-core, and back the same tensors and logits.

A line a family. What a family has no line for, `mcorefs families` does not call proved.
"""
import dataclasses
import json
import sys

import numpy
import pytest

import config_keys
import hf_models
import models
import program
import venvs
from layouts import Layout
from swept import share
from test_hf_to_megatron import assert_same_tensors_of_files, tensors
from test_megatron_core import answers, job
from views import export

LEGACY, DIST = Layout(2, 2), Layout(1, 1)  # of the legacy view, where a family says no other, and of the process that reads torch_dist
WITH_BIASES = Layout(2, 2, ep=2, etp=1, vpp=2)  # Megatron adds biases of experts with no other etp


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    model: str                  # of hf_models.CONFIGS
    bridge: bool = False        # Megatron-Bridge 0.3.1 knows the class
    layout: Layout = LEGACY  # of the legacy view
    tolerance: float = models.LOGIT_TOLERANCE
    own: bool = False           # it is made of modules of Bridge's own, whose logits are compared
    refused: tuple = ()         # (key, value): what config.json may not say, and what the sentence must name

    def __str__(self):
        return self.model


FAMILIES = [
    Family("llama-odd", bridge=True, refused=(("hidden_act", "gelu"),)),
    Family("qwen3-odd", bridge=True, refused=(("attention_bias", True),)),
    Family("mistral", bridge=True, refused=(("sliding_window", 0), ("hidden_act", "gelu"))),
    Family("mistral-whole", bridge=True),
    Family("ministral", refused=(("sliding_window", None), ("layer_types", ["linear_attention"] * 4))),
    Family("phi3", refused=(("partial_rotary_factor", 0.5), ("rope_parameters", dict(rope_type="longrope")))),
    Family("nemotron", bridge=True, refused=(("hidden_act", "silu"),)),
    Family("gpt-neox", refused=(("use_parallel_residual", True), ("hidden_act", "relu"), ("attention_bias", False))),
    Family("stablelm", refused=(("use_parallel_residual", True), ("qk_layernorm", True))),
    Family("stablelm-plain"),
    Family("seed-oss", refused=(("attention_bias", False), ("attention_out_bias", True), ("mlp_bias", True))),
    Family("starcoder2", refused=(("hidden_act", "relu"),)),
    Family("arcee", refused=(("hidden_act", "silu"),)),
    Family("jais2", refused=(("mlp_bias", False),)),
    Family("persimmon", refused=(("hidden_act", "gelu"),)),
    Family("gemma", bridge=True, own=True, refused=(("hidden_act", "silu"), ("use_bidirectional_attention", True))),
    Family("gemma2", bridge=True, own=True, refused=(("layer_types", ["sliding_attention"] * 4), ("final_logit_softcapping", -1.0))),
    Family("gemma3", bridge=True, own=True, refused=(("attn_logit_softcapping", 30.0), ("query_pre_attn_scalar", 0))),
    Family("gemma3-linear", bridge=True, own=True),
    Family("olmoe", bridge=True, own=True, refused=(("clip_qkv", 8.0), ("norm_topk_prob", True))),
    Family("exaone4", refused=(("sliding_window", 17), ("layer_types", ["sliding_attention"] * 3 + ["full_attention"]), ("hidden_act", "gelu"))),
    Family("exaone4-scaled"),
    Family("minimax-m2", refused=(("rotary_dim", 16), ("scoring_func", "softmax"), ("use_qk_norm", False))),
    Family("glm"),
    Family("ernie4.5"),
    Family("internlm2", refused=(("bias", True), ("rope_scaling", dict(type="dynamic", factor=2.0)))),
    Family("baichuan", refused=(("hidden_act", "gelu"), ("architectures", ["BaichuanForCausalLM"]))),
    Family("qwen3-moe", refused=(("mlp_only_layers", [9]), ("decoder_sparse_step", 2))),
    Family("qwen3-moe-plain", bridge=True),
    Family("qwen2-moe"),
    Family("qwen3-next", bridge=True, tolerance=models.RECURRENT_TOLERANCE,
           refused=(("layer_types", ["linear_attention", "sliding_attention"] * 2), ("linear_num_value_heads", 5))),
    Family("qwen3-next-plain", tolerance=models.RECURRENT_TOLERANCE),
    Family("qwen3.5", tolerance=models.RECURRENT_TOLERANCE, refused=(("layer_types", ["linear_attention", "sliding_attention"] * 2), ("hidden_act", "gelu"))),
    Family("qwen3.5-tied", tolerance=models.RECURRENT_TOLERANCE),
    Family("qwen3.5-moe", tolerance=models.RECURRENT_TOLERANCE, refused=(("linear_num_value_heads", 5),)),
    Family("nemotron-h", bridge=True, refused=(("hybrid_override_pattern", "M-M"), ("layers_block_type", ["mamba", "conv"] * 2), ("conv_kernel", 3),
                                               ("time_step_limit", [0.0, 0.1]), ("mamba_num_heads", 10), ("mlp_hidden_act", "silu"))),
    Family("nemotron-h-moe", bridge=True, refused=(("moe_latent_size", 48), ("norm_topk_prob", False))),
    Family("deepseek-v2", refused=(("topk_method", "group_limited_greedy"),)),
    Family("deepseek-v2-yarn"),
    Family("glm4-moe-lite"),
    Family("glm4-moe", refused=(("norm_topk_prob", False),)),
    Family("glm4-moe-plain"),
    Family("deepseek-mtp"),
    Family("kimi-k2"),
    Family("kimi-k2-published"),
    Family("glm4-moe-mtp"),
    Family("mimo-mtp"),
    Family("gpt-oss", bridge=True, layout=WITH_BIASES, refused=(("attention_bias", False), ("swiglu_alpha", 1.5))),
    Family("gpt-oss-plain", bridge=True, layout=WITH_BIASES),
    Family("helium", refused=(("mlp_bias", True),)),
]

TODAY = share(FAMILIES, 2)


class Models:
    """The families' models, and the Megatron checkpoints that mcorefs makes of them."""

    def __init__(self, place):
        self.place = place

    def source(self, family):
        directory = self.place / f"{family}-source"
        return directory if directory.exists() else hf_models.make(family.model, directory)

    def shown(self, family):
        """As a HuggingFace directory that each release of transformers understands."""
        directory = self.place / f"{family}-shown"
        return directory if directory.exists() else export(self.dist(family), "hf", directory)

    def legacy(self, family):
        return self.megatron(family, family.layout.view)

    def dist(self, family):
        return self.megatron(family, "megatron/torch_dist")

    def megatron(self, family, view):
        directory = self.place / f"{family}-{view.replace('/', '_')}"
        spec = {} if family.model.startswith(("gemma", "qwen3-next", "qwen3.5", "nemotron-h")) else dict(spec="local")  # no Transformer Engine here, but of some there are stand-ins
        return directory if directory.exists() else export(self.source(family), view, directory, **spec)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("families"))


def asked(request, test):
    """The families that this run asks a test about."""
    found = [item.callspec.params["family"] for item in request.session.items if item.originalname == test]
    return [family for family in FAMILIES if family in found]


def impossible():
    """What `mcorefs families` says that Megatron cannot express."""
    return [family for family in json.loads(program.run("families", "--json").stdout)["families"] if family["impossible"]]


def test_impossible_families_are_refused(made, fixtures, tmp_path):
    """In both directions, with the reason that the list gives."""
    hf = tmp_path / "hf"
    hf.mkdir()
    (hf / "model.safetensors").symlink_to(made.source(FAMILIES[0]) / "model.safetensors")
    for family in impossible():
        (hf / "config.json").write_text(json.dumps(dict(model_type=family["model_type"], architectures=[family["architecture"]])))
        there = program.export(hf, "megatron/torch_dist", tmp_path / "out")
        back = program.export(fixtures / "weights/llama-torch-tp2-pp2", "hf", tmp_path / "out", arch=family["name"])
        for said in (there, back):
            assert said.returncode and family["impossible"] in said.stderr, said.stderr
    assert len(impossible()) > 10


class Peers:
    """What megatron-core and Megatron-Bridge say of the families' checkpoints, from one process: imports take most of the time."""

    def __init__(self, made, place, loaded, imported):
        self.missing, self.errors, jobs, more = None, {}, {}, {}
        try:
            more = dict(script="import_bridge.py", PYTHONPATH=str(venvs.folder("bridge", "Megatron-Bridge", sys.executable))) if imported else {}
        except venvs.Missing as reason:
            self.missing, imported = str(reason), []
        for family in loaded:
            try:
                logits = str(made.source(family) / "logits.npz")
                jobs |= {(family, layout): job(directory, layout, logits=logits)
                         for directory, layout in ((made.legacy(family), family.layout), (made.dist(family), DIST))}
            except AssertionError as error:  # of one family, not of all of them
                self.errors[family] = str(error)
        for family in imported:
            try:
                own = dict(hf=str(made.shown(family)), logits=str(made.source(family) / "logits.npz")) if family.own else {}
                jobs[family, "bridge"] = dict(load=str(made.dist(family)), hf=str(made.source(family))) | own
            except AssertionError as error:
                self.errors[family] = str(error)
        self.said = dict(zip(jobs, answers("0.16.1", list(jobs.values()), place, **more)))

    def answer(self, family, what):
        if self.missing and what == "bridge":
            pytest.skip(self.missing)
        assert family not in self.errors, self.errors[family]
        said = self.said[family, what]
        assert not said["error"], said["error"]
        return said


@pytest.fixture(scope="module")
def peers(request, made, tmp_path_factory):
    return Peers(made, tmp_path_factory.mktemp("loads"), asked(request, "test_megatron_gives_transformers_logits"),
                 asked(request, "test_bridge_imports_the_same"))


@pytest.mark.parametrize("family", [family for family in TODAY if not family.own], ids=str)
def test_megatron_gives_transformers_logits(peers, family):
    for layout in (family.layout, DIST):
        assert models.measured("logit", peers.answer(family, layout)["difference"], family) <= family.tolerance


@pytest.mark.parametrize("family", TODAY, ids=str)
def test_back_are_the_same_model(made, family):
    """From either form: the tensors byte for byte, a config.json that leaves nothing to a default, and the logits to the bit."""
    source = made.source(family)
    for directory in (made.dist(family), made.legacy(family)):
        with program.hf(directory) as back:
            assert_same_tensors_of_files(tensors(back), tensors(source))
    with program.hf(made.dist(family)) as back:
        got, want = (json.loads((directory / "config.json").read_text()) for directory in (back, source))
        assert got["architectures"] == want["architectures"] and got["model_type"] == want["model_type"]
        if family.model in hf_models.RENAMED:  # no class of transformers
            assert want.keys() - got.keys() <= {"transformers_version"}
            return
        assert config_keys.unsaid(back) == []
        said = numpy.load(source / "logits.npz")
        assert numpy.array_equal(models.logits(models.load(back), said["tokens"]), said["logits"])


REFUSED = [(family, key, value) for family in TODAY for key, value in family.refused]


@pytest.mark.parametrize("family, key, value", REFUSED, ids=lambda value: str(value) if isinstance(value, (Family, str)) else "")
def test_refused_with_a_sentence(made, tmp_path, family, key, value):
    source, said = made.source(family), tmp_path / "said"
    said.mkdir()
    (said / "model.safetensors").symlink_to(source / "model.safetensors")
    (said / "config.json").write_text(json.dumps(json.loads((source / "config.json").read_text()) | {key: value}))
    done = program.export(said, "megatron/torch_dist", tmp_path / "out")
    assert done.returncode and f"'{key}" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("family", [family for family in TODAY if family.bridge], ids=str)
def test_bridge_imports_the_same(peers, family):
    said = peers.answer(family, "bridge")
    assert said["compared"] > 8 and not said["different"], said["different"]
    if family.own:
        assert models.measured("logit", said["difference"], family) <= models.LOGIT_TOLERANCE

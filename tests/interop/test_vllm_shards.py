"""vllm/tpN, vllm/tpN-epN, vllm-fp8, vllm-fp8-tensor: each worker has what vLLM's own classes load from the hf view, and vLLM says what transformers says."""
import contextlib
import functools
import json
import os
import subprocess
import sys

import pytest

import hf_models
import models
import program
import views
from swept import ENGINES, todays
from test_peers import HERE, ask

# Vocabularies that vLLM pads (to 1024) and fewer key heads than workers; Llama with biases, Qwen 3 with a head that is tied.
FOUR = dict(hidden_size=128, vocab_size=1000, num_attention_heads=4)
MOE = dict(FOUR, moe_intermediate_size=64, intermediate_size=96)
LATENT = dict(MOE, num_key_value_heads=4)
BIASED = dict(LATENT, topk_method="noaux_tc")  # which vLLM asks for, and transformers does not write
DENSE = ["tp1", "tp2", "tp4"]
EXPERTS = ["tp2", "tp4-ep4"]
ALL = [*DENSE, "tp2-ep2", "tp4-ep4"]
# Of each kind, some a day (swept.py).
KINDS = {
    "dense": (1, {
        "llama": (dict(head_dim=32, vocab_size=1000, attention_bias=True, mlp_bias=True), DENSE),
        "qwen2": (dict(hidden_size=128, vocab_size=1000), ["tp4"]),
        "qwen3-odd": (dict(FOUR, head_dim=32, num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True), DENSE)}),
    "experts": (2, {
        "mixtral": (dict(FOUR, head_dim=32), ALL),
        "qwen2-moe": (MOE, EXPERTS),  # six experts at four workers
        "qwen3-moe": (dict(MOE, head_dim=32, num_experts=8), EXPERTS),
        "olmoe": (dict(FOUR, num_key_value_heads=4, intermediate_size=64), EXPERTS),
        "glm4-moe": (dict(MOE, head_dim=32), EXPERTS),
        "minimax-m2": (dict(FOUR, head_dim=32, intermediate_size=64, rotary_dim=16, scoring_func="sigmoid", use_routing_bias=True), EXPERTS)}),
    "latent": (1, {
        "deepseek-mtp": (BIASED, ALL),
        "deepseek-v2": (LATENT, EXPERTS),  # without q_a_proj
        "glm4-moe-lite": (dict(BIASED, first_k_dense_replace=1, scoring_func="sigmoid", moe_layer_freq=1), EXPERTS)}),
    "plain": (4, {family: (dict(vocab_size=1000), ["tp2"]) for family in (
        "mistral", "ministral", "seed-oss", "arcee", "jais2", "nemotron", "exaone4", "ernie4.5", "helium", "gemma", "gemma2", "gemma3", "glm", "stablelm",
        "starcoder2")})}
# Parts of whole blocks of 128 x 128; multi-latent attention has one matrix that ends inside of one.
BLOCKS = dict(hidden_size=256, vocab_size=1000, num_attention_heads=4, num_key_value_heads=4, intermediate_size=512)
MOE_BLOCKS = dict(BLOCKS, moe_intermediate_size=512)
QUANTISED = {
    "llama": (dict(BLOCKS, head_dim=128), DENSE),
    "qwen3-moe": (dict(MOE_BLOCKS, head_dim=128), ["tp2", "tp4-ep4"]),
    "deepseek-mtp": (dict(MOE_BLOCKS, q_lora_rank=128, kv_lora_rank=40, qk_nope_head_dim=128, qk_rope_head_dim=64, head_dim=64, qk_head_dim=192, v_head_dim=128,
                          topk_method="noaux_tc"), ["tp2", "tp2-ep2"])}
# With one scale for a matrix, no size matters: parts have the scales of the whole matrices, which their own elements would not give.
TENSORS = {
    "llama": (dict(head_dim=32, vocab_size=1000, attention_bias=True, mlp_bias=True), DENSE),
    "qwen3-odd": (dict(FOUR, head_dim=32, num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True), DENSE),
    "mixtral": (dict(FOUR, head_dim=32), ALL),
    "qwen2-moe": (MOE, EXPERTS),
    "deepseek-mtp": (BIASED, ALL),
    "glm": (dict(vocab_size=1000), ["tp2"])}  # whose gates and ups are one matrix
FIXTURES = {"mixtral-torch-pp2-ep2": ["tp2-ep2"], "deepseek-torch_dist-pp2-ep2": ["tp2", "tp2-ep2"]}


MODELS = {family: model for _, models_of in KINDS.values() for family, model in models_of.items()}
TODAY = [family for count, models_of in KINDS.values() for family in todays(models_of, count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(family): a model's directory."""
    return functools.cache(lambda family: hf_models.make(family, tmp_path_factory.mktemp(family), **MODELS[family][0]))


@pytest.fixture
def vllm():
    if os.environ.get("MCOREFS_NO_VLLM"):
        pytest.skip(f"vLLM: could not be installed: {os.environ['MCOREFS_NO_VLLM']}")


def compare(sources):
    """Of [(source, view, layouts), ...] two layouts each, asked of vLLM in one process."""
    with contextlib.ExitStack() as stack:
        pairs = []
        for source, view, layouts in sources:
            at = stack.enter_context(views.views(source))
            pairs += [f"{at(view.replace('vllm', 'hf'))},{at(f'{view}/{layout}')}" for layout in todays(layouts, 2)]
        done = subprocess.run([sys.executable, HERE / "vllm_workers.py", *pairs], capture_output=True, text=True, timeout=1800)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(pairs), done.stderr[-3000:]
    return answers


def test_workers(vllm, made, fixtures, tmp_path):
    """Every parameter, by name, type, shape and bytes, of every worker; of hf-fp8 and hf-fp8-tensor too."""
    if "vllm" not in ENGINES:
        pytest.skip("vLLM's workers: another day's turn (MCOREFS_ALL_LAYOUTS=1)")
    sources = [(made(family), "vllm", MODELS[family][1]) for family in TODAY]
    sources += [(fixtures / "weights" / name, "vllm", FIXTURES[name]) for name in todays(FIXTURES, 1)]
    for view, models_of in (("vllm-fp8", QUANTISED), ("vllm-fp8-tensor", TENSORS)):
        sources += [(hf_models.make(family, tmp_path / view / family, **models_of[family][0]), view, models_of[family][1]) for family in todays(models_of, 1)]
    answers = compare(sources)
    wrong = [answer for answer in answers if answer.get("error") or answer["differ"] or answer["compared"] < 30]
    assert not wrong, "\n".join(f"{a['dir']}: {a.get('error') or a['differ'][:5]} of {a.get('compared')}" for a in wrong)


REFUSED = {"vllm/tp3": "padding of the vocabulary is 64", "vllm/tp16": "num_attention_heads", "vllm/2": "tpN", "vllm/tp02": "tpN", "vllm/tp2-ep": "tpN",
           "vllm/tp2-ep2": "a model without experts", "vllm-fp8/tp1": "each of 1 workers has 64 of keys, expected a multiple of 128"}
REFUSED_EXPERTS = {"vllm/tp2-ep4": "expected tp2-ep2", "vllm/tp8-ep8": "4 experts, fewer than 8 workers"}


def test_refused(made):
    for family, refused in (("llama", REFUSED), ("mixtral", REFUSED_EXPERTS)):
        for view, sentence in refused.items():
            done = program.run("ls", made(family), view)
            assert done.returncode and sentence in done.stderr, f"{view}: {done.stderr}"


def test_other_families_are_refused(fixtures):
    done = program.run("ls", fixtures / "weights/gpt2-torch-tp2-pp2", "vllm/tp1")
    assert done.returncode and "how vLLM's workers hold a gpt2 is not known" in done.stderr


LOADED = ["llama", "qwen3-odd", "mixtral", "qwen3-moe"]


def test_vllm_loads_them(vllm, made):
    """A minute of a processor, so only when asked for."""
    if not os.environ.get("MCOREFS_VLLM_SHARDS"):
        pytest.skip("MCOREFS_VLLM_SHARDS=1 is not set")
    with contextlib.ExitStack() as stack:
        places = {family: stack.enter_context(views.views(made(family)))("vllm/tp1") for family in LOADED}
        answers = ask(sys.executable, "greedy_vllm.py", places.values())
        for family, place in places.items():
            models.assert_same_text(answers[str(place)], models.load(made(family)), family)

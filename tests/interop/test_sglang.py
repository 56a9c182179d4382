"""sglang/tpN, sglang/tpN-epN: each worker has what SGLang's own classes load from the hf view; --load-format mcorefs fills these with the same."""
import contextlib
import json
import os
import subprocess
import sys

import pytest

import hf_models
import program
import venvs
import views
from swept import ENGINES, todays
from test_peers import HERE, stub
from test_vllm_shards import FOUR, LATENT, MOE

EXPERTS = ["tp1", "tp2", "tp4", "tp2-ep2", "tp4-ep4"]
EIGHT = dict(LATENT, n_routed_experts=8, moe_layer_freq=1, scoring_func="softmax", n_group=1, topk_group=1)  # keys that its classes ask for, and transformers does not write
KINDS = {
    "dense": (1, {
        "llama": (dict(head_dim=32, vocab_size=1000), ["tp1", "tp2", "tp4"]),
        "qwen2": (dict(hidden_size=128, vocab_size=1000), ["tp4"]),
        "qwen3-odd": (dict(FOUR, head_dim=32, num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True), ["tp1", "tp4"])}),
    "experts": (2, {
        "mixtral": (dict(FOUR, head_dim=32), EXPERTS),
        "qwen2-moe": (dict(MOE, num_experts=8, mlp_only_layers=[]), EXPERTS),
        "qwen3-moe": (dict(MOE, head_dim=32, num_experts=8, mlp_only_layers=[]), EXPERTS),
        "olmoe": (dict(FOUR, num_key_value_heads=4, intermediate_size=64, num_experts=8), EXPERTS),
        "glm4-moe": (dict(MOE, head_dim=32, n_routed_experts=8), EXPERTS)}),
    "latent": (1, {
        "deepseek-mtp": (dict(EIGHT, topk_method="noaux_tc", scoring_func="sigmoid", n_group=4, topk_group=2), EXPERTS),
        "deepseek-v2": (EIGHT, EXPERTS),
        "glm4-moe-lite": (dict(EIGHT, topk_method="noaux_tc", first_k_dense_replace=1, scoring_func="sigmoid"), EXPERTS)}),
    "plain": (1, {family: (dict(vocab_size=1000), ["tp2"]) for family in ("mistral", "arcee", "stablelm", "starcoder2")})}
MODELS = {family: model for _, models_of in KINDS.values() for family, model in models_of.items()}
# (what the engine is asked for, family, layout, whether its workers read their own parts)
LOADED = [("hf", "qwen3-odd", "tp2", True), ("hf", "qwen3-moe", "tp2-ep2", True), ("hf", "deepseek-mtp", "tp2", True), ("hf", "gemma", "tp2", False),
          ("sglang/tp2", "mixtral", "tp2", True)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    found = {}
    return lambda family: found.get(family) or found.setdefault(family, hf_models.make(family, place / family, **MODELS.get(family, ({},))[0]))


@pytest.fixture
def paths():
    if "sglang" not in ENGINES:
        pytest.skip("SGLang: another day's turn (MCOREFS_ALL_LAYOUTS=1)")
    try:
        return str(venvs.folder("sglang", "SGLang", sys.executable))
    except venvs.Missing as why:
        pytest.skip(str(why))


def ask(pairs, *path):
    done = subprocess.run([sys.executable, HERE / "sglang_workers.py", *pairs], capture_output=True, text=True, timeout=1800,
                          env=os.environ | {"PYTHONPATH": ":".join(path)})
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(pairs), done.stderr[-3000:]
    return answers


def test_workers(paths, made, package_path, tmp_path):
    """Every parameter, by name, type, shape and bytes, of every worker; and what the load format makes of stubs, a mounted view and a URL's."""
    with contextlib.ExitStack() as stack:
        pairs, own = [], {}
        for count, models_of in KINDS.values():
            for family in todays(models_of, count):
                at = stack.enter_context(views.views(made(family)))
                pairs += [f"{at('hf')},{at(f'sglang/{layout}')}" for layout in todays(models_of[family][1], 2)]
        for view, family, layout, parts in LOADED:
            place = stub(made(family), tmp_path / family, "--view", view)
            pairs.append(f"{made(family)},{place}@{layout}")
            own[f"{place}@{layout}"] = parts
        if program.can_mount():
            pairs.append(f"{made('mixtral')},{stack.enter_context(views.views(made('mixtral')))('hf')}@tp2")
            own[pairs[-1].partition(",")[2]] = True
        address = stack.enter_context(program.serving(f"lab/mixtral={made('mixtral')}"))
        place = stub(f"{address}/files/lab/mixtral/main/", tmp_path / "url")
        pairs.append(f"{made('mixtral')},{place}@tp2")
        own[f"{place}@tp2"] = True
        answers = ask(pairs, paths, str(package_path))
    wrong = [a for a in answers if a.get("error") or a["differ"] or a["compared"] < 20]
    assert not wrong, "\n".join(f"{a['dir']}: {a.get('error') or a['differ'][:5]} of {a.get('compared')}" for a in wrong)
    assert {a["dir"]: a["own"] > 0 for a in answers if a["dir"] in own} == own


REFUSED = {"sglang/tp3": "padding of the vocabulary is 64", "sglang/2": "no workers of SGLang's", "sglang/tp2-ep2": "a model without experts"}
NOT_KNOWN = [("gemma", {}, "how SGLang's workers hold a gemma is not known"),
             ("llama", dict(mlp_bias=True, attention_bias=True), "SGLang 0.5.23 does not know a llama with"),
             ("qwen3-moe", dict(mlp_only_layers=[1]), "SGLang 0.5.23 does not know a qwen3-moe with")]


def test_refused(made, tmp_path):
    for view, sentence in REFUSED.items():
        done = program.run("ls", made("llama"), view)
        assert done.returncode and sentence in done.stderr, f"{view}: {done.stderr}"
    for family, keys, sentence in NOT_KNOWN:
        done = program.run("ls", hf_models.make(family, tmp_path / family, **keys), "sglang/tp1")
        assert done.returncode and sentence in done.stderr, f"{family}: {done.stderr}"
    done = program.run("ls", hf_models.make("qwen2-moe", tmp_path / "six", **MOE | dict(mlp_only_layers=[])), "sglang/tp4-ep4")
    assert done.returncode and "6 experts, which 4 workers cannot share" in done.stderr, done.stderr

"""gguf/model.gguf: the gguf package reads in it what llama.cpp's converter makes of the hf view; transformers and llama.cpp compute with it."""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import safetensors.numpy
import safetensors.torch
import tokenizers
import torch

import hf_models
import models
import program
import venvs
import views
from test_model_views import weights

HERE = pathlib.Path(__file__).parent / "peers"
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
# Name: llama.cpp's architecture, the model, what its config says. A name with "plain" is one that transformers' loader can express: it knows no
# biases of a Llama, no scaling, no head of another size than 128 in a Qwen 3, no Mixtral, and no width of experts but the default.
MODELS = {
    "llama-plain": ("llama", "llama-odd", {}),
    "llama-bias": ("llama", "llama-odd", dict(attention_bias=True, mlp_bias=True)),
    "llama-llama3": ("llama", "llama", dict(head_dim=64, rope_parameters=LLAMA3, max_position_embeddings=131072)),
    "llama-linear": ("llama", "llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "mistral-window": ("llama", "mistral", {}),
    "mistral-plain": ("llama", "mistral-whole", {}),
    "qwen2-plain": ("qwen2", "qwen2", {}),
    "qwen3-plain": ("qwen3", "qwen3", dict(head_dim=128)),
    "mixtral": ("llama", "mixtral", {}),
    "qwen3-moe": ("qwen3moe", "qwen3-moe-plain", dict(norm_topk_prob=True)),
}
FIXTURES = {"llama": "llama-torch_dist-tp2-pp2-vpp2", "qwen3": "qwen3-torch_dist-tp4", "mixtral": "mixtral-torch-pp2-ep2"}
TEXT = "The rain in Spain, 1234 times:\n\n  it's café time — don't you think?  "
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
         "w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps", "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return {name: hf_models.make(family, tmp_path_factory.mktemp(name), **keys) for name, (_, family, keys) in MODELS.items()}


@pytest.fixture(scope="module")
def read(made, fixtures, tmp_path_factory):
    """{name: what peers/read_gguf.py found in the file, and the directory of its hf view}; one process reads all."""
    try:
        folder = venvs.folder("gguf", "gguf and accelerate", sys.executable)
    except venvs.Missing as reason:
        pytest.skip(str(reason))
    out, places, jobs = tmp_path_factory.mktemp("read"), {}, []
    sources = {**made, **{f"fixture-{name}": fixtures / "weights" / path / "iter_0000040" for name, path in FIXTURES.items()}}
    for name, source in sources.items():
        for view in ("hf", "gguf", "gguf-f16"):
            (out / name).mkdir(exist_ok=True)
            places[name, view] = views.export(source, view, out / name / view)
            if view != "hf":
                jobs.append(f"{name}.{view}{'@' if 'plain' in name and view == 'gguf' else '='}{places[name, view] / 'model.gguf'}")
    done = subprocess.run([sys.executable, HERE / "read_gguf.py", out, *jobs], capture_output=True, text=True, timeout=600,
                          env=dict(os.environ, PYTHONPATH=str(folder)))
    assert done.returncode == 0, done.stderr[-3000:]
    return lambda name, view: (json.loads((out / f"{name}.{view}.json").read_text()), safetensors.numpy.load_file(out / f"{name}.{view}.safetensors"),
                               places[name, "hf"], out / f"{name}.{view}.npz")


def interleaved(tensor, heads):
    """LlamaModel.permute of the converter."""
    return tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def llama3_factors(config):
    """generate_extra_tensors of the converter."""
    rope, head = config["rope_parameters"], config["head_dim"]
    found = []
    for frequency in (1 / rope["rope_theta"] ** (numpy.arange(0, head, 2) / head)):
        wavelength, old = 2 * math.pi / frequency, rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (old / wavelength - low) / (high - low)
        found.append(1 if wavelength < old / high else rope["factor"] if wavelength > old / low else 1 / ((1 - smooth) / rope["factor"] + smooth))
    return torch.tensor(found, dtype=torch.float32)


def converted(directory, architecture, dtype):
    """{name: tensor} of the converter, from an HF directory."""
    config, named, experts = json.loads((directory / "config.json").read_text()), {}, {}
    for name, tensor in weights(directory).items():
        stem, _, end = name.rpartition(".")
        if architecture == "llama" and stem.endswith((".q_proj", ".k_proj")):
            tensor = interleaved(tensor, config["num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"])
        if stem in WHOLE:
            new = f"{WHOLE[stem]}.{end}"
        else:
            layer, _, part = stem.removeprefix("model.layers.").partition(".")
            expert = part.partition("experts.")[2]
            new = f"blk.{layer}.{LAYER[expert.partition('.')[2] if expert else part]}.{end}"
            if expert:
                experts.setdefault(new, {})[int(expert.partition(".")[0])] = tensor
                continue
        named[new] = tensor
    named.update({name: torch.stack([parts[i] for i in range(len(parts))]) for name, parts in experts.items()})
    if (config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        named["rope_freqs.weight"] = llama3_factors(config)
    wide = {name for name, tensor in named.items() if tensor.ndim == 1 or name.endswith(("_norm.weight", "ffn_gate_inp.weight"))}
    return {name: tensor.to(torch.float32 if name in wide else dtype) for name, tensor in named.items()}


@pytest.mark.parametrize("view, dtype, kind", [("gguf", torch.bfloat16, "BF16"), ("gguf-f16", torch.float16, "F16")])
@pytest.mark.parametrize("name", [*MODELS, *(f"fixture-{name}" for name in FIXTURES)])
def test_tensors(read, name, view, dtype, kind):
    said, values, hf, _ = read(name, view)
    architecture = said["keys"]["general.architecture"][1]
    expected = converted(hf, architecture, dtype)
    assert said["tensors"] == {key: ["F32" if tensor.dtype == torch.float32 else kind, list(tensor.shape)] for key, tensor in expected.items()}
    for key, tensor in expected.items():
        if key == "rope_freqs.weight":
            numpy.testing.assert_allclose(values[key], tensor.numpy(), rtol=1e-6)
        else:
            assert numpy.array_equal(values[key], tensor.float().numpy()), key


@pytest.mark.parametrize("name", MODELS)
def test_keys(read, name):
    said, _, hf, _ = read(name, "gguf")
    config, architecture = json.loads((hf / "config.json").read_text()), MODELS[name][0]
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    expected = {
        "block_count": config["num_hidden_layers"], "embedding_length": config["hidden_size"], "vocab_size": 250,
        "context_length": min(config["max_position_embeddings"], config.get("sliding_window") or 1 << 30), "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
        "feed_forward_length": config["intermediate_size"]}
    if "experts_per_tok" in str(config):
        expected.update({"expert_used_count": config["num_experts_per_tok"], "expert_count": config.get("num_local_experts") or config["num_experts"],
                         "expert_feed_forward_length": config.get("moe_intermediate_size", config["intermediate_size"])})
    expected = {f"{architecture}.{key}": ["UINT32", value] for key, value in expected.items()}
    reals = {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": config["rope_parameters"]["rope_theta"]}
    if config["rope_parameters"]["rope_type"] == "linear":
        expected[f"{architecture}.rope.scaling.type"] = ["STRING", "linear"]
        reals["rope.scaling.factor"] = 4.0
    expected.update({f"{architecture}.{key}": ["FLOAT32", float(numpy.float32(value))] for key, value in reals.items()})
    expected.update({"general.architecture": ["STRING", architecture], "general.type": ["STRING", "model"], "general.name": said["keys"]["general.name"], "general.file_type": ["UINT32", 32],
                     "general.quantization_version": ["UINT32", 2], "tokenizer.ggml.model": ["STRING", "none"]})
    assert said["keys"] == expected
    assert re.fullmatch(r"[a-z0-9-]+ \d+\.\d[KMB]", said["keys"]["general.name"][1])


@pytest.mark.parametrize("name", [name for name in MODELS if "plain" in name])
def test_transformers_computes_the_same(read, name):
    *_, hf, logits = read(name, "gguf")
    measured = models.measured("logit", models.difference(models.load(hf), logits), name)
    assert measured == 0


def test_tokenizer(read, fixtures):
    """The arrays against what the tokenizers library says of the same file."""
    keys = read("fixture-llama", "gguf")[0]["keys"]
    path = fixtures / "weights" / FIXTURES["llama"] / "iter_0000040/tokenizer/tokenizer.json"
    tokenizer, rows = tokenizers.Tokenizer.from_file(str(path)), keys["llama.vocab_size"][1]
    texts = keys["tokenizer.ggml.tokens"][1]
    assert len(texts) == len(keys["tokenizer.ggml.token_type"][1]) == rows > tokenizer.get_vocab_size()
    assert texts == [tokenizer.id_to_token(i) or f"[PAD{i}]" for i in range(rows)]
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    assert keys["tokenizer.ggml.token_type"][1] == [3 if i in special else 1 if tokenizer.id_to_token(i) else 5 for i in range(rows)]
    assert keys["tokenizer.ggml.merges"][1] == [" ".join(pair) for pair in json.loads(path.read_text())["model"]["merges"]]
    assert keys["tokenizer.ggml.pre"][1] == "gpt-2" and keys["tokenizer.ggml.eos_token_id"] == ["UINT32", 0]
    assert keys["tokenizer.ggml.add_bos_token"] == ["BOOL", False]


def test_no_tokenizer_is_said(made, fixtures, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(made["llama-plain"], source)
    done = program.export(source, "gguf", tmp_path / "none")
    assert done.returncode == 0 and "no tokenizer, and takes token ids alone: there is no tokenizer.json" in done.stderr
    (source / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    done = program.export(source, "gguf", tmp_path / "unigram")
    assert done.returncode == 0 and "its model is no BPE" in done.stderr
    (source / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a')
    done = program.run("ls", source, "gguf")
    assert done.returncode and "not a JSON object, or cut short" in done.stderr


@pytest.mark.parametrize("family, keys, sentence", [
    ("gemma", {}, "how llama.cpp holds a gemma is not known"),
    ("qwen3-moe-plain", {}, "llama.cpp's qwen3moe does not know router softmax before the top k"),
    ("qwen2", dict(head_dim=32), "llama.cpp's qwen2 does not know a head size other than"),
    ("qwen3", dict(rope_parameters=LLAMA3), "llama.cpp's qwen3 does not know Llama 3's rotary scaling")])
def test_refused(tmp_path, family, keys, sentence):
    source = hf_models.make(family, tmp_path / "source", **keys)
    done = program.run("ls", source, "gguf")
    assert done.returncode and sentence in done.stderr


def test_llama_cpp_computes_the_same(made, fixtures):
    """It is built from source for minutes, so only where it is already: MCOREFS_LLAMA_CPP=DIR holds the package llama_cpp."""
    if not os.environ.get("MCOREFS_LLAMA_CPP"):
        pytest.skip("llama.cpp: MCOREFS_LLAMA_CPP=DIR, a folder with llama-cpp-python 0.3.36, is not set")
    sources = {**made, **{name: fixtures / "weights" / path / "iter_0000040" for name, path in FIXTURES.items()}}
    for name, source in sources.items():
        with views.views(source) as at:
            model, path = models.load(at("hf")), at("gguf") / "model.gguf"
            done = subprocess.run([sys.executable, HERE / "greedy_llama_cpp.py", path, TEXT], capture_output=True, text=True, timeout=600,
                                  env=dict(os.environ, PYTHONPATH=os.environ["MCOREFS_LLAMA_CPP"]))
            assert done.returncode == 0, done.stderr[-3000:]
            answer = json.loads(done.stdout.splitlines()[-1])
            with torch.no_grad():
                logits = model(torch.tensor([answer["prompt"]])).logits[0].numpy()
            found = numpy.array(answer["logits"])[:, :logits.shape[1]]
            # llama.cpp rounds activations to bfloat16 before each product, and keys and values to float16: a token may go to another expert.
            off = models.measured("logit", numpy.abs(found - logits).mean() / logits.std(), f"llama.cpp, {name}")
            assert off < 0.02, name
            sure = numpy.diff(numpy.sort(logits, 1)[:, -2:], axis=1)[:, 0] > 0.25 * logits.std()
            assert (found.argmax(1) == logits.argmax(1))[sure].all(), name
            if answer["tokens"] is not None:
                tokenizer = tokenizers.Tokenizer.from_file(str(next(source.rglob("tokenizer.json"))))
                assert answer["tokens"] == tokenizer.encode(TEXT).ids and answer["text"] == TEXT, name

"""8-bit floats in blocks: what hf-fp8 shows against DeepSeek's formula, and sources against transformers' and vLLM's dequantisation.
MXFP4 sources against transformers'."""
import json
import pathlib
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import hf_models
import program
import views
from test_model_views import same, weights

HERE = pathlib.Path(__file__).parent
BLOCK = 128
CONFIG = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[BLOCK, BLOCK])
# Sizes that blocks divide (only such are read by transformers), and sizes that they do not.
EVEN = dict(hidden_size=256, intermediate_size=384, num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_hidden_layers=2)
ODD = dict(EVEN, hidden_size=264, intermediate_size=300, num_attention_heads=6, head_dim=36)
KEPT = ("embed_tokens", "lm_head", "norm", "mlp.gate.", "bias")


def quantised(matrix, rows, cols):
    """act_quant_kernel of DeepSeek-V3 (inference/kernel.py), a block at a time: s = max(|x|) / 448, y = x / s. A block of zeros has 0 / 0 there."""
    padded = F.pad(matrix.float(), (0, -matrix.shape[1] % cols, 0, -matrix.shape[0] % rows))
    blocks = padded.unflatten(1, (-1, cols)).unflatten(0, (-1, rows)).transpose(1, 2)
    scales = blocks.abs().amax((2, 3), keepdim=True) / 448.0
    scales = torch.where(scales == 0, 1, scales)
    shown = (blocks / scales).to(torch.float8_e4m3fn).transpose(1, 2).reshape(padded.shape)
    return shown[:matrix.shape[0], :matrix.shape[1]].contiguous(), scales[:, :, 0, 0]


def dequantised(matrix, scales):
    """weight_dequant_kernel of the same file."""
    large = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return (matrix.float() * large[:matrix.shape[0], :matrix.shape[1]]).bfloat16()


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A bfloat16 model with a block of zeros, one of zeros but for the smallest number, and infinities."""
    directory = tmp_path_factory.mktemp("uneven")
    hf_models.make("qwen3-moe-plain", directory, **ODD, moe_intermediate_size=200)
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"][128:, :128] = 0
    tensors["model.layers.0.self_attn.k_proj.weight"][:, 128:] = 0
    tensors["model.layers.0.self_attn.k_proj.weight"][3, 130] = 2.0**-133
    tensors["model.layers.1.self_attn.v_proj.weight"][5, 7] = torch.inf
    tensors["model.layers.1.self_attn.o_proj.weight"][5, 7] = torch.nan
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return directory


@pytest.mark.parametrize("name", ["weights/deepseek-torch_dist-pp2-ep2", "weights/llama-torch-tp2-pp2", "uneven"])
@pytest.mark.parametrize("view, suffix", [("hf-fp8", "_scale_inv"), ("hf-fp8-tensor", "_scale")])
def test_quantised_as_deepseek(request, name, view, suffix):
    source = request.getfixturevalue("uneven") if name == "uneven" else request.getfixturevalue("fixtures") / name
    with views.views(source) as at:
        plain, shown, config = weights(at("hf")), weights(at(view)), json.loads((at(view) / "config.json").read_text())
    scales = {key for key in shown if key.endswith(suffix)}
    assert shown.keys() - scales == plain.keys()
    assert {key.removesuffix(suffix) for key in scales} == {key for key in plain if not any(part in key for part in KEPT)}
    for key, tensor in plain.items():
        if key + suffix not in shown:
            assert same(shown[key], tensor), key
            continue
        rows, cols = (BLOCK, BLOCK) if view == "hf-fp8" else tensor.shape
        expected, scale = quantised(tensor, rows, cols)
        found = shown[key + suffix]
        assert found.shape == (scale.shape if view == "hf-fp8" else ()) and found.dtype == torch.float32
        nan = scale.isnan()
        assert torch.equal(found.reshape(scale.shape)[~nan], scale[~nan]) and found.reshape(scale.shape)[nan].isnan().all(), key
        good = expected.float().isnan() & shown[key].float().isnan() | (bits(expected) == bits(shown[key]))
        assert good.all(), key
    said = config["quantization_config"]
    kept = {key.removesuffix(".weight") for key, tensor in plain.items() if tensor.ndim == 2 and key + suffix not in shown}
    assert set(said["modules_to_not_convert"]) == kept and said["quant_method"] == "fp8"
    assert said.get("weight_block_size") == ([BLOCK, BLOCK] if view == "hf-fp8" else None)


def make_source(directory, family, scale_type, **keys):
    """A model as it is published: its 8-bit weights, and what they are dequantised."""
    hf_models.make(family, directory, **keys)
    tensors, expected = {}, {}
    for key, tensor in safetensors.torch.load_file(directory / "model.safetensors").items():
        expected[key] = tensors[key] = tensor
        if not any(part in key for part in KEPT):
            tensors[key], scales = quantised(tensor, BLOCK, BLOCK)
            tensors[key + "_scale_inv"] = scales.to(scale_type)
            expected[key] = dequantised(tensors[key], tensors[key + "_scale_inv"])
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(dict(config, quantization_config=CONFIG)))
    return tensors, expected


SOURCES = [("qwen3-moe-plain", torch.bfloat16, dict(EVEN, moe_intermediate_size=128)), ("llama-odd", torch.float32, ODD),
           ("deepseek-mtp", torch.float32, dict(hidden_size=192, moe_intermediate_size=136, kv_lora_rank=152))]


@pytest.mark.parametrize("family, scale_type, keys", SOURCES)
def test_sources(tmp_path, family, scale_type, keys):
    """Shown as bfloat16 by hf, and by the Megatron views of any layout; hf-fp32 is rounded only once."""
    tensors, expected = make_source(tmp_path / "source", family, scale_type, **keys)
    with views.views(tmp_path / "source", spec="local") as at:
        shown = weights(at("hf"))
        assert shown.keys() == expected.keys() and all(same(shown[key], expected[key]) for key in expected)
        assert "quantization_config" not in json.loads((at("hf") / "config.json").read_text())
        wide = weights(at("hf-fp32"))
        for key, tensor in tensors.items():
            if key + "_scale_inv" in tensors:
                large = tensors[key + "_scale_inv"].float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
                assert same(wide[key], tensor.float() * large[:tensor.shape[0], :tensor.shape[1]])
        for view in ("megatron/torch/tp2-pp2", "megatron/torch_dist"):
            with program.hf(at(view)) as back:
                again = weights(back)
            assert again.keys() == expected.keys() and all(same(again[key], expected[key]) for key in expected), view


def test_peers_dequantise_the_same(tmp_path):
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape, scaled_dequantize
    family, scale_type, keys = SOURCES[0]
    tensors, _ = make_source(tmp_path / "source", family, scale_type, **keys)
    with views.views(tmp_path / "source") as at:
        shown = weights(at("hf"))
    matrices = [key for key in tensors if key + "_scale_inv" in tensors]
    assert len(matrices) > 20
    for key in matrices:
        matrix, scales = tensors[key], tensors[key + "_scale_inv"]
        assert same(shown[key], Fp8Dequantize(None)._dequantize_one(matrix, scales, torch.bfloat16)), key
        assert same(shown[key], scaled_dequantize(matrix, scales, GroupShape(BLOCK, BLOCK), torch.bfloat16)), key


REFUSED = {
    "gptq": (lambda config, tensors: config["quantization_config"].update(quant_method="gptq"), "gptq"),
    "without blocks": (lambda config, tensors: config["quantization_config"].pop("weight_block_size"), "fp8 in blocks"),
    "blocks of nothing": (lambda config, tensors: config["quantization_config"].update(weight_block_size=[128, 0]), "weight_block_size"),
    "other blocks": (lambda config, tensors: config["quantization_config"].update(weight_block_size=[64, 128]), "are not the scales of"),
    "integers": (lambda config, tensors: tensors.update({Q + "_scale_inv": tensors[Q + "_scale_inv"].int()}), "of float8_e4m3fn and int32"),
    "no scales": (lambda config, tensors: tensors.pop(Q + "_scale_inv"), "is of float8_e4m3fn, expected"),
    "wide weights": (lambda config, tensors: tensors.update({Q: tensors[Q].bfloat16()}), "of bfloat16 and float32"),
    "half of them": (lambda config, tensors: tensors.update({Q: tensors[Q].bfloat16(), Q + "_scale_inv": torch.zeros(0)}), "q_proj"),
}
Q = "model.layers.0.self_attn.q_proj.weight"


def test_refused(tmp_path):
    tensors, _ = make_source(tmp_path, "llama-odd", torch.float32, **ODD)
    text = (tmp_path / "config.json").read_text()
    for what, (change, sentence) in REFUSED.items():
        config, changed = json.loads(text), dict(tensors)
        change(config, changed)
        (tmp_path / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        done = program.run("ls", tmp_path, "hf")
        assert done.returncode and sentence in done.stderr, f"{what}: {done.stderr}"
    (tmp_path / "config.json").write_text(text)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    done = program.run("ls", tmp_path, "hf-fp8")
    assert done.returncode and "already" in done.stderr


def test_states_of_modules(tmp_path):
    """_extra_state of the recipe delayed, through views of both formats and of other layouts: torch and pickle find what was in the source."""
    subprocess.run([sys.executable, HERE.parent / "giants" / "make_te.py", tmp_path, "delayed", "experts"], check=True, timeout=program.SECONDS)
    files = []
    for name, other, last in (("delayed", "megatron/torch/tp1-pp1", "mp_rank_00"), ("experts", "megatron/torch/tp1-pp1-ep2", "mp_rank_00_001")):
        views.export(tmp_path / name, "megatron/torch_dist", tmp_path / f"{name}-dist")
        views.export(tmp_path / f"{name}-dist", "megatron/torch/tp1-pp1", tmp_path / f"{name}-back")
        views.export(tmp_path / f"{name}-dist", other, tmp_path / f"{name}-other")
        files += [tmp_path / directory / f"iter_0001000/{rank}/model_optim_rng.pt"
                  for directory, rank in ((name, "mp_rank_00"), (f"{name}-back", "mp_rank_00"), (f"{name}-other", last))]
    done = subprocess.run([sys.executable, HERE / "peers" / "read_states.py", *files], capture_output=True, text=True, timeout=program.SECONDS)
    assert done.returncode == 0, done.stderr
    for source, back, other in zip(*[iter(json.loads(done.stdout))] * 3):
        assert len([state for state in source.values() if state]) == 4
        for key, state in source.items():
            assert state["recipe"] == "TEDelayedScaling HYBRID max 4 0"
            state["recipe"] = state["recipe"].removeprefix("TE")
            assert back[key] == state, key
            columns = slice(2, 4) if "experts" in key else slice(None)  # of the second of two ranks of two experts
            for array, kinds in (("fwd", 3), ("bwd", 2)):
                wanted = torch.tensor(state[f"scale_{array}"]).view(kinds, -1)[:, columns].flatten()
                assert other[key][f"scale_{array}"] == wanted.tolist(), key
                wanted = torch.tensor(state[f"amax_history_{array}"]).view(4, kinds, -1)[:, :, columns].flatten(1)
                assert other[key][f"amax_history_{array}"] == wanted.tolist(), key
        assert not any(state for key, state in back.items() if key not in source)


def make_mxfp4(directory):
    """GPT-OSS as it is published: all codes, and scales from the smallest to the largest, NaN's among them."""
    hf_models.make("gpt-oss", directory, hidden_size=64, intermediate_size=96)
    tensors, expected = {}, {}
    bits = torch.Generator().manual_seed(3)
    for key, tensor in safetensors.torch.load_file(directory / "model.safetensors").items():
        if not key.endswith(("gate_up_proj", "down_proj")):
            expected[key] = tensors[key] = tensor
            continue
        experts, inner, outer = tensor.shape
        tensors[key + "_blocks"] = torch.randint(0, 256, (experts, outer, inner // 32, 16), dtype=torch.uint8, generator=bits)
        tensors[key + "_scales"] = scales = torch.randint(116, 124, (experts, outer, inner // 32), dtype=torch.uint8, generator=bits)
        if key.startswith("model.layers.1."):
            scales[0, :2, :2] = torch.tensor([[0, 1], [254, 255]], dtype=torch.uint8)
        expected[key] = convert_moe_packed_tensors(tensors[key + "_blocks"], scales)
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    said = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"])
    (directory / "config.json").write_text(json.dumps(dict(config, quantization_config=said)))
    return tensors, expected


def alike(shown, expected):
    """Bit for bit, but that a NaN is a NaN."""
    nan = expected.isnan()
    return shown.dtype == expected.dtype and torch.equal(shown.isnan(), nan) and torch.equal(bits(shown[~nan]), bits(expected[~nan]))


def test_mxfp4_sources(tmp_path):
    """Shown as bfloat16, by all views; transformers' own dequantised model has the same logits."""
    tensors, expected = make_mxfp4(tmp_path / "source")
    with views.views(tmp_path / "source", spec="local") as at:
        shown = weights(at("hf"))
        assert shown.keys() == expected.keys()
        for key in expected:
            assert alike(shown[key], expected[key]), key
        assert "quantization_config" not in json.loads((at("hf") / "config.json").read_text())
        for view in ("megatron/torch/tp2-pp2-ep3-etp1", "megatron/torch_dist"):
            with program.hf(at(view)) as back:
                again = weights(back)
            assert again.keys() == expected.keys() and all(alike(again[key], expected[key]) for key in expected), view
        small = {key: value.clamp(116, 124) if key.endswith("_scales") else value for key, value in tensors.items()}
        safetensors.torch.save_file(small, tmp_path / "source/model.safetensors", {"format": "pt"})
    ids = torch.arange(24).reshape(1, 24) * 5 % 90
    with views.views(tmp_path / "source") as at, torch.no_grad():
        ours = transformers.AutoModelForCausalLM.from_pretrained(at("hf"), dtype=torch.bfloat16)(ids).logits
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "source", dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True))(ids).logits
    assert torch.equal(ours, theirs) and ours.isfinite().all() and ours.std() > 0


MX = "model.layers.0.mlp.experts.down_proj"
REFUSED_MX = {
    "no scales": (lambda config, tensors: tensors.pop(MX + "_scales"), "quantised weights of this kind"),
    "no blocks": (lambda config, tensors: tensors.pop(MX + "_blocks"), "down_proj' is missing"),
    "not said": (lambda config, tensors: config.pop("quantization_config"), "quantised weights of this kind"),
    "fewer scales": (lambda config, tensors: tensors.update({MX + "_scales": tensors[MX + "_scales"][:, 1:].contiguous()}), "[6, 63, 3] of uint8"),
    "signed": (lambda config, tensors: tensors.update({MX + "_blocks": tensors[MX + "_blocks"].view(torch.int8)}), "of int8"),
    "wide blocks": (lambda config, tensors: tensors.update({MX + "_blocks": tensors[MX + "_blocks"].repeat(1, 1, 1, 2)}), "[6, 64, 3, 32]"),
    "both": (lambda config, tensors: tensors.update({MX: torch.zeros(6, 96, 64)}), "down_proj' is in"),
    "other sizes": (lambda config, tensors: config.update(intermediate_size=64), "gate_up_proj' is [6, 64, 192], but"),
}


def test_refused_mxfp4(tmp_path):
    tensors, _ = make_mxfp4(tmp_path)
    text = (tmp_path / "config.json").read_text()
    for what, (change, sentence) in REFUSED_MX.items():
        config, changed = json.loads(text), dict(tensors)
        change(config, changed)
        (tmp_path / "config.json").write_text(json.dumps(config))
        safetensors.torch.save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        done = program.run("ls", tmp_path, "hf")
        assert done.returncode and sentence in done.stderr, f"{what}: {done.stderr}"

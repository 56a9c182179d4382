"""Makes corpus/hf_dir and reject/hf_dir: python3 tests/fuzz/make_hf_dir_seeds.py. As make_seeds.py.

An input is 'c' and a config.json, 'i' and an index, or 'd' and files as "NAME LENGTH\\n" and their bytes.
"""

import collections
import io
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../giants")
import torch_files as tf  # noqa: E402

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
         "max_position_embeddings": 8, "torch_dtype": "bfloat16"}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 3,
        "n_inner": 6, "vocab_size": 5}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 4, "intermediate_size": 3, "moe_intermediate_size": 2, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 2, "n_routed_experts": 2, "num_experts_per_tok": 2, "n_group": 1,
            "topk_group": 1, "q_lora_rank": None, "kv_lora_rank": 2, "qk_rope_head_dim": 2, "qk_nope_head_dim": 2, "v_head_dim": 2,
            "first_k_dense_replace": 1, "vocab_size": 5,
            "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1,
                             "original_max_position_embeddings": 4096}}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4,
         "max_window_layers": 0, "layer_types": ["sliding_attention"]}
MIXTRAL = {**LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 2}

QWEN3_NEXT = {**LLAMA, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 2, "head_dim": 2,
              "full_attention_interval": 2, "linear_conv_kernel_dim": 2, "linear_key_head_dim": 1, "linear_value_head_dim": 2,
              "linear_num_key_heads": 1, "linear_num_value_heads": 2, "num_experts": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 2,
              "shared_expert_intermediate_size": 3, "partial_rotary_factor": 1.0, "mlp_only_layers": [0]}

LAYER = "model.layers.0."
SHAPES = {"model.embed_tokens.weight": (5, 4), LAYER + "input_layernorm.weight": (4,), LAYER + "mlp.down_proj.weight": (4, 3),
          LAYER + "mlp.gate_proj.weight": (3, 4), LAYER + "mlp.up_proj.weight": (3, 4), LAYER + "post_attention_layernorm.weight": (4,),
          LAYER + "self_attn.k_proj.weight": (2, 4), LAYER + "self_attn.o_proj.weight": (4, 4),
          LAYER + "self_attn.q_proj.weight": (4, 4), LAYER + "self_attn.v_proj.weight": (2, 4), "model.norm.weight": (4,),
          "lm_head.weight": (5, 4)}
SECOND = "model.layers.1."
QWEN3_NEXT_SHAPES = {
    **{name: shape for name, shape in SHAPES.items() if "self_attn" not in name}, LAYER + "linear_attn.A_log": (2,),
    LAYER + "linear_attn.dt_bias": (2,), LAYER + "linear_attn.conv1d.weight": (6, 1, 2), LAYER + "linear_attn.in_proj_qkvz.weight": (10, 4),
    LAYER + "linear_attn.in_proj_ba.weight": (4, 4), LAYER + "linear_attn.norm.weight": (2,), LAYER + "linear_attn.out_proj.weight": (4, 4),
    SECOND + "input_layernorm.weight": (4,), SECOND + "post_attention_layernorm.weight": (4,), SECOND + "self_attn.q_proj.weight": (8, 4),
    SECOND + "self_attn.k_proj.weight": (2, 4), SECOND + "self_attn.v_proj.weight": (2, 4), SECOND + "self_attn.o_proj.weight": (4, 4),
    SECOND + "self_attn.q_norm.weight": (2,), SECOND + "self_attn.k_norm.weight": (2,), SECOND + "mlp.gate.weight": (1, 4),
    SECOND + "mlp.experts.0.gate_proj.weight": (2, 4), SECOND + "mlp.experts.0.up_proj.weight": (2, 4),
    SECOND + "mlp.experts.0.down_proj.weight": (4, 2), SECOND + "mlp.shared_expert.gate_proj.weight": (3, 4),
    SECOND + "mlp.shared_expert.up_proj.weight": (3, 4), SECOND + "mlp.shared_expert.down_proj.weight": (4, 3),
    SECOND + "mlp.shared_expert_gate.weight": (1, 4), "mtp.norm.weight": (4,)}
# All experts in one tensor.
VL_MOE = {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "vision_config": {}, "text_config": {
    **LLAMA, "model_type": "qwen3_vl_moe_text", "head_dim": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 3}}


def vl_moe(up=(2, 6, 4), down=(2, 4, 3)):
    whole = lambda name: name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
    shapes = {whole(name): shape for name, shape in SHAPES.items() if ".mlp." not in name}
    layer = "model.language_model.layers.0."
    shapes |= {layer + "self_attn.q_norm.weight": (2,), layer + "self_attn.k_norm.weight": (2,), layer + "mlp.gate.weight": (2, 4),
               layer + "mlp.experts.gate_up_proj": up, layer + "mlp.experts.down_proj": down, "model.visual.eye.weight": (1,)}
    return directory({"config.json": VL_MOE, "model.safetensors": safetensors(shapes)})


# A layer of each kind. Python writes Infinity.
NEMOTRON_H = {**LLAMA, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 4, "head_dim": 2,
              "hybrid_override_pattern": "M*-E", "ssm_state_size": 1, "mamba_head_dim": 2, "mamba_num_heads": 2, "n_groups": 1, "n_routed_experts": 1,
              "num_experts_per_tok": 1, "norm_topk_prob": False, "moe_intermediate_size": 2, "moe_shared_expert_intermediate_size": 3,
              "time_step_limit": [0.0, float("inf")]}
SUBLAYER = "backbone.layers."
NEMOTRON_H_SHAPES = {
    "backbone.embeddings.weight": (5, 4), "backbone.norm_f.weight": (4,), "lm_head.weight": (5, 4), "mtp.norm.weight": (4,),
    **{f"{SUBLAYER}{layer}.norm.weight": (4,) for layer in range(4)},
    **{f"{SUBLAYER}{layer}.mixer.{name}": shape for layer, tensors in enumerate((
        {"in_proj.weight": (12, 4), "conv1d.weight": (6, 1, 4), "conv1d.bias": (6,), "A_log": (2,), "D": (2,), "dt_bias": (2,), "norm.weight": (4,),
         "out_proj.weight": (4, 4)},
        {"q_proj.weight": (4, 4), "k_proj.weight": (2, 4), "v_proj.weight": (2, 4), "o_proj.weight": (4, 4)},
        {"up_proj.weight": (3, 4), "down_proj.weight": (4, 3)},
        {"gate.weight": (1, 4), "gate.e_score_correction_bias": (1,), "experts.0.up_proj.weight": (2, 4), "experts.0.down_proj.weight": (4, 2),
         "shared_experts.up_proj.weight": (3, 4), "shared_experts.down_proj.weight": (4, 3)})) for name, shape in tensors.items()}}
BLOCK = "h.0."
GPT2_SHAPES = {"wte.weight": (5, 4), "wpe.weight": (3, 4), BLOCK + "ln_1.weight": (4,), BLOCK + "ln_1.bias": (4,),
               BLOCK + "attn.c_attn.weight": (4, 12), BLOCK + "attn.c_attn.bias": (12,), BLOCK + "attn.c_proj.weight": (4, 4),
               BLOCK + "attn.c_proj.bias": (4,), BLOCK + "ln_2.weight": (4,), BLOCK + "ln_2.bias": (4,),
               BLOCK + "mlp.c_fc.weight": (4, 6), BLOCK + "mlp.c_fc.bias": (6,), BLOCK + "mlp.c_proj.weight": (6, 4),
               BLOCK + "mlp.c_proj.bias": (4,), "ln_f.weight": (4,), "ln_f.bias": (4,), BLOCK + "attn.bias": (1, 1, 3, 3)}


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/hf_dir", exist_ok=True)
    with open(f"{HERE}/{kind}/hf_dir/{name}", "wb") as f:
        f.write(data)


def ok(name, data):
    save("corpus", f"ok-{name}", data)


def reject(name, data):
    save("reject", name, data)


def text(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def directory(files):
    return b"d" + b"".join(f"{name} {len(text(data))}\n".encode() + text(data) for name, data in files.items())


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def safetensors(shapes, dtype="BF16", size=2):
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + count(shape) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    head = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(head)) + head + bytes(i % 251 for i in range(at))


def safetensors_of(tensors):
    """Tensors of several types: name to (type, bytes of an element, shape)."""
    header, at = {}, 0
    for name, (dtype, size, shape) in sorted(tensors.items(), key=lambda item: -item[1][1]):
        end = at + count(shape) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + bytes(i % 251 for i in range(at))


FP8 = {**LLAMA, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [2, 3]}}


def fp8(scales=("F32", 4)):
    """SHAPES with the layer's matrices in blocks of 2 rows and 3 columns."""
    tensors = {name: ("BF16", 2, shape) for name, shape in SHAPES.items()}
    for name, shape in SHAPES.items():
        if name.startswith(LAYER) and len(shape) == 2:
            tensors[name] = ("F8_E4M3", 1, shape)
            tensors[name + "_scale_inv"] = (*scales, (-(-shape[0] // 2), -(-shape[1] // 3)))
    return tensors


OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
       "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
       "max_position_embeddings": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "swiglu_limit": 7.0, "layer_types": ["sliding_attention"],
       "sliding_window": 3, "torch_dtype": "bfloat16",
       "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False, "original_max_position_embeddings": 4},
       "quantization_config": {"quant_method": "mxfp4"}}
EXPERTS = LAYER + "mlp.experts."


def mxfp4():
    """A model whose experts are floats of 4 bits, with a scale for each 32."""
    shapes = {"lm_head.weight": (5, 32), "model.embed_tokens.weight": (5, 32), "model.norm.weight": (32,), LAYER + "input_layernorm.weight": (32,),
              LAYER + "post_attention_layernorm.weight": (32,), LAYER + "mlp.router.bias": (2,), LAYER + "mlp.router.weight": (2, 32),
              LAYER + "self_attn.sinks": (2,), EXPERTS + "down_proj_bias": (2, 32), EXPERTS + "gate_up_proj_bias": (2, 64)}
    for name, rows, cols in (("q", 4, 32), ("k", 2, 32), ("v", 2, 32), ("o", 32, 4)):
        shapes[f"{LAYER}self_attn.{name}_proj.weight"], shapes[f"{LAYER}self_attn.{name}_proj.bias"] = (rows, cols), (rows,)
    tensors = {name: ("BF16", 2, shape) for name, shape in shapes.items()}
    for name, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        tensors[EXPERTS + name + "_blocks"] = ("U8", 1, (2, rows, 1, 16))
        tensors[EXPERTS + name + "_scales"] = ("U8", 1, (2, rows, 1))
    return tensors


class Memory(tf.SparseFile):
    def __init__(self):
        self.file, self.pos = io.BytesIO(), 0


def torch_bin(shapes, crcs=False):
    out = Memory()
    state = collections.OrderedDict((name, tf.Tensor("bfloat16", shape, data=bytes(2 * count(shape)))) for name, shape in shapes.items())
    tf.torch_save(out, "archive", state, crcs)
    return out.file.getvalue()


def index(shapes, *files):
    return {"metadata": {"total_size": 1}, "weight_map": {name: files[i % len(files)] for i, name in enumerate(shapes)}}


def part(shapes, i, of):
    return dict(list(shapes.items())[i::of])


def llama(config=(), **files):
    return directory({"config.json": {**LLAMA, **dict(config)}, **{name.replace("__", "."): data for name, data in files.items()}})


def accepted():
    for name, config in (("llama", LLAMA), ("gpt2", GPT2), ("deepseek", DEEPSEEK), ("qwen2", QWEN2), ("mixtral", MIXTRAL), ("qwen3-next", QWEN3_NEXT),
                         ("nemotron-h", NEMOTRON_H)):
        ok(f"config-{name}", b"c" + text(config))
    ok("config-llama3", b"c" + text({**LLAMA, "rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_theta": 10000.0}}))
    ok("config-linear", b"c" + text({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2}}))
    ok("index", b"i" + text(index(SHAPES, "a.safetensors", "b.safetensors")))
    ok("dir-llama", directory({"config.json": LLAMA, "model.safetensors": safetensors(SHAPES)}))
    ok("dir-llama-shards", directory({
        "config.json": LLAMA, "a.safetensors": safetensors(part(SHAPES, 0, 2)), "b.safetensors": safetensors(part(SHAPES, 1, 2)),
        "model.safetensors.index.json": index(SHAPES, "a.safetensors", "b.safetensors")}))
    ok("dir-llama-fp8", directory({"config.json": FP8, "model.safetensors": safetensors_of(fp8())}))
    ok("dir-llama-fp8-bf16-scales", directory({"config.json": FP8, "model.safetensors": safetensors_of(fp8(scales=("BF16", 2)))}))
    ok("dir-gpt-oss-mxfp4", directory({"config.json": OSS, "model.safetensors": safetensors_of(mxfp4())}))
    ok("dir-qwen3-next", directory({"config.json": QWEN3_NEXT, "model.safetensors": safetensors(QWEN3_NEXT_SHAPES)}))
    ok("dir-qwen3-vl-moe", vl_moe())
    ok("dir-qwen3-vl-moe-transposed", vl_moe((2, 4, 6), (2, 3, 4)))
    ok("dir-nemotron-h", directory({"config.json": NEMOTRON_H, "model.safetensors": safetensors(NEMOTRON_H_SHAPES)}))
    ok("dir-llama-bin", directory({"config.json": LLAMA, "pytorch_model.bin": torch_bin(SHAPES)}))
    ok("dir-gpt2-bin-shards", directory({
        "config.json": GPT2, "a.bin": torch_bin(part(GPT2_SHAPES, 0, 2)), "b.bin": torch_bin(part(GPT2_SHAPES, 1, 2), crcs=True),
        "pytorch_model.bin.index.json": index(GPT2_SHAPES, "a.bin", "b.bin")}))


def rejected_configs():
    for name, config in {
        "no-json": b"{",
        "a-list": b"[]",
        "duplicate-key": b'{"model_type":"llama","model_type":"llama"}',
        "no-family": {},
        "other-family": {"model_type": "bert"},
        "two-families": {**LLAMA, "model_type": "qwen2"},
        "hidden-size-null": {**LLAMA, "hidden_size": None},
        "hidden-size-text": {**LLAMA, "hidden_size": "4"},
        "heads-0": {**LLAMA, "num_attention_heads": 0},
        "groups-no-divisor": {**LLAMA, "num_key_value_heads": 3},
        "layers-too-many": {**LLAMA, "num_hidden_layers": 2**40},
        "eps-negative": {**LLAMA, "rms_norm_eps": -1},
        "activation": {**LLAMA, "hidden_act": "relu"},
        "bias-of-attention-alone": {**LLAMA, "attention_bias": True},
        "quantised": {**LLAMA, "quantization_config": {"quant_method": "fp8"}},
        "fp8-of-nothing": {**FP8, "quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}},
        "fp8-null": {**FP8, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, None]}},
        "fp8-three": {**FP8, "quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 1, 1]}},
        "fp8-of-5-bits": {**FP8, "quantization_config": {"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}},
        "rope-dynamic": {**LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2}},
        "rope-without-factor": {**LLAMA, "rope_scaling": {"type": "linear"}},
        "rope-two-thetas": {**LLAMA, "rope_parameters": {"rope_theta": 1.0}},
        "rope-two-forms": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "yarn"}},
        "rope-partial": {**LLAMA, "partial_rotary_factor": 0.5},
        "rope-other-llama3": {**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 2,
                                                        "original_max_position_embeddings": 8192}},
        "window-of-some-layers": {**QWEN2, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
        "window-too-few-types": {**QWEN2, "num_hidden_layers": 2},
        "experts-fewer-than-chosen": {**MIXTRAL, "num_experts_per_tok": 3},
        "groups-not-by-two": {**DEEPSEEK, "n_group": 2, "topk_group": 2},
        "scores-not-normalised": {**DEEPSEEK, "norm_topk_prob": False},
        "scores-by-softmax": {**DEEPSEEK, "scoring_func": "softmax"},
        "linear-too-few-types": {**QWEN3_NEXT, "layer_types": ["linear_attention"]},
        "linear-heads-no-multiple": {**QWEN3_NEXT, "linear_num_key_heads": 3},
        "linear-interval-0": {**QWEN3_NEXT, "full_attention_interval": 0},
        "pattern-too-short": {**NEMOTRON_H, "hybrid_override_pattern": "M*E"},
        "pattern-unknown-letter": {**NEMOTRON_H, "hybrid_override_pattern": "M*-G"},
        "pattern-of-other-types": {**NEMOTRON_H, "layers_block_type": ["moe", "mamba", "attention", "mlp"]},
        "mamba-heads-no-multiple": {**NEMOTRON_H, "n_groups": 2, "mamba_num_heads": 3},
        "mamba-kernel-3": {**NEMOTRON_H, "conv_kernel": 3},
        "mamba-steps-limited": {**NEMOTRON_H, "time_step_limit": [0.0, 0.1]},
        "infinity-as-a-size": {**NEMOTRON_H, "hidden_size": float("inf")},
        "positions-disagree": {**GPT2, "n_ctx": 7},
    }.items():
        reject(f"config-{name}", b"c" + text(config))


def rejected_dirs():
    for name, data in {"no-json": b"{", "no-map": {}, "empty-map": {"weight_map": {}}, "map-a-list": {"weight_map": []},
                       "file-no-text": {"weight_map": {"a": 1}}, "duplicate-tensor": b'{"weight_map":{"a":"b","a":"b"}}'}.items():
        reject(f"index-{name}", b"i" + text(data))
    for name, data in {"a-third-axis-of-2": vl_moe((2, 6, 2)), "two-axes": vl_moe((12, 4)), "one-expert": vl_moe(down=(1, 4, 3)),
                       "nothing": vl_moe((2, 0, 4))}.items():
        reject(f"dir-fused-{name}", data)
    whole = {"config.json": LLAMA, "model.safetensors": safetensors(SHAPES)}
    without = {name: shape for name, shape in SHAPES.items() if "up_proj" not in name}
    a, b = safetensors(part(SHAPES, 0, 2)), safetensors(part(SHAPES, 1, 2))
    shards = {"config.json": LLAMA, "a.safetensors": a, "b.safetensors": b,
              "model.safetensors.index.json": index(SHAPES, "a.safetensors", "b.safetensors")}
    for name, files in {
        "empty": {},
        "no-config": {"model.safetensors": safetensors(SHAPES)},
        "no-weights": {"config.json": LLAMA},
        "tensor-missing": {**whole, "model.safetensors": safetensors(without)},
        "tensor-left-over": {**whole, "model.safetensors": safetensors({**SHAPES, "other.weight": (2,)})},
        "linear-norm-missing": {"config.json": QWEN3_NEXT, "model.safetensors": safetensors(
            {name: shape for name, shape in QWEN3_NEXT_SHAPES.items() if name != LAYER + "linear_attn.norm.weight"})},
        "linear-convolution-flat": {"config.json": QWEN3_NEXT, "model.safetensors": safetensors(
            {**QWEN3_NEXT_SHAPES, LAYER + "linear_attn.conv1d.weight": (6, 2)})},
        "linear-of-the-other-kind": {"config.json": QWEN3_NEXT, "model.safetensors": safetensors(
            {**QWEN3_NEXT_SHAPES, SECOND + "linear_attn.A_log": (2,)})},
        "mamba-bias-missing": {"config.json": NEMOTRON_H, "model.safetensors": safetensors(
            {name: shape for name, shape in NEMOTRON_H_SHAPES.items() if not name.endswith("conv1d.bias")})},
        "mamba-norm-too-long": {"config.json": NEMOTRON_H, "model.safetensors": safetensors(
            {**NEMOTRON_H_SHAPES, SUBLAYER + "0.mixer.norm.weight": (5,)})},
        "sublayer-of-the-other-kind": {"config.json": NEMOTRON_H, "model.safetensors": safetensors(
            {**NEMOTRON_H_SHAPES, SUBLAYER + "2.mixer.D": (2,)})},
        "tensor-quantised": {**whole, "model.safetensors": safetensors({**SHAPES, LAYER + "mlp.up_proj.weight_scale_inv": (1,)})},
        "tensor-too-large": {**whole, "model.safetensors": safetensors({**SHAPES, "model.norm.weight": (5,)})},
        "tensor-a-matrix": {**whole, "model.safetensors": safetensors({**SHAPES, "model.norm.weight": (4, 1)})},
        "tensors-of-8-bits": {**whole, "model.safetensors": safetensors(SHAPES, "F8_E4M3", 1)},
        "tensors-of-integers": {**whole, "model.safetensors": safetensors(SHAPES, "I16", 2)},
        "file-cut": {**whole, "model.safetensors": safetensors(SHAPES)[:-1]},
        "shard-missing": {name: data for name, data in shards.items() if name != "b.safetensors"},
        "shard-without-its-tensor": {**shards, "b.safetensors": safetensors(part(without, 1, 2))},
        "shard-outside": {**shards, "model.safetensors.index.json": index(SHAPES, "../a.safetensors")},
        "shards-with-one-tensor-twice": {**shards, "a.safetensors": safetensors({**part(SHAPES, 0, 2), "x": (1,)}),
                                         "b.safetensors": safetensors({**part(SHAPES, 1, 2), "x": (1,)})},
        "bin-no-archive": {"config.json": LLAMA, "pytorch_model.bin": b"PK"},
        "bin-of-no-dict": {"config.json": LLAMA, "pytorch_model.bin": torch_bin({})},
        "bin-tensor-missing": {"config.json": LLAMA, "pytorch_model.bin": torch_bin(without)},
    }.items():
        reject(f"dir-{name}", directory(files))
    up = LAYER + "mlp.up_proj.weight"
    for name, tensors in {
        "scales-of-integers": fp8(scales=("I32", 4)),
        "scales-of-other-blocks": {**fp8(), up + "_scale_inv": ("F32", 4, (3, 2))},
        "scales-a-vector": {**fp8(), up + "_scale_inv": ("F32", 4, (4,))},
        "scales-missing": {name: t for name, t in fp8().items() if name != up + "_scale_inv"},
        "scales-of-nothing": {name: t for name, t in fp8().items() if name != up},
        "scales-of-wide-weights": {**fp8(), up: ("BF16", 2, (3, 4))},
        "scales-of-a-norm": {**fp8(), "model.norm.weight": ("F8_E4M3", 1, (4,)), "model.norm.weight_scale_inv": ("F32", 4, (1,))},
        "weights-of-other-8-bits": {**fp8(), up: ("F8_E5M2", 1, (3, 4))},
    }.items():
        reject(f"dir-{name}", directory({"config.json": FP8, "model.safetensors": safetensors_of(tensors)}))
    down = EXPERTS + "down_proj"
    for name, change in {
        "blocks-without-scales": {down + "_scales": None},
        "blocks-of-15-bytes": {down + "_blocks": ("U8", 1, (2, 32, 1, 15))},
        "blocks-of-other-scales": {down + "_scales": ("U8", 1, (2, 31, 1))},
        "blocks-of-floats": {down + "_blocks": ("F8_E4M3", 1, (2, 32, 1, 16))},
        "blocks-beside-their-tensor": {down: ("BF16", 2, (2, 32, 32))},
        "blocks-of-nothing": {down + "_blocks": ("U8", 1, (2, 32, 0, 16)), down + "_scales": ("U8", 1, (2, 32, 0))},
    }.items():
        tensors = {key: t for key, t in {**mxfp4(), **change}.items() if t}
        reject(f"dir-{name}", directory({"config.json": OSS, "model.safetensors": safetensors_of(tensors)}))


accepted()
rejected_configs()
rejected_dirs()

"""Tiny HuggingFace models of each family, made by transformers with random weights, saved in the ways that people find them."""
import json

import numpy
import torch
import transformers

import models

COMMON = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=176, vocab_size=250,
              max_position_embeddings=128, tie_word_embeddings=False)
# Sizes of which no two agree: a head that is not a power of two, rows that no vector divides, a window shorter than the text.
ODD = dict(hidden_size=96, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, intermediate_size=184, vocab_size=250,
           max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=None)
EVEN = dict(ODD, hidden_size=120, tie_word_embeddings=True)  # of classes that want whole heads
EXPERTS = dict(moe_intermediate_size=40, num_experts_per_tok=3)
# Multi-latent attention, whose parts are of as many sizes.
LATENT = dict({k: v for k, v in ODD.items() if k != "num_key_value_heads"}, num_key_value_heads=6, kv_lora_rank=24, qk_nope_head_dim=20,
              qk_rope_head_dim=12, v_head_dim=28)
# Layers of one sublayer each.
HYBRID = dict({k: v for k, v in ODD.items() if k != "num_hidden_layers"}, head_dim=20, ssm_state_size=12)

CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "qwen2": lambda: transformers.Qwen2Config(**dict(COMMON, tie_word_embeddings=True)),
    "qwen3": lambda: transformers.Qwen3Config(**dict(COMMON, num_key_value_heads=4, head_dim=32, tie_word_embeddings=True)),
    "mixtral": lambda: transformers.MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2),
    "deepseek": lambda: transformers.DeepseekV3Config(
        **dict(COMMON, num_key_value_heads=4), q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=48, first_k_dense_replace=1, n_group=1, topk_group=1,
        routed_scaling_factor=1.0),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=250, n_positions=128, n_embd=64, n_layer=4, n_head=4),
    "llama-odd": lambda: transformers.LlamaConfig(**ODD, head_dim=20, rms_norm_eps=1e-5),
    "qwen3-odd": lambda: transformers.Qwen3Config(**ODD, head_dim=20),
    "mistral": lambda: transformers.MistralConfig(**ODD, head_dim=20, sliding_window=17),
    "mistral-whole": lambda: transformers.MistralConfig(**dict(ODD, tie_word_embeddings=True), sliding_window=None),
    "phi3": lambda: transformers.Phi3Config(**ODD, sliding_window=17, partial_rotary_factor=0.75),
    "nemotron": lambda: transformers.NemotronConfig(**ODD, head_dim=20, partial_rotary_factor=0.5),
    "gpt-neox": lambda: transformers.GPTNeoXConfig(**{k: v for k, v in ODD.items() if k != "num_key_value_heads"}, use_parallel_residual=False,
                                                   rotary_pct=0.25),
    "stablelm": lambda: transformers.StableLmConfig(**ODD, use_qkv_bias=True, partial_rotary_factor=0.25),
    "stablelm-plain": lambda: transformers.StableLmConfig(**dict(ODD, tie_word_embeddings=True), partial_rotary_factor=0.5),
    "seed-oss": lambda: transformers.SeedOssConfig(**ODD, head_dim=20),
    "starcoder2": lambda: transformers.Starcoder2Config(**dict(ODD, tie_word_embeddings=True), sliding_window=17),
    "arcee": lambda: transformers.ArceeConfig(**ODD, head_dim=20),
    "jais2": lambda: transformers.Jais2Config(**ODD, head_dim=20),
    "persimmon": lambda: transformers.PersimmonConfig(**{k: v for k, v in ODD.items() if k != "num_key_value_heads"}, partial_rotary_factor=0.5),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(**ODD, head_dim=20, **EXPERTS, num_experts=6, norm_topk_prob=True, mlp_only_layers=[0, 2]),
    "qwen3-moe-plain": lambda: transformers.Qwen3MoeConfig(**dict(ODD, tie_word_embeddings=True), head_dim=20, **EXPERTS, num_experts=6,
                                                           norm_topk_prob=False),
    "qwen2-moe": lambda: transformers.Qwen2MoeConfig(**ODD, **EXPERTS, num_experts=6, shared_expert_intermediate_size=56, mlp_only_layers=[1]),
    "qwen3-next": lambda: transformers.Qwen3NextConfig(
        **dict(ODD, num_attention_heads=8, num_key_value_heads=4), head_dim=20, **EXPERTS, num_experts=6, shared_expert_intermediate_size=56,
        layer_types=["linear_attention", "full_attention"] * 2, full_attention_interval=2, linear_conv_kernel_dim=3, linear_key_head_dim=12, linear_value_head_dim=20, linear_num_key_heads=2,
        linear_num_value_heads=6, partial_rotary_factor=0.4),
    "qwen3-next-plain": lambda: transformers.Qwen3NextConfig(
        **dict(EVEN, num_hidden_layers=6), head_dim=16, **EXPERTS, num_experts=6, shared_expert_intermediate_size=80, linear_key_head_dim=8,
        linear_value_head_dim=12, linear_num_key_heads=4, linear_num_value_heads=4, norm_topk_prob=False, mlp_only_layers=[2],
        layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"]),
    "qwen3.5": lambda: transformers.Qwen3_5TextConfig(
        **dict(ODD, num_attention_heads=8, num_key_value_heads=4), head_dim=20, layer_types=["linear_attention", "full_attention"] * 2,
        linear_conv_kernel_dim=3, linear_key_head_dim=12, linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6,
        partial_rotary_factor=0.4,
        rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.4)),
    "qwen3.5-tied": lambda: transformers.Qwen3_5TextConfig(
        **dict(EVEN, num_hidden_layers=6, tie_word_embeddings=True), head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=4,
        linear_num_value_heads=4, layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"]),
    "qwen3.5-moe": lambda: transformers.Qwen3_5MoeTextConfig(
        **{k: v for k, v in dict(ODD, num_attention_heads=8, num_key_value_heads=4).items() if k != "intermediate_size"}, head_dim=20, **EXPERTS, num_experts=6,
        shared_expert_intermediate_size=56, layer_types=["linear_attention", "full_attention"] * 2, linear_conv_kernel_dim=3, linear_key_head_dim=12,
        linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6,
        partial_rotary_factor=0.4,
        rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.4)),
    "nemotron-h": lambda: transformers.NemotronHConfig(
        **HYBRID, layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention"], mamba_num_heads=12, mamba_head_dim=10, n_groups=4),
    "nemotron-h-moe": lambda: transformers.NemotronHConfig(
        **HYBRID, **EXPERTS, n_routed_experts=6, moe_shared_expert_intermediate_size=56, routed_scaling_factor=1.5, mamba_num_heads=4,
        layers_block_type=["linear_attention", "moe", "full_attention", "moe", "mlp", "linear_attention"], mamba_head_dim=24, n_groups=2),
    "deepseek-v2": lambda: transformers.DeepseekV2Config(**LATENT, **EXPERTS, q_lora_rank=None, n_routed_experts=6, n_shared_experts=2,
                                                         first_k_dense_replace=1, routed_scaling_factor=1.5, rms_norm_eps=1e-6),
    "deepseek-v2-yarn": lambda: transformers.DeepseekV2Config(
        **LATENT, **EXPERTS, q_lora_rank=32, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=2, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=0.707, mscale_all_dim=0.707, beta_fast=32, beta_slow=1,
            original_max_position_embeddings=32)),
    "glm4-moe-lite": lambda: transformers.Glm4MoeLiteConfig(**LATENT, **EXPERTS, q_lora_rank=32, n_routed_experts=6, n_shared_experts=1,
                                                            routed_scaling_factor=1.8, num_nextn_predict_layers=0),
    "glm4-moe": lambda: transformers.Glm4MoeConfig(**ODD, head_dim=20, **EXPERTS, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1,
                                                   attention_bias=True, use_qk_norm=True, routed_scaling_factor=2.5, num_nextn_predict_layers=0),
    "glm4-moe-plain": lambda: transformers.Glm4MoeConfig(**ODD, **EXPERTS, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=2,
                                                         num_nextn_predict_layers=0),
    "deepseek-mtp": lambda: transformers.DeepseekV3Config(**LATENT, **dict(EXPERTS, num_experts_per_tok=4), q_lora_rank=32, n_routed_experts=8,
                                                          n_shared_experts=1, n_group=4, topk_group=2, num_nextn_predict_layers=2,
                                                          first_k_dense_replace=1, rms_norm_eps=1e-6),
    "kimi-k2": lambda: transformers.DeepseekV3Config(**LATENT, **EXPERTS, q_lora_rank=32, n_routed_experts=6, n_shared_experts=1, n_group=1,
                                                     topk_group=1, routed_scaling_factor=2.827, first_k_dense_replace=1, num_nextn_predict_layers=0),
    "kimi-k2-published": lambda: CONFIGS["kimi-k2"](),
    "mimo-mtp": lambda: transformers.Qwen2Config(**ODD, num_nextn_predict_layers=2),
    "glm4-moe-mtp": lambda: transformers.Glm4MoeConfig(**ODD, head_dim=20, **EXPERTS, n_routed_experts=6, n_shared_experts=1,
                                                       first_k_dense_replace=1, use_qk_norm=True, num_nextn_predict_layers=1),
    "gemma": lambda: transformers.GemmaConfig(**EVEN, head_dim=20),
    "gemma2": lambda: transformers.Gemma2Config(**EVEN, head_dim=20, query_pre_attn_scalar=24, sliding_window=64, attn_logit_softcapping=2.0,
                                                final_logit_softcapping=3.0),
    "gemma3": lambda: transformers.Gemma3TextConfig(**dict(EVEN, num_hidden_layers=8), head_dim=20, query_pre_attn_scalar=24, sliding_window=64),
    "gemma3-linear": lambda: transformers.Gemma3TextConfig(
        **EVEN, head_dim=24, query_pre_attn_scalar=24, sliding_window=64, rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=5000.0),
            full_attention=dict(rope_type="linear", rope_theta=90000.0, factor=8.0))),
    "exaone4": lambda: transformers.Exaone4Config(**ODD, head_dim=20, sliding_window=None, layer_types=["full_attention"] * 4),
    "exaone4-scaled": lambda: transformers.Exaone4Config(
        **EVEN, sliding_window=None, layer_types=["full_attention"] * 4, rope_parameters=dict(
            rope_type="llama3", rope_theta=1000000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192)),
    "minimax-m2": lambda: transformers.MiniMaxM2Config(**ODD, head_dim=20, num_local_experts=6, num_experts_per_tok=3, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "olmoe": lambda: transformers.OlmoeConfig(**dict(EVEN, num_key_value_heads=6, tie_word_embeddings=False), num_experts=6, num_experts_per_tok=3),
    "glm": lambda: transformers.GlmConfig(**ODD, head_dim=20, partial_rotary_factor=0.4),
    "ernie4.5": lambda: transformers.Ernie4_5Config(**ODD, head_dim=20),
    "internlm2": lambda: transformers.LlamaConfig(**ODD),
    "baichuan": lambda: transformers.LlamaConfig(**dict(ODD, num_key_value_heads=6)),
    "helium": lambda: transformers.HeliumConfig(**ODD, head_dim=16),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **dict(ODD, intermediate_size=40), head_dim=20, num_local_experts=6, num_experts_per_tok=3, sliding_window=17, swiglu_limit=0.7,
        rope_parameters=dict(rope_type="yarn", rope_theta=20000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=32)),
    "gpt-oss-plain": lambda: transformers.GptOssConfig(
        **dict(ODD, intermediate_size=40, num_key_value_heads=6), head_dim=16, num_local_experts=6, num_experts_per_tok=2,
        layer_types=["full_attention"] * 4, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "ministral": lambda: transformers.MinistralConfig(**ODD, head_dim=20, sliding_window=17,
                                                      layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"]),
}
HOW = ["safetensors", "shards", "bin", "bin-shards"]


@torch.no_grad()
def make(family, directory, how="safetensors", dtype=torch.bfloat16, **keys):
    """A model in `directory`, and logits.npz beside its files; keys: what its config says otherwise."""
    torch.manual_seed(len(family))
    config = CONFIGS[family]()
    config.update(keys)
    ahead = (getattr(config, "num_nextn_predict_layers", 0) or 0) if family.endswith("-mtp") else 0
    config.num_hidden_layers += ahead
    if ahead and getattr(config, "layer_types", None):
        config.layer_types += config.layer_types[-1:] * ahead
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias"))]:
        norm = "norm" in name or ".ln_" in name
        centre = parameter.mean().round() if norm and name.endswith("weight") else 0  # 1, or 0 of a norm that adds it
        parameter.copy_(torch.randn(parameter.shape) * 0.08 + centre)
    model = model.to(dtype)
    model.save_pretrained(directory, **(dict(max_shard_size="100KB") if how.endswith("shards") else {}))
    if ahead:
        predict_ahead(directory, ahead)
    loaded = models.load(directory)
    if family in RENAMED:
        RENAMED[family](directory)
    if how.startswith("bin"):
        as_bin(directory)
    tokens = numpy.random.default_rng(7).integers(0, model.config.vocab_size, (2, 48))
    look_ahead = models.logits_ahead_of_mimo if family == "mimo-mtp" else models.logits_ahead
    said = dict(mtp=look_ahead(loaded, directory, tokens)) if ahead else {}
    numpy.savez(directory / "logits.npz", tokens=tokens, logits=models.logits(loaded, tokens), **said)
    return directory


def predict_ahead(directory, count):
    """The last layers become those of multi-token prediction, which transformers saves no more than it builds them with the model."""
    from safetensors.torch import load_file, save_file
    config = json.loads((directory / "config.json").read_text())
    config["num_hidden_layers"] -= count
    if config.get("layer_types"):
        config["layer_types"] = config["layer_types"][:config["num_hidden_layers"]]
    (directory / "config.json").write_text(json.dumps(config))
    tensors, hidden = load_file(directory / "model.safetensors"), config["hidden_size"]
    for layer in range(config["num_hidden_layers"], config["num_hidden_layers"] + count):
        for name, shape in {"enorm": [hidden], "hnorm": [hidden], "eh_proj": [hidden, 2 * hidden], "shared_head.norm": [hidden]}.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = (torch.randn(shape) * 0.08 + (len(shape) == 1)).to(tensors["model.norm.weight"].dtype)
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def as_internlm2(directory):
    """A Llama as InternLM 2, whose class is not in transformers: other names, and one tensor with the queries, key and value of each group."""
    from safetensors.torch import load_file, save_file
    config = json.loads((directory / "config.json").read_text())
    groups, head, hidden = config["num_key_value_heads"], config.pop("head_dim"), config["hidden_size"]
    for key in ("attention_bias", "mlp_bias", "pretraining_tp"):
        config.pop(key)
    config.update(architectures=["InternLM2ForCausalLM"], model_type="internlm2", bias=False)
    (directory / "config.json").write_text(json.dumps(config))
    names = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "self_attn.o_proj": "attention.wo", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    tensors, renamed = load_file(directory / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            parts = [tensors[name.replace("q_proj", part)].view(groups, -1, head, hidden) for part in ("q_proj", "k_proj", "v_proj")]
            renamed[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(parts, 1).view(-1, hidden)
        elif not name.endswith(("k_proj.weight", "v_proj.weight")):
            old = next((old for old in names if old in name), "")
            renamed[name.replace(old, names[old]) if old else name] = tensor
    save_file(renamed, directory / "model.safetensors", {"format": "pt"})


def as_baichuan(directory):
    """A Llama as Baichuan 7B, whose class is not in transformers: queries, keys and values in one tensor."""
    from safetensors.torch import load_file, save_file
    config = json.loads((directory / "config.json").read_text())
    for key in ("attention_bias", "mlp_bias", "pretraining_tp", "num_key_value_heads", "head_dim"):
        config.pop(key)
    config.update(architectures=["BaiChuanForCausalLM"], model_type="baichuan")
    (directory / "config.json").write_text(json.dumps(config))
    tensors, packed = load_file(directory / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            packed[name.replace("q_proj", "W_pack")] = torch.cat([tensors[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
        elif not name.endswith(("k_proj.weight", "v_proj.weight")):
            packed[name] = tensor
    save_file(packed, directory / "model.safetensors", {"format": "pt"})


def as_mimo(directory):
    """A Qwen 2 that looks ahead as MiMo, whose class is not in transformers."""
    from safetensors.torch import load_file, save_file
    config = json.loads((directory / "config.json").read_text())
    config.update(architectures=["MiMoForCausalLM"], model_type="mimo")
    (directory / "config.json").write_text(json.dumps(config))
    names = {"enorm": "token_layernorm", "hnorm": "hidden_layernorm", "eh_proj": "input_proj", "shared_head.norm": "final_layernorm"}
    renamed = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        parts = name.split(".")
        if parts[1] == "layers" and int(parts[2]) >= config["num_hidden_layers"]:
            rest = ".".join(parts[3:]).removesuffix(".weight")
            end = names[rest] + ".weight" if rest in names else ".".join(parts[3:])
            name = f"model.mtp_layers.{int(parts[2]) - config['num_hidden_layers']}.{end}"
        renamed[name] = tensor
    save_file(renamed, directory / "model.safetensors", {"format": "pt"})


def named(**keys):
    """The same tensors under another class or model_type, which is not in transformers."""
    def rename(directory):
        config = json.loads((directory / "config.json").read_text())
        for key in ("pretraining_tp", "head_dim", "qk_head_dim", "output_router_logits"):  # sums, and what no class reads
            config.pop(key, None)
        (directory / "config.json").write_text(json.dumps(config | keys))
    return rename


RENAMED = {"internlm2": as_internlm2, "baichuan": as_baichuan, "mimo-mtp": as_mimo, "kimi-k2": named(architectures=["KimiK2ForCausalLM"], model_type="kimi_k2"),
           "kimi-k2-published": named(model_type="kimi_k2")}  # logits.npz is of the model before


def as_bin(directory):
    """What older releases wrote: torch.save of the same tensors, and an index where they are in several files."""
    from safetensors.torch import load_file
    for path in sorted(directory.glob("*.safetensors")):
        torch.save(load_file(path), directory / path.name.replace("model", "pytorch_model").replace(".safetensors", ".bin"))
        path.unlink()
    index = directory / "model.safetensors.index.json"
    if index.exists():
        written = json.loads(index.read_text())
        written["weight_map"] = {k: v.replace("model", "pytorch_model").replace(".safetensors", ".bin") for k, v in written["weight_map"].items()}
        (directory / "pytorch_model.bin.index.json").write_text(json.dumps(written))
        index.unlink()

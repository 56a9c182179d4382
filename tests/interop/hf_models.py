"""Tiny HuggingFace models of each family, made by transformers with random weights, saved in the ways that people find them."""
import json

import numpy
import torch
import transformers

import models

COMMON = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=176, vocab_size=250,
              max_position_embeddings=128, tie_word_embeddings=False)
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
}
HOW = ["safetensors", "shards", "bin", "bin-shards"]


@torch.no_grad()
def make(family, directory, how="safetensors", dtype=torch.bfloat16, **keys):
    """A model in `directory`, and logits.npz beside its files; keys: what its config says otherwise."""
    torch.manual_seed(len(family))
    config = CONFIGS[family]()
    config.update(keys)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias"))]:
        norm = "norm" in name or ".ln_" in name
        parameter.copy_(torch.randn(parameter.shape) * 0.08 + (1 if norm and name.endswith("weight") else 0))
    model = model.to(dtype)
    model.save_pretrained(directory, **(dict(max_shard_size="100KB") if how.endswith("shards") else {}))
    loaded = models.load(directory)
    if how.startswith("bin"):
        as_bin(directory)
    tokens = numpy.random.default_rng(7).integers(0, model.config.vocab_size, (2, 48))
    numpy.savez(directory / "logits.npz", tokens=tokens, logits=models.logits(loaded, tokens))
    return directory


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

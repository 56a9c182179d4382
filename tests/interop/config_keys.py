"""What a config.json leaves to a default: of the attributes that transformers' class ends up with and that models' code in transformers and
vLLM reads, those that are not in the file. Each is in the file, or excused by name."""
import importlib.util
import json
import pathlib
import re

import transformers

EXCUSED = {
    # of training, generating, another head, or how a reader runs
    **dict.fromkeys(("transformers_version", "output_hidden_states", "output_attentions", "return_dict", "use_return_dict", "chunk_size_feed_forward",
                     "id2label", "label2id", "num_labels", "problem_type", "_name_or_path", "name_or_path", "classifier_dropout", "summary_type",
                     "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "summary_last_dropout",
                     "output_router_logits", "pretraining_tp", "is_decoder", "mtp_layers_block_type", "use_mamba_kernels", "mamba_ssm_cache_dtype",
                     "_attn_implementation", "_experts_implementation", "max_model_len", "num_mtp_modules", "moe_router_dtype",
                     "hidden_dropout", "target_layer_count", "quantization_config"), "not of the logits"),
    "is_encoder_decoder": "false in every decoder",
    "layers_block_type": "computed by the class from hybrid_override_pattern",
    "time_step_limit": "its default is no limit, which JSON cannot say",
    "_sliding_window_pattern": "forgotten by the class where layer_types is said",
}
# Keys that the class has no attribute for: code that serves other classes, too, asks for them, and absent means none.
NONE = {"is_causal", "pruned_heads", "per_layer_config", "attention_chunk_size", "num_kv_shared_layers", "logit_scale", "layer_scale", "llama_4_scaling",
        "dual_chunk_attention_config", "qk_norm", "bias", "qkv_bias", "mlp_bias", "attention_bias", "index_topk", "index_head_dim", "index_n_heads",
        "index_skip_topk_offset", "index_topk_freq", "index_topk_pattern", "indexer_rope_interleave", "attn_module_list_cfg", "block_configs",
        "ada_rms_norm_t_cond", "ada_rms_norm_t_cond_dim", "shared_expert_intermediate_size", "num_experts", "head_dim", "sliding_window", "layer_types",
        "norm_eps", "parallel", "get_nemotron_h_config_for_layer", "json", "intermediate_size"}
SUMS = {"head_dim", "qk_head_dim"}  # of what stands in the file, where attention is latent
# Of whole vision-language models, whose classes stand in the same files.
OF_IMAGES = {"text_config", "vision_config", "image_token_id", "video_token_id", "mm_tokens_per_image", "depth", "in_channels", "num_heads",
             "num_position_embeddings", "out_hidden_size", "patch_size", "spatial_merge_size", "temporal_patch_size"}
SHARED = ("masking_utils", "cache_utils")  # what every model's code calls with its config


def reads(text):
    """Keys that a file of code takes from a config."""
    names = r"(?:self\.)?(?:config|hf_config|hf_text_config|text_config)"
    return set(re.findall(rf"\b{names}\.([a-z_][a-z_0-9]*)\b(?!\()", text)) | set(re.findall(rf'getattr\(\s*{names},\s*"([a-z_0-9]+)"', text))


def code(config, architecture):
    """The files that read it: transformers', and vLLM's where it has the class."""
    root = pathlib.Path(transformers.__file__).parent
    family = pathlib.Path(importlib.util.find_spec(type(config).__module__).origin).parent
    files = [*family.glob("modeling_*.py"), *(root / f"{name}.py" for name in SHARED)]
    vllm = importlib.util.find_spec("vllm")
    models = pathlib.Path(vllm.origin).parent / "model_executor/models" if vllm and vllm.origin else None
    if models and (found := re.search(rf'"{architecture}": \(\s*"([a-z0-9_]+)"', (models / "registry.py").read_text())):
        files += [file for file in [models / f"{found[1]}.py"] if file.exists()]
    return files


def unsaid(directory):
    """Keys that the config.json leaves to a default and that nothing here excuses."""
    config, written = transformers.AutoConfig.from_pretrained(directory), json.loads((directory / "config.json").read_text())
    own = set(config.to_dict())
    asked = set().union(*(reads(file.read_text()) for file in code(config, written["architectures"][0]))) - own - NONE - OF_IMAGES
    other = {**config.attribute_map, **{key: name for name, key in config.attribute_map.items()}}
    excused = EXCUSED.keys() | (SUMS if hasattr(config, "kv_lora_rank") else set())
    return sorted(key for key in (own | asked) - excused if key not in written and other.get(key, key) not in written)

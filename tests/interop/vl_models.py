"""Tiny vision-language models made by transformers with random weights, and their logits of text."""
import json

import numpy
import torch
import transformers

TEXT = dict(hidden_size=96, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, intermediate_size=184, vocab_size=250,
            max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=None, tie_word_embeddings=False)
EYE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4)
QWEN_EYE = dict(depth=1, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
TOKENS = torch.arange(3, 51).unsqueeze(0)
PLACES = dict(image_token_id=240, video_token_id=241, vision_start_token_id=242, vision_end_token_id=243)


def sections(*sizes, **more):
    return dict(rope_type="default", rope_theta=5000.0, mrope_section=list(sizes), **more)


NET = dict(head_dim=20, layer_types=["linear_attention", "full_attention"] * 2, linear_conv_kernel_dim=3, linear_key_head_dim=12,
           linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=6, partial_rotary_factor=0.4,
           rope_parameters=sections(2, 1, 1, mrope_interleaved=True, partial_rotary_factor=0.4))
QWEN35_EYE = dict(QWEN_EYE, hidden_size=32, intermediate_size=48, out_hidden_size=96, num_position_embeddings=16)

CONFIGS = {
    "qwen3.5-vl": lambda: transformers.Qwen3_5Config(text_config=dict(TEXT, **NET), vision_config=QWEN35_EYE, **PLACES),
    "qwen3.5-moe-vl": lambda: transformers.Qwen3_5MoeConfig(
        text_config=dict({k: v for k, v in TEXT.items() if k != "intermediate_size"}, **NET, moe_intermediate_size=40, num_experts=6, num_experts_per_tok=2,
                         shared_expert_intermediate_size=56), vision_config=QWEN35_EYE, **PLACES),
    "qwen2-vl": lambda: transformers.Qwen2VLConfig(
        text_config=dict(TEXT, rope_parameters=sections(2, 3, 3)), tie_word_embeddings=True,
        vision_config=dict(QWEN_EYE, embed_dim=32, hidden_size=96, mlp_ratio=2), **PLACES),
    "qwen2.5-vl": lambda: transformers.Qwen2_5_VLConfig(
        text_config=dict(TEXT, rope_parameters=sections(2, 3, 3)),
        vision_config=dict(QWEN_EYE, hidden_size=32, intermediate_size=48, out_hidden_size=96, fullatt_block_indexes=[0]), **PLACES),
    "qwen3-vl": lambda: transformers.Qwen3VLConfig(
        text_config=dict(TEXT, head_dim=20, rope_parameters=sections(4, 3, 3, mrope_interleaved=True)),
        vision_config=dict(QWEN_EYE, hidden_size=32, intermediate_size=48, out_hidden_size=96, num_position_embeddings=16,
                           deepstack_visual_indexes=[0]), **PLACES),
    "qwen3-vl-moe": lambda: transformers.Qwen3VLMoeConfig(
        text_config=dict(TEXT, head_dim=20, moe_intermediate_size=40, num_experts=6, num_experts_per_tok=2,
                         rope_parameters=sections(4, 3, 3, mrope_interleaved=True)),
        vision_config=dict(QWEN_EYE, hidden_size=32, intermediate_size=48, out_hidden_size=96, num_position_embeddings=16,
                           deepstack_visual_indexes=[0]), **PLACES),
    "gemma3-vl": lambda: transformers.Gemma3Config(
        text_config=dict({k: v for k, v in TEXT.items() if not k.startswith("tie_")}, num_hidden_layers=6, head_dim=24, sliding_window=17,
                         query_pre_attn_scalar=20), vision_config=EYE, mm_tokens_per_image=4, image_token_index=240),
    "llava": lambda: transformers.LlavaConfig(text_config=transformers.LlamaConfig(**TEXT, head_dim=20, rms_norm_eps=1e-5),
                                              vision_config=transformers.CLIPVisionConfig(**EYE), image_token_index=240),
    "llava-next": lambda: transformers.LlavaNextConfig(text_config=transformers.MistralConfig(**TEXT, sliding_window=17),
                                                       vision_config=transformers.CLIPVisionConfig(**EYE), image_token_index=240),
    "llava-onevision": lambda: transformers.LlavaOnevisionConfig(
        text_config=transformers.Qwen2Config(**TEXT), vision_config=dict(EYE, model_type="siglip_vision_model"), image_token_index=240),
    "mistral3": lambda: transformers.Mistral3Config(text_config=transformers.MistralConfig(**TEXT, head_dim=20, sliding_window=None),
                                                    vision_config=transformers.PixtralVisionConfig(**EYE), image_token_index=240),
    "internvl": lambda: transformers.InternVLConfig(text_config=transformers.Qwen3Config(**TEXT, head_dim=20),
                                                    vision_config=dict(EYE, image_size=[8, 8], patch_size=[4, 4]), image_token_id=240),
}


@torch.no_grad()
def make(name, directory):
    torch.manual_seed(len(name))
    model = transformers.AutoModelForImageTextToText.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    for key, parameter in model.named_parameters():
        centre = parameter.mean().round() if "norm" in key and key.endswith("weight") else 0
        parameter.copy_((torch.randn(parameter.shape) * 0.08 + centre).bfloat16())
    logits = model(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS)).logits  # in float32, of the same numbers
    model.to(torch.bfloat16).save_pretrained(directory)
    numpy.savez(directory / "logits.npz", tokens=TOKENS.numpy(), logits=logits.numpy())
    if name == "qwen2.5-vl":
        as_published(directory)
    return directory


def as_published(directory):
    """Qwen's own files have the text config's keys beside the others, in the form of transformers 4."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    config.update({key: value for key, value in text.items() if key not in ("model_type", "pad_token_id", "layer_types")},
                  rope_theta=rope["rope_theta"], rope_scaling=dict(type="mrope", mrope_section=rope["mrope_section"]))
    path.write_text(json.dumps(config))


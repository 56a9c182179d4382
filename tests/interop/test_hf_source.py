"""HF directories as sources: what config.json leaves out ([defaults] in configs/models) is what transformers takes for it."""
import json
import pathlib
import re

import pytest
import transformers

COMPUTED = {"num_key_value_heads", "head_dim", "layer_types", "mlp_layer_types"}  # null in the table: the class computes them where they are not given


def families():
    """The built-in families that have a class: [family], [defaults], and whether it is a vision-language model's."""
    for path in sorted((pathlib.Path(__file__).parents[2] / "configs/models").glob("*.conf")):
        whole = re.sub(r"\n[ \t]+", " ", path.read_text())  # a line that begins with blanks goes on with the one before
        sections = re.split(r"^\[([^]]*)\]\n", whole, flags=re.M)
        said = {name: dict(re.findall(r"^(\w+) = (.*)$", text, flags=re.M)) for name, text in zip(sections[1::2], sections[2::2])}
        if "architecture" in said["family"]:
            yield said["family"], {key: json.loads(value) for key, value in said.get("defaults", {}).items()}, "language" in said


OWN_CODE = {"baichuan", "internlm2", "mimo"}  # their makers', outside of transformers


def tables():
    """[defaults] of those whose class transformers has: model_type, keys and values."""
    return [(family["model_type"], said) for family, said, _ in families() if family["model_type"] not in OWN_CODE]


def test_classes_are_transformers():
    auto = transformers.models.auto.modeling_auto
    text, whole = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    for family, _, has_vision in families():
        expected = None if family["model_type"] in OWN_CODE else family["architecture"]
        assert (whole if has_vision else text).get(family["model_type"]) == expected, family["name"]


# What the classes do without a key that says so; directories of other versions have the key.
ALWAYS = {("minimax_m2", "norm_topk_prob"): True, ("qwen3_vl_moe_text", "norm_topk_prob"): True}
# Layers' kinds where nothing says them, over and over.
PATTERNS = {"gemma2": ["sliding_attention", "full_attention"], "gemma3_text": ["sliding_attention"] * 5 + ["full_attention"],
            "exaone4": ["sliding_attention"] * 3 + ["full_attention"],
            **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), ["linear_attention"] * 3 + ["full_attention"])}


def over_and_over(kinds, count):
    return (kinds * count)[:count]


def default(config, key, said):
    by_kind = "full_attention" in config.rope_parameters if getattr(config, "rope_parameters", None) else False
    if (config.model_type, key) in ALWAYS:
        assert not hasattr(config, key)
        return ALWAYS[config.model_type, key]
    if by_kind and key in ("rope_theta", "rope_local_base_freq"):
        return config.rope_parameters["full_attention" if key == "rope_theta" else "sliding_attention"]["rope_theta"]
    if key in ("rope_theta", "partial_rotary_factor"):
        return config.rope_parameters[key]
    if key == "rope_parameters":  # which have rope_theta, too
        return {name: config.rope_parameters[name] for name in said}
    if key == "layer_types":
        return said if config.layer_types == over_and_over(said, config.num_hidden_layers) else config.layer_types
    if key == "full_attention_interval":  # taken, and forgotten
        return said if type(config)(full_attention_interval=said).layer_types == config.layer_types else None
    if key == "sliding_window_pattern":  # taken, and forgotten
        return said if type(config)(sliding_window_pattern=said).layer_types == config.layer_types else None
    if key == "rotary_pct":
        return config.rope_parameters["partial_rotary_factor"]
    if key == "sliding_window":  # the class forgets it without use_sliding_window
        return type(config)(use_sliding_window=True).sliding_window if hasattr(config, "use_sliding_window") else config.sliding_window
    return getattr(config, key)


@pytest.mark.parametrize("model_type,said", tables())
def test_defaults(model_type, said):
    whole = transformers.AutoConfig.for_model(model_type)
    for key, value in said.items():
        if value is None and key in COMPUTED:
            continue
        config = whole if hasattr(whole, key) else whole.get_text_config()  # that of a vision-language model, else itself
        assert default(config, key, value) == value, f"{model_type}: {key}"


@pytest.mark.parametrize("model_type,said", tables())
def test_computed_values(model_type, said):
    """null in the table means what mcorefs computes: one key per query head, hidden_size / heads, the window in all layers or in none, or a pattern."""
    config = transformers.AutoConfig.for_model(model_type)
    if said.get("num_key_value_heads", 0) is None:
        assert config.num_key_value_heads in (None, config.num_attention_heads)
    if said.get("head_dim", 0) is None:
        assert getattr(config, "head_dim", None) in (None, config.hidden_size // config.num_attention_heads)
    if said.get("mlp_layer_types", 0) is None:
        assert config.mlp_layer_types == ["dense"] + ["sparse"] * (config.num_hidden_layers - 1)
    if said.get("layer_types", 0) is None:
        plain = ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"]
        assert config.layer_types == over_and_over(PATTERNS.get(model_type, plain), config.num_hidden_layers)

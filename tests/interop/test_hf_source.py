"""HF directories as sources: what config.json leaves out ([defaults] in configs/models) is what transformers takes for it."""
import json
import pathlib
import re

import pytest
import transformers

COMPUTED = {"num_key_value_heads", "head_dim", "layer_types"}  # null in the table: the class computes them where they are not said


def tables():
    """[defaults] of the built-in families: model_type, keys and values."""
    for path in sorted((pathlib.Path(__file__).parents[2] / "configs/models").glob("*.conf")):
        sections = re.split(r"^\[([^]]*)\]\n", path.read_text(), flags=re.M)
        said = {name: dict(re.findall(r"^(\w+) = (.*)$", text, flags=re.M)) for name, text in zip(sections[1::2], sections[2::2])}
        if "architecture" in said["family"]:
            yield said["family"]["model_type"], {key: json.loads(value) for key, value in said["defaults"].items()}


def default(config, key):
    if key == "rope_theta":
        return config.rope_parameters[key]
    if key == "sliding_window":  # the class forgets it without use_sliding_window
        return type(config)(use_sliding_window=True).sliding_window if hasattr(config, "use_sliding_window") else config.sliding_window
    return getattr(config, key)


@pytest.mark.parametrize("model_type,said", list(tables()))
def test_defaults(model_type, said):
    config = transformers.AutoConfig.for_model(model_type)
    for key, value in said.items():
        if value is None and key in COMPUTED:
            continue
        assert default(config, key) == value, f"{model_type}: {key}"


@pytest.mark.parametrize("model_type,said", list(tables()))
def test_computed_values(model_type, said):
    """null in the table means what mcorefs computes: one key per query head, hidden_size / heads, full attention."""
    config = transformers.AutoConfig.for_model(model_type)
    if said.get("num_key_value_heads", 0) is None:
        assert config.num_key_value_heads == config.num_attention_heads
    if said.get("head_dim", 0) is None:
        assert getattr(config, "head_dim", None) in (None, config.hidden_size // config.num_attention_heads)
    if said.get("layer_types", 0) is None:
        assert set(config.layer_types) == {"full_attention"}

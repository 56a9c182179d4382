"""HF directories as sources: what config.json leaves out (formats/model/hf_defaults.c) is what transformers takes for it."""
import json
import pathlib
import re

import pytest
import transformers

SOURCE = pathlib.Path(__file__).parents[2] / "formats/model/hf_defaults.c"
COMPUTED = {"num_key_value_heads", "head_dim", "layer_types"}  # null in the table: the class computes them where they are not said


def tables():
    """The table of classes: model_type and the text of a JSON object, in pieces that C puts together."""
    body = SOURCE.read_text().split("classes[] = {", 1)[1].split("\n};", 1)[0]
    for model_type, pieces in re.findall(r'\{"(\w+)",((?:\s*"(?:[^"\\]|\\.)*")+)\}', body):
        text = "".join(json.loads(piece) for piece in re.findall(r'"(?:[^"\\]|\\.)*"', pieces))
        yield model_type, json.loads(text)


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


def test_every_family_has_a_table():
    families = {re.search(r'\.model_type = "(\w+)"', path.read_text()) for path in SOURCE.parent.glob("families/*.c")} - {None}
    assert {match[1] for match in families} == {model_type for model_type, _ in tables()}


@pytest.mark.parametrize("model_type,said", list(tables()))
def test_computed_values(model_type, said):
    """null in the table means what hf_args.c computes: one key per query head, hidden_size / heads, full attention."""
    config = transformers.AutoConfig.for_model(model_type)
    if said.get("num_key_value_heads", 0) is None:
        assert config.num_key_value_heads == config.num_attention_heads
    if said.get("head_dim", 0) is None:
        assert getattr(config, "head_dim", None) in (None, config.hidden_size // config.num_attention_heads)
    if said.get("layer_types", 0) is None:
        assert set(config.layer_types) == {"full_attention"}

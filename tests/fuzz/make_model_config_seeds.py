"""Makes corpus/model_config and reject/model_config: python3 tests/fuzz/make_model_config_seeds.py.

Seeds called ok-* must be accepted. Each input under reject/ breaks one rule, which its name says.
"""

import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/model_config", exist_ok=True)
    with open(f"{HERE}/{kind}/model_config/{name}", "wb") as f:
        f.write(data)


def make_model_config():
    sizes = b"  _target_: m.GPTModelProvider\n  num_layers: 2\n  hidden_size: 16\n  num_attention_heads: 2\n"
    written = open(f"{HERE}/../fixtures/bridge/llama/iter_0000000/run_config.yaml", "rb").read()
    more = b"train: {}\n"  # a file that ends in the model was cut
    model = re.search(rb"^model:\n(  .*\n)+", written, re.M).group()
    for name, data in {
        "bridge-llama": model,
        "transformer-apart": b"model:\n  _builder_: b\n  transformer:\n  " + sizes.replace(b"\n  ", b"\n    ").rstrip() + b"\n",
        "nemo": b"config:\n" + sizes + b"  scale_factor: 8.0\n  low_freq_factor: 1.0\n  high_freq_factor: 4.0\n  old_context_len: 8192\n",
        "aliases": b"a: &a [1, 0]\nmodel:\n" + sizes + b"  num_moe_experts: 4\n  moe_layer_freq: *a\n",
        "tags": b"model:\n" + sizes + b"  window_size: !!python/tuple [7, 0]\n  x: !!python/name:torch.nn.functional.silu ''\n",
    }.items():
        save("corpus", f"ok-{name}", data + more)
    for name, data in {
        "empty": b"",
        "cut": b"model:\n" + sizes,
        "no-model": b"optim: {}\n",
        "model-is-a-list": b"model: [1]\n",
        "no-sizes": b"model: {hidden_size: 16}\n",
        "transformer-is-a-number": b"model:\n  transformer: 5\n",
        "tied-is-a-number": b"model:\n" + sizes + b"  share_embeddings_and_output_weights: 3\n",
        "negative-layers": b"model:\n" + sizes.replace(b": 2\n  hidden", b": -2\n  hidden"),
        "lists-too-deep": b"model:\n" + sizes + b"  layout: [[[[1]]]]\n",
        "mapping-in-a-list": b"model:\n" + sizes + b"  layout: [{a: 1}]\n",
        "alias-of-nothing": b"a: *a\nmodel:\n" + sizes,
        "alias-in-itself": b"a: &a [*a]\nmodel:\n" + sizes,
        "aliases-of-aliases": b"a: &a [" + b"1, " * 1000 + b"1]\nmodel:\n" + sizes + b"  layout: [" + b"*a, " * 1000 + b"*a]\n",
        "second-key": b"model:\n" + sizes + b"  num_layers: 3\n",
        "too-deep": b"a: " + b"[" * 100 + b"]" * 100 + b"\nmodel:\n" + sizes,
        "other-rope-scaling": b"config:\n" + sizes + b"  scale_factor: 8.0\n  old_context_len: 4096\n",
        "adapters": b"peft: {_target_: megatron.bridge.peft.lora.LoRA}\nmodel:\n" + sizes,
        "no-yaml": b"model: [\n",
    }.items():
        save("reject", name, data if name in ("empty", "cut") else data + more)


make_model_config()

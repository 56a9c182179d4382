"""Makes corpus/views and reject/views: python3 tests/fuzz/make_views_seeds.py. Inputs are as make_optim_seeds.py says."""

import collections
import io
import os
import struct

import make_optim_seeds as seeds
import te_files as te
from make_optim_seeds import F, H, HERE, SHAPES, files, saved, tf, zeros

# Two heads, so that there is a view of two tensor ranks.
ARGS = dict(num_attention_heads=2, num_query_groups=2, kv_channels=2)


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/views", exist_ok=True)
    with open(f"{HERE}/{kind}/views/{name}", "wb") as f:
        f.write(data)


def rng(tensor=None, **more):
    tensor = tensor or zeros((4,))
    return [dict(random_rng_state=(3, (1, 2, 3), None), torch_rng_state=tensor, cuda_rng_state=tensor,
                 rng_tracker_states={"model-parallel-rng": zeros((2,))}, **more)]


def legacy(change=None, optimizer=True, **args):
    s = seeds.state(seeds.float16() if optimizer else None, **{**ARGS, **args})
    if not optimizer:
        del s["optimizer"]
    s["rng_state"] = rng()
    s["opt_param_scheduler"] = dict(max_lr=1e-3, num_steps=7)
    if change:
        change(s)
    return files(m=saved(s))


def hybrid(attention=0, mlp=1, optimizer=True, pattern="*-", change=lambda model: None, **more):
    """A block as two layers of a HybridModel."""
    def split(s):
        halves = {"self_attention": attention, "input_layernorm": attention, "mlp": mlp, "pre_mlp_layernorm": mlp}
        model = collections.OrderedDict()
        for key, value in s["model"].items():
            parts = key.replace("final_layernorm", "final_norm").split(".")
            if parts[1] == "layers":
                parts[2] = str(halves[parts[3]])
            model[".".join(parts)] = value
        change(model)
        s["model"] = model
    return legacy(split, optimizer, num_layers=2, hybrid_layer_pattern=pattern, **more)


def fuse(rows):
    """Multi-latent attention whose two down projections are one, of so many rows."""
    def change(model):
        for key in [key for key in model if "linear_qkv" in key]:
            del model[key]
        for name, shape in (("qkv_down", (rows, H)), ("q_up", (8, 3)), ("kv_up", (8, 2))):
            model[f"decoder.layers.0.self_attention.linear_{name}_proj.weight"] = zeros(shape, "bfloat16")
    return hybrid(0, 1, False, "+-", change, multi_latent_attention=True, q_lora_rank=3, kv_lora_rank=2, qk_head_dim=2, qk_pos_emb_head_dim=2, v_head_dim=2)


def stacked(experts):
    """So many experts in one tensor each, of a run that says two."""
    def change(model):
        for key in [key for key in model if ".mlp." in key]:
            del model[key]
        for name, shape in (("router.weight", (2, H)), ("experts.linear_fc1.weight", (experts, 2 * F, H)), ("experts.linear_fc2.weight", (experts, H, F))):
            model[f"decoder.layers.1.mlp.{name}"] = zeros(shape, "bfloat16")
    return hybrid(0, 1, False, "*E", change, num_experts=2, moe_ffn_hidden_size=F)


def nested(flat):
    """{"a.b": 1} as {"a": {"b": 1}} down to "layers.0.mlp...", as Megatron-LM before core has its model."""
    model = dict(language_model=dict(embedding={}, encoder={}, output_layer={}))
    for key, value in flat.items():
        for core, old in (("self_attention.linear_qkv", "attention.query_key_value"), ("self_attention.linear_proj", "attention.dense"),
                          ("pre_mlp_layernorm", "post_attention_layernorm"), ("linear_fc1", "dense_h_to_4h"), ("linear_fc2", "dense_4h_to_h"),
                          ("decoder.", "encoder.")):
            key = key.replace(core, old)
        head, rest = key.split(".", 1)
        model["language_model"][head][rest] = value
    return model


def before_core(change=lambda s: None, version=0.0, optimizer=False):
    def old(s):
        s.update(model=nested(s["model"]), checkpoint_version=version)
        change(s)
    return legacy(old, optimizer)


def deep(depth):
    return {"a": deep(depth - 1)} if depth else zeros((4,))


def ouroboros(s):
    s["model"]["language_model"]["encoder"]["again"] = s["model"]


def more_rows(s):
    s["model"]["language_model"]["encoder"]["layers.0.attention.query_key_value.weight"] = zeros((18, H), "bfloat16")


def scaler(s):
    s["optimizer"]["grad_scaler"] = dict(scale=zeros((1,)), growth_tracker=0)


def flat():
    s = seeds.state(seeds.NO_TENSORS, **ARGS)
    s["rng_state"] = rng()
    return files(m=saved(s), f=saved(seeds.joined(seeds.flat_size())))


def sharded(**args):
    d = seeds.sharded()
    d.object(0, "rng_state/shard_0.0_1.1", rng())
    return d.bytes({**ARGS, **args}, dict(optimizer=dict(optimizer=seeds.NO_TENSORS["optimizer"])))


def experts(state=None, objects=(), **args):
    """A torch_dist save of a run with EP2, without its optimizer."""
    d = seeds.Directory()
    shapes = collections.OrderedDict((k, s) for k, s in SHAPES.items() if ".mlp." not in k)
    layer = "decoder.layers.0.mlp."
    shapes.update({layer + "router.weight": (2, H), layer + "experts.experts.linear_fc1.weight": (2, 2 * F, H),
                   layer + "experts.experts.linear_fc2.weight": (2, H, F)})
    for key, shape in shapes.items():
        name, shape = seeds.stacked(key, shape)
        d.tensor(0, name, "bfloat16", shape, (0,) * len(shape), shape, bytes(2 * seeds.numel(shape)))
    for dp in range(2):
        d.object(0, f"rng_state/shard_0.0.{dp}_1.1.2", state or rng())
    for key, value in dict(objects).items():
        d.object(0, key, value)
    return d.bytes({**ARGS, **dict(num_experts=2, expert_model_parallel_size=2, world_size=2, data_parallel_size=2,
                                   moe_router_topk=1, moe_ffn_hidden_size=F, moe_layer_freq=1), **args})


STATE = "self_attention.linear_qkv._extra_state"


def eight_bits(value, **args):
    """Of a run with 8 bits: what is in the place of a module's state."""
    return legacy(lambda s: s["model"].update({f"decoder.layers.0.{STATE}": value}), optimizer=False, **{"fp8": "hybrid", **args})


def eight_bits_sharded(value, shard="0_1"):
    d = seeds.sharded()
    d.object(0, f"decoder.layers.{STATE}/shard_{shard}", value)
    return d.bytes({**ARGS, "fp8": "hybrid"}, dict(optimizer=dict(optimizer=seeds.NO_TENSORS["optimizer"])))


def octets(data):
    return tf.Tensor("uint8", (len(data),), data)


class Raw:
    """A BytesIO whose bytes are in the pickle as they are, as since protocol 3."""

    def __init__(self, data):
        self.data = data


def save_raw(pickler, raw):
    pickler.save(io.BytesIO)
    pickler.write(b")\x81(B" + struct.pack("<I", len(raw.data)) + raw.data + b"K\x00Ntb")


tf.Pickler.dispatch[Raw] = save_raw


def one_buffer(modules):
    """The state of several modules is one object."""
    buffer = io.BytesIO(te.extra_state(1, 200, 1))
    return legacy(lambda s: s["model"].update({f"decoder.layers.0.{m}._extra_state": buffer for m in modules}), optimizer=False, fp8="hybrid")


def hybrid_states(layers):
    """Of both layers of a block; of a run with 8 bits."""
    def change(model):
        for layer, module in layers:
            model[f"decoder.layers.{layer}.{module}._extra_state"] = te.extra_tensor(1, 2, layer)
    return hybrid(optimizer=False, change=change, fp8="hybrid")


def often(count):
    """A tensor count * count times, in a file of a few bytes more than one."""
    return [[zeros((1264,))] * count] * count


def make():
    for name, data in {
        "legacy": legacy(),
        "legacy-weights": legacy(optimizer=False),
        "legacy-scaler": legacy(scaler),
        "legacy-flat": flat(),
        "legacy-data-parallel-random-init": legacy(lambda s: s.update(rng_state=rng() * 3)),
        "legacy-one-storage-1600-times": legacy(lambda s: s.update(rng_state=rng(more=often(40)))),
        "before-core-0": before_core(),
        "before-core-1": before_core(version=1.0),
        "before-core-2": before_core(version=2.0),
        "hybrid": hybrid(),
        "hybrid-weights": hybrid(optimizer=False),
        "hybrid-fused-projection": fuse(7),
        "hybrid-stacked-experts": stacked(2),
        "torch_dist": sharded(),
        "torch_dist-experts": experts(),
        "torch_dist-experts-world-no-multiple": experts(world_size=3, tensor_model_parallel_size=2),
        "torch_dist-experts-world-of-giants": experts(world_size=1 << 30),
        "states": eight_bits(te.extra_tensor(1, 2, 1)),
        "states-in-a-buffer": eight_bits(io.BytesIO(te.extra_state(1, 2, 1))),
        "states-in-a-buffer-of-bytes": eight_bits(Raw(te.extra_state(1, 2, 1))),
        "states-of-a-hybrid": hybrid_states([(0, "self_attention.linear_qkv"), (1, "mlp.linear_fc1")]),
        "states-none": eight_bits(octets(b"")),
        "states-of-16-bits": eight_bits(octets(b"no pickle"), fp8=None),  # nobody asks for them
        "states-torch_dist": eight_bits_sharded(te.extra_tensor(1, 2, 1)),
        "states-of-no-layer-torch_dist": eight_bits_sharded(octets(b"no pickle"), "7_8"),
    }.items():
        save("corpus", f"ok-{name}", data)

    def lacking(key):
        return legacy(lambda s: s["model"].pop(key), optimizer=False)

    def with_tensor(key):
        return legacy(lambda s: s["model"].update({key: zeros((2, H), "bfloat16")}), optimizer=False)

    def group(**more):
        return legacy(lambda s: s["optimizer"]["optimizer"]["param_groups"][0].update(more))

    for name, data in {
        "before-core-version": before_core(version=0.5),
        "before-core-optimizer": before_core(optimizer=True),
        "before-core-rows": before_core(more_rows),
        "before-core-in-itself": before_core(ouroboros),
        "before-core-deep": before_core(lambda s: s["model"].update(language_model=deep(9))),
        "before-core-a-number": before_core(lambda s: s["model"].update(language_model=3)),
        "before-core-unknown-module": before_core(lambda s: s["model"]["language_model"].update(pooler=dict(weight=zeros((H, H))))),
        "adapter": with_tensor("decoder.layers.0.self_attention.linear_qkv.adapter.linear_in.weight"),
        "quantiser": with_tensor("decoder.layers.0.mlp.linear_fc1.weight_quantizer._amax"),
        "core-of-version-1": legacy(lambda s: s.update(checkpoint_version=1.0), optimizer=False),
        "embedding-missing": lacking("embedding.word_embeddings.weight"),
        "norm-missing": lacking("decoder.layers.0.pre_mlp_layernorm.weight"),
        "output-missing": lacking("output_layer.weight"),
        "hybrid-mlp-before-attention": hybrid(1, 0, False),
        "hybrid-in-one-layer": hybrid(0, 0, False),
        "hybrid-stacked-experts-of-another-run": stacked(3),
        "hybrid-of-other-layers": hybrid(optimizer=False, pattern="*D"),
        "hybrid-fused-projection-of-other-rows": fuse(8),
        "mtp-that-is-not-there": legacy(optimizer=False, mtp_num_layers=1),
        "mtp-of-giants": legacy(optimizer=False, mtp_num_layers=(1 << 31) - 2),
        "mtp-of-giants-torch_dist": sharded(mtp_num_layers=(1 << 31) - 2),
        "layer-wise-of-giants-torch_dist": sharded(use_layer_wise_distributed_optimizer=True, data_parallel_size=(1 << 31) - 2),
        "one-storage-200000-times": legacy(lambda s: s.update(rng_state=rng(more=often(448)))),
        "one-storage-200000-times-torch_dist": experts(rng(more=often(448))),
        "scaler-of-one-storage-200000-times": legacy(
            lambda s: s["optimizer"].update(grad_scaler=dict(scale=often(448)))),
        "numbers-again-and-again": legacy(lambda s: s.update(rng_state=rng(more=[[[1.5] * 200] * 200] * 200))),
        "state-deep-in-itself": legacy(lambda s: (s["rng_state"].append(s["rng_state"]))),
        "tensor-among-settings": group(betas=zeros((2,))),
        "states-cut": eight_bits(octets(te.extra_state(1, 2, 1)[:-9])),
        "states-cut-in-a-buffer": eight_bits(io.BytesIO(te.extra_state(1, 2, 1)[:-9])),
        "states-a-number": eight_bits(7),
        "states-of-floats": eight_bits(zeros((3,))),
        "states-of-one-buffer": one_buffer(("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")),
        "states-of-an-expert-that-is-not-there": one_buffer(["mlp.experts.local_experts.9999999.linear_fc1"]),
        "states-of-a-hybrid-mlp-in-attention": hybrid_states([(0, "mlp.linear_fc1")]),
        "states-of-two-products": eight_bits(te.extra_tensor(2, 2, 1)),
        "states-of-another-recipe": eight_bits(octets(te.extra_state(1, 2, 1).replace(b"TEDelayedScaling", b"TEDelayedScalinG"))),
        "states-cut-torch_dist": eight_bits_sharded(octets(te.extra_state(1, 2, 1)[:-9])),
        "states-of-one-expert-torch_dist": experts(
            objects={"decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_0.1_1.2": te.extra_tensor(1, 2, 1)}, fp8="hybrid"),
        "states-a-number-torch_dist": eight_bits_sharded(7),
        "three-heads": legacy(optimizer=False, num_attention_heads=3),
    }.items():
        save("reject", name, data)


if __name__ == "__main__":
    make()

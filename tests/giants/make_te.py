"""Saves of a small llama of two tensor-parallel ranks whose matrices are 8-bit floats: make_te.py DIR [NAME...]

DIR/whole-RELEASE and DIR/blocks-RELEASE are as a release of Transformer Engine pickles them, DIR/whole and DIR/blocks their twins in bfloat16. DIR/delayed and DIR/experts have states of modules, DIR/optimizer and its twin DIR/optimizer-2.17 a distributed optimizer,
DIR/buckets, DIR/gathered and their twins that of torch_dist.
"""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
import te_files as te  # noqa: E402
import torch_files as tf  # noqa: E402
from models import Llama, numel  # noqa: E402

MODEL = Llama(layers=1, hidden=144, heads=4, groups=2, ffn=160, vocab=250, padded=256, tp=2)
CASES = [("whole", (1, 13), False), ("whole", (2, 3), False), ("whole", (2, 17), False), ("whole", (2, 19), True),
         ("blocks", (2, 3), False), ("blocks", (2, 6), True), ("blocks", (2, 19), False)]


def plain(shape, seed):
    return tf.Tensor("bfloat16", shape, b"".join(bytes((v, 0x3c)) for v in random.Random(seed).randbytes(numel(shape))))


def plain_matrix(rows, cols, seed):
    return plain((rows, cols), seed)


def state(rank, matrix, extra=lambda seed: None):
    """matrix(rows, cols, seed): what stands in the place of a matrix; extra(seed): of its module's _extra_state."""
    model = tf.collections.OrderedDict({"embedding.word_embeddings.weight": plain((128, 144), rank)})
    for layer in range(MODEL.layers):
        for i, (name, shape, axis, _) in enumerate(MODEL.layer()):
            key, shape, seed = f"decoder.layers.{layer}.{name}", MODEL.split(shape, axis), 100 * layer + 10 * i + rank * (axis is not None)
            model[key] = plain(shape, seed) if len(shape) == 1 else matrix(*shape, seed)
            if len(shape) > 1:
                model[f"{key[:-6]}_extra_state"] = extra(10 * layer + i)
    model["decoder.final_layernorm.weight"] = plain((144,), 7)
    model["output_layer.weight"] = plain((128, 144), 50 + rank)
    return model


# One rank of two, as a model of its own.
NARROW = dict(num_attention_heads=2, num_query_groups=1, ffn_hidden_size=80, tensor_model_parallel_size=1, padded_vocab_size=128, vocab_size=125)
EXPERTS = 4


def experts_state():
    """A grouped linear has one state for its experts."""
    model = tf.collections.OrderedDict({"embedding.word_embeddings.weight": plain((256, 16), 1)})
    layer = "decoder.layers.0."
    for i, (name, shape) in enumerate([("input_layernorm", (16,)), ("self_attention.linear_proj", (16, 16)), ("self_attention.linear_qkv", (32, 16)),
                                       ("pre_mlp_layernorm", (16,)), ("mlp.router", (EXPERTS, 16))]):
        model[f"{layer}{name}.weight"] = plain(shape, i)
        if ".linear_" in name:
            model[f"{layer}{name}._extra_state"] = te.extra_tensor(1, 4, i)
    for i, (name, shape) in enumerate([("mlp.experts.linear_fc1", (48, 16)), ("mlp.experts.linear_fc2", (16, 24))]):
        for e in range(EXPERTS):
            model[f"{layer}{name}.weight{e}"] = plain(shape, 10 * i + e)
        model[f"{layer}{name}._extra_state"] = te.extra_tensor(EXPERTS, 4, 20 + i)
    model["decoder.final_layernorm.weight"] = plain((16,), 7)
    model["output_layer.weight"] = plain((256, 16), 50)
    return model


# -- the distributed optimizer --------------------------------------------------------------------


def flat(keys, model, seed, name):
    """A buffer: parameters backwards, each at a multiple of 64 elements. Main parameters are the weights'."""
    out = bytearray()
    for key in reversed(keys):
        out += bytes(-len(out) % 256)
        if name == "param":
            out += b"".join(b"\0\0" + model[key].data[i:i + 2] for i in range(0, len(model[key].data), 2))
        else:
            out += struct.pack("<f", random.Random(f"{name} {key} {seed}").uniform(-1, 1)) * model[key].numel
    return tf.Tensor("float32", (len(out) // 4,), bytes(out))


def buffers(model, rank, apart):
    """Type and tensors of each; apart: 8-bit parameters have a buffer of their own, the second, as the first parameter is an embedding."""
    eight = [k for k in model if ".linear_" in k] if apart else []
    for dtype, keys in (("bfloat16", [k for k in model if k not in eight]), ("uint8", eight)):
        if keys:
            yield dtype, {name: flat(keys, model, rank, name) for name in ("param", "exp_avg", "exp_avg_sq")}


def joined(model, rank, apart):
    state_of = {"buckets_coalesced": True}
    for i, (dtype, tensors) in enumerate(buffers(model, rank, apart)):
        state_of[i] = {(tf.DTYPE[dtype], tf.DTYPE["float32"]): {**tensors, "numel_unpadded": tensors["param"].numel}}
    return state_of


def parameters(rank):
    return {k: t for k, t in state(rank, plain_matrix).items() if t}


def optimizer(rank, apart):
    """distrib_optim.pt"""
    return joined(parameters(rank), rank, apart)


GROUPS = {"param_groups": [dict(wd_mult=1.0, step=1), dict(wd_mult=0.0, step=1)]}
DISTRIBUTED = "optimizer.distributed.dp_group_idx_0."


def save_sharded(root, apart, gathered):
    """torch_dist: weights are dequantised, whatever they were; buffers say it. gathered: dp_zero_gather_scatter, else dp_reshardable."""
    os.makedirs(f"{root}/iter_0001000")
    with open(f"{root}/latest_checkpointed_iteration.txt", "w") as f:
        f.write("1000")
    dcp, model = tf.Dcp(f"{root}/iter_0001000"), parameters(0)
    for key, t in model.items():
        stacked = (1,) * (".layers." in key) + t.shape
        dcp.tensor(0, key.replace(".layers.0.", ".layers."), "bfloat16", stacked, (0,) * len(stacked), stacked, t.data)
    if gathered:
        dcp.object(0, f"{DISTRIBUTED}param_state/shard_0_1", joined(model, 0, apart))
    else:
        for i, (dtype, tensors) in enumerate(buffers(model, 0, apart)):
            for name, t in tensors.items():
                dcp.tensor(0, f"{DISTRIBUTED}gbuf_idx_{i}.dtype_(torch.{dtype}, torch.float32).bucket_idx_0.{name}", "float32", t.shape, (0,),
                           t.shape, t.data)
    dcp.object(0, f"{DISTRIBUTED}optimizer/shard_0_1", GROUPS)
    args = arguments(use_distributed_optimizer=True, world_size=1, data_parallel_size=1, fp8="hybrid" if apart else None, fp8_param_gather=apart,
                     **NARROW)
    dcp.object(0, "common_state/shard_0_1", {"args": args, "checkpoint_version": 3.0, "iteration": 1000, "optimizer": {"optimizer": GROUPS}})
    dcp.close()


def arguments(**changes):
    args = MODEL.args()
    args.use_rope_scaling = False
    for name, value in changes.items():
        assert hasattr(args, name), name
        setattr(args, name, value)
    return args


def save(root, states, optimizers=(), **changes):
    """states: the model of each rank; optimizers: of each rank likewise."""
    args = arguments(**changes)
    os.makedirs(f"{root}/iter_0001000")
    with open(f"{root}/latest_checkpointed_iteration.txt", "w") as f:
        f.write("1000")
    for rank, model in enumerate(states):
        os.mkdir(f"{root}/iter_0001000/mp_rank_{rank:02d}")
        out = tf.SparseFile(f"{root}/iter_0001000/mp_rank_{rank:02d}/model_optim_rng.pt")
        tf.torch_save(out, "model_optim_rng", {"args": args, "checkpoint_version": 3.0, "iteration": 1000, "model": model,
                                               **({"optimizer": {"optimizer": GROUPS}} if optimizers else {})})
        out.close()
        if optimizers:
            out = tf.SparseFile(f"{root}/iter_0001000/mp_rank_{rank:02d}/distrib_optim.pt")
            tf.torch_save(out, "distrib_optim", optimizers[rank])
            out.close()


def save_dense(root, matrix, extra=lambda seed: None):
    save(root, [state(rank, matrix, extra) for rank in range(MODEL.tp)], fp8="hybrid" if extra(0) else None)


def save_optimizer(root, matrix, apart):
    save(root, [state(rank, matrix) for rank in range(MODEL.tp)], [optimizer(rank, apart) for rank in range(MODEL.tp)],
         use_distributed_optimizer=True, world_size=2, data_parallel_size=1, fp8="hybrid" if apart else None, fp8_param_gather=apart)


def saves():
    blocks = {"whole": 0, "blocks": te.BLOCK}
    for kind, block in blocks.items():
        yield kind, save_dense, [lambda rows, cols, seed, block=block: te.Weight(rows, cols, block, seed).dequantised()], {}
    for kind, release, columnwise in CASES:
        yield f"{kind}-{release[0]}.{release[1]}", save_dense, [
            lambda rows, cols, seed, block=blocks[kind], release=release, columnwise=columnwise:
            te.Weight(rows, cols, block, seed).pickled(release, columnwise)], {}
    for name, apart, pick in (("optimizer", False, lambda w: w.dequantised()), ("optimizer-2.17", True, lambda w: w.pickled((2, 17)))):
        yield name, save_optimizer, [lambda rows, cols, seed, pick=pick: pick(te.Weight(rows, cols, 0, seed)), apart], {}
    for form, gathered in (("buckets", False), ("gathered", True)):
        for name, apart in ((form, False), (f"{form}-2.17", True)):
            yield name, save_sharded, [apart, gathered], {}
    yield "delayed", save_dense, [plain_matrix, lambda seed: te.extra_tensor(1, 4, seed)], {}
    yield "experts", save, [[experts_state()]], dict(
        fp8="hybrid", num_experts=EXPERTS, moe_grouped_gemm=True, transformer_impl="transformer_engine", hidden_size=16, ffn_hidden_size=24,
        moe_ffn_hidden_size=24, kv_channels=4, tensor_model_parallel_size=1, expert_tensor_parallel_size=1, world_size=1, data_parallel_size=1)


def main():
    root, *names = sys.argv[1:]
    for name, write, what, arguments in saves():
        if not names or name in names:
            write(f"{root}/{name}", *what, **arguments)


main()

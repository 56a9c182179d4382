"""Saves of a small llama of two tensor-parallel ranks whose matrices are 8-bit floats: make_te.py DIR [NAME...]

DIR/whole-RELEASE and DIR/blocks-RELEASE are as a release of Transformer Engine pickles them, DIR/whole and DIR/blocks their twins in bfloat16. DIR/delayed and DIR/experts have states of modules.
"""
import os
import random
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


def save(root, states, **arguments):
    """states: the model of each rank."""
    args = MODEL.args()
    args.use_rope_scaling = False
    for name, value in arguments.items():
        assert hasattr(args, name), name
        setattr(args, name, value)
    os.makedirs(f"{root}/iter_0001000")
    with open(f"{root}/latest_checkpointed_iteration.txt", "w") as f:
        f.write("1000")
    for rank, model in enumerate(states):
        os.mkdir(f"{root}/iter_0001000/mp_rank_{rank:02d}")
        out = tf.SparseFile(f"{root}/iter_0001000/mp_rank_{rank:02d}/model_optim_rng.pt")
        tf.torch_save(out, "model_optim_rng", {"args": args, "checkpoint_version": 3.0, "iteration": 1000, "model": model})
        out.close()


def save_dense(root, matrix, extra=lambda seed: None):
    save(root, [state(rank, matrix, extra) for rank in range(MODEL.tp)], fp8="hybrid" if extra(0) else None)


def saves():
    blocks = {"whole": 0, "blocks": te.BLOCK}
    for kind, block in blocks.items():
        yield kind, save_dense, [lambda rows, cols, seed, block=block: te.Weight(rows, cols, block, seed).dequantised()], {}
    for kind, release, columnwise in CASES:
        yield f"{kind}-{release[0]}.{release[1]}", save_dense, [
            lambda rows, cols, seed, block=blocks[kind], release=release, columnwise=columnwise:
            te.Weight(rows, cols, block, seed).pickled(release, columnwise)], {}
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

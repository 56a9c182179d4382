"""Saves of a small llama of two tensor-parallel ranks whose matrices are 8-bit floats: make_te.py DIR

DIR/whole-RELEASE and DIR/blocks-RELEASE are as a release of Transformer Engine pickles them, DIR/whole and DIR/blocks their twins in bfloat16.
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


def state(rank, matrix):
    """matrix(rows, cols, seed): what stands in the place of a matrix."""
    model = tf.collections.OrderedDict({"embedding.word_embeddings.weight": plain((128, 144), rank)})
    for layer in range(MODEL.layers):
        for i, (name, shape, axis, _) in enumerate(MODEL.layer()):
            key, shape, seed = f"decoder.layers.{layer}.{name}", MODEL.split(shape, axis), 100 * layer + 10 * i + rank * (axis is not None)
            model[key] = plain(shape, seed) if len(shape) == 1 else matrix(*shape, seed)
            if len(shape) > 1:
                model[f"{key[:-6]}_extra_state"] = None
    model["decoder.final_layernorm.weight"] = plain((144,), 7)
    model["output_layer.weight"] = plain((128, 144), 50 + rank)
    return model


def save(root, matrix):
    args = MODEL.args()
    args.use_rope_scaling = False
    os.makedirs(f"{root}/iter_0001000")
    with open(f"{root}/latest_checkpointed_iteration.txt", "w") as f:
        f.write("1000")
    for rank in range(MODEL.tp):
        os.mkdir(f"{root}/iter_0001000/mp_rank_{rank:02d}")
        out = tf.SparseFile(f"{root}/iter_0001000/mp_rank_{rank:02d}/model_optim_rng.pt")
        tf.torch_save(out, "model_optim_rng", {"args": args, "checkpoint_version": 3.0, "iteration": 1000, "model": state(rank, matrix)})
        out.close()


def main():
    root, blocks = sys.argv[1], {"whole": 0, "blocks": te.BLOCK}
    for kind, block in blocks.items():
        save(f"{root}/{kind}", lambda rows, cols, seed, block=block: te.Weight(rows, cols, block, seed).dequantised())
    for kind, release, columnwise in CASES:
        save(f"{root}/{kind}-{release[0]}.{release[1]}",
             lambda rows, cols, seed: te.Weight(rows, cols, blocks[kind], seed).pickled(release, columnwise))  # noqa: B023


main()

"""Makes ok-te-* of corpus/torch_file and te-* of reject/torch_file: python3 tests/fuzz/make_te_seeds.py."""
import io
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f"{HERE}/../giants")
import te_files as te  # noqa: E402
import torch_files as tf  # noqa: E402


class Memory(tf.SparseFile):
    def __init__(self):
        self.file, self.pos = io.BytesIO(), 0


def save(place, value):
    out = Memory()
    tf.torch_save(out, "archive", {"weight": value}, crcs=False)  # a fuzzer cannot get past checksums
    with open(f"{HERE}/{place}", "wb") as f:
        f.write(out.file.getvalue())


def changed(call, **arguments):
    """The same call with other arguments, by their numbers (a3=...)."""
    callable, args = call.call
    args = list(args)
    for name, value in arguments.items():
        args[int(name[1:])] = value
    return te.Call(callable, args)


def tensor(dtype, *shape):
    t = tf.Tensor(dtype, shape)
    t.data = bytes(t.data.size)
    return t


def main():
    whole, blocks = te.Weight(3, 5, 0, 1), te.Weight(130, 2, te.BLOCK, 2)
    for release in ((1, 13), (2, 3), (2, 17), (2, 19)):
        save(f"corpus/torch_file/ok-te-whole-{release[0]}.{release[1]}", whole.pickled(release, release == (2, 19)))
    save("corpus/torch_file/ok-te-blocks-2.3", blocks.pickled((2, 3)))
    save("corpus/torch_file/ok-te-blocks-2.17", blocks.pickled((2, 17), True))

    one, many = whole.pickled((2, 17)), blocks.pickled((2, 17))
    module = "transformer_engine.pytorch.tensor.mxfp8_tensor"
    bad = {
        "mxfp8": te.Call(tf.klass(module, "_make_mxfp8_tensor_in_reduce_ex"), one.call[1]),
        "mxfp8-by-method": te.Call(tf.klass(module, "MXFP8Tensor", te.Maker)._make_in_reduce_ex, one.call[1]),
        "no-arguments": te.Call(one.call[0], []),
        "e5m2": changed(one, a1=te.dtype((2, 17), 8)),
        "type-a-text": changed(one, a1="e4m3"),
        "dtype-a-number": changed(one, a3=7),
        "dtype-of-bytes": changed(one, a3=tf.DTYPE["uint8"]),
        "data-missing": changed(one, a0=None),
        "data-of-floats": changed(one, a0=tensor("float32", 3, 5)),
        "data-a-vector": changed(one, a0=tensor("uint8", 15)),
        "data-of-no-rows": changed(one, a0=tensor("uint8", 0, 5)),
        "scale-missing": changed(one, a2=None),
        "scale-of-bytes": changed(one, a2=tensor("uint8", 1)),
        "two-scales": changed(one, a2=tensor("float32", 2)),
        "another-shape": changed(one, a4=tf.Size((5, 3))),
        "shape-a-text": changed(one, a4="3, 5"),
        "blocks-of-rows": changed(many, a8=False),
        "blocks-of-nothing": changed(many, a1=None, a2=None),
        "blocks-one-scale": changed(many, a2=tensor("float32", 1)),
        "blocks-few-scales": changed(many, a2=tensor("float32", 1, 4)),
        "blocks-many-scales": changed(many, a2=tensor("float32", 2, 8)),
        "blocks-scales-of-bfloat16": changed(many, a2=tensor("bfloat16", 2, 4)),
        "blocks-another-shape": changed(many, a0=tf.Size((130, 3))),
    }
    for name, value in bad.items():
        save(f"reject/torch_file/te-{name}", value)


main()

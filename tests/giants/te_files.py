"""Weights of 8-bit floats as Transformer Engine pickles them, release by release, and what its dequantize() makes of them.

make_te.py writes saves with them; their twins have the dequantised weights as plain tensors. Sources: pytorch/tensor/float8_tensor.py
and float8_blockwise_tensor.py of Transformer Engine (__reduce_ex__, dequantize), common/include/transformer_engine/transformer_engine.h (DType).
"""
import collections
import io
import pickle
import random
import struct

import torch_files as tf

TENSOR = "transformer_engine.pytorch.tensor.float8_tensor"
BLOCKS = "transformer_engine.pytorch.tensor.float8_blockwise_tensor"
BLOCK = 128


def e4m3(v):
    exponent, rest = v >> 3 & 15, v & 7
    value = rest * 2.0**-9 if not exponent else (1 + rest / 8) * 2.0**(exponent - 7)
    return -value if v & 0x80 else value


VALUES = [e4m3(v) for v in range(256)]


def bfloat16(value):
    """Of a float that is rounded to 32 bits first; to nearest, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff


def transposed(data, rows, cols, size=1):
    return b"".join(data[(i * cols + j) * size:(i * cols + j + 1) * size] for j in range(cols) for i in range(rows))


class Call:
    """Pickled as a call of a method of a class, or of a function."""

    def __init__(self, callable, args):
        self.call = callable, tuple(args)

    def __reduce_ex__(self, protocol):
        return self.call


class Maker:
    """Of the classes until 2.16."""

    @classmethod
    def _make_in_reduce_ex(cls, *args):
        return cls


def dtype(release, number=None):
    """pybind11's enum; since 2.17 Python's."""
    number = number or (6 if release < (2, 4) else 7)
    if release < (2, 17):
        return tf.klass("transformer_engine_torch", "DType", tf.State)(number)
    return tf.klass("transformer_engine.pytorch.constants", "DType")(number)


def maker(release, module, name, function):
    if release >= (2, 17):
        return tf.klass(module, function)
    return tf.klass("transformer_engine.pytorch.float8_tensor" if release < (2, 0) else module, name, Maker)._make_in_reduce_ex


def floats(values, shape):
    return tf.Tensor("float32", shape, struct.pack(f"<{len(values)}f", *values))


class Weight:
    """[rows, cols] of noise, with scales for blocks of `block` rows and columns; 0: one for all."""

    def __init__(self, rows, cols, block, seed):
        noise = random.Random(seed)
        self.rows, self.cols, self.block = rows, cols, block
        self.data = bytes(v if v & 0x7f != 0x7f else 0 for v in noise.randbytes(rows * cols))
        count = self.grid(rows) * self.grid(cols)
        wide = [noise.uniform(0.5, 1) * 2.0**noise.randrange(-14, -4) for _ in range(count)]
        self.scales = [struct.unpack("<f", struct.pack("<f", s))[0] for s in wide]

    def grid(self, n):
        return -(-n // self.block) if self.block else 1

    def scale(self, i, j):
        return self.scales[i // self.block * self.grid(self.cols) + j // self.block] if self.block else self.scales[0]

    def dequantised(self):
        tables = {s: [struct.pack("<H", bfloat16(v * s)) for v in VALUES] for s in self.scales}
        rows = [tables[self.scale(i, j)][self.data[i * self.cols + j]] for i in range(self.rows) for j in range(self.cols)]
        return tf.Tensor("bfloat16", (self.rows, self.cols), b"".join(rows))

    def halves(self, columnwise):
        """The bytes and the rows of scales, padded to a multiple of 4 with what does not count."""
        rows, cols = (self.cols, self.rows) if columnwise else (self.rows, self.cols)
        data = transposed(self.data, self.rows, self.cols) if columnwise else self.data
        width = self.grid(cols) + -self.grid(cols) % 4
        scales = [self.scale(BLOCK * (j if columnwise else i), BLOCK * (i if columnwise else j)) if j < self.grid(cols) else 777.0
                  for i in range(self.grid(rows)) for j in range(width)]
        return tf.Tensor("uint8", (rows, cols), data), floats(scales, (self.grid(rows), width))

    def pickled(self, release, columnwise=False):
        shape = tf.Size((self.rows, self.cols))
        if not self.block:
            data = tf.Tensor("uint8", (self.cols, self.rows) if columnwise else (self.rows, self.cols),
                             transposed(self.data, self.rows, self.cols) if columnwise else self.data)
            args = [None if columnwise else data, dtype(release), floats(self.scales, (1,)), tf.DTYPE["bfloat16"]]
            args += [shape] * (release >= (2, 0)) + [data if columnwise else None] * (release >= (2, 19))
            return Call(maker(release, TENSOR, "Float8Tensor", "_make_float8_tensor_in_reduce_ex"), args)
        halves = self.halves(columnwise)
        quantizer = tf.klass(BLOCKS, "Float8BlockQuantizer", tf.State)({"block_len": BLOCK, "block_scaling_dim": 2, "dtype": dtype(release)})
        args = [shape, *((None, None) if columnwise else halves), *(halves if columnwise else (None, None)), dtype(release),
                tf.DTYPE["bfloat16"], quantizer, True] + [None] * (release >= (2, 6))
        return Call(maker(release, BLOCKS, "Float8BlockwiseQTensor", "_make_float8_blockwise_tensor_in_reduce_ex"), args)


# -- _extra_state ---------------------------------------------------------------------------------

RECIPES = "transformer_engine.common.recipe"


class Dumps(tf.Pickler):
    """pickle.dumps of protocol 4 with tensors: their storages are streams of torch before 1.6."""

    def __init__(self, file):
        super().__init__(file, [])
        self.proto, self.bin, self.fix_imports = 4, 1, False

    def save_tensor(self, t):
        out = io.BytesIO()
        for head in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}):
            pickle.dump(head, out, 2)
        Stream(out).dump(tf.Storage(t))
        pickle.dump(["0"], out, 2)
        out.write(struct.pack("<q", t.numel) + t.data)
        storage = Call(tf.klass("torch.storage", "_load_from_bytes"), [out.getvalue()])
        self.save_reduce(tf.rebuild_tensor, (storage, 0, t.shape, t.stride(), False, collections.OrderedDict()), obj=t)

    dispatch = dict(tf.Pickler.dispatch)
    dispatch[tf.Tensor] = save_tensor


class Stream(tf.Pickler):
    def __init__(self, file):
        super().__init__(file, [])

    def persistent_id(self, obj):
        found = super().persistent_id(obj)
        return found and (*found[:2], "0", *found[3:], None)


def extra_state(products, length, seed):
    """The bytes that Transformer Engine 2 keeps of a module with the recipe delayed."""
    noise = random.Random(seed)
    state = {"recipe": tf.klass("megatron.core.extensions.transformer_engine", "TEDelayedScaling", tf.State)(
        {"margin": 0, "fp8_format": Call(tf.klass(RECIPES, "Format"), [Call(tf.klass(RECIPES, "_FormatHelper"), [448, 57344])]),
         "amax_history_len": length, "amax_compute_algo": "max"})}
    for direction, kinds in (("fwd", 3), ("bwd", 2)):
        columns = kinds * products
        state[f"scale_{direction}"] = floats([noise.uniform(1, 100) for _ in range(columns)], (columns,))
        state[f"amax_history_{direction}"] = floats([noise.random() for _ in range(columns * length)], (length, columns))
    state["extra_fp8_variables"] = {"fp8_checkpoint": True, "num_gemms": products, "fp8_max_fwd": 448, "fp8_max_bwd": 57344}
    out = io.BytesIO()
    Dumps(out).dump(state)
    return out.getvalue()


def extra_tensor(products, length, seed):
    data = extra_state(products, length, seed)
    return tf.Tensor("uint8", (len(data),), data)

"""Files that peers of mcorefs-train start from, of random numbers.

    token_files.py llmc FILE TOKENS VOCABULARY      tokens as llm.c reads them: 1024 bytes of header, then uint16
    token_files.py llmq FILE TOKENS VOCABULARY      as LLM.Q reads them: 1024 bytes of header, then int32
    token_files.py megatron PREFIX TOKENS VOCABULARY   PREFIX.bin and .idx, int32, documents of 1 to 2000 tokens
    token_files.py gpt2 FILE LAYERS HIDDEN          bf16 weights as llm.c reads them: it draws its own on one thread for half a minute
"""
import sys

import numpy

BLOCK = 1 << 24


def draw(generator, file, tokens, vocabulary, dtype):
    for at in range(0, tokens, BLOCK):
        generator.integers(vocabulary, size=min(BLOCK, tokens - at), dtype=dtype).tofile(file)


def header(*values):
    words = numpy.zeros(256, dtype=numpy.int32)
    words[:len(values)] = values
    return words


def llmc(path, tokens, vocabulary):
    with open(path, "wb") as file:
        header(20240520, 1, tokens).tofile(file)
        draw(numpy.random.default_rng(1), file, tokens, vocabulary, numpy.uint16)


def llmq(path, tokens, vocabulary):
    with open(path, "wb") as file:
        words = header(0, 0, 2, 4, tokens, vocabulary)
        words[:2] = numpy.frombuffer(b"BIN.TOK\n", dtype=numpy.int32)
        words.tofile(file)
        draw(numpy.random.default_rng(1), file, tokens, vocabulary, numpy.int32)


def megatron(prefix, tokens, vocabulary):
    generator = numpy.random.default_rng(1)
    lengths = generator.integers(1, 2001, size=tokens // 1000, dtype=numpy.int32)
    pointers = numpy.concatenate(([0], numpy.cumsum(lengths[:-1], dtype=numpy.int64) * 4)).astype(numpy.int64)
    with open(prefix + ".bin", "wb") as file:
        draw(generator, file, int(lengths.sum(dtype=numpy.int64)), vocabulary, numpy.int32)
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0")
        numpy.array([1], dtype="<u8").tofile(file)
        file.write(b"\4")  # int32
        numpy.array([len(lengths), len(lengths) + 1], dtype="<u8").tofile(file)
        lengths.tofile(file)
        pointers.tofile(file)
        numpy.arange(len(lengths) + 1, dtype=numpy.int64).tofile(file)


def gpt2(path, layers, hidden):
    rows = 50304  # 50257, padded
    some = numpy.random.default_rng(1).standard_normal(BLOCK + 1, dtype=numpy.float32) * 0.02
    some = (some.view(numpy.uint32) >> 16).astype(numpy.uint16)

    def weights(file, *shape):
        left = int(numpy.prod(shape))
        while left:
            some[:left].tofile(file)
            left -= min(left, len(some))

    def constant(file, value, *shape):
        numpy.full(shape, numpy.float32(value).view(numpy.uint32) >> 16, dtype=numpy.uint16).tofile(file)

    with open(path, "wb") as file:
        header(20240326, 5, 1024, 50257, layers, hidden // 64, hidden, rows).tofile(file)
        weights(file, rows, hidden)
        weights(file, 1024, hidden)
        attention = ((None, hidden), (hidden, 3 * hidden), (hidden, hidden))  # norms have no inputs
        for inputs, outputs in (*attention, (None, hidden), (hidden, 4 * hidden), (4 * hidden, hidden)):
            if inputs:
                weights(file, layers, outputs, inputs)
            else:
                constant(file, 1, layers, outputs)
            constant(file, 0, layers, outputs)
        constant(file, 1, hidden)
        constant(file, 0, hidden)


if __name__ == "__main__":
    {"llmc": llmc, "llmq": llmq, "megatron": megatron, "gpt2": gpt2}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))

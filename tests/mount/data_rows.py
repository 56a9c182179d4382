"""data_rows.py KIND WHOLE DAMAGED: compares the rows of two views of a dataset, of which one lacks tokens.

KIND is hf (also of samples), npy or jsonl; WHOLE and DAMAGED are directories of such views. Where DAMAGED lacks tokens, WHOLE
has the token 65535. A row with such a token must be an input/output error, any other must have the bytes that WHOLE has; in npy
and jsonl, where rows share pages, one that shares a page of memory with an error may be one too. Prints: ROWS rows, N errors,
M beside them.
"""
import errno
import json
import os
import struct
import sys

PAGE, MISSING = 4096, 65535


def number(data, kind, at):
    return struct.unpack_from("<" + kind, data, at)[0]


class Table:
    """A FlatBuffers table."""

    def __init__(self, data, at):
        self.data, self.at, self.vtable = data, at, at - number(data, "i", at)

    def place(self, field):
        inside = 4 + 2 * field + 2 <= number(self.data, "H", self.vtable)
        offset = number(self.data, "H", self.vtable + 4 + 2 * field) if inside else 0
        return self.at + offset if offset else 0

    def scalar(self, field, kind):
        return number(self.data, kind, self.place(field)) if self.place(field) else 0

    def pointed(self, field):
        at = self.place(field)
        return at + number(self.data, "I", at)

    def table(self, field):
        return Table(self.data, self.pointed(field))

    def tables(self, field):
        first = self.pointed(field) + 4
        return [Table(self.data, first + 4 * i + number(self.data, "I", first + 4 * i)) for i in range(number(self.data, "I", first - 4))]

    def pairs(self, field):
        first = self.pointed(field) + 4
        return [struct.unpack_from("<qq", self.data, first + 16 * i) for i in range(number(self.data, "I", first - 4))]


def arrow_rows(fd):
    """(offset, bytes) of the tokens of each row of a stream whose first column is a list of integers."""
    at = 0
    while True:
        mark, size = struct.unpack("<II", os.pread(fd, 8, at))
        assert mark == 0xFFFFFFFF
        if not size:
            return
        data = os.pread(fd, size, at + 8)
        message = Table(data, number(data, "I", 0))
        body, at = at + 8 + size, at + 8 + size + message.scalar(3, "q")
        if message.scalar(1, "B") == 1:
            field = message.table(2).tables(1)[0]
            fixed = field.table(3).scalar(0, "i") if field.scalar(2, "B") == 16 else 0
            width = field.tables(5)[0].table(3).scalar(0, "i") // 8
            continue
        batch = message.table(2)
        rows, buffers = batch.scalar(0, "q"), batch.pairs(2)
        if fixed:
            ends = [fixed * i for i in range(rows + 1)]
        else:
            ends = struct.unpack(f"<{rows + 1}i", os.pread(fd, 4 * (rows + 1), body + buffers[1][0]))
        values = body + buffers[2 if fixed else 3][0]
        for first, end in zip(ends, ends[1:]):
            yield values + first * width, (end - first) * width


def hf(directory, _):
    for file in json.load(open(f"{directory}/state.json"))["_data_files"]:
        fd = os.open(f"{directory}/{file['filename']}", os.O_RDONLY)
        for offset, size in arrow_rows(fd):
            yield fd, offset, size


def npy(directory, whole):
    offsets = open(f"{whole}/offsets.npy", "rb").read()
    offsets = struct.unpack(f"<{(len(offsets) - 128) // 8}q", offsets[128:])
    fd = os.open(f"{directory}/tokens.npy", os.O_RDONLY)
    width = (os.fstat(fd).st_size - 128) // offsets[-1]
    for first, end in zip(offsets, offsets[1:]):
        yield fd, 128 + first * width, (end - first) * width


def jsonl(directory, whole):
    fd, at = os.open(f"{directory}/data.jsonl", os.O_RDONLY), 0
    for line in open(f"{whole}/data.jsonl", "rb"):
        yield fd, at, len(line)
        at += len(line)


def read(fd, offset, size):
    """The bytes, or None: an input/output error."""
    parts = []
    while size:
        try:
            part = os.pread(fd, size, offset)
        except OSError as error:
            assert error.errno == errno.EIO, error
            return None
        assert part, f"the file ends at {offset}"
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)


def tokens(kind, data):
    if kind == "jsonl":
        return json.loads(data)["input_ids"]
    return struct.unpack(f"<{len(data) // 2}H", data)


def pages(row):
    fd, offset, size = row
    return {(fd, page) for page in range(offset // PAGE, (offset + size - 1) // PAGE + 1)} if size else set()


def compare(kind, whole, damaged):
    view = {"hf": hf, "npy": npy, "jsonl": jsonl}[kind]
    rows = list(zip(view(whole, whole), view(damaged, whole), strict=True))
    lacking = [MISSING in tokens(kind, read(*row)) for row, _ in rows]
    shared = set()
    if kind != "hf":
        shared = set().union(*(pages(row) for (_, row), lacks in zip(rows, lacking) if lacks))
    errors = beside = 0
    for i, ((row, other), lacks) in enumerate(zip(rows, lacking)):
        found = read(*other)
        if found is None:
            assert lacks or pages(other) & shared, f"row {i} is an error"
            errors += lacks
            beside += not lacks
        else:
            assert not lacks, f"row {i} lacks tokens, and is no error"
            assert found == read(*row), f"row {i} has other bytes"
    print(f"{len(rows)} rows, {errors} errors, {beside} beside them")


compare(*sys.argv[1:])

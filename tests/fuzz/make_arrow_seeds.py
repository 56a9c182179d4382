"""Makes corpus/arrow and reject/arrow: python3 tests/fuzz/make_arrow_seeds.py, with pyarrow (26.0.1 made what is here).

Seeds called ok-* must be accepted. Each input under reject/ breaks one rule, which its name says: written by pyarrow, then patched.
"""

import os
import struct

import pyarrow as pa

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [[1, 2, 3], [], [4], [5, 6, 7, 8], [9]]
OFFSETS = struct.pack("<6i", 0, 3, 3, 4, 8, 9)
V4 = pa.ipc.MetadataVersion.V4
END = b"\xff\xff\xff\xff\0\0\0\0"


def save(kind, name, data):
    os.makedirs(f"{HERE}/{kind}/arrow", exist_ok=True)
    with open(f"{HERE}/{kind}/arrow/{name}", "wb") as f:
        f.write(data)


def written(columns, batch_rows=None, new=pa.ipc.new_stream, custom_metadata=None, **options):
    """columns: arrays by their names; batches of batch_rows rows."""
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with new(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for at in range(0, batch.num_rows, batch_rows or batch.num_rows or 1):
            writer.write_batch(batch.slice(at, batch_rows or batch.num_rows), custom_metadata=custom_metadata)
    return sink.getvalue().to_pybytes()


def ids(item=pa.int32(), rows=ROWS, make=pa.list_):
    return {"input_ids": pa.array(rows, make(item))}


def patched(data, old, new):
    assert len(old) == len(new) and data.count(old) == 1, (data.count(old), old)
    return data.replace(old, new)


def all_types():
    """One column of each layout, for readers that have to step over them."""
    n = len(ROWS)
    words = ["a", None, "a string of more than twelve bytes", "d", ""]
    ones = pa.array([1] * n)
    return {
        "null": pa.nulls(n), "bool": pa.array([True, None] * 2 + [False]), "float": pa.array([0.5] * n), "string": pa.array(words),
        "binary": pa.array([b"x"] * n, pa.large_binary()), "view": pa.array(words, pa.string_view()),
        "other_view": pa.array(words[::-1], pa.string_view()), "fixed": pa.array([b"abcd"] * n, pa.binary(4)),
        "struct": pa.array([{"a": 1, "b": "x"}] * n), "map": pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int8())),
        "strings": pa.array([["p", "q"]] * n), "lists": pa.array([[[1]]] * n, pa.list_(pa.list_(pa.float32()))),
        "list_view": pa.array([["a"]] * n, pa.list_view(pa.string())), "dictionary": pa.array(words).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, n], pa.int16()), pa.array([1.0, 2.0])),
        "sparse": pa.UnionArray.from_sparse(pa.array([0] * n, pa.int8()), [ones]),
        "dense": pa.UnionArray.from_dense(pa.array([0] * n, pa.int8()), pa.array(range(n), pa.int32()), [ones]),
        "when": pa.array([0] * n, pa.timestamp("us")), "decimal": pa.array([1] * n, pa.decimal128(9)), "length": pa.array([1] * n, pa.int16()),
    }


def accepted():
    for item in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        save("corpus", f"ok-{item}", written(ids(item)))
    save("corpus", "ok-large-list", written(ids(pa.int64(), make=pa.large_list)))
    save("corpus", "ok-fixed-size-list", written(ids(rows=[[1, 2], [3, 4], [5, 6]], make=lambda t: pa.list_(t, 2))))
    save("corpus", "ok-fixed-size-list-nulls", written(ids(rows=[None, [1, 2], None, [5, 6], None], make=lambda t: pa.list_(t, 2))))
    save("corpus", "ok-fixed-size-list-null-first", written(ids(rows=[None, [1, 2], [3, 4]], make=lambda t: pa.list_(t, 2))))
    save("corpus", "ok-several-batches", written(ids(), 2))
    save("corpus", "ok-no-batch", written(ids(rows=[])))
    save("corpus", "ok-empty-batch", written({"input_ids": pa.array([], pa.list_(pa.int32()))}, new=written_one_batch))
    save("corpus", "ok-empty-rows", written(ids(rows=[[], [], []])))
    save("corpus", "ok-nulls", written(ids(rows=[None, [1, 2], None, [3]])))
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3, 6, 7, 7], pa.int32()), pa.array(range(1, 8), pa.int32()),
                                      mask=pa.array([False, True, True, False, True]))
    save("corpus", "ok-nulls-with-elements", written({"input_ids": hidden}))
    save("corpus", "ok-many-nulls", written(ids(pa.uint8(), rows=[None if i % 3 else [1] * (i % 5) for i in range(1100)]), 1050))
    save("corpus", "ok-first-offset-not-0", patched(written(ids()), OFFSETS, struct.pack("<6i", 2, 3, 3, 4, 8, 9)))
    save("corpus", "ok-last-offset-before-the-end", patched(written(ids()), OFFSETS, struct.pack("<6i", 0, 3, 3, 4, 7, 8)))
    save("corpus", "ok-another-name", written({"text": pa.array(["x"]), "tokens": pa.array([[1, 2]], pa.list_(pa.uint16()))}))
    save("corpus", "ok-labels-too", written({"labels": pa.array([[7]]), **ids(rows=[[8]])}))
    save("corpus", "ok-indices", written({"indices": pa.array([4, 1, 1, 0], pa.uint64())}, 3))
    save("corpus", "ok-behind-all-types", written({**all_types(), **ids(pa.uint16())}, 3))
    save("corpus", "ok-version-4", written({**all_types(), **ids()}, 2, metadata_version=V4))
    save("corpus", "ok-legacy-framing", written(ids(), 2, metadata_version=V4, use_legacy_format=True))
    save("corpus", "ok-file", written(ids(), 2, new=pa.ipc.new_file))
    save("corpus", "ok-file-no-batch", written(ids(rows=[]), new=pa.ipc.new_file))
    save("corpus", "ok-file-legacy-framing", written(ids(), 2, new=pa.ipc.new_file, metadata_version=V4, use_legacy_format=True))


    save("corpus", "ok-file-blank-in-front", blank_in_front(written(ids(), 2, new=pa.ipc.new_file)))
    save("corpus", "ok-file-schema-without-size", schema_without_size(written(ids(), 2, new=pa.ipc.new_file)))
    save("corpus", "ok-file-blank-in-front-no-batch", blank_in_front(written(ids(rows=[]), new=pa.ipc.new_file)))
    save("corpus", "ok-file-blank-in-front-version-4", blank_in_front(written({**all_types(), **ids()}, 2, new=pa.ipc.new_file, metadata_version=V4)))
    legacy = written(ids(), 2, new=pa.ipc.new_file, metadata_version=V4, use_legacy_format=True)
    save("corpus", "ok-file-blank-in-front-legacy-framing", legacy[:8] + bytes(4 + struct.unpack_from("<I", legacy, 8)[0]) + legacy[12 + struct.unpack_from("<I", legacy, 8)[0]:])


def first_message(data):
    """Where the schema that a file begins with ends."""
    return 16 + struct.unpack_from("<I", data, 12)[0]


def blank_in_front(data):
    """As arrow-rs pads the magic, with no schema but that of the footer."""
    return data[:8] + bytes(first_message(data) - 8) + data[first_message(data):]


def schema_without_size(data):
    """As Polars writes a file."""
    return data[:8] + data[16:first_message(data)] + bytes(8) + data[first_message(data):]


def written_one_batch(sink, schema, options):
    writer = pa.ipc.new_stream(sink, schema, options=options)
    writer.write_batch(pa.record_batch([pa.array([], f.type) for f in schema], schema=schema))
    return writer


def framing(good):
    batch = good.index(b"\xff\xff\xff\xff", 8)
    size = struct.unpack_from("<I", good, batch + 4)[0]
    save("reject", "nothing", b"")
    save("reject", "column-with-a-nul", written({"input_ids\0x": ids()["input_ids"]}))
    save("reject", "three-bytes", good[:3])
    save("reject", "text", b"{\"text\": \"not Arrow at all\"}\n" * 4)
    save("reject", "schema-cut", good[:100])
    save("reject", "cut-before-the-batch", good[:batch])
    save("reject", "cut-in-the-metadata", good[:batch + 40])
    save("reject", "cut-in-the-body", good[:-len(END) - 8])
    save("reject", "no-end", good[:-len(END)])
    save("reject", "half-of-an-end", good[:-4])
    save("reject", "bytes-behind-the-end", good + b"\0" * 8)
    save("reject", "end-in-the-middle", good[:batch] + END + good[batch:])
    save("reject", "begins-with-a-batch", good[batch:])
    save("reject", "two-schemas", good[:batch] + good)
    save("reject", "tensor", good[:batch] + tensor() + END)
    for name, change in (("longer", 8), ("shorter", -8), ("huge", 2**31 - 1 - size), ("negative", -2 * size)):
        save("reject", f"metadata-{name}", good[:batch + 4] + struct.pack("<i", size + change) + good[batch + 8:])
    save("reject", "legacy-in-the-middle", good[:batch] + good[batch + 4:])
    body = struct.pack("<q", len(good) - len(END) - batch - 8 - size)
    at = good.index(body, batch + 8, batch + 8 + size)
    for name, value in (("longer", 8), ("shorter", -8), ("negative", -2**40), ("huge", 2**62)):
        save("reject", f"body-{name}", good[:at] + struct.pack("<q", struct.unpack("<q", body)[0] + value) + good[at + 8:])
    root = struct.unpack_from("<I", good, batch + 8)[0]
    table = batch + 8 + root
    vtable = table - struct.unpack_from("<i", good, table)[0]
    kind = table + struct.unpack_from("<H", good, vtable + 6)[0]  # of the message: 3, a record batch
    assert good[kind] == 3
    save("reject", "batch-called-a-dictionary", good[:kind] + b"\2" + good[kind + 1:])
    save("reject", "root-outside", good[:batch + 8] + struct.pack("<I", size) + good[batch + 12:])
    save("reject", "root-at-0", good[:batch + 8] + struct.pack("<I", 0) + good[batch + 12:])
    save("reject", "vtable-outside", good[:batch + 8 + root] + struct.pack("<i", 2**30) + good[batch + 12 + root:])


def tensor():
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(__import__("numpy").arange(3)), sink)
    return sink.getvalue().to_pybytes()


def metadata(good):
    """Nodes are (length, nulls), buffers (offset, length), of: list, items; list validity, offsets, item validity, values."""
    nodes, buffers = struct.pack("<4q", 5, 0, 9, 0), struct.pack("<8q", 0, 0, 0, 24, 24, 0, 24, 36)
    for name, change in (("rows-of-the-column", (4, 0, 9, 0)), ("nulls-without-validity", (5, 1, 9, 0)), ("nulls-negative", (5, -1, 9, 0)),
                         ("items-too-many", (5, 0, 12, 0)), ("items-too-few", (5, 0, 8, 0)), ("items-negative", (5, 0, -1, 0)), ("items-null", (5, 0, 9, 1))):
        save("reject", f"node-{name}", patched(good, nodes, struct.pack("<4q", *change)))
    for name, change in (("outside", (0, 0, 0, 24, 24, 0, 32, 36)), ("far-outside", (0, 0, 0, 24, 24, 0, 2**62, 36)),
                         ("offset-negative", (0, 0, -8, 24, 24, 0, 24, 36)), ("length-negative", (0, 0, 0, 24, 24, 0, 24, -36)),
                         ("overlap", (0, 0, 0, 24, 24, 0, 16, 36)), ("not-at-a-multiple-of-8", (0, 0, 0, 24, 24, 0, 25, 36)), ("offsets-too-small", (0, 0, 0, 16, 24, 0, 24, 36)),
                         ("values-too-small", (0, 0, 0, 24, 24, 0, 24, 32)), ("values-wrap", (0, 0, 0, 24, 24, 0, 24, 2**63 - 1))):
        save("reject", f"buffer-{name}", patched(good, buffers, struct.pack("<8q", *change)))
    save("reject", "rows-of-the-batch", good.replace(struct.pack("<q", 5), struct.pack("<q", 6), 1))
    for name, offsets in (("negative", (-1, 3, 3, 4, 8, 9)), ("first-behind-last", (9, 9, 9, 9, 9, 8)), ("last-outside", (0, 3, 3, 4, 8, 10)),
                          ("descend", (0, 3, 2, 4, 8, 9)), ("in-the-middle-outside", (0, 3, 3, 2**30, 8, 9)), ("in-the-middle-negative", (0, 3, -3, 4, 8, 9))):
        save("reject", f"offsets-{name}", patched(good, OFFSETS, struct.pack("<6i", *offsets)))
    nulls = written(ids(rows=[[1], None, [3]]))
    save("reject", "nulls-other-than-said", patched(nulls, b"\x05\0\0\0\0\0\0\0" + struct.pack("<4i", 0, 1, 1, 2), b"\x07\0\0\0\0\0\0\0" + struct.pack("<4i", 0, 1, 1, 2)))
    save("reject", "nulls-offsets-outside", patched(nulls, struct.pack("<4i", 0, 1, 1, 2), struct.pack("<4i", 0, 1, 1, 3)))
    save("reject", "nulls-offsets-descend", patched(nulls, struct.pack("<4i", 0, 1, 1, 2), struct.pack("<4i", 0, 2, 1, 2)))


def kinds():
    save("reject", "lz4", written(ids(), compression="lz4"))
    save("reject", "zstd", written(ids(), compression="zstd"))
    save("reject", "compressed-as-in-0.17", written(ids(), custom_metadata={"ARROW:experimental_compression": "lz4"}))
    save("reject", "dictionary", written({"input_ids": pa.array(["a", "b"]).dictionary_encode()}))
    of_dictionary = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([5]).dictionary_encode())
    save("reject", "list-of-a-dictionary", written({"input_ids": of_dictionary}))
    save("reject", "text-column", written({"text": pa.array(["a", "b"])}))
    save("reject", "text-called-input-ids", written({"input_ids": pa.array(["a", "b"]), "tokens": pa.array([[1], [2]])}))
    save("reject", "integers-alone", written({"input_ids": pa.array([1, 2])}))
    save("reject", "lists-of-lists", written({"input_ids": pa.array([[[1]]])}))
    save("reject", "lists-of-floats", written({"input_ids": pa.array([[0.5]])}))
    save("reject", "list-view", written({"input_ids": pa.array([[1]], pa.list_view(pa.int32()))}))
    save("reject", "fixed-size-of-0", written({"input_ids": pa.array([[], []], pa.list_(pa.int32(), 0))}))
    save("reject", "two-that-could-be", written({"a": pa.array([[1]]), "b": pa.array([[1]])}))
    both = written({"input_ids": pa.array([[1]]), "input_idz": pa.array([[1]])})
    save("reject", "two-of-one-name", patched(both, b"input_idz", b"input_ids"))
    save("reject", "no-column", written({}))
    save("reject", "item-null", written(ids(rows=[[1, None]])))
    save("reject", "index-null", written({"indices": pa.array([1, None])}))
    long = pa.array(["a string of more than twelve bytes"], pa.string_view())
    views = written({"one": long, "other": long, **ids(rows=[[1]])})
    save("reject", "views-without-counts", patched(views, struct.pack("<I2q", 2, 1, 1), struct.pack("<I2q", 1, 1, 1)))
    save("reject", "views-with-too-many", patched(views, struct.pack("<I2q", 2, 1, 1), struct.pack("<I2q", 2, 1, 2**40)))
    deep = pa.int32()
    for _ in range(70):
        deep = pa.list_(deep)
    save("reject", "nested-deep", written({"deep": pa.array([], deep), **ids(rows=[])}))


def files():
    good = written(ids(), 2, new=pa.ipc.new_file)
    size = struct.unpack_from("<i", good, len(good) - 10)[0]
    save("reject", "file-cut", good[:-1])
    save("reject", "file-magic-alone", good[:8])
    save("reject", "file-footer-size", good[:-10] + struct.pack("<i", size + 8) + good[-6:])
    save("reject", "file-footer-negative", good[:-10] + struct.pack("<i", -1) + good[-6:])
    save("reject", "file-footer-huge", good[:-10] + struct.pack("<i", 2**30) + good[-6:])
    footer = len(good) - 10 - size
    stream = written(ids(), 2)
    first = 8 + stream.index(b"\xff\xff\xff\xff", 8)
    block = good.index(struct.pack("<q", first), footer)
    save("reject", "file-block-elsewhere", good[:block] + struct.pack("<q", first + 8) + good[block + 8:])
    save("reject", "file-block-in-the-footer", good[:block] + struct.pack("<q", len(good)) + good[block + 8:])
    save("reject", "file-block-at-the-schema", good[:block] + struct.pack("<q", 8) + good[block + 8:])
    save("reject", "file-block-left-out", good[:block - 4] + struct.pack("<i", 2) + good[block:])
    blank = blank_in_front(good)
    for at, where in ((1, "before-the-magic-ends"), (first + 8, "elsewhere"), (len(good), "in-the-footer")):
        save("reject", f"file-blank-in-front-block-{where}", blank[:block] + struct.pack("<q", at) + blank[block + 8:])
    save("reject", "file-blank-in-front-block-left-out", blank[:block - 4] + struct.pack("<i", 2) + blank[block:])
    save("reject", "file-footer-alone", blank[:8] + blank[footer:])
    save("reject", "file-footer-alone-block-at-0", blank[:8] + blank[footer:block] + struct.pack("<q", 0) + blank[block + 8:])
    name = good.rindex(b"input_ids", footer)
    save("reject", "file-two-schemas", good[:name] + b"input_idx" + good[name + 9:])
    save("reject", "file-lz4", written(ids(), new=pa.ipc.new_file, compression="lz4"))


def main():
    accepted()
    good = written(ids())
    framing(good)
    metadata(good)
    kinds()
    files()


main()

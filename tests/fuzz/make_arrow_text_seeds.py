"""make_arrow_text_seeds.py: tests/fuzz/{corpus,reject}/arrow_text, with pyarrow (tests/interop/run.sh makes a venv that has it)."""
import pathlib
import struct

import pyarrow as pa

here = pathlib.Path(__file__).parent
TEXTS = ["a tale", None, "\u65e5\u672c\n\"", "", "a tale", "a longer tale, which no view has in itself"]
COUNT = len(TEXTS)


def save(kind, name, data):
    folder = here / kind / "arrow_text"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def written(columns, rows=4, new=pa.ipc.new_stream, **options):
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def words(chunks, **options):
    """A stream whose dictionary changes between its batches."""
    batches = [pa.record_batch({"text": pa.DictionaryArray.from_arrays(pa.array(i, pa.int8()), d)}) for d, i in chunks]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def patched(data, old, new, count=1):
    assert len(old) == len(new) and data.count(old) == count, (data.count(old), old)
    return data.replace(old, new)


text = {"id": pa.array(range(COUNT)), "text": pa.array(TEXTS)}
turn = pa.struct([("role", pa.string()), ("content", pa.large_string())])
messages = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}], [], None, [None], [{"role": "tool", "content": "x"}], []]
nested = {"messages": pa.array(messages, pa.list_(turn)), **text, "input_ids": pa.array([[1, 2], None, [], [-3], [4, None], [2**62]], pa.large_list(pa.int64())),
          "more": pa.StructArray.from_arrays([pa.array([True, False, None] * 2), pa.array([[1, 2]] * 5 + [None], pa.list_(pa.uint16(), 2)), pa.nulls(COUNT),
                                              pa.array([2**64 - 1, 0, 1, 2, 3, 4], pa.uint64()), pa.array([-1] * COUNT, pa.int8()), pa.array(TEXTS).dictionary_encode()],
                                             ["bool", "pair", "null", "large", "small", "word"])}
first, second = pa.array(["a", "b"]), pa.array(["a", "b", "c"])

save("corpus", "ok-stream", written(text))
save("corpus", "ok-file", written(text, new=pa.ipc.new_file))
save("corpus", "ok-zstd", written({"text": pa.array(TEXTS * 30)}, compression="zstd"))
save("corpus", "ok-large", written({"text": pa.array(TEXTS, pa.large_string())}))
save("corpus", "ok-views", written({"views": pa.array(TEXTS, pa.string_view()), "text": pa.array(TEXTS, pa.string_view())}))
save("corpus", "ok-dictionary", written({"text": pa.array(TEXTS).dictionary_encode()}, new=pa.ipc.new_file))
save("corpus", "ok-dictionary-of-views", written({"text": pa.DictionaryArray.from_arrays(pa.array([5, 0, None, 1], pa.uint16()), pa.array(TEXTS, pa.string_view()))}))
save("corpus", "ok-dictionary-replaced", words([(first, [0, 1]), (second, [2, 0])]))
save("corpus", "ok-dictionary-grows", words([(first, [0, 1]), (second, [2, 0])], emit_dictionary_deltas=True))
save("corpus", "ok-nested", written(nested))
save("corpus", "ok-nested-zstd-file", written(nested, new=pa.ipc.new_file, compression="zstd"))
save("corpus", "ok-no-rows", written({"text": pa.array([], pa.string())}))

plain = written({"text": pa.array(["ab", "cd", "ef"])})
offsets = struct.pack("<4i", 0, 2, 4, 6)
save("reject", "offsets-descend", patched(plain, offsets, struct.pack("<4i", 0, 4, 2, 6)))
save("reject", "offset-outside", patched(plain, offsets, struct.pack("<4i", 0, 2, 4, 1 << 20)))
save("reject", "offset-negative", patched(plain, offsets, struct.pack("<4i", -2, 2, 4, 6)))
save("reject", "no-column", written({"word": pa.array(TEXTS)}))
save("reject", "numbers", written({"text": pa.array([1, 2])}))
save("reject", "lists", written({"text": pa.array([["a"]])}))
save("reject", "floats", written({**text, "more": pa.array([0.5] * COUNT)}))
save("reject", "lz4", written({"text": pa.array(TEXTS * 30)}, compression="lz4"))
save("reject", "cut", plain[:-8])
view = written({"text": pa.array(["a longer tale, which no view has in itself"], pa.string_view())})
save("reject", "view-of-no-buffer", patched(view, b"a lo" + struct.pack("<2i", 0, 0), b"a lo" + struct.pack("<2i", 1, 0)))
save("reject", "view-outside", patched(view, b"a lo" + struct.pack("<2i", 0, 0), b"a lo" + struct.pack("<2i", 0, 1)))
encoded = written({"text": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 0] * 2, pa.int8()), first)}, rows=8)
save("reject", "word-outside", patched(encoded, b"\1\0\1\0" * 2, b"\1\0\1\2" * 2))
save("reject", "word-negative", patched(encoded, b"\1\0\1\0" * 2, b"\1\0\1\xff" * 2))
packed = written({"text": pa.array(["ab" * 40])}, compression="zstd")
frame = packed.index(b"\x28\xb5\x2f\xfd", packed.index(b"\x28\xb5\x2f\xfd") + 1) if packed.count(b"\x28\xb5\x2f\xfd") > 1 else packed.index(b"\x28\xb5\x2f\xfd")
save("reject", "zstd-damaged", packed[:frame] + b"\0" + packed[frame + 1:])
save("reject", "zstd-shorter-than-it-states", packed[:frame - 8] + struct.pack("<q", 81) + packed[frame:])
save("reject", "zstd-too-long", packed[:frame - 8] + struct.pack("<q", 2**31) + packed[frame:])
lists = written({**{"text": pa.array(["a"] * 3)}, "input_ids": pa.array([[7, 7], [7, 7, 7], [7]], pa.list_(pa.int16()))})
save("reject", "list-outside", patched(lists, struct.pack("<4i", 0, 2, 5, 6), struct.pack("<4i", 0, 2, 5, 60)))

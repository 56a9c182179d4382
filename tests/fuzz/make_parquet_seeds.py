"""make_parquet_seeds.py: tests/fuzz/{corpus,reject}/parquet, with pyarrow (tests/interop/run.sh makes a venv that has it)."""
import pathlib

import pyarrow
import pyarrow.parquet as parquet

here = pathlib.Path(__file__).parent
good, bad = here / "corpus/parquet", here / "reject/parquet"
table = pyarrow.table({"id": [1, 2, 3, 4], "meta": [{"a": [1]}, None, {"a": []}, {"a": None}], "text": ["a tale", None, "\u65e5\u672c\n\"", "a tale"],
                       "w": ["one", "", "one", "x" * 40]})
for name, more in {"snappy-dictionary": {"compression": "snappy"}, "plain": {"compression": "none", "use_dictionary": False},
                   "zstd-second-version": {"compression": "zstd", "data_page_version": "2.0"},
                   "gzip-lengths": {"compression": "gzip", "use_dictionary": False, "column_encoding": dict.fromkeys(("text", "w"), "DELTA_LENGTH_BYTE_ARRAY")},
                   "groups": {"compression": "none", "row_group_size": 2, "write_statistics": False}}.items():
    if "column_encoding" in more:
        more["column_encoding"] = {**more["column_encoding"]}
        parquet.write_table(table.select(["text", "w"]), good / f"ok-{name}", **more)
    else:
        parquet.write_table(table, good / f"ok-{name}", **more)
parquet.write_table(table, bad / "brotli", compression="brotli")
parquet.write_table(table.select(["text", "id"]), bad / "no-column")
parquet.write_table(table.select(["text"]).append_column("w", pyarrow.array([1, 2, 3, 4])), bad / "numbers")
parquet.write_table(table.select(["text"]).append_column("w", pyarrow.array([["a"], [], None, ["b"]])), bad / "lists")
parquet.write_table(table.select(["text", "w"]), bad / "delta", use_dictionary=False, column_encoding=dict.fromkeys(("text", "w"), "DELTA_BYTE_ARRAY"))
whole = (good / "ok-plain").read_bytes()
(bad / "cut").write_bytes(whole[:-1])
(bad / "short").write_bytes(b"PAR1")
(bad / "encrypted").write_bytes(whole[:-4] + b"PARE")
(bad / "footer-too-long").write_bytes(whole[:-8] + b"\xff\xff\xff\x7fPAR1")
(bad / "length-outside").write_bytes(whole.replace(b"\x06\x00\x00\x00a tale", b"\x06\x00\x00\x01a tale", 1))
(bad / "no-footer").write_bytes(b"PAR1" + b"\0" * 20 + b"\x10\0\0\0PAR1")


# ---- files that no library writes: parquet.thrift's structures by hand, of {field: value} ----


def varint(n):
    return bytes([n & 0x7F | 0x80]) + varint(n >> 7) if n > 0x7F else bytes([n])


def kind(value):
    return {int: 6, bytes: 8, list: 9, dict: 12}[type(value)]


def encode(value):
    """Of Thrift's compact protocol; all integers are I64, which readers take for all."""
    if isinstance(value, int):
        return varint(value << 1)
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, list):
        return bytes([len(value) << 4 | (kind(value[0]) if value else 12)]) + b"".join(map(encode, value))
    last, out = 0, b""
    for field, item in value.items():
        out += bytes([field - last << 4 | kind(item)]) + encode(item)
        last = field
    return out + b"\0"


def page(body, values, encoding, codec, kind=0, **second):
    packed = pyarrow.Codec("zstd", 19).compress(body, asbytes=True) if codec == 6 else body
    header = {7: {1: values, 2: encoding}} if kind == 2 else {5: {1: values, 2: encoding, 3: 3, 4: 3}}
    if second:
        header[8] = {5: second["levels"], 6: second["repetitions"]}
    return encode({1: kind, 2: len(body), 3: len(packed), **header}) + packed


def file(pages, rows, optional, codec=0, groups=None, more=()):
    """All columns have the same pages."""
    column = {3: {1: 6, 4: codec, 5: rows, 7: len(pages), 9: 4}}
    leaf = {1: 6, 3: optional}
    schema = [{4: b"schema", 5: 2 + bool(more)}, {**leaf, 4: b"text"}, {**leaf, 4: b"w"}, *more]
    leaves = 2 + sum(5 not in element for element in more)
    footer = encode({1: 1, 2: schema, 3: rows, 4: groups or [{1: [column] * leaves, 3: rows}]})
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


PLAIN, LENGTHS, WORDS = 0, 6, 8
word = b"\1\0\0\0a"
(good / "ok-by-hand").write_bytes(file(page(word, 1, PLAIN, 0), 1, 0))
(good / "ok-member-without-name").write_bytes(file(page(word, 1, PLAIN, 0), 1, 0, more=[{3: 0, 4: b"messages", 5: 1}, {1: 6, 3: 0}]))
(good / "ok-by-hand-words").write_bytes(file(page(word * 2, 2, PLAIN, 0, 2) + page(b"\2\0\0\0\2\1\1\2\1", 1, WORDS, 0), 1, 1))
# Of nulls alone, version 2 and snappy: levels are not compressed, and of no values no byte is written.
(good / "ok-nulls-second-version").write_bytes(file(encode({1: 3, 2: 2, 3: 2, 8: {1: 2, 2: 2, 3: 2, 4: PLAIN, 5: 2, 6: 0}}) + b"\4\0", 2, 1, 1))
# Rows that are in no group; and a list that has a value of a second row, in a group of one row.
one, two = page(word, 1, PLAIN, 0), page(b"\2\0\0\0\4\0" + b"\2\0\0\0\4\1" + word * 2, 2, PLAIN, 0)
once, twice = {3: {1: 6, 4: 0, 5: 1, 7: len(one), 9: 4}}, {3: {1: 6, 4: 0, 5: 2, 7: len(two), 9: 4 + len(one)}}
(bad / "rows-of-no-group").write_bytes(file(one, 2, 0, groups=[{1: [once, once], 3: 1}]))
(bad / "values-after-rows").write_bytes(file(one + two, 1, 0, groups=[{1: [once, once, twice], 3: 1}], more=[{1: 6, 3: 2, 4: b"messages"}]))
# A page of version 1 whose header has levels of version 2, so that the page's own begin at its end.
(bad / "levels-of-other-version").write_bytes(file(page(b"\1\0\0\0", 1, PLAIN, 0, levels=0, repetitions=4), 1, 1))
# A long run of numbers of words; then a page, longer, that has values and no numbers.
run = b"\2\0\0\0\2\1" + b"\1" + varint(100 << 1 | 1) + bytes(100)
(bad / "no-numbers").write_bytes(file(page(word * 2, 2, PLAIN, 6, 2) + page(run, 1, WORDS, 6) +
                                      page((300000).to_bytes(4, "little") + varint(299997 << 1 | 1) + b"\xff" * 299997, 1, WORDS, 6), 2, 1, 6))
(bad / "groups-without-columns").write_bytes(file(b"", 0, 0, groups=[{1: []}] * 14))
# 20 million empty strings of 60 bytes.
count = 20 << 20
lengths = varint(1 << 20) + varint(1) + varint(count) + varint(0) + b"\0\0" * 20
(bad / "too-many-lengths").write_bytes(file(page(lengths, count, LENGTHS, 0), count, 0))
# One string, of 180 million characters that are six bytes in JSON.
(bad / "row-too-long").write_bytes(file(page((180 * 10**6).to_bytes(4, "little") + bytes(180 * 10**6), 1, PLAIN, 6), 1, 0, 6))

# ---- nested columns ----

turn = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
talks = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}], [], None, [None, {"role": "tool", "content": "x"}]]
nested = table.append_column("messages", pyarrow.array(talks, pyarrow.list_(turn))).append_column(
    "input_ids", pyarrow.array([[[1, 2], []], None, [], [[-3], None, [4]]], pyarrow.list_(pyarrow.list_(pyarrow.int64())))).append_column(
    "flags", pyarrow.array([{"a": True, "b": [1]}, None, {"a": None, "b": None}, {"a": False, "b": [2**32 - 1]}],
                           pyarrow.struct([("a", pyarrow.bool_()), ("b", pyarrow.list_(pyarrow.uint32()))])))
parquet.write_table(nested, good / "ok-nested", compression="none")
parquet.write_table(nested, good / "ok-nested-second-version", data_page_version="2.0", use_dictionary=False, row_group_size=3, use_compliant_nested_type=False,
                    column_encoding={"flags.a": "RLE"}, version="2.6", compression="none")
parquet.write_table(table.append_column("flags", pyarrow.array([0.5] * 4)), bad / "floats")
parquet.write_table(table.append_column("flags", pyarrow.array([[("a", 1)]] * 4, pyarrow.map_(pyarrow.string(), pyarrow.int32()))), bad / "maps")


def chunk(path, leaf):
    """Where the pages of a leaf lie."""
    column = parquet.ParquetFile(path).metadata.row_group(0).column(leaf)
    return slice(column.data_page_offset, column.data_page_offset + column.total_compressed_size)


def talk(rows, name):
    rows = pyarrow.array([[{"role": "a", "content": "b"}] * n for n in rows], pyarrow.list_(turn))
    parquet.write_table(pyarrow.table({"text": ["t"] * len(rows), "w": ["w"] * len(rows), "messages": rows}), bad / name, compression="none", use_dictionary=False,
                        write_statistics=False)
    return bytearray((bad / name).read_bytes())


# The two members of a struct are in lists of other lengths.
one, other = talk([2, 1], "one"), talk([1, 2], "members-disagree")
place = chunk(bad / "one", 3)
assert place == chunk(bad / "members-disagree", 3)
other[place] = one[place]
(bad / "members-disagree").write_bytes(other)
# The first element of a row goes on with a list.
for leaf in (2, 3):
    place = chunk(bad / "one", leaf)
    assert one[place].count(b"\2\0\0\0\3\2") == 1
    one[place] = one[place].replace(b"\2\0\0\0\3\2", b"\2\0\0\0\3\3")
(bad / "row-goes-on").write_bytes(one)
(bad / "one").unlink()

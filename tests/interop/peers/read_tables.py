"""Reads Parquet files as READER does and compares them with the truth: read_tables.py READER JOBS.json.

A job names "truth" and "files". Truth is an .npz with "tokens", "offsets" (of rows in tokens, one more than there are rows), and "mode" if there
is such a column. A line for each job says how many rows agreed.
"""
import json
import pathlib
import sys

import numpy

READER = sys.argv[1]
ARROW = {"uint8": "uint8", "int8": "int8", "int16": "int16", "uint16": "uint16", "int32": "int32", "int64": "int64", "float32": "float", "float64": "double"}
DUCKDB = {"uint8": "UTINYINT", "int8": "TINYINT", "int16": "SMALLINT", "uint16": "USMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float32": "FLOAT",
          "float64": "DOUBLE"}


class Truth:
    def __init__(self, path):
        arrays = numpy.load(path)
        self.tokens, self.offsets = arrays["tokens"], arrays["offsets"]
        self.mode = arrays["mode"] if "mode" in arrays else None
        self.rows = len(self.offsets) - 1
        self.lengths = numpy.diff(self.offsets)

    def compare(self, lists, first=0, mode=None):
        """A pyarrow array of lists against rows from `first` on."""
        end = first + len(lists)
        assert end <= self.rows, (end, self.rows)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        assert numpy.array_equal(lengths, self.lengths[first:end]), "lengths"
        values = lists.flatten().to_numpy(zero_copy_only=False)
        assert numpy.array_equal(values, self.tokens[self.offsets[first]:self.offsets[end]]), "tokens"
        if mode is not None:
            assert numpy.array_equal(mode.to_numpy(zero_copy_only=False), self.mode[first:end]), "mode"
        return end

    def compare_table(self, table, first=0):
        """Any number of chunks, of rows from `first` on."""
        for batch in table.to_batches():
            first = self.compare(batch["input_ids"], first, batch["mode"] if "mode" in table.column_names else None)
        return first

    def row(self, i):
        return self.tokens[self.offsets[i]:self.offsets[i + 1]].tolist()


def some(truth, count=50):
    """Numbers of rows: the ends, and random ones."""
    draw = numpy.random.default_rng(3)
    return [] if not truth.rows else sorted({0, truth.rows - 1, *draw.integers(0, truth.rows, count).tolist()})


def read_pyarrow(truth, files):
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet

    row = 0
    for path in files:
        file = pyarrow.parquet.ParquetFile(path)
        want = pyarrow.list_(pyarrow.field("element", getattr(pyarrow, "float32" if truth.tokens.dtype == "float32" else str(truth.tokens.dtype))()))
        assert file.schema_arrow.field("input_ids").type == want, file.schema_arrow
        before = row
        for group in range(file.num_row_groups):
            row = truth.compare_table(file.read_row_group(group), row)
        assert before + file.metadata.num_rows == row
        assert truth.compare_table(pyarrow.parquet.read_table(path), before) == row
        at = before
        for batch in file.iter_batches(batch_size=1777):
            at = truth.compare_table(pyarrow.Table.from_batches([batch]), at)
        assert at == row
        if truth.mode is not None:
            mode = file.read(columns=["mode"])
            assert mode.column_names == ["mode"] and numpy.array_equal(mode["mode"].to_numpy(), truth.mode[before:row])
    assert row == truth.rows
    rows = some(truth)
    taken = pyarrow.dataset.dataset(files).take(rows)
    assert taken["input_ids"].to_pylist() == [truth.row(i) for i in rows]
    return row


def read_pandas(truth, files):
    import pandas

    frame = pandas.concat([pandas.read_parquet(path) for path in files], ignore_index=True)
    assert len(frame) == truth.rows
    lengths = frame["input_ids"].map(len).to_numpy(dtype=numpy.int64)
    assert numpy.array_equal(lengths, truth.lengths)
    if truth.rows:
        values = numpy.concatenate(frame["input_ids"].to_list())
        assert values.dtype == truth.tokens.dtype and numpy.array_equal(values, truth.tokens)
    if truth.mode is not None:
        assert numpy.array_equal(frame["mode"], truth.mode) and str(frame["mode"].dtype) == "int8"
    return len(frame)


def read_duckdb(truth, files):
    import duckdb

    db = duckdb.connect()
    db.execute("SET preserve_insertion_order = true")
    source = f"read_parquet({files!r})"
    ask = lambda words: db.execute(f"SELECT {words}").fetchall()
    assert db.execute(f"DESCRIBE SELECT input_ids FROM {source}").fetchall()[0][1] == DUCKDB[str(truth.tokens.dtype)] + "[]"
    assert ask(f"count(*) FROM {source}") == [(truth.rows,)]
    assert ask(f"count(*) FROM {source} WHERE len(input_ids) = 0") == [(int((truth.lengths == 0).sum()),)]
    if truth.tokens.dtype.kind != "f" and len(truth.tokens):
        assert ask(f"sum(list_sum(input_ids)), max(list_max(input_ids)) FROM {source}") == [(int(truth.tokens.astype(object).sum()), int(truth.tokens.max()))]
    rows = db.execute(f"SELECT * FROM {source}").to_arrow_table()
    assert truth.compare_table(rows) == truth.rows
    for i in some(truth, 8):
        assert ask(f"input_ids FROM {source} LIMIT 1 OFFSET {i}") == [(truth.row(i),)], i
    if truth.mode is not None:
        got = ask(f"mode, count(*), sum(len(input_ids)) FROM {source} GROUP BY mode ORDER BY mode")
        assert got == [(int(m), int((truth.mode == m).sum()), int(truth.lengths[truth.mode == m].sum())) for m in numpy.unique(truth.mode)]
    return len(rows)


def read_polars(truth, files):
    import polars

    frame = polars.read_parquet(files)
    assert str(frame.schema["input_ids"].inner).lower() == str(truth.tokens.dtype), frame.schema
    assert truth.compare_table(frame.rechunk().to_arrow(compat_level=polars.CompatLevel.oldest()).cast(arrow_schema(truth))) == truth.rows
    lazy = polars.scan_parquet(files)
    assert lazy.select(polars.len()).collect().item() == truth.rows
    for i in some(truth, 8):
        assert lazy.slice(i, 3).collect()["input_ids"].to_list() == [truth.row(k) for k in range(i, min(i + 3, truth.rows))], i
    assert lazy.filter(polars.col("input_ids").list.len() == 0).collect().height == int((truth.lengths == 0).sum())
    if truth.mode is not None:
        assert numpy.array_equal(lazy.select("mode").collect()["mode"].to_numpy(), truth.mode)
    return frame.height


def arrow_schema(truth):
    import pyarrow

    value = pyarrow.from_numpy_dtype(truth.tokens.dtype)
    fields = [("input_ids", pyarrow.list_(value))] + ([("mode", pyarrow.int8())] if truth.mode is not None else [])
    return pyarrow.schema(fields)


for job in json.loads(pathlib.Path(sys.argv[2]).read_text()):
    print(f"{READER}: {job['truth']}", end=" ", flush=True)
    print(globals()["read_" + READER](Truth(job["truth"]), job["files"]), "rows")

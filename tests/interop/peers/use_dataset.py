"""An HF directory that we show, used as `datasets` uses one: every row must be what numpy reads from the .bin.

use_dataset.py DIR PREFIX... [FIRST:END] [-- DIR PREFIX...]...    rows FIRST to END of the prefixes' sequences, one after the other; all

Prints a line of JSON for each directory: null, or what went wrong, of each check.
"""
import itertools
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import traceback

import datasets
import numpy
import pyarrow
import pyarrow.ipc
import torch

DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}


def sequences(prefix):
    """Megatron's own layout (indexed_dataset.py): the arrays of PREFIX, one a sequence."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    magic, version, code, count, entries = struct.unpack_from("<9sQBQQ", index)
    assert magic == b"MMIDIDX\0\0" and version == 1
    lengths = numpy.frombuffer(index, "<i4", count, 34)
    pointers = numpy.frombuffer(index, "<i8", count, 34 + 4 * count)
    modes = numpy.frombuffer(index, "i1", -1, 34 + 12 * count + 8 * entries)
    tokens = pathlib.Path(f"{prefix}.bin").read_bytes()
    dtype = numpy.dtype(DTYPES[code])
    return [numpy.frombuffer(tokens, dtype, n, at) if n else numpy.empty(0, dtype) for n, at in zip(lengths, pointers)], modes


class Case:
    def __init__(self, path, prefixes, part):
        read = [sequences(prefix) for prefix in prefixes]
        first, end = part or (0, None)
        self.path = path
        self.rows = [row for rows, _ in read for row in rows][first:end]
        self.modes = numpy.concatenate([modes for _, modes in read])[first:end]
        self.dtype = str(read[0][0][0].dtype)

    def load(self):
        return datasets.load_from_disk(self.path)

    def files(self):
        state = json.loads(pathlib.Path(self.path, "state.json").read_text())
        return [os.path.join(self.path, entry["filename"]) for entry in state["_data_files"]]


def same(found, wanted, what="row"):
    found = list(found)
    assert len(found) == len(wanted), f"{len(found)} rows, not {len(wanted)}"
    for i, (a, b) in enumerate(zip(found, wanted)):
        assert numpy.array_equal(numpy.asarray(a), b), f"{what} {i} differs"


def tokens(examples):
    return (example["input_ids"] for example in examples)


# ---- checks ----

def features(case):
    dataset = case.load()
    assert dataset.num_rows == len(case.rows), dataset.num_rows
    assert dataset.features["input_ids"].feature.dtype == case.dtype, dataset.features
    item = pyarrow.field("item", pyarrow.from_numpy_dtype(case.dtype), nullable=True)
    wanted = [pyarrow.field("input_ids", pyarrow.list_(item))]
    if len(case.modes):
        wanted.append(pyarrow.field("mode", pyarrow.int8()))
        assert dataset["mode"][:] == case.modes.tolist()
    assert dataset.data.schema.remove_metadata() == pyarrow.schema(wanted), dataset.data.schema
    assert dataset.features.arrow_schema.remove_metadata() == pyarrow.schema(wanted)


def rows(case):
    dataset = case.load()
    same(tokens(dataset), case.rows)
    same(dataset[:]["input_ids"], case.rows)
    for i in (0, len(case.rows) // 2, -1):
        assert dataset[i]["input_ids"] == case.rows[i].tolist()
    assert dataset[3:50:7]["input_ids"] == [row.tolist() for row in case.rows[3:50:7]]
    assert dataset[[5, 1, 5]]["input_ids"] == [case.rows[i].tolist() for i in (5, 1, 5)]
    same(tokens(case.load().with_format("numpy", columns=["input_ids"])), case.rows)
    same(tokens(case.load().with_format("arrow")[:].to_pylist()), case.rows)


def arrow(case):
    """pyarrow alone, through a mapping and through plain reads."""
    for opened in (pyarrow.memory_map, pyarrow.OSFile):
        tables = []
        for file in case.files():
            with opened(file) as stream, pyarrow.ipc.open_stream(stream) as reader:
                tables.append(reader.read_all())
                tables[-1].validate(full=True)
        same(pyarrow.concat_tables(tables)["input_ids"].to_pylist(), case.rows)


def mapped(case):
    """Two processes; a second time from what they left beside the data."""
    for _ in range(2):
        lengths = case.load().map(lambda row: {"length": len(row["input_ids"])}, num_proc=2)
        assert lengths["length"][:] == [len(row) for row in case.rows]
        same(tokens(lengths), case.rows)
    batched = case.load().map(lambda rows: {"sum": [sum(map(int, row)) for row in rows["input_ids"]]}, batched=True, remove_columns=case.load().column_names)
    assert batched["sum"][:] == [int(row.astype("int64").sum()) for row in case.rows]


def shuffled(case):
    dataset = case.load().shuffle(seed=7)
    order = numpy.random.default_rng(7).permutation(len(case.rows))
    same(tokens(dataset), [case.rows[i] for i in order])
    same(tokens(dataset.flatten_indices()), [case.rows[i] for i in order])
    chosen = list(range(len(case.rows) - 1, 0, -3))
    same(tokens(case.load().select(chosen)), [case.rows[i] for i in chosen])
    parts = case.load().train_test_split(test_size=0.25, seed=1)
    count = {tuple(row.tolist()) for row in case.rows}
    assert parts["train"].num_rows + parts["test"].num_rows == len(case.rows)
    assert {tuple(row) for part in parts.values() for row in part["input_ids"][:]} == count


def filtered(case):
    dataset = case.load().filter(lambda row: len(row["input_ids"]) % 2 == 0, num_proc=2)
    same(tokens(dataset), [row for row in case.rows if len(row) % 2 == 0])
    longest = case.load().map(lambda row: {"length": len(row["input_ids"])}).sort("length")
    assert longest["length"][:] == sorted(len(row) for row in case.rows)


def streamed(case):
    dataset = case.load()
    same(tokens(dataset.to_iterable_dataset(num_shards=3)), case.rows)
    files = datasets.load_dataset("arrow", data_files=case.files(), split="train", streaming=True)
    same(tokens(files), case.rows)
    shuffled = files.shuffle(seed=3, buffer_size=50)
    assert sorted(map(tuple, tokens(shuffled))) == sorted(tuple(row.tolist()) for row in case.rows)


def in_torch(case):
    dataset = case.load().with_format("torch", columns=["input_ids"])
    wanted = torch.int64 if not case.dtype.startswith("float") else torch.float32
    for row, truth in zip(tokens(dataset), case.rows):
        assert row.dtype == wanted and torch.equal(row, torch.from_numpy(truth.astype("float32" if wanted == torch.float32 else "int64")))
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    same(tokens(loader), case.rows)


def pickled(case):
    """What a worker that is not forked gets: paths, not bytes."""
    whole = pickle.dumps(case.load())
    assert len(whole) < 100_000 + 200 * len(case.files()), f"{len(whole)} bytes"
    code = "import sys, pickle; d = pickle.load(sys.stdin.buffer); print(sum(len(row['input_ids']) for row in d))"
    done = subprocess.run([sys.executable, "-c", code], input=whole, capture_output=True, timeout=900)
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout) == sum(map(len, case.rows))


CHECKS = [features, rows, arrow, mapped, shuffled, filtered, streamed, in_torch, pickled]


def main(path, *arguments):
    part = tuple(map(int, arguments[-1].split(":"))) if ":" in arguments[-1] else None
    case, answers = Case(path, arguments[:-1] if part else arguments, part), {"versions": f"{datasets.__version__} {pyarrow.__version__}"}
    for check in CHECKS:
        try:
            check(case)
            answers[check.__name__] = None
        except Exception:
            answers[check.__name__] = traceback.format_exc()[-1500:]
    print("answer:", json.dumps(answers), flush=True)


if __name__ == "__main__":
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    for _, words in itertools.groupby(sys.argv[1:], "--".__ne__):
        words = list(words)
        if words != ["--"]:
            main(*words)

"""data/NAME/hf: `datasets` 2.21, 3.6, 4.8 and the main set's use it, by way of load_from_disk and without; pyarrow reads its files.

What a dataset must hold is numpy's own reading of .idx and .bin (peers/use_dataset.py).
"""
import contextlib
import errno
import json
import mmap
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import numpy
import pytest

import program
import venvs
from swept import todays

HERE = pathlib.Path(__file__).parent
SECONDS = 1800
VERSIONS = [*todays(["datasets2", "datasets3", "datasets4"], 1), "main"]
CHECKS = ["features", "rows", "arrow", "mapped", "shuffled", "filtered", "streamed", "in_torch", "pickled"]
DTYPES = ["uint8", "int64", "float32"]
CODES = {"uint8": 1, "int32": 4, "int64": 5, "float32": 7, "uint16": 8}


def write(prefix, rows, modes=None):
    """PREFIX.idx and .bin, one document a sequence (megatron/core/datasets/indexed_dataset.py)."""
    lengths = numpy.array([len(row) for row in rows], "<i4")
    size = rows[0].dtype.itemsize
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths[:-1], dtype="<i8") * size]).astype("<i8")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[str(rows[0].dtype)], len(rows), len(rows) + 1)
    arrays = [lengths, pointers, numpy.arange(len(rows) + 1, dtype="<i8")] + ([modes.astype("i1")] if modes is not None else [])
    pathlib.Path(f"{prefix}.idx").write_bytes(header + b"".join(map(bytes, arrays)))
    pathlib.Path(f"{prefix}.bin").write_bytes(b"".join(map(bytes, rows)))
    return prefix


def random_rows(dtype, count, longest, seed):
    draw = numpy.random.default_rng(seed)
    top = min(numpy.iinfo(dtype).max, 200_000) if dtype != "float32" else 200_000
    return [draw.integers(0, top, 0 if draw.random() < 0.2 else draw.integers(1, longest)).astype(dtype) for _ in range(count)]


def python(version):
    try:
        return venvs.python(version, version) if version != "main" else sys.executable
    except venvs.Missing as why:
        pytest.skip(str(why))


def used(version, cases):
    """What the checks of peers/use_dataset.py find of each (directory, arguments...), in one process: its imports take longer than its checks."""
    words = [str(word) for case in cases for word in ("--", *case)]
    with tempfile.TemporaryDirectory(prefix="mcorefs-home-") as home:
        done = subprocess.run([python(version), HERE / "peers" / "use_dataset.py", *words], capture_output=True, text=True,
                              timeout=SECONDS, env=dict(os.environ, HF_HOME=home))
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line.removeprefix("answer: ")) for line in done.stdout.splitlines() if line.startswith("answer: ")]
    assert len(found) == len(cases), done.stdout
    return found


@contextlib.contextmanager
def shown(source, view, cache, **options):
    """The view; mounted so that `datasets` may write beside it, into `cache`."""
    if program.can_mount():
        options["dataset_cache"] = cache
    with program.hf(source, view, **options) as directory:
        yield directory


def sources(fixtures, directory):
    """name: (source, dataset, options, arguments of the peer)"""
    tales, notes = (fixtures / "data" / f"{name}_text_document" for name in ("tales", "notes"))
    wide = write(directory / "wide", random_rows("int32", 500, 60, 1), numpy.random.default_rng(1).integers(0, 2, 500))
    typed = {dtype: write(directory / dtype, random_rows(dtype, 200, 30, 2)) for dtype in DTYPES}
    return {
        "merged": (fixtures / "data", "both", {"merge": "both"}, [notes, tales]),
        # Many files of one batch or two, tokens that are looked at, a column in addition to them.
        "batches": (wide, "wide", {"arrow_batch": "3000B", "vocab_size": 200_000}, [wide]),
        "validation": (tales, "tales_text_document", {"split": "90/8/2"}, [tales, "216:235"]),
        **{dtype: (prefix, dtype, {}, [prefix]) for dtype, prefix in typed.items()},
    }


USED = [(version, name) for version in VERSIONS for name in ("merged", "batches")] + [("main", name) for name in ("validation", *DTYPES)]


@pytest.fixture(scope="session")
def answers(fixtures, tmp_path_factory):
    """answers(version, name): of one process of a version, which makes all checks of all sources."""
    found, written = {}, tmp_path_factory.mktemp("data")

    def of(version, name):
        if version not in found:
            names, cases = [n for v, n in USED if v == version], []
            with contextlib.ExitStack() as stack:
                for source, dataset, options, arguments in map(sources(fixtures, written).get, names):
                    directory = stack.enter_context(shown(source, f"data/{dataset}/hf", tmp_path_factory.mktemp("cache"), **options))
                    cases.append((directory / "validation" if "split" in options else directory, *arguments))
                found[version] = dict(zip(names, used(version, cases)))
            print(found[version][name]["versions"])
        return found[version][name]

    return of


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("version, name", USED)
def test_used(answers, version, name, check):
    problem = answers(version, name)[check]
    assert problem is None, problem


@pytest.mark.parametrize("version", VERSIONS)
def test_dict(fixtures, version, tmp_path):
    """A DatasetDict, with a split that has no rows: of the same features, and nobody stumbles over it."""
    code = """
import datasets, json, sys
d = datasets.load_from_disk(sys.argv[1])
assert list(d) == ["train", "validation", "test"], list(d)
assert isinstance(d, datasets.DatasetDict)
assert d["test"].features == d["train"].features and d["test"][:] == {"input_ids": []} and list(d["test"]) == []
both = d.map(lambda row: {"length": len(row["input_ids"])})
assert both["test"].num_rows == 0
whole = datasets.concatenate_datasets([d["train"], d["test"], d["validation"]])
print(json.dumps([d.num_rows, {str(s.split) for s in d.values()} == set(d), [len(row) for row in whole["input_ids"][:]]]))
"""
    source = fixtures / "data" / "tales_text_document"
    with shown(source, "data/tales_text_document/hf", tmp_path, split="99/1/0") as directory:
        done = subprocess.run([python(version), "-c", code, directory], capture_output=True, text=True, timeout=SECONDS, env=dict(os.environ, HF_HOME=str(tmp_path / "home")))
    assert done.returncode == 0, done.stderr[-3000:]
    rows, named, lengths = json.loads(done.stdout.splitlines()[-1])
    assert rows == {"train": 238, "validation": 2, "test": 0} and named
    assert lengths == numpy.frombuffer(pathlib.Path(f"{source}.idx").read_bytes(), "<i4", 240, 34).tolist()


def test_no_rows(tmp_path):
    """A dataset without a document is one file with a schema alone."""
    import datasets
    pathlib.Path(tmp_path, "x.idx").write_bytes(struct.pack("<9sQBQQq", b"MMIDIDX\0\0", 1, 4, 0, 1, 0))
    pathlib.Path(tmp_path, "x.bin").write_bytes(b"")
    with program.hf(tmp_path / "x", "data/x/hf") as directory:
        assert len(list(directory.glob("*.arrow"))) == 1
        dataset = datasets.load_from_disk(str(directory))
        assert dataset.num_rows == 0 and dataset.features["input_ids"].feature.dtype == "int32"


def fingerprint(source, **options):
    with program.hf(source, "data/x/hf", **options) as directory:
        return json.loads((directory / "state.json").read_text())["_fingerprint"]


def test_fingerprint(tmp_path):
    """The same for the same data, another for any other: `datasets` finds the results of map() by it."""
    rows = random_rows("int32", 50, 30, 3)
    write(tmp_path / "x", rows)
    first = fingerprint(tmp_path / "x")
    assert re.fullmatch("[0-9a-f]{16}", first) and fingerprint(tmp_path / "x") == first
    write(tmp_path / "x", rows[::-1])
    assert fingerprint(tmp_path / "x") != first
    with program.hf(tmp_path / "x", "data/x/hf", split="40/40/20") as directory:
        parts = [json.loads((directory / part / "state.json").read_text())["_fingerprint"] for part in ("train", "validation", "test")]
    assert len({first, *parts}) == 4


# ---- rows that cannot be had ----

def read_rows(directory, rows):
    """Each row, by a plain read of its own values in its file; None where they cannot be had."""
    import pyarrow
    found = []
    for file in sorted(directory.glob("*.arrow")):
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            whole = pyarrow.py_buffer(mapped)
            with pyarrow.ipc.open_stream(whole) as reader:
                for batch in reader:
                    found += read_batch(opened.fileno(), whole.address, batch.column(0), rows[0].dtype)
            del batch, reader, whole
    return found


def read_batch(file, base, column, dtype):
    offsets = (numpy.frombuffer(column.buffers()[1], "<i4", len(column) + 1) * dtype.itemsize).tolist()
    start = column.buffers()[3].address - base
    return [read_row(file, start + a, b - a, dtype) for a, b in zip(offsets, offsets[1:])]


def read_row(file, offset, length, dtype):
    try:
        found = os.pread(file, length, offset)
    except OSError as error:
        assert error.errno == errno.EIO
        return None
    return numpy.frombuffer(found, dtype) if len(found) == length else None  # short: the next page is EIO


def test_short_bin(needs_mount, tmp_path):
    """A .bin that was cut costs the rows behind, and not a single one before."""
    rows = random_rows("int32", 4000, 60, 4)
    write(tmp_path / "x", rows)
    ends = numpy.cumsum([len(row) for row in rows])
    cut = 3333
    os.truncate(tmp_path / "x.bin", int(ends[cut]) * 4 + 6)
    good = int(numpy.searchsorted(ends, ends[cut] + 1, "right"))  # rows that end by then
    with program.mounted(tmp_path / "x") as point:
        found = read_rows(point / "data/x/hf", rows)
    for i, (a, b) in enumerate(zip(found, rows)):
        assert (a is None) == (i >= good and len(b) > 0), i
        assert a is None or numpy.array_equal(a, b), i


def test_short_bin_mapped(needs_mount, tmp_path):
    """`datasets` maps the same dataset and reads all rows that are there."""
    rows = random_rows("int32", 4000, 60, 4)
    write(tmp_path / "x", rows)
    whole = sum(len(row) for row in rows[:3000])
    os.truncate(tmp_path / "x.bin", whole * 4)
    code = "import datasets, sys; d = datasets.load_from_disk(sys.argv[1]); print(len(d), sum(len(row) for row in d[:3000]['input_ids']), sum(map(sum, d[:3000]['input_ids'])))"
    with program.mounted(tmp_path / "x") as point:
        done = subprocess.run([sys.executable, "-c", code, point / "data/x/hf"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["4000", str(whole), str(sum(int(row.sum()) for row in rows[:3000]))]


def test_outside_of_the_vocabulary(needs_mount, tmp_path):
    """EIO for what shares a page with a token that no embedding has a row for; everything else is there."""
    rows = random_rows("int32", 4000, 60, 5)
    top = max(int(row.max()) for row in rows if len(row))
    wrong = next(i for i in range(2000, 4000) if len(rows[i]) > 3)
    rows[wrong][1] = top + 1
    write(tmp_path / "x", rows)
    with program.mounted(tmp_path / "x", vocab_size=top + 1) as point:
        found = read_rows(point / "data/x/hf", rows)
    lost = [i for i, row in enumerate(found) if row is None]
    assert wrong in lost and sum(len(rows[i]) for i in lost) <= 3 * 1024
    assert all(numpy.array_equal(a, b) for a, b in zip(found, rows) if a is not None)
    with program.mounted(tmp_path / "x", vocab_size=top + 2) as point:
        assert all(row is not None for row in read_rows(point / "data/x/hf", rows))

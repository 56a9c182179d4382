"""A .bin that ends early, through pyarrow and `datasets`: rows that are there are right, others are errors, never other tokens."""
import shutil
import subprocess
import sys

import datasets
import numpy
import pyarrow.parquet
import pytest
from megatron.core.datasets.indexed_dataset import IndexedDataset

import program

NAME = "tales_text_document"
CUT = 200001


@pytest.fixture
def damaged(fixtures, tmp_path, needs_mount):
    """A view of the damaged dataset; the documents that it had; how many of them are whole."""
    for suffix in ("bin", "idx"):
        shutil.copy(fixtures / "data" / f"{NAME}.{suffix}", tmp_path)
    whole = IndexedDataset(str(fixtures / "data" / NAME))
    documents = [whole[i].tolist() for i in range(len(whole))]
    ends = numpy.cumsum([2 * len(document) for document in documents])
    with (tmp_path / f"{NAME}.bin").open("r+b") as file:
        file.truncate(CUT)
    with program.mounted(tmp_path) as point:
        yield point / "data" / NAME, documents, int((ends <= CUT).sum())


def test_parquet(damaged):
    view, documents, inside = damaged
    file = pyarrow.parquet.ParquetFile(view / "parquet" / "data-00000-of-00001.parquet")
    assert file.metadata.num_rows == len(documents)
    rows = errors = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        try:
            found = file.read_row_group(group)["input_ids"].to_pylist()
            assert found == documents[rows : rows + count]
            assert rows + count <= inside
        except OSError:
            assert rows >= inside
            errors += count
        rows += count
    assert rows == len(documents) and errors == len(documents) - inside


def test_datasets(damaged):
    view, documents, inside = damaged
    found = datasets.load_from_disk(view / "hf")
    assert len(found) == len(documents)
    assert found[:inside]["input_ids"] == documents[:inside]
    assert found[inside - 1]["input_ids"] == documents[inside - 1]
    # A row that is not there cannot be mapped: the kernel ends a process that touches it, so it learns nothing false.
    for row in (inside, len(documents) - 1):
        code = f"import datasets; print(datasets.load_from_disk({str(view / 'hf')!r})[{row}])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=program.SECONDS)
        assert done.returncode and not done.stdout, (row, done.stdout[:100])
    assert found[0]["input_ids"] == documents[0]


def test_numpy(damaged):
    view, documents, inside = damaged
    offsets = numpy.load(view / "npy" / "offsets.npy")
    assert numpy.diff(offsets).tolist() == [len(document) for document in documents]
    whole_pages = offsets[inside] * 2 // 4096 * 4096 // 2 - 64
    tokens = numpy.memmap(view / "npy" / "tokens.npy", dtype=numpy.uint16, mode="r", offset=128)
    flat = [token for document in documents[:inside] for token in document]
    assert tokens[:whole_pages].tolist() == flat[:whole_pages]


def test_nothing_in_it(tmp_path, needs_mount):
    """No rows; rows without tokens; some of either: each is opened by its reader and holds what it holds."""
    lengths = {"nothing": [], "zero": [0, 0, 0], "mixed": [0, 3, 0, 0, 4, 0]}
    for name, counts in lengths.items():
        numpy.ones(sum(counts), numpy.int32).tofile(tmp_path / f"{name}.bin")
        ends = numpy.cumsum([0, *counts])
        with (tmp_path / f"{name}.idx").open("wb") as file:
            file.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\4")
            numpy.array([len(counts), len(counts) + 1], numpy.int64).tofile(file)
            numpy.array(counts, numpy.int32).tofile(file)
            (ends[:-1] * 4).astype(numpy.int64).tofile(file)
            numpy.arange(len(counts) + 1, dtype=numpy.int64).tofile(file)
    with program.mounted(tmp_path) as point:
        for name, counts in lengths.items():
            view, rows = point / "data" / name, [[1] * count for count in counts]
            found = datasets.load_from_disk(view / "hf")
            assert len(found) == len(rows) and [row["input_ids"] for row in found] == rows
            assert pyarrow.parquet.read_table(view / "parquet" / "data-00000-of-00001.parquet")["input_ids"].to_pylist() == rows
            assert numpy.load(view / "npy" / "tokens.npy").tolist() == [1] * sum(counts)
            assert numpy.load(view / "npy" / "offsets.npy").tolist() == [0, *numpy.cumsum(counts).tolist()]

"""data/NAME/parquet, npy, jsonl and megatron: what pyarrow, DuckDB, Polars, pandas, `datasets`, numpy, json and megatron-core read in them.

What a dataset must hold is what it was made of here, or numpy's own reading of .idx and .bin.
"""
import contextlib
import functools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

import numpy
import pytest

import program
import venvs
from swept import todays

HERE = pathlib.Path(__file__).parent
SECONDS = 1800
READERS = ["pyarrow", "duckdb", "polars", "pandas"]
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


class Data:
    """A dataset and what is in it: sequences one behind the other in `tokens`."""

    def __init__(self, lengths, tokens, documents=None, modes=None):
        self.lengths, self.tokens = numpy.asarray(lengths, "<i4"), tokens
        self.offsets = numpy.concatenate([[0], numpy.cumsum(self.lengths, dtype="<i8")]).astype("<i8")
        self.documents = numpy.arange(len(lengths) + 1, dtype="<i8") if documents is None else numpy.asarray(documents, "<i8")
        self.modes = None if modes is None else numpy.asarray(modes, "i1")

    @staticmethod
    def random(dtype, count, longest, empty=0.1, seed=1, documents=False, modes=False):
        draw = numpy.random.default_rng(seed)
        lengths = numpy.where(draw.random(count) < empty, 0, draw.integers(1, longest, count))
        top = 1 << 20 if dtype.startswith("float") else int(numpy.iinfo(dtype).max)
        tokens = draw.integers(0, top, int(lengths.sum())).astype(dtype)
        ends = numpy.sort(draw.integers(0, count + 1, count // 3)) if documents else None
        return Data(lengths, tokens, None if ends is None else [0, *ends, count], draw.integers(0, 2, count) if modes and count else None)  # without sequences nothing tells modes

    @staticmethod
    def read(prefix):
        """numpy's reading of what Megatron wrote: uint16, one document a sequence."""
        idx = pathlib.Path(f"{prefix}.idx").read_bytes()
        count = struct.unpack_from("<Q", idx, 18)[0]
        return Data(numpy.frombuffer(idx, "<i4", count, 34), numpy.fromfile(f"{prefix}.bin", "<u2"))

    def idx(self, pointers=None):
        count, size = len(self.lengths), self.tokens.itemsize
        header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[str(self.tokens.dtype)], count, len(self.documents))
        pointers = self.offsets[:-1] * size if pointers is None else pointers
        return header + self.lengths.tobytes() + pointers.astype("<i8").tobytes() + self.documents.tobytes() + (b"" if self.modes is None else self.modes.tobytes())

    def write(self, prefix):
        pathlib.Path(f"{prefix}.idx").write_bytes(self.idx())
        self.tokens.tofile(f"{prefix}.bin")
        return prefix

    def part(self, first, end):
        return Data(self.lengths[first:end], self.tokens[self.offsets[first]:self.offsets[end]], None, None if self.modes is None else self.modes[first:end])

    def save(self, path):
        numpy.savez(path, tokens=self.tokens, offsets=self.offsets, lengths=self.lengths, documents=self.documents,
                    **({} if self.modes is None else {"mode": self.modes, "modes": self.modes}))
        return path

    def rows(self):
        return [row.tolist() for row in numpy.split(self.tokens, self.offsets[1:-1])] if len(self.lengths) else []


@contextlib.contextmanager
def view(source, name, **options):
    """A directory of data/."""
    with program.hf(source, f"data/{name}", **options) as path:
        yield path


def run(python, script, *arguments, **environment):
    done = subprocess.run([python, HERE / "peers" / script, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout.strip())


@functools.cache
def tables():
    return venvs.python("tables", "DuckDB, Polars")


class Tables:
    """What one process of peers/read_tables.py is asked to compare."""

    def __init__(self, place):
        self.place, self.jobs = place, []

    def add(self, data, directory, pattern="*.parquet"):
        truth = data.save(self.place / f"truth-{len(self.jobs)}.npz")
        self.jobs.append({"truth": str(truth), "files": sorted(map(str, directory.glob(pattern)))})

    def check(self, reader):
        try:
            python = tables()
        except venvs.Missing as why:
            pytest.skip(str(why))
        (self.place / "jobs.json").write_text(json.dumps(self.jobs))
        run(python, "read_tables.py", reader, self.place / "jobs.json")


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """Many pages, several row groups by rows and by tokens, empty rows, one row that is a row group by itself."""
    data = Data.random("int32", 1_300_000, 30, seed=5, documents=True, modes=True)
    lengths = numpy.insert(data.lengths, [700_000], 17_000_000)
    tokens = numpy.insert(data.tokens, data.offsets[700_000], numpy.arange(17_000_000) % 50_257)
    data = Data(lengths, tokens, [0, len(lengths)], numpy.insert(data.modes, 700_000, 1))
    return data, data.write(tmp_path_factory.mktemp("large") / "large")


CASES = {
    **{dtype: (dtype, 3000, 40) for dtype in CODES},
    "no-empty": ("uint16", 3000, 40, 0.0),
    "only-empty": ("uint16", 3000, 40, 1.0),
    "mostly-empty": ("int32", 100_000, 9, 0.7),
    "long-rows": ("uint16", 40, 200_000, 0.2),
    "one-row": ("int32", 1, 2, 0.0),
    "nothing": ("int32", 0, 2),
}


# ---- Parquet ----

@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """All cases, with modes and without: a directory of prefixes, and what is in them."""
    place = tmp_path_factory.mktemp("corpora")
    found = {f"{case}{'-modes' if modes else ''}": Data.random(*arguments, documents=True, modes=modes) for case, arguments in CASES.items() for modes in (False, True)}
    for name, data in found.items():
        data.write(place / name)
    return place, found


@pytest.mark.parametrize("reader", todays(READERS, 2))
def test_tables(reader, corpora, large, tmp_path):
    """Each reader in one process: all cases, the splits of one, and one of many row groups."""
    place, found = corpora
    asked = Tables(tmp_path)
    with contextlib.ExitStack() as stack:
        for name, data in found.items():
            asked.add(data, stack.enter_context(view(place / name, f"{name}/parquet")))
        directory = stack.enter_context(view(place / "uint16-modes", "uint16-modes/parquet", split="80;15;5"))
        assert sorted(path.name for path in directory.iterdir()) == [f"{name}-00000-of-00001.parquet" for name in ("test", "train", "validation")]
        for name, first, end in (("train", 0, 2400), ("validation", 2400, 2850), ("test", 2850, 3000)):
            asked.add(found["uint16-modes"].part(first, end), directory, f"{name}-*.parquet")
        asked.add(large[0], stack.enter_context(view(large[1], "large/parquet")))
        asked.check(reader)


def test_hf_parquet(large, tmp_path):
    """streaming=True reads the files as they are; without it they are copied."""
    import datasets

    data, prefix = large
    with view(prefix, "large/parquet") as directory:
        streamed = datasets.load_dataset("parquet", data_files=str(directory / "*.parquet"), split="train", streaming=True, cache_dir=str(tmp_path))
        row = 0
        for batch in streamed.with_format("arrow").iter(batch_size=50_000):
            lists = batch["input_ids"].combine_chunks()
            assert numpy.array_equal(lists.value_lengths().to_numpy(), data.lengths[row:row + len(lists)])
            assert numpy.array_equal(lists.flatten().to_numpy(), data.tokens[data.offsets[row]:data.offsets[row + len(lists)]])
            row += len(lists)
        assert row == len(data.lengths)
    small = Data.random("uint16", 500, 50)
    with view(small.write(tmp_path / "small"), "small/parquet", split="90;10") as directory:
        loaded = datasets.load_dataset(str(directory), cache_dir=str(tmp_path))
        assert {name: len(part) for name, part in loaded.items()} == {"train": 450, "validation": 50}
        assert loaded["train"]["input_ids"][:] == small.rows()[:450] and loaded["validation"]["input_ids"][:] == small.rows()[450:]
        assert loaded["train"].features["input_ids"].feature.dtype == "uint16"


def test_cut_bin(needs_mount, tmp_path):
    """Sequences behind the end of a .bin fail, and no other: the row groups before them are read."""
    import pyarrow.parquet

    data = Data.random("int32", 20_000, 100, seed=9)
    prefix = data.write(tmp_path / "cut")
    os.truncate(f"{prefix}.bin", 3_000_000)
    whole = int(numpy.searchsorted(data.offsets, 750_000, side="right")) - 1
    with view(prefix, "cut/parquet") as directory:
        file = pyarrow.parquet.ParquetFile(directory / "data-00000-of-00001.parquet")
        assert file.num_row_groups == 2
        good = file.read_row_group(0)["input_ids"].combine_chunks()
        assert len(good) == whole and numpy.array_equal(good.flatten().to_numpy(), data.tokens[:data.offsets[whole]])
        with pytest.raises(OSError):
            file.read_row_group(1)


# ---- arrays and lines ----

def test_numpy(corpora, tmp_path):
    place, found = corpora
    for name, data in found.items():
        with view(place / name, f"{name}/npy") as directory:
            arrays = {"tokens": data.tokens, "offsets": data.offsets, "documents": data.documents, **({} if data.modes is None else {"mode": data.modes})}
            assert {path.name for path in directory.iterdir()} == {f"{array}.npy" for array in arrays}
            for array, want in arrays.items():
                mapped = numpy.load(directory / f"{array}.npy", mmap_mode="r")
                assert mapped.dtype == want.dtype and numpy.array_equal(mapped, want), (name, array)
                numpy.save(tmp_path / "theirs.npy", want)
                assert (tmp_path / "theirs.npy").read_bytes() == (directory / f"{array}.npy").read_bytes(), (name, array)
            if len(data.tokens):
                mapped = numpy.memmap(directory / "tokens.npy", dtype=data.tokens.dtype, mode="r", offset=128)
                assert numpy.array_equal(mapped, data.tokens), name
            del mapped


def test_json(corpora):
    place, found = corpora
    for name, data in found.items():
        if data.tokens.dtype.kind == "f":
            continue
        with view(place / name, f"{name}/jsonl") as directory:
            lines = (directory / "data.jsonl").read_text().splitlines()
        modes = [{}] * len(lines) if data.modes is None else [{"mode": mode} for mode in data.modes.tolist()]
        assert [json.loads(line) for line in lines] == [{"input_ids": row, **mode} for row, mode in zip(data.rows(), modes)], name


def test_json_widths(tmp_path):
    data = Data.random("uint16", 300, 20)
    data.tokens %= 1000
    sizes = {}
    for vocabulary in (None, 1000, 50_257):
        with view(data.write(tmp_path / "corpus"), "corpus/jsonl", **({"vocab_size": vocabulary} if vocabulary else {})) as directory:
            text = (directory / "data.jsonl").read_text()
            assert [json.loads(line)["input_ids"] for line in text.splitlines()] == data.rows()
            sizes[vocabulary] = len(text)
    assert sizes[50_257] == sizes[None] == sizes[1000] + 2 * len(data.tokens)


def test_hf_json(tmp_path):
    import datasets

    data = Data.random("uint16", 2000, 50)
    with view(data.write(tmp_path / "corpus"), "corpus/jsonl", split="80;15;5") as directory:
        loaded = datasets.load_dataset("json", data_files={name: str(directory / f"{name}.jsonl") for name in ("train", "validation", "test")},
                                       cache_dir=str(tmp_path / "cache"))
        assert [row for name in ("train", "validation", "test") for row in loaded[name]["input_ids"][:]] == data.rows()
        assert len(loaded["train"]) == 1600


# ---- .idx and .bin ----

@pytest.fixture(scope="session")
def merged(tmp_path_factory):
    """Prefixes, and what Megatron's builder makes of all of them, by kind."""
    place, jobs, found = tmp_path_factory.mktemp("merged"), [], {}
    for kind in ("text", "pictures"):
        (place / kind).mkdir()
        parts = [Data.random("uint16", count, 60, seed=count, documents=True, modes=kind == "pictures") for count in (900, 1, 2500, 70)]
        prefixes = [str(data.write(place / kind / f"part-{i}")) for i, data in enumerate(parts)]
        jobs.append({"out": str(place / f"theirs-{kind}"), "multimodal": kind == "pictures", "prefixes": prefixes})
        documents = numpy.concatenate([[0]] + [data.documents[1:] + sum(len(part.lengths) for part in parts[:i]) for i, data in enumerate(parts)])
        found[kind] = Data(numpy.concatenate([data.lengths for data in parts]), numpy.concatenate([data.tokens for data in parts]), documents,
                           numpy.concatenate([data.modes for data in parts]) if kind == "pictures" else None)
    (place / "jobs.json").write_text(json.dumps(jobs))
    run(sys.executable, "merge_indexed.py", place / "jobs.json")
    return place, found


@pytest.fixture(scope="session")
def overflowed(tmp_path_factory):
    """5 GiB of which a few sequences are no holes; pointers as numpy 2 made Megatron write them past 2 GiB. And a healthy .idx."""
    place = tmp_path_factory.mktemp("overflowed")
    draw = numpy.random.default_rng(11)
    lengths = draw.integers(1_000_000, 1_600_000, 1000)
    at = numpy.sort(draw.choice(1000, 40, replace=False))
    tokens = draw.integers(0, 1 << 30, int(lengths[at].sum()), dtype="<i4")
    data = Data(lengths, tokens)
    pointers = data.offsets[:-1] * 4
    (place / "big.idx").write_bytes(data.idx(pointers.astype("<i4")))
    with open(place / "big.bin", "wb") as file:
        for row, part in zip(at, numpy.split(tokens, numpy.cumsum(lengths[at])[:-1])):
            file.seek(int(pointers[row]))
            file.write(part.tobytes())
        file.truncate(int(data.offsets[-1]) * 4)
    numpy.savez(place / "truth.npz", tokens=tokens, lengths=data.lengths, documents=data.documents, at=at)
    return place, data.idx()


def check_same(directory, name, place, theirs):
    for suffix in ("idx", "bin"):
        assert (directory / f"{name}.{suffix}").read_bytes() == (place / f"{theirs}.{suffix}").read_bytes(), (name, suffix)


@pytest.mark.parametrize("version", [None, *todays(["0.10.0", "0.14.0"], 1)], ids=str)
def test_megatron(version, fixtures, corpora, merged, overflowed, tmp_path):
    """Megatron's own files, multimodal ones, several as one and repaired ones, read by one process of each core."""
    jobs = []

    def add(data, directory, name):
        truth = data if isinstance(data, pathlib.Path) else data.save(tmp_path / f"truth-{len(jobs)}.npz")
        jobs.append({"prefix": str(directory / name), "truth": str(truth)})

    with contextlib.ExitStack() as stack:
        for name in ("tales_text_document", "notes_text_document"):
            directory = stack.enter_context(view(fixtures / "data" / name, f"{name}/megatron"))
            check_same(directory, name, fixtures / "data", name)
            add(Data.read(fixtures / "data" / name), directory, name)
        place, found = corpora
        for name in ("int32-modes", "int64", "float32", "mostly-empty"):
            add(found[name], stack.enter_context(view(place / name, f"{name}/megatron")), name)
        place, found = merged
        for kind, data in found.items():
            directory = stack.enter_context(view(place / kind, "all/megatron", merge="all"))
            check_same(directory, "all", place, f"theirs-{kind}")
            add(data, directory, "all")
        if program.can_mount():  # an export would write all the holes
            place, healthy = overflowed
            directory = stack.enter_context(view(place / "big", "big/megatron"))
            assert (directory / "big.idx").read_bytes() == healthy
            assert (directory / "big.bin").stat().st_size == (place / "big.bin").stat().st_size
            add(place / "truth.npz", directory, "big")
        (tmp_path / "jobs.json").write_text(json.dumps(jobs))
        try:
            environment = {"PYTHONPATH": str(venvs.core(version, sys.executable))} if version else {}
        except venvs.Missing as why:
            pytest.skip(str(why))
        run(sys.executable, "read_indexed.py", tmp_path / "jobs.json", **environment)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_of_hf_dataset(dtype, tmp_path):
    """What `datasets` saved, in all forms; .idx and .bin as Megatron's writers lay them out."""
    import datasets

    data = Data.random(dtype, 2500, 60)
    feature = datasets.Features({"input_ids": datasets.Sequence(datasets.Value(dtype))})
    datasets.Dataset.from_dict({"input_ids": data.rows()}, features=feature).save_to_disk(str(tmp_path / "saved"))
    with view(tmp_path / "saved", "saved/megatron") as directory:
        assert (directory / "saved.idx").read_bytes() == data.idx()
        assert (directory / "saved.bin").read_bytes() == data.tokens.tobytes()
    with view(tmp_path / "saved", "saved/npy") as directory:
        assert sorted(path.name for path in directory.iterdir()) == ["offsets.npy", "tokens.npy"]
        assert numpy.array_equal(numpy.load(directory / "tokens.npy"), data.tokens)
    with view(tmp_path / "saved", "saved/jsonl") as directory:
        assert [json.loads(line)["input_ids"] for line in (directory / "data.jsonl").open()] == data.rows()
    with view(tmp_path / "saved", "saved/parquet") as directory:
        asked = Tables(tmp_path)
        asked.add(data, directory)
        asked.check("pyarrow")


# ---- any of them ----

def test_reads_agree(needs_mount, large):
    """Random preads of each file and the sequential read."""
    data, prefix = large
    for name in ("parquet", "npy", "jsonl", "megatron"):
        with view(prefix, f"large/{name}") as directory:
            for path in sorted(directory.iterdir()):
                check_reads(path)


def check_reads(path, count=2000):
    draw = random.Random(1)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        whole = path.read_bytes()
        assert len(whole) == os.fstat(descriptor).st_size
        for _ in range(count):
            offset, length = draw.randrange(len(whole)), draw.choice([1, 100, 4096, 70_000])
            assert os.pread(descriptor, length, offset) == whole[offset:offset + length], (path.name, offset, length)
    finally:
        os.close(descriptor)


def test_exported(tmp_path):
    data = Data.random("uint16", 20_000, 60, modes=True)
    prefix = data.write(tmp_path / "corpus")
    with program.mounted(prefix) as point:
        for name in ("parquet", "npy", "jsonl", "megatron"):
            done = program.export(prefix, f"data/corpus/{name}", tmp_path / name)
            assert done.returncode == 0, done.stderr
            mounted = point / "data" / "corpus" / name
            files = sorted(path.name for path in mounted.iterdir())
            assert files == sorted(path.name for path in (tmp_path / name).iterdir())
            for file in files:
                assert (mounted / file).read_bytes() == (tmp_path / name / file).read_bytes(), file


# ---- text ----

def test_text(fixtures, tmp_path):
    """-o tokenizer=DIR: texts are those of tokenizers' decode(), of ids that cut characters as well: in Parquet, in Arrow, in JSON lines."""
    import datasets
    import pyarrow.parquet
    from tokenizers import Tokenizer

    place = fixtures / "data/tokenizer"
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    data = Data.random("uint16", 3000, 40, seed=9)
    data.tokens %= tokenizer.get_vocab_size()
    data.write(tmp_path / "x")
    rows = data.rows()
    texts = tokenizer.decode_batch(rows, skip_special_tokens=False)
    assert "\ufffd" in "".join(texts)
    with view(tmp_path / "x", "x/parquet", tokenizer=place) as path:
        table = pyarrow.parquet.read_table(path)
        table.validate(full=True)
        assert table["text"].to_pylist() == texts and table["input_ids"].to_pylist() == rows
    with view(tmp_path / "x", "x/hf", tokenizer=place) as path:
        found = datasets.load_from_disk(str(path))
        assert found.features["text"] == datasets.Value("string") and list(found.features) == ["input_ids", "text"]
        assert list(found["text"]) == texts and [list(row) for row in found["input_ids"]] == rows
    with view(tmp_path / "x", "x/hf", tokenizer=place, split="90/8/2") as path:
        found = datasets.load_from_disk(str(path))
        assert [text for name in ("train", "validation", "test") for text in found[name]["text"]] == texts
    with view(tmp_path / "x", "x/text", tokenizer=place) as path:
        found = datasets.load_dataset("json", data_files=str(path / "data.jsonl"), cache_dir=str(tmp_path / "cache"))
        assert list(found["train"]["text"]) == texts

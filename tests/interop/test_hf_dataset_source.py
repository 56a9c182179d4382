"""HF datasets as Megatron's .bin and .idx: what `datasets` writes, megatron-core reads through a mount; exported files are the builder's.

Damaged Arrow files are read by peers/hf_rows.c, without a mount, as pyarrow reads them or not at all.
"""
import filecmp
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import numpy
import pytest

import program
import venvs

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
SECONDS = 1800
FLIPS = 3000  # damaged files a run
EOD = 50256 % 127  # of every dtype

VERSIONS = {"current": None, "2.21": "datasets2"}
NAMES = ["int8", "uint8", "int16", "uint16", "uint32", "int64", "shards", "processes", "fixed", "large_list", "empty_rows", "nulls", "fixed_nulls",
         "hidden_nulls", "other_name", "two_columns", "mapped", "shuffled", "slice", "filtered", "sorted", "concatenated", "batches", "one", "two",
         "dict_train", "dict_test"]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """written(version): the folder that peers/write_hf_datasets.py filled with that version, and its cases."""
    made = {}

    def write(version):
        if version not in made:
            place = tmp_path_factory.mktemp("datasets")
            python = venvs.python(VERSIONS[version], f"datasets {version}") if VERSIONS[version] else sys.executable
            done = subprocess.run([python, HERE / "peers" / "write_hf_datasets.py", place], capture_output=True, text=True, timeout=SECONDS)
            assert done.returncode == 0, done.stderr[-3000:]
            told = json.loads((place / "cases.json").read_text())
            assert version == "current" or told["version"].startswith(version), told["version"]
            cases = {c["path"].split("/")[0] if c["path"].count("/") else c["name"]: c for c in told["cases"]}
            assert sorted(cases) == sorted(NAMES)
            made[version] = place, cases
        return made[version]

    return write


def case_of(written, version, name):
    try:
        place, cases = written(version)
    except venvs.Missing as why:
        pytest.skip(str(why))
    return place / cases[name]["path"], cases[name]


def built(prefix, documents, dtype):
    """The files that megatron-core itself writes of these documents."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.dtype(dtype).type)
    for tokens in documents:
        builder.add_document(torch.tensor(tokens, dtype=torch.int64), [len(tokens)])
    builder.finalize(f"{prefix}.idx")


def same_files(folder, name, prefix):
    for kind in ("bin", "idx"):
        assert (folder / f"{name}.{kind}").stat().st_size == os.path.getsize(f"{prefix}.{kind}")
        assert filecmp.cmp(folder / f"{name}.{kind}", f"{prefix}.{kind}", shallow=False), kind


def read_documents(prefix):
    """Every document, by megatron-core's IndexedDataset, and its dtype."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    data = IndexedDataset(str(prefix), mmap=os.path.getsize(f"{prefix}.bin") > 0)
    assert list(data.document_indices) == list(range(len(data) + 1))
    return [data[i].tolist() for i in range(len(data))], numpy.dtype(data.index.dtype).name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_export(written, version, name, tmp_path):
    path, case = case_of(written, version, name)
    built(tmp_path / "want", case["documents"], case["dtype"])
    done = program.export(path, f"data/{case['name']}/megatron", tmp_path / "got", **case.get("options", {}))
    assert done.returncode == 0, done.stderr
    same_files(tmp_path / "got", case["name"], tmp_path / "want")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_mount(written, version, name, needs_mount):
    path, case = case_of(written, version, name)
    with program.mounted(path, **case.get("options", {})) as point:
        documents, dtype = read_documents(point / "data" / case["name"] / "megatron" / case["name"])
    assert dtype == case["dtype"]
    assert documents == case["documents"]


@pytest.mark.parametrize("name", ["int8", "shards", "fixed", "empty_rows", "hidden_nulls", "batches", "dict_train"])
def test_append_eod(written, name, tmp_path):
    path, case = case_of(written, "current", name)
    built(tmp_path / "want", [tokens + [EOD] for tokens in case["documents"]], case["dtype"])
    done = program.export(path, f"data/{case['name']}/megatron", tmp_path / "got", append_eod=EOD)
    assert done.returncode == 0, done.stderr
    same_files(tmp_path / "got", case["name"], tmp_path / "want")


def test_any_range_is_the_same(written, needs_mount):
    """Reads at odd places give what one read of the whole gives, with and without a token between rows."""
    path, case = case_of(written, "current", "batches")
    for options in ({}, {"append_eod": EOD}):
        with program.mounted(path, **options) as point:
            for file in (point / "data" / "batches" / "megatron").iterdir():
                whole = file.read_bytes()
                random.seed(1)
                with open(file, "rb", buffering=0) as f:
                    for _ in range(300):
                        at, n = random.randrange(len(whole)), random.choice((1, 3, 100, 5000))
                        assert os.pread(f.fileno(), n, at) == whole[at:at + n]


@pytest.mark.parametrize("name", ["tales_text_document", "notes_text_document"])
def test_there_and_back(fixtures, name, tmp_path, needs_mount):
    """A Megatron dataset's HF view, itself a source: through a mount of a mount, exported, and saved again by `datasets`."""
    from datasets import load_from_disk
    original = fixtures / "data" / name
    with program.mounted(original) as point:
        hf = point / "data" / name / "hf"
        with program.mounted(hf) as back:
            same_files(back / "data" / "hf" / "megatron", "hf", original)
        again = load_from_disk(str(hf))
        again.save_to_disk(str(tmp_path / "saved"), num_shards=2)
        del again
    for source in ("exported", "saved"):
        if source == "exported":
            assert program.export(original, f"data/{name}/hf", tmp_path / source).returncode == 0
        done = program.export(tmp_path / source, f"data/{source}/megatron", tmp_path / f"{source}-back")
        assert done.returncode == 0, done.stderr
        same_files(tmp_path / f"{source}-back", source, original)


def refused(source, **options):
    done = program.run("ls", source, *program.options(options))
    assert done.returncode and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_refused(written, tmp_path):
    from datasets import Dataset
    Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "text")
    assert "text: string" in refused(tmp_path / "text") and "tokenised" in refused(tmp_path / "text")
    path, _ = case_of(written, "current", "two_columns")
    assert "a: list<int32>, b: list<int32>" in refused(path)
    assert "no column 'nope'" in refused(path, column="nope")
    path, _ = case_of(written, "current", "uint16")
    assert "cannot hold" in refused(path, append_eod=65536)
    Dataset.from_dict({"input_ids": [[1]]}).select([]).save_to_disk(tmp_path / "empty")
    assert "has no rows" in refused(tmp_path / "empty")


# ---- damage ----


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """peers/hf_rows.c with the library that the program under test was linked with: a process that answers lines."""
    library = pathlib.Path(os.environ["MCOREFS_BINARY"]).resolve().parent / "obj" / "libmcorefs.a"
    binary = tmp_path_factory.mktemp("reader") / "hf_rows"
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", binary, HERE / "peers" / "hf_rows.c", library,
         "-pthread", "-lm", "-ljansson", "-lcrypto"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    with subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        yield process
        process.stdin.close()


def rows_of(reader, path):
    """None if it is refused, or cannot be read."""
    reader.stdin.write(f"{path} - - -\n")
    reader.stdin.flush()
    answer = reader.stdout.readline()
    assert answer, "the reader died"
    return json.loads(answer.split(" ", 2)[2]) if answer.startswith("ok ") else None


def arrow_rows(path):
    """As pyarrow reads it: None if it will not."""
    import pyarrow
    with pyarrow.memory_map(str(path)) as f:
        try:
            is_file = f.read(6) == b"ARROW1"
            f.seek(0)
            table = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(f).read_all()
            column = table.column("input_ids")
            column.validate(full=True)
            return [row or [] for row in column.to_pylist()]
        except (pyarrow.ArrowException, KeyError, UnicodeDecodeError, OSError):
            return None


def to_damage(tmp_path, kind="stream"):
    """Several small batches, the tokens between other columns. Of a blank file the footer alone has the schema."""
    import pyarrow
    docs = [None if i % 5 == 3 else [i * 10 + k for k in range(i % 4)] for i in range(24)]
    table = pyarrow.table({"text": [str(i) for i in range(24)], "input_ids": pyarrow.array(docs, pyarrow.list_(pyarrow.int32())), "n": list(range(24))})
    with (pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file)(tmp_path / "good.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    good = (tmp_path / "good.arrow").read_bytes()
    if kind == "blank file":
        end = 16 + struct.unpack_from("<I", good, 12)[0]
        good = good[:8] + bytes(end - 8) + good[end:]
    return good, [d or [] for d in docs]


def test_polars(reader, tmp_path):
    """Its files have another beginning than those of Arrow C++, and dictionaries behind the batches."""
    try:
        python = venvs.python("tables", "Polars")
    except venvs.Missing as why:
        pytest.skip(str(why))
    done = subprocess.run([python, HERE / "peers" / "write_polars_ipc.py", tmp_path], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, rows in json.loads((tmp_path / "cases.json").read_text()).items():
        assert rows_of(reader, tmp_path / f"{name}.arrow") == rows, name
    assert "compressed (LZ4)" in refused(tmp_path / "compressed.arrow")


@pytest.mark.parametrize("kind", ["stream", "file", "blank file"])
def test_damaged(reader, tmp_path, kind):
    good, rows = to_damage(tmp_path, kind)
    path = tmp_path / "x.arrow"
    path.write_bytes(good)
    assert rows_of(reader, path) == rows == arrow_rows(path)
    random.seed(os.environ.get("MCOREFS_SEED", "arrow"))
    refused = 0
    for _ in range(FLIPS):
        bytes_ = bytearray(good)
        at = random.randrange(len(good))
        if random.random() < 0.3:
            at = min(at // 8 * 8, len(good) - 4)
            bytes_[at:at + 4] = struct.pack("<i", random.choice((0, 1, -1, 8, 24, 2**30, -2**31, struct.unpack("<i", good[at:at + 4])[0] + 1)))
        else:
            bytes_[at] ^= 1 << random.randrange(8)
        path.write_bytes(bytes_)
        got = rows_of(reader, path)
        refused += got is None
        assert got in (None, rows) or got == arrow_rows(path), f"byte {at}"
    print(f"{refused} of {FLIPS} damaged files refused")
    assert refused > FLIPS // 10


@pytest.mark.parametrize("kind", ["stream", "file", "blank file"])
def test_cut(reader, tmp_path, kind):
    good, _ = to_damage(tmp_path, kind)
    path = tmp_path / "x.arrow"
    for n in range(len(good)):
        path.write_bytes(good[:n])
        assert rows_of(reader, path) is None, n


def test_damage_behind_a_mount(tmp_path, needs_mount):
    """A list offset that leads astray: an error for the index, and the tokens of other batches as they were. A file that is replaced: no byte of it."""
    import pyarrow
    docs = [[i] * 50 for i in range(4000)]
    table = pyarrow.table({"input_ids": pyarrow.array(docs, pyarrow.list_(pyarrow.int32()))})
    path = tmp_path / "x.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    good = path.read_bytes()
    offset = good.index(struct.pack("<3i", 0, 50, 100)) + 4 * 500
    path.write_bytes(good[:offset] + struct.pack("<i", 2**30) + good[offset + 4:])
    with program.mounted(path) as point:
        files = point / "data" / "x" / "megatron"
        whole = numpy.fromfile(files / "x.bin", dtype="<i4")
        assert whole.tolist() == [t for d in docs for t in d]
        with pytest.raises(OSError):
            (files / "x.idx").read_bytes()
        with open(files / "x.idx", "rb", buffering=0) as f:
            assert os.pread(f.fileno(), 40, 34 + 4 * 3000) == struct.pack("<10i", *[50] * 10)
        shutil.copy(path, tmp_path / "y")
        os.replace(tmp_path / "y", path)
        with pytest.raises(OSError):
            (files / "x.idx").read_bytes()

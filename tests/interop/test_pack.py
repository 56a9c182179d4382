"""mcorefs pack: token ids on standard input become the very files that Megatron's builder writes."""
import json
import random
import subprocess

import numpy
import pytest
import torch
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder

import program

SPELLINGS = ("lists", "compact", "objects", "ids", "lines")


def pack(prefix, text, *options):
    return subprocess.run([program.BINARY, "pack", prefix, *map(str, options)], input=text, capture_output=True, timeout=program.SECONDS)


def packed(prefix, text, *options):
    done = pack(prefix, text, *options)
    assert done.returncode == 0, done.stderr.decode()


def same_files(ours, theirs):
    for suffix in (".bin", ".idx"):
        assert ours.with_suffix(suffix).read_bytes() == theirs.with_suffix(suffix).read_bytes(), suffix


def megatron(prefix, documents, dtype, eod=None):
    """As Encoder.encode and process_json_file of tools/preprocess_data.py."""
    builder = IndexedDatasetBuilder(str(prefix) + ".bin", dtype=dtype)
    for document in documents:
        ids = [token for sequence in document for token in sequence]
        lengths = [len(sequence) for sequence in document if sequence]
        if ids and eod is not None:
            ids.append(eod)
            lengths[-1] += 1
        builder.add_document(ids, lengths)
    builder.finalize(str(prefix) + ".idx")


def spell(documents, how):
    """Documents of one sequence, or of none, as text."""
    flat = [document[0] if document else [] for document in documents]
    if how == "lists":
        text = "".join(json.dumps(ids) + "\n" for ids in flat)
    elif how == "compact":
        text = "".join(json.dumps(ids, separators=(",", ":")) + "\n" for ids in flat)
    elif how == "objects":
        text = "".join(json.dumps({"text": "\u00e9\"[1] \\", "input_ids": ids, "meta": {"a": [1.5e-3, None, {}]}}) + "\r\n" for ids in flat)
    else:
        text = "".join(" ".join(map(str, ids)) + ("\0" if how == "ids" else "\n") for ids in flat)
    return text.encode()


def random_documents(seed, limit, several):
    draw = random.Random(seed)
    documents = []
    for _ in range(draw.choice((1, 30, 300))):
        sequences = draw.choice((0, 1, 1, 2, 5)) if several else draw.choice((0, 1, 1, 1))
        lengths = [draw.choice((0, 1, 7, 300)) if several else draw.choice((1, 5, 600, 5000)) for _ in range(sequences)]
        documents.append([[draw.randrange(min(limit, draw.choice((10, 1000, limit)))) for _ in range(length)] for length in lengths])
    documents.append([[1, 2, 3]])
    return documents


@pytest.mark.parametrize("seed", range(30))
def test_builder_writes_the_same_bytes(tmp_path, seed):
    vocabulary = (300, 50257, 65499, 65500, 151936)[seed % 5]
    documents = random_documents(seed, vocabulary, several=seed % 2)
    eod = vocabulary - 1 if seed % 3 else None
    text = "".join(json.dumps(d) + "\n" for d in documents).encode() if seed % 2 else spell(documents, SPELLINGS[seed // 2 % 5])
    options = ["--vocab-size", vocabulary, *(["--append-eod", eod] if eod is not None else [])]
    if not seed % 2:
        options += ["--format", {"ids": "ids", "lines": "lines"}.get(SPELLINGS[seed // 2 % 5], "jsonl")]
    packed(tmp_path / "ours", text, *options)
    megatron(tmp_path / "theirs", documents, DType.optimal_dtype(vocabulary), eod)
    same_files(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64"])
def test_every_dtype(tmp_path, dtype):
    limits = numpy.iinfo(dtype)
    draw = random.Random(dtype)
    documents = [[[draw.randint(limits.min, limits.max) for _ in range(n)]] for n in (1, 1000, 5)] + [[[limits.min, limits.max, 0]]]
    packed(tmp_path / "ours", spell(documents, "lists"), "--dtype", dtype)
    megatron(tmp_path / "theirs", documents, getattr(numpy, dtype))
    same_files(tmp_path / "ours", tmp_path / "theirs")
    for token in (limits.min - 1, limits.max + 1):
        done = pack(tmp_path / "outside", f"[1]\n[2, {token}]\n".encode(), "--dtype", dtype)
        assert done.returncode == 1 and b"line 2, column 5: " in done.stderr and b"outside of" in done.stderr, done.stderr
        for part in tmp_path.glob("outside*"):
            part.unlink()


def test_megatron_reads_every_document(tmp_path):
    documents = random_documents(99, 50257, several=True)
    packed(tmp_path / "ours", "".join(json.dumps(d) + "\n" for d in documents).encode(), "--vocab-size", 50257)
    for mmap in (True, False):
        dataset = IndexedDataset(str(tmp_path / "ours"), mmap=mmap)
        sequences = [sequence for document in documents for sequence in document if sequence]
        assert len(dataset) == len(sequences)
        assert len(dataset.document_indices) == len(documents) + 1
        for i, document in enumerate(documents):
            first, end = dataset.document_indices[i : i + 2]
            assert [dataset[k].tolist() for k in range(first, end)] == [s for s in document if s]


def test_preprocess_data_wrote_the_fixture(fixtures, tmp_path):
    """From the text, with transformers' tokenizer, to the files that tools/preprocess_data.py made of it."""
    from transformers import AutoTokenizer
    data = fixtures / "data"
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    for name in ("tales", "notes"):
        texts = [json.loads(line)["text"] for line in (data / f"{name}.jsonl").open(encoding="utf-8")]
        lines = "".join(json.dumps({"text": t, "input_ids": tokenizer(t)["input_ids"]}) + "\n" for t in texts)
        packed(tmp_path / name, lines.encode(), "--vocab-size", len(tokenizer), "--append-eod", tokenizer.eos_token_id)
        same_files(tmp_path / name, data / f"{name}_text_document")


def test_datasets_to_json(tmp_path):
    """What `datasets` and pandas write as JSON lines."""
    import datasets
    draw = random.Random(5)
    rows = {"input_ids": [[draw.randrange(60000) for _ in range(draw.randrange(1, 90))] for _ in range(500)],
            "text": ["".join(map(chr, draw.choices(range(1, 0x3000), k=20))) for _ in range(500)], "score": [draw.random() for _ in range(500)]}
    whole = datasets.Dataset.from_dict(rows)
    whole.to_json(tmp_path / "rows.jsonl")
    whole.to_pandas().to_json(tmp_path / "pandas.jsonl", orient="records", lines=True)
    megatron(tmp_path / "theirs", [[ids] for ids in rows["input_ids"]], numpy.int32)
    for name in ("rows", "pandas"):
        packed(tmp_path / name, (tmp_path / f"{name}.jsonl").read_bytes())
        same_files(tmp_path / name, tmp_path / "theirs")


def random_json(draw, depth=0):
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind < 2:
        return "".join(map(chr, draw.choices([*range(0x20), *range(0x20, 0x80), 0x22, 0x5C, 0xE9, 0x65E5, 0x1F600, 0xD800], k=draw.randrange(12))))
    if kind < 6:
        return draw.choice((True, False, None, 0, -0.0, draw.random() * 10 ** draw.randrange(-300, 300), draw.randrange(-10**20, 10**20), 1e22))
    if kind < 8:
        return [random_json(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {random_json_key(draw): random_json(draw, depth + 1) for _ in range(draw.randrange(4))}


def random_json_key(draw):
    return draw.choice(("input_ids", "a", "", "input_id", "\u00e9", "\"", "\\u0069"))


def test_anything_beside_the_ids_is_skipped(tmp_path):
    draw = random.Random(3)
    lines, ids = [], []
    for i in range(2000):
        row = {f"k{n}": random_json(draw) for n in range(draw.randrange(4))}
        row["input_ids"] = [i, draw.randrange(1000)]
        row.update({f"l{n}": random_json(draw) for n in range(draw.randrange(4))})
        ids.append([row["input_ids"]])
        lines.append(json.dumps(row, indent=None, separators=draw.choice(((",", ":"), (", ", ": "), (" ,\t", "  :\r")))))
    packed(tmp_path / "ours", ("\n".join(lines) + "\n").encode())
    megatron(tmp_path / "theirs", ids, numpy.int32)
    same_files(tmp_path / "ours", tmp_path / "theirs")


def test_what_json_refuses_is_refused(tmp_path):
    """Lines with one character changed: pack takes those that json.loads takes, with the same ids, and no others."""
    draw = random.Random(4)
    taken = refused = 0
    for _ in range(250):
        line = json.dumps({"a": ["x", 1.5, {"b": None}], "input_ids": [1, 22, 333], "c": True})
        at = draw.randrange(len(line))
        line = line[:at] + draw.choice('{}[]",:0123456789.eE+-\\untf ') + line[at + draw.randrange(2):]
        expected = None
        try:
            value = json.loads(line, object_pairs_hook=list, parse_constant=lambda _: 1 / 0)
            found = [v for k, v in value if k == "input_ids"] if isinstance(value, list) else []
            if len(found) == 1 and isinstance(found[0], list) and all(type(v) is int for v in found[0]):
                expected = found[0]
        except (ValueError, TypeError, ZeroDivisionError):
            pass
        done = pack(tmp_path / "x", f"[7]\n{line}\n".encode(), "--force")
        assert (done.returncode == 0) == (expected is not None), (line, done.stderr)
        if expected is None:
            assert b"line 2, column " in done.stderr and b"1 documents are kept" in done.stderr, (line, done.stderr)
            refused += 1
        else:
            assert numpy.fromfile(tmp_path / "x.bin", numpy.int32).tolist() == [7, *expected], line
            taken += 1
    assert taken > 15 and refused > 120


def test_a_torch_tensor_of_it(tmp_path):
    """The builder's own way of adding, item by item, makes no difference."""
    items = [[5, 6, 7], [8], [9, 10]]
    builder = IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=numpy.int32)
    for item in items:
        builder.add_item(torch.tensor(item))
        builder.end_document()
    builder.finalize(str(tmp_path / "theirs.idx"))
    packed(tmp_path / "ours", spell([[item] for item in items], "lists"))
    same_files(tmp_path / "ours", tmp_path / "theirs")

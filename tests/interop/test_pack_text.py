"""mcorefs pack --tokenizer: text becomes the very files that tools/preprocess_data.py makes with megatron-core's tokenizers."""
import argparse
import gzip
import json
import random
import subprocess

import pytest
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

import program
from peers import preprocess

PIECES = ["a tale ", "of two  cities", "\n\n", "\t", "  ", "it's we'll ", "1234567 3.14", "ÄÖÜß éèê ", "e\u0301 n\u0303", "日本語テキスト", "한국어 ", "مرحبا بالعالم ", "हिन्दी ",
          "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467", "<|endoftext|>", "</s>", "<s>", "def f(x):\n    return x\n", "\u00a0\u2003", "aaaaaaaaaaaa", "\x00\x07", "\\\"/", "\r\n"]


def flags(**given):
    values = dict(input=None, output_prefix=None, json_keys=["text"], append_eod=False, workers=1, tokenizer_type=None, tokenizer_model=None, vocab_size=None,
                  tokenizer_hf_no_include_special_tokens=False, tiktoken_pattern=None, tiktoken_num_special_tokens=1000)
    return argparse.Namespace(**{**values, **given})


def megatron(args):
    """process_json_file() without its pool."""
    encoder = preprocess.Encoder(args)
    encoder.initializer()
    for key in args.json_keys:
        name = f"{args.output_prefix}_{key}_document"
        builder = IndexedDatasetBuilder(name + ".bin", dtype=DType.optimal_dtype(preprocess.Encoder.tokenizer.vocab_size))
        for line in open(args.input, encoding="utf-8"):
            ids, lens, _ = encoder.encode(line)
            builder.add_document(ids[key], lens[key])
        builder.finalize(name + ".idx")


def ours(args, *more):
    words = []
    for name, value in vars(args).items():
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value not in (None, False, 1000):
            words += ["--" + name.replace("_", "-"), *map(str, value if isinstance(value, list) else [value])]
    done = subprocess.run([program.BINARY, "pack", *words, *more], capture_output=True, timeout=program.SECONDS, text=True)
    assert done.returncode == 0, done.stderr


def same(tmp_path, keys=("text",)):
    for key in keys:
        for suffix in ("bin", "idx"):
            assert (tmp_path / f"ours_{key}_document.{suffix}").read_bytes() == (tmp_path / f"theirs_{key}_document.{suffix}").read_bytes(), (key, suffix)


def write_lines(path, seed, count, text):
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as out:
        for i in range(count):
            row = {"id": i, "text": text(draw), "meta": {"a": [1.5, None, "x\"}"]}}
            if i % 7 == 3:
                row["text"] = [text(draw) for _ in range(draw.randrange(4))]
            if i % 11 == 5:
                row["text"] = ""
            row["other"] = text(draw)
            out.write(json.dumps(row, ensure_ascii=bool(draw.randrange(2)), separators=draw.choice(((",", ":"), (", ", ": ")))) + "\n")


def mixed(draw):
    return "".join(draw.choices(PIECES, k=draw.choice((1, 5, 40))))


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("eod", [True, False])
def test_hugging_face(fixtures, tmp_path, special, eod):
    write_lines(tmp_path / "in.jsonl", 1, 300, mixed)
    args = dict(input=tmp_path / "in.jsonl", tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(fixtures / "data/tokenizer"), append_eod=eod,
                json_keys=["text", "other"], tokenizer_hf_no_include_special_tokens=not special)
    megatron(flags(output_prefix=tmp_path / "theirs", **args))
    ours(flags(output_prefix=tmp_path / "ours", **{**args, "workers": 3}))
    same(tmp_path, ("text", "other"))


def sentencepiece_model(tmp_path, kind):
    import sentencepiece
    draw = random.Random(kind)
    (tmp_path / "corpus").write_text("".join(mixed(draw).replace("\x00", " ").replace("\n", " ") + "\n" for _ in range(2000)), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "corpus"), model_prefix=str(tmp_path / kind), vocab_size=400, model_type=kind, byte_fallback=True,
                                             hard_vocab_limit=False, num_threads=1, minloglevel=2)
    return str(tmp_path / f"{kind}.model")


@pytest.mark.parametrize("name,kind", [("SentencePieceTokenizer", "unigram"), ("GPTSentencePieceTokenizer", "bpe"), ("Llama2Tokenizer", "bpe")])
def test_sentencepiece(tmp_path, name, kind):
    write_lines(tmp_path / "in.jsonl", 2, 200, lambda draw: mixed(draw).replace("\x00", ""))
    args = dict(input=tmp_path / "in.jsonl", tokenizer_type=name, tokenizer_model=sentencepiece_model(tmp_path, kind), append_eod=True)
    megatron(flags(output_prefix=tmp_path / "theirs", **args))
    ours(flags(output_prefix=tmp_path / "ours", **args))
    same(tmp_path)


@pytest.mark.parametrize("pattern", ["v1", "v2"])
def test_tiktoken(tmp_path, pattern):
    """A list of bytes and of pairs of them that texts have."""
    import base64
    texts = "".join(PIECES).encode()
    ranks = [bytes([i]) for i in range(256)]
    for size in (2, 3):
        ranks += sorted({texts[i:i + size] for i in range(len(texts) - size)} - set(ranks))
    rows = [{"rank": i, "token_bytes": base64.b64encode(r).decode(), "token_str": None} for i, r in enumerate(ranks)]
    (tmp_path / "ranks.json").write_text(json.dumps(rows))
    write_lines(tmp_path / "in.jsonl", 7, 200, lambda draw: mixed(draw) + draw.choice(("", "<pad>", "<SPECIAL_77>")))
    args = dict(input=tmp_path / "in.jsonl", tokenizer_type="TikTokenizer", tokenizer_model=str(tmp_path / "ranks.json"), append_eod=True,
                vocab_size=100 + len(ranks), tiktoken_pattern=pattern, tiktoken_num_special_tokens=100)
    megatron(flags(output_prefix=tmp_path / "theirs", **args))
    ours(flags(output_prefix=tmp_path / "ours", **args))
    same(tmp_path)


def test_gpt2(fixtures, tmp_path):
    """From vocab.json and merges.txt, as core's GPT2BPETokenizer asks transformers for them."""
    from transformers import GPT2TokenizerFast
    model = json.loads((fixtures / "data/tokenizer/tokenizer.json").read_text(encoding="utf-8"))["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    write_lines(tmp_path / "in.jsonl", 6, 300, mixed)
    tokenizer = GPT2TokenizerFast(vocab=str(tmp_path / "vocab.json"), merges=str(tmp_path / "merges.txt"))
    builder = IndexedDatasetBuilder(str(tmp_path / "theirs_text_document.bin"), dtype=DType.optimal_dtype(len(tokenizer)))
    for line in open(tmp_path / "in.jsonl", encoding="utf-8"):
        text = json.loads(line)["text"]
        sequences = [ids for ids in (tokenizer(t).input_ids for t in (text if isinstance(text, list) else [text])) if ids]
        ids = [i for sequence in sequences for i in sequence]
        if ids:
            ids.append(tokenizer.eos_token_id)
        lengths = [len(sequence) for sequence in sequences]
        if lengths:
            lengths[-1] += 1
        builder.add_document(ids, lengths)
    builder.finalize(str(tmp_path / "theirs_text_document.idx"))
    done = subprocess.run([program.BINARY, "pack", "--input", tmp_path / "in.jsonl", "--output-prefix", tmp_path / "ours", "--append-eod", "--tokenizer-type",
                           "GPT2BPETokenizer", "--vocab-file", tmp_path / "vocab.json", "--merge-file", tmp_path / "merges.txt", "--workers", "2"],
                          capture_output=True, timeout=program.SECONDS, text=True)
    assert done.returncode == 0, done.stderr
    same(tmp_path)


def test_numbers(tmp_path):
    """core 0.16.1's end comes after the vocabulary, as --legacy-tokenizer has it."""
    write_lines(tmp_path / "in.jsonl", 3, 200, lambda draw: " ".join(str(draw.randrange(70000)) for _ in range(draw.randrange(1, 50))))
    lines = [line for line in open(tmp_path / "in.jsonl") if '""' not in line]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    args = dict(input=tmp_path / "in.jsonl", tokenizer_type="NullTokenizer", vocab_size=70000, append_eod=True)
    megatron(flags(output_prefix=tmp_path / "theirs", **args))
    ours(flags(output_prefix=tmp_path / "ours", **args), "--legacy-tokenizer")
    same(tmp_path)


def test_compressed_and_in_pieces(fixtures, tmp_path):
    write_lines(tmp_path / "in.jsonl", 4, 300, mixed)
    args = dict(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(fixtures / "data/tokenizer"), append_eod=True)
    megatron(flags(input=tmp_path / "in.jsonl", output_prefix=tmp_path / "theirs", **args))
    lines = (tmp_path / "in.jsonl").read_bytes().splitlines(keepends=True)
    for i in range(3):
        with gzip.open(tmp_path / f"part{i}.jsonl.gz", "wb") as out:
            out.write(b"".join(lines[i * 100:i * 100 + 100]))
    ours(flags(input=str(tmp_path / "part*.gz"), output_prefix=tmp_path / "ours", **args))
    same(tmp_path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_parquet(fixtures, tmp_path, compression, version):
    """As the JSON lines of the same rows: several pages and row groups, dictionaries that overflow, columns that are never null, lengths by themselves."""
    import pyarrow
    from pyarrow import parquet
    draw = random.Random(8)
    texts, words = [mixed(draw) for _ in range(1500)], [draw.choice(("one", "two", "three \u00f6")) for _ in range(1500)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t, "other": w}) + "\n" for t, w in zip(texts, words)))
    table = pyarrow.table({"id": range(1500), "meta": [{"a": [1, 2]}] * 1500, "text": texts, "other": words},
                          schema=pyarrow.schema([("id", pyarrow.int64()), ("meta", pyarrow.struct([("a", pyarrow.list_(pyarrow.int64()))])),
                                                 ("text", pyarrow.string()), pyarrow.field("other", pyarrow.string(), nullable=False)]))
    args = dict(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(fixtures / "data/tokenizer"), append_eod=True, json_keys=["text", "other"])
    ours(flags(input=tmp_path / "in.jsonl", output_prefix=tmp_path / "theirs", **args))
    lengths = {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY", "other": "DELTA_LENGTH_BYTE_ARRAY"}}
    for more in ({"dictionary_pagesize_limit": 9000}, {"use_dictionary": False}, lengths):
        parquet.write_table(table, tmp_path / "in.parquet", compression=compression, data_page_version=version, row_group_size=700, data_page_size=20000, **more)
        ours(flags(input=tmp_path / "in.parquet", output_prefix=tmp_path / "ours", **args), "--force")
        same(tmp_path, ("text", "other"))


def test_arrow(fixtures, tmp_path):
    """As the JSON lines of the same rows: streams and files, each layout of strings; and as the next one of two inputs, after a failure."""
    import pyarrow
    draw = random.Random(9)
    texts, words = [mixed(draw) for _ in range(900)], [draw.choice(("one", "two", "a word that no view has in itself")) for _ in range(900)]
    lines = "".join(json.dumps({"text": t, "other": w}) + "\n" for t, w in zip(texts, words))
    (tmp_path / "in.jsonl").write_text(lines)
    args = dict(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(fixtures / "data/tokenizer"), append_eod=True, json_keys=["text", "other"])
    ours(flags(input=tmp_path / "in.jsonl", output_prefix=tmp_path / "theirs", **args))
    table = {"id": range(900), "meta": [{"a": [1, 2]}] * 900, "seen": pyarrow.array(words, pyarrow.string_view())}
    for new, compression, text, other in ((pyarrow.ipc.new_stream, None, pyarrow.array(texts), pyarrow.array(words).dictionary_encode()),
                                          (pyarrow.ipc.new_file, "zstd", pyarrow.array(texts, pyarrow.large_string()), pyarrow.array(words).dictionary_encode()),
                                          (pyarrow.ipc.new_file, None, pyarrow.array(texts, pyarrow.string_view()), pyarrow.array(words, pyarrow.string_view()))):
        whole = pyarrow.table({**table, "text": text, "other": other})
        with new(tmp_path / "in.arrow", whole.schema, options=pyarrow.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(whole, max_chunksize=250)
        ours(flags(input=tmp_path / "in.arrow", output_prefix=tmp_path / "ours", **args), "--force")
        same(tmp_path, ("text", "other"))
    words = [program.BINARY, "pack", "--tokenizer", fixtures / "data/tokenizer", "--append-eod", "--json-keys", "text", "other", "--output-prefix", tmp_path / "on",
             "--input", tmp_path / "in.arrow", "--input", "-"]
    done = subprocess.run(words, input='{"text": 1}\n', capture_output=True, timeout=program.SECONDS, text=True)
    assert done.returncode == 1 and "900 documents are kept" in done.stderr, done.stderr
    done = subprocess.run([*words, "--resume"], input=lines, capture_output=True, timeout=program.SECONDS, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "in.jsonl").write_text(lines * 2)
    ours(flags(input=tmp_path / "in.jsonl", output_prefix=tmp_path / "theirs", **args), "--force")
    for key in ("text", "other"):
        assert (tmp_path / f"on_{key}_document.bin").read_bytes() == (tmp_path / f"theirs_{key}_document.bin").read_bytes(), key


def test_what_json_refuses_is_refused(tmp_path):
    """Lines with one character changed: pack takes those that the tool takes, and no others."""
    draw = random.Random(5)
    taken = refused = 0
    for _ in range(250):
        line = json.dumps({"a": ["x", 1.5, {"b": None}], "text": "1 22 333", "c": True})
        at = draw.randrange(len(line))
        line = line[:at] + draw.choice('{}[]",:0123456789.eE+-\\untf ') + line[at + draw.randrange(2):]
        expected = None
        try:
            text = json.loads(line)["text"]
            sentences = text if isinstance(text, list) else [text]
            expected = [int(x) for sentence in sentences for x in sentence.split(" ")]
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        done = subprocess.run([program.BINARY, "pack", "--tokenizer-type", "NullTokenizer", "--vocab-size", "100000", "--force", tmp_path / "x"],
                              input=(line + "\n").encode(), capture_output=True, timeout=program.SECONDS)
        if expected is not None and any(x < 0 or x > 2**31 - 1 for x in expected):
            continue
        assert (done.returncode == 0) == (expected is not None), (line, done.stderr)
        taken += expected is not None
        refused += expected is None
    assert taken > 15 and refused > 120

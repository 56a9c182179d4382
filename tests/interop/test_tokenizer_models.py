"""SentencePiece models, tiktoken's ranks and tekken.json: ids and decoded texts of formats/tokenizer are those of sentencepiece, tiktoken and mistral-common.

MCOREFS_TOKENIZER_MODELS=N trains N random models (4), MCOREFS_MODEL_FILES=DIR takes all *.model files of SentencePiece below DIR as well.
"""
import base64
import io
import json
import os
import pathlib
import random
import sys

import pytest

sentencepiece = pytest.importorskip("sentencepiece")
tiktoken = pytest.importorskip("tiktoken")
from test_tokenizer_json import SEED, SENTENCES, ours, texts  # noqa: E402

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def check(path, encode, decode, count=60):
    rng = random.Random(SEED)
    inputs = list(texts(rng, count))
    found = ours(path, inputs, False)
    assert not isinstance(found, str), found
    wrong = []
    for text, mine in zip(inputs, found):
        ids = encode(text.decode(errors="replace"))
        if mine != (ids, decode(ids)):
            wrong.append((text, mine, ids))
    assert not wrong, f"{path}: {len(wrong)} of {len(inputs)} texts differ, first: {wrong[0]}"


def options(rng):
    """Of sentencepiece's trainer, at random."""
    users = ["<x>", "  ", "the ", "▁▁", "\t", "ab", "👍", "▁q", "e\u0301", "<|endoftext|>"]
    return {"model_type": rng.choice(["unigram", "bpe", "word", "char"]), "vocab_size": rng.choice([600, 800]), "hard_vocab_limit": False, "minloglevel": 3, "num_threads": 1,
            "num_sub_iterations": 1, "normalization_rule_name": rng.choice(["nmt_nfkc", "nfkc", "nfkc_cf", "identity"]), "add_dummy_prefix": rng.random() < .7,
            "remove_extra_whitespaces": rng.random() < .6, "treat_whitespace_as_suffix": rng.random() < .25, "byte_fallback": rng.random() < .4,
            "split_by_whitespace": rng.random() < .7, "allow_whitespace_only_pieces": rng.random() < .4, "split_digits": rng.random() < .4,
            "max_sentencepiece_length": rng.choice([4, 16]), "character_coverage": rng.choice([.98, 1.0]), "user_defined_symbols": rng.sample(users, rng.randrange(5)),
            **({"unk_surface": "?"} if rng.random() < .3 else {}), **({"bos_id": -1} if rng.random() < .2 else {})}


@pytest.mark.parametrize("number", range(int(os.environ.get("MCOREFS_TOKENIZER_MODELS", 4))))
def test_random_models(tmp_path, number):
    rng = random.Random(SEED + number)
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(rng.choices(SENTENCES, k=60)), model_writer=out, **options(rng))
    path = tmp_path / "tokenizer.model"
    path.write_bytes(out.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    check(path, processor.encode, processor.decode)


@pytest.mark.parametrize("path", sorted(pathlib.Path(os.environ["MCOREFS_MODEL_FILES"]).rglob("*.model")) if "MCOREFS_MODEL_FILES" in os.environ else [], ids=str)
def test_models(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    check(path, processor.encode, processor.decode, 500)


def random_ranks(rng, count):
    """All bytes, and joins of tokens that the sentences have."""
    tokens = [bytes([i]) for i in rng.sample(range(256), 256)]
    known, whole = set(tokens), " ".join(SENTENCES).encode()
    while len(tokens) < count:
        at = rng.randrange(len(whole) - 12)
        token = whole[at:at + rng.randrange(2, 9)]
        if token not in known and any(token[:k] in known and token[k:] in known for k in range(1, len(token))):
            known.add(token)
            tokens.append(token)
    return tokens


@pytest.mark.parametrize("pattern", [GPT2, CL100K, O200K], ids=["gpt2", "cl100k", "o200k"])
def test_ranks(tmp_path, pattern):
    tokens, special = random_ranks(random.Random(SEED), 900), {"<|endoftext|>": 900, "<mask>": 910}
    (tmp_path / "own.tiktoken").write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(tokens)))
    (tmp_path / "tiktoken.json").write_text(json.dumps({"pat_str": pattern, "special_tokens": special}))
    encoding = tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens=special)
    check(tmp_path / "own.tiktoken", lambda text: encoding.encode(text, allowed_special="all"), encoding.decode, 200)


def test_megatrons_list(tmp_path):
    library = pytest.importorskip("megatron.core.tokenizers.text.libraries.tiktoken_tokenizer")
    tokens = [bytes([i]) for i in range(256)] + random_ranks(random.Random(SEED), 700)[256:]
    entries = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="replace")} for i, t in enumerate(tokens)]
    (tmp_path / "vocab.json").write_text(json.dumps(entries))
    for pattern in ("v1", "v2"):
        (tmp_path / "tiktoken.json").write_text(json.dumps({"pattern": pattern, "num_special_tokens": 20, "vocab_size": 700}))
        theirs = library.TikTokenTokenizer(str(tmp_path / "vocab.json"), num_special_tokens=20, pattern=pattern, vocab_size=700)
        check(tmp_path / "vocab.json", theirs.text_to_ids, theirs.tokenizer.decode, 100)


def test_tekken():
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    path = pathlib.Path(sys.modules["mistral_common"].__file__).parent / "data/tekken_240911.json"
    theirs = tekken.Tekkenizer.from_file(path)
    check(path, lambda text: theirs.encode(text, False, False), lambda ids: theirs.decode(ids, tekken.SpecialTokenPolicy.KEEP), 200)

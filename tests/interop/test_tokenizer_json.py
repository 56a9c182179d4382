"""tokenizer.json: ids and decoded texts of formats/tokenizer and of HuggingFace tokenizers are the same.

MCOREFS_TOKENIZERS=N takes N random tokenizers (6), MCOREFS_TOKENIZER_FILES=DIR all tokenizer files below DIR as well.
"""
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MCOREFS_TOKENIZE", ROOT / "build/obj/tests/bench/tokenize"))
SEED = 20250101

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It's 12345 o'clock, isn't it? We'll see; they've gone, I'm sure he'd say.",
    "def f(x):\n    return {k: v for k, v in x.items() if v != 0}  # comment\n\n\tif True:\r\n\t\tpass\n",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 0x7fff); return 0; }",
    "你好，世界！这是一个测试。漢字とひらがなとカタカナーと한국어 텍스트 입니다。",
    "مرحبا بالعالم، هذا اختبارٌ للنصِّ العربيّ. שלום עולם",
    "नमस्ते दुनिया, यह एक परीक्षण है। வணக்கம் உலகம் สวัสดีชาวโลก བཀྲ་ཤིས་བདེ་ལེགས།",
    "👨‍👩‍👧‍👦 👩🏽‍💻 🇩🇪🇫🇷 ❤️‍🔥 ☺️ 1️⃣",
    "café cafe\u0301 Å A\u030a \u212b ﬁ ﬀ ½ ² Ⅷ ㍿ ǆ ŉ ẞ ß İ ı ſ K \u1e9b\u0323 \u1100\u1161\u11a8 각",
    "Привет, мир! Ελληνικά Γειά σου Κόσμε ΣΊΣΥΦΟΣ σίσυφος ՀԱՅԵՐԵՆ ქართული",
    "   leading and trailing   \t\n  ", "\n\n\n", " ", "", "a", "\t", "  a  b   c    d", "a\u00a0b\u2003c\u3000d\u200be\ufeff f\u0085g\u180eh",
    "<s>hello</s> <unk> <pad><|endoftext|>[CLS] text [SEP][MASK] <0x41><0xE4> <s", " <mask> x<mask>y  <mask>", "▁a▁▁b ▁ ##ing Ġthe Ċ",
    "3.14159 1,000,000 ½ ٣٤٥ ४५६ ⅷ 12345678901234567890", "'S 'LL 'Ve 're' \u2019s it\u2019s IT'S 'ſ",
    "http://example.com/a?b=c&d=e#f user@example.com C:\\dir\\file.txt snake_case camelCase HTTPServer2Go",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "=" * 200, " " * 300 + "x", "\n" * 100, "ab" * 150, "…" * 50,
    "x do not y n't 'm 's . , ! ? ' z", "a\x00b\x01c\x7fd\u0080e\ufffdf",
]
BROKEN = [b"\xff\xfe ok \xc3", b"\xe4\xb8", b"a\xe4\xb8b", b"\xf0\x9f\x98 \xf0\x9f\x98\x80", b"\xed\xa0\x80\xc0\x80\xf5\x80\x80\x80", b"\xe0\x80\x80\xf4\x90\x80\x80", b"\x80\xbf\xc3\xa9\xc3"]


def texts(rng, count):
    """Bytes of mixed texts."""
    yield from (s.encode() for s in SENTENCES)
    yield from BROKEN
    words = " ".join(SENTENCES).split(" ")
    for i in range(count):
        kind = i % 5
        if kind == 0:
            yield " ".join(rng.choices(words, k=rng.randrange(1, 40))).encode()
        elif kind == 1:
            yield bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60)))
        elif kind == 2:
            yield "".join(chr(rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0xd800), rng.randrange(0xe000, 0x20000)]))
                          for _ in range(rng.randrange(1, 40))).encode()
        elif kind == 3:
            yield "".join(rng.choice(" \n\t.a1'’é你▁<s>sABE\u0301😀") for _ in range(rng.randrange(1, 80))).encode()
        else:
            a, b = rng.choice(SENTENCES), rng.choice(SENTENCES)
            yield (a[rng.randrange(len(a) + 1):] + b[:rng.randrange(len(b) + 1)]).encode()


def ours(path, inputs, special):
    """[(ids, decoded)] of the program; None where it refuses a text. A text: it refuses the file."""
    told = subprocess.run([PROGRAM, path, "ids"] + (["special"] if special else []), input=b"".join(struct.pack("<I", len(t)) + t for t in inputs), capture_output=True)
    if told.returncode:
        return told.stderr.decode()
    out, at, found = told.stdout, 0, []
    for _ in inputs:
        (count,) = struct.unpack_from("<I", out, at)
        at += 4
        if count == 0xFFFFFFFF:
            found.append(None)
            continue
        ids = struct.unpack_from(f"<{count}I", out, at)
        at += 4 * count
        (size,) = struct.unpack_from("<I", out, at)
        found.append((list(ids), out[at + 4:at + 4 + size].decode(errors="surrogateescape")))
        at += 4 + size
    return found


def theirs(tokenizer, text, special):
    try:
        ids = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=special).ids
    except Exception:  # an unknown token that the model lacks
        return None
    except BaseException:  # a panic
        return "panic"
    try:
        return ids, tokenizer.decode(ids, skip_special_tokens=False)
    except BaseException:
        return ids, None


def differences(path, inputs, special):
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    found = ours(path, inputs, special)
    if isinstance(found, str):
        return [] if "leaves nothing of the added token" in found else [("refused", found)]
    wrong = []
    for text, mine in zip(inputs, found):
        wanted = theirs(tokenizer, text, special)
        if wanted == "panic":
            continue
        if mine is None or wanted is None:
            same = mine is None and wanted is None
        else:
            same = mine[0] == wanted[0] and (wanted[1] is None or mine[1] == wanted[1])
        if not same:
            wrong.append((text, mine, wanted))
    return wrong


# ---- random tokenizers ----

def some(rng, *choices):
    return rng.choice(choices)()


def a_normalizer(rng, depth=0):
    one = [normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt,
           lambda: normalizers.Strip(rng.random() < .5, rng.random() < .5), lambda: normalizers.Prepend("▁"), lambda: normalizers.Replace(" ", "▁"),
           lambda: normalizers.Replace(tokenizers.Regex(r" {2,}|\s+$"), " "), lambda: normalizers.Replace(tokenizers.Regex("[\\r\\n]+"), ""), normalizers.ByteLevel,
           lambda: normalizers.BertNormalizer(rng.random() < .5, rng.random() < .5, rng.choice([None, True, False]), rng.random() < .5)]
    if depth == 0 and rng.random() < .3:
        return normalizers.Sequence([a_normalizer(rng, 1) for _ in range(rng.randrange(1, 4))])
    return rng.choice(one)()


PATTERNS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{N}{1,3}+|\w+|\W", r"[一-龥぀-ゟ゠-ヿ]+", r"\d{2}?|\h+", r"^\s|\s$|\n", r".", r"[\p{L}--]+", r"\s?\p{L}++|[^\p{L}]*+",
    r"[A-Za-z]+\b|\B\S", r"(?<=\p{L})(?=\p{Lu})", r"[[:alpha:]]+|[^\w\s-]+", r"(?m)a.b|c$",
]


def a_pre_tokenizer(rng, depth=0):
    behavior = rng.choice(["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
    one = [lambda: pre_tokenizers.ByteLevel(rng.random() < .5, use_regex=rng.random() < .7), lambda: pre_tokenizers.Split(tokenizers.Regex(rng.choice(PATTERNS)), behavior, rng.random() < .3),
           lambda: pre_tokenizers.Split(rng.choice([" ", "e", "the", "▁"]), behavior, rng.random() < .3), pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit,
           lambda: pre_tokenizers.Metaspace("▁", rng.choice(["first", "never", "always"]), rng.random() < .7), lambda: pre_tokenizers.Digits(rng.random() < .5),
           lambda: pre_tokenizers.Punctuation(behavior), pre_tokenizers.BertPreTokenizer, lambda: pre_tokenizers.CharDelimiterSplit(rng.choice("e .")),
           lambda: pre_tokenizers.FixedLength(rng.randrange(1, 7))]
    if depth == 0 and rng.random() < .4:
        return pre_tokenizers.Sequence([a_pre_tokenizer(rng, 1) for _ in range(rng.randrange(1, 4))])
    return rng.choice(one)()


def a_decoder(rng, depth=0):
    one = [decoders.ByteLevel, decoders.ByteFallback, decoders.Fuse, lambda: decoders.Strip(rng.choice(" ae"), rng.randrange(3), 0), lambda: decoders.Replace("▁", " "),
           lambda: decoders.WordPiece("##", rng.random() < .5), lambda: decoders.Metaspace("▁", rng.choice(["first", "never", "always"])),
           lambda: decoders.BPEDecoder("</w>"), lambda: decoders.CTC("<pad>", "|", rng.random() < .5)]
    if depth == 0 and rng.random() < .5:
        return decoders.Sequence([a_decoder(rng, 1) for _ in range(rng.randrange(1, 5))])
    return rng.choice(one)()


def a_model(rng, vocabulary):
    special = ["<s>", "</s>", "<unk>", "<pad>"]
    kind = rng.randrange(4)
    if kind == 0:
        prefix, suffix = rng.choice([None, None, "##", "@@"]), rng.choice([None, None, "</w>"])
        fallback = rng.random() < .4
        model = models.BPE(unk_token=rng.choice([None, "<unk>"]), continuing_subword_prefix=prefix, end_of_word_suffix=suffix, fuse_unk=rng.random() < .5,
                           byte_fallback=fallback, ignore_merges=rng.random() < .3)
        bytes_of = [f"<0x{i:02X}>" for i in range(256)] if fallback and rng.random() < .7 else []
        trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special + bytes_of, show_progress=False, limit_alphabet=rng.choice([40, 200, 1000]),
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if rng.random() < .5 else [],
                                      **({"continuing_subword_prefix": prefix} if prefix else {}), **({"end_of_word_suffix": suffix} if suffix else {}))
    elif kind == 1:
        model, trainer = models.WordPiece(unk_token="<unk>", max_input_chars_per_word=rng.choice([5, 100])), trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    elif kind == 2:
        model, trainer = models.WordLevel(unk_token=rng.choice(["<unk>", "none"])), trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    else:
        bytes_of = [f"<0x{i:02X}>" for i in range(256)] if rng.random() < .3 else []
        model = models.Unigram()
        trainer = trainers.UnigramTrainer(vocab_size=vocabulary + len(bytes_of), special_tokens=special + bytes_of, unk_token="<unk>", show_progress=False)
    return model, trainer


def a_processor(rng):
    return rng.choice([lambda: processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 0), ("</s>", 1)]),
                       lambda: processors.BertProcessing(("</s>", 1), ("<s>", 0)), lambda: processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), lambda: processors.ByteLevel(),
                       lambda: processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", pair="$A $B", special_tokens=[("<s>", 0)])])])()


def a_tokenizer(rng):
    model, trainer = a_model(rng, rng.choice([300, 600, 1000]))
    tokenizer = tokenizers.Tokenizer(model)
    if rng.random() < .6:
        tokenizer.normalizer = a_normalizer(rng)
    if rng.random() < .85:
        tokenizer.pre_tokenizer = a_pre_tokenizer(rng)
    if rng.random() < .7:
        tokenizer.post_processor = a_processor(rng)
    if rng.random() < .8:
        tokenizer.decoder = a_decoder(rng)
    tokenizer.train_from_iterator(rng.choices(SENTENCES, k=40), trainer)
    tokens = ["<mask>", "<|endoftext|>", "[CLS]", "THE", "é", " x", "  ", "ﬁ", "Day"]
    for content in rng.sample(tokens, rng.randrange(len(tokens))):
        token = tokenizers.AddedToken(content, single_word=rng.random() < .3, lstrip=rng.random() < .3, rstrip=rng.random() < .3, normalized=rng.random() < .5)
        (tokenizer.add_special_tokens if rng.random() < .5 else tokenizer.add_tokens)([token])
    return tokenizer


def check(path, rng, count, special):
    wrong = differences(path, list(texts(rng, count)), special)
    assert not wrong, f"{path}: {len(wrong)} texts differ, first: {wrong[0]}"


@pytest.mark.parametrize("number", range(int(os.environ.get("MCOREFS_TOKENIZERS", 6))))
def test_random_tokenizers(tmp_path, number):
    rng = random.Random(SEED + number)
    try:
        tokenizer = a_tokenizer(rng)
    except BaseException as why:  # tokenizers panics on some of these
        pytest.skip(str(why))
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    check(path, rng, 60, number % 2 == 0)


@pytest.mark.parametrize("path", [*sorted((ROOT / "tests/fixtures/tokenizers").glob("*.json")), *sorted(pathlib.Path(os.environ.get("MCOREFS_TOKENIZER_FILES", "/nonexistent")).rglob("*.json"))], ids=str)
def test_files(path):
    check(path, random.Random(SEED), 500, True)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))

"""Makes corpus/sentencepiece and reject/sentencepiece: python3 tests/fuzz/make_sentencepiece_seeds.py. The package sentencepiece writes the
models, and says of each that it loads it, or that it does not."""
import io
import json
import pathlib
import shutil

import sentencepiece

HERE = pathlib.Path(__file__).parent
FIXTURES = HERE.parent / "fixtures/data"
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, kind=None):
    return field(1, field(1, text) + b"\x15\0\0\0\0" + (field(3, kind) if kind else b""))


def train(**more):
    texts = [json.loads(line)["text"] for line in (FIXTURES / "tales.jsonl").read_text().splitlines()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, hard_vocab_limit=False, minloglevel=2,
                                             normalization_rule_name="identity", **{"vocab_size": 200, **more})
    return model.getvalue()


def says(model):
    """(pieces, eos, pad) as sentencepiece says, or None."""
    try:
        loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
        return loaded.get_piece_size(), loaded.eos_id(), loaded.pad_id()
    except (RuntimeError, TypeError):
        return None


UNK, BOS, EOS = piece(b"<unk>", UNKNOWN), piece(b"<s>", CONTROL), piece(b"</s>", CONTROL)
PAD = piece(b"<pad>", CONTROL)
LETTERS = piece("\u2581a".encode()) + piece(b"b")
SMALL = UNK + BOS + EOS + LETTERS
TRAINER = field(2, field(3, 1) + field(42, 1))

# What the package reports of each is written with it in tests/unit/formats/hf/test_sentencepiece.c.
MODELS = {
    "unigram": train(), "bpe": train(model_type="bpe", vocab_size=120), "no-eos": train(eos_id=-1, vocab_size=100),
    "end": train(eos_piece="<end>", bos_id=-1, vocab_size=100), "eos-last": train(pad_id=3, eos_id=5, bos_id=4, vocab_size=100),
    "bytes": train(byte_fallback=True, vocab_size=400, user_defined_symbols=["<x>"]),
    "small": SMALL, "trainer-says-another-id": SMALL + TRAINER, "trainer-first": TRAINER + SMALL,
    "empty-eos": SMALL + field(2, field(47, b"")), "other-eos": SMALL + field(2, field(47, b"b")),
    "two-trainers": SMALL + field(2, field(47, b"x")) + field(2, field(47, b"<s>")), "eos-is-text": UNK + piece(b"</s>") + LETTERS,
    "eos-is-users": UNK + piece(b"</s>", USER_DEFINED), "unknown-fields": SMALL + field(200, 1) + b"\xc5\x0c\0\0\0\0\xc1\x0c" + bytes(8),
    "long-varint": SMALL + b"\x08" + b"\x80" * 9 + b"\x02",  # bits that do not fit are dropped
    "type-of-the-future": UNK + EOS + piece(b"c", 9), "pad": SMALL + PAD, "pad-is-text": SMALL + piece(b"<pad>"),
    "other-pad": SMALL + PAD + piece(b"<empty>", CONTROL) + field(2, field(48, b"<empty>")),
}
BAD = {
    "empty": b"", "no-unknown": BOS + EOS, "two-unknown": SMALL + piece(b"<unk2>", UNKNOWN), "no-text": UNK + field(1, field(3, 1)),
    "empty-text": SMALL + piece(b""), "eos-twice": SMALL + EOS, "pad-twice": SMALL + PAD + PAD, "cut": SMALL[:-1], "cut-in-a-piece": UNK + field(1, b"\x0a\x09</s>"),
    "field-0": SMALL + b"\x02\x01a", "group": SMALL + b"\x0b", "form-7": SMALL + b"\x0f",
    "endless-varint": SMALL + b"\x08" + b"\xff" * 11, "huge-length": SMALL + b"\x12" + b"\xff" * 9 + b"\x01", "cut-fixed": SMALL + b"\x15\0\0",
    "trainer-cut": SMALL + field(2, b"\xfa\x02\x05a"), "json": b'{"model": {"type": "BPE"}}', "big-field": SMALL + varint(1 << 32 | 1 << 3) + b"\1",
}


def main():
    corpus, reject = HERE / "corpus/sentencepiece", HERE / "reject/sentencepiece"
    for folder in (corpus, reject):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for name, model in MODELS.items():
        assert says(model), name
        print(f"{name}: {says(model)}, {len(model)} bytes")
        (corpus / f"ok-{name}").write_bytes(model)
    for name, model in BAD.items():
        # It takes no bytes for no model, and drops bits of a field's number.
        assert name in ("empty", "big-field") or not says(model), name
        (reject / name).write_bytes(model)


main()

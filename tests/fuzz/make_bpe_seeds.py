"""Makes corpus/bpe and reject/bpe: python3 tests/fuzz/make_bpe_seeds.py. An input is tokenizer.json, and behind NULs the config and the template."""
import copy
import json
import pathlib

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
BYTES = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
DIGITS = dict(type="Digits", individual_digits=True)
TEMPLATE = dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id="<|endoftext|>", type_id=0)), dict(Sequence=dict(id="A", type_id=0))])
BASE = dict(
    version="1.0", added_tokens=[dict(id=0, content="<|endoftext|>", special=True), dict(id=7, content="\u2581x", special=False)], normalizer=None,
    pre_tokenizer=BYTES, post_processor=TEMPLATE,
    model=dict(type="BPE", byte_fallback=False, ignore_merges=False, continuing_subword_prefix=None, end_of_word_suffix="",
               vocab={"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u0120a": 5, "\U0001F600": 6}, merges=[["a", "b"], ["\u0120", "a"]]))
CONFIG = dict(bos_token="<|endoftext|>", eos_token=dict(content="<|endoftext|>"), model_max_length=10**30,
              chat_template=[dict(name="tool", template="x"), dict(name="default", template="{{ m }}")])
TEXT = json.dumps(BASE)


def both(*steps):
    return dict(type="Sequence", pretokenizers=list(steps))


def split(regex, behavior="Isolated", invert=False):
    return both(dict(type="Split", pattern=dict(Regex=regex), behavior=behavior, invert=invert), dict(BYTES, use_regex=False))


def but(**changed):
    """BASE with other values: model__vocab is that of its model. None that is ... is taken out."""
    tokenizer = copy.deepcopy(BASE)
    for path, value in changed.items():
        *way, key = path.split("__")
        place = tokenizer[way[0]] if way else tokenizer
        if value is ...:
            del place[key]
        else:
            place[key] = value
    return tokenizer


def put(kind, name, *parts):
    place = HERE / kind / "bpe"
    place.mkdir(parents=True, exist_ok=True)
    texts = [part if isinstance(part, (str, bytes)) else json.dumps(part) for part in parts]
    (place / name).write_bytes(b"\0".join(text if isinstance(text, bytes) else text.encode() for text in texts))


ACCEPTED = {
    "gpt2": (BASE, CONFIG),
    "llama3": (but(pre_tokenizer=split(LLAMA3), model__ignore_merges=True, model__merges=["a b", "\u0120 a"]), CONFIG, "{{ jinja }}"),
    "qwen2": (but(pre_tokenizer=split(QWEN2), normalizer=dict(type="NFC"), post_processor=BYTES), dict(eos_token="<|endoftext|>"), "{{ jinja }}"),
    "tekken": (but(pre_tokenizer=split(TEKKEN), model__ignore_merges=True),),
    "smollm": (but(pre_tokenizer=both(DIGITS, BYTES), post_processor=dict(type="Sequence", processors=[BYTES, TEMPLATE])),),
    "no-merges": (but(model__merges=[], post_processor=None),),
    "space-in-merge": (but(model__merges=[["a", " b"]]),),
}
REFUSED = {
    "empty": b"", "list": "[]", "cut": TEXT[:-9], "no-model": but(model=...), "no-vocab": but(model__vocab=...), "no-merges": but(model__merges=...),
    "unigram": but(model__type="Unigram"), "byte-fallback": but(model__byte_fallback=True), "suffix": but(model__end_of_word_suffix="</w>"),
    "prefix": but(model__continuing_subword_prefix="##"), "normalizer": but(normalizer=dict(type="Lowercase")), "no-pre": but(pre_tokenizer=None),
    "metaspace": but(pre_tokenizer=dict(type="Metaspace")), "regex": but(pre_tokenizer=split(QWEN2 + "|x")),
    "removed": but(pre_tokenizer=split(QWEN2, behavior="Removed")), "inverted": but(pre_tokenizer=split(QWEN2, invert=True)),
    "prefix-space": but(pre_tokenizer=dict(BYTES, add_prefix_space=True)), "regex-twice": but(pre_tokenizer=both(split(QWEN2)["pretokenizers"][0], BYTES)),
    "qwen2-ignores-merges": but(pre_tokenizer=split(QWEN2), model__ignore_merges=True),
    "digits-together": but(pre_tokenizer=both(dict(DIGITS, individual_digits=False), BYTES)),
    "id-outside": but(model__vocab={"a": 64}), "id-huge": but(model__vocab={"a": 99999999999}), "id-negative": but(model__vocab={"a": -1}),
    "id-text": but(model__vocab={"a": "1"}), "vocab-list": but(model__vocab=[["a", 0.0]]), "same-id": but(model__vocab={"a": 1, "b": 1}),
    "same-text": TEXT.replace('"a": 1', '"a": 1, "a": 9'), "same-text-as-padding": but(model__vocab={"[PAD9]": 1}), "empty-token": but(model__vocab={"": 1}),
    "half-surrogate": TEXT.replace(r"\ud83d\ude00", r"\ud83d"), "low-surrogate": TEXT.replace(r"\ud83d\ude00", r"\ude00"),
    "two-high-surrogates": TEXT.replace(r"\ud83d\ude00", r"\ud83d\ud83d"), "escape": TEXT.replace('"ab"', r'"a\x"'), "nul": TEXT.replace('"ab"', r'"\u0000"'),
    "hex": TEXT.replace('"ab"', r'"\u12g4"'), "latin1": TEXT.encode().replace(b'"ab"', b'"\xe9"'), "overlong": TEXT.encode().replace(b'"ab"', b'"\xc0\xaf"'),
    "utf8-surrogate": TEXT.encode().replace(b'"ab"', b'"\xed\xa0\x80"'), "utf8-cut": TEXT.encode().replace(b'"ab"', b'"\xe2\x82"'),
    "added-no-id": but(added_tokens=[dict(content="x")]), "added-object": but(added_tokens={"a": 1}),
    "added-outside": but(added_tokens=[dict(id=64, content="x")]), "added-other-text": but(added_tokens=[dict(id=1, content="x")]),
    "merge-three": but(model__merges=[["a", "b", "c"]]), "merge-one": but(model__merges=["ab"]), "merge-two-spaces": but(model__merges=["a b c"]),
    "merge-empty": but(model__merges=[["", "a"]]), "merge-number": but(model__merges=[1]), "merges-object": but(model__merges={"a": "b"}),
    "merges-open": TEXT.replace('"a"]]', '"a"] 5]'), "deep-pre": TEXT.replace(json.dumps(BYTES), "[" * 5000 + "]" * 5000, 1),
}

for name, parts in ACCEPTED.items():
    put("corpus", f"ok-{name}", *parts)
for name, part in REFUSED.items():
    put("reject", name, part)
put("reject", "config-cut", BASE, '{"bos_token"')

#!/usr/bin/env python3
"""make_tokenizer_seeds.py: seeds and refused inputs of fuzz_tokenizer_json.c, in tests/fuzz."""
import base64
import json
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).parent
WORDLEVEL = {"type": "WordLevel", "vocab": {"<unk>": 0, "the": 1, "a": 2, "b": 3}, "unk_token": "<unk>"}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "\u0120": 4, "<0xC3>": 5, "<0xA9>": 6}, "merges": ["a b"], "unk_token": "<unk>", "byte_fallback": True}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["the", -1.5], ["t", -2], ["\u2581", -3e0]]}
WORDPIECE = {"type": "WordPiece", "vocab": {"[UNK]": 0, "the": 1, "##e": 2, "th": 3}, "unk_token": "[UNK]", "max_input_chars_per_word": 5}
# a double array of no prefixes, and one string
CHARSMAP = "CAAAAAAAAAAAAAAAeAA="
# "x" becomes the second byte of a character
UNITS = {0x78: 0x578, 0x79: 1}
CHARSMAP_WITHIN = base64.b64encode(struct.pack("<123I", 122 * 4, *(UNITS.get(i, 0) for i in range(122))) + b"\xc3\xa9\0").decode()


def added(content, **flags):
    return {"id": 9, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def sequence(name, *steps):
    return {"type": "Sequence", name: list(steps)}


def regex(pattern):
    return {"Regex": pattern}


ACCEPTED = {
    "wordlevel": dict(model=WORDLEVEL, pre_tokenizer={"type": "Whitespace"}, added_tokens=[added("<s>", lstrip=True), added("caf", single_word=True, normalized=True, rstrip=True)]),
    "bpe": dict(model=BPE, pre_tokenizer=sequence("pretokenizers", {"type": "Split", "pattern": regex(r"\p{N}{1,3}+|\w+|(?i:'s)| ?[^\s\p{L}]+"), "behavior": "Isolated", "invert": False},
                                                  {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}), decoder={"type": "ByteLevel"}),
    "bpe-marks": dict(model={**BPE, "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "merges": [], "fuse_unk": True, "ignore_merges": True},
                      decoder=sequence("decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "BPEDecoder", "suffix": "</w>"})),
    "bpe-nothing-known": dict(model={"type": "BPE", "vocab": {"zz": 0}, "merges": []}, pre_tokenizer={"type": "WhitespaceSplit"}),
    "unigram": dict(model=UNIGRAM, normalizer=sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, {"type": "Replace", "pattern": regex(" {2,}"), "content": " "},
                                                       {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}),
                    pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}, decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}),
    "wordpiece": dict(model=WORDPIECE, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                      pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, post_processor={"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 2]}),
    "charsmap-within-a-character": dict(model=WORDLEVEL, normalizer=sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": CHARSMAP_WITHIN}, {"type": "Strip", "strip_left": True, "strip_right": True})),
    "steps": dict(model=WORDLEVEL, normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": False},
                                                       {"type": "Prepend", "prepend": "a"}, {"type": "ByteLevel"}, {"type": "NFC"}, {"type": "NFKD"}),
                  pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "CharDelimiterSplit", "delimiter": "b"},
                                         {"type": "FixedLength", "length": 2}, {"type": "WhitespaceSplit"}, {"type": "Split", "pattern": {"String": ""}, "behavior": "MergedWithNext", "invert": True}),
                  decoder={"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True},
                  post_processor=sequence("processors", {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                                                                "pair": [], "special_tokens": {"s": {"id": "s", "ids": [1, 2], "tokens": ["x", "y"]}}})),
}
REFUSED = {
    "model-missing": {},
    "model-unknown": dict(model={"type": "Oracle", "vocab": {}}),
    "model-no-vocab": dict(model={"type": "BPE", "merges": []}),
    "model-id-twice": dict(model={**WORDLEVEL, "vocab": {"a": 0, "b": 0}}),
    "model-id-large": dict(model={**WORDLEVEL, "vocab": {"a": 1 << 30}}),
    "model-id-negative": dict(model={**WORDLEVEL, "vocab": {"a": -1}}),
    "merge-of-none": dict(model={**BPE, "merges": ["a c"]}),
    "merge-makes-none": dict(model={**BPE, "merges": [["b", "a"]]}),
    "merge-of-three": dict(model={**BPE, "merges": ["a b c"]}),
    "merge-of-none-after-version": dict(model={**BPE, "merges": ["#version: 0.2", "a c"]}),
    "merge-shorter-than-prefix": dict(model={**BPE, "continuing_subword_prefix": "####"}),
    "unk-id-none": dict(model={**UNIGRAM, "unk_id": 4}),
    "score-no-number": dict(model={**UNIGRAM, "vocab": [["<unk>", "x"]]}),
    "dropout": dict(model={**BPE, "dropout": 0.5}),
    "normalizer-unknown": dict(model=WORDLEVEL, normalizer={"type": "Shout"}),
    "normalizer-no-type": dict(model=WORDLEVEL, normalizer={}),
    "charsmap-short": dict(model=WORDLEVEL, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAA="}),
    "charsmap-no-base64": dict(model=WORDLEVEL, normalizer={"type": "Precompiled", "precompiled_charsmap": "####"}),
    "charsmap-too-long": dict(model=WORDLEVEL, normalizer={"type": "Precompiled", "precompiled_charsmap": "CAAAAAAAAAA="}),
    "pre-tokenizer-unknown": dict(model=WORDLEVEL, pre_tokenizer={"type": "Cut"}),
    "behavior-unknown": dict(model=WORDLEVEL, pre_tokenizer={"type": "Punctuation", "behavior": "Lost"}),
    "length-0": dict(model=WORDLEVEL, pre_tokenizer={"type": "FixedLength", "length": 0}),
    "delimiter-long": dict(model=WORDLEVEL, pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": "ab"}),
    "scheme-contradicts": dict(model=WORDLEVEL, pre_tokenizer={"type": "Metaspace", "replacement": "_", "add_prefix_space": False, "prepend_scheme": "always"}),
    "regex-group-open": dict(model=WORDLEVEL, pre_tokenizer={"type": "Split", "pattern": regex("(a"), "behavior": "Isolated", "invert": False}),
    "regex-intersection": dict(model=WORDLEVEL, pre_tokenizer={"type": "Split", "pattern": regex("[a&&b]"), "behavior": "Isolated", "invert": False}),
    "decoder-unknown": dict(model=WORDLEVEL, decoder={"type": "Paste"}),
    "decoder-empty-suffix": dict(model=WORDLEVEL, decoder={"type": "BPEDecoder", "suffix": ""}),
    "decoder-no-suffix": dict(model=WORDLEVEL, decoder={"type": "BPEDecoder"}),
    "processor-unknown": dict(model=WORDLEVEL, post_processor={"type": "Wrap"}),
    "template-two-texts": dict(model=WORDLEVEL, post_processor={"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}}),
    "template-no-special": dict(model=WORDLEVEL, post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}),
    "added-no-content": dict(model=WORDLEVEL, added_tokens=[{"id": 1}]),
    "added-no-flags": dict(model=WORDLEVEL, added_tokens=[{"id": 1, "content": "x"}]),
    "added-long": dict(model=WORDLEVEL, added_tokens=[added("x" * 4097)]),
    "added-normalized-to-one": dict(model=WORDLEVEL, normalizer={"type": "Lowercase"}, added_tokens=[added("X", normalized=True), added("x", normalized=True)]),
    "added-normalized-away": dict(model=WORDLEVEL, normalizer={"type": "Strip", "strip_left": True, "strip_right": True}, added_tokens=[added(" ", normalized=True)]),
    "version": dict(model=WORDLEVEL, version="2.0"),
}


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content, encoding="utf-8")


corpus, reject = HERE / "corpus/tokenizer_json", HERE / "reject/tokenizer_json"
for folder in (corpus, reject):
    shutil.rmtree(folder, ignore_errors=True)
for name, told in ACCEPTED.items():
    write(corpus, f"ok-{name}", json.dumps(told, ensure_ascii=False) + "\0the caf\u00e9 12 ab<s>")
for name, told in REFUSED.items():
    write(reject, name, json.dumps(told, ensure_ascii=False))
write(reject, "cut", json.dumps(ACCEPTED["bpe"])[:-2])
write(reject, "two-objects", "{}{}")

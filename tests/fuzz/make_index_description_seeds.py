"""Makes corpus/index_description and reject/index_description: python3 tests/fuzz/make_index_description_seeds.py.

An input is a letter for the version (fuzz_index_description.c), then the text. Seeds called ok-* must be accepted. Each input
under reject/ breaks one rule, which its name says.
"""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
CORE_4, CORE_6, CORE_9, NEWEST, BEFORE = "abcde"


def save(kind, name, version, text):
    os.makedirs(f"{HERE}/{kind}/index_description", exist_ok=True)
    with open(f"{HERE}/{kind}/index_description/{name}", "w") as f:
        f.write(version + (text if isinstance(text, str) else json.dumps(text, indent=4)))


def gpt(path="/d/a", samples=5, split="99,1,0", matrix=((0, 0.99), (0.99, 1.0), None), index_split="train", tokenizer=None, **other):
    o = {"class": "GPTDataset", "dataset_path": path, "num_samples": samples, "index_split": index_split, "random_seed": 1,
         "sequence_length": 8, "split": split, "split_matrix": matrix, "tokenizer": tokenizer or {"class": "T"}}
    return {**o, **other}


def first(path="/d/a", **other):
    o = {"class": "GPTDataset", "path_prefix": path, "num_samples": 5, "index_split": "train", "split": "1", "random_seed": 1, "sequence_length": 8}
    return {**o, **other}


def blend(members=None, weights=(0.25, 0.75), size=8, split="train", **other):
    o = {"class": "BlendedDataset", "datasets": members or [gpt("/d/a"), gpt("/d/b", None)], "split": split, "weights": list(weights), "size": size}
    return {k: v for k, v in {**o, **other}.items() if v != "gone"}


def main():
    save("corpus", "ok-gpt", NEWEST, gpt())
    save("corpus", "ok-epoch-valid", NEWEST, gpt(samples=None, index_split="valid"))
    save("corpus", "ok-per-split", NEWEST, gpt(split=None, matrix=None))
    save("corpus", "ok-characters", NEWEST, gpt(path="/\u00e4/\U0001f600\"\\\x7f\n", tokenizer={"a": [], "b": {}, "c": [1e-07, 1.5, -3, True, None]}))
    save("corpus", "ok-first-part-nothing", NEWEST, gpt(split="0,1", matrix=(None, (0.0, 1.0), None)))
    save("corpus", "ok-blend", NEWEST, blend())
    save("corpus", "ok-exhaustive", NEWEST, blend(weights=(3, 4), size=None))
    save("corpus", "ok-core-0.4", CORE_4, first())
    save("corpus", "ok-core-0.4-blend", CORE_4, blend([first(), first("/d/b")], split="gone"))
    save("corpus", "ok-core-0.6-blend", CORE_6, blend(split="gone"))
    save("corpus", "ok-core-0.9-blend", CORE_9, blend(renormalize_blend_weights=False))
    save("reject", "no-version", "z", gpt())
    save("reject", "before-core", BEFORE, gpt())
    save("reject", "not-json", NEWEST, "{")
    save("reject", "not-an-object", NEWEST, "[]")
    save("reject", "another-class", NEWEST, gpt(**{"class": "BERTMaskedWordPieceDataset"}))
    save("reject", "a-line-break-more", NEWEST, json.dumps(gpt(), indent=4) + "\n")
    save("reject", "another-indentation", NEWEST, json.dumps(gpt(), indent=2))
    save("reject", "a-key-more", NEWEST, gpt(more=1))
    save("reject", "another-order", NEWEST, dict(reversed(gpt().items())))
    save("reject", "key-twice", NEWEST, json.dumps(gpt(), indent=4).replace('"split": "99', '"class": "GPTDataset",\n    "split": "99'))
    save("reject", "no-tokenizer", NEWEST, gpt(tokenizer="T"))
    save("reject", "no-path", NEWEST, gpt(path=None))
    save("reject", "negative-samples", NEWEST, gpt(samples=-1))
    save("reject", "samples-not-whole", NEWEST, gpt(samples=5.0))
    save("reject", "too-many-samples", NEWEST, gpt(samples=2**60))
    save("reject", "seed-of-33-bits", NEWEST, gpt(random_seed=2**32))
    save("reject", "no-seed", NEWEST, gpt(random_seed=None))
    save("reject", "no-such-split", NEWEST, gpt(index_split="dev"))
    save("reject", "wrong-matrix", NEWEST, gpt(split="98,2,0"))
    save("reject", "first-edge-a-float", NEWEST, gpt(matrix=((0.0, 0.99), (0.99, 1.0), None)))
    save("reject", "four-parts", NEWEST, gpt(split="1,1,1,1"))
    save("reject", "of-core-0.4", NEWEST, first())
    save("reject", "not-of-core-0.4", CORE_4, gpt())
    save("reject", "blend-of-nothing", NEWEST, blend(members=[{}], weights=()))
    save("reject", "a-weight-less", NEWEST, blend(weights=(1.0,)))
    save("reject", "weight-0", NEWEST, blend(weights=(0.0, 1.0)))
    save("reject", "weights-without-size", NEWEST, blend(size=None))
    save("reject", "lengths-with-size", NEWEST, blend(weights=(3, 4)))
    save("reject", "members-of-two-seeds", NEWEST, blend([gpt(), gpt(random_seed=2)]))
    save("reject", "members-of-two-tokenizers", NEWEST, blend([gpt(), gpt(tokenizer={"class": "U"})]))
    save("reject", "member-no-object", NEWEST, blend([gpt(), 3]))
    save("reject", "split-of-another", NEWEST, blend(split="valid"))
    save("reject", "blend-without-split", NEWEST, blend(split="gone"))
    save("reject", "blend-not-of-core-0.9", CORE_9, blend())
    # As Python would write it, this has 9 MB of indentation.
    save("reject", "deep", NEWEST, json.dumps(gpt()).replace('{"class": "T"}', '{"a": ' + "[" * 1500 + "]" * 1500 + "}"))


main()

"""megatron-core builds datasets from indices of its own, then from a directory that it is given as its cache: index_cache.py < CASES.

CASES is a JSON list; what came of each case is a line of JSON: its name, and "" or what is wrong. A case has

    blend       [prefixes, weights or null], or
    per_split   three of them, or null
    split       --split, of blend alone
    seed, length, sizes, tokenizer (a directory, or unique_identifiers)
    reference   an empty directory, which Megatron fills
    ours        the directory under test, which is to hold the same
    flags       of the configuration, when ours is read
    sets        the validation sets are kept apart, and ours may have more files
"""
import collections
import json
import logging
import os
import sys
import tempfile
import traceback
import warnings

import numpy
import torch

warnings.simplefilter("ignore")
import no_extensions  # noqa: E402,F401

from megatron.core import package_info  # noqa: E402
from megatron.core.datasets import gpt_dataset, helpers  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402


class Tokenizer:
    """What datasets want to know of one, for versions that have none of their own."""

    vocab_size, eod, eos, pad = 50000, 1, 1, -1

    def __init__(self, identifiers):
        self.unique_identifiers = collections.OrderedDict(identifiers)


def tokenizer(what):
    if not isinstance(what, str):
        return Tokenizer(what)
    from megatron.core.tokenizers import MegatronTokenizer

    return MegatronTokenizer.from_pretrained(what, metadata_path={"library": "huggingface"})


class Messages(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def build(case, cache, **flags):
    """The datasets of the splits, or of validation sets, and what Megatron said about it."""
    if case["sets"]:
        flags |= {"multiple_validation_sets": True, "full_validation": True}
    data = {"blend": case["blend"], "split": case["split"]} if case.get("blend") else {"blend_per_split": case["per_split"]}
    config = gpt_dataset.GPTDatasetConfig(
        random_seed=case["seed"], sequence_length=case["length"], path_to_cache=cache, tokenizer=tokenizer(case["tokenizer"]),
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False, **data, **flags)
    messages, log = Messages(), logging.getLogger("megatron.core.datasets")
    log.addHandler(messages)
    log.setLevel(logging.INFO)
    try:
        built = BlendedMegatronDatasetBuilder(gpt_dataset.GPTDataset, case["sizes"], lambda: True, config).build()
        return [d for split in built for d in (split if isinstance(split, list) else [split])], messages.lines
    finally:
        log.removeHandler(messages)


def forbidden(*arguments, **keywords):
    raise AssertionError("an index is built, or written")


class NothingBuilt:
    """Megatron's functions that make indices, and numpy's that write them, fail."""

    places = [(numpy, "save"), (helpers, "build_sample_idx"), (helpers, "build_blending_indices"), (helpers, "build_exhaustive_blending_indices"),
              (gpt_dataset, "_build_document_index"), (gpt_dataset, "_build_shuffle_index")]

    def __enter__(self):
        self.kept = [getattr(where, name) for where, name in self.places]
        for where, name in self.places:
            setattr(where, name, forbidden)

    def __exit__(self, *_):
        for (where, name), function in zip(self.places, self.kept):
            setattr(where, name, function)


def same_samples(ours, theirs):
    assert (ours is None) == (theirs is None), "a split has a dataset in one of both"
    if theirs is None:
        return 0
    assert len(ours) == len(theirs), f"{len(ours)} samples instead of {len(theirs)}"
    for i in range(len(theirs)):
        a, b = ours[i], theirs[i]
        assert a.keys() == b.keys()
        for key in b:
            assert torch.equal(torch.as_tensor(a[key]), torch.as_tensor(b[key])), f"sample {i}: {key} differs"
    return len(theirs)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def same_files(case):
    theirs, ours = sorted(os.listdir(case["reference"])), sorted(os.listdir(case["ours"]))
    assert ours == theirs or (case["sets"] and set(ours) > set(theirs)), f"files differ: {sorted(set(ours) ^ set(theirs))}"
    assert theirs, "no files at all"
    for name in theirs:
        a, b = read(f"{case['ours']}/{name}"), read(f"{case['reference']}/{name}")
        assert a == b, f"{name}: {len(a)} and {len(b)} bytes, first difference at {next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), 'the end')}"


def check(case):
    flags = case.get("flags", {})
    theirs, said = build(case, case["reference"])
    assert any("Build and save" in line for line in said), "Megatron had built its own before"
    same_files(case)
    with NothingBuilt():
        ours, said = build(case, case["ours"], **flags)
        assert not any("Build" in line and "indices" in line for line in said), said
        if not flags.get("defer_npy_index_mmap"):
            loads = sum("Load the" in line for line in said)
            built = len([d for d in ours if d is not None])
            assert loads >= built, f"{loads} loads for {built} datasets"
        counts = [same_samples(a, b) for a, b in zip(ours, theirs)]
    return counts


def main():
    torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    for case in json.load(sys.stdin):
        try:
            print(json.dumps([case["name"], "", check(case)]), flush=True)
        except Exception:
            print(json.dumps([case["name"], traceback.format_exc()[-2000:], []]), flush=True)
    print(json.dumps(["version", package_info.__version__, []]), flush=True)


main()

"""Megatron's own datasets, sample by sample: megatron_samples.py JOBS.json OUT.npz.

A job says what a run's arguments say (see below); OUT holds for every job and split "I-SPLIT", the S + 1 tokens of each sample in
order, and for blends "I-SPLIT-id", the dataset of each. What Megatron refuses is "I-error", a text. PYTHONPATH may name an older
megatron-core; the last line on stdout is its version.
"""
import inspect
import json
import sys
import warnings

import numpy

warnings.simplefilter("ignore")
import no_extensions  # noqa: E402,F401

from megatron.core import package_info  # noqa: E402
from megatron.core.datasets import utils  # noqa: E402
from megatron.core.datasets.blended_dataset import BlendedDataset  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402


class Tokenizer:
    """No token is its pad, so that every token is as it is in the .bin."""
    vocab_size, eod, pad, unique_identifiers = 65536, 65535, -1, {}


def config(job):
    given = {
        "random_seed": job["seed"], "sequence_length": job["seq_length"], "tokenizer": Tokenizer(), "reset_position_ids": False,
        "reset_attention_mask": False, "eod_mask_loss": False, "create_attention_mask": False, "num_dataset_builder_threads": 1,
    }
    if "surplus" in job:
        given["mid_level_dataset_surplus"] = job["surplus"]
    if "data_path" in job:
        given |= {"blend": utils.get_blend_from_list(job["data_path"]), "split": job["split"]}
    else:
        given["blend_per_split"] = [utils.get_blend_from_list(words) if words else None for words in job["per_split"]]
    known = inspect.signature(GPTDatasetConfig).parameters
    return GPTDatasetConfig(**{key: value for key, value in given.items() if key in known})


def sample(item):
    tokens, labels = numpy.asarray(item["tokens"]), numpy.asarray(item["labels"])
    return numpy.concatenate([tokens, labels[-1:]])


def run(job, name, out):
    datasets = BlendedMegatronDatasetBuilder(GPTDataset, job["samples"], lambda: True, config(job)).build()
    for split, dataset in zip(["train", "valid", "test"], datasets):
        if dataset is None or split not in job["splits"]:
            continue
        items = [dataset[i] for i in range(len(dataset))]
        out[f"{name}-{split}"] = numpy.stack([sample(item) for item in items]) if items else numpy.zeros((0, job["seq_length"] + 1), numpy.int64)
        if isinstance(dataset, BlendedDataset):
            out[f"{name}-{split}-id"] = numpy.array([item["dataset_id"] for item in items], dtype=numpy.int16)


def main():
    with open(sys.argv[1]) as f:
        jobs = json.load(f)
    out = {}
    for i, job in enumerate(jobs):
        try:
            run(job, i, out)
        except (AssertionError, IndexError, ValueError, RuntimeError) as e:
            out[f"{i}-error"] = numpy.array(f"{type(e).__name__}: {e}")
    numpy.savez(sys.argv[2], **out)
    print(package_info.__version__)


if __name__ == "__main__":
    main()

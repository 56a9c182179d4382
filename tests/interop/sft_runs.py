"""Runs of mcorefs-train --sft, and the documents of packed rows."""
import json
import os
import pathlib
import re
import subprocess

import program

TRAIN = os.environ.get("MCOREFS_TRAIN", str(pathlib.Path(program.BINARY).with_name("mcorefs-train")))
# As Megatron-Bridge has them (data/packing/algorithms.py: fill_packing_strategy): documents of 4 and 3 tokens; of 1, 29, 12 and 18.
PACKED = [{"input_ids": [5, 6, 7, 8, 9, 10, 11], "loss_mask": [0, 1, 1, 0, 1, 1, 0], "seq_start_id": [0, 4]},
          {"input_ids": list(range(100, 160)), "loss_mask": [1] * 60, "seq_start_id": [0, 1, 30, 42]}]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def apart(row):
    """The documents of a packed row: ids, and whether the label of each counts, which is the next one."""
    ends = row["seq_start_id"][1:] + [len(row["input_ids"])]
    return [(row["input_ids"][begin:end], row["loss_mask"][begin:end]) for begin, end in zip(row["seq_start_id"], ends)]


def collated(row):
    """ids, labels, their mask and positions, as Bridge's collate_fn makes them (data/packing/gpt_sft.py)."""
    documents = [(ids, mask) for ids, mask in apart(row) if len(ids) > 1]
    return tuple(sum(lists, []) for lists in ([ids[:-1] for ids, _ in documents], [ids[1:] for ids, _ in documents],
                                              [mask[:-1] for _, mask in documents], [list(range(len(ids) - 1)) for ids, _ in documents]))


def trained(load, data, samples, *more):
    """What one iteration on all samples prints."""
    command = [TRAIN, "--backend", "cpu", "--load", load, "--use-checkpoint-args", "--finetune", "--no-load-optim", "--no-load-rng", "--sft",
               "--train-data-path", data, "--calculate-per-token-loss", "--seq-length", "256", "--micro-batch-size", "1",
               "--global-batch-size", samples, "--lr", "1e-5", "--eval-iters", "0", "--log-interval", "1", "--train-iters", "1",
               "--transformer-impl", "local", "--attention-dropout", "0", "--hidden-dropout", "0", *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loss_of(text):
    return float(re.search(r"lm loss: (\S+)", text).group(1))

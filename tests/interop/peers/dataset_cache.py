"""What `datasets` computes beside a mounted dataset, against the same on plain lists: dataset_cache.py DIRECTORY CALLS

Every call of a mapped function adds a byte to CALLS. Prints what test_dataset_cache.py looks at, as JSON.
"""
import json
import os
import pathlib
import sys

import datasets

DIRECTORY, CALLS = sys.argv[1:]
os.environ["CALLS"] = CALLS  # read when a function runs: its hash must not depend on it
datasets.disable_progress_bars()


def note_call():
    with open(os.environ["CALLS"], "ab") as file:
        file.write(b".")


def measure(row):
    note_call()
    return {"length": len(row["input_ids"]), "sum": sum(row["input_ids"])}


def is_long(row):
    note_call()
    return len(row["input_ids"]) % 3 == 0


def first_tokens(rows):
    note_call()
    return {"input_ids": [ids[:8] for ids in rows["input_ids"]]}


def rows_of(dataset, column="input_ids"):
    return [list(value) for value in dataset[:][column]]


def is_written_there(dataset):
    """Its rows, or the order that they are in, were read from files beside the data."""
    here = pathlib.Path(DIRECTORY)
    files = [pathlib.Path(file["filename"]) for file in dataset.cache_files]
    return all(file.parent == here for file in files) and any(file.name.startswith("cache-") for file in files)


def main():
    pathlib.Path(CALLS).touch()  # another program may have computed all of it
    dataset = datasets.load_from_disk(DIRECTORY)
    rows = rows_of(dataset)
    plain = datasets.Dataset.from_dict({"input_ids": rows}, features=dataset.features)

    mapped = dataset.map(measure)
    assert mapped[:]["length"] == [len(ids) for ids in rows]
    assert mapped[:]["sum"] == [sum(ids) for ids in rows]
    parallel = dataset.map(first_tokens, batched=True, batch_size=16, num_proc=2)
    assert rows_of(parallel) == [ids[:8] for ids in rows]
    assert len({file["filename"] for file in parallel.cache_files}) == 2
    filtered = dataset.filter(is_long, num_proc=2)
    assert rows_of(filtered) == [ids for ids in rows if len(ids) % 3 == 0]

    ordered = mapped.sort("sum")
    assert ordered[:]["sum"] == sorted(sum(ids) for ids in rows)
    shuffled = dataset.shuffle(seed=7)
    assert rows_of(shuffled) == rows_of(plain.shuffle(seed=7)) and sorted(rows_of(shuffled)) == sorted(rows)
    split, expected = (one.train_test_split(test_size=0.25, seed=3) for one in (dataset, plain))
    for name in ("train", "test"):
        assert rows_of(split[name]) == rows_of(expected[name])

    for written in (mapped, parallel, filtered, ordered, shuffled, split["train"], split["test"]):
        assert is_written_there(written), written.cache_files
    calls = os.path.getsize(CALLS)
    print(json.dumps({"version": datasets.__version__, "rows": len(rows), "calls": calls, "files": sorted(os.listdir(DIRECTORY))}))


if __name__ == "__main__":
    main()

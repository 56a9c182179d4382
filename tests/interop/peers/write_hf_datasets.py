"""write_hf_datasets.py DIR: datasets of token ids as `datasets` of this interpreter writes them, and DIR/cases.json.

Of each case: path (below DIR), name (below data/ of a mount), dtype (numpy's, of the .bin), documents.
"""
import json
import os
import random
import sys

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict, Features, Sequence, Value

PLACE = sys.argv[1]
CASES = []


def documents(seed, count=100, top=50000, longest=40):
    random.seed(seed)
    return [[random.randrange(top) for _ in range(random.choice((0, 1, 2, random.randrange(longest))))] for _ in range(count)]


def case(path, docs, dtype="int32", name=None, **more):
    CASES.append({"path": path, "name": name or path.split("/")[-1].removesuffix(".arrow"), "dtype": dtype, "documents": [d or [] for d in docs], **more})


def features(dtype="int32", **more):
    return Features({"input_ids": Sequence(Value(dtype)), **more})


def of(docs, dtype="int32"):
    return Dataset.from_dict({"input_ids": docs}, features=features(dtype))


def save(name, data, docs, dtype="int32", case_options=None, **options):
    data.save_to_disk(f"{PLACE}/{name}", **options)
    case(name, docs, dtype, **(case_options or {}))


def dtypes():
    for dtype, shown, top in (("int8", "int8", 100), ("uint8", "uint8", 256), ("int16", "int16", 32768), ("uint16", "uint16", 65536), ("uint32", "int32", 2**31), ("int64", "int64", 2**62)):
        docs = documents(dtype, top=top)
        save(dtype, of(docs, dtype), docs, shown)


def shapes():
    docs = documents("shards")
    columns = {"id": list(range(100)), "text": [None if i % 7 == 3 else "x" * (i % 5) for i in range(100)], "input_ids": docs, "attention_mask": [[1] * len(d) for d in docs], "meta": [{"a": [i]} for i in range(100)]}
    kinds = features(id=Value("int64"), text=Value("string"), attention_mask=Sequence(Value("int8")), meta={"a": Sequence(Value("int32"))})
    save("shards", Dataset.from_dict(columns, features=kinds), docs, num_shards=5)
    save("processes", of(docs), docs, num_proc=2)
    fixed = [[i * 3, i, 2, 7] for i in range(50)]
    save("fixed", Dataset.from_dict({"input_ids": fixed}, features=Features({"input_ids": Sequence(Value("int32"), length=4)})), fixed)
    large = documents("large")
    save("large_list", Dataset.from_dict({"input_ids": large}, features=Features({"input_ids": datasets.LargeList(Value("int64"))})), large, "int64")
    save("empty_rows", of([[]] * 5 + [[1]] + [[]] * 3), [[]] * 5 + [[1]] + [[]] * 3)
    nulls = [None if i % 3 == 0 else d for i, d in enumerate(documents("nulls"))]
    save("nulls", of(nulls), nulls)
    nulls = [None if i % 4 == 1 else d for i, d in enumerate(fixed)]
    save("fixed_nulls", Dataset.from_dict({"input_ids": nulls}, features=Features({"input_ids": Sequence(Value("int32"), length=4)})), nulls)
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3, 6, 7, 7], pa.int32()), pa.array(range(1, 8), pa.int32()), mask=pa.array([False, True, True, False, True]))
    save("hidden_nulls", Dataset(pa.table({"input_ids": hidden})), [[1, 2], [], [], [7], []])
    other = documents("other")
    save("other_name", Dataset.from_dict({"n": [1] * 100, "tokens": other}, features=Features({"n": Value("int64"), "tokens": Sequence(Value("uint16"))})), other, "uint16")
    save("two_columns", Dataset.from_dict({"a": other, "b": docs}, features=Features({"a": Sequence(Value("int32")), "b": Sequence(Value("int32"))})), docs, case_options={"options": {"column": "b"}})


def transforms():
    docs = documents("transforms")
    data = of(docs)
    mapped = data.map(lambda row: {"input_ids": row["input_ids"][::-1]}, cache_file_name=f"{PLACE}/mapped.arrow", writer_batch_size=7)
    assert len(mapped.cache_files) == 1
    case("mapped.arrow", [d[::-1] for d in docs])
    picked = data.shuffle(seed=5).select(range(3, 60))
    save("shuffled", picked, picked["input_ids"][:])
    save("slice", data.select(range(13, 71)), docs[13:71])
    save("filtered", data.filter(lambda row: len(row["input_ids"]) > 3), [d for d in docs if len(d) > 3])
    save("sorted", data.add_column("key", [len(d) for d in docs]).sort("key"), sorted(docs, key=len))
    more = documents("more", 37)
    save("concatenated", datasets.concatenate_datasets([data.select(range(10, 30)), of(more), data.select([5, 4])]), docs[10:30] + more + [docs[5], docs[4]])
    uneven = documents("uneven", 1000)
    save("batches", of(uneven).map(lambda row: row, writer_batch_size=11, keep_in_memory=False, cache_file_name=f"{PLACE}/scratch.arrow"), uneven, num_shards=2)


def rows(docs):
    for d in docs:
        yield {"input_ids": d}


def caches():
    docs = documents("cache", 2500)
    made = Dataset.from_generator(rows, features=features("uint16"), cache_dir=f"{PLACE}/one", gen_kwargs={"docs": docs})
    path = os.path.dirname(made.cache_files[0]["filename"])
    case(os.path.relpath(path, PLACE), docs, "uint16", name=os.path.basename(path) + "_train")
    made = Dataset.from_generator(rows, features=features(), cache_dir=f"{PLACE}/two", gen_kwargs={"docs": docs}, num_proc=2)
    path = os.path.dirname(made.cache_files[0]["filename"])
    case(os.path.relpath(path, PLACE), docs, name=os.path.basename(path) + "_train")


def splits():
    train, test = documents("train"), documents("test", 9)
    DatasetDict({"train": of(train), "test": of(test)}).save_to_disk(f"{PLACE}/dict", num_shards={"train": 3, "test": 1})
    case("dict", train, name="dict_train")
    case("dict", test, name="dict_test")


def main():
    dtypes()
    shapes()
    transforms()
    caches()
    splits()
    with open(f"{PLACE}/cases.json", "w") as f:
        json.dump({"version": datasets.__version__, "cases": CASES}, f)


if __name__ == "__main__":
    main()

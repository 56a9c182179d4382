"""What data.sh compares with: `datasets`, and the same data as it writes it itself.

    hf_dataset.py save OURS THEIRS         seconds to write OURS again with save_to_disk
    hf_dataset.py read OURS THEIRS RUNS    a line for each measure: its name, ours, theirs
    hf_dataset.py ends OURS                seconds to open OURS and read its first and its last row
"""
import random
import sys
import time

import datasets

READS = 3000

datasets.disable_progress_bars()


def clock(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def rows(dataset, numbers):
    """Microseconds of each, sorted; as numpy arrays, and every token is looked at."""
    dataset = dataset.with_format("numpy")
    return sorted(1e6 * clock(lambda i=i: dataset[i]["input_ids"].sum()) for i in numbers)


def read(ours, theirs, runs):
    opened = [sorted(clock(datasets.load_from_disk, path) for _ in range(runs)) for path in (ours, theirs)]
    print("open, ms", *(f"{1e3 * times[runs // 2]:.1f}" for times in opened), sep="\t")
    both = [datasets.load_from_disk(path) for path in (ours, theirs)]
    assert len(both[0]) == len(both[1])
    numbers = random.Random(1).choices(range(len(both[0])), k=READS)
    for touch in ("first", "second"):
        took = [rows(dataset, numbers) for dataset in both]
        for name, at in (("p50", READS // 2), ("p99", READS * 99 // 100)):
            print(f"random rows, {touch} touch, {name} us", *(f"{times[at]:.0f}" for times in took), sep="\t")


def ends(ours):
    dataset = datasets.load_from_disk(ours)
    return dataset[0], dataset[len(dataset) - 1]


def main(what, ours, *rest):
    if what == "save":
        print(f"{clock(datasets.load_from_disk(ours).save_to_disk, rest[0]):.2f}")
    elif what == "read":
        read(ours, rest[0], int(rest[1]))
    else:
        print(f"{clock(ends, ours):.2f}")


main(*sys.argv[1:])

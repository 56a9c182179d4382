"""Eight processes map one file at once, in orders of their own; 10 000 random preads; one sequential read.  All must agree.

readers_agree.py FILE       prints a line of JSON; the exit status is 1 at the first byte that differs
"""
import hashlib
import json
import mmap
import multiprocessing
import os
import random
import sys

PROCESSES, PREADS, PAGE = 8, 10_000, 4096


def sequential(path):
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 20), b""))


def mapped(path, seed, start):
    """The file's digest, its pages touched in a random order first."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as view:
        pages = list(range(0, len(view), PAGE))
        random.Random(seed).shuffle(pages)
        start.wait()
        for page in pages:
            view[page]
        return hashlib.sha256(view).hexdigest()


def map_in_process(path, seed, start, answers):
    try:
        answers.put(mapped(path, seed, start))
    except BaseException as error:
        answers.put(repr(error))


def all_mapped(path):
    """The digests seen by eight processes that begin together."""
    start, answers = multiprocessing.Barrier(PROCESSES), multiprocessing.Queue()
    readers = [multiprocessing.Process(target=map_in_process, args=(path, seed, start, answers)) for seed in range(PROCESSES)]
    for reader in readers:
        reader.start()
    digests = {answers.get(timeout=120) for _ in readers}
    for reader in readers:
        reader.join()
    return digests


def preads(path, whole):
    """Random ranges, many of them across the end of the file or of a tensor."""
    draw, file = random.Random(1), os.open(path, os.O_RDONLY)
    for _ in range(PREADS):
        offset, length = draw.randrange(len(whole) + 100), draw.choice([1, 7, 64, 4095, 4096, 70_000, 300_000])
        length = draw.randrange(1, length + 1)
        if os.pread(file, length, offset) != whole[offset:offset + length]:
            sys.exit(f"pread({length} at {offset}) differs from the sequential read")
    os.close(file)
    return PREADS


def main():
    path = sys.argv[1]
    digests = all_mapped(path)  # first, so that the pages are faulted in and not found in the cache
    whole = sequential(path)
    if len(whole) != os.path.getsize(path):
        sys.exit(f"{len(whole)} bytes read of {os.path.getsize(path)}")
    if digests != {hashlib.sha256(whole).hexdigest()}:
        sys.exit(f"mapped and sequential reads differ: {digests}")
    print(json.dumps(dict(bytes=len(whole), processes=PROCESSES, preads=preads(path, whole))))


if __name__ == "__main__":
    main()

"""megatron-core's IndexedDataset against the truth: read_indexed.py JOBS.json; the core of PYTHONPATH, or the environment's.

A job names "prefix" and "truth", an .npz with "lengths", "documents", "modes" if the dataset is multimodal, and "tokens" of all sequences, or of the
sequences "at", where the others are holes. A line for each job says how many sequences agreed.
"""
import json
import pathlib
import sys
import warnings

import numpy

warnings.simplefilter("ignore")
import no_extensions  # noqa: E402,F401

from megatron.core import package_info  # noqa: E402
from megatron.core.datasets.indexed_dataset import IndexedDataset  # noqa: E402


def compare(prefix, truth):
    lengths, tokens = truth["lengths"], truth["tokens"]
    modes = truth["modes"] if "modes" in truth else None
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths, dtype=numpy.int64)])[:-1] * tokens.itemsize
    at = truth["at"] if "at" in truth else numpy.arange(len(lengths))
    starts = numpy.concatenate([[0], numpy.cumsum(lengths[at], dtype=numpy.int64)])
    for mapped in (True, False):
        dataset = IndexedDataset(prefix, multimodal=modes is not None, mmap=mapped)
        assert len(dataset) == len(lengths)
        assert numpy.array_equal(dataset.sequence_lengths, lengths), "lengths"
        assert numpy.array_equal(dataset.document_indices, truth["documents"]), "documents"
        assert numpy.array_equal(dataset.index.sequence_pointers, pointers), "pointers"
        # Without a mapping the .bin is opened for every read.
        for k in range(len(at)) if mapped else numpy.random.default_rng(1).integers(0, len(at), 100):
            got = dataset[int(at[k])]
            sequence = got if modes is None else got[0]
            want = tokens[starts[k]:starts[k + 1]]
            assert sequence.dtype == tokens.dtype and numpy.array_equal(sequence, want), at[k]
            if modes is not None:
                assert got[1] == modes[at[k]], at[k]
            if len(want) > 2:
                part = dataset.get(int(at[k]), offset=1, length=len(want) - 2)
                assert numpy.array_equal(part if modes is None else part[0], want[1:-1]), at[k]
    return len(at)


for job in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    print(f"core {package_info.__version__}: {job['prefix']}", end=" ", flush=True)
    print(compare(job["prefix"], numpy.load(job["truth"])), "sequences")

"""What bench_dataset.sh compares with: megatron-core's own index build and blend, one thread. Prints seconds of CPU, or nanoseconds."""
import sys
import time
import types
import warnings

import numpy

warnings.simplefilter("ignore")

from megatron.core.datasets import gpt_dataset, helpers, indexed_dataset, utils  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402


def index(prefix, seq_length, samples):
    reader = indexed_dataset._IndexReader(f"{prefix}.idx", False)  # closes its mapping when it goes
    lengths = reader.sequence_lengths
    lengths.sum()  # the pages are in memory for both
    d = object.__new__(gpt_dataset.GPTDataset)
    d.dataset = types.SimpleNamespace(sequence_lengths=lengths, path_prefix=None)
    d.indices = numpy.arange(len(lengths), dtype=numpy.int32)
    d.num_samples, d.index_split, d.unique_description_hash = int(samples) or None, Split.train, ""
    d.config = types.SimpleNamespace(
        sequence_length=int(seq_length), random_seed=1234, add_extra_token_to_sequence=True, path_to_cache=None, mock=True,
        defer_npy_index_mmap=False, fast_cache_load=False, drop_last_partial_validation_sequence=True)
    start, cpu = time.monotonic(), time.process_time()
    d._build_document_sample_shuffle_indices()
    print(f"{time.monotonic() - start:.4f} {time.process_time() - cpu:.4f}")


def blend(size, *weights):
    size, weights = int(size), utils.normalize([float(w) for w in weights])
    dataset, sample = numpy.zeros(size, dtype=numpy.int16), numpy.zeros(size, dtype=numpy.int64)
    start = time.process_time()
    helpers.build_blending_indices(dataset, sample, weights, len(weights), size, False)
    print(f"{1e9 * (time.process_time() - start) / size:.2f}")


{"index": index, "blend": blend}[sys.argv[1]](*sys.argv[2:])

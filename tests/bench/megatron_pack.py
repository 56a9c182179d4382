"""megatron_pack.py PREFIX < LINES: JSON lines of ids through megatron-core's builder, as tools/preprocess_data.py has it.

Prints its seconds: by the clock, of the processor in user mode, and in the kernel.
"""
import json
import os
import sys
import time

from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

start, used = time.time(), os.times()
builder = IndexedDatasetBuilder(sys.argv[1] + ".bin", dtype=DType.optimal_dtype(50257))
for line in sys.stdin:
    ids = json.loads(line)
    if isinstance(ids, dict):
        ids = ids["input_ids"]
    builder.add_document(ids, [len(ids)])
builder.finalize(sys.argv[1] + ".idx")
end = os.times()
print(time.time() - start, end.user - used.user, end.system - used.system)

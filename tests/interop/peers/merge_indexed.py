"""megatron-core merges prefixes as tools/merge_datasets.py does: merge_indexed.py JOBS.json, each with "out", "multimodal", "prefixes"."""
import json
import pathlib
import sys
import warnings

warnings.simplefilter("ignore")
import no_extensions  # noqa: E402,F401

from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402

for job in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    dtype = IndexedDataset(job["prefixes"][0], multimodal=job["multimodal"]).index.dtype
    builder = IndexedDatasetBuilder(f"{job['out']}.bin", dtype=dtype, multimodal=job["multimodal"])
    for prefix in job["prefixes"]:
        builder.add_index(prefix)
    builder.finalize(f"{job['out']}.idx")

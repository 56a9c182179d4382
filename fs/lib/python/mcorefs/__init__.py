"""Megatron-LM checkpoints as HuggingFace tensors, read straight from the source: no conversion, no mount.

    import mcorefs

    state = mcorefs.load("/runs/llama")                        # {name: tensor}, of the latest iteration
    for name, tensor in mcorefs.stream("/runs/llama", device="cuda"): ...
    with mcorefs.safe_open("/runs/llama", "pt") as f: part = f.get_slice("lm_head.weight")[:1000]

A source is a checkpoint root, one iteration, a HuggingFace directory, a dataset, or the URL of one; a view is what a mount would show:
"hf", "iter_0000040/hf-fp8", "vllm/tp4", "raw", "megatron/torch/tp2-pp1", ... Errors are McorefsError, an OSError with a sentence.
"""
from ._library import McorefsError, trim
from ._library import version as __version__
from ._load import Slice, load, safe_open, stream
from ._rows import Rows, rows
from ._source import ExtentInfo, FileInfo, IterationInfo, Load, LoadState, Source, TensorInfo, View
from ._stub import stub

__all__ = ["ExtentInfo", "FileInfo", "IterationInfo", "Load", "LoadState", "McorefsError", "Rows", "Slice", "Source", "TensorInfo", "View",
           "__version__", "load", "rows", "safe_open", "stream", "stub", "trim"]

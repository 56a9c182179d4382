"""Imported before megatron-core, so that it compiles nothing.

Since 0.15 core builds a CUDA extension whenever it is imported (inference/unified_memory.py). On a machine with a
compiler and no GPU that takes ten seconds and a gigabyte, fails, and is tried again by the next process; and one that is
ended meanwhile leaves a lock behind, for which every later one waits without end (torch/utils/file_baton.py).
Core goes on without the extension, as it does where there is no compiler.
"""
import os

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
import torch.utils.cpp_extension  # noqa: E402


def _refuse(*args, **kwargs):
    raise RuntimeError("no extension is compiled for tests on a CPU")


torch.utils.cpp_extension.load = torch.utils.cpp_extension.load_inline = _refuse

"""Tensors of torch and numpy as memory that the library fills: element types, addresses, strides."""
from __future__ import annotations

import errno
import sys
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from ._library import McorefsError

TORCH = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64",
         "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn",
         "F8_E5M2": "float8_e5m2", "C64": "complex64", "C128": "complex128"}
OF_ML_DTYPES = ("BF16", "F8_E4M3", "F8_E5M2")
BITS = {"BF16": "uint16", "F8_E4M3": "uint8", "F8_E5M2": "uint8"}


class Memory(NamedTuple):
    """Where a tensor lies: its first element, how many bytes may be written from there, and bytes between elements of each axis."""
    address: int
    room: int
    strides: Optional[Tuple[int, ...]]  # None: C order without gaps
    device: int  # CUDA's number; -1: host memory


def _room(shape: Sequence[int], strides: Sequence[int], item: int) -> int:
    return 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides)) + item


def _check(what: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    if 0 not in shape and any(s < 0 or (not s and n > 1) for n, s in zip(shape, strides)):
        raise McorefsError(errno.EINVAL, f"tensor '{what}': elements of what it is to be read into lie in one place, or backwards (strides {tuple(strides)})")


class Torch:
    """Tensors of torch. ``device``: "cpu", "cuda", "cuda:1", 1, a torch.device; others get their tensors by way of the host."""

    def __init__(self, device: Any = "cpu"):
        import torch
        self.torch, self.device = torch, torch.device(device if not isinstance(device, int) else f"cuda:{device}")
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())

    def dtype(self, word: str):
        found = getattr(self.torch, TORCH.get(word, ""), None)
        if found is None:
            raise McorefsError(errno.ENOTSUP, f"this torch ({self.torch.__version__}) has no type for {word}")
        return found

    def empty(self, shape: Sequence[int], word: str):
        where = self.device if self.device.type in ("cpu", "cuda") else "cpu"
        return self.torch.empty(tuple(shape), dtype=self.dtype(word), device=where)

    def finished(self, tensor):
        """What a caller gets of a tensor that was filled."""
        return tensor if tensor.device == self.device else tensor.to(self.device)

    @staticmethod
    def is_mine(array: Any) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(array, torch.Tensor)

    @classmethod
    def memory(cls, array: Any, word: str, name: str) -> Memory:
        import torch
        if array.dtype != getattr(torch, TORCH.get(word, ""), None):
            raise McorefsError(errno.EINVAL, f"tensor '{name}' is {word}, and what it is to be read into is {array.dtype}")
        if array.device.type not in ("cpu", "cuda"):
            raise McorefsError(errno.ENOTSUP, f"tensor '{name}': memory of {array.device} cannot be read into, only the host's and CUDA's")
        device = array.device.index if array.device.type == "cuda" else -1
        if array.is_contiguous():
            return Memory(array.data_ptr(), array.numel() * array.element_size(), None, device)
        strides = tuple(s * array.element_size() for s in array.stride())
        _check(name, array.shape, strides)
        return Memory(array.data_ptr(), _room(array.shape, strides, array.element_size()), strides, device)

    @staticmethod
    def settle(device: int) -> None:
        """Memory that torch hands out again may still be read by what it was before, on the current stream."""
        import torch
        torch.cuda.current_stream(device).synchronize()


class Numpy:
    """Arrays of numpy. Types that numpy has not are ml_dtypes' where that is installed; with ``bits`` they are integers of the same bits."""

    def __init__(self, device: Any = "cpu", bits: bool = False):
        import numpy
        self.numpy, self.bits = numpy, bits
        if str(device) != "cpu":
            raise McorefsError(errno.EINVAL, f"arrays of numpy are in host memory: device is '{device}', expected 'cpu'")

    def dtype(self, word: str):
        if word in OF_ML_DTYPES and self.bits:
            return self.numpy.dtype(BITS[word])
        found = _numpy_dtype(word)
        if found is None:
            raise McorefsError(errno.ENOTSUP, f"numpy has no type for {word}: install ml_dtypes, or ask for framework 'np-bits', which gives its bits as "
                                              f"{BITS.get(word, 'integers')}")
        return found

    def empty(self, shape: Sequence[int], word: str):
        return self.numpy.empty(tuple(shape), dtype=self.dtype(word))

    def finished(self, array):
        return array

    @staticmethod
    def is_mine(array: Any) -> bool:
        return hasattr(array, "__array_interface__")

    @classmethod
    def memory(cls, array: Any, word: str, name: str) -> Memory:
        wanted = _numpy_dtype(word)
        if array.dtype != wanted and str(array.dtype) != BITS.get(word):
            raise McorefsError(errno.EINVAL, f"tensor '{name}' is {word}, and what it is to be read into is {array.dtype}")
        if not array.flags.writeable:
            raise McorefsError(errno.EINVAL, f"tensor '{name}': what it is to be read into cannot be written")
        if array.flags.c_contiguous:
            return Memory(array.ctypes.data, array.nbytes, None, -1)
        _check(name, array.shape, array.strides)
        return Memory(array.__array_interface__["data"][0], _room(array.shape, array.strides, array.itemsize), tuple(array.strides), -1)


def _numpy_dtype(word: str):
    import numpy
    if word not in OF_ML_DTYPES:
        return numpy.dtype(TORCH[word]) if word in TORCH else None
    try:
        import ml_dtypes
    except ImportError:
        return None
    return numpy.dtype(getattr(ml_dtypes, TORCH[word]))


FRAMEWORKS: Dict[str, Callable[[Any], Any]] = {
    "pt": Torch, "torch": Torch, "pytorch": Torch, "np": Numpy, "numpy": Numpy, "np-bits": lambda device: Numpy(device, bits=True)}


def framework_of(name: str, device: Any):
    """The framework of that name, with its device; ENOTSUP: there is none."""
    made = FRAMEWORKS.get(name)
    if made is None:
        raise McorefsError(errno.ENOTSUP, f"framework '{name}' is unknown: expected one of {', '.join(FRAMEWORKS)}; arrays of all of these are "
                                          "taken by others through DLPack")
    return made(device)


def memory_of(array: Any, word: str, shape: Sequence[int], name: str) -> Memory:
    """Of an array of the caller, which must have the tensor's type and the box's shape."""
    kind = next((k for k in (Torch, Numpy) if k.is_mine(array)), None)
    if kind is None:
        raise McorefsError(errno.EINVAL, f"tensor '{name}' cannot be read into {type(array).__name__}: expected a tensor of torch or an array of numpy")
    if tuple(array.shape) != tuple(shape):
        raise McorefsError(errno.EINVAL, f"tensor '{name}': the box has shape {list(shape)}, and what it is to be read into {list(array.shape)}")
    return kind.memory(array, word, name)

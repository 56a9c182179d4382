"""Loads every file of Megatron checkpoints with torch's own loaders: load_files.py ITERATION_DIRECTORY...

*.pt: torch.load with weights_only=True and Megatron's allow-list registered, and with weights_only=False; both give the same.
torch_dist: FileSystemReader's metadata and dcp.load(no_dist=True) of every tensor and object; the tensors go to `loaded` beside the directory.
A line for each directory; any exception is a failure.
"""
import argparse
import enum
import inspect
import io
import pathlib
import signal
import sys
import warnings

import no_extensions  # noqa: F401
import torch
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")


def allow():
    """Megatron's list, and what 0.20 saves that this release does not know, under the names that files have."""
    import megatron.core.enums
    from megatron.core.transformer import enums
    for name in ("AttnBackend", "CudaGraphScope", "InferenceCudaGraphScope"):
        if not hasattr(enums, name):
            setattr(enums, name, enum.Enum(name, [(f"v{i}", i) for i in range(10)], module=enums.__name__))
    try:
        from megatron.core.safe_globals import register_safe_globals
        register_safe_globals()
    except ImportError:
        pass
    from numpy import dtype, ndarray
    from numpy.core.multiarray import _reconstruct
    torch.serialization.add_safe_globals([argparse.Namespace, _reconstruct, ndarray, dtype, signal.Signals, megatron.core.enums.ModelType,
                                          type(dtype("uint32")), io.BytesIO, pathlib.PosixPath])
    if _reconstruct.__module__ != "numpy._core.multiarray":  # numpy 1, and files of numpy 2
        torch.serialization.add_safe_globals([_named(_reconstruct)])
    torch.serialization.add_safe_globals([enums.AttnBackend, enums.CudaGraphScope, enums.InferenceCudaGraphScope])


def _named(function):
    """The same function by the name that a file has for it."""
    def _reconstruct(*arguments):
        return function(*arguments)

    _reconstruct.__module__ = "numpy._core.multiarray"
    _reconstruct.__qualname__ = "_reconstruct"
    return _reconstruct


def same(one, other):
    assert type(one) is type(other), (type(one), type(other))
    if isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype and one.shape == other.shape and one.stride() == other.stride()
        flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
        assert torch.equal(*flat)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other):
            same(*pair)
    elif isinstance(one, argparse.Namespace):
        same(vars(one), vars(other))


def load_file(path):
    safe, plain = (torch.load(path, map_location="cpu", weights_only=only) for only in (True, False))
    same(safe, plain)
    safe = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    same(safe, plain)


def load_dcp(directory):
    described = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    state = {key: torch.empty(d.size, dtype=d.properties.dtype) if hasattr(d, "size") else None for key, d in described.items()}
    for tensor in state.values():
        if tensor is not None:
            tensor.reshape(-1).view(torch.uint8).fill_(0xA5)
    dcp.load(state, checkpoint_id=directory, **({"no_dist": True} if "no_dist" in inspect.signature(dcp.load).parameters else {}))
    assert all(value is not None for value in state.values())
    return {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


if __name__ == "__main__":
    allow()
    for place in map(pathlib.Path, sys.argv[1:]):
        files = sorted(place.rglob("*.pt"))
        for file in files:
            load_file(file)
        tensors = {}
        if (place / ".metadata").exists():
            tensors = load_dcp(place)
            torch.save(tensors, place.parent / "loaded")
        assert files or tensors
        print(f"{place}: {len(files)} files, {len(tensors)} tensors", flush=True)

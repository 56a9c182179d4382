"""Loads what the unit tests wrote with our own writers: load_written.py DIR FIXTURES WHAT...

WHAT: state_dict (torch.load, both ways), copies (of FIXTURES' real files), dcp (torch's reader), megatron (megatron-core's).
Any exception is a failure. Runs with every torch and megatron-core that is to read those files.
"""
import argparse
import enum
import importlib
import inspect
import os
import pathlib
import pickle
import sys

os.environ.setdefault("CUDA_HOME", "")  # as in mcore_cpu.py
import no_extensions  # noqa: E402,F401
import numpy
import torch
import torch.distributed.checkpoint as dcp

TYPES = ("bool uint8 int8 float8_e5m2 float8_e4m3fn int16 uint16 float16 bfloat16 int32 uint32 float32 float64 int64 uint64 "
         "complex64 complex128").split()
CLASSIC = [name for name in TYPES if not name.startswith("float8") and name not in ("uint16", "uint32", "uint64")]
COPIES = ["resume/llama-torch-tp2-pp2/iter_0000020/mp_rank_00_000/model_optim_rng.pt",
          "resume/qwen2-torch-tp2-dp2-distopt/iter_0000020/mp_rank_00/distrib_optim.pt",
          "weights/gpt2-torch-tp2-pp2/iter_0000040/mp_rank_01_001/model_optim_rng.pt",
          "weights/mixtral-torch-pp2-ep2/iter_0000040/mp_rank_00_001_001/model_optim_rng.pt"]


def raw(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def check_values(loaded):
    args = loaded["args"]
    assert type(args) is argparse.Namespace and vars(args) == dict(num_layers=4, params_dtype=torch.bfloat16)
    assert loaded["small"] == -1 and loaded["large"] == -2**63 and loaded["larger"] == 2**64 - 1
    assert loaded["float"] == 3.0 and type(loaded["float"]) is float
    assert loaded["text"] == "\u00e4 \u20ac" and loaded["bytes"] == b"\0\x7f\x80\xff" and loaded["no bytes"] == b""
    assert type(loaded["size"]) is torch.Size and tuple(loaded["size"]) == (2, 3)
    assert loaded["flags"] == [True, False, None]


def check_state_dict(directory, _):
    torch.serialization.add_safe_globals([argparse.Namespace])
    # Before 2.6 weights_only refuses the types without a storage class, no matter what wrote them.
    old = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6)
    for name, types, weights_only, mmap in (("classic.pt", CLASSIC, True, False), ("classic.pt", CLASSIC, True, True),
                                            ("state_dict.pt", TYPES, False, True), ("state_dict.pt", TYPES, old is False, False)):
        check_loaded(torch.load(directory / name, weights_only=weights_only, mmap=mmap), types)


def check_loaded(loaded, types):
    check_values(loaded)
    model = loaded["model"]
    assert list(model) == [*types, "view", "empty", "scalar"]
    for i, name in enumerate(types):
        tensor = model[name]
        assert tensor.dtype is getattr(torch, name) and tensor.shape == (3, 5) and tensor.is_contiguous(), name
        assert raw(tensor) == bytes((i + k) % 2 for k in range(15 * tensor.element_size())), name
    view, whole = model["view"], model["float32"]
    assert view.shape == (5, 2) and view.stride() == (1, 3) and raw(view) == raw(torch.as_strided(whole, (5, 2), (1, 3), 3))
    assert view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    assert model["empty"].shape == (0, 5) and model["scalar"].shape == () and model["scalar"].item() == 1


def same(a, b, where="root"):
    assert type(a) is type(b), where
    if isinstance(a, torch.Tensor):
        assert a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and raw(a) == raw(b), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, argparse.Namespace):
        same(vars(a), vars(b), where)
    elif type(a).__module__ == "numpy":
        assert a.dtype == b.dtype and (a == b).all(), where
    else:
        assert a == b, where


def check_copies(directory, fixtures):
    from megatron.core.transformer import enums

    if not hasattr(enums, "InferenceCudaGraphScope"):  # the fixtures are of a later Megatron
        enums.InferenceCudaGraphScope = enum.Enum("InferenceCudaGraphScope", dict(none=0, layer=1, block=2), module=enums.__name__)
    for i, path in enumerate(COPIES):
        copy = directory / f"copy-{i}.pt"
        wanted = torch.load(fixtures / path, weights_only=False, map_location="cpu")
        same(wanted, torch.load(copy, weights_only=False))  # no map_location: the storages are on the CPU
        with torch.serialization.safe_globals([argparse.Namespace, numpy.dtypes.UInt32DType, *unsafe(copy)]):
            same(wanted, torch.load(copy, weights_only=True))


def unsafe(path):
    """The classes beyond torch's own list, which must be those of the real file."""
    return [getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name in torch.serialization.get_unsafe_globals_in_checkpoint(path)]


def chunks(tensor, *sizes):
    """In row-major order of a regular grid."""
    parts = [tensor]
    for axis, size in enumerate(sizes):
        parts = [piece for part in parts for piece in part.split(size, axis)]
    return parts


def check_tensors(loaded):
    grids = dict(decoder_weight=(3, 4), float8=(2, 5), long=(1, 1, 2), bool=(100,))
    for key, tensor in loaded.items():
        if tensor.numel() == 0:
            continue
        for c, part in enumerate(chunks(tensor, *grids.get(key.replace(".", "_"), ()))):
            length = part.numel() * part.element_size()
            wanted = bytes((c + k) % 2 if key == "bool" else (7 * c + k) % 251 for k in range(length))
            assert raw(part) == wanted, (key, c)


def check_dcp(directory, _):
    reader = dcp.FileSystemReader(directory)
    metadata = reader.read_metadata()
    assert metadata.version == "1.0.0" and metadata.planner_data == {} and metadata.storage_meta is not None
    described = metadata.state_dict_metadata
    assert set(described) == {"decoder.weight", "scalar", "float8", "long", "bool", "empty",
                              "decoder._extra_state/shard_0_1", "common_state/shard_0_1"}
    assert described["decoder.weight"].properties == dcp.metadata.TensorProperties(dtype=torch.bfloat16)
    assert metadata.storage_data[dcp.metadata.MetadataIndex("scalar", torch.Size([]))].length > 1000
    again = pickle.loads(pickle.dumps(metadata))
    assert again.storage_data == metadata.storage_data and again.state_dict_metadata == described
    state = {key: torch.zeros(d.size, dtype=d.properties.dtype) for key, d in described.items() if hasattr(d, "size")}
    state |= {key: None for key in described if key not in state}
    alone = {"no_dist": True} if "no_dist" in inspect.signature(dcp.load).parameters else {}
    dcp.load(state, storage_reader=dcp.FileSystemReader(directory), **alone)
    assert state.pop("decoder._extra_state/shard_0_1") == [None]
    common, = state.pop("common_state/shard_0_1")
    assert common["iteration"] == 20 and vars(common["args"]) == dict(num_layers=4)
    check_tensors(state)


def check_megatron(directory, _):
    from megatron.core import dist_checkpointing

    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/store", rank=0, world_size=1)
    torch.save({}, directory / "common.pt")
    wanted = {}
    for key, described in dcp.FileSystemReader(directory).read_metadata().state_dict_metadata.items():
        if hasattr(described, "size") and key != "empty":  # nobody asks Megatron for a tensor without elements
            data = torch.zeros(described.size, dtype=described.properties.dtype)
            wanted[key] = dist_checkpointing.ShardedTensor.from_rank_offsets(key, data)
    wanted["extra"] = dist_checkpointing.mapping.ShardedObject("decoder._extra_state", None, (1,), (0,))
    loaded = dist_checkpointing.load(wanted, str(directory))
    assert loaded.pop("extra") is None
    check_tensors({key: value for key, value in loaded.items() if isinstance(value, torch.Tensor)})


if __name__ == "__main__":
    for what in sys.argv[3:]:
        globals()[f"check_{what}"](pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("loaded")

"""Writes what torch.save and torch.distributed.checkpoint write, byte for byte, without torch.

Tensor data is either given or left as a hole, so that a checkpoint of any size costs only its
metadata on disk. With the same records as a real file, archive() gives that file's bytes (selftest.py).
"""

import argparse
import collections
import copyreg
import functools
import io
import pickle
import struct
import sys
import types
import zlib

U32 = 0xFFFFFFFF
ELEMENT = {"bfloat16": 2, "float32": 4, "uint8": 1}
STORAGE = {"bfloat16": "BFloat16Storage", "float32": "FloatStorage", "uint8": "ByteStorage"}


# -- ZIP, as caffe2/serialize/inline_container.cc lays it out ------------------------------------


class Hole:
    """Payload of size bytes that is not written."""

    def __init__(self, size):
        self.size = size


class SparseFile:
    def __init__(self, path):
        self.file = open(path, "wb")
        self.pos = 0

    def write(self, data):
        self.file.seek(self.pos)
        self.file.write(data)
        self.pos += len(data)

    def payload(self, data):
        if isinstance(data, Hole):
            self.pos += data.size
        else:
            self.write(data)

    def close(self):
        self.file.truncate(self.pos)
        self.file.close()


def zip64_extra(size, offset):
    fields = b""
    if size >= U32:
        fields += struct.pack("<QQ", size, size)
    if offset >= U32:
        fields += struct.pack("<Q", offset)
    return struct.pack("<HH", 1, len(fields)) + fields if fields else b""


def local_header(name, offset, extra64):
    used = offset + 30 + len(name) + len(extra64) + 4
    padding = b"FB" + struct.pack("<H", -used % 64) + b"Z" * (-used % 64)
    extra = extra64 + padding
    # version 0, flags: data descriptor and UTF-8; CRC and sizes stand only after the payload
    return struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x0808, 0, 0, 0, 0, 0, 0, len(name), len(extra)) + name + extra


def archive(out, prefix, records, crcs=True):
    """Appends one torch.save archive to out; records are (name, bytes or Hole). Returns its length."""
    start = out.pos
    central = []
    for name, data in records:
        name = f"{prefix}/{name}".encode()
        size = data.size if isinstance(data, Hole) else len(data)
        crc = zlib.crc32(data) if crcs and not isinstance(data, Hole) else 0
        offset = out.pos - start
        extra64 = zip64_extra(size, offset)
        out.write(local_header(name, offset, extra64))
        out.payload(data)
        out.write(struct.pack("<4sIQQ" if extra64 else "<4sIII", b"PK\7\x08", crc, size, size))
        small = min(size, U32)
        central.append(struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0x0808, 0, 0, 0, crc, small, small, len(name),
                                   len(extra64), 0, 0, 0, 0, min(offset, U32)) + name + extra64)
    offset = out.pos - start
    central = b"".join(central)
    count = len(records)
    out.write(central
              + struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 798, 45, 0, 0, count, count, len(central), offset)
              + struct.pack("<4sIQI", b"PK\6\7", 0, offset + len(central), 1)
              + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(central), min(offset, U32), 0))
    return out.pos - start


def torch_save(out, prefix, obj, crcs=True):
    """Like torch.save(obj): tensors are Tensor. Returns the archive's length."""
    if isinstance(obj, Tensor):
        pickled, storages = tensor_pickle(obj.dtype, obj.shape, obj.location), [obj.data]
    else:
        pickled, storages = dumps(obj)
    records = [("data.pkl", pickled), (".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")]
    records += [(f"data/{i}", s) for i, s in enumerate(storages)]
    records += [("version", b"3\n"), (".data/serialization_id", b"%040d" % zlib.crc32(pickled))]
    return archive(out, prefix, records, crcs)


# -- pickles: objects of classes that are not installed here --------------------------------------


def module(name):
    if name not in sys.modules:
        parent, _, child = name.rpartition(".")
        sys.modules[name] = types.ModuleType(name)
        if parent:
            setattr(module(parent), child, sys.modules[name])
    return sys.modules[name]


class Record:
    """Instance of a class known by name alone: keeps its arguments and its state."""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.state = state

    def __reduce__(self):
        return (type(self), self.args) + ((self.state,) if hasattr(self, "state") else ())


class State:
    """Instance made by NEWOBJ () and BUILD state, as dataclasses are."""

    def __init__(self, state=None):
        self.state = state

    def __reduce_ex__(self, protocol):
        return (copyreg.__newobj__, (type(self),)) + (() if self.state is None else (self.state,))


class Constant:
    """A global that is a value, such as torch.bfloat16."""

    def __init__(self, mod, name):
        self.__module__, self.name = mod, name
        setattr(module(mod), name, self)

    def __reduce__(self):
        return self.name


def klass(mod, name, base=Record):
    found = getattr(module(mod), name, None)
    if found is None:
        found = type(name, (base,), {"__module__": mod})
        setattr(module(mod), name, found)
    return found


DTYPE = {name: Constant("torch", name) for name in ("bfloat16", "float16", "float32", "uint8")}
for storage in STORAGE.values():
    klass("torch", storage)
rebuild_tensor = klass("torch._utils", "_rebuild_tensor_v2")
Size = klass("torch", "Size")


class Tensor:
    """A contiguous tensor with a storage of its own; data: bytes, or None for a hole."""

    def __init__(self, dtype, shape, data=None, location="cpu"):
        self.dtype, self.shape, self.location = dtype, tuple(shape), location
        self.numel = 1
        for n in self.shape:
            self.numel *= n
        self.data = Hole(self.numel * ELEMENT[dtype]) if data is None else data

    def stride(self):
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.insert(0, step)
            step *= n
        return tuple(strides)


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


class Pickler(pickle._Pickler):
    def __init__(self, file, storages):
        super().__init__(file, 2)
        self.storages = storages

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages.append(obj.tensor.data)
        t = obj.tensor
        return ("storage", klass("torch", STORAGE[t.dtype]), str(len(self.storages) - 1), t.location, t.numel)

    def save_tensor(self, t):
        args = (Storage(t), 0, t.shape, t.stride(), False, collections.OrderedDict())
        self.save_reduce(rebuild_tensor, args, obj=t)

    dispatch = dict(pickle._Pickler.dispatch)
    dispatch[Tensor] = save_tensor


def dumps(obj):
    out, storages = io.BytesIO(), []
    Pickler(out, storages).dump(obj)
    return out.getvalue(), storages


@functools.lru_cache(maxsize=None)
def tensor_pickle(dtype, shape, location):
    return dumps(Tensor(dtype, shape, location=location))[0]


class Unpickler(pickle.Unpickler):
    def find_class(self, mod, name):
        if mod in ("argparse", "collections", "builtins", "__builtin__"):
            return super().find_class(mod, name)
        return DTYPE.get(name) if mod == "torch" and name in DTYPE else klass(mod, name)

    def persistent_load(self, pid):
        return pid


def loads(data):
    return Unpickler(io.BytesIO(data)).load()


def namespace(**values):
    return argparse.Namespace(**values)


# -- torch.distributed.checkpoint -----------------------------------------------------------------

META = "torch.distributed.checkpoint.metadata"


class Dcp:
    """A torch_dist checkpoint being written: items go into numbered files, metadata() describes them."""

    def __init__(self, directory):
        self.directory = directory
        self.tensors, self.byte_keys, self.storage = {}, [], {}
        self.files = {}
        self.properties = {}

    def file(self, rank):
        name = f"__{rank}_0.distcp"
        if name not in self.files:
            self.files[name] = SparseFile(f"{self.directory}/{name}")
        return name, self.files[name]

    def close_file(self, rank):
        name = f"__{rank}_0.distcp"
        if name in self.files:
            self.files.pop(name).close()

    def index(self, key, offset, info):
        index = {"fqn": key, "index": None}
        if offset is not None:
            index = {"fqn": key, "offset": Size(offset), "index": None}
        self.storage[klass(META, "MetadataIndex", State)(index)] = info

    def item(self, rank, write):
        name, out = self.file(rank)
        start = out.pos
        length = write(out)
        info = {"relative_path": name, "offset": start, "length": length}
        return klass("torch.distributed.checkpoint.filesystem", "_StorageInfo", State)(info)

    def tensor(self, rank, key, dtype, shape, offset, size, data=None):
        """One chunk of a global tensor."""
        tensor = Tensor(dtype, size, data)
        info = self.item(rank, lambda out: torch_save(out, "archive", tensor, crcs=False))
        chunk = klass(META, "ChunkStorageMetadata", State)({"offsets": Size(offset), "sizes": Size(tuple(size))})
        self.tensors.setdefault(key, (dtype, tuple(shape), []))[2].append(chunk)
        self.index(key, offset, info)

    def object(self, rank, key, value):
        info = self.item(rank, lambda out: torch_save(out, "archive", [value]))
        self.byte_keys.append(key)
        self.index(key, None, info)

    def tensor_properties(self, dtype):
        strided = klass("torch.serialization", "_get_layout")("torch.strided")
        encoding = klass(META, "_MEM_FORMAT_ENCODING")(0)
        return klass(META, "TensorProperties", State)((DTYPE[dtype], strided, False, encoding, False))

    def metadata(self):
        state = {}
        for key, (dtype, shape, chunks) in self.tensors.items():
            fields = {"properties": self.tensor_properties(dtype), "size": Size(shape), "chunks": chunks}
            state[key] = klass(META, "TensorStorageMetadata", State)(fields)
        for key in self.byte_keys:
            state[key] = klass(META, "BytesStorageMetadata", State)()
        meta = {"checkpoint_id": "/checkpoints/run", "save_id": "0", "load_id": None, "modules": []}
        return klass(META, "Metadata", State)({
            "state_dict_metadata": state, "planner_data": None, "storage_data": self.storage,
            "storage_meta": klass(META, "StorageMeta", State)(meta), "version": "1.0.0"})

    def close(self):
        for out in self.files.values():
            out.close()
        with open(f"{self.directory}/.metadata", "wb") as f:
            pickle.dump(self.metadata(), f, 4)
        with open(f"{self.directory}/metadata.json", "w") as f:
            f.write('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')

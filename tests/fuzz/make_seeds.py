"""Makes corpus/ and reject/: python3 tests/fuzz/make_seeds.py. Kept beside them to say what each input is.

Seeds called ok-* must be accepted. Each input under reject/ breaks one rule, which its name says.
"""

import collections
import io
import json
import os
import pickle
import re
import struct
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = f"{HERE}/../fixtures"
sys.path.insert(0, f"{HERE}/../giants")
import torch_files as tf  # noqa: E402


def save(kind, target, name, data):
    os.makedirs(f"{HERE}/{kind}/{target}", exist_ok=True)
    with open(f"{HERE}/{kind}/{target}/{name}", "wb") as f:
        f.write(data)


def ok(target, name, data):
    save("corpus", target, f"ok-{name}", data)


def reject(target, name, data):
    save("reject", target, name, data)


class Memory(tf.SparseFile):
    def __init__(self):
        self.file, self.pos = io.BytesIO(), 0

    def bytes(self):
        return self.file.getvalue()


def archive(records, prefix="archive"):
    out = Memory()
    tf.archive(out, prefix, records)
    return out.bytes()


def saved(obj, prefix="archive", crcs=True):
    out = Memory()
    tf.torch_save(out, prefix, obj, crcs)
    return out.bytes()


def patch(data, at, fmt, *values):
    data = bytearray(data)
    struct.pack_into(fmt, data, at % len(data), *values)
    return bytes(data)


def fixture_items():
    with open(f"{FIXTURES}/weights/deepseek-torch_dist-pp2-ep2/iter_0000040/__0_0.distcp", "rb") as f:
        data = f.read()
    end = 0
    while end < len(data):
        start, end = end, data.index(b"PK\5\6", end) + 22
        yield data[start:end]


# -- zip ------------------------------------------------------------------------------------------


def make_zip():
    items = list(fixture_items())
    ok("zip", "item-of-none", items[0])
    ok("zip", "item-of-tensor", min((i for i in items if b"data/0" in i), key=len))
    foreign = io.BytesIO()
    with zipfile.ZipFile(foreign, "w") as z:
        z.writestr("a", "first")
        z.writestr("b/c", b"")
        z.comment = b"a comment behind the end record"
    ok("zip", "python-with-comment", foreign.getvalue())
    ok("zip", "empty", archive([]))

    good = archive([("data.pkl", b"N."), ("version", b"3\n")])
    central = good.index(b"PK\1\2")
    second = good.index(b"PK\1\2", central + 4)
    end64, locator, end = good.index(b"PK\6\6"), good.index(b"PK\6\7"), good.index(b"PK\5\6")
    reject("zip", "nothing", b"")
    reject("zip", "shorter-than-an-end-record", good[-21:])
    reject("zip", "no-end-record", good[:end])
    reject("zip", "cut-in-front", good[70:])
    reject("zip", "directory-outside", patch(good, end64 + 48, "<Q", len(good)))
    reject("zip", "directory-offset-wraps", patch(good, end64 + 48, "<Q", 2**64 - 1))
    reject("zip", "directory-size-wraps", patch(good, end64 + 40, "<Q", 2**64 - 1))
    reject("zip", "more-entries-than-room", patch(good, end64 + 32, "<Q", 2**40))
    reject("zip", "no-end64-where-locator-points", patch(good, locator + 8, "<Q", 0))
    reject("zip", "end64-behind-its-locator", patch(good, locator + 8, "<Q", end))
    reject("zip", "several-disks", patch(good, locator + 16, "<I", 2))
    reject("zip", "no-central-signature", patch(good, central, "<I", 0))
    reject("zip", "central-name-cut", patch(good, central + 28, "<H", 65535))
    reject("zip", "encrypted", patch(good, central + 8, "<H", 1))
    reject("zip", "compressed", patch(good, central + 10, "<H", 8))
    reject("zip", "two-sizes", patch(good, central + 20, "<I", 1))
    reject("zip", "payload-over-next-entry", patch(good, central + 20, "<II", 4096, 4096))
    reject("zip", "payload-over-directory", patch(good, second + 20, "<II", 4096, 4096))
    reject("zip", "header-behind-directory", patch(good, second + 42, "<I", central + 1))
    reject("zip", "nul-in-name", good.replace(b"archive/version", b"archive/\0ersion"))
    reject("zip", "no-local-header", patch(good, 0, "<I", 0))
    reject("zip", "local-name-differs", good.replace(b"archive/version", b"archive/Version", 1))
    reject("zip", "local-extra-reaches-outside", patch(good, 28, "<H", 65535))
    reject("zip", "duplicate-names", archive([("version", b"1"), ("version", b"2")]))
    extra = good[:second + 30] + struct.pack("<H", 4) + good[second + 32:end64] + struct.pack("<HH", 1, 9)
    extra += patch(good[end64:locator], 40, "<Q", end64 + 4 - central)
    extra += patch(good[locator:], 8, "<Q", end64 + 4)
    reject("zip", "extra-field-cut", extra)
    reject("zip", "zip64-size-missing", patch(good, second + 20, "<II", 2**32 - 1, 2**32 - 1))


# -- pickle ---------------------------------------------------------------------------------------


def make_pickle():
    def item(name):
        path = f"{FIXTURES}/weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040/{name}"
        with open(path, "rb") as f:
            return f.read()

    ok("pickle", "metadata", item(".metadata"))
    for protocol in (2, 3, 4, 5):
        value = {"a": [1, -1, 2**31, 2**70, -2**70, 1.5, None, True, False], "b": ("x", b"y", {1, 2}), ("t",): "é" * 300,
                 "e": (), "f": frozenset([1]), "o": collections.OrderedDict(k=1)}
        if protocol > 2:
            value["g"] = bytearray(b"abc")
        ok("pickle", f"protocol{protocol}", pickle.dumps(value, protocol))
    shared = []
    shared.append(shared)
    ok("pickle", "list-in-itself", pickle.dumps([shared, shared], 4))
    ok("pickle", "plans-in-the-middle", pickle.dumps({"a": 1, "all_local_plans": [{"x": (1, 2)}] * 3, "b": [1]}, 4))
    ok("pickle", "tensor", tf.tensor_pickle("bfloat16", (2, 3), "cpu"))

    layers = [None]
    for _ in range(12):
        layers = [layers] * 12
    ok("pickle", "one-list-many-times", pickle.dumps(layers, 4))
    ok("pickle", "keyword-arguments", b"\x80\x04\x8c\x01m\x94\x8c\x03A.B\x94\x93\x94K\x01\x85}\x8c\x01kNs\x92}\x8c\x01aK\x02sb.")

    proto = b"\x80\x02"
    ok("pickle", "pop-takes-a-mark", proto + b"N(0.")
    save("corpus", "pickle", "stack-global-of-numbers", b"\x80\x04K\x01K\x02\x93.")
    for name, body in {
        "nothing": b"",
        "no-stop": proto + b"N",
        "nothing-to-return": proto + b".",
        "protocol-6": b"\x80\x06N.",
        "unknown-opcode": proto + b"\xffN.",
        "text-integer": proto + b"I1\n.",
        "text-persistent-id": proto + b"Pid\n.",
        "extension-code": proto + b"\x82\x01.",
        "inst": proto + b"(ios\nsystem\n.",
        "string-longer-than-stream": proto + b"X\xff\xff\xff\x7fab.",
        "string8-longer-than-stream": b"\x80\x04\x8d" + b"\xff" * 8 + b"ab.",
        "bytes8-length-wraps": b"\x80\x04\x8e" + b"\xf8" + b"\xff" * 7 + b"ab.",
        "integer-longer-than-stream": proto + b"\x8b\xff\xff\xff\x7f\x01.",
        "negative-integer-length": proto + b"\x8b\xff\xff\xff\xff\x01.",
        "argument-cut": proto + b"J\x01",
        "global-without-line-end": proto + b"cos\nsystem",
        "memo-never-set": proto + b"h\x07.",
        "memo-of-nothing": proto + b"q\x00N.",
        "memo-slot-beyond-sense": proto + b"Nr\xff\xff\xff\xff.",
        "append-to-a-number": proto + b"K\x01K\x02a.",
        "appends-to-a-dict": proto + b"}(K\x01e.",
        "item-set-in-a-list": proto + b"]K\x01K\x02s.",
        "key-without-value": proto + b"}(K\x01u.",
        "tuple-without-mark": proto + b"t.",
        "pop-mark-without-mark": proto + b"1.",
        "underflow-tuple3": proto + b"NN\x87.",
        "reduce-without-arguments": proto + b"cos\nsystem\nR.",
        "build-on-nothing": proto + b"b.",
    }.items():
        reject("pickle", name, body)


# -- torch_file -----------------------------------------------------------------------------------


def tensor(*shape, dtype="bfloat16"):
    t = tf.Tensor(dtype, shape)
    t.data = bytes(i % 251 + 1 for i in range(t.data.size))
    return t


class Call:
    """func(*args) in a data.pkl."""

    def __init__(self, mod, name, *args):
        self.func, self.args = tf.klass(mod, name), args

    def __reduce__(self):
        return self.func, self.args


def rebuilt(storage=None, offset=0, size=(2,), stride=(1,), func="_rebuild_tensor_v2", extra=()):
    storage = storage or tf.Storage(tensor(4))
    return Call("torch._utils", func, storage, offset, size, stride, False, collections.OrderedDict(), *extra)


def foreign_storage(name, numel, data):
    s = tf.Storage(tensor(1))
    s.tensor.dtype, s.tensor.numel, s.tensor.data = name, numel, data
    tf.STORAGE[name] = name
    return s


class StreamPickler(tf.Pickler):
    """Persistent ids of torch before 1.6 have a sixth item, the view."""

    def __init__(self, file, storages, view=None):
        super().__init__(file, storages)
        self.view = view

    def persistent_id(self, obj):
        found = super().persistent_id(obj)
        return found and (*found, self.view)


def stream(obj, version=1001, little=True, view=None, keys=None, counts=None):
    """torch.save(obj) before torch 1.6. keys, counts: instead of the true ones."""
    out, storages = io.BytesIO(), []
    for head in (0x1950A86A20F9469CFC6C, version, {"protocol_version": version, "little_endian": little, "type_sizes": {"int": 4}}):
        pickle.dump(head, out, 2)
    StreamPickler(out, storages, view).dump(obj)
    pickle.dump([str(i) for i in range(len(storages))] if keys is None else keys, out, 2)
    for data, count in zip(storages, counts or [len(data) // 2 for data in storages]):
        out.write(struct.pack("<q", count) + data)
    return out.getvalue()


def make_torch_stream():
    state = collections.OrderedDict(a=tensor(2, 3), b=tensor(), d=None)
    whole = stream({"args": tf.namespace(num_layers=1), "model": state})
    ok("torch_file", "stream", whole)
    ok("torch_file", "stream-of-tensor", stream(tensor(2, 3)))
    ok("torch_file", "stream-of-none", stream(None))
    reject("torch_file", "stream-version", stream(tensor(4), version=1002))
    reject("torch_file", "stream-big-endian", stream(tensor(4), little=False))
    reject("torch_file", "stream-view", stream(tensor(4), view=("1", 0, 4)))
    reject("torch_file", "stream-cut-in-pickle", whole[:150])
    reject("torch_file", "stream-cut-in-storage", whole[:-1])
    reject("torch_file", "stream-too-long", whole + b"x")
    reject("torch_file", "stream-count", stream(tensor(4), counts=[5]))
    reject("torch_file", "stream-unknown-key", stream(tensor(4), keys=["7"]))
    reject("torch_file", "stream-key-twice", stream(state, keys=["0", "0"]))
    reject("torch_file", "stream-more-keys", stream(tensor(4), keys=["0", "1"]))
    reject("torch_file", "stream-no-key", stream(tensor(4), keys=[]))
    reject("torch_file", "stream-key-a-number", whole.replace(b"X\x01\x00\x00\x001", b"K\x01"))
    reject("torch_file", "stream-element-type", stream(rebuilt(foreign_storage("QInt8Storage", 4, b"abcdefgh"))))


def make_torch_file():
    make_torch_stream()
    items = list(fixture_items())
    ok("torch_file", "item-of-none", items[0])
    ok("torch_file", "item-of-tensor", min((i for i in items if b"data/0" in i), key=len))
    state = collections.OrderedDict(a=tensor(2, 3), b=tensor(), c=tensor(0, 5, dtype="float32"), d=None)
    ok("torch_file", "legacy", saved({"args": tf.namespace(num_layers=1), "model": state}, "model_optim_rng"))
    # Without checksums, as torch may be told to write: a fuzzer cannot get past them.
    ok("torch_file", "legacy-without-checksums", saved({"args": None, "model": state}, "m", crcs=False))
    ok("torch_file", "tensor-without-checksums", saved(tensor(2, 3), crcs=False))
    ok("torch_file", "strided-without-checksums", saved(rebuilt(size=(2, 2), stride=(1, 2)), crcs=False))
    ok("torch_file", "strided", saved(rebuilt(size=(2, 2), stride=(1, 2))))
    ok("torch_file", "parameter", saved(Call("torch._utils", "_rebuild_parameter", tensor(3), True, collections.OrderedDict())))
    untyped = foreign_storage("UntypedStorage", 4, b"abcd")
    ok("torch_file", "untyped-fp8", saved(rebuilt(untyped, 0, (4,), (1,), "_rebuild_tensor_v3",
                                                  (tf.Constant("torch", "float8_e4m3fn"),))))
    from_type = Call("torch._tensor", "_rebuild_from_type_v2", tf.rebuild_tensor, tf.klass("torch", "Tensor"),
                     (tf.Storage(tensor(4)), 1, (3,), (1,), False, collections.OrderedDict()), None)
    ok("torch_file", "from-type", saved(from_type))

    pkl, data = tf.dumps(tensor(4))
    reject("torch_file", "no-zip", b"\x93NUMPY" + bytes(100))
    reject("torch_file", "no-data.pkl", archive([("version", b"3\n")]))
    reject("torch_file", "empty-archive", archive([]))
    reject("torch_file", "torchscript", archive([("data.pkl", b"\x80\x02N."), ("constants.pkl", b"\x80\x02).")]))
    reject("torch_file", "big-endian", archive([("data.pkl", pkl), ("byteorder", b"big"), ("data/0", data[0])]))
    two = archive([("data.pkl", pkl), ("data/0", data[0])])
    reject("torch_file", "record-missing", archive([("data.pkl", pkl)]))
    key = b"X\x01\0\0\x000"
    assert pkl.count(key) == 1
    for name, other in (("key-with-a-nul", b"0\0x"), ("key-longer-than-its-record", b"0" * 48 + b"1")):
        changed = pkl.replace(key, b"X" + struct.pack("<I", len(other)) + other)
        reject("torch_file", name, archive([("data.pkl", changed), ("data/" + other.split(b"\0")[0][:48].decode(), data[0])]))
    named = pkl.replace(b"BFloat16Storage\n", b"BFloat16Storage\0x\n")
    assert named != pkl
    reject("torch_file", "class-with-a-nul", archive([("data.pkl", named), ("data/0", data[0])]))
    reject("torch_file", "record-too-small", archive([("data.pkl", pkl), ("data/0", data[0][:-1])]))
    reject("torch_file", "record-too-large", archive([("data.pkl", pkl), ("data/0", data[0] + b"x")]))
    reject("torch_file", "checksum-differs", two.replace(b"BFloat16Storage", b"BFloat16Storagf"))
    reject("torch_file", "two-prefixes", two.replace(b"archive/data/0", b"Archive/data/0"))
    reject("torch_file", "prefix-of-a-prefix", two.replace(b"archive/data/0", b"archive_data/0"))
    reject("torch_file", "view-beyond-storage", saved(rebuilt(size=(5,))))
    reject("torch_file", "offset-beyond-storage", saved(rebuilt(offset=3)))
    reject("torch_file", "negative-offset", saved(rebuilt(offset=-1)))
    reject("torch_file", "negative-stride", saved(rebuilt(offset=3, stride=(-1,))))
    reject("torch_file", "negative-size", saved(rebuilt(size=(-2,))))
    reject("torch_file", "stride-wraps", saved(rebuilt(size=(3,), stride=(2**63 - 1,))))
    reject("torch_file", "strides-missing", saved(rebuilt(size=(2, 2), stride=(1,))))
    reject("torch_file", "nine-axes", saved(rebuilt(size=(1,) * 9, stride=(1,) * 9)))
    reject("torch_file", "unknown-storage", saved(rebuilt(foreign_storage("QInt8Storage", 4, b"abcd"))))
    reject("torch_file", "quantized", saved(rebuilt(func="_rebuild_qtensor")))
    reject("torch_file", "sparse", saved(Call("torch._utils", "_rebuild_sparse_tensor", 1, ())))
    reject("torch_file", "no-storage", saved(rebuilt("storage")))
    for name, numel in (("numel-negative", -4), ("numel-wraps", 2**63 - 1)):
        reject("torch_file", name, saved(rebuilt(foreign_storage("HalfStorage", numel, b"abcdefgh"))))


# -- dcp ------------------------------------------------------------------------------------------


class Meta(tf.Dcp):
    """A .metadata of two tensors and a byte item, to be changed before it is pickled."""

    def __init__(self):
        super().__init__("/nowhere")
        self.pos = 0

    def item(self, rank, write):
        self.pos += 1000
        info = {"relative_path": f"__{rank}_0.distcp", "offset": self.pos - 1000, "length": 1000}
        return tf.klass("torch.distributed.checkpoint.filesystem", "_StorageInfo", tf.State)(info)

    def fill(self):
        for layer in range(2):
            self.tensor(layer, "decoder.layers.w", "bfloat16", (2, 4, 3), (layer, 0, 0), (1, 4, 3))
        self.tensor(0, "scalar", "float32", (), (), ())
        self.object(1, "common_state/shard_0_1", None)
        return self

    def bytes(self, protocol=4, **attributes):
        meta = self.metadata()
        meta.state.update(attributes)
        return pickle.dumps(meta, protocol)


def changed(change):
    meta = Meta().fill()
    change(meta)
    return meta.bytes()


def first_chunk(meta):
    return meta.tensors["decoder.layers.w"][2][0].state


def first_place(meta):
    return next(iter(meta.storage.values())).state


def make_dcp():
    def item(path):
        with open(f"{FIXTURES}/{path}", "rb") as f:
            return f.read()

    ok("dcp", "llama", item("weights/llama-torch_dist-tp2-pp2-vpp2/iter_0000040/.metadata"))
    ok("dcp", "qwen3", item("weights/qwen3-torch_dist-tp4/iter_0000040/.metadata"))
    ok("dcp", "small", Meta().fill().bytes())
    ok("dcp", "protocol2", Meta().fill().bytes(2))
    ok("dcp", "empty", Meta().bytes())
    plans = [tf.klass("torch.distributed.checkpoint.planner", "SavePlan", tf.State)({"items": ["x"] * 5})] * 3
    ok("dcp", "with-plans", Meta().fill().bytes(all_local_plans=plans))
    ok("dcp", "mcore-data-behind-plans", Meta().fill().bytes(all_local_plans=plans, mcore_data={"k": {"s": (1, 2)}}))

    size = tf.Size
    cases = {
        "no-metadata": pickle.dumps({"a": 1}, 4),
        "no-storage-data": Meta().fill().bytes(storage_data=None),
        "chunk-leaves-tensor": changed(lambda m: first_chunk(m).update(sizes=size((2, 4, 4)))),
        "chunk-volume-short": changed(lambda m: first_chunk(m).update(sizes=size((1, 4, 2)))),
        "chunk-size-negative": changed(lambda m: first_chunk(m).update(sizes=size((1, -4, 3)))),
        "chunk-other-axes": changed(lambda m: first_chunk(m).update(sizes=size((4, 3)))),
        "chunk-without-place": changed(lambda m: m.storage.pop(next(iter(m.storage)))),
        "two-chunks-at-one-place": changed(lambda m: first_chunk(m).update(offsets=size((1, 0, 0)))),
        "place-without-chunk": changed(lambda m: next(iter(m.storage)).state.update(offset=size((1, 1, 0)))),
        "place-without-tensor": changed(lambda m: next(iter(m.storage)).state.update(fqn="other")),
        "place-without-name": changed(lambda m: next(iter(m.storage)).state.update(fqn=None)),
        "file-without-name": changed(lambda m: first_place(m).update(relative_path=None)),
        "file-name-empty": changed(lambda m: first_place(m).update(relative_path="")),
        "item-offset-negative": changed(lambda m: first_place(m).update(offset=-1)),
        "item-length-text": changed(lambda m: first_place(m).update(length="1000")),
        "item-transformed": changed(lambda m: first_place(m).update(transform_descriptors=["zstd"])),
    }
    for name, data in cases.items():
        reject("dcp", name, data)
    for name, shape in (("nine-axes", (1,) * 9), ("volume-wraps", (2**62, 2**62)), ("size-negative", (-1, -1))):
        meta = Meta().fill()
        meta.tensors["decoder.layers.w"] = ("bfloat16", shape, [])
        reject("dcp", name, meta.bytes())
    meta = Meta().fill()
    meta.tensors["nul\0inside"] = meta.tensors.pop("scalar")
    reject("dcp", "nul-in-a-key", meta.bytes())
    meta = Meta().fill()
    meta.tensors[7] = meta.tensors.pop("scalar")
    reject("dcp", "key-is-a-number", meta.bytes())
    data = Meta().fill().bytes()
    reject("dcp", "unknown-dtype", data.replace(b"bfloat16", b"quint4x2"))
    reject("dcp", "neither-tensor-nor-bytes", data.replace(b"TensorStorageMetadata", b"TensorStorageMetadatb"))


# -- megatron_args --------------------------------------------------------------------------------


def known_arguments():
    """The names that the reader asks for: the rows of its list, and the quoted ones of its source."""
    with open(f"{HERE}/../../formats/args/megatron_args.c") as f:
        names = set(re.findall(r'"([a-z][a-z0-9_]+)"', f.read()))
    with open(f"{HERE}/../../formats/args/fields.h") as f:
        return names | set(re.findall(r"^ARG\(\w+, (\w+)", f.read(), re.M))


def fixture_namespaces():
    for family in ("gpt2-torch-tp2-pp2", "llama-torch-tp2-pp2", "mixtral-torch-pp2-ep2"):
        root = f"{FIXTURES}/weights/{family}/iter_0000040"
        first = sorted(d for d in os.listdir(root) if d.startswith("mp_rank"))[0]
        with zipfile.ZipFile(f"{root}/{first}/model_optim_rng.pt") as z:
            yield family.split("-")[0], tf.loads(z.read("model_optim_rng/data.pkl"))["args"]
    for family in ("deepseek-torch_dist-pp2-ep2", "qwen3-torch_dist-tp4"):
        with open(f"{FIXTURES}/weights/{family}/iter_0000040/__0_0.distcp", "rb") as f:
            data = f.read()
        start = data.rindex(b"PK\5\6", 0, data.index(b"argparse")) + 22
        end = data.index(b"PK\5\6", start) + 22
        with zipfile.ZipFile(io.BytesIO(data[start:end])) as z:
            yield family.split("-")[0], tf.loads(z.read("archive/data.pkl"))[0]["args"]


# Of formats/args/megatron_data_args.c.
RUN_DATA = {
    "data_path": ["0.7", "/d/a_document", "0.3", "/d/b_document"], "train_data_path": None, "valid_data_path": ["v"], "test_data_path": [],
    "data_args_path": "/d/words", "per_split_data_args_path": None, "split": "99,1,0", "seed": 1234, "seq_length": 128, "train_iters": 40,
    "train_samples": None, "eval_iters": 1, "eval_interval": 20, "global_batch_size": 8, "micro_batch_size": 2, "data_parallel_size": 2,
    "consumed_train_samples": 160, "dataloader_type": "cyclic", "data_sharding": True, "mid_level_dataset_surplus": 0.005,
    "full_validation": False, "rampup_batch_size": ["2", "2", "1000"], "mock_data": False,
}


def make_args():
    known = known_arguments()
    small = {}
    for family, args in fixture_namespaces():
        small[family] = {k: v for k, v in vars(args).items() if k in known}
        ok("megatron_args", family, tf.dumps(tf.namespace(**small[family]))[0])
    ok("megatron_args", "in-a-state", tf.dumps({"args": tf.namespace(**small["llama"])})[0])
    data = {**{k: small["llama"][k] for k in ("num_layers", "hidden_size", "num_attention_heads")}, **RUN_DATA}
    ok("megatron_args", "data", tf.dumps({"args": tf.namespace(**data), "iteration": 20})[0])
    least = {k: small["llama"][k] for k in ("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size")}
    save("corpus", "megatron_args", "least", tf.dumps(tf.namespace(**least))[0])

    def broken(name, family="llama", **changes):
        values = {k: v for k, v in {**small[family], **changes}.items() if v != "absent"}
        reject("megatron_args", name, tf.dumps(tf.namespace(**values))[0])

    reject("megatron_args", "a-dict-instead", tf.dumps(small["llama"])[0])
    reject("megatron_args", "none", b"\x80\x02N.")
    broken("no-layer-count", num_layers="absent")
    broken("no-hidden-size", hidden_size="absent")
    broken("no-head-count", num_attention_heads=None)
    broken("layers-zero", num_layers=0)
    broken("layers-negative", num_layers=-4)
    broken("layers-beyond-sense", num_layers=2**40)
    broken("layers-text", num_layers="four")
    broken("hidden-a-list", hidden_size=[64])
    broken("hidden-huge", hidden_size=2**62)
    broken("hidden-bigger-than-int64", hidden_size=2**80)
    broken("heads-zero", num_attention_heads=0)
    broken("groups-zero", num_query_groups=0)
    broken("tensor-parallel-zero", tensor_model_parallel_size=0)
    broken("pipeline-parallel-negative", pipeline_model_parallel_size=-1)
    broken("rotary-base-text", rotary_base="10000")
    broken("rotary-base-infinite", rotary_base=float("inf"))
    broken("swiglu-a-number", swiglu=3)
    broken("moe-frequency-too-short", "deepseek", moe_layer_freq=[0, 1])
    broken("moe-frequency-of-text", "deepseek", moe_layer_freq="([0]*1+[1]*3")
    broken("moe-frequency-zero", "deepseek", moe_layer_freq=0)
    mamba = dict(mamba_num_groups=1)
    ok("megatron_args", "hybrid", tf.dumps(tf.namespace(**{**small["mixtral"], **mamba, "hybrid_layer_pattern": "M*|-E"}))[0])
    blocks = dict(hybrid_layer_pattern="*-|GE", num_experts=4)
    ok("megatron_args", "hybrid-blocks", tf.dumps(tf.namespace(**{**small["mixtral"], **blocks}))[0])
    broken("pattern-of-unlike-depths", "mixtral", hybrid_layer_pattern="*-*-/*-/*E")
    broken("pattern-too-short", "mixtral", **mamba, hybrid_layer_pattern="M*E")
    broken("pattern-of-unknown-layers", "mixtral", **mamba, hybrid_layer_pattern="M*-X")
    broken("pattern-without-number-of-experts", **mamba, hybrid_layer_pattern="M*-E")
    broken("mamba-heads-no-multiple", "mixtral", hybrid_layer_pattern="M*-E", mamba_num_groups=3, mamba_num_heads=4)
    broken("mamba-heads-of-odd-size", "mixtral", hybrid_layer_pattern="M*-E", mamba_head_dim=48)
    broken("hybrid-ratios-above-1", "mixtral", hybrid_attention_ratio=0.75, hybrid_mlp_ratio=0.5)


# -- safetensors ----------------------------------------------------------------------------------


def st(header, data=b"", pad=True):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 if pad else 0)
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    a, b = entry("F32", [2], 0, 8), entry("BF16", [1, 3], 8, 14)
    ok("safetensors", "two", st({"__metadata__": {"format": "pt"}, "a": a, "b": b}, bytes(14)))
    ok("safetensors", "scalar-and-empty", st({"s": entry("F64", [], 0, 8), "e": entry("U8", [0, 9], 8, 8)}, bytes(8)))
    ok("safetensors", "no-tensor", st({}))
    ok("safetensors", "escaped-name", st({"\"\\\n\u00e9\U0001f600": a}, bytes(8)))
    ok("safetensors", "every-dtype", st({f"t{i}": entry(d, [8 // s], 8 * i, 8 * i + 8) for i, (d, s) in enumerate(
        [("BOOL", 1), ("U8", 1), ("I8", 1), ("F8_E5M2", 1), ("F8_E4M3", 1), ("I16", 2), ("U16", 2), ("F16", 2), ("BF16", 2),
         ("I32", 4), ("U32", 4), ("F32", 4), ("F64", 8), ("I64", 8), ("U64", 8)])}, bytes(15 * 8)))

    two = {"a": a, "b": b}
    for name, data in {
        "nothing": b"",
        "shorter-than-a-length": b"\x10\0\0\0",
        "length-beyond-file": struct.pack("<Q", 100) + b"{}",
        "length-wraps": struct.pack("<Q", 2**64 - 8) + b"{}      ",
        "length-above-limit": struct.pack("<Q", 100000001) + b"{}",
        "no-json": st(b"not json"),
        "no-object": st(b"[1,2,3] "),
        "two-values": st(b"{}{}"),
        "not-utf8": st(b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "unknown-dtype": st({"a": entry("F31", [2], 0, 8)}, bytes(8)),
        "size-differs-from-shape": st({"a": entry("F32", [3], 0, 8)}, bytes(8)),
        "shape-wraps": st({"a": entry("F32", [2**62, 2**62], 0, 0)}),
        "shape-negative": st({"a": entry("F32", [-2], 0, 8)}, bytes(8)),
        "shape-fraction": st({"a": entry("F32", [2.0], 0, 8)}, bytes(8)),
        "shape-missing": st({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
        "offsets-reversed": st({"a": entry("F32", [2], 8, 0)}, bytes(8)),
        "offsets-three": st({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 9]}}, bytes(8)),
        "offset-beyond-file": st(two, bytes(13)),
        "trailing-bytes": st(two, bytes(15)),
        "hole-in-front": st({"a": entry("F32", [2], 1, 9)}, bytes(9)),
        "hole-between": st({"a": a, "b": entry("BF16", [1, 3], 9, 15)}, bytes(15)),
        "overlap": st({"a": a, "b": entry("BF16", [1, 3], 7, 13)}, bytes(13)),
        "duplicate-name": st(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                             b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', bytes(1)),
        "metadata-of-numbers": st({"__metadata__": {"a": 1}}),
        "tensor-is-text": st({"a": "F32"}),
    }.items():
        reject("safetensors", name, data)


# -- hf_config ------------------------------------------------------------------------------------


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 176,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
         "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False,
         "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}
TOKENIZER = {"version": "1.0", "added_tokens": [{"id": 4, "content": "<s>", "special": True}, {"id": 5, "content": "</s>"}],
             "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\\\s+\"}{"}},
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u00e9\\": 2, "}": 3}, "merges": [["a", "b"]]}}
TOKENIZER_CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": None,
                    "added_tokens_decoder": {"4": {"content": "<s>"}}}


def make_hf_config():
    def text(value):
        return json.dumps(value).encode()

    ok("hf_config", "llama", b"c" + text(LLAMA))
    ok("hf_config", "rope-parameters", b"c" + text({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}))
    ok("hf_config", "almost-empty", b"c{}")
    ok("hf_config", "auto-map", b"c" + text({**LLAMA, "auto_map": {"AutoConfig": "a.B"}, "extra": [{"deep": [[[]]]}]}))
    ok("hf_config", "tokens", b"t" + text(TOKENIZER_CONFIG) + b"\0" + text(TOKENIZER))
    save("corpus", "hf_config", "tokens-of-tokenizer-cut", b"t" + text(TOKENIZER_CONFIG) + b"\0" + text(TOKENIZER)[:60])
    ok("hf_config", "tokens-alone", b"t" + text(TOKENIZER_CONFIG))
    ok("hf_config", "tokens-map", b"t" + text({"pad_token": "a"}) + b"\0" + text(TOKENIZER) + b"\0" + text({"pad_token": {"content": "\u00e9\\"}}))
    ok("hf_config", "count", b"n" + text(TOKENIZER))
    ok("hf_config", "generation", b"g" + text(LLAMA))
    for name, data in {
        "config-nothing": b"c",
        "config-no-json": b"c{",
        "config-a-list": b"c[]",
        "config-two-values": b"c{}{}",
        "config-duplicate-key": b'c{"a":1,"a":2}',
        "config-not-utf8": b'c{"a":"\xff"}',
        "config-too-deep": b'c{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        "config-other-hidden-size": b"c" + text({**LLAMA, "hidden_size": 65}),
        "config-other-layers": b"c" + text({**LLAMA, "num_hidden_layers": 5}),
        "config-other-rope-theta": b"c" + text({**LLAMA, "rope_theta": 500000.0}),
        "config-rope-scaled": b"c" + text({**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        "config-tied": b"c" + text({**LLAMA, "tie_word_embeddings": True}),
        "config-other-model-type": b"c" + text({**LLAMA, "model_type": "qwen2"}),
        "tokens-no-json": b"t{",
        "tokens-map-no-json": b"t" + text(TOKENIZER_CONFIG) + b"\0" + text(TOKENIZER) + b"\0{",
        "count-no-vocabulary": b"n" + text({"model": {"type": "BPE"}}),
        "count-cut": b"n" + text(TOKENIZER)[:-40],
        "count-id-too-large": b"n" + text({"model": {"vocab": {"a": 2**63 - 1}}}),
        "count-id-negative": b"n" + text({"model": {"vocab": {"a": -1}}}),
        "count-id-fraction": b"n" + text({"model": {"vocab": {"a": 1.5}}}),
        "generation-no-json": b"g{",
    }.items():
        reject("hf_config", name, data)


def make_sft_row():
    packed = {"input_ids": [1, 2, 3, 4], "loss_mask": [1, 0, 1, 0], "seq_start_id": [0, 2]}
    for name, row in {
        "ids": {"input_ids": [1, 2]},
        "labels": {"input_ids": [1, 2], "labels": [-100, 2]},
        "mask": {"input_ids": [1, 2], "loss_mask": [0, True]},
        "packed": packed,
        "packed-empty-document": {**packed, "seq_start_id": [0, 2, 2]},
        "starts-null": {**packed, "seq_start_id": None},
    }.items():
        ok("sft_row", name, json.dumps(row).encode())
    for name, row in {
        "nothing": {},
        "id-negative": {"input_ids": [-1]},
        "id-large": {"input_ids": [2**31]},
        "labels-short": {"input_ids": [1, 2], "labels": [1]},
        "labels-other": {"input_ids": [1, 2], "labels": [1, 3]},
        "mask-two": {"input_ids": [1, 2], "loss_mask": [1, 2]},
        "packed-no-mask": {"input_ids": [1], "seq_start_id": [0]},
        "packed-labels": {"input_ids": [1], "labels": [1], "seq_start_id": [0]},
        "packed-mask-short": {**packed, "loss_mask": [1, 0, 1]},
        "starts-no-list": {**packed, "seq_start_id": 0},
        "starts-none": {**packed, "seq_start_id": []},
        "starts-late": {**packed, "seq_start_id": [1]},
        "starts-fraction": {**packed, "seq_start_id": [0, 1.0]},
        "starts-back": {**packed, "seq_start_id": [0, 3, 2]},
        "starts-negative": {**packed, "seq_start_id": [0, -1]},
        "starts-at-the-end": {**packed, "seq_start_id": [0, 4]},
        "starts-huge": {**packed, "seq_start_id": [0, 2**62]},
        "packed-no-ids": {"input_ids": [], "loss_mask": [], "seq_start_id": [0]},
    }.items():
        reject("sft_row", name, json.dumps(row).encode())


make_sft_row()
make_zip()
make_pickle()
make_torch_file()
make_dcp()
make_args()
make_safetensors()
make_hf_config()

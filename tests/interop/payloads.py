"""Pickles that make a directory or a file when they are loaded, in every wrapping that torch, numpy, joblib, pandas and pickle open.

A mark is the path that a payload makes.
"""
import bz2
import gzip
import io
import lzma
import pickle
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections import OrderedDict

import numpy

PROTOCOLS = range(6)
HONEST = OrderedDict(weights=[1, 2.5, "x", b"y", None, {True: (1, 2, 3)}])


class Calls:
    def __init__(self, module, name, *arguments):
        self.module, self.name, self.arguments = module, name, arguments


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def value(v):
    """What pickle writes for it, without its frame and its end."""
    if isinstance(v, Calls):
        return call(v)
    if isinstance(v, tuple):
        return b"(" + b"".join(map(value, v)) + b"t"
    return pickle.dumps(v, 2)[2:-1]


def call(c):
    return f"c{c.module}\n{c.name}\n".encode() + value(c.arguments) + b"R"


def stream(*values, head=b"\x80\x02"):
    return head + b"".join(value(v) + b"0" for v in values[:-1]) + value(values[-1]) + b"."


def by_protocol(c, protocol):
    """The same call as each protocol imports."""
    arguments = value(c.arguments)
    if protocol < 2:
        inner = "".join(f"V{a}\n" if isinstance(a, str) else f"I{a}\n" for a in c.arguments)
        return f"c{c.module}\n{c.name}\n({inner}tR.".encode()
    if protocol < 4:
        return b"\x80" + bytes([protocol]) + f"c{c.module}\n{c.name}\n".encode() + arguments + b"R."
    short = lambda s: b"\x8c" + bytes([len(s)]) + s.encode() + b"\x94"
    return b"\x80" + bytes([protocol]) + short(c.module) + short(c.name) + b"\x93" + arguments + b"R."


def mkdir(mark):
    return Calls("os", "mkdir", mark)


def evil(mark):
    return stream(mkdir(mark))


# ---- archives ----

def archive(records, method=zipfile.ZIP_STORED, prefix="archive/"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as zipped:
        for name, data in records.items():
            zipped.writestr(zipfile.ZipInfo(prefix + name), data, method)
    return file.getvalue()


def torch_zip(payload, name="data.pkl", **how):
    return archive({name: payload, "byteorder": b"little", "version": b"3\n", "data/0": bytes(64)}, **how)


def lies(data, name=None, method=None, sizes=False):
    """The local header of an archive's first record says something else than the directory."""
    data = bytearray(data)
    length = struct.unpack_from("<H", data, 26)[0]
    if name is not None:
        data[30:30 + length] = name.encode().ljust(length, b"_")[:length]
    if method is not None:
        struct.pack_into("<H", data, 8, method)
    if sizes:
        struct.pack_into("<II", data, 18, 1, 1)
    return bytes(data)


def tar(members, compression=""):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as tarred:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tarred.addfile(info, io.BytesIO(data))
    return file.getvalue()


def torch_tar(payload, member):
    members = {"storages": pickle.dumps(0, 2), "tensors": pickle.dumps(0, 2), "pickle": pickle.dumps({}, 2)}
    return tar(members | {member: payload})


def npy(payload, version=1):
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    size = struct.Struct("<H" if version == 1 else "<I")
    header += b" " * (-(len(header) + 9 + size.size) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + size.pack(len(header)) + header + payload


def old_torch(payload, which=3):
    """torch.save before 1.6, with the payload in the place of one of its pickles."""
    pickles = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, {}, [])]
    pickles[which] = payload
    return b"".join(pickles)


def piped(program, data):
    try:
        return subprocess.run(program, input=data, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def lzma_alone(data):
    return lzma.compress(data, lzma.FORMAT_ALONE)


# ---- functions that make, cut, run or read on ----

def functions(mark):
    """(module, function, arguments...) of what is called with the mark."""
    code, nested = f"__import__('os').mkdir({mark!r})", evil(mark)
    folder, last = mark.rsplit("/", 1)
    return [
        ("os", "makedirs", mark), ("os", "mknod", mark), ("os", "mkfifo", mark), ("os", "open", mark, 65), ("os", "symlink", "/", mark),
        ("os", "system", f"mkdir {mark}"), ("posix", "mkdir", mark), ("posix", "system", f"mkdir {mark}"), ("subprocess", "call", ("mkdir", mark)),
        ("subprocess", "check_output", ("mkdir", mark)), ("commands", "getoutput", f"mkdir {mark}"), ("builtins", "eval", code), ("builtins", "exec", code),
        ("__builtin__", "eval", code), ("builtins", "open", mark, "w"), ("io", "open", mark, "w"), ("_io", "FileIO", mark, "w"), ("codecs", "open", mark, "w"),
        ("gzip", "open", mark, "w"), ("gzip", "GzipFile", mark, "w"), ("bz2", "open", mark, "w"), ("bz2", "BZ2File", mark, "w"), ("lzma", "open", mark, "w"),
        ("lzma", "LZMAFile", mark, "w"), ("wave", "open", mark, "w"), ("tarfile", "open", mark, "w"), ("zipfile", "ZipFile", mark, "w"),
        ("mailbox", "Maildir", mark), ("mailbox", "mbox", mark), ("mailbox", "MH", mark), ("sqlite3", "connect", mark), ("logging", "FileHandler", mark),
        ("logging.handlers", "RotatingFileHandler", mark), ("tempfile", "mkdtemp", "", last, folder), ("tempfile", "mkstemp", "", last, folder),
        ("shutil", "copy", "/etc/hostname", mark), ("shutil", "copytree", "/etc/alternatives", mark), ("dbm.dumb", "open", mark, "n"),
        ("dumbdbm", "open", mark, "n"), ("shelve", "open", mark, "n"), ("pickle", "loads", nested), ("cPickle", "loads", nested), ("_pickle", "loads", nested),
        ("timeit", "timeit", code), ("cProfile", "run", code), ("profile", "run", code), ("pydoc", "pipepager", "x", f"cat > {mark}"), ("bdb", "Bdb"),
        ("venv", "create", mark), ("importlib", "import_module", "antigravity"), ("distutils.dir_util", "mkpath", mark), ("code", "compile_command", code),
        ("linecache", "getlines", "/etc/hostname"), ("glob", "glob", "/*"), ("operator", "methodcaller", "mkdir"), ("types", "FunctionType"),
        ("multiprocessing.util", "get_temp_dir"), ("_thread", "start_new_thread"), ("thread", "start_new_thread"), ("collections", "namedtuple", "a", "b"),
        ("numpy", "save", mark, 1), ("numpy", "savez", mark, 1), ("numpy", "savetxt", mark, (1, 2)), ("numpy", "memmap", mark, "uint8", "w+", 0, 8),
        ("numpy", "load", mark), ("numpy", "fromfile", mark), ("numpy.core", "_ufunc_reconstruct", "os", "mkdir"), ("numpy.lib.npyio", "DataSource", mark),
        ("numpy.ctypeslib", "load_library", "c", "/"), ("torch", "save", 1, mark), ("torch", "load", mark), ("torch", "from_file", mark, True, 8),
        ("torch._C", "PyTorchFileWriter", mark), ("torch.package", "PackageExporter", mark), ("torch.utils.collect_env", "run", f"mkdir {mark}"),
        ("torch.distributed", "FileStore", mark, 1), ("torch.hub", "_remove_if_exists", mark), ("torch.storage", "_load_from_bytes", torch_zip(nested)),
        ("sympy.core.sympify", "sympify", code), ("sympy.parsing.sympy_parser", "eval_expr", code, {}, {}), ("sympy", "Abs", code), ("sympy", "sin", code),
        ("pandas", "to_pickle", 1, mark), ("pandas", "read_pickle", mark), ("pandas.io.pickle", "to_pickle", 1, mark), ("pandas", "eval", "1"),
        ("filelock", "FileLock", mark), ("yaml", "unsafe_load", f"!!python/object/apply:os.mkdir [{mark}]"), ("cloudpickle", "loads", nested),
        ("dill", "loads", nested), ("psutil", "Popen", ("mkdir", mark)), ("setuptools.archive_util", "ensure_directory", mark + "/x"),
        ("networkx.readwrite.edgelist", "write_edgelist", 1, mark), ("mycode", "load_pickle", mark), ("mycode", "run_command", mark), ("mycode", "FileWriter", mark),
    ]


# ---- everything ----

def payloads(mark):
    """name: (bytes, who loads it). mark(name) is the path that it makes."""
    made = {}

    def add(name, data, *loaders):
        if data is not None:
            made[name] = data, loaders

    for protocol in PROTOCOLS:
        add(f"p{protocol}.pkl", by_protocol(mkdir(mark(f"p{protocol}.pkl")), protocol), "pickle", "torch", "numpy")
        add(f"p{protocol}.pt", torch_zip(by_protocol(mkdir(mark(f"p{protocol}.pt")), protocol)), "torch")
    e = lambda name: evil(mark(name))
    protocol0 = lambda name: by_protocol(mkdir(mark(name)), 0)
    for name in ("FloatStorage", "ByteStorage", "QUInt2x4Storage", "BFloat16Storage"):
        for kind, module in (("ctl", "\x01x"), ("nul", "a\0b"), ("blank", "a b"), ("esc", "\x1b[2J"), ("del", "\x7f"), ("star", "*"), ("none", "")):
            file = f"{kind}-{name}.pt"
            trick = b"\x80\x04" + text(module) + text(name) + b"\x930" + e(file)[2:]
            add(file, torch_zip(trick), "torch")
    for protocol, head in ((0, b""), (2, b"\x80\x02")):
        file = f"line-{protocol}.pt"
        add(file, old_torch(head + b"c\x01x\nFloatStorage\n0" + e(file)[2:]), "torch")
        file = f"first-{protocol}.pt"
        add(file, old_torch(head + b"c\x01x\nFloatStorage\n0" + e(file)[2:], 0), "torch")
    add("inst.pkl", b"(V" + mark("inst.pkl").encode() + b"\nios\nmkdir\n.", "pickle")
    add("obj.pkl", b"(cos\nmkdir\nV" + mark("obj.pkl").encode() + b"\no.", "pickle")
    add("newobj.pkl", b"\x80\x02cio\nFileIO\n" + value((mark("newobj.pkl"), "w")) + b"\x81.", "pickle")
    add("cut.pkl", e("cut.pkl")[:-1], "pickle")
    add("broken.pkl", e("broken.pkl")[:-1] + b"\xff", "pickle")
    add("memo.pkl", b"\x80\x04\x8c\x05mkdir\x94\x8c\x02os\x940" + b"0h\x01h\x00\x93" + value((mark("memo.pkl"),)) + b"R.", "pickle")
    add("far.pkl", b"Np100000\n0" + e("far.pkl")[2:], "pickle")
    add("long.pkl", b"\x80\x02" + value(bytes(3 << 20)) + b"0" + e("long.pkl")[2:], "pickle")
    add("dotted.pkl", b"\x80\x04" + text("shutil") + text("os.mkdir") + b"\x93" + value((mark("dotted.pkl"),)) + b"R.", "pickle")
    add("second.pkl", pickle.dumps(HONEST, 2) + e("second.pkl"), "pickles")
    for which in range(5):
        add(f"old-{which}.pt", old_torch(e(f"old-{which}.pt"), which), "torch")
    # Headers that lie.
    add("lie-name.pt", lies(torch_zip(e("lie-name.pt")), "archive/txt"), "torch")
    add("lie-name-p0.pt", lies(torch_zip(protocol0("lie-name-p0.pt")), "archive/readme.txt"), "torch")
    add("lie-size.pt", lies(torch_zip(protocol0("lie-size.pt")), sizes=True), "torch")
    add("lie-stored.pt", lies(torch_zip(e("lie-stored.pt"), method=zipfile.ZIP_DEFLATED), method=0), "torch")
    add("lie-stored-p0.pt", lies(torch_zip(protocol0("lie-stored-p0.pt"), method=zipfile.ZIP_DEFLATED), "archive/x", method=0), "torch")
    add("lie-deflated.pt", lies(torch_zip(protocol0("lie-deflated.pt")), method=8), "torch")
    add("lie-bzip2.pt", lies(torch_zip(protocol0("lie-bzip2.pt")), method=12), "torch")
    add("capitals.pt", torch_zip(protocol0("capitals.pt"), "DATA.PKL"), "torch")
    add("deflated.pt", torch_zip(e("deflated.pt"), method=zipfile.ZIP_DEFLATED), "torch")
    add("two.pt", torch_zip(pickle.dumps({}, 2)) + torch_zip(e("two.pt")), "torch")
    for member in ("storages", "tensors", "pickle"):
        add(f"tar-{member}.pt", torch_tar(e(f"tar-{member}.pt"), member), "torch")
        add(f"tar-p0-{member}.pt", torch_tar(protocol0(f"tar-p0-{member}.pt"), member), "torch")
    # NumPy.
    for version in (1, 2, 3):
        add(f"array-{version}.npy", npy(e(f"array-{version}.npy"), version), "numpy")
        for label, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED), ("bzip2", zipfile.ZIP_BZIP2), ("lzma", zipfile.ZIP_LZMA)):
            for member in ("a.npy", "noext"):
                file = f"{label}-{version}-{member}.npz"
                add(file, archive({member: npy(e(file), version)}, method, ""), "numpy")
    # Files that are compressed as a whole, and files in files.
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": lambda d: piped(["zstd", "-q", "-c"], d), "tar": lambda d: tar({"x": d}),
               "tar.gz": lambda d: tar({"x": d}, "gz"), "tar.bz2": lambda d: tar({"x": d}, "bz2"), "tar.xz": lambda d: tar({"x": d}, "xz"),
               "zip": lambda d: archive({"readme.txt": d}, zipfile.ZIP_STORED, "")}
    for suffix, pack in packers.items():
        for protocol in (0, 2, 4):
            file = f"p{protocol}.pkl.{suffix}"
            add(file, pack(by_protocol(mkdir(mark(file)), protocol)), "pandas")
    add("deflated.pkl.zip", archive({"readme.txt": protocol0("deflated.pkl.zip")}, zipfile.ZIP_DEFLATED, ""), "pandas")
    add("members.pkl.gz", gzip.compress(e("members.pkl.gz")[:9]) + gzip.compress(e("members.pkl.gz")[9:]), "pandas")
    joblib = {"z": zlib.compress, "gz": gzip.compress, "bz2": bz2.compress, "lzma": lzma_alone, "xz": lzma.compress, "lz4": lambda d: piped(["lz4", "-q", "-c"], d)}
    for label, pack in joblib.items():
        add(f"{label}.joblib", pack(e(f"{label}.joblib")), "joblib")
    add("wrong-level.joblib", zlib.compress(protocol0("wrong-level.joblib"), 0), "joblib")
    add("zip-in-zip.dat", archive({"inner.dat": archive({"x": protocol0("zip-in-zip.dat")}, zipfile.ZIP_DEFLATED, "")}, zipfile.ZIP_DEFLATED, ""), "inner")
    for i, (module, name, *_) in enumerate(functions("/x/x")):
        file = f"{module}.{name}.pkl"
        add(file, stream(Calls(*functions(mark(file))[i])), "pickle")
    ufunc = b"\x80\x02cnumpy.core\n_ufunc_reconstruct\n" + value(("os", "mkdir")) + b"R" + value((mark("ufunc.pkl"),)) + b"R."
    add("ufunc.pkl", ufunc, "pickle")
    add("resolve.pkl", b"\x80\x02cpkgutil\nresolve_name\n" + value(("os:mkdir",)) + b"R" + value((mark("resolve.pkl"),)) + b"R.", "pickle")
    return made


def honest():
    """name: bytes of files that load without anything."""
    made = {}
    for protocol in PROTOCOLS:
        made[f"honest-{protocol}.pkl"] = pickle.dumps(HONEST, protocol)
    data = pickle.dumps(HONEST, 2)
    made |= {"honest.pt": torch_zip(data), "deflated.pt": torch_zip(data, method=zipfile.ZIP_DEFLATED), "old.pt": old_torch(data), "tar.pt": torch_tar(data, "pickle"),
             "honest.pkl.gz": gzip.compress(data), "honest.pkl.zip": archive({"x": data}, zipfile.ZIP_DEFLATED, ""), "honest.tar.gz": tar({"x": data}, "gz"),
             "honest.z": zlib.compress(data), "text.txt.gz": gzip.compress(b"a text\n" * 1000), "empty": b"", "zeros": bytes(4096)}
    generator = numpy.random.default_rng(5)
    for dtype in ("<f4", "<f2", "<i8", "<u2", "|u1"):
        values = generator.standard_normal(50000) if dtype[1] == "f" else generator.integers(0, 200, 50000)
        for i in range(20):
            made[f"raw-{dtype[1:]}-{i}.bin"] = numpy.roll(values, i * 7).astype(dtype).tobytes()
    for i in range(200):
        made[f"noise-{i}"] = generator.bytes(3000)
    for i, start in enumerate((b"\x82\x01", b"\x83\1\1", b"]\0\0", b"x\x9c", b"K\1K\2\x93", b"X\xff\xff\xff\x7f", b"\x1f\x8b\x08", b"BZh9", b"(K\1t\x93")):
        made[f"begins-{i}"] = start + generator.bytes(3000)
    for array in (generator.standard_normal((3, 4)), numpy.array(["x", "yz"]), numpy.float64(1), numpy.arange(5)):
        for save in (numpy.savez, numpy.savez_compressed):
            file = io.BytesIO()
            save(file, a=array)
            made[f"{save.__name__}-{len(made)}.npz"] = file.getvalue()
    return made

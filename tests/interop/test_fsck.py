"""mcorefs fsck against picklescan, with harmless samples of each kind that picklescan knows: the same exit status, or a stricter one.

The samples call nothing worse than os.getpid, and nobody unpickles them.
"""
import io
import os
import pickle
import pickletools
import struct
import subprocess
import zipfile
from collections import OrderedDict

import numpy
import pytest

import program
import venvs

CLEAN, DANGEROUS, FAILED = 0, 1, 2


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def imports(module, name, protocol):
    """A pickle that imports module.name and calls it, whether or not it is here."""
    if protocol >= 4:
        text = lambda s: b"\x8c" + bytes([len(s)]) + s.encode()
        return b"\x80\x04" + text(module) + b"\x94" + text(name) + b"\x94\x93)R."
    return (b"\x80\x02" if protocol >= 2 else b"") + f"c{module}\n{name}\n(tR.".encode()


def archive(payload, name="archive/data.pkl", compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as zipped:
        zipped.writestr(name, payload)
        zipped.writestr("archive/data/0", bytes(64))
    return file.getvalue()


def npy(payload):
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def numbers():
    file = io.BytesIO()
    numpy.savez_compressed(file, a=numpy.ones((3, 4), numpy.float32), b=numpy.array(["x", "yz"]), c=numpy.float64(1))
    return file.getvalue()


def old_torch(payload):
    """torch.save before 1.6."""
    first = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]
    return b"".join(pickle.dumps(value, 2) for value in first) + payload + pickle.dumps([], 2)


def by_memo(module, name):
    """Names that lie in the memo and come back for STACK_GLOBAL."""
    text = lambda s: b"\x8c" + bytes([len(s)]) + s.encode()
    return b"\x80\x04" + text(name) + b"\x94" + text(module) + b"\x940" + b"0h\x01h\x00\x93)R."


def samples():
    """name: (bytes, our exit status)"""
    honest = OrderedDict(weights=[1, 2.5, "x", b"y", None, {True: (1, 2, 3)}])
    evil = Calls(os.getpid)
    made = {}
    for protocol in range(6):
        made[f"honest-{protocol}.pkl"] = pickle.dumps(honest, protocol), CLEAN
        made[f"os-{protocol}.pkl"] = pickle.dumps(evil, protocol), DANGEROUS
        made[f"within-{protocol}.pkl"] = pickle.dumps([honest, {"a": evil}, honest], protocol), DANGEROUS
        made[f"optimised-{protocol}.pkl"] = pickletools.optimize(pickle.dumps([evil], protocol)), DANGEROUS
    for module, name in [("builtins", "eval"), ("__builtin__", "exec"), ("builtins", "getattr"), ("subprocess", "Popen"), ("posix", "system"),
                         ("nt", "system"), ("sys", "exit"), ("socket", "create_connection"), ("runpy", "run_path"), ("operator", "attrgetter"),
                         ("_operator", "methodcaller"), ("functools", "partial"), ("ctypes", "CDLL"), ("pickle", "loads"), ("shutil", "rmtree"),
                         ("webbrowser", "open"), ("pydoc", "pipepager"), ("asyncio.base_subprocess", "x"), ("numpy.f2py.crackfortran", "getlincoef"),
                         ("torch.serialization", "load"), ("types", "CodeType"), ("cloudpickle.cloudpickle", "_make_function"), ("pkgutil", "resolve_name"),
                         ("logging", "FileHandler"), ("_io", "FileIO"), ("timeit", "timeit"), ("uuid", "_get_command_stdout"), ("pip", "main")]:
        for protocol in (0, 2, 4):
            made[f"{module}.{name}-{protocol}.pkl"] = imports(module, name, protocol), DANGEROUS
    dumped = pickle.dumps(evil, 2)
    made["archive.pt"] = archive(dumped), DANGEROUS
    made["honest.pt"] = archive(pickle.dumps(honest, 2)), CLEAN
    made["other-name.pt"] = archive(dumped, "archive/version"), DANGEROUS
    made["archive.zip"] = archive(dumped, "x.pickle"), DANGEROUS
    made["second.pkl"] = pickle.dumps(honest, 4) + dumped, DANGEROUS
    made["old.pt"] = old_torch(dumped), DANGEROUS
    made["old-honest.pt"] = old_torch(pickle.dumps(honest, 2)), CLEAN
    made["magic.pt"] = dumped + old_torch(pickle.dumps(honest, 2)), DANGEROUS
    made["array.npy"] = npy(dumped), DANGEROUS
    made["arrays.npz"] = archive(npy(dumped), "a.npy"), DANGEROUS
    made["arrays-compressed.npz"] = archive(npy(dumped), "a.npy", zipfile.ZIP_DEFLATED), FAILED
    made["numbers-compressed.npz"] = numbers(), CLEAN
    made["compressed.pt"] = archive(dumped, compression=zipfile.ZIP_DEFLATED), FAILED
    made["instance.pkl"] = b"(ios\ngetpid\n.", DANGEROUS
    made["memo.pkl"] = by_memo("os", "getpid"), DANGEROUS
    made["put-together.pkl"] = b"\x80\x04\x8c\x02os\x8c\x03get)\x93)R.", DANGEROUS
    made["cut.pkl"] = dumped[:-1], FAILED
    made["broken.pkl"] = dumped[:-1] + b"\xff", FAILED
    made["behind-much.pkl"] = pickle.dumps([bytes(1 << 20), evil], 4), DANGEROUS
    made["no-pickle.dat"] = bytes(range(1, 200)), CLEAN
    # What picklescan lets pass.
    made["attribute.pkl"] = imports("torch", "os.system", 4), DANGEROUS
    made["registry.pkl"] = b"\x80\x02\x82\x01)R.", DANGEROUS
    return made


LENIENT = {"attribute.pkl", "registry.pkl"}  # picklescan says 0
COMPRESSED = {"arrays-compressed.npz", "compressed.pt"}  # picklescan unpacks them; we say that we do not


def fsck(path):
    done = program.run("fsck", path)
    return done.returncode, done.stdout + done.stderr


def scan_all(python, paths):
    """picklescan's exit status of each file, in one process."""
    code = ("import sys\nfrom picklescan.scanner import scan_file_path\n"
            "for path in sys.stdin.read().split('\\n'):\n"
            "    try:\n        r = scan_file_path(path)\n        print(2 if r.scan_err else int(r.issues_count > 0))\n"
            "    except Exception:\n        print(2)\n")
    done = subprocess.run([python, "-c", code], input="\n".join(map(str, paths)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


def test_samples(tmp_path):
    wrong = {}
    for name, (data, wanted) in samples().items():
        (tmp_path / name).write_bytes(data)
        code, said = fsck(tmp_path / name)
        if code != wanted:
            wrong[name] = wanted, code, said
    assert not wrong
    code, said = fsck(tmp_path)
    assert code == FAILED and f"{len(samples())} files" in said
    for name, (_, wanted) in samples().items():
        if wanted == FAILED:
            (tmp_path / name).unlink()
    code, said = fsck(tmp_path)
    assert code == DANGEROUS and " 0 that could not be scanned" in said, said


def test_picklescan_says_the_same(tmp_path):
    try:
        python = venvs.python("picklescan", "picklescan")
    except venvs.Missing as why:
        pytest.skip(str(why))
    made = samples()
    for name, (data, _) in made.items():
        (tmp_path / name).write_bytes(data)
    theirs = dict(zip(made, scan_all(python, [tmp_path / name for name in made]), strict=True))
    different = {name: (theirs[name], ours) for name, (_, ours) in made.items() if theirs[name] != ours}
    assert set(different) == LENIENT | COMPRESSED, different
    assert all(theirs[name] == CLEAN for name in LENIENT)

"""mcorefs fsck against picklescan, and against what really happens.

The samples of each kind that picklescan knows call nothing worse than os.getpid, and nobody unpickles them: the same exit status, or a
stricter one. payloads.py makes files that torch, numpy, pandas and joblib load in a process of their own: fsck calls none of them clean that did
anything, and none of the honest ones anything else.
"""
import glob
import hashlib
import io
import os
import pickle
import pickletools
import re
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict

import numpy
import pytest

import payloads
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
    made["arrays-compressed.npz"] = archive(npy(dumped), "a.npy", zipfile.ZIP_DEFLATED), DANGEROUS
    made["arrays-bzip2.npz"] = archive(npy(dumped), "a.npy", zipfile.ZIP_BZIP2), FAILED
    made["numbers-compressed.npz"] = numbers(), CLEAN
    made["compressed.pt"] = archive(dumped, compression=zipfile.ZIP_DEFLATED), DANGEROUS
    made["instance.pkl"] = b"(ios\ngetpid\n.", DANGEROUS
    made["memo.pkl"] = by_memo("os", "getpid"), DANGEROUS
    made["put-together.pkl"] = b"\x80\x04\x8c\x02os\x8c\x03get)R\x93)R.", DANGEROUS
    made["cut.pkl"] = dumped[:-1], FAILED
    made["broken.pkl"] = dumped[:-1] + b"\xff", FAILED
    made["behind-much.pkl"] = pickle.dumps([bytes(1 << 20), evil], 4), DANGEROUS
    made["no-pickle.dat"] = bytes(range(1, 200)), CLEAN
    # What picklescan lets pass.
    made["attribute.pkl"] = imports("torch", "os.system", 4), DANGEROUS
    made["registry.pkl"] = b"\x80\x02\x82\x01)R.", DANGEROUS
    return made


LENIENT = {"attribute.pkl", "registry.pkl"}  # picklescan says 0
COMPRESSED = {"arrays-bzip2.npz"}  # picklescan unpacks it; we say that we do not


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


# ---- what really happens ----

LOADED_BY = {"torch": [sys.executable, ("old", "torch 2.5")], "numpy": [sys.executable, ("old", "numpy 1")], "joblib": [("picklescan", "joblib")]}
LEAST_RUN = 190  # payloads that did something somewhere
HERE = os.path.dirname(__file__)


def load(python, rows):
    """What came of each (loader, path, mark), in one process: "ran", "no" or "missing"."""
    done = subprocess.run([python, os.path.join(HERE, "peers", "load_pickles.py")], input="".join("\t".join(map(str, row)) + "\n" for row in rows),
                          capture_output=True, text=True, timeout=600)
    said = done.stdout.split()
    assert len(said) == len(rows), (rows[len(said)], done.returncode, done.stderr[-500:])
    return said


def interpreters(loader):
    for wanted in LOADED_BY.get(loader, [sys.executable]):
        try:
            yield wanted if isinstance(wanted, str) else venvs.python(*wanted)
        except venvs.Missing:
            pass


def who_ran(made, directory, mark):
    """{name: loaders that made its mark}; a mark is taken away before another interpreter has its turn."""
    rows = {}
    for name, (_, loaders) in made.items():
        for loader in loaders:
            for python in interpreters(loader):
                rows.setdefault(python, []).append((loader, directory / name, mark(name)))
    ran = {}
    for python, of in rows.items():
        for row, outcome in zip(of, load(python, of), strict=True):
            if outcome == "ran":
                ran.setdefault(row[1].name, set()).add(row[0])
        subprocess.run(f"rm -rf {mark('')[:-12]}*", shell=True, check=True)
    return ran


def test_nothing_that_runs_is_clean(tmp_path):
    (tmp_path / "marks").mkdir()
    (tmp_path / "files").mkdir()
    mark = lambda name: f"{tmp_path}/marks/{hashlib.sha1(name.encode()).hexdigest()[:12]}"
    made = payloads.payloads(mark)
    for name, (data, _) in made.items():
        (tmp_path / "files" / name).write_bytes(data)
    ran = who_ran(made, tmp_path / "files", mark)
    assert len(ran) >= LEAST_RUN, " ".join(sorted(set(made) - set(ran)))
    code, said = fsck(tmp_path / "files")
    clean = {name for name in made if f"/{name}: DANGEROUS" not in said and not re.search(rf"^mcorefs: .*/{re.escape(name)}: ", said, re.M)}
    assert code == FAILED and not clean & set(ran)
    # Whether it runs here or not: each of them asks for something that no honest file has.
    assert not clean
    try:
        python = venvs.python("picklescan", "picklescan")
    except venvs.Missing as why:
        pytest.skip(str(why))
    theirs = dict(zip(made, scan_all(python, [tmp_path / "files" / name for name in made]), strict=True))
    stricter = [name for name in ran if theirs[name] == CLEAN]
    print(f"{len(made)} payloads, {len(ran)} ran; picklescan calls {len(stricter)} of those clean: {' '.join(sorted(stricter))}")


def test_what_is_honest_is_clean(tmp_path):
    made = payloads.honest()
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    code, said = fsck(tmp_path)
    assert code == CLEAN and f"{len(made)} files" in said and " 0 with unknown imports" in said, said


def test_files_of_the_environment_are_clean():
    found = []
    for end in ("npy", "npz", "pt", "pth", "pkl", "pkl.gz", "pickle", "safetensors"):
        found += glob.glob(f"{os.path.dirname(numpy.__path__[0])}/**/*.{end}", recursive=True)
    assert len(found) >= 10
    assert not {path: said for path in found for code, said in [fsck(path)] if code != CLEAN}


def test_what_torch_saves_is_clean(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.BatchNorm1d(4))
    state = {"model": model.state_dict(), "optimizer": torch.optim.AdamW(model.parameters()).state_dict(), "rng": torch.get_rng_state(),
             "half": torch.ones(3, dtype=torch.bfloat16), "sparse": torch.eye(3).to_sparse(), "size": torch.Size([2]), "numpy": numpy.random.get_state()}
    torch.save(state, tmp_path / "state.pt")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(model, tmp_path / "model.pt")
    for path in ("state.pt", "old.pt", "model.pt"):
        code, said = fsck(tmp_path / path)
        assert code == CLEAN, said

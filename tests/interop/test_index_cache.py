"""data/NAME/cache/SPEC as Megatron's --data-cache-path: megatron-core 0.10 to 0.16 opens its datasets from it and builds nothing, all samples
are those of a run of its own, and the files are byte for byte what it writes itself (peers/index_cache.py)."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

import program
import venvs
from swept import todays

HERE = pathlib.Path(__file__).parent
SECONDS = 1800
VERSIONS = ["0.16.1", *todays(["0.15.3", "0.14.0", "0.12.3", "0.10.0"], 1)]
NEWEST = VERSIONS[0]
TOKENIZER = {"class": "T\u00f6kenizer", "tokenizer_path": ["/vocab.json", None], "weird": {"a": [], "b": {}, "c": [1e-7, True]}}


def case(name, words, spec, sizes, split="969, 30, 1", seed=1234, length=16, versions=(NEWEST,), **other):
    """words: prefixes, or weights and prefixes, or a dict of them by split; the name of the directory; the samples of each split."""
    return {"name": name, "words": words, "spec": spec, "sizes": sizes, "split": split, "seed": seed, "length": length, "versions": versions, **other}


CASES = [
    case("single", ["tales"], "s128-train226-valid18-test0-split90,10,0", [226, 18, 0], "90,10,0", length=128, versions=VERSIONS),
    case("single-epochs", ["a"], "s16-train900-valid9-test7-seed7-split80,10,10", [900, 9, 7], "80,10,10", 7),
    case("single-epoch", ["b"], "s16-seed0-split8,1,1", [None, None, None], "8,1,1", seed=0),
    case("default-split", ["d"], "s4", [None, None, None], length=4),
    case("split-option", ["b"], "s16-train50-valid5-test4", [50, 5, 4], "80,10,10", option="80/10/10"),
    case("single-first-part-nothing", ["b"], "s16-train5-valid500-test3-split0,1,1", [5, 500, 3], "0,1,1"),
    case("single-last-seed", ["a"], "s7-train333-valid1-test1-seed4294967295-split3,2,1", [333, 1, 1], "3,2,1", 2**32 - 1, 7),
    case("weights", [0.3, "a", 0.6, "b", 0.1, "tales"], "s16-train700-valid60-test40-split80,10,10", [700, 60, 40], "80,10,10", versions=VERSIONS),
    case("weights-tied", [1, "a", 1, "b", 2, "a"], "s16-train501-valid40-test20-split80,10,10", [501, 40, 20], "80,10,10"),
    case("weight-of-one", [1.0, "b"], "s16-train400-valid30-test20-split80,10,10", [400, 30, 20], "80,10,10"),
    case("lengths", ["a", "b", "c"], "s16-train200-valid20-test100000-split80,10,10", [200, 20, 100000], "80,10,10", versions=VERSIONS),
    case("exhaustive", ["a", "b", "c"], "s16-split80,10,10", [None, None, None], "80,10,10", versions=VERSIONS),
    case("per-split", {"train": [2, "a", 1, "b"], "valid": ["c"], "test": ["a", "b", "c"]}, "s16-train300-valid20-test30", [300, 20, 30], None, versions=VERSIONS),
    case("per-split-without-one", {"train": ["tales"], "valid": ["a", "b"]}, "s16-train50-valid30", [50, 30, None], None),
    case("validation-sets", {"train": [2, "a", 1, "b"], "valid": ["c", "a", "tales"], "test": ["b"]}, "s16-train300-test30", [300, None, 30], None,
         versions=("0.16.1", "0.15.3", "0.14.0"), sets=True),
    case("fast", {"train": [2, "a", 1, "b"], "valid": ["c"], "test": ["b"]}, "s16-train300-valid20-test30", [300, 20, 30], None, flags={"fast_cache_load": True}),
    case("deferred", [0.3, "a", 0.6, "b"], "s16-train301-valid60-test40-split80,10,10", [301, 60, 40], "80,10,10", flags={"defer_npy_index_mmap": True}),
    case("deferred-fast", {"train": ["a", "b"], "valid": ["c"]}, "s16-train150", [150, None, None], None,
         flags={"defer_npy_index_mmap": True, "fast_cache_load": True}),
    case("nothing-asked", ["a"], "s1000-train20-valid0-test0-split80,10,10", [20, 0, 0], "80,10,10", length=1000),  # and no sample there
    case("nothing-asked-weights", [0.3, "a", 0.7, "b"], "s1000-train20-valid0-test0-split80,10,10", [20, 0, 0], "80,10,10", length=1000, versions=VERSIONS),
    case("huggingface-tokenizer", ["tales"], "s64-train40-valid3-test1-split8,1,1", [40, 3, 1], "8,1,1", length=64, tokenizer="tokenizer"),
    # The tokenizer of the run named, from its own descriptions.
    case("tokenizer-of-a-run", ["a"], "s16-train100-valid1-test1-split8,1,1", [100, 1, 1], "8,1,1", tokenizer_of="single-epochs"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory, fixtures):
    """A directory of datasets: one of the fixtures, and four of short documents, some of them empty."""
    place = tmp_path_factory.mktemp("data") / "d\u00e4ten"
    place.mkdir()
    for suffix in ("idx", "bin"):
        (place / f"tales.{suffix}").symlink_to(fixtures / "data" / f"tales_text_document.{suffix}")
    random = numpy.random.default_rng(3)
    for name, documents, dtype in (("a", 60, numpy.uint16), ("b", 90, numpy.int32), ("c", 41, numpy.uint16), ("d", 700, numpy.int32)):
        write(place / name, [random.integers(2, 30000, int(n) * (k % 7 != 0), dtype=dtype) for k, n in enumerate(random.integers(20, 90, documents))], dtype)
    return place


def write(prefix, documents, dtype):
    """PREFIX.idx and PREFIX.bin, as IndexedDatasetBuilder does."""
    lengths = numpy.array([len(d) for d in documents], dtype=numpy.int32)
    ends = numpy.cumsum(lengths, dtype=numpy.int64) * numpy.dtype(dtype).itemsize
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + numpy.uint64(1).tobytes() + numpy.uint8(8 if dtype == numpy.uint16 else 4).tobytes())
        f.write(numpy.array([len(documents), len(documents) + 1], dtype=numpy.uint64).tobytes())
        f.write(lengths.tobytes() + (ends - lengths * numpy.dtype(dtype).itemsize).tobytes() + numpy.arange(len(documents) + 1, dtype=numpy.int64).tobytes())
    numpy.concatenate(documents).astype(dtype).tofile(f"{prefix}.bin")


def paths(source, words):
    return [str(source / word) if isinstance(word, str) else word for word in words]


def blend(words):
    """As get_blend_from_list understands them."""
    if isinstance(words[0], str):
        return [words, None]
    return [words[1::2], [float(weight) for weight in words[::2]]]


def as_option(words):
    return " ".join(map(str, words))


class Directories:
    """The directories under test: mounted, or exported where nothing can be mounted."""

    def __init__(self, stack, source, folder):
        self.stack, self.source, self.folder = stack, source, folder

    def __call__(self, name, view, **options):
        if program.can_mount():
            return self.stack.enter_context(program.mounted(self.source, **options)) / view
        place = self.folder / f"{name}-exported"
        done = program.export(self.source, view, place, **options)
        assert done.returncode == 0, f"export of {view}: {done.stderr}"
        return place


def prepare(c, version, source, folder, directories, fixtures):
    """The case as the peer wants it; None: it needs a mount, and there is none."""
    reference = folder / c["name"]
    reference.mkdir()
    tokenizer = str(fixtures / "data" / c["tokenizer"]) if "tokenizer" in c else TOKENIZER
    options = {"megatron": version, "tokenizer_id": folder / ("hf.json" if "tokenizer" in c else "tokenizer.json")}
    if "option" in c:
        options["split"] = c["option"]
    if "tokenizer_of" in c:
        options["tokenizer_id"] = folder / c["tokenizer_of"]
        if not program.can_mount():
            return None
    given = {"name": c["name"], "seed": c["seed"], "length": c["length"], "sizes": c["sizes"], "reference": str(reference), "tokenizer": tokenizer,
             "flags": c.get("flags", {}), "sets": c.get("sets", False)}
    view = "data/blend/cache/" + c["spec"]
    if isinstance(c["words"], dict):
        words = {split: paths(source, w) for split, w in c["words"].items()}
        options |= {f"{split}_data_path": as_option(w) for split, w in words.items()}
        given |= {"per_split": [blend(words[s]) if s in words else None for s in ("train", "valid", "test")], "split": None}
    else:
        words = paths(source, c["words"])
        given |= {"blend": blend(words), "split": c["split"]}
        if len(words) == 1:
            view = f"data/{c['words'][0]}/cache/{c['spec']}"
        else:
            options["data_path"] = as_option(words)
    return given | {"ours": str(directories(c["name"], view, **options))}


def ask(given, version):
    environment = dict(os.environ, TORCH_CUDA_ARCH_LIST="9.0")
    if version != NEWEST:
        environment["PYTHONPATH"] = str(venvs.core(version, sys.executable))
    done = subprocess.run([sys.executable, HERE / "peers" / "index_cache.py"], input=json.dumps(given), capture_output=True, text=True, timeout=SECONDS,
                          env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0 and lines, done.stderr[-3000:]
    assert lines[-1][1] == version, lines[-1]
    return {name: (wrong, counts) for name, wrong, counts in lines[:-1]}


def identifiers(fixtures):
    """How a person gets them: three lines of Python."""
    script = ("import json\nfrom megatron.core.tokenizers import MegatronTokenizer\n"
              "print(json.dumps(MegatronTokenizer.from_pretrained(%r, metadata_path={'library': 'huggingface'}).unique_identifiers))")
    done = subprocess.run([sys.executable, "-c", script % str(fixtures / "data" / "tokenizer")], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def results(source, fixtures, tmp_path_factory):
    """results(version): what came of all its cases. One process a version, as it takes long to import."""

    def run(version):
        folder = tmp_path_factory.mktemp(version)
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        if version == NEWEST:
            (folder / "hf.json").write_text(identifiers(fixtures))
        with contextlib.ExitStack() as stack:
            directories = Directories(stack, source, folder)
            given = [prepare(c, version, source, folder, directories, fixtures) for c in CASES if version in c["versions"]]
            return ask([g for g in given if g], version)

    known = {}

    def of(version):
        if version not in known:
            known[version] = AssertionError(f"megatron-core {version} was asked before, and did not answer")
            known[version] = run(version)
        if isinstance(known[version], Exception):
            raise known[version]
        return known[version]

    return of


@pytest.mark.parametrize("name,version", [(c["name"], version) for c in CASES for version in c["versions"]])
def test_cache_is_hit(name, version, results):
    try:
        found = results(version)
    except venvs.Missing as why:
        pytest.skip(str(why))
    if name not in found:
        pytest.skip("no /dev/fuse here: this case is read through a mount")
    wrong, counts = found[name]
    assert not wrong, wrong
    assert sum(counts) > 0
    print(name, version, counts)


def test_megatrons_fixture(source, fixtures, tmp_path, needs_mount):
    """The indices that Megatron-LM 0.20 wrote for the same run."""
    (tmp_path / "t.json").write_text(json.dumps(TOKENIZER))
    with program.mounted(source, tokenizer_id=tmp_path / "t.json") as point:
        place = point / "data/tales/cache/s128-train226-valid18-split90,10,0"
        for split, name in (("train", "tales-train-n226-s128"), ("valid", "tales-valid-n18-s128")):
            for what in ("document_index", "sample_index", "shuffle_index"):
                ours, = place.glob(f"*-GPTDataset-{split}-{what}.npy")
                assert ours.read_bytes() == (fixtures / "data" / "megatron_index" / f"{name}-{what}.npy").read_bytes()


REFUSED = [
    ({}, "s128", "tokenizer_id"),
    ({"megatron": "2.6", "tokenizer_id": "T"}, "s128", "core 0.4"),
    ({"tokenizer_id": "T"}, "s128-split1,2,3,4", "more than three parts"),
    ({"tokenizer_id": "T"}, "s0", "out of range"),
    ({"tokenizer_id": "T"}, "s0128", "is not a directory of indices"),
    ({"tokenizer_id": "T"}, "s128-valid3-train3", "is not a directory of indices"),
    ({"tokenizer_id": "T"}, "s100000000", "no split of tales has a sample"),
    ({"tokenizer_id": "nowhere"}, "s128", "No such file"),
    ({"tokenizer_id": "list"}, "s128", "not a JSON object"),
    ({"tokenizer_id": "."}, "s128", "would have written"),
]


@pytest.mark.parametrize("options,directory,sentence", REFUSED)
def test_refused(options, directory, sentence, source, tmp_path):
    (tmp_path / "T").write_text(json.dumps(TOKENIZER))
    (tmp_path / "list").write_text("[1]")
    options = {key: tmp_path / value if key == "tokenizer_id" else value for key, value in options.items()}
    done = program.export(source, f"data/tales/cache/{directory}", tmp_path / "out", **options)
    assert done.returncode and sentence in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_is_listed_without_a_tokenizer(source, tmp_path, needs_mount):
    with program.mounted(source) as point:
        assert "cache" not in os.listdir(point / "data/tales")
        assert "tokenizer_id" in (point / "data/tales/why-not.txt").read_text()
        assert not os.path.exists(point / "data/tales/cache/s128")
    (tmp_path / "T").write_text(json.dumps(TOKENIZER))
    with program.mounted(source, tokenizer_id=tmp_path / "T") as point:
        assert os.listdir(point / "data/tales/cache") == ["s4096"]
        assert not os.path.exists(point / "data/tales/cache/s0128")

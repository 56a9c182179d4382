"""Random cases against megatron-core's own Python and C++: dataset_oracle.py KIND SEED CASES HELPER [quiet].

HELPER is dataset_indices.c, compiled. The megatron-core that is imported decides the version (PYTHONPATH). The last line
says how many cases of what agreed; the first disagreement ends the run with its case.
"""
import collections
import itertools
import random
import struct
import subprocess
import sys
import tempfile
import types
import warnings

import numpy

warnings.simplefilter("ignore")
import no_extensions  # noqa: E402,F401

from megatron.core import package_info  # noqa: E402
from megatron.core.datasets import blended_megatron_dataset_builder as builder  # noqa: E402
from megatron.core.datasets import blended_megatron_dataset_config as config  # noqa: E402
from megatron.core.datasets import gpt_dataset, helpers, indexed_dataset, utils  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402

VERSION = package_info.__version__
MINOR = int(VERSION.split(".")[1])
SEEDS = [0, 1, 1234, 2**32 - 1]


class Refused(Exception):
    pass


class Helper:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *words):
        self.process.stdin.write("\t".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        kind, _, rest = self.process.stdout.readline().decode().rstrip("\n").partition(" ")
        if kind == "error":
            raise Refused(rest)
        assert kind == "ok", f"the helper is gone: {words}"
        return self.process.stdout.read(int(rest))


def write_idx(prefix, lengths, code=4, size=4, documents=None, modes=None):
    """As IndexedDatasetBuilder does, without the tokens: a sparse .bin."""
    n = len(lengths)
    lengths = numpy.asarray(lengths, dtype=numpy.int32)
    pointers = numpy.zeros(n, dtype=numpy.int64)
    numpy.cumsum(lengths[:-1].astype(numpy.int64) * size, out=pointers[1:])
    documents = numpy.arange(n + 1, dtype=numpy.int64) if documents is None else numpy.asarray(documents, dtype=numpy.int64)
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, n, len(documents)))
        f.write(lengths.tobytes() + pointers.tobytes() + documents.tobytes())
        if modes is not None:
            f.write(numpy.asarray(modes, dtype=numpy.int8).tobytes())
    with open(f"{prefix}.bin", "wb") as f:
        f.truncate(int(lengths.sum(dtype=numpy.int64)) * size)


def same(what, ours, theirs, case):
    theirs = numpy.asarray(theirs)
    if ours.shape != theirs.shape or not numpy.array_equal(ours, theirs):
        at = None if ours.shape != theirs.shape else numpy.argwhere(ours != theirs)[0]
        raise SystemExit(f"{what} differs at {at}: {case}\nours   {ours.shape} {ours[:20]}\ntheirs {theirs.shape} {theirs[:20]}")


# -- one dataset ----------------------------------------------------------------------------------


def megatron_indices(lengths, indices, samples, seq_length, seed, extra, partial):
    """GPTDataset's own function on an object that has just what it asks for."""
    d = object.__new__(gpt_dataset.GPTDataset)
    d.dataset = types.SimpleNamespace(sequence_lengths=lengths, path_prefix=None)
    d.indices, d.num_samples = indices, samples
    d.index_split = Split.valid if partial else Split.train
    d.unique_description_hash = d.unique_description = ""
    d.config = types.SimpleNamespace(
        sequence_length=seq_length, random_seed=seed, add_extra_token_to_sequence=extra, path_to_cache=None, mock=True,
        defer_npy_index_mmap=False, fast_cache_load=False, drop_last_partial_validation_sequence=not partial)
    return d._build_document_sample_shuffle_indices()


def random_lengths(r):
    n = r.choice([1, 2, 3, 10, 33, 64, 100, 200])
    kind = r.choice(["even", "short", "empty", "long", "one"])
    if kind == "one":
        return [r.randrange(2, 2000)] + [0] * (n - 1) if r.random() < .5 else [r.randrange(1, 5)] * n
    high = {"even": 50, "short": 4, "empty": 20, "long": 3_000_000}[kind]
    return [0 if kind == "empty" and r.random() < .5 else r.randrange(0 if kind == "short" else 1, high) for _ in range(n)]


def gpt_case(r, helper, prefix, counts):
    lengths = random_lengths(r)
    first = r.randrange(len(lengths)) if r.random() < .3 else 0
    end = r.randrange(first + 1, len(lengths) + 1) if r.random() < .3 else len(lengths)
    tokens = sum(lengths[first:end])
    extra, partial = r.random() < .8, r.random() < .2
    seq_length = r.choice([2, 3, 4, 7, 16, 31, 128]) if tokens < 50_000 else r.choice([64, 1000, 2048, 4096])
    per_epoch = tokens // seq_length
    samples = None if r.random() < .15 else int(per_epoch * r.choice([.1, .5, .9, 1, 1.2, 2, 2.5, 3.1, 4.05, 6.7])) + r.randrange(4)
    if samples and samples * seq_length > 50 * tokens + 5000:
        samples = 50
    seed = r.choice(SEEDS + [r.randrange(2**32)])
    write_idx(prefix, lengths)
    ask = ("gpt", prefix, first, end, "none" if samples is None else samples, seq_length, seed, int(extra), int(partial), 1, r.choice([1, 1, 3]))
    case = f"lengths {lengths[:50]}, {ask}"
    try:
        raw = helper(*ask)
    except Refused as e:
        raw = None
        refused = str(e)
    if tokens < 2:  # Megatron does not return, or its assertion is live
        counts["no token" if not tokens else "one token"] += 1
        if raw is not None and not tokens:
            raise SystemExit(f"not refused: {case}")
        return
    try:
        document, sample, shuffle = megatron_indices(
            numpy.array(lengths, dtype=numpy.int32), numpy.arange(first, end, dtype=numpy.int32), samples, seq_length, seed, extra, partial)
    except AssertionError:
        document = None
    if raw is None or document is None:
        counts["refused by both"] += 1
        empty = document is not None and len(shuffle) == 0
        if not (raw is None and (document is None or empty)):
            raise SystemExit(f"refused by one alone: {case}: {refused if raw is None else 'by Megatron'}")
        return
    head = numpy.frombuffer(raw, numpy.uint64, 6)
    documents, n = int(head[0]), int(head[1])
    same("document index", numpy.frombuffer(raw, numpy.int32, documents, 48), document, case)
    same("sample index", numpy.frombuffer(raw, numpy.int64, 2 * (n + 1), 48 + 4 * documents).reshape(-1, 2), sample, case)
    same("shuffle index", numpy.frombuffer(raw, numpy.uint64, n, 48 + 4 * documents + 16 * (n + 1)), shuffle, case)
    assert head[4] == sample.dtype.itemsize and head[5] == shuffle.dtype.itemsize, case
    counts["datasets"] += 1
    counts["of several epochs"] += int(head[2]) > 1
    counts["with a separate last epoch"] += int(head[3])
    counts["with a last partial sample"] += partial
    counts["without an extra token"] += not extra


def gpt(r, helper, cases, counts):
    with tempfile.TemporaryDirectory() as work:
        for i in range(cases):
            gpt_case(r, helper, f"{work}/data{i % 8}", counts)


# -- shuffles -------------------------------------------------------------------------------------


def shuffle(r, helper, cases, counts):
    for _ in range(cases):
        seed, bits = r.choice(SEEDS + [r.randrange(2**32)]), r.choice([32, 64])
        count, times = r.choice([0, 1, 2, 3, 127, 128, 129, 255, 256, 257, 1000, 65536, 65537, r.randrange(200_000)]), r.randrange(1, 4)
        state = numpy.random.RandomState(seed)
        a = numpy.arange(count, dtype=numpy.uint32 if bits == 32 else numpy.int64)
        for _ in range(times):
            state.shuffle(a)
        same("shuffle", numpy.frombuffer(helper("shuffle", seed, bits, count, times), a.dtype), a, (seed, bits, count, times))
        counts["shuffles"] += 1
    for top in [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**40 + 12345, 2**63 - 2]:
        for seed in SEEDS:
            # random_interval is what randint() without dtype draws with: legacy, masked.
            state = numpy.random.RandomState(seed)
            theirs = [interval(state, top) for _ in range(200)]
            same("interval", numpy.frombuffer(helper("interval", seed, top, 200), numpy.uint64), numpy.array(theirs, dtype=numpy.uint64), (seed, top))
            counts["intervals"] += 1


def interval(state, top):
    """random_interval() over the generator's own words, which tomaxint and randint do not give."""
    if top == 0:
        return 0
    mask = (1 << top.bit_length()) - 1
    while True:
        words = state.randint(0, 2**32, size=1 if top < 2**32 else 2, dtype=numpy.uint32).tolist()
        value = (words[0] if top < 2**32 else words[0] << 32 | words[1]) & mask
        if value <= top:
            return value


# -- blends ---------------------------------------------------------------------------------------


def random_weights(r):
    n = r.choice([1, 2, 2, 3, 4, 5, 8, 9, 16, 33, 64, 100, 129, 300, 700])
    kind = r.choice(["tied", "integers", "shares", "equal", "real", "skewed", "lengths"])
    if kind == "lengths":
        return [r.randrange(1, 10**9) for _ in range(n)]
    return {
        "tied": lambda: [float(r.choice([1, 2, 3])) for _ in range(n)],
        "integers": lambda: [float(r.randrange(1, 20)) for _ in range(n)],
        "shares": lambda: [r.choice([.1, .2, .3, .05, .7]) for _ in range(n)],
        "equal": lambda: [r.choice([1., .1, 1 / 3])] * n,
        "real": lambda: [r.random() + 1e-9 for _ in range(n)],
        "skewed": lambda: [10 ** r.uniform(-6, 3) for _ in range(n)],
    }[kind]()


def blend(r, helper, cases, counts):
    for _ in range(cases):
        weights = random_weights(r)
        size = r.choice([1, 2, 10, 1000, 5000, 20_000, 70_000, 140_000] if len(weights) < 20 else [1, 100, 3000])
        normal = utils.normalize(weights)
        dataset, sample = numpy.zeros(size, dtype=numpy.int16), numpy.zeros(size, dtype=numpy.int64)
        helpers.build_blending_indices(dataset, sample, normal, len(weights), size, False)
        raw = helper("blend", size, *(float(w).hex() for w in weights))
        same("dataset index", numpy.frombuffer(raw, numpy.int16, size), dataset, (weights, size))
        same("dataset sample index", numpy.frombuffer(raw, numpy.int64, size, 2 * size), sample, (weights, size))
        counts["blends"] += 1
        counts["with tied weights"] += len(set(weights)) < len(weights)


def exhaustive(r, helper, cases, counts):
    for _ in range(cases):
        n = r.choice([1, 2, 3, 5, 9, 40, 200])
        high = r.choice([2, 5, 30, 1000])
        sizes = [r.randrange(1, high) for _ in range(n)] if r.random() < .8 else [r.randrange(1, high)] * n
        size = sum(sizes)
        dataset, sample = numpy.zeros(size, dtype=numpy.int16), numpy.zeros(size, dtype=numpy.int64)
        helpers.build_exhaustive_blending_indices(dataset, sample, sizes, n)
        raw = helper("exhaustive", *sizes)
        same("dataset index", numpy.frombuffer(raw, numpy.int16, size), dataset, sizes)
        same("dataset sample index", numpy.frombuffer(raw, numpy.int64, size, 2 * size), sample, sizes)
        counts["exhaustive blends"] += 1


def sizes(r, helper, cases, counts):
    """What each dataset is asked for, and how many the blend has; weights of any number, so numpy's sum is checked too."""
    for _ in range(cases):
        weights = random_weights(r) if r.random() < .8 else [r.random() for _ in range(r.randrange(1, 3000))]
        samples = r.choice([0, 1, 7, 1000, 12345, 10**6, 10**9, r.randrange(10**10)])
        normal = utils.normalize(weights)
        per_dataset = builder._get_size_per_split_per_dataset
        if MINOR < 11:
            target = build = per_dataset(normal, [samples])
        else:
            target = per_dataset(normal, [samples])
            build = per_dataset(normal, [samples], margin=.5) if MINOR < 13 else per_dataset(normal, [samples], surplus=.005)
        raw = helper("sizes", VERSION, samples, *(float(w).hex() for w in weights))
        n = len(weights)
        same("weights", numpy.frombuffer(raw, numpy.float64, n), normal, (weights, samples))
        same("sizes", numpy.frombuffer(raw, numpy.uint64, n, 8 * n), [b[0] for b in build], (weights, samples))
        assert struct.unpack_from("<Q", raw, 16 * n)[0] == sum(t[0] for t in target), (weights, samples)
        counts["sizes of blends"] += 1


def arguments(r, helper, cases, counts):
    words = ["a", "b/c", "1", "2.5", "1e5", "nan", "inf", "-3", "1_0", "1__0", "_1", "0x10", "+.5", ".", "5.", "1e", "infinity", " 7 ", "d e", "Inf1"]
    for _ in range(cases):
        some = [r.choice(words) for _ in range(r.randrange(1, 9))]
        try:
            prefixes, weights = utils.get_blend_from_list(some)
        except AssertionError:
            prefixes = None
        try:
            raw = helper("args", *some).decode().splitlines()
        except Refused as e:
            assert prefixes is None, f"refused by us alone: {some}: {e}"
            counts["argument lists refused by both"] += 1
            continue
        assert prefixes is not None, f"refused by Megatron alone: {some}"
        ours = raw[:len(prefixes)], [float.fromhex(w) for w in raw[len(prefixes):]]
        assert ours[0] == prefixes and repr(ours[1]) == repr(weights or []), f"{some}: {ours} instead of {prefixes}, {weights}"
        counts["argument lists"] += 1


# -- splits ---------------------------------------------------------------------------------------


def before_core(text, size):
    """megatron/data/dataset_utils.py: get_train_valid_test_split_ of Megatron-LM 2 and 3, which is in no package."""
    splits = [float(s) for s in text.split("," if "," in text else "/")][:3]
    splits += [0.] * (3 - len(splits))
    total = sum(splits)
    index = [0]
    for split in splits:
        index.append(index[-1] + int(round(split / total * float(size))))
    over = index[-1] - size
    index = [index[0]] + [i - over for i in index[1:]]
    return [(b, e) if e > b else (0, 0) for b, e in zip(index, index[1:])]


def splits(r, helper, cases, counts):
    for _ in range(cases):
        parts = [r.choice(["99", "1", "0", "969", "30", ".5", "0.25", "98.5", "33", "1e3", "7."]) for _ in range(r.randrange(1, 4))]
        text = r.choice([",", ", ", "/"]).join(parts)
        size = r.choice([1, 2, 3, 7, 100, 1000, 12345, 10**6 + 1, 2**31 - 1, r.randrange(1, 10**9)])
        try:
            matrix = config.convert_split_vector_to_split_matrix(config.parse_and_normalize_split(text))
            theirs = []
            for split in matrix:
                beg, end = (0, 0) if split is None else (int(round(share * float(size))) for share in split)
                theirs.append((beg, end) if end > beg else (0, 0))
        except (AssertionError, ValueError):
            theirs = None
        try:
            ours = numpy.frombuffer(helper("split", text, VERSION, size), numpy.uint64).reshape(3, 2)
        except Refused:
            ours = None
        assert (ours is None) == (theirs is None), f"{text} of {size}: {ours}, {theirs}"
        if ours is not None:
            same("split", ours, theirs, (text, size))
        counts["splits"] += 1
        if "e" not in text and any(float(p) for p in parts):
            theirs = before_core(text.replace(" ", ""), size)
            if min(theirs)[0] < 0:  # document -1, Python's last one: refused
                counts["splits that begin at -1"] += 1
                continue
            old = numpy.frombuffer(helper("split", text.replace(" ", ""), "2.6", size), numpy.uint64).reshape(3, 2)
            same("split before core", old, theirs, (text, size))
            counts["splits of Megatron-LM 2"] += 1


# -- files ----------------------------------------------------------------------------------------

DTYPES = {1: numpy.uint8, 2: numpy.int8, 3: numpy.int16, 4: numpy.int32, 5: numpy.int64, 6: numpy.float64, 7: numpy.float32, 8: numpy.uint16}


def write_dataset(r, prefix, dtype, multimodal):
    """With Megatron's own builder. Documents of no sequence and sequences of no token are among them."""
    import torch
    b = indexed_dataset.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype, multimodal=multimodal)
    for _ in range(r.choice([0, 1, 3, 50, 400])):
        for _ in range(r.choice([0, 1, 1, 1, 3])):
            tokens = torch.randint(0, 100, (r.choice([0, 1, 5, 40]),), generator=torch.Generator().manual_seed(r.randrange(2**31)))
            b.add_item(tokens, r.randrange(2))
        b.end_document()
    b.finalize(f"{prefix}.idx")


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def files(r, helper, cases, counts):
    """Our writer's bytes are the builder's; several prefixes together are what merge_datasets.py writes."""
    for i in range(cases):
        dtype, multimodal = r.choice(list(DTYPES.values())), r.random() < .3
        with tempfile.TemporaryDirectory() as work:
            parts = [f"{work}/part{k}" for k in range(r.choice([1, 2, 5]))]
            for part in parts:
                write_dataset(r, part, dtype, multimodal)
                helper("copy", part, f"{part}-copy")
                for kind in ("bin", "idx"):
                    assert contents(f"{part}.{kind}") == contents(f"{part}-copy.{kind}"), f"{kind} of a copy: {dtype}, {multimodal}"
                counts["files written again"] += 1
            merged = indexed_dataset.IndexedDatasetBuilder(f"{work}/all.bin", dtype=dtype, multimodal=multimodal)
            for part in parts:
                merged.add_index(part)
            merged.finalize(f"{work}/all.idx")
            assert helper("idx", *parts) == contents(f"{work}/all.idx"), f"merge of {len(parts)}: {dtype}, {multimodal}"
            counts["merges"] += 1
    for dtype, shape in itertools.product(["int32", "int64", "uint16", "float32", "int16"], [(0,), (7,), (12345, 2), (10**9, 2), ()]):
        if dtype == "uint16":
            continue  # torch's names have none in every version
        header = numpy.lib.format.header_data_from_array_1_0(numpy.zeros((1,), dtype))
        header["shape"] = shape
        with tempfile.TemporaryFile() as f:
            numpy.lib.format.write_array_header_1_0(f, header)
            f.seek(0)
            assert helper("npy", dtype, *shape) == f.read(), (dtype, shape)
        counts["npy headers"] += 1


# -- samples through everything ------------------------------------------------------------------


class Tokenizer:
    vocab_size, eod, pad, unique_identifiers = 50000, 49999, 49998, {}


def built(prefix, split, samples, seq_length, seed, extra, partial):
    """The three splits by Megatron's builder from real files."""
    c = gpt_dataset.GPTDatasetConfig(
        random_seed=seed, sequence_length=seq_length, blend=([prefix], None), split=split, tokenizer=Tokenizer(), reset_position_ids=False,
        reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False, add_extra_token_to_sequence=extra,
        drop_last_partial_validation_sequence=not partial)
    return builder.BlendedMegatronDatasetBuilder(gpt_dataset.GPTDataset, samples, lambda: True, c).build()


def samples(r, helper, cases, counts):
    for i in range(cases):
        with tempfile.TemporaryDirectory() as work:
            prefix, dtype = f"{work}/data", r.choice([numpy.uint16, numpy.int32, numpy.int64])
            lengths = [r.randrange(0, 60) for _ in range(r.choice([40, 150]))]
            write_idx(prefix, lengths, code=[c for c, t in DTYPES.items() if t is dtype][0], size=dtype().itemsize)
            numpy.random.RandomState(i).randint(0, 49000, sum(lengths)).astype(dtype).tofile(f"{prefix}.bin")
            text, seq_length, seed = r.choice(["90,8,2", "969, 30, 1", "1,1,1"]), r.choice([8, 33]), r.choice(SEEDS)
            extra, partial = r.random() < .8, r.random() < .5
            ranges = numpy.frombuffer(helper("split", text, VERSION, len(lengths)), numpy.uint64).reshape(3, 2).tolist()
            if any(sum(lengths[b:e]) < 2 for b, e in ranges):
                continue  # Megatron does not return
            wanted = [r.randrange(1, 400), r.randrange(1, 50), r.randrange(1, 9)]
            try:
                datasets = built(prefix, text, wanted, seq_length, seed, extra, partial)
            except AssertionError:
                continue  # an empty sequence came last (gpt_case compares that)
            for k, dataset in enumerate(datasets):
                helper("gpt", prefix, *ranges[k], wanted[k], seq_length, seed, int(extra), int(partial and k == 1), 1, 1)
                for j in range(len(dataset)):
                    text_, _ = dataset._query_document_sample_shuffle_indices(j)
                    same("tokens", numpy.frombuffer(helper("tokens", 49998, j), numpy.int64), text_, (text, wanted, seq_length, seed, k, j))
                    counts["samples"] += 1


def sets(r, helper, cases, counts):
    """Validation sets that are kept apart: the builder gives a list of datasets, some of them twice."""
    for i in range(cases):
        with tempfile.TemporaryDirectory() as work:
            prefixes = [f"{work}/{k}" for k in range(r.choice([2, 3, 5]))]
            for k, prefix in enumerate(prefixes):
                lengths = [r.randrange(0, 60) for _ in range(r.choice([20, 90]))] + [60]
                write_idx(prefix, lengths, code=8, size=2)
                numpy.random.RandomState(100 * i + k).randint(0, 49000, sum(lengths)).astype(numpy.uint16).tofile(f"{prefix}.bin")
            prefixes.append(prefixes[0])
            wanted, seq_length, seed = r.choice([None, None, 1, r.randrange(2, 300)]), r.choice([8, 33]), r.choice(SEEDS)
            c = gpt_dataset.GPTDatasetConfig(
                random_seed=seed, sequence_length=seq_length, blend_per_split=[None, (prefixes, None), None], tokenizer=Tokenizer(),
                multiple_validation_sets=True, full_validation=wanted is None, reset_position_ids=False, reset_attention_mask=False,
                eod_mask_loss=False, create_attention_mask=False)
            built = builder.BlendedMegatronDatasetBuilder(gpt_dataset.GPTDataset, [9, wanted, 9], lambda: True, c).build()
            assert built[0] is None and built[2] is None and len(built[1]) == len(prefixes), built
            for k, dataset in enumerate(built[1]):
                ours = numpy.frombuffer(helper("set", k, "none" if wanted is None else wanted, seq_length, seed, *prefixes), numpy.int64)
                ours = ours.reshape(-1, seq_length + 1)
                assert len(ours) == len(dataset), (i, k, len(ours), len(dataset))
                for j in range(len(dataset)):
                    same("tokens", ours[j], dataset._query_document_sample_shuffle_indices(j)[0], (prefixes, wanted, seq_length, seed, k, j))
                counts["samples of sets"] += len(dataset)
                counts["sets"] += 1


def main():
    kind, seed, cases, helper = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Helper(sys.argv[4])
    counts = collections.Counter()
    globals()[kind](random.Random(seed), helper, cases, counts)
    helper.process.stdin.close()
    assert helper.process.wait() == 0, "the helper failed in the end"
    print(f"core {VERSION}, numpy {numpy.__version__}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))


if __name__ == "__main__":
    main()

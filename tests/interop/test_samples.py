"""Training samples: data/NAME/samples/SPEC and `mcorefs sample` against megatron-core's GPTDataset and BlendedMegatronDatasetBuilder.

One process (peers/megatron_samples.py) a version of megatron-core builds all datasets that the tests of it ask for. What the
fixtures' runs have read is in no file, but in their logs: the loss of a step's batch is the one that Megatron logged.
"""
import contextlib
import csv
import errno
import importlib.util
import io
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import datasets
import numpy
import pytest
import torch

import program
import venvs
from swept import todays

HERE = pathlib.Path(__file__).parent
SECONDS = 1800
SPLITS = ["train", "valid", "test"]


# -- datasets -------------------------------------------------------------------------------------


def write_prefix(prefix, lengths, dtype, r):
    """As IndexedDatasetBuilder does; the tokens are random."""
    code = {numpy.int32: 4, numpy.int64: 5, numpy.uint16: 8}[dtype]
    size, n = dtype().itemsize, len(lengths)
    lengths = numpy.asarray(lengths, dtype=numpy.int32)
    pointers = numpy.concatenate([[0], numpy.cumsum(lengths[:-1].astype(numpy.int64) * size)])
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, n, n + 1))
        f.write(lengths.tobytes() + pointers.astype(numpy.int64).tobytes() + numpy.arange(n + 1, dtype=numpy.int64).tobytes())
    tokens = numpy.array([r.randrange(65000) for _ in range(int(lengths.sum()))], dtype=dtype)
    tokens.tofile(f"{prefix}.bin")


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """A directory of prefixes: of several types, with empty documents, with long and short ones, of very different sizes."""
    where, r = tmp_path_factory.mktemp("corpora"), random.Random(7)
    write_prefix(where / "even_document", [r.randrange(20, 60) for _ in range(150)], numpy.uint16, r)
    write_prefix(where / "empty_document", [r.choice([0, 0, r.randrange(1, 40)]) for _ in range(300)], numpy.int32, r)
    write_prefix(where / "long_document", [r.randrange(900, 2000) for _ in range(12)], numpy.uint16, r)
    write_prefix(where / "tiny_document", [r.randrange(1, 9) for _ in range(60)], numpy.int64, r)
    return where


def plain(name, split, samples, seq_length, seed=1234, splits=SPLITS):
    return {"data_path": [name], "split": split, "samples": samples, "seq_length": seq_length, "seed": seed, "splits": splits}


def blend(words, split, samples, seq_length, seed=1234, splits=SPLITS):
    return plain(None, split, samples, seq_length, seed, splits) | {"data_path": words.split()}


def per_split(train, valid, test, samples, seq_length, seed=1234, splits=SPLITS):
    return {"per_split": [w and w.split() for w in (train, valid, test)], "samples": samples, "seq_length": seq_length, "seed": seed,
            "splits": splits}


# Samples asked for: None is one epoch. Several epochs, a last one that is shuffled by itself, one that is not; every seed there is.
PLAIN = [
    plain("even_document", "90,8,2", [None] * 3, 16),
    plain("even_document", "90,8,2", [1000, 40, 9], 16, 0),
    plain("even_document", "969, 30, 1", [700, 31, None], 31, 2**32 - 1, ["train", "valid"]),  # Megatron does not return for no token
    plain("even_document", "1,1,1", [0, 1, 2], 8),
    plain("empty_document", "80,10,10", [3000, 5, 77], 7, 1),
    plain("empty_document", "0.5,0.5", [None, 900, 0], 1, 1, ["train", "valid"]),
    plain("long_document", "100", [25, 0, 0], 2048, splits=["train"]),
    plain("long_document", "70,30,0", [None, 3, 0], 500, splits=["train", "valid"]),
    plain("tiny_document", "80,10,10", [60, 40, 3], 3),
]

# Each of the small ones is asked for a sample at least, and the large one has to fill up to their shares.
MANY = "0.9 even_document " + " ".join(["0.0001 tiny_document"] * 999)

# Words of --data-path as a person writes them; names are put at their paths for Megatron.
BLENDS = [
    blend("0.7 even_document 0.3 long_document", "90,10,0", [500, 40, 0], 32, splits=["train", "valid"]),
    blend("3 even_document 2 empty_document 5 long_document", "80,10,10", [900, 31, 20], 16, 99),
    blend("1 even_document 1 empty_document 1 even_document", "90,10", [777, 50, 0], 8, splits=["train", "valid"]),
    blend("1.0 even_document", "90,8,2", [100, 20, 3], 16),
    blend("even_document empty_document long_document", "80,10,10", [300, 10, 20], 16),
    blend("even_document empty_document long_document", "80,10,10", [None] * 3, 16),
    blend("even_document empty_document long_document", "80,10,10", [10**6] * 3, 16),
    blend("even_document empty_document", "90,10", [None, 7, 0], 5, splits=["train", "valid"]),
    blend("1e-4 even_document 0.9 long_document 12 tiny_document", "100", [400, 0, 0], 3, splits=["train"]),
    blend(MANY, "100", [1000, 0, 0], 3, splits=["train"]),
]
PER_SPLIT = [
    per_split("0.4 even_document 0.6 long_document", "empty_document", None, [300, 40, 0], 16, splits=["train", "valid"]),
    per_split("7 even_document", "even_document long_document", "2 empty_document 1 tiny_document", [100, 50, 30], 12),
    per_split("even_document long_document tiny_document", None, "long_document", [None, 0, 6], 24, splits=["train", "test"]),
]
# What both refuse: more samples of a dataset than it has; weights without a number.
REFUSED = [
    blend(MANY, "100", [1000, 0, 0], 30, splits=["train"]),
    blend("0.5 even_document 0.5 long_document", "100", [None, 0, 0], 3, splits=["train"]),
]


def at_paths(words, where):
    return [str(where / word) if word.endswith("_document") else word for word in words]


def ask_megatron(jobs, where, out, version=None):
    """{"I-SPLIT": array} of all jobs."""
    jobs = [dict(job) for job in jobs]
    for job in jobs:
        if "data_path" in job:
            job["data_path"] = at_paths(job["data_path"], where)
        else:
            job["per_split"] = [words and at_paths(words, where) for words in job["per_split"]]
    (out / "jobs.json").write_text(json.dumps(jobs))
    environment = dict(os.environ)
    if version:
        environment["PYTHONPATH"] = str(venvs.core(version, sys.executable))
    done = subprocess.run([sys.executable, HERE / "peers" / "megatron_samples.py", out / "jobs.json", out / "samples.npz"],
                          capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == (version or "0.16.1"), done.stdout
    with numpy.load(out / "samples.npz") as found:
        return dict(found)


@pytest.fixture(scope="session")
def megatron(corpora, tmp_path_factory):
    """megatron(job): {"train": tokens, "train-id": datasets, ...} of the newest core."""
    jobs = PLAIN + BLENDS + PER_SPLIT + REFUSED
    found = ask_megatron(jobs, corpora, tmp_path_factory.mktemp("megatron"))
    return lambda job: {key.partition("-")[2]: value for key, value in found.items() if key.startswith(f"{jobs.index(job)}-")}


def spec_of(job, split):
    samples = job["samples"][SPLITS.index(split)]
    name = f"{split}-s{job['seq_length']}" + (f"-n{samples}" if samples is not None else "")
    if job["seed"] != 1234:
        name += f"-seed{job['seed']}"
    if job.get("split", "969, 30, 1") != "969, 30, 1":
        name += f"-split{job['split'].replace(' ', '')}"
    return name


@contextlib.contextmanager
def shown(source, views, **options):
    """Directories of views, in a mount or exported."""
    if program.can_mount():
        with program.mounted(source, **options) as point:
            yield [point / view for view in views]
        return
    import tempfile
    with tempfile.TemporaryDirectory(prefix="mcorefs-export-") as parent:
        for i, view in enumerate(views):
            done = program.export(source, view, f"{parent}/{i}", **options)
            assert done.returncode == 0, done.stderr
        yield [pathlib.Path(parent) / str(i) for i in range(len(views))]


def compare_view(directory, theirs, split, where):
    ours = datasets.load_from_disk(str(directory))
    assert len(ours) == len(theirs[split]), f"{where}: {len(ours)} samples instead of {len(theirs[split])}"
    columns = ["input_ids"] + (["dataset_id"] if f"{split}-id" in theirs else [])
    assert ours.column_names == columns, where
    table = ours.with_format("numpy")
    assert numpy.array_equal(numpy.asarray(table["input_ids"][:]), theirs[split]), f"{where}: other tokens"
    if f"{split}-id" in theirs:
        assert numpy.array_equal(numpy.asarray(table["dataset_id"][:]), theirs[f"{split}-id"]), f"{where}: other datasets"
    return len(ours)


# -- views ----------------------------------------------------------------------------------------


def test_views_of_datasets(corpora, megatron):
    wanted = [(job, split) for job in PLAIN for split in job["splits"]]
    views = [f"data/{job['data_path'][0]}/samples/{spec_of(job, split)}" for job, split in wanted]
    with shown(corpora, views) as directories:
        count = sum(compare_view(directory, megatron(job), split, directory) for directory, (job, split) in zip(directories, wanted))
    assert count > 8000


def options_of(job):
    words = {"data_path": job["data_path"]} if "data_path" in job else {
        f"{split}_data_path": words for split, words in zip(SPLITS, job["per_split"]) if words}
    return {key: " ".join(value) for key, value in words.items()}


@pytest.mark.parametrize("job", BLENDS + PER_SPLIT, ids=lambda job: " ".join(filter(None, map(str, options_of(job).values())))[:60])
def test_views_of_blends(job, corpora, megatron):
    views = [f"data/blend/samples/{spec_of(job, split)}" for split in job["splits"]]
    with shown(corpora, views, **options_of(job)) as directories:
        for directory, split in zip(directories, job["splits"]):
            compare_view(directory, megatron(job), split, directory.name)


@pytest.mark.parametrize("job", REFUSED, ids=["too many of one", "weights alone"])
def test_refused_as_megatron_does(job, corpora, megatron):
    assert "error" in megatron(job), "Megatron has it"
    done = program.run("ls", corpora, f"data/blend/samples/{spec_of(job, 'train')}", *program.options(options_of(job)))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("version", todays(["0.10.0", "0.12.3"], 1))
def test_older_megatron(version, corpora, tmp_path):
    """The surplus is another one up to core 0.10, which changes how many samples each dataset is asked for."""
    jobs = [job for job in BLENDS if job["samples"][0] is not None and "." in job["data_path"][0]] + PLAIN[1:3]
    try:
        found = ask_megatron(jobs, corpora, tmp_path, version)
    except venvs.Missing as why:
        pytest.skip(str(why))
    for i, job in enumerate(jobs):
        for split in job["splits"]:
            theirs = {key.partition("-")[2]: value for key, value in found.items() if key.startswith(f"{i}-")}
            name = job["data_path"][0] if len(job["data_path"]) == 1 else "blend"
            options = {} if name != "blend" else options_of(job)
            with shown(corpora, [f"data/{name}/samples/{spec_of(job, split)}"], megatron=version, **options) as (directory,):
                compare_view(directory, theirs, split, f"{version}: {directory}")


@pytest.mark.parametrize("dtype", ["uint16", "int64"])
def test_of_an_hf_dataset(dtype, corpora, megatron, tmp_path):
    """The same documents, saved by `datasets`, give the samples that Megatron draws from the .bin."""
    job, raw = PLAIN[4], (corpora / "empty_document.idx").read_bytes()
    n, = struct.unpack_from("<Q", raw, 18)
    ends = numpy.cumsum(numpy.frombuffer(raw, numpy.int32, n, 34))
    rows = numpy.split(numpy.fromfile(corpora / "empty_document.bin", numpy.int32), ends[:-1])
    features = datasets.Features({"input_ids": datasets.Sequence(datasets.Value(dtype))})
    datasets.Dataset.from_dict({"input_ids": [row.tolist() for row in rows]}, features=features).save_to_disk(tmp_path / "saved")
    with shown(tmp_path / "saved", [f"data/saved/samples/{spec_of(job, split)}" for split in SPLITS]) as directories:
        for directory, split in zip(directories, SPLITS):
            compare_view(directory, megatron(job), split, directory.name)
    tokens = step(tmp_path / "saved", 5, "--split", job["split"], "--seq-length", job["seq_length"], "--seed", job["seed"], "--train-samples",
                  job["samples"][0], "--global-batch-size", 10)
    assert numpy.array_equal(tokens, megatron(job)["train"][40:50])


def pages(path):
    """The bytes of a file, zeros for pages that cannot be read; and how many those are."""
    with open(path, "rb", buffering=0) as f:
        found, bad = bytearray(os.fstat(f.fileno()).st_size), 0
        for at in range(0, len(found), 4096):
            try:
                page = os.pread(f.fileno(), 4096, at)
                found[at:at + len(page)] = page
            except OSError as e:
                assert e.errno == errno.EIO
                bad += 1
    return bytes(found), bad


@pytest.mark.parametrize("name", ["even_document", "blend"])
def test_short_bin(name, corpora, megatron, tmp_path, needs_mount):
    """A .bin that lacks its last documents: samples that need them cannot be read, all others are as they were."""
    import pyarrow
    job, missing = {"even_document": PLAIN[1], "blend": BLENDS[0]}[name], 145
    for kind in ("bin", "idx"):
        for corpus in ("even_document", "long_document"):
            shutil.copy(corpora / f"{corpus}.{kind}", tmp_path)
    raw = (corpora / "even_document.idx").read_bytes()
    n, = struct.unpack_from("<Q", raw, 18)
    os.truncate(tmp_path / "even_document.bin", int(numpy.frombuffer(raw, numpy.int64, n, 34 + 4 * n)[missing]))
    options = options_of(job) if name == "blend" else {}
    words = options_of(job)["data_path"]
    whole = lines(corpora, "--step", 1, "--data-path", words, "--split", "1", "--seq-length", job["seq_length"], "--seed", job["seed"],
                  "--train-samples", 500, "--global-batch-size", 500)
    lost = [any(line["dataset"] == "even_document" and piece["sequence"] >= missing for piece in line["pieces"]) for line in whole]
    assert 10 < sum(lost) < 400
    with shown(tmp_path, [f"data/{name}/samples/train-s{job['seq_length']}-n500" + f"-seed{job['seed']}" * (job["seed"] != 1234) + "-split1"],
               **options) as (directory,):
        found, bad = pages(directory / "data-00000-of-00001.arrow")
    table = pyarrow.ipc.open_stream(found).read_all()
    assert bad > 0 and table.num_rows >= 500
    for i, line in enumerate(whole):
        row = table["input_ids"][i].as_py()
        assert row == (line["tokens"] if not lost[i] else [0] * len(row)), f"sample {i}, {'lost' if lost[i] else 'good'}"


def test_at_random(corpora, megatron, needs_mount):
    """What readers do: a few rows anywhere, in any order, in many processes."""
    job = BLENDS[1]
    theirs = megatron(job)["train"]
    with shown(corpora, [f"data/blend/samples/{spec_of(job, 'train')}"], **options_of(job)) as (directory,):
        ours = datasets.load_from_disk(str(directory)).with_format("torch")
        order = random.Random(3).sample(range(len(ours)), 200)
        rows = torch.utils.data.DataLoader(torch.utils.data.Subset(ours, order), batch_size=10, num_workers=2)
        got = torch.cat([batch["input_ids"] for batch in rows]).numpy()
        assert numpy.array_equal(got, theirs[order])


# -- steps ----------------------------------------------------------------------------------------


def step(source, number, *arguments):
    """The tokens of a step's batch."""
    done = subprocess.run([program.BINARY, "sample", source, "--step", str(number), "--npy", "-", *map(str, arguments)], capture_output=True,
                          timeout=SECONDS)
    assert done.returncode == 0, done.stderr.decode()
    return numpy.load(io.BytesIO(done.stdout))


def lines(source, *arguments):
    done = program.run("sample", source, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("job", [job for job in PLAIN + BLENDS + PER_SPLIT[:2] if job["samples"][0]],
                         ids=lambda job: " ".join(next(iter(options_of(job).values())).split())[:40])
def test_steps(job, batch, corpora, megatron):
    """--train-samples, or iterations where the number is a multiple of the batch."""
    samples, theirs = job["samples"][0], megatron(job)
    words = options_of(job)
    arguments = ["--seq-length", job["seq_length"], "--seed", job["seed"], "--global-batch-size", batch, "--train-samples", samples]
    arguments += ["--data-path", words["data_path"], "--split", job["split"]] if "data_path" in words else [
        "--train-data-path", words["train_data_path"]]
    last = min(samples, len(theirs["train"])) // batch
    for number in sorted({1, 2, last // 2, last - 1, last} & set(range(1, last + 1))):
        ours = step(corpora, number, *arguments)
        assert numpy.array_equal(ours, theirs["train"][(number - 1) * batch:number * batch]), f"step {number} of {job}"
    done = program.run("sample", corpora, "--step", samples // batch + 1, *arguments)
    assert done.returncode == 1 and "there is no step" in done.stderr


def test_what_a_line_says(corpora, megatron):
    """Pieces put together from the .bin by hand are the tokens; ids and samples are those of the view."""
    job = BLENDS[1]
    theirs, words = megatron(job), options_of(job)["data_path"]
    idx = {}
    for name in ("even_document", "empty_document", "long_document"):
        raw = (corpora / f"{name}.idx").read_bytes()
        n, dtype = struct.unpack_from("<Q", raw, 18)[0], {4: numpy.int32, 8: numpy.uint16}[raw[17]]
        idx[name] = numpy.frombuffer(raw, numpy.int64, n, 34 + 4 * n) // dtype().itemsize, numpy.fromfile(corpora / f"{name}.bin", dtype)
    eod = int(theirs["train"][40][3])
    for line in lines(corpora, "--step", 6, "--data-path", words, "--split", job["split"], "--seq-length", job["seq_length"], "--seed", job["seed"],
                      "--train-samples", job["samples"][0], "--global-batch-size", 8, "--eod-mask-loss", "--eod", eod):
        starts, tokens = idx[line["dataset"]]
        put_together = [int(tokens[starts[p["sequence"]] + p["offset"] + i]) for p in line["pieces"] for i in range(p["length"])]
        assert line["tokens"] == put_together == theirs["train"][line["sample"]].tolist()
        assert line["dataset_id"] == theirs["train-id"][line["sample"]]
        assert line["dataset_sample"] == int((theirs["train-id"][:line["sample"]] == line["dataset_id"]).sum())
        assert line["loss_mask"] == [int(t != eod) for t in line["tokens"][:-1]]


# -- who gets which -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def samplers():
    """Megatron's samplers, as Megatron-Bridge carries them: Megatron-LM's training folder is in no package."""
    try:
        folder = venvs.folder("bridge", "Megatron-Bridge", sys.executable)
    except venvs.Missing as why:
        pytest.skip(str(why))
    spec = importlib.util.spec_from_file_location("samplers", folder / "megatron" / "bridge" / "data" / "samplers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def megatrons_step(samplers, kind, total, consumed, micro, ranks, sharding, microbatches):
    """[microbatch][rank] of the step that begins after so many samples; a loader that ends is begun again, as cyclic_iter does."""
    per_rank = []
    for rank in range(ranks):
        common = dict(total_samples=total, consumed_samples=consumed, micro_batch_size=micro, data_parallel_rank=rank, data_parallel_size=ranks)
        if kind == "single":
            batches = iter(samplers.MegatronPretrainingSampler(**common))
            per_rank.append([next(batches) for _ in range(microbatches)])
            continue
        sampler, drawn = samplers.MegatronPretrainingRandomSampler(dataset=None, data_sharding=sharding, **common), []
        while len(drawn) < microbatches:
            for batch in sampler:
                drawn.append(batch)
                if len(drawn) == microbatches:
                    break
        per_rank.append(drawn)
    return list(zip(*per_rank))


@pytest.mark.parametrize("kind,sharding", [("single", True), ("cyclic", True), ("cyclic", False)])
def test_ranks(kind, sharding, corpora, megatron, samplers):
    job, r = PLAIN[1], random.Random(f"{kind}{sharding}")
    total, asked = len(megatron(job)["train"]), job["samples"][0]
    for _ in range(25):
        micro, ranks, microbatches = r.choice([1, 2, 3, 4]), r.choice([1, 2, 3, 8]), r.choice([1, 2, 5])
        stride = micro * ranks
        batch = stride * microbatches
        number = r.randrange(1, asked // batch + 1)
        consumed = (number - 1) * batch
        arguments = ["--data-path", "even_document", "--split", job["split"], "--seq-length", 16, "--seed", 0, "--train-samples", asked,
                     "--global-batch-size", batch, "--micro-batch-size", micro, "--data-parallel-size", ranks, "--dataloader-type", kind]
        arguments += [] if sharding else ["--no-data-sharding"]
        if kind == "cyclic" and r.random() < .7:  # resumed in a later epoch
            consumed = r.randrange(5) * (total // stride * stride) + r.randrange(total // stride) * stride
            arguments += ["--consumed-samples", consumed]
        theirs = megatrons_step(samplers, kind, total, consumed, micro, ranks, sharding, microbatches)
        ours = lines(corpora, "--step", number, *arguments)
        told = [(line["micro_batch"], line["rank"], line["sample"]) for line in ours]
        assert told == [(m, k, i) for m, row in enumerate(theirs) for k, batch in enumerate(row) for i in batch], (arguments, number)
        rank = r.randrange(ranks)
        mine = lines(corpora, "--step", number, "--rank", rank, *arguments)
        assert mine == [line for line in ours if line["rank"] == rank]
        assert all(line["tokens"] == megatron(job)["train"][line["sample"]].tolist() for line in mine)


# -- what the fixtures' runs have read ------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-torch-tp2-pp2", "llama-torch_dist-tp2-pp2", "llama-torch_dist-tp2-pp2-vpp2", "qwen2-torch-tp2-dp2-distopt"])
def test_logged_loss(name, fixtures):
    """The model as of iteration 20 has the loss that Megatron logged for iteration 21 on the batch of step 21, and on no other."""
    import transformers
    source = fixtures / "resume" / name / "iter_0000020"
    with open(fixtures / "resume" / name / "loss.csv") as f:
        logged = {int(row["iteration"]): float(row["lm_loss"]) for row in csv.DictReader(f)}
    with program.hf(source.parent if program.can_mount() else source, f"{source.name}/hf" if program.can_mount() else "hf") as directory:
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

        def loss(number, *more):
            tokens = torch.from_numpy(step(source, number, "-o", f"data={fixtures / 'data'}", *more))
            with torch.no_grad():
                logits = model(tokens[:, :-1]).logits
            return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))

        assert abs(loss(21) - logged[21]) < 3e-4
        for number in (19, 20, 22, 23):
            assert abs(loss(number) - logged[21]) > 2e-3, f"step {number} would do as well"
        assert abs(loss(21, "--seed", 1235) - logged[21]) > 2e-3
        assert abs(loss(21, "--train-iters", 4000) - logged[21]) > 2e-3, "the order depends on the length of the run"
        del model

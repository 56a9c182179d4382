"""Many resumes on one machine with GPUs, in parallel: MEGATRON_LM=TREE resume_all.py GROUP... [--only PATTERN...] [options]

Groups, each over every fixture that is found:
  own      the fixture itself at its own layout
  native   Megatron's own resharding: the fixture rewritten by Megatron as a reshardable torch_dist checkpoint, resumed at other layouts
  golden   the same rewritten by Megatron as a `torch` checkpoint at other layouts, kept in OUT for same_checkpoint.py
  view     mcorefs's views of the mounted fixture (--binary), in both formats, at other layouts
  control  what must NOT follow loss.csv: the fixture without its optimizer
Writes OUT/summary.txt and OUT/logs.tar.xz; ends with status 1 if a run failed or strayed (a control: if it did not).
"""
import argparse
import concurrent.futures
import dataclasses
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import resume
from compare_loss import compare

# family, own layout, data parallelism; the layouts to resume at; those kept as golden files
FIXTURES = {
    "llama-torch-tp2-pp2": ("llama", "tp2-pp2", 1, "tp1-pp1 tp4-pp1 tp1-pp4 tp2-pp1 tp2-pp2-vpp2 tp1-pp2-vpp2", "tp1-pp1 tp2-pp2-vpp2"),
    "llama-torch_dist-tp2-pp2": ("llama", "tp2-pp2", 1, "tp1-pp1 tp2-pp1 tp2-pp2", ""),
    "llama-torch_dist-tp2-pp2-vpp2": ("llama", "tp2-pp2-vpp2", 1, "tp1-pp4 tp1-pp2 tp4-pp1", "tp1-pp4"),
    "qwen2-torch-tp2-dp2-distopt": ("qwen2", "tp2-pp1", 2, "tp1-pp1 tp1-pp2 tp4-pp1 tp2-pp2", "tp1-pp1 tp2-pp2"),
    "gpt2-torch-tp2-pp2": ("gpt2", "tp2-pp2", 1, "tp1-pp2 tp1-pp1 tp4-pp1", "tp1-pp2"),
    "qwen3-torch_dist-tp4": ("qwen3", "tp4-pp1", 1, "tp2-pp2 tp1-pp1 tp1-pp2 tp1-pp4", "tp2-pp2"),
    "mixtral-torch_dist-pp2-ep2": ("mixtral", "tp1-pp2-ep2", 1, "tp2-pp1-ep2 tp1-pp1 tp1-pp1-ep2 tp1-pp1-ep4", "tp1-pp1-ep2"),
    "deepseek-torch_dist-pp2-ep2": ("deepseek", "tp1-pp2-ep2", 1, "tp1-pp1-ep4 tp1-pp1-ep2 tp1-pp1 tp2-pp1-ep2", "tp1-pp1-ep4"),
}
KEPT_TORCH_DIST = ("llama-torch-tp2-pp2", "qwen2-torch-tp2-dp2-distopt", "deepseek-torch_dist-pp2-ep2")
ITERATION = "iter_0000020"
FOLLOWS, STRAYS = 5e-4, 2e-2  # largest difference of a loss; see README.md for what was measured
FOLLOWS_QK_NORM = 2.5e-3
JOB_SECONDS = 200


def layout(name):
    """"tp2-pp2-vpp2" as keywords."""
    return {key: int(value) for key, value in re.findall(r"(tp|pp|ep|etp|vpp)(\d+)", name)}


def one_kind(at, own):
    """Experts have an optimizer of their own only with EP (or another TP than the rest); torch_dist does not lead from one case to the other."""
    apart = [layout(name).get("ep", 1) > 1 for name in (at, own)]
    return apart[0] == apart[1]


@dataclasses.dataclass
class Run:
    name: str
    fixture: str
    layout: str
    load: pathlib.Path
    after: "Run" = None  # must have ended well before
    save: tuple = ()  # (format, directory): rewrite, do not train
    extra: tuple = ()
    dp: int = 1
    stray: bool = False
    job: resume.Job = None
    gpus: list = None
    result: str = None
    good: bool = False

    @property
    def ranks(self):
        return resume.ranks_needed(**layout(self.layout), dp=self.dp)

    @property
    def tolerance(self):
        if self.stray:
            return STRAYS
        return FOLLOWS_QK_NORM if FIXTURES[self.fixture][0] == "qwen3" else FOLLOWS

    def start(self, opt, gpus):
        family = FIXTURES[self.fixture][0]
        source = self.after.load if self.after else self.load
        optimizer = resume.what_is_there(source)[1]
        extra = list(self.extra)
        if self.save:
            extra += ["--ckpt-convert-format", self.save[0], "--ckpt-convert-save", self.save[1]]
            if optimizer == "dist" and self.save[0] == "torch_dist":
                extra.append("--dist-ckpt-optim-fully-reshardable")
        self.gpus = gpus
        self.job = resume.Job(opt.scratch / "logs" / f"{self.name.replace('/', '.')}.log", gpus, resume.arguments(
            self.load, opt.data, opt.scratch / "index" / self.name, family, resume.what_is_there(self.load)[0], optimizer,
            layout(self.layout), extra))

    def finish(self, opt):
        seconds, text = time.monotonic() - self.job.start, self.job.text
        if self.save:
            self.good = "> converted checkpoint" in text and self.job.status == 0
            line, problems = "rewritten" if self.good else "not rewritten", []
        elif self.job.status:
            line, problems = "failed", []
        else:
            line, problems = compare(text, opt.found[self.fixture] / "loss.csv", tolerance=self.tolerance)
            self.good = bool(problems) if self.stray else not problems
        if self.job.status:
            problems = [resume.excuse(text)]
        self.result = f"{'ok  ' if self.good else 'FAIL'} {self.name:58} {seconds:4.0f} s  " + "\n       ".join([line, *problems])


def plan(opt):
    runs = []
    at_20 = ("--ckpt-step", "20")  # a fixture may hold later iterations
    for fixture, (family, own, dp, layouts, kept) in FIXTURES.items():
        source = opt.found.get(fixture)
        if not source:
            continue
        if "own" in opt.groups:
            runs.append(Run(f"own/{fixture}", fixture, own, source, dp=dp, extra=at_20))
        if "control" in opt.groups:
            runs.append(Run(f"control/{fixture}", fixture, own, source, dp=dp, stray=True, extra=(*at_20, "--no-load-optim")))
        if {"native", "golden"} & opt.groups:
            saved = opt.scratch / "native" / fixture
            first = Run(f"native/{fixture}", fixture, own, source, dp=dp, save=("torch_dist", saved), extra=at_20)
            runs.append(first)
            if "native" in opt.groups:
                runs += [Run(f"native/{fixture}/{at}", fixture, at, saved / "torch_dist", after=first) for at in layouts.split() if one_kind(at, own)]
            if "golden" in opt.groups:
                runs += [Run(f"golden/{fixture}/{at}", fixture, at, saved / "torch_dist", after=first,
                             save=("torch", opt.scratch / "golden" / fixture / at)) for at in kept.split()]
        if "view" in opt.groups:
            views = opt.scratch / "mnt" / fixture / ITERATION / "megatron"
            runs += [Run(f"view/{fixture}/torch/{at}", fixture, at, views / "torch" / at) for at in layouts.split()]
            runs += [Run(f"view/{fixture}/torch_dist/{at}", fixture, at, views / "torch_dist")
                     for at in dict.fromkeys([own, *layouts.split()]) if one_kind(at, own)]
    wanted = [run for run in runs if any(fnmatch.fnmatch(run.name, pattern) for pattern in opt.only)]
    needed = {id(run.after) for run in wanted}
    return [run for run in runs if run in wanted or id(run) in needed]


def next_gpus(run, busy, opt):
    """The idlest GPUs, or None while the machine is full."""
    load = {gpu: sum(gpu in other.gpus for other in busy) for gpu in range(opt.gpus)}
    if busy and sum(load.values()) + run.ranks > opt.ranks:
        return None
    return sorted(sorted(load, key=load.get)[:run.ranks])


def go(runs, opt):
    waiting, busy, began = list(runs), [], time.monotonic()
    alone = True  # the first run shows whether anything works, and compiles what the others then find compiled
    while waiting or busy:
        for run in list(waiting):
            if busy and alone:
                break
            if run.after and run.after.result and not run.after.good:
                run.result = f"FAIL {run.name:58}         {run.after.name} failed"
            elif run.ranks > opt.gpus:
                run.result = f"skip {run.name:58}         needs {run.ranks} GPUs"
                run.good = True
            elif run.after and not run.after.result:
                continue
            else:
                gpus = next_gpus(run, busy, opt)
                if gpus is None:
                    break
                try:
                    run.start(opt, gpus)
                    busy.append(run)
                except (OSError, ValueError) as error:
                    run.result = f"FAIL {run.name:58}         {error}"
            waiting.remove(run)
            if run.result:
                print(run.result, flush=True)
        late = time.monotonic() - began > opt.limit
        for run in list(busy):
            if not run.job.running(0 if late else JOB_SECONDS):
                run.finish(opt)
                print(run.result, flush=True)
                busy.remove(run)
                if alone and not run.good:
                    print(run.job.text[-6000:])
                    return
                alone = False
        if late and not busy:
            break
        time.sleep(0.1)
    for run in waiting:
        run.result = f"FAIL {run.name:58}         no time left"


def keep(opt, runs, golden):
    """Results, logs and golden files to OUT: few files, for a machine that gives few back."""
    opt.out.mkdir(parents=True, exist_ok=True)
    (opt.out / "summary.txt").write_text("".join(f"{run.result}\n" for run in runs if run.result))
    with tarfile.open(opt.out / "logs.tar.xz", "w:xz") as tar:
        tar.add(opt.scratch / "logs", "logs")
    if not golden:
        return
    rewritten = sorted([*(opt.scratch / "golden").glob("*/*"), *(opt.scratch / "native" / name / "torch_dist" for name in KEPT_TORCH_DIST)])
    rewritten = [directory for directory in rewritten if directory.exists()]
    archives = [[]]
    for directory in rewritten:  # random numbers do not compress: sizes add up
        if archives[-1] and sum(map(size, archives[-1])) + size(directory) > 15 << 20:
            archives.append([])
        archives[-1].append(directory)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(pack, archives, [opt.out / f"golden-{i}.tar.xz" for i in range(len(archives))]))


def size(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def pack(directories, archive):
    with tarfile.open(archive, "w:xz", preset=1) as tar:
        for directory in directories:
            tar.add(directory, pathlib.Path("golden", directory.parent.name, directory.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="+", choices=["own", "native", "golden", "view", "control"])
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of run names, as own/llama* or view/*/torch/tp1-pp1")
    parser.add_argument("--fixtures", nargs="+", type=pathlib.Path, required=True, help="directories of fixtures with optimizer and loss.csv")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, help="mcorefs, for views")
    parser.add_argument("--scratch", type=pathlib.Path, default="/tmp/resume")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT", "/tmp/resume/out"))
    parser.add_argument("--ranks", type=int, default=28, help="at most so many processes at a time")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--limit", type=int, default=500, help="seconds for everything")
    parser.add_argument("--list", action="store_true", help="only name the runs")
    opt = parser.parse_args()
    opt.groups = set(opt.groups)
    opt.found = {directory.name: directory.resolve() for root in opt.fixtures for directory in sorted(root.glob("*")) if directory.name in FIXTURES}
    opt.scratch, opt.data = opt.scratch.resolve(), opt.data.resolve()
    runs = plan(opt)
    if opt.list:
        sys.exit(print(*(f"{run.name} ({run.ranks})" for run in runs), sep="\n"))
    if not opt.gpus:
        opt.gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
    mounts = []
    try:
        if "view" in opt.groups:
            for fixture in sorted({run.fixture for run in runs}):
                point = opt.scratch / "mnt" / fixture
                point.mkdir(parents=True, exist_ok=True)
                subprocess.run([opt.binary, opt.found[fixture], point], check=True, timeout=60)
                mounts.append(point)
        go(runs, opt)
    finally:
        for point in mounts:
            tool = [shutil.which("fusermount3"), "-u", "-z"] if shutil.which("fusermount3") else ["umount", "-l"]
            subprocess.run([*tool, point])
    keep(opt, runs, "golden" in opt.groups)
    bad = sum(not run.good for run in runs)
    print(f"{len(runs) - bad} of {len(runs)} as expected")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

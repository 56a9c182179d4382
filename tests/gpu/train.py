"""mcorefs-train beside Megatron-LM's pretrain_gpt.py: the same arguments, checkpoint and data, compared row by row of their logs.

    MEGATRON_LM=TREE train.py --fixtures DIR... --data DATA --binary build/mcorefs --train build/mcorefs-train [--only PATTERN...]

Megatron loads mcorefs's view of a fixture at its layout, mcorefs-train the fixture itself. For every family, both as one process:
  resume   from iteration 20, weights, optimizer and schedule, in bf16; both save at 30
  follow   the same rows of ours beside loss.csv, the log of the run that wrote the fixture
  theirs   Megatron's save of iteration 30, trained by ours, beside Megatron's own rows from there on
  ours     the save of ours of iteration 30, trained by Megatron, beside our rows from there on; it saves at 35
  again    that save, trained by ours, beside our first run
  bf16, fp32, fp16, overflow   from the weights alone (--finetune --no-load-optim); fp16 with a loss scale that grows, and one that falls
  rounding-bf16, rounding-fp16   how far norms are from Megatron's in fp32: ours no further than Megatron's own of 16 bits
  fp32-ours, fp16-ours   our saves of those runs at iteration 10, trained by Megatron (of one family)
With as many GPUs as --gpus says, the first five again at every layout of LAYOUTS that they are enough for, each side as so many processes; whoever
goes on from a save of the other does so at the family's next layout.
Losses of every kind, validation's too, the gradient's norm, learning rate, consumed samples, loss scale and skipped iterations are compared.
Writes OUT/summary.txt, OUT/rows.txt and OUT/logs.tar.xz; ends with status 1 if a row differed by more than its tolerance. With MEGATRON_CPU=1
Megatron needs no GPU (no_cuda.py).
"""
import argparse
import csv
import dataclasses
import fnmatch
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import resume
import resume_all
from compare_loss import COMPLAINTS

FIXTURES = {
    "llama": "llama-torch-tp2-pp2", "gpt2": "gpt2-torch-tp2-pp2", "qwen2": "qwen2-torch-tp2-dp2-distopt", "qwen3": "qwen3-torch_dist-tp4",
    "mixtral": "mixtral-torch_dist-pp2-ep2", "deepseek": "deepseek-torch_dist-pp2-ep2",
}
LAYOUTS = {
    "llama": "tp2-pp1 tp1-pp2 tp1-pp2-vpp2 tp1-pp1-dp2 tp2-pp2", "gpt2": "tp2-pp1 tp1-pp2 tp2-pp2", "qwen2": "tp1-pp2 tp2-pp1 tp1-pp1-dp2 tp2-pp1-dp2",
    "qwen3": "tp2-pp1 tp1-pp2", "mixtral": "tp1-pp1-ep2 tp1-pp2 tp1-pp2-ep2", "deepseek": "tp1-pp1-ep2 tp1-pp2 tp1-pp2-ep2",
}
AT = "iter_0000020"
ONE = "tp1-pp1"
VALIDATED, END = ("--eval-interval", "10", "--eval-iters", "2"), ("--exit-interval", "20")
ANEW = ("--finetune", "--no-load-optim", "--no-load-rng", *END)
SECONDS = 140  # of one run

ROW = re.compile(r" iteration +(\d+)/ *\d+ \|(.*)")
FIELD = re.compile(r" ?([a-z_][a-z_ ]*): +([0-9.E+-]+|nan|inf) \|")
VALIDATION = re.compile(r"(validation loss at iteration (\d+)(?: on validation set)?) \|(.*)")
VALUE = re.compile(r" ([a-z_ ]+) value: ([0-9.E+-]+) \|")
SKIPPED = "number of skipped iterations"


@dataclasses.dataclass(frozen=True)
class Tolerance:
    loss: float
    norm: float  # relative
    auxiliary: float


BF16, FP16, FP32 = Tolerance(2e-3, 0.01, 2e-3), Tolerance(5e-4, 0.01, 2e-3), Tolerance(1e-5, 1e-3, 1e-5)
# Where a gradient has spikes, 16 bits round them by more than that, Megatron's as ours: what rounding-* check.
SPIKES = {("qwen2", BF16): 0.08, ("qwen3", BF16): math.inf, ("qwen3", FP16): 0.15}
SCALE = ("--hysteresis", "2", "--loss-scale-window", "5", "--initial-loss-scale")
IN_FP32 = ("--accumulate-allreduce-grads-in-fp32",)
# Sums in fp16 overflow at the same scale in both. Sums in fp32 do not: without Apex, Megatron has each microbatch's gradient in fp16 first.
KINDS = {"bf16": (("--bf16",), (), BF16), "fp32": ((), (), FP32), "fp16": (("--fp16",), (*IN_FP32, *SCALE, str(2**12)), FP16),
         "overflow": (("--fp16",), (*SCALE, str(2**26)), FP16)}
OVERFLOW = ("llama", "gpt2", "mixtral")


def read_log(text, megatron):
    """({iteration: {name: number}}, {(iteration, place of a validation): {name: loss}}) of a log.

    The second row that Megatron prints sums up the first one again: losses are means of the steps that were taken, and counts count both.
    """
    rows, validation = {}, {}
    for line in text.splitlines():
        if found := ROW.search(line):
            rows[int(found[1])] = {name.strip(): float(value) for name, value in FIELD.findall(found[2])}
        elif found := VALIDATION.search(line):
            validation[int(found[2]), found[1]] = {name.strip(): float(value) for name, value in VALUE.findall(found[3])}
    if megatron and len(rows) > 1:
        first, second = (rows[i] for i in sorted(rows)[:2])
        for name in [name for name in second if name.startswith("number of")]:
            second[name] -= first[name]
        steps = [max(1, count) for count in (1 - first[SKIPPED], 2 - first[SKIPPED] - second[SKIPPED], 1 - second[SKIPPED])]
        for name in losses(second):
            second[name] = (second[name] * steps[1] - first.get(name, 0) * steps[0]) / steps[2]
    return rows, validation


def losses(row):
    return [name for name in row if "loss" in name and name != "loss scale"]


def of_csv(path):
    with open(path, newline="") as file:
        return {int(row["iteration"]): {"consumed samples": float(row["consumed_samples"]), "learning rate": float(row["learning_rate"]),
                                        "lm loss": float(row["lm_loss"]), "grad norm": float(row["grad_norm"])} for row in csv.DictReader(file)}, {}


@dataclasses.dataclass(eq=False)
class Run:
    """A run of one of the two programs."""
    name: str
    family: str
    load: pathlib.Path
    extra: tuple = ()
    precision: tuple = ("--bf16",)
    layout: str = ONE
    after: "Run" = None
    job: resume.Job = None
    rows: dict = None
    validation: dict = None
    error: str = None

    @property
    def megatron(self):
        return self.name.startswith("megatron")

    @property
    def ranks(self):
        return ranks_of(self.layout)

    def start(self, opt):
        format, optimizer = resume.what_is_there(self.load)
        if not self.megatron:
            format = "torch_dist"  # what it writes; it sees for itself what it loads
        if not self.precision:
            optimizer = "float16"  # without 16 bits there are no main parameters to know it by
        options = resume.arguments(self.load, opt.data, opt.scratch / "index" / self.name, self.family, format, optimizer,
                                   resume_all.layout(self.layout), self.extra, self.precision)
        program = () if self.megatron else (opt.train, "--backend", opt.backend)
        self.job = resume.Job(opt.scratch / "logs" / f"{self.name.replace('/', '.')}.log", range(self.ranks), options, program)

    def finish(self):
        text = self.job.text
        serious = [word for word in COMPLAINTS if word != "could not find arguments" or "--finetune" not in self.extra]
        complaints = [line.strip() for line in text.splitlines() if any(word in line for word in serious)]
        if self.job.status:
            self.error = resume.excuse(text)
        elif complaints:
            self.error = complaints[0]
        self.rows, self.validation = read_log(text, self.megatron)


@dataclasses.dataclass
class Check:
    """Rows of a run beside those of another, from `first` to `last`."""
    name: str
    mine: Run
    other: object  # a Run, or loss.csv
    first: int
    last: int
    tolerance: Tolerance
    result: str = None
    good: bool = False

    def runs(self):
        return [run for run in (self.mine, self.other) if isinstance(run, Run)]

    def ready(self):
        return all(run.error or run.rows is not None for run in self.runs())

    def judge(self, table):
        errors = [f"{run.name}: {run.error}" for run in self.runs() if run.error]
        if errors:
            return self.say("", errors)
        rows, validation = (self.other.rows, self.other.validation) if isinstance(self.other, Run) else of_csv(self.other)
        problems, most = [], {"lm loss": 0.0, "auxiliary": 0.0, "validation": 0.0, "grad norm": 0.0}

        def differs(kind, where, name, mine, other, allowed, relative=False):
            difference = abs(mine - other) / (abs(other) if relative and other else 1)
            most[kind] = max(most[kind], difference)
            if not difference <= allowed:
                problems.append(f"{name} of {where}: {mine:g}, not {other:g}")

        for at in range(self.first, self.last + 1):
            mine, other = self.mine.rows.get(at), rows.get(at)
            if mine is None or other is None:
                problems.append(f"iteration {at} is missing in a log")
                continue
            table.append(f"{self.name} {at} " + " ".join(f"{name.replace(' ', '_')}={mine.get(name)}/{other[name]}" for name in
                                                          (*losses(other), "grad norm", "loss scale") if name in other))
            for name in other:
                if name == "grad norm":
                    continue
                if name not in mine:
                    problems.append(f"{name} of iteration {at} is missing")
                elif name == "lm loss":
                    differs(name, at, name, mine[name], other[name], self.tolerance.loss)
                elif name in losses(other):
                    differs("auxiliary", at, name, mine[name], other[name], self.tolerance.auxiliary)
                elif mine[name] != other[name]:
                    problems.append(f"{name} of iteration {at}: {mine[name]:g}, not {other[name]:g}")
            problems += [f"{name} of iteration {at}: {mine[name]:g}, where the other has none" for name in losses(mine)
                         if name not in other and isinstance(self.other, Run)]
            if other.get("grad norm") is not None:
                differs("grad norm", at, "grad norm", mine.get("grad norm", float("nan")), other["grad norm"], self.tolerance.norm, True)
        validation = {where: values for where, values in validation.items() if self.first <= where[0] <= self.last}
        if isinstance(self.other, Run) and not validation:
            problems.append("the other log has no validation")
        for where, values in validation.items():
            for name, value in values.items():
                differs("validation", where[1], name, self.mine.validation.get(where, {}).get(name, float("nan")), value, self.tolerance.loss)
        skipped = sum(row.get(SKIPPED, 0) for row in self.mine.rows.values())
        line = (f"{self.last - self.first + 1:2} rows  loss {most['lm loss']:.1e}  norm {most['grad norm'] * 100:5.2f} %"
                f"  validation {most['validation']:.1e} ({len(validation)})")
        if any(name != "lm loss" for row in rows.values() for name in losses(row)):
            line += f"  auxiliary {most['auxiliary']:.1e}"
        if skipped:
            line += f"  {skipped:.0f} skipped"
        return self.say(line, problems)

    def say(self, line, problems):
        """The verdict, with a line for each of the first problems."""
        self.good = not problems
        more = f"... {len(problems) - 6} more" if len(problems) > 6 else None
        self.result = "\n       ".join([f"{'ok  ' if self.good else 'FAIL'} {self.name:22} {line}", *problems[:6], *filter(None, [more])])
        return self.result


@dataclasses.dataclass
class Rounding(Check):
    """Norms of a run and of another in 16 bits, beside those of `exact`: they differ by what is rounded."""
    exact: Run = None

    def runs(self):
        return [self.mine, self.other, self.exact]

    def judge(self, table):
        errors = [f"{run.name}: {run.error}" for run in self.runs() if run.error]
        if errors:
            return self.say("", errors)
        rows = range(self.first, self.last + 1)
        try:
            distances = [[run.rows[at]["grad norm"] / self.exact.rows[at]["grad norm"] - 1 for at in rows] for run in (self.mine, self.other)]
        except KeyError as error:
            return self.say("", [f"{error} is missing in a log"])
        ours, theirs = (math.sqrt(sum(d * d for d in of) / len(of)) for of in distances)
        line = f"{len(rows):2} rows  norm, root of mean square: {ours * 100:.2f} %, Megatron's {theirs * 100:.2f} %"
        return self.say(line, [] if ours <= 1.25 * theirs + 1e-3 else ["further than Megatron's"])


def ranks_of(name):
    return resume.ranks_needed(**resume_all.layout(name), dp=int((re.findall(r"dp(\d+)", name) or [1])[0]))


def view_of(name):
    """The view that a layout loads: who shares the samples loads the same."""
    return re.sub(r"-dp\d+", "", name)


def plan(opt):
    checks = []
    for family, fixture in FIXTURES.items():
        source = opt.found.get(fixture)
        if not source:
            print(f"skipped: {fixture} is not there")
            continue
        view, saves = opt.scratch / "mnt" / family / AT / "megatron" / "torch" / "tp1-pp1", opt.scratch / "saves" / family

        def check(what, mine, other, first, last, tolerance=BF16):
            norm = SPIKES.get((family, tolerance), tolerance.norm)
            checks.append(Check(f"{what}/{family}", mine, other, first, last, dataclasses.replace(tolerance, norm=norm)))

        def run(who, what, load, *extra, **more):
            return Run(f"{who}/{family}/{what}", family, load, (*VALIDATED, *extra), **more)

        def saved(where, every):
            return "--save", str(saves / where), "--save-interval", str(every)

        ours = run("ours", "resume", source, "--ckpt-step", "20", *saved("ours", 10))
        theirs = run("megatron", "resume", view, *saved("theirs", 10))
        of_theirs = run("ours", "theirs", saves / "theirs", "--ckpt-step", "30", after=theirs)
        of_ours = run("megatron", "ours", saves / "ours", "--ckpt-step", "30", *saved("again", 5), after=ours)
        again = run("ours", "again", saves / "again", "--ckpt-step", "35", after=of_ours)
        check("resume", ours, theirs, 21, 40)
        check("follow", ours, source / "loss.csv", 21, 40)
        check("theirs", of_theirs, theirs, 31, 40)
        check("ours", of_ours, ours, 31, 40)
        check("again", again, ours, 36, 40)
        layouts = [name for name in LAYOUTS[family].split() if ranks_of(name) <= opt.gpus]
        for layout, following in zip(layouts, layouts[1:] + layouts[:1]):
            def at(who, what, load, *extra, layout=layout, **more):
                return run(who, f"{what}/{layout}", load, *extra, layout=layout, **more)

            ours = at("ours", "resume", source, "--ckpt-step", "20", *saved(f"{layout}/ours", 10))
            theirs = at("megatron", "resume", view.parent / view_of(layout), *saved(f"{layout}/theirs", 10))
            of_theirs = at("ours", f"theirs-of/{layout}", saves / layout / "theirs", "--ckpt-step", "30", layout=following, after=theirs)
            megatrons = following if resume_all.one_kind(following, layout) else layout
            of_ours = at("megatron", f"ours-of/{layout}", saves / layout / "ours", "--ckpt-step", "30", layout=megatrons, after=ours)
            check(f"resume/{layout}", ours, theirs, 21, 40)
            check(f"follow/{layout}", ours, source / "loss.csv", 21, 40)
            check(f"theirs/{layout}/{following}", of_theirs, theirs, 31, 40)
            check(f"ours/{layout}/{megatrons}", of_ours, ours, 31, 40)
        pairs = {}
        for kind, (precision, extra, tolerance) in KINDS.items():
            if kind == "overflow" and family not in OVERFLOW:
                continue
            mine, other = pairs[kind] = [
                run(who, kind, load, *ANEW, *extra, *(saved(f"ours-{kind}", 10) if who == "ours" else ()), precision=precision)
                for who, load in (("ours", source), ("megatron", view))]
            check(kind, mine, other, 1, 20, tolerance)
            if family == "llama" and kind in ("fp32", "fp16"):  # these optimizers have states of other kinds
                goes_on = run("megatron", f"{kind}-ours", saves / f"ours-{kind}", "--ckpt-step", "10", *extra, *END, precision=precision, after=mine)
                check(f"{kind}-ours", goes_on, mine, 11, 20, tolerance)
        checks += [Rounding(f"rounding-{kind}/{family}", *pairs[kind], 1, 20, BF16, exact=pairs["fp32"][1]) for kind in ("bf16", "fp16")]
    return [check for check in checks if any(fnmatch.fnmatch(check.name, pattern) for pattern in opt.only)]


def go(checks, opt, table):
    """Runs what the checks need, so many at a time, and says each verdict as soon as there is one."""
    waiting, busy = [], []

    def want(run):
        if run and run not in waiting:
            want(run.after)
            waiting.append(run)

    for check in checks:
        for run in check.runs():
            want(run)
    others = [run.after for run in waiting]
    waiting.sort(key=lambda run: (run not in others, run.after is not None))  # first what others wait for
    left, began = list(checks), time.monotonic()
    while left:
        late = time.monotonic() - began > opt.limit
        for run in list(waiting):
            if late or run.after and run.after.error:
                run.error = "no time left" if late else f"{run.after.name} failed"
            elif sum(other.ranks for other in busy) >= opt.jobs or run.after and run.after.rows is None:
                continue
            else:
                try:
                    run.start(opt)
                    busy.append(run)
                except (OSError, ValueError) as error:
                    run.error = str(error)
            waiting.remove(run)
        for run in list(busy):
            if not run.job.running(0 if late else SECONDS):
                run.finish()
                busy.remove(run)
        for check in [check for check in left if check.ready()]:
            print(check.judge(table), flush=True)
            left.remove(check)
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of names, as resume/* or */llama")
    parser.add_argument("--fixtures", nargs="+", type=pathlib.Path, required=True, help="directories of fixtures with optimizer and loss.csv")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="mcorefs, for views")
    parser.add_argument("--train", type=pathlib.Path, required=True, help="mcorefs-train")
    parser.add_argument("--backend", default="cuda", help="of mcorefs-train")
    parser.add_argument("--scratch", type=pathlib.Path, default="/tmp/train")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT", "/tmp/train/out"))
    parser.add_argument("--jobs", type=int, default=14, help="at most about so many processes at a time")
    parser.add_argument("--gpus", type=int, default=1, help="layouts of at most so many processes")
    parser.add_argument("--limit", type=int, default=500, help="seconds for everything")
    parser.add_argument("--list", action="store_true", help="only name the checks")
    opt = parser.parse_args()
    for name in ("scratch", "data", "binary", "train"):
        setattr(opt, name, getattr(opt, name).resolve())
    opt.found = {directory.name: directory.resolve() for root in opt.fixtures for directory in sorted(root.glob("*"))}
    checks, table, mounts = plan(opt), [], []
    if opt.list:
        sys.exit(print(*(check.name for check in checks), sep="\n"))
    if not checks:
        sys.exit("nothing to check")
    opt.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(opt.scratch / "saves", ignore_errors=True)
    try:
        for family in sorted({check.mine.family for check in checks}):
            point = opt.scratch / "mnt" / family
            point.mkdir(parents=True, exist_ok=True)
            subprocess.run([opt.binary, opt.found[FIXTURES[family]], point], check=True, timeout=60)
            mounts.append(point)
        go(checks, opt, table)
    finally:
        for point in mounts:
            tool = [shutil.which("fusermount3"), "-u", "-z"] if shutil.which("fusermount3") else ["umount", "-l"]
            subprocess.run([*tool, point])
    (opt.out / "summary.txt").write_text("".join(f"{check.result}\n" for check in checks))
    (opt.out / "rows.txt").write_text("".join(f"{line}\n" for line in table))
    with tarfile.open(opt.out / "logs.tar.xz", "w:xz") as tar:
        tar.add(opt.scratch / "logs", "logs")
    bad = sum(not check.good for check in checks)
    print(f"{len(checks) - bad} of {len(checks)} as expected")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

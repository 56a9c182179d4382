"""What the tests share: the program under test, the fixtures, the checkpoints that megatron-core writes, the final count."""
import collections
import contextlib
import ctypes
import os
import pathlib
import resource
import signal
import subprocess
import sys

import pytest

import checkpoints
import generated
import models
import program
import swept
import venvs

COSTS = {}
BUDGET = 1400  # seconds of a processor that make interop is meant to take


def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends a run wants what is mounted to go, too
    # Daemons become this process's children, so that what they took is counted (prctl(2), PR_SET_CHILD_SUBREAPER).
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
    config.reasons = collections.Counter()


def pytest_collection_modifyitems(session, items):
    """Tells the writer which checkpoints this run needs, so that one process writes all those of one version."""
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in items]
    session.config.wanted = {p["spec"].name for p in params if "spec" in p} | {p["load"].source for p in params if hasattr(p.get("load"), "source")}
    named = [value if isinstance(value, tuple) else (value,) for p in params for value in p.values()]
    session.config.wanted |= {name for names in named for name in names if isinstance(name, str) and name in checkpoints.BY_NAME}


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [u.ru_utime + u.ru_stime for u in used]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """What a test took of the processors, itself and in the processes that it has waited for; a fixture counts with who first asks for it."""
    before = cpu_seconds()
    try:
        return (yield)
    finally:
        COSTS[item.nodeid] = [after - b for after, b in zip(cpu_seconds(), before)]


def pytest_runtest_logreport(report):
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _config.reasons[reason.removeprefix("Skipped: ")] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    global _config
    _config = session.config


def reap_daemons():
    """Of those whose mounts are gone. Only at the end: before it, a Popen may wait for the same process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def print_costs(write_line):
    """MCOREFS_TEST_COSTS=1 (see tests/run.sh): the dearest tests, and each file."""
    files = collections.defaultdict(lambda: [0, 0])
    for name, cost in COSTS.items():
        files[name.partition("::")[0]] = [a + b for a, b in zip(files[name.partition("::")[0]], cost)]
    start = [used - sum(cost[i] for cost in COSTS.values()) for i, used in enumerate(cpu_seconds())]
    shown = sorted(COSTS.items(), key=lambda c: -sum(c[1]))[:60] + sorted(files.items(), key=lambda c: -sum(c[1])) + [("imports", start), ("in all", cpu_seconds())]
    for name, (own, children) in shown:
        write_line(f"cost: {own + children:7.1f} s ({own:.1f} here, {children:.1f} in others)  {name}")


def pytest_terminal_summary(terminalreporter):
    if os.environ.get("MCOREFS_TEST_COSTS"):
        print_costs(terminalreporter.write_line)
    reap_daemons()
    terminalreporter.write_line(f"seed: MCOREFS_TEST_SEED={swept.SEED}")
    terminalreporter.write_line(f"processors: {len(COSTS)} tests took {sum(cpu_seconds()):.0f} s, daemons too; the budget of all files is {BUDGET} s")
    for kind, (value, where) in models.LARGEST.items():
        if where:
            terminalreporter.write_line(f"largest {kind} difference: {value:.1e} ({where})")
    for reason, count in sorted(_config.reasons.items()):
        terminalreporter.write_line(f"skipped: {reason}" + (f" ({count} tests)" if count > 1 else ""))


def pytest_sessionfinish(session):
    """run.sh prints the last line from this file; an error in a fixture is a failure."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    count = {kind: len(stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    if "MCOREFS_COUNTS" in os.environ:
        path = pathlib.Path(os.environ["MCOREFS_COUNTS"])
        path.write_text(f"{count['passed']} {count['failed'] + count['error']} {count['skipped']}\n")


@pytest.fixture(scope="session")
def fixtures():
    return pathlib.Path(os.environ["MCOREFS_FIXTURES"])


@pytest.fixture(scope="session")
def checkpoint(request):
    """checkpoint(spec): the directory in which megatron-core wrote it; skips the test where that version cannot be installed."""
    writer = generated.Writer(request.config.wanted)
    return writer.path


@pytest.fixture
def needs_mount():
    if not program.can_mount():
        pytest.skip("no /dev/fuse here: only exported directories are tested")


@pytest.fixture(scope="session")
def package_path(tmp_path_factory):
    """Where the Python package is installed: a virtual environment of nothing else, its folder of packages."""
    found = sorted(pathlib.Path(program.BINARY).parent.glob("mcorefs-*.whl"))
    if not found:
        pytest.skip("the Python package is missing: make wheel")
    place = tmp_path_factory.mktemp("package") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=program.SECONDS)
    venvs.uv("the wheel", "pip", "install", "--quiet", "--offline", "--no-cache", "--python", place / "bin" / "python", found[-1])
    return next(place.glob("lib/python*/site-packages"))

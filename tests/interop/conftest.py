"""What the tests share: the program under test, the fixtures, the checkpoints that megatron-core writes, the final count."""
import collections
import os
import pathlib
import signal

import pytest

import generated
import models
import program


def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends a run wants what is mounted to go, too
    config.reasons = collections.Counter()


def pytest_collection_modifyitems(session, items):
    """Tells the writer which checkpoints this run needs, so that one process writes all those of one version."""
    specs = {item.callspec.params["spec"].name for item in items if "spec" in getattr(getattr(item, "callspec", None), "params", {})}
    session.config.wanted = specs


def pytest_runtest_logreport(report):
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _config.reasons[reason.removeprefix("Skipped: ")] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    global _config
    _config = session.config


def pytest_terminal_summary(terminalreporter):
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

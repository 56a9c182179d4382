"""-o dataset_cache: `datasets` of several versions map, filter, sort, shuffle and divide a mounted dataset, and find what they have computed again."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import program
import venvs
from swept import todays

HERE = pathlib.Path(__file__).parent
PEER = HERE / "peers" / "dataset_cache.py"
SECONDS = 1800
# Environments by their requirements; "": the main one.
VERSIONS = ["", *todays((name for name in ("datasets2", "datasets3", "datasets4") if (HERE / f"requirements-{name}.txt").exists()), 1)]
SAMPLES = "samples/train-s128-n226"

pytestmark = pytest.mark.usefixtures("needs_mount")


@pytest.fixture(params=VERSIONS, ids=lambda name: name or "main")
def python(request):
    try:
        return venvs.python(request.param, request.param) if request.param else pathlib.Path(sys.executable)
    except venvs.Missing as why:
        pytest.skip(str(why))


@pytest.fixture
def start(python, tmp_path):
    """start(*arguments): a Python process that leaves nothing in the home directory."""
    environment = dict(os.environ, HF_HOME=str(tmp_path / "home"), PYTHONDONTWRITEBYTECODE="1")

    def run(*arguments):
        return subprocess.Popen([python, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    return run


def result(process):
    out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors[-3000:]
    return out


def report(process):
    return json.loads(result(process).splitlines()[-1])


def files_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("view", todays(["hf", SAMPLES], 1))
def test_computed_once(view, start, fixtures, tmp_path):
    source, cache, calls = fixtures / "data" / "tales_text_document", tmp_path / "cache", tmp_path / "calls"
    place = f"data/{source.name}/{view}"
    point = tmp_path / "mount"  # the same for both mounts: programs remember paths
    point.mkdir()

    def computed():
        done = program.run(source, point, "-o", f"dataset_cache={cache}")
        assert done.returncode == 0, done.stderr
        try:
            return report(start(PEER, point / place, calls))
        finally:
            program.unmount(point)

    first = computed()
    assert first["calls"] >= 2 * first["rows"]
    assert not [name for name in first["files"] if name.startswith("tmp")]
    written = [name for name in first["files"] if name.startswith("cache-")]
    assert len(written) == 9  # one of map, two of each with two processes, one of sort and of shuffle, two of the division
    assert files_below(cache) == [f"{source.name}/{view}/{name}" for name in written]
    times = {name: (cache / source.name / view / name).stat().st_mtime_ns for name in written}
    again = computed()
    assert again == first  # no function was called, no file added
    assert {name: (cache / source.name / view / name).stat().st_mtime_ns for name in written} == times


def test_two_programs_at_once(start, fixtures, tmp_path):
    source, cache = fixtures / "data" / "tales_text_document", tmp_path / "cache"
    with program.mounted(source, dataset_cache=cache) as point:
        place = point / "data" / source.name / "hf"
        running = [start(PEER, place, tmp_path / f"calls-{i}") for i in range(2)]
        first, second = map(report, running)
        written = {name for name in os.listdir(place) if name.startswith(("cache-", "tmp"))}
    assert first["rows"] == second["rows"] and len(written) == 9
    assert all(name.startswith("cache-") for name in written)


CLEAN_UP = """
import sys, datasets
dataset = datasets.load_from_disk(sys.argv[1])
print(dataset.cleanup_cache_files())
"""


def test_removed(start, fixtures, tmp_path):
    source, cache = fixtures / "data" / "notes_text_document", tmp_path / "cache"
    with program.mounted(source, dataset_cache=cache) as point:
        place = point / "data" / source.name / "hf"
        report(start(PEER, place, tmp_path / "calls"))
        assert result(start("-c", CLEAN_UP, place)).split() == ["9"]
        assert files_below(cache) == []


SAVE = """
import sys, datasets
rows = {"input_ids": [[1, 2], [3]], "labels": [[10, 20], [30]]}
datasets.Dataset.from_dict(rows).save_to_disk(sys.argv[1])
"""

TOTAL = """
import sys, datasets
dataset = datasets.load_from_disk(sys.argv[1])
column = dataset.column_names[0]
print(sum(dataset.map(lambda row: {"total": sum(row[column])})[:]["total"]))
"""


@pytest.mark.parametrize("python", [""], indirect=True, ids=["main"])
def test_other_rows_of_the_same_files(start, tmp_path):
    """What was computed of one column, or without the token behind each row, is not found for another."""
    cache, source, point = tmp_path / "cache", tmp_path / "both", tmp_path / "mount"
    point.mkdir()
    result(start("-c", SAVE, source))
    for values, total in [({"column": "labels"}, 60), ({"column": "labels", "append_eod": 5}, 70), ({"column": "labels", "append_eod": 6}, 72),
                          ({"column": "input_ids", "append_eod": 6}, 18), ({"column": "labels", "append_eod": 5}, 70)]:
        done = program.run(source, point, *program.options({**values, "dataset_cache": cache}))
        assert done.returncode == 0, done.stderr
        try:
            assert result(start("-c", TOTAL, point / "data" / "both" / "hf")).split() == [str(total)]
        finally:
            program.unmount(point)
    assert len(files_below(cache)) == 4


WITHOUT = """
import errno, sys, datasets
dataset = datasets.load_from_disk(sys.argv[1])
try:
    dataset.map(lambda row: {"length": len(row["input_ids"])})
except OSError as error:
    print(errno.errorcode[error.errno])
datasets.disable_caching()
print(dataset.map(lambda row: {"length": len(row["input_ids"])}).num_rows == dataset.num_rows)
"""


def test_without_the_option(start, fixtures):
    """What the manual says of a mount that takes nothing."""
    source = fixtures / "data" / "tales_text_document"
    with program.mounted(source) as point:
        assert result(start("-c", WITHOUT, point / "data" / source.name / "hf")).split() == ["EROFS", "True"]

"""The Megatron views of a source, mounted or exported."""
import contextlib
import pathlib
import tempfile

import program


@contextlib.contextmanager
def views(source, **options):
    """view(name): the directory of that view, of the latest iteration where `source` has iterations."""
    hf = (pathlib.Path(source) / "config.json").exists()
    if program.can_mount():
        with program.mounted(source, **options) as point:
            yield lambda name: (point if hf else point / "latest") / name
        return
    with tempfile.TemporaryDirectory(prefix="mcorefs-export-") as parent:
        def exported(name):
            place = pathlib.Path(parent) / name.replace("/", "_")
            if not place.exists():
                export(source, name, place, **options)
            return place

        yield exported


def export(source, view, destination, **options):
    done = program.export(source, view, destination, **options)
    assert done.returncode == 0, f"export of {view} of {source}: {done.stderr}"
    return destination

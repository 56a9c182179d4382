"""Directories of a few KB that stand for a checkpoint: what an engine reads besides tensors, and mcorefs.json, which says where these are."""
from __future__ import annotations

import errno
import json
import os
import pathlib
from typing import Any, Mapping, NamedTuple, Optional, Union

from ._library import McorefsError
from ._source import Options, Source, View, option_words

NAME = "mcorefs.json"
VERSION = 2
# Options whose values are paths (fs/cli/option_rows.c, which make lint compares).
PATHS = ("adapter", "base", "cache", "data", "data_args_path", "dataset_cache", "family", "log", "ref", "tokenizer", "tokenizer_id")

Path = Union[str, "os.PathLike[str]"]


class Target(NamedTuple):
    """What is to be opened, and by which identity a stub knew it."""
    source: Path
    view: str
    options: Options
    stub: Optional[Path] = None
    identity: Optional[str] = None

    def check(self, view: View) -> None:
        """ESTALE: it is not what the stub was made of."""
        if self.identity and view.identity != self.identity:
            raise McorefsError(errno.ESTALE, f"{self.stub}: {view.name} of '{self.source}' has changed since this was written, "
                               "or another release of mcorefs wrote it: write it anew")


def _text(found: Mapping[str, Any], key: str, file: Path) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise McorefsError(errno.EINVAL, f"{file}: '{key}' is {json.dumps(value)}, expected a string")
    return value


def _read(file: pathlib.Path) -> Target:
    try:
        found = json.loads(file.read_text())
        version = found["mcorefs_stub"]
    except (ValueError, KeyError, TypeError) as error:
        raise McorefsError(errno.EINVAL, f"{file}: not what mcorefs stub writes: {error}") from None
    if version != VERSION:
        raise McorefsError(errno.ENOTSUP, f"{file}: is of version {version}, and this mcorefs reads {VERSION}: write it anew")
    source, view, options, identity = (_text(found, key, file) for key in ("source", "view", "options", "identity"))
    return Target(source, view, options, file, identity)


def target_of(source: Path, view: Optional[str] = None, options: Options = None) -> Target:
    """What ``source`` stands for, if it is a stub; else itself."""
    file = pathlib.Path(source) / NAME
    if "://" in os.fspath(source) or not file.is_file():
        return Target(source, view or "hf", options)
    target = _read(file)
    if view is None and options is None:
        return target
    return target._replace(view=view or target.view, options=target.options if options is None else options, identity=None)


def _absolute(options: Options) -> str:
    words = []
    for word in option_words(options):
        name, equals, value = word.partition("=")
        if equals and name in PATHS:
            value = os.path.abspath(value)
        words.append((name + equals + value).replace("\\", "\\\\").replace(",", "\\,"))
    return ",".join(words)


def _make(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise McorefsError(errno.EEXIST, f"'{directory}' is not empty, and a stub replaces nothing")


def stub(source: Path, directory: Path, view: str = "hf", options: Options = None) -> pathlib.Path:
    """Writes what an engine wants as a path into ``directory``, which is new or empty: config.json, the tokenizer's files, and mcorefs.json,
    which names the source (an absolute path, or a URL), the view with its iteration, the options and an identity. Tensors stay where they are.

    ``vllm serve directory --load-format mcorefs``, ``mcorefs.load(directory)`` and ``mcorefs.safe_open(directory)`` read them there, and
    refuse (ESTALE) a source that has changed. ``mcorefs stub`` writes the same. Returns the directory.
    """
    to, text = pathlib.Path(directory), os.fspath(source)
    place = text if "://" in text else os.path.abspath(text)
    given = _absolute(options)
    with Source(place, given) as root, root.open(view) as v:
        weights = {tensor.file for tensor in v.tensors()}
        if not any(file.endswith(".safetensors") for file in weights):
            raise McorefsError(errno.EINVAL, f"{v.name} has no safetensors, which engines load: expected a view like hf, hf-fp8 or vllm/tp2")
        _make(to)
        for file in v.files():
            if file.name not in weights and not file.name.endswith(".index.json"):
                (to / file.name).parent.mkdir(parents=True, exist_ok=True)
                (to / file.name).write_bytes(v.read(file.name))
        about = {"mcorefs_stub": VERSION, "source": place, "view": v.name, "options": given, "identity": v.identity}
        (to / NAME).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")
    return to

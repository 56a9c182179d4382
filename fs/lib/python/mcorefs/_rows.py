"""Rows of a dataset as arrays of numpy that lie in the source's own files."""
from __future__ import annotations

import bisect
import errno
import io
import os
from collections.abc import Sequence
from typing import Any, List, NamedTuple, Optional, Union

from ._library import McorefsError
from ._source import Options, Source, View


class _Stretch(NamedTuple):
    """Tokens [first, first + len(array)), mapped where they lie in a file."""
    first: int
    array: Any


def _npy_header(view: View, file: str):
    """The shape and type of an array of numpy, and where its elements begin."""
    import numpy
    start = io.BytesIO(view.read(file, 0, 4096))
    version = numpy.lib.format.read_magic(start)
    read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    return shape, dtype, start.tell()


def _read(view: View, file: str, dtype: Any, begin: int, first: int, end: int) -> Any:
    import numpy
    array = numpy.empty(end - first, dtype)
    if len(array):
        view.readinto(file, array.view(numpy.uint8), begin + first * dtype.itemsize)
    array.flags.writeable = False
    return array


def _mapped(view: View, file: str, dtype: Any, begin: int) -> List[_Stretch]:
    """Of the array's bytes those that lie in files as they are; the others are read when they are asked for."""
    import numpy
    found, files, item = [], {}, dtype.itemsize
    for e in view.file_extents(file, begin):
        size = e.rows * e.width
        if e.kind != "source" or e.at % item or size % item or (e.rows > 1 and not e.width == e.step == e.row_step) or not size:
            continue
        if e.path not in files:
            files[e.path] = numpy.memmap(e.path, numpy.uint8, "r")
        found.append(_Stretch(e.at // item, files[e.path][e.offset:e.offset + size].view(dtype)))
    return sorted(found, key=lambda s: s.first)


class Rows(Sequence):
    """``rows[i]``: the tokens of row ``i``, shape [length], in the dataset's own type, read-only.

    Where a row's tokens lie together in a file of the source (Megatron's ``.bin``), the array is a mapping of that file: nothing is read
    before it is looked at, and nothing is copied. A file that is cut short while it is mapped ends a process that looks at what is gone, as
    with numpy.memmap. Other rows are read by the library.
    """

    def __init__(self, view: View):
        self._view = view
        (self._count,), self._dtype, self._begin = _npy_header(view, "tokens.npy")
        (n,), dtype, begin = _npy_header(view, "offsets.npy")
        self.offsets = _read(view, "offsets.npy", dtype, begin, 0, n)  # of rows in the stream of tokens, shape [rows + 1]
        self._stretches = _mapped(view, "tokens.npy", self._dtype, self._begin)
        self._firsts = [s.first for s in self._stretches]

    @property
    def dtype(self):
        """Of the tokens: numpy's uint16, int32, ..."""
        return self._dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def tokens(self, first: int, end: int):
        """Tokens [first, end) of the stream in which rows follow each other."""
        if not 0 <= first <= end <= self._count:
            raise IndexError(f"there are {self._count} tokens: [{first}, {end}) is no range of them")
        at = bisect.bisect_right(self._firsts, first) - 1
        if at >= 0:
            stretch = self._stretches[at]
            if end - stretch.first <= len(stretch.array):
                return stretch.array[first - stretch.first:end - stretch.first]
        return _read(self._view, "tokens.npy", self._dtype, self._begin, first, end)

    def __getitem__(self, row: Union[int, slice]):
        """A row; of a slice, a list of them."""
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = row.__index__()
        if not -len(self) <= row < len(self):
            raise IndexError(f"there are {len(self)} rows: {row} is none of them")
        row %= len(self)
        return self.tokens(int(self.offsets[row]), int(self.offsets[row + 1]))

    @property
    def is_mapped(self) -> bool:
        """True if all tokens lie in files as they are, so that no row is copied (but one that crosses from a file to the next)."""
        return sum(len(s.array) for s in self._stretches) == self._count

    def close(self) -> None:
        """Arrays that were given out stay."""
        self._view.close()


def _only_dataset(source: Source, path: str) -> str:
    names = [view for view in source.views("data") if view.count("/") == 1]
    if len(names) == 1:
        return names[0].partition("/")[2]
    listed = ", ".join(name.partition("/")[2] for name in names)
    raise McorefsError(errno.EINVAL, f"'{path}' has {len(names)} datasets, and rows() gives those of one: name it{': ' if listed else ''}{listed}")


def rows(source: Union[str, "os.PathLike[str]", Source], name: Optional[str] = None, options: Options = None) -> Rows:
    """The rows of a dataset: documents of Megatron's ``.bin`` and ``.idx``, rows of what ``datasets`` has written.

    ``source``: as Source takes it: ``/corpus/wiki_text_document``, a checkpoint with ``options="data=PATH"``, a Source. ``name``: of the
    dataset, as ``data/NAME`` in a mount; None: the only one. Raises McorefsError.
    """
    if isinstance(source, Source):
        return Rows(source.open(f"data/{name or _only_dataset(source, 'the source')}/npy"))
    with Source(source, options) as root:
        return Rows(root.open(f"data/{name or _only_dataset(root, os.fspath(source))}/npy"))

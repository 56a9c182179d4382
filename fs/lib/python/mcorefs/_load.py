"""load(), stream() and safe_open(): whole checkpoints, tensors as they come, and safetensors' own interface."""
from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from ._arrays import framework_of
from ._library import McorefsError
from ._source import Load, LoadState, Options, Source, TensorInfo, View
from ._stub import target_of

Where = Union[str, "os.PathLike[str]", Source, View]
AHEAD = 2 << 30  # bytes of tensors that stream() may hold


@contextlib.contextmanager
def opened(source: Where, view: Optional[str], options: Options) -> Iterator[View]:
    """The view that is meant, closed at the end unless it is the caller's. A directory that stub() wrote leads to what it names."""
    if isinstance(source, View):
        yield source
        return
    if isinstance(source, Source):
        with source.open(view or "hf") as made:
            yield made
        return
    target = target_of(source, view, options)
    with Source(target.source, target.options) as root, root.open(target.view) as made:
        target.check(made)
        yield made


def chosen(view: View, file: Optional[str], names: Optional[Iterable[Union[str, int, TensorInfo]]]) -> List[TensorInfo]:
    """The tensors of one file, or of these names, or all. EEXIST: several files have one name."""
    if names is not None:
        wanted = [view.find(name) for name in names]
        return [t for t in wanted if file is None or t.file == file]
    if file is not None:
        return view.tensors(file)
    tensors = view.tensors()
    seen: Dict[str, TensorInfo] = {}
    for t in tensors:
        if seen.setdefault(t.name, t) is not t:
            view.find(t.name)
    return tensors


def begin(view: View, tensors: Sequence[TensorInfo], framework: Any, how: Dict[str, Any]) -> Tuple[List[Any], Load]:
    arrays = [framework.empty(t.shape, t.dtype) for t in tensors]
    return arrays, view.start(zip(tensors, arrays), **how)


def load(source: Where, view: Optional[str] = None, device: Any = "cpu", framework: str = "pt", options: Options = None, *,
         file: Optional[str] = None, names: Optional[Iterable[Union[str, int, TensorInfo]]] = None, progress: Optional[Callable[[LoadState], None]] = None,
         threads: int = 0, memory: int = 0, direct: str = "auto") -> Dict[str, Any]:
    """Reads tensors of a view into new memory, in one pass over the source: ``{name: tensor}``, in the order of the view's files.

    ``source``: a path or URL (see Source), a directory that stub() wrote, a Source, or a View. ``view``: "hf", "iter_0000040/hf-fp8",
    "vllm/tp4", ...; None: "hf", or the stub's. ``device``: "cpu", "cuda", "cuda:1", ... of torch. ``framework``: "pt" (tensors of torch),
    "np" (arrays of numpy; BF16 and 8-bit floats need ml_dtypes), "np-bits" (these as uint16 and uint8). ``options``: as Source takes them.

    ``file``: the tensors of this file alone, which views for ranks need ("model-rank-0-part-0.safetensors"). ``names``: these alone (or numbers, or
    TensorInfos). ``progress``: called with a LoadState now and then. ``threads``, ``memory``, ``direct``: as View.start() takes them.

    Shapes and element types are those of the view's files. Raises McorefsError (an OSError): ENOENT, ESTALE, EIO, EINVAL, ENODEV, ...; nothing
    is returned then.
    """
    made = framework_of(framework, device)
    with opened(source, view, options) as v:
        tensors = chosen(v, file, names)
        arrays, work = begin(v, tensors, made, dict(threads=threads, memory=memory, direct=direct))
        with work:
            work.wait(progress)
        return {t.name: made.finished(array) for t, array in zip(tensors, arrays)}


def groups_of(tensors: Sequence[TensorInfo], most: int) -> Iterator[List[TensorInfo]]:
    group: List[TensorInfo] = []
    size = 0
    for t in tensors:
        if group and size + t.bytes > most:
            yield group
            group, size = [], 0
        group.append(t)
        size += t.bytes
    if group:
        yield group


def stream(source: Where, view: Optional[str] = None, device: Any = "cpu", framework: str = "pt", options: Options = None, *,
           file: Optional[str] = None, names: Optional[Iterable[Union[str, int, TensorInfo]]] = None, ahead: int = AHEAD,
           threads: int = 0, memory: int = 0, direct: str = "auto") -> Iterator[Tuple[str, Any]]:
    """Yields ``(name, tensor)`` as tensors arrive: those of a stretch of the view in any order, stretch after stretch.

    ``ahead``: bytes of tensors that may have come or be under way before they are yielded, beyond which only one tensor that is larger goes.
    All else as load() takes it. The end of the iteration says that no source has changed meanwhile; McorefsError says what has gone wrong, and
    that tensors of the same stretch may be of different moments.
    """
    made = framework_of(framework, device)
    how = dict(threads=threads, memory=memory, direct=direct)
    with contextlib.ExitStack() as stack:
        v = stack.enter_context(opened(source, view, options))
        groups = groups_of(chosen(v, file, names), max(ahead // 2, 1))

        def start_next() -> Optional[Tuple[List[TensorInfo], List[Any], Load]]:
            group = next(groups, None)
            if group is None:
                return None
            arrays, work = begin(v, group, made, how)
            stack.callback(work.close)
            return group, arrays, work

        now, following = start_next(), start_next()
        while now:
            group, arrays, work = now
            for i in work:
                array, arrays[i] = arrays[i], None
                yield group[i].name, made.finished(array)
                del array
            work.close()
            now, following = following, start_next() if following else None


class Slice:
    """A tensor of which only what is asked for is read: ``slice[10:20, :, 3]``. Made by safe_open.get_slice()."""

    def __init__(self, view: View, tensor: TensorInfo, framework: Any):
        self._view, self._tensor, self._framework = view, tensor, framework

    def get_shape(self) -> List[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """safetensors' word: "BF16", "F32", ..."""
        return self._tensor.dtype

    def _axes(self, index: Any) -> List[Any]:
        """An index for each axis."""
        index = list(index) if isinstance(index, tuple) else [index]
        shape = self._tensor.shape
        if sum(i is Ellipsis for i in index) > 1:
            raise IndexError("an index has one '...' at most")
        if Ellipsis not in index:
            index.append(Ellipsis)
        at = index.index(Ellipsis)
        missing = len(shape) - len(index) + 1
        if missing < 0:
            raise IndexError(f"tensor '{self._tensor.name}' has {len(shape)} axes, and the index {len(index) - 1}")
        return index[:at] + [slice(None)] * missing + index[at + 1:]

    def __getitem__(self, index: Any) -> Any:
        """Integers, slices (with positive steps) and ``...``, with numpy's meaning. The box around a step's elements is read."""
        box: List[slice] = []
        after: List[Union[int, slice]] = []
        t = self._tensor
        for axis, (i, n) in enumerate(zip(self._axes(index), t.shape)):
            if isinstance(i, slice):
                first, end, step = i.indices(n)
                if step < 0:
                    raise ValueError(f"axis {axis} of tensor '{t.name}': the step of a slice is {step}, expected a positive one")
                box.append(slice(first, max(first, end)))
                after.append(slice(None, None, step))
            elif hasattr(i, "__index__") and not isinstance(i, bool):
                i = i.__index__()
                if not -n <= i < n:
                    raise IndexError(f"axis {axis} of tensor '{t.name}' has {n} elements: {i} is none of them")
                box.append(slice(i % n, i % n + 1))
                after.append(0)
            else:
                raise TypeError(f"an index of tensor '{t.name}' is made of integers, slices and '...', not of {type(i).__name__}")
        array = self._framework.empty([s.stop - s.start for s in box], t.dtype)
        array = self._framework.finished(self._view.fill_one(t, array, box))
        return array[tuple(after)] if any(a != slice(None, None, 1) for a in after) else array


class safe_open:
    """safetensors' ``safe_open``, over a view: keys(), metadata(), get_tensor(), get_slice(), offset_keys(), get_tensors().

    ``safe_open("/runs/llama", framework="pt", device="cpu", view="hf")``; arguments are those of load(). All files of the view are one, or
    ``file`` alone is. Only what is asked for is read.
    """

    def __init__(self, filename: Where, framework: str = "pt", device: Any = "cpu", *, view: Optional[str] = None, options: Options = None,
                 file: Optional[str] = None):
        self._framework = framework_of(framework, device)
        self._stack: Optional[contextlib.ExitStack] = contextlib.ExitStack()
        try:
            self._view = self._stack.enter_context(opened(filename, view, options))
            self._tensors = {t.name: t for t in chosen(self._view, file, None)}
        except BaseException:
            self._stack.close()
            raise

    def _find(self, name: str) -> TensorInfo:
        return self._tensors[name] if name in self._tensors else self._view.find(name)

    def keys(self) -> List[str]:
        """The names of the tensors, in the order of the files."""
        return list(self._tensors)

    offset_keys = keys

    def metadata(self) -> Optional[Dict[str, str]]:
        """``__metadata__`` of the first file with tensors, {"format": "pt"}; None: the view has no safetensors."""
        file = next((t.file for t in self._tensors.values() if t.file.endswith(".safetensors")), None)
        if file is None:
            return None
        size = int.from_bytes(self._view.read(file, 0, 8), "little")
        return json.loads(self._view.read(file, 8, size)).get("__metadata__")

    def get_tensor(self, name: str) -> Any:
        """ENOENT: there is none of this name; the sentence names the nearest."""
        t = self._find(name)
        array = self._framework.empty(t.shape, t.dtype)
        return self._framework.finished(self._view.fill_one(t, array))

    def get_slice(self, name: str) -> Slice:
        return Slice(self._view, self._find(name), self._framework)

    def get_tensors(self) -> Dict[str, Any]:
        """All of them, in one pass."""
        arrays, work = begin(self._view, list(self._tensors.values()), self._framework, {})
        with work:
            work.wait()
        return {name: self._framework.finished(array) for name, array in zip(self._tensors, arrays)}

    def close(self) -> None:
        if self._stack is not None:
            self._stack.close()
            self._stack = None

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self):
        with contextlib.suppress(AttributeError, TypeError):
            self.close()


__all__ = ["McorefsError", "Slice", "load", "safe_open", "stream"]

"""Sources, their views, the files and tensors in these, and loads of tensors."""
from __future__ import annotations

import ctypes
import errno
import os
import re
from ctypes import byref, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library as c
from ._arrays import Memory, Torch, memory_of
from ._handles import Handle
from ._library import McorefsError

Options = Union[str, Mapping[str, Any], None]
DIRECT = {"auto": 0, "never": 1, "always": 2}
KINDS = ("source", "zeros", "memory", "computed")
WAIT_MS = 200  # between looks for Ctrl-C


class IterationInfo(NamedTuple):
    name: str  # "iter_0000040"; "" of a HuggingFace directory
    format: str  # "torch_dist", "torch", "hf", ...
    reason: Optional[str]  # why it cannot be read; None: it is complete
    is_latest: bool


class FileInfo(NamedTuple):
    name: str  # its path in the view
    size: int  # bytes
    mtime_ns: int  # since the epoch


class TensorInfo(NamedTuple):
    number: int  # in the view
    name: str
    dtype: str  # safetensors' word: "BF16", "F32", "F8_E4M3", "I64", ...
    shape: Tuple[int, ...]  # elements
    bytes: int
    file: str  # that it is in
    offset: int  # bytes from the file's start


class ExtentInfo(NamedTuple):
    """``rows`` rows of ``width`` bytes each, ``step`` bytes apart in the tensor; in ``path`` they begin at ``offset`` and lie ``row_step`` bytes apart."""
    kind: str  # "source": bytes of a file, as they are there; "zeros"; "memory": of no file; "computed": cast, merged or transposed
    at: int  # of the first byte, from the tensor's first
    rows: int
    width: int
    step: int
    path: Optional[str]  # None: kind is not "source"
    offset: int
    row_step: int


class LoadState(NamedTuple):
    bytes: int  # of all boxes
    done: int  # that have arrived
    read: int  # from files: more where a stretch was read whole
    cached: int  # of these: that the page cache had
    direct: int  # of these: that O_DIRECT read
    computed: int  # bytes of boxes that were cast, merged or transposed
    threads: int
    engine: str  # how what was not cached is read: "io_uring" or "pread"
    buffers: int  # bytes of memory for what is under way
    gds: str  # GPUDirect Storage: "used", or words with the reason, "..., not used" (docs/LIBRARY.md); "": into host memory
    gds_bytes: int  # of direct: that went from the disk to the GPU


def _text(word: Optional[bytes]) -> Optional[str]:
    return None if word is None else os.fsdecode(word)


def _read_extent(extent: Any) -> ExtentInfo:
    e = extent.contents
    return ExtentInfo(KINDS[e.kind], e.at, e.rows, e.width, e.step, _text(e.path), e.off, e.row_step)


def option_words(options: Options) -> List[str]:
    """["ref=DIR", "no_optim"] of a list as -o takes it, in which a backslash stands before a comma that is meant, or of a dict."""
    if isinstance(options, Mapping):
        return [key if value is True else f"{key}={os.fspath(value) if isinstance(value, os.PathLike) else value}" for key, value in options.items()]
    return [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^,\\])+", options or "")]


def _option_list(options: Options) -> bytes:
    if isinstance(options, str):
        return os.fsencode(options)
    return os.fsencode(",".join(word.replace("\\", "\\\\").replace(",", "\\,") for word in option_words(options)))


class Source:
    """A checkpoint, a HuggingFace directory or datasets, opened.

    ``source``: what ``mcorefs SOURCE MOUNTPOINT`` takes: a checkpoint root, one iteration, a HuggingFace directory, a dataset, or the URL of
    one. ``options``: as ``-o`` takes them, ``"ref=DIR,shard_size=2GB"``, or a dict. Nothing but metadata is read.

    Raises McorefsError: ENOENT, ENODATA, EINVAL, ... with the sentence that a mount would print.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], options: Options = None):
        pointer = c_void_p()
        c.call("open", os.fsencode(source), _option_list(options), byref(pointer))
        self._handle = Handle(pointer, "close", f"the source '{os.fspath(source)}'")

    def iterations(self) -> List[IterationInfo]:
        """By number, those that cannot be read with the reason."""
        def read(it):
            it = it.contents
            return IterationInfo(_text(it.name), _text(it.format), _text(it.reason), bool(it.is_latest))

        with self._handle as pointer:
            return c.collect("iterations", pointer, c.VISIT_ITERATION, read)

    def views(self, of: Optional[str] = None) -> List[str]:
        """Names for open(): of one iteration, or of "data/NAME"; None: of the latest. There may be more than are listed ("vllm/tp16").
        Of "data": "data/NAME" of each dataset, which is no view."""
        with self._handle as pointer:
            return c.collect("views", pointer, c.VISIT_NAME, os.fsdecode, os.fsencode(of) if of is not None else None)

    def refresh(self) -> None:
        """Looks again for iterations that have come, at most once a second."""
        with self._handle as pointer:
            c.call("refresh", pointer)

    def open(self, view: str = "hf") -> "View":
        """A view by its name: "hf" (of the latest iteration), "iter_0000040/hf-fp8", "vllm/tp4", "data/NAME/npy"."""
        return View(self, view)

    def close(self) -> None:
        """Views that are open stay so."""
        self._handle.close()

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class View:
    """One directory that a mount would show: files, and tensors in them. Made by Source.open()."""

    def __init__(self, source: Source, view: str = "hf"):
        def make(pointer):
            made = c_void_p()
            c.call("view_open", pointer, os.fsencode(view), byref(made))
            return made

        self._handle = Handle.below(source._handle, make, "view_close", f"the view '{view}'")
        self._files: Optional[List[FileInfo]] = None
        self._tensors: Optional[List[TensorInfo]] = None
        with self._handle as pointer:
            self.name: str = os.fsdecode(c.ask("view_name", pointer))
            self.identity: str = c.ask("view_identity", pointer).decode()  # another one if a file has come, gone or changed

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # ---- files ----

    def files(self) -> List[FileInfo]:
        """Ordered by the bytes of their names."""
        if self._files is None:
            found, info = [], c.File()
            with self._handle as pointer:
                for i in range(c.ask("file_count", pointer)):
                    c.call("file", pointer, i, byref(info))
                    found.append(FileInfo(os.fsdecode(info.name), info.size, info.mtime_ns))
            self._files = found
        return self._files

    def _find_file(self, pointer, name: str) -> int:
        found = c_size_t()
        c.call("file_find", pointer, os.fsencode(name), byref(found))
        return found.value

    def readinto(self, file: str, buffer: Any, offset: int = 0) -> int:
        """Reads bytes from ``offset`` on into a writable buffer, and returns how many: fewer at the file's end, 0 beyond it."""
        space = memoryview(buffer).cast("B")
        with self._handle as pointer:
            number = self._find_file(pointer, file)
            to = (ctypes.c_char * len(space)).from_buffer(space)
            return c.call("pread", pointer, number, ctypes.addressof(to), len(space), offset)

    def read(self, file: str, offset: int = 0, size: int = -1) -> bytes:
        """``size`` bytes from ``offset`` on; -1: to the file's end. ENOENT: the view has no such file."""
        with self._handle as pointer:
            number, info = self._find_file(pointer, file), c.File()
            c.call("file", pointer, number, byref(info))
            left = max(info.size - offset, 0)
            room = left if size < 0 else min(size, left)
            to = ctypes.create_string_buffer(room + 1)
            got = c.call("pread", pointer, number, to, room, offset)
            return to.raw[:got]

    def file_extents(self, file: str, offset: int = 0, size: int = -1) -> List[ExtentInfo]:
        """Where ``size`` bytes from ``offset`` on lie in the source's files; -1: to the file's end."""
        info = c.File()
        with self._handle as pointer:
            number = self._find_file(pointer, file)
            c.call("file", pointer, number, byref(info))
            left = max(info.size - offset, 0) if size < 0 else size
            return c.collect("file_extents", pointer, c.VISIT_EXTENT, _read_extent, number, offset, left)

    # ---- tensors ----

    def _read_tensors(self, pointer, first: int, count: int) -> List[TensorInfo]:
        names = [file.name for file in self.files()]
        found = (c.Tensor * count)()
        c.call("tensors", pointer, first, count, found)
        return [TensorInfo(first + i, os.fsdecode(t.name), t.dtype.decode(), tuple(t.shape[:t.ndim]), t.bytes, names[t.file], t.off)
                for i, t in enumerate(found)]

    def tensors(self, file: Optional[str] = None) -> List[TensorInfo]:
        """Of all files, in the order of these, and in each by offset; or those of one file. ENOENT: the view has no such file."""
        if self._tensors is None:
            first, number = c_size_t(), c_size_t()
            with self._handle as pointer:
                if file is not None:
                    c.call("file_tensors", pointer, self._find_file(pointer, file), byref(first), byref(number))
                    return self._read_tensors(pointer, first.value, number.value)
                c.call("tensor_count", pointer, byref(number))
                self._tensors = self._read_tensors(pointer, 0, number.value)
        if file is not None:
            self.read(file, 0, 0)  # ENOENT, with its sentence
        return [t for t in self._tensors if t.file == file] if file is not None else self._tensors

    def find(self, tensor: Union[str, int, TensorInfo]) -> TensorInfo:
        """By its name or its number. ENOENT: there is none; EEXIST: several files have it, and its number is needed."""
        if isinstance(tensor, TensorInfo):
            return tensor
        if isinstance(tensor, str):
            found = c_size_t()
            with self._handle as pointer:
                c.call("tensor_find", pointer, os.fsencode(tensor), byref(found))
            tensor = found.value
        tensors = self.tensors()
        if not 0 <= tensor < len(tensors):
            raise McorefsError(errno.ENOENT, f"{self.name}: there is no tensor {tensor}; there are {len(tensors)}")
        return tensors[tensor]

    def extents(self, tensor: Union[str, int, TensorInfo]) -> List[ExtentInfo]:
        """Where the bytes of a tensor lie in the source's files, for programs that read them themselves."""
        number = self.find(tensor).number
        with self._handle as pointer:
            return c.collect("extents", pointer, c.VISIT_EXTENT, _read_extent, number)

    # ---- loads ----

    def start(self, boxes: Iterable[Tuple], *, threads: int = 0, memory: int = 0, direct: str = "auto") -> "Load":
        """Starts to read boxes of tensors into arrays of the caller, in threads of the library, in the order of the source's files.

        Each of ``boxes`` is ``(tensor, array)`` or ``(tensor, array, slices)``: a tensor's name, number or TensorInfo; a tensor of torch (in
        host or CUDA memory, all on one device) or an array of numpy, of the tensor's type and of the box's shape, with any strides; and a
        slice without a step for each axis. No two arrays may share a byte.

        ``threads``: 0: as many as pay. ``memory``: bytes of buffers; 0: 128 MiB. ``direct``: "auto", "never" or "always" past the page cache.
        """
        wanted, arrays = [], []
        for tensor, array, *slices in boxes:
            wanted.append(_wanted(self.find(tensor), array, slices[0] if slices else None))
            arrays.append(array)
        devices = {place.device for *_, place in wanted} or {-1}
        if len(devices) > 1:
            raise McorefsError(errno.EINVAL, f"the arrays of one load are on one device, and these are on {sorted(devices)}")
        if direct not in DIRECT:
            raise McorefsError(errno.EINVAL, f"direct is '{direct}': expected one of {', '.join(DIRECT)}")
        device = devices.pop()
        if device >= 0:
            Torch.settle(device)
        return Load(self, wanted, arrays, c.LoadOptions(device=device, threads=threads, memory=memory, direct=DIRECT[direct]))

    def fill(self, boxes: Iterable[Tuple], **how: Any) -> LoadState:
        """start(), and waits until all arrays are filled. Raises McorefsError if one could not be; then all have undefined content."""
        with self.start(boxes, **how) as load:
            load.wait()
            return load.state()

    def fill_one(self, tensor: TensorInfo, array: Any, slices: Optional[Sequence[slice]] = None) -> Any:
        """Fills an array with a tensor, or with a box of it, and returns the array."""
        wanted = _wanted(tensor, array, slices)
        if wanted[-1].device >= 0:
            self.fill([(tensor, array, slices)])
            return array
        with Load(self, [wanted], [array], c.LoadOptions(device=-1)) as load:
            load.wait()
        return array


Wanted = Tuple[int, Optional[List[int]], Optional[List[int]], Memory]  # a tensor's number, the box's first elements and ends, and where it goes


def _wanted(t: TensorInfo, array: Any, slices: Optional[Sequence[slice]]) -> Wanted:
    if slices is None:
        return t.number, None, None, memory_of(array, t.dtype, t.shape, t.name)
    begin, end = box_of(t, slices)
    return t.number, begin, end, memory_of(array, t.dtype, tuple(e - b for b, e in zip(begin, end)), t.name)


def _describe(box: c.Box, wanted: Wanted) -> None:
    box.tensor, begin, end, place = wanted
    box.to, box.room = place.address, place.room
    if begin is not None and end is not None:
        box.begin, box.end = (c_uint64 * len(begin))(*begin), (c_uint64 * len(end))(*end)
    if place.strides is not None:
        box.strides = (c_int64 * len(place.strides))(*place.strides)


def box_of(t: TensorInfo, slices: Sequence[slice]) -> Tuple[List[int], List[int]]:
    """The first element of each axis, and the one after the last."""
    if len(slices) != len(t.shape) or any(s.step not in (None, 1) for s in slices):
        raise McorefsError(errno.EINVAL, f"tensor '{t.name}': a box of it is a slice without a step for each of its {len(t.shape)} axes")
    ends = [s.indices(n)[:2] for s, n in zip(slices, t.shape)]
    return [begin for begin, _ in ends], [max(begin, end) for begin, end in ends]


class Load:
    """Boxes that are being read. Iterating gives the number of each box when it is done; their arrays must not be touched before."""

    def __init__(self, view: View, wanted: Sequence[Wanted], arrays: List[Any], options: c.LoadOptions):
        boxes = (c.Box * len(wanted))()
        for box, one in zip(boxes, wanted):
            _describe(box, one)

        def make(pointer):
            made = c_void_p()
            c.call("load_start", pointer, boxes, len(wanted), byref(options), byref(made))
            return made

        self._handle = Handle.below(view._handle, make, "load_free", f"the load of '{view.name}'")
        self._handle.keep = arrays

    def next(self, timeout: Optional[float] = None) -> Optional[int]:
        """The number of the next box that is done; None after the last. TimeoutError: none came within ``timeout`` seconds."""
        done, left = c_size_t(), timeout
        with self._handle as pointer:
            while True:
                wait = WAIT_MS if left is None else max(0, min(WAIT_MS, int(left * 1000)))
                try:
                    return done.value if c.call("load_next", pointer, wait, byref(done)) else None
                except McorefsError as error:
                    if error.errno != errno.EAGAIN:
                        raise
                if left is not None:
                    left -= wait / 1000
                    if left <= 0:
                        raise TimeoutError(f"no box was done within {timeout} s")

    def __iter__(self) -> Iterator[int]:
        return iter(self.next, None)

    def wait(self, progress: Optional[Callable[[LoadState], None]] = None) -> None:
        """Until all boxes are done. ``progress`` is called now and then, with state()."""
        for _ in self:
            if progress:
                progress(self.state())

    def cancel(self) -> None:
        """Makes the load end soon, with ECANCELED. Does not wait."""
        with self._handle as pointer:
            c.ask("load_cancel", pointer)

    def state(self) -> LoadState:
        """At any time."""
        s = c.LoadState()
        with self._handle as pointer:
            c.ask("load_state", pointer, byref(s))
        return LoadState(s.bytes, s.done, s.read, s.cached, s.direct, s.computed, s.threads, (s.engine or b"").decode(), s.buffers,
                         (s.gds or b"").decode(), s.gds_bytes)

    def close(self) -> None:
        """Cancels it if it is not done, and waits until nothing is written any more."""
        self._handle.close()

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_) -> None:
        self.close()

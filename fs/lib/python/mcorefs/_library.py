"""libmcorefs.so.0 by ctypes: the structs and functions of mcorefs.h, and errors as exceptions."""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint, c_uint64, c_void_p

NAME = "libmcorefs.so.0"


class McorefsError(OSError):
    """What the library refuses or could not do. ``errno`` is its code (``errno.ESTALE``: a source has changed), ``str()`` its sentence."""

    def __str__(self) -> str:
        return str(self.strerror)


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("text", c_char * 764)]


class Iteration(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("format", c_char_p), ("reason", c_char_p), ("is_latest", c_int), ("reserved", c_uint64 * 4)]


class File(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("size", c_uint64), ("mtime_ns", c_int64), ("reserved", c_uint64 * 4)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("item", c_uint), ("ndim", c_uint), ("shape", POINTER(c_uint64)),
                ("bytes", c_uint64), ("file", c_size_t), ("off", c_uint64), ("reserved", c_uint64 * 4)]


class Box(ctypes.Structure):
    _fields_ = [("tensor", c_size_t), ("begin", POINTER(c_uint64)), ("end", POINTER(c_uint64)), ("to", c_void_p), ("room", c_uint64),
                ("strides", POINTER(c_int64)), ("reserved", c_uint64 * 4)]


class LoadOptions(ctypes.Structure):
    _fields_ = [("device", c_int), ("threads", c_uint), ("memory", c_uint64), ("direct", c_int), ("reserved", c_uint64 * 6)]


class LoadState(ctypes.Structure):
    _fields_ = [("bytes", c_uint64), ("done", c_uint64), ("read", c_uint64), ("cached", c_uint64), ("direct", c_uint64), ("computed", c_uint64),
                ("threads", c_uint), ("engine", c_char_p), ("buffers", c_uint64), ("gds", c_char_p), ("gds_bytes", c_uint64),
                ("reserved", c_uint64 * 6)]


class Extent(ctypes.Structure):
    _fields_ = [("kind", c_int), ("at", c_uint64), ("rows", c_uint64), ("width", c_uint64), ("step", c_uint64), ("path", c_char_p),
                ("off", c_uint64), ("row_step", c_uint64), ("reserved", c_uint64 * 4)]


VISIT_ITERATION = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Iteration))
VISIT_NAME = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p)
VISIT_EXTENT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Extent))

_FUNCTIONS = {
    "version": (c_char_p,),
    "open": (c_int, c_char_p, c_char_p, POINTER(c_void_p), POINTER(Error)),
    "close": (None, c_void_p),
    "refresh": (c_int, c_void_p, POINTER(Error)),
    "iterations": (c_int, c_void_p, VISIT_ITERATION, c_void_p, POINTER(Error)),
    "views": (c_int, c_void_p, c_char_p, VISIT_NAME, c_void_p, POINTER(Error)),
    "view_open": (c_int, c_void_p, c_char_p, POINTER(c_void_p), POINTER(Error)),
    "view_close": (None, c_void_p),
    "view_name": (c_char_p, c_void_p),
    "view_identity": (c_char_p, c_void_p),
    "file_count": (c_size_t, c_void_p),
    "file": (c_int, c_void_p, c_size_t, POINTER(File), POINTER(Error)),
    "file_find": (c_int, c_void_p, c_char_p, POINTER(c_size_t), POINTER(Error)),
    "pread": (c_ssize_t, c_void_p, c_size_t, c_void_p, c_size_t, c_uint64, POINTER(Error)),
    "tensor_count": (c_int, c_void_p, POINTER(c_size_t), POINTER(Error)),
    "tensor": (c_int, c_void_p, c_size_t, POINTER(Tensor), POINTER(Error)),
    "tensors": (c_int, c_void_p, c_size_t, c_size_t, POINTER(Tensor), POINTER(Error)),
    "file_tensors": (c_int, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t), POINTER(Error)),
    "tensor_find": (c_int, c_void_p, c_char_p, POINTER(c_size_t), POINTER(Error)),
    "load_start": (c_int, c_void_p, POINTER(Box), c_size_t, POINTER(LoadOptions), POINTER(c_void_p), POINTER(Error)),
    "load_next": (c_int, c_void_p, c_int, POINTER(c_size_t), POINTER(Error)),
    "load_fill": (c_int, c_void_p, POINTER(Box), c_size_t, POINTER(LoadOptions), POINTER(Error)),
    "load_cancel": (None, c_void_p),
    "load_state": (None, c_void_p, POINTER(LoadState)),
    "load_free": (None, c_void_p),
    "trim": (None,),
    "file_extents": (c_int, c_void_p, c_size_t, c_uint64, c_uint64, VISIT_EXTENT, c_void_p, POINTER(Error)),
    "extents": (c_int, c_void_p, c_size_t, VISIT_EXTENT, c_void_p, POINTER(Error)),
}


def _open() -> ctypes.CDLL:
    """MCOREFS_LIBRARY's, or the package's own, or the machine's."""
    own = pathlib.Path(__file__).with_name(NAME)
    library = ctypes.CDLL(os.environ.get("MCOREFS_LIBRARY") or (str(own) if own.exists() else NAME))
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"mcorefs_{name}", None)
        if function is None:
            raise ImportError(f"{library._name} is older than this package: it has no mcorefs_{name}()")
        function.restype, function.argtypes = result, arguments
    return library


_library = _open()
version: str = _library.mcorefs_version().decode()


def call(name: str, *arguments) -> int:
    """Calls mcorefs_NAME(), which takes an error last. What is not negative is returned."""
    error = Error()
    result = getattr(_library, f"mcorefs_{name}")(*arguments, ctypes.byref(error))
    if result < 0:
        raise McorefsError(-result, error.text.decode(errors="replace") or os.strerror(-result))
    return result


def ask(name: str, *arguments):
    """Calls mcorefs_NAME(), which cannot fail."""
    return getattr(_library, f"mcorefs_{name}")(*arguments)


def collect(name: str, handle, visit_type, read, *arguments) -> list:
    """What mcorefs_NAME() visits, each as read() makes it while it is visited."""
    found: list = []
    raised: list = []

    def visit(_, item):
        try:
            found.append(read(item))
            return 0
        except BaseException as error:  # ctypes would print it, and go on
            raised.append(error)
            return 1

    call(name, handle, *arguments, visit_type(visit), None)
    if raised:
        raise raised[0]
    return found


def trim() -> None:
    """Frees the buffers that a GPU copies from, which the last load has left for the next one."""
    ask("trim")

"""What C has opened, closed when its last user has gone, whatever the order in which Python lets go of things."""
from __future__ import annotations

import errno
import threading
from typing import Any, Optional

from ._library import McorefsError, ask


class Handle:
    """A pointer of the library. Calls that use it, and handles below it, keep it open; close() forbids new ones."""

    def __init__(self, pointer, close: str, what: str, above: Optional["Handle"] = None):
        self._pointer, self._close, self._what, self._above = pointer, close, what, above
        self._users, self._lock = 1, threading.Lock()
        self._closed = False
        self.keep: Any = None  # what C may write to until it is closed

    @classmethod
    def below(cls, above: "Handle", make, close: str, what: str) -> "Handle":
        """make(pointer of above) gives the new pointer."""
        above.take()
        try:
            return cls(make(above._pointer), close, what, above)
        except BaseException:
            above.give()
            raise

    def take(self):
        with self._lock:
            if self._closed:
                raise McorefsError(errno.EBADF, f"{self._what} is closed")
            self._users += 1
        return self._pointer

    def give(self) -> None:
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            ask(self._close, self._pointer)
            self.keep = None
            if self._above:
                self._above.give()

    def __enter__(self):
        return self.take()

    def __exit__(self, *_) -> None:
        self.give()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.give()

    def __del__(self):
        try:
            self.close()
        except (TypeError, AttributeError):  # the interpreter ends: its modules have gone
            pass

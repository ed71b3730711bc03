"""What stores, models and matches have in common: a number that the library checks, and an end."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from . import _library as lib
from . import errors

_Self = TypeVar("_Self", bound="Handle")
_open: weakref.WeakSet[Handle] = weakref.WeakSet()
_later: list[tuple[str, int]] = []  # what Python dropped where it cannot be closed: within a callback, or a store before its match
_NOT_NOW = (errors.Leased, errors.Busy, errors.InCallback)


@contextmanager
def made(end: str, out: lib.Handle) -> Iterator[None]:
    """Around a call that makes what end closes: Ctrl-C is raised when such a call has returned, and nobody would have its number then."""
    try:
        yield
    except BaseException:
        if out.value:
            with suppress(errors.DormouseError):
                lib.call(end, out.value)
        raise


class Handle:
    """A context manager that closes what it stands for. Every call after that raises Closed. All calls may come from any thread."""

    _end: ClassVar[str]  # the function that closes it
    _turn: ClassVar[int]  # when the interpreter ends, the lowest first
    _id: int = 0

    def __init__(self, number: int) -> None:
        self._id, self._pid = number, os.getpid()
        _open.add(self)
        close_dropped()

    @property
    def closed(self) -> bool:
        return self._id == 0

    def _number(self) -> int:
        if self._id == 0:
            raise errors.Closed(f"this {type(self).__name__.lower()} is closed", errors.HANDLE)
        return self._id

    def close(self) -> None:
        """Gives it back. Closing again does nothing."""
        number = self._id
        if number == 0:
            return
        close_dropped()
        try:
            lib.call(self._end, number)
        except (errors.Forked, *_NOT_NOW):
            raise  # it is open still
        except errors.Closed:
            self._id = 0  # its store was closed, or another thread was faster
        except errors.DormouseError:
            self._id = 0
            raise
        else:
            self._id = 0
        close_dropped()  # a store that waited for this match

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its process, and is closed once: it is not copied or pickled. Give the folder's name, and open the store there")

    def __enter__(self: _Self) -> _Self:
        self._number()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if self._id == 0 or self._pid != os.getpid():
            return
        if self._warns():
            warnings.warn(f"a {type(self).__name__.lower()} was not closed", ResourceWarning, source=self, stacklevel=2)
        try:
            self.close()
        except _NOT_NOW:
            _later.append((self._end, self._id))
        except errors.DormouseError:
            pass

    def _warns(self) -> bool:
        return True


def close_dropped() -> None:
    """Closes what Python dropped where it could not be closed, as far as it can be now."""
    waiting = []
    while _later:
        try:
            end, number = _later.pop()
        except IndexError:  # another thread was faster
            break
        try:
            lib.call(end, number)
        except _NOT_NOW:
            waiting.append((end, number))
        except errors.DormouseError:
            pass
    _later.extend(waiting)


def _at_exit() -> None:
    """Closes what is open, while Python can still take a line of the log."""
    close_dropped()
    for h in sorted(_open, key=lambda h: h._turn):
        try:
            if h._pid == os.getpid():
                h.close()
        except errors.DormouseError:
            pass


atexit.register(_at_exit)

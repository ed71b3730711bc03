"""libdormouse.so by ctypes: its structs, its functions, and how its statuses become exceptions. It is loaded by the first call that needs it, so that
a program can import dormouse, fork, and use it then. ctypes gives the GIL back during each call."""

from __future__ import annotations

import ctypes as c
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

from . import errors

ALL = c.c_size_t(-1).value  # as a limit
Handle = c.c_uint64  # of a struct that holds nothing else: passed in the same way
LAYER_FN = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_size_t)
LOG_FN = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p)
DECODE_FN = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32, c.c_int32)


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(c.sizeof(type(self)), **fields)


class Error(Sized):
    _fields_ = [("size", c.c_size_t), ("status", c.c_int32), ("offset", c.c_int64), ("file", c.c_char * 512), ("message", c.c_char * 1024)]


class Call(Sized):
    _fields_ = [("size", c.c_size_t), ("timeout_ms", c.c_int64), ("cancel", c.POINTER(c.c_int32))]


class Span(c.Structure):
    _fields_ = [("start", c.c_size_t), ("len", c.c_size_t), ("hash", c.c_uint8 * 16)]


class Adapter(c.Structure):
    _fields_ = [("hash", c.c_uint8 * 16), ("scale", c.c_float)]


class Prompt(Sized):
    _fields_ = [
        ("size", c.c_size_t), ("tokens", c.c_void_p), ("n_tokens", c.c_size_t), ("spans", c.POINTER(Span)), ("n_spans", c.c_size_t),
        ("adapters", c.POINTER(Adapter)), ("n_adapters", c.c_size_t), ("scope", c.c_char_p), ("scope_start", c.c_size_t),
    ]  # fmt: skip


class Piece(c.Structure):
    _fields_ = [
        ("mem", c.c_void_p), ("bytes", c.c_size_t), ("count", c.c_size_t), ("row_stride", c.c_size_t), ("elem_stride", c.c_size_t),
        ("heads", c.c_size_t), ("head_stride", c.c_size_t),
    ]  # fmt: skip


class Rows(c.Structure):
    _fields_ = [("first", c.c_size_t), ("pieces", c.POINTER(Piece)), ("n_pieces", c.c_size_t)]


class PutOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("codec", c.c_char_p), ("compression", c.c_char_p), ("no_store", c.c_int32), ("keep_states", c.c_int32)]


class PutResult(Sized):
    _fields_ = [("size", c.c_size_t), ("tokens", c.c_size_t), ("blocks", c.c_size_t), ("records", c.c_size_t), ("reused", c.c_size_t), ("bytes", c.c_int64)]


class Restored(Sized):
    _fields_ = [("size", c.c_size_t), ("tokens", c.c_size_t), ("reason", c.c_int32), ("reason_at", c.c_size_t)]


class Deleted(Sized):
    _fields_ = [("size", c.c_size_t), ("blocks", c.c_size_t), ("records", c.c_size_t), ("refs", c.c_size_t), ("sessions", c.c_size_t), ("bytes", c.c_int64)]


class RefOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("pinned", c.c_int32), ("priority", c.c_int32), ("ttl_ms", c.c_int64)]


class CompactOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("live_share", c.c_double), ("all", c.c_int32)]


class Compacted(Sized):
    _fields_ = [
        ("size", c.c_size_t), ("segments", c.c_size_t), ("records", c.c_size_t), ("bytes", c.c_int64), ("before", c.c_int64), ("after", c.c_int64),
    ]  # fmt: skip


class Plane(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("tensor", c.c_size_t), ("first", c.c_size_t), ("rows", c.c_size_t), ("codec", c.c_char_p),
        ("data", c.c_void_p), ("bytes", c.c_size_t), ("codes", c.c_void_p), ("codes_bytes", c.c_size_t),
    ]  # fmt: skip


VIEW_FN = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(Plane))

_P, _S, _Z, _I = c.c_void_p, c.c_char_p, c.c_size_t, c.c_int32
_SIGNATURES: dict[str, list[Any]] = {
    "set_log": [LOG_FN, _P], "open": [_S, _S, _P, _P], "close": [Handle], "suspend": [Handle, _P], "resume": [Handle, _P],
    "pressure": [Handle, _I, _P], "sync": [Handle, _P], "verify": [Handle, _P, _P, _Z, _P], "stats": [Handle, _P, _Z, _P],
    "hash": [_P, _Z, _P], "hash_file": [_S, _P], "register": [Handle, _S, _P, _P], "fingerprint": [Handle, _P], "model_close": [Handle],
    "retire": [Handle, _P], "probe": [Handle, _P, _Z, _P, _P], "prefetch": [Handle, _P, _Z, _P, _P], "match_prompt": [Handle, _P, _Z, _P, _P, _P],
    "match_close": [Handle], "restore": [Handle, _P, _Z, _P, _P], "restore_layers": [Handle, _P, _Z, LAYER_FN, _P, _P, _P],
    "state_bytes": [Handle, _Z, _P], "put": [Handle, _P, _P, _Z, _P, _P, _P], "extend": [Handle, _P, _P, _Z, _P, _P, _P],
    "view": [Handle, VIEW_FN, _P, _P], "set_ref": [Handle, _S, _P, _P, _P], "delete_ref": [Handle, _S, _P], "delete": [Handle, _P, _P, _P],
    "delete_scope": [Handle, _S, _P, _P], "last_error": [_P],
    "models": [Handle, _P, _P, _Z, _P], "refs": [Handle, _P, _P, _Z, _P], "notes": [Handle, _P, _P, _Z, _P], "explain": [Handle, _P, _Z, _P, _P, _Z, _P],
    "checkpoint": [Handle, _P], "shrink": [Handle, c.c_int64, _P, _P], "compact": [Handle, _P, _P, _P],
    "llama_attach": [Handle, _P, _P, _S, _S, DECODE_FN, _P, _P, _P], "llama_close": [Handle], "llama_info": [Handle, _P, _Z, _P],
    "llama_model": [Handle, _P], "llama_restore": [Handle, _P, _I, _P, _P], "llama_prefill": [Handle, _P, _Z, _I, _P],
    "llama_save": [Handle, _P, _I, _P, _P], "llama_capture": [Handle, _P, _I, _P], "llama_reset": [Handle, _I],
    "llama_truncate": [Handle, _I, _Z], "llama_recheck": [Handle, _P, _Z, _P], "llama_set_adapters": [Handle, _P, _P, _Z, _P], "llama_trim": [Handle],
}  # fmt: skip

_lock = threading.Lock()
_loaded: c.CDLL | None = None
_called: dict[str, Any] = {}  # functions, by what follows dormouse_
_reasons: dict[int, str] = {}


def library() -> c.CDLL:
    """The library that DORMOUSE_LIBRARY names, or else the one beside this file."""
    global _loaded
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            path = os.environ.get("DORMOUSE_LIBRARY") or str(Path(__file__).with_name("libdormouse.so"))
            try:
                lib = c.CDLL(path)
            except OSError as err:
                raise ImportError(f"dormouse: {err}: install with pip install ./python, or set DORMOUSE_LIBRARY to a libdormouse.so") from err
            for name, types in _SIGNATURES.items():
                f = getattr(lib, "dormouse_" + name)
                f.argtypes, f.restype = types, c.c_int32
            lib.dormouse_version.restype = lib.dormouse_reason_text.restype = lib.dormouse_llama_function_name.restype = c.c_char_p
            lib.dormouse_reason_text.argtypes, lib.dormouse_llama_function_name.argtypes = [c.c_int32], [c.c_size_t]
            if lib.dormouse_abi_version() < 1:
                raise ImportError(f"dormouse: {path} is of another version of dormouse.h")
            _loaded = lib
        return _loaded


def _reset() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_reset)


def call(name: str, *args: Any) -> None:
    """Calls dormouse_NAME, and raises what it answers."""
    f = _called.get(name)
    if f is None:
        f = _called[name] = getattr(library(), "dormouse_" + name)
    status: int = f(*args)
    if status:
        raise error(library(), status)


def json_of(name: str, *args: Any) -> Any:
    """Calls a function that gives JSON, with a larger buffer when it does not fit."""
    room = 1 << 16
    while True:
        buf, needed = c.create_string_buffer(room), c.c_size_t()
        try:
            call(name, *args, buf, room, c.byref(needed))
        except errors.DormouseError as err:
            if err.status != errors.BUFFER:
                raise
            room = 2 * needed.value
        else:
            return json.loads(buf.value)


def error(lib: c.CDLL, status: int) -> errors.DormouseError:
    """This thread's last error."""
    e = Error()
    lib.dormouse_last_error(c.byref(e))
    message = errors.FORKED_HELP if status == errors.FORKED else e.message.decode("utf-8", "replace")
    file = e.file.decode("utf-8", "surrogateescape") or None
    return errors.BY_STATUS.get(status, errors.DormouseError)(message, status, file, e.offset if e.offset >= 0 else None)


def reason(number: int) -> str:
    """A dormouse_restored.reason in words."""
    text = _reasons.get(number)
    if text is None:
        got: bytes = library().dormouse_reason_text(number)
        text = got.decode()
        if text:  # not in a process that was forked
            _reasons[number] = text
    return text


class Cancel:
    """Ends calls that were given it, soon after another thread calls set. Like threading.Event."""

    def __init__(self) -> None:
        self._flag = c.c_int32(0)

    def set(self) -> None:
        self._flag.value = 1

    def clear(self) -> None:
        self._flag.value = 0

    def is_set(self) -> bool:
        return self._flag.value != 0


_LONGEST = 10 * 365 * 86400.0


def limits(timeout: float | None, cancel: Cancel | None) -> Any:
    """A dormouse_call, or None. timeout is in seconds; None: as long as it takes."""
    if timeout is None and cancel is None:
        return None
    made = Call()
    if timeout is not None:
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}: expected more than 0 seconds, or None for no limit")
        if timeout < _LONGEST:
            made.timeout_ms = max(1, math.ceil(timeout * 1000))
    if cancel is not None:
        if not isinstance(cancel, Cancel):
            raise TypeError(f"cancel is a {type(cancel).__name__}: expected a dormouse.Cancel")
        if cancel.is_set():  # where there is little to do, the library would do it
            raise errors.Cancelled("the call was cancelled before it began", 5)
        made.cancel = c.pointer(cancel._flag)
    return c.byref(made)


def text(what: str, value: str) -> bytes:
    """A string for C, which would end at a zero byte."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}: expected a str")
    if "\0" in value:
        raise ValueError(f"{what} has a zero byte in it: {value!r}")
    return value.encode("utf-8")


def path(what: str, value: str | bytes | os.PathLike[Any]) -> bytes:
    """A file's name for C."""
    name = os.fsencode(value)
    if b"\0" in name:
        raise ValueError(f"{what} has a zero byte in it: {value!r}")
    return name


def size(what: str, value: int, most: int = 2**31 - 1) -> int:
    """A number for C, where a negative one would be a huge one."""
    if not 0 <= value <= most:
        raise ValueError(f"{what} is {value}: expected 0 to {most}")
    return value

"""A store: a folder with the caches of models."""

from __future__ import annotations

import ctypes as c
import json
import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from . import _library as lib
from .descriptor import Descriptor
from .handles import Handle, made
from .memory import Array, bytes_of
from .model import Deleted, Model


class Store(Handle):
    """Opens, or makes, the store in a folder. One process may have it open at a time, or several read-only.

    Sizes are in bytes; budget is what all files may take; durability is "process" (a kill loses nothing that was put) or "power"; codec is how rows are
    stored: "" is "q8_0", which is lossy and takes half the room of 16-bit floats; "raw" gives back the same bits; "q4r" takes two fifths. eviction is "lru", "fifo",
    "cost-aware" or "depth-cap" with depth_cap tokens; high_water and low_water are the shares of the budget between which the background evicts. 0 and "" choose. timeout, here and elsewhere, is in seconds; cancel
    ends the call when another thread sets it.
    """

    _end, _turn = "close", 2

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        budget: int = 0,
        min_free: int = 0,
        max_blocks: int = 0,
        durability: str = "",
        codec: str = "",
        compression: str = "",
        segment_bytes: int = 0,
        checkpoint_ms: int = 0,
        checkpoint_bytes: int = 0,
        read_only: bool = False,
        allow_shared_dir: bool = False,
        eviction: str = "",
        depth_cap: int = 0,
        high_water: float = 0,
        low_water: float = 0,
        timeout: float | None = None,
        cancel: lib.Cancel | None = None,
    ) -> None:
        options = {
            "budget": budget, "min_free": min_free, "max_blocks": max_blocks, "durability": durability, "codec": codec, "compression": compression,
            "segment_bytes": segment_bytes, "checkpoint_ms": checkpoint_ms, "checkpoint_bytes": checkpoint_bytes, "read_only": read_only,
            "allow_shared_dir": allow_shared_dir, "eviction": eviction, "depth_cap": depth_cap, "high_water": high_water, "low_water": low_water,
        }  # fmt: skip
        path = lib.path("the folder's name", folder)
        out = lib.Handle()
        with made("close", out):
            lib.call("open", path, json.dumps(options).encode(), lib.limits(timeout, cancel), c.byref(out))
            super().__init__(out.value)

    def register(self, descriptor: Descriptor, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Model:
        """Registers a model, or finds it."""
        if not isinstance(descriptor, Descriptor):
            raise TypeError(f"descriptor is a {type(descriptor).__name__}: expected a dormouse.Descriptor")
        out = lib.Handle()
        lib.call("register", self._number(), descriptor.to_json().encode(), lib.limits(timeout, cancel), c.byref(out))
        return Model(out.value, self, descriptor)

    def suspend(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Makes everything durable and gives back locks, maps and files, until resume."""
        lib.call("suspend", self._number(), lib.limits(timeout, cancel))

    def resume(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        lib.call("resume", self._number(), lib.limits(timeout, cancel))

    def pressure(self, level: int, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Gives back memory when the system is short of it: level 1 moderate, 2 low, 3 critical. Nothing goes from the disk."""
        lib.call("pressure", self._number(), lib.size("level", level), lib.limits(timeout, cancel))

    def sync(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """When it returns, what was put and deleted is durable, and what was deleted is in no file."""
        lib.call("sync", self._number(), lib.limits(timeout, cancel))

    def verify(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Verified:
        """Compares every byte of every file."""
        got = lib.json_of("verify", self._number(), lib.limits(timeout, cancel))
        damage = [Damage(d["file"], d["offset"], d["what"], d.get("expected", ""), d.get("found", "")) for d in got["damage"]]
        return Verified(damage, got["notes"], got["files"], got["bytes"], got["records"])

    def stats(self) -> dict[str, Any]:
        """Figures of the store: those of dormouse_stats. "budget" and "disk_bytes" say what its files may take and what they take, "text" all in a few lines."""
        got: dict[str, Any] = lib.json_of("stats", self._number())
        return got

    def models(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> list[ModelInfo]:
        """The models of the store by name, the newest version of each name first."""
        return [ModelInfo(**m) for m in lib.json_of("models", self._number(), lib.limits(timeout, cancel))]

    def refs(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> list[Ref]:
        """The refs of the store by name."""
        got = lib.json_of("refs", self._number(), lib.limits(timeout, cancel))
        return [
            Ref(r["name"], r["model"], r["tokens"], r["stored"], r["pinned"], r["priority"], _time(r["set_ms"]), _time(r["expires_ms"]), _time(r["used_ms"]))
            for r in got
        ]

    def checkpoint(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Makes everything durable that was put and deleted, and moves it from the log to the index."""
        lib.call("checkpoint", self._number(), lib.limits(timeout, cancel))

    def shrink(self, bytes: int, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> int:
        """Evicts until the store's files take so many bytes or less, and gives what they take then: more, where the rest is pinned or in use."""
        out = c.c_int64()
        lib.call("shrink", self._number(), lib.size("bytes", bytes, 2**63 - 1), lib.limits(timeout, cancel), c.byref(out))
        return out.value

    def compact(self, *, live_share: float = 0, all: bool = False, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Compacted:
        """Rewrites segments with a smaller share of live bytes than live_share, 0: one half; with all, every one to which nothing is appended. Nothing is evicted."""
        options, out = lib.CompactOptions(live_share=live_share, all=all), lib.Compacted()
        lib.call("compact", self._number(), c.byref(options), lib.limits(timeout, cancel), c.byref(out))
        return Compacted(out.segments, out.records, out.bytes, out.before, out.after)

    def delete_ref(self, name: str, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Takes a name off."""
        lib.call("delete_ref", self._number(), lib.text("name", name), lib.limits(timeout, cancel))

    def delete_scope(self, scope: str, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Deleted:
        """Deletes everything of a scope. It is durable when it returns; sync removes the bytes."""
        out = lib.Deleted()
        lib.call("delete_scope", self._number(), lib.text("scope", scope), lib.limits(timeout, cancel), c.byref(out))
        return Deleted.of(out)


@dataclass(frozen=True)
class ModelInfo:
    """A model of the store, and how much of it is stored. error says why its descriptor cannot be read."""

    name: str
    fingerprint: str
    latest: bool
    blocks: int
    records: int
    bytes: int
    error: str


@dataclass(frozen=True)
class Ref:
    """A name on a prefix of so many tokens. Times are in seconds since 1970; None: never, or not known."""

    name: str
    model: str
    tokens: int
    stored: bool
    pinned: bool
    priority: int
    set_at: float | None
    expires_at: float | None
    used_at: float | None


def _time(ms: int) -> float | None:
    return ms / 1000 if ms else None


@dataclass(frozen=True)
class Compacted:
    """What a compaction rewrote and moved, and what all files took before and take after it."""

    segments: int
    records: int
    bytes: int
    before: int
    after: int


@dataclass(frozen=True)
class Damage:
    """What verify found in one place."""

    file: str
    offset: int
    what: str
    expected: str
    found: str


@dataclass(frozen=True)
class Verified:
    """What verify looked at, and the damage that it found: none, if all is well."""

    damage: list[Damage]
    notes: list[str]
    files: int
    bytes: int
    records: int


def version() -> str:
    """The library's release. "" in a process that was forked from one that uses it."""
    got: bytes = lib.library().dormouse_version()
    return got.decode()


def hash(data: Array) -> str:
    """The hash by which weights and tokenizers are named: of bytes, or of anything else with a buffer, of all its bytes. A str is encoded first."""
    out = c.create_string_buffer(33)
    with ExitStack() as hold:
        at, n, _keep = bytes_of(hold, "data", data)
        lib.call("hash", at, n, out)
    return out.value.decode()


def hash_file(path: str | os.PathLike[str]) -> str:
    """The hash of all bytes of a file."""
    out = c.create_string_buffer(33)
    lib.call("hash_file", lib.path("the file's name", path), out)
    return out.value.decode()


_LEVELS = {-4: logging.DEBUG, 0: logging.INFO, 4: logging.WARNING, 8: logging.ERROR}
_log_fns: list[Any] = []  # stores that are open may call any of them


def log_to(logger: logging.Logger) -> None:
    """Where the log of stores goes that are opened from now on: by default nowhere."""

    def line(_: int | None, level: int, text: bytes) -> None:
        logger.log(_LEVELS.get(level, logging.INFO), "%s", text.decode("utf-8", "replace"))

    _log_fns.append(lib.LOG_FN(line))
    lib.call("set_log", _log_fns[-1], None)

"""A model's caches: what is stored of a prompt, and how it comes back."""

from __future__ import annotations

import ctypes as c
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _library as lib
from . import lost
from .descriptor import Descriptor
from .handles import Handle, made
from .memory import AllRows, Prompt, Tokens, prompt_of, rows_of

if TYPE_CHECKING:
    from .store import Store


@dataclass(frozen=True)
class Restored:
    """tokens are usable; every row beyond is zero. reason says why not more, and at which position."""

    tokens: int
    reason: str
    reason_at: int

    @classmethod
    def of(cls, r: lib.Restored) -> Restored:
        return cls(r.tokens, lib.reason(r.reason), r.reason_at)


@dataclass(frozen=True)
class Put:
    """The prompt is now stored up to tokens."""

    tokens: int
    blocks: int
    records: int
    reused: int
    bytes: int


@dataclass(frozen=True)
class Deleted:
    """What a deletion took."""

    blocks: int
    records: int
    refs: int
    sessions: int
    bytes: int

    @classmethod
    def of(cls, d: lib.Deleted) -> Deleted:
        return cls(d.blocks, d.records, d.refs, d.sessions, d.bytes)


@dataclass(frozen=True)
class Explained:
    """A block of the matched prefix: the tokens [start, end). groups are "stored", "missing", "damaged", … for each group of the model."""

    key: str
    start: int
    end: int
    shared: bool
    groups: list[str]


@dataclass(frozen=True)
class Elsewhere:
    """Another model that has more of the prompt. differs are fields with their value there and here: (field, have, want)."""

    name: str
    fingerprint: str
    tokens: int
    differs: list[tuple[str, str, str]]
    error: str


@dataclass(frozen=True)
class Explanation:
    """How much of a prompt would be reused, and what stands in the way of more. str() says it in a few lines."""

    text: str
    prompt: int
    tokens: int
    reason: str
    reason_at: int
    blocks: list[Explained]
    elsewhere: list[Elsewhere]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Plane:
    """A plane of a stored block: positions [first, first+rows) of tensor, as they lie in the file."""

    tensor: int
    first: int
    rows: int
    codec: str
    data: bytes


class Model(Handle):
    """A model of a store. Prompts are Prompt, or token ids: a list, or anything with a buffer of integers, which is not copied if it is int32.

    Rows are one entry a tensor of the descriptor, in its order: an array of shape (n, width), Rows of several such, or None to leave a tensor out.
    Or they are one array of shape (tensors, n, width), which is quickest to say. Arrays are numpy's, or anything with the buffer protocol, of the
    tensor's dtype or uint8, with any positive strides. They are never copied or kept.
    """

    _end, _turn = "model_close", 1

    def __init__(self, number: int, store: Store, descriptor: Descriptor) -> None:
        super().__init__(number)
        self.store, self.descriptor = store, descriptor

    def _warns(self) -> bool:
        return False  # it holds nothing

    def _number(self) -> int:
        self.store._number()
        return super()._number()

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits."""
        out = c.create_string_buffer(33)
        lib.call("fingerprint", self._number(), out)
        return out.value.decode()

    def retire(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Deletes everything of this model."""
        lib.call("retire", self._number(), lib.limits(timeout, cancel))

    def probe(self, prompt: Prompt | Tokens, limit: int | None = None, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Restored:
        """How many leading tokens are stored, at most limit, without a lease or a trace."""
        out = lib.Restored()
        with ExitStack() as hold:
            p, most = prompt_of(hold, prompt, limit)
            lib.call("probe", self._number(), c.byref(p), most, lib.limits(timeout, cancel), c.byref(out))
        return Restored.of(out)

    def explain(self, prompt: Prompt | Tokens, limit: int | None = None, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Explanation:
        """Says why a prompt would, or would not, be reused. It reads every stored byte of the prompt."""
        with ExitStack() as hold:
            p, most = prompt_of(hold, prompt, limit)
            got = lib.json_of("explain", self._number(), c.byref(p), most, lib.limits(timeout, cancel))
        blocks = [Explained(**b) for b in got.pop("blocks")]
        elsewhere = [
            Elsewhere(m["name"], m["fingerprint"], m["tokens"], [(d["field"], d["have"], d["want"]) for d in m["differs"]], m["error"])
            for m in got.pop("elsewhere")
        ]
        return Explanation(**got, blocks=blocks, elsewhere=elsewhere)

    def notes(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> dict[str, bytes]:
        """The model's notes by name: what a runtime keeps with it."""
        got = lib.json_of("notes", self._number(), lib.limits(timeout, cancel))
        return {n["name"]: bytes.fromhex(n["value"]) for n in got}

    def prefetch(self, prompt: Prompt | Tokens, limit: int | None = None, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> int:
        """Reads the stored prefix ahead, so that a restore soon after finds it in memory. Gives its tokens."""
        out = c.c_size_t()
        with ExitStack() as hold:
            p, most = prompt_of(hold, prompt, limit)
            lib.call("prefetch", self._number(), c.byref(p), most, lib.limits(timeout, cancel), c.byref(out))
        return out.value

    def match(self, prompt: Prompt | Tokens, limit: int | None = None, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Match:
        """Finds the longest stored prefix of at most limit tokens, and holds on to it until the match is closed. A runtime that needs to evaluate the last
        token gives len(tokens)-1 as limit."""
        out, found = lib.Handle(), lib.Restored()
        with ExitStack() as hold:
            p, most = prompt_of(hold, prompt, limit)
            hold.enter_context(made("match_close", out))
            lib.call("match_prompt", self._number(), c.byref(p), most, lib.limits(timeout, cancel), c.byref(out), c.byref(found))
            return Match(out.value, self, Restored.of(found))

    def put(
        self,
        prompt: Prompt | Tokens,
        rows: AllRows,
        *,
        codec: str = "",
        compression: str = "",
        keep_states: int = 0,
        timeout: float | None = None,
        cancel: lib.Cancel | None = None,
    ) -> Put:
        """Stores rows of a prompt: of any positions, if all before them are stored or given."""
        return _put("put", self._number(), self, prompt, rows, (codec, compression, keep_states), lib.limits(timeout, cancel))

    def set_ref(
        self,
        name: str,
        prefix: Prompt | Tokens,
        *,
        pinned: bool = False,
        priority: int = 0,
        ttl: float | None = None,
        timeout: float | None = None,
        cancel: lib.Cancel | None = None,
    ) -> None:
        """Puts a name on a stored prefix: a pin, which is never evicted, or a bookmark. ttl is in seconds; None: for ever."""
        if ttl is not None and not 0 < ttl < 10**9:
            raise ValueError(f"ttl is {ttl!r}: expected more than 0 seconds, less than 10**9, or None")
        options = lib.RefOptions(pinned=pinned, priority=lib.size("priority", priority, 254), ttl_ms=0 if ttl is None else math.ceil(ttl * 1000))
        with ExitStack() as hold:
            p, _ = prompt_of(hold, prefix)
            lib.call("set_ref", self._number(), lib.text("name", name), c.byref(p), c.byref(options), lib.limits(timeout, cancel))

    def delete(self, prefix: Prompt | Tokens, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Deleted:
        """Deletes a prefix and everything that goes on from it. It is durable when it returns; Store.sync removes the bytes."""
        out = lib.Deleted()
        with ExitStack() as hold:
            p, _ = prompt_of(hold, prefix)
            lib.call("delete", self._number(), c.byref(p), lib.limits(timeout, cancel), c.byref(out))
        return Deleted.of(out)


class Match(Handle):
    """The longest stored prefix of a prompt, which stays until the match is closed."""

    _end, _turn = "match_close", 0

    def __init__(self, number: int, model: Model, found: Restored) -> None:
        super().__init__(number)
        self.model, self.found = model, found

    @property
    def tokens(self) -> int:
        """How many tokens are stored."""
        return self.found.tokens

    def restore(self, rows: AllRows, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Restored:
        """Writes the matched prefix into memory. Every byte is checked before; damage makes tokens smaller, and so do arrays that end earlier: the match stays that
        short then, give longer ones to a new match. An array that nobody holds but this call is refused (BadRows): what is written into a copy is lost."""
        number = self._number()
        if sys.getrefcount(rows) <= lost.ALONE:
            lost.refuse(rows, self.model.descriptor.tensors, sys._getframe(1))
        out = lib.Restored()
        with ExitStack() as hold:
            r, n = rows_of(hold, self.model.descriptor.tensors, rows, write=True, apart=True)
            lib.call("restore", number, r, n, lib.limits(timeout, cancel), c.byref(out))
        return Restored.of(out)

    def restore_layers(
        self,
        rows: AllRows,
        ready: Callable[[int, int], None],
        *,
        timeout: float | None = None,
        cancel: lib.Cancel | None = None,
    ) -> Restored:
        """restore, in the order of the layers: ready(layer, tokens) when all rows of a layer are there. If tokens becomes smaller, all layers come again. It
        must not call the store (InCallback); what it raises ends the calls to it, and is raised when the restore is over."""
        number = self._number()
        if sys.getrefcount(rows) <= lost.ALONE:
            lost.refuse(rows, self.model.descriptor.tensors, sys._getframe(1))
        raised: list[BaseException] = []

        def tell(_: int | None, layer: int, tokens: int) -> None:
            try:
                if not raised:
                    ready(layer, tokens)
            except BaseException as err:
                raised.append(err)

        out = lib.Restored()
        with ExitStack() as hold:
            r, n = rows_of(hold, self.model.descriptor.tensors, rows, write=True, apart=True)
            fn = lib.LAYER_FN(tell)
            lib.call("restore_layers", number, r, n, fn, None, lib.limits(timeout, cancel), c.byref(out))
        if raised:
            raise raised[0]
        return Restored.of(out)

    def extend(
        self,
        prompt: Prompt | Tokens,
        rows: AllRows,
        *,
        codec: str = "",
        compression: str = "",
        keep_states: int = 0,
        timeout: float | None = None,
        cancel: lib.Cancel | None = None,
    ) -> Put:
        """Model.put for a prompt that goes on from this match, which keeps the prefix meanwhile."""
        return _put("extend", self._number(), self.model, prompt, rows, (codec, compression, keep_states), lib.limits(timeout, cancel))

    def state_bytes(self, tensor: int) -> int:
        """The size of the stored state of a tensor of a state group, 0 if there is none."""
        out = c.c_int64()
        lib.call("state_bytes", self._number(), lib.size("tensor", tensor), c.byref(out))
        return out.value

    def planes(self, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> list[Plane]:
        """Copies of the stored planes, unchecked and undecoded."""
        planes: list[Plane] = []
        raised: list[BaseException] = []

        def take(_: int | None, at: Any) -> int:
            try:
                p = at.contents
                planes.append(Plane(p.tensor, p.first, p.rows, p.codec.decode(), c.string_at(p.data, p.bytes)))
            except BaseException as err:
                raised.append(err)
            return len(raised)

        fn = lib.VIEW_FN(take)
        lib.call("view", self._number(), fn, None, lib.limits(timeout, cancel))
        if raised:
            raise raised[0]
        return planes


def _put(name: str, number: int, model: Model, prompt: Prompt | Tokens, rows: AllRows, how: tuple[str, str, int], limits: Any) -> Put:
    codec, compression, keep_states = how
    options, out = lib.PutOptions(keep_states=lib.size("keep_states", keep_states)), lib.PutResult()
    if codec:
        options.codec = lib.text("codec", codec)
    if compression:
        options.compression = lib.text("compression", compression)
    with ExitStack() as hold:
        p, _ = prompt_of(hold, prompt)
        r, n = rows_of(hold, model.descriptor.tensors, rows, False)
        lib.call(name, number, c.byref(p), r, n, c.byref(options), limits, c.byref(out))
    return Put(out.tokens, out.blocks, out.records, out.reused, out.bytes)

"""llama.cpp beneath Python: the KV cache of a context that is yours goes into a store and comes back.

    session = dormouse.llama.attach(store, llm)                       # a llama_cpp.Llama, of llama-cpp-python
    session = dormouse.llama.attach(store, ctypes.CDLL("libllama.so"), context=pointer, path="model.gguf")

The library is called by the addresses of its functions, so any build of llama.cpp will do. What of which models can be kept, and what is checked, is in
docs/llamacpp.md; what each option means, in capi/dormouse_llama.h.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import _library as lib
from .descriptor import Descriptor
from .errors import DormouseError, WrongLineage
from .handles import Handle, made
from .memory import Adapter, Prompt, Tokens, adapters_of, prompt_of
from .model import Model, Put, Restored
from .store import hash_file

if TYPE_CHECKING:
    from .store import Store


class _Batch(c.Structure):
    """llama_batch."""

    _fields_ = [
        ("n_tokens", c.c_int32), ("token", c.c_void_p), ("embd", c.c_void_p), ("pos", c.c_void_p), ("n_seq_id", c.c_void_p), ("seq_id", c.c_void_p),
        ("logits", c.c_void_p),
    ]  # fmt: skip


def _address(handle: c.CDLL, name: str) -> int:
    """Of a function; 0 if there is none."""
    try:
        return c.cast(getattr(handle, name), c.c_void_p).value or 0
    except AttributeError:
        return 0


def _functions(handle: c.CDLL) -> Any:
    """A dormouse_llama_functions."""
    names: list[str] = []
    while name := lib.library().dormouse_llama_function_name(len(names)):
        names.append(name.decode())
    return (c.c_size_t * (1 + len(names)))((1 + len(names)) * c.sizeof(c.c_size_t), *(_address(handle, name) for name in names))


def _function(handle: c.CDLL, name: str, *types: Any) -> Callable[..., int]:
    """A function of the library, without touching what another module says of its types."""
    address = _address(handle, name)
    if not address:
        raise ValueError(f"{handle!r} has no {name}: is it libllama?")
    return c.CFUNCTYPE(c.c_int32, *types)(address)


@dataclass(frozen=True)
class Info:
    """How states of a context are kept. mode is "rows" (restorable up to any token), "hybrid" or "opaque"; batch_tokens is what prefill evaluates at a
    time; deviation is how far what the context computes was from what is stored: above 1 it is refused."""

    mode: str
    why: str
    fingerprint: str
    batch_tokens: int
    deviation: float


class _Decoding(threading.local):
    """What the decode function did in this thread's last call, which is where it is called."""

    ran = False
    raised: BaseException | None = None


class Session(Handle):
    """A llama.cpp context that is attached to a store; see attach. Calls for one context must not overlap. It is closed before the context is freed."""

    _end, _turn = "llama_close", 1

    def __init__(self, number: int, store: Store, keep: object, decoding: _Decoding, adapters: Sequence[Adapter]) -> None:
        super().__init__(number)
        self.store, self._keep, self._decoding, self.adapters = store, keep, decoding, tuple(adapters)

    def _number(self) -> int:
        self.store._number()
        return super()._number()

    def _call(self, name: str, *args: Any) -> None:
        _call(self._decoding, name, self._number(), *args)

    def _prompt(self, hold: ExitStack, given: Prompt | Tokens) -> Any:
        """With the adapters that the context has, unless the prompt names some."""
        prompt = given if isinstance(given, Prompt) else Prompt(given)
        if not prompt.adapters and self.adapters:
            prompt = replace(prompt, adapters=self.adapters)
        return c.byref(prompt_of(hold, prompt)[0])

    def restore(self, prompt: Prompt | Tokens, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Restored:
        """Brings the longest stored prefix into an empty sequence, at most all but the last token, which has to be evaluated for its logits."""
        out = lib.Restored()
        with ExitStack() as hold:
            self._call("llama_restore", self._prompt(hold, prompt), lib.size("sequence", sequence), lib.limits(timeout, cancel), c.byref(out))
        return Restored.of(out)

    def prefill(self, prompt: Prompt | Tokens, start: int, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Evaluates the tokens from start on, in a sequence that holds those before; the logits of the last one are there then."""
        with ExitStack() as hold:
            self._call("llama_prefill", self._prompt(hold, prompt), lib.size("start", start), lib.size("sequence", sequence), lib.limits(timeout, cancel))

    def save(self, prompt: Prompt | Tokens, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Put:
        """Stores what a sequence holds of a prompt. It may hold more."""
        out = lib.PutResult()
        with ExitStack() as hold:
            self._call("llama_save", self._prompt(hold, prompt), lib.size("sequence", sequence), lib.limits(timeout, cancel), c.byref(out))
        return Put(out.tokens, out.blocks, out.records, out.reused, out.bytes)

    def capture(self, prompt: Prompt | Tokens, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """For a loop of your own around llama_decode, after every batch of at most info().batch_tokens: copies what llama.cpp is about to forget."""
        with ExitStack() as hold:
            self._call("llama_capture", self._prompt(hold, prompt), lib.size("sequence", sequence), lib.limits(timeout, cancel))

    def reset(self, sequence: int = 0) -> None:
        """Says that you emptied a sequence and filled it without the session. Not for shifted positions."""
        self._call("llama_reset", lib.size("sequence", sequence))

    def truncate(self, tokens: int, sequence: int = 0) -> None:
        """Says that you removed the positions behind so many tokens, before you evaluate others there. In a sliding-window model call it whenever you removed
        positions, whatever you evaluate there, also the same tokens: WrongLineage says that the rows of the window before them are not there any more, or were not
        restored: empty the sequence and restore. What is evaluated there is then refused by a save, which without this call may not see it."""
        self._call("llama_truncate", lib.size("sequence", sequence), lib.size("tokens", tokens))

    def recheck(self, adapters: Sequence[Adapter] = (), *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        """Says which LoRA adapters the context has now, and compares what it computes."""
        given = adapters_of(adapters)
        self._call("llama_recheck", given, len(adapters), lib.limits(timeout, cancel))
        self.adapters = tuple(adapters)

    def set_adapters(
        self, adapters: Sequence[tuple[int, Adapter]] = (), *, timeout: float | None = None, cancel: lib.Cancel | None = None
    ) -> None:
        """Sets the context's LoRA adapters, in place of all that were set, and compares what it computes: a program that sets them in no other way cannot forget
        to say so. Each is the address of a llama_adapter_lora, and what it is."""
        said = [adapter for _, adapter in adapters]
        loaded = (c.c_void_p * len(said))(*(address for address, _ in adapters))
        self._call("llama_set_adapters", loaded, adapters_of(said), len(said), lib.limits(timeout, cancel))
        self.adapters = tuple(said)

    def trim(self) -> None:
        """Gives back memory that is kept between calls."""
        self._call("llama_trim")

    def info(self) -> Info:
        return Info(**lib.json_of("llama_info", self._number()))

    def model(self) -> Model:
        """The context's model: for probe, set_ref, delete and retire. Its rows are llama.cpp's."""
        out = lib.Handle()
        self._call("llama_model", c.byref(out))
        return Model(out.value, self.store, Descriptor("", "", "", "", ()))


def _call(decoding: _Decoding, name: str, *args: Any) -> None:
    """Calls dormouse_NAME, and raises what the decode function raised in it."""
    decoding.ran, decoding.raised = False, None
    try:
        lib.call(name, *args)
    except Exception:
        raised, decoding.raised = decoding.raised, None
        if raised is not None:
            raise raised from None
        raise


def _tokens_of(prompt: Prompt | Tokens) -> list[int]:
    tokens: Any = prompt.tokens if isinstance(prompt, Prompt) else prompt
    return list(tokens)


def _watch(context: Any, session: LlamaSession) -> None:
    """Tells the session of what its Llama takes back, when it does: llm.generate removes what the last prompt does not share with the next one, and afterwards
    nothing tells of it where the tokens are the same."""
    sessions: weakref.WeakSet[LlamaSession] | None = getattr(context, "_dormouse_sessions", None)
    if sessions is None:
        sessions, remove = weakref.WeakSet(), getattr(context, "kv_cache_seq_rm", None)
        if remove is None:  # another release: save compares tokens
            return

        def removed(seq_id: int, p0: int, p1: int) -> bool:
            watching = [s for s in sessions if not s.closed]
            had = watching[0]._held(max(0, seq_id)) if watching else 0
            done: bool = remove(seq_id, p0, p1)
            if done is not False and p0 < had:
                for s in watching:
                    s._took_back(max(0, p0), max(0, seq_id))
            return done

        context._dormouse_sessions, context.kv_cache_seq_rm = sessions, removed
    sessions.add(session)


def _same(a: Any, b: Any) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class LlamaSession(Session):
    """The context of a llama_cpp.Llama. restore and prefill tell it what it holds, so that llm(…), llm.generate and create_chat_completion evaluate the rest only."""

    def __init__(self, llm: Any, clear: Callable[[], None], held: Callable[[int], int], *rest: Any) -> None:
        super().__init__(*rest)
        self._llm, self._clear, self._held = llm, clear, held
        self._known = array("i")  # what the session saw in the sequence
        self._asked = Prompt(self._known)  # what it was asked for last: whose data it is, and where images are

    def _holds(self, prompt: Prompt | Tokens, n: int | None = None) -> None:
        tokens = array("i", _tokens_of(prompt))
        self._asked = replace(prompt if isinstance(prompt, Prompt) else Prompt(()), tokens=tokens)
        self._known = tokens[:n]
        self._llm.n_tokens = len(self._known)
        self._llm.input_ids[: self._llm.n_tokens] = self._known

    def _took_back(self, n: int, sequence: int) -> None:
        try:
            self.truncate(n, sequence)
        except WrongLineage:
            pass  # save says so of a prompt that reaches there
        except DormouseError:
            return
        if sequence == 0:
            self._known = self._known[:n]

    def restore(self, prompt: Prompt | Tokens, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Restored:
        """Replaces what the Llama holds by the longest stored prefix. Where nothing is stored it holds nothing afterwards."""
        self._call("llama_reset", lib.size("sequence", sequence))  # before the context is touched: the session may be closed, and the context freed
        self._llm.reset()
        self._clear()
        self._holds(prompt, 0)  # whose data comes next is known, even if this fails
        got = super().restore(prompt, sequence, timeout=timeout, cancel=cancel)
        self._holds(prompt, got.tokens)
        return got

    def prefill(self, prompt: Prompt | Tokens, start: int, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> None:
        self._decoding.ran = False
        try:
            super().prefill(prompt, start, sequence, timeout=timeout, cancel=cancel)
        except BaseException:
            if self._decoding.ran:  # it was cut short
                self._holds(prompt, self._held(sequence))
            raise
        self._holds(prompt)

    def save(self, prompt: Prompt | Tokens | None = None, sequence: int = 0, *, timeout: float | None = None, cancel: lib.Cancel | None = None) -> Put:
        """Stores what the Llama holds: the prompt, if one is given, or all that was evaluated last, with what was written. That is the data of the scope for which
        was restored or evaluated last, from its scope_start on, or from where the Llama was given other tokens."""
        held = array("i", self._llm.input_ids[: self._llm.n_tokens].tolist())
        same = _same(held, self._known)
        if same < len(self._known):  # the Llama took these back and evaluated others, and _watch did not see it
            with suppress(WrongLineage):  # save says so of a prompt that reaches there
                self.truncate(same)
        put = super().save(self._all_of(held) if prompt is None else prompt, sequence, timeout=timeout, cancel=cancel)
        self._known = held
        return put

    def _all_of(self, held: Tokens) -> Prompt:
        asked: Any = self._asked.tokens
        if self._asked.scope_start > (len(asked) if self._asked.scope else 0):
            return self._asked  # a mistake: it is refused, however long the answer was
        same = _same(held, asked)
        spans = [replace(s, len=min(s.len, same - s.start)) for s in self._asked.spans if s.start < same]
        return replace(self._asked, tokens=held, scope_start=min(self._asked.scope_start, same), spans=spans)


def attach(
    store: Store,
    llama: Any,
    *,
    context: int | None = None,
    path: str | os.PathLike[str] | None = None,
    memo: str | os.PathLike[str] | None = None,
    adapters: Sequence[Adapter] | None = None,
    timeout: float | None = None,
    cancel: lib.Cancel | None = None,
    **options: Any,
) -> Session:
    """Finds out how states of a context can be kept, and registers its model. llama is a llama_cpp.Llama, or libllama as ctypes.CDLL with the address of a
    llama_context; path is the file from which the model was loaded, and memo a file that remembers what was read from it: without one, all of it is read.
    adapters are the LoRA adapters that are set on the context. options are those of dormouse_llama_attach: codec, rows_only, weights, …

    It evaluates a few tokens: attach before anything else is evaluated. The Llama, or the context, must outlive the session."""
    llm = None
    if hasattr(llama, "input_ids"):
        llm, low = llama, sys.modules["llama_cpp.llama_cpp"]
        handle, context = low._lib, int(llm.ctx)
        path = llm.model_path if path is None else path
        options.setdefault("rope_base", llm.context_params.rope_freq_base)
        options.setdefault("rope_scale", llm.context_params.rope_freq_scale)
        if adapters is None and llm.lora_path:
            adapters = [Adapter(bytes.fromhex(hash_file(llm.lora_path)), llm.lora_scale)]
    else:
        handle = llama
    if isinstance(context, (str, bytes)):
        raise TypeError(f"context is a {type(context).__name__}: expected the address of a llama_context")
    if not context:
        raise ValueError("context is 0 or missing: expected the address of a llama_context")
    adapters = adapters or ()
    if memo is not None:
        options["memo"] = os.fspath(memo)
    if adapters:
        options["adapters"] = [{"hash": bytes(a.hash).hex(), "scale": a.scale} for a in adapters_of(adapters)]
    file = None if path is None else lib.path("path", path)

    decoding = _Decoding()
    decode_batch = _function(handle, "llama_decode", c.c_void_p, _Batch)

    def decode(_: int | None, tokens: int, n: int, first: int, sequence: int) -> int:
        decoding.ran = True
        try:
            pos, ones, seq, logits = array("i", range(first, first + n)), array("i", [1]) * n, c.c_int32(sequence), bytearray(n)
            logits[n - 1] = 1
            seqs = (c.c_void_p * n)(*([c.addressof(seq)] * n))
            flags = (c.c_char * n).from_buffer(logits)
            return decode_batch(context, _Batch(n, tokens, None, pos.buffer_info()[0], ones.buffer_info()[0], c.addressof(seqs), c.addressof(flags)))
        except BaseException as err:
            decoding.raised = err
            return -1

    callback = lib.DECODE_FN(decode)
    out = lib.Handle()
    functions = _functions(handle)
    said = json.dumps(options, allow_nan=False, ensure_ascii=False).encode()
    with made("llama_close", out):
        _call(decoding, "llama_attach", store._number(), functions, context, file, said, callback, None, lib.limits(timeout, cancel), c.byref(out))
    rest = (out.value, store, (callback, handle, llama), decoding, adapters)
    if llm is None:
        return Session(*rest)
    memory = _address(handle, "llama_get_memory")
    of = c.CFUNCTYPE(c.c_void_p, c.c_void_p)(memory)
    remove = _function(handle, "llama_memory_seq_rm", c.c_void_p, c.c_int32, c.c_int32, c.c_int32)

    def clear() -> None:
        remove(of(context), -1, -1, -1)

    last = _function(handle, "llama_memory_seq_pos_max", c.c_void_p, c.c_int32)

    def held(sequence: int) -> int:
        return last(of(context), sequence) + 1

    session = LlamaSession(llm, clear, held, *rest)
    _watch(llm._ctx, session)
    return session

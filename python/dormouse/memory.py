"""The caller's memory as C sees it: prompts, and rows. Nothing is copied where the memory is what C expects."""

from __future__ import annotations

import ctypes as c
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from . import _library as lib
from .descriptor import DTYPES, Tensor
from .errors import BadRows

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Numpy(Protocol):
    """A numpy array, whose type says that it is a Buffer from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


Array: TypeAlias = "Buffer | Numpy"
Tokens: TypeAlias = "Sequence[int] | Buffer | Numpy"

_FORMATS = {"f32": "f", "f16": "eH", "bf16": "H"}  # what may stand for a value; bytes always may
_ORDER = ("@", "=", "<" if sys.byteorder == "little" else ">")  # ctypes writes "<f": this machine's order of bytes
_PLAIN = {dtype: tuple(order + f for order in ("", *_ORDER) for f in formats) for dtype, formats in _FORMATS.items()}
_WORDS = {"e": "float16", "f": "float32", "d": "float64", "B": "uint8", "H": "uint16"}


@dataclass(frozen=True)
class Span:
    """Positions [start, start+len) stand for something other than their token ids: an image, a clip. hash is 16 bytes of its content."""

    start: int
    len: int
    hash: bytes


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, by 16 bytes of the hash of its file."""

    hash: bytes
    scale: float


@dataclass(frozen=True)
class Prompt:
    """Token ids, and what else a model is conditioned on. From scope_start on the data is scope's: a user's, a conversation's. scope_start counts tokens, not
    characters. One beyond the last token, or without a scope, is refused: the user's data would be everybody's."""

    tokens: Tokens
    scope: str = ""
    scope_start: int = 0
    spans: Sequence[Span] = ()
    adapters: Sequence[Adapter] = ()

    def prefix(self, n: int) -> Prompt:
        """The first n tokens, to be put or looked for: a beginning of the system prompt is everybody's, as it is in the whole. n lies inside no span."""
        all: Any = self.tokens
        if not 0 <= n <= len(all):
            raise ValueError(f"a prefix of {n} tokens of a prompt of {len(all)}")
        start = min(self.scope_start, n) if self.scope_start <= len(all) else self.scope_start  # a mistake stays one
        return replace(self, tokens=all[:n], scope_start=start, spans=[s for s in self.spans if s.start + s.len <= n])


@dataclass(frozen=True)
class Rows:
    """The rows of the positions first, first+1, … of one tensor, array after array, each of shape (n, width). No arrays: this tensor is left out."""

    arrays: Sequence[Array]
    first: int = 0


AllRows: TypeAlias = "Sequence[Array | Rows | None] | Numpy"  # an entry for each tensor, or one array of shape (tensors, n, width)


class _PyBuffer(c.Structure):
    """CPython's Py_buffer."""

    _fields_ = [
        ("buf", c.c_void_p), ("obj", c.c_void_p), ("len", c.c_ssize_t), ("itemsize", c.c_ssize_t), ("readonly", c.c_int), ("ndim", c.c_int),
        ("format", c.c_void_p), ("shape", c.c_void_p), ("strides", c.c_void_p), ("suboffsets", c.c_void_p), ("internal", c.c_void_p),
    ]  # fmt: skip


_FULL_RO = 0x11C  # PyBUF_FULL_RO
_get, _release = c.pythonapi.PyObject_GetBuffer, c.pythonapi.PyBuffer_Release
_get.argtypes, _get.restype = [c.py_object, c.c_void_p, c.c_int], c.c_int
_release.argtypes, _release.restype = [c.c_void_p], None


def address(view: memoryview) -> int:
    """Where the first element lies, as long as the view is not released. memoryview does not say."""
    b = _PyBuffer()
    _get(view, c.byref(b), _FULL_RO)
    try:
        return int(b.buf or 0)
    finally:
        _release(c.byref(b))


def _view(hold: ExitStack, what: str, given: object) -> memoryview:
    try:
        view = memoryview(given)  # type: ignore[arg-type]
    except (TypeError, ValueError) as err:
        raise TypeError(f"{what}: {type(given).__name__} has no buffer: expected a numpy array, a memoryview, … ({err})") from None
    hold.callback(view.release)
    if view.suboffsets:
        raise BadRows(f"{what}: its rows are behind pointers", 21)
    return view


def _plain(view: memoryview) -> str:
    """A view's format without its order of bytes, if that is this machine's. What it says of sizes is itemsize's to say: "=l" has 4 bytes, and ctypes writes "<l" for 8."""
    return view.format[1:] if view.format.startswith(_ORDER) else view.format


def bytes_of(hold: ExitStack, what: str, given: object) -> tuple[int, int, object]:
    """Address and number of the bytes of anything with a buffer, in the order of its elements, and what keeps them where they are. ctypes would take a str, too, as
    wchar_t: four bytes each."""
    if isinstance(given, str):
        raise TypeError(f"{what} is a str: expected bytes, as {what}.encode() gives")
    view = _view(hold, what, given)
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return address(view), view.nbytes, view


def tokens_of(hold: ExitStack, tokens: Tokens) -> tuple[int, int, object]:
    """Address and number of token ids, and what keeps them where they are. int32 that lie one after the other are not copied."""
    if isinstance(tokens, (list, tuple, range)):
        ids = array("i", tokens)
    else:
        try:
            view = memoryview(tokens)  # type: ignore[arg-type]
        except TypeError:
            ids = array("i", tokens)  # type: ignore[arg-type]
        else:
            hold.callback(view.release)
            kind = _plain(view)
            if view.ndim != 1 or kind not in tuple("bBhHiIlLqQ"):
                order = ", in the order of bytes of other machines," if kind[:1] in tuple("<>!") else ""
                raise TypeError(f"token ids are of the type {view.format!r}{order} in {view.ndim} dimensions: expected integers in one")
            if kind in ("i", "l") and view.itemsize == 4 and view.c_contiguous:
                return address(view), len(view), view
            word = {1: "b", 2: "h", 4: "i", 8: "q"}[view.itemsize]
            ids = array("i", memoryview(view.tobytes()).cast(word if kind.islower() else word.upper()).tolist())  # type: ignore[call-overload]
    return ids.buffer_info()[0], len(ids), ids


def prompt_of(hold: ExitStack, given: Prompt | Tokens, limit: int | None = None) -> tuple[lib.Prompt, int]:
    """A dormouse_prompt that is good until hold is closed, and a limit as C takes it."""
    prompt = given if isinstance(given, Prompt) else Prompt(given)
    at, n, keep = tokens_of(hold, prompt.tokens)
    out = lib.Prompt(tokens=at, n_tokens=n, scope_start=lib.size("scope_start", prompt.scope_start))
    out._keep = keep
    if prompt.scope:
        out.scope = lib.text("scope", prompt.scope)
    if prompt.spans:
        spans = [lib.Span(lib.size("a span's start", s.start), lib.size("a span's len", s.len), _hash(s.hash)) for s in prompt.spans]
        out.spans, out.n_spans = (lib.Span * len(spans))(*spans), len(spans)
    if prompt.adapters:
        out.adapters, out.n_adapters = adapters_of(prompt.adapters), len(prompt.adapters)
    return out, lib.ALL if limit is None else lib.size("limit", limit)


def adapters_of(given: Sequence[Adapter]) -> c.Array[lib.Adapter]:
    """An array of dormouse_adapter."""
    return (lib.Adapter * len(given))(*(lib.Adapter(_hash(a.hash), a.scale) for a in given))


def _hash(given: bytes) -> c.Array[c.c_uint8]:
    if isinstance(given, str):
        raise TypeError("a hash is a str: expected 16 bytes, as bytes.fromhex(dormouse.hash(…)) gives")
    raw = memoryview(given).tobytes()
    if len(raw) != 16:
        raise ValueError(f"a hash has 16 bytes, not {len(raw)}")
    return (c.c_uint8 * 16).from_buffer_copy(raw)


def rows_of(hold: ExitStack, tensors: Sequence[Tensor], rows: AllRows, write: bool, apart: bool = False) -> tuple[object, int]:
    """An array of dormouse_rows that is good until hold is closed. apart refuses two that are the same memory. An entry is an array of rows from position 0 on, Rows, or None; one array of
    shape (tensors, n, width) is all entries."""
    if len(rows) != len(tensors):
        raise BadRows(f"rows of {len(rows)} tensors: the model has {len(tensors)}", 21)
    views: list[object] = []  # what keeps memory where it is
    said: list[int] = []  # fields of dormouse_piece
    shape: list[tuple[int, int]] = []  # of each tensor: first, and how many pieces
    if _stacked(views, said, tensors, rows):
        shape = [(0, 1)] * len(tensors)
        rows = ()
    for given, tensor in zip(rows, tensors):
        if isinstance(given, Rows):
            for a in given.arrays:
                said += _packed(views, tensor, a) or _piece(hold, tensor, a, write)
            shape.append((lib.size("first", given.first), len(given.arrays)))
        elif given is not None:
            said += _packed(views, tensor, given) or _piece(hold, tensor, given, write)
            shape.append((0, 1))
        else:
            shape.append((0, 0))
    if apart:
        starts = [at for at in said[:: len(lib.Piece._fields_)] if at]
        if len(set(starts)) < len(starts):
            raise BadRows("two tensors have the same memory, as in [array] * n: what is restored into one would be lost in the other", 21)
    hold.callback(views.clear)
    pieces, out = array("Q", said), list[int]()
    at, step = pieces.buffer_info()[0], c.sizeof(lib.Piece)
    for first, n in shape:
        out += (first, at, n)
        at += n * step
    views.append(pieces)
    return (lib.Rows * len(tensors)).from_buffer(array("Q", out)), len(tensors)


def _stacked(views: list[object], said: list[int], tensors: Sequence[Tensor], rows: object) -> bool:
    """Adds the dormouse_pieces of one array of shape (tensors, n, width), which is quicker to say than an array for each tensor."""
    try:
        view = memoryview(rows)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    if view.readonly or not view.c_contiguous or view.ndim != 3 or not view.nbytes:
        return False
    (count, n, width), kinds = view.shape or (0, 0, 0), {(t.dtype, t.width) for t in tensors}
    if any(view.format not in _PLAIN.get(dtype, ()) or w != width for dtype, w in kinds):
        return False
    views.append(view)
    at, size = c.addressof(c.c_char.from_buffer(view)), view.nbytes // count
    for i in range(count):
        said += (at + i * size, size, n, 0, 0, 0, 0)
    return True


def _packed(views: list[object], tensor: Tensor, given: object) -> tuple[int, int, int, int, int, int, int] | None:
    """The fields of a dormouse_piece of an array of the most common kind, quickly: rows are given for each tensor of each call."""
    try:
        view = memoryview(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if view.readonly or not view.c_contiguous or view.ndim != 2 or view.format not in _PLAIN.get(tensor.dtype, ()) or not view.nbytes:
        return None
    shape = view.shape or ()
    if shape[1] != tensor.width:
        return None
    views.append(view)
    return c.addressof(c.c_char.from_buffer(view)), view.nbytes, shape[0], 0, 0, 0, 0


def _piece(hold: ExitStack, tensor: Tensor, given: object, write: bool) -> tuple[int, int, int, int, int, int, int]:
    """The fields of a dormouse_piece of an array of shape (n, width) or (heads, n, width / heads) of the tensor's dtype, or (n, row_bytes) of uint8, with any
    strides that C can say."""
    view = _view(hold, str(tensor), given)
    kind = _plain(view)
    got = f"an array of {_WORDS.get(kind, kind)} of shape {view.shape}"

    def bad(why: str) -> BadRows:
        return BadRows(f"{tensor} ({tensor.dtype}, width {tensor.width}): {got}: {why}", 21)

    if write and view.readonly:
        raise bad("it cannot be written to")
    values, size = DTYPES[tensor.dtype]
    as_bytes = kind in ("B", "b", "c")
    if kind[:1] in tuple("<>!"):
        raise bad("its values are in the order of bytes of other machines")
    if not as_bytes and kind not in tuple(_FORMATS.get(tensor.dtype, "")):
        raise bad(f"expected {tensor.dtype} or uint8")
    if view.ndim not in (2, 3):
        raise bad("expected two dimensions, rows and values, or three: heads, rows and values")
    (n, width), (row, elem) = (view.shape or ())[-2:], (view.strides or ())[-2:]
    heads, head = ((view.shape or ())[0], (view.strides or ())[0]) if view.ndim == 3 else (1, 0)
    want = tensor.row_bytes if as_bytes else tensor.width
    if heads * width != want and (want > 0 or view.ndim == 3):
        raise bad(f"expected rows of {want}" if view.ndim == 2 else f"expected heads with {want} values of a row together")
    if n == 0 or width == 0:
        return 0, 0, n if width else 0, 0, 0, 0, 0
    if width == 1:
        elem = view.itemsize
    if n == 1:
        row = max(width * elem, 1)
    if heads == 1:
        head = 0
    if row <= 0 or elem <= 0 or head < 0:
        raise bad(f"strides of {view.strides} bytes: C has positive ones only")
    if as_bytes and elem != 1:
        raise bad("the bytes of a row are not one after the other")
    span = (heads - 1) * head + (n - 1) * row + (width - 1) * elem + view.itemsize
    return address(view), span, n, row, size if as_bytes else elem, heads if heads > 1 else 0, head

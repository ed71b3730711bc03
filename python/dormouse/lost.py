"""Rows that a restore would write into memory which is freed when the call returns: match.restore([k.transpose(1, 0, 2).reshape(n, -1), …]) writes into
copies that reshape has made, and the runtime's cache stays as it was. That is refused, where Python's counts of references prove it. Where they cannot
tell (a view whose memory is another library's, a release of Python that counts in another way) the rows are taken."""

from __future__ import annotations

import ctypes as c
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .descriptor import Tensor
from .errors import BadRows

if TYPE_CHECKING:
    from types import FrameType

# What sys.getrefcount says, in a method, of an argument that nobody else holds: itself counts until 3.13, and the caller's stack until 3.10. From 3.14 on
# an argument may be borrowed from a variable of the caller, which is looked at then. 0: unknown, so nothing is refused.
ALONE = 0
if sys.implementation.name == "cpython" and sys.version_info < (3, 15):
    ALONE = 3 if sys.version_info < (3, 11) else 2 if sys.version_info < (3, 14) else 1


def refuse(rows: Any, tensors: Sequence[Tensor], caller: FrameType) -> None:
    """Raises BadRows if memory of rows is freed when the call returns. The caller has found that nobody but its frame, or the frame of who called it, holds rows."""
    if sys.version_info >= (3, 14) and any(v is rows for v in caller.f_locals.values()):
        return
    if not isinstance(rows, (list, tuple)):  # one array of all tensors
        if _freed(rows):
            raise _error("the array", rows)
        return
    times = Counter(map(id, rows))
    for i, tensor in enumerate(tensors[: len(rows)]):
        if sys.getrefcount(rows[i]) > times[id(rows[i])] + 1:
            continue  # somebody else holds it
        arrays = getattr(rows[i], "arrays", None)
        if arrays is None:
            if _freed(rows[i]):
                raise _error(str(tensor), rows[i])
        elif isinstance(arrays, (list, tuple)):
            del arrays
            if sys.getrefcount(rows[i].arrays) > 2:
                continue
            for k in range(len(rows[i].arrays)):
                if sys.getrefcount(rows[i].arrays[k]) <= 2 and _freed(rows[i].arrays[k]):
                    raise _error(str(tensor), rows[i].arrays[k])


def _error(what: str, given: object) -> BadRows:
    return BadRows(
        f"{what}: nobody else holds this {type(given).__name__}, so what is restored into it would be gone when restore returns. reshape, contiguous, astype, flatten and "
        "the like give copies of a cache: give a view of its memory, or keep the array in a variable",
        21,
    )


def _freed(given: Any) -> bool:
    """Whether the memory of something that is about to go is its own, or that of something which nothing else refers to."""
    numpy = sys.modules.get("numpy")
    while numpy is not None and isinstance(given, numpy.ndarray):
        if given.flags.owndata:
            return True
        if given.base is None or sys.getrefcount(given.base) > 2:
            return False
        given = given.base
    if isinstance(given, c.Array):
        return given._b_base_ is None and bool(given._b_needsfree_)
    return isinstance(given, (bytearray, array))

"""A store on disk for the KV cache of language models: docs/python.md.

Sizes are in bytes, timeouts in seconds. Memory is the caller's, and is not kept after a call. Everything may be called from several threads, which run
at the same time: calls give back the GIL. A process that was forked from one that uses the library raises Forked.
"""

from ._library import Cancel
from .descriptor import Descriptor, Group, RoPE, Tensor
from .errors import (
    BadArgument,
    BadDescriptor,
    BadPrompt,
    BadRows,
    BadState,
    Busy,
    Cancelled,
    Closed,
    Corrupt,
    DeadlineExceeded,
    DecodeFailed,
    Denied,
    DormouseError,
    Foreign,
    Forked,
    InCallback,
    Leased,
    Limit,
    Locked,
    NoSpace,
    NotDestroyed,
    NotEmpty,
    NotFound,
    NotStored,
    NotTheModel,
    Poisoned,
    ReadOnly,
    Refused,
    Retired,
    SecondCopy,
    Suspended,
    TooLong,
    Version,
    WrongLineage,
    WrongPositions,
)
from .memory import Adapter, Prompt, Rows, Span
from .model import Deleted, Elsewhere, Explained, Explanation, Match, Model, Plane, Put, Restored
from .store import Compacted, Damage, ModelInfo, Ref, Store, Verified, hash, hash_file, log_to, version

__all__ = [
    "Adapter", "BadArgument", "BadDescriptor", "BadPrompt", "BadRows", "BadState", "Busy", "Cancel", "Cancelled", "Closed", "Compacted", "Corrupt", "Damage",
    "DeadlineExceeded", "DecodeFailed", "Deleted", "Denied", "Descriptor", "DormouseError", "Elsewhere", "Explained", "Explanation", "Foreign", "Forked", "Group", "InCallback", "Leased", "Limit", "Locked", "Match",
    "Model", "ModelInfo", "NoSpace", "NotDestroyed", "NotEmpty", "NotFound", "NotStored", "NotTheModel", "Plane", "Poisoned", "Prompt", "Put", "ReadOnly",
    "Ref", "Refused", "Restored", "Retired", "RoPE", "Rows", "SecondCopy", "Span", "Store", "Suspended", "Tensor", "TooLong", "Verified", "Version",
    "WrongLineage", "WrongPositions", "hash", "hash_file", "log_to", "version",
]  # fmt: skip

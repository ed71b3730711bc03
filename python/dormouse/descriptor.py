"""What a model is, as far as its cache is concerned. docs/c.md explains each field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

# name: (values in a group, bytes of a group)
DTYPES = {
    "bytes": (1, 1), "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2),
    "q8_0": (32, 34), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor of a layer: rows of width values. role is "K", "V" or "state"; group is an index in Descriptor.groups."""

    layer: int
    role: str
    dtype: str
    width: int
    group: int = 0

    @property
    def row_bytes(self) -> int:
        """The size of a row; 0 for a state of any length."""
        values, size = DTYPES[self.dtype]
        return self.width // values * size

    def __str__(self) -> str:
        return f"layer {self.layer} {self.role}"


@dataclass(frozen=True)
class Group:
    """kind is "all", "window" (rows of the last window positions) or "state" (what cannot be cut)."""

    kind: str
    window: int = 0


@dataclass(frozen=True)
class RoPE:
    """type is "none" where K holds no rotation."""

    type: str = "none"
    dims: int = 0
    base: float = 0.0
    scale: float = 0.0
    scaling: str = ""
    freq_factors: str = ""


@dataclass(frozen=True)
class Descriptor:
    """All that makes two caches incompatible. weights and tokenizer are hashes: see dormouse.hash and dormouse.hash_file."""

    name: str
    architecture: str
    weights: str
    tokenizer: str
    tensors: Sequence[Tensor]
    rope: RoPE = field(default_factory=RoPE)
    groups: Sequence[Group] = ()
    rotated: bool = False
    shard: int = 0
    shards: int = 1
    state_format: str = ""
    block_tokens: int = 0

    def to_json(self) -> str:
        """The JSON that dormouse_register takes."""
        parts = {"tensors": [vars(t) for t in self.tensors], "groups": [vars(g) for g in self.groups], "rope": vars(self.rope)}
        return json.dumps({**vars(self), **parts}, allow_nan=False, ensure_ascii=False)

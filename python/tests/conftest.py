"""A small model, and rows that follow from the tokens before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dormouse
import numpy as np
import pytest

LAYERS, WIDTH = 2, 64
TENSORS = 2 * LAYERS

DESCRIPTOR = dormouse.Descriptor(
    "toy", "toy", "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100",
    [dormouse.Tensor(i, role, "f16", WIDTH) for i in range(LAYERS) for role in ("K", "V")],
)  # fmt: skip


def tokens(n: int, seed: int = 1) -> np.ndarray:
    return ((np.arange(n) * 7 + seed * 31) % 1000).astype(np.int32)


def rows(prompt: np.ndarray) -> list[np.ndarray]:
    """f16 rows of a prompt, for each tensor."""
    sums = np.cumsum(prompt.astype(np.int64) * (np.arange(len(prompt)) + 3))
    out = []
    for t in range(TENSORS):
        bits = (sums[:, None] * 2654435761 + np.arange(WIDTH) * 40503 + t * 977) % 1024
        out.append((bits + 0x3C00).astype(np.uint16).view(np.float16))
    return out


def empty(n: int, like: type = np.float16) -> list[np.ndarray]:
    return [np.zeros((n, WIDTH), like) for _ in range(TENSORS)]


def restored(model: dormouse.Model, prompt: object, n: int) -> tuple[int, list[np.ndarray]]:
    got = empty(n)
    with model.match(prompt) as match:
        return match.restore(got).tokens, got


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[dormouse.Store]:
    with dormouse.Store(tmp_path / "store", codec="raw", budget=256 << 20) as s:
        yield s


@pytest.fixture
def model(store: dormouse.Store) -> dormouse.Model:
    return store.register(DESCRIPTOR)

"""Rows of the shape (heads, tokens, values), where they lie."""

from __future__ import annotations

import dormouse
import numpy as np
import pytest
from conftest import TENSORS, WIDTH, empty, restored, rows, same, tokens

N, HEADS, CELLS = 300, 4, 512


def by_head(mem: list[np.ndarray]) -> list[np.ndarray]:
    """Views of a runtime's cache with room for CELLS tokens, and these rows in it."""
    out = []
    for m in mem:
        cache = np.full((HEADS, CELLS, WIDTH // HEADS), 7, m.dtype)
        cache[:, : len(m)] = m.reshape(len(m), HEADS, -1).transpose(1, 0, 2)
        out.append(cache[:, : len(m)])
    return out


def by_token(mem: list[np.ndarray]) -> list[np.ndarray]:
    return [m.transpose(1, 0, 2).reshape(m.shape[1], -1) for m in mem]


def test_either_layout_restores_the_other(model: dormouse.Model) -> None:
    p, q = tokens(N), tokens(N, 2)
    model.put(p, rows(p))
    into = by_head(empty(N))
    with model.match(p) as match:
        assert match.restore(into).tokens == N
    assert same(by_token(into), rows(p))
    assert all((m.base[:, N:] == 7).all() for m in into)
    model.put(q, by_head(rows(q)))
    n, got = restored(model, q, N)
    assert n == N and same(got, rows(q))
    as_bytes = [m.view(np.uint8) for m in by_head(empty(N))]
    with model.match(q, 100) as match:
        assert match.restore(as_bytes).tokens == 100
    assert same([m[:100] for m in by_token([m.view(np.float16) for m in as_bytes])], [m[:100] for m in rows(q)])
    assert all((m[:, 100:] == 0).all() for m in as_bytes)


def test_any_strides_of_heads(model: dormouse.Model) -> None:
    p = tokens(N)
    want = rows(p)
    views = [
        [m.reshape(N, HEADS, -1).transpose(1, 0, 2) for m in want],  # token by token, seen as heads
        [np.asfortranarray(m) for m in by_head(want)],
        [np.repeat(m, 2, axis=2)[:, :, ::2] for m in by_head(want)],
    ]
    for i, given in enumerate(views):
        q = tokens(N, i + 5)
        if i == 1:  # heads nearest to each other: such memory is refused, not misread
            with pytest.raises(dormouse.BadRows, match="overlap"):
                model.put(q, given)
            continue
        model.put(q, given)
        n, got = restored(model, q, N)
        assert n == N and same(got, want)


def test_what_does_not_fit(model: dormouse.Model) -> None:
    p = tokens(N)
    for bad, why in (
        ([np.zeros((3, N, WIDTH // HEADS), np.float16)] * TENSORS, "expected heads with 64 values"),
        ([np.zeros((HEADS, N, WIDTH), np.float16)] * TENSORS, "expected heads with 64 values"),
        ([m[::-1] for m in by_head(rows(p))], "positive"),
        ([np.zeros((1, HEADS, N, WIDTH // HEADS), np.float16)] * TENSORS, "or three"),
    ):
        with pytest.raises(dormouse.BadRows, match=why):
            model.put(p, bad)

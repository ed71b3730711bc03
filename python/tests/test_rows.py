"""Prompts and rows: what goes in comes out, from any memory, without a copy."""

from __future__ import annotations

import ctypes
from array import array
from contextlib import ExitStack

import dormouse
import numpy as np
import pytest
from conftest import DESCRIPTOR, TENSORS, WIDTH, empty, restored, rows, same, tokens
from dormouse import memory

N = 300


def test_what_is_put_is_restored(model: dormouse.Model) -> None:
    p, r = tokens(N), rows(tokens(N))
    put = model.put(p, r)
    assert put.tokens == N and put.blocks > 0 and put.bytes > 0
    assert restored(model, p, N)[0] == N
    assert same(restored(model, p, N)[1], r)
    assert model.probe(p).tokens == N and model.probe(p, 100).tokens == 100 and model.prefetch(p) == N
    other = model.probe([5] * N)
    assert other.tokens == 0 and other.reason == "nothing stored"


def test_one_array_of_all_tensors(model: dormouse.Model) -> None:
    p, r = tokens(N), np.stack(rows(tokens(N)))
    model.put(p, r)
    got = np.zeros_like(r)
    with ExitStack() as hold:
        at = memory.rows_of(hold, DESCRIPTOR.tensors, got, True)[0]
        each = memory.rows_of(hold, DESCRIPTOR.tensors, list(got), True)[0]
        for a, b in zip(at, each):  # type: ignore[call-overload]
            assert (a.first, a.n_pieces) == (b.first, b.n_pieces) == (0, 1)
            assert bytes(a.pieces[0]) == bytes(b.pieces[0])
    with model.match(p) as match:
        assert match.restore(got).tokens == N
    assert (got.view(np.uint16) == r.view(np.uint16)).all()
    for other in (np.zeros((TENSORS, N, 2 * WIDTH), np.float16)[:, :, ::2], np.zeros((TENSORS, N, 2 * WIDTH), np.uint8)):  # each by itself, as in a list
        with model.match(p) as match:
            assert match.restore(other).tokens == N
        assert (np.ascontiguousarray(other).view(np.uint16) == r.view(np.uint16)).all()
    for bad in (got[1:], got[:, :, 1:], got[0], got.astype(np.float32)):
        with model.match(p) as match, pytest.raises((dormouse.BadRows, TypeError)):
            match.restore(bad)
    got.setflags(write=False)
    with model.match(p) as match, pytest.raises(dormouse.BadRows):
        match.restore(got)


@pytest.mark.parametrize("kind", [list, tuple, lambda p: array("i", p), lambda p: p.astype(np.int64), lambda p: p.astype(np.uint16), lambda p: np.repeat(p, 2)[::2]])
def test_tokens_of_any_kind(model: dormouse.Model, kind) -> None:
    p = tokens(N)
    model.put(kind(p), rows(p))
    assert model.probe(kind(p)).tokens == N


def unaligned(a: np.ndarray) -> np.ndarray:
    """The same at an odd address, of which numpy writes "=i" and "=l"."""
    return np.frombuffer(bytearray(b"\0" + a.tobytes()), np.uint8)[1:].view(a.dtype).reshape(a.shape)


@pytest.mark.parametrize("kind", [ctypes.c_int32, ctypes.c_long, ctypes.c_uint16, ctypes.c_uint64, np.int32, np.int64, np.uint16])
def test_tokens_with_an_order_of_bytes(model: dormouse.Model, kind) -> None:
    """ctypes writes "<i", and "<l" for 8 bytes, where memoryview knows plain letters only."""
    p = tokens(N)
    given = unaligned(p.astype(kind)) if issubclass(kind, np.generic) else (kind * N)(*p.tolist())
    assert memoryview(given).format[0] in "<="
    model.put(given, rows(p))
    assert model.probe(p).tokens == N
    for same_ids in (given, np.asarray(given), np.ctypeslib.as_array(given)):
        assert model.probe(same_ids).tokens == N
    with ExitStack() as hold:
        if memoryview(given).itemsize == 4:
            assert memory.tokens_of(hold, given)[0] == memory.address(memoryview(given))  # not copied


@pytest.mark.parametrize("dtype, kind", [("f16", ctypes.c_uint16), ("f16", ctypes.c_uint8), ("f16", ctypes.c_char), ("f32", ctypes.c_float), ("f16", np.float16), ("f32", np.float32)])
def test_rows_with_an_order_of_bytes(store: dormouse.Store, dtype: str, kind) -> None:
    d = dormouse.Descriptor("ctypes", "toy", "0" * 31 + "1", "0" * 31 + "2", [dormouse.Tensor(0, role, dtype, WIDTH) for role in "KV"])
    p, bits = tokens(N), np.random.default_rng(1).integers(0, 64, (2, N, d.tensors[0].row_bytes), np.uint8)
    if issubclass(kind, np.generic):
        given, got, stacked = (unaligned(b.view(kind)) for b in (bits, 0 * bits, 0 * bits))
    else:
        values = bits.shape[2] // ctypes.sizeof(kind)
        given, got, stacked = ((kind * values * N * 2).from_buffer(bytearray(b)) for b in (bits, 0 * bits, 0 * bits))
    assert memoryview(given).format[0] in "<="
    model = store.register(d)
    model.put(p, list(given))
    with model.match(p) as match:
        assert match.restore(list(got)).tokens == match.restore(stacked).tokens == N
    assert bytes(memoryview(got)) == bytes(memoryview(stacked)) == bits.tobytes()


def test_the_order_of_bytes_of_other_machines(model: dormouse.Model) -> None:
    p, r = tokens(N), rows(tokens(N))
    with pytest.raises(TypeError, match="the order of bytes of other machines"):
        model.probe(p.astype(">i4"))
    with pytest.raises(dormouse.BadRows, match="the order of bytes of other machines"):
        model.put(p, [r[0].astype(">f2"), *r[1:]])


def test_hashes_are_16_bytes(model: dormouse.Model) -> None:
    p, h = tokens(N), bytes(range(16))
    for given in (h, bytearray(h), memoryview(h), np.frombuffer(h, np.uint32)):
        assert model.probe(dormouse.Prompt(p, spans=[dormouse.Span(0, 5, given)], adapters=[dormouse.Adapter(given, 1)])).tokens == 0
    for bad, error in [("0123456789abcdef", TypeError), (array("i", range(16)), ValueError), (16, TypeError), (h[:15], ValueError)]:
        with pytest.raises(error):
            model.probe(dormouse.Prompt(p, spans=[dormouse.Span(0, 5, bad)]))
        with pytest.raises(error):
            model.probe(dormouse.Prompt(p, adapters=[dormouse.Adapter(bad, 1)]))


def test_tokens_that_are_none(model: dormouse.Model) -> None:
    for bad, error in [([2**31], OverflowError), (np.array([2**40]), OverflowError), ([1.5], TypeError), (np.ones(4), TypeError), (np.ones((2, 2), np.int32), TypeError), (["a"], TypeError), (7, TypeError)]:
        with pytest.raises(error):
            model.probe(bad)


def test_nothing_is_copied() -> None:
    p, r = tokens(N), rows(tokens(N))[0]
    with ExitStack() as hold:
        assert memory.tokens_of(hold, p)[0] == p.ctypes.data
        part = r[10::2]
        given, n = memory.rows_of(hold, DESCRIPTOR.tensors, [r, part, None, dormouse.Rows([r, part], first=7)], True)
        all_of = [(x.first, [(p.mem, p.count, p.row_stride, p.elem_stride) for p in x.pieces[: x.n_pieces]]) for x in given]
        whole, strided = (r.ctypes.data, N, 0, 0), (part.ctypes.data, len(part), 4 * WIDTH, 2)
        assert n == TENSORS and all_of == [(0, [whole]), (0, [strided]), (0, []), (7, [whole, strided])]


@pytest.mark.parametrize("layout", ["wide", "channels", "heads", "bytes", "words", "pieces", "bytearray"])
def test_strides(model: dormouse.Model, layout: str) -> None:
    p, r = tokens(N), rows(tokens(N))

    def memory_like() -> list:
        if layout == "wide":  # all tensors beside each other
            m = np.zeros((N, TENSORS, WIDTH), np.float16)
            return [m[:, t] for t in range(TENSORS)]
        if layout == "channels":  # the values of a channel are next to each other
            return [np.zeros((WIDTH, N), np.float16).T for _ in range(TENSORS)]
        if layout == "heads":  # every second value
            return [np.zeros((N, 2 * WIDTH), np.float16)[:, ::2] for _ in range(TENSORS)]
        if layout == "bytes":
            return [np.zeros((N, 2 * WIDTH), np.uint8) for _ in range(TENSORS)]
        if layout == "words":
            return [np.zeros((N, WIDTH), np.uint16) for _ in range(TENSORS)]
        if layout == "pieces":
            return [dormouse.Rows([np.zeros((n, WIDTH), np.float16) for n in (100, 1, 0, N - 101)]) for _ in range(TENSORS)]
        return [memoryview(bytearray(N * 2 * WIDTH)).cast("B", (N, 2 * WIDTH)) for _ in range(TENSORS)]

    def values(m: object) -> np.ndarray:
        if isinstance(m, dormouse.Rows):
            return np.concatenate([values(a) for a in m.arrays])
        return np.ascontiguousarray(m).view(np.float16)

    given = memory_like()
    for to, what in zip(given, r, strict=True):
        at = 0
        for a in to.arrays if isinstance(to, dormouse.Rows) else [to]:
            part = np.asarray(a)
            part[...] = what[at : at + len(part)].view(part.dtype)
            at += len(part)
    model.put(p, given)
    assert same(restored(model, p, N)[1], r)
    got = memory_like()
    with model.match(p) as match:
        assert match.restore(got).tokens == N
    assert same([values(g) for g in got], r)


def test_rows_that_do_not_fit(model: dormouse.Model) -> None:
    p, r = tokens(N), rows(tokens(N))
    for bad in [
        r[:1], [*r, r[0]], [r[0].astype(np.float32), *r[1:]], [r[0][:, :10], *r[1:]], [r[0][0], *r[1:]], [r[0][::-1], *r[1:]], [r[0][:, ::-1], *r[1:]],
        [np.broadcast_to(r[0][:1], r[0].shape), *r[1:]], [r[0].view(np.uint8)[:, :50], *r[1:]],
        [np.zeros((N, 4 * WIDTH), np.uint8)[:, ::2], *r[1:]], [np.lib.stride_tricks.as_strided(r[0], (N, WIDTH), (2, 2)), *r[1:]],
        [dormouse.Rows([r[0][:10]], first=5), *r[1:]],
    ]:  # fmt: skip
        with pytest.raises((dormouse.BadRows, dormouse.NotStored)):
            model.put(p, bad)
    for bad in [["abc", *r[1:]], [7, *r[1:]]]:
        with pytest.raises(TypeError, match="layer 0 K"):
            model.put(p, bad)
    model.put(p, r)
    frozen = empty(N)
    frozen[2].flags.writeable = False
    with model.match(p) as match, pytest.raises(dormouse.BadRows, match="layer 1 K.*written"):
        match.restore(frozen)
    assert not frozen[2].any()
    memory_of_mine = bytearray(N * 2 * WIDTH)
    view = memoryview(memory_of_mine).cast("B", (N, 2 * WIDTH))
    with pytest.raises(dormouse.BadRows):
        model.put(p, [view, *r[1:2]])
    model.put([1, *p[1:]], [view, *r[1:]])
    view.release()
    memory_of_mine.clear()  # which Python refuses while somebody holds on to it


def test_limit(model: dormouse.Model) -> None:
    p, r = tokens(N), rows(tokens(N))
    model.put(p, r)
    with model.match(p, limit=N - 1) as match:
        assert match.tokens == N - 1 and match.found.reason == "complete"
    with model.match(p, limit=0) as match:  # of a prompt of one token, all but the last
        assert match.tokens == 0
    with model.match(dormouse.Prompt(p, "a", 64), limit=0) as match:
        assert match.tokens == 0 and match.extend(dormouse.Prompt(p, "a", 64), r).tokens == N
    for bad in (-1, 2**40):
        with pytest.raises(ValueError, match="limit"):
            model.match(p, limit=bad)


def test_layers_extend_planes(model: dormouse.Model, store: dormouse.Store) -> None:
    p = tokens(N + 50)
    r = rows(p)
    model.put(p[:N], [m[:N] for m in r])
    seen, got = [], empty(N + 50)
    with model.match(p) as match:
        assert match.tokens == N
        assert match.restore_layers(got, lambda layer, n: seen.append((layer, n))).tokens == N
        assert seen == [(0, N), (1, N)]
        with pytest.raises(ZeroDivisionError):
            match.restore_layers(got, lambda layer, n: 1 // 0)
        for call in (match.close, store.close, store.suspend, lambda: model.probe(p), lambda: match.restore(got)):
            with pytest.raises(dormouse.InCallback, match="from within one of its callbacks"):
                match.restore_layers(got, lambda layer, n, call=call: call())
        held = [model.match(p)]
        with pytest.warns(ResourceWarning):
            match.restore_layers(got, lambda layer, n: held.clear())  # Python drops a match, which cannot be closed there
        assert not match.closed and not store.closed
        assert match.extend(p, [dormouse.Rows([m[N:]], first=N) for m in r]).tokens == N + 50
        planes = match.planes()
        assert {x.tensor for x in planes} == set(range(TENSORS)) and all(x.data and x.codec for x in planes)
        assert match.state_bytes(0) == 0
    assert same(restored(model, p, N + 50)[1], r)


def test_scopes_spans_adapters(model: dormouse.Model, store: dormouse.Store) -> None:
    p, r = tokens(N), rows(tokens(N))
    h = bytes(range(16))
    for special in [
        dormouse.Prompt(p, scope="alice", scope_start=64),
        dormouse.Prompt(p, spans=[dormouse.Span(32, 40, h)]),
        dormouse.Prompt(p, adapters=[dormouse.Adapter(h, 0.5)]),
    ]:
        model.put(special, r)
        assert model.probe(special).tokens == N
    assert model.probe(dormouse.Prompt(p, adapters=[dormouse.Adapter(h, 0.25)])).tokens == 0
    deleted = store.delete_scope("alice")
    assert deleted.blocks > 0 and deleted.bytes > 0
    store.sync()
    assert model.probe(dormouse.Prompt(p, scope="alice", scope_start=64)).tokens < N
    with pytest.raises(dormouse.BadPrompt):
        model.probe(dormouse.Prompt(p, spans=[dormouse.Span(N - 1, 5, h)]))
    whole = dormouse.Prompt(p, scope="bob", scope_start=64, spans=[dormouse.Span(70, 10, h)])
    for n in (30, 64, 66, 80):
        model.put(whole.prefix(n), r)
        assert model.probe(whole.prefix(n)).tokens == n and model.probe(whole).tokens == max(n, 64)
    model.set_ref("half", whole.prefix(30), pinned=True)
    assert store.delete_scope("bob").refs == 0 and model.probe(whole).tokens == 64 == model.probe(dormouse.Prompt(p, "eve", 64)).tokens
    for wrong, says in [
        (dormouse.Prompt(p, "alice", N + 5), f"token {N + 5}, the prompt has {N} tokens"),  # characters taken for tokens
        (dormouse.Prompt(p, scope_start=64), "starts at 64, and Scope is empty"),
    ]:
        for call in [
            lambda: model.put(wrong, r), lambda: model.match(wrong), lambda: model.probe(wrong), lambda: model.set_ref("ref", wrong), lambda: model.delete(wrong),
        ]:  # fmt: skip
            with pytest.raises(dormouse.BadPrompt, match=says):
                call()
    for bad in [dormouse.Prompt(p, "a\0b"), dormouse.Prompt(p, "a", -1), dormouse.Prompt(p, spans=[dormouse.Span(-1, 5, h)]), dormouse.Prompt(p, spans=[dormouse.Span(1, 5, b"")])]:
        with pytest.raises(ValueError):
            model.probe(bad)


def test_float32_and_states(store: dormouse.Store) -> None:
    d = dormouse.Descriptor(
        "rwkv", "rwkv", "0" * 31 + "1", "0" * 31 + "2", [dormouse.Tensor(0, "K", "f32", 8), dormouse.Tensor(0, "state", "bytes", 0, 1)],
        groups=[dormouse.Group("all"), dormouse.Group("state")], state_format="1",
    )  # fmt: skip
    m = store.register(d)
    p, k, state = tokens(40), np.random.default_rng(1).standard_normal((40, 8), np.float32), np.arange(200, dtype=np.uint8).reshape(1, -1)
    m.put(p, [k, dormouse.Rows([state], first=40)])
    with m.match(p) as match:
        size = match.state_bytes(1)
        got_k, got = np.zeros_like(k), np.zeros((1, size), np.uint8)
        assert size == 200 and match.restore([got_k, dormouse.Rows([got], first=40)]).tokens == 40
    assert same([got_k, got], [k, state])


# Memory that is freed when the call returns: what is restored into it is lost. Each makes rows of a cache of shape (tensors, WIDTH, N).
FREED = {
    "reshape of a transposed array": lambda cache: [t.reshape(4, N, -1).transpose(1, 0, 2).reshape(N, -1) for t in cache],
    "contiguous": lambda cache: [np.ascontiguousarray(t.T) for t in cache],
    "a conversion": lambda cache: [t.T.astype(np.float16) for t in cache],
    "a flat copy": lambda cache: [t.T.flatten().reshape(N, WIDTH) for t in cache],
    "fancy indices": lambda cache: [t.T[np.arange(N)] for t in cache],
    "bytes": lambda cache: [np.ascontiguousarray(t.T).view(np.uint8) for t in cache],
    "a slice of a copy": lambda cache: [t.T.copy()[:N] for t in cache],
    "a tuple": lambda cache: tuple(t.T.copy() for t in cache),
    "one copy among views": lambda cache: [cache[0].T, cache[1].T, cache[2].T, cache[3].T.copy()],
    "the same copy for all": lambda cache: [cache[0].T.copy()] * TENSORS,
    "pieces": lambda cache: [dormouse.Rows([t.T[:100].copy(), t.T[100:].copy()]) for t in cache],
    "one piece": lambda cache: [dormouse.Rows([t.T[:100], t.T[100:].copy()]) for t in cache],
    "one array of all": lambda cache: np.ascontiguousarray(cache.transpose(0, 2, 1)),
    "a stack": lambda cache: np.stack([t.T for t in cache]),
    "a part of a stack": lambda cache: np.stack([t.T for t in cache])[:, :N],
    "an array of ctypes": lambda cache: [(ctypes.c_uint16 * WIDTH * N)() for t in cache],
}


@pytest.mark.parametrize("kind", FREED)
def test_memory_that_is_freed_is_refused(model: dormouse.Model, kind: str) -> None:
    """The list and its arrays are the call's alone: restore would say complete, and the cache would stay zeros."""
    p, r, make = tokens(N), rows(tokens(N)), FREED[kind]
    cache = np.zeros((TENSORS, WIDTH, N), np.float16)
    if kind != "the same copy for all":
        model.put(p, make(np.stack([t.T for t in r])))  # a put only reads
    else:
        model.put(p, r)
    with model.match(p) as match:
        with pytest.raises(dormouse.BadRows, match="nobody else holds this"):
            match.restore(make(cache))
        with pytest.raises(dormouse.BadRows, match="nobody else holds this"):
            match.restore(rows=make(cache), timeout=60)
        with pytest.raises(dormouse.BadRows, match="nobody else holds this"):
            match.restore_layers(make(cache), lambda layer, n: None)
        assert not cache.any()
        held = make(cache)
        if kind != "the same copy for all":
            assert match.restore(held).tokens == N


def test_one_memory_for_several_tensors_is_refused(model: dormouse.Model) -> None:
    """Of [array] * n each tensor would overwrite the one before, and restore would say complete."""
    p, r = tokens(N), rows(tokens(N))
    model.put(p, r)
    cache, halves = [np.zeros((N, WIDTH), np.float16)] * TENSORS, np.zeros((N, TENSORS, WIDTH), np.float16)
    with model.match(p) as match:
        for same_memory in (cache, [cache[0], cache[0].view(np.uint16), *empty(N)[2:]], [dormouse.Rows([a]) for a in cache]):
            with pytest.raises(dormouse.BadRows, match="the same memory"):
                match.restore(same_memory)
        assert not cache[0].any()
        beside = [halves[:, t] for t in range(TENSORS)]
        assert match.restore(beside).tokens == N
        assert same([np.ascontiguousarray(b) for b in beside], r)
    assert model.put([7, *p[1:]], cache).tokens == N  # a put only reads


def test_memory_that_somebody_holds_is_taken(model: dormouse.Model) -> None:
    p, r = tokens(N), rows(tokens(N))
    model.put(p, r)
    cache = np.zeros((TENSORS, WIDTH, N), np.float16)
    flat, held = np.zeros((TENSORS, N, WIDTH), np.float16), empty(N)
    mapped, backing = (ctypes.c_uint16 * WIDTH * N * TENSORS)(), [bytearray(N * 2 * WIDTH) for _ in range(TENSORS)]

    class Runtime:
        rows = empty(N)
        pairs = [dormouse.Rows([a]) for a in empty(N)]

    def helper(match: dormouse.Match, given: object) -> int:
        return match.restore(given).tokens

    def nested(match: dormouse.Match, given: object) -> int:
        return helper(match, given)

    with model.match(p) as match:
        for _ in range(60):  # Python compiles what is run often in another way
            in_a_local = [np.zeros((N, WIDTH), np.float16) for _ in range(TENSORS)]
            assert match.restore(in_a_local).tokens == helper(match, in_a_local) == nested(match, in_a_local) == N
            assert match.restore([t.T for t in cache]).tokens == N
            assert match.restore(cache.transpose(0, 2, 1)).tokens == N
            assert match.restore(list(held)).tokens == match.restore([*held]).tokens == match.restore(held[:]).tokens == match.restore(tuple(held)).tokens == N
            assert match.restore([a[:N] for a in held]).tokens == match.restore([a.reshape(N, 2, -1).reshape(N, WIDTH) for a in held]).tokens == N
            assert match.restore([dormouse.Rows([a[:9], a[9:]]) for a in held]).tokens == match.restore(Runtime.pairs).tokens == match.restore(Runtime().rows).tokens == N
            assert match.restore(flat[:]).tokens == match.restore(flat.view(np.uint16)).tokens == match.restore(flat.view(np.uint8)).tokens == match.restore(list(flat)).tokens == N
            assert match.restore(list(mapped)).tokens == match.restore(np.ctypeslib.as_array(mapped)).tokens == N
            assert match.restore([np.frombuffer(b, np.float16).reshape(N, WIDTH) for b in backing]).tokens == N
            assert match.restore([memoryview(b).cast("B", (N, 2 * WIDTH)) for b in backing]).tokens == N
            assert match.restore_layers([t.T for t in cache], lambda layer, n: None).tokens == N
            one, both = {"rows": empty(N)}, [empty(N)]
            assert match.restore(one["rows"]).tokens == match.restore(both[0]).tokens == match.restore(*both).tokens == match.restore(**one).tokens == N
            assert [match.restore(x).tokens for x in both] == [N] and list(map(match.restore, both))[0].tokens == N
            if walrus := empty(N):
                assert match.restore(walrus).tokens == match.restore(again := empty(N)).tokens == N
            for got in (in_a_local, [t.T for t in cache], held, Runtime.rows, list(flat), one["rows"], both[0], walrus, again):
                assert same([np.ascontiguousarray(g) for g in got], r)

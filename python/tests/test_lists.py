"""What a store says of itself, and how it gives space back."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import dormouse
import pytest
from conftest import DESCRIPTOR, restored, rows, tokens

N = 300


def test_explain(store: dormouse.Store, model: dormouse.Model) -> None:
    p = tokens(N)
    x = model.explain(p)
    assert (x.prompt, x.tokens, x.reason, x.blocks, x.elsewhere) == (N, 0, "nothing stored", [], [])
    model.put(p, rows(p))
    other = p.copy()
    other[160:] += 1
    x = model.explain(other)
    assert x.reason == "diverged" and x.reason_at == x.tokens == 160
    assert str(x).startswith("160 of 300 tokens would be reused: diverged")
    assert x.blocks[0] == dormouse.Explained(x.blocks[0].key, 0, x.blocks[0].end, True, ["stored"]) and len(x.blocks[0].key) == 32
    assert model.explain(p, 100).tokens == 100
    second = store.register(dataclasses.replace(DESCRIPTOR, weights="ff" * 16))
    (elsewhere,) = second.explain(p).elsewhere
    assert (elsewhere.name, elsewhere.fingerprint, elsewhere.tokens, elsewhere.error) == ("toy", model.fingerprint, N, "")
    assert [d[0] for d in elsewhere.differs] == ["weights"]
    with pytest.raises(dormouse.BadPrompt):
        model.explain(dormouse.Prompt(p, scope_start=3))
    cancel = dormouse.Cancel()
    cancel.set()
    with pytest.raises(dormouse.Cancelled):
        model.explain(p, cancel=cancel)


def test_lists(store: dormouse.Store, model: dormouse.Model) -> None:
    assert store.refs() == [] and model.notes() == {}
    p = tokens(N)
    model.put(p, rows(p))
    model.set_ref('a "pin"', p, pinned=True, priority=3)
    model.set_ref("märk", p[:100], ttl=1000)
    second = store.register(dataclasses.replace(DESCRIPTOR, weights="ff" * 16))
    mark, pin = sorted(store.refs(), key=lambda r: r.tokens)
    assert (pin.name, pin.model, pin.tokens, pin.stored, pin.pinned, pin.priority, pin.expires_at) == ('a "pin"', model.fingerprint, N, True, True, 3, None)
    assert (mark.name, mark.tokens, mark.pinned) == ("märk", 100, False)
    assert pin.set_at and abs(pin.set_at - time.time()) < 600
    assert mark.expires_at and mark.set_at and abs(mark.expires_at - mark.set_at - 1000) < 2
    new, old = store.models()
    assert (new.name, new.fingerprint, new.latest, new.blocks, new.error) == ("toy", second.fingerprint, True, 0, "")
    assert (old.fingerprint, old.latest) == (model.fingerprint, False) and old.blocks > 0 and old.bytes > 0
    got = store.stats()
    assert got["budget"] == 256 << 20 and 0 < got["disk_bytes"] <= got["disk_high_water"] and got["full"] is False and "MiB" in got["text"]


def test_many_refs_do_not_fit_the_first_buffer(store: dormouse.Store, model: dormouse.Model) -> None:
    p = tokens(32)
    model.put(p, rows(p))
    names = sorted(f"{i:03}" + "n" * 600 for i in range(120))
    for name in names:
        model.set_ref(name, p)
    assert [r.name for r in store.refs()] == names


def test_space(tmp_path: Path) -> None:
    with dormouse.Store(tmp_path / "s", codec="raw", segment_bytes=1 << 16) as store, store.register(DESCRIPTOR) as model:
        for seed in range(1, 30):
            model.put(tokens(N, seed), rows(tokens(N, seed)))
        model.set_ref("pin", tokens(N), pinned=True)
        store.checkpoint()
        before = store.shrink(1 << 40)
        assert restored(model, tokens(N, 2), N)[0] == N
        assert 0 < store.shrink(0) < before
        assert restored(model, tokens(N, 2), N)[0] < N
        assert restored(model, tokens(N), N)[0] == N
        done = store.compact(all=True)
        assert done.segments > 0 and done.records > 0 and done.bytes > 0 and done.before > 0 and done.after > 0
        assert restored(model, tokens(N), N)[0] == N
        with pytest.raises(ValueError):
            store.shrink(-1)
        with pytest.raises(dormouse.BadArgument, match="LiveShare"):
            store.compact(live_share=1.5)
        store.suspend()
        for call in (store.checkpoint, store.refs, store.models, model.notes, lambda: store.shrink(0), store.compact):
            with pytest.raises(dormouse.Suspended):
                call()
        store.resume()
    for call in (store.checkpoint, store.refs, store.models, model.notes, lambda: store.shrink(0), store.compact, lambda: model.explain([1])):
        with pytest.raises(dormouse.Closed):
            call()


def test_eviction_options(tmp_path: Path) -> None:
    for good in ({"eviction": "fifo"}, {"eviction": "cost-aware"}, {"eviction": "depth-cap", "depth_cap": 64}, {"high_water": 0.9, "low_water": 0.25}):
        dormouse.Store(tmp_path / "s", **good).close()  # type: ignore[arg-type]
    for bad, why in (({"eviction": "mru"}, "mru"), ({"eviction": "depth-cap"}, "depth_cap is 0"), ({"low_water": 0.9, "high_water": 0.8}, "LowWater is 0.9")):
        with pytest.raises(dormouse.BadArgument, match=why):
            dormouse.Store(tmp_path / "s", **bad)  # type: ignore[arg-type]

"""Stores: errors, ends, threads, and limits of time."""

from __future__ import annotations

import ctypes
import gc
import logging
import pickle
import subprocess
import sys
import threading
import warnings
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dormouse
import numpy as np
import pytest
from conftest import DESCRIPTOR, empty, restored, rows, same, tokens
from dormouse import _library as lib

N = 300


def test_after_close(tmp_path: Path) -> None:
    p, r = tokens(N), rows(tokens(N))
    with dormouse.Store(tmp_path / "s") as store:
        model = store.register(DESCRIPTOR)
        model.put(p, r)
        match = model.match(p)
        with pytest.raises(dormouse.Leased):
            store.close()
        match.close()
        match.close()
        with pytest.raises(dormouse.Closed):
            match.restore(empty(N))
        with pytest.raises(dormouse.Closed), match:
            pass
        second = store.register(DESCRIPTOR)
        assert len(second.fingerprint) == 32 and second.fingerprint == model.fingerprint
        second.close()
        with pytest.raises(dormouse.Closed):
            second.probe(p)
    assert store.closed
    for call in (store.sync, store.stats, lambda: model.probe(p), lambda: model.put(p, r), lambda: store.register(DESCRIPTOR), lambda: model.fingerprint):
        with pytest.raises(dormouse.Closed):
            call()
    store.close()
    model.close()


@pytest.mark.parametrize("name", ["open", "match_prompt"])
def test_ctrl_c_when_a_call_has_returned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = lib.call

    def call(called: str, *args: object) -> None:
        real(called, *args)
        if called == name:
            monkeypatch.setattr(lib, "call", real)
            raise KeyboardInterrupt

    def use() -> None:
        with dormouse.Store(tmp_path / "s", min_free=-1) as store, store.register(DESCRIPTOR) as model, model.match([1, 2, 3]):
            pass

    monkeypatch.setattr(lib, "call", call)
    with pytest.raises(KeyboardInterrupt):
        use()
    use()


def test_what_is_not_closed_says_so(tmp_path: Path) -> None:
    store = dormouse.Store(tmp_path / "s")
    store.register(DESCRIPTOR)
    with pytest.warns(ResourceWarning, match="store was not closed"):
        del store
        gc.collect()
    dormouse.Store(tmp_path / "s").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()


def test_options(tmp_path: Path) -> None:
    for bad in ({"budget": -1}, {"codec": "q99"}, {"durability": "never"}, {"compression": "x"}):
        with pytest.raises(dormouse.BadArgument) as caught:
            dormouse.Store(tmp_path / "s", **bad)
        assert caught.value.status == 1 and caught.value.file is None and caught.value.offset is None
    with pytest.raises(ValueError):
        dormouse.Store(str(tmp_path) + "/a\0b")
    with dormouse.Store(tmp_path / "s"):
        with pytest.raises(dormouse.Locked, match=r"\d"):
            dormouse.Store(tmp_path / "s")
    with dormouse.Store(tmp_path / "s", read_only=True) as store, pytest.raises(dormouse.ReadOnly):
        store.register(DESCRIPTOR)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(dormouse.Foreign):
        dormouse.Store(__file__)
    with pytest.raises(PermissionError, match="/sys/dormouse") as caught:  # not even root makes a folder there
        dormouse.Store("/sys/dormouse")
    assert isinstance(caught.value, dormouse.Denied) and caught.value.status == 36
    with pytest.raises(dormouse.NotFound):
        dormouse.Store(tmp_path / "none", read_only=True)
    with pytest.raises(dormouse.BadArgument):
        dormouse.Store("")
    with pytest.raises(dormouse.Foreign):
        dormouse.Store(tmp_path / "other")


def test_descriptors(store: dormouse.Store) -> None:
    for bad in (dormouse.Descriptor("x", "", "", "", []), dormouse.Descriptor("x", "x", "zz", "", [])):
        with pytest.raises((dormouse.BadDescriptor, dormouse.BadArgument)):
            store.register(bad)
    with pytest.raises(dormouse.BadArgument, match="f17"):
        store.register(dormouse.Descriptor("x", "x", "0" * 31 + "1", "0" * 31 + "2", [dormouse.Tensor(0, "K", "f17", 4)]))


def test_hash(tmp_path: Path) -> None:
    assert len(dormouse.hash(b"abc")) == 32 and dormouse.hash(b"abc") != dormouse.hash(b"") and dormouse.version()
    (tmp_path / "f").write_bytes(b"abc")
    assert len(dormouse.hash_file(tmp_path / "f")) == 32
    with pytest.raises(dormouse.BadArgument):
        dormouse.hash_file(tmp_path / "none")
    with pytest.raises(ValueError, match="zero byte"):
        dormouse.hash_file(b"a\0b")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"weights-A", bytearray(b"weights-A"), memoryview(b"weights-A"), memoryview(b"weights-A")[::2], array("i", [1, 2, 3]), (ctypes.c_int * 3)(1, 2, 3),
        ctypes.create_string_buffer(b"abc"), np.arange(12, dtype=np.float32), np.arange(12).reshape(3, 4).T, np.arange(12)[::-3], np.float16(2), np.zeros((0, 4)),
    ],
    ids=repr,
)  # fmt: skip
def test_hash_of_anything_with_a_buffer(data) -> None:
    assert dormouse.hash(data) == dormouse.hash(bytes(memoryview(data)))


def test_hash_of_what_is_not_bytes() -> None:
    """ctypes takes a str as wchar_t: only a quarter of it was hashed, and models of other names were one."""
    for bad, why in [("gemma-3-270m.Q4_0.gguf", r"data\.encode\(\)"), ([1, 2, 3], "list has no buffer"), (7, "int has no buffer"), (None, "NoneType has no buffer")]:
        with pytest.raises(TypeError, match=why):
            dormouse.hash(bad)


def test_arguments_of_another_type(store: dormouse.Store, model: dormouse.Model) -> None:
    for call, why in [
        (lambda: store.sync(cancel=threading.Event()), "cancel is a Event: expected a dormouse.Cancel"),
        (lambda: store.register({"name": "x"}), "descriptor is a dict: expected a dormouse.Descriptor"),
        (lambda: store.delete_ref(b"a"), "name is a bytes: expected a str"),
        (lambda: store.delete_scope(None), "scope is a NoneType: expected a str"),
        (lambda: model.probe(dormouse.Prompt([1, 2], b"alice")), "scope is a bytes: expected a str"),
    ]:
        with pytest.raises(TypeError, match=why):
            call()
    half = dormouse.Descriptor("\ud83d", *[DESCRIPTOR.__dict__[n] for n in ("architecture", "weights", "tokenizer", "tensors")])
    with pytest.raises(UnicodeEncodeError):  # which JSON in ASCII says, and the library reads as the sign for what cannot be read
        store.register(half)


def test_damage_has_a_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dormouse.log_to(logging.getLogger("kv"))
    p, r = tokens(N), rows(tokens(N))
    with dormouse.Store(tmp_path / "s", codec="raw") as store:
        store.register(DESCRIPTOR).put(p, r)
        assert store.verify().damage == []
    for f in (tmp_path / "s").rglob("*"):
        if f.is_file() and f.stat().st_size > 2 * N * 64 * 2:
            b = bytearray(f.read_bytes())
            at = b.find(r[1][3:5].tobytes())
            if at >= 0:
                b[at] ^= 0xFF
                f.write_bytes(b)
    with dormouse.Store(tmp_path / "s", codec="raw") as store:
        model, got = store.register(DESCRIPTOR), empty(N)
        with model.match(p) as match:
            found = match.restore(got)
        assert found.tokens < N and found.reason in ("damaged", "nothing stored", "stored prefix ends")
        assert any(r.name == "kv" and r.levelno >= logging.WARNING for r in caplog.records)
        damage = store.verify().damage
        assert damage and damage[0].file and damage[0].offset >= 0
    (tmp_path / "s" / "FORMAT").write_bytes(b"dormouse?")
    with pytest.raises(dormouse.DormouseError) as caught:
        dormouse.Store(tmp_path / "s")
    assert isinstance(caught.value, dormouse.Corrupt | dormouse.Version | dormouse.Foreign)
    if isinstance(caught.value, dormouse.Corrupt):
        assert caught.value.file and caught.value.offset is not None
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.file, again.offset) == (type(caught.value), str(caught.value), caught.value.file, caught.value.offset)


def test_refs_deletions_sleep(model: dormouse.Model, store: dormouse.Store) -> None:
    p, r = tokens(N), rows(tokens(N))
    with pytest.raises(dormouse.NotStored):
        model.put(p, [dormouse.Rows([m[50:]], first=50) for m in r])
    model.put(p, r)
    model.set_ref("pin", p, pinned=True, priority=3, ttl=1000)
    model.set_ref("mark", p[:100])
    store.delete_ref("pin")
    with pytest.raises(dormouse.NotFound):
        store.delete_ref("pin")
    for bad in ({"priority": 255}, {"priority": -4}, {"ttl": 0}, {"ttl": float("nan")}):
        with pytest.raises(ValueError):
            model.set_ref("x", p, **bad)
    assert store.stats()["blocks"] > 0 and store.verify().bytes > 0
    store.suspend()
    with pytest.raises(dormouse.Suspended):
        model.put(p, r)
    store.resume()
    for level in (1, 2, 3):
        store.pressure(level)
    assert model.probe(p).tokens == N
    assert model.delete(p).blocks > 0 and model.probe(p).tokens < N
    for level in (0, 4, -1):
        with pytest.raises(ValueError):
            store.pressure(level)
    model.retire()
    with pytest.raises(dormouse.Retired):
        model.put(p, r)


def test_no_space(tmp_path: Path) -> None:
    with pytest.raises(dormouse.NoSpace):
        with dormouse.Store(tmp_path / "s", min_free=1 << 60) as store:
            store.register(DESCRIPTOR).put(tokens(N), rows(tokens(N)))


def test_what_is_dropped_in_a_ring_is_closed(tmp_path: Path) -> None:
    """Python drops what refers to itself in any order: a store before its match, too, and closes it then when the match goes. It must not stay locked."""

    class App:
        def __init__(self) -> None:
            self.me = self
            self.store = dormouse.Store(tmp_path / "s")
            self.match = self.store.register(DESCRIPTOR).match(tokens(N))
            self.store.me = self.match.me = self  # type: ignore[attr-defined]

    for _ in range(3):
        App()
        with pytest.warns(ResourceWarning):
            gc.collect()
        dormouse.Store(tmp_path / "s").close()


def test_ends_in_the_wrong_order(tmp_path: Path) -> None:
    """A store that ends before its match says Leased, and stays; it is closed when both are gone, or with the interpreter."""
    store = dormouse.Store(tmp_path / "s")
    with pytest.raises(dormouse.Leased), store.register(DESCRIPTOR).match([1, 2, 3]), store:
        pass
    assert not store.closed
    store.close()
    with pytest.raises(dormouse.Leased), dormouse.Store(tmp_path / "s") as store:
        match = store.register(DESCRIPTOR).match([1, 2, 3])
    match.close()
    with pytest.warns(ResourceWarning):
        del store, match
    dormouse.Store(tmp_path / "s").close()
    program = "import dormouse, sys\ns = dormouse.Store(sys.argv[1])\nm = s.register(dormouse.Descriptor('t', 't', '1' * 32, '2' * 32, [dormouse.Tensor(0, 'K', 'f16', 32)]))\nx = m.match([1])\nx.s = s; s.x = x\n"
    for end in ("", "del s, m, x", "raise SystemExit", "del s; import builtins; builtins.x = x"):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program + end, tmp_path / "s"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""
        with dormouse.Store(tmp_path / "s", read_only=True):
            pass


def test_limits(model: dormouse.Model, store: dormouse.Store) -> None:
    p, r, got = tokens(N), rows(tokens(N)), empty(N)
    cancel = dormouse.Cancel()
    model.put(p, r, timeout=60, cancel=cancel)
    cancel.set()
    assert cancel.is_set()
    with model.match(p) as match:
        for call in (lambda: model.put(p, r, cancel=cancel), lambda: match.restore(got, cancel=cancel), lambda: model.probe(p, cancel=cancel)):
            with pytest.raises(dormouse.Cancelled):
                call()
    cancel.clear()
    for timeout in (None, 1e300, float("inf"), 3600):
        with model.match(p, cancel=cancel, timeout=timeout) as match:
            match.restore(got, cancel=cancel, timeout=timeout)
    for timeout in (0, -4, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            model.probe(p, timeout=timeout)


def test_deadline(tmp_path: Path) -> None:
    """Of ever larger stores, one is not verified in a millisecond."""
    with dormouse.Store(tmp_path / "s", codec="raw", budget=1 << 30) as store:
        model = store.register(DESCRIPTOR)
        for seed in range(64):
            p = tokens(2000, seed)
            model.put(p, rows(p))
            try:
                store.verify(timeout=0.001)
            except dormouse.DeadlineExceeded as err:
                assert err.status == 6 and isinstance(err, TimeoutError)
                return
    pytest.fail("64 MB were verified in a millisecond")


def test_threads(model: dormouse.Model) -> None:
    prompts = [tokens(N, seed) for seed in range(8)]

    def work(i: int) -> bool:
        p = prompts[i % 8]
        r = rows(p)
        for _ in range(10):
            model.put(p, r)
            n, got = restored(model, p, N)
            if n != N or not same(got, r):
                return False
            with pytest.raises(dormouse.NotFound):
                model.store.delete_ref(f"none {i}")
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_other_threads_run_during_a_call(model: dormouse.Model) -> None:
    """ready is called from within a restore, and waits for a thread that needs the GIL."""
    p = tokens(N)
    model.put(p, rows(p))
    got = empty(N)
    with model.match(p) as match:

        def ready(layer: int, n: int) -> None:
            t = threading.Thread(target=lambda: restored(model, p, N))
            t.start()
            t.join()

        assert match.restore_layers(got, ready).tokens == N

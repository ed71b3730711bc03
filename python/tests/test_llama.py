"""llama.cpp: killed, restored and written on, and what is refused. The real library, by ctypes, and through llama-cpp-python if there is one."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dormouse
import llama_host
import pytest
from dormouse import llama
from llama_host import words
from test_processes import in_child

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SMALL = str(ROOT / "runtimes" / "llamacpp" / "testdata" / "stories260K-f32.gguf")
pytestmark = pytest.mark.skipif(not os.environ.get("DORMOUSE_LLAMA_LIB"), reason="SKIPPED: DORMOUSE_LLAMA_LIB is not set; tests/llama/fetch.sh fetches the libraries")
N = 150


def process(role: str, door: str, folder: Path) -> tuple[int, dict[str, Any]]:
    prompt = ROOT / "examples" / "llamachat" / "prompt.txt"
    got = subprocess.run(
        [sys.executable, HERE / "llama_host.py", role, door, folder, os.environ["DORMOUSE_LLAMA_MODEL"], prompt, "24"], capture_output=True, text=True, timeout=600, check=False
    )
    assert got.returncode in (0, -signal.SIGKILL), got.stderr
    return got.returncode, json.loads(got.stdout) if got.stdout else {}


@pytest.mark.parametrize("door", ["ctypes", "llama_cpp"])
def test_killed_and_goes_on(door: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if door == "llama_cpp" and importlib.util.find_spec("llama_cpp") is None:
        with capsys.disabled():
            print("\nSKIPPED: llama-cpp-python is not installed; dormouse.llama was tried by ctypes only")
        pytest.skip("llama-cpp-python is not installed")
    _, want = process("never-killed", door, tmp_path / "s")
    end, _ = process("first", door, tmp_path / "s")
    assert end == -signal.SIGKILL
    _, got = process("second", door, tmp_path / "s")
    with capsys.disabled():
        print(f"\n{door}: {got}")
    assert want["tokens"] > 500 and got["reused"] == want["tokens"] - 1
    assert got["written"] == want["written"]
    assert got.get("evaluated", 1) == 1


def test_killed_again_and_again(lib: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, said, code = tmp_path / "s", [], "import sys, llama_host; llama_host.save_many(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
    for k in range(4):
        with subprocess.Popen([sys.executable, "-c", code, str(folder), SMALL, str(100 * k)], cwd=HERE, stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout is not None
            said += [int(p.stdout.readline()) for _ in range(k + 1)]
            time.sleep(0.02 * k)
            p.kill()
            said += [int(line) for line in p.stdout if line.endswith("\n")]
        assert p.returncode == -signal.SIGKILL
    host, plain = llama_host.Host(lib, SMALL, 256, 32), llama_host.Host(lib, SMALL, 256, 32)
    with dormouse.Store(folder, codec="raw", budget=256 << 20, min_free=-1) as store, llama.attach(store, lib.handle, context=host.context, path=SMALL) as session:
        for seed in said:
            tokens = words(100, seed)
            host.clear()
            plain.clear()
            assert session.restore(tokens).tokens == 99, f"lost: {seed}"
            for at in range(0, 100, 32):
                plain.evaluate(tokens[at : at + 32], at)
            plain.clear(start=99)
            assert host.state() == plain.state(), f"wrong: {seed}"
        assert store.verify().damage == []
    host.close()
    plain.close()
    with capsys.disabled():
        print(f"\nkills: 4 kills, {len(said)} prompts saved, all restored as they are evaluated")


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="SKIPPED: llama-cpp-python is not installed")
def test_the_page(tmp_path: Path) -> None:
    (program, _) = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.S | re.M)
    (tmp_path / "app.py").write_text("import os, llama_host\nif 'LLAMA_CPP_LIB_PATH' in os.environ:\n    llama_host.load_backends()\n" + program.replace("model.gguf", SMALL))
    said = []
    for _ in range(2):
        got = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}, check=True, capture_output=True, text=True)
        said.append(got.stdout.split("\n", 1))
    assert said[0][0] == "0 of 32 tokens from disk" and said[1][0] == "31 of 32 tokens from disk"
    assert len(said[0][1]) > 16


AFTER_THE_END = f"""
import os, llama_host
if 'LLAMA_CPP_LIB_PATH' in os.environ:
    llama_host.load_backends()
import dormouse, llama_cpp
from dormouse import llama
llm = llama_cpp.Llama({SMALL!r}, n_ctx=128, n_batch=16, n_ubatch=16, verbose=False)
tokens = llm.tokenize(b"Once upon a time, there was a little girl named Lily. She loved to play.")
other = llm.tokenize(b"Tom had a big brown dog, and it ran to the river with him every day.")
calls, real = [], llama._function

def function(handle, name, *types):
    def call(*args):
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(handle, name, *types)(*args)
    return call if name == "llama_decode" else real(handle, name, *types)

llama._function = function
with dormouse.Store("kv", min_free=-1) as store:
    calls += [""] * 2
    session = llama.attach(store, llm)
    calls.clear()
    try:
        session.prefill(tokens, 0)
    except KeyboardInterrupt:
        print("in the second batch", llm.n_tokens, llm.input_ids[:16].tolist() == tokens[:16])
    try:
        session.prefill(tokens, 3)
    except dormouse.WrongPositions:
        print("still", llm.n_tokens)
    for token, _ in zip(llm.generate(other, temp=0), range(4)):
        pass
    print("another prompt", session.save().tokens == llm.n_tokens > len(other))
    print("another prompt", session.restore(other).tokens == len(other) - 1)
    session.restore(tokens)
    session.prefill(tokens, 0)
    try:
        session.restore(tokens, 7)
    except dormouse.BadArgument:
        print("no such sequence", llm.n_tokens == len(tokens))
    session.save()
    session.close()
try:
    session.restore(tokens)
except dormouse.Closed:
    print("closed", llm.n_tokens == len(tokens))
llm.close()
try:
    session.restore(tokens)
except dormouse.Closed:
    print("freed")
"""


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="SKIPPED: llama-cpp-python is not installed")
def test_what_fails_leaves_the_llama_alone(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    got = subprocess.run([sys.executable, "-c", AFTER_THE_END], cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert (got.returncode, got.stdout) == (0, "in the second batch 16 True\nstill 16\nanother prompt True\nanother prompt True\nno such sequence True\nclosed True\nfreed\n"), got.stderr


SOMEBODYS = f"""
import os, llama_host
if 'LLAMA_CPP_LIB_PATH' in os.environ:
    llama_host.load_backends()
import dormouse, llama_cpp
from dormouse import llama, Prompt
llm = llama_cpp.Llama({SMALL!r}, n_ctx=256, n_batch=16, n_ubatch=16, verbose=False)
tokens = llm.tokenize(b"Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her red ball.")
other = tokens[:16] + tokens[12:]
secret = Prompt(tokens, scope="somebody", scope_start=24)
with dormouse.Store("kv", min_free=-1) as store, llama.attach(store, llm) as session, session.model() as model:
    def evaluated():
        session.prefill(secret, session.restore(secret).tokens)
    def restored():
        session.restore(secret)
    def failed():
        cancel = dormouse.Cancel()
        cancel.set()
        session.restore(tokens)
        try:
            session.restore(secret, cancel=cancel)
        except dormouse.Cancelled:
            pass
    wrong = Prompt(tokens, scope="somebody", scope_start=len(tokens) + 4)  # characters taken for tokens
    try:
        session.restore(wrong)
    except dormouse.BadPrompt:
        pass
    for token, _ in zip(llm.generate(tokens, temp=0), range(8)):  # the answer goes on behind where the scope would begin
        pass
    try:
        session.save()
    except dormouse.BadPrompt as err:
        print("token %d, the prompt has %d tokens" % (len(tokens) + 4, len(tokens)) in str(err), model.probe(tokens).tokens)
    for known, prompt in ((failed, tokens), (evaluated, tokens), (restored, tokens), (restored, other)):
        known()
        for token, _ in zip(llm.generate(prompt, temp=0), range(8)):
            pass
        held = llm.input_ids[: llm.n_tokens].tolist()
        session.save()
        shared = min(24, next((i for i, (a, b) in enumerate(zip(held, tokens)) if a != b), 24))
        print(model.probe(held).tokens == shared, model.probe(Prompt(held, scope="somebody", scope_start=shared)).tokens == len(held))
    store.delete_scope("somebody")
    print(model.probe(held).tokens, model.probe(tokens).tokens)
    session.prefill(tokens, session.restore(tokens).tokens)
    session.save()
    print(model.probe(tokens).tokens == len(tokens))
"""


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="SKIPPED: llama-cpp-python is not installed")
def test_what_is_somebodys_stays_so(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    got = subprocess.run([sys.executable, "-c", SOMEBODYS], cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert (got.returncode, got.stdout) == (0, "True 0\nTrue True\nTrue True\nTrue True\nTrue True\n16 24\nTrue\n"), got.stdout + got.stderr


TAKEN_BACK = """
import os, llama_host
if 'LLAMA_CPP_LIB_PATH' in os.environ:
    llama_host.load_backends()
import dormouse, llama_cpp
from dormouse import llama
llm = llama_cpp.Llama(os.environ['DORMOUSE_LLAMA_MODEL'], n_ctx=1024, n_batch=256, n_ubatch=256, swa_full=True, flash_attn=True, verbose=False)
tokens = llama_host.words(700)
other = tokens[:600] + llama_host.words(20, seed=9)
def write(prompt):
    for token, _ in zip(llm.generate(prompt, temp=0), range(4)):
        pass
with dormouse.Store("kv", min_free=-1) as store, llama.attach(store, llm) as session, session.model() as model:
    session.prefill(tokens, session.restore(tokens).tokens)
    session.save()
    write(other)  # what was evaluated here can be taken back
    session.save()
    print(model.probe(other).tokens == len(other))
    print(session.restore(tokens).tokens)
    write(other)  # what was restored cannot: it has one window
    try:
        session.save()
    except dormouse.WrongLineage as err:
        print(err.offset)
    session.save(tokens[:600])
    print(session.restore(other).tokens)
    write(other)
    session.save()
    answered = llm.input_ids[: llm.n_tokens].tolist()
    print(session.restore(answered + [5]).tokens == len(answered))
    for token, _ in zip(llm.generate(other, temp=0), range(9)):  # the same answer, behind what was restored, and more
        pass
    print(llm.input_ids[: len(answered)].tolist() == answered and llm.n_tokens > len(answered))
    try:
        session.save()
    except dormouse.WrongLineage as err:
        print(err.offset)
"""


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="SKIPPED: llama-cpp-python is not installed")
def test_taken_back_behind_a_restore(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    got = subprocess.run([sys.executable, "-c", TAKEN_BACK], cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert (got.returncode, got.stdout) == (0, "True\n699\n600\n619\nTrue\nTrue\n619\n"), got.stdout + got.stderr


TAKEN_BACK_IN_TIME = """
import os, llama_host
if 'LLAMA_CPP_LIB_PATH' in os.environ:
    llama_host.load_backends()
import dormouse, llama_cpp
from dormouse import llama
llm = llama_cpp.Llama(os.environ['DORMOUSE_LLAMA_MODEL'], n_ctx=2048, n_batch=256, n_ubatch=256, swa_full=False, flash_attn=True, verbose=False)
tokens = llama_host.words(700)
other = tokens[:690] + llama_host.words(400, seed=9)
with dormouse.Store("kv", min_free=-1) as store, llama.attach(store, llm) as session, session.model() as model:
    session.prefill(tokens, session.restore(tokens).tokens)
    session.save()
    for token, _ in zip(llm.generate(other, temp=0), range(2)):
        pass
    session.save()  # the window was there when the Llama took back; now it is not
    print(model.probe(other).tokens == len(other))
"""


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="SKIPPED: llama-cpp-python is not installed")
def test_what_is_taken_back_is_told_in_time(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    got = subprocess.run([sys.executable, "-c", TAKEN_BACK_IN_TIME], cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
    assert (got.returncode, got.stdout) == (0, "True\n"), got.stdout + got.stderr


@pytest.fixture(scope="module")
def lib() -> Any:
    llama_host.load_backends()
    return llama_host.library()


@pytest.fixture
def host(lib: Any) -> Iterator[Any]:
    h = llama_host.Host(lib, SMALL, 512, 64, 2)
    yield h
    h.close()


@pytest.fixture
def session(store: dormouse.Store, host: Any) -> Iterator[llama.Session]:
    with llama.attach(store, host.lib.handle, context=host.context, path=SMALL) as s:
        yield s


def test_a_round(session: llama.Session, store: dormouse.Store, host: Any) -> None:
    tokens = words(N)
    info = session.info()
    assert info.mode == "rows" and info.batch_tokens == 64 and len(info.fingerprint) == 32 and info.deviation <= 1
    assert session.restore(tokens).reason == "nothing stored"
    session.prefill(tokens[:-1], 0)
    session.prefill(tokens, N - 1)
    assert session.save(tokens).tokens == N
    want = host.write(N, 12)
    got = session.restore(dormouse.Prompt(tokens), 1, timeout=60)
    assert got.tokens == N - 1 and host.held(1) == N - 1
    session.prefill(tokens, N - 1, 1)
    assert host.write(N, 12, 1) == want
    assert session.save(tokens + want, 1).tokens == N + 12
    with session.model() as model:
        assert model.fingerprint == info.fingerprint and model.probe(tokens + want).tokens == N + 12
        assert model.delete(tokens[:64]).blocks > 0
    session.capture(tokens + want, 1)
    session.trim()
    host.clear(0)
    host.clear(1)
    assert session.restore(tokens).tokens < 64


def test_a_loop_of_ones_own(session: llama.Session, host: Any) -> None:
    tokens = words(N, 3)
    for at in range(0, N, 50):
        host.evaluate(tokens[at : at + 50], at)
        session.capture(tokens[: at + 50])
    assert session.save(tokens).tokens == N
    host.clear(0, 100)
    session.truncate(100)
    other = tokens[:100] + words(50, 9)
    host.evaluate(other[100:], 100)
    assert session.save(other).tokens == N
    host.clear(0)
    host.evaluate(words(50, 8), 0)
    with pytest.raises(dormouse.WrongLineage) as caught:
        session.save(words(50, 8))
    assert caught.value.offset == 1
    session.reset()
    session.save(words(50, 8))


def lora(folder: Path) -> Path:
    """An adapter of the small model's keys: a GGUF file."""
    rank, width, out, layers = 4, 64, 32, 5

    def text(s: str) -> bytes:
        return struct.pack("<Q", len(s)) + s.encode()

    head, data = b"GGUF" + struct.pack("<IQQ", 3, 2 * layers, 4), b""
    for key, value in (("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")):
        head += text(key) + struct.pack("<I", 8) + text(value)
    head += text("adapter.lora.alpha") + struct.pack("<If", 6, rank)
    values = random.Random(7)
    for i in range(2 * layers):
        n, m = (rank, out) if i % 2 else (width, rank)
        head += text(f"blk.{i // 2}.attn_k.weight.lora_{'ab'[i % 2]}") + struct.pack("<IQQIQ", 2, n, m, 0, len(data))
        data += struct.pack(f"<{n * m}f", *(values.uniform(-0.5, 0.5) for _ in range(n * m)))
    file = folder / "lora.gguf"
    file.write_bytes(head + bytes(-len(head) % 32) + data)
    return file


def test_adapters_are_set_through_the_session(session: llama.Session, store: dormouse.Store, host: Any, lib: Any, tmp_path: Path) -> None:
    file = lora(tmp_path)
    lib.handle.llama_adapter_lora_init.restype = ctypes.c_void_p
    lib.handle.llama_get_model.restype = ctypes.c_void_p
    model = lib.handle.llama_get_model(ctypes.c_void_p(host.context))
    loaded = lib.handle.llama_adapter_lora_init(ctypes.c_void_p(model), os.fsencode(file))
    assert loaded
    adapter = dormouse.Adapter(bytes.fromhex(dormouse.hash_file(file)), 0.5)
    tokens = words(N, 5)
    session.prefill(tokens, 0)
    session.save(tokens)
    host.clear(0)
    session.set_adapters([(loaded, adapter)])
    assert session.restore(tokens).tokens == 0  # its rows are others
    session.prefill(tokens, 0)
    session.save(tokens)
    host.clear(0)
    assert session.restore(tokens).tokens == N - 1
    host.clear(0)
    session.set_adapters()
    assert session.restore(tokens).tokens == N - 1
    with pytest.raises(dormouse.NotTheModel):
        session.recheck([adapter])


def test_what_is_refused(session: llama.Session, store: dormouse.Store, host: Any, lib: Any) -> None:
    tokens = words(N, 4)

    def attach(**how: Any) -> None:
        llama.attach(store, **{"llama": lib.handle, "context": host.context, "path": SMALL, **how}).close()

    attach(codec="q8_0", rows_only=True)
    for call in (lambda: session.save(tokens), lambda: session.restore(tokens), session.recheck, session.set_adapters):
        with pytest.raises(dormouse.Closed, match="another session"):  # a context has one session, the last one
            call()
    session = llama.attach(store, lib.handle, context=host.context, path=SMALL)
    for how in ({"context": 0}, {"context": None}, {"llama": ctypes.CDLL(None)}, {"path": "a\0b"}):
        with pytest.raises(ValueError):
            attach(**how)
    for how in ({"path": "/does/not/exist"}, {"nonsense": 1}, {"codec": "q99"}, {"sequence": 9}, {"align": -1}, {"keep_states": -7}, {"rope_scale": -1}):
        with pytest.raises(dormouse.BadArgument):
            attach(**how)
    with pytest.raises(dormouse.Refused):
        attach(path=None)
    with pytest.raises(dormouse.NotTheModel):
        attach(path=os.environ["DORMOUSE_LLAMA_SMOL"])
    with pytest.raises(dormouse.NotTheModel):
        session.recheck([dormouse.Adapter(bytes(16), 1.0)])
    session.recheck()
    with pytest.raises(dormouse.BadArgument, match="null"):
        session.set_adapters([(0, dormouse.Adapter(bytes(16), 1.0))])
    with pytest.raises(dormouse.WrongPositions):
        session.prefill(tokens, 5)
    with pytest.raises(dormouse.WrongPositions):
        session.save(tokens)
    with pytest.raises(dormouse.TooLong):
        session.prefill(words(5000), 0)
    with pytest.raises(dormouse.BadArgument):
        session.restore(tokens, 7)
    for sequence in (-1, 2**32):  # of which C would take the lower half
        with pytest.raises(ValueError, match="sequence"):
            session.restore(tokens, sequence)
    with pytest.raises(ValueError):
        session.prefill(tokens, -1)
    session.prefill(tokens, 0)
    with pytest.raises(dormouse.NotEmpty):
        session.restore(tokens)
    cancel = dormouse.Cancel()
    cancel.set()
    with pytest.raises(dormouse.Cancelled):
        session.save(tokens, cancel=cancel)
    with pytest.raises(ValueError):
        session.save(tokens, timeout=-1)
    session.close()
    with pytest.raises(dormouse.Closed):
        session.save(tokens)


def test_a_decode_that_raises(store: dormouse.Store, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = llama._function
    fails: list[BaseException] = []

    def function(handle: Any, name: str, *types: Any) -> Any:
        def call(*args: Any) -> int:
            if fails:
                raise fails.pop()
            return real(handle, name, *types)(*args)

        return call

    monkeypatch.setattr(llama, "_function", function)
    with llama.attach(store, host.lib.handle, context=host.context, path=SMALL) as session:
        fails.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            session.prefill(words(N), 0)
        session.prefill(words(N), host.held())


def test_what_a_decode_raised_is_that_calls_own(store: dormouse.Store, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's call for the same session is Busy, and leaves alone what was raised."""
    said: list[BaseException] = []

    def other() -> None:
        try:
            session.save(words(N))
        except BaseException as err:
            said.append(err)

    def function(handle: Any, name: str, *types: Any) -> Any:
        def call(*args: Any) -> int:
            if at_work:
                raise ZeroDivisionError
            return real(handle, name, *types)(*args)

        return call

    real, at_work = llama._function, []
    monkeypatch.setattr(llama, "_function", function)
    session = llama.attach(store, host.lib.handle, context=host.context, path=SMALL)
    at_work.append(True)
    real_call = llama.lib.call

    def call(name: str, *args: Any) -> None:
        try:
            real_call(name, *args)
        finally:
            if name == "llama_prefill":  # it is over, and its exception is not yet taken
                t = threading.Thread(target=other)
                t.start()
                t.join()

    monkeypatch.setattr(llama.lib, "call", call)
    with pytest.raises(ZeroDivisionError):
        session.prefill(words(N), 0)
    assert len(said) == 1 and isinstance(said[0], dormouse.WrongPositions)
    session.close()


def test_closed_at_work(store: dormouse.Store, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed while its context is at work stays open, so that it can be closed afterwards."""
    real, said = llama._function, []

    def function(handle: Any, name: str, *types: Any) -> Any:
        def call(*args: Any) -> int:
            for of in closes:
                try:
                    of.close()
                except dormouse.Busy:
                    said.append(of.closed)
            return real(handle, name, *types)(*args)

        return call

    closes: list[Any] = []
    monkeypatch.setattr(llama, "_function", function)
    session = llama.attach(store, host.lib.handle, context=host.context, path=SMALL)
    closes += [session, store]
    session.prefill(words(N)[:10], 0)
    closes.clear()
    assert said == [False, False]
    session.save(words(N)[:10])
    session.close()
    assert session.closed


def test_two_contexts_in_two_threads(store: dormouse.Store, lib: Any) -> None:
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            host = llama_host.Host(lib, SMALL, 512, 64)
            with llama.attach(store, lib.handle, context=host.context, path=SMALL) as session:
                for i in range(6):
                    tokens = words(N, seed + i % 2)
                    host.clear()
                    session.prefill(tokens, session.restore(tokens).tokens)
                    session.save(tokens)
                host.clear()
                assert session.restore(words(N, seed)).tokens == N - 1
            host.close()
        except BaseException as err:
            wrong.append(err)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (10, 20, 10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked(session: llama.Session) -> None:
    def child() -> bool:
        for call in (lambda: session.restore(words(N)), lambda: session.prefill(words(N), 0), session.info, session.close):
            try:
                call()
            except dormouse.Forked:
                continue
            return False
        return True

    assert in_child(child) == 0
    assert session.restore(words(N)).tokens == 0

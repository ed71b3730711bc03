"""Processes: forked, spawned, killed."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import dormouse
import pytest
from conftest import DESCRIPTOR, empty, restored, rows, same, tokens

N = 150

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import DESCRIPTOR, rows, tokens
import dormouse
store = dormouse.Store(sys.argv[1], codec="raw", budget=256 << 20)
model = store.register(DESCRIPTOR)
seed = int(sys.argv[3])
while True:
    p = tokens(150, seed)
    model.put(p, rows(p))
    print(seed, flush=True)
    seed += 1
"""


def test_killed_again_and_again(tmp_path: Path) -> None:
    said: list[int] = []
    for k in range(6):
        first = k * 100
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "s"), str(Path(__file__).parent), str(first)], stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout is not None
            for _ in range(k + 1):
                said.append(int(p.stdout.readline()))
            time.sleep(0.01 * (k % 3))
            p.kill()
            said += [int(line) for line in p.stdout if line.endswith("\n")]
        assert p.returncode == -signal.SIGKILL
    with dormouse.Store(tmp_path / "s", codec="raw", budget=256 << 20) as store:
        model = store.register(DESCRIPTOR)
        for seed in said:
            p = tokens(N, seed)
            n, got = restored(model, p, N)
            assert n == N and same(got, rows(p)), seed
        assert store.verify().damage == []


def in_child(work) -> int:
    """The exit code of a forked child."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a hang ends here
        try:
            os._exit(0 if work() else 1)
        except BaseException as err:
            print(repr(err), file=sys.stderr, flush=True)
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked(model: dormouse.Model, store: dormouse.Store, tmp_path: Path) -> None:
    p, got = tokens(N), empty(N)
    model.put(p, rows(p))
    match = model.match(p)

    def child() -> bool:
        for call in (
            lambda: model.probe(p), lambda: match.restore(got), store.sync, store.close, match.close, model.close, lambda: dormouse.Store(tmp_path / "t"), lambda: dormouse.hash(b""),
        ):  # fmt: skip
            try:
                call()
            except dormouse.Forked as err:
                if "spawn" not in str(err) or err.status != 3:
                    return False
            else:
                return False
        return True

    assert in_child(child) == 0
    match.close()
    assert restored(model, p, N)[0] == N


def test_forked_before_the_library_is_used(tmp_path: Path) -> None:
    code = """
import os, sys, dormouse
pid = os.fork()
if pid == 0:
    dormouse.Store(sys.argv[1]).close()
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True, timeout=60)


def work(folder: str) -> int:
    """In a process of its own."""
    with dormouse.Store(folder, codec="raw") as store:
        p = tokens(N)
        return store.register(DESCRIPTOR).put(p, rows(p)).tokens


def test_a_handle_stays_in_its_process(store: dormouse.Store, model: dormouse.Model) -> None:
    """Its number may be another store's there."""
    with model.match(tokens(8)) as match:
        for handle in (store, model, match):
            for copy_of in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="belongs to its process"):
                    copy_of(handle)


def test_spawned(store: dormouse.Store, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(work, (str(tmp_path / "other"),)) == N
        with pytest.raises(dormouse.Locked) as caught:  # an exception of ours comes back whole
            pool.apply(work, (str(tmp_path / "store"),))
        assert caught.value.status == 10
        pool.close()
        pool.join()
    with dormouse.Store(tmp_path / "other") as other:
        assert other.register(DESCRIPTOR).probe(tokens(N)).tokens == N


def test_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """A store and a match that nobody closed: the process ends as it should, and the next one does not have to recover anything that was put."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import DESCRIPTOR, rows, tokens
import dormouse, logging
dormouse.log_to(logging.getLogger())
store = dormouse.Store(sys.argv[1], codec="raw")
model = store.register(DESCRIPTOR)
model.put(tokens(150), rows(tokens(150)))
match = model.match(tokens(150))
"""
    got = subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "s"), str(Path(__file__).parent)], check=True, timeout=60, capture_output=True, text=True)
    assert not got.stderr
    with dormouse.Store(tmp_path / "s", codec="raw") as store:
        assert restored(store.register(DESCRIPTOR), tokens(N), N)[0] == N


def test_the_example(tmp_path: Path) -> None:
    got = subprocess.run([sys.executable, "-m", "dormouse.numpy_example", str(tmp_path / "s")], check=True, capture_output=True, text=True, timeout=120)
    assert "the same as without a kill" in got.stdout and "restored 64 of 70 tokens" in got.stderr, got

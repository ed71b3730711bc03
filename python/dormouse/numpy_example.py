"""A tiny transformer in numpy that writes a text, is killed with SIGKILL, and goes on with the same text: python -m dormouse.numpy_example [FOLDER]

Three runs write the same 96 tokens. The first has no store. The second has one, and is killed in the middle. The third restores what the second
stored, computes the rest, and its text has to be that of the first."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np

import dormouse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

LAYERS, WIDTH, HEADS, WORDS, TOKENS, EVERY, KILL_AT = 4, 64, 4, 256, 96, 16, 70
PROMPT = [(7 * i) % WORDS for i in range(32)]


class Transformer:
    """Random weights, always the same. k[i] and v[i] are the cache of layer i, of shape (TOKENS, WIDTH)."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)

        def matrix(*shape: int) -> Floats:
            return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

        self.embedding, self.head = matrix(WORDS, WIDTH) * 8, matrix(WORDS, WIDTH)
        self.layers = [[matrix(WIDTH, WIDTH) for _ in range(4)] + [matrix(4 * WIDTH, WIDTH), matrix(WIDTH, 4 * WIDTH)] for _ in range(LAYERS)]
        self.weights = dormouse.hash(self.embedding.tobytes() + self.head.tobytes() + b"".join(w.tobytes() for layer in self.layers for w in layer))
        self.k = [np.zeros((TOKENS, WIDTH), np.float32) for _ in range(LAYERS)]
        self.v = [np.zeros((TOKENS, WIDTH), np.float32) for _ in range(LAYERS)]

    def step(self, token: int, at: int) -> int:
        """Evaluates one token at a position, and gives the next one."""
        x = norm(self.embedding[token] + np.float32(0.5) * np.cos(np.arange(WIDTH, dtype=np.float32) * np.float32(at + 1)))
        for i, (wq, wk, wv, wo, up, down) in enumerate(self.layers):
            h = norm(x)
            self.k[i][at], self.v[i][at] = wk @ h, wv @ h
            q = (wq @ h).reshape(HEADS, -1)
            k, v = (m[i][: at + 1].reshape(at + 1, HEADS, -1) for m in (self.k, self.v))
            scores = np.einsum("hd,nhd->hn", q, k) / np.float32(np.sqrt(WIDTH // HEADS))
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            x = x + wo @ np.einsum("hn,nhd->hd", p / p.sum(axis=1, keepdims=True), v).reshape(WIDTH)
            x = x + down @ np.maximum(up @ norm(x), 0)
        return int(np.argmax(self.head @ norm(x)))

    def descriptor(self) -> dormouse.Descriptor:
        tensors = [dormouse.Tensor(i, role, "f32", WIDTH) for i in range(LAYERS) for role in ("K", "V")]
        return dormouse.Descriptor("tiny numpy", "tiny", self.weights, dormouse.hash(b"numbers"), tensors)

    def rows(self) -> list[Floats]:
        """The cache as the store takes it: the same memory."""
        return [m[i] for i in range(LAYERS) for m in (self.k, self.v)]


def norm(x: Floats) -> Floats:
    scaled: Floats = x / np.sqrt(np.mean(x * x) + np.float32(1e-6))
    return scaled


def write(t: Transformer, text: list[int], at: int) -> int:
    """Evaluates the token at a position; at the end of the text, the next one is appended."""
    following = t.step(text[at], at)
    if at + 1 == len(text):
        text.append(following)
        print(following, flush=True)
    return at + 1


def child(folder: str, text: list[int]) -> None:
    """Goes on from a text, and puts the cache into the store every few tokens."""
    t = Transformer()
    with dormouse.Store(folder, codec="raw", budget=64 << 20) as store, store.register(t.descriptor()) as model:
        with model.match(text, limit=len(text) - 1) as match:
            at = match.restore(t.rows()).tokens
        print(f"restored {at} of {len(text)} tokens", file=sys.stderr, flush=True)
        while len(text) < TOKENS:
            at = write(t, text, at)
            if at % EVERY == 0:
                model.put(text[:at], [m[:at] for m in t.rows()])
            time.sleep(0.01)  # a larger model's time


def run(folder: str, text: list[int], kill_at: int) -> list[int]:
    """A process that goes on from a text, and is killed when the text has so many tokens. Gives the text."""
    ids = ",".join(map(str, text))
    with subprocess.Popen([sys.executable, "-m", __spec__.name if __spec__ else __name__, "--child", folder, ids], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        for line in p.stdout:
            text = [*text, int(line)]
            if len(text) == kill_at:
                p.send_signal(signal.SIGKILL)
                break
    if p.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the child ended with {p.returncode}")
    return text


def main(folder: str) -> None:
    t, want, at = Transformer(), list(PROMPT), 0
    while len(want) < TOKENS:
        following = t.step(want[at], at)
        at += 1
        if at == len(want):
            want.append(following)
    cut = run(folder, PROMPT, KILL_AT)
    print(f"killed with {len(cut)} tokens written")
    got = run(folder, cut, 0)
    if got != want:
        raise SystemExit(f"the text differs:\n{got}\n{want}")
    print(f"{len(got)} tokens, the same as without a kill: … {' '.join(map(str, got[-12:]))}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], [int(i) for i in sys.argv[3].split(",")])
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder + "/store")

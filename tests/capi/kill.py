"""Puts prompts, one after the other, and says each on stdout when it is stored; or, as a reader, restores those that are named on stdin and compares them.
Arguments: a folder, "write" or "read". kills.sh kills it."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests"))
import dormouse
import numpy as np
from conftest import DESCRIPTOR, restored, rows, same, tokens

N = 150


def prompt_of(seed: int) -> np.ndarray:
    """One that no other seed has."""
    prompt = tokens(N, seed)
    prompt[:2] = divmod(seed, 1000)
    return prompt


def main(folder: str, what: str) -> None:
    with dormouse.Store(folder, codec="raw", budget=1 << 40, min_free=-1) as store, store.register(DESCRIPTOR) as model:
        if what == "write":
            for seed in itertools.count(int(os.environ.get("FROM", "0"))):
                prompt = prompt_of(seed)
                model.put(prompt, rows(prompt))
                print(seed, flush=True)
        found = 0
        for line in sys.stdin:
            prompt = prompt_of(int(line))
            n, got = restored(model, prompt, N)
            if n != N:
                sys.exit(f"kill.py: lost: of prompt {line.strip()}, which was stored, {n} tokens are there: {model.probe(prompt).reason}")
            if not same(got, rows(prompt)):
                sys.exit(f"kill.py: wrong: prompt {line.strip()} was restored otherwise than it was put")
            found += 1
        print(found)


main(*sys.argv[1:])

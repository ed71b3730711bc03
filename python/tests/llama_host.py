"""A program with llama.cpp 0.5.0, by ctypes or through llama-cpp-python, whose process is killed. Also its parts, for the other tests.

llama_host.py never-killed|first|second ctypes|llama_cpp FOLDER MODEL PROMPT-FILE TOKENS-TO-WRITE
"""

from __future__ import annotations

import ctypes as c
import json
import os
import signal
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import dormouse
import numpy as np
from dormouse import llama

LIB = os.environ.get("DORMOUSE_LLAMA_LIB", "")
BATCH = 256


class _ModelParams(c.Structure):  # 0x50 bytes in 0.5.0
    _fields_ = [("before", c.c_uint64 * 2), ("gpu_layers", c.c_int32), ("rest", c.c_int32 * 33)]


class _ContextParams(c.Structure):  # 0x90
    _fields_ = [(n, c.c_uint32) for n in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "a", "b", "d")] + [
        ("n_threads", c.c_int32), ("n_threads_batch", c.c_int32), ("rest", c.c_int32 * 55),
    ]  # fmt: skip


_functions: dict[str, Any] = {
    "llama_model_default_params": (_ModelParams,), "llama_context_default_params": (_ContextParams,), "llama_model_load_from_file": (c.c_void_p, c.c_char_p, _ModelParams),
    "llama_init_from_model": (c.c_void_p, c.c_void_p, _ContextParams), "llama_model_get_vocab": (c.c_void_p, c.c_void_p), "llama_vocab_n_tokens": (c.c_int32, c.c_void_p),
    "llama_tokenize": (c.c_int32, c.c_void_p, c.c_char_p, c.c_int32, c.c_void_p, c.c_int32, c.c_bool, c.c_bool), "llama_get_memory": (c.c_void_p, c.c_void_p),
    "llama_token_to_piece": (c.c_int32, c.c_void_p, c.c_int32, c.c_char_p, c.c_int32, c.c_int32, c.c_bool), "llama_free": (None, c.c_void_p), "llama_model_free": (None, c.c_void_p),
    "llama_get_logits_ith": (c.POINTER(c.c_float), c.c_void_p, c.c_int32), "llama_memory_seq_rm": (c.c_bool, c.c_void_p, c.c_int32, c.c_int32, c.c_int32),
    "llama_memory_seq_pos_max": (c.c_int32, c.c_void_p, c.c_int32), "llama_decode": (c.c_int32, c.c_void_p, llama._Batch), "llama_log_set": (None, c.c_void_p, c.c_void_p),
    "llama_state_seq_get_size": (c.c_size_t, c.c_void_p, c.c_int32), "llama_state_seq_get_data": (c.c_size_t, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int32),
}  # fmt: skip
_LOG_FN = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
_quiet = _LOG_FN(lambda level, text, user: None)


def load_backends() -> None:
    (ggml,) = Path(LIB).glob("libggml.v*.so")
    c.CDLL(str(ggml), c.RTLD_GLOBAL).ggml_backend_load_all_from_path(LIB.encode())


def library() -> Any:
    """Functions of libllama with their types, and .handle, which has none."""
    (path,) = Path(LIB).glob("libllama.v*.so")
    handle = c.CDLL(str(path))

    class Functions:
        pass

    lib: Any = Functions()
    lib.handle = handle
    for name, (result, *types) in _functions.items():
        setattr(lib, name, c.CFUNCTYPE(result, *types)((name, handle)))
    lib.llama_log_set(c.cast(_quiet, c.c_void_p), None)
    return lib


class Host:
    """A model and a context."""

    def __init__(self, lib: Any, model: str, n_ctx: int, batch: int = BATCH, sequences: int = 1, threads: int = 1) -> None:
        self.lib, self.path = lib, model
        mp = lib.llama_model_default_params()
        mp.gpu_layers = 0
        self.model = lib.llama_model_load_from_file(model.encode(), mp)
        cp = lib.llama_context_default_params()
        cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_seq_max, cp.n_threads, cp.n_threads_batch = n_ctx, batch, batch, sequences, threads, threads
        self.context = lib.llama_init_from_model(self.model, cp)
        assert self.context, "no context"
        self.memory, self.vocab = lib.llama_get_memory(self.context), lib.llama_model_get_vocab(self.model)

    def close(self) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def tokenize(self, text: bytes) -> list[int]:
        out = (c.c_int32 * (len(text) + 8))()
        return list(out[: self.lib.llama_tokenize(self.vocab, text, len(text), out, len(out), True, True)])

    def held(self, sequence: int = 0) -> int:
        return int(self.lib.llama_memory_seq_pos_max(self.memory, sequence)) + 1

    def clear(self, sequence: int = 0, start: int = -1) -> None:
        self.lib.llama_memory_seq_rm(self.memory, sequence, start, -1)

    def state(self) -> bytes:
        """Of sequence 0."""
        buf = c.create_string_buffer(self.lib.llama_state_seq_get_size(self.context, 0))
        return buf.raw[: self.lib.llama_state_seq_get_data(self.context, buf, len(buf), 0)]

    def evaluate(self, tokens: list[int], first: int, sequence: int = 0) -> None:
        n = len(tokens)
        ids, pos, ones, seq, logits = array("i", tokens), array("i", range(first, first + n)), array("i", [1] * n), c.c_int32(sequence), bytearray(n)
        logits[-1] = 1
        seqs, flags = (c.c_void_p * n)(*([c.addressof(seq)] * n)), (c.c_char * n).from_buffer(logits)
        got = self.lib.llama_decode(
            self.context, llama._Batch(n, ids.buffer_info()[0], None, pos.buffer_info()[0], ones.buffer_info()[0], c.addressof(seqs), c.addressof(flags))
        )
        assert got == 0, got

    def likeliest(self) -> int:
        logits = self.lib.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.lib.llama_vocab_n_tokens(self.vocab),)).argmax())

    def write(self, at: int, n: int, sequence: int = 0) -> list[int]:
        out = []
        for i in range(n):
            out.append(self.likeliest())
            self.evaluate(out[-1:], at + i, sequence)
        return out


def words(n: int, seed: int = 1) -> list[int]:
    """Tokens of a vocabulary of 512."""
    return [1] + [3 + (i * i * 31 + i * 7 + seed * 101 + i * seed) % 509 for i in range(1, n)]


def save_many(folder: str, model: str, seed: int) -> None:
    """Evaluates and saves prompts until somebody kills it, and says which are saved."""
    load_backends()
    host = Host(library(), model, 256, 32)
    with dormouse.Store(folder, codec="raw", budget=256 << 20, min_free=-1) as store, llama.attach(store, host.lib.handle, context=host.context, path=model) as session:
        while True:
            tokens = words(100, seed)
            host.clear()
            session.prefill(tokens, session.restore(tokens).tokens)
            session.save(tokens)
            print(seed, flush=True)
            seed += 1


def by_ctypes(role: str, folder: str, model: str, text: bytes, n: int) -> dict[str, Any]:
    load_backends()
    host = Host(library(), model, 1024)
    tokens, reused = host.tokenize(text), 0
    begin = time.perf_counter()
    if role == "never-killed":
        for at in range(0, len(tokens) - 1, BATCH):
            host.evaluate(tokens[at : min(at + BATCH, len(tokens) - 1)], at)
        host.evaluate(tokens[-1:], len(tokens) - 1)
        first = time.perf_counter() - begin
        return {"reused": 0, "first_ms": first * 1000, "written": host.write(len(tokens), n), "tokens": len(tokens)}
    with dormouse.Store(folder, codec="raw") as store:
        with llama.attach(store, host.lib.handle, context=host.context, path=model, memo=folder + ".memo") as session:
            reused = session.restore(tokens).tokens
            if reused < len(tokens) - 1:
                session.prefill(tokens[:-1], reused)
            session.prefill(tokens, len(tokens) - 1)
            host.likeliest()
            first = time.perf_counter() - begin
            if role == "first":
                session.save(tokens)
                os.kill(os.getpid(), signal.SIGKILL)
            written = host.write(len(tokens), n)
    host.close()
    return {"reused": reused, "first_ms": first * 1000, "written": written, "tokens": len(tokens)}


def by_llama_cpp(role: str, folder: str, model: str, text: bytes, n: int) -> dict[str, Any]:
    import llama_cpp

    if "LLAMA_CPP_LIB_PATH" in os.environ:
        load_backends()
    # swa_full restores a window's rows into the first cells: without flash attention llama.cpp adds up other groups of cells then, and a near tie may fall otherwise.
    llm = llama_cpp.Llama(model, n_ctx=1024, n_batch=BATCH, n_ubatch=BATCH, n_threads=1, n_threads_batch=1, swa_full=True, flash_attn=True, verbose=False)
    tokens = llm.tokenize(text)
    evaluated = []
    ours = llm.eval
    llm.eval = lambda some: (evaluated.append(len(some)), ours(some))[1]

    def write() -> list[int]:
        return [t for t, _ in zip(llm.generate(tokens, temp=0), range(n))]

    if role == "never-killed":
        ours(tokens[:-1])
        return {"reused": 0, "written": write(), "evaluated": evaluated[0], "tokens": len(tokens)}
    with dormouse.Store(folder, codec="raw") as store:
        with llama.attach(store, llm, memo=folder + ".memo") as session:
            reused = session.restore(tokens).tokens
            if role == "first":
                session.prefill(tokens[:-1], reused)
                write()
                session.save()  # the prompt, and what was written
                os.kill(os.getpid(), signal.SIGKILL)
            return {"reused": reused, "written": write(), "evaluated": evaluated[0], "tokens": len(tokens)}


if __name__ == "__main__":
    role, door, folder, model, prompt, n = sys.argv[1:]
    run = by_ctypes if door == "ctypes" else by_llama_cpp
    print(json.dumps(run(role, folder, model, Path(prompt).read_bytes()[:2500], int(n))))

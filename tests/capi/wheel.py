"""Puts and restores through the package, without numpy: machines.sh runs it in a Python for arm64."""

import platform
import tempfile

import dormouse

tensors = [dormouse.Tensor(layer, role, "f16", 64) for layer in range(2) for role in ("K", "V")]
model_is = dormouse.Descriptor("toy", "toy", dormouse.hash(b"weights"), dormouse.hash(b"tokenizer"), tensors)
tokens = list(range(200))


def rows(fill: int) -> list[memoryview]:
    return [memoryview(bytearray([fill]) * (200 * 128)).cast("B", (200, 128)) for _ in tensors]


with tempfile.TemporaryDirectory() as d:
    for again in (0, 1):
        with dormouse.Store(d + "/kv", codec="raw") as store, store.register(model_is) as model, model.match(tokens, limit=199) as match:
            got = rows(0)
            found = match.restore(got)
            print(f"{platform.machine()}: {found.tokens} of 200 tokens from disk: {found.reason}")
            assert found.tokens == 199 * again and all(bytes(m)[: 128 * found.tokens] == b"\1" * (128 * found.tokens) for m in got)
            match.extend(tokens, rows(1))

"""The door of Python, for tests/capi/times: what llama_times.cpp says, by ctypes."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests"))
import dormouse
import llama_host
from dormouse import llama

folder, model, _, file, threads = sys.argv[1:]
tokens = [int(t) for t in Path(file).read_text().split()]
llama_host.load_backends()
host = llama_host.Host(llama_host.library(), model, len(tokens) + 64, threads=int(threads))
now = time.perf_counter
for _ in sys.stdin:
    host.clear()
    start = now()
    with dormouse.Store(folder) as store:
        opened = now()
        with llama.attach(store, host.lib.handle, context=host.context, path=model, memo=folder + ".memo") as session:
            attached = now()
            reused = session.restore(tokens).tokens
            restored = now()
            session.prefill(tokens, reused)
            best = host.likeliest()
            first = now()
            restores = [restored - attached]
            for _ in range(4):
                host.clear()
                begin = now()
                session.restore(tokens)
                restores.append(now() - begin)
            times = {"open": opened - start, "attach": attached - opened, "first": first - start}
            said = {"reused": reused, "best": best, "restore": [1000 * t for t in restores], **{name: 1000 * t for name, t in times.items()}}
    print(json.dumps(said), flush=True)

"""llama-server from the Python package xllamacpp: the same flags, for those that the tests use. An unknown flag is an error.

    python3 xserver.py -m model.gguf --port 8080 [flags of llama-server]
"""

import os
import signal
import sys

import xllamacpp as x

TYPES = {n.removeprefix("GGML_TYPE_").lower(): v for n, v in x.ggml_type.__members__.items()}
FLASH = {
    "on": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
}
ROPE = {n.removeprefix("LLAMA_ROPE_SCALING_TYPE_").lower(): v for n, v in x.llama_rope_scaling_type.__members__.items()}


def attribute(name, of=lambda v: v):
    return lambda p, v: setattr(p, name, of(v))


def model(p, v):
    p.model.path = v


def threads(p, v):
    p.cpuparams.n_threads = int(v)


def threads_batch(p, v):
    p.cpuparams_batch.n_threads = int(v)


def lora(p, v):
    a = x.CommonAdapterLoraInfo()
    a.path, a.scale = v, 1.0
    p.lora_adapters = [*p.lora_adapters, a]


def lora_scaled(p, v):
    path, scale = v.rsplit(":", 1)
    lora(p, path)
    p.lora_adapters[-1].scale = float(scale)


def parallel(p, v):
    n = int(v)
    p.n_parallel = 4 if n < 0 else n  # what llama-server makes of "auto"
    p.kv_unified = p.kv_unified or n < 0


def slot_path(p, v):
    p.slot_save_path = v if v.endswith("/") else v + "/"  # the server appends the file's name


VALUES = {  # flag: what to do with its value
    "-m --model": model,
    "-a --alias": attribute("model_alias", lambda v: set(v.split(","))),
    "--host": attribute("hostnames", lambda v: [v]),
    "--port": attribute("port", int),
    "--slot-save-path": slot_path,
    "-c --ctx-size": attribute("n_ctx", int),
    "-np --parallel": parallel,
    "-n --predict --n-predict": attribute("n_predict", int),
    "-b --batch-size": attribute("n_batch", int),
    "-ub --ubatch-size": attribute("n_ubatch", int),
    "-t --threads": threads,
    "-tb --threads-batch": threads_batch,
    "--threads-http": attribute("n_threads_http", int),
    "-ctk --cache-type-k": attribute("cache_type_k", TYPES.__getitem__),
    "-ctv --cache-type-v": attribute("cache_type_v", TYPES.__getitem__),
    "-fa --flash-attn": attribute("flash_attn_type", FLASH.__getitem__),
    "-cram --cache-ram": attribute("cache_ram_mib", int),
    "-ctxcp --ctx-checkpoints --swa-checkpoints": attribute("n_ctx_checkpoints", int),
    "-cms --checkpoint-min-step": attribute("checkpoint_min_step", int),
    "--cache-reuse": attribute("n_cache_reuse", int),
    "-sps --slot-prompt-similarity": attribute("slot_prompt_similarity", float),
    "--api-key": attribute("api_keys", lambda v: v.split(",")),
    "--api-key-file": attribute("api_keys", lambda v: open(v).read().split()),
    "--ssl-key-file": attribute("ssl_file_key"),
    "--ssl-cert-file": attribute("ssl_file_cert"),
    "--api-prefix": attribute("api_prefix"),
    "--chat-template-file": attribute("chat_template", lambda v: open(v).read()),
    "--chat-template": attribute("chat_template"),
    "--rope-scaling": attribute("rope_scaling_type", ROPE.__getitem__),
    "--rope-freq-base": attribute("rope_freq_base", float),
    "--rope-freq-scale": attribute("rope_freq_scale", float),
    "--rope-scale": attribute("rope_freq_scale", lambda v: 1 / float(v)),
    "--yarn-orig-ctx": attribute("yarn_orig_ctx", int),
    "--lora": lora,
    "--lora-scaled": lora_scaled,
    "-ngl --gpu-layers --n-gpu-layers": attribute("n_gpu_layers", int),
    "-lv --verbosity --log-verbosity": attribute("verbosity", int),
}
SWITCHES = {  # flag: attribute and what it becomes
    "-kvu --kv-unified": ("kv_unified", True),
    "-no-kvu --no-kv-unified": ("kv_unified", False),
    "--swa-full": ("swa_full", True),
    "--cache-idle-slots": ("cache_idle_slots", True),
    "--no-cache-idle-slots": ("cache_idle_slots", False),
    "--cache-prompt": ("cache_prompt", True),
    "--no-cache-prompt": ("cache_prompt", False),
    "--context-shift": ("ctx_shift", True),
    "--no-context-shift": ("ctx_shift", False),
    "--slots": ("endpoint_slots", True),
    "--no-slots": ("endpoint_slots", False),
    "--metrics": ("endpoint_metrics", True),
    "--props": ("endpoint_props", True),
    "--jinja": ("use_jinja", True),
    "--no-jinja": ("use_jinja", False),
    "--warmup": ("warmup", True),
    "--no-warmup": ("warmup", False),
    "--no-webui": ("ui", False),
    "--embedding": ("embedding", True),
    "--embeddings": ("embedding", True),
    "-v": ("verbosity", 9),
    "--verbose": ("verbosity", 9),
}
ENV = {"LLAMA_ARG_MODEL": "-m", "LLAMA_ARG_HOST": "--host", "LLAMA_ARG_PORT": "--port", "LLAMA_ARG_CTX_SIZE": "-c", "LLAMA_ARG_N_PARALLEL": "-np", "LLAMA_API_KEY": "--api-key"}

VALUES = {flag: do for flags, do in VALUES.items() for flag in flags.split()}
SWITCHES = {flag: do for flags, do in SWITCHES.items() for flag in flags.split()}


def params(args):
    p = x.CommonParams()
    p.hostnames, p.port = ["127.0.0.1"], 8080
    parallel(p, -1)
    # A number of slots that is given switches the shared buffer off, unless that is asked for, too.
    if any(f in args for f in ("-np", "--parallel")) or "LLAMA_ARG_N_PARALLEL" in os.environ:
        p.kv_unified = False
    for name, flag in ENV.items():
        if os.environ.get(name):
            VALUES[flag](p, os.environ[name])
    args = iter(args)
    for flag in args:
        if flag in SWITCHES:
            setattr(p, *SWITCHES[flag])
        elif flag in VALUES:
            try:
                VALUES[flag](p, next(args))
            except StopIteration:
                sys.exit(f"error: {flag} needs a value")
            except (KeyError, ValueError) as e:
                sys.exit(f"error: {flag}: {e}")
        else:
            sys.exit(f"error: invalid argument: {flag}")
    return p


def main():
    if "--version" in sys.argv:
        print(f"version: {x.__version__.rsplit('.', 1)[-1]} (xllamacpp {x.__version__})", file=sys.stderr)
        return
    p = params(sys.argv[1:])
    stop = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # the server's threads inherit it
    server = x.Server(p)
    print(f"server is listening on {server.listening_address}", file=sys.stderr, flush=True)
    signal.sigwait(stop)
    del server
    os._exit(0)


main()

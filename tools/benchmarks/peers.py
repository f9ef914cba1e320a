"""The engines that lmtp-serve is measured beside on a CPU: llama.cpp's programs, and transformers.

cpu-peers makes them. Every figure is tokens per second of the work that a row names, the same
number of tokens for all; each call starts a process and ends it.
"""

import json
import os
import pathlib
import subprocess

from servers import ROOT, Server, free_port

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements-peers.txt"
BUILD_TIMEOUT_S = 3600
CONVERT_TIMEOUT_S = 900
RUN_TIMEOUT_S = 600
GGUF_KINDS = {"float32": "f32", "bfloat16": "bf16", "int8": "q8_0", "int4": "q4_0"}
KV_KINDS = {"float32": "f32", "bfloat16": "bf16"}  # where those of the flag "kv" are asked for
# Size of a stream in llama.cpp's cache, which is read in pieces of 256.
CELLS_OF_STREAM = 256


def output_of(command, timeout_s, **options):
    """What the program prints; an error names its last line."""
    command = list(map(str, command))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout_s,
        **options,
    )  # fmt: skip
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        raise RuntimeError(f"{pathlib.Path(command[0]).name} failed: {lines[-1][:200]}")
    return done.stdout


def environment():
    """The folder of the peers, made where it is missing."""
    done = subprocess.run(
        [HERE / "cpu-peers"], stdout=subprocess.PIPE, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError("tools/benchmarks/cpu-peers failed: it says why above")
    return pathlib.Path(done.stdout.strip())


def versions(found):
    """Of the peers in the folder `found`; it may be an error instead."""
    if isinstance(found, Exception):
        return f"no peers: {found}"
    requirement = next(r for r in REQUIREMENTS.read_text().splitlines() if not r.startswith("#"))
    code = "import torch, transformers; print(transformers.__version__, torch.__version__)"
    theirs = output_of([found / "bin" / "python", "-c", code], RUN_TIMEOUT_S).split()
    return "llama.cpp of {}, transformers {}, torch {}".format(requirement, *theirs)


class Transformers:
    """One forward pass with the head on the last token only, in oneDNN's and SDPA's kernels."""

    def __init__(self, folder):
        self.python = folder / "bin" / "python"

    def prefill(self, model, dtype, count, repetitions, threads):
        text = output_of(
            [self.python, HERE / "transformers_prefill.py", model, dtype, count, repetitions,
             threads],
            RUN_TIMEOUT_S,
        )  # fmt: skip
        return count / min(json.loads(text.splitlines()[-1]))


class LlamaCpp:
    """llama.cpp, run in the way that flags of cpu_rows.LLAMA_FLAGS say."""

    def __init__(self, folder, flags=()):
        self.folder = folder
        self.flash_attention = "fa" in flags
        self.environment = {"OMP_WAIT_POLICY": "passive"} if "passive" in flags else {}
        self.load = ["--load-mode", "none"] if "no-mmap" in flags else []
        self.own_kv = "kv" in flags

    def kv(self, dtype):
        kind = KV_KINDS[dtype] if self.own_kv else "f16"
        return ["-ctk", kind, "-ctv", kind]

    def gguf(self, model, dtype):
        """The file beside the folder `model` with the same weights, made where it is missing."""
        kind = GGUF_KINDS[dtype]
        file = model.with_name(f"{model.name}-{kind}.gguf")
        if not file.exists():
            new = file.with_suffix(".new")
            if kind == "q4_0":  # which the converter does not write
                command = [self.folder / "bin" / "llama-quantize", self.gguf(model, "bfloat16"),
                           new, kind]  # fmt: skip
            else:
                command = [self.folder / "bin" / "python", HERE / "to_gguf.py",
                           self.folder / "llama.cpp", model, new, kind]  # fmt: skip
            output_of(command, CONVERT_TIMEOUT_S)
            new.rename(file)
        return file

    def decode(self, model, dtype, batch, prompt, count, threads):
        text = output_of(
            [self.folder / "bin" / "llama-batched-bench", "-m", self.gguf(model, dtype),
             "-npp", prompt, "-ntg", count, "-npl", batch, "-c", batch * CELLS_OF_STREAM,
             "-t", threads, "-fa", "on" if self.flash_attention else "off", *self.load,
             *self.kv(dtype), "--output-format", "jsonl"],
            RUN_TIMEOUT_S, env={**os.environ, **self.environment},
        )  # fmt: skip
        return read_batched_bench(text, batch, count)

    def prefill(self, model, dtype, count, repetitions, threads):
        text = output_of(
            [self.folder / "bin" / "llama-bench", "-m", self.gguf(model, dtype), "-p", count,
             "-n", 0, "-r", repetitions, "-t", threads, "-fa", int(self.flash_attention),
             *self.load, "-o", "json"],
            RUN_TIMEOUT_S, env={**os.environ, **self.environment},
        )  # fmt: skip
        return read_bench(text, count)

    def server(self, model, dtype, streams, threads):
        return LlamaServer(self, self.gguf(model, dtype), streams, threads, self.kv(dtype))


def read_batched_bench(text, batch, count):
    """Decoded tokens per second, from the one line of JSON among what it prints."""
    line = next((row for row in text.splitlines() if row.startswith("{")), "{}")
    figures = json.loads(line)
    if (figures.get("pl"), figures.get("tg")) != (batch, count):
        raise RuntimeError(f"llama-batched-bench ran something else: {line}")
    return batch * count / figures["t_tg"]


def read_bench(text, count):
    """Prompt tokens per second of the fastest repetition."""
    (figures,) = json.loads(text)
    if (figures["n_prompt"], figures["n_gen"]) != (count, 0):
        raise RuntimeError(f"llama-bench ran something else: {text[:200]}")
    return max(figures["samples_ts"])


class LlamaServer(Server):
    """llama-server with so many slots, continuous batching and prompt cache: its defaults."""

    name = "llama-server"

    def __init__(self, llama, gguf, streams, threads, kv):
        port = free_port()
        super().__init__(
            [llama.folder / "bin" / "llama-server", "-m", gguf, "--host", "127.0.0.1",
             "--port", port, "--parallel", streams, "-c", streams * CELLS_OF_STREAM,
             "-t", threads, "-fa", "on" if llama.flash_attention else "off", *llama.load,
             *kv, "--offline"],
            port, llama.environment,
        )  # fmt: skip

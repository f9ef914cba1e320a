"""The engines of `tools/bench cpu`: each measures a row and gives a dict of figures.

All get the same random prompts, made of a seed that differs by row and round, so that no cache
helps, and count the same tokens.
"""

import asyncio
import json
import random
import re
import statistics
import subprocess
import time

import peers
from cpu_rows import (
    ATTENTION_CONTEXTS, LLAMA_FLAGS, OURS, PROMPT, TRANSFORMERS, count_weights,
)  # fmt: skip
from servers import LmtpServe, bin_dir
from streams import run_llama, run_lmtp
from wire import Connection

THREADS = 2
STREAMS_START_STEPS = 32  # at most, until all streams of a row decode
VERSION_RUNS = 9


class Scale:
    """How much is measured."""

    def __init__(self, quick, rounds):
        self.rounds = 1 if quick else rounds
        self.decoded = 16 if quick else 64
        self.repetitions = 1 if quick else 2  # of a prefill; the fastest counts
        self.llama_flags = LLAMA_FLAGS[:1] if quick else LLAMA_FLAGS


def random_prompts(vocab, count, length, seed):
    rng = random.Random(seed)
    return [[rng.randrange(vocab) for _ in range(length)] for _ in range(count)]


def figures_of(run):
    return {
        "tokens_per_s": run.tokens_per_s(),
        "p50_ms": run.gap_s(0.5) * 1e3,
        "p99_ms": run.gap_s(0.99) * 1e3,
        "first_ids": [ids[0] for ids in run.ids],
    }


def measure_attention(row):
    """Of GPT-2 medium's width, in heads of row.size; the server is not needed."""
    name = {"float32": "f32", "bfloat16": "bf16"}[row.dtype]
    contexts = "|".join(f"sequences:{n}/new:1/before:{tokens}" for n, tokens in ATTENTION_CONTEXTS)
    command = [bin_dir() / "kernels-bench", f"--threads={THREADS}", "--benchmark_format=json",
               f"--benchmark_filter=^attention/{name}/({contexts})/head:{row.size}/"]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return read_attention(json.loads(done.stdout))


def read_attention(report):
    """Figures by tokens of context."""
    figures = {}
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            raise RuntimeError(f"{entry['name']}: {entry['error_message']}")
        tokens = re.search(r"/before:(\d+)/", entry["name"])[1]
        figures |= {
            f"gb_per_s_{tokens}": entry["GB/s"], f"of_read_{tokens}": entry["of_read"],
            f"of_least_{tokens}": entry["of_least"],
        }  # fmt: skip
    if len(figures) != 3 * len(ATTENTION_CONTEXTS):
        raise RuntimeError(f"kernels-bench has measured something else: {sorted(figures)}")
    return figures


class Ours:
    """lmtp-serve over its socket: one server for all rows of a model and dtype, which stands still
    while others are measured."""

    name = OURS

    def __init__(self, folder, dtype, scale):
        config = json.loads((folder / "config.json").read_text())
        self.folder, self.dtype, self.scale = folder, dtype, scale
        self.vocab, self.eos = config["vocab_size"], [config["eos_token_id"]]
        self.server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is not None:
            self.server.__exit__()

    def new_server(self):
        return LmtpServe(self.folder, "--threads", THREADS, "--dtype", self.dtype)

    def prompts(self, streams, length, seed):
        return random_prompts(self.vocab, streams, length, seed)

    def run(self, server, prompts, count):
        return run_lmtp(server.endpoint, prompts, count, self.eos)

    def measure(self, row, seed):
        if row.kind == "start":
            return self.measure_start(seed)
        if row.kind == "attention":
            return measure_attention(row)
        if self.server is None:
            self.server = self.new_server().__enter__()
        self.server.proceed()
        try:
            self.run(self.server, self.prompts(1, 8, f"warm {seed}"), 4)
            return getattr(self, f"measure_{row.kind}")(row, seed)
        finally:
            self.server.pause()

    def measure_decode(self, row, seed):
        prompts = self.prompts(row.size, PROMPT, seed)
        # The first streams decode while the prompts of the last are still computed.
        run = self.run(self.server, prompts, self.scale.decoded + STREAMS_START_STEPS)
        return {"tokens_per_s": run.steady_tokens_per_s()}

    def measure_prefill(self, row, seed):
        prompts = self.prompts(self.scale.repetitions, row.size, seed)
        runs = [self.run(self.server, [prompt], 1) for prompt in prompts]
        return {"tokens_per_s": row.size / min(run.first_token_s() for run in runs)}

    def measure_streams(self, row, seed):
        prompts = self.prompts(row.size, PROMPT, seed)
        return figures_of(self.run(self.server, prompts, self.scale.decoded))

    @staticmethod
    def version_ms():
        """From the start of the process to its end, the program in the page cache."""
        times = []
        for _ in range(VERSION_RUNS):
            start = time.perf_counter()
            subprocess.run([bin_dir() / "lmtp-serve", "--version"], check=True, capture_output=True)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)

    def measure_start(self, seed):
        """From the start of the process to the first token, and its memory then."""
        with open(self.folder / "model.safetensors", "rb") as file:
            while file.read(1 << 24):  # into the page cache
                pass
        start = time.perf_counter()
        with self.new_server() as server:
            self.run(server, self.prompts(1, PROMPT, seed), 1)
            first_token_s = time.perf_counter() - start
            anonymous = server.rss_bytes("RssAnon")
            kv = asyncio.run(kv_bytes_in_use(server))
        weights = 4 * count_weights(self.folder).all_elements
        return {
            "version_ms": self.version_ms(), "first_token_s": first_token_s,
            "anonymous_bytes": anonymous, "weight_bytes": weights, "kv_bytes": kv,
            "beyond_bytes": anonymous - weights - kv,
        }  # fmt: skip


async def kv_bytes_in_use(server):
    async with Connection(server.endpoint) as c:
        stats = (await c.model_info())["stats"]
    return stats["kv_cache_bytes"] * (1 - stats["num_blocks_free"] / stats["num_blocks"])


class Llama:
    """llama.cpp: its own benchmarks, and llama-server over HTTP."""

    def __init__(self, name, folder, ours):
        self.name, self.ours = name, ours
        self.peer = peers.LlamaCpp(folder, name.split())

    def measure(self, row, seed):
        scale, model = self.ours.scale, self.ours.folder
        if row.kind == "streams":
            return self.measure_streams(row, seed)
        if row.kind == "decode":
            work = self.peer.decode, row.size, PROMPT, scale.decoded
        else:
            work = self.peer.prefill, row.size, scale.repetitions
        call, *sizes = work
        return {"tokens_per_s": call(model, row.dtype, *sizes, THREADS)}

    def measure_streams(self, row, seed):
        with self.peer.server(self.ours.folder, row.dtype, row.size, THREADS) as server:
            run_llama(server.endpoint, self.ours.prompts(1, 8, f"warm {seed}"), 4)
            prompts = self.ours.prompts(row.size, PROMPT, seed)
            return figures_of(run_llama(server.endpoint, prompts, self.ours.scale.decoded))


class Transformers:
    name = TRANSFORMERS

    def __init__(self, folder, ours):
        self.peer, self.ours = peers.Transformers(folder), ours

    def measure(self, row, _seed):
        repetitions = self.ours.scale.repetitions
        model = self.ours.folder
        return {
            "tokens_per_s": self.peer.prefill(model, row.dtype, row.size, repetitions, THREADS)
        }


class Missing:
    """A placeholder for a peer that could not be built."""

    def __init__(self, name, why):
        self.name, self.why = name, why

    def measure(self, _row, _seed):
        raise RuntimeError(self.why)


def engine_of(name, ours, found):
    """`found` is the peers' folder, or why there is none."""
    if name == OURS:
        return ours
    if isinstance(found, Exception):
        return Missing(name, str(found))
    return Transformers(found, ours) if name == TRANSFORMERS else Llama(name, found, ours)

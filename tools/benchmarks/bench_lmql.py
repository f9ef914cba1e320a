#!/usr/bin/env python3
"""The work that LMQL sends, timed at the wire against LMQL's own server, `lmql serve-model`.

    tools/bench lmql [--quick] [--rounds 3] [--model FOLDER] [--output FILE]

The servers load the same folder, lmtp-serve once as float32 and once as bfloat16, and run side by
side, the idle ones stopped; rounds alternate and the median counts. Beside them stands what the
machine allows, measured in the same run. Without --model it is gpt2-medium's shape with random
weights. Then the queries
of tests/lmql/queries on the demo, end to end. Writes docs/benchmarks/lmql-cpu.md. --quick: one
round of everything, on the demo, printed only; it shows that all of it works, not how fast it is.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import report
from cpu_page import machine_at_best
from cpu_rows import count_weights
from random_models import random_model
from roofline import Roofline
from servers import ROOT, LmtpServe, Reference
from shapes import SHAPES, Work, steps_of
from wire import Connection

DEMO = ROOT / "models" / "demo"
QUERIES = ROOT / "tests" / "lmql" / "queries"
OUTPUT = ROOT / "docs" / "benchmarks" / "lmql-cpu.md"
# What has to be reached, as a ratio of the reference's time to ours.
WANTED = {
    "float32": {"one": 1.9, "eight": 1.8, "chunks": 3, "beams": 11, "scores": 11, "mixed": 3},
    "bfloat16": {"one": 3.5, "eight": 3, "chunks": 5},
}
QUERY_ROUNDS = 3


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- the shapes at the wire ----


async def time_shape(server, shape, work):
    async with Connection(server.endpoint, server.model) as c:
        start = time.perf_counter()
        await shape(c, work)
        return time.perf_counter() - start


async def warm_up(server, work):
    async with Connection(server.endpoint, server.model) as c:
        await c.generate(work.ids(8), max_tokens=2)


def name_of(dtype):
    return f"{LmtpServe.name} {dtype}"


class Typed(LmtpServe):
    """lmtp-serve with weights of one type."""

    def __init__(self, model, dtype):
        super().__init__(model, "--dtype", dtype)
        self.name = name_of(dtype)


def time_shapes(servers, model, num_rounds):
    """{shape: {server: [seconds]}}; `servers` are running and stopped when not measured."""
    config = json.loads((model / "config.json").read_text())
    eos = [config["eos_token_id"]]
    times = {shape.__name__: {s.name: [] for s in servers} for shape in SHAPES}
    for i in range(num_rounds):
        for shape in SHAPES:
            for server in servers if i % 2 == 0 else reversed(servers):
                server.proceed()
                work = Work(config["vocab_size"], eos, f"{shape.__name__} {i}")
                seconds = asyncio.run(time_shape(server, shape, work))
                server.pause()
                times[shape.__name__][server.name].append(seconds)
                say(f"round {i + 1}: {shape.__name__:7} {seconds:8.3f} s  {server.name}")
    return times


def run_shapes(model, num_rounds):
    work = Work(json.loads((model / "config.json").read_text())["vocab_size"], [], "warm up")
    with contextlib.ExitStack() as stack:
        ours = [stack.enter_context(Typed(model, dtype)) for dtype in WANTED]
        servers = (stack.enter_context(Reference(model)), *ours)
        for server in servers:
            asyncio.run(warm_up(server, work))
            server.pause()
        times = time_shapes(servers, model, num_rounds)
        memory = {s.name: s.rss_bytes() for s in servers}
    return times, memory


def spread(values):
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.2f}"
    return f"{middle:.2f} ({min(values):.2f}–{max(values):.2f})"


def shape_rows(times, dtype, weights, machine):
    for shape in SHAPES:
        name = shape.__name__
        theirs, ours = times[name][Reference.name], times[name][name_of(dtype)]
        ratio = statistics.median(theirs) / statistics.median(ours)
        wanted = WANTED[dtype].get(name)
        allowed = sum(weights.step_s(dtype, *step, machine) for step in steps_of(shape))
        yield (
            name, shape.__doc__, spread(theirs), spread(ours), f"{allowed:.2f}", f"{ratio:.1f}x",
            f"{wanted:g}x" if wanted else "–",
            "–" if not wanted else "yes" if ratio >= wanted else "**no**",
        )  # fmt: skip


# ---- LMQL's queries, end to end ----


def run_queries(server):
    """{query: (wall, client's processor seconds, server's processor seconds)} of one pass."""
    command = [sys.executable, ROOT / "tests" / "lmql" / "run_queries.py"]
    command += ["--endpoint", server.endpoint, "--model", server.model, "--tokenizer", DEMO]
    queries = sorted(QUERIES.glob("*.lmql"))
    figures = {}
    # The first query once more in front: it loads the tokenizer.
    with subprocess.Popen(
        [*command, queries[0], *queries],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as runner:  # fmt: skip
        before = server.cpu_s()
        for text in runner.stdout:
            line, now = json.loads(text), server.cpu_s()
            if "error" in line:
                raise RuntimeError(f"{line['query']} on {server.name}: {line['error']}")
            figures[line["query"]] = (line["wall_s"], line["cpu_s"], now - before)
            before = now
    return figures


def time_queries(num_rounds):
    """{server: {query: [figures of a round]}}"""
    figures = {s.name: {} for s in (Reference, LmtpServe)}
    with Reference(DEMO) as reference, LmtpServe(DEMO) as ours:
        asyncio.run(warm_up(reference, Work(100, [], "warm up")))
        for server in (reference, ours):
            server.pause()
        for i in range(num_rounds):
            for server in (reference, ours) if i % 2 == 0 else (ours, reference):
                server.proceed()
                say(f"queries, round {i + 1}: {server.name}")
                for query, row in run_queries(server).items():
                    figures[server.name].setdefault(query, []).append(row)
                server.pause()
    return figures


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def query_rows(figures):
    total = [0.0] * 4
    for query in sorted(figures[LmtpServe.name]):
        theirs = medians(figures[Reference.name][query])[0]
        wall, client, server = medians(figures[LmtpServe.name][query])
        total = [a + b for a, b in zip(total, (theirs, wall, client, server))]
        yield query_row(query, theirs, wall, client, server)
    yield query_row("**all**", *total)


def query_row(name, theirs, wall, client, server):
    return (name, f"{theirs:.2f}", f"{wall:.2f}", f"{theirs / wall:.1f}x", f"{client:.2f}",
            f"{client / wall:.0%}", f"{server:.2f}")  # fmt: skip


# ---- the page ----

PAGE = """# LMQL's work on a CPU: lmtp-serve beside `lmql serve-model`

Written by `{command}` on {date}.

- Machine: {machine}.
- Programs: {versions}.
- Measured in the same run, {threads} threads: {read:.1f} GB/s read from memory, {flops:.0f} GFLOP/s
  in float32.
- `serve-model` in float32. Each with all cores and its defaults; they run in turns, the idle ones
  stopped.

## The shapes of work at the wire

Model: {model}.
Seconds from the first request of a shape to its last token, {rounds}; prompts are new in every
round, the same for all. *Allowed*: by the roofline, what the fewest steps that do this work take
that read all weights once each, or multiply as fast as float32 can; of bfloat16 only the reading is
counted. The time in which the shapes' clients wait for answers and send the next request is in no
roofline.

As float32:

{float32}

As bfloat16:

{bfloat16}

Resident memory afterwards: {memory}.

## The queries of tests/lmql, end to end

Model: the embedded demo. One LMQL process runs all queries after LMQL is imported and warm; seconds
for each, {query_rounds}. *LMQL itself* is the processor time of that process, so what no
server can save; its share is of the time with lmtp-serve. The server's processor time counts all
its threads.

{queries}
"""


def describe_rounds(count, extra):
    return "one round" if count == 1 else f"medians of {count} rounds{extra}"


def write_page(args, facts, times, memory, figures, allowing):
    shape_head = ("shape", "work", "`serve-model`, s", "lmtp-serve, s", "allowed, s", "ratio",
                  "wanted", "met")  # fmt: skip
    tables = {
        dtype: report.table(shape_head, shape_rows(times, dtype, *allowing), "llrrrrrl")
        for dtype in WANTED
    }
    query_head = ("query", "`serve-model`, s", "lmtp-serve, s", "ratio", "LMQL itself, s",
                  "its share", "lmtp-serve's processor time, s")  # fmt: skip
    page = PAGE.format(
        **facts,
        rounds=describe_rounds(args.rounds, " (lowest–highest)"),
        **tables,
        memory=", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in memory.items()),
        query_rounds=describe_rounds(args.query_rounds, ""),
        queries=report.table(query_head, query_rows(figures), "lrrrrrr"),
    )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(page, encoding="utf-8")
        say(f"written: {args.output}")
    print(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round on the demo, only printed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=pathlib.Path, help="a folder; default: random gpt2-medium")
    parser.add_argument("--output", type=pathlib.Path, help=f"default: {OUTPUT.relative_to(ROOT)}")
    args = parser.parse_args()
    args.query_rounds = QUERY_ROUNDS
    command = " ".join(["tools/bench lmql", *sys.argv[1:]])
    if args.quick:
        args.rounds = args.query_rounds = 1
    else:
        args.output = args.output or OUTPUT
    model = (args.model or (DEMO if args.quick else random_model("gpt2-medium"))).resolve()
    threads = len(os.sched_getaffinity(0))
    facts = {"command": command, "date": report.today(), "machine": report.machine(),
             "versions": report.versions(), "model": describe(model),
             "threads": threads}  # fmt: skip
    with Roofline() as roofline:
        readings = [roofline.measure(threads)]
        times, memory = run_shapes(model, args.rounds)
        readings.append(roofline.measure(threads))
    machine = machine_at_best(readings)
    facts |= {"read": machine["read_bytes_per_s"] / 1e9, "flops": machine["f32_flops_per_s"] / 1e9}
    allowing = (count_weights(model), machine)
    write_page(args, facts, times, memory, time_queries(args.query_rounds), allowing)


def describe(model):
    config = json.loads((model / "config.json").read_text())
    return (
        f"`{model.name}` ({config['n_layer']} layers, {config['n_embd']} wide, "
        f"{config['n_head']} heads, vocabulary {config['vocab_size']})"
    )


if __name__ == "__main__":
    main()

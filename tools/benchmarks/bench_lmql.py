#!/usr/bin/env python3
"""The work that LMQL sends, timed at the wire against LMQL's own server, `lmql serve-model`.

    tools/bench lmql [--quick] [--rounds 5] [--model FOLDER] [--before BIN] [--output FILE]

The servers load the same folder, lmtp-serve once as float32 and once as bfloat16, and run in
turns, the idle ones stopped; the median of the rounds' ratios counts. What the machine allows is
read right before and behind every run; a round of a shape that found it in two modes does not count
and is taken again, twice at most. Without --model it is gpt2-medium's shape with random weights.
Then the queries of tests/lmql/queries on the demo, end to end, with --before (the bin folder of
another build) also on that lmtp-serve. Writes docs/benchmarks/lmql-cpu.md. --quick: one round of
everything, on the demo, printed only; it shows that all of it works, not how fast it is.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import report
from cpu_page import machine_at_best
from cpu_rows import MODE_FACTOR, count_weights, is_same_mode
from random_models import random_model
from roofline import Roofline
from servers import ROOT, LmtpServe, Reference
from shapes import GROUPS, Work, steps_of
from wire import Connection

DEMO = ROOT / "models" / "demo"
QUERIES = ROOT / "tests" / "lmql" / "queries"
OUTPUT = ROOT / "docs" / "benchmarks" / "lmql-cpu.md"
# What has to be reached, as a ratio of the reference's time to ours.
WANTED = {
    "float32": {"eight": 3.5, "beams": 25, "scores": 12, "again": 100, "mixed": 4},
    "bfloat16": {"one": 3.5, "eight": 3, "chunks": 5},
}
# Of what the machine allowed in the same seconds.
SHARE_WANTED = {"float32": {"one": 0.80, "chunks": 0.75}, "bfloat16": {}}
CPU_WANTED = 0.75  # processor time of the queries, of what it was before
ATTEMPTS = 3  # at a round in one mode of the machine
ROUNDS, QUERY_ROUNDS = 5, 9


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- the shapes at the wire ----


async def time_group(server, group, make_work):
    """{shape: seconds}"""
    seconds = {}
    async with Connection(server.endpoint, server.model) as c:
        for shape in group:
            start = time.perf_counter()
            await shape(c, make_work())
            seconds[shape.__name__] = time.perf_counter() - start
    return seconds


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


def run_group(servers, group, make_work, measure_machine):
    """{server: its seconds and the readings of the machine beside them}"""
    runs = {}
    before = measure_machine()
    for server in servers:
        server.proceed()
        seconds = asyncio.run(time_group(server, group, make_work))
        server.pause()
        behind = measure_machine()
        runs[server.name] = {"seconds": seconds, "readings": [before, behind]}
        shown = ", ".join(f"{name} {s:.3f} s" for name, s in seconds.items())
        read = " and ".join(f"{m['read_bytes_per_s'] / 1e9:.0f}" for m in (before, behind))
        say(f"  {server.name}: {shown}; beside it {read} GB/s")
        before = behind
    return runs


def is_counted(runs, dtype):
    """Whether the machine was the same for the reference and ours."""
    return is_same_mode(runs[Reference.name], runs[name_of(dtype)])


def time_shapes(servers, model, num_rounds, measure_machine):
    """A run_group() for each round; `servers` are running and stopped when not measured."""
    config = json.loads((model / "config.json").read_text())
    eos = [config["eos_token_id"]]
    rounds = []
    for i, group in itertools.product(range(num_rounds), GROUPS):
        for attempt in range(ATTEMPTS):
            seed = f"{group[0].__name__} {i} {attempt}"
            say(f"round {i + 1}: {', '.join(shape.__name__ for shape in group)}")
            runs = run_group(
                servers if i % 2 == 0 else servers[::-1], group,
                lambda: Work(config["vocab_size"], eos, seed),  # noqa: B023: called at once
                measure_machine,
            )  # fmt: skip
            rounds.append(runs)
            if is_counted(runs, "float32"):
                break
            say("  the machine changed its mode: not counted")
    return rounds


def run_shapes(model, num_rounds, measure_machine):
    work = Work(json.loads((model / "config.json").read_text())["vocab_size"], [], "warm up")
    with contextlib.ExitStack() as stack:
        ours = [stack.enter_context(Typed(model, dtype)) for dtype in WANTED]
        servers = (stack.enter_context(Reference(model)), *ours)
        for server in servers:
            asyncio.run(warm_up(server, work))
            server.pause()
        rounds = time_shapes(servers, model, num_rounds, measure_machine)
        memory = {s.name: s.rss_bytes() for s in servers}
    return rounds, memory


def shape_row(shape, rounds, dtype, weights):
    name = shape.__name__
    counted = [
        (runs[Reference.name]["seconds"][name], runs[name_of(dtype)])
        for runs in rounds
        if name in runs[Reference.name]["seconds"] and is_counted(runs, dtype)
    ]
    if not counted:
        return (name, shape.__doc__, *["–"] * 7)
    theirs = [seconds for seconds, _ in counted]
    ours = [run["seconds"][name] for _, run in counted]
    allowed = [
        sum(weights.step_s(dtype, *step, machine_at_best(run["readings"]))
            for step in steps_of(shape))
        for _, run in counted
    ]  # fmt: skip
    ratios = [a / b for a, b in zip(theirs, ours)]
    shares = [a / b for a, b in zip(allowed, ours)]
    wanted, share_wanted = (w[dtype].get(name) for w in (WANTED, SHARE_WANTED))
    met = [statistics.median(ratios) >= wanted] if wanted else []
    met += [statistics.median(shares) >= share_wanted] if share_wanted else []
    return (
        name, shape.__doc__, report.with_quartiles(theirs, ".3g"),
        report.with_quartiles(ours, ".3g"), report.with_quartiles(ratios, ".3g", "x"),
        f"{wanted:g}x" if wanted else "–",
        report.with_quartiles(shares, ".0%") if any(allowed) else "–",
        f"{share_wanted:.0%}" if share_wanted else "–",
        "–" if not met else "yes" if all(met) else "**no**",
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


class Before(LmtpServe):
    """lmtp-serve of another build."""

    name = "before"

    def __init__(self, model, folder):
        super().__init__(model)
        self.command[0] = str(folder / "lmtp-serve")


def time_queries(num_rounds, before):
    """{server: {query: [figures of a round]}}"""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Reference(DEMO)), stack.enter_context(LmtpServe(DEMO))]
        if before:
            servers.append(stack.enter_context(Before(DEMO, before)))
        asyncio.run(warm_up(servers[0], Work(100, [], "warm up")))
        for server in servers:
            server.pause()
        figures = {s.name: {} for s in servers}
        for i in range(num_rounds):
            for server in servers if i % 2 == 0 else servers[::-1]:
                server.proceed()
                say(f"queries, round {i + 1}: {server.name}")
                for query, row in run_queries(server).items():
                    figures[server.name].setdefault(query, []).append(row)
                server.pause()
    return figures


def describe_cpu(figures, before):
    """Of all queries together, in pairs."""
    if not before:
        return ""
    seconds = {
        name: [sum(row[2] for row in rows) for rows in zip(*figures[name].values())]
        for name in (LmtpServe.name, Before.name)
    }
    ratios = [a / b for a, b in zip(seconds[LmtpServe.name], seconds[Before.name])]
    met = "reached" if statistics.median(ratios) <= CPU_WANTED else "**missed**"
    version = report.first_line(before / "lmtp-serve", "--version")
    return (
        f"\nOf all queries lmtp-serve's processor time is {report.with_quartiles(ratios)} of what "
        f"`--before` takes ({version}: {statistics.median(seconds[Before.name]):.2f} s a round); "
        f"{CPU_WANTED:g} are wanted: {met}.\n"
    )


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
- Beside the runs, {threads} threads: {read} GB/s read from memory, {flops} GFLOP/s in float32.
- `serve-model` in float32. Each with all cores and its defaults; they run in turns, the idle ones
  stopped. {num_left_out} of {num_rounds} rounds found the machine in two modes (readings beside
  `serve-model` and float32 that differ by more than {factor}x) and do not count.

## The shapes of work at the wire

Model: {model}.
Seconds from the first request of a shape to its last token; medians, with quartiles and the number
of rounds; ratios are those of each round. Prompts are new in every round, the same for all. *Of
what is allowed*: by the roofline, from what was read right before and behind each run; the fewest
steps that do this work read all weights once each, or multiply as fast as float32 can; of bfloat16
only the reading is counted. The time in which the clients wait for answers and send the next
request is in no roofline.

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
{cpu}"""


def describe_rounds(count):
    return "one round" if count == 1 else f"medians of {count} rounds"


def write_page(args, facts, rounds, memory, figures, weights):
    shape_head = ("shape", "work", "`serve-model`, s", "lmtp-serve, s", "ratio", "wanted",
                  "of what is allowed", "wanted", "met")  # fmt: skip
    tables = {
        dtype: report.table(
            shape_head,
            [shape_row(shape, rounds, dtype, weights) for group in GROUPS for shape in group],
            "llrrrrrrl",
        )
        for dtype in WANTED
    }
    query_head = ("query", "`serve-model`, s", "lmtp-serve, s", "ratio", "LMQL itself, s",
                  "its share", "lmtp-serve's processor time, s")  # fmt: skip
    page = PAGE.format(
        **facts,
        **tables,
        memory=", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in memory.items()),
        query_rounds=describe_rounds(args.query_rounds),
        queries=report.table(query_head, query_rows(figures), "lrrrrrr"),
        cpu=describe_cpu(figures, args.before),
        num_rounds=len(rounds),
        num_left_out=sum(not is_counted(runs, "float32") for runs in rounds),
        factor=MODE_FACTOR,
    )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(page, encoding="utf-8")
        say(f"written: {args.output}")
    print(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round on the demo, only printed")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--model", type=pathlib.Path, help="a folder; default: random gpt2-medium")
    parser.add_argument("--before", type=pathlib.Path, help="folder of another lmtp-serve")
    parser.add_argument("--output", type=pathlib.Path, help=f"default: {OUTPUT.relative_to(ROOT)}")
    args = parser.parse_args()
    args.query_rounds = QUERY_ROUNDS
    command = report.command("tools/bench lmql", args.output, args.before)
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
        rounds, memory = run_shapes(model, args.rounds, lambda: roofline.measure(threads))
    readings = [r for runs in rounds for run in runs.values() for r in run["readings"]]
    for key, fact in (("read_bytes_per_s", "read"), ("f32_flops_per_s", "flops")):
        values = [reading[key] / 1e9 for reading in readings]
        facts[fact] = f"{min(values):.0f} to {max(values):.0f}"
    figures = time_queries(args.query_rounds, args.before)
    write_page(args, facts, rounds, memory, figures, count_weights(model))


def describe(model):
    config = json.loads((model / "config.json").read_text())
    return (
        f"`{model.name}` ({config['n_layer']} layers, {config['n_embd']} wide, "
        f"{config['n_head']} heads, vocabulary {config['vocab_size']})"
    )


if __name__ == "__main__":
    main()

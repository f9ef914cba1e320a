#!/usr/bin/env python3
"""What streams get beside the load of others: gaps between tokens under a storm of prompts, the
first token beside a connection of 200 streams, the place of a program that goes on in chunks, and
32 streams that start together beside llama-server's.

    .venv/bin/python tools/benchmarks/fairness.py [--rows storm,crowd,chunks,together]
        [--model random:gpt2] [--rounds 7] [--quick] [--output FILE.md]

Starts lmtp-serve (from LMTP_BIN_DIR, else the release build) on one core; its clients have the
others. Only `together`, which needs a random model and makes llama.cpp where it is missing
(cpu-peers), is measured as `tools/bench cpu` does, with two threads. Exit code 1 where a stream has
other tokens than alone; how long tokens took is reported only. --quick: seconds on the demo model;
it shows that all of it works.
"""

import argparse
import asyncio
import bisect
import contextlib
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import peers
import report
import traces
from cpu_engines import Llama, Ours, Scale
from cpu_rows import LLAMA_FLAGS, OURS, Row, fastest_way, names_in_turn
from hostile import cores, info_of
from random_models import random_model
from servers import LmtpServe
from shapes import Work
from streams import Run, Visit, run_lmtp
from wire import open_socket

TIMEOUT_S = 600
POLL_S = 0.02
CHECKED, CHECKED_TOKENS = 4, 32  # streams of a load that are run again, alone
SHORT = 24  # tokens of a short prompt: more than a block
ROUNDS_WANTED = 5 / 7
REQUESTS_WANTED = 0.95

DECODING, STORM = 8, 4  # streams of one connection; connections with a long prompt at a time
STORM_GOAL = 3

ANSWER_TOKENS = 4
PAUSE_S_MAX = 0.5  # between two short requests
CROWD_GOAL = 2

CHUNK_TOKENS, CHUNKS = 12, 8
NEWCOMERS = 24
NEWCOMER_TOKENS = (32, 96)
PLACES_OPTION = ("--max-batch-total-tokens", 1024)  # 8 to 18 newcomers
PAUSES_MS = (20, 200)
KEPT_MS = 50

TOGETHER = 32


class WrongTokens(Exception):
    """A stream has other tokens than alone."""


@dataclasses.dataclass
class Size:
    rounds: int
    seconds: float  # of a storm
    crowd: int
    requests: int  # beside a crowd
    settle_steps: int


QUICK = Size(rounds=1, seconds=2, crowd=40, requests=2, settle_steps=10)


@dataclasses.dataclass
class Figure:
    load: str
    what: str
    values: list
    goal: float | None = None  # at most
    share: float = 1.0  # of the values that have to be within

    def row(self):
        values = self.values if len(self.values) > 1 else self.values * 2
        spread = statistics.quantiles(values, n=4, method="inclusive")
        cells = [f"{value:.2f}" for value in (*spread, max(self.values))]
        goal = within = met = ""
        if self.goal is not None:
            num_within = sum(value <= self.goal for value in self.values)
            goal = f"{self.goal:g} in {self.share:.0%}"
            within = f"{num_within} of {len(self.values)}"
            met = "yes" if num_within >= self.share * len(self.values) else "no"
        return (self.load, self.what, len(self.values), *cells, goal, within, met)


HEAD = ("load", "figure", "n", "lower quartile", "median", "upper quartile", "most",
        "goal: at most", "within", "met")  # fmt: skip


class Clients:
    """So many at a time: each opens a connection, reads what its streams get, and leaves for the
    next one."""

    def __init__(self, endpoint, count, requests_of):
        self.endpoint, self.count, self.requests_of = endpoint, count, requests_of
        self.visits = []

    async def __aenter__(self):
        self.tasks = [asyncio.create_task(self.follow()) for _ in range(self.count)]
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        for end in await asyncio.gather(*self.tasks, return_exceptions=True):
            if not isinstance(end, asyncio.CancelledError):
                raise end

    async def follow(self):
        while True:
            visit = Visit(self.requests_of())
            self.visits.append(visit)
            await visit.connect(self.endpoint)

    def num_messages(self):
        return sum(len(visit.messages) for visit in self.visits)

    async def read_messages(self, count):
        """Waits for so many more; of one connection each step's tokens are one."""
        end = self.num_messages() + count
        async with asyncio.timeout(TIMEOUT_S):
            while self.num_messages() < end:
                await asyncio.sleep(POLL_S)
                for task in self.tasks:
                    if task.done():
                        task.result()

    def times(self):
        """When messages came."""
        return sorted(at for visit in self.visits for at, _ in visit.messages)


def in_ms(values):
    return [1e3 * value for value in values]


def requests(work, count, prompt_tokens, max_tokens):
    return [{"prompt": work.ids(prompt_tokens), "max_tokens": max_tokens, "ignore_eos": True}
            for _ in range(count)]  # fmt: skip


def long_request(work, context, max_tokens):
    return requests(work, 1, work.rng.randint(context // 2, context - SHORT), max_tokens)


def check(endpoint, work, visits):
    """Raises WrongTokens if some of their streams do not begin as they do alone."""
    answers = [
        (request["prompt"], ids[:CHECKED_TOKENS])
        for visit in visits
        for request, ids in zip(visit.requests, visit.run().ids) if ids
    ]  # fmt: skip
    for prompt, ids in work.rng.sample(answers, min(CHECKED, len(answers))):
        alone = run_lmtp(endpoint, [prompt], len(ids), [], more=[{"ignore_eos": True}])
        if alone.ids != [ids]:
            raise WrongTokens(f"the prompt {prompt} has other tokens than alone: {ids}")


@contextlib.contextmanager
def serve(options, *more):
    """lmtp-serve on one core, this process on the others."""
    before, (ours, others) = os.sched_getaffinity(0), cores()
    server = LmtpServe(options.model, "--threads", 1, "--dtype", options.dtype, "--kv-cache",
                       options.kv_cache, "--log-level", "warning", *more)  # fmt: skip
    server.popen_options = {"preexec_fn": lambda: os.sched_setaffinity(0, ours)}
    with server:
        os.sched_setaffinity(0, others)
        try:
            info = asyncio.run(info_of(server))
            work = Work(info["vocab_size"], info["eos_token_ids"], options.seed)
            yield server.endpoint, work, info["context_length"]
        finally:
            os.sched_setaffinity(0, before)


# ---- streams that decode while prompts come ----


async def decode(endpoint, work, context, size, num_storm):
    """What the streams got in the seconds, beside so many clients with long prompts; all visits."""
    async with Clients(
        endpoint, 1, lambda: requests(work, DECODING, SHORT, context)
    ) as decoding:
        await decoding.read_messages(size.settle_steps)
        async with Clients(endpoint, num_storm, lambda: long_request(work, context, 1)) as storm:
            await decoding.read_messages(size.settle_steps)
            start = time.perf_counter()
            await asyncio.sleep(size.seconds)
            end = time.perf_counter()
    times = [[at for at in times if start <= at <= end]
             for visit in decoding.visits for times in visit.run().times]  # fmt: skip
    return Run(start, times, None), decoding.visits + storm.visits


def measure_storm(options, size):
    found = {name: [] for name in ("step alone", "step in the storm", "p99 in the storm")}
    with serve(options) as (endpoint, work, context):
        for _ in range(size.rounds):
            alone, _ = asyncio.run(decode(endpoint, work, context, size, 0))
            beside, visits = asyncio.run(decode(endpoint, work, context, size, STORM))
            check(endpoint, work, visits)
            gaps = alone.gap_s(0.5), beside.gap_s(0.5), beside.gap_s(0.99)
            for values, gap in zip(found.values(), gaps):
                values.append(gap)
    for name, values in found.items():
        yield Figure("storm", f"{name}, ms", in_ms(values))
    alone, beside, p99 = found.values()
    yield Figure("storm", "p99 / step alone", [a / b for a, b in zip(p99, alone)],
                 STORM_GOAL, ROUNDS_WANTED)  # fmt: skip
    yield Figure("storm", "p99 / step in the storm", [a / b for a, b in zip(p99, beside)])


# ---- short requests beside a connection with many streams ----


async def ask(endpoint, work, count):
    """One short request after the other."""
    visits = []
    async with open_socket(endpoint) as ws:
        for _ in range(count):
            await asyncio.sleep(work.rng.uniform(0, PAUSE_S_MAX))
            visits.append(Visit(requests(work, 1, SHORT, ANSWER_TOKENS)))
            await visits[-1].talk(ws)
    return visits


def short_streams(work, context, count):
    return requests(work, count, SHORT, context)


def long_streams(work, context, count):
    return [request for _ in range(count) for request in long_request(work, context, context)]


async def ask_beside(endpoint, work, context, size, streams):
    """Of each request the time to its first token and what a step took meanwhile; all visits."""
    async with Clients(endpoint, 1, lambda: streams(work, context, size.crowd)) as crowd:
        await crowd.read_messages(size.settle_steps)
        asked = await ask(endpoint, work, size.requests)
        await crowd.read_messages(1)
    runs = [visit.run() for visit in asked]
    steps = crowd.times()
    waits = [(run.first_token_s(), step_between(steps, run.start, run.times[0][0])) for run in runs]
    return waits, asked + crowd.visits


def step_between(ends, start, end):
    """The mean of the steps that were under way between two times; `ends`: when steps ended."""
    first, last = bisect.bisect_left(ends, start) - 1, bisect.bisect_left(ends, end)
    return (ends[last] - ends[first]) / (last - first)


CROWDS = {"short prompts": short_streams, "long prompts": long_streams}


def measure_crowd(options, size):
    with serve(options) as (endpoint, work, context):
        for name, streams in CROWDS.items():
            all_alone, all_waits, delays = [], [], []
            for _ in range(size.rounds):
                alone = [visit.run().first_token_s()
                         for visit in asyncio.run(ask(endpoint, work, size.requests))]
                waits, visits = asyncio.run(ask_beside(endpoint, work, context, size, streams))
                check(endpoint, work, visits)
                all_alone += alone
                all_waits += waits
                usual = statistics.median(alone)
                delays += [(first - usual) / step for first, step in waits]
            load = f"crowd of {size.crowd}, {name}"
            firsts, steps = zip(*all_waits)
            yield Figure(load, "first token alone, ms", in_ms(all_alone))
            yield Figure(load, "first token beside, ms", in_ms(firsts))
            yield Figure(load, "step beside, ms", in_ms(steps))
            yield Figure(load, "delay of the first token, steps", delays, CROWD_GOAL,
                         REQUESTS_WANTED)  # fmt: skip


# ---- a program that goes on chunk by chunk, where others wait for places ----


async def go_on(endpoint, work, pause_s):
    """Its chunks, each a visit; the same connection."""
    visits, prompt = [], work.ids(SHORT)
    async with open_socket(endpoint) as ws:
        for _ in range(CHUNKS):
            visit = Visit([{"prompt": prompt, "max_tokens": CHUNK_TOKENS, "ignore_eos": True}])
            await visit.talk(ws)
            visits.append(visit)
            prompt = prompt + visit.run().ids[0]
            await asyncio.sleep(pause_s)
    return visits


async def chunks_beside(endpoint, work, pause_s, size):
    async with Clients(
        endpoint, NEWCOMERS, lambda: requests(work, 1, SHORT, work.rng.randint(*NEWCOMER_TOKENS))
    ) as newcomers:
        await newcomers.read_messages(NEWCOMERS * size.settle_steps)
        chunks = await go_on(endpoint, work, pause_s)
    return chunks, newcomers


def measure_chunks(options, size):
    for pause in PAUSES_MS:
        waits, counts = [], []
        for _ in range(size.rounds):
            with tempfile.TemporaryDirectory() as folder:
                trace = pathlib.Path(folder, "trace.json")
                with serve(options, *PLACES_OPTION, "--trace", trace) as (endpoint, work, _):
                    chunks, newcomers = asyncio.run(
                        chunks_beside(endpoint, work, pause / 1e3, size)
                    )
                    check(endpoint, work, chunks + newcomers.visits)
                requests_of, begun = traces.read(trace)
            waits += [visit.run().first_token_s() for visit in chunks[1:]]
            connection = traces.busiest_connection(requests_of)
            counts += traces.count_passed(connection, requests_of, begun)
        load, goal = f"chunks, {pause} ms between them", 0 if pause <= KEPT_MS else None
        since, passed = zip(*counts)
        yield Figure(load, "first token of a chunk, ms", in_ms(waits))
        yield Figure(load, "newcomers that began since the chunk before did", since)
        yield Figure(load, "of these, such as were let in after it had come", passed,
                     goal, REQUESTS_WANTED)  # fmt: skip


# ---- streams that start together, beside llama-server ----


def measure_together(options, size):
    shape = options.model.partition(":")[2]
    if not options.model.startswith("random:"):
        raise RuntimeError("together needs random:SHAPE, which llama.cpp can have, too")
    folder, found = random_model(shape), peers.environment()
    row = Row("streams", shape, options.dtype, TOGETHER)
    entries = {}
    scale = Scale(options.quick, size.rounds)
    with Ours(folder, row.dtype, scale) as ours:
        for number in range(1, size.rounds + 1):
            for name in names_in_turn(row, {row.name: entries}, number, LLAMA_FLAGS):
                engine = ours if name == OURS else Llama(name, found, ours)
                figures = engine.measure(row, f"{row.name} {number}")
                entries.setdefault(name, {"runs": []})["runs"].append(figures)
    mine, theirs = ([run["p99_ms"] for run in entries[name]["runs"]]
                    for name in (OURS, fastest_way(entries)))  # fmt: skip
    load = f"{TOGETHER} together"
    yield Figure(load, "p99, ms", mine)
    yield Figure(load, f"p99 of {fastest_way(entries)}, ms", theirs)
    yield Figure(load, "p99 / llama-server's", [a / b for a, b in zip(mine, theirs)], 1,
                 ROUNDS_WANTED)  # fmt: skip


ROWS = {"storm": measure_storm, "crowd": measure_crowd, "chunks": measure_chunks,
        "together": measure_together}  # fmt: skip
ON_DEMO = ("storm", "crowd", "chunks")


def measure(options, size, say=print):
    """The figures of all rows, and why those that are missing are."""
    figures, missing = [], []
    for name in options.rows.split(","):
        try:
            for figure in ROWS[name](options, size):
                figures.append(figure)
                say(" | ".join(map(str, figure.row())))
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            if name != "together":
                raise
            missing.append(f"`together` was not measured: {e}.")
    return figures, missing


PAGE = """# Fairness under load

Written by `{command}` on {date}, against `lmtp-serve {model} --dtype {dtype} --kv-cache {kv_cache}
--threads 1` on one core; the clients have the others. Prompts are random ids, all different. The
quartiles are those of {rounds} rounds, or of all requests in them; *within* counts those that reach
the goal. {checked} streams of each round were run again alone, and had the same tokens, up to
{checked_tokens} of each.

- `storm`: {decoding} streams of one connection decode, alone and then beside {storm} clients, each
  of which sends a prompt of half the context or more, reads its token and leaves for the next one.
  A *step* is the median of the gaps between a stream's tokens, *p99* their 99th percentile; the
  goal is set to the step alone.
- `crowd`: a connection has {crowd} streams that go on as long as the context does; another one
  sends one prompt of {short} tokens at a time. The *delay* is the time to its first token less the
  median alone, in steps of those moments.
- `chunks`: a program sends {chunks} chunks of {chunk_tokens} tokens, each with the tokens before
  it, while {newcomers} clients, each on a new connection for each stream, wait for 8 to 18 places
  (`{places}`).
- `together`: {together} streams that start together, here and in llama-server, each with two
  threads, in turns, as in `tools/bench cpu`.

- Machine: {machine}.
- {version}.

{table}

{missing}
"""


def write_page(path, options, size, machine, figures, missing):
    page = PAGE.format(
        command=report.command("tools/benchmarks/fairness.py", path), date=report.today(),
        model=options.model, dtype=options.dtype, kv_cache=options.kv_cache, rounds=size.rounds,
        checked=CHECKED, checked_tokens=CHECKED_TOKENS, decoding=DECODING, storm=STORM,
        crowd=size.crowd, short=SHORT, chunks=CHUNKS, chunk_tokens=CHUNK_TOKENS,
        newcomers=NEWCOMERS, places=" ".join(map(str, PLACES_OPTION)), together=TOGETHER,
        machine=machine, version=report.our_version(),
        table=report.table(HEAD, [f.row() for f in figures], "ll"),
        missing=" ".join(missing),
    )  # fmt: skip
    path.write_text(page.rstrip() + "\n", encoding="utf-8")


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="some of them, by commas")
    parser.add_argument("--model", default="random:gpt2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kv-cache", default="4GiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10, help="of a storm")
    parser.add_argument("--crowd", type=int, default=200, help="its streams")
    parser.add_argument("--requests", type=int, default=10, help="of a round, beside the crowd")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="seconds on the demo model")
    parser.add_argument("--output", type=pathlib.Path, help="a Markdown page of the table")
    options = parser.parse_args(arguments)
    if options.quick:
        options.model, options.kv_cache, options.rows = "demo", "64MiB", ",".join(ON_DEMO)
    return options


def main():
    options, machine = parse_arguments(), report.machine()
    size = QUICK if options.quick else Size(options.rounds, options.seconds, options.crowd,
                                            options.requests, settle_steps=40)  # fmt: skip
    print(" | ".join(HEAD))
    figures, missing = measure(options, size)
    print(*missing, sep="\n")
    if options.output:
        write_page(options.output, options, size, machine, figures, missing)


if __name__ == "__main__":
    main()

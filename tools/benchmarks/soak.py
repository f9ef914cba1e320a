#!/usr/bin/env python3
"""Many connections at once, for a while: each stream gets, to the bit, what it gets alone, nothing
is lost or held, the server's memory stays flat, and it is idle afterwards.

    tools/soak [--minutes 20] [--connections 64] [--streams 4] [--model demo] [--kv-cache 8MiB]
               [--seed N] [--output FILE.md]

Starts lmtp-serve (from LMTP_BIN_DIR, else the release build) with a cache that holds few of the
streams. On each place one connection follows another: clients that run queries like LMQL's, beams,
scores and single streams, readers that are slow, clients that leave amid their streams, that half
close or do not read at all, and broken frames. What each stream should get comes from a server that
runs one at a time. Prints a row a minute; exit code 1 where something was wrong.
"""

import argparse
import asyncio
import collections
import concurrent.futures
import functools
import itertools
import json
import pathlib
import random
import socket
import sys
import time

import aiohttp
import attacks
import report
from rounds import GROWTH_MAX, WARM_ROUNDS, memory_growth
from servers import ROOT, LmtpServe
from soak_programs import (
    CHUNK_TOKENS, PROMPT_TOKENS_MAX, TOKENS_MAX, beams, essence, make_programs, one_stream,
    query, wide,
)  # fmt: skip
from wire import Connection, StreamError

sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from raw_frames import Wire, close_frame  # noqa: E402

ROUND_SECONDS = 60
ANSWER_TIMEOUT_S = 300
SETTLE_S_MAX = 60  # until the streams of those who have left are over
IDLE_SECONDS, IDLE_MAX = 10, 0.01  # of a core
LEAVES_AFTER_MAX_S = 0.3
READS_AFTER_MAX_S = 0.02
SMALL_BUFFER = 4096
SLOW_READERS_MAX = 64
KINDS = [query] * 24 + [beams] * 16 + [one_stream] * 48
WIDE_KINDS = [wide] * 8
ATTACKS = (attacks.random_frames, attacks.stall, attacks.half_close)
REASONS_SHOWN = 3


class Load:
    """Clients of one server, and what became of their streams."""

    def __init__(self, server, programs, wide_programs, num_streams, rng):
        self.endpoint = server.endpoint
        self.port = server.endpoint.rpartition(":")[2]
        self.programs, self.wide_programs = programs, wide_programs
        self.num_streams, self.rng = num_streams, rng
        self.slow_readers = concurrent.futures.ThreadPoolExecutor(SLOW_READERS_MAX)
        self.counts = collections.Counter()
        self.reasons = set()

    def take(self, stream, entries):
        self.counts["finished"] += 1
        self.counts["tokens"] += len(entries)
        if essence(entries) != stream.alone:
            self.counts["wrong"] += 1
            self.reasons.add(f"{stream.verb} {json.dumps(stream.request)[:200]} has other bits")

    def lose(self, why):
        self.counts["lost"] += 1
        self.reasons.add(why)

    async def run_program(self, connection, program):
        for group in program:
            ids = [await connection.send(stream.verb, **stream.request) for stream in group]
            for stream_id, stream in zip(ids, group):
                try:
                    self.take(stream, await connection.collect(stream_id))
                except (StreamError, asyncio.TimeoutError) as e:
                    self.lose(repr(e))

    async def follow(self):
        programs = self.rng.sample(self.programs, self.num_streams)
        async with Connection(self.endpoint, timeout_s=ANSWER_TIMEOUT_S) as c:
            await asyncio.gather(*(self.run_program(c, program) for program in programs))
            self.counts["wrong"] += len(c.stray)

    async def leave(self):
        """Amid its streams, with what it has not read."""
        async with attacks.Client(self.port) as c:
            for i, program in enumerate(self.rng.sample(self.programs, self.num_streams)):
                await c.send(attacks.message(program[0][0].verb, stream_id=i,
                                             **program[0][0].request))  # fmt: skip
            await asyncio.sleep(self.rng.random() * LEAVES_AFTER_MAX_S)
        self.counts["left"] += 1

    async def dawdle(self):
        programs = self.rng.sample(self.wide_programs, 2)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.slow_readers, self.read_slowly, programs)

    def read_slowly(self, programs):
        streams = dict(enumerate(program[0][0] for program in programs))
        entries = {stream_id: [] for stream_id in streams}
        with Wire(int(self.port)) as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            for stream_id, stream in streams.items():
                wire.send(attacks.message(stream.verb, stream_id=stream_id, **stream.request))
            while streams:
                time.sleep(random.random() * READS_AFTER_MAX_S)
                message = wire.read()
                if message is None:
                    return self.lose("a slow reader's connection was closed")
                for entry in json.loads(message[1].partition(b" ")[2]):
                    if entry.get("error"):
                        return self.lose(entry["error"])
                    stream_id = entry["stream_id"]
                    entries[stream_id].append(entry)
                    if entry["finish_reason"]:
                        self.take(streams.pop(stream_id), entries[stream_id])
            wire.send(close_frame())

    async def misbehave(self, attack):
        wrong = []
        try:
            await attack(self.port, self.rng, wrong)
        except ConnectionError:
            pass  # the server has closed it, as it may
        self.counts["attacks"] += 1
        self.counts["wrong"] += len(wrong)
        self.reasons.update(wrong)

    async def occupy_place(self, end):
        clients = [self.follow] * 10 + [self.leave] * 3 + [self.dawdle]
        clients += [functools.partial(self.misbehave, attack) for attack in ATTACKS]
        while time.monotonic() < end:
            try:
                await self.rng.choice(clients)()
            except (OSError, aiohttp.ClientError, asyncio.TimeoutError) as e:
                self.lose(f"no connection: {e!r}")

    async def one_round(self, num_places, seconds):
        start = time.monotonic()
        await asyncio.gather(*(self.occupy_place(start + seconds) for _ in range(num_places)))
        result = {"seconds": time.monotonic() - start, "held": await self.held_at_end()}
        async with Connection(self.endpoint) as c:
            result["preemptions"] = (await c.model_info())["stats"]["num_preemptions"]
        return result

    async def held_at_end(self):
        """Sequences and blocks that are held although no client is there."""
        end = time.monotonic() + SETTLE_S_MAX
        async with Connection(self.endpoint) as c:
            while True:
                stats = (await c.model_info())["stats"]
                held = stats["num_running"] + stats["num_waiting"] + stats["num_blocks_pinned"]
                if held == 0 or time.monotonic() > end:
                    return held
                await asyncio.sleep(0.05)


HEAD = ("round", "finished", "lost", "wrong", "left", "attacks", "tokens", "s", "tok/s",
        "preempted", "RSS, MiB")  # fmt: skip


def row_of(number, r):
    rate = round(r["tokens"] / r["seconds"])
    return (number, r["finished"], r["lost"], r["wrong"] + r["held"], r["left"], r["attacks"],
            r["tokens"], round(r["seconds"], 1), rate, r["preemptions"],
            round(r["rss"] / 2**20, 1))  # fmt: skip


def programs_alone(model, seed):
    """Ordinary ones, and those for slow readers; of a server that runs nothing else and remembers
    no scores."""
    with LmtpServe(model, "--kv-cache", "64MiB", "--score-cache", "0") as alone:
        made = asyncio.run(make_programs(alone.endpoint, KINDS + WIDE_KINDS, seed))
    return made[: len(KINDS)], made[len(KINDS) :]


def soak(server, programs, num_places, num_streams, num_rounds, seconds, seed, say=print):
    """Returns the rounds' results; "rss" is the server's memory in bytes at the end of a round."""
    columns = "{:>10}" * len(HEAD)
    load = Load(server, *programs, num_streams, random.Random(seed))
    say(columns.format(*HEAD))
    rounds, preemptions = [], 0
    for i in range(num_rounds):
        load.counts.clear()
        r = collections.Counter(asyncio.run(load.one_round(num_places, seconds)))
        r.update(load.counts)
        r["rss"] = server.rss_bytes()
        r["preemptions"], preemptions = r["preemptions"] - preemptions, r["preemptions"]
        rounds.append(r)
        say(columns.format(*row_of(i + 1, r)))
        for reason in itertools.islice(sorted(load.reasons), REASONS_SHOWN):
            say(f"    {reason}")
        load.reasons.clear()
    return rounds


def all_right(rounds):
    bad = sum(r["lost"] + r["wrong"] + r["held"] for r in rounds)
    return bad == 0 and all(r["finished"] > 0 for r in rounds)


def idle_share(server):
    """Of a core, that it uses for nothing."""
    time.sleep(1)  # what was under way is done
    before = server.cpu_s()
    time.sleep(IDLE_SECONDS)
    return (server.cpu_s() - before) / IDLE_SECONDS


PAGE = """# Many connections at once

Written by `{command}` on {date}, against `lmtp-serve {model} --kv-cache {kv_cache}`.
On each of {places} places one connection follows another, with {streams} programs (queries like
LMQL's in chunks of {chunk} tokens with scores at their end, beams, single streams that are greedy,
drawn, masked or scored, of up to {tokens} tokens behind up to {prompt}), slow readers, clients that
leave amid their streams (*left*), and such as half close, do not read, or send broken frames
(*attacks*). *Wrong* counts streams that differ in a bit from what they get alone, entries of no
stream, and blocks or sequences held at the end of a round. Client (Python) and server share the
machine.

- Machine: {machine}.
- Revision: {revision}.

{table}

{verdict}
"""


def write_page(path, args, rounds, verdict):
    page = PAGE.format(
        command=report.command("tools/soak", path), date=report.today(),
        machine=report.machine(), revision=report.revision(), places=args.connections,
        streams=args.streams, tokens=TOKENS_MAX, prompt=PROMPT_TOKENS_MAX, chunk=CHUNK_TOKENS,
        model=args.model, kv_cache=args.kv_cache, verdict=verdict,
        table=report.table(HEAD, [row_of(i + 1, r) for i, r in enumerate(rounds)], "r"),
    )  # fmt: skip
    path.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=20, help="3 and more tell of memory")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--streams", type=int, default=4, help="programs on each connection")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--kv-cache", default="8MiB", help="what two rounds fill, or memory grows")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--output", type=pathlib.Path, help="a Markdown page of the table")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    programs = programs_alone(args.model, args.seed)
    with LmtpServe(args.model, "--kv-cache", args.kv_cache) as server:
        rounds = soak(server, programs, args.connections, args.streams, args.minutes,
                      ROUND_SECONDS, args.seed)  # fmt: skip
        idle = idle_share(server)
    right, growth = all_right(rounds), memory_growth(rounds)
    verdict = (
        f"Every stream as when alone: {'yes' if right else 'NO'}. Memory after round "
        f"{WARM_ROUNDS}: {growth:+.1%} (at most {GROWTH_MAX:+.0%}). Idle afterwards: {idle:.2%} of "
        f"a core (at most {IDLE_MAX:.0%}). Exit code of the server: {server.exit_code}."
    )
    print(verdict)
    if not right:
        print(server.log_tail)
    if args.output:
        write_page(args.output, args, rounds, verdict)
    good = right and growth <= GROWTH_MAX and idle <= IDLE_MAX and server.exit_code == 0
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Clients that misbehave (attacks.py) beside one that does not: how long that one waits for its
tokens, what the server keeps, and whether SIGTERM still ends it.

    tools/benchmarks/hostile [--pairs 5] [--model demo] [--tls] [--output FILE.md]

Starts lmtp-serve (from LMTP_BIN_DIR, else the release build) on one core; all clients run on the
others, the misbehaving ones at the lowest priority. Each pair is the well-behaved client alone and
then under attack. Exit code 1 where an answer was wrong, something was kept or SIGTERM came too
late; how long tokens took is reported only. All of it stays on the loopback and ends by itself.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import report
from servers import Certificate, LmtpServe
from streams import run_lmtp
from wire import Connection

ATTACKS = pathlib.Path(__file__).with_name("attacks.py")
SHUTDOWN_TIMEOUT_S = 1
SHUTDOWN_SLACK_S = 2
SETTLE_S_MAX = 30  # longer than any close timeout
GROWTH_MAX_BYTES = 48 << 20  # what allocators keep of two huge bodies; a leak grows by each pair
WANTED_RATIO = 3.0
RUNS, PROMPT_TOKENS, TOKENS = 12, 8, 400
OPTIONS = ("--threads", "1", "--kv-cache", "32MiB", "--max-read-buffers", "32MiB",
           "--max-write-queues", "32MiB", "--max-connections", "64",
           "--shutdown-timeout", SHUTDOWN_TIMEOUT_S)  # fmt: skip


def cores():
    """(the server's, the clients'); the same if there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


class Victim(LmtpServe):
    def __init__(self, model, *options, certificate=None):
        super().__init__(model, *OPTIONS, *options, certificate=certificate)
        self.popen_options = {"preexec_fn": lambda: os.sched_setaffinity(0, cores()[0])}

    def num_sockets(self):
        def is_socket(descriptor):
            try:
                return os.readlink(descriptor).startswith("socket:")
            except FileNotFoundError:  # closed since it was listed
                return False

        return sum(map(is_socket, pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))


class Attack:
    """with Attack(server, seed) as a: all misbehave; a.outcome afterwards."""

    def __init__(self, server, seed):
        port = server.endpoint.split(":")[1]
        address = f"tls:{port}" if server.certificate else port
        self.command = [sys.executable, ATTACKS, address, str(seed)]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.nice(5))  # fmt: skip
        assert self.process.stdout.readline() == "on\n", "the misbehaving clients did not start"
        return self

    def __exit__(self, *_):
        self.outcome = json.loads(self.process.communicate()[0])


def url_of(server):
    return ("https://" if server.certificate else "") + server.endpoint


async def info_of(server):
    async with Connection(url_of(server)) as c:
        return await c.model_info()


def settled(server):
    """(sockets, bytes) that the server keeps when all clients are gone and nothing runs."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while True:
        stats = asyncio.run(info_of(server))["stats"]
        held = stats["num_running"] + stats["num_waiting"] + stats["num_blocks_pinned"]
        if (held == 0 and server.num_sockets() == 1) or time.monotonic() > deadline:
            return server.num_sockets(), server.rss_bytes("RssAnon")
        time.sleep(0.2)


def behave(endpoint, num_runs, info):
    """What a well-behaved client gets: (gaps between tokens in s, all ids)."""
    gaps, ids = [], []
    for i in range(num_runs):
        rng = random.Random(i)
        prompt = [rng.randrange(1, info["vocab_size"]) for _ in range(PROMPT_TOKENS)]
        run = run_lmtp(endpoint, [prompt], TOKENS, info["eos_token_ids"])
        gaps += [b - a for a, b in zip(run.times[0], run.times[0][1:])]
        ids.append(run.ids[0])
    return gaps, ids


def p99(gaps):
    return sorted(gaps)[int(0.99 * len(gaps))]


def one_pair(server, seed, num_runs, info):
    result = {}
    gaps, alone = behave(url_of(server), num_runs, info)
    result["alone"] = p99(gaps)
    with Attack(server, seed) as attack:
        gaps, under_attack = behave(url_of(server), num_runs, info)
    result |= attack.outcome
    result["attacked"] = p99(gaps)
    if alone != under_attack:
        result["wrong"].append("the well-behaved client got other tokens")
    result["sockets"], result["bytes"] = settled(server)
    return result


def stop_under_attack(server, seed):
    """Seconds from SIGTERM to the end of the process, while all go on."""
    with Attack(server, seed):
        start = time.monotonic()
        server.process.terminate()
        server.process.wait(SETTLE_S_MAX)
        return time.monotonic() - start


def hostile(server, num_pairs, num_runs=RUNS, say=print):
    """Returns the pairs' results and the seconds that SIGTERM took. Moves this process to the
    clients' cores; the misbehaving ones inherit them, and whom they trust."""
    if server.certificate:
        os.environ["SSL_CERT_FILE"] = str(server.certificate.certfile)
    os.sched_setaffinity(0, cores()[1])
    info = asyncio.run(info_of(server))
    pairs = []
    for i in range(num_pairs):
        pairs.append(one_pair(server, i, num_runs, info))
        say(row_of(i + 1, pairs[-1]), *pairs[-1]["wrong"])
    return pairs, stop_under_attack(server, num_pairs)


def memory_growth(pairs):
    """Bytes, since the first pair."""
    return max(pair["bytes"] for pair in pairs) - pairs[0]["bytes"]


def faults(pairs):
    """Failures, as sentences."""
    found = sorted({wrong for pair in pairs for wrong in pair["wrong"]})
    if any(pair["sockets"] != 1 for pair in pairs):
        found.append("sockets were kept")
    if memory_growth(pairs) > GROWTH_MAX_BYTES:
        found.append(f"memory grew by {memory_growth(pairs) >> 20} MiB")
    return found


HEAD = ("pair", "alone, ms", "under attack, ms", "ratio", "attacks", "sockets", "RssAnon, MiB")


def row_of(number, pair):
    return (number, round(pair["alone"] * 1e3, 2), round(pair["attacked"] * 1e3, 2),
            round(pair["attacked"] / pair["alone"], 2), sum(pair["counts"].values()),
            pair["sockets"] - 1, round(pair["bytes"] / 2**20, 1))  # fmt: skip


PAGE = """# Clients that misbehave

Written by `{command}` on {date}: one client generates {runs} times {tokens} tokens, alone and
beside others that close half and do not read, stall, flood the server with cached SCOREs, send
prompts of 15 MB, leave messages unfinished, come from foreign pages and send random frames; and
over HTTP close half, do not read, flood it with completions that they leave, send bodies byte
by byte, of 15 MB and in chunks of garbage (how many of each: `tools/benchmarks/attacks.py`).
The server (`lmtp-serve {model} {options}`) has one core; all clients share the others, the
misbehaving ones at the lowest priority. The times are the 99th percentile of the gaps between
the one client's tokens; its tokens are the same in both. *sockets* are those that the server
keeps when all are gone.

- Machine: {machine}.
- Revision: {revision}.

{table}

{verdict}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tls", action="store_true", help="all of it over TLS")
    parser.add_argument("--output", type=pathlib.Path, help="a Markdown page of the table")
    args = parser.parse_args()
    machine = report.machine()
    with tempfile.TemporaryDirectory() as folder:
        certificate = Certificate(pathlib.Path(folder)) if args.tls else None
        with Victim(args.model, certificate=certificate) as server:
            pairs, stop_s = hostile(server, args.pairs)
    found = faults(pairs)
    if stop_s > SHUTDOWN_TIMEOUT_S + SHUTDOWN_SLACK_S or server.exit_code != 0:
        found.append(f"SIGTERM took {stop_s:.1f} s, exit code {server.exit_code}")
    ratio = statistics.median(pair["attacked"] / pair["alone"] for pair in pairs)
    verdict = (
        f"Median of the ratios: {ratio:.2f} (wanted: at most {WANTED_RATIO:.0f}). Memory since the "
        f"first pair: {memory_growth(pairs) / 2**20:+.1f} MiB. SIGTERM under attack with "
        f"--shutdown-timeout {SHUTDOWN_TIMEOUT_S}: {stop_s:.1f} s. Faults: "
        f"{'; '.join(found) or 'none'}."
    )
    print(verdict)
    if args.output:
        page = PAGE.format(
            command=report.command("tools/benchmarks/hostile", args.output),
            date=report.today(), runs=RUNS,
            tokens=TOKENS, model=args.model, options=" ".join(map(str, OPTIONS)), machine=machine,
            revision=report.revision(), verdict=verdict,
            table=report.table(HEAD, [row_of(i + 1, p) for i, p in enumerate(pairs)], "r"),
        )  # fmt: skip
        args.output.write_text(page, encoding="utf-8")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

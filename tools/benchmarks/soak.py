#!/usr/bin/env python3
"""Many connections at once, round after round: everything finishes, nothing is lost, and the
server's memory stays flat.

    tools/soak [--connections 200] [--streams 4] [--rounds 10] [--model demo] [--output FILE.md]

Starts lmtp-serve (from LMTP_BIN_DIR, else the release build) with a small KV cache, so that the
first round fills it; every round opens its connections anew. Prints a table; exit code 1 where
something was lost or memory grew.
"""

import argparse
import asyncio
import pathlib
import random
import sys
import time

import report
from servers import LmtpServe
from wire import Connection, StreamError

SCORED_TOKENS = 12
TOKENS_MAX = 40
PROMPT_TOKENS_MAX = 64
GROWTH_MAX = 0.05  # of the memory after the second round
WARM_ROUNDS = 2
SMALL_BYTES = 128 << 20
ROUND_TIMEOUT_S = 900
REASONS_SHOWN = 3


def draw(rng, vocab):
    """One request and the most tokens that it can get."""
    ids = lambda n: [rng.randrange(vocab) for _ in range(n)]
    prompt = ids(rng.randint(1, PROMPT_TOKENS_MAX))
    kind = rng.randrange(4)
    if kind == 0:
        return "SCORE", {"prompt": prompt, "scored": ids(SCORED_TOKENS)}, SCORED_TOKENS
    count = rng.randint(1, TOKENS_MAX)
    params = {"prompt": prompt, "max_tokens": count, "temperature": 0}
    if kind == 1:
        params |= {"temperature": 0.9, "top_p": 0.9, "seed": rng.randrange(1 << 30)}
    elif kind == 2:
        params |= {"logit_bias": {str(t): -100 for t in range(0, vocab, 2)}, "top_logprobs": 3}
    return "GENERATE", params, count


def is_whole(verb, request, count, entries):
    """The stream has all its tokens, in order, and its end is the last of them."""
    if [e for e in entries[:-1] if e["finish_reason"]] or not entries:
        return False
    if verb == "SCORE":
        return [e["token"] for e in entries] == request["scored"]
    stopped = len(entries) < count and entries[-1]["finish_reason"] == "stop"
    return len(entries) == count or stopped


async def one_connection(endpoint, vocab, num_streams, seed, result):
    rng = random.Random(seed)
    async with Connection(endpoint, timeout_s=ROUND_TIMEOUT_S) as c:
        requests = [draw(rng, vocab) for _ in range(num_streams)]
        ids = [await c.send(verb, **request) for verb, request, _ in requests]
        for stream_id, (verb, request, count) in zip(ids, requests):
            try:
                entries = await c.collect(stream_id)
            except (StreamError, asyncio.TimeoutError) as e:
                result["lost"] += 1
                result.setdefault("reasons", []).append(repr(e))
                continue
            result["finished"] += 1
            result["tokens"] += len(entries)
            result["broken"] += not is_whole(verb, request, count, entries)
        result["stray"] += len(c.stray)


async def one_round(endpoint, vocab, num_connections, num_streams, seed):
    result = dict.fromkeys(("finished", "lost", "broken", "stray", "tokens"), 0)
    start = time.perf_counter()
    await asyncio.gather(
        *(
            one_connection(endpoint, vocab, num_streams, seed * num_connections + i, result)
            for i in range(num_connections)
        )
    )
    result["seconds"] = time.perf_counter() - start
    async with Connection(endpoint) as c:
        stats = (await c.model_info())["stats"]
    result["held"] = stats["num_running"] + stats["num_waiting"] + stats["num_blocks_pinned"]
    result["preemptions"] = stats["num_preemptions"]
    return result


HEAD = ("round", "finished", "lost", "broken", "tokens", "s", "tok/s", "preempted", "RSS, MiB")


def row_of(number, r):
    wrong = r["broken"] + r["stray"] + r["held"]
    rate = round(r["tokens"] / r["seconds"])
    return (number, r["finished"], r["lost"], wrong, r["tokens"], round(r["seconds"], 2), rate,
            r["preemptions"], round(r["rss"] / 2**20, 1))  # fmt: skip


def soak(server, num_connections, num_streams, num_rounds, say=print):
    """Returns the rounds' results; "rss" is the server's memory in bytes at the end of a round."""
    columns = "{:>10}" * len(HEAD)
    vocab = asyncio.run(vocabulary(server.endpoint))
    say(columns.format(*HEAD))
    rounds, preemptions = [], 0
    for i in range(num_rounds):
        r = asyncio.run(one_round(server.endpoint, vocab, num_connections, num_streams, i))
        r["rss"] = server.rss_bytes()
        r["preemptions"], preemptions = r["preemptions"] - preemptions, r["preemptions"]
        rounds.append(r)
        say(columns.format(*row_of(i + 1, r)))
        for reason in sorted(set(r.get("reasons", [])))[:REASONS_SHOWN]:
            say(f"    {reason}")
    return rounds


async def vocabulary(endpoint):
    async with Connection(endpoint) as c:
        return (await c.model_info())["vocab_size"]


def memory_growth(rounds):
    """Of the highest round after the warm ones over the last warm one, as a fraction. A server of a
    small model counts as SMALL_BYTES: what an allocator keeps does not shrink with the model."""
    warm = rounds[min(WARM_ROUNDS, len(rounds)) - 1]["rss"]
    highest = max([r["rss"] for r in rounds[WARM_ROUNDS:]], default=warm)
    return (highest - warm) / max(warm, SMALL_BYTES)


def all_whole(rounds, num_streams):
    bad = sum(r["lost"] + r["broken"] + r["stray"] + r["held"] for r in rounds)
    return bad == 0 and all(r["finished"] == num_streams for r in rounds)


PAGE = """# Many connections at once

Written by `{command}` on {date}: in every round {connections} connections are opened, each with
{streams} streams (greedy, drawn, under a mask of half the vocabulary, scored; up to {tokens} tokens
behind up to {prompt}), against `lmtp-serve {model} --kv-cache {kv_cache}`. *Broken* counts streams
with a token too few or too many, entries of no stream, and blocks or sequences held at the end.
Client (Python) and server share the machine.

- Machine: {machine}.
- Revision: {revision}.

{table}

{verdict}
"""


def write_page(path, args, rounds, verdict):
    page = PAGE.format(
        command=" ".join(["tools/soak", *sys.argv[1:]]), date=report.today(),
        machine=report.machine(), revision=report.revision(), connections=args.connections,
        streams=args.streams, tokens=TOKENS_MAX, prompt=PROMPT_TOKENS_MAX, model=args.model,
        kv_cache=args.kv_cache, verdict=verdict,
        table=report.table(HEAD, [row_of(i + 1, r) for i, r in enumerate(rounds)], "r"),
    )  # fmt: skip
    path.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--streams", type=int, default=4, help="on each connection")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--kv-cache", default="64MiB", help="what two rounds fill, or memory grows")
    parser.add_argument("--output", type=pathlib.Path, help="a Markdown page of the table")
    args = parser.parse_args()
    with LmtpServe(args.model, "--kv-cache", args.kv_cache) as server:
        rounds = soak(server, args.connections, args.streams, args.rounds)
    whole = all_whole(rounds, args.connections * args.streams)
    growth = memory_growth(rounds)
    verdict = (
        f"Everything finished: {'yes' if whole else 'NO'}. Memory after round {WARM_ROUNDS}: "
        f"{growth:+.1%} (at most {GROWTH_MAX:+.0%}). Exit code of the server: {server.exit_code}."
    )
    print(verdict)
    if args.output:
        write_page(args.output, args, rounds, verdict)
    return int(not whole or growth > GROWTH_MAX or server.exit_code != 0)


if __name__ == "__main__":
    sys.exit(main())

"""Kills workers behind `lmtp-serve balance` with SIGKILL at random moments of a load, starts them
again, and compares every stream with that of a single server: each entry's text, log probabilities
included. Clients see no error. One of the three workers at least is up at any time.

    tools/benchmarks/balance_kills.py --kills 50

With the Python of tools/setup (.venv/bin/python)."""

import argparse
import asyncio
import json
import pathlib
import random
import subprocess
import sys

import aiohttp

from servers import LmtpServe, Server, bin_dir, free_port

NUM_WORKERS = 3
STREAMS_A_CONNECTION = 8
TIMEOUT_S = 120
WORKER_OPTIONS = ("--kv-cache", "64MiB", "--threads", "1", "--log-level", "warning")


class Worker(LmtpServe):
    """A demo server that can be killed and started at the same address."""

    def __init__(self, *options, model="demo"):
        super().__init__(model, *WORKER_OPTIONS, *options)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def revive(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)


class Balancer(Server):
    name = "lmtp-serve balance"
    model = "demo"

    def __init__(self, workers, *options):
        port = free_port()
        endpoints = [worker.endpoint for worker in workers]
        super().__init__(
            [bin_dir() / "lmtp-serve", "balance", *endpoints, "--port", port, *options], port
        )


    def held(self):
        """Threads and descriptors."""
        process = pathlib.Path(f"/proc/{self.process.pid}")
        return tuple(len(list((process / part).iterdir())) for part in ("task", "fd"))


def request(i, num_tokens):
    """Greedy ones, drawn ones, ones whose draws depend on all that came, ones whose text the
    server makes and stops; and scores. The prompts have eight beginnings."""
    prompt = [100 + i % 8] * 40 + [i % 500 + 1]
    if i % 8 == 5:
        return "SCORE", {"prompt": prompt, "scored": list(range(1, 200)), "top_logprobs": 2}
    fields = {"prompt": prompt, "max_tokens": num_tokens, "seed": i, "ignore_eos": True}
    fields |= {"temperature": i % 3 / 2, "repetition_penalty": 1 + i % 2 / 5, "top_logprobs": 2}
    if i % 4 == 3:
        fields |= {"text": True, "stop": ["the old man's", "\n\n\n"]}
    if i % 8 == 6:
        fields |= {"n": 2}
    return "GENERATE", fields


async def run_connection(endpoint, requests, begun):
    """The entries of each stream as sent, but for stream ids; numbers as text."""
    streams = {i: [] for i in requests}
    left = {i: fields.get("n", 1) for i, (_, fields) in requests.items()}
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"http://{endpoint}/", max_msg_size=0) as ws:
            for i, (verb, fields) in requests.items():
                await ws.send_str(f"{verb} {json.dumps({**fields, 'stream_id': i})}")
            while any(left.values()):
                message = await ws.receive(timeout=TIMEOUT_S)
                assert message.type is aiohttp.WSMsgType.TEXT, message
                for entry in json.loads(message.data.split(" ", 1)[1], parse_float=str):
                    i = entry.pop("stream_id")
                    begun.add(i)
                    streams[i].append(entry)
                    if "error" in entry or entry["finish_reason"]:
                        left[i] -= 1
    for entries in streams.values():  # samples of one stream come in any order
        entries.sort(key=lambda entry: entry.get("index", 0))
    return streams


async def run_load(endpoint, num_streams, num_tokens, begun=None):
    begun = set() if begun is None else begun
    parts = []
    for first in range(0, num_streams, STREAMS_A_CONNECTION):
        ids = range(first, min(first + STREAMS_A_CONNECTION, num_streams))
        requests = {i: request(i, num_tokens) for i in ids}
        parts.append(run_connection(endpoint, requests, begun))
    streams = {}
    for part in await asyncio.gather(*parts):
        streams |= part
    return streams


def compare(got, wanted, report):
    """How many streams have errors, and how many differ."""
    errors = different = 0
    for i, entries in got.items():
        if any("error" in entry for entry in entries):
            errors += 1
            report(f"stream {i} ends with {entries[-1]}")
        elif entries != wanted[i]:
            different += 1
            report(f"stream {i} has {len(entries)} entries, not as on a single server")
    return errors, different


async def run_kills(balancer, workers, wanted, num_kills, num_streams, num_tokens, seed, report):
    """Errors, streams that differ, and kills that met running streams."""
    chance = random.Random(seed)
    errors = different = kills = met = 0
    while kills < num_kills:
        begun = set()
        load = asyncio.create_task(run_load(balancer.endpoint, num_streams, num_tokens, begun))
        while kills < num_kills and not load.done():
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            up = [w for w in workers if await asyncio.to_thread(w.is_ready)]
            if not begun or load.done() or len(up) < 2:
                continue
            worker = chance.choice(up)
            worker.kill()
            kills += 1
            met += not load.done()
            await asyncio.sleep(chance.uniform(0, 0.3))
            worker.revive()
        some_errors, some_different = compare(await load, wanted, report)
        errors += some_errors
        different += some_different
    return errors, different, met


def run(num_kills, num_streams=32, num_tokens=200, seed=0, report=print):
    with Worker() as single:
        wanted = asyncio.run(run_load(single.endpoint, num_streams, num_tokens))
    with Worker() as a, Worker() as b, Worker() as c:
        with Balancer([a, b, c]) as balancer:
            work = run_kills(
                balancer, [a, b, c], wanted, num_kills, num_streams, num_tokens, seed, report
            )
            return asyncio.run(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    errors, different, met = run(options.kills, options.streams, options.tokens, options.seed)
    print(
        f"{options.kills} kills of workers, {met} of them while streams ran: {errors} errors, "
        f"{different} streams that differ from a single server's"
    )
    return 1 if errors or different else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What clients whose prompts are refused for their length cost clients that read tokens.

    .venv/bin/python tools/benchmarks/refused_prompts.py [MODEL] [--pairs 5] [--seconds 5]

lmtp-serve has one core and all clients another one. A stream is read alone, then beside two clients
that each send GENERATEs of 7.8 million ids (15 MiB) as fast as they are refused; so often in turns.
Printed are the gaps between tokens that 99 % do not exceed, and the server's peak memory. Exits
with 1 where the median of the pairs' ratios is above 2.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time

from servers import LmtpServe
from streams import run_lmtp
from wire import Connection

NUM_HOSTILE = 2
PROMPT_BYTES = 15 << 20
RATIO_MAX = 2.0
MAX_TOKENS = 400
TIMEOUT_S = 60


def frame(text):
    """One WebSocket text message as a client sends it, under a mask of zeros."""
    payload = text.encode()
    return b"\x81\xff" + len(payload).to_bytes(8, "big") + bytes(4) + payload


def send_for_ever(endpoint):
    """Prints a line for each refusal."""
    os.nice(19)  # its core is also that of the client whose gaps are measured
    host, port = endpoint.split(":")
    message = frame('GENERATE {"prompt": [' + "1," * (PROMPT_BYTES // 2) + '1], "stream_id": 1}')
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as s:
        s.sendall(
            f"GET / HTTP/1.1\r\nHost: {endpoint}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: bG10cC1iZW5jaG1hcmstMQ==\r\n\r\n".encode()
        )
        while not s.recv(4096).endswith(b"\r\n\r\n"):
            pass
        while True:
            s.sendall(message)
            answer = s.recv(4096)
            if b'"error": "prompt: has ' not in answer:
                raise SystemExit(f"not a refusal: {answer[:200]!r}")
            print("refused", flush=True)


def gap_ms(endpoint, eos, seconds):
    """The gap that 99 % of those between a stream's tokens do not exceed."""
    gaps = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times = run_lmtp(endpoint, [[5, 6, 7]], MAX_TOKENS, eos).times[0]
        gaps += [b - a for a, b in zip(times, times[1:])]
    return sorted(gaps)[int(0.99 * len(gaps))] * 1e3


def gap_beside_hostile_ms(server, eos, seconds):
    """(the gap, refusals a second)"""
    command = [sys.executable, __file__, "--hostile", server.endpoint]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(NUM_HOSTILE)]
    try:
        for client in clients:
            if not client.stdout.readline():
                raise SystemExit("a hostile client was not refused")
        start = time.monotonic()
        gap = gap_ms(server.endpoint, eos, seconds)
        took = time.monotonic() - start
        if any(client.poll() is not None for client in clients):
            raise SystemExit("a hostile client ended")
    finally:
        for client in clients:
            client.kill()
    num_refused = sum(client.stdout.read().count(b"refused") for client in clients)
    return gap, num_refused / took


async def eos_of(server):
    async with Connection(server.endpoint, server.model) as c:
        return (await c.model_info())["eos_token_ids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each half of a pair")
    parser.add_argument("--hostile", metavar="ENDPOINT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hostile:
        return send_for_ever(args.hostile)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("this needs two cores: one for the server, one for its clients")
    os.sched_setaffinity(0, cores[:1])  # the server's, which inherits it
    ratios = []
    # A small cache: it takes memory as it is used, which is not what is measured here.
    with LmtpServe(args.model, "--threads", "1", "--kv-cache", "32MiB") as server:
        os.sched_setaffinity(0, cores[1:2])
        eos = asyncio.run(eos_of(server))
        gap_ms(server.endpoint, eos, 1)
        before = server.rss_bytes("VmHWM")
        for _ in range(args.pairs):
            alone = gap_ms(server.endpoint, eos, args.seconds)
            beside, rate = gap_beside_hostile_ms(server, eos, args.seconds)
            ratios.append(beside / alone)
            print(f"p99 gap {alone:.2f} ms alone, {beside:.2f} ms beside {rate:.1f} refusals/s: "
                  f"{ratios[-1]:.2f}x", flush=True)  # fmt: skip
        grown = (server.rss_bytes("VmHWM") - before) / 2**20
    median = statistics.median(ratios)
    print(f"median of {args.pairs} pairs: {median:.2f}x; peak memory +{grown:.0f} MiB")
    return int(median > RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())

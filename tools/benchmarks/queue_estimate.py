"""How good the estimates of `queued` notices are: `queue_estimate.py MODEL` serves a model with few
places to steadily more streams than it has places for, and compares what each stream that had to
wait was first told with how long it then waited for its first token.

Exit code 1 where fewer than eight of ten requests waited between half and twice their estimate.
"""

import argparse
import asyncio
import json
import random
import statistics
import time

from servers import LmtpServe
from wire import open_socket

PROMPT_TOKENS = 8
FACTOR = 2.0
SHARE_MIN = 0.8


class Client:
    """One connection; as soon as one of its streams ends, another one begins."""

    def __init__(self, options, generator):
        self.options, self.random = options, generator
        self.started = 0
        self.first_notice = {}  # stream -> (when, position, estimate in s)
        self.waited = []  # (position, estimate, what it was), in s

    def request(self):
        self.started += 1
        low, high = self.options.max_tokens
        payload = {
            "stream_id": self.started,
            "prompt": [self.random.randrange(self.options.vocab) for _ in range(PROMPT_TOKENS)],
            "max_tokens": self.random.randint(low, high),
            "temperature": 1.0,
            "ignore_eos": True,
            "notices": True,
        }
        return f"GENERATE {json.dumps(payload)}"

    def take(self, name, entry, now):
        """Whether the stream has ended."""
        stream = entry["stream_id"]
        if "error" in entry:
            raise RuntimeError(entry["error"])
        if name == "MSG":
            if entry["status"] == "queued":
                told = (now, entry["position"], entry["wait_ms_estimate"] / 1000)
                self.first_notice.setdefault(stream, told)
            return False
        if stream in self.first_notice:
            when, position, estimate = self.first_notice.pop(stream)
            self.waited.append((position, estimate, now - when))
        return entry["finish_reason"] is not None

    async def run(self, endpoint, num_streams, end):
        async with open_socket(endpoint) as ws:
            running = 0
            for _ in range(num_streams):
                await ws.send_str(self.request())
                running += 1
                await asyncio.sleep(0.02)
            async for message in ws:
                now = time.monotonic()
                name, payload = message.data.split(" ", 1)
                for entry in json.loads(payload):
                    if not self.take(name, entry, now):
                        continue
                    running -= 1
                    if now < end:
                        await ws.send_str(self.request())
                        running += 1
                if running == 0:
                    return


async def load(endpoint, options):
    end = time.monotonic() + options.seconds
    clients = [Client(options, random.Random(i)) for i in range(options.connections)]
    streams = options.streams // options.connections
    await asyncio.gather(*(client.run(endpoint, streams, end) for client in clients))
    return [one for client in clients for one in client.waited]


def report(waited, options):
    # The first ones came before anything was known of the queue.
    counted = waited[options.places:]
    good = [FACTOR >= real / max(told, 1e-3) >= 1 / FACTOR for _, told, real in counted]
    share = sum(good) / len(good) if good else 0.0
    ratios = [real / max(told, 1e-3) for _, told, real in counted]
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [0.0] * 3
    print(f"{len(counted)} requests waited after their first notice, "
          f"{statistics.mean(real for _, _, real in counted):.1f} s on average; "
          f"within {FACTOR:g}x of the estimate: {share:.0%}; "
          f"real / estimated: {quarters[0]:.2f} {quarters[1]:.2f} {quarters[2]:.2f} (quartiles)")
    return share >= SHARE_MIN


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--places", type=int, default=8, help="of the server")
    parser.add_argument("--streams", type=int, default=32, help="at any time")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--max-tokens", type=int, nargs=2, default=(20, 100),
                        metavar=("LOW", "HIGH"))
    parser.add_argument("--vocab", type=int, default=50_000,
                        help="prompts' tokens are below; few: what is cached goes first")
    options = parser.parse_args()
    arguments = ["--max-batched-tokens", str(options.places)]  # no more streams fit in a step
    with LmtpServe(options.model, *arguments) as server:
        good = report(asyncio.run(load(server.endpoint, options)), options)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()

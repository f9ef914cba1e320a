"""Two builds of lmtp-serve in turns, on the same weights: `pairs.py BEFORE AFTER` (two folders like
build/release) says for each row (dtype, number of streams) by how much AFTER is faster.

Both servers are there all the time, and one stands still (SIGSTOP) while the other one is measured;
every other pair begins with AFTER. What counts is the tokens a second while all streams decode.
"""

import argparse
import pathlib
import random
import statistics
import time

from servers import Server, free_port
from streams import run_lmtp

PROMPT_TOKENS = 16
TOKENS = (96, 900)  # at least and at most, a stream; the context is 1024
END = 50256  # of GPT-2


class Build(Server):
    name = "lmtp-serve"

    def __init__(self, folder, options):
        port = free_port()
        command = [folder / "bin" / "lmtp-serve", options.model, "--port", port, "--threads",
                   options.threads, "--kv-cache", "2GiB"]
        super().__init__(command, port)

    def tokens_per_s(self, num_streams, num_tokens):
        prompts = [[random.randrange(END) for _ in range(PROMPT_TOKENS)]
                   for _ in range(num_streams)]
        return run_lmtp(self.endpoint, prompts, num_tokens, [END]).steady_tokens_per_s()


def measure(before, after, num_streams, options):
    """(tokens a second of BEFORE, of AFTER) for each pair."""
    def alone(server, num_tokens):
        other = after if server is before else before
        other.pause()
        try:
            return server.tokens_per_s(num_streams, num_tokens)
        finally:
            other.proceed()

    rates = [alone(server, TOKENS[0]) for server in (before, after)]  # both are warm then
    num_tokens = int(options.seconds * rates[0] / num_streams)
    num_tokens = min(max(num_tokens, TOKENS[0]), TOKENS[1])
    pairs = []
    for i in range(options.pairs):
        turn = [before, after] if i % 2 == 0 else [after, before]
        found = {server: alone(server, num_tokens) for server in turn}
        pairs.append((found[before], found[after]))
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--model", default="random:gpt2-medium")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6, help="of one measurement, about")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    start = time.monotonic()
    print("| dtype | streams | before, tokens/s | after | median of after/before | pairs below 1 | "
          "ratios |\n|---|---|---|---|---|---|---|", flush=True)
    for dtype in options.dtypes.split(","):
        servers = [Build(folder, options) for folder in (options.before, options.after)]
        for server in servers:
            server.command += ["--dtype", dtype]
        with servers[0] as before, servers[1] as after:
            for num_streams in map(int, options.streams.split(",")):
                pairs = measure(before, after, num_streams, options)
                ratios = [b / a for a, b in pairs]
                a, b = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
                print(f"| {dtype} | {num_streams} | {a:.1f} | {b:.1f} | "
                      f"{statistics.median(ratios):.3f} | {sum(r < 1 for r in ratios)} of "
                      f"{len(ratios)} | {' '.join(f'{r:.3f}' for r in sorted(ratios))} |",
                      flush=True)
    print(f"\n{(time.monotonic() - start) / 60:.1f} minutes")


if __name__ == "__main__":
    main()

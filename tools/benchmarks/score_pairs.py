"""A SCORE that comes again beside the same one when it is new, from one lmtp-serve: the time from
sending it to its last entry, in pairs, each of another random text.

    .venv/bin/python tools/benchmarks/score_pairs.py [--model random:gpt2-medium] [--pairs 9]

One row is a text of 1,000 tokens; one is LMQL's `distribution`, 16 candidates of 4 tokens behind a
prefix of 200, which come together. The tokens that were computed are counted, too.
"""

import argparse
import asyncio
import random
import statistics
import time

import report
from servers import Server, bin_dir, free_port
from wire import Connection

ROWS = {
    "one of 1,000 tokens": (1, [1000]),
    "16 of 4 tokens behind 200": (200, [4] * 16),
}
VOCAB = 50257  # of GPT-2


async def timed(connection, prefix, texts):
    """(seconds, tokens computed, log probabilities)"""

    async def num_computed():
        return (await connection.model_info())["stats"]["num_tokens_computed"]

    before = await num_computed()
    start = time.perf_counter()
    answers = await asyncio.gather(*(connection.score(prefix, text) for text in texts))
    seconds = time.perf_counter() - start
    return seconds, await num_computed() - before, [[e["logprob"] for e in a] for a in answers]


async def measure(connection, row, num_pairs):
    def tokens(count):
        return [random.randrange(VOCAB) for _ in range(count)]

    num_prefix, lengths = ROWS[row]
    pairs = []
    for _ in range(num_pairs):
        prefix, texts = tokens(num_prefix), [tokens(length) for length in lengths]
        cold, computed, first = await timed(connection, prefix, texts)
        warm, computed_again, again = await timed(connection, prefix, texts)
        if first != again:
            raise RuntimeError("other log probabilities")
        pairs.append((cold, warm, computed, computed_again))
    return pairs


async def run(server, options):
    async with Connection(server.endpoint) as connection:
        await connection.score([1], [2, 3])  # the connection and the model are warm then
        for row in ROWS:
            pairs = await measure(connection, row, options.pairs)
            cold, warm, computed, again = (statistics.median(p) for p in zip(*pairs))
            ratios = sorted(a / b for a, b, *_ in pairs)
            print(f"| {row} | {1000 * cold:.1f} | {1000 * warm:.2f} | {computed:.0f} | {again:.0f} "
                  f"| {statistics.median(ratios):.0f} | {ratios[0]:.0f} to {ratios[-1]:.0f} |",
                  flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="random:gpt2-medium", help="with GPT-2's vocabulary")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    print(f"{report.machine()}\nrevision {report.revision()}\n\n"
          "| SCOREs | new, ms | again, ms | computed | again | median of new/again | from, to |\n"
          "|---|---|---|---|---|---|---|", flush=True)  # fmt: skip
    port = free_port()
    ours = Server([bin_dir() / "lmtp-serve", options.model, "--port", port, "--threads",
                   options.threads, "--dtype", options.dtype, "--kv-cache", "1GiB",
                   "--log-level", "warning"], port)  # fmt: skip
    with ours:
        asyncio.run(run(ours, options))


if __name__ == "__main__":
    main()

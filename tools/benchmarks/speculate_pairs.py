"""lmtp-serve with --speculate beside one without it, in pairs, in turns: by how much a stream is
faster on text that repeats, and what drafts cost where it does not.

    .venv/bin/python tools/benchmarks/speculate_pairs.py [--model random:gpt2-medium] [--pairs 9]

The loads: `loop`, greedy streams, which soon repeat themselves with random weights; `again`, drawn
streams whose text the cache has of the same ones before; `new`, drawn streams of new prompts. That
both servers give the same tokens and log probabilities is checked, too.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
import time

import report
from servers import Server, bin_dir, free_port
from wire import Connection

VOCAB = 50256  # of GPT-2, without its end
PROMPT_TOKENS = 32
LOADS = {"loop": 0.0, "again": 1.0, "new": 1.0}  # temperatures


async def streams(connection, prompts, options, temperature):
    """(tokens a second, all entries, accepted and refused drafts, tokens computed)"""
    before = (await connection.model_info())["stats"]
    start = time.perf_counter()
    entries = await asyncio.gather(
        *(
            connection.generate(prompt, max_tokens=options.tokens, temperature=temperature,
                                seed=seed, ignore_eos=True)
            for seed, prompt in enumerate(prompts)
        )
    )  # fmt: skip
    seconds = time.perf_counter() - start
    after = (await connection.model_info())["stats"]
    counted = [after[name] - before[name]
               for name in ("num_accepted_drafts", "num_refused_drafts", "num_tokens_computed")]
    drawn = [[(e["token"], e["logprob"]) for e in stream] for stream in entries]
    return options.tokens * len(prompts) / seconds, drawn, counted


async def measure(connections, load, num_streams, options):
    """(tokens a second without and with, counted of the latter) for each pair."""
    pairs = []
    for i in range(options.pairs + 1):
        prompts = [[random.randrange(VOCAB) for _ in range(PROMPT_TOKENS)]
                   for _ in range(num_streams)]
        found = {}
        for connection in connections if i % 2 == 0 else reversed(connections):
            if load == "again":
                await streams(connection, prompts, options, LOADS[load])
            found[connection] = await streams(connection, prompts, options, LOADS[load])
        (plain, wanted, _), (drafting, got, counted) = (found[c] for c in connections)
        if got != wanted:
            raise RuntimeError("other tokens or log probabilities")
        pairs.append((plain, drafting, counted))
    return pairs[1:]  # both are warm then


async def run(servers, options):
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(s.endpoint)) for s in servers]
        for load in options.loads.split(","):
            for num_streams in map(int, options.streams.split(",")):
                pairs = await measure(connections, load, num_streams, options)
                ratios = sorted(b / a for a, b, _ in pairs)
                plain, drafting = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
                accepted, refused, computed = (sum(pair[2][i] for pair in pairs) for i in range(3))
                print(f"| {load} | {num_streams} | {plain:.1f} | {drafting:.1f} "
                      f"| {statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} "
                      f"| {100 * accepted / computed:.1f} % | {100 * refused / computed:.1f} % |",
                      flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="random:gpt2-medium", help="with GPT-2's vocabulary")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--speculate", type=int, default=8)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=200, help="of each stream")
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    print(f"{report.machine()}\nrevision {report.revision()}\n\n"
          "| load | streams | without, tokens/s | with | median of with/without | from, to "
          "| rows accepted | refused |\n|---|---|---|---|---|---|---|---|", flush=True)  # fmt: skip
    servers = []
    for drafts in (0, options.speculate):
        port = free_port()
        servers.append(Server([bin_dir() / "lmtp-serve", options.model, "--port", port, "--threads",
                               options.threads, "--dtype", options.dtype, "--kv-cache", "1GiB",
                               "--speculate", drafts, "--log-level", "warning"], port))  # fmt: skip
    with servers[0], servers[1]:
        asyncio.run(run(servers, options))


if __name__ == "__main__":
    main()

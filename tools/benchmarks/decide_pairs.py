"""A request of typed questions beside a prompt of as many tokens as it computes, from one
lmtp-serve, in pairs, each of another random state; then one request that comes again, 200 times.

    .venv/bin/python tools/benchmarks/decide_pairs.py MODEL [--questions 20] [--words 1000]

MODEL has a chat template (tools/dev/clients_check's, for example). The tokens that were computed
are counted, too: none for a request that comes again.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.request

import report
from servers import Server, bin_dir, free_port
from wire import Connection

NUM_AGAIN = 200
WORDS = "the of order was refund charged twice late broken please box card money back".split()


def body_of(num_questions, num_words):
    questions = {}
    for i in range(num_questions):
        kinds = [{"type": "noul"},
                 {"type": "choice", "criteria": {"billing": "payments", "shipping": None}},
                 {"type": "score", "criteria": ["can wait", "this week", "today"]}]  # fmt: skip
        questions[f"q{i}"] = {**kinds[i % 3], "instructions": f"Question {i}: what is asked?"}
    state = " ".join(random.choice(WORDS) for _ in range(num_words))
    return json.dumps({"state": state, "questions": questions}).encode()


def ask(endpoint, body):
    request = urllib.request.Request(
        f"http://{endpoint}/v1/systemone", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.read()


async def timed(connection, work):
    """(seconds, tokens computed, what came)"""

    async def num_computed():
        return (await connection.model_info())["stats"]["num_tokens_computed"]

    before = await num_computed()
    start = time.perf_counter()
    came = await work
    seconds = time.perf_counter() - start
    return seconds, await num_computed() - before, came


async def run(endpoint, options):
    async with Connection(endpoint) as connection:

        def decide(body):
            return timed(connection, asyncio.to_thread(ask, endpoint, body))

        await decide(body_of(2, 10))  # the model and the template's process are warm then
        ratios = []
        for _ in range(options.pairs):
            body = body_of(options.questions, options.words)
            seconds, computed, _ = await decide(body)
            prompt = [random.randrange(1000, 20000) for _ in range(computed)]
            plain, plain_computed, _ = await timed(
                connection, connection.generate(prompt, max_tokens=1)
            )
            assert plain_computed == computed, (plain_computed, computed)
            ratios.append(seconds / plain)
            print(f"| {1000 * seconds:.0f} | {1000 * plain:.0f} | {computed} | {ratios[-1]:.3f} |",
                  flush=True)  # fmt: skip
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"\nmedian of the ratios {middle:.3f} (quartiles {low:.3f}, {high:.3f})")
        again = [await decide(body) for _ in range(NUM_AGAIN + 1)][1:]
        assert len({answer for *_, answer in again}) == 1
        times = sorted(1000 * seconds for seconds, *_ in again)
        print(f"again, {NUM_AGAIN} times: median {statistics.median(times):.2f} ms, {times[0]:.2f} "
              f"to {times[-1]:.2f}; {sum(again_computed for _, again_computed, _ in again)} "
              "tokens computed")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--words", type=int, default=1000, help="of the state")
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    print(f"{report.machine()}\nrevision {report.revision()}\n\n"
          "| decisions, ms | prompt, ms | computed | ratio |\n|---|---|---|---|",
          flush=True)  # fmt: skip
    port = free_port()
    ours = Server([bin_dir() / "lmtp-serve", options.model, "--port", port, "--threads",
                   options.threads, "--dtype", options.dtype, "--kv-cache", "2GiB",
                   "--log-level", "warning"], port)  # fmt: skip
    with ours:
        asyncio.run(run(f"127.0.0.1:{port}", options))


if __name__ == "__main__":
    main()

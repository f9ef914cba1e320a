"""What TGI's knobs trade, in counts: `knobs.py [MODEL]` serves a model once for each setting, gives
it the same load, and prints how its steps differ, as a table for docs/scheduling.md.

The load: so many streams at a time over one WebSocket, each a random prompt of PROMPT tokens that
is continued by TOKENS; the next begins where one ends, and what is refused comes again when it may.
"""

import argparse
import asyncio
import json
import random
import re
import urllib.request

from servers import LmtpServe
from wire import open_socket

PROMPT, TOKENS = 200, 32
SETTINGS = (
    (),
    ("--max-batch-prefill-tokens", "64"),
    ("--waiting-served-ratio", "0.5"),
    ("--max-waiting-tokens", "8"),
    ("--max-batch-total-tokens", "1024"),
    ("--max-concurrent-requests", "6"),
    ("--max-input-tokens", "150"),
    ("--max-total-tokens", "210"),
    ("--kv-cache", "10MiB"),
    ("--kv-cache", "10MiB", "--max-batch-total-tokens", "1024"),
)


async def load(endpoint, options):
    """How often a stream was refused, and how many never ran."""
    generator = random.Random(1)
    payloads = [
        {
            "stream_id": number,
            "prompt": [generator.randrange(options.vocab) for _ in range(PROMPT)],
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        for number in range(options.requests)
    ]
    refusals = lost = 0
    waiting = iter(payloads)

    async with open_socket(endpoint) as ws:

        async def begin(payload, wait_ms=0):
            await asyncio.sleep(wait_ms / 1000)
            await ws.send_str(f"GENERATE {json.dumps(payload)}")

        for _ in range(options.streams):
            await begin(next(waiting))
        left, tasks = options.requests, set()
        while left:
            _, text = (await ws.receive_str()).split(" ", 1)
            for entry in json.loads(text):
                if "error" in entry:
                    refusals += 1
                    if entry["retryable"]:
                        again = begin(payloads[entry["stream_id"]], entry["retry_after_ms"])
                        tasks.add(asyncio.create_task(again))
                        continue
                    lost += 1
                elif entry["finish_reason"] is None:
                    continue
                left -= 1
                if (payload := next(waiting, None)) is not None:
                    await begin(payload)
    return refusals, lost


def value(metrics, name, label=""):
    found = re.search(rf"^{name}{{[^}}]*{label}[^}}]*}} (\S+)$", metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


def largest(metrics):
    """Tokens of the fullest step: the bound of its bucket."""
    bounds = re.findall(r'^lmtp_iteration_tokens_bucket{[^}]*le="([^"]+)"[^}]*} (\S+)$', metrics,
                        re.MULTILINE)
    total = bounds[-1][1]
    return next(bound for bound, count in bounds if count == total)


def row(setting, server, options):
    refusals, lost = asyncio.run(load(server.endpoint, options))
    with urllib.request.urlopen(f"http://{server.endpoint}/metrics") as answer:
        metrics = answer.read().decode()
    steps = value(metrics, "lmtp_steps_total")
    decodes = value(metrics, "lmtp_iteration_tokens_bucket", f'le="{options.streams}"')
    sequences = value(metrics, "lmtp_iteration_requests_sum")
    return (
        f"`{' '.join(setting)}`" if setting else "none",
        steps,
        steps - decodes,
        largest(metrics),
        f"{sequences / max(steps, 1):.1f}",
        value(metrics, "lmtp_computed_tokens_total"),
        value(metrics, "lmtp_num_preemptions_total"),
        refusals,
        options.requests - lost,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--streams", type=int, default=8, help="at any time; a power of two")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=1000)
    options = parser.parse_args()
    print("| knob | steps | with prompts | fullest step, at most | streams a step "
          "| tokens computed | preempted | refusals | ended |\n" + "|---" * 9 + "|")
    for setting in SETTINGS:
        with LmtpServe(options.model, *setting) as server:
            print("|", " | ".join(map(str, row(setting, server, options))), "|", flush=True)


if __name__ == "__main__":
    main()

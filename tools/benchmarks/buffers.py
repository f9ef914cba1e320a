"""What a query that is continued chunk by chunk, as LMQL's are, sends and waits for: with the whole
prompt in each request, and with a buffer that each answer goes `into`.

    tools/benchmarks/buffers.py --prompt 256 --chunks 12

With the Python of tools/setup (.venv/bin/python)."""

import argparse
import asyncio
import json
import statistics
import time

import aiohttp
from servers import LmtpServe

TOKENS_PER_CHUNK = 16


class Query:
    """One connection; what it sent, and how long each chunk's first token took."""

    def __init__(self, ws):
        self.ws = ws
        self.num_bytes = 0
        self.first_token_ms = []

    async def send(self, verb, **fields):
        text = f"{verb} {json.dumps(fields)}"
        self.num_bytes += len(text.encode())
        self.sent = time.perf_counter()
        await self.ws.send_str(text)

    async def entries(self):
        return json.loads((await self.ws.receive_str()).split(" ", 1)[1])

    async def chunk(self, prompt, **more):
        await self.send(
            "GENERATE",
            stream_id=1,
            prompt=prompt,
            max_tokens=TOKENS_PER_CHUNK,
            temperature=1,
            seed=7,
            ignore_eos=True,
            **more,
        )
        tokens = []
        while True:
            for entry in await self.entries():
                if "token" not in entry:
                    assert "error" not in entry, entry
                    continue
                if not tokens:
                    self.first_token_ms.append(1000 * (time.perf_counter() - self.sent))
                tokens.append(entry["token"])
                if entry["finish_reason"]:
                    return tokens


async def resent(query, prompt, num_chunks):
    ids = list(prompt)
    for _ in range(num_chunks):
        ids += await query.chunk(ids)
    return ids


async def buffered(query, prompt, num_chunks):
    await query.send("BUFFER", stream_id=2, buffer="q", tokens=prompt)
    assert (await query.entries())[0]["length"] == len(prompt)
    ids = list(prompt)
    for _ in range(num_chunks):
        ids += await query.chunk([{"buffer": "q"}], into="q")
    return ids


async def measure(server, prompt, num_chunks, repeats):
    results = {}
    for repeat in range(repeats):
        for way in (resent, buffered):
            async with aiohttp.ClientSession() as session:
                async with session.ws_connect(f"http://{server.endpoint}/", max_msg_size=0) as ws:
                    query = Query(ws)
                    ids = await way(query, [repeat + 1, *prompt], num_chunks)
            kept = results.setdefault(way.__name__, {"ids": [], "bytes": 0, "ms": []})
            kept["ids"].append(ids)
            kept["bytes"] = query.num_bytes
            kept["ms"] += query.first_token_ms[1:]  # the first one computes the prompt
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompt", type=int, default=256, help="its tokens")
    parser.add_argument("--chunks", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    prompt = [5 + 37 * i % 2000 for i in range(options.prompt - 1)]
    with LmtpServe(options.model, "--kv-cache", "512MiB") as server:
        results = asyncio.run(measure(server, prompt, options.chunks, options.repeats))
    assert results["resent"]["ids"] == results["buffered"]["ids"], "a buffer changes no token"
    print("| prompt | bytes sent | time to a chunk's first token, median (p90) |\n|---|---|---|")
    for name, kept in results.items():
        p90 = statistics.quantiles(kept["ms"], n=10)[-1]
        median = statistics.median(kept["ms"])
        print(f"| {name} | {kept['bytes']:,} | {median:.2f} ms ({p90:.2f} ms) |")


if __name__ == "__main__":
    main()

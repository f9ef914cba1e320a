"""What the operator allows of a request and of all together, through lmtp-serve."""

import asyncio
import http.client
import os
import sys

from checkpoints import FOREVER
from lmtp_socket import Socket
from servers import LmtpServe

LIMITED = ("--kv-cache", "64MiB", "--max-input-tokens", "20", "--max-total-tokens", "40")


async def generate(s, stream_id, num_prompt, max_tokens):
    prompt = [46 + stream_id] * num_prompt
    await s.send(
        "GENERATE", stream_id=stream_id, prompt=prompt, max_tokens=max_tokens, ignore_eos=True
    )


def test_a_request_beyond_the_limits_is_told_what_is_allowed():
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, 21, 1)
            assert await s.error_of(1) == (
                "prompt: has 21 tokens, allowed are at most 20 (--max-input-tokens)"
            )
            await s.send("SCORE", stream_id=2, prompt=[46] * 11, scored=[47] * 10)
            assert await s.error_of(2) == (
                "scored: prompt and scored together are 21 tokens, allowed are at most 20 "
                "(--max-input-tokens)"
            )
            await generate(s, 3, 20, 1000)
            ids, reason = await s.finish(3)
            assert (len(ids), reason) == (20, "length"), "up to --max-total-tokens"
            info = await s.model_info()
        assert (info["max_input_tokens"], info["max_total_tokens"]) == (20, 40)
        assert info["context_length"] > 40

    with LmtpServe("demo", *LIMITED) as server:
        asyncio.run(ask(server))


def test_all_together_are_bounded_and_none_is_set_back():
    """What all may come to have bounds each, and two of them fill it."""

    async def ask(server):
        async with Socket(server.endpoint) as s:
            info = await s.model_info()
            assert (info["max_input_tokens"], info["max_total_tokens"]) == (299, 300)
            for stream in range(6):
                await generate(s, stream, 50, 100)
            most = 0
            for stream in range(6):
                for _ in range(100):
                    await s.token_of(stream)
                most = max(most, (await s.model_info())["stats"]["num_running"])
            assert most <= 2
            assert (await s.model_info())["stats"]["num_preemptions"] == 0

    with LmtpServe("demo", "--kv-cache", "64MiB", "--max-batch-total-tokens", "300") as server:
        asyncio.run(ask(server))


def test_who_finds_no_place_is_told_how_long_to_wait(endless_model):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, 5, 20)
            await s.finish(1)
            await generate(s, 2, 5, **FOREVER)
            await generate(s, 3, 5, 1)
            refused = await s.token_of(3)
            assert refused["error"].startswith("overloaded: 1 requests are in flight")
            assert refused["retryable"]
            assert 100 <= refused["retry_after_ms"] <= 60_000

    options = ("--kv-cache", "64MiB", "--max-concurrent-requests", "1")
    with LmtpServe(endless_model, *options) as server:
        asyncio.run(ask(server))


def test_a_log_that_nobody_reads_stops_no_answer():
    """Its lines are dropped, and it is said how many once it is read again."""
    reading, writing = os.pipe()
    server = LmtpServe("demo", "--kv-cache", "64MiB")
    redirect = f"import os, sys; os.dup2({writing}, 2); os.execvp(sys.argv[1], sys.argv[1:])"
    server.command = [sys.executable, "-c", redirect, *server.command]
    server.popen_options = {"pass_fds": [writing]}
    headers = {"Content-Type": "application/json", "X-Request-Id": "x" * 100}
    with server:
        os.close(writing)
        connection = http.client.HTTPConnection(server.endpoint, timeout=60)
        for _ in range(2500):  # twice as many lines as wait
            connection.request("POST", "/v1/completions", "[", headers)
            answer = connection.getresponse()
            assert answer.status == 400, answer.read()
            answer.read()
        text = b""
        while b" lines of the log are missing here" not in text:
            text += os.read(reading, 65536)
        assert server.http_status("/health") == 200
    os.close(reading)

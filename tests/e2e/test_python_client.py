"""docs/examples/lmtp.py against lmtp-serve, over each of the libraries that it can use."""

import asyncio
import pathlib
import subprocess
import sys

import pytest
import websockets
from lmtp_socket import wait_all_freed

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "lmtp.py"
sys.path.insert(0, str(PROGRAM.parent))

import lmtp  # noqa: E402

PROMPT = [46, 789, 579, 258]  # Once upon a
LONG = {"max_tokens": 400, "logit_bias": {2047: -100}}
TIMEOUT_S = 120


@pytest.fixture(params=["aiohttp", "websockets"])
def library(request, monkeypatch):
    if request.param == "websockets":
        monkeypatch.setattr(lmtp, "aiohttp", None)
        monkeypatch.setattr(lmtp, "websockets", websockets, raising=False)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


def test_tokens_and_scores(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            tokens = [t async for t in client.generate(PROMPT, max_tokens=6, top_logprobs=3)]
            assert len(tokens) == 6 and tokens[-1].finish_reason == "length"
            for token in tokens:
                assert len(token.top_logprobs) == 3
                assert token.top_logprobs[token.id] == token.logprob
            scored = await client.score(PROMPT, [t.id for t in tokens])
            assert [t.logprob for t in scored] == pytest.approx([t.logprob for t in tokens])
            assert (await client.model_info())["model"] == "demo"

    run(go())


def test_leaving_the_loop_cancels(demo, library):
    async def go():
        async with lmtp.connect(f"ws://{demo.endpoint}/") as client:
            async for _ in client.generate(PROMPT, **LONG):
                break
            await wait_all_freed(demo.endpoint)  # while the connection lives
            assert len([t async for t in client.generate(PROMPT, max_tokens=2)]) == 2

    run(go())


def test_errors_are_raised(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            with pytest.raises(lmtp.LMTPError, match="^temperature: "):
                await anext(aiter(client.generate(PROMPT, temperature=-1)))
            with pytest.raises(lmtp.LMTPError, match="^scored: "):
                await client.score(PROMPT, [])
            assert len(await client.score(PROMPT, [5])) == 1
        with pytest.raises(lmtp.LMTPError, match="127.0.0.1:1") as error:
            await lmtp.connect("ws://127.0.0.1:1", retry=1).__aenter__()
        assert (error.value.code, error.value.retryable) == ("connection_lost", True)

    run(go())


def test_streams_share_a_connection(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:

            async def ids(prompt):
                return [t.id async for t in client.generate(prompt, max_tokens=12)]

            alone = [await ids([i, i + 1]) for i in range(1, 9)]
            assert await asyncio.gather(*(ids([i, i + 1]) for i in range(1, 9))) == alone

    run(go())


def test_masks():
    assert lmtp.mask([0, 9], 16) == "AQI="
    assert lmtp.mask([], 3) == "AA=="
    with pytest.raises(ValueError, match="token 3 "):
        lmtp.mask([3], 3)


def shell(*arguments):
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
    )


def test_errors_from_the_shell(demo):
    done = shell("Once upon", "--url", demo.endpoint, "top_p=0")
    assert done.returncode == 1
    assert "top_p: " in done.stderr or "prompt: " in done.stderr
    assert shell("Once upon", "max_tokens").returncode == 2

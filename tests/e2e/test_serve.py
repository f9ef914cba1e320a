"""lmtp-serve from the outside: HTTP, names, cancel, connections that vanish or do not read."""

import asyncio
import re

import aiohttp
import pytest
from checkpoints import DEMO, FOREVER, NO_END, end_tokens
from lmtp_socket import Socket, wait_all_freed, wait_until
from servers import LmtpServe
from streams import run_lmtp
from wire import Connection, ids_of


def run(coroutine):
    return asyncio.run(coroutine)


async def http(server, method, path, **options):
    async with aiohttp.ClientSession() as session:
        url = f"http://{server.endpoint}{path}"
        async with session.request(method, url, **options) as answer:
            return answer.status, answer.headers, await answer.text()


def test_http(demo):
    status, headers, body = run(http(demo, "GET", "/health"))
    assert status == 200 and headers["Content-Type"] == "application/json"
    status, headers, body = run(http(demo, "GET", "/"))
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert f"ws://{demo.endpoint}/" in body and "LMTP" in body
    assert not re.search(r"(src|href)=\"?https?://(?!lmql)", body), "nothing is loaded from outside"
    assert run(http(demo, "HEAD", "/health"))[0] == 200
    assert run(http(demo, "GET", "/nothing"))[0] == 404
    status, headers, _ = run(http(demo, "POST", "/health", data=b"x" * 100_000))
    assert status == 405 and headers["Allow"] == "GET, HEAD"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "12"}
    upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    assert run(http(demo, "GET", "/", headers=upgrade))[0] == 426


def test_a_websocket_elsewhere_is_not_found(demo):
    async def connect():
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"http://{demo.endpoint}/elsewhere")
            assert refused.value.status == 404

    run(connect())


def test_the_clients_of_the_benchmarks_see_the_same(demo):
    prompts = [[46, 789, 579], [5]]

    async def ask():
        async with Connection(demo.endpoint) as c:
            bias = {0: -100}
            return [ids_of(await c.generate(p, max_tokens=6, temperature=0.0, logit_bias=bias))
                    for p in prompts]  # fmt: skip

    timed = run_lmtp(demo.endpoint, prompts, 6, [0])
    assert timed.ids == run(ask())
    assert all(timed.start < t[0] and t == sorted(t) and len(t) == 6 for t in timed.times)
    with pytest.raises(RuntimeError, match="lmtp-serve: prompt"):
        run_lmtp(demo.endpoint, [[-1]], 6, [0])


def test_names_and_model_info(demo):
    async def ask():
        async with Socket(demo.endpoint) as s:
            info = await s.model_info()
            assert info["model"] == "demo"
            for name in ("demo", info["tokenizer"]):
                assert (await s.model_info(model=name))["model"] == name
                await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=1, model=name)
                await s.finish(1)
            assert info["state"] == "ready"
            assert info["model_type"] == "gpt2" and info["architecture"] == "GPT2LMHeadModel"
            assert "from_pretrained" in info["constructor"]
            assert (info["vocab_size"], info["context_length"]) == (2048, 512)
            assert (info["dtype"], info["device"]) == ("float32", "cpu")
            assert info["num_parameters"] > 1_000_000
            assert "CANCEL" in info["extensions"]
            assert "is not served" in await s.model_info(model="demo2")

    run(ask())


def test_model_info_is_answered_exactly_once(demo):
    async def ask():
        async with Socket(demo.endpoint) as s:
            # As LMQL sends it.
            await s.send("MODEL_INFO", stream_id=4, model="demo", data={"model": "demo"})
            await s.send("GENERATE", stream_id=5, prompt=[5], max_tokens=20)
            await s.finish(5)
            assert [e["stream_id"] for k, e in s.entries if k == "MSG"] == [4]

    run(ask())


def test_cancel_ends_that_stream_alone(endless):
    async def ask():
        async with Socket(endless.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], **FOREVER)
            await s.send("GENERATE", stream_id=2, prompt=[5], max_tokens=500)
            await s.token_of(1)
            await s.send("CANCEL", stream_id=77)
            await s.send("CANCEL", stream_id=1)
            assert await s.error_of(1) == "cancelled"
            ids, _ = await s.finish(2)
            assert len(ids) == 500
            assert not [e for _, e in s.entries if e["stream_id"] == 77]
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=2)
            assert len((await s.finish(1))[0]) == 2, "the id is free again"

    run(ask())


def test_a_text_ends_at_its_end_token(demo):
    (end,) = end_tokens(DEMO)

    async def ask():
        async with Socket(demo.endpoint) as s:
            bias = {str(end): 100}
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=3, logit_bias=bias)
            assert await s.finish(1) == ([end], "stop")
            bias = NO_END | {"5": 100}
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=3, logit_bias=bias)
            assert await s.finish(1) == ([5, 5, 5], "length")

    run(ask())


def test_all_streams_of_one_step_share_a_message(demo):
    """Streams that begin and end at different times, and scores among them: there are as many TOKEN
    messages as steps, and no stream has two tokens of its own in one."""
    streams = range(8)
    scores = range(100, 103)

    async def ask():
        async with Socket(demo.endpoint) as s:
            before = (await s.model_info())["stats"]["num_steps"]
            s.messages.clear()
            demo.pause()  # until it can read all of them at once
            for stream in streams:
                await s.send(
                    "GENERATE", stream_id=stream, prompt=[5] * (1 + stream),
                    max_tokens=200 + 10 * stream, logit_bias=NO_END,
                )  # fmt: skip
            for stream in scores:
                await s.send("SCORE", stream_id=stream, prompt=[7], scored=[5, stream])
            demo.proceed()
            open_streams = {*streams, *scores}
            while open_streams:
                assert await s.receive()
                open_streams -= {e["stream_id"] for _, e in s.entries if e["finish_reason"]}
                s.entries.clear()
            num_steps = (await s.model_info())["stats"]["num_steps"] - before
            return num_steps, [m for k, m in s.messages if k == "TOKEN"]

    num_steps, messages = run(ask())
    assert len(messages) == num_steps
    for message in messages:
        generated = [e["stream_id"] for e in message if e["stream_id"] in streams]
        assert len(set(generated)) == len(generated), message
    for stream in streams:
        num_tokens = sum(e["stream_id"] == stream for m in messages for e in m)
        assert num_tokens == 200 + 10 * stream
    assert max(map(len, messages)) >= len(streams), "they ran together"


LONG_PROMPT = list(range(1, 501))


@pytest.fixture(scope="module")
def cramped(endless_model):
    """A server on which little fits at once: prompts take many steps, streams are preempted."""
    options = ["--kv-cache", "4MiB", "--max-batched-tokens", "16"]
    with LmtpServe(endless_model, *options) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


async def in_decode(s, _):
    await s.send("GENERATE", stream_id=1, prompt=[5], **FOREVER)
    await s.token_of(1)


async def until_admitted(watcher, send):
    """Sends a request and waits until the scheduler has taken it up."""

    async def num_prompt_tokens():
        return (await watcher.model_info())["stats"]["num_prompt_tokens"]

    async def admitted():
        return await num_prompt_tokens() > before

    before = await num_prompt_tokens()
    await send
    await wait_until(admitted, "the request is admitted")


async def in_prefill(s, watcher):
    prompt = LONG_PROMPT * 60
    await until_admitted(watcher, s.send("GENERATE", stream_id=1, prompt=prompt, max_tokens=5))


async def in_a_score(s, watcher):
    scored = LONG_PROMPT * 60
    await until_admitted(watcher, s.send("SCORE", stream_id=1, prompt=[5], scored=scored))


async def waiting(s, _):
    for stream in range(200):
        await s.send("GENERATE", stream_id=stream, prompt=[5, stream], **FOREVER)
    await s.token_of(0)


async def preempted(s, watcher):
    """Their prompts fill all blocks but some."""
    before = (await watcher.model_info())["stats"]["num_preemptions"]
    for stream in range(64):
        await s.send("GENERATE", stream_id=stream, prompt=[stream, *LONG_PROMPT], **FOREVER)

    async def happened():
        return (await watcher.model_info())["stats"]["num_preemptions"] > before

    await wait_until(happened, "a preemption")


@pytest.mark.parametrize("how", ["vanish", "close"])
@pytest.mark.parametrize("state", [in_decode, in_prefill, in_a_score, waiting, preempted])
def test_a_lost_connection_frees_everything(cramped, state, how):
    async def ask():
        async with Socket(cramped.endpoint) as watcher:
            async with Socket(cramped.endpoint) as s:
                await state(s, watcher)
                if how == "vanish":
                    await s.vanish()
                else:
                    await s.ws.close()
            await wait_all_freed(cramped.endpoint)
            await watcher.send("GENERATE", stream_id=1, prompt=[5], max_tokens=2)
            assert len((await watcher.finish(1))[0]) == 2

    run(ask())


def test_a_client_that_does_not_read_is_closed_and_others_go_on():
    async def ask(server):
        async with Socket(server.endpoint) as slow, Socket(server.endpoint) as other:
            for stream in range(40):
                await slow.send(
                    "GENERATE", stream_id=stream, prompt=[5, stream], max_tokens=400,
                    top_logprobs=1024, logit_bias=NO_END,
                )  # some 20 KB a token
            await other.send("GENERATE", stream_id=1, prompt=[5], max_tokens=100, logit_bias=NO_END)
            assert len((await other.finish(1))[0]) == 100

            async def slow_is_gone():
                return (await other.model_info())["stats"]["num_running"] == 0

            await wait_until(slow_is_gone, "the end of the slow client's streams")
            assert await slow.read_until_closed() == 1008
            assert "does not read" in slow.close_reason
            await wait_all_freed(server.endpoint)

    with LmtpServe("demo", "--kv-cache", "256MiB", "--max-write-queue", "256KiB") as server:
        run(ask(server))
    assert server.exit_code == 0


def test_more_requests_than_allowed_are_refused(endless_model):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream in range(6):
                await s.send("GENERATE", stream_id=stream, prompt=[5], **FOREVER)
            for stream in (4, 5):
                assert "overloaded" in await s.error_of(stream)
            for stream in range(4):
                await s.token_of(stream)

    options = ("--kv-cache", "64MiB", "--max-concurrent-requests", "4")
    with LmtpServe(endless_model, *options) as server:
        run(ask(server))


def test_unknown_keys_are_one_log_line(demo):
    async def ask():
        async with Socket(demo.endpoint) as s:
            for stream in range(3):
                await s.send("GENERATE", stream_id=stream, prompt=[5], max_tokens=1, my_own_key=1)
                await s.finish(stream)

    run(ask())
    assert demo.wait_for_log("my_own_key").count("my_own_key") == 1


def test_a_later_unknown_key_is_logged_too(demo):
    def is_logged(key):
        return any(key in line for line in demo.read_log().splitlines())

    async def ask():
        async with Socket(demo.endpoint) as s:
            for verb, key in (("GENERATE", "first_key"), ("SCORE", "second_key")):
                payload = {"prompt": [5], "scored": [6], "max_tokens": 1, key: 1}
                while not is_logged(key):  # lines a second are few, so that no one floods the log
                    if verb == "GENERATE":
                        payload.pop("scored", None)
                    else:
                        payload.pop("max_tokens", None)
                    await s.send(verb, stream_id=1, **payload)
                    await s.finish(1)
                    await asyncio.sleep(0.2)

    run(asyncio.wait_for(ask(), 60))


def test_unknown_fields_of_http_are_named_once_and_without_their_values(demo):
    asked = [
        ("/v1/completions", {"prompt": "a", "user": "me", "own\nkey": "secret"}, r"'own\nkey'"),
        ("/generate", {"inputs": "a", "parameters": {"own": "secret"}}, "'parameters.own'"),
    ]

    async def ask():
        while not all(shown in demo.read_log() for _, _, shown in asked):  # lines a second are few
            for path, body, _ in asked:
                assert (await http(demo, "POST", path, json=body))[0] == 200
            await asyncio.sleep(0.1)

    run(asyncio.wait_for(ask(), 60))
    log = demo.read_log()
    assert [log.count(shown) for _, _, shown in asked] == [1, 1]
    assert "secret" not in log and "'user'" not in log
    assert "POST /v1/completions: ignored unknown keys: " in log

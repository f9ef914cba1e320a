"""Everything that a client can say wrongly: what is answered, as which kind of message, while
another stream of the same connection goes on to its end."""

import asyncio
import json
import re

import aiohttp
import pytest
from checkpoints import FOREVER, NO_END
from lmtp_socket import Socket, wait_all_freed

LIVE = {"stream_id": 1, "prompt": [5, 6, 7], "max_tokens": 40, "logit_bias": NO_END}
VOCAB, CONTEXT = 2048, 512
DEEP = "[" * 100_000 + "]" * 100_000


def generate(fields):
    return 'GENERATE {"stream_id": 7, "prompt": [1, 2], ' + fields + "}"


# One case: its name, what is sent, the kinds of message that answer it, their stream id, and the
# field that the error names first.
def token(name, sent, field, stream_id=7):
    return name, sent, ["TOKEN"], stream_id, field


def msg(name, sent, field, stream_id=None):
    return name, sent, ["MSG"], stream_id, field


def both(name, sent, field):
    return name, sent, ["MSG", "TOKEN"], 7, field


def params(name, fields, field):
    return token(name, generate(fields), field)


CASES = [
    msg("empty line", "", "message"),
    msg("blank line", " \n", "message"),
    msg("unknown verb", "FETCH {}", "verb"),
    token("unknown verb with an id", 'FETCH {"stream_id": 7}', "verb"),
    token("lower case", 'generate {"stream_id": 7, "prompt": [1]}', "verb"),
    msg("no verb", '{"stream_id": 7}', "verb"),
    msg("no payload", "GENERATE", "payload"),
    msg("blank payload", "GENERATE ", "payload"),
    msg("not JSON", "GENERATE hello", "payload"),
    msg("a Python dict", "GENERATE {'stream_id': 7}", "payload"),
    token("cut off", 'GENERATE {"stream_id": 7, "prompt": [1', "prompt"),
    token("something behind", 'GENERATE {"stream_id": 7, "prompt": [1]} x', "payload"),
    msg("an array", 'GENERATE [{"stream_id": 7}]', "payload"),
    msg("a number", "SCORE 7", "payload"),
    params("deep nesting", f'"x": {DEEP}', "x"),
    msg("deep nesting alone", "GENERATE " + DEEP, "payload"),
    params("a lone surrogate", r'"model": "\ud800"', "model"),
    msg("no stream id", 'GENERATE {"prompt": [1]}', "stream_id"),
    msg("stream id a string", 'GENERATE {"prompt": [1], "stream_id": "7"}', "stream_id"),
    msg("stream id a fraction", 'GENERATE {"prompt": [1], "stream_id": 7.5}', "stream_id"),
    msg("stream id huge", 'SCORE {"stream_id": 1e99, "prompt": [1]}', "stream_id"),
    msg("info without an id", "MODEL_INFO {}", "stream_id"),
    msg("cancel without an id", "CANCEL {}", "stream_id"),
    token("a live stream id", 'GENERATE {"stream_id": 1, "prompt": [1]}', "stream_id", stream_id=1),
    token(
        "scoring a live stream id",
        'SCORE {"stream_id": 1, "prompt": [1], "scored": [2]}',
        "stream_id", stream_id=1,
    ),
    params("model a number", '"model": 5', "model"),
    both("unknown model", generate('"model": "nobody"'), "model"),
    both(
        "scoring an unknown model",
        'SCORE {"stream_id": 7, "prompt": [1], "scored": [2], "model": "x"}',
        "model",
    ),
    msg(
        "info of an unknown model",
        'MODEL_INFO {"stream_id": 7, "model": "x"}',
        "model", stream_id=7,
    ),
    msg("info with model a list", 'MODEL_INFO {"stream_id": 7, "model": []}', "model", stream_id=7),
    token("prompt missing", 'GENERATE {"stream_id": 7}', "prompt"),
    token("prompt a token among parts", 'GENERATE {"stream_id": 7, "prompt": ["a", 1]}', "prompt"),
    token("prompt empty", 'GENERATE {"stream_id": 7, "prompt": []}', "prompt"),
    token("token a string", 'GENERATE {"stream_id": 7, "prompt": [1, "a"]}', "prompt"),
    token("token a fraction", 'GENERATE {"stream_id": 7, "prompt": [1.5]}', "prompt"),
    token("token null", 'GENERATE {"stream_id": 7, "prompt": [null]}', "prompt"),
    token("token negative", 'GENERATE {"stream_id": 7, "prompt": [-1]}', "prompt"),
    token("token huge", 'GENERATE {"stream_id": 7, "prompt": [99999999999999999999]}', "prompt"),
    token("token out of range", f'GENERATE {{"stream_id": 7, "prompt": [1, {VOCAB}]}}', "prompt"),
    token(
        "prompt as long as the context",
        f'GENERATE {{"stream_id": 7, "prompt": {[1] * CONTEXT}}}',
        "prompt",
    ),
    token("score without prompt", 'SCORE {"stream_id": 7, "scored": [1]}', "prompt"),
    token("score without scored", 'SCORE {"stream_id": 7, "prompt": [1]}', "scored"),
    token("scored empty", 'SCORE {"stream_id": 7, "prompt": [1], "scored": []}', "scored"),
    token("scored a number", 'SCORE {"stream_id": 7, "prompt": [1], "scored": 1}', "scored"),
    token(
        "scored out of range",
        f'SCORE {{"stream_id": 7, "prompt": [1], "scored": [{VOCAB}]}}',
        "scored",
    ),
    token(
        "scored over the context",
        f'SCORE {{"stream_id": 7, "prompt": {[1] * CONTEXT}, "scored": [1]}}',
        "scored",
    ),
    params("max_tokens 0", '"max_tokens": 0', "max_tokens"),
    params("max_tokens a fraction", '"max_tokens": 1.5', "max_tokens"),
    params("max_tokens huge", '"max_tokens": 1e400', "max_tokens"),
    params("temperature negative", '"temperature": -0.1', "temperature"),
    params("temperature a string", '"temperature": "hot"', "temperature"),
    params("temperature NaN", '"temperature": NaN', "temperature"),
    params("temperature Infinity", '"temperature": Infinity', "temperature"),
    params("temperature huge", '"temperature": 1e999', "temperature"),
    params("temperature large", '"temperature": 1e300', "temperature"),
    params("top_p 0", '"top_p": 0', "top_p"),
    params("top_p over 1", '"top_p": 1.5', "top_p"),
    params("top_k negative", '"top_k": -1', "top_k"),
    params("top_logprobs negative", '"top_logprobs": -1', "top_logprobs"),
    params("repetition_penalty 0", '"repetition_penalty": 0', "repetition_penalty"),
    params("presence_penalty large", '"presence_penalty": 1e9', "presence_penalty"),
    params("frequency_penalty true", '"frequency_penalty": true', "frequency_penalty"),
    params("seed a string", '"seed": "a"', "seed"),
    params("bias an array", '"logit_bias": [1]', "logit_bias"),
    params("bias key a word", '"logit_bias": {"the": 1}', "logit_bias"),
    params("bias key negative", '"logit_bias": {"-1": 1}', "logit_bias"),
    params("bias key out of range", f'"logit_bias": {{"{VOCAB}": 1}}', "logit_bias"),
    params("bias value a string", '"logit_bias": {"1": "a"}', "logit_bias"),
    params("bias value NaN", '"logit_bias": {"1": NaN}', "logit_bias"),
    params("bias value huge", '"logit_bias": {"1": 1e300}', "logit_bias"),
    params("field twice", '"top_k": 1, "top_k": 2', "top_k"),
    msg("binary frame", b'GENERATE {"stream_id": 7, "prompt": [1]}', "frame"),
    msg("empty binary frame", b"", "frame"),
]


@pytest.fixture(scope="module")
def live_ids(demo):
    """What the live stream gives without other messages."""

    async def run():
        async with Socket(demo.endpoint) as s:
            await s.send("GENERATE", **LIVE)
            return (await s.finish(1))[0]

    return asyncio.run(run())


@pytest.mark.parametrize(
    "sent, kinds, stream_id, field", [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_is_answered_and_nothing_else_suffers(
    demo, endless, live_ids, sent, kinds, stream_id, field
):
    async def run():
        is_about_live = stream_id == LIVE["stream_id"]  # which must be so when it comes
        async with Socket((endless if is_about_live else demo).endpoint) as s:
            await s.send("GENERATE", **LIVE | (FOREVER if is_about_live else {}))
            if isinstance(sent, bytes):
                await s.ws.send_bytes(sent)
            else:
                await s.send_text(sent)
            got = []
            for _ in kinds:
                kind, entry = await s.wait_for(lambda k, e: "error" in e)
                assert set(entry) == {"stream_id", "error", "code", "retryable"}
                assert entry["stream_id"] == stream_id
                assert re.match(rf"{field}(\[\d+\])?: ", entry["error"]), entry
                assert len(entry["error"]) < 500
                got.append(kind)
            assert sorted(got) == kinds
            if is_about_live:
                await s.token_of(1)
                await s.send("CANCEL", stream_id=1)
                assert await s.error_of(1) == "cancelled"
            else:
                assert await s.finish(1) == (live_ids, "length")
            # One more exchange: whatever came too many would be seen before its answer.
            await s.model_info()
            assert s.entries == []

    asyncio.run(run())


def test_nothing_is_left_behind(demo):
    asyncio.run(wait_all_freed(demo.endpoint))


ACCEPTED = [
    ("max_tokens over the context", f'"max_tokens": 100000, "logit_bias": {json.dumps(NO_END)}'),
    ("top_logprobs over the limit", '"top_logprobs": 100000, "max_tokens": 1'),
    ("unknown keys", '"length_penalty": 1.0, "foo": [{"bar": null}], "max_tokens": 1'),
    ("null for a default", '"top_p": null, "logit_bias": null, "model": null, "max_tokens": 1'),
    ("whole numbers", '"temperature": 1, "top_p": 1, "presence_penalty": 0, "max_tokens": 1'),
    ("an empty bias", '"logit_bias": {}, "max_tokens": 1'),
    ("a negative seed", '"seed": -1, "temperature": 1.0, "max_tokens": 1'),
]


@pytest.mark.parametrize("fields", [c[1] for c in ACCEPTED], ids=[c[0] for c in ACCEPTED])
def test_is_accepted(demo, fields):
    async def run():
        async with Socket(demo.endpoint) as s:
            await s.send_text(generate(fields))
            _, reason = await s.finish(7)
            assert reason in ("length", "stop")

    asyncio.run(run())


def test_max_tokens_is_clamped_to_the_context(demo):
    async def run():
        async with Socket(demo.endpoint) as s:
            ask = {"prompt": [3] * (CONTEXT - 5), "max_tokens": 50, "logit_bias": NO_END}
            await s.send("GENERATE", stream_id=1, **ask)
            ids, reason = await s.finish(1)
            assert (len(ids), reason) == (5, "length")

    asyncio.run(run())


def test_top_logprobs_are_capped(demo):
    async def run():
        async with Socket(demo.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[3], max_tokens=1, top_logprobs=5000)
            entry = await s.token_of(1)
            assert len(entry["top_logprobs"]) == 1024
            assert str(entry["token"]) in entry["top_logprobs"]

    asyncio.run(run())


def test_the_first_token_of_an_empty_prompt_scores_zero(demo):
    async def run():
        async with Socket(demo.endpoint) as s:
            await s.send("SCORE", stream_id=1, prompt=[], scored=[5, 6])
            first, second = await s.token_of(1), await s.token_of(1)
            assert (first["token"], first["logprob"]) == (5, 0.0)
            assert second["logprob"] < 0 and second["finish_reason"] == "stop"
            assert "top_logprobs" not in first

    asyncio.run(run())


def test_invalid_utf8_closes_with_1007_and_others_live(demo):
    async def run():
        async with Socket(demo.endpoint) as s, Socket(demo.endpoint) as other:
            await other.send("GENERATE", **LIVE)
            bad = b'GENERATE {"model": "\xff\xfe"}'
            await s.ws._writer.send_frame(bad, aiohttp.WSMsgType.TEXT)
            assert await s.read_until_closed() == 1007
            await other.finish(1)

    asyncio.run(run())


def test_a_message_over_the_limit_closes_with_1009_and_names_it(demo):
    limit = 1 << 20

    async def run():
        async with Socket(demo.endpoint) as s, Socket(demo.endpoint) as other:
            await other.send("GENERATE", **LIVE)
            text = "GENERATE " + json.dumps({"stream_id": 7, "prompt": [1], "max_tokens": 1})
            await s.send_text(text.ljust(limit))
            await s.finish(7)
            await s.send_text(text.ljust(limit + 1))
            assert await s.read_until_closed() == 1009
            assert str(limit) in s.close_reason
            await other.finish(1)

    asyncio.run(run())

"""--speculate over the socket: every text, log probability and end is that of a server without it,
in fewer steps where text repeats, and with few refused drafts where it does not."""

import asyncio
import pathlib
import subprocess
import sys

import pytest
from checkpoints import FOREVER
from servers import LmtpServe, bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import lmtp  # noqa: E402

TIMEOUT_S = 300
TALE = "Once upon a time there was a little girl who lived near the forest. "


def served(*options):
    with LmtpServe("demo", "--kv-cache", "64MiB", *options) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture(scope="module")
def plain():
    yield from served()


@pytest.fixture(scope="module")
def drafting():
    yield from served("--speculate", "8")


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


async def stats(client):
    return (await client.model_info())["stats"]


def entries(tokens):
    """What a client gets of a stream."""
    return [(t.index, t.id, t.logprob, t.text, t.top_logprobs, t.finish_reason) for t in tokens]


async def generated(client, prompt, **params):
    params = {"max_tokens": 60, "text": True, **params}
    return [token async for token in client.generate(prompt, **params)]


KINDS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "top_p": 0.9, "n": 4},
    "raw": {"temperature": 1.3, "top_k": 50, "logprobs": "raw"},
    "penalties": {"temperature": 0.7, "repetition_penalty": 1.2, "presence_penalty": 0.3},
    "biased": {"temperature": 0.5, "logit_bias": {"7": 3, "11": -100}},
    "min_tokens": {"temperature": 0.6, "min_tokens": 40},
    "alternatives": {"temperature": 0.4, "top_logprobs": 5, "ignore_eos": True},
    "stop": {"temperature": 0.3, "stop": ["and", ". The"]},
    "grammar": {"temperature": 0.7, "grammar": {"type": "regex", "value": "( [a-z]+){12}"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_stream_is_the_same(plain, drafting, kind):
    async def streams_of(server):
        async with lmtp.connect(server.endpoint) as client:
            found = []
            for seed in (1, 2):
                for _ in range(2):  # new, and with its text in the cache
                    got = await generated(client, TALE * 3, seed=seed, **KINDS[kind])
                    found.append(sorted(entries(got), key=lambda entry: entry[0]))
            return found

    assert run(streams_of(drafting)) == run(streams_of(plain))


def test_an_edited_stream_goes_on_as_a_new_one(endless_model):
    async def go(server):
        async with lmtp.connect(server.endpoint) as client:
            prompt = await client.tokenize(TALE * 3)
            stream = client.generate(prompt, seed=5, temperature=0.2, **FOREVER)
            text, num_appended = [], 0
            async for token in stream:
                del text[len(text) - token.backtrack :]
                text.append((token.id, token.logprob))
                num_appended += token.appended
                if len(text) == 20 and num_appended == 0:
                    await stream.backtrack(10, [7, 8, 9])
                if len(text) >= 200 and num_appended >= 3:
                    break
            assert num_appended == 3
            assert (await stats(client))["num_accepted_drafts"] > 0
            scored = await client.score(prompt, [token for token, _ in text])
            assert [(t.id, t.logprob) for t in scored] == text

    with LmtpServe(endless_model, "--kv-cache", "64MiB", "--speculate", "8") as server:
        run(go(server))


def test_text_that_comes_again_takes_few_steps(plain, drafting):
    async def steps_of(server):
        async with lmtp.connect(server.endpoint) as client:
            prompt = TALE + "One day"
            params = {"max_tokens": 120, "seed": 11, "temperature": 0.7, "ignore_eos": True}
            first = entries(await generated(client, prompt, **params))
            before = await stats(client)
            assert entries(await generated(client, prompt, **params)) == first
            after = await stats(client)
            return {name: after[name] - before[name] for name in after}

    assert run(steps_of(plain))["num_steps"] == 120
    again = run(steps_of(drafting))
    assert again["num_steps"] < 60
    assert again["num_generated_tokens"] == 120
    assert again["num_accepted_drafts"] > 60


def test_of_other_text_few_rows_are_refused():
    params = {"max_tokens": 200, "temperature": 1, "ignore_eos": True}

    async def go(server):
        async with lmtp.connect(server.endpoint) as client:
            await asyncio.gather(
                *(
                    generated(client, name, seed=seed, **params)
                    for seed, name in enumerate(["The king", "A fox", "Nobody", "The wind"])
                )
            )
            return await stats(client)

    with LmtpServe("demo", "--kv-cache", "64MiB", "--speculate", "8") as server:
        after = run(go(server))
    assert after["num_generated_tokens"] == 800
    assert 20 * after["num_refused_drafts"] <= after["num_tokens_computed"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [(("--cuda", "--speculate", "4"), "is for a CPU"), (("--speculate", "17"), "--speculate")],
)
def test_what_it_is_not_for_is_refused(options, wanted):
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", "demo", "--port", "0", *options], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert wanted in done.stderr

"""Log probabilities that a server knows from before, over the socket: what a SCORE computes is
counted, and has the bits of a server that computes it."""

import asyncio
import pathlib
import random
import sys

import pytest
from servers import LmtpServe
from wire import Connection

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import lmtp  # noqa: E402

ADAPTER = ROOT / "tests" / "goldens" / "adapters" / "demo"
VOCAB = 2048
PROMPT = "Once upon a time there was"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def server():
    options = ("--lora-modules", f"tales={ADAPTER}")
    with LmtpServe("demo", "--kv-cache", "64MiB", *options) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture(scope="module")
def forgetful():
    """A server that keeps none."""
    with LmtpServe("demo", "--kv-cache", "64MiB", "--score-cache", "0") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


class Counted:
    """How the counters of MODEL_INFO have grown over a block."""

    def __init__(self, client):
        self.client = client

    async def stats(self):
        return (await self.client.model_info())["stats"]

    async def __aenter__(self):
        self.before = await self.stats()
        return self

    async def __aexit__(self, *_):
        after = await self.stats()
        self.computed, self.known = (
            after[name] - self.before[name] for name in ("num_tokens_computed", "num_cached_scores")
        )


def ids(count, seed):
    generator = random.Random(seed)
    return [generator.randrange(VOCAB - 1) for _ in range(count)]


def numbers(tokens):
    return [(t.id, t.logprob) for t in tokens]


@pytest.mark.parametrize("num_scored", [1, 16, 17, 300])
@pytest.mark.parametrize("num_prompt", [0, 1, 33])
def test_a_repeated_score_computes_nothing(server, forgetful, num_prompt, num_scored):
    prompt, scored = ids(num_prompt, num_scored), ids(num_scored, 1000 + num_prompt)

    async def go():
        async with lmtp.connect(server.endpoint) as client, lmtp.connect(
            forgetful.endpoint
        ) as other:
            cold = numbers(await other.score(prompt, scored))
            assert numbers(await client.score(prompt, scored)) == cold
            for text in (scored, scored[: num_scored // 2 + 1]):
                async with Counted(client) as again:
                    tokens = await client.score(prompt, text)
                assert numbers(tokens) == cold[: len(text)]
                assert tokens[-1].finish_reason == "stop"
                assert again.computed == 0
                assert again.known == len(text) - (num_prompt == 0)
            async with Counted(other) as computed:
                assert numbers(await other.score(prompt, scored)) == cold
            assert computed.known == 0
            assert computed.computed == num_scored - (num_prompt == 0)

    run(go())


@pytest.mark.parametrize("temperature", [0, 1.1])
def test_what_was_just_generated_is_known(server, forgetful, temperature):
    async def go():
        async with lmtp.connect(server.endpoint) as client, lmtp.connect(
            forgetful.endpoint
        ) as other:
            prompt = await client.tokenize(PROMPT)
            drawn = {"max_tokens": 40, "seed": 3, "ignore_eos": True, "temperature": temperature}
            tokens = [t async for t in client.generate(prompt, **drawn)]
            text = [t.id for t in tokens]
            async with Counted(client) as known:
                scored = await client.score(prompt, text)
            assert known.computed == 0
            assert numbers(scored) == numbers(tokens)
            assert numbers(await other.score(prompt, text)) == numbers(scored)
            async with Counted(client) as rest:
                longer = await client.score(prompt, text + [7, 8, 9])
            assert rest.computed == 3
            assert numbers(await other.score(prompt, text + [7, 8, 9])) == numbers(longer)

    run(go())


@pytest.mark.parametrize(
    "changed",
    [{"logit_bias": {"7": 5}}, {"repetition_penalty": 1.3}, {"min_tokens": 24}],
    ids=["bias", "penalty", "min_tokens"],
)
def test_what_other_logits_gave_is_computed_unless_raw(server, forgetful, changed):
    async def go():
        async with lmtp.connect(server.endpoint) as client, lmtp.connect(
            forgetful.endpoint
        ) as other:
            for seed, logprobs in enumerate(("processed", "raw")):
                prompt = ids(20, str(changed) + logprobs)
                drawn = {"max_tokens": 24, "temperature": 1, "seed": seed, **changed}
                tokens = client.generate(prompt, logprobs=logprobs, **drawn)
                text = [t.id async for t in tokens]
                async with Counted(client) as counted:
                    scored = numbers(await client.score(prompt, text))
                assert scored == numbers(await other.score(prompt, text))
                assert counted.computed == (0 if logprobs == "raw" else len(text))

    run(go())


@pytest.mark.parametrize("num_prefix", [10, 100])
def test_candidates_compute_their_prefix_once_and_then_nothing(server, forgetful, num_prefix):
    """As LMQL's `distribution` asks them: at once, behind one prefix."""
    prefix = ids(num_prefix, num_prefix)
    candidates = [ids(3, 5000 + i) for i in range(8)]

    async def ask(client):
        asked = await asyncio.gather(*(client.score(prefix, c) for c in candidates))
        return [numbers(tokens) for tokens in asked]

    async def go():
        async with lmtp.connect(server.endpoint) as client, lmtp.connect(
            forgetful.endpoint
        ) as other:
            async with Counted(client) as cold:
                first = await ask(client)
            async with Counted(client) as warm:
                assert await ask(client) == first
            assert first == await ask(other)
            return cold, warm

    cold, warm = run(go())
    # Of the prefix each needs the logits behind its last token.
    assert cold.computed == num_prefix - 1 + sum(map(len, candidates))
    assert (warm.computed, warm.known) == (0, 24)


@pytest.mark.parametrize("num_prompt", [1, 33, 300])
def test_whole_candidates_compute_each_common_token_once(server, forgetful, num_prompt):
    prompt = ids(num_prompt, 900 + num_prompt)
    shared = ids(6, 901)
    candidates = [shared[:end] + ids(1 + i % 4, 7000 + i)
                  for i, end in enumerate([0, 0, 1, 2, 2, 3, 6, 6, 6, 0] * 6)]  # fmt: skip
    candidates.append(shared[:3])
    num_inner = len({tuple(c[:end]) for c in candidates for end in range(1, len(c))})

    async def go():
        async with lmtp.connect(server.endpoint) as client, lmtp.connect(
            forgetful.endpoint
        ) as other:
            async with Counted(client) as cold:
                first = await client.score_candidates(prompt, candidates)
            async with Counted(client) as again:
                assert await client.score_candidates(prompt, candidates) == first
            assert [t async for t in other.generate(prompt, max_tokens=1)]
            async with Counted(other) as warm:
                assert await other.score_candidates(prompt, candidates) == first
            for one, candidate in zip(first, candidates):
                scored = sum(t.logprob for t in await other.score(prompt, candidate))
                assert one.num_tokens == len(candidate)
                assert one.logprob == pytest.approx(scored, abs=1e-5)
            return cold, again, warm

    cold, again, warm = run(go())
    assert cold.computed == num_prompt + num_inner
    assert again.computed == 0
    assert warm.computed == 1 + num_inner


def test_a_burst_of_equal_ones_is_computed_once(server):
    prompt, scored = ids(40, 77), ids(100, 78)

    async def go():
        async with lmtp.connect(server.endpoint) as client, Counted(client) as burst:
            asked = await asyncio.gather(*(client.score(prompt, scored) for _ in range(6)))
        assert len({str(numbers(tokens)) for tokens in asked}) == 1
        return burst

    burst = run(go())
    assert (burst.computed, burst.known) == (139, 500)


def test_alternatives_are_not_missing(server):
    prompt, scored = ids(20, 90), ids(10, 91)

    async def go():
        async with lmtp.connect(server.endpoint) as client:
            known = numbers(await client.score(prompt, scored))
            async with Counted(client) as counted:
                tokens = await client.score(prompt, scored, top_logprobs=3)
            assert numbers(tokens) == known
            assert all(len(t.top_logprobs) >= 3 for t in tokens)
            assert counted.computed == len(scored)

    run(go())


def test_an_adapter_has_its_own(server):
    prompt, scored = ids(20, 60), ids(20, 61)

    async def go():
        async with Connection(server.endpoint, "demo") as plain, Connection(
            server.endpoint, "tales"
        ) as adapted, lmtp.connect(server.endpoint) as client:
            of = {}
            for name, connection in (("demo", plain), ("tales", adapted)):
                for warm in (False, True):
                    async with Counted(client) as counted:
                        entries = await connection.score(prompt, scored)
                    logprobs = [e["logprob"] for e in entries]
                    assert of.setdefault(name, logprobs) == logprobs
                    assert counted.computed == (0 if warm else 39)
            assert of["demo"] != of["tales"]

    run(go())


def test_the_limit_holds_and_what_went_is_computed_again():
    """Of all texts' the limit has room for about three."""
    limit = 6_000

    async def go(endpoint):
        async with lmtp.connect(endpoint) as client:
            texts = [ids(100, 200 + i) for i in range(6)]
            cold = [numbers(await client.score([1], text)) for text in texts]
            stats = (await client.model_info())["stats"]
            assert stats["score_cache_bytes"] == limit
            assert limit - 1000 < stats["score_cache_bytes_used"] <= limit
            async with Counted(client) as last:
                assert numbers(await client.score([1], texts[-1])) == cold[-1]
            assert last.computed == 0
            async with Counted(client) as first:
                assert numbers(await client.score([1], texts[0])) == cold[0]
            assert first.computed == 100

    with LmtpServe("demo", "--kv-cache", "64MiB", "--score-cache", str(limit)) as server:
        run(go(server.endpoint))
    assert server.exit_code == 0, server.log_tail

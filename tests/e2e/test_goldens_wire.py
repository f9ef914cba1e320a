"""What lmtp-serve computes, asked over the socket: the goldens of `transformers`, and equality bit
for bit of the same stream alone, in a batch, in chunks, from the cache and after preemption."""

import asyncio
import json
import pathlib
import random
import subprocess
import sys

import pytest
from checkpoints import DEMO, no_end
from lmtp_socket import wait_all_freed
from servers import LmtpServe
from wire import Connection, ids_of, logprobs_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"
MODELS = {f.name: f for f in sorted((GOLDENS / "checkpoints").iterdir())} | {
    "demo": DEMO
}
GOLDEN_TOLERANCE = 1e-4
IMPROBABLE = -50  # below, a log probability is a mask's doing and means nothing
CHUNK = 16
BATCH = 32  # streams at once
CHECK_TIMEOUT_S = 300


class Model:
    """A running server with what a test needs to draw requests for it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        config = json.loads((folder / "config.json").read_text())
        self.vocab, self.context = config["vocab_size"], config["n_positions"]
        self.no_end = no_end(folder)

    def connect(self):
        return Connection(self.server.endpoint, self.server.model)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    folder = MODELS[request.param]
    with LmtpServe(folder) as server:
        yield Model(server, folder)
        assert_no_block_is_held(server)
    assert server.exit_code == 0


@pytest.fixture
def second(model):
    """Another server with the same model: nothing is cached there."""
    with LmtpServe(model.folder) as server:
        yield Model(server, model.folder)
        assert_no_block_is_held(server)


def assert_no_block_is_held(server):
    async def num_failed_steps():
        async with Connection(server.endpoint) as c:
            return (await c.model_info())["stats"]["num_failed_steps"]

    asyncio.run(wait_all_freed(server.endpoint))
    assert asyncio.run(num_failed_steps()) == 0


# ---- against transformers ----


def cases_of(model):
    return json.loads((GOLDENS / f"{model.folder.name}.json").read_text(encoding="utf-8"))


async def ask(connection, case):
    if case["kind"] == "score":
        return await connection.score(case["prompt_ids"], case["scored_ids"])
    bias = {"logit_bias": case["logit_bias"]} if "logit_bias" in case else {}
    return await connection.generate(
        case["prompt_ids"], max_tokens=case["max_tokens"], temperature=0, top_logprobs=5, **bias
    )


def assert_golden(case, entries):
    name = case["name"]
    if case["kind"] == "score":
        assert ids_of(entries) == case["scored_ids"], name
        assert logprobs_of(entries) == pytest.approx(case["logprobs"], abs=GOLDEN_TOLERANCE), name
        return
    assert ids_of(entries) == case["ids"], name
    assert entries[-1]["finish_reason"] == case["finish_reason"], name
    assert all(e["finish_reason"] is None for e in entries[:-1]), name
    for i, (entry, step) in enumerate(zip(entries, case["steps"])):
        assert entry["logprob"] == pytest.approx(step["logprob"], abs=GOLDEN_TOLERANCE), (name, i)
        assert entry["top_logprobs"][str(entry["token"])] == entry["logprob"], (name, i)
        for token, value in step.get("top5", []):
            if value > IMPROBABLE:
                top = entry["top_logprobs"][str(token)]
                assert top == pytest.approx(value, abs=GOLDEN_TOLERANCE), (name, i, token)


def test_goldens_one_by_one(model):
    async def run():
        async with model.connect() as c:
            return [await ask(c, case) for case in cases_of(model)]

    for case, entries in zip(cases_of(model), asyncio.run(run()), strict=True):
        assert_golden(case, entries)


def test_goldens_all_together(second):
    async def run():
        async with second.connect() as c:
            return await asyncio.gather(*(ask(c, case) for case in cases_of(second)))

    for case, entries in zip(cases_of(second), asyncio.run(run()), strict=True):
        assert_golden(case, entries)


# ---- bit for bit ----


def draw_requests(model, count, seed):
    """Requests of every kind and mix of parameters, as (method, arguments)."""
    rng = random.Random(seed)
    ids = lambda n: [rng.randrange(model.vocab) for _ in range(n)]
    shared_prefix = ids(model.context // 4)
    requests = []
    for i in range(count):
        prompt = ids(rng.randint(1, model.context // 3))
        if i % 4 == 3:
            prompt = shared_prefix + prompt[: model.context // 8]
        if i % 5 == 4:
            requests.append(("SCORE", {"prompt": prompt, "scored": ids(rng.randint(1, 20))}))
            continue
        params = {"max_tokens": rng.randint(1, model.context // 3), "seed": rng.randrange(1 << 32)}
        params["temperature"] = rng.choice([0, 0, 0.3, 0.8, 1.0, 1.7])
        params["top_logprobs"] = rng.choice([1, 1, 2, 4])
        options = {
            "top_p": rng.choice([0.5, 0.9]),
            "top_k": rng.choice([2, 20]),
            "repetition_penalty": rng.choice([0.8, 1.3]),
            "presence_penalty": rng.choice([-0.5, 0.7]),
            "frequency_penalty": rng.choice([-0.2, 0.4]),
            "logit_bias": model.no_end | {str(t): rng.choice([-100, -1.5, 2]) for t in ids(9)},
        }
        for name in rng.sample(sorted(options), rng.randint(0, 3)):
            params[name] = options[name]
        requests.append(("GENERATE", {"prompt": prompt, **params}))
    return requests


async def answer(connection, request):
    """The entries of one request without their stream id."""
    entries = await connection.collect(await connection.send(request[0], **request[1]))
    return [{k: v for k, v in e.items() if k != "stream_id"} for e in entries]


def test_a_stream_in_a_batch_equals_itself_alone(model, second):
    requests = draw_requests(model, BATCH, seed=1)

    async def alone():
        async with model.connect() as c:
            return [await answer(c, r) for r in requests]

    async def together():
        async with second.connect() as c:
            return await asyncio.gather(*(answer(c, r) for r in requests))

    want = asyncio.run(alone())
    assert asyncio.run(together()) == want, "nothing cached"
    assert asyncio.run(together()) == want, "from the cache"


def generate_params(model):
    """What one stream and its chunks are compared under; no end token, so all have one length."""
    bias = model.no_end
    return {
        "greedy": {"temperature": 0, "logit_bias": bias},
        "drawn": {"temperature": 1.1, "seed": 77, "logit_bias": bias},
        "drawn, cut": {
            "temperature": 0.9, "seed": 5, "logit_bias": bias, "top_p": 0.8, "top_k": 30,
        },
        "penalised": {
            "temperature": 0.7, "seed": 123456789012, "logit_bias": bias,
            "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2,
        },
    }  # fmt: skip


async def in_chunks(connection, prompt, count, keep, params):
    """As LMQL asks: CHUNK tokens at a time, of which it keeps some and sends all again."""
    prompt, kept = list(prompt), []
    while len(kept) < count:
        entries = await connection.generate(prompt, max_tokens=CHUNK, **params)
        entries = entries[: min(keep(), count - len(kept))]
        kept += entries
        prompt += ids_of(entries)
    return kept


@pytest.mark.parametrize("name", ["greedy", "drawn", "drawn, cut", "penalised"])
def test_chunks_equal_one_stream(model, second, name):
    params = generate_params(model)[name] | {"top_logprobs": 3}
    rng = random.Random(2)
    prompt = [rng.randrange(model.vocab) for _ in range(model.context // 5)]
    count = model.context // 2

    async def whole():
        async with model.connect() as c:
            return await c.generate(prompt, max_tokens=count, **params)

    async def chunks(keep):
        async with second.connect() as c:
            return await in_chunks(c, prompt, count, keep, params)

    want = bits(asyncio.run(whole()))
    assert len(want) == count
    assert bits(asyncio.run(chunks(lambda: CHUNK))) == want
    assert bits(asyncio.run(chunks(lambda: rng.randint(1, CHUNK)))) == want


def bits(entries):
    """All but what tells chunks from one stream."""
    return [(e["token"], e["logprob"], e["top_logprobs"]) for e in entries]


@pytest.mark.parametrize("temperature", [0, 1.2])
def test_score_equals_what_generate_reported(model, second, temperature):
    """Warm where the text was generated, cold elsewhere; and the other way about."""
    rng = random.Random(3)
    prompt = [rng.randrange(model.vocab) for _ in range(model.context // 4)]
    params = {"max_tokens": model.context // 3, "temperature": temperature, "seed": 9}

    async def run():
        async with model.connect() as warm, second.connect() as cold:
            generated = await warm.generate(prompt, **params)
            ids = ids_of(generated)
            scores = [await c.score(prompt, ids) for c in (warm, cold, warm, cold)]
            inner = await cold.score(prompt + ids[:5], ids[5:])
            return generated, scores, inner, await cold.generate(prompt, **params)

    generated, scores, inner, again = asyncio.run(run())
    for entries in scores:
        assert ids_of(entries) == ids_of(generated)
        assert logprobs_of(entries) == logprobs_of(generated)
        assert [e["finish_reason"] for e in entries] == [None] * (len(entries) - 1) + ["stop"]
    assert logprobs_of(inner) == logprobs_of(generated)[5:]
    assert bits(again) == bits(generated)


# ---- what the cache saves ----


class Counters:
    """The difference of MODEL_INFO's counters over a block."""

    def __init__(self, connection):
        self.connection = connection

    async def __aenter__(self):
        self.before = (await self.connection.model_info())["stats"]
        return self

    async def __aexit__(self, *_):
        after = (await self.connection.model_info())["stats"]
        self.steps, self.computed, self.cached = (
            after[name] - self.before[name]
            for name in ("num_steps", "num_tokens_computed", "num_cached_tokens")
        )


@pytest.mark.parametrize("kept", [CHUNK, 5, 1])
def test_a_continuation_computes_only_what_is_not_cached(second, kept):
    rng = random.Random(4)
    prompt = [rng.randrange(second.vocab) for _ in range(40)]
    params = {"temperature": 0, "logit_bias": second.no_end}

    async def run():
        async with second.connect() as c:
            first = await c.generate(prompt, max_tokens=CHUNK, **params)
            async with Counters(c) as one:
                longer = prompt + ids_of(first)[:kept]
                await c.generate(longer, max_tokens=1, **params)
            async with Counters(c) as chunk:
                await c.generate(longer, max_tokens=CHUNK, **params)
            return len(longer), one, chunk

    length, one, chunk = asyncio.run(run())
    assert (one.steps, one.computed, one.cached) == (1, 1, length - 1)
    assert (chunk.steps, chunk.computed, chunk.cached) == (CHUNK, CHUNK, length - 1)


def test_a_burst_on_one_prefix_computes_it_once(second):
    rng = random.Random(6)
    prefix = [rng.randrange(second.vocab) for _ in range(48)]
    scored = [[t] + [rng.randrange(second.vocab) for _ in range(3)] for t in range(8)]

    async def run():
        async with second.connect() as c, Counters(c) as burst:
            await asyncio.gather(*(c.score(prefix, s) for s in scored))
        return burst

    assert asyncio.run(run()).computed <= len(prefix) + sum(map(len, scored))


def small_cache_options(model, num_tokens):
    """A KV cache for about that many tokens."""

    async def info():
        async with model.connect() as c:
            return (await c.model_info())["stats"]

    stats = asyncio.run(info())
    block_bytes = stats["kv_cache_bytes"] // stats["num_blocks"]
    return "--kv-cache", str(block_bytes * (2 + num_tokens // stats["tokens_per_block"]))


def test_a_preempted_stream_equals_itself_undisturbed(model):
    count = model.context // 2
    params = [p | {"max_tokens": count} for p in generate_params(model).values()]
    rng = random.Random(8)
    requests = [
        ("GENERATE", {"prompt": [rng.randrange(model.vocab) for _ in range(8)], **params[i % 4]})
        for i in range(12)
    ]

    async def run(connection):
        async with connection as c:
            answers = await asyncio.gather(*(answer(c, r) for r in requests))
            return answers, (await c.model_info())["stats"]["num_preemptions"]

    want, num_undisturbed = asyncio.run(run(model.connect()))
    assert num_undisturbed == 0
    with LmtpServe(model.folder, *small_cache_options(model, 3 * model.context // 2)) as server:
        # On a busy machine the server may be done with one before the next has come.
        for _ in range(10):
            got, num_preemptions = asyncio.run(run(Model(server, model.folder).connect()))
            assert got == want
            if num_preemptions > 0:
                break
        assert_no_block_is_held(server)
    assert num_preemptions > 0


# ---- data from outside the repository ----


@pytest.mark.parametrize("how", [[], ["--together"]], ids=["one by one", "together"])
def test_goldens_of_a_trained_model_with_the_real_vocabulary(test_data, how):
    data = test_data / "data"
    command = [sys.executable, data / "tools" / "check_goldens.py", "--model", "tiny-gpt2", *how]
    with LmtpServe(data / "models" / "tiny-gpt2") as server:
        done = subprocess.run(
            [*command, "--endpoint", server.endpoint, data / "goldens" / "tiny-gpt2.json"],
            capture_output=True, text=True, timeout=CHECK_TIMEOUT_S,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

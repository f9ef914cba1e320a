"""lmtp-serve balance in front of three demo workers. What workers do that no lmtp-serve does:
tests/balance; more kills: tools/benchmarks/balance_kills.py."""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import urllib.request

import openai
import pytest
from balance_kills import Balancer, Worker, compare, run_kills, run_load
from checkpoints import FOREVER
from lmtp_socket import Socket, wait_all_freed, wait_until
from servers import bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
LMQL_TESTS = ROOT / "tests" / "lmql"
sys.path.insert(0, str(LMQL_TESTS))

from relay import run_queries  # noqa: E402

DEMO = ROOT / "models" / "demo"
NUM_STREAMS, NUM_TOKENS, NUM_KILLS = 24, 100, 3
HIT_TOLERANCE = 0.05


@pytest.fixture(scope="module")
def single():
    with Worker() as server:
        yield server


@pytest.fixture(scope="module")
def workers():
    with Worker() as a, Worker() as b, Worker() as c:
        yield [a, b, c]


@pytest.fixture(scope="module")
def balancer(workers):
    with Balancer(workers) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture(scope="module")
def endless_workers(endless_model):
    options = ("--shutdown-timeout", "600")
    patient = ("--worker-timeout", "600")  # a worker that starts again may take its time
    with (
        Worker(*options, model=endless_model) as a,
        Worker(*options, model=endless_model) as b,
        Balancer([a, b], "--model", endless_model, *patient) as balancer,
    ):
        yield balancer, [a, b]
    assert balancer.exit_code == 0, balancer.log_tail


LONG = {"stream_id": 1000, "prompt": [5], "notices": True, **FOREVER}


async def begin_long_stream(s, workers):
    """LONG, of which one token has been taken; the worker that runs it."""
    await s.send("GENERATE", **LONG)
    await s.token_of(LONG["stream_id"])

    async def runs_alone():  # what a test before this one has cancelled may still end
        nonlocal running
        running = [(await stats_of(worker))["num_running"] for worker in workers]
        return sorted(running) == [0, 1]

    running = []
    await wait_until(runs_alone, "one worker runs one stream")
    return workers[running.index(1)]


async def end_long_stream(s, endpoint):
    """Cancels LONG, whose tokens must be those of a stream that nothing has happened to."""
    await s.send("CANCEL", stream_id=LONG["stream_id"])
    assert await s.error_of(LONG["stream_id"]) == "cancelled"
    ids = [e["token"] for _, entries in s.messages for e in entries
           if e["stream_id"] == LONG["stream_id"] and "token" in e]  # fmt: skip
    async with Socket(endpoint) as other:
        await other.send("GENERATE", **LONG | {"max_tokens": len(ids)})
        assert await other.finish(LONG["stream_id"]) == (ids, "length")


async def moved(s):
    """The notice that says so, or what came in its place."""
    _, notice = await s.wait_for(
        lambda kind, entry: entry.get("status") == "moved" or "error" in entry
    )
    assert notice == {"stream_id": LONG["stream_id"], "status": "moved"}


def moves_of(s):
    return [entry for _, entry in s.entries if entry.get("status") == "moved"]


async def stats_of(server):
    async with Socket(server.endpoint) as s:
        return (await s.model_info())["stats"]


def test_streams_equal_a_single_servers_also_when_workers_are_killed(single, workers, balancer):
    wanted = asyncio.run(run_load(single.endpoint, NUM_STREAMS, NUM_TOKENS))
    reports = []
    got = asyncio.run(run_load(balancer.endpoint, NUM_STREAMS, NUM_TOKENS))
    assert compare(got, wanted, reports.append) == (0, 0), reports
    held = balancer.held()
    errors, different, met = asyncio.run(
        run_kills(balancer, workers, wanted, NUM_KILLS, NUM_STREAMS, NUM_TOKENS, 0, reports.append)
    )
    assert (errors, different) == (0, 0), reports
    assert met > 0, "a kill that meets no stream shows nothing"

    async def gave_back():
        return all(now <= before for now, before in zip(balancer.held(), held))

    async def settle():
        await wait_all_up(balancer, len(workers))
        await wait_until(gave_back, "it has no more threads and descriptors than before")

    asyncio.run(settle())


def test_a_worker_that_drains_ends_its_streams_and_gets_no_others(endless_workers):
    balancer, workers = endless_workers

    async def drain():
        await wait_all_up(balancer, len(workers))
        async with Socket(balancer.endpoint) as s:
            worker = await begin_long_stream(s, workers)
            await s.send("GENERATE", stream_id=1, prompt=LONG["prompt"], max_tokens=500)
            await s.token_of(1)  # from the same worker, for their prompts begin alike
            worker.process.terminate()
            for i in range(2, 40):
                await s.send("GENERATE", stream_id=i, prompt=[i], max_tokens=1)
                await s.finish(i)
            ids, reason = await s.finish(1)
            assert (len(ids), reason) == (499, "length")
            await s.token_of(LONG["stream_id"])
            assert moves_of(s) == []
            await end_long_stream(s, balancer.endpoint)
            exit_code = worker.process.wait()
            worker.revive()
            return exit_code

    assert asyncio.run(drain()) == 0


def test_a_stream_is_told_that_it_has_moved(endless_workers):
    balancer, workers = endless_workers

    async def move():
        async with Socket(balancer.endpoint) as s:
            await wait_all_up(balancer, len(workers))
            worker = await begin_long_stream(s, workers)
            worker.kill()
            await moved(s)
            worker.revive()
            await s.token_of(LONG["stream_id"])
            await end_long_stream(s, balancer.endpoint)

    asyncio.run(move())


async def wait_all_up(balancer, count):
    async with Socket(balancer.endpoint) as s:

        async def up():
            states = [w["state"] for w in (await s.model_info())["workers"]]
            return states.count("ready") == count

        await wait_until(up, "all workers are up")


def test_each_prefix_of_one_connection_has_its_worker(workers, balancer):
    """64 streams of eight prefixes."""

    async def spread():
        await wait_all_up(balancer, len(workers))
        before = [await stats_of(w) for w in workers]
        async with Socket(balancer.endpoint) as s:
            for i in range(64):
                prompt = [700 + i % 8] * 64 + [i + 1]
                await s.send("GENERATE", stream_id=i, prompt=prompt, max_tokens=4, ignore_eos=True)
            for i in range(64):
                await s.finish(i)
        after = [await stats_of(w) for w in workers]
        return [a["num_prompt_tokens"] - b["num_prompt_tokens"] for a, b in zip(after, before)]

    counts = asyncio.run(spread())
    of_a_prefix = 8 * 65
    assert sum(counts) == 8 * of_a_prefix
    assert all(count > 0 and count % of_a_prefix == 0 for count in counts), counts


async def cached_part(endpoint, servers):
    """Of the prompts of a load, one stream after the other, each of which continues one of six."""
    before = [await stats_of(s) for s in servers]
    async with Socket(endpoint) as s:
        for i in range(48):
            prompt = [300 + i % 6] * 100 + list(range(1, 20 + i // 6))
            await s.send("GENERATE", stream_id=i, prompt=prompt, max_tokens=2, ignore_eos=True)
            await s.finish(i)
    after = [await stats_of(s) for s in servers]

    def grown(name):
        return sum(a[name] - b[name] for a, b in zip(after, before))

    return grown("num_cached_tokens") / grown("num_prompt_tokens")


def test_cache_hits_are_those_of_one_server(single, workers, balancer):
    alone = asyncio.run(cached_part(single.endpoint, [single]))
    shared = asyncio.run(cached_part(balancer.endpoint, workers))
    assert alone > 0.5
    assert shared == pytest.approx(alone, rel=HIT_TOLERANCE)


def test_workers_keep_the_caches_of_salts_apart(workers, balancer):
    async def cached(salt):
        before = [(await stats_of(w))["num_cached_tokens"] for w in workers]
        async with Socket(balancer.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[290] * 100, max_tokens=1, cache_salt=salt)
            await s.finish(1)
        return sum([(await stats_of(w))["num_cached_tokens"] for w in workers]) - sum(before)

    found = [asyncio.run(cached(salt)) > 0 for salt in ("one", "one", "two", "two", "one")]
    assert found == [False, True, False, True, True]


def test_lmqls_queries(balancer):
    recorded = {}
    for line in (LMQL_TESTS / "expected" / "demo.jsonl").open(encoding="utf-8"):
        entry = json.loads(line)
        if "query" in entry:
            recorded[entry["query"]] = entry["results"]
    queries = [f for f in sorted((LMQL_TESTS / "queries").glob("*.lmql")) if "draws" not in f.stem]
    lines = asyncio.run(run_queries(balancer.endpoint, "demo", DEMO, queries))
    assert len(lines) == len(queries)
    for line in lines:
        assert "error" not in line
        want = [result["text"] for result in recorded[line["query"]]]
        assert [result["text"] for result in line["results"]] == want


def test_candidates_have_the_same_way_in(single, balancer):
    candidates = [[i % 7, i % 11, 20 + i] for i in range(60)]

    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("SCORE", stream_id=1, prompt=[5, 6, 7], candidates=candidates)
            _, entry = await s.wait_for(lambda kind, entry: kind == "TOKEN")
            return entry["candidates"]

    assert asyncio.run(ask(balancer)) == asyncio.run(ask(single))


def test_decisions_have_the_same_way_in(single, balancer):
    questions = {f"q{i}": {"type": "choice", "instructions": f"{i}?",
                           "criteria": {"a lion": None, "a lion cub": None}}
                 for i in range(20)}  # fmt: skip
    fields = {"state": "A tale.", "questions": questions, "scoring": "option"}

    async def decide(server):
        async with Socket(server.endpoint) as s:
            await s.send("DECIDE", stream_id=1, **fields)
            _, entry = await s.wait_for(lambda kind, entry: kind == "TOKEN")
            return entry["answers"]

    def post(server):
        request = urllib.request.Request(
            f"http://{server.endpoint}/v1/systemone", json.dumps(fields).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["answers"]

    want = post(single)
    assert post(balancer) == want
    assert asyncio.run(decide(balancer)) == want


def test_http_has_the_same_way_in(single, workers, balancer):
    def answers(server):
        client = openai.OpenAI(base_url=f"http://{server.endpoint}/v1", api_key="none")
        fields = {"model": "demo", "prompt": "Once upon a time", "temperature": 0}
        whole = client.completions.create(**fields, max_tokens=24)
        stopped = client.completions.create(**fields, max_tokens=24, stop=["the"], logprobs=2)
        held = client.completions.create(
            **fields, max_tokens=12, extra_body={"structured_outputs": {"regex": "[0-9]{4}"}}
        )
        narrowed = client.completions.create(
            **fields, max_tokens=12,
            extra_body={"bad_words": whole.choices[0].text.split()[:3], "prompt_logprobs": 2},
        )  # fmt: skip
        assert narrowed.choices[0].text != whole.choices[0].text[:12]
        chunks = client.completions.create(**fields, max_tokens=24, stream=True)
        streamed = "".join(chunk.choices[0].text for chunk in chunks)
        return [
            whole.choices[0].text, streamed, stopped.choices[0].text, held.choices[0].text,
            stopped.choices[0].logprobs.token_logprobs, whole.usage.prompt_tokens,
            narrowed.choices[0].text, narrowed.choices[0].prompt_logprobs,
        ]  # fmt: skip

    assert answers(balancer) == answers(single)
    with openai.OpenAI(base_url=f"http://{balancer.endpoint}/v1", api_key="none") as client:
        answer = client.completions.create(model="dummy", prompt="Once", max_tokens=1)
    assert answer.model == "demo" and answer.usage.prompt_tokens_details is None, "not told"
    assert balancer.http_status("/health") == 200
    with urllib.request.urlopen(f"http://{balancer.endpoint}/metrics") as answer:
        metrics = answer.read().decode()
    counted = re.search(r'^lmtp_generation_tokens_total\{model_name="demo"\} (\d+)', metrics, re.M)
    assert int(counted[1]) > 0
    finished = r'^lmtp_request_success_total\{.*finished_reason="length"\} (\d+)'
    assert int(re.search(finished, metrics, re.M)[1]) > 0


def test_model_info_is_of_all_workers(workers, balancer):
    async def info():
        async with Socket(balancer.endpoint) as s:
            return await s.model_info()

    said = asyncio.run(info())
    assert [w["name"] for w in said["workers"]] == [w.endpoint for w in workers]
    assert said["numerics"] and "FORK" not in said["extensions"]


def test_edits_are_refused_by_a_sentence(endless_workers):
    async def fork():
        async with Socket(endless_workers[0].endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], **FOREVER)
            await s.token_of(1)
            await s.send("BACKTRACK", stream_id=1, drop=1)
            _, refused = await s.wait_for(lambda kind, entry: kind == "MSG" and "error" in entry)
            await s.send("CANCEL", stream_id=1)
            return refused["error"], await s.error_of(1)

    refused, end = asyncio.run(fork())
    assert "not through a balancer" in refused
    assert end == "cancelled"


def test_a_client_that_vanishes_leaves_nothing(endless_workers):
    balancer, workers = endless_workers

    async def vanish():
        await wait_all_up(balancer, len(workers))
        async with Socket(balancer.endpoint) as s:
            for i in range(300):
                await s.send("GENERATE", stream_id=i, prompt=[i + 1] * 20, **FOREVER)
            await s.token_of(299)
            await s.vanish()
        for worker in workers:
            await wait_all_freed(worker.endpoint)

    asyncio.run(vanish())
    assert balancer.http_status("/health") == 200


def test_a_worker_that_stands_still_loses_its_streams(endless_workers):
    """It is stopped by SIGSTOP: its sockets stay open."""
    balancer, workers = endless_workers

    async def stand_still():
        await wait_all_up(balancer, len(workers))
        async with Socket(balancer.endpoint) as s:
            worker = await begin_long_stream(s, workers)
            worker.pause()
            await moved(s)
            await s.token_of(LONG["stream_id"])
            worker.proceed()
            await end_long_stream(s, balancer.endpoint)

    asyncio.run(stand_still())


def test_without_workers_it_is_overloaded_and_says_so_to_monitors():
    async def ask(endpoint):
        async with Socket(endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5])
            return await s.token_of(1)

    with Worker() as worker, Balancer([worker], "--worker-timeout", "1") as balancer:
        worker.kill()
        entry = asyncio.run(ask(balancer.endpoint))
        assert entry["code"] == "overloaded" and entry["retryable"]
        assert balancer.http_status("/health") == 503
        worker.revive()


def test_workers_that_differ_are_refused_with_both_names():
    with Worker() as one, Worker("--context-length", "128") as other:
        command = [bin_dir() / "lmtp-serve", "balance", one.endpoint, other.endpoint, "--port", "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        for part in (one.endpoint, other.endpoint, "context_length"):
            assert part in done.stderr


def test_the_documented_options_are_those_of_help():
    shown = subprocess.run(
        [bin_dir() / "lmtp-serve", "balance", "--help"], capture_output=True, text=True, check=True
    ).stdout
    own = {"--model", "--policy", "--affinity-tokens", "--balance-factor", "--worker-timeout",
           "--worker-stall-timeout", "--worker-connections", "--worker-api-key"}  # fmt: skip
    documented = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert own == set(re.findall(r"^\| `(--[a-z-]+)", documented, re.M))
    assert own <= set(re.findall(r"--[a-z-]+", shown))
    assert "--kv-cache" not in shown and "--cuda" not in shown

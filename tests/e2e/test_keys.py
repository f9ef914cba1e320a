"""Who is answered where the server has keys: by the clients that people have, and while it runs."""

import asyncio
import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import aiohttp
import pytest
from checkpoints import ENDLESS_CONTEXT
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
RUNNER = ROOT / "tests" / "lmql" / "run_queries.py"
QUERY = ROOT / "tests" / "lmql" / "queries" / "01-tale.lmql"
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import lmtp  # noqa: E402

ALICE, ROOT_KEY = "sk-alice-4f1b+/=", "sk-root-90aa"
ALICE_QUOTED = "sk-alice-4f1b%2B%2F%3D"
TIMEOUT_S = 120


def write_keys(path, **alice):
    keys = [{"name": "alice", "key": ALICE, **alice}] if alice.pop("there", True) else []
    path.write_text(json.dumps({"keys": [*keys, {"name": "root", "key": ROOT_KEY, "admin": True}]}))
    path.chmod(0o600)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(path)
    return path


@pytest.fixture(scope="module")
def server(keys):
    options = ["--kv-cache", "64MiB", "--log-level", "trace", "--log-prompts"]
    with LmtpServe("demo", *options, "--api-key-file", keys) as running:
        yield running
    assert running.exit_code == 0
    for key in (ALICE, ALICE_QUOTED, ROOT_KEY):
        assert key not in running.output


def get(server, path, **headers):
    request = urllib.request.Request(f"http://{server.endpoint}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code


def lmql(endpoint):
    command = [sys.executable, RUNNER, "--endpoint", endpoint, "--model", "demo"]
    done = subprocess.run([*command, "--tokenizer", DEMO, QUERY], capture_output=True, text=True,
                          timeout=TIMEOUT_S)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def test_lmql_sends_one_in_its_endpoint(server):
    by_query = lmql(f"http://{server.endpoint}/?key={ALICE_QUOTED}")
    assert "error" not in by_query, by_query
    by_basic = lmql(f"http://user:{ALICE_QUOTED}@{server.endpoint}")
    assert by_basic["results"] == by_query["results"]
    server.wait_for_log(" of alice at 127.0.0.1")


def test_each_client_sends_one_in_its_way(server):
    async def generate(url, **options):
        async with aiohttp.ClientSession() as session, session.ws_connect(url, **options) as ws:
            await ws.send_str('GENERATE {"stream_id": 1, "prompt": [46, 789], "max_tokens": 1}')
            return (await ws.receive(timeout=TIMEOUT_S)).data

    async def ask():
        url = f"http://{server.endpoint}/"
        for options in (
            {"headers": {"Authorization": f"Bearer {ALICE}"}},
            {"headers": {"x-api-key": ALICE}},
            {"headers": {"api-key": ALICE}},
            {"auth": aiohttp.BasicAuth("anybody", ALICE)},
            {"params": {"key": ALICE}},
        ):
            assert '"finish_reason": "length"' in await generate(url, **options), options
        for options in ({}, {"params": {"key": "wrong"}}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await generate(url, **options)
            assert refused.value.status == 401
        async with lmtp.connect(f"{server.endpoint}/?key={ALICE_QUOTED}") as client:
            assert await client.generate("Once upon a time", max_tokens=4).text()

    asyncio.run(ask())
    # A prompt is in the log, since that was asked for; what it was sent with is not.
    server.wait_for_log("Once upon a time")


def test_rights(server):
    assert get(server, "/metrics") == 401
    assert get(server, "/metrics", Authorization=f"Bearer {ALICE}") == 403
    assert get(server, "/metrics", Authorization=f"Bearer {ROOT_KEY}") == 200
    assert get(server, "/") == 401
    assert get(server, "/health") == 200


def test_the_file_is_read_again_on_sighup(server, keys):
    def wait_until(condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    async def ask():
        async with aiohttp.ClientSession() as session:
            ws = await session.ws_connect(f"http://{server.endpoint}/?key={ALICE_QUOTED}")
            keys.write_text(f'{{"keys": [{{"name": "alice", "key": "{ALICE}"')
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log("what was read before stays in use")
            assert get(server, "/nothing", Authorization=f"Bearer {ALICE}") == 404
            write_keys(keys, there=False)
            server.process.send_signal(signal.SIGHUP)
            closed = await ws.receive(timeout=TIMEOUT_S)
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
            assert get(server, "/nothing", Authorization=f"Bearer {ALICE}") == 401
            assert get(server, "/nothing", Authorization=f"Bearer {ROOT_KEY}") == 404

    asyncio.run(ask())
    write_keys(keys)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: get(server, "/nothing", Authorization=f"Bearer {ALICE}") == 404)


def test_a_priority_is_among_the_requests_of_a_key(endless_model, keys):
    """One runs at a time. Each that comes to run is known by its first token, and goes then."""
    half = ENDLESS_CONTEXT // 2
    first = []

    async def ask():
        async with aiohttp.ClientSession() as session:

            async def begin(key, priority):
                body = {"prompt": "x", "max_tokens": half, "stream": True, "priority": priority}
                auth = {"Authorization": f"Bearer {key}"}
                answer = await session.post(f"{url}/v1/completions", json=body, headers=auth)
                assert (await answer.content.readline()).startswith(b"data: ")
                return answer

            async def wait_for_turn(key, priority):
                answer = await begin(key, priority)
                first.append((key, priority))
                answer.close()

            async def num_waiting():
                auth = {"Authorization": f"Bearer {ROOT_KEY}"}
                async with session.get(f"{url}/metrics", headers=auth) as answer:
                    text = await answer.text()
                name = "lmtp_num_requests_waiting{"
                (line,) = [row for row in text.splitlines() if row.startswith(name)]
                return float(line.split()[-1])

            running = await begin(ALICE, 0)
            tasks = []
            for key, priority in ((ALICE, 5), (ALICE, 5), (ROOT_KEY, 99), (ALICE, -2)):
                tasks.append(asyncio.create_task(wait_for_turn(key, priority)))
                async with asyncio.timeout(TIMEOUT_S):
                    while await num_waiting() < len(tasks):
                        await asyncio.sleep(0.02)
            running.close()
            await asyncio.gather(*tasks)

    options = ["--kv-cache", "64MiB", "--api-key-file", keys]
    options += ["--max-batch-total-tokens", str(ENDLESS_CONTEXT)]
    with LmtpServe(endless_model, *options) as server:
        url = f"http://{server.endpoint}"
        asyncio.run(ask())
    assert [priority for key, priority in first if key == ALICE] == [-2, 5, 5]
    assert first.index((ROOT_KEY, 99)) == 0, "it was served less"


def refused_start(*options):
    done = subprocess.run([bin_dir() / "lmtp-serve", "demo", *options], capture_output=True,
                          text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode != 0
    return done.stderr


def test_what_is_refused_at_the_start(tmp_path):
    exposed = refused_start("--host", "0.0.0.0", "--port", "0")
    for way_out in ("--api-key-file", "--insecure", "TLS"):
        assert way_out in exposed
    assert sum(line.startswith("lmtp-serve: ") for line in exposed.splitlines()) == 1
    assert "No such file" in refused_start("--api-key-file", tmp_path / "none")
    wrong = refused_start("--api-key", "with space-4711")
    assert "--api-key" in wrong and "4711" not in wrong
    assert "--stdio" in refused_start("--stdio", "--api-key", "k")
    for empty in ("--api-key", "--api-key-file"):
        assert empty in refused_start(empty, "")


def test_keys_of_the_command_line_and_everybody_by_wish():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--host", "0.0.0.0", "--api-key", "k1",
                   "--api-key", "k2") as running:  # fmt: skip
        running.wait_for_log("keys are sent unencrypted")
        assert get(running, "/metrics") == 401
        for key in ("k1", "k2"):
            assert get(running, "/metrics", Authorization=f"Bearer {key}") == 200
    with LmtpServe("demo", "--kv-cache", "64MiB", "--host", "0.0.0.0", "--insecure") as running:
        assert get(running, "/metrics") == 200

        async def ask():
            async with Socket(running.endpoint) as s:
                await s.send("MODEL_INFO", stream_id=1)
                await s.wait_for(lambda kind, entry: kind == "MSG")

        asyncio.run(ask())


def cached(server, key, prompt, **fields):
    """How many tokens of the prompt were found, which nobody but the first has to compute."""
    body = {"model": "demo", "prompt": prompt, "max_tokens": 1, **fields}
    request = urllib.request.Request(
        f"http://{server.endpoint}/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_salt_keeps_what_is_cached_apart(server):
    prompt = "The secret that alice told the oak was found by nobody, however long they asked it."
    first = {"cache_salt": "one"}
    assert cached(server, ALICE, prompt, **first) == 0
    assert cached(server, ALICE, prompt, **first) > 0
    assert cached(server, ROOT_KEY, prompt, **first) > 0, "the salt alone counts"
    assert cached(server, ALICE, prompt) == 0
    assert cached(server, ROOT_KEY, prompt) > 0
    assert cached(server, ALICE, prompt, cache_salt="two") == 0


def test_with_its_scope_no_key_finds_what_others_have_asked(keys):
    prompt = "The secret that alice told the oak was found by nobody, however long they asked it."
    options = ["--kv-cache", "64MiB", "--api-key-file", keys, "--cache-scope", "key"]
    with LmtpServe("demo", *options) as server:
        assert cached(server, ALICE, prompt) == 0
        assert cached(server, ALICE, prompt) > 0
        assert cached(server, ROOT_KEY, prompt) == 0
        assert cached(server, ROOT_KEY, prompt) > 0
        for key in (ALICE, ROOT_KEY):
            assert cached(server, key, prompt, cache_salt="one") == 0


def test_lmtps_streams_have_salts_too(server):
    async def computed_of(salt, verb, **fields):
        async with Socket(f"root:{ROOT_KEY}@{server.endpoint}") as s:
            before = (await s.model_info())["stats"]["num_tokens_computed"]
            await s.send(verb, stream_id=1, prompt=[280] * 100, cache_salt=salt, **fields)
            await s.finish(1)
            return (await s.model_info())["stats"]["num_tokens_computed"] - before

    generates = {"verb": "GENERATE", "max_tokens": 1}
    scores = {"verb": "SCORE", "scored": [281] * 20}
    for fields in (generates, scores):
        computed = [asyncio.run(computed_of(salt, **fields)) for salt in ("x", "x", "y")]
        assert computed[1] < 10 < computed[0], fields
        assert computed[2] == computed[0], fields

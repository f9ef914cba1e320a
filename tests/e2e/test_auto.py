"""lmtp-serve auto: models are loaded by the name that a request gives, and go again."""

import asyncio
import pathlib
import shutil
import sys

import pytest
from auto_server import (
    DEMO, NO_END, ROOT, SLOW, TINY, Auto, failure, finish, generate, notices_of, run, state_of,
)  # fmt: skip
from checkpoints import FOREVER
from hub_support import NAME, add_demo
from lmtp_socket import Socket, uses_a_sanitizer, wait_until

sys.path.insert(0, str(ROOT / "tests" / "lmql"))

from relay import run_queries  # noqa: E402

RSS_SLACK_BYTES = 64 << 20
STOP_TIMEOUT_S = 20


@pytest.fixture
def hub(hub):
    return add_demo(hub)


def test_a_name_loads_its_model_and_those_who_wait_are_told(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert server.http_json("/health") == {"status": "ready", "model": "auto", "loaded": []}
            await generate(s, 1, SLOW)
            await s.send("SCORE", stream_id=2, prompt=[5], scored=[6], model=SLOW)
            info = await s.model_info(3, model=SLOW)
            assert info["state"] == "loading" and info["num_parameters"] is None
            await s.finish(1)
            await s.token_of(2)
            for stream in (1, 2):
                notices = notices_of(s, stream)
                assert {n["model"] for n in notices} == {SLOW}
                progress = [n["progress"] for n in notices]
                assert progress[0] == 0 and len(progress) >= 3
                assert progress == sorted(progress) and progress[-1] <= 100
            assert not notices_of(s, 3) and {k for k, _ in s.entries} == {"MSG"}
            info = await s.model_info(3, model=SLOW)
            assert (info["state"], info["model"], info["progress"]) == ("ready", SLOW, 100)
            assert server.http_json("/health")["loaded"] == [SLOW]

    with Auto(tmp_path) as server:
        run(ask(server))
    assert server.exit_code == 0


def test_model_info_of_a_model_that_is_not_loaded(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            # As LMQL sends it, which takes the first MSG of that id for the answer.
            await s.send("MODEL_INFO", stream_id=4, model="demo", data={"model": "demo"})
            _, entry = await s.wait_for(lambda k, e: e["stream_id"] == 4)
            info = entry["model_info"]
            assert (info["model"], info["model_type"]) == ("demo", "gpt2")
            assert info["state"] == "unloaded"
            assert "from_pretrained" in info["constructor"] and info["num_parameters"] > 1_000_000
            assert (info["vocab_size"], info["context_length"]) == (2048, 512)
            assert (info["dtype"], info["device"]) == ("float32", "cpu")
            assert "CANCEL" in info["extensions"] and info["stats"]["num_blocks"] == 0
            assert pathlib.Path(info["tokenizer"]) == DEMO.resolve()
            assert "no-such-model" in await s.model_info(model="no-such-model")
            assert (await s.model_info())["model"] == "demo"
            assert server.http_json("/health")["loaded"] == [], "MODEL_INFO loads nothing"
            await finish(s, 1, "demo")
            assert await state_of(s, "demo") == await state_of(s, None) == "ready"
            assert await state_of(s, str(DEMO)) == "ready", "the same folder"

    with Auto(tmp_path) as server:
        run(ask(server))


def test_one_folder_is_loaded_once_whatever_its_names(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tale").symlink_to(DEMO)
    names = ["demo", str(DEMO), str(tmp_path / "models" / "tale"), f"{DEMO}/../demo/"]

    async def ask(server):
        async with Socket(server.endpoint) as s, Socket(server.endpoint) as other:
            for stream, name in enumerate(names):
                await generate(s, stream, name)
                await generate(other, stream, name)
            first = await s.finish(0)
            for stream in range(1, len(names)):
                assert await s.finish(stream) == first
            for stream in range(len(names)):
                assert await other.finish(stream) == first
            assert len(server.http_json("/health")["loaded"]) == 1

    with Auto(tmp_path) as server:
        run(ask(server))
        assert server.wait_for_log("loaded '").count("loaded '") == 1


def test_two_clients_at_once_load_once(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as one, Socket(server.endpoint) as two:
            await asyncio.gather(generate(one, 1, SLOW), generate(two, 1, SLOW + ":0"))
            assert await one.finish(1) == await two.finish(1)
            assert notices_of(one, 1) and notices_of(two, 1)

    with Auto(tmp_path) as server:
        run(ask(server))
        assert server.wait_for_log("loaded '").count("loaded '") == 1


def test_without_a_name_the_only_loaded_model_answers(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            named = await finish(s, 1, TINY[0])
            assert await finish(s, 1, None) == await finish(s, 1, "") == named
            await finish(s, 1, TINY[1])
            error = await failure(s, 1, None)
            assert TINY[0] in error and TINY[1] in error

    with Auto(tmp_path) as server:
        run(ask(server))


def test_without_a_name_and_with_none_loaded_the_demo_answers(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as one, Socket(server.endpoint) as two:
            await asyncio.gather(generate(one, 1, None), generate(two, 1, ""))
            tokens = await one.finish(1)
            assert await two.finish(1) == tokens == await finish(one, 1, "demo")
            assert {n["model"] for n in notices_of(one, 1)} == {"demo"}
            assert server.http_json("/health")["loaded"] == ["demo"]

    with Auto(tmp_path) as server:
        run(ask(server))
        assert server.wait_for_log("loaded 'demo' in").count("loaded 'demo' in") == 1


def test_the_least_recently_used_goes(tmp_path):
    a, b, c = TINY[:3]

    async def ask(server):
        async with Socket(server.endpoint) as s:
            first = await finish(s, 1, a)
            for name in (b, a, c):
                await finish(s, 1, name)
            states = [await state_of(s, name) for name in (a, b, c)]
            assert states == ["ready", "unloaded", "ready"]
            await finish(s, 1, b)
            assert await state_of(s, a) == "unloaded"
            assert await finish(s, 1, a) == first

    with Auto(tmp_path, "--max-models", "2") as server:
        run(ask(server))
    assert server.exit_code == 0


def test_a_model_with_streams_stays_and_the_next_one_waits(endless_model, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream in range(2):
                await generate(s, stream, str(endless_model), **FOREVER)
            await s.token_of(0)
            await generate(s, 100, TINY[0])
            await s.wait_for(lambda k, e: e["stream_id"] == 100)
            for stream in range(2):
                for _ in range(10):
                    await s.token_of(stream)
            assert {k for k, e in s.entries if e["stream_id"] == 100} <= {"MSG"}
            for stream in range(2):
                await s.send("CANCEL", stream_id=stream)
            for stream in range(2):
                assert await s.error_of(stream) == "cancelled"
            assert len((await s.finish(100))[0]) == 4
            assert await state_of(s, str(endless_model)) == "unloaded"

    with Auto(tmp_path, "--max-models", "1") as server:
        run(ask(server))


def test_what_is_idle_is_unloaded_and_its_memory_comes_back(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await finish(s, 1, TINY[0])
            before = server.rss_bytes()
            await finish(s, 1, SLOW, max_tokens=40)
            loaded = server.rss_bytes()
            assert loaded > before + (400 << 20), "124 million parameters"
            keeps = uses_a_sanitizer(server)

            async def unloaded():
                return server.http_json("/health")["loaded"] == []

            await wait_until(unloaded, "idle models are unloaded")

            async def given_back():
                # AddressSanitizer keeps freed memory, to catch later uses of it.
                return keeps or server.rss_bytes() < before + RSS_SLACK_BYTES

            await wait_until(given_back, f"{loaded >> 20} MiB fall back to {before >> 20}")
            assert len((await finish(s, 1, TINY[0]))[0]) == 4

    with Auto(tmp_path, "--unload-after", "0.5s") as server:
        run(ask(server))


def damage_weights(folder):
    (folder / "model.safetensors").write_bytes(b"\0" * 100)


def damage_config(folder):
    (folder / "config.json").write_text('{"model_type": "gpt2", ')


def other_architecture(folder):
    (folder / "config.json").write_text('{"model_type": "mamba", "architectures": ["Mamba"]}')


@pytest.mark.parametrize("damage", [damage_weights, damage_config, other_architecture])
def test_a_failed_load_is_told_and_a_later_request_tries_again(tmp_path, damage):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    damage(folder)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, "demo", max_tokens=300, logit_bias=NO_END)
            error = await failure(s, 2, str(folder))
            assert error.startswith("model: ")
            await s.send("SCORE", stream_id=2, prompt=[5], scored=[6], model=str(folder))
            assert await s.error_of(2) == error
            if damage is damage_weights:
                info = await s.model_info(model=str(folder))
                assert info["state"] == "failed" and info["error"] in error
            shutil.rmtree(folder)
            shutil.copytree(DEMO, folder)
            assert len((await finish(s, 2, str(folder)))[0]) == 4
            assert await state_of(s, str(folder)) == "ready"
            assert len((await s.finish(1))[0]) == 300, "others go on"

    with Auto(tmp_path) as server:
        run(ask(server))
    assert server.exit_code == 0


def test_cancel_and_a_lost_connection_while_loading(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as watcher:
            async with Socket(server.endpoint) as s:
                for stream in range(5):
                    await generate(s, stream, SLOW)
                assert (await s.model_info(model=SLOW))["stats"]["num_waiting"] == 5
                await s.send("CANCEL", stream_id=3)
                assert await s.error_of(3) == "cancelled"
                await s.wait_for(lambda k, e: e.get("progress", 0) > 0)
                await s.vanish()

            async def none_waits():
                return (await watcher.model_info(model=SLOW))["stats"]["num_waiting"] == 0

            await wait_until(none_waits, "nobody waits")

            async def loaded():
                return await state_of(watcher, SLOW) == "ready"

            await wait_until(loaded, "a load that has begun goes on")
            assert (await watcher.model_info(model=SLOW))["stats"]["num_generated_tokens"] == 0

    with Auto(tmp_path) as server:
        run(ask(server))


def test_a_model_of_the_hub_is_downloaded_and_loaded(hub, tmp_path):
    # Slowly, not held: notices come with data.
    weights = next(iter(hub.repos[NAME].lfs))
    hub.rule(hub.repos[NAME].etag(weights), method="GET", throttle=2 << 20, times=2)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert "is not on this machine" in await s.model_info(model=NAME)
            assert not hub.requests(), "MODEL_INFO asks no hub"
            await generate(s, 1, NAME)
            while not any(n["progress"] > 20 for n in notices_of(s, 1)):
                assert await s.receive()
            info = await s.model_info(model=NAME)
            assert info["state"] == "loading" and info["model_type"] is None
            ids, _ = await s.finish(1)
            assert ids == (await finish(s, 1, "demo"))[0]
            progress = [n["progress"] for n in notices_of(s, 1) if n["model"] == NAME]
            assert progress == sorted(progress) and len([p for p in progress if 0 < p <= 90]) > 2
            assert await state_of(s, NAME) == "ready"

    with Auto(tmp_path, hub=hub) as server:
        run(ask(server))
        num_requests = len(hub.requests())
    with Auto(tmp_path, hub=hub) as server:

        async def ask_again():
            async with Socket(server.endpoint) as s:
                assert await state_of(s, NAME) == "unloaded"
                await finish(s, 1, NAME)

        run(ask_again())
    assert len(hub.requests()) == num_requests, "it is in the cache"


def test_a_download_that_nobody_waits_for_is_given_up(hub, tmp_path):
    hub.hold_weights(NAME, 1 << 20)

    async def ask(server):
        async with Socket(server.endpoint) as watcher:
            async with Socket(server.endpoint) as s:
                await generate(s, 1, NAME)
                await s.wait_for(lambda k, e: e.get("progress", 0) > 5)

            async def given_up():
                return "not on this machine" in str(await watcher.model_info(model=NAME))

            await wait_until(given_up, "the download ends")
            hub.let_go()
            assert len((await finish(watcher, 1, NAME))[0]) == 4

    with Auto(tmp_path, hub=hub) as server:
        run(ask(server))


def test_sigterm_while_loading(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, "random:gpt2-medium")
            await s.wait_for(lambda k, e: e.get("progress", 0) > 0)
            server.process.terminate()
            assert "shutting down" in await s.error_of(1)
            assert await s.read_until_closed() == 1001

    with Auto(tmp_path) as server:
        run(ask(server))
        assert server.process.wait(STOP_TIMEOUT_S) == 0


@pytest.mark.parametrize("how", ["throttle", "hang"])
def test_sigterm_while_downloading(hub, tmp_path, how):
    if how == "hang":
        hub.rule("/api/models", hang=True, times=99)
    else:
        hub.rule("", method="GET", throttle=64 << 10, times=99)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, NAME)
            await s.wait_for(lambda k, e: e.get("status") == "loading")

            async def asked():
                return len(hub.requests()) > 0

            await wait_until(asked, "the hub is asked")
            server.process.terminate()
            assert "shutting down" in await s.error_of(1)

    with Auto(tmp_path, hub=hub) as server:
        run(ask(server))
        assert server.process.wait(STOP_TIMEOUT_S) == 0


def test_a_query_of_lmql_names_its_model(tmp_path):
    query = sorted((ROOT / "tests" / "lmql" / "queries").glob("*.lmql"))[0]
    with Auto(tmp_path) as server:
        for model in (str(DEMO), "demo"):
            (line,) = run(run_queries(server.endpoint, model, DEMO, [query]))
            assert "error" not in line and line["results"] and line["streams"]
        assert server.http_json("/health")["loaded"] == [str(DEMO)]


def test_a_named_model_is_downloaded_too(hub, tmp_path):
    """Its socket is open meanwhile; requests wait."""
    hub.hold_weights(NAME)

    class Named(Auto):
        def __init__(self):
            super().__init__(tmp_path, hub=hub)
            self.command[self.command.index("auto")] = NAME

        def is_ready(self):
            return self.http_status("/health") is not None

    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert server.http_status("/health") == 503
            await generate(s, 1, None)
            await generate(s, 2, "tiny")
            assert "is not served here" in await failure(s, 3, "demo")
            hub.let_go()
            assert await s.finish(1) == await s.finish(2)
            assert notices_of(s, 1)
            assert server.http_status("/health") == 200
            assert (await s.model_info())["model"] == NAME

    with Named() as server:
        run(ask(server))
    assert server.exit_code == 0

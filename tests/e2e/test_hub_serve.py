"""lmtp-serve and names of the hub: one that is served by itself, and those that requests name."""

import asyncio

import pytest
from hub_support import BIN, NAME, add_demo, environment, says, shown_at
from lmtp_socket import Socket
from servers import LmtpServe

SERVE = BIN / "lmtp-serve"


@pytest.fixture
def hub(hub):
    return add_demo(hub)


@pytest.fixture
def machine(machine, monkeypatch):
    """A home that servers started here share."""
    for key, value in environment(machine.hub, machine.home).items():
        monkeypatch.setenv(key, value)
    return machine


def ask(server, name, **more):
    """The tokens that follow, and what the stream was told meanwhile; or its error."""

    async def talk():
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[46, 789, 579], max_tokens=8, model=name,
                         **more)
            ids = []
            while not ids or ids[-1]["finish_reason"] is None:
                ids.append(await s.token_of(1))
                if "error" in ids[-1]:
                    return ids[-1]["error"], []
            return [e["token"] for e in ids], [e for k, e in s.entries if k == "MSG"]

    return asyncio.run(talk())


def test_a_name_is_fetched_and_served(hub, machine, demo, monkeypatch):
    with LmtpServe(NAME) as server:
        tokens, _ = ask(server, NAME)
        assert tokens == ask(demo, "demo")[0] == ask(server, "tiny")[0]
    assert server.exit_code == 0, server.log_tail
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    num_requests = len(hub.requests())
    with LmtpServe(NAME) as server:
        assert ask(server, NAME)[0] == tokens
    assert len(hub.requests()) == num_requests


def test_a_terminal_sees_how_fast_it_comes(hub, machine):
    hub.rule(hub.repos[NAME].etag("model.safetensors"), throttle=4_000_000)
    process, terminal = machine.start_at_terminal(NAME, "--port", "0", program=SERVE)
    assert b" ready" in process.stdout.readline()
    process.terminate()
    shown = shown_at(terminal)
    process.stdout.close()
    assert process.wait(30) == 0
    says(shown.decode(), f"\rfetching {NAME} [", " MB/s, ", " left")


def test_a_name_that_cannot_be_fetched_is_one_line(hub, machine):
    for name, parts in (("org/none", ("no model 'org/none'", "set HF_TOKEN")),
                        (NAME + "@dev", ("no revision 'dev'",))):
        message = machine.error(name, "--port", "0", program=SERVE)
        says(message, "lmtp-serve: ", *parts)
    machine.hub = "http://hub.invalid"
    says(machine.error(NAME, "--port", "0", program=SERVE), "cannot be resolved")


def test_requests_ask_for_names(hub, machine, demo):
    hub.rule(hub.repos[NAME].etag("model.safetensors"), throttle=8_000_000)
    with LmtpServe("auto") as server:
        tokens, told = ask(server, NAME)
        assert tokens == ask(demo, "demo")[0]
        progress = [e["progress"] for e in told]
        assert told and progress == sorted(progress), told
        error, _ = ask(server, "org/none")
        says(error, "no model 'org/none'", "check the name")
        assert ask(server, NAME)[0] == tokens
    assert server.exit_code == 0, server.log_tail


def test_beyond_loopback_nothing_is_fetched_unless_allowed(hub, machine):
    with LmtpServe("auto", "--host", "0.0.0.0") as server:
        says(ask(server, NAME)[0], NAME)
    assert not hub.requests()
    with LmtpServe("auto", "--host", "0.0.0.0", "--allow-download") as server:
        assert isinstance(ask(server, NAME)[0], list)

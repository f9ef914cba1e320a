"""lmtp-serve auto: what cannot be had, and what clients can cause at most."""

import shutil

import pytest
from auto_server import DEMO, ROOT, SLOW, TINY, Auto, failure, finish, generate, run
from hub_support import NAME, add_demo
from lmtp_socket import Socket


@pytest.fixture
def hub(hub):
    return add_demo(hub)


@pytest.fixture(scope="module")
def any_server(tmp_path_factory):
    with Auto(tmp_path_factory.mktemp("home")) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.mark.parametrize(
    "model, part",
    [
        ("no-such-model", "no-such-model"),
        ("no/such/folder/at-all", "no/such/folder"),
        ("/no/such/folder", "/no/such/folder"),
        (str(ROOT / "README.md"), "is a file"),
        (str(ROOT), "config.json"),
        ("random:nothing", "gpt2-medium"),
        ("random:gpt2:x", "seed"),
        ("auto", "names no model"),
        ("a\0b", "control character"),
        ("x" * 300, "xxx"),
        ("x" * 5000, "model"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_reason(any_server, model, part):
    async def ask():
        async with Socket(any_server.endpoint) as s:
            await generate(s, 1, model)
            assert part in await s.error_of(1)
            assert part in await s.model_info(2, model=model)
            assert len((await finish(s, 3, "demo"))[0]) == 4

    run(ask())


def test_what_the_model_cannot_serve_ends_the_stream_alone(any_server):
    async def ask():
        async with Socket(any_server.endpoint) as s:
            for model in (TINY[0], TINY[0], "demo"):  # while it is loaded and afterwards
                await generate(s, 1, model, prompt=[5, 999_999])
                assert (await s.error_of(1)).startswith("prompt[1]: ")
                await generate(s, 1, model, prompt=[5] * 5000)
                assert "the context" in await s.error_of(1)
            assert not [e for k, e in s.entries if k == "MSG" and "error" in e]

    run(ask())


def test_more_requests_than_allowed_do_not_wait(hub, tmp_path):
    hub.hold_weights(NAME)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream in range(6):
                await generate(s, stream, NAME)
            for stream in (4, 5):
                assert "overloaded" in await s.error_of(stream)
            hub.let_go()
            for stream in range(4):
                await s.finish(stream)

    with Auto(tmp_path, "--max-concurrent-requests", "4", hub=hub) as server:
        run(ask(server))


def test_only_so_many_names_are_sought_at_a_time(hub, tmp_path):
    hub.rule("/api/models/org/silent", times=99, hang=True)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream in range(9):
                await generate(s, stream, f"org/silent{stream}")
            errors = [await s.error_of(stream) for stream in range(9)]
            assert sum("overloaded" in error for error in errors) == 1, errors  # whoever is last
            assert sum("cannot be fetched" in error for error in errors) == 8, errors
            assert len((await finish(s, 1, "demo"))[0]) == 4

    with Auto(tmp_path, hub=hub, HF_HUB_ETAG_TIMEOUT="1") as server:
        run(ask(server))


@pytest.fixture
def served(tmp_path):
    """A folder of models, with ways out of it."""
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copytree(DEMO, folder / "tiny")
    shutil.copytree(DEMO, tmp_path / "secret")
    (folder / "way-out").symlink_to(tmp_path / "secret")
    shutil.copytree(DEMO, folder / "mixed")
    (folder / "mixed" / "model.safetensors").unlink()
    (folder / "mixed" / "model.safetensors").symlink_to(tmp_path / "secret" / "model.safetensors")
    return folder


def test_what_a_client_beyond_this_machine_can_ask_for(hub, served, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            wanted = await finish(s, 1, "demo")
            assert await finish(s, 1, "tiny") == wanted
            assert await finish(s, 1, str(served / "tiny")) == wanted

            async def refusal(name):
                error = await failure(s, 1, name)
                assert await s.model_info(model=name) == error
                return error.replace(name, "NAME")

            nothing = await refusal("/no/such/folder")
            assert "--model-dir" in nothing and "--allow-download" in nothing
            ways_out = ("../secret", "tiny/../../secret", "way-out", "mixed")
            others = (str(tmp_path / "secret"), str(DEMO), "models/demo", "/etc/passwd", SLOW)
            for name in (*ways_out, *others, NAME):
                assert await refusal(name) == nothing, name
            assert not hub.requests()

    with Auto(tmp_path, "--model-dir", served, hub=hub, host="0.0.0.0") as server:
        run(ask(server))
    assert server.exit_code == 0


def test_downloads_for_others_want_leave(hub, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert len((await finish(s, 1, NAME))[0]) == 4
            assert "is not served here" in await failure(s, 1, str(DEMO))

    with Auto(tmp_path, "--allow-download", hub=hub, host="0.0.0.0") as server:
        run(ask(server))
    with Auto(tmp_path, hub=hub, host="0.0.0.0") as server:  # now it is in the cache
        run(ask(server))


def test_a_model_dir_on_loopback(served, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert await finish(s, 1, "tiny") == await finish(s, 1, str(tmp_path / "secret"))
            assert "leads out" in await failure(s, 1, "way-out")

    with Auto(tmp_path, "--model-dir", served) as server:
        run(ask(server))


def test_the_hub_says_no_or_nothing(hub, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert "org/missing" in await failure(s, 1, "org/missing")
            hub.rule("/api/models/org/silent", times=99, hang=True)
            assert "org/silent" in await failure(s, 1, "org/silent")

    with Auto(tmp_path, hub=hub, HF_HUB_ETAG_TIMEOUT="1") as server:
        run(ask(server))
    assert server.exit_code == 0

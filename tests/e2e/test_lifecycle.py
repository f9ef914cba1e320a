"""How lmtp-serve starts, loads, fails and stops."""

import asyncio
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.request

import pytest
from checkpoints import DEMO, FOREVER, NO_END
from hub_support import NAME, add_demo, environment
from lmtp_socket import Socket, wait_all_freed, wait_until
from servers import LmtpServe, bin_dir

TIMEOUT_S = 120


def run(coroutine):
    return asyncio.run(coroutine)


class Loading(LmtpServe):
    """A server that is used as soon as its socket is open. Its model is there when the hub gives
    all of it."""

    def __init__(self, machine, *options):
        add_demo(machine.hub).hold_weights(NAME)
        super().__init__(NAME, "--kv-cache", "64MiB", *options)
        self.environment = environment(
            machine.hub, machine.home, HF_HUB_DOWNLOAD_TIMEOUT="600", HF_HUB_ETAG_TIMEOUT="600")

    def is_ready(self):
        return self.http_status("/health") is not None


def lmtp_serve(*arguments):
    return subprocess.run(
        [bin_dir() / "lmtp-serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_while_loading_requests_wait_and_are_told(hub, machine):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert server.http_status("/health") == 503
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=2)
            await s.send("SCORE", stream_id=2, prompt=[5], scored=[6], model="tiny")
            info = await s.model_info(3)
            assert info["state"] == "loading" and info["num_parameters"] is None
            hub.let_go()
            await s.finish(1)
            await s.token_of(2)
            notices = [e for _, e in s.entries if "status" in e]
            assert s.entries == [("MSG", e) for e in notices], "and nothing else, nothing to 3"
            assert {e["stream_id"] for e in notices} == {1, 2}
            assert {e["model"] for e in notices if e["stream_id"] == 2} == {"tiny"}
            assert all(e["status"] == "loading" for e in notices)
            progress = [e["progress"] for e in notices if e["stream_id"] == 1]
            assert progress == sorted(progress) and 0 <= progress[0] and progress[-1] <= 100
            assert (await s.model_info(3))["state"] == "ready"
            assert server.http_status("/health") == 200

    with Loading(machine) as server:
        run(ask(server))
    assert server.exit_code == 0


def test_leaving_while_loading_leaves_nothing(hub, machine):
    async def ask(server):
        async with Socket(server.endpoint) as watcher:
            async with Socket(server.endpoint) as s:
                for stream in range(5):
                    await s.send("GENERATE", stream_id=stream, prompt=[5])
                assert (await s.model_info())["state"] == "loading"
                await s.vanish()

            async def none_waits():
                return (await watcher.model_info())["stats"]["num_waiting"] == 0

            await wait_until(none_waits, "nobody waits")
            hub.let_go()

            async def loaded():
                return (await watcher.model_info())["state"] == "ready"

            await wait_until(loaded, "the model is loaded")
            assert (await watcher.model_info())["stats"]["num_generated_tokens"] == 0
        await wait_all_freed(server.endpoint)

    with Loading(machine) as server:
        run(ask(server))


def test_cancel_while_loading(machine):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5])
            await s.send("CANCEL", stream_id=1)
            assert await s.error_of(1) == "cancelled"

    with Loading(machine) as server:
        run(ask(server))


def test_sigterm_while_loading(machine):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5])
            await s.wait_for(lambda k, e: e.get("status") == "loading")
            server.process.terminate()
            assert "shutting down" in await s.error_of(1)
            assert await s.read_until_closed() == 1001

    with Loading(machine, "--shutdown-timeout", "0") as server:
        run(ask(server))
        assert server.process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish(which):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=300, logit_bias=NO_END)
            await s.token_of(1)
            server.process.send_signal(which)
            ids, reason = await s.finish(1)
            assert (len(ids), reason) == (299, "length")
            assert await s.read_until_closed() == 1001

    with LmtpServe("demo") as server:
        run(ask(server))
        assert server.process.wait(TIMEOUT_S) == 0
        assert server.http_status("/health") is None


def test_a_signal_cuts_what_is_not_in_time(endless_model):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream in range(64):
                await s.send("GENERATE", stream_id=stream, prompt=[5], **FOREVER)
            await s.token_of(63)
            server.process.terminate()
            assert "shutting down" in await s.error_of(63)

    options = ("--kv-cache", "64MiB", "--shutdown-timeout", "0")
    with LmtpServe(endless_model, *options) as server:
        run(ask(server))
        assert server.process.wait(TIMEOUT_S) == 0


def test_a_second_signal_ends_at_once(endless_model):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=0, prompt=[5], **FOREVER)
            await s.token_of(0)
            server.process.terminate()
            server.wait_for_log("a second signal")
            server.process.terminate()
            assert server.process.wait(TIMEOUT_S) == -signal.SIGTERM

    options = ("--kv-cache", "64MiB", "--shutdown-timeout", "1000")
    with LmtpServe(endless_model, *options) as server:
        run(ask(server))


def test_the_ready_line_is_on_stdout():
    command = [bin_dir() / "lmtp-serve", "demo", "--port", "0", "--kv-cache", "32MiB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = process.stdout.readline().decode()
        for part in ("demo", "cpu", "float32", "KV cache 31"):
            assert part in line, line
        port = re.search(r"ws://127\.0\.0\.1:([1-9]\d*)/", line)[1]  # the one that was taken
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def expect_one_line(result, *parts):
    assert result.returncode not in (0, -6, -11), result
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("lmtp-serve: ")
    for part in parts:
        assert part in result.stderr


def test_a_taken_port_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        expect_one_line(lmtp_serve("demo", "--port", port), f"127.0.0.1:{port}", "--port")


@pytest.mark.parametrize(
    "arguments, part",
    [
        (["no-such-model"], "no-such-model"),
        (["/no/such/folder"], "/no/such/folder"),
        (["random:nothing"], "gpt2-medium"),
        (["auto", "--static"], "--static"),
        (["--model-dir", "/no/such/folder"], "--model-dir"),
        (["demo", "--nonsense"], "--nonsense"),
        (["demo", "--port", "70000"], "--port"),
        (["demo", "--dtype", "float8"], "bfloat16"),
        (["demo", "--dtype", "2bit"], "int4"),
        (["demo", "--device", "tpu"], "--device"),
        (["demo", "--kv-cache-dtype", "fp8_e5m2"], "fp8_e4m3"),
        (["demo", "--kv-cache-dtype", "int8"], "bfloat16"),
        (["demo", "--kv-cache", "1KiB"], "--kv-cache"),
        (["demo", "--kv-cache", "much"], "--kv-cache"),
        (["demo", "--host", "192.0.2.1"], "192.0.2.1"),
    ],
)
def test_a_mistake_is_one_line(arguments, part):
    expect_one_line(lmtp_serve(*arguments, *(["--port", "0"] if arguments else [])), part)


def test_cuda_without_cuda_is_one_line():
    if pathlib.Path("/proc/driver/nvidia").exists():
        pytest.skip("there is an NVIDIA driver")
    for arguments in (["--cuda"], ["--device", "cuda"]):
        result = lmtp_serve("demo", *arguments)
        expect_one_line(result, "no CUDA: ")
        assert result.returncode == 1
        # Built with it, or without.
        assert "no NVIDIA driver" in result.stderr or "run tools/setup --cuda" in result.stderr


def damage_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    return "model.safetensors"


def damage_config(folder):
    (folder / "config.json").write_text('{"model_type": "gpt2", ')
    return "config.json"


def remove_weights(folder):
    (folder / "model.safetensors").unlink()
    return "model.safetensors"


def remove_config(folder):
    (folder / "config.json").unlink()
    return "config.json"


def other_architecture(folder):
    (folder / "config.json").write_text('{"model_type": "mamba", "architectures": ["Mamba"]}')
    return "mamba"


@pytest.mark.parametrize(
    "damage", [damage_weights, damage_config, remove_weights, remove_config, other_architecture]
)
def test_a_damaged_model_is_one_line(damage, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    part = damage(folder)
    expect_one_line(lmtp_serve(folder, "--port", "0"), part)


def test_a_folder_answers_to_its_names(tmp_path, monkeypatch):
    async def ask(server, names):
        async with Socket(server.endpoint) as s:
            for name in names:
                assert (await s.model_info(model=name))["model"] == name

    shutil.copytree(DEMO, tmp_path / "org" / "tiny")
    monkeypatch.chdir(tmp_path)
    with LmtpServe("org/tiny/") as server:
        run(ask(server, ["org/tiny/", str(tmp_path.resolve() / "org" / "tiny"), "tiny"]))


def test_a_small_cache_shortens_the_context():
    async def ask(server):
        async with Socket(server.endpoint) as s:
            info = await s.model_info()
            context = info["context_length"]
            assert 256 <= context < 512
            assert f"context {context} of 512 tokens" in server.ready_line()
            await s.send("GENERATE", stream_id=1, prompt=[5] * (context - 8), max_tokens=99,
                         logit_bias=NO_END)  # fmt: skip
            ids, reason = await s.finish(1)
            assert (len(ids), reason) == (8, "length")
            await s.send("GENERATE", stream_id=2, prompt=[5] * context)
            assert str(context) in await s.error_of(2)

    # The demo takes 8 KiB a token.
    with LmtpServe("demo", "--kv-cache", "2600KiB") as server:
        run(ask(server))

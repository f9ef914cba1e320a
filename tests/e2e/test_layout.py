"""lmtp-serve --layout: servers of one model, started, bound and kept up by their balancer."""

import asyncio
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest
from balance_kills import WORKER_OPTIONS, compare, run_load
from lmtp_socket import Socket, wait_until
from servers import LmtpServe, bin_dir

NUM_STREAMS, NUM_TOKENS = 24, 200
ALLOWED = os.sched_getaffinity(0)
pytestmark = pytest.mark.skipif(len(ALLOWED) < 2, reason="2x1 needs two processors")


class Layout(LmtpServe):
    def __init__(self, *options):
        super().__init__("demo", "--kv-cache", "64MiB", *(options or ("--layout", "2x1")))

    def children(self):
        """Of the server: the process of each, by name."""
        named = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text()
            except OSError:  # it has ended
                continue
            found = re.search(r"/(child-\d)\0", command)
            if parent == self.process.pid and found:  # not before its exec
                named[found[1]] = int(folder.name)
        return named

    def socket_folder(self):
        pid = next(iter(self.children().values()))
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        return pathlib.Path(re.search(r"--listen=unix:(.*?)/child-", command)[1])


@pytest.fixture(scope="module")
def layout():
    with Layout() as server:
        yield server
    assert server.exit_code == 0, server.log_tail


async def wait_all_ready(server):
    async with Socket(server.endpoint) as s:

        async def ready():
            return [w["state"] for w in (await s.model_info())["workers"]] == ["ready", "ready"]

        await wait_until(ready, "both children are ready")


async def wait_gone(pids):
    async def gone():
        return not any(is_running(pid) for pid in pids)

    await wait_until(gone, f"{pids} have ended")


def is_running(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_each_child_has_its_processors_and_as_many_threads(layout):
    children = layout.children()
    assert sorted(children) == ["child-1", "child-2"]
    first, second = (os.sched_getaffinity(pid) for pid in children.values())
    assert not first & second and first | second == ALLOWED
    assert abs(len(first) - len(second)) <= 2, "they differ by a core at most"
    for pid in children.values():
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert f"--threads={len(os.sched_getaffinity(pid))}" in command
    folder = layout.socket_folder()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_streams_equal_a_single_servers_also_when_a_child_is_killed(layout):
    with LmtpServe("demo", *WORKER_OPTIONS) as single:
        wanted = asyncio.run(run_load(single.endpoint, NUM_STREAMS, NUM_TOKENS))

    async def kill_one():
        killed = layout.children()["child-2"]
        begun = set()
        load = asyncio.create_task(run_load(layout.endpoint, NUM_STREAMS, NUM_TOKENS, begun))
        while len(begun) < NUM_STREAMS // 2:
            await asyncio.sleep(0.01)
        os.kill(killed, signal.SIGKILL)
        assert not load.done(), "a kill that meets no stream shows nothing"
        got = await load
        await wait_until_restarted(killed)
        return got

    async def wait_until_restarted(killed):
        async def restarted():
            return layout.children().get("child-2", killed) != killed

        await wait_until(restarted, "the child has been started again")
        await wait_all_ready(layout)

    reports = []
    assert compare(asyncio.run(kill_one()), wanted, reports.append) == (0, 0), reports
    again = asyncio.run(run_load(layout.endpoint, NUM_STREAMS, NUM_TOKENS))
    assert compare(again, wanted, reports.append) == (0, 0), reports

    async def is_logged():
        log = layout.read_log()
        return (
            "child-2 was ended by signal 9 (Killed); it is started again in 1 s" in log
            and log.count("child-2: lmtp-serve: demo ready on cpu") == 2
            and "\nlmtp-serve: demo ready on 2 workers, ws://" in log
        )

    asyncio.run(wait_until(is_logged, "lines about it are in the log"))


def test_sigterm_drains_and_leaves_nothing(tmp_path):
    """Options from a file, and a log in JSON, of which each line says whose it is."""
    config = tmp_path / "serve.toml"
    config.write_text('layout = "2x1"\nlog-format = "json"\n')
    server = Layout("--config", config)

    async def drain():
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], max_tokens=500, ignore_eos=True)
            await s.token_of(1)
            server.process.terminate()
            return len((await s.finish(1))[0]) + 1

    with server:
        children, folder = list(server.children().values()), server.socket_folder()
        assert asyncio.run(drain()) == 500
        assert server.process.wait(timeout=30) == 0
        assert not any(is_running(pid) for pid in children)
        assert not folder.exists()
    lines = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    assert {"child-1", "child-2"} <= {line.get("child") for line in lines}


def test_children_end_with_their_parent():
    with Layout() as server:
        children, folder = list(server.children().values()), server.socket_folder()
        server.process.kill()
        asyncio.run(wait_gone(children))
        assert len(children) == 2

        async def gone():
            return not folder.exists()

        asyncio.run(wait_until(gone, f"{folder} is removed"))


def test_what_others_left_is_removed(tmp_path, monkeypatch):
    """That of a server which was killed with all of its processes, and no other's."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left, foreign = tmp_path / "lmtp-serve-killed", tmp_path / "lmtp-serve-other"
    for folder in (left, foreign):
        folder.mkdir()
        (folder / "child-1").touch()
    (left / "lock").touch()
    with Layout() as first:
        assert not left.exists() and foreign.exists()
        with Layout() as second:
            assert first.socket_folder().exists() and second.socket_folder().exists()
    assert list(tmp_path.iterdir()) == [foreign]


def refusal(*options, port=0):
    command = [bin_dir() / "lmtp-serve", *options, "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr.splitlines()


@pytest.mark.parametrize("options", [("demo", "--layout", "2x1"), ("balance", "127.0.0.1:1")])
def test_a_taken_port_is_said_before_anything_is_waited_for(options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        [line] = refusal(*options, port=port)
    assert f"127.0.0.1:{port}" in line and "--port" in line


def test_what_cannot_start_says_why_and_ends(tmp_path):
    lines = refusal(tmp_path, "--layout", "2x1")
    said = rf"lmtp-serve: child-\d: {tmp_path} holds no config.json"
    assert re.match(said, lines[-1]), lines
    for line in lines[:-1]:
        assert line.startswith("child-"), lines
    count = len(ALLOWED)
    if count < 64:
        wanted = f"as many processors, and there are {count}; at most {count}x1 is possible"
        assert wanted in refusal("demo", "--layout", f"{count + 1}x1")[-1]

"""What a service manager is told, and how the server drains."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import time
import urllib.error
import urllib.request

import pytest
from checkpoints import FOREVER, NO_END
from lmtp_socket import Socket
from servers import LmtpServe
from test_lifecycle import TIMEOUT_S, run


class Manager:
    """Receives what systemd would, at a path or at an abstract address."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.bind(address)
        name = self.socket.getsockname()
        self.environment = "@" + name[1:].decode() if isinstance(name, bytes) else name

    def read_until(self, line):
        lines = []
        while line not in lines:
            lines += self.socket.recv(4096).decode().splitlines()
        return lines

    def drop_all(self):
        """The lines that have come and were not read."""
        lines = []
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                lines += self.socket.recv(4096).decode().splitlines()
        self.socket.settimeout(TIMEOUT_S)
        return lines


class Notifying(LmtpServe):
    def __init__(self, manager, *arguments):
        super().__init__(*arguments)
        self.environment["NOTIFY_SOCKET"] = manager.environment


@pytest.mark.parametrize("address", ["path", "abstract"])
@pytest.mark.parametrize("model", ["demo", "auto"])
def test_ready_and_stopping(address, model, tmp_path):
    abstract = f"\0{tmp_path}"
    manager = Manager(abstract if address == "abstract" else str(tmp_path / "notify"))
    with Notifying(manager, model, "--shutdown-timeout", "7") as server:
        assert "STOPPING=1" not in manager.read_until("READY=1")
        server.process.terminate()
        assert server.process.wait(TIMEOUT_S) == 0
    assert "STOPPING=1" in manager.read_until("EXTEND_TIMEOUT_USEC=12000000")
    manager.socket.close()


def test_a_socket_that_is_gone_is_a_warning(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    manager.socket.close()
    with Notifying(manager, "demo") as server:
        pass
    assert server.exit_code == 0 and "NOTIFY_SOCKET" in server.output


def test_loading_asks_for_time(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    with Notifying(manager, "random:gpt2", "--kv-cache", "256MiB") as server:
        lines = manager.read_until("READY=1")
        assert "EXTEND_TIMEOUT_USEC=120000000" in lines
        assert any(line.startswith("STATUS=loading") for line in lines)
    assert server.exit_code == 0
    manager.socket.close()


def status_in(lines):
    (status,) = (line for line in lines if line.startswith("STATUS="))
    return status


def test_reloading(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    keys = tmp_path / "keys.json"
    good = '{"keys": [{"name": "a", "key": "k"}]}'
    keys.write_text(good)
    keys.chmod(0o600)
    with Notifying(manager, "demo", "--api-key-file", keys) as server:
        ready = manager.read_until("READY=1")[-1]

        def reloaded(text):
            keys.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            return manager.read_until("READY=1")

        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        lines = reloaded(good)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert lines[0] == "RELOADING=1" and status_in(lines) == ready
        (since,) = (int(line[15:]) for line in lines if line.startswith("MONOTONIC_USEC="))
        assert before <= since <= after
        wrong = status_in(reloaded("none"))
        assert wrong.startswith("STATUS=not reloaded: ") and str(keys) in wrong
        assert status_in(reloaded(good)) == ready
    assert server.exit_code == 0
    manager.socket.close()


def test_reloading_where_there_is_nothing_to_read(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    with Notifying(manager, "demo") as server:
        manager.read_until("READY=1")
        server.process.send_signal(signal.SIGHUP)
        assert manager.read_until("READY=1")[0] == "RELOADING=1"
    assert server.exit_code == 0
    manager.socket.close()


PING_S = 0.4


def watched(manager, *arguments):
    server = Notifying(manager, *arguments)
    server.environment["WATCHDOG_USEC"] = str(int(PING_S * 1e6))
    return server


def test_pings_go_on_idle_and_at_work(endless_model, tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], **FOREVER)
            for _ in range(4):
                manager.read_until("WATCHDOG=1")
                await s.token_of(1)
            await s.send("CANCEL", stream_id=1)
            assert await s.error_of(1) == "cancelled"

    manager = Manager(str(tmp_path / "notify"))
    with watched(manager, endless_model, "--kv-cache", "64MiB") as server:
        for _ in range(4):
            manager.read_until("WATCHDOG=1")
        run(ask(server))
    assert server.exit_code == 0
    manager.socket.close()


def test_those_of_another_process_are_not_its_own(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    server = watched(manager, "demo")
    server.environment["WATCHDOG_PID"] = "1"
    with server:
        manager.read_until("READY=1")
    assert "WATCHDOG=1" not in manager.read_until("STOPPING=1")
    manager.socket.close()


def ticks_of_threads(pid):
    ticks = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks[int(task.name)] = int(fields[11]) + int(fields[12])
    return ticks


@contextlib.contextmanager
def held(thread):
    """That thread of another process stands still."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    attach, detach, wait_all = 16, 17, 0x40000000
    assert ptrace(attach, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(thread, wait_all)
    try:
        yield
    finally:
        assert ptrace(detach, thread, None, None) == 0


def until_complaints(server, manager, count):
    """What the manager is told until then. It has to read: its queue is short, and senders wait."""

    def complaints():
        return server.read_log().count("no progress: an engine")

    lines, wanted, deadline = [], complaints() + count, time.monotonic() + TIMEOUT_S
    while complaints() < wanted:
        assert time.monotonic() < deadline
        lines += manager.drop_all()
        time.sleep(0.01)
    return lines + manager.drop_all()


def test_no_pings_while_the_engine_stands_still(tmp_path):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            options = {"max_tokens": 100_000, "logit_bias": NO_END}
            await s.send("GENERATE", stream_id=1, prompt=[5], **options)
            await s.token_of(1)
            before = ticks_of_threads(server.process.pid)
            for _ in range(100):
                await s.token_of(1)
            after = ticks_of_threads(server.process.pid)
            engine = max(after, key=lambda thread: after[thread] - before.get(thread, 0))
            with held(engine):
                until_complaints(server, manager, 2)  # a step may have ended before
                assert until_complaints(server, manager, 4) == []
            manager.read_until("WATCHDOG=1")
            await s.token_of(1)

    manager = Manager(str(tmp_path / "notify"))
    with watched(manager, "random:gpt2", "--kv-cache", "256MiB", "--threads", "1") as server:
        manager.read_until("READY=1")
        run(ask(server))
    manager.socket.close()


def health(server):
    try:
        with urllib.request.urlopen(f"http://{server.endpoint}/health", timeout=5) as answer:
            return answer.status, json.load(answer)["status"]
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)["status"]


def test_draining(endless_model):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], notices=True, **FOREVER)
            await s.token_of(1)
            assert health(server) == (200, "ready")
            server.process.terminate()
            await s.wait_for(lambda k, e: e.get("status") == "draining")
            assert health(server) == (503, "stopping")
            async with Socket(server.endpoint) as late:
                await late.send("GENERATE", stream_id=2, prompt=[5])
                assert "shutting down" in await late.error_of(2)
            await s.token_of(1)  # goes on
            assert health(server) == (503, "stopping")

    options = ("--kv-cache", "64MiB", "--shutdown-timeout", "600")
    with LmtpServe(endless_model, *options) as server:
        run(ask(server))  # its client leaves, and nothing runs any more
        assert server.process.wait(TIMEOUT_S) == 0

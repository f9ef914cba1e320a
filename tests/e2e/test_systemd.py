"""What a service manager is told, and how the server drains."""

import json
import socket
import urllib.error
import urllib.request

import pytest
from checkpoints import NO_END
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


def health(server):
    try:
        with urllib.request.urlopen(f"http://{server.endpoint}/health", timeout=5) as answer:
            return answer.status, json.load(answer)["status"]
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)["status"]


def test_draining():
    async def ask(server):
        async with Socket(server.endpoint) as s:
            options = {"max_tokens": 1000, "logit_bias": NO_END, "notices": True}
            await s.send("GENERATE", stream_id=1, prompt=[5], **options)
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

    with LmtpServe("random:gpt2", "--kv-cache", "256MiB", "--shutdown-timeout", "600") as server:
        run(ask(server))  # its client leaves, and nothing runs any more
        assert server.process.wait(TIMEOUT_S) == 0

"""Sockets that a service manager hands over, as sd_listen_fds(3) has it."""

import http.client
import json
import os
import socket
import subprocess
import sys

import pytest
from checkpoints import FOREVER
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir
from test_lifecycle import TIMEOUT_S, expect_one_line, run

# Becomes the server with these descriptors as 3, 4, ..., which LISTEN_PID says are for it.
LAUNCH = """
import os, sys
fds, program = [int(fd) for fd in sys.argv[1].split(",")], sys.argv[2:]
copies = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, copy in enumerate(copies):
    os.dup2(copy, 3 + i, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid() + int(os.environ.get("PID_OFFSET", 0))),
                  LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES="a:b")
os.execv(program[0], program)
"""


def launched(sockets, *arguments):
    fds = ",".join(str(s.fileno()) for s in sockets)
    program = bin_dir() / "lmtp-serve"
    return [sys.executable, "-c", LAUNCH, fds, str(program), *(str(a) for a in arguments)]


class Activated(LmtpServe):
    def __init__(self, sockets, *arguments, model="demo"):
        super().__init__(model, *arguments)
        self.command = launched(sockets, model, *arguments)
        self.popen_options = {"pass_fds": [s.fileno() for s in sockets]}
        address = sockets[0].getsockname()
        if sockets[0].family != socket.AF_UNIX:
            self.endpoint = f"127.0.0.1:{address[1]}"


def refused(sockets, *arguments):
    done = subprocess.run(
        launched(sockets, "demo", *arguments),
        pass_fds=[s.fileno() for s in sockets],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    expect_one_line(done)
    return done.stderr


def ask_on(connection):
    """At once, for a server closes a connection on which nothing is asked for a while."""
    connection.settimeout(TIMEOUT_S)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return connection


def answer_on(connection):
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read())["status"]


def test_a_client_that_came_before_the_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        early = ask_on(socket.create_connection(listener.getsockname()))
        with Activated([listener]) as server:
            assert answer_on(early)[1] in ("ready", "loading")
            assert server.http_status("/health") == 200
            early.close()
            assert server.ready_line().endswith(f"ws://{server.endpoint}/")
        assert server.exit_code == 0


def test_restarting_refuses_nobody(endless_model):
    """Who connects while the first server drains is answered by its successor."""

    async def drain(server, listener):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5], notices=True, **FOREVER)
            await s.token_of(1)
            server.process.terminate()
            await s.wait_for(lambda k, e: e.get("status") == "draining")
            late = ask_on(socket.create_connection(listener.getsockname()))
            await s.token_of(1)  # goes on
            return late

    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = ("--kv-cache", "64MiB", "--shutdown-timeout", "600")
        with Activated([listener], *options, model=endless_model) as first:
            late = run(drain(first, listener))
            assert first.process.wait(TIMEOUT_S) == 0
        with Activated([listener]):
            assert answer_on(late)[0] in (200, 503)
            late.close()


def test_tcp_and_unix(tmp_path):
    path = str(tmp_path / "s")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(path, family=socket.AF_UNIX) as unix,
    ):
        with Activated([tcp, unix]) as server:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                assert answer_on(ask_on(client)) == (200, "ready")
            assert f"unix:{path}" in server.ready_line()
        assert server.exit_code == 0
        assert os.path.exists(path)  # the manager's, not the server's


def test_ipv6():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        server = Activated([listener])
        server.endpoint = f"[::1]:{port}"
        with server:
            assert server.ready_line().endswith(f"ws://[::1]:{port}/")


def test_exposure_is_checked():
    with socket.create_server(("0.0.0.0", 0)) as listener:
        line = refused([listener])
        assert "0.0.0.0" in line and "--api-key-file" in line and "--insecure" in line
        with Activated([listener], "--insecure") as server:
            assert server.http_status("/health") == 200


def test_those_of_another_process_are_not_taken():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = LmtpServe("demo")
        server.command = [*launched([listener]), *server.command[1:]]
        server.popen_options = {"pass_fds": [listener.fileno()]}
        server.environment["PID_OFFSET"] = "1"
        with server:  # at --port
            assert server.http_status("/health") == 200


@pytest.mark.parametrize("kind", ["datagram", "connected", "two"])
def test_what_is_no_listening_socket(kind):
    a, b = socket.socketpair()
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one = socket.create_server(("127.0.0.1", 0))
    two = socket.create_server(("127.0.0.1", 0))
    given = {"datagram": [datagram], "connected": [a], "two": [one, two]}[kind]
    wanted = "one TCP and one Unix" if kind == "two" else "ListenStream="
    assert wanted in refused(given)
    for s in (a, b, datagram, one, two):
        s.close()

"""The same session over a Unix socket, and over standard input and output."""

import asyncio
import http.client
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import threading
import time

import aiohttp
import pytest
from checkpoints import FOREVER
from lmtp_socket import Socket, wait_until
from servers import LmtpServe, Server, bin_dir

TIMEOUT_S = 120
PROMPT = [46, 789, 579, 258]
REQUEST = {"stream_id": 1, "prompt": PROMPT, "max_tokens": 5, "temperature": 1, "seed": 7}


def run(coroutine):
    return asyncio.run(coroutine)


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def http_get(path, target, headers=()):
    connection = UnixHttp(path)
    try:
        connection.request("GET", target, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return None, ""
    finally:
        connection.close()


class UnixServe(Server):
    name = "lmtp-serve"

    def __init__(self, path, *options, model="demo"):
        self.path = pathlib.Path(path)
        command = [bin_dir() / "lmtp-serve", model, "--kv-cache", "64MiB"]
        super().__init__([*command, "--listen", f"unix:{path}", *options], 0)

    def is_ready(self):
        return http_get(self.path, "/health")[0] == 200


class UnixSocket(Socket):
    def __init__(self, path, **headers):
        super().__init__("localhost")
        self.path = path
        self.headers = headers

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.path)))
        self.ws = await self.session.ws_connect(self.url, headers=self.headers)
        return self


def start(path):
    """An attempt that is expected to end by itself."""
    return subprocess.run(
        [bin_dir() / "lmtp-serve", "demo", "--listen", f"unix:{path}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def listens_on_tcp(pid):
    """Whether the process has a TCP socket that listens."""
    fds = pathlib.Path(f"/proc/{pid}/fd")
    inodes = {os.readlink(fd) for fd in fds.iterdir() if fd.exists() or fd.is_symlink()}
    rows = []
    for table in ("tcp", "tcp6"):
        table = pathlib.Path(f"/proc/{pid}/net/{table}")
        rows += table.read_text().splitlines()[1:] if table.exists() else []
    listening = [row.split()[9] for row in rows if row.split()[3] == "0A"]
    return any(f"socket:[{inode}]" in inodes for inode in listening)


async def stream_of(s, request=None):
    await s.send("GENERATE", **(request or REQUEST))
    entries = []
    while not entries or not entries[-1]["finish_reason"]:
        entries.append(await s.token_of(1))
    return entries


async def answer_over_tcp(server):
    async with Socket(server.endpoint) as s:
        return await stream_of(s)


@pytest.fixture(scope="module")
def expected(demo):
    """What REQUEST gives over TCP."""
    return run(answer_over_tcp(demo))


def test_a_unix_socket_is_for_its_user_alone_and_speaks_as_tcp_does(tmp_path, expected):
    path = tmp_path / "lmtp.sock"

    async def ask():
        # No browser reaches it: neither field counts.
        headers = {"Origin": "https://attacker.example", "Host": "attacker.example"}
        async with UnixSocket(path, **headers) as s:
            assert await stream_of(s) == expected
            await s.send_text("GENERATE [")
            assert "error" in (await s.wait_for(lambda kind, _: kind == "MSG"))[1]

    with UnixServe(path) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert not listens_on_tcp(server.process.pid), "--listen is in the place of TCP"
        run(ask())
        assert "lmtp_generation_tokens_total{" in http_get(path, "/metrics")[1]
        client = subprocess.run(
            [bin_dir() / "lmtp-client", "--host", f"unix:{path}", "-n", "3", "-p", "Once"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert (client.returncode, client.stderr) == (0, "") and client.stdout.strip()
        living = start(path)
        assert living.returncode == 1 and "another program listens there" in living.stderr
        assert run_again_still_answers(path)
        ready = server.ready_line()
    assert server.exit_code == 0
    assert not path.exists()
    assert ready.endswith(f"unix:{path}")


def run_again_still_answers(path):
    return http_get(path, "/health")[0] == 200


def test_a_file_that_a_dead_server_left_is_replaced(tmp_path):
    path = tmp_path / "lmtp.sock"
    with UnixServe(path) as killed:
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(TIMEOUT_S)
        assert path.exists()
    with UnixServe(path) as server:
        # One that another server has made since stays.
        path.unlink()
        with UnixServe(path):
            server.process.terminate()
            server.process.wait(TIMEOUT_S)
            assert run_again_still_answers(path)
    assert not path.exists()


@pytest.mark.parametrize(
    "name, message", [("file", "no socket"), ("no/folder", "folder"), ("x" * 200, "longer than")]
)
def test_what_cannot_be_a_socket_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("precious")
    refused = start(tmp_path / name)
    assert refused.returncode == 1
    assert message in refused.stderr and "cannot listen on unix:" in refused.stderr
    assert (tmp_path / "file").read_text() == "precious"


def test_tcp_is_there_beside_it_where_it_is_asked_for(tmp_path, expected):
    path = tmp_path / "lmtp.sock"

    async def ask(server):
        async with UnixSocket(path) as one, Socket(server.endpoint) as other:
            assert await stream_of(one) == await stream_of(other) == expected

    with LmtpServe("demo", "--kv-cache", "64MiB", "--listen", f"unix:{path}") as server:
        run(ask(server))
        # What is about TCP stays so.
        with pytest.raises(aiohttp.WSServerHandshakeError):
            run(ask_as(server, Origin="https://attacker.example"))
        assert server.ready_line().endswith(f"ws://{server.endpoint}/, unix:{path}")


async def ask_as(server, **headers):
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"http://{server.endpoint}/", headers=headers):
            pass


def test_a_client_that_closes_its_sending_side_frees_what_it_had(endless_model, tmp_path):
    path = tmp_path / "lmtp.sock"
    upgrade = (
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    text = b'GENERATE {"stream_id": 1, "prompt": [5], "max_tokens": 1000000}'
    frame = bytes([0x81, 0x80 | len(text)]) + bytes(4) + text  # masked by zeros

    async def ask():
        with socket.socket(socket.AF_UNIX) as half:
            half.settimeout(TIMEOUT_S)
            half.connect(str(path))
            half.sendall(upgrade.encode() + frame)
            assert half.recv(4096).startswith(b"HTTP/1.1 101")
            half.shutdown(socket.SHUT_WR)
            while half.recv(1 << 16):
                pass
        async with UnixSocket(path) as s:

            async def free():
                stats = (await s.model_info())["stats"]
                return stats["num_running"] + stats["num_waiting"] == 0

            await wait_until(free, "the stream is freed")

    with UnixServe(path, model=endless_model) as server:
        run(ask())
    assert server.exit_code == 0


# --- standard input and output ---


class Stdio:
    """lmtp-serve --stdio; what it writes is read by a thread, so that no pipe is ever full."""

    def __init__(self, *options, model="demo", reads=True):
        self.process = subprocess.Popen(
            [bin_dir() / "lmtp-serve", model, "--stdio", "--kv-cache", "64MiB", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines = []
        self.errors = b""
        self.threads = [threading.Thread(target=self.read_log)]
        if reads:
            self.threads.append(threading.Thread(target=self.read_lines))
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()

    def read_lines(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def read_log(self):
        self.errors = self.process.stderr.read()

    def write(self, *lines):
        for line in lines:
            line = line if isinstance(line, bytes) else line.encode()
            self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def wait_for(self, condition, what):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.lines} {self.errors}"
            time.sleep(0.01)

    def end(self):
        """Ends the input; the exit code."""
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT_S)
        for thread in self.threads:
            thread.join()
        return code

    def entries(self):
        """(kind, entry) of all whole lines so far."""
        out = []
        for line in self.lines:
            kind, payload = line.decode().rstrip("\n").split(" ", 1)
            out += [(kind, entry) for entry in json.loads(payload)]
        return out


def generate(**more):
    return "GENERATE " + json.dumps({**REQUEST, **more})


def test_stdio_answers_all_that_was_asked_and_ends_with_its_input(expected):
    with Stdio() as session:
        session.write("", generate(), "\r", generate(stream_id=2), 'MODEL_INFO {"stream_id": 3}')
        session.process.stdin.write(generate(stream_id=4).encode())  # the last line has no end
        assert session.end() == 0
        entries = session.entries()
        for stream_id in (1, 2, 4):
            tokens = [e for k, e in entries if k == "TOKEN" and e["stream_id"] == stream_id]
            assert tokens == [{**e, "stream_id": stream_id} for e in expected]
        assert sum("model_info" in e for _, e in entries) == 1
        assert all(kind in ("TOKEN", "MSG") for kind, _ in entries), "and no line of another kind"


def test_stdio_opens_no_port_and_goes_on_after_what_is_wrong(expected):
    with Stdio("--max-message-size", "1KiB") as session:
        wrong = [b"\xff\xfe", b"GENERATE {" + b" " * 5000, b"GENERATE", b'X {"stream_id": 9}']
        session.write(*wrong)
        session.wait_for(lambda: len(session.entries()) >= 4, "errors")
        assert not listens_on_tcp(session.process.pid)
        errors = [entry["error"] for _, entry in session.entries()]
        assert errors[0] == "line: is not UTF-8; allowed is VERB SPACE JSON"
        assert errors[1] == "line: is longer than 1024 bytes (--max-message-size)"
        # One that does not end is not kept.
        session.process.stdin.write(b" " * (1 << 20))
        session.write(generate())
        session.write(generate())
        assert session.end() == 0
        entries = session.entries()
        assert [e for k, e in entries if k == "TOKEN" and "token" in e] == expected
        assert sum("is longer than" in entry.get("error", "") for _, entry in entries) == 2


def test_stdio_takes_its_input_from_a_file_and_leaves_alone_what_it_shares(tmp_path, expected):
    requests = tmp_path / "requests"
    requests.write_text("".join(generate(stream_id=i) + "\n" for i in range(50)))
    with requests.open() as lines:
        done = subprocess.run(
            [bin_dir() / "lmtp-serve", "demo", "--stdio", "--kv-cache", "64MiB"],
            stdin=lines,
            capture_output=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0
    assert done.stdout.count(b'"finish_reason": "length"') == 50
    assert b" ready on " in done.stderr and b"ready" not in done.stdout


@pytest.mark.parametrize("closed, exit_code", [("<&-", 0), (">&-", 1)])
def test_stdio_with_a_stream_that_is_closed_ends(closed, exit_code):
    command = f'exec "{bin_dir()}/lmtp-serve" demo --stdio --kv-cache 64MiB {closed}'
    done = subprocess.run(
        ["sh", "-c", command],
        input=generate().encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == exit_code
    assert (b"standard output cannot be written: Bad file descriptor" in done.stderr) == (
        exit_code == 1
    )


def test_stdio_cancels_and_stops_by_a_signal(endless_model):
    with Stdio(model=endless_model) as session:
        session.write(generate(**FOREVER))
        session.write('CANCEL {"stream_id": 1}')
        session.wait_for(
            lambda: any(e.get("error") == "cancelled" for _, e in session.entries()),
            "the end of the stream",
        )
        session.process.send_signal(signal.SIGTERM)
        assert session.process.wait(TIMEOUT_S) == 0


def test_a_reader_that_does_not_read_stops_the_reading_of_input():
    """What is asked is more than fits: it is taken only as fast as its answers are read."""
    num_lines = 20_000
    with Stdio("--max-write-queue", "64KiB", reads=False) as session:
        os.set_blocking(session.process.stdin.fileno(), False)
        line = b'X {"stream_id": 1}\n'
        written = 0
        stuck_since = time.monotonic()
        while time.monotonic() < stuck_since + 3 and written < num_lines * len(line):
            try:
                written += os.write(session.process.stdin.fileno(), line * 100)
                stuck_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert written < num_lines * len(line), "it reads on"
        os.set_blocking(session.process.stdin.fileno(), True)
        reader = threading.Thread(target=session.read_lines)
        reader.start()
        session.threads.append(reader)
        assert session.end() == 0
        assert len(session.lines) == -(-written // len(line))


def test_a_reader_that_does_not_read_ends_its_streams():
    with Stdio("--max-write-queue", "64KiB", reads=False) as session:
        session.write(generate(n=64, max_tokens=400, ignore_eos=True))
        assert session.process.wait(TIMEOUT_S) == 1
        session.threads[0].join()
        assert b"standard output is not read: more than 65536 bytes wait" in session.errors


def test_a_reader_that_left_ends_it():
    with Stdio(reads=False) as session:
        session.process.stdout.close()
        assert session.process.wait(TIMEOUT_S) == 1
        session.threads[0].join()
        assert b"standard output is closed" in session.errors
        session.process.stdout = open(os.devnull)


def test_options_that_exclude_each_other_are_refused(tmp_path):
    for options, message in [
        (["--stdio", "--port", "0"], "--stdio opens none"),
        (["--stdio", "--listen", f"unix:{tmp_path}/s"], "--stdio opens none"),
        (["--listen", "unix:"], "is not unix:PATH"),
        (["--listen", "127.0.0.1:1"], "is not unix:PATH"),
        (["--listen", f"unix:{tmp_path}/s", "--allow-host", "x"], "is for TCP"),
    ]:
        refused = subprocess.run(
            [bin_dir() / "lmtp-serve", "demo", *options], capture_output=True, text=True
        )
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr

"""Starts and stops the servers that tests and benchmarks talk to: lmtp-serve and LMQL's own."""

import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 30
POLL_S = 0.05
LOG_TAIL_BYTES = 4000
REPORT = re.compile("Sanitizer|runtime error: |: check failed: ")
HELD = []  # the sockets of free_port()


def free_port():
    """One that nobody else gets while this process runs, and where nobody listens yet: a program
    that is told its port may be started there, more than once."""
    held = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):  # with who sets either
        held.setsockopt(socket.SOL_SOCKET, option, 1)
    held.bind(("127.0.0.1", 0))
    HELD.append(held)
    return held.getsockname()[1]


def bin_dir():
    return pathlib.Path(os.environ.get("LMTP_BIN_DIR") or ROOT / "build" / "release" / "bin")


class Certificate:
    """A certificate for localhost and 127.0.0.1 that is its own authority, and its key."""

    def __init__(self, folder, name="server"):
        self.certfile, self.keyfile = folder / f"{name}.pem", folder / f"{name}.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", self.keyfile, "-out", self.certfile, "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.options = ("--ssl-certfile", self.certfile, "--ssl-keyfile", self.keyfile)

    def client_context(self):
        return ssl.create_default_context(cafile=self.certfile)


class Server:
    """A server process, listening on a free port of the loopback while the context lasts."""

    name = "server"
    start_timeout_s = 300
    popen_options = {}  # of the process, where a test wants others
    certificate = None  # plain

    def __init__(self, command, port, environment=None):
        self.command = [str(part) for part in command]
        self.endpoint = f"127.0.0.1:{port}"
        self.environment = {**os.environ, **(environment or {})}
        self.exit_code = None

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command,
            stdout=self.log,
            stderr=self.log,
            env=self.environment,
            **self.popen_options,
        )
        deadline = time.monotonic() + self.start_timeout_s
        while not self.is_ready():
            died = self.process.poll() is not None
            if died or time.monotonic() > deadline:
                self.__exit__()
                what = "ended" if died else f"was not ready after {self.start_timeout_s} s"
                raise RuntimeError(f"{self.name} {what}; it printed:\n{self.log_tail}")
            time.sleep(POLL_S)
        return self

    def __exit__(self, *_):
        self.proceed()
        self.process.terminate()
        try:
            self.exit_code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.exit_code = self.process.wait()
        self.output = self.read_log()
        self.log.close()
        if self.exit_code < 0 or REPORT.search(self.output):
            how = f"terminated by signal {-self.exit_code}" if self.exit_code < 0 else "reports"
            print(f"{self.name} {how}; it printed:\n{self.log_tail}")

    @property
    def log_tail(self):
        return self.output[-LOG_TAIL_BYTES:]

    def read_log(self):
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode(errors="replace")

    def is_ready(self):
        """Whether it answers; its model may still be loading."""
        return self.http_status("/health") == 200

    def wait_for_log(self, text):
        """What it has printed once that is among it."""
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            is_over = self.process.poll() is not None or time.monotonic() > deadline
            log = self.read_log()
            if text in log:
                return log
            assert not is_over, f"{text!r} was not printed; it printed:\n{log[-LOG_TAIL_BYTES:]}"
            time.sleep(POLL_S)

    def ready_line(self):
        """What it says of its model once that is loaded."""
        lines = self.wait_for_log(" ready on ").splitlines()
        return next(line for line in lines if " ready on " in line)

    def http_status(self, path):
        """None where nothing answers."""
        try:
            url = f"{'https' if self.certificate else 'http'}://{self.endpoint}{path}"
            context = self.certificate and self.certificate.client_context()
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code
        except OSError:
            return None

    def pause(self):
        """Keeps an idle server from taking the processor while another one is measured."""
        self.process.send_signal(signal.SIGSTOP)

    def proceed(self):
        self.process.send_signal(signal.SIGCONT)

    def rss_bytes(self, part="VmRSS"):
        """Resident memory: all of it, or `part` of it as proc(5) names it (RssAnon)."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(row for row in status.splitlines() if row.startswith(f"{part}:"))
        return int(line.split()[1]) * 1024

    def cpu_s(self):
        """Processor time of all its threads so far."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class LmtpServe(Server):
    """lmtp-serve from LMTP_BIN_DIR, else from the release build; over TLS with a Certificate."""

    name = "lmtp-serve"

    def __init__(self, model, *options, certificate=None):
        port = free_port()
        if certificate:
            self.certificate, options = certificate, (*options, *certificate.options)
        program = bin_dir() / "lmtp-serve"
        self.model = pathlib.Path(model).name
        super().__init__([program, model, "--port", port, *options], port)


class Reference(Server):
    """`lmql serve-model` in the environment of reference-server. Its socket opens before the
    model is there: the first request waits for it."""

    name = "lmql serve-model"

    def __init__(self, model):
        port = free_port()
        self.model = pathlib.Path(model).name
        super().__init__([ROOT / "tools" / "benchmarks" / "reference-server", model, port], port)

    def is_ready(self):
        return self.http_status("/") is not None  # an error status: it wants a WebSocket

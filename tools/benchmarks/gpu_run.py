"""What the parts of tools/gpu-check share: where things lie, programs that run, the time left."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import time
import traceback

from gpu_peer_process import KILLED, PeerProcess
from gpu_report import FAILED, NOT_RUN
from servers import ROOT, LmtpServe

MIN_SECONDS = 10  # with less left, nothing is begun
# One thing that hangs costs its own rows, not those behind it.
START_SECONDS = 90  # of a server, with the weights of the largest model
ANSWER_SECONDS = 60
STOP_SECONDS = 5  # that streams of a server may go on
TAIL_LINES, TAIL_CHARACTERS = 3, 300


@dataclasses.dataclass
class Done:
    """A program that has ended."""

    code: int
    output: str  # both streams

    @property
    def tail(self):
        return tail(self.output)


def tail(output):
    """Its last lines, for a note."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]


def both_ends(text):
    """The first and the last lines: an error's cause is at the beginning, its end at the end."""
    most = 2 * TAIL_CHARACTERS
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class CheckedServe(LmtpServe):
    """lmtp-serve as a part starts it. All that it printed goes to log.txt, its last lines to the
    row of what failed meanwhile; its own failure is a row."""

    start_timeout_s = START_SECONDS

    def __init__(self, check, model, *options, dtype="bfloat16"):
        self.check = check
        super().__init__(model, "--device", check.device, "--dtype", dtype,
                         "--shutdown-timeout", STOP_SECONDS, *options)  # fmt: skip

    def __exit__(self, kind=None, error=None, trace=None):
        super().__exit__()
        self.check.log(self.command, self.output, self.exit_code)
        if self.exit_code != 0:
            self.check.report.add(f"lmtp-serve {self.model}", FAILED, f"exit code {self.exit_code}",
                                  "exit code 0", tail(self.output))  # fmt: skip
        if isinstance(error, Exception):
            raise RuntimeError(f"{error!r}; lmtp-serve: {tail(self.output)}") from error


class Run:
    """One part. Owner: gpu_check.py."""

    def __init__(self, build, device, seconds, quick, report):
        self.build, self.device, self.quick, self.report = build, device, quick, report
        self.deadline = time.monotonic() + seconds
        self.seeds = itertools.count(1)  # of prompts: none is found in a cache
        self.peers = PeerProcess(device)

    @property
    def on_gpu(self):
        return self.device != "cpu"

    def seconds_left(self):
        return max(0.0, self.deadline - time.monotonic())

    def guarded(self, what, measure, *arguments):
        """measure(self, ...). Where it fails, that is a row, None comes back, and the next are
        still run."""
        if self.seconds_left() < MIN_SECONDS:
            self.report.add(what, NOT_RUN, notes="no time was left")
            return
        try:
            return measure(self, *arguments)
        except Exception as error:  # any failure
            self.log([what], traceback.format_exc(), None)
            self.report.add(what, FAILED, notes=both_ends(f"{type(error).__name__}: {error}"))

    def test_program(self, name):
        return self.build / "tests" / name

    def program(self, name):
        return self.build / "bin" / name

    def call(self, *command, seconds=None, environment=None):
        """Runs it to its end, or to that of the part. What it prints goes to log.txt as well."""
        limit = self.limit(seconds)
        command = [str(word) for word in command]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", timeout=limit, env={**os.environ, **(environment or {})},
            )  # fmt: skip
            result = Done(done.returncode, done.stdout)
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
            output = output.decode(errors="replace") if isinstance(output, bytes) else output
            result = Done(KILLED, f"{output}\nended after {limit:.0f} s")
        except OSError as error:
            result = Done(KILLED, str(error))
        self.log(command, result.output, result.code)
        return result

    def limit(self, seconds):
        """Of a program that may take so long, or as long as the part does."""
        left = self.seconds_left()
        return max(1.0, min(left, seconds or left))

    def log(self, command, output, code):
        with open(self.report.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{output}\nexit code {code}\n\n")

    def call_peer(self, *arguments, seconds=None):
        """The lines of JSON that gpu_peers.py answers, and what it says where it fails."""
        arguments = [str(word) for word in arguments]
        code, output = self.peers.ask(arguments, self.limit(seconds))
        self.log(["gpu_peers.py", self.device, *arguments], output, code)
        return json_lines(output), Done(code, output)

    def serve(self, model, *options, dtype="bfloat16"):
        """lmtp-serve on the device of this run."""
        return CheckedServe(self, model, *options, dtype=dtype)


def query_device(device, what, *form):
    """nvidia-smi's answer; a RuntimeError with its reason if it fails."""
    number = device.partition(":")[2] or "0"
    command = ["nvidia-smi", f"--id={number}", f"--query-gpu={what}",
               f"--format={','.join(['csv', 'noheader', *form])}"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"nvidia-smi: {error}") from None
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-smi: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()


def num_devices_from(device):
    """How many there are from `device` on."""
    number = int(device.partition(":")[2] or "0")
    return int(query_device(device, "count")) - number


def json_lines(text):
    """The lines of JSON of a program that may have ended inside one."""
    objects = []
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                objects.append(json.loads(line))
    return objects


def set_environment(build):
    """For every program from here on: servers.bin_dir(), the tests' files, and the shared libraries
    that a packed build carries."""
    os.environ["LMTP_BIN_DIR"] = str(build / "bin")
    os.environ["LMTP_SOURCE_DIR"] = str(ROOT)
    before = os.environ.get("LD_LIBRARY_PATH")
    folders = [str(build / "lib"), *([before] if before else [])]
    os.environ["LD_LIBRARY_PATH"] = ":".join(folders)

"""lmtp-client as a person meets it: at a terminal (a pty), and as a script does: in a pipe."""

import os
import pty
import select
import subprocess
import time

from servers import bin_dir

WAIT_S = 60
CTRL_C, CTRL_D = "\x03", "\x04"
PROMPT = ">>>> "


def client():
    return str(bin_dir() / "lmtp-client")


def run_client(*arguments, stdin="", environment=None):
    """A finished process, its output as text."""
    return subprocess.run(
        [client(), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **(environment or {})},
    )


class Terminal:
    """with Terminal(home, "--host", endpoint) as t: t.read_prompt(); t.type("Hello\\n")"""

    def __init__(self, home, *arguments):
        environment = {k: v for k, v in os.environ.items() if k != "XDG_STATE_HOME"}
        self.environment = {**environment, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.command = [client(), *map(str, arguments)]
        self.pending = ""

    def __enter__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(self.command[0], self.command, self.environment)
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def read_until(self, text):
        """What was printed up to and with `text`; the rest is kept for the next call."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.pending:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come; there is {self.pending!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # how Linux says that the other end is gone
                    data = b""
                assert data, f"{text!r} did not come before the end; there is {self.pending!r}"
                self.pending += data.decode(errors="replace")
        end = self.pending.index(text) + len(text)
        found, self.pending = self.pending[:end], self.pending[end:]
        return found

    def read_prompt(self):
        return self.read_until(PROMPT)

    def ask(self, line):
        """What a line brings, without the line itself."""
        self.type(line + "\n")
        return self.read_prompt().removesuffix(PROMPT).replace("\r\n", "\n")

    def wait(self):
        """The exit code; what is printed until then goes to self.pending."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.pending += data.decode(errors="replace")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

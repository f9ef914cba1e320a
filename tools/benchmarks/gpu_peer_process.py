"""gpu_peers.py as one process for all that is asked of it: torch is imported, and its context made
on the device, once."""

import json
import pathlib
import queue
import subprocess
import sys
import threading
import time

KILLED = -9  # the exit code of what ran out of time
END_SECONDS = 10
END = '{"what": "end"}'  # the last line of an answer


class PeerProcess:
    """Starts with the first question, and again with the next one after it failed."""

    def __init__(self, device):
        self.device, self.process = device, None

    def ask(self, arguments, seconds):
        """(exit code, what it printed): 0 if it answered, KILLED if not within `seconds`."""
        end = time.monotonic() + seconds
        if self.process is None:
            self.start()
        said, code = [], None
        try:
            self.process.stdin.write(json.dumps(arguments) + "\n")
            self.process.stdin.flush()
            while (line := self.lines.get(timeout=max(0, end - time.monotonic()))) is not None:
                if line.strip() == END:
                    code = 0
                    break
                said.append(line)
            else:
                code = self.end()
        except queue.Empty:
            said.append(f"ended after {seconds:.0f} s\n")
            code = KILLED
        except BrokenPipeError:  # it ended between two questions
            code = self.end()
        finally:
            if code != 0:
                self.close()
        return code, "".join(said)

    def start(self):
        script = pathlib.Path(__file__).with_name("gpu_peers.py")
        self.process = subprocess.Popen(
            [sys.executable, script, self.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self.lines = queue.SimpleQueue()
        threading.Thread(
            target=read_lines, args=(self.process.stdout, self.lines), daemon=True
        ).start()

    def end(self):
        """The exit code of one that has closed its output; never 0, since it has not answered."""
        try:
            return self.process.wait(END_SECONDS) or 1
        except subprocess.TimeoutExpired:
            return KILLED

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


def read_lines(stream, lines):
    """Puts each line into the queue, and None behind the last."""
    for line in stream:
        lines.put(line)
    lines.put(None)
    stream.close()

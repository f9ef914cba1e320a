"""Kills lmtp-serve at random moments of streams that run under lmtp-client --retry, starts it
again, and compares each stream with its uninterrupted run: tokens, and the text of every log
probability.

    tools/benchmarks/kills.py --kills 50

With the Python of tools/setup (.venv/bin/python)."""

import argparse
import ast
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from servers import bin_dir

PROMPTS = ("Once upon a time", "The king said", "A ship", "In the garden there was", "My lord,")
ATTEMPTS = 60  # of a stream, without a new token: what a server takes to start, many times
POLL_S = 0.005
TIMEOUT_S = 300


class KilledServer:
    """lmtp-serve on a Unix socket, whose file a SIGKILL leaves behind."""

    def __init__(self, folder, options=()):
        self.path = pathlib.Path(folder) / "lmtp.sock"
        self.options = options
        self.log = open(pathlib.Path(folder) / "server.log", "ab")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        self.log.close()

    def start(self):
        command = [bin_dir() / "lmtp-serve", "demo", "--kv-cache", "256MiB"]
        command += ["--listen", f"unix:{self.path}", *self.options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
        self.start()


class Streams:
    """One lmtp-client a stream."""

    def __init__(self, server, folder, num_streams, num_tokens):
        self.outputs = [pathlib.Path(folder) / f"stream{i}" for i in range(num_streams)]
        self.processes = []
        for i, output in enumerate(self.outputs):
            command = [bin_dir() / "lmtp-client", "demo", "--host", f"unix:{server.path}"]
            command += [f"--retry={ATTEMPTS}", "--raw", "-p", PROMPTS[i % len(PROMPTS)]]
            command += [f"max_tokens={num_tokens}", f"seed={i}", "ignore_eos=true"]
            # Greedy ones, drawn ones, and ones whose draws depend on all that came.
            command += [f"temperature={i % 3 / 2}", f"repetition_penalty={1 + i % 2 / 5}"]
            if i % 4 == 3:  # the server encodes and decodes, and holds back what may begin a stop
                command += ["--text", "--stop", "the old man's", "--stop", "\n\n\n"]
            with output.open("wb") as out:
                process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            self.processes.append(process)

    def num_running(self):
        return sum(process.poll() is None for process in self.processes)

    def num_begun(self):
        """Running, and some of it has come."""
        running = zip(self.outputs, self.processes)
        return sum(out.stat().st_size > 0 and p.poll() is None for out, p in running)

    def results(self):
        """Of each stream (token, log probability, finish_reason, text, alternatives) as sent."""
        for process in self.processes:
            process.wait(TIMEOUT_S)
        return [read_entries(output.read_text()) for output in self.outputs]


def read_entries(text):
    entries = []
    for line in text.splitlines():
        if not line.startswith("{'token'"):
            continue
        entry = ast.literal_eval(line)
        logprob = line.split("'logprob': ")[1].split(",")[0]  # as it was sent, not as a double
        top = line.split("'top_logprobs': ")[1]
        entries.append((entry["token"], logprob, entry["finish_reason"], entry.get("text"), top))
    return entries


def run(num_kills, num_streams=20, num_tokens=400, seed=0, report=print):
    """The number of kills, of streams that were cut by them, and of streams that differ."""
    chance = random.Random(seed)
    cut = different = kills = 0
    with tempfile.TemporaryDirectory() as folder, KilledServer(folder) as server:
        begin = time.monotonic()
        wanted = Streams(server, folder, num_streams, num_tokens).results()
        took_s = time.monotonic() - begin
        assert all(entries and entries[-1][2] for entries in wanted), "the uninterrupted run failed"
        while kills < num_kills:
            streams = Streams(server, folder, num_streams, num_tokens)
            while kills < num_kills and streams.num_running():
                due = time.monotonic() + chance.uniform(0, took_s)
                while time.monotonic() < due and streams.num_running():
                    time.sleep(POLL_S)
                begun = streams.num_begun()
                if begun == 0 and chance.random() < 0.9:  # most kills while tokens come
                    continue
                cut += begun
                kills += 1
                server.kill()
            got = streams.results()
            for i, (one, other) in enumerate(zip(got, wanted)):
                if one == other:
                    continue
                different += 1
                tail = streams.outputs[i].read_text()[-500:]
                report(f"stream {i}: {len(one)} tokens, not as uninterrupted; it ends with: {tail}")
    return kills, cut, different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kills, cut, different = run(options.kills, options.streams, options.tokens, options.seed)
    print(f"{kills} kills cut {cut} streams; {different} differ from their uninterrupted run")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

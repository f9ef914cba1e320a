"""Instructions and allocations a token, of the server but for a model, so that two revisions can be
compared where times cannot: `counts.py BUILD [BUILD ...]` prints a row for each build folder,
number of streams and kind of thread.

build/release/tests/null_server runs under valgrind's callgrind, once with many tokens a stream and
once with twice as many. What differs between the two is those tokens alone: start, connecting and
the way in count in both. All streams run from the first step on. What the null agent itself
computes is taken out. A second run of one build differs by up to 2 %: take the median of
three.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from raw_frames import Wire, frame  # noqa: E402

NUM_CONNECTIONS = 8
TOKENS = 200
ALLOCATES = ("malloc", "calloc", "realloc")  # what is aligned comes from malloc as well
NEW = "operator new"
# The thread that has such a function; what other threads do does not depend on the tokens.
THREADS = {"engine": "Engine::Impl", "io": "asio::detail::scheduler::run("}
AGENT = "lmtp::testing::FakeAgent::"
TIMEOUT_S = 600


class Profile:
    """One thread's: instructions by function, with and without what it calls, and allocations."""

    def __init__(self, text):
        self.names, self.total, self.num_allocations = {}, 0, 0
        self.inclusive = collections.Counter()
        self.functions = set()
        function = called = None
        for line in text.splitlines():
            if line.startswith("fn="):
                function = self.name(line[3:])
                self.functions.add(function)
            elif line.startswith("cfn="):
                called = self.name(line[4:])
            elif line.startswith("calls="):
                count = int(line[6:].split()[0])
                if called in ALLOCATES:
                    self.num_allocations += count
                elif called.startswith(NEW) and AGENT in function:
                    self.num_allocations -= count
            elif line.startswith("totals:") or line.startswith("summary:"):
                self.total = int(line.split()[1])
            elif line and (line[0].isdigit() or line[0] in "+-*"):
                if called is None:
                    self.inclusive[function] += int(line.split()[1])
                else:
                    self.inclusive[function] += int(line.split()[1]) * (called != function)
                    called = None

    def name(self, text):
        """`(7) name` the first time, `(7)` afterwards."""
        key, _, name = text.partition(" ")
        if name:
            self.names[key] = name
        return self.names.get(key, text)

    def kind(self):
        for kind, part in THREADS.items():
            if any(part in function for function in self.functions):
                return kind
        return None

    def agent(self):
        parts = tuple(AGENT + part for part in ("forward", "choose", "collect"))
        return sum(n for function, n in self.inclusive.items()
                   if any(part in function for part in parts))


def drive(process, port, num_streams, num_tokens, more):
    """All streams to their ends."""
    wires = [Wire(port) for _ in range(NUM_CONNECTIONS)]
    for i in range(num_streams):
        ask = {"stream_id": i, "prompt": [i], "max_tokens": num_tokens, **more}
        wires[i % NUM_CONNECTIONS].send(frame(f"GENERATE {json.dumps(ask)}".encode()))
    for wire in wires:
        wire.send(frame(b"END"))
        while b"'END' is unknown" not in wire.read()[1]:
            pass
    process.stdin.write(b"go\n")
    process.stdin.flush()
    for wire in wires:
        num_open = num_streams // NUM_CONNECTIONS
        while num_open > 0:
            num_open -= wire.read()[1].count(b'"finish_reason": "length"')


def run(build, num_streams, num_tokens, more):
    """By kind of thread: (instructions, allocations)."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--fair-sched=yes",
             f"--callgrind-out-file={folder}/out", build / "tests" / "null_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            drive(process, int(process.stdout.readline()), num_streams, num_tokens, more)
            process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        found = {kind: [0, 0] for kind in THREADS}
        for path in pathlib.Path(folder).iterdir():
            profile = Profile(path.read_text())
            if kind := profile.kind():
                found[kind][0] += profile.total - profile.agent()
                found[kind][1] += profile.num_allocations
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="+", type=pathlib.Path, help="build/release of a tree")
    parser.add_argument("--streams", default="64,512")
    parser.add_argument("--ask", type=json.loads, default={},
                        help="more fields of each request, as JSON: '{\"text\": true}'")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="a stream, in the short run")
    options = parser.parse_args()
    print(f"{'build':40} {'streams':>7} {'threads':>7} {'instructions':>12} {'allocations':>11}")
    for num_streams in map(int, options.streams.split(",")):
        for build in options.build:
            short = run(build, num_streams, options.tokens, options.ask)
            long = run(build, num_streams, 2 * options.tokens, options.ask)
            tokens = num_streams * options.tokens
            for kind in THREADS:
                a, b = ((long[kind][i] - short[kind][i]) / tokens for i in (0, 1))
                print(f"{str(build):40} {num_streams:7} {kind:>7} {a:12.1f} {b:11.3f}", flush=True)


if __name__ == "__main__":
    main()

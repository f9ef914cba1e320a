#!/usr/bin/env python3
"""lmtp-serve on a CPU beside llama.cpp and transformers: decoding, prefill, streams, start.

    tools/bench cpu [--quick] [--rounds 3] [--rows REGEX] [--list] [--output FILE]

All with 2 threads and the same random weights. Engines run in turns and the medians of the rounds
count; lmtp-serve stands still while another one is measured. llama.cpp runs in four ways in the
first round (flash attention or not, threads that spin or sleep), and the fastest one goes on. The
peers come from PyPI (tools/cpu-peers) and the models from tools/make-checkpoint; both stay in the
cache folder.
Writes docs/benchmarks/cpu.md, and the same as cpu.json, after every row: a run that is cut leaves
what it has. It takes an hour at most, once peers and models are there: a round that would not fit
is left out. --quick: one round of fewer tokens in ten minutes; it shows that all of it works, not
how fast it is. With it or with --rows the page is build/bench/cpu.md.
"""

import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import cpu_page
import peers
import report
from cpu_engines import THREADS, Ours, Scale, engines_of
from cpu_rows import LLAMA, all_rows, count_weights, median
from random_models import random_model
from roofline import Roofline
from servers import ROOT

OUTPUT = ROOT / "docs" / "benchmarks" / "cpu.md"
SCRATCH = ROOT / "build" / "bench" / "cpu.md"
MINUTES_MAX = 60  # a round that would go beyond is left out


def say(text):
    print(text, file=sys.stderr, flush=True)


class Results:
    """What has been measured so far; saved after every row."""

    def __init__(self, facts, output):
        self.data = {"facts": facts, "machine": [], "weights": {}, "rows": {}}
        self.output = output
        self.start = time.monotonic()
        output.parent.mkdir(parents=True, exist_ok=True)

    def minutes(self):
        return (time.monotonic() - self.start) / 60

    def save(self):
        self.data["facts"]["minutes"] = self.minutes()
        self.output.write_text(cpu_page.page(self.data), encoding="utf-8")
        self.output.with_suffix(".json").write_text(json.dumps(self.data, indent=1) + "\n")


def slower_ways(entries):
    """The ways to run llama.cpp that the first round showed not to be the fastest one."""
    speeds = {
        name: median({"runs": entries[name]["runs"][:1]}) or 0.0
        for name in LLAMA if name in entries
    }  # fmt: skip
    return set(speeds) - {max(speeds, key=speeds.get, default=None)}


def measure_row(row, engines, number, results):
    entries = results.data["rows"].setdefault(row.name, {})
    left_out = slower_ways(entries) if number > 1 else set()
    for engine in engines if number % 2 else reversed(engines):
        entry = entries.setdefault(engine.name, {"runs": []})
        if engine.name in left_out or "not_run" in entry:
            continue
        try:
            figures = engine.measure(row, f"{row.name} {number}")
        except Exception as e:  # whatever it is, the other engines and rows go on
            entry["not_run"] = " ".join(f"{type(e).__name__}: {e}".split())[-300:]
            say(f"round {number}: {row.name:36} {engine.name:27} not run: {entry['not_run']}")
            continue
        entry["runs"].append(figures)
        shown = ", ".join(f"{k} {v:.4g}" for k, v in figures.items() if isinstance(v, float))
        say(f"round {number}: {row.name:36} {engine.name:27} {shown}")
    results.save()


def measure_round(number, groups, bench):
    for (model, dtype), rows in groups.items():
        folder = random_model(model)
        bench.results.data["weights"][model] = vars(count_weights(folder))
        machine = bench.roofline.measure(THREADS)
        bench.results.data["machine"].append(machine)
        say(", ".join(f"{key} {value:.4g}" for key, value in machine.items()))
        with Ours(folder, dtype, bench.scale) as ours:
            for row in rows:
                measure_row(row, engines_of(row, ours, bench.peers), number, bench.results)


def find_peers(groups):
    """Their folder, or why there is none; and the models, so that no row has to wait for them."""
    try:
        found = peers.environment()
        for model, dtype in groups:
            peers.LlamaCpp(found).gguf(random_model(model), dtype)
        return found
    except (RuntimeError, OSError, subprocess.SubprocessError) as e:
        return e


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="bench cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round of fewer tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", metavar="REGEX", default="", help="those whose names match")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, no more")
    parser.add_argument("--output", type=pathlib.Path, help="the page; the JSON lies beside it")
    return parser.parse_args()


def main():
    args = parse_arguments()
    rows = [row for row in all_rows() if re.search(args.rows, row.name)]
    if args.list or not rows:
        print(*(row.name for row in rows or all_rows()), sep="\n")
        return 0 if rows else f"bench cpu: no row matches {args.rows!r}; the rows are above"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended, too
    scale = Scale(args.quick, args.rounds)
    whole = not args.quick and len(rows) == len(all_rows())
    groups = {}
    for row in rows:
        groups.setdefault((row.model, row.dtype), []).append(row)
    found = find_peers(groups)
    facts = {
        "command": " ".join(["tools/bench cpu", *sys.argv[1:]]), "date": report.today(),
        "machine": report.machine(), "rounds": 1, "threads": THREADS, "decoded": scale.decoded,
        "versions": f"{report.our_version()}; {peers.versions(found)}",
    }  # fmt: skip
    results = Results(facts, args.output or (OUTPUT if whole else SCRATCH))
    with Roofline() as roofline:
        bench = argparse.Namespace(scale=scale, peers=found, roofline=roofline, results=results)
        for number in range(1, scale.rounds + 1):
            if number > 1 and results.minutes() * number / (number - 1) > MINUTES_MAX:
                say(f"no time for round {number}")
                break
            measure_round(number, groups, bench)
            facts["rounds"] = number
            results.save()
    print(results.output.read_text())
    say(f"written: {results.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

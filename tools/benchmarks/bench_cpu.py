#!/usr/bin/env python3
"""lmtp-serve on a CPU beside llama.cpp and transformers: decoding, prefill, streams, start; and
decode attention beside what the machine allows.

    tools/bench cpu [--quick] [--rounds 9] [--rows REGEX] [--list] [--output FILE] [--busy-ok]

All with 2 threads and the same random weights. Engines run in turns, and the median of the rounds'
ratios counts; lmtp-serve stands still while another one is measured. What the machine's memory and
arithmetic allow is read right before and behind every run: a round that found it in two modes (two
processors may be one core's threads at one moment and two cores at the next) does not count and is
taken again, twice at most. In the first round llama.cpp is tried
with flash attention or not, with threads that spin or sleep, with weights mapped or read, each on
the fastest so far; that one goes on. Threads and weights are settled in the first row of a kind,
model and dtype. Decode attention is measured once, by kernels-bench, which has nine rounds of its
own and holds beside other load: `--rows attention --busy-ok` takes three minutes. The peers come
from PyPI (tools/benchmarks/cpu-peers) and the models from tools/dev/make-checkpoint; both stay in
the cache folder.
It does not start while anything else uses the processor; with --busy-ok it does, and the page says
so.
Writes docs/benchmarks/cpu.md, and the same as cpu.json, after every row: a run that is cut leaves
what it has. It takes four hours at most, once peers and models are there; how long about it says
when it starts, and a round that would not fit is left out. --quick: one round of fewer tokens in
ten minutes; it shows that all of it works, not how fast it is. With it or with --rows the page is
build/bench/cpu.md.
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
import quiet
import report
from cpu_engines import THREADS, Ours, Scale, engine_of
from cpu_rows import Weights, all_rows, count_weights, is_same_mode, names_in_turn
from cpu_time import MINUTES_MAX, estimate_min, next_round_min
from random_models import random_model
from roofline import Roofline
from servers import ROOT

OUTPUT = ROOT / "docs" / "benchmarks" / "cpu.md"
SCRATCH = ROOT / "build" / "bench" / "cpu.md"
ATTEMPTS = 3  # at a round in one mode of the machine
LAST_ROW_MINUTES = 3  # before the end of the time, no row is begun any more


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


def measure_row(row, number, ours, bench):
    """Once; in later rounds again while the machine changes its mode between the engines."""
    for attempt in range(1 if number == 1 else ATTEMPTS):
        names = measure_engines(row, number, f"{row.name} {number}.{attempt}", ours, bench)
        last = [bench.results.data["rows"][row.name][name]["runs"][-1] for name in names]
        if is_same_mode(*last):
            return
        say(f"round {number}: {row.name:36} the machine changed its mode: not counted")


def measure_engines(row, number, seed, ours, bench):
    """The names of those that were measured."""
    results = bench.results
    entries = results.data["rows"].setdefault(row.name, {})
    measured = []
    for name in names_in_turn(row, results.data["rows"], number, bench.scale.llama_flags):
        entry = entries.setdefault(name, {"runs": []})
        if "not_run" in entry:
            continue
        start = time.monotonic()
        try:
            engine = engine_of(name, ours, bench.peers)
            figures = measure_beside_machine(engine, row, seed, bench)
        except Exception as e:  # any failure: the other engines and rows continue
            entry["not_run"] = " ".join(f"{type(e).__name__}: {e}".split())[-300:]
            say(f"round {number}: {row.name:36} {name:27} not run: {entry['not_run']}")
            continue
        entry["runs"].append(figures)
        entry["seconds"] = time.monotonic() - start
        measured.append(name)
        shown = ", ".join(f"{k} {v:.4g}" for k, v in figures.items() if isinstance(v, float))
        say(f"round {number}: {row.name:36} {name:27} {shown}")
    results.save()
    return measured


def measure_beside_machine(engine, row, seed, bench):
    readings = [measure_machine(bench)]
    figures = engine.measure(row, seed)
    readings.append(measure_machine(bench))
    return figures | {key: max(r[key] for r in readings) for key in readings[0]} | {
        "readings": readings
    }  # fmt: skip


def measure_machine(bench):
    machine = bench.roofline.measure(THREADS)
    bench.results.data["machine"].append(machine)
    return machine


def measure_round(number, groups, bench):
    for (model, dtype), rows in groups.items():
        measure_machine(bench)
        with Ours(random_model(model), dtype, bench.scale) as ours:
            for row in rows:
                if bench.results.minutes() > MINUTES_MAX - LAST_ROW_MINUTES:
                    say(f"round {number}: no time for {row.name}")
                else:
                    measure_row(row, number, ours, bench)


def say_estimate(rows, bench):
    weights = {model: Weights(**w) for model, w in bench.results.data["weights"].items()}
    first, later = estimate_min(rows, weights, measure_machine(bench), bench.scale)
    total = first + later * (bench.scale.rounds - 1)
    say(f"{bench.scale.rounds} rounds take about {total:.0f} minutes, the first {first:.0f}")
    if total > MINUTES_MAX:
        say(f"what would end after {MINUTES_MAX} minutes is left out")


def measure_rounds(groups, bench):
    """As many as fit in the time, by the previous round's times of the remaining engines."""
    results = bench.results
    facts, rows = results.data["facts"], [row for group in groups.values() for row in group]
    say_estimate(rows, bench)
    for number in range(1, bench.scale.rounds + 1):
        end = results.minutes() + next_round_min(rows, results.data["rows"])
        if number > 1 and end > MINUTES_MAX:
            say(f"no time for round {number}: it would end after {end:.0f} minutes")
            facts["rounds_left_out"] = bench.scale.rounds - number + 1
            break
        measure_round(number, groups, bench)
        facts["rounds"] = number
    results.save()


def is_quiet(busy_ok):
    """(whether the run may start, a message about it)"""
    cores = quiet.busy_cores()
    if cores <= quiet.BUSY_CORES_MAX:
        return True, f"{cores:.2f} cores busy before the run"
    return busy_ok, f"{cores:.1f} cores were busy with other work before the run"


def find_peers(groups):
    """Their folder, or why there is none; and the models, so that no row has to wait for them."""
    try:
        wanted = [key for key, rows in groups.items() if any(row.has_peers for row in rows)]
        if not wanted:
            raise RuntimeError("no row has peers")
        found = peers.environment()
        for model, dtype in wanted:
            peers.LlamaCpp(found).gguf(random_model(model), dtype)
        return found
    except (RuntimeError, OSError, subprocess.SubprocessError) as e:
        return e


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="bench cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round of fewer tokens")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", metavar="REGEX", default="", help="those whose names match")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, no more")
    parser.add_argument("--busy-ok", action="store_true", help="also where something else runs")
    parser.add_argument("--output", type=pathlib.Path, help="the page; the JSON lies beside it")
    return parser.parse_args()


def main():
    args = parse_arguments()
    rows = [row for row in all_rows() if re.search(args.rows, row.name)]
    if args.list or not rows:
        print(*(row.name for row in rows or all_rows()), sep="\n")
        return 0 if rows else f"bench cpu: no row matches {args.rows!r}; the rows are above"
    may_start, busy_text = is_quiet(args.busy_ok)
    if not may_start:
        return f"bench cpu: {busy_text}; end it (see top), or go on with --busy-ok"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended, too
    scale = Scale(args.quick, args.rounds)
    whole = not args.quick and len(rows) == len(all_rows())
    groups = {}
    for row in rows:
        groups.setdefault((row.model, row.dtype), []).append(row)
    found = find_peers(groups)
    facts = {
        "command": report.command("tools/bench cpu", args.output), "date": report.today(),
        "machine": f"{report.machine()}; {busy_text}",
        "rounds": 1, "threads": THREADS, "decoded": scale.decoded,
        "versions": f"{report.our_version()}; {peers.versions(found)}",
    }  # fmt: skip
    results = Results(facts, args.output or (OUTPUT if whole else SCRATCH))
    for model in {model for model, _ in groups}:
        results.data["weights"][model] = vars(count_weights(random_model(model)))
    with Roofline() as roofline:
        bench = argparse.Namespace(scale=scale, peers=found, roofline=roofline, results=results)
        measure_rounds(groups, bench)
    print(results.output.read_text())
    say(f"written: {results.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

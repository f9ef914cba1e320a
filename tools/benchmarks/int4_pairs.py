"""Pairs of measurements of `--dtype int4`, engines in turns, every other pair the other way round:

- beside llama.cpp's Q4_0 (llama-quantize, its defaults) of the same random weights, at 1, 8 and 32
  streams: ours at the socket while all streams decode, llama.cpp by llama-batched-bench, in the way
  that a first round shows to be its fastest. One stream also beside what the bytes of a step and
  the read bandwidth allow, read right before and behind each run;
- 32 streams over 8 random adapters (rank 16, all linear layers), beside 32 of the base alone, on
  one server.

    .venv/bin/python tools/benchmarks/int4_pairs.py [--pairs 9] [--streams 1,8,32] [--tokens 64]
        [--adapters 8] [--rank 16] [--model tinyllama-1.1b] [--busy-ok]

`--streams ""` leaves llama.cpp out, `--adapters 0` the adapters. tools/benchmarks/cpu-peers makes
llama.cpp, tools/dev/make-checkpoint the weights (2.2 GB). Exit code 1 where a target is missed.
About half an hour on two cores. --quick: one pair of few tokens, to see that it works.
"""

import argparse
import pathlib
import statistics
import sys
import time

import peers
import quiet
import report
from cpu_engines import THREADS, Llama, Ours, random_prompts
from cpu_rows import (
    LLAMA_FLAGS, PROMPT, Row, count_weights, fastest_way, is_same_mode, llama_ways,
)  # fmt: skip
from random_adapters import write_adapters
from random_models import random_model
from roofline import Roofline
from servers import LmtpServe
from streams import run_lmtp

DTYPE = "int4"
WANTED = {1: 1.0, 8: 1.5, 32: 2.0}  # ratios to llama.cpp
BANDWIDTH_WANTED = 0.85  # of one stream
ADAPTERS_WANTED = 0.8  # of the base's throughput
ADAPTER_STREAMS = 32
ATTEMPTS = 3  # at a pair in one mode of the machine
START_STEPS = 64  # until all streams over adapters decode, prompts and adapters' loads before them


def say(text):
    print(text, file=sys.stderr, flush=True)


class Scale:
    def __init__(self, tokens, quick):
        self.decoded = 24 if quick else tokens
        self.repetitions = 1
        self.llama_flags = () if quick else LLAMA_FLAGS


def in_turns(pairs, measure_first, measure_second, machine=None):
    """[(first, second)], every other pair the other way round. `machine()` reads what it allows; a
    pair that finds it in two modes is taken again."""
    found = []
    for i in range(ATTEMPTS * pairs if machine else pairs):
        readings = [machine()] if machine else []
        measured = {}
        for name in ("first", "second") if i % 2 == 0 else ("second", "first"):
            measured[name] = (measure_first if name == "first" else measure_second)(i)
            readings += [machine()] if machine else []
        first, second = measured["first"], measured["second"]
        counts = is_same_mode({"readings": readings})
        found += [(first, second)] if counts else []
        say(f"  pair {i + 1}: {first:.2f} and {second:.2f} tokens/s, {first / second:.3f}x"
            + ("" if counts else ", not counted: the machine changed its mode"))  # fmt: skip
        if len(found) == pairs:
            break
    return found


def describe(pairs):
    """The cells of a table: medians of both, of the ratios, and the ratios."""
    ratios = sorted(a / b for a, b in pairs)
    return [
        *(f"{statistics.median(side):.1f}" for side in zip(*pairs)),
        f"{statistics.median(ratios):.3f}x", " ".join(f"{r:.3f}" for r in ratios),
    ], statistics.median(ratios)  # fmt: skip


def choose_way(row, ours, found, flags):
    """llama.cpp's fastest way, each flag tried on the fastest so far."""
    entries = {}
    for name in llama_ways(entries, 1, flags, None):
        figures = Llama(name, found, ours).measure(row, 0)
        entries[name] = {"runs": [figures]}
        say(f"  {name}: {figures['tokens_per_s']:.2f} tokens/s")
    return fastest_way(entries)


def beside_llama(args, streams, ours, found, roofline):
    """(the row of the table, whether it is met)"""
    say(f"{streams} streams beside llama.cpp")
    row = Row("decode", args.model, DTYPE, streams)
    way = choose_way(row, ours, found, ours.scale.llama_flags)
    peer, weights, shares = Llama(way, found, ours), count_weights(ours.folder), []

    def measure_ours(i):
        if streams > 1:
            return ours.measure(row, f"{streams} {i}")["tokens_per_s"]
        before = roofline.measure(THREADS)["read_bytes_per_s"]
        rate = ours.measure(row, f"{streams} {i}")["tokens_per_s"]
        read = max(before, roofline.measure(THREADS)["read_bytes_per_s"])
        shares.append(rate * weights.step_bytes(DTYPE) / read)
        return rate

    pairs = in_turns(
        args.pairs, measure_ours, lambda i: peer.measure(row, i)["tokens_per_s"],
        lambda: roofline.measure(THREADS),
    )  # fmt: skip
    cells, ratio = describe(pairs)
    is_met = ratio >= WANTED.get(streams, 1.0)
    wanted, share = f"{WANTED.get(streams, 1.0):g}x", "–"
    if shares:
        reached = statistics.median(shares)
        is_met &= reached >= BANDWIDTH_WANTED
        wanted += f", {BANDWIDTH_WANTED:.0%}"
        share = f"{reached:.0%} ({min(shares):.0%}–{max(shares):.0%})"
    name = f"{streams} streams, {way}"
    return [name, *cells[:3], share, wanted, "yes" if is_met else "**no**", cells[3]], is_met


def over_adapters(args, folder, roofline):
    """The same, over adapters beside the base alone."""
    say(f"{ADAPTER_STREAMS} streams over {args.adapters} adapters beside the base")
    out = folder.with_name(f"{folder.name}-adapters-{args.rank}")
    adapters = write_adapters(folder, out, args.adapters, args.rank)
    modules = [f"{a.name}={a}" for a in adapters]
    ours = Ours(folder, DTYPE, Scale(args.tokens, args.quick))
    options = ["--threads", THREADS, "--dtype", DTYPE, "--lora-modules", *modules]
    with LmtpServe(folder, *options) as server:
        def run(models, seed):
            prompts = random_prompts(ours.vocab, ADAPTER_STREAMS, PROMPT, seed)
            more = [{"model": models[i % len(models)]} for i in range(ADAPTER_STREAMS)]
            count = ours.scale.decoded + START_STEPS
            return run_lmtp(server.endpoint, prompts, count, ours.eos, more=more)

        over, base = [a.name for a in adapters], [str(folder)]
        run(over, "warm")  # they lie in the cache's blocks then
        pairs = in_turns(
            args.pairs,
            lambda i: run(over, f"lora {i}").steady_tokens_per_s(),
            lambda i: run(base, f"base {i}").steady_tokens_per_s(),
            lambda: roofline.measure(THREADS),
        )
    cells, ratio = describe(pairs)
    is_met = ratio >= ADAPTERS_WANTED
    name = f"{ADAPTER_STREAMS} streams over {args.adapters} adapters of rank {args.rank}, the base"
    return [name, *cells[:3], "–", f"{ADAPTERS_WANTED:g}x", "yes" if is_met else "**no**",
            cells[3]], is_met  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=64, help="that a stream decodes, about")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--model", default="tinyllama-1.1b", help="a shape of make-checkpoint")
    parser.add_argument("--folder", type=pathlib.Path, help="a model's, in the place of --model")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--busy-ok", action="store_true", help="also where something else runs")
    args = parser.parse_args()
    args.pairs = 1 if args.quick else args.pairs
    return args


def main():
    args = parse_arguments()
    busy = quiet.busy_cores()
    if busy > quiet.BUSY_CORES_MAX and not args.busy_ok:
        return f"int4_pairs: {busy:.1f} cores are busy; end that (see top), or give --busy-ok"
    start = time.monotonic()
    streams = [int(n) for n in args.streams.split(",") if n]
    folder = args.folder or random_model(args.model)
    print(f"{folder.name} on {report.machine()}; {busy:.2f} cores busy before; {args.pairs} pairs; "
          f"{report.our_version()}\n", flush=True)  # fmt: skip
    rows = []
    with Roofline() as roofline:
        if streams:
            found = peers.environment()
            with Ours(folder, DTYPE, Scale(args.tokens, args.quick)) as ours:
                rows += [beside_llama(args, n, ours, found, roofline) for n in streams]
        if args.adapters:
            rows.append(over_adapters(args, folder, roofline))
    head = ("what, beside what", "lmtp-serve, tokens/s", "the other", "ratio", "of the bandwidth",
            "wanted", "met", "ratios")  # fmt: skip
    print(report.table(head, [cells for cells, _ in rows], "lrrrrrll"))
    say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return 0 if all(met for _, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Correctness, figures and endurance of lmtp-serve on a GPU: docs/gpu_check.md.

    tools/gpu-check [BUILD] [--quick] --output FOLDER
    tools/gpu-check [BUILD] --part correct|bench|soak --output FOLDER
    tools/gpu-check [BUILD] --pack FOLDER

BUILD is a build folder with CUDA, or build/ of a packed one. Needs Python, torch and aiohttp;
compares with transformers where that is there. Exit code 1 where something failed or was missed, 2
where nothing could be run.
"""

import argparse
import pathlib
import signal
import sys
import time

import gpu_bench
import gpu_correct
import gpu_pack
import gpu_soak
import report
from gpu_report import PARTS, Report
from gpu_run import Run, query_device, set_environment
from servers import ROOT

RUNS = {"correct": gpu_correct.run, "bench": gpu_bench.run, "soak": gpu_soak.run}
SECONDS, QUICK_SECONDS = 580, 230  # of all parts; with the grace, ten minutes and four
SHARES = {"correct": 0.35, "bench": 0.7}  # of the time left, where others come next
GRACE_SECONDS = 15


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=default_build())
    parser.add_argument("--part", choices=PARTS, action="append", help="(all, one after another)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu-check-report"),
                        help="folder of report.md, report.json and log.txt (%(default)s)")
    parser.add_argument("--device", default="cuda:0", help="cuda:N; cpu is a dry run (%(default)s)")
    parser.add_argument("--seconds", type=int,
                        help=f"that all parts may take ({SECONDS}, with --quick {QUICK_SECONDS})")
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FOLDER",
                        help="copy what another machine needs there, and say its size")  # fmt: skip
    return parser.parse_args()


def default_build():
    packed = ROOT / "build"
    return packed if (packed / "bin").is_dir() else packed / "release"


def revision():
    """Of the tree, or of what was packed."""
    packed = ROOT / gpu_pack.REVISION_FILE
    return packed.read_text().strip() if packed.exists() else report.revision()


class PartOver(Exception):
    """Of no kind that a part waits for: asyncio's own TimeoutError is the built-in one."""


def end_of_time(*_):
    raise PartOver("the time of this part is over")


def run_part(args, part, device, seconds):
    facts = {
        "command": report.command("tools/gpu-check", args.output),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "device": device,
        "host": report.machine(),
        "revision": revision(),
    }
    outcome = Report(args.output, part, facts)
    run = Run(args.build.resolve(), args.device, seconds, args.quick, outcome)
    started = time.monotonic()
    # What hangs is a failed row as well, and the rows before it stand.
    signal.signal(signal.SIGALRM, end_of_time)
    signal.alarm(seconds + GRACE_SECONDS)
    try:
        RUNS[part](run)
    finally:
        signal.alarm(0)
        run.peers.close()
    outcome.facts[part]["took"] = f"{time.monotonic() - started:.0f} s"
    outcome.write()
    return outcome.has_failures()


def run_parts(args, device):
    """Those that failed. The last one has all the time that is left."""
    parts = [part for part in PARTS if part in (args.part or PARTS)]
    seconds = args.seconds or (QUICK_SECONDS if args.quick else SECONDS)
    end = time.monotonic() + seconds
    failed = []
    for part in parts:
        left = end - time.monotonic()
        share = 1.0 if part == parts[-1] else SHARES[part]
        if run_part(args, part, device, max(1, round(share * left))):
            failed.append(part)
    return failed


def main():
    args = parse_arguments()
    if not (args.build / "bin").is_dir():
        sys.exit(f"gpu-check: {args.build} is no build folder: it has no bin/")
    if args.pack:
        return gpu_pack.pack(args.build.resolve(), args.pack)
    try:
        is_dry = args.device == "cpu"
        device = "cpu" if is_dry else query_device(args.device, "name,memory.total,driver_version")
    except RuntimeError as error:
        print(f"gpu-check: no device: {error}\n--device cpu is a dry run", file=sys.stderr)
        return 2
    set_environment(args.build.resolve())
    failed = run_parts(args, device)
    print(f"{args.output / 'report.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

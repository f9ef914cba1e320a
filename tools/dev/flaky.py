#!/usr/bin/env python3
"""Runs the tests that a change touches many times, with more of them at once than there are cores:
one that fails at times fails here.

    tools/dev/flaky.py [--times 20] [--jobs N] [--preset P] [--minutes 60] [--base REF | NAME...]

NAME is an entry of ctest. Without one, the entries are those that tools/dev/check would choose for
the files that differ from REF (origin/main, else the commit before), whether or not that is
committed. They run in every preset that is built, and build nothing.

The exit code is 1 where one has failed, which is named with the file of what it printed, and where
the minutes were not enough.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

import check

ROOT = pathlib.Path(__file__).resolve().parents[2]


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else None


def changed_files(base):
    bases = [base] if base else ["origin/main", "HEAD~1"]
    fork = next(filter(None, (git("merge-base", base, "HEAD") for base in bases)), None)
    if not fork:
        sys.exit(f"flaky: {bases[0]} is no commit that this one comes from: give --base")
    files = git("diff", "--name-only", *fork) + git("ls-files", "--others", "--exclude-standard")
    return sorted({pathlib.Path(file) for file in files})


class Runs:
    def __init__(self, deadline):
        self.deadline = deadline
        self.folder = ROOT / "build" / "flaky"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seconds = collections.defaultdict(list)  # (preset, name): those of the processor
        self.failures = collections.defaultdict(list)  # ... files

    def run(self, preset, name, number):
        if time.monotonic() > self.deadline:
            return
        path = self.folder / f"{preset}.{name}.{number}.log"
        with path.open("wb") as log:
            command = ["ctest", "--preset", preset, "-R", f"^{re.escape(name)}$"]
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds[preset, name].append(usage.ru_utime + usage.ru_stime)
        if process.returncode == 0:
            return path.unlink()
        self.failures[preset, name].append(path)
        print(f"failed: {name} ({preset}): {path.relative_to(ROOT)}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=3 * len(os.sched_getaffinity(0)))
    parser.add_argument("--preset", action="append")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--base", metavar="REF")
    return parser.parse_args()


def main():
    options = parse_arguments()
    built = [path.parent.name for path in sorted(ROOT.glob("build/*/CTestTestfile.cmake"))]
    files = [] if options.names else changed_files(options.base)
    wanted = []
    for preset in options.preset or built:
        entries = check.read_entries(ROOT / "build" / preset)
        names = [n for n in options.names if n in entries] or check.select(files, entries)
        wanted += [(preset, name) for name in names]
    missing = set(options.names) - {name for _, name in wanted}
    if missing or not wanted:
        sys.exit(f"flaky: no test {', '.join(sorted(missing)) or 'is touched'} in {built}")
    runs = Runs(time.monotonic() + 60 * options.minutes)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.times):
            for preset, name in wanted:
                pool.submit(runs.run, preset, name, number)
    is_whole = True
    for key in wanted:
        seconds, failed = runs.seconds[key], runs.failures[key]
        is_whole &= len(seconds) == options.times
        print(f"{key[1]} ({key[0]}): {len(failed)} of {len(seconds)} failed, "
              f"{sum(seconds) / max(1, len(seconds)):.1f} s of the processor each")  # fmt: skip
    if not is_whole:
        print(f"{options.minutes:g} minutes were not enough for {options.times} times: --minutes")
    return int(any(runs.failures.values()) or not is_whole)


if __name__ == "__main__":
    sys.exit(main())

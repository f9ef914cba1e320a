#!/usr/bin/env python3
"""What tools/test does when the machine is set up: builds all presets, runs their tests, and says
where the time went.

Everything builds before the first test runs, and what takes seconds (tidy, format) is looked at
first. An entry that failed by an assertion is run once more: where it passes, that is a finding,
which is printed and is no failure. One that crashed, was reported by a sanitizer or took too long
is not.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COSTS = ROOT / "tests" / "costs.txt"
PRESETS = ("tsan", "asan", "release")  # the shortest first, so that its mistakes are seen early
SLOTS_OF_CORE = 4  # cmake/LmtpModule.cmake says how many of them an entry takes
NUM_LONGEST = 20
MIN_COST_S = 2.0  # what costs less varies by more than a factor of two
# "Tracer caught signal 11 ... LeakSanitizer has encountered a fatal error" is no report: clang 14's
# looks for leaks from a process of its own, which may end while a thread does.
CRASH = re.compile(
    r"Sanitizer(?! has encountered a fatal error| does not work under ptrace)|"
    r"runtime error: |: check failed: |terminated by signal|core dumped|"
    r"Fatal Python error|assert -\d+ == 0|TimeoutExpired|TimeoutError|libFuzzer")  # fmt: skip


class Part:
    """A named stretch of the run: minutes of the processor, of all children, and of wall."""

    done = []

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        print(f"\n== {self.name} ==", flush=True)
        self.begin = (time.monotonic(), children_cpu_s())

    def __exit__(self, *_):
        self.wall_s = time.monotonic() - self.begin[0]
        self.cpu_s = children_cpu_s() - self.begin[1]
        Part.done.append(self)


def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(preset, options):
    settings = {"LMTP_BUILD_TESTS": True, "LMTP_LONG_TESTS": options.long,
                "LMTP_ALL_TESTS": options.all}  # fmt: skip
    flags = [f"-D{name}={'ON' if value else 'OFF'}" for name, value in settings.items()]
    if preset == "release" and not options.long:
        flags.append("-DCMAKE_CUDA_ARCHITECTURES=90")  # one will do, where CUDA is compiled
    if preset != "tsan":
        flags.append("-DLMTP_TORCH=ON")  # what it is for is not to be skipped unseen
    command = ["cmake", "--build", "--preset", preset, "-j", str(os.cpu_count())]
    commands = [["cmake", "--preset", preset, *flags], command]
    if options.long and (ROOT / "build" / preset / "bin" / "gpu-bench").exists():
        # Links as nothing else does, and is what a machine with a GPU gets (docs/gpu_check.md).
        commands.append([*command, "--target", "gpu_check_bundle"])
    for command in commands:
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(f"test: {preset} does not build; what the compiler says is above")


class Ctest:
    """One run of ctest: numbers of entries, and those that failed with ctest's reason."""

    def __init__(self, preset, arguments, slots):
        command = ["ctest", "--preset", preset, "-j", str(slots), *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        lines = []
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
        process.wait()
        output = "".join(lines)
        total = re.search(r"tests passed, (\d+) tests failed out of (\d+)", output)
        if not total and "No tests were found" not in output:
            sys.exit(f"test: ctest of {preset} gave no result")
        num_failed, self.num_tests = map(int, total.groups()) if total else (0, 0)
        listed = output.rpartition("The following tests FAILED:")[2] if num_failed else ""
        self.failed = dict(re.findall(r"^\s+\d+ - (\S+) \((.+?)\)", listed, re.M))
        if len(self.failed) != num_failed:
            sys.exit(f"test: {num_failed} tests of {preset} failed, and which is not to be read")


def output_of(preset, entry):
    """What a failed entry printed, and what `time` said of its end."""
    log = ROOT / "build" / preset / "Testing" / "Temporary" / "LastTest.log"
    text = log.read_text(errors="replace")
    found = re.search(rf'^\d+/\d+ Testing: {re.escape(entry)}\n.*?" end time', text, re.M | re.S)
    times = ROOT / "build" / preset / "tests" / "times" / entry
    return (found[0] if found else "") + (times.read_text() if times.exists() else "")


def run(preset, arguments, findings):
    """(number of entries, names of those that failed)"""
    first = Ctest(preset, arguments, SLOTS_OF_CORE * os.cpu_count())
    again = [entry for entry, reason in first.failed.items()
             if reason == "Failed" and not CRASH.search(output_of(preset, entry))]  # fmt: skip
    failed = set(first.failed) - set(again)
    if again:
        print(f"\n-- {preset}: once more, since they failed by an assertion: {' '.join(again)}")
        second = Ctest(preset, ["-R", f"^({'|'.join(map(re.escape, again))})$"], os.cpu_count())
        failed |= set(second.failed if second.num_tests == len(again) else again)
        findings += [f"FLAKY: {preset} {entry} failed, and passed when it was run again"
                     for entry in again if entry not in failed]  # fmt: skip
    return first.num_tests, sorted(failed)


def times_of(preset, since):
    """Entry -> (seconds of the processor, of wall), of what ran since then."""
    times = {}
    for path in sorted((ROOT / "build" / preset / "tests" / "times").glob("*")):
        fields = path.read_text().split("\n")[-2:][0].split() if path.stat().st_size else []
        if path.stat().st_mtime >= since and len(fields) == 3:
            times[path.name] = (float(fields[0]) + float(fields[1]), float(fields[2]))
    return times


def read_costs():
    """(preset, entry) -> seconds of the processor that are recorded."""
    rows = [line.split() for line in COSTS.read_text().splitlines() if line[:1] not in ("", "#")]
    return {(row[0], row[1]): float(row[2]) for row in rows}


def record_costs(times):
    lines = COSTS.read_text().splitlines()
    rows = {tuple(line.split()[:2]): line for line in lines if not line.startswith("#")}
    for (preset, entry), (cpu, wall) in times.items():
        slots = min(8, max(1, -int(-SLOTS_OF_CORE * cpu // max(wall, 0.01))))
        rows[preset, entry] = f"{preset} {entry} {cpu:.1f} {slots}"
    comments = [line for line in lines if line.startswith("#")]
    COSTS.write_text("\n".join([*comments, *(rows[key] for key in sorted(rows))]) + "\n")


def dear(times):
    """Findings: entries that take more than twice the processor time that is recorded of them,
    where the machine's own speed, the median of these ratios, is taken out."""
    costs = read_costs()
    ratios = {key: cpu / costs[key] for key, (cpu, _) in times.items()
              if costs.get(key, 0) >= MIN_COST_S}  # fmt: skip
    speed = sorted(ratios.values())[len(ratios) // 2] if len(ratios) >= 20 else 1.0
    return [f"DEAR: {preset} {entry} took {times[preset, entry][0]:.1f} s of the processor, "
            f"{ratio / speed:.1f} times what tests/costs.txt has"
            for (preset, entry), ratio in sorted(ratios.items()) if ratio > 2 * speed]  # fmt: skip


def report(times, findings):
    print(f"\nThe {NUM_LONGEST} entries that took most of the processor, in seconds (of wall):")
    for (preset, entry), (cpu, wall) in sorted(times.items(), key=lambda item: -item[1][0])[
        :NUM_LONGEST
    ]:
        print(f"  {cpu:7.1f} ({wall:6.1f})  {preset} {entry}")
    print("\nMinutes of the processor (of wall) by part:")
    for part in Part.done:
        print(f"  {part.cpu_s / 60:6.1f} ({part.wall_s / 60:5.1f})  {part.name}")
    cpu_s, wall_s = (sum(getattr(part, name) for part in Part.done) for name in ("cpu_s", "wall_s"))
    print(f"  {cpu_s / 60:6.1f} ({wall_s / 60:5.1f})  all")
    for finding in findings:
        print(f"\nFINDING {finding}")


def main():
    parser = argparse.ArgumentParser(prog="tools/test")
    for name in ("all", "long", "quick", "record-costs"):
        parser.add_argument(f"--{name}", action="store_true")
    options, arguments = parser.parse_known_args()
    since = time.time()
    presets = ("release",) if options.quick else PRESETS
    with Part("setup"):
        if subprocess.run([ROOT / "tools" / "setup", "--tests"]).returncode:
            sys.exit(1)
    with Part("tidy and format"):
        for command in (["tools/dev/tidy.py"], ["tools/dev/format.py", "--check"]):
            if subprocess.run([".venv/bin/python", *command], cwd=ROOT).returncode:
                sys.exit("test: what to mend is above")
    for preset in presets:
        with Part(f"{preset}: build"):
            build(preset, options)
    num_tests, failed, findings = 0, [], []
    for preset in presets:
        left_out = ["long"] * (not options.long) + ["release_only"] * (preset != "release")
        labels = ["-LE", f"^({'|'.join(left_out)})$"] if left_out else []
        with Part(f"{preset}: tests"):
            count, bad = run(preset, [*labels, *arguments], findings)
        num_tests += count
        failed += [f"{preset} {entry}" for entry in bad]
    times = {(preset, entry): seconds for preset in presets
             for entry, seconds in times_of(preset, since).items()}  # fmt: skip
    if options.record_costs:
        record_costs(times)
    report(times, findings + dear(times))
    for entry in failed:
        print(f"\nFAILED {entry}")
    percent = 100 * (num_tests - len(failed)) // max(num_tests, 1)
    print(f"\n{', '.join(presets)}: {percent}% tests passed, {len(failed)} tests failed "
          f"out of {num_tests}")  # fmt: skip
    return 1 if failed or not num_tests else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Does kernels-bench show a kernel that has become slower? Builds it with linears, or attention,
that take twice their time (-DLMTP_SLOWED), and compares each row's share of what the machine
allows with that of build/release.

    .venv/bin/python tools/benchmarks/slowed.py [--filter REGEX]

A row of what was slowed must have less than two thirds of its share, each other one more: exit code
1 if one has not. Takes some ten minutes, half of them for the builds.
"""

import argparse
import json
import subprocess
import sys

from servers import ROOT

KINDS = ("linear", "attention")
ROWS = "(linear|attention)/(f32|bf16)/.*(rows:(1|8|32)/n:4096|before:(100|2000)/head:(48|64))/"
LIMIT = 2 / 3


def build(kind):
    folder = ROOT / "build" / f"slowed-{kind}"
    configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DLMTP_CUDA=OFF", "-DLMTP_BUILD_TESTS=OFF", f"-DLMTP_SLOWED={kind}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", folder, "--target", "kernels-bench"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def shares(folder, pattern):
    command = [folder / "bin" / "kernels-bench", f"--benchmark_filter={pattern}"]
    done = subprocess.run(
        [*command, "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, text=True
    )
    return {row["name"]: row["of_least"] for row in json.loads(done.stdout)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--filter", default=ROWS, help="of the rows")
    pattern = parser.parse_args().filter
    wrong = 0
    for kind in KINDS:
        folder = build(kind)
        slowed, normal = shares(folder, pattern), shares(ROOT / "build" / "release", pattern)
        for name, share in normal.items():
            ratio = slowed[name] / share
            is_right = (ratio < LIMIT) == name.startswith(kind)
            wrong += not is_right
            print(f"{kind} slowed: {name:60} {share:.2f} -> {slowed[name]:.2f}, {ratio:.2f}x",
                  "" if is_right else "WRONG", flush=True)  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Facts about the machine and the programs, and Markdown tables."""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

from servers import ROOT, bin_dir


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    names = [row.split(":", 1)[1].strip() for row in info.splitlines() if "model name" in row]
    flags = next((row for row in info.splitlines() if row.startswith("flags")), "").split()
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{names[0] if names else platform.machine()} ({', '.join(wide) or 'no wide vectors'}), "
        f"{cores} cores, {memory:.0f} GiB; load before the run {os.getloadavg()[0]:.1f}"
    )


def first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[0]


def revision():
    """The commit, marked where tracked files differ from it."""
    try:
        return first_line("git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=10")
    except (OSError, subprocess.CalledProcessError):
        return "unknown revision"


def versions():
    reference = first_line(ROOT / "tools" / "benchmarks" / "reference-server", "--python")
    code = (
        "import lmql.version, torch, transformers;"
        "print(f'lmql {lmql.version.version} serve-model, transformers {transformers.__version__}, "
        "torch {torch.__version__.split(chr(43))[0]}')"
    )
    return f"{our_version()}; {first_line(reference, '-c', code)}"


def our_version():
    return f"{first_line(bin_dir() / 'lmtp-serve', '--version')} at {revision()}"


def command(program, output, folder=None):
    """What was called; not the folders that are the caller's own: `output` is a file's name, and
    `folder` BIN."""
    shown = {output: output and output.name, folder: "BIN"}
    return " ".join([program, *(shown.get(pathlib.Path(word), word) for word in sys.argv[1:])])


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def with_quartiles(values, form=".2f", unit=""):
    """The median of paired figures, their quartiles, and how many they are."""
    text = f"{statistics.median(values):{form}}{unit}"
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        text += f" ({low:{form}}–{high:{form}} of {len(values)})"
    return text


def table(head, rows, align=""):
    """`align`: one of l and r for each column."""
    marks = ["---:" if a == "r" else "---" for a in align.ljust(len(head), "r")]
    lines = [head, marks, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)

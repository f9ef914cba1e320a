"""Finds comments that are not plain English, for tidy.py: fragments that begin with "Of", "behind"
for "after", and "as well" for the line above.

Files that had such comments when this rule came may have as many as wording.txt says, and no more:
a line that is new is written plainly, and who moves a file mends its comments.

    tools/dev/wording.py    writes wording.txt anew, where files have fewer of them now
"""

import functools
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = ROOT / "tools/dev/wording.txt"
UNPLAIN = re.compile(r"^\s*// Of |//.*\bbehind\b|// as well\b")


@functools.cache
def known():
    """How many each file may have."""
    rows = (line.split() for line in KNOWN.read_text().splitlines() if not line.startswith("#"))
    return {path: int(number) for path, number in rows}


def lines_of(text):
    return [n for n, line in enumerate(text.splitlines(), 1) if UNPLAIN.search(line)]


def findings(path, text, allowed):
    """(line, message) in the C++ file at `path`."""
    lines = lines_of(text)
    if len(lines) > allowed.get(path, 0):
        where = ", ".join(map(str, lines[:9]))
        yield (
            lines[-1],
            f"write it plainly ('Of ...', 'behind', 'as well'): lines {where}; "
            f"tools/dev/wording.txt allows {allowed.get(path, 0)} here",
        )


def main():
    command = ["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()
    before = known() if KNOWN.exists() else None
    rows = []
    for name in sorted(names):
        number = len(lines_of((ROOT / name).read_text()))
        if before is not None:
            number = min(number, before.get(name, 0))
        if number:
            rows.append(f"{name} {number}\n")
    head = "# FILE, and how many comments it may have that tools/dev/wording.py finds.\n"
    KNOWN.write_text(head + "".join(rows))


if __name__ == "__main__":
    main()

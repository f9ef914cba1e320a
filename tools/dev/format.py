#!/usr/bin/env python3
"""clang-format, the one of tools/requirements.txt, over the project's C++ and CUDA files.

    tools/dev/format.py            rewrites them
    tools/dev/format.py --check    names those that it would rewrite; exit code 1 if any
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLANG_FORMAT = ROOT / ".venv" / "bin" / "clang-format"
FOLDERS = ("include", "src", "kernels", "tests", "tools")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def source_files():
    files = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES]
    return sorted(p.relative_to(ROOT) for p in files)


def differing(files):
    """Those that clang-format would write otherwise; one process looks at all of them."""
    command = [CLANG_FORMAT, "--dry-run", "--ferror-limit=1", *files]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    named = set(re.findall(r"^(\S+?):\d+:\d+: warning:", result.stderr, re.MULTILINE))
    return [path for path in files if str(path) in named]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not CLANG_FORMAT.exists():
        sys.exit("format: clang-format is missing: run tools/setup --tests")
    files = source_files()
    if not files:
        print("format: nothing to format is a mistake", file=sys.stderr)
        return 1
    wrong = differing(files)
    for path in wrong:
        if args.check:
            print(f"{path}: not formatted; run tools/dev/format.py")
        else:
            subprocess.run([CLANG_FORMAT, "-i", path], cwd=ROOT, check=True)
            print(f"{path}: formatted")
    print(f"format: {len(files)} files, {len(wrong)} differed")
    return 1 if args.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())

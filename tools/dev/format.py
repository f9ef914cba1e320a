#!/usr/bin/env python3
"""clang-format, the one of tools/requirements.txt, over the project's C++ and CUDA files.

    tools/dev/format.py            rewrites them
    tools/dev/format.py --check    names those that it would rewrite; exit code 1 if any
"""

import argparse
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


def is_formatted(path):
    command = [CLANG_FORMAT, path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return result.stdout == (ROOT / path).read_bytes()


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
    wrong = [path for path in files if not is_formatted(path)]
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

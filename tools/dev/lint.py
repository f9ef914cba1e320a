#!/usr/bin/env python3
"""clang-tidy (.clang-tidy) over the project's C++ files, in parallel.

    tools/dev/lint.py --build build/release             every file that the build compiles
    tools/dev/lint.py --build build/release src/cache   only files below these folders

A file that passed is not looked at again until it, a header of the project, .clang-tidy or its
compile command changes: BUILD/lint remembers. clang-tidy is the one of tools/requirements.txt. Exit
code 1 on a finding, 77 where it is missing.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLANG_TIDY = ROOT / ".venv" / "bin" / "clang-tidy"
HEADER_FOLDERS = ("include", "src", "kernels", "tests", "tools")
TIMEOUT_S = 600


def digest(*parts):
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part if isinstance(part, bytes) else str(part).encode())
        hasher.update(b"\0")
    return hasher.hexdigest()


def headers_digest():
    headers = sorted(p for folder in HEADER_FOLDERS for p in (ROOT / folder).rglob("*.h"))
    return digest(*(p.read_bytes() for p in headers))


def entries_of(build, folders):
    """The compile commands of our own C++ files; the last one of a file stands for it."""
    database = json.loads((build / "compile_commands.json").read_text())
    entries = {}
    for entry in database:
        path = Path(entry["file"])
        if path.suffix != ".cpp" or not path.is_relative_to(ROOT) or path.is_relative_to(build):
            continue
        relative = path.relative_to(ROOT)
        if not folders or any(relative.is_relative_to(folder) for folder in folders):
            entries[relative] = entry
    return entries


def clang_command(entry):
    """The command for clang: without the compiler cache and gcc's own options."""
    command = re.sub(r"^\S*ccache\s+", "", entry["command"])
    gcc_only = (
        r"\s-Wno-(error=)?(maybe-uninitialized|stringop-\w+)|\s-Wno-restrict|\s--param=asan-\S+"
    )
    return re.sub(gcc_only, "", command)


def write_database(folder, entries):
    folder.mkdir(parents=True, exist_ok=True)
    cleaned = [{**entry, "command": clang_command(entry)} for entry in entries.values()]
    (folder / "compile_commands.json").write_text(json.dumps(cleaned))


def lint(path, database):
    command = [CLANG_TIDY, "--quiet", "-p", str(database), str(path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    return result.returncode, result.stdout + (result.stderr if result.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    if not CLANG_TIDY.exists():
        print("lint: clang-tidy is missing: run tools/setup --tests")
        return 77
    build = args.build.resolve()
    entries = entries_of(build, args.folders)
    if not entries:
        print("lint: nothing to check is a mistake", file=sys.stderr)
        return 1
    cache = build / "lint"
    write_database(cache, entries)
    configurations = [ROOT / folder / ".clang-tidy" for folder in (".", "kernels", "tests")]
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout
    common = digest(version, *(p.read_bytes() for p in configurations), headers_digest())
    stamps = {path: cache / digest(common, path, (ROOT / path).read_bytes(), entry["command"])
              for path, entry in entries.items()}
    todo = [path for path in sorted(entries) if not stamps[path].exists()]
    num_bad = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for path, (code, output) in zip(todo, pool.map(lambda p: lint(p, cache), todo)):
            if code == 0:
                stamps[path].touch()
                continue
            num_bad += 1
            print(f"{path}:\n{output}", flush=True)
    print(f"lint: {len(entries)} files, {len(todo)} looked at, {num_bad} with findings")
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())

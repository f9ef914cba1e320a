#!/usr/bin/env python3
"""clang-tidy (.clang-tidy) over the project's C++ files, in parallel.

    tools/dev/lint.py --build build/release             every file that the build compiles
    tools/dev/lint.py --build build/release src/cache   only files below these folders
    tools/dev/lint.py --part tests                      those of the tests; project: all others

Files that the build compiles together (LMTP_UNITY) are looked at together, which takes a third of
the time; those of folders that are named each alone, so that a missing #include is found too.

What passed is not looked at again until its text, that of a header that it includes, its compile
command, .clang-tidy or clang-tidy changes: ${XDG_CACHE_HOME:-~/.cache}/lmtp/lint remembers, for
every clone. clang-tidy is the one of tools/requirements.txt. Exit code 1 on a finding, 77 where it
is missing.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLANG_TIDY = ROOT / ".venv" / "bin" / "clang-tidy"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmtp" / "lint"
KEPT, KEPT_S = 1000, 30 * 86400  # of the units in the cache: how many, how long unused
VERSIONS = 8  # of the headers of a unit, as of several clones and branches
INCLUDE = re.compile(r"^\.+ (.+)\n", re.M)  # what -H prints
TIMEOUT_S = 600


def digest(*parts):
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part if isinstance(part, bytes) else str(part).encode())
        hasher.update(b"\0")
    return hasher.hexdigest()


@functools.cache
def file_digest(name):
    """Of a file, named from the root; None where there is none."""
    try:
        return digest((ROOT / name).read_bytes())
    except OSError:
        return None


class Unit:
    """A unit's entry in the cache: what it includes, as clang-tidy read it last, and with which
    contents of that it passed. Names below the root are relative, so that clones share it."""

    def __init__(self, common, path, entry):
        command = clang_command(entry).replace(f"{ROOT}/", "")
        sources = [name for source in entry["sources"]
                   for name in (source.relative_to(ROOT), source.read_bytes())]  # fmt: skip
        self.entry = entry
        self.file = CACHE / digest(common, path, command, *sources)
        try:
            self.includes, self.passed = json.loads(self.file.read_text())
        except (OSError, ValueError):
            self.includes, self.passed = [], []

    def state(self):
        return digest(*(f"{name} {file_digest(name)}" for name in self.includes))

    def is_known(self):
        known = self.state() in self.passed
        if known:
            os.utime(self.file)
        return known

    def remember(self, includes):
        folder, root = self.entry["directory"], f"{ROOT}/"
        paths = {os.path.normpath(os.path.join(folder, name)) for name in includes}
        self.includes = sorted(path.removeprefix(root) for path in paths)
        self.passed = [*self.passed, self.state()][-VERSIONS:]
        written = self.file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps([self.includes, self.passed]))
        written.replace(self.file)


def forget_old():
    """Bounds the cache; another run may be at it."""
    files = sorted(((path.stat().st_mtime, path) for path in CACHE.iterdir()), reverse=True)
    for i, (used, path) in enumerate(files):
        if i >= KEPT or used < time.time() - KEPT_S:
            path.unlink(missing_ok=True)


def sources_of(entry, build):
    """Our own C++ files that the command compiles; several where CMake lists them in a file."""
    path = Path(entry["file"])
    if path.parent.name == "Unity":
        return [Path(included) for included in re.findall(r'#include "(.+)"', path.read_text())]
    ours = path.suffix == ".cpp" and path.is_relative_to(ROOT) and not path.is_relative_to(build)
    return [path] if ours else []


def entries_of(build, folders):
    """Relative path -> compile command; the last one of a file stands for it."""
    database = json.loads((build / "compile_commands.json").read_text())
    entries = {}
    for entry in database:
        sources = sources_of(entry, build)
        if not folders:
            if sources:
                entries[Path(entry["file"]).relative_to(ROOT)] = {**entry, "sources": sources}
            continue
        for path in sources:
            relative = path.relative_to(ROOT)
            if any(relative.is_relative_to(folder) for folder in folders):
                command = entry["command"].replace(entry["file"], str(path))
                entries[relative] = {"directory": entry["directory"], "file": str(path),
                                     "command": command, "sources": [path]}  # fmt: skip
    return entries


def is_test(entry):
    return entry["sources"][0].is_relative_to(ROOT / "tests")


def clang_command(entry):
    """The command for clang-tidy: without gcc's own options and headers that another compiler has
    read. CMake leaves the compiler cache away."""
    command = re.sub(r"\s-Winvalid-pch( (-Xclang )?-include(-pch)? (-Xclang )?\S+/cmake_pch\.\S+)+",
                     "", entry["command"])  # fmt: skip
    warnings = r"\s-Wno-(error=)?(maybe-uninitialized|restrict|stringop-\w+|subobject-linkage)"
    gcc_only = warnings + r"|\s--param=asan-\S+"
    return re.sub(gcc_only, "", command)


def write_database(folder, entries):
    folder.mkdir(parents=True, exist_ok=True)
    cleaned = [{"directory": entry["directory"], "file": entry["file"],
                "command": clang_command(entry)} for entry in entries.values()]  # fmt: skip
    (folder / "compile_commands.json").write_text(json.dumps(cleaned))


def checks_left_out(entry):
    """Of a list of files, by CMake: it includes .cpp files, and does not lie in their folder, whose
    .clang-tidy it would not find."""
    if entry["sources"] == [Path(entry["file"])]:
        return []
    folder = entry["sources"][0].relative_to(ROOT).parts[0]
    settings = ROOT / folder / ".clang-tidy"
    names = re.findall(r"^  (-\S+),", settings.read_text(), re.M) if settings.exists() else []
    return ["--checks=" + ",".join(["-bugprone-suspicious-include", *names])]


def lint(entry, database):
    """The exit code, findings and what was included."""
    command = [CLANG_TIDY, "--quiet", "--extra-arg=-H", *checks_left_out(entry), "-p",
               str(database), entry["file"]]  # fmt: skip
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    errors = INCLUDE.sub("", result.stderr) if result.returncode else ""
    return result.returncode, result.stdout + errors, INCLUDE.findall(result.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--part", choices=("project", "tests"))
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    if not CLANG_TIDY.exists():
        print("lint: clang-tidy is missing: run tools/setup --tests")
        return 77
    build = args.build.resolve()
    entries = entries_of(build, args.folders)
    if args.part:
        entries = {path: entry for path, entry in entries.items()
                   if is_test(entry) == (args.part == "tests")}  # fmt: skip
    if not entries:
        print("lint: nothing to check is a mistake", file=sys.stderr)
        return 1
    database = build / "lint"
    write_database(database, entries)
    CACHE.mkdir(parents=True, exist_ok=True)
    configurations = [ROOT / folder / ".clang-tidy" for folder in (".", "kernels", "tests")]
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout
    common = digest(version, *(p.read_bytes() for p in configurations))
    units = {path: Unit(common, path, entry) for path, entry in sorted(entries.items())}
    todo = [path for path, unit in units.items() if not unit.is_known()]
    # What takes longest first, so that no processor idles at the end.
    todo.sort(key=lambda path: -sum(s.stat().st_size for s in entries[path]["sources"]))
    num_bad = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda path: lint(entries[path], database), todo)
        for path, (code, output, includes) in zip(todo, results):
            if code == 0:
                units[path].remember(includes)
                continue
            num_bad += 1
            print(f"{path}:\n{output}", flush=True)
    forget_old()
    num_files = sum(len(entry["sources"]) for entry in entries.values())
    print(f"lint: {num_files} files in {len(entries)} units, {len(todo)} units looked at, "
          f"{num_bad} with findings")  # fmt: skip
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())

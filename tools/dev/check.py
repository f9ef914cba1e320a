"""Builds in preset dev what a change needs, and runs its tests.

    tools/dev/check                      of the files that differ from HEAD
    tools/dev/check FILE|MODULE|ENTRY... of these; an entry is one of ctest's

A source file is tested by its module's tests, a file of tests by its own, a public header by those
of each module that depends on its module. What takes less runs first, and what would not be done
within --seconds of the start is not run; it is named. --all runs it, and --e2e the tests over
sockets as well (e2e as a MODULE: those alone). Exit code 1 where something failed or did not build.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import modules

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "dev"
SLOTS = 4 * os.cpu_count()  # as tools/test has it
UNKNOWN_COST_S = 3.0
LEAST_S = 15  # for tests, however long the build took
FILLED = 0.65  # of the processors' time: the last ones run alone, and costs are those of release
PROGRAMS = ("bin/lmtp-serve", "bin/lmtp-client", "bin/lmtp-bench", "bin/lmtp-aicirt")
HEADERS = {".h", ".cuh"}
PYTHON_FOLDERS = ("tests", "tools", "docs/examples")
IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.M)
INCLUDE = re.compile(r'^#include "(?:\S*/)?(\w+)\.h"', re.M)
TOOL = Path(sys.argv[0]).stem  # flaky.py selects by this, too


@dataclass
class Entry:
    name: str
    command: list
    labels: list
    cost: float

    @property
    def program(self):
        """What ninja builds for it; None of a script."""
        path = Path(self.command[0])
        return str(path.relative_to(BUILD)) if path.is_relative_to(BUILD) else None

    def is_of(self, module):
        return module in self.labels or self.name.startswith(f"{module}_")


def costs():
    """Entry -> seconds: of a processor as recorded for all, else of the last runs here."""
    found = {}
    for path, name, seconds in [
        (BUILD / "Testing" / "Temporary" / "CTestCostData.txt", 0, 2),
        (ROOT / "tests" / "costs.txt", 1, 2),
    ]:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [line.split() for line in lines if line and line[0] not in "#-"]
        # Of an entry in several presets the first one's, asan's: never too little.
        found |= {row[name]: float(row[seconds]) for row in reversed(rows) if len(row) > seconds}
    return found


def read_entries(build=None):
    """Those of ctest; it does not say what an entry runs that isn't built."""
    entries, known = {}, costs()
    for path in sorted((build or BUILD).glob("tests/*/CTestTestfile.cmake")):
        for line in path.read_text().splitlines():
            if found := re.match(r"add_test\(\[=\[(.+?)\]=\] (.*)\)$", line):
                command = re.findall(r'"((?:[^"\\]|\\.)*)"', found[2])
                if command[0].endswith("/time"):  # -o FILE -f FORMAT
                    del command[:5]
                cost = known.get(found[1], UNKNOWN_COST_S)
                entries[found[1]] = Entry(found[1], command, [], cost)
            elif found := re.match(r'set_tests_properties\(\[=\[(.+?)\]=\].* LABELS "(.*?)"', line):
                entries[found[1]].labels = found[2].split(";")
    return entries


def changed_files():
    command = ["git", "status", "--porcelain", "--untracked-files=all", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    fields, files = iter(output.split("\0")), []
    for field in fields:
        if field:
            files.append(Path(field[3:]))
            if field[0] == "R":  # its old name
                files.append(Path(next(fields)))
    return files


def dependents(name):
    known = modules.read_modules(ROOT)
    return {name, *(other for other in known if name in modules.reach(known, other))}


def module_of(path):
    """The module that a source file belongs to, with what depends on it where it is public."""
    parts = path.parts
    if parts[0] == "src" and len(parts) > 2:
        return {parts[1]}
    if parts[0] == "tools" and path.suffix in {".cpp", *HEADERS}:
        return {"tools"}
    is_public = parts[:2] in (("include", "lmtp"), ("kernels", "include"))
    if is_public and path.suffix in HEADERS:
        found = dependents("kernels" if parts[0] == "kernels" else parts[2])
        print(f"{TOOL}: {path} is public: {' '.join(sorted(found))}")
        return found
    return {"kernels"} if parts[0] == "kernels" else set()


def with_users(file, folders, suffixes, use):
    """The file and those in the folders that name it by its stem, directly or not."""
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*")
               if path.suffix in suffixes]  # fmt: skip
    used = {path: set(use.findall(path.read_text(encoding="utf-8"))) for path in sources}
    found = new = {ROOT / file}
    while new:
        names = {path.stem for path in new}
        new = {path for path in sources if used[path] & names} - found
        found = found | new
    return found


def entries_of_python(path, entries):
    """Those that run the file or one that imports it, or else one that names it."""
    scripts = {str(user) for user in with_users(path, PYTHON_FOLDERS, {".py"}, IMPORT)}
    if path.stem == "conftest":
        scripts |= {str(script) for script in (ROOT / path).parent.glob("*.py")}
    own = [e for e in entries.values() if scripts & set(e.command)]
    word = re.compile(rf"\b{re.escape(path.stem)}\b")
    return own or [e for e in entries.values() for script in e.command
                   if script.startswith(f"{ROOT}/tests/") and script.endswith(".py")
                   and word.search(Path(script).read_text())]  # fmt: skip


def entries_of_test(path, entries):
    folder = path.parts[1]
    if path.suffix == ".py" or len(path.parts) < 3:
        return entries_of_python(path, entries)
    unit = f"{folder}_{path.stem}"
    if unit in entries:
        return [entries[unit]]
    folders = {folder}
    if folder == "support":
        users = with_users(path, ["tests"], {".cpp", ".h"}, INCLUDE)
        folders = {user.relative_to(ROOT).parts[1] for user in users}
    return [e for e in entries.values() if any(e.is_of(f) for f in folders)]


def entries_for(argument, entries):
    """The entries that test what is given, or None where it is no name that is known."""
    if argument in entries:
        return [entries[argument]]
    given = Path(argument).resolve() if Path(argument).exists() else ROOT / argument
    path = Path(os.path.relpath(given, ROOT))
    if not given.is_file() and len(path.parts) < 3:
        found = [e for e in entries.values() if e.is_of(path.name)]
        return found if found or isinstance(argument, Path) else None
    if path.parts[0] == "tests":
        return entries_of_test(path, entries)
    if path.suffix == ".py":
        return entries_of_python(path, entries)
    wanted = module_of(path)
    return [e for e in entries.values() if any(e.is_of(name) for name in wanted)]


def select(arguments, entries):
    """Name -> entry of all that is given, strings or the Paths of files that differ; says what each
    is tested by."""
    chosen = {}
    for argument in arguments:
        found = entries_for(argument, entries)
        if found is None:
            names = sorted({label for e in entries.values() for label in e.labels})
            sys.exit(f"{TOOL}: {argument} is no file, module or entry of ctest; modules are "
                     f"{' '.join(names)}")  # fmt: skip
        left_out = {"long"} if str(argument).endswith(".py") else {"long", "e2e"}
        if str(argument) not in entries:
            left_out -= {str(argument)}
            found = [e for e in found if not left_out & set(e.labels)]
        what = f"{len(found)} entries" if len(found) > 3 else " ".join(e.name for e in found)
        print(f"{TOOL}: {argument}: {what or 'no test'}")
        chosen |= {e.name: e for e in found}
    return chosen


def configure():
    """Where it never was, or a CMakeLists.txt changed, or files came or went."""
    command = ["ninja", "-C", BUILD, "build.ninja"]
    if not (BUILD / "build.ninja").exists():
        command = ["cmake", "--preset", "dev", "-DLMTP_BUILD_TESTS=ON"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{result.stdout}{result.stderr}check: preset dev cannot be configured")


def build(chosen):
    targets = sorted({e.program for e in chosen if e.program})
    if any(e.program is None and "tidy" not in e.labels for e in chosen):
        targets += PROGRAMS
    if not targets:
        return
    ninja = ["ninja", "-C", str(BUILD), *targets]
    plan = BUILD / "plan.ninja"  # by its own name -n would have CMake run first, and stop there
    if not plan.exists():
        plan.symlink_to("build.ninja")
    steps = subprocess.run([*ninja, "-n", "-f", plan.name], capture_output=True, text=True).stdout
    num_objects = len(re.findall(r"^\[\d+/\d+\] Building ", steps, re.M))
    print(f"check: {num_objects} objects to compile, 5 to 20 s of a processor each", flush=True)
    if subprocess.run(ninja).returncode:
        sys.exit("check: does not build")


def within(chosen, seconds):
    """Those that are done after so many seconds, on all processors; the shortest first."""
    kept, total = [], 0.0
    for entry in sorted(chosen, key=lambda e: e.cost):
        total += entry.cost
        if total <= FILLED * seconds * os.cpu_count():
            kept.append(entry)
    return kept


def main():
    parser = argparse.ArgumentParser(
        prog="tools/dev/check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--e2e", action="store_true")
    parser.add_argument("what", nargs="*", metavar="FILE|MODULE|ENTRY")
    options = parser.parse_args()
    begin = time.monotonic()
    arguments = options.what or changed_files()
    configure()
    entries = read_entries()
    chosen = select(arguments, entries)
    if options.e2e:
        chosen |= {e.name: e for e in entries.values() if e.is_of("e2e")}
    chosen = chosen.values()
    if not chosen:
        print("check: nothing to run")
        return 0
    build(chosen)
    left_s = max(LEAST_S, options.seconds - (time.monotonic() - begin))
    kept = list(chosen) if options.all else within(chosen, left_s)
    pattern = f"^({'|'.join(re.escape(e.name) for e in kept)})$"
    command = ["ctest", "--preset", "dev", "-j", str(SLOTS), "-R", pattern]
    code = subprocess.run(command, cwd=ROOT).returncode if kept else 0
    left = [f"{e.name} ({e.cost:.0f} s)" for e in chosen if e not in kept]
    if left:
        print(f"check: NOT RUN, to be done within {options.seconds} s (--all runs them): "
              f"{', '.join(left)}")  # fmt: skip
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"check: {len(kept)} of {len(chosen)} entries {'FAILED' if code else 'passed'} in "
          f"{time.monotonic() - begin:.0f} s; {usage.ru_utime + usage.ru_stime:.0f} s of the "
          "processor")  # fmt: skip
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The house rules of docs/architecture.md that a program can check.

    tools/dev/tidy.py            checks the repository: FILE:LINE: [rule] message, and exit code 1
    tools/dev/tidy.py --root D   checks another tree (the self-test's)

Rules: deps, private, resolve, library (includes); module, unused, table (what CMake declares:
modules.py); function-length, file-length, columns, trailing-space, pragma-once, preprocessor,
braces (braces.py), launch-shapes (launch_shapes.py), raw-calls (raw_calls.py), sleeps (sleeps.py),
wording (wording.py).
"""

import argparse
import ast
import re
import sys
from pathlib import Path

import braces
import launch_shapes
import modules as cmake
import raw_calls
import sleeps
import wording

MAX_COLUMNS = 100
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# What belongs in the kernels and comes with the compiler, so that no library stands for it.
KERNELS_ONLY = r"(immintrin|x86intrin|cpuid|arm_neon|hwy/|omp\.h)"

# Files in which a backend is chosen by the preprocessor; each says why.
PREPROCESSOR_ALLOWED = {
    "kernels/bench/multiply_add.h": "a loop for each width of vectors, without the kernels",
    "kernels/cpu/worker_pool.cpp": "the pause instruction of a spinning thread",
}

CPP_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
TEXT_SUFFIXES = CPP_SUFFIXES | {".py", ".cmake", ".sh"}
ARCHITECTURE = Path("docs/architecture.md")
FOLDERS = ("include", "src", "kernels", "tests", "tools", "cmake")


class Finding:
    def __init__(self, path, line, rule, message):
        self.path, self.line, self.rule, self.message = path, line, rule, message

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.message}"


def strip_comments_and_strings(text):
    """The same text with comments and literals blanked; line breaks stay where they are."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|(?:u8|[uUL])?R"([^(\s]*)\(.*?\)\1"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL)

    def blank(match):
        kept = re.sub(r"[^\n]", " ", match.group(0))
        return kept if match.group(0)[0] == "/" else '""' + kept[2:]

    return pattern.sub(blank, text)


# --- functions -----------------------------------------------------------------------

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
CONTROL = re.compile(r"\b(if|for|while|switch|do|else|try|catch)\b")


def opens_function(head):
    """Whether a brace that follows `head` (the text since the last ; { or }) begins a function."""
    if ")" not in head or re.search(r"(=|\breturn|,|\()$", head) or CONTROL.match(head):
        return False
    without_templates = re.sub(r"template\s*<[^{}]*?>(?=\s*[\w:~\[])", "", head).strip()
    ends_a_signature = re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head)
    return bool(ends_a_signature) or not SCOPE.match(without_templates)


def initializes_member(head):
    """Whether a brace that follows `head` is the `{` of `A::A(int b) : b_{b} {`, not the body's."""
    return bool(re.search(r"\)\s*(noexcept\s*)?:(?!:)", head) and re.search(r"[\w>]$", head))


def cpp_functions(stripped):
    """(first line of the head, last line) of each outermost function with a body."""
    functions = []
    head_start = first_line = parens = 0
    body_depth = member_depth = 0  # braces open in a function body, in a member's initializer
    for match in re.finditer(r"[{}();]", stripped):
        char, at, end = match.group(0), match.start(), match.end()
        step = {"{": 1, "}": -1}.get(char, 0)
        if body_depth:
            body_depth += step
            if body_depth == 0:
                functions.append((first_line, stripped.count("\n", 0, at) + 1))
                head_start = end
        elif member_depth:
            member_depth += step
        elif char in "()":
            parens += 1 if char == "(" else -1
        elif parens:
            continue  # a default argument or a braced value inside an argument list
        elif char == "{":
            text = re.sub(r"(?m)^[ \t]*#.*$", lambda m: " " * len(m[0]), stripped[head_start:at])
            head = text.strip()
            if initializes_member(head):
                member_depth = 1
            elif opens_function(head):
                begin = head_start + len(text) - len(text.lstrip())
                first_line = stripped.count("\n", 0, begin) + 1
                body_depth = 1
            else:
                head_start = end
        else:
            head_start = end
    return functions


def check_functions(path, text):
    if path.suffix == ".py":
        tree = ast.parse(text)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        spans = [(n.lineno, n.end_lineno) for n in ast.walk(tree) if isinstance(n, kinds)]
    elif path.suffix in CPP_SUFFIXES:
        spans = cpp_functions(strip_comments_and_strings(text))
    else:
        spans = []
    for first, last in spans:
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield Finding(path, first, "function-length",
                          f"{last - first + 1} lines, allowed are {MAX_FUNCTION_LINES}")


# --- text ----------------------------------------------------------------------------


def check_text(path, text):
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield Finding(path, len(lines), "file-length",
                      f"{len(lines)} lines, allowed are {MAX_FILE_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield Finding(path, number, "columns",
                          f"{len(line)} columns, allowed are {MAX_COLUMNS}")
        if line != line.rstrip():
            yield Finding(path, number, "trailing-space", "white space at the end of the line")
    if path.suffix in {".h", ".cuh"} and "#pragma once" not in lines:
        yield Finding(path, 1, "pragma-once", "a header begins with #pragma once")
    if path.suffix in CPP_SUFFIXES and str(path) not in PREPROCESSOR_ALLOWED:
        for number, line in enumerate(strip_comments_and_strings(text).splitlines(), 1):
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b", line):
                yield Finding(path, number, "preprocessor",
                              "a backend is chosen at link time or at one dispatch point")
    if path.suffix in CPP_SUFFIXES:
        for number, message in braces.findings(text, strip_comments_and_strings(text)):
            yield Finding(path, number, "braces", message)
        for number, message in raw_calls.findings(str(path), strip_comments_and_strings(text)):
            yield Finding(path, number, "raw-calls", message)
        for number, message in sleeps.findings(str(path), strip_comments_and_strings(text)):
            yield Finding(path, number, "sleeps", message)
        for number, message in wording.findings(str(path), text, wording.known()):
            yield Finding(path, number, "wording", message)
    if path.suffix in {".cu", ".cuh"}:
        for number, message in launch_shapes.findings(strip_comments_and_strings(text)):
            yield Finding(path, number, "launch-shapes", message)


# --- includes ------------------------------------------------------------------------


class Includes:
    """What the files of a tree may include by what its modules declare, and what they include."""

    def __init__(self, root):
        self.root = root
        self.modules = cmake.read_modules(root)
        self.reach = {name: cmake.reach(self.modules, name) for name in self.modules}
        self.used = {name: set() for name in self.modules}

    def check_module(self, path, number, module, kind, target):
        if target not in self.modules:
            return Finding(path, number, "deps", f"there is no module '{target}'")
        if module in self.modules and kind != "test":
            self.used[module].add(target)
        if target == module or module not in self.modules:
            return None
        declared = self.modules[module]
        if kind == "test":
            allowed = self.reach[module] | cmake.test_deps(self.root, module)
        else:
            allowed = declared.deps
        if target in allowed:
            return None
        where = f"tests/{module}/CMakeLists.txt" if kind == "test" else declared.cmake
        return Finding(path, number, "deps", f"{target} is not among the DEPS in {where}")

    def check_library(self, path, number, module, kind, name):
        if re.match(KERNELS_ONLY, name) and module != "kernels":
            return Finding(path, number, "library", f"<{name}> belongs in kernels only")
        library = cmake.library_of(name)
        if library is None or module not in self.modules:
            return None
        if kind != "test":
            self.used[module].add(library)
        allowed = cmake.libraries(self.modules, module, with_private=kind != "public")
        if kind == "test":
            allowed |= cmake.test_deps(self.root, module)
        if library in allowed:
            return None
        which = "public libraries" if kind == "public" else "libraries"
        return Finding(path, number, "library",
                       f"{library} is not among the {which} of {self.modules[module].cmake}")

    def check_declarations(self):
        """Of CMakeLists.txt: what is not there, goes round in a circle, or is used by nothing."""
        for name, module in self.modules.items():
            circle = [other for other in self.reach[name] if name in self.reach.get(other, ())]
            if circle and name == min(circle):
                yield Finding(module.cmake, module.line, "module",
                              f"these depend on each other: {sorted(circle)}")
            for dep, line in module.deps.items():
                if dep not in self.modules:
                    yield Finding(module.cmake, line, "module", f"there is no module '{dep}'")
                elif dep not in self.used[name]:
                    yield Finding(module.cmake, line, "unused", f"{name} includes nothing of {dep}")
            for library, line in {**module.public, **module.private}.items():
                if library not in cmake.LIBRARIES:
                    yield Finding(module.cmake, line, "module",
                                  f"modules.py does not know what includes of {library} look like")
                elif library not in self.used[name]:
                    yield Finding(module.cmake, line, "unused",
                                  f"{name} includes nothing of {library}")

    def check_table(self, path):
        """The table of modules in the docs says what CMake says."""
        rows = {}
        lines = (self.root / path).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            match = re.match(r"\| (\d+) \| `([\w-]+)` \| .* \| (.*) \|$", line)
            if match:
                rows[match[2]] = number, (match[1], match[3])
        for name in sorted(self.modules.keys() | rows.keys()):
            number, row = rows.get(name, (1, None))
            if name not in self.modules:
                yield Finding(path, number, "table", f"there is no module '{name}'")
            elif row != cmake.table_row(self.modules, name):
                level, libraries = cmake.table_row(self.modules, name)
                yield Finding(path, number, "table",
                              f"the row of {name} is | {level} | `{name}` | ... | {libraries} |")


def owner(path):
    """(module, kind) of a file, kind one of source, public, test; or (None, None): no rule."""
    parts = path.parts
    if parts[:2] == ("include", "lmtp") and len(parts) > 3:
        return parts[2], "public"
    if parts[:2] == ("kernels", "include"):
        return "kernels", "public"
    if parts[0] in ("src", "tools") and len(parts) > 2:
        return parts[1], "source"
    if parts[0] == "kernels":
        return "kernels", "source"
    if parts[0] == "tests" and len(parts) > 2:
        # The simulation is a test of the server, with what it has below.
        return "server" if parts[1] == "simulation" else parts[1], "test"
    return None, None


def included_module(name):
    """(module, the folder below which its public header lies), or (None, None)."""
    match = re.match(r"lmtp/(\w+)/", name)
    if match:
        return match.group(1), "include"
    places = {"kernels": "kernels/include", "common": "tools"}
    module = name.split("/")[0]
    return (module, places[module]) if "/" in name and module in places else (None, None)


def check_private(root, path, number, module, kind, name):
    """A quoted include that is not a public header must lie in the including module."""
    if name == "lmtp/base/version.h":  # generated
        return None
    target, base = included_module(name)
    if target:
        if not (root / base / name).exists():
            return Finding(path, number, "resolve", f"{base}/{name} does not exist")
        return None
    own = Path("kernels") if module == "kernels" else Path("src") / module
    folders = [path.parent, own]
    if kind == "test":
        folders += [Path("tests"), Path("tests/support"), Path("tools")]
    for folder in folders:
        found = root / folder / name
        if not found.exists():
            continue
        where, _ = owner(found.resolve().relative_to(root.resolve()))
        # The two ends of one protocol, of which a program has one, are tested together.
        of_program = kind == "test" and module in ("tools", "aici") and folder == Path("tools")
        if where != module and not (kind == "test" and where == "support") and not of_program:
            return Finding(path, number, "private", f'"{name}" is a private header of {where}')
        return None
    return Finding(path, number, "private", f'"{name}" is not in {module} nor a public header')


def check_includes(includes, path, text):
    module, kind = owner(path)
    if module is None or path.suffix not in CPP_SUFFIXES:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quote, name = match.groups()
        target, _ = included_module(name)
        if target:
            yield includes.check_module(path, number, module, kind, target)
        yield includes.check_library(path, number, module, kind, name)
        if quote == '"':
            yield check_private(includes.root, path, number, module, kind, name)


# --- the whole -----------------------------------------------------------------------


def is_script(path):
    if path.suffix:
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def files_of(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            wanted = path.suffix in TEXT_SUFFIXES or path.name == "CMakeLists.txt"
            if path.is_file() and "__pycache__" not in path.parts and (wanted or is_script(path)):
                yield path.relative_to(root)
    if (root / "CMakeLists.txt").exists():
        yield Path("CMakeLists.txt")


def check_tree(root):
    findings, num_files, includes = [], 0, Includes(root)
    for path in files_of(root):
        num_files += 1
        text = (root / path).read_text(encoding="utf-8")
        findings += check_text(path, text)
        findings += check_functions(path, text)
        findings += [f for f in check_includes(includes, path, text) if f is not None]
    findings += includes.check_declarations()
    if (root / ARCHITECTURE).exists() and not any(f.rule == "module" for f in findings):
        findings += includes.check_table(ARCHITECTURE)
    return findings, num_files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    args = parser.parse_args()
    findings, num_files = check_tree(args.root)
    for finding in findings:
        print(finding)
    print(f"tidy: {num_files} files, {len(findings)} findings")
    if num_files == 0:
        print("tidy: nothing to check is a mistake", file=sys.stderr)
        return 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""What tools/dev/lint.py looks at again: each unit whose own text, headers or command changed, and
no other, in this clone or another one."""

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "dev"))

import lint  # noqa: E402

FILES = {
    ".clang-tidy": "Checks: '-*,modernize-use-override'\nWarningsAsErrors: '*'\n"
                   "HeaderFilterRegex: '.*'\n",
    "kernels/.clang-tidy": "InheritParentConfig: true\n",
    "tests/.clang-tidy": "InheritParentConfig: true\n",
    "include/inner.h": "#pragma once\nconstexpr int kInner = 1;\n",
    "include/outer.h": '#pragma once\n#include "inner.h"\n',
    "src/nested.cpp": '#include "outer.h"\nint nested() { return kInner; }\n',
    "src/both.cpp": '#include "inner.h"\n#include "both.h"\nint both() { return kInner; }\n',
    "src/both.h": "#pragma once\n",
    "src/alone.cpp": "int alone() { return 1; }\n",
}  # fmt: skip
FINDING = """#pragma once
struct Base { virtual ~Base() = default; virtual void f(); };
struct Derived : Base { virtual void f(); };
"""


class Tree:
    def __init__(self, root, flags=""):
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)
        # As CMake makes them: two files compiled together, and one alone.
        unity = root / "build" / "Unity" / "unity_0_cxx.cxx"
        self.write(unity, "".join(f'#include "{root}/src/{name}.cpp"\n'
                                  for name in ("nested", "both")))  # fmt: skip
        self.flags(flags)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def flags(self, flags):
        root = self.root
        files = [root / "build" / "Unity" / "unity_0_cxx.cxx", root / "src" / "alone.cpp"]
        self.write("build/compile_commands.json", json.dumps([
            {"directory": f"{root}/build", "file": str(file),
             "command": f"/usr/bin/c++ -I{root}/include {flags} -c {file}"} for file in files]))

    def lint(self, *folders):
        """(exit code, number of units looked at, output)"""
        lint.file_digest.cache_clear()
        output = io.StringIO()
        arguments = ["lint.py", "--build", str(self.root / "build"), "--jobs", "1", *folders]
        with (mock.patch.object(lint, "ROOT", self.root), mock.patch.object(sys, "argv", arguments),
              contextlib.redirect_stdout(output)):  # fmt: skip
            code = lint.main()
        return code, int(re.search(r"(\d+) units looked at", output.getvalue())[1]), output


class Lint(unittest.TestCase):
    def setUp(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.enterContext(mock.patch.object(lint, "CACHE", folder / "cache"))
        self.folder = folder
        self.tree = Tree(folder / "clone")
        self.assert_looked_at(2)

    def assert_looked_at(self, count, *folders, tree=None):
        code, looked_at, output = (tree or self.tree).lint(*folders)
        self.assertEqual((code, looked_at), (0, count), output.getvalue())

    def test_what_passed_is_not_looked_at_again(self):
        self.assert_looked_at(0)

    def test_an_edit_is_looked_at_where_it_is_included(self):
        for name in ("include/inner.h", "include/outer.h", "src/both.h", "src/nested.cpp"):
            with self.subTest(name):
                self.tree.write(name, FILES[name] + "// changed\n")
                self.assert_looked_at(1)
                self.assert_looked_at(0)
        self.tree.write("src/alone.cpp", "int alone() { return 2; }\n")
        self.assert_looked_at(1)

    def test_each_alone(self):
        self.assert_looked_at(2, "src")  # alone.cpp was so already
        self.tree.write("include/outer.h", FILES["include/outer.h"] + "\n")
        self.assert_looked_at(1, "src")
        self.tree.write("include/inner.h", FILES["include/inner.h"] + "\n")
        self.assert_looked_at(2, "src")

    def test_back_to_an_earlier_text(self):
        self.tree.write("include/inner.h", FILES["include/inner.h"] + "\n")
        self.assert_looked_at(1)
        self.tree.write("include/inner.h", FILES["include/inner.h"])
        self.assert_looked_at(0)

    def test_a_header_that_is_included_anew(self):
        self.tree.write("include/later.h", "#pragma once\n")
        self.tree.write("include/inner.h", '#include "later.h"\n' + FILES["include/inner.h"])
        self.assert_looked_at(1)
        self.tree.write("include/later.h", "#pragma once\n\n")
        self.assert_looked_at(1)

    def test_a_finding_is_found_each_time(self):
        self.tree.write("src/both.h", FINDING)
        for _ in range(2):
            code, looked_at, output = self.tree.lint()
            self.assertEqual((code, looked_at), (1, 1))
            self.assertRegex(output.getvalue(), r"src/both\.h:3:.*modernize-use-override")
        self.tree.write("src/both.h", FILES["src/both.h"])
        self.assert_looked_at(0)

    def test_commands_and_checks(self):
        self.tree.flags("-DOTHER")
        self.assert_looked_at(2)
        self.tree.write(".clang-tidy", FILES[".clang-tidy"] + "# other\n")
        self.assert_looked_at(2)

    def test_another_clone(self):
        other = Tree(self.folder / "elsewhere" / "clone")
        self.assert_looked_at(0, tree=other)
        other.write("include/inner.h", FILES["include/inner.h"] + "\n")
        self.assert_looked_at(1, tree=other)
        self.assert_looked_at(0)

    def test_the_cache_is_bounded_and_may_go(self):
        with mock.patch.object(lint, "KEPT", 1):
            self.assert_looked_at(0)
        self.assertEqual(len(list(lint.CACHE.iterdir())), 1)
        self.assert_looked_at(1)
        next(lint.CACHE.iterdir()).write_text("[")
        self.assert_looked_at(1)
        shutil.rmtree(lint.CACHE)
        self.assert_looked_at(2)


if __name__ == "__main__":
    if not lint.CLANG_TIDY.exists():
        sys.exit(77)
    unittest.main()

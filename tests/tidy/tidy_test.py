"""Each house rule of tools/dev/tidy.py can fail, and what is allowed passes."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIDY = Path(__file__).resolve().parents[2] / "tools" / "dev" / "tidy.py"

CLEAN = {
    "include/lmtp/base/result.h": "#pragma once\nint result();\n",
    "include/lmtp/cache/pool.h": '#pragma once\n#include "lmtp/base/result.h"\n',
    "include/lmtp/engine/engine.h": '#pragma once\n#include "lmtp/cache/pool.h"\n',
    "include/lmtp/protocol/codec.h": "#pragma once\n",
    "src/cache/detail.h": "#pragma once\n",
    "src/cache/pool.cpp": '#include "detail.h"\nint f() { return 1; }\n',
    "tests/cache/pool_test.cpp": '#include "detail.h"\n#include "lmtp/cache/pool.h"\n',
    "kernels/include/kernels/linear.h": "#pragma once\n",
}


def function(num_lines, head="int f() {"):
    return head + "\n" + "  g();\n" * (num_lines - 2) + "}\n"


def long_class(body):
    return "namespace a {\nclass B {\n public:\n" + body + "};\n}  // namespace a\n"


LONG_HEADS = [
    "A::A(int b) : b_(b), c_{2} {",
    "A::A()\n    : b_{1}, c_(B{2}) {",
    "auto f(int) const -> B<int> {",
    "template <class T>\nvoid f(T t) {",
    "void f(A a = {}, int b = 3) {",
    "struct B f(int a) {",
    "bool operator<(const A& a, const A& b) {",
    "[[nodiscard]] int f() noexcept {",
]

# rule, file, text
BROKEN = [
    ("function-length", f"src/cache/long_{i}.cpp", function(71, head))
    for i, head in enumerate(LONG_HEADS)
] + [
    ("level", "include/lmtp/cache/up.h", '#pragma once\n#include "lmtp/engine/engine.h"\n'),
    ("level", "src/cache/side.cpp", '#include "lmtp/protocol/codec.h"\n'),
    ("level", "src/cache/kernels.cpp", '#include "kernels/linear.h"\n'),
    ("level", "src/client/engine.cpp", '#include "lmtp/engine/engine.h"\n'),
    ("level", "src/cache/unknown.cpp", '#include "lmtp/nonsense/engine.h"\n'),
    ("level", "tests/cache/up_test.cpp", '#include "lmtp/engine/engine.h"\n'),
    ("private", "src/engine/peek.cpp", '#include "../cache/detail.h"\n'),
    ("private", "src/engine/peek2.cpp", '#include "detail.h"\n'),
    ("private", "tests/engine/peek_test.cpp", '#include "detail.h"\n'),
    ("resolve", "src/cache/gone.cpp", '#include "lmtp/base/gone.h"\n'),
    ("heavy", "src/sampling/t.cpp", "#include <ATen/core/Tensor.h>\n"),
    ("heavy", "src/engine/t.cpp", "#include <c10/core/Device.h>\n"),
    ("heavy", "include/lmtp/agent/t.h", "#pragma once\n#include <ATen/core/Tensor.h>\n"),
    ("heavy", "src/engine/b.cpp", "#include <boost/asio/io_context.hpp>\n"),
    ("heavy", "src/server/j.cpp", "#include <simdjson.h>\n"),
    ("heavy", "src/server/c.cpp", "#include <CLI/CLI.hpp>\n"),
    ("heavy", "src/engine/l.cpp", "#include <spdlog/spdlog.h>\n"),
    ("heavy", "src/model/i.cpp", "#include <immintrin.h>\n"),
    ("heavy", "src/model/cu.cpp", "#include <cuda_runtime.h>\n"),
    ("torch-umbrella", "src/model/all.cpp", "#include <torch/torch.h>\n"),
    ("torch-umbrella", "src/model/all2.cpp", "#include <ATen/ATen.h>\n"),
    ("function-length", "src/cache/long.cpp", function(71)),
    ("function-length", "tests/cache/long_test.cpp", function(71, "TEST(Pool, Works) {")),
    ("function-length", "src/cache/long_method.cpp", long_class(function(71, "  int f() const {"))),
    ("function-length", "src/cache/long_after.cpp", "int t[] = {1, 2};\n" + function(71)),
    ("function-length", "src/cache/long_str.cpp", 'const char* s = "}{";\n' + function(71)),
    ("function-length", "tools/long.py", "def f():\n" + "    g()\n" * 70),
    ("file-length", "src/cache/file.cpp", "int a;\n" * 501),
    ("columns", "src/cache/wide.cpp", "// " + "x" * 98 + "\n"),
    ("columns", "tools/wide.py", "# " + "x" * 99 + "\n"),
    ("columns", "cmake/Wide.cmake", "# " + "x" * 99 + "\n"),
    ("trailing-space", "src/cache/space.cpp", "int a; \n"),
    ("pragma-once", "include/lmtp/cache/guard.h", "int a;\n"),
    ("preprocessor", "src/cache/ifdef.cpp", "#ifdef FAST\nint a;\n#endif\n"),
    ("preprocessor", "src/cache/if.cpp", "  # if defined(FAST)\nint a;\n#endif\n"),
]

ALLOWED = [
    ("src/cache/full.cpp", function(70)),
    ("src/cache/class.cpp", long_class("  int a();\n" * 80)),
    ("src/cache/table.cpp", "const int t[] = {\n" + "  f(1),\n" * 80 + "};\n"),
    ("src/cache/namespace.cpp", "namespace a::b {\n" + "int f();\n" * 80 + "}\n"),
    ("src/cache/enum.cpp", "enum class A : int {\n" + "  kB,\n" * 80 + "};\n"),
    ("src/cache/raw.cpp", 'const char* s = R"(\n#ifdef A\n' + "{ f() {\n" * 80 + ')";\n'),
    ("src/cache/comment.cpp", "/* f() {\n" + "#ifdef\n" * 80 + "*/\n// f() {\nint a;\n"),
    ("src/cache/columns.cpp", "// " + "x" * 97 + "\n"),
    ("src/model/torch.cpp", "#include <ATen/ops/linear.h>\n"),
    ("src/model/kernel.cpp", '#include "kernels/linear.h"\n'),
    ("src/base/version.cpp", '#include "lmtp/base/version.h"\n'),
    ("src/server/beast.cpp", "#include <boost/beast/core.hpp>\n"),
    ("tests/kernels/linear_test.cpp", "#include <ATen/ops/linear.h>\n"),
    ("tests/e2e/all_test.cpp", '#include "lmtp/engine/engine.h"\n'),
    ("tools/main.cpp", '#include <CLI/CLI.hpp>\n#include "lmtp/engine/engine.h"\n'),
]


def run_tidy(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [sys.executable, TIDY, "--root", root]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


class TidyTest(unittest.TestCase):
    def test_clean_tree_passes(self):
        self.assertEqual(run_tidy(CLEAN)[0], 0, run_tidy(CLEAN)[1])

    def test_empty_tree_fails(self):
        self.assertEqual(run_tidy({})[0], 1)

    def test_each_rule_can_fail(self):
        for rule, name, text in BROKEN:
            with self.subTest(file=name, rule=rule):
                code, output = run_tidy({**CLEAN, name: text})
                self.assertEqual(code, 1, output)
                self.assertRegex(output, rf"(?m)^{name}:\d+: \[{rule}\]")
                others = [line for line in output.splitlines()
                          if not line.startswith((f"{name}:", "tidy: "))]
                self.assertEqual(others, [])

    def test_what_is_allowed_passes(self):
        for name, text in ALLOWED:
            with self.subTest(file=name):
                code, output = run_tidy({**CLEAN, name: text})
                self.assertEqual(code, 0, output)


if __name__ == "__main__":
    unittest.main()

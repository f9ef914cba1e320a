"""Each house rule of tools/dev/tidy.py can fail, and what is allowed passes."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "dev"
sys.path.insert(0, str(TOOLS))

import tidy  # noqa: E402

# name -> (CMake's declaration, level, libraries in the docs)
MODULES = {
    "src/base": ("lmtp_module(base SOURCES log.cpp  # )\n"
                 "  PUBLIC_LIBS nlohmann_json::nlohmann_json PRIVATE_LIBS spdlog::spdlog)",
                 0, "nlohmann/json, spdlog"),
    "src/protocol": ("lmtp_module(protocol SOURCES a.cpp)", 0, "none"),
    "src/cache": ("lmtp_module(cache SOURCES pool.cpp DEPS base)", 1, "none"),
    "src/engine": ("lmtp_module(engine SOURCES a.cpp DEPS cache)", 2, "none"),
    "src/server": ("lmtp_module(server SOURCES a.cpp DEPS base engine PRIVATE_LIBS Boost::headers)",
                   3, "Boost"),
    "src/model": ("lmtp_module(model SOURCES a.cpp DEPS kernels)\n"
                  "lmtp_plugin(torch SOURCES b.cpp PRIVATE_LIBS Libtorch::cpu)", 1, "libtorch"),
    "kernels": ("set(sources a.cpp)\nlmtp_module(kernels SOURCES ${sources})\nif(A)\n"
                "  target_link_libraries(lmtp_kernels PUBLIC CUDA::cudart_static)\nendif()",
                0, "CUDA"),
    "tools/common": ("lmtp_module(common SOURCES bar.cpp DEPS base)", 1, "none"),
    "tools/lmtp-bench": ("lmtp_module(bench SOURCES a.cpp DEPS common PRIVATE_LIBS CLI11::CLI11)\n"
                         "lmtp_program(lmtp-bench SOURCES main.cpp DEPS bench protocol)",
                         2, "CLI11"),
}
TABLE = "".join(f"| {level} | `{path.split('/')[-1]}` | what it is | {libraries} |\n"
                for path, (_, level, libraries) in MODULES.items())

CLEAN = {
    **{f"{path}/CMakeLists.txt": text + "\n" for path, (text, _, _) in MODULES.items()},
    "docs/architecture.md": "| level | module | holds | libraries |\n|---|---|---|---|\n" + TABLE,
    "include/lmtp/base/result.h": "#pragma once\nint result();\n",
    "include/lmtp/base/json.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n",
    "src/base/log.cpp": "#include <spdlog/spdlog.h>\n",
    "include/lmtp/cache/pool.h": '#pragma once\n#include "lmtp/base/result.h"\n',
    "include/lmtp/engine/engine.h": '#pragma once\n#include "lmtp/cache/pool.h"\n',
    "include/lmtp/protocol/codec.h": "#pragma once\n",
    "include/lmtp/model/model.h": "#pragma once\n",
    "src/model/a.cpp": '#include "kernels/linear.h"\n',
    "src/model/b.cpp": "#include <ATen/core/Tensor.h>\n",
    "src/server/a.cpp": '#include <boost/asio.hpp>\n#include "lmtp/base/result.h"\n'
                        '#include "lmtp/engine/engine.h"\n',
    "src/cache/detail.h": "#pragma once\n",
    "src/cache/pool.cpp": '#include "detail.h"\nint f() { return 1; }\n',
    "tests/cache/pool_test.cpp": '#include "detail.h"\n#include "lmtp/cache/pool.h"\n',
    "kernels/include/kernels/linear.h": "#pragma once\n",
    "kernels/cuda/a.cu": "#include <cuda_runtime.h>\n",
    "tools/common/bar.h": '#pragma once\n#include "lmtp/base/result.h"\n',
    "tools/lmtp-bench/load.h": '#pragma once\n#include "common/bar.h"\n',
    "tools/lmtp-bench/main.cpp": '#include <CLI/CLI.hpp>\n\n#include "lmtp/protocol/codec.h"\n'
                                 '#include "load.h"\n',
    "tests/tools/load_test.cpp": '#include "lmtp-bench/load.h"\n',
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

BASE, SERVER = CLEAN["src/base/CMakeLists.txt"], CLEAN["src/server/CMakeLists.txt"]

# rule, file, text
BROKEN = [
    ("function-length", f"src/cache/long_{i}.cpp", function(71, head))
    for i, head in enumerate(LONG_HEADS)
] + [
    ("deps", "include/lmtp/cache/up.h", '#pragma once\n#include "lmtp/engine/engine.h"\n'),
    ("deps", "src/cache/side.cpp", '#include "lmtp/protocol/codec.h"\n'),
    ("deps", "src/cache/kernels.cpp", '#include "kernels/linear.h"\n'),
    ("deps", "src/cache/unknown.cpp", '#include "lmtp/nonsense/engine.h"\n'),
    # Reached by way of cache, but not declared.
    ("deps", "src/engine/base.cpp", '#include "lmtp/base/result.h"\n'),
    ("deps", "tests/cache/up_test.cpp", '#include "lmtp/engine/engine.h"\n'),
    ("deps", "tools/lmtp-bench/engine.cpp", '#include "lmtp/engine/engine.h"\n'),
    ("deps", "src/server/bar.cpp", '#include "common/bar.h"\n'),
    ("private", "src/engine/peek.cpp", '#include "../cache/detail.h"\n'),
    ("private", "src/engine/peek2.cpp", '#include "detail.h"\n'),
    ("private", "tests/engine/peek_test.cpp", '#include "detail.h"\n'),
    ("private", "tests/engine/load_test.cpp", '#include "lmtp-bench/load.h"\n'),
    ("private", "tools/common/load.cpp", '#include "../lmtp-bench/load.h"\n'),
    ("resolve", "src/cache/gone.cpp", '#include "lmtp/base/gone.h"\n'),
    ("resolve", "tools/lmtp-bench/gone.cpp", '#include "common/gone.h"\n'),
    ("library", "src/engine/t.cpp", "#include <c10/core/Device.h>\n"),
    ("library", "src/engine/b.cpp", "#include <boost/asio/io_context.hpp>\n"),
    ("library", "src/server/j.cpp", "#include <simdjson.h>\n"),
    ("library", "src/server/c.cpp", "#include <CLI/CLI.hpp>\n"),
    ("library", "src/engine/l.cpp", "#include <spdlog/spdlog.h>\n"),
    ("library", "src/model/i.cpp", "#include <immintrin.h>\n"),
    ("library", "src/engine/cu.cpp", "#include <cuda_runtime.h>\n"),
    # What is PRIVATE to a module stays out of its public headers.
    ("library", "include/lmtp/base/log.h", "#pragma once\n#include <spdlog/spdlog.h>\n"),
    ("library", "include/lmtp/server/s.h", "#pragma once\n#include <boost/asio.hpp>\n"),
    ("library", "src/engine/z.cpp", "#include <caffe2/serialize/inline_container.h>\n"),
    ("library", "include/lmtp/model/t.h", "#pragma once\n#include <torch/torch.h>\n"),
    ("module", "src/cache/CMakeLists.txt", "lmtp_module(cache SOURCES a.cpp DEPS base nonsense)\n"),
    ("module", "src/base/CMakeLists.txt", BASE.replace("SOURCES", "DEPS engine SOURCES")),
    ("module", "src/base/CMakeLists.txt", BASE.replace("spdlog::", "Other::other spdlog::")),
    ("unused", "src/server/CMakeLists.txt", SERVER.replace("engine", "engine cache")),
    ("unused", "src/server/CMakeLists.txt", SERVER.replace("Boost", "CURL::libcurl Boost")),
    ("table", "docs/architecture.md", TABLE.replace("| 2 |", "| 3 |", 1)),
    ("table", "docs/architecture.md", TABLE.replace("Boost", "none")),
    ("table", "docs/architecture.md", TABLE + "| 1 | `gone` | a folder that was | none |\n"),
    ("table", "docs/architecture.md", TABLE.replace("| 0 | `protocol` |", "| none |")),
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
    ("braces", "src/cache/below.cpp", "int f(int a) {\n  if (a)\n    return 1;\n  return 2;\n}\n"),
    ("braces", "src/cache/else.cpp", "void f() {\n  if (a) b();\n  else c();\n}\n"),
    ("braces", "src/cache/loop.cpp", "void f() {\n  for (int a : {1})\n    g(a);\n}\n"),
    ("braces", "src/cache/two.cpp", "void f() {\n  while (g()) h(\n      1);\n}\n"),
    ("braces", "src/cache/fits.cpp", "void f() {\n  if (g(\")\")) {\n    h();\n  }\n}\n"),
    ("sleeps", "tests/cache/sleeps_test.cpp", "void f() { std::this_thread::sleep_for(1ms); }\n"),
    ("sleeps", "tests/cache/usleep.h", "#pragma once\nvoid f() { usleep(5); }\n"),
    ("sleeps", "tests/cache/step_test.cpp", "void f() { agent.step_time = 1ms; }\n"),
    ("sleeps", "tests/engine/engine_test.cpp", "int a;\n"),  # is allowed to and does not
    ("raw-calls", "src/cache/clock.cpp", "auto a = std::chrono::steady_clock::now();\n"),
    ("raw-calls", "src/engine/thread.h", "#pragma once\nstd::thread a;\n"),
    ("raw-calls", "src/engine/wait.cpp", "std::condition_variable a;\n"),
    ("raw-calls", "src/cache/sleeps.cpp", "void f() { std::this_thread::sleep_for(1ms); }\n"),
    ("wording", "src/cache/of.cpp", "int a;\n// Of blocks that are free.\n"),
    ("wording", "src/cache/behind.cpp", "int a;  // the one behind it\n"),
    ("wording", "src/cache/as_well.cpp", "int a;  // as well\n"),
    ("launch-shapes", "kernels/cuda/gap.cu", "Grid a = {.x = 1, .z = b({.x = 2})};\n"),
    ("launch-shapes", "kernels/cuda/outer_gap.cu",
     "auto a = f({.grid = {.z = 1},\n .cluster = 2});\n"),
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
    ("src/cache/braces.cpp", "int f() {\n  if (a) {\n    b();\n  } else {\n    c();\n  }\n"
     "  if (a) b();\n  do {\n    b();\n  } while (a);\n  if (a) {\n"
     "    b();  // " + "x" * 84 + "\n  }\n"
     "  for (;;) {\n    const int a = b();\n  }\n}\n#define A \\\n  if (a) \\\n    b()\n"),
    ("kernels/cuda/shape.cu", "auto a = f({.grid = {.x = 1, .y = 2}, .num_threads = 3});\n"),
    ("tests/engine/engine_test.cpp", "void f() { std::this_thread::sleep_for(1ms); }\n"),
    ("tests/support/eventually.h", "#pragma once\nvoid f() { sleep_for(1ms); }\n"),
    ("tests/cache/comment_test.cpp", "// sleep(1)\nint num_sleep(int);\n"),
    ("tests/aici/runtime_test.cpp", "void f() { options.step_time = 1ms; }\n"),
    ("src/cache/plain.cpp", "int behind;  // of the blocks, as well as it can\n"),
    ("src/hub/sleeps.cpp", "void f() { std::this_thread::sleep_for(1ms); }\n"),
    ("src/engine/cores.cpp", "int a = std::thread::hardware_concurrency();\n"),
    ("include/lmtp/base/runtime.h", "#pragma once\nstd::random_device a;\n"),
    ("src/model/torch.cpp", "#include <ATen/ops/linear.h>\n"),
    ("src/model/kernel.cpp", '#include "kernels/linear.h"\n'),
    ("src/server/json.cpp", "#include <nlohmann/json.hpp>\n"),  # public in base
    ("src/base/version.cpp", '#include "lmtp/base/version.h"\n'),
    ("tests/server/beast_test.cpp", "#include <boost/beast/core.hpp>\n"),
    ("tests/server/cache_test.cpp", '#include "lmtp/cache/pool.h"\n'),
    ("tests/e2e/all_test.cpp", '#include "lmtp/engine/engine.h"\n'),
]


def make_tree(root, files):
    for name, text in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_tidy(files):
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, files)
        command = [sys.executable, TOOLS / "tidy.py", "--root", root]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, files)
        return [str(finding) for finding in tidy.check_tree(Path(root))[0]]


class TidyTest(unittest.TestCase):
    def test_clean_tree_passes(self):
        code, output = run_tidy(CLEAN)
        self.assertEqual(code, 0, output)

    def test_empty_tree_fails(self):
        self.assertEqual(run_tidy({})[0], 1)

    def test_a_finding_fails(self):
        rule, name, text = BROKEN[0]
        code, output = run_tidy({**CLEAN, name: text})
        self.assertEqual(code, 1)
        self.assertRegex(output, rf"(?m)^{name}:\d+: \[{rule}\]")

    def test_each_rule_can_fail(self):
        for rule, name, text in BROKEN:
            with self.subTest(file=name, rule=rule, text=text[:200]):
                findings = findings_of({**CLEAN, name: text})
                self.assertRegex("\n".join(findings), rf"(?m)^{name}:\d+: \[{rule}\]")
                others = [line for line in findings if not line.startswith(f"{name}:")]
                if name.endswith("CMakeLists.txt"):  # the docs say then something else
                    others = [line for line in others if "[table]" not in line]
                self.assertEqual(others, [])

    def test_what_is_allowed_passes(self):
        for name, text in ALLOWED:
            with self.subTest(file=name):
                self.assertEqual(findings_of({**CLEAN, name: text}), [])


if __name__ == "__main__":
    unittest.main()

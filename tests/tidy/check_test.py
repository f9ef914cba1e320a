"""What tools/dev/check runs for a file, on CMake's own list of entries."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "dev"))

import check  # noqa: E402

# entry -> (program or script, label)
ENTRIES = {
    "base_log_test": ("build/dev/tests/base_tests", "base"),
    "cache_pool_test": ("build/dev/tests/cache_tests", "cache"),
    "cache_trie_test": ("build/dev/tests/cache_tests", "cache"),
    "cache_soak_test": ("build/dev/tests/cache_tests", "cache;long"),
    "e2e_serve": ("tests/e2e/test_serve.py", "e2e"),
    "e2e_keys": ("tests/e2e/test_keys.py", "e2e"),
}
FILES = {
    "src/base/CMakeLists.txt": "lmtp_module(base SOURCES log.cpp)",
    "src/base/log.cpp": "",
    "src/cache/CMakeLists.txt": "lmtp_module(cache SOURCES pool.cpp DEPS base)",
    "src/cache/pool.cpp": "",
    "include/lmtp/base/log.h": "",
    "include/lmtp/cache/pool.h": "",
    "tests/cache/pool_test.cpp": '#include "fake.h"',
    "tests/support/fake.h": '#include "counting.h"',
    "tests/support/counting.h": "",
    "tests/e2e/test_serve.py": "import lmtp_socket",
    "tests/e2e/test_keys.py": "import lmtp_socket\nfrom keys import key",
    "tests/e2e/keys.py": "import secret",
    "tests/e2e/secret.py": "",
    "tests/e2e/conftest.py": "",
    "docs/cache.md": "",
}


class Check(unittest.TestCase):
    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.enterContext(contextlib.chdir(self.root))
        self.enterContext(mock.patch.object(check, "ROOT", self.root))
        self.enterContext(mock.patch.object(check, "BUILD", self.root / "build" / "dev"))
        for name, text in FILES.items():
            self.write(name, text)
        for name, (command, labels) in ENTRIES.items():
            folder = name.split("_")[0]
            path = f"build/dev/tests/{folder}/CTestTestfile.cmake"
            old = (self.root / path).read_text() if (self.root / path).exists() else ""
            timed = '"/usr/bin/time" "-o" "times/x" "-f" "%U %S %e" ' * (folder == "cache")
            self.write(path, f'{old}add_test([=[{name}]=] {timed}"{self.root}/{command}" "--x=1")\n'
                       f'set_tests_properties([=[{name}]=] PROPERTIES  COST "9" ENVIRONMENT "A=1" '
                       f'LABELS "{labels}" TIMEOUT "9")\n')  # fmt: skip

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def assert_runs(self, argument, *names):
        with contextlib.redirect_stdout(io.StringIO()):
            chosen = check.select([argument], check.read_entries())
        self.assertEqual(sorted(chosen), sorted(names))
        return chosen

    def test_files(self):
        cache = ("cache_pool_test", "cache_trie_test")
        for argument, names in {
            "src/cache/pool.cpp": cache,
            "src/cache/gone.cpp": cache,
            "include/lmtp/cache/pool.h": cache,
            "include/lmtp/base/log.h": ("base_log_test", *cache),
            "src/base/log.cpp": ("base_log_test",),
            "tests/cache/pool_test.cpp": ("cache_pool_test",),
            "tests/cache/CMakeLists.txt": cache,
            "tests/support/fake.h": cache,
            "tests/support/counting.h": cache,
            "tests/e2e/test_serve.py": ("e2e_serve",),
            "tests/e2e/keys.py": ("e2e_keys",),
            "tests/e2e/secret.py": ("e2e_keys",),
            "tests/e2e/conftest.py": ("e2e_keys", "e2e_serve"),
            Path("gone/file"): (),
            "docs/cache.md": (),
        }.items():
            with self.subTest(argument):
                self.assert_runs(argument, *names)

    def test_names(self):
        self.assert_runs("cache", "cache_pool_test", "cache_trie_test")
        self.assert_runs("src/cache", "cache_pool_test", "cache_trie_test")
        self.assert_runs("cache_soak_test", "cache_soak_test")
        self.assert_runs("e2e", "e2e_keys", "e2e_serve")
        with self.assertRaisesRegex(SystemExit, "cach is no file, module or entry of ctest"):
            self.assert_runs("cach")

    def test_programs(self):
        chosen = self.assert_runs("include/lmtp/base/log.h", "base_log_test", "cache_pool_test",
                                  "cache_trie_test")  # fmt: skip
        self.assertEqual({e.program for e in chosen.values()},
                         {"tests/base_tests", "tests/cache_tests"})  # fmt: skip
        self.assertIsNone(self.assert_runs("e2e_serve", "e2e_serve")["e2e_serve"].program)

    def test_the_shortest_within_the_time(self):
        self.write("tests/costs.txt", "# as recorded\nrelease cache_trie_test 50.0 4\n")
        self.write("build/dev/Testing/Temporary/CTestCostData.txt",
                   "base_log_test 3 4\ncache_trie_test 1 900\n---\n")  # fmt: skip
        entries = check.read_entries()
        self.assertEqual((entries["cache_trie_test"].cost, entries["base_log_test"].cost), (50, 4))
        with mock.patch.object(check.os, "cpu_count", return_value=2):
            kept = check.within(entries.values(), 20)
        self.assertEqual([e.name for e in kept][-1], "base_log_test")
        self.assertNotIn(entries["cache_trie_test"], kept)


if __name__ == "__main__":
    unittest.main()

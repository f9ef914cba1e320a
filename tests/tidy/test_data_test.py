"""What needs data from outside the repository is skipped by name: each file with such cases has a
ctest entry for them, which without LMTP_TEST_DATA says that it was skipped, and nothing else."""

import json
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.environ["LMTP_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["LMTP_BIN_DIR"]).parent
LABEL = "test_data"
# The places that look at the variable; all others ask these.
READERS = {"tests/support/test_data.h", "tests/e2e/conftest.py", "tests/tidy/test_data_test.py"}


def entries():
    """What ctest would run, as dictionaries: name, what it runs, properties."""
    command = ["ctest", "--test-dir", str(BUILD), "--show-only=json-v1"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    for test in listed["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        # Where it is not built, ctest knows no command.
        yield {"name": test["name"], "command": test.get("command", []), **properties}


ENTRIES = list(entries())


def sources():
    """(path below the root, text) of every test's source."""
    for pattern in ("*.cpp", "*.h", "*.py"):
        for path in sorted((ROOT / "tests").rglob(pattern)):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def runs(entry, source):
    """Whether the entry runs the cases of a source file."""
    folder, name = pathlib.Path(source).parts[-2:]
    program = name if name.endswith(".py") else f"{folder}_{name.removesuffix('.cpp')}"
    return any(pathlib.Path(part).name == program for part in entry["command"])


class TestDataTest(unittest.TestCase):
    def test_nothing_else_looks_at_the_variable(self):
        readers = {path for path, text in sources() if re.search(r"env.*LMTP_TEST_DATA", text)}
        self.assertLessEqual(readers, READERS)

    def test_every_file_with_such_cases_has_an_entry_for_them(self):
        pattern = re.compile(r"^TEST_F\(TestData,|^def test_.*\btest_data\b", re.MULTILINE)
        files = [path for path, text in sources() if pattern.search(text)]
        self.assertGreaterEqual(len(files), 4)
        for path in files:
            labels = [entry.get("LABELS", []) for entry in ENTRIES if runs(entry, path)]
            if labels:  # this build has the file
                self.assertEqual(sum(LABEL in of_entry for of_entry in labels), 1, path)
                self.assertEqual(len(labels), 2, path)

    def test_each_says_that_it_was_skipped(self):
        environment = {k: v for k, v in os.environ.items() if k != "LMTP_TEST_DATA"}
        for entry in ENTRIES:
            if LABEL not in entry.get("LABELS", []) or not entry["command"]:
                continue
            variables = dict(v.split("=", 1) for v in entry["ENVIRONMENT"])
            done = subprocess.run(
                entry["command"], cwd=entry["WORKING_DIRECTORY"], capture_output=True, text=True,
                env={**environment, **variables},
            )  # fmt: skip
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, said)
            skips = entry["SKIP_REGULAR_EXPRESSION"]
            self.assertTrue(any(re.search(text, said) for text in skips), (entry["name"], said))
            self.assertNotRegex(said, r"\d+ passed|\[ +OK +\]|\[  PASSED  \] [1-9]")


if __name__ == "__main__":
    unittest.main()

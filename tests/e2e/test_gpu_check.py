"""tools/gpu-check, dry: all of it but the GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "benchmarks" / "gpu_check.py"
BUILD = pathlib.Path(os.environ["LMTP_BIN_DIR"]).parent


def gpu_check(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, BUILD, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    done = gpu_check("--device", "cpu", "--quick", "--output", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text()), (folder / "report.md").read_text()


def test_all_parts_make_one_report_without_failures(dry_run):
    report, page = dry_run
    assert {row["part"] for row in report["rows"]} == {"correct", "bench", "soak"}
    assert [row for row in report["rows"] if row["outcome"] in ("FAILED", "MISSED")] == []
    assert page.count("nothing here ran on a GPU") == 3


def test_what_needs_no_device_passed(dry_run):
    outcomes = {row["what"]: row["outcome"] for row in dry_run[0]["rows"]}
    passed = [what for what, outcome in outcomes.items() if outcome == "passed"]
    for wanted in ("demo in float32", "demo in bfloat16", "numerics contract", "demo: "):
        assert [what for what in passed if what.startswith(wanted)], outcomes


def test_figures_of_a_dry_run_are_compared_with_nothing(dry_run):
    bench = [row for row in dry_run[0]["rows"] if row["part"] == "bench"]
    assert {row["outcome"] for row in bench} <= {"measured", "not run"}
    decode = next(row for row in bench if "batch 1 decode" in row["what"])
    assert decode["outcome"] == "measured" and decode["figures"]["value"] > 0


def test_without_a_device_it_says_so(tmp_path):
    done = gpu_check("--device", "cuda:99", "--part", "soak", "--output", tmp_path)
    assert done.returncode == 2
    assert "no device" in done.stderr

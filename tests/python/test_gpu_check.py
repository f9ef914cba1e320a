"""What `tools/gpu-check` counts, reads and reports, without a GPU."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from gpu_correct import read_numerics, read_sanitizer, read_tests  # noqa: E402
from gpu_kernels import attention_outcome, bench  # noqa: E402
from gpu_peer_process import KILLED, PeerProcess  # noqa: E402
from gpu_report import FAILED, MEASURED, MISSED, NOT_RUN, PASSED, REACHED, Report  # noqa: E402
from gpu_run import Done, Run, json_lines  # noqa: E402
from gpu_shapes import GPT2_MEDIUM, LLAMA3_8B  # noqa: E402


@pytest.fixture
def on_gpu(tmp_path):
    return Report(tmp_path, "bench", {"device": "NVIDIA H200"})


def test_figures_are_reached_or_missed(on_gpu):
    assert on_gpu.compare("fast", 3001.0, "tok/s", least=3000).outcome == REACHED
    assert on_gpu.compare("slow", 2999.0, "tok/s", least=3000).outcome == MISSED
    assert on_gpu.compare("late", 2.6, "s", most=2.5).outcome == MISSED
    first_goal = on_gpu.compare("fast", 3001.0, "tok/s", least=3000, then=4000)
    assert (first_goal.outcome, first_goal.target) == (REACHED, ">= 3000 tok/s, then 4000")
    assert on_gpu.compare("for itself", 2.6, "s").outcome == MEASURED
    assert on_gpu.compare("not taken", None, "s", most=2.5).outcome == NOT_RUN
    assert on_gpu.has_failures()


def test_a_dry_run_reaches_and_misses_nothing(tmp_path):
    dry = Report(tmp_path, "bench", {"device": "cpu"})
    assert dry.compare("fast", 1e9, "tok/s", least=3000).outcome == MEASURED
    assert dry.compare("slow", 1.0, "tok/s", least=3000).outcome == MEASURED
    assert not dry.has_failures()


def test_figures_of_another_device_are_marked_as_such(tmp_path):
    pages = []
    for device in ("NVIDIA H200, 143771 MiB", "NVIDIA H100 80GB HBM3"):
        Report(tmp_path, "bench", {"device": device}).add("decode", REACHED)
        pages.append((tmp_path / "report.md").read_text())
    assert ["this is another device" in page for page in pages] == [False, True]


SERVER = """#!/usr/bin/env python3
import http.server, sys
print("CUDA: out of memory", flush=True)
if "--broken" in sys.argv:
    sys.exit(3)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Healthy).serve_forever()
"""


def test_what_a_server_says_is_kept_where_something_fails(tmp_path, monkeypatch, on_gpu):
    program = tmp_path / "lmtp-serve"
    program.write_text(SERVER)
    program.chmod(0o755)
    monkeypatch.setenv("LMTP_BIN_DIR", str(tmp_path))
    check = Run(tmp_path, "cuda:0", 60, False, on_gpu)

    def measure(check, *options):
        with check.serve("demo", *options):
            raise ValueError("nothing came")

    assert check.guarded("broken", measure, "--broken") is None
    assert check.guarded("late", measure) is None
    ended, broken, stopped, late = on_gpu.rows  # SIGTERM ends the second one
    assert (ended.result, stopped.result) == ("exit code 3", "exit code -15")
    assert all(row.outcome == FAILED and "CUDA: out of memory" in row.notes for row in on_gpu.rows)
    assert "nothing came" in late.notes
    log = (tmp_path / "log.txt").read_text()
    assert "exit code 3" in log and "Traceback" in log and "--broken" in log


def test_a_part_that_runs_again_replaces_its_own_rows_alone(tmp_path):
    Report(tmp_path, "correct", {"device": "NVIDIA H200"}).add("kernels", FAILED)
    Report(tmp_path, "bench", {"device": "cpu"}).add("decode | prefill", MEASURED)
    Report(tmp_path, "correct", {"device": "NVIDIA H200"}).add("kernels", PASSED, "99 passed")
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [(row["part"], row["outcome"]) for row in rows] == [
        ("bench", MEASURED), ("correct", PASSED)
    ]  # fmt: skip
    page = (tmp_path / "report.md").read_text()
    assert page.count("nothing here ran on a GPU") == 1
    assert "| kernels | 99 passed | passed |" in page
    assert "| decode / prefill |" in page


def test_tests_are_read_from_googletest():
    tests = [
        {"name": "A", "status": "RUN", "result": "COMPLETED"},
        {"name": "B", "status": "RUN", "result": "COMPLETED", "failures": [{}]},
        {"name": "C", "status": "RUN", "result": "SKIPPED"},
        {"name": "D", "status": "NOTRUN", "result": "SUPPRESSED"},
    ]
    read = read_tests({"testsuites": [{"testsuite": tests}]})
    assert read == [("A", "passed"), ("B", "failed"), ("C", "skipped")]


@pytest.mark.parametrize(
    ("share", "ratio", "bound", "outcome"),
    [
        (0.9, 1.1, True, REACHED),
        (0.2, 1.1, False, REACHED),
        (0.9, 0.9, True, MISSED),
        (0.8, 1.1, True, MISSED),
        (0.8, None, True, MISSED),
        (None, 0.9, False, MISSED),
        (0.9, None, True, MEASURED),
        (None, 1.1, False, MEASURED),
        (None, None, False, MEASURED),
    ],
)
def test_attention_is_reached_where_both_figures_are_known(share, ratio, bound, outcome):
    assert attention_outcome(share, ratio, bound) == outcome


@pytest.mark.parametrize(("device", "outcome"), [("cuda:0", FAILED), ("cpu", NOT_RUN)])
def test_a_crash_of_gpu_bench_fails_on_a_device_alone(tmp_path, device, outcome):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gpu-bench"
    program.write_text("""#!/bin/sh\necho '{"us": 1}'\nkill -SEGV $$\n""")
    program.chmod(0o755)
    report = Report(tmp_path, "bench", {"device": device})
    rows = bench(Run(tmp_path, device, 60, False, report), "attention", 1, seconds=10)
    assert rows == [{"us": 1}]
    assert [row.outcome for row in report.rows] == [outcome]


def test_a_line_that_was_cut_is_left_out():
    assert json_lines('device\n{"us": 1}\n{"us": 2}\n{"us": 3, "by') == [{"us": 1}, {"us": 2}]


def test_of_a_grid_counts_what_has_ended():
    output = "numerics: seed 1, kernels cuda, 60 configurations\n"
    assert read_numerics(output) == (0, 0, 0)
    output += "1 of 60: 7 points, 0 differ\nNOT SO: --batch 8: no hit\n"
    output += "2 of 60: 8 points, 3 differ, NOT SO\n"
    assert read_numerics(output + "3 of 60: 6 points, 1 dif") == (3, 15, 1)


RAN = "[  PASSED  ] 12 tests.\n"
RACE_OF_A_COPY = (
    "========= Error: Race reported between Write access at void linear_wgmma_kernel()+0x5640\n"
    "=========     and Read access at void linear_wgmma_kernel<BF16>()+0x6a40 [64 hazards]\n"
)


@pytest.mark.parametrize(
    ("code", "output", "outcome"),
    [
        (0, f"{RAN}========= ERROR SUMMARY: 0 errors", PASSED),
        (0, "[  PASSED  ] 0 tests.\n========= ERROR SUMMARY: 0 errors", FAILED),
        (0, "========= ERROR SUMMARY: 0 errors", FAILED),
        (99, "========= ERROR SUMMARY: 4 errors", FAILED),
        (0, f"{RAN}========= RACECHECK SUMMARY: 0 hazards displayed", PASSED),
        (99, "========= RACECHECK SUMMARY: 2 hazards displayed", FAILED),
        (0, f"{RAN}{RACE_OF_A_COPY}========= RACECHECK SUMMARY: 1 hazard displayed", PASSED),
        (0, f"{RAN}{RACE_OF_A_COPY}========= RACECHECK SUMMARY: 2 hazards displayed", FAILED),
        (1, "Error: Device not supported", NOT_RUN),
        (1, "Segmentation fault", FAILED),
    ],
)
def test_a_sanitizer_that_refuses_the_device_has_not_run(code, output, outcome):
    assert read_sanitizer(Done(code, output))[0] == outcome


def test_sizes_are_those_of_the_models():
    # Counted from the checkpoints of the hub; GPT-2's without positions, norms and biases.
    assert GPT2_MEDIUM.layer_elements() + GPT2_MEDIUM.head_elements() == 353_453_056
    assert LLAMA3_8B.layer_elements() + 2 * LLAMA3_8B.head_elements() == 8_029_995_008
    assert LLAMA3_8B.step_bytes(0) == 2 * (8_029_995_008 - 128256 * 4096)
    assert LLAMA3_8B.step_bytes(1000) - LLAMA3_8B.step_bytes(0) == 1000 * 131_072


def test_one_process_answers_for_all_peers_until_it_fails():
    peers = PeerProcess("cpu")
    assert peers.process is None  # not before it is asked
    code, said = peers.ask(["versions"], 60)
    assert code == 0 and json.loads(said)["what"] == "versions"
    first = peers.process
    code, said = peers.ask(["linear", "1,2", "8x16"], 60)
    assert code == 0 and [line["rows"] for line in json_lines(said)] == [1, 2]
    assert peers.process is first
    code, said = peers.ask(["magic"], 60)
    assert code == 1 and "no attribute 'magic'" in said
    code, said = peers.ask(["versions"], 0.01)
    assert code == KILLED and said == "ended after 0 s\n"
    peers.close()
    assert peers.process is None

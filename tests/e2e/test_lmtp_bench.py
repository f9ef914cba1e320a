"""lmtp-bench against lmtp-serve: what it counts is what was asked for, in every way of asking."""

import asyncio
import json
import math
import re
import signal
import subprocess
import xml.etree.ElementTree

import pytest
from checkpoints import DEMO, end_tokens
from lmtp_socket import Socket, wait_all_freed
from servers import bin_dir, free_port

TIMEOUT_S = 120
CONTEXT = 512
METRICS = ("ttft", "tpot", "itl", "e2el")


def command(*arguments):
    return [str(bin_dir() / "lmtp-bench"), *map(str, arguments)]


def bench(*arguments):
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def report_of(demo, *arguments, forbid_ends=("--ignore-eos",)):
    """The JSON of a run that went well; outputs keep their length."""
    done = bench("demo", "--host", demo.endpoint, "--json", "-", *forbid_ends, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def point_of(demo, *arguments, **how):
    (point,) = report_of(demo, *arguments, **how)["points"]
    assert (point["failed"], point["unfinished"], point["errors"]) == (0, 0, {})
    assert point["programs_completed"] == point["programs_started"]
    return point


def ask_info(demo):
    async def ask():
        async with Socket(demo.endpoint) as s:
            return await s.model_info()

    return asyncio.run(ask())


@pytest.fixture
def stats(demo):
    """A function that tells how the server's counters have grown since the test began."""
    before = ask_info(demo)["stats"]
    return lambda: {k: v - before[k] for k, v in ask_info(demo)["stats"].items()}


def test_the_server_names_its_end_tokens(demo):
    assert ask_info(demo)["eos_token_ids"] == end_tokens(DEMO)


def test_a_closed_loop(demo, stats):
    report = report_of(
        demo, "--max-concurrency", 6, "--connections", 4, "--num-prompts", 20, "--num-warmups", 3,
        "--random-output-len", 7, "--random-input-len", 40, "--save-detailed",
    )  # fmt: skip
    (point,) = report["points"]
    counts = (point["completed"], point["total_output_tokens"], point["total_input_tokens"])
    assert counts == (20, 20 * 7, 20 * 40)
    assert point["failed"] == point["unfinished"] == point["stopped_early"] == 0
    assert 1 <= point["max_concurrent_requests"] <= 6
    grown = stats()
    assert grown["num_generated_tokens"] == (20 + 3) * 7
    assert grown["num_prompt_tokens"] == (20 + 3) * 40
    assert report["model_info"]["vocab_size"] == ask_info(demo)["vocab_size"]
    seconds = point["duration"]
    assert abs(point["output_throughput"] * seconds - 140) < 0.01
    assert abs(point["total_token_throughput"] * seconds - 20 * 47) < 0.01
    assert abs(point["request_throughput"] * seconds - 20) < 0.01
    for metric in METRICS:
        p50, p90, p99, highest = (point[f"{p}_{metric}_ms"] for p in ("p50", "p90", "p99", "max"))
        assert 0 <= p50 <= p90 <= p99 <= highest <= seconds * 1000
        assert 0 <= point[f"mean_{metric}_ms"] <= highest
    check_requests(point)


def check_requests(point):
    requests = point["requests"]
    assert len(requests) == 20
    for request in requests:
        assert (request["input_tokens"], request["output_tokens"]) == (40, 7)
        assert (request["kind"], request["outcome"]) == ("generate", "length")
        assert 0 < request["ttft_ms"] <= request["e2el_ms"] <= point["duration"] * 1000
    # The means are exact, and TPOT is what lies between the first and the last token.
    for key in ("ttft_ms", "e2el_ms"):
        mean = sum(r[key] for r in requests) / 20
        assert math.isclose(point[f"mean_{key}"], mean, rel_tol=1e-3, abs_tol=1e-3)
    tpot = sum((r["e2el_ms"] - r["ttft_ms"]) / 6 for r in requests) / 20
    assert math.isclose(point["mean_tpot_ms"], tpot, rel_tol=1e-3, abs_tol=1e-3)
    assert math.isclose(point["mean_itl_ms"], tpot, rel_tol=1e-3, abs_tol=1e-3)


def test_a_sweep_of_rates_with_a_table_and_files(demo, tmp_path):
    json_file, svg_file = tmp_path / "bench.json", tmp_path / "bench.svg"
    done = bench(
        "demo", "--host", demo.endpoint, "--request-rate", "50,200,inf", "--num-prompts", 10,
        "-n", 4, "--json", json_file, "--plot", svg_file, "--metric-percentiles", "50,95",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for part in ("50/s: ", "200/s: ", "all at once: ", "TTFT", "TPOT", "p95", "start lag"):
        assert part in done.stdout
    assert "out tok/s" in done.stdout.splitlines()[-4]
    points = json.loads(json_file.read_text())["points"]
    assert [p["request_rate"] for p in points] == [50, 200, "inf"]
    assert [p["completed"] for p in points] == [10, 10, 10]
    assert "p95_itl_ms" in points[0] and "p90_itl_ms" not in points[0]
    root = xml.etree.ElementTree.parse(svg_file).getroot()
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Throughput", "Time to first token", "Inter-token latency", "p50", "p99"} <= set(texts)
    assert {"50", "200", "inf"} <= set(texts)


def test_random_lengths_and_prefix_groups(demo, stats):
    options = ["--dataset-name", "random", "--random-input-len", 20, "--random-range-ratio", 0.5]
    options += ["--prefix-len", 64, "--num-prefix-groups", 2, "--num-prompts", 12, "-n", 4]
    point = point_of(demo, *options, "--num-warmups", 0, "--max-concurrency", 1, "--save-detailed")
    lengths = {r["input_tokens"] for r in point["requests"]}
    assert len(lengths) > 1 and min(lengths) >= 64 + 10 and max(lengths) <= 64 + 30
    # All but the first of each group find its prefix.
    assert stats()["num_cached_tokens"] >= 10 * 64


def test_the_same_seed_asks_the_same(demo):
    options = ["--num-prompts", 3, "--max-concurrency", 1, "-n", 3, "--num-warmups", 0]
    cold = point_of(demo, *options, "--seed", 77)
    before = ask_info(demo)["stats"]["num_cached_tokens"]
    warm = point_of(demo, *options, "--seed", 77)
    grown = ask_info(demo)["stats"]["num_cached_tokens"] - before
    assert cold["total_input_tokens"] == warm["total_input_tokens"] == 3 * 128
    assert grown >= 3 * 127
    # Nothing of it in another seed's prompts.
    before += grown
    point_of(demo, *options, "--seed", 78)
    assert ask_info(demo)["stats"]["num_cached_tokens"] - before < 128


TRACE = """arrival_s,prompt_tokens,output_tokens,prefix_blocks
0.000,1600,40,0 1 2 3
0.100,1700,80,0 1 2 4
0.150,900,8,5 6
0.400,99999,8,7
"""


def test_a_trace(demo, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    options = ["demo", "--host", demo.endpoint, "--dataset-name", "trace", "--dataset-path", trace]
    options += ["--trace-length-divisor", 8, "--ignore-eos", "--num-warmups", 0]
    done = bench(*options, "--use-trace-timestamps", "--trace-speedup", 2, "--json", "-",
                 "--save-detailed")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"1 of the trace's 4 rows left out: longer than {CONTEXT} tokens" in done.stderr
    (point,) = json.loads(done.stdout)["points"]
    requests = sorted(point["requests"], key=lambda r: r["start_s"])
    assert [r["input_tokens"] for r in requests] == [200, 213, 113]
    assert [r["output_tokens"] for r in requests] == [5, 10, 1]
    for request, due in zip(requests, (0, 0.05, 0.075)):
        assert request["start_s"] >= due
    assert point["duration"] >= 0.075
    wrong = bench(*options, "--use-trace-timestamps", "--num-prompts", 9)
    assert wrong.returncode == 2 and "the trace has 3 rows" in wrong.stderr


def test_a_traces_rows_share_their_blocks(demo, stats, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    point = point_of(
        demo, "--dataset-name", "trace", "--dataset-path", trace, "--trace-length-divisor", 8,
        "--num-warmups", 0, "--max-concurrency", 1, "--num-prompts", 3, "--seed", 5,
    )  # fmt: skip
    assert point["total_input_tokens"] == 200 + 213 + 113
    # Three blocks of 512 / 8 tokens; a few more where a random token is met by chance.
    assert 192 <= stats()["num_cached_tokens"] < 192 + 16


def test_lmql_chunks(demo, stats):
    options = ["--dataset-name", "lmql", "--lmql-pattern", "chunks", "--num-prompts", 4]
    point = point_of(demo, *options, "-n", 40, "--num-warmups", 0, "--max-concurrency", 2)
    assert point["programs_completed"] == 4
    assert point["completed"] == 4 * 3  # 16, 16, 8
    assert point["total_output_tokens"] == 4 * 40
    assert point["total_input_tokens"] == 4 * (128 + 144 + 160)
    # Each later chunk computes little more than one token of its prompt.
    assert stats()["num_cached_tokens"] >= 4 * (128 + 144)
    assert 0 < point["max_program_ms"] <= point["duration"] * 1000


def test_lmql_beams_and_scores(demo, stats):
    options = ["--dataset-name", "lmql", "--num-warmups", 0, "--num-prompts"]
    beams = point_of(demo, *options, 2, "-n", 5, "--lmql-pattern", "beams", "--lmql-beams", 3)
    assert beams["completed"] == beams["total_output_tokens"] == 2 * (1 + 4 * 3)
    scores = point_of(
        demo, *options, 2, "--lmql-pattern", "scores", "--lmql-scores", 5, "--lmql-score-len", 3,
        "--max-concurrency", 1, forbid_ends=(),
    )  # fmt: skip
    assert scores["completed"] == 2 * 5
    assert (scores["max_concurrent_requests"], scores["max_concurrent_programs"]) == (5, 1)
    assert stats()["num_scored_tokens"] == scores["total_output_tokens"] == 2 * 5 * 3
    mixed = point_of(demo, *options, 3, "-n", 5, "--prefix-len", 16)
    assert mixed["completed"] == 1 + (1 + 4 * 4) + 8


def test_scores(demo, stats):
    done = bench(
        "--host", demo.endpoint, "--score", "-n", 5, "--num-prompts", 4, "--num-warmups", 0
    )
    assert done.returncode == 0, done.stderr
    assert "concurrency 8: " in done.stdout and "completed 4, failed 0" in done.stdout
    assert stats()["num_scored_tokens"] == 4 * 5


def test_a_given_prompt_and_a_time(demo):
    report = report_of(demo, "--prompt", "[1, 2, 3]", "--duration", 1, "-n", 400)
    assert report["options"]["prompt"] == [1, 2, 3]
    assert (report["options"]["duration"], report["options"]["num_prompts"]) == (1, None)
    assert report["points"][0]["total_output_tokens"] > 0
    asyncio.run(wait_all_freed(demo.endpoint))  # what was cut off is cancelled


# Where a load goes and what is written is not among what shapes it.
NO_SHAPE = {"help", "version", "completion", "host", "port", "model", "json", "plot"}
NO_SHAPE |= {"api-key", "cacert", "insecure"}


def test_the_report_names_every_option(demo):
    """As it was given, or as it was chosen where it was not."""
    names = re.findall(r"^ +(?:-\w,)?--([a-z-]+)", bench("--help").stdout, re.MULTILINE)
    assert len(names) > 30
    report = report_of(demo, "--num-prompts", 2, "--max-concurrency", "1,2", "-n", 3)
    options = report["options"]
    assert set(options) == {n.replace("-", "_") for n in names if n not in NO_SHAPE}
    info = report["model_info"]
    assert (options["vocab_size"], options["max_model_len"]) == (info["vocab_size"], CONTEXT)
    assert options["ban_token"] == info["eos_token_ids"]
    assert (options["num_prompts"], options["num_warmups"], options["seed"]) == (2, 1, 1)
    assert (options["max_concurrency"], options["request_rate"]) == ([1, 2], [])
    first, second = report["points"]
    assert first["num_prompts"] == second["num_prompts"] == 2
    assert first["seed"] != second["seed"]


def test_an_option_without_effect_is_refused(demo):
    wrong = bench("--host", demo.endpoint, "--burstiness", 2)
    assert wrong.returncode == 2
    assert "--burstiness has no effect without a finite --request-rate" in wrong.stderr


def test_ctrl_c_prints_what_has_come(demo, tmp_path):
    json_file = tmp_path / "bench.json"
    options = ["--num-prompts", 1_000_000, "-n", 4, "--max-concurrency", "2,4", "--json", json_file]
    with subprocess.Popen(
        command("demo", "--host", demo.endpoint, *options, "--num-warmups", 0),
        stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        before = ask_info(demo)["stats"]["num_generated_tokens"]
        while ask_info(demo)["stats"]["num_generated_tokens"] < before + 20:
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 130
    assert "concurrency 2: " in output and "interrupted" in output
    (point,) = json.loads(json_file.read_text())["points"]
    assert point["interrupted"] and point["completed"] >= 1 and point["programs_not_sent"] > 0
    asyncio.run(wait_all_freed(demo.endpoint))


def test_errors(demo, tmp_path):
    refused = bench("--port", free_port())
    assert refused.returncode == 1 and "refused" in refused.stderr
    too_long = bench("--host", demo.endpoint, "--input-len", 600, "--num-prompts", 3)
    assert too_long.returncode == 1 and "511" in too_long.stderr
    counted = bench(
        "--host", demo.endpoint, "--input-len", 600, "--num-prompts", 3, "--num-warmups", 0,
        "--json", "-",
    )  # fmt: skip
    assert counted.returncode == 1
    (point,) = json.loads(counted.stdout)["points"]
    ((text, count),) = point["errors"].items()
    assert (point["failed"], point["completed"], count) == (3, 0, 3) and "511" in text
    unknown = bench("nothing", "--host", demo.endpoint, "--vocab-size", 100)
    assert unknown.returncode == 1 and "nothing" in unknown.stderr
    for wrong in (["--max-concurrency", 0], ["--prompt", "[]"], ["--plot", tmp_path / "no/x.svg"]):
        assert bench("--host", demo.endpoint, *wrong).returncode == 2

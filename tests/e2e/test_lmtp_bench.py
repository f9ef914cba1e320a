"""lmtp-bench against lmtp-serve: what it counts is what was asked for."""

import asyncio
import json
import subprocess

from checkpoints import DEMO, end_tokens
from lmtp_socket import Socket, wait_all_freed
from servers import bin_dir, free_port

TIMEOUT_S = 120
(END_OF_TEXT,) = end_tokens(DEMO)


def bench(*arguments):
    return subprocess.run(
        [str(bin_dir() / "lmtp-bench"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def generated_so_far(demo):
    async def ask():
        async with Socket(demo.endpoint) as s:
            stats = (await s.model_info())["stats"]
            return stats["num_generated_tokens"], stats["num_scored_tokens"]

    return asyncio.run(ask())


def test_counts(demo):
    before = generated_so_far(demo)
    options = ["--streams", 6, "--connections", 4, "--requests", 20, "--warmup", 3, "-n", 7]
    done = bench(
        "demo", "--host", demo.endpoint, *options, "--ban-token", END_OF_TEXT, "--json",
        "--prompt-tokens", 40,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["requests"], report["tokens"], report["errors"]) == (20, 140, 0)
    assert report["unfinished"] == report["stopped_early"] == 0
    generated, _ = generated_so_far(demo)
    assert generated - before[0] == (20 + 3) * 7
    seconds = report["wall_s"]
    assert abs(report["tokens_per_s"] * seconds - 140) < 1
    assert abs(report["prompt_tokens_per_s"] * seconds - 20 * 40) < 2
    for times in (report["first_token_ms"], report["between_tokens_ms"]):
        assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"] <= seconds * 1000


def test_scores(demo):
    before = generated_so_far(demo)
    done = bench("--host", demo.endpoint, "--score", "-n", 5, "--requests", 4, "--warmup", 0)
    assert done.returncode == 0, done.stderr
    assert "first token, ms" in done.stdout and "scored" in done.stdout
    _, scored = generated_so_far(demo)
    assert scored - before[1] == 4 * 5


def test_a_given_prompt_and_a_time(demo):
    done = bench(
        "--host", demo.endpoint, "--prompt", "[1, 2, 3]", "--duration", 0.3, "--json", "-n", 400
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["prompt_tokens"] == 3 and report["tokens"] > 0
    asyncio.run(wait_all_freed(demo.endpoint))  # what was cut off is cancelled


def test_errors(demo):
    refused = bench("--port", free_port())
    assert refused.returncode == 1 and "refused" in refused.stderr
    too_long = bench("--host", demo.endpoint, "--prompt-tokens", 600, "--requests", 3)
    assert too_long.returncode == 1 and "511" in too_long.stderr
    counted = bench(
        "--host", demo.endpoint, "--prompt-tokens", 600, "--requests", 3, "--warmup", 0, "--json"
    )
    assert counted.returncode == 1
    report = json.loads(counted.stdout)
    assert report["errors"] == 3 and report["requests"] == 0 and "511" in report["first_error"]
    for wrong in (["--streams", 0], ["--connections", 9, "--streams", 8], ["--prompt", "[]"]):
        assert bench("--host", demo.endpoint, *wrong).returncode == 2

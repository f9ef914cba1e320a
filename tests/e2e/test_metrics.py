"""GET /metrics: what was done is what is counted, and promtool finds nothing to say about it."""

import asyncio
import http.client
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from auto_server import Auto, finish
from checkpoints import ENDLESS_CONTEXT, FOREVER
from lmtp_socket import Socket, info_of, wait_all_freed
from servers import LmtpServe

FOUND_BY_SETUP = pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "lmtp", "promtool"
)
PROMPT = [46, 789, 579, 258]


def get(endpoint, method="GET", **fields):
    connection = http.client.HTTPConnection(endpoint, timeout=60)
    connection.request(method, "/metrics", headers=fields)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def samples(text):
    """{name with labels: value}; the text's own order of labels."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert name not in found, line
            found[name] = float(value)
    return found


def of_model(text, model="demo"):
    """What has the label of that model alone, by name without prefix and labels."""
    label = f'{{model_name="{model}"}}'
    return {
        name.removeprefix("lmtp_").removesuffix(label): value
        for name, value in samples(text).items()
        if name.endswith(label)
    }


async def generate(s, stream_id, max_tokens, **more):
    await s.send("GENERATE", stream_id=stream_id, prompt=PROMPT, max_tokens=max_tokens, **more)


async def do_requests(endpoint):
    """Two generations of 5 tokens, a score of 3, one cancelled, one refused; the tokens of the
    cancelled one depend on when that is."""
    async with Socket(endpoint) as s:
        for stream_id in (1, 2):
            await generate(s, stream_id, 5)
            assert (await s.finish(stream_id))[1] == "length"
        await s.send("SCORE", stream_id=3, prompt=PROMPT, scored=[40, 41, 42])
        assert (await s.finish(3))[1] == "stop"
        await generate(s, 4, **FOREVER)
        await s.token_of(4)
        await s.send("CANCEL", stream_id=4)
        assert await s.error_of(4) == "cancelled"
        await generate(s, 5, 5, model="no-such")
        assert "no-such" in await s.error_of(5)


@pytest.fixture(scope="module")
def counted(endless_model):
    """(text of /metrics, MODEL_INFO, log) of a server with exactly these requests."""
    with LmtpServe(endless_model, "--kv-cache", "64MiB") as server:
        asyncio.run(do_requests(server.endpoint))
        asyncio.run(wait_all_freed(server.endpoint))
        info = asyncio.run(info_of(server.endpoint))
        _, text = get(server.endpoint)
    assert server.exit_code == 0, server.log_tail
    return text.replace(f'"{endless_model}"', '"endless"'), info, server.output


def test_what_was_done_is_counted(counted):
    text, info, _ = counted
    values = of_model(text, "endless")
    stats = info["stats"]
    assert values["generation_tokens_total"] == stats["num_generated_tokens"]
    assert values["scored_tokens_total"] == 3
    assert values["prompt_tokens_total"] == 4 * len(PROMPT)
    assert values["prefix_cache_hits_total"] == stats["num_cached_tokens"] > 0
    assert values["num_requests_running"] == values["num_requests_waiting"] == 0
    assert values["kv_cache_usage_perc"] == 0
    assert values["request_queue_time_seconds_count"] == 4
    assert values["time_to_first_token_seconds_count"] == 4
    assert values["inter_token_latency_seconds_count"] == stats["num_generated_tokens"] - 3
    assert values["e2e_request_latency_seconds_count"] == 3
    assert values["request_generation_tokens_count"] == 2
    assert values["request_generation_tokens_sum"] == 10
    assert values["request_prompt_tokens_sum"] == 3 * len(PROMPT)
    assert values["iteration_tokens_count"] == values["steps_total"] == stats["num_steps"]
    masks = ("masks_total", "masks_late_total", "mask_wait_seconds_total", "forced_tokens_total")
    assert [values[name] for name in masks] == [0, 0, 0, 0], "no stream was constrained"
    # The first counts the cancelled stream too, which has no end-to-end latency.
    assert values["time_to_first_token_seconds_sum"] > 0
    assert values["e2e_request_latency_seconds_sum"] > 0
    every = samples(text)
    ends = {
        name: value for name, value in every.items() if re.match("lmtp_request_(succ|fail)", name)
    }
    assert {name: value for name, value in ends.items() if value} == {
        'lmtp_request_success_total{model_name="endless",finished_reason="length"}': 2,
        'lmtp_request_success_total{model_name="endless",finished_reason="stop"}': 1,
        'lmtp_request_failure_total{model_name="endless",cause="cancelled"}': 1,
    }


def test_steps_wait_for_masks_of_constrained_streams_alone(demo):
    """By what is counted: a free stream adds nothing, before and after."""

    async def counts_after(s, stream_id, **fields):
        await generate(s, stream_id, 40, **fields)
        ids, _ = await s.finish(stream_id)
        stats = (await s.model_info())["stats"]
        names = ("num_masks", "num_late_masks", "mask_wait_us", "num_forced_tokens")
        return ids, [stats[name] for name in names]

    async def ask():
        async with Socket(demo.endpoint) as s:
            _, before = await counts_after(s, 1)
            assert before == [0, 0, 0, 0]
            grammar = {"type": "regex", "value": "[a-z]{5,20}-Once upon a time-[0-9]{9}"}
            ids, masked = await counts_after(s, 2, grammar=grammar)
            num_masks, num_late, wait_us, num_forced = masked
            assert num_forced > 0 and wait_us > 0
            assert num_masks - num_late == len(ids) - num_forced
            assert (await counts_after(s, 3))[1] == masked

    asyncio.run(ask())


def test_the_same_under_the_names_of_vllm_and_tgi(counted):
    every, stats = samples(counted[0]), counted[1]["stats"]
    of_vllm = {
        name.removeprefix("vllm:").replace('{model_name="endless",engine="0"}', ""): value
        for name, value in every.items()
        if name.startswith("vllm:")
    }
    assert of_vllm["prompt_tokens_total"] == 4 * len(PROMPT)
    assert of_vllm["generation_tokens_total"] == stats["num_generated_tokens"]
    assert of_vllm["prefix_cache_hits_total"] == stats["num_cached_tokens"]
    assert of_vllm["time_to_first_token_seconds_count"] == 4
    assert of_vllm["e2e_request_latency_seconds_count"] == 3
    assert of_vllm["num_requests_running"] == of_vllm["kv_cache_usage_perc"] == 0
    reasons = {
        reason: of_vllm[
            f'request_success_total{{model_name="endless",engine="0",finished_reason="{reason}"}}'
        ]
        for reason in ("stop", "length", "abort")
    }
    assert reasons == {"stop": 1, "length": 2, "abort": 1}
    label = '{model_name="endless"}'
    assert every[f"tgi_request_count{label}"] == 4
    assert every[f"tgi_request_success{label}"] == 3
    assert every['tgi_request_failure{model_name="endless",err="dropped"}'] == 1
    assert every["tgi_request_count"] == every['tgi_request_failure{err="validation"}'] == 1
    assert every[f"tgi_request_generated_tokens_sum{label}"] == 10
    assert every[f"tgi_request_inference_duration_count{label}"] == 3
    assert every[f"tgi_request_mean_time_per_token_duration_count{label}"] == 2
    total = every[f"tgi_request_duration_sum{label}"]
    assert 0 < every[f"tgi_request_inference_duration_sum{label}"] <= total


def promtool_says(text):
    promtool = shutil.which("promtool") or shutil.which(FOUND_BY_SETUP)
    if promtool is None:
        pytest.skip("promtool is missing: run tools/setup --tests")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True
    )
    return (done.stdout + done.stderr).splitlines()


def test_promtool_finds_nothing_to_say(counted):
    with LmtpServe("demo", "--kv-cache", "64MiB", "--metrics-aliases", "none") as server:
        alone = get(server.endpoint)[1]
    assert not re.search("^(vllm:|tgi_)", alone, re.MULTILINE)
    assert promtool_says(alone) == []
    # Of the names that others chose it only finds that they are not as names should be.
    odd = re.compile(
        "(vllm:|tgi_).*("
        "should not contain ':'|should have \"_total\" suffix|should not have \"_(count|total)\"|"
        "should not have \"_bucket\", \"_count\", or \"_sum\")"
    )
    assert [line for line in promtool_says(counted[0]) if not odd.match(line)] == []


def test_each_request_is_a_line(counted):
    lines = [line for line in counted[2].splitlines() if " info request " in line]
    assert len(lines) == 5
    outcomes = [line.rsplit(": ", 1)[1] for line in lines]
    assert outcomes == ["length", "length", "stop", "cancelled", "not_found"]
    one = r"info request \d+/1 at 127\.0\.0\.1: generate, prompt 4 \(cached 0\), generated 5, "
    assert re.search(one + r"queued [\d.]+ ms, first token [\d.]+ ms, total [\d.]+ ms", lines[0])
    refused = r"/5 at 127\.0\.0\.1 to 'no-such': generate, prompt 4 \(cached 0\), generated 0, "
    assert re.search(refused, lines[4]), "no engine had it"


def test_head_and_who_may_ask(demo):
    answer, text = get(demo.endpoint)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    head, nothing = get(demo.endpoint, "HEAD")
    assert (head.status, nothing) == (200, "")
    assert head.headers["Content-Type"] == answer.headers["Content-Type"]
    assert abs(int(head.headers["Content-Length"]) - len(text)) < 1000
    assert get(demo.endpoint, "POST")[0].status == 405
    assert get(demo.endpoint, Origin="https://example.org")[0].status == 403
    assert get(demo.endpoint, Host="example.org")[0].status == 421


def test_refusals_are_counted_by_cause(endless_model):
    """Of the server, without a model's label: a refused request may name any model."""

    async def ask(endpoint):
        async with Socket(endpoint) as s:
            await generate(s, 1, 1, model="no-such-model")
            await s.error_of(1)
            too_long = [1] * (ENDLESS_CONTEXT + 1)
            for prompt in (too_long, [-1]):  # which is no token
                await s.send("GENERATE", stream_id=2, prompt=prompt, max_tokens=1)
                await s.error_of(2)
            await generate(s, 3, **FOREVER)
            await s.token_of(3)
            await generate(s, 3, 1)  # a live stream
            await s.error_of(3)
            await s.send("CANCEL", stream_id=3)
            await s.error_of(3)
        return get(endpoint)[1]

    with LmtpServe(endless_model, "--kv-cache", "64MiB") as server:
        before, after = get(server.endpoint)[1], asyncio.run(ask(server.endpoint))
    name = "lmtp_requests_refused_total"
    counts = [
        {key: value for key, value in samples(text).items() if key.startswith(name) and value}
        for text in (before, after)
    ]
    assert counts[0] == {}
    causes = {"invalid": 2, "too_long": 1, "not_found": 1}
    assert counts[1] == {f'{name}{{cause="{cause}"}}': n for cause, n in causes.items()}


def test_unknown_model_names_are_no_series(tmp_path):
    """Nor is a model before it is loaded; then it has one, under the name it was asked for."""

    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream, name in enumerate(["no-such-model", 'no/such"model', "x" * 5000]):
                await generate(s, stream, 1, model=name)
                await s.error_of(stream)
            before = get(server.endpoint)[1]
            await finish(s, 9, "demo", max_tokens=2)
        return before

    with Auto(tmp_path) as server:
        before = asyncio.run(ask(server))
        after = get(server.endpoint)[1]
    assert "model_name" not in before
    refused = {name: n for name, n in samples(before).items() if "requests_refused_total" in name}
    assert sum(refused.values()) == 3, "they failed before there was an engine"
    assert set(re.findall('model_name="([^"]*)"', after)) == {"demo"}
    assert of_model(after)["generation_tokens_total"] == 2

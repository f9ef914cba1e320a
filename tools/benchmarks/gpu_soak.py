"""Part `soak`: rounds of many connections for some minutes, a part of whose streams are cancelled
at every stage: all else finishes whole, nothing is held at the end, memory stays flat."""

import asyncio
import math
import random
import time

from gpu_report import FAILED, MEASURED, NOT_RUN, PASSED
from gpu_run import ANSWER_SECONDS, query_device
from rounds import GROWTH_MAX, WARM_ROUNDS, memory_growth
from soak_programs import draw
from wire import Connection, StreamError

SECONDS = 300
QUICK_SECONDS = 5
CONNECTIONS, STREAMS = 48, 8
CANCELLED_OF_TEN = 3
CANCELLED_AFTER_MAX_S = 0.1
LONG_PROMPT, LONG_SHARE = 16, 1.25  # of the cache, that the long streams of a round would fill
ROUND_TIMEOUT_S = 120
COUNTS = ("finished", "cancelled", "lost", "broken", "stray", "tokens")


def is_whole(verb, request, count, entries):
    """The stream has all its tokens, in order, and its end is the last of them."""
    if [e for e in entries[:-1] if e["finish_reason"]] or not entries:
        return False
    if verb == "SCORE":
        return [e["token"] for e in entries] == request["scored"]
    stopped = len(entries) < count and entries[-1]["finish_reason"] == "stop"
    return len(entries) == count or stopped


async def cancel_later(c, rng, stream_id):
    await asyncio.sleep(rng.random() * CANCELLED_AFTER_MAX_S)
    await c.ws.send_str(f'CANCEL {{"stream_id": {stream_id}}}')


def long_requests(info, rng):
    """As long as the context, and together longer than the cache: some of them are preempted."""
    stats, length = info["stats"], info["context_length"]
    num_cached = stats["num_blocks"] * stats["tokens_per_block"]
    count = length - LONG_PROMPT
    params = {"max_tokens": count, "temperature": 0,
              "logit_bias": {str(token): -100 for token in info["eos_token_ids"]}}  # fmt: skip
    prompts = [
        [rng.randrange(info["vocab_size"]) for _ in range(LONG_PROMPT)]
        for _ in range(math.ceil(LONG_SHARE * num_cached / length))
    ]
    return [("GENERATE", {"prompt": prompt, **params}, count) for prompt in prompts]


async def one_connection(endpoint, requests, cancelled_of_ten, rng, result):
    async with Connection(endpoint, timeout_s=ROUND_TIMEOUT_S) as c:
        ids = [await c.send(verb, **request) for verb, request, _ in requests]
        doomed = [stream_id for stream_id in ids if rng.randrange(10) < cancelled_of_ten]
        cancels = [asyncio.create_task(cancel_later(c, rng, stream_id)) for stream_id in doomed]
        for stream_id, (verb, request, count) in zip(ids, requests):
            try:
                entries = await c.collect(stream_id)
            except (StreamError, asyncio.TimeoutError) as error:
                kind = "cancelled" if str(error) == "cancelled" else "lost"
                wanted = kind == "cancelled" and stream_id in doomed
                result[kind if wanted else "lost"] += 1
                if not wanted:
                    result.setdefault("reasons", []).append(repr(error))
                continue
            result["finished"] += 1
            result["tokens"] += len(entries)
            result["broken"] += not is_whole(verb, request, count, entries)
        await asyncio.gather(*cancels)
        result["stray"] += len(c.stray)


async def model_info(endpoint):
    async with Connection(endpoint, timeout_s=ANSWER_SECONDS) as c:
        return await c.model_info()


async def one_round(endpoint, info, seed):
    result = dict.fromkeys(COUNTS, 0)
    rng = random.Random(f"long {seed}")
    connections = [one_connection(endpoint, long_requests(info, rng), 0, rng, result)]
    for i in range(CONNECTIONS):
        rng = random.Random(f"{seed} {i}")
        requests = [draw(rng, info["vocab_size"]) for _ in range(STREAMS)]
        connections.append(one_connection(endpoint, requests, CANCELLED_OF_TEN, rng, result))
    await asyncio.gather(*connections)
    stats = (await model_info(endpoint))["stats"]
    result["held"] = stats["num_running"] + stats["num_waiting"] + stats["num_blocks_pinned"]
    result["failed_steps"] = stats["num_failed_steps"]
    result["preemptions"] = stats["num_preemptions"]
    return result


def device_megabytes(check):
    """In use on the device, by nvidia-smi; None where that is not there."""
    if not check.on_gpu:
        return None
    text = query_device(check.device, "memory.used", "nounits")
    return int(text) if text.isdigit() else None


def run(check):
    check.guarded("rounds of many connections", run_rounds)


def run_rounds(check):
    model, kv_cache = ("random:gpt2-medium", "1GiB") if check.on_gpu else ("demo", "8MiB")
    seconds = QUICK_SECONDS if check.quick else min(SECONDS, check.seconds_left() - 60)
    with check.serve(model, "--kv-cache", kv_cache) as server:
        info = asyncio.run(model_info(server.endpoint))
        rounds, started = [], time.monotonic()
        while len(rounds) <= WARM_ROUNDS or time.monotonic() - started < seconds:
            result = asyncio.run(one_round(server.endpoint, info, len(rounds)))
            result["rss"], result["device_mb"] = server.rss_bytes(), device_megabytes(check)
            rounds.append(result)
            if result["lost"] or result["broken"] or result["held"]:
                break
        took = time.monotonic() - started
    tell(check, model, rounds, took, server.exit_code)


def tell(check, model, rounds, took, exit_code):
    total = {key: sum(r[key] for r in rounds) for key in COUNTS}
    wrong = total["lost"] + total["broken"] + total["stray"] + rounds[-1]["failed_steps"]
    wrong += sum(r["held"] for r in rounds)
    preemptions = rounds[-1]["preemptions"]
    reasons = sorted({reason for r in rounds for reason in r.get("reasons", [])})[:3]
    check.report.add(
        f"{model}: {len(rounds)} rounds of {CONNECTIONS} connections, {STREAMS} streams each",
        PASSED if wrong == 0 and preemptions > 0 and exit_code == 0 else FAILED,
        f"{total['finished']:,} finished, {total['cancelled']:,} cancelled, {wrong} wrong",
        "0 lost, broken, stray or held; some preempted; exit code 0",
        f"{took:.0f} s, {total['tokens'] / took:,.0f} tok/s, "
        f"{preemptions:,} preemptions, exit code {exit_code}"
        + "".join(f"; {reason}" for reason in reasons),
        **total,
    )  # fmt: skip
    growth = memory_growth(rounds)
    check.report.add(
        "memory of the host after the warm rounds", PASSED if growth <= GROWTH_MAX else FAILED,
        f"{growth:+.1%}", f"<= {GROWTH_MAX:+.0%}", f"{rounds[-1]['rss'] / 2**20:,.0f} MiB",
    )  # fmt: skip
    report_device_memory(check, [r["device_mb"] for r in rounds])


def report_device_memory(check, megabytes):
    if None in megabytes:
        check.report.add("memory of the device", NOT_RUN, notes="no device, or no nvidia-smi")
        return
    growth = max(megabytes[WARM_ROUNDS:]) - megabytes[WARM_ROUNDS - 1]
    outcome = PASSED if growth <= 0 else MEASURED
    check.report.add("memory of the device after the warm rounds", outcome, f"{growth:+} MiB",
                     notes=f"{megabytes[-1]:,} MiB in use")  # fmt: skip

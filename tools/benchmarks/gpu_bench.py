"""Part `bench`: the table of figures, each with its peer in the same run (docs/gpu_check.md)."""

import asyncio
import dataclasses
import json
import pathlib
import random
import statistics
import tempfile
import time

from gpu_kernels import (
    measure_anatomy,
    measure_attention,
    measure_linears,
    measure_machine,
    measure_ops,
    measure_probe,
    measure_sampler,
)
from gpu_report import NOT_RUN
from gpu_run import ANSWER_SECONDS, CheckedServe
from gpu_shapes import DEMO, GPT2_MEDIUM, LLAMA3_8B, Shape
from servers import POLL_S
from streams import run_lmtp
from wire import Connection

MASK_ROUNDS = 3
START_KV_CACHE = "1GiB"
CACHED_SHARE_MAX = 0.01  # random prompts may begin alike
LOAD_SECONDS = 60  # of one lmtp-bench
GENERATE_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured; a dry run has the same rows over less."""

    small: str
    small_shape: Shape
    peer_shape: str
    large: str
    large_shape: Shape
    prompt: int
    count: int  # tokens of a stream over the socket
    prefill: int
    streams: tuple
    masked_streams: int
    mask_size: int
    masked_counts: tuple  # tokens of a masked request; more where the streams never all decode
    decoded: int
    batches: str
    contexts: str
    linear_rows: str
    samples: tuple  # rows and vocabulary
    anatomy_shapes: tuple
    anatomy_rows: str
    anatomy_context: int


ON_GPU = Plan("random:gpt2-medium", GPT2_MEDIUM, "gpt2-medium", "random:llama-3-8b", LLAMA3_8B,
              128, 128, 2048, (64, 256), 128, 25_000, (128, 384, 800), 512,
              "1,4,16,64,256", "128,512,2048,8192", "1,8,16,32,64,128,256,2048",
              (("1,256", 50257), ("1", 128256)),
              ("gpt2-medium", "llama-3-8b"), "1,64", 200)  # fmt: skip
QUICK = dataclasses.replace(ON_GPU, streams=(64,), decoded=256, batches="1,64",
                            contexts="512,8192", linear_rows="1,64,2048")  # fmt: skip
DRY = Plan("demo", DEMO, "demo", "demo", DEMO, 16, 8, 256, (4,), 4, 1000, (32, 128), 32, "1,4",
           "128", "1,64", (("1", 2048),), ("gpt2",), "1", 32)  # fmt: skip


def run(check):
    """What says most comes first: why, before how fast."""
    plan = DRY if not check.on_gpu else QUICK if check.quick else ON_GPU
    check.guarded("probe of the device", measure_probe)
    machine = measure_machine(check)
    check.guarded("a step's anatomy", measure_anatomy, plan)
    check.guarded("sampler", measure_sampler, plan)
    check.guarded("linear layers", measure_linears, plan)
    check.guarded("decode attention", measure_attention, plan, machine)
    check.guarded("small ops", measure_ops, plan)
    check.guarded("the small model over the socket", measure_small, plan, machine)
    check.guarded("the large model over the socket", measure_large, plan, machine)
    check.guarded("exec to first token", measure_start, plan)


# ---- lmtp-bench and the server's counters ----


def load(check, server, *options):
    """The one point of lmtp-bench's report."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "point.json"
        port = server.endpoint.rpartition(":")[2]
        done = check.call(check.program("lmtp-bench"), "--port", port, "--json", file,
                          "--seed", next(check.seeds), *options, seconds=LOAD_SECONDS)  # fmt: skip
        if done.code != 0 or not file.exists():
            raise RuntimeError(f"lmtp-bench: exit code {done.code}: {done.tail}")
        (point,) = json.loads(file.read_text())["points"]
    return point


def counted(before, after, *names):
    return (after[name] - before[name] for name in names)


def lengths(prompt, count):
    return ["--random-input-len", prompt, "--random-output-len", count, "--ignore-eos"]


def stats_of(server):
    async def ask():
        async with Connection(server.endpoint, timeout_s=ANSWER_SECONDS) as c:
            return (await c.model_info())["stats"]

    return asyncio.run(ask())


# ---- rows of the small model ----


def measure_small(check, plan, machine):
    with check.serve(plan.small) as server:
        check.guarded(f"{plan.small}, batch 1 decode", measure_decode, server, plan, plan.small,
                      plan.small_shape, machine, 3000, 4000, 0.45)  # fmt: skip
        ours = {
            count: check.guarded(f"{count} streams", measure_streams, server, plan, count)
            for count in plan.streams
        }
        check.guarded("masks of their own", measure_masks, plan, server)
        check.guarded("chunks under one mask", measure_chunks, plan, server)
    check.guarded("transformers beside it", compare_streams, plan, ours)


def measure_decode(check, server, plan, model, shape, machine, least, then, least_share):
    point = load(check, server, "--max-concurrency", 1, "--num-prompts", 4,
                 *lengths(plan.prompt, plan.decoded))  # fmt: skip
    seconds = point["p50_tpot_ms"] / 1e3
    what = f"{model} {model_type(check)}, batch 1 decode"
    check.report.compare(what, 1 / seconds, "tok/s", least=least, then=then, tpot_ms=seconds * 1e3)
    num_bytes = shape.step_bytes(plan.prompt + plan.decoded // 2)
    bandwidth = machine["read_bytes_per_s"]
    share = num_bytes / seconds / bandwidth if bandwidth else None
    check.report.compare(
        f"{what}: share of the read bandwidth", share, "", least=least_share, digits=3,
        notes=f"{num_bytes / 1e6:,.0f} MB a step", step_bytes=num_bytes,
    )  # fmt: skip


def model_type(check):
    return "bf16" if check.on_gpu else "bf16 on the CPU"


def measure_streams(check, server, plan, count):
    """Output tokens per second; and the host's time, from the server's counters."""
    before = stats_of(server)
    point = load(check, server, "--max-concurrency", count, "--num-prompts", 4 * count,
                 "--connections", min(4, count), *lengths(plan.prompt, plan.count))  # fmt: skip
    after = stats_of(server)
    steps, busy, wait = counted(before, after, "num_steps", "busy_us", "device_wait_us")
    host_us = (busy - wait) / steps
    tokens_per_s = point["output_throughput"]
    check.report.compare(
        f"{count} streams, {plan.prompt} in and {plan.count} out over the socket",
        tokens_per_s, "tok/s",
        notes=f"TTFT p50 {point['p50_ttft_ms']:.1f} ms, TPOT p50 {point['p50_tpot_ms']:.2f} ms",
    )  # fmt: skip
    check.report.compare(
        f"host time a step, not hidden, {count} streams", host_us, "us",
        most=50 if count == 64 else None, then=20 if count == 64 else None, digits=1,
        notes=f"{steps} steps; all of a step on a CPU" if not check.on_gpu else f"{steps} steps",
    )  # fmt: skip
    return tokens_per_s


def compare_streams(check, plan, ours):
    rows, done = check.call_peer("generate", plan.peer_shape, ",".join(map(str, ours)),
                                 plan.prompt, plan.count, seconds=GENERATE_SECONDS)  # fmt: skip
    theirs = {row["batch"]: row for row in rows if row["what"] == "generate"}
    for count, tokens_per_s in ours.items():
        what = f"{count} streams over the socket, beside transformers' batched generate"
        row = theirs.get(count)
        if row is None or tokens_per_s is None:
            notes = done.tail if row is None else "there is no figure of ours"
            check.report.add(what, NOT_RUN, notes=notes)
            continue
        check.report.compare(
            what, tokens_per_s / row["tokens_per_s"], "x", least=10, digits=1,
            notes=f"{row['by']}: {row['tokens_per_s']:,.0f} tok/s",
        )  # fmt: skip


# ---- masks ----


def measure_masks(check, plan, server):
    """Streams with a mask each beside the same streams without, while all of them decode."""
    rng, vocab = random.Random(1), plan.small_shape.vocab
    count = plan.masked_streams
    masks = [rng.sample(range(vocab), plan.mask_size) for _ in range(count)]
    for tokens in plan.masked_counts:
        try:
            with_masks, without = [], []
            for number in range(1 if check.quick else MASK_ROUNDS):
                with_masks.append(step_s(server, rng, vocab, count, tokens, masks))
                without.append(step_s(server, rng, vocab, count, tokens, None))
        except RuntimeError as error:  # they never decoded all at once
            problem = str(error)
            continue
        slower = statistics.median(with_masks) / statistics.median(without) - 1
        check.report.compare(
            f"{count} streams, each its own mask of {plan.mask_size:,}: slower decode steps",
            100 * slower, "%", most=3, digits=1,
            notes=f"{tokens} tokens a request; {statistics.median(without) * 1e3:.3f} ms a step",
        )  # fmt: skip
        return
    raise RuntimeError(problem)


def step_s(server, rng, vocab, count, tokens, masks):
    prompts = [[rng.randrange(vocab) for _ in range(16)] for _ in range(count)]
    run = run_lmtp(server.endpoint, prompts, tokens, [vocab - 1], masks, ANSWER_SECONDS)
    return count / run.steady_tokens_per_s()


def measure_chunks(check, plan, server):
    rates = {}
    for size in (plan.mask_size, 0):
        point = load(
            check, server, "--dataset-name", "lmql", "--lmql-pattern", "chunks",
            "--lmql-mask-size", size, "--max-concurrency", plan.masked_streams,
            "--num-prompts", 2 * plan.masked_streams, *lengths(plan.prompt, plan.count),
        )  # fmt: skip
        rates[size] = point["output_throughput"]
    check.report.compare(
        f"{plan.masked_streams} programs in chunks of 16 under a mask of {plan.mask_size:,}",
        rates[plan.mask_size], "tok/s", notes=f"without a mask {rates[0]:,.0f} tok/s",
    )  # fmt: skip


# ---- start ----


class StartingServe(CheckedServe):
    """Is left when its socket opens: requests wait for the model."""

    def is_ready(self):
        return self.http_status("/") is not None


def measure_start(check, plan):
    with tempfile.TemporaryDirectory() as folder:
        model = "demo"
        if check.on_gpu:
            model = pathlib.Path(folder) / "gpt2-medium"
            made = check.call(check.program("make-checkpoint"), "gpt2-medium", model,
                              seconds=LOAD_SECONDS)  # fmt: skip
            if made.code != 0:
                raise RuntimeError(f"make-checkpoint: {made.tail}")
        seconds = [first_token_s(check, model, plan.small_shape.vocab) for _ in range(3)]
    check.report.compare(
        f"{pathlib.Path(model).name} from a checkpoint: exec to first token", min(seconds[1:]), "s",
        most=2.5, digits=2, notes=f"warm, {START_KV_CACHE} of keys and values, looked for every "
        f"{1e3 * POLL_S:.0f} ms; the first start took {seconds[0]:.2f} s",
    )  # fmt: skip


def first_token_s(check, model, vocab):
    start = time.perf_counter()
    with StartingServe(check, model, "--kv-cache", START_KV_CACHE) as server:
        prompt = [random.randrange(vocab) for _ in range(16)]
        run_lmtp(server.endpoint, [prompt], 1, [], timeout_s=ANSWER_SECONDS)
        return time.perf_counter() - start


# ---- rows of the large model ----


def measure_large(check, plan, machine):
    budget = max(plan.prefill, 512)
    with check.serve(plan.large, "--max-batched-tokens", budget) as server:
        check.guarded(f"{plan.large}, batch 1 decode", measure_decode, server, plan, plan.large,
                      plan.large_shape, machine, 240, 254, 0.88)  # fmt: skip
        check.guarded(f"{plan.large}, prefill", measure_prefill, server, plan, machine)


def measure_prefill(check, server, plan, machine):
    before = stats_of(server)
    point = load(check, server, "--max-concurrency", 1, "--num-prompts", 8,
                 *lengths(plan.prefill, 1))  # fmt: skip
    total, cached = counted(before, stats_of(server), "num_prompt_tokens", "num_cached_tokens")
    if cached > CACHED_SHARE_MAX * total:
        raise RuntimeError(f"{cached} of {total} tokens of prompts came from the prefix cache")
    seconds = point["p50_ttft_ms"] / 1e3
    flops = plan.large_shape.prefill_flops(plan.prefill) / seconds
    peak = machine["flops"]
    check.report.compare(
        f"{plan.large} {model_type(check)}, prefill of {plan.prefill}: share of cuBLAS' peak",
        flops / peak if peak else None, "", least=0.45, then=0.6, digits=3,
        notes=f"{flops / 1e12:,.1f} TFLOP/s, {seconds * 1e3:.1f} ms to the first token",
    )  # fmt: skip

"""Part `correct`: kernels against their CPU twins, the agent, goldens of transformers, the numerics
contract, and compute-sanitizer. A device that is lost takes one suite of tests along, no more."""

import asyncio
import json
import pathlib
import re
import shutil
import tempfile

from gpu_report import FAILED, NOT_RUN, PASSED
from gpu_run import ANSWER_SECONDS, KILLED, num_devices_from, query_device
from servers import ROOT, free_port
from wire import Connection, ids_of, logprobs_of

SKIPPED = 77
LISTING_SECONDS = 180
SUITE_SECONDS = 90
PTX_TESTS, PTX_SECONDS = "Types/CudaLinearTest.", 120  # most of them compiling
PTX_CAPABILITY = 9.0  # cmake/LmtpCuda.cmake
PTX_ROW = "kernels from PTX: Types/CudaLinearTest"
FULL_ROW = "lmtp-serve with more keys and values than the device has memory"
FULL_SECONDS = 60
# What log probabilities may be off: in the mean, and the worst of them. Rounding to bf16 is noise,
# of which the demo's worst is 4e-2 on a CPU.
TOLERANCES = {"float32": (1e-3, 1e-3), "bfloat16": (2e-2, 0.15), "int8": (6e-2, 0.5)}
# Of the time that is left when it begins; what follows takes the rest.
NUMERICS_SHARE = 0.5
# Few launches of every kernel: a sanitizer is a hundred times slower. The kernels' tests take all
# memory from one allocation, of which memcheck sees the ends alone; the agent's memory is allocated
# piece by piece, by the device.
SANITIZED_KERNELS = (
    "*EqualsItsPlainTwin/bf16*:*ManySlicesGive*:*Int8OfACheckpoint*:"
    "*ActivationsAreThose*:*AStreamIsTheSame*:*LayerNorm*:*RmsNorm*:"
    "*RotaryTurns*:*GatedActivations*:*GatheredRows*:*CopiesOfBlocks*:-*5000*:*capped*"
)
SANITIZED_AGENT = (
    "StepSamplingTest.*:CudaAgentTest.*:*CudaTypesTest.*:"
    "-*HeadsThatAreTooWide*:*ADeviceThatIsFull*"
)
SANITIZED = (("memcheck", "agent", SANITIZED_AGENT), ("racecheck", "kernels", SANITIZED_KERNELS),
             ("memcheck", "kernels", SANITIZED_KERNELS))  # fmt: skip
# Racecheck does not follow what orders bulk copies and reads in these kernels: barriers that count
# a copy's bytes.
NOT_FOLLOWED = "linear_wgmma"
SANITIZER_SECONDS = 120
SANITIZER_ROW = "compute-sanitizer"
SANITIZER_PLACE = "/usr/local/cuda/bin/compute-sanitizer"
RANKS_ROW = "demo in float32 in 2 ranks, on 2 devices, against transformers in float32"
NCCL_ROW = "the same ranks, connected by NCCL"
NUMERICS_END = "configurations were not as wanted"  # in the last line of a whole seed
NUMERICS_ROW = "numerics contract: batch, chunks, cache, preemption, graphs"


def run(check):
    for module in ("kernels", "agent"):
        check.guarded(f"{module}: tests", run_tests, module)
    check.guarded(PTX_ROW, run_from_ptx)
    check.guarded(FULL_ROW, run_full)
    for dtype in TOLERANCES:
        check.guarded(golden_row(dtype), run_goldens, dtype)
    check.guarded(RANKS_ROW, run_ranks)
    check.guarded(NCCL_ROW, run_nccl)
    check.guarded(NUMERICS_ROW, run_numerics)
    check.guarded(SANITIZER_ROW, run_sanitizer)


# ---- GoogleTest programs ----


def run_tests(check, module):
    program = check.test_program(f"{module}_gpu_test")
    listed = check.call(program, "--gtest_list_tests", seconds=LISTING_SECONDS)
    suites = [line.strip() for line in listed.output.splitlines() if re.match(r"\S+\.( |$)", line)]
    suites = [suite.split()[0] for suite in suites]
    if listed.code != 0 or not suites:
        check.report.add(f"{module}: tests", NOT_RUN, notes=listed.tail)
        return
    if not check.on_gpu:
        count = sum(line.startswith("  ") for line in listed.output.splitlines())
        check.report.add(f"{module}: tests", NOT_RUN, notes=f"{count} tests, which need a device")
        return
    for suite in suites:
        run_suite(check, module, program, suite)


def run_from_ptx(check):
    """What a device newer than this build would run: the driver's compilation of our PTX."""
    if not check.on_gpu:
        check.report.add(PTX_ROW, NOT_RUN, notes="no device")
        return
    if float(query_device(check.device, "compute_cap")) < PTX_CAPABILITY:
        check.report.add(PTX_ROW, NOT_RUN, notes=f"the PTX is of {PTX_CAPABILITY}")
        return
    program = check.test_program("kernels_gpu_test")
    run_program(check, PTX_ROW, program, PTX_TESTS, PTX_SECONDS, {"CUDA_FORCE_PTX_JIT": "1"})


def run_full(check):
    """A device without free memory: lmtp-serve must print one clear line and exit."""
    if not check.on_gpu:
        check.report.add(FULL_ROW, NOT_RUN, notes="no device")
        return
    done = check.call(check.program("lmtp-serve"), "demo", "--device", check.device, "--port",
                      free_port(), "--kv-cache", "1024GiB", seconds=FULL_SECONDS)  # fmt: skip
    passed = done.code > 0 and "is full" in done.output
    check.report.add(FULL_ROW, PASSED if passed else FAILED, f"exit code {done.code}",
                     "its memory is full", done.tail)  # fmt: skip


def run_suite(check, module, program, suite):
    run_program(check, f"{module}: {suite.rstrip('.')}", program, suite, SUITE_SECONDS)


def run_program(check, what, program, suite, seconds, environment=None):
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.json"
        done = check.call(program, f"--gtest_filter={suite}*", f"--gtest_output=json:{results}",
                          seconds=seconds, environment=environment)  # fmt: skip
        if done.code == SKIPPED:
            check.report.add(what, FAILED, "not run", notes=done.tail)
            return
        if not results.exists():  # the process ended in the middle
            check.report.add(what, FAILED, f"exit code {done.code}", notes=done.tail)
            return
        tests = read_tests(json.loads(results.read_text()))
    failed = [name for name, outcome in tests if outcome == "failed"]
    counts = {kind: sum(o == kind for _, o in tests) for kind in ("passed", "failed", "skipped")}
    result = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    outcome = FAILED if failed or done.code != 0 else PASSED
    check.report.add(what, outcome, result, notes=", ".join(failed)[:300], **counts)


def read_tests(results):
    """(name, passed, failed or skipped) of each test that GoogleTest's JSON tells of."""
    tests = []
    for suite in results["testsuites"]:
        for test in suite["testsuite"]:
            if test["status"] != "RUN":
                continue
            outcome = "failed" if test.get("failures") else "passed"
            outcome = "skipped" if test["result"] == "SKIPPED" else outcome
            tests.append((test["name"], outcome))
    return tests


# ---- goldens ----


def golden_row(dtype):
    return f"demo in {dtype} against transformers in float32"


def run_ranks(check):
    """Tensor parallelism."""
    if check.on_gpu and num_devices_from(check.device) < 2:
        check.report.add(RANKS_ROW, NOT_RUN, notes="it needs two devices")
        return
    run_goldens(check, "float32", RANKS_ROW, "--tensor-parallel-size", "2")


def run_nccl(check):
    if not check.on_gpu or num_devices_from(check.device) < 2:
        check.report.add(NCCL_ROW, NOT_RUN, notes="it needs two devices")
        return
    options = ("--tensor-parallel-size", "2", "--communicator", "nccl")
    run_goldens(check, "float32", NCCL_ROW, *options)


def run_goldens(check, dtype, row=None, *options):
    """The demo against what transformers gives for it in f32: f32 by its greedy tokens, narrower
    types by the log probabilities of the same tokens."""
    goldens = json.loads((ROOT / "tests" / "goldens" / "demo.json").read_text())
    with check.serve("demo", "--kv-cache", "256MiB", *options, dtype=dtype) as server:
        outcome = asyncio.run(compare_goldens(server.endpoint, goldens, dtype))
    mean_max, worst_max = TOLERANCES[dtype]
    mean, worst = outcome["mean"], outcome["worst"]
    passed = outcome["num_wrong"] == 0 and mean <= mean_max and worst <= worst_max
    tokens = f"{outcome['num_wrong']} of {outcome['num_streams']} streams differ, "
    check.report.add(
        row or golden_row(dtype), PASSED if passed else FAILED,
        (tokens if dtype == "float32" else "") + f"logprobs off {mean:.1e}, at worst {worst:.1e}",
        ("the same tokens, " if dtype == "float32" else "") + f"{mean_max:g}, {worst_max:g}",
        f"{outcome['num_tokens']} tokens", **outcome,
    )  # fmt: skip


async def compare_goldens(endpoint, goldens, dtype):
    num_wrong, errors = 0, []
    async with Connection(endpoint, timeout_s=ANSWER_SECONDS) as c:
        for golden in goldens:
            prompt = golden["prompt_ids"]
            if golden["kind"] == "score":
                entries = await c.score(prompt, golden["scored_ids"])
                errors += differences(logprobs_of(entries), golden["logprobs"])
                continue
            bias = golden.get("logit_bias")
            wanted = [step["logprob"] for step in golden["steps"]]
            if dtype == "float32":
                more = {"logit_bias": bias} if bias else {}
                entries = await c.generate(
                    prompt, max_tokens=golden["max_tokens"], temperature=0, **more
                )
                num_wrong += ids_of(entries) != golden["ids"]
            elif bias is None:  # SCORE knows none
                entries = await c.score(prompt, golden["ids"])
            else:
                continue
            errors += differences(logprobs_of(entries), wanted)
    return {
        "num_streams": len(goldens), "num_tokens": len(errors), "num_wrong": num_wrong,
        "worst": max(errors), "mean": sum(errors) / len(errors),
    }  # fmt: skip


def differences(ours, theirs):
    return [abs(a - b) for a, b in zip(ours, theirs, strict=True)]


# ---- numerics ----


def run_numerics(check):
    """Samples of the grid by one seed after another, until the time is up."""
    program = check.test_program("numerics_grid")
    end = (1 - NUMERICS_SHARE) * check.seconds_left()
    points = differing = not_so = seeds = 0
    axes = ["--sample"] if not check.quick else ["--batch", "7", "--chunk", "64", "--threads", "1"]
    problem = ""
    while not problem and check.seconds_left() > end:
        done = check.call(program, "--device", check.device, "--seed", seeds + 1, *axes,
                          seconds=check.seconds_left() - end)  # fmt: skip
        so_far = read_numerics(done.output)
        differing, points, not_so = map(sum, zip((differing, points, not_so), so_far, strict=True))
        if NUMERICS_END not in done.output:
            # Out of time in the middle of a seed: what it had finished counts.
            problem = "" if done.code == KILLED and points else done.tail
            break
        seeds += 1
        if check.quick:
            break
    result = f"{differing} of {points} points differ in bits"
    notes = f"{seeds} whole seeds; {not_so} configurations were not as wanted"
    outcome = FAILED if differing or not_so or problem else PASSED
    check.report.add(NUMERICS_ROW, outcome, result, "0 differing bits",
                     "; ".join(filter(None, (notes, problem))), points=points,
                     differing=differing, not_so=not_so, seeds=seeds)  # fmt: skip


def read_numerics(output):
    """(points that differ, points, configurations that were not as wanted), of those that ended"""
    ended = re.findall(r"^\d+ of \d+: (\d+) points, (\d+) differ(, NOT SO)?$", output, re.MULTILINE)
    return (sum(int(differ) for _, differ, _ in ended), sum(int(count) for count, _, _ in ended),
            sum(bool(not_so) for _, _, not_so in ended))  # fmt: skip


# ---- compute-sanitizer ----


def run_sanitizer(check):
    tool = shutil.which("compute-sanitizer") or shutil.which(SANITIZER_PLACE)
    if not check.on_gpu or tool is None:
        notes = "no device" if tool else "the tool is not there"
        check.report.add(SANITIZER_ROW, NOT_RUN, notes=notes)
        return
    for kind, module, tests in SANITIZED:
        done = check.call(
            tool, "--tool", kind, "--print-limit", 100_000,
            check.test_program(f"{module}_gpu_test"), f"--gtest_filter={tests}", "--gtest_brief=1",
            seconds=SANITIZER_SECONDS,
        )  # fmt: skip
        check.report.add(f"{SANITIZER_ROW}: {kind}, {module}", *read_sanitizer(done))


def read_sanitizer(done):
    """(outcome, result, target, notes)"""
    if "Device not supported" in done.output or done.code in (SKIPPED, KILLED):
        return NOT_RUN, "", "0 errors", done.tail
    found = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", done.output)
    if not found:
        return FAILED, f"exit code {done.code}", "0 errors", done.tail
    count = int(found[1] or found[2])
    count -= len(re.findall(rf"Race reported between .*{NOT_FOLLOWED}", done.output))
    passed = re.search(r"^\[  PASSED  \] (\d+) test", done.output, re.MULTILINE)
    num_passed = int(passed[1]) if passed else 0
    outcome = PASSED if count == 0 and done.code == 0 and num_passed > 0 else FAILED
    return outcome, f"{count} errors", "0 errors", f"{num_passed} tests passed"

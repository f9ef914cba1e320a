"""Kernels by themselves, beside torch: what the machine allows, attention, linear layers."""

from gpu_report import FAILED, MEASURED, MISSED, NOT_RUN, PASSED, REACHED
from gpu_run import json_lines

# A decode step of attention is bound by memory where its bytes alone take so long.
MEMORY_BOUND_US = 20
SHARE_WANTED = 0.85
NARROW_TYPES = ("int8", "int4", "fp8")
MACHINE_SECONDS, ATTENTION_SECONDS, LINEAR_SECONDS = 120, 150, 90
PROBE_SECONDS, SAMPLE_SECONDS, ANATOMY_SECONDS = 60, 60, 60
SAMPLER_MOST = {1: 8, 256: 25}  # microseconds, by rows
# As gpu-bench says it.
WGMMA_ROW, WGMMA_SUMS = "sums of wgmma that differ from mma.sync", "of sums"


def peer_name(check):
    return "cuBLAS" if check.on_gpu else "torch on the CPU"


def bench(check, *arguments, seconds, program=None):
    """The lines of gpu-bench, or another; that it fails on a device is a row by itself. A build
    without CUDA has none of them."""
    program = program or check.program("gpu-bench")
    done = check.call(program, check.device, *arguments, seconds=seconds)
    rows = json_lines(done.output)
    if done.code != 0 or not rows:
        outcome = FAILED if check.on_gpu else NOT_RUN
        what = f"{program.name} {' '.join(map(str, arguments))}"
        check.report.add(what, outcome, f"exit code {done.code}", "exit code 0", done.tail)
    return rows


def measure_machine(check):
    """Bytes per second read, and bf16 operations per second by cuBLAS; None where not taken."""
    bandwidth = check.guarded("memory, read once", measure_bandwidth)
    flops = check.guarded(f"{peer_name(check)}, bf16 matrix product", measure_peak)
    return {"read_bytes_per_s": bandwidth, "flops": flops}


def measure_bandwidth(check):
    rows = bench(check, "read", seconds=MACHINE_SECONDS)
    bandwidth = max((row["bytes_per_s"] for row in rows), default=None)
    copies, done = check.call_peer("copy", seconds=MACHINE_SECONDS)
    beside = f"torch's copy {copies[0]['bytes_per_s'] / 1e9:,.0f} GB/s" if copies else done.tail
    check.report.compare("memory, read once", bandwidth and bandwidth / 1e9, "GB/s", notes=beside)
    return bandwidth


def measure_peak(check):
    rows, done = check.call_peer("peak", seconds=MACHINE_SECONDS)
    peak = max((row["flops"] for row in rows), default=None)
    check.report.compare(f"{peer_name(check)}, bf16 matrix product", peak and peak / 1e12,
                         "TFLOP/s", digits=1, notes="" if rows else done.tail)  # fmt: skip
    return peak


def measure_attention(check, plan, machine):
    shapes = [(plan.large_shape, plan.contexts)]
    if plan.small_shape != plan.large_shape:
        within = [c for c in plan.contexts.split(",") if int(c) <= 1024]
        shapes.append((plan.small_shape, ",".join(within)))
    for shape, contexts in shapes:
        heads = (shape.heads, shape.kv_heads, shape.head_dim)
        grid = ("attention", *heads, plan.batches, contexts)
        rows = bench(check, *grid, seconds=ATTENTION_SECONDS)
        theirs, peer = check.call_peer(*grid, seconds=ATTENTION_SECONDS)
        theirs = {(row["batch"], row["context"]): row for row in theirs}
        for row in rows:
            report_attention(check, heads, row, theirs.get((row["batch"], row["context"])), machine)
        if not theirs:
            check.report.add("torch's SDPA beside it", NOT_RUN, notes=peer.tail)
    check.report.add("FlashInfer beside it", NOT_RUN, notes="its wheel is not carried")


def report_attention(check, heads, row, peer, machine):
    bandwidth = machine["read_bytes_per_s"]
    share = row["bytes_per_s"] / bandwidth if bandwidth else None
    ratio = peer["us"] / row["us"] if peer else None
    bound = bool(share) and row["us"] * share >= MEMORY_BOUND_US
    notes = [f"{share:.0%} of the read bandwidth" if share else "",
             f"torch's flash SDPA {peer['us']:.1f} us: {ratio:.2f}x" if peer else ""]  # fmt: skip
    check.report.add(
        f"decode attention {'x'.join(map(str, heads))}, batch {row['batch']}, "
        f"context {row['context']}",
        attention_outcome(share, ratio, bound),
        f"{row['us']:.1f} us",
        f">= 1.0x of SDPA{f', >= {SHARE_WANTED:.0%}' if bound else ''}",
        "; ".join(filter(None, notes)),
        us=row["us"], share=share, ratio=ratio, memory_bound=bound,
    )  # fmt: skip


def attention_outcome(share, ratio, bound):
    """Reached if all wanted figures are, missed if any known one is."""
    if (ratio is not None and ratio < 1) or (bound and share < SHARE_WANTED):
        return MISSED
    return MEASURED if ratio is None or share is None else REACHED


def measure_probe(check):
    """What decides how kernels are written; that wgmma adds as mma.sync does is a condition."""
    if not check.on_gpu:
        check.report.add("probe of the device", NOT_RUN, notes="no device")
        return
    failed = len(check.report.rows)
    rows = {row["what"]: row for row in bench(check, "probe", seconds=PROBE_SECONDS)}
    failed = len(check.report.rows) > failed  # a row says why
    differing = rows.pop(WGMMA_ROW, None)
    sums = rows.pop(WGMMA_SUMS, None)
    for what, row in rows.items():
        check.report.compare(f"probe: {what}", row["value"], row["unit"], digits=2)
    if differing is None and not failed:
        check.report.add(f"probe: {WGMMA_ROW}", NOT_RUN, notes="the device has no wgmma")
    if differing is not None:
        count = int(differing["value"])
        check.report.add(f"probe: {WGMMA_ROW}", FAILED if count else PASSED,
                         f"{count} of {sums['value']:,.0f}", "0")  # fmt: skip


def measure_sampler(check, plan):
    for rows, vocab in plan.samples:
        for row in bench(check, "sample", rows, vocab, seconds=SAMPLE_SECONDS):
            targets = SAMPLER_MOST if row["what"].endswith("greedy, 1 alternative") else {}
            check.report.compare(f"{row['what']}, {row['rows']} rows", row["us"], "us", digits=1,
                                 most=targets.get(row["rows"]))  # fmt: skip


def measure_ops(check, plan):
    for model, shape in ((plan.small, plan.small_shape), (plan.large, plan.large_shape)):
        sizes = (shape.hidden, shape.mlp, shape.heads, shape.kv_heads, shape.head_dim)
        for row in bench(check, "ops", "1,64", *sizes, seconds=SAMPLE_SECONDS):
            check.report.compare(f"{model}: {row['what']}, {row['rows']} rows", row["us"], "us",
                                 digits=2)  # fmt: skip


def measure_anatomy(check, plan):
    """A decode step of each model, and what it would gain without each of its ops."""
    program = check.test_program("step_anatomy")
    for shape in plan.anatomy_shapes:
        for row in bench(check, shape, plan.anatomy_rows, plan.anatomy_context,
                         seconds=ANATOMY_SECONDS, program=program):  # fmt: skip
            what = f"{shape}: a step of {row['rows']} rows, {row['context']} tokens"
            if not row["without"]:
                check.report.compare(what, row["us"], "us", digits=1)
            else:
                check.report.compare(f"{what}: gain without {row['without']}", row["gain_us"],
                                     "us", digits=1)  # fmt: skip


def measure_linears(check, plan):
    """What one order of sums for any number of rows costs beside cuBLAS, which has many; and what
    narrower weights of the large model gain, also beside cuBLAS in bf16."""
    narrow = NARROW_TYPES if check.on_gpu else ()  # tools/bench has a CPU's
    for model, shape, kinds in ((plan.large, plan.large_shape, ("bf16", *narrow)),
                                (plan.small, plan.small_shape, ("bf16",))):  # fmt: skip
        pairs = shape.linears()
        grid = ("linear", plan.linear_rows, ",".join(f"{n}x{k}" for n, k in pairs))
        theirs, peer = check.call_peer(*grid, seconds=LINEAR_SECONDS)
        for kind in kinds:
            ours = bench(check, *grid, kind, seconds=LINEAR_SECONDS)
            for rows in map(int, plan.linear_rows.split(",")):
                of_rows = [[row for row in some if row["rows"] == rows] for some in (ours, theirs)]
                what = f"{model}: the {len(pairs)} linear layers of a layer in {kind}, {rows} rows"
                report_linears(check, what, pairs, rows, *of_rows, peer)


def report_linears(check, what, pairs, rows, ours, theirs, peer):
    elements = sum(n * k for n, k in pairs)
    if len(ours) != len(pairs):
        check.report.add(what, NOT_RUN, notes=f"{len(ours)} of {len(pairs)} came")
        return
    us, peer_us = (sum(row["us"] for row in some) for some in (ours, theirs))
    beside = f"{peer_name(check)} in bf16 {peer_us:,.1f} us: {peer_us / us:.2f}x"
    weight_bytes = sum(row["bytes_per_s"] * row["us"] for row in ours) / 1e6
    check.report.add(
        what, MEASURED, f"{us:,.1f} us",
        notes=f"{beside if len(theirs) == len(pairs) else peer.tail}; "
        f"{2 * rows * elements / us / 1e6:,.1f} TFLOP/s, "
        f"{weight_bytes / us / 1e3:,.0f} GB/s of weights",
        us=us, peer_us=peer_us,
    )  # fmt: skip

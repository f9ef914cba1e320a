"""The rows of `tools/bench cpu`: what is measured, what is wanted, and what the machine allows."""

import dataclasses
import itertools
import json
import math
import statistics

DTYPES = ("float32", "bfloat16", "int8")
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 9 / 16}  # with the scales of 32 inputs
PROMPT = 64  # tokens before those that are decoded
LONG = 1023  # the longest prompt of GPT-2's context of 1024 that leaves room for an answer
OURS = "lmtp-serve"
# Ways to run llama.cpp: with flash attention; with threads that sleep while they wait, where gcc's
# OpenMP lets them spin; with the weights read into memory, not mapped.
LLAMA_FLAGS = ("fa", "passive", "no-mmap")
# Beside that, with keys and values of the type that ours have; it comes with float16.
KV = "kv"
KV_DTYPES = ("float32", "bfloat16")
TRANSFORMERS = "transformers"
TRANSFORMERS_DTYPES = ("float32", "bfloat16")
BANDWIDTH_WANTED = 0.9
# Decode attention, by kernels-bench: heads of these dimensions; (sequences, tokens of each).
ATTENTION_HEADS = (48, 64, 96, 128, 256)
ATTENTION_CONTEXTS = ((64, 100), (32, 500), (8, 2000), (1, 16000))
ATTENTION_DTYPES = ("float32", "bfloat16")
ATTENTION_WANTED = 0.7  # of the bandwidth, or of the peak where that is nearer
MODE_FACTOR = 1.3  # between readings of the machine in the same mode
START_S_MAX = 2.5
VERSION_MS_MAX = 20  # of lmtp-serve --version: what any start of it takes
MEMORY_BEYOND_BYTES_MAX = 300_000_000


def llama_name(flags):
    return " ".join(["llama.cpp", *(flag for flag in LLAMA_FLAGS if flag in flags)])


LLAMA = tuple(
    llama_name(flags) for count in range(len(LLAMA_FLAGS) + 1)
    for flags in itertools.combinations(LLAMA_FLAGS, count)
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    kind: str  # decode, prefill, streams, start or attention
    model: str  # a shape of tools/dev/make-checkpoint
    dtype: str
    size: int  # streams of a decode, tokens of a prefill, dimensions of a head
    wanted: float = 0.0  # tokens per second, as a ratio of ours to the best peer's

    @property
    def has_peers(self):
        return self.kind not in ("start", "attention")

    @property
    def name(self):
        return f"{self.model}/{self.dtype}/{self.kind}-{self.size}"

    @property
    def series(self):
        """The key of rows that differ only in size."""
        return self.model, self.dtype, self.kind


def wanted_of_batch(batch, dtype):
    return {1: 1.1 if dtype == "int8" else 1.0, 8: 1.4, 32: 1.6}[batch]


def rows_of(model, dtypes, batches, prompts, kinds=()):
    for dtype in dtypes:
        for batch in batches:
            yield Row("decode", model, dtype, batch, wanted_of_batch(batch, dtype))
        for count in prompts:
            yield Row("prefill", model, dtype, count, 1.05)
        if "streams" in kinds:
            for batch in batches:
                yield Row("streams", model, dtype, batch, wanted_of_batch(batch, dtype))
        if "start" in kinds and dtype == "float32":
            yield Row("start", model, dtype, 1)
        if "attention" in kinds and dtype in ATTENTION_DTYPES:
            for head in ATTENTION_HEADS:
                yield Row("attention", model, dtype, head)


def all_rows():
    return [
        *rows_of("gpt2-medium", DTYPES, (1, 8, 32), (256, LONG),
                 ("streams", "start", "attention")),
        *rows_of("tinyllama-1.1b", DTYPES[1:], (1, 8), (256,)),
    ]


# ---- the engines of a row, in turns ----


def has_kv(row):
    return row.kind in ("decode", "streams") and row.dtype in KV_DTYPES


def with_kv(name):
    return f"{name} {KV}"


def has_transformers(row):
    return row.kind == "prefill" and row.dtype in TRANSFORMERS_DTYPES


def fastest_way(entries):
    """The name of the way to run llama.cpp that was the fastest in the first round, or None."""
    runs = {name: entries[name]["runs"] for name in LLAMA if name in entries}
    measured = {name: some[0]["tokens_per_s"] for name, some in runs.items() if some}
    return max(measured, key=measured.get, default=None)


def settled_way(row, results):
    """How llama.cpp was fastest in the first row of this kind, model and dtype; None in that row.
    `results`: entries by engine, by row's name."""
    for other in all_rows():
        if other == row:
            return None
        if other.series == row.series:
            way = fastest_way(results.get(other.name, {}))
            if way:
                return way
    return None


def llama_ways(entries, number, flags, settled):
    """In the first round each flag is tried on the way that is the fastest by then; that one goes
    on. Where threads and loading are `settled`, flash attention alone is tried. `entries` fills up
    while this is gone through."""
    if number > 1:
        yield fastest_way(entries) or LLAMA[0]
        return
    kept = {*settled.split()} - {"fa"} if settled else set()
    yield llama_name(kept)
    for flag in flags_to_try(flags, settled):
        yield llama_name([*(fastest_way(entries) or llama_name(kept)).split(), flag])


def llama_turns(row, results, number, flags):
    entries = results[row.name]
    yield from llama_ways(entries, number, flags, settled_way(row, results))
    way = fastest_way(entries)
    if has_kv(row) and way:
        yield with_kv(way)


def flags_to_try(flags, settled):
    return [flag for flag in flags if flag == "fa"] if settled else flags


def names_in_turn(row, results, number, flags):
    """The engines that round `number` measures in this row; the order alternates."""
    if row.kind == "attention":  # nine rounds of its own
        return [OURS] if number == 1 else []
    groups = [[OURS]]
    if row.has_peers:
        groups.append(llama_turns(row, results, number, flags))
    if has_transformers(row):
        groups.append([TRANSFORMERS])
    return itertools.chain.from_iterable(groups if number % 2 else reversed(groups))


# ---- what the machine allows ----


@dataclasses.dataclass(frozen=True)
class Weights:
    """Counted from a folder's model.safetensors: what one step of decoding reads."""

    matrix_elements: int  # of the linear layers, the head among them
    head_elements: int
    matrix_rows: int  # int8 has a scale for each
    vector_elements: int  # norms and biases, always float32
    all_elements: int  # with the embeddings that a step only picks rows of

    def step_bytes(self, dtype):
        scales = 4 * self.matrix_rows if dtype == "int8" else 0
        # int4 leaves the head int8.
        head = (BYTES["int8"] - BYTES["int4"]) * self.head_elements if dtype == "int4" else 0
        return self.matrix_elements * BYTES[dtype] + head + scales + 4 * self.vector_elements

    def step_s(self, dtype, tokens, logits, machine):
        """The least time of a step of so many tokens; `logits` of them need the head."""
        by_memory = self.step_bytes(dtype) / machine["read_bytes_per_s"]
        if dtype != "float32":
            return by_memory
        of_layers = tokens * (self.matrix_elements - self.head_elements)
        products = of_layers + logits * self.head_elements
        return max(by_memory, 2 * products / machine["f32_flops_per_s"])

    def flops(self, row):
        """A token's; all but the last one of a prompt skip the head."""
        skipped = self.head_elements if row.kind == "prefill" else 0
        return 2 * (self.matrix_elements - skipped)


def count_weights(folder):
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__", None)
    shapes = {name: tensor["shape"] for name, tensor in header.items()}
    embedding = next(n for n in shapes if n.endswith(("wte.weight", "embed_tokens.weight")))
    head = "lm_head.weight" if "lm_head.weight" in shapes else embedding
    matrices = {
        name: shape for name, shape in shapes.items()
        if len(shape) == 2 and not name.endswith("wpe.weight")
    }  # fmt: skip
    if head != embedding:
        del matrices[embedding]
    return Weights(
        matrix_elements=sum(map(math.prod, matrices.values())),
        head_elements=math.prod(shapes[head]),
        # GPT-2 stores the matrices of its layers transposed.
        matrix_rows=sum(shape[".c_" in name] for name, shape in matrices.items()),
        vector_elements=sum(math.prod(shape) for shape in shapes.values() if len(shape) < 2),
        all_elements=sum(map(math.prod, shapes.values())),
    )


def allowed_tokens_per_s(row, weights, machine):
    """By the roofline: memory for all decoding, and float32's multiply-adds where they are used.
    None where other ones are, whose peak is not measured."""
    if row.kind == "prefill" and row.dtype != "float32":
        return None
    by_compute = machine["f32_flops_per_s"] / weights.flops(row)
    if row.kind == "prefill":
        return by_compute
    by_memory = row.size * machine["read_bytes_per_s"] / weights.step_bytes(row.dtype)
    return min(by_memory, by_compute) if row.dtype == "float32" else by_memory


def allowed_to_runs(row, entry, weights, machine):
    """[(a run, what the machine allowed it)]: by what was read from memory right beside it, where
    that was measured."""
    runs = (entry or {}).get("runs", ())
    machines = [machine | {key: run[key] for key in machine if key in run} for run in runs]
    return [(run, allowed_tokens_per_s(row, weights, m)) for run, m in zip(runs, machines)]


# ---- figures ----


def median(entry, key="tokens_per_s"):
    """None if nothing was measured."""
    runs = [run[key] for run in (entry or {}).get("runs", ()) if key in run]
    return statistics.median(runs) if runs else None


def best_peer(entries):
    """(name, tokens per second) of the fastest peer, or (None, None)."""
    medians = {name: median(entries.get(name)) for name in (*LLAMA, TRANSFORMERS)}
    measured = {name: value for name, value in medians.items() if value is not None}
    if not measured:
        return None, None
    name = max(measured, key=measured.get)
    return name, measured[name]


def is_same_mode(*runs):
    """Whether the machine was the same beside these runs, by what was read right before and behind
    each. Pages of before have no such readings."""
    readings = [reading for run in runs for reading in run.get("readings", ())]
    return all(
        max(values) <= MODE_FACTOR * min(values)
        for values in ([reading[key] for reading in readings] for key in (readings or [{}])[0])
    )


def paired_ratios(entries, peer):
    """Ours to the peer's, of each round that found the machine in one mode for both."""
    runs = [(entries.get(name) or {}).get("runs", ()) for name in (OURS, peer)]
    return [
        ours["tokens_per_s"] / theirs["tokens_per_s"]
        for ours, theirs in zip(*runs) if is_same_mode(ours, theirs)
    ]  # fmt: skip


def is_met(row, entries, weights=None, machine=None):
    """True, False, or None if a figure is missing."""
    if row.kind == "attention":
        shares = attention_shares(entries)
        return all(share >= ATTENTION_WANTED for share in shares) if shares else None
    if row.kind == "start":
        limits = {"version_ms": VERSION_MS_MAX, "first_token_s": START_S_MAX,
                  "beyond_bytes": MEMORY_BEYOND_BYTES_MAX}  # fmt: skip
        figures = {key: median(entries.get(OURS), key) for key in limits}
        if None in figures.values():
            return None
        return all(figures[key] <= limit for key, limit in limits.items())
    peer, _ = best_peer(entries)
    ratios = paired_ratios(entries, peer)
    if not ratios:
        return None
    met = statistics.median(ratios) >= row.wanted
    if row.kind == "streams":
        met &= median(entries[OURS], "p99_ms") < median(entries[peer], "p99_ms")
    if wants_bandwidth(row):
        if not machine:
            return None
        met &= share_reached(row, entries.get(OURS), weights, machine) >= BANDWIDTH_WANTED
    return met


def attention_shares(entries):
    """Of what the machine allowed, in order of ATTENTION_CONTEXTS; empty if none was measured."""
    keys = [f"of_least_{tokens}" for _, tokens in ATTENTION_CONTEXTS]
    shares = [median(entries.get(OURS), key) for key in keys]
    return [] if None in shares else shares


def share_reached(row, entry, weights, machine):
    """The share of the machine's limit; None if nothing was measured."""
    shares = [
        run["tokens_per_s"] / allowed
        for run, allowed in allowed_to_runs(row, entry, weights, machine)
    ]
    return statistics.median(shares) if shares else None


def wants_bandwidth(row):
    return row.kind == "decode" and row.size == 1 and row.dtype != "int8"


def wanted_text(row):
    return f"{row.wanted:g}x" + (f", {BANDWIDTH_WANTED:.0%}" if wants_bandwidth(row) else "")

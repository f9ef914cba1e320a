"""How long `tools/bench cpu` takes: first estimated, then by what the rounds before took."""

from cpu_rows import (
    ATTENTION_CONTEXTS, OURS, PROMPT, TRANSFORMERS, allowed_tokens_per_s, fastest_way,
    flags_to_try, has_kv, has_transformers, with_kv,
)  # fmt: skip

MINUTES_MAX = 240
ROOFLINE_S = 1.5  # measured before and behind each run
START_S = 3 + 2 * ROOFLINE_S  # of a process, until its weights are there
ATTENTION_S = 4  # of a context: nine slices of 50 ms between readings, and to fill the cache
SHARE = 0.4  # of what the machine allows: roughly what engines reach


def seconds_of(row, weights, machine, scale):
    """One engine's, roughly."""
    if row.kind == "start":
        return START_S
    if row.kind == "attention":
        return 2 * ROOFLINE_S + ATTENTION_S * len(ATTENTION_CONTEXTS)
    prompt_tokens_per_s = machine["f32_flops_per_s"] / weights.flops(row)
    if row.kind == "prefill":
        num_prompts = scale.repetitions + 1  # one to warm up
        return START_S + num_prompts * row.size / (SHARE * prompt_tokens_per_s)
    allowed = min(allowed_tokens_per_s(row, weights, machine), prompt_tokens_per_s)
    return START_S + row.size * (
        PROMPT / (SHARE * prompt_tokens_per_s) + scale.decoded / (SHARE * allowed)
    )


def estimate_min(rows, weights, machine, scale):
    """(minutes of the first round, of each later one), roughly. `weights`: by model."""
    first = later = 0.0
    settled = set()
    for row in rows:
        alone = seconds_of(row, weights[row.model], machine, scale)
        num_peers = row.has_peers + has_kv(row) + has_transformers(row)
        later += alone * (1 + num_peers) if row.kind != "attention" else 0.0
        tries = ()
        if row.has_peers:
            tries = flags_to_try(scale.llama_flags, row.series in settled)
            settled.add(row.series)
        first += alone * (1 + num_peers + len(tries))
    return first / 60, later / 60


def next_round_min(rows, results):
    """What the engines that go on took last. `results`: entries by engine, by row's name."""
    seconds = 0.0
    for row in rows:
        if row.kind == "attention":
            continue
        entries = results.get(row.name, {})
        way = fastest_way(entries)
        for name in (OURS, way, with_kv(way), TRANSFORMERS):
            seconds += entries.get(name, {}).get("seconds", 0.0)
    return seconds / 60

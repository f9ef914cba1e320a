"""The page of `tools/bench cpu`, from the results as they stand in its JSON."""

import statistics

import report
from cpu_rows import (
    ATTENTION_CONTEXTS, ATTENTION_WANTED, LLAMA, LONG, MEMORY_BEYOND_BYTES_MAX, MODE_FACTOR, OURS,
    PROMPT, START_S_MAX, TRANSFORMERS, VERSION_MS_MAX, Weights, all_rows, allowed_to_runs,
    attention_shares, best_peer, fastest_way, is_met, median, paired_ratios, share_reached,
    wanted_text, with_kv,
)  # fmt: skip

PAGE = """# lmtp-serve on a CPU beside llama.cpp and transformers

Written by `{command}` on {date}, in {minutes:.0f} minutes.

- Machine: {machine}.
- Measured in the same run, {threads} threads: {roofline}.
- Programs: {versions}.
- {threads} threads for every engine, the same random weights for all; {rounds_text}. Engines run
  in turns, lmtp-serve stands still while another one is measured. Ratios are medians of the rounds'
  (with quartiles); a round does not count in which the readings of the machine right before and
  behind both runs differ by more than {factor}x.
- llama.cpp: Release, built for this processor, its defaults; of flash attention on (*fa*) or off,
  threads that spin while they wait or sleep (*passive*), and weights mapped or read into memory
  (*no-mmap*), each tried in this order on the fastest so far, what was fastest in round one;
  threads and weights are settled in the first row of a kind, shape and dtype.
- lmtp-serve: there is one mode, in which a stream's bits do not depend on other streams, so every
  figure here has that cost in it.

{sections}"""

DECODE = f"""## Decoding

Tokens per second, all streams together, behind prompts of {PROMPT}: ours over the socket while all
streams decode, sampling, log probabilities and JSON included; llama.cpp by `llama-batched-bench`,
without any of these. *Allowed*: what the weights that a step reads and the read bandwidth make
possible (for float32 also the peak, where that is less); the cache is not counted. Bandwidth and
peak are the better of two readings, right before and behind each of our runs. *Same KV type*: the
ratio to llama.cpp with keys and values of our type; it comes with float16.

"""

PREFILL = f"""## Prefill

Prompt tokens per second: ours from the request on the socket to the first token; llama.cpp by
`llama-bench`; transformers by one forward pass with one row of logits. {LONG} tokens leave room for
one in a context of {LONG + 1}. The ratio is to the better of the two. *Allowed*: by the peak of
float32's multiply-adds; other dtypes have instructions of their own, whose peak is not measured.

"""

STREAMS = f"""## Streams over a socket

All streams start at once, {PROMPT} tokens in and {{decoded}} out, end of text ignored. lmtp-serve:
one WebSocket, log probabilities included; llama-server: `/completion` over HTTP, streamed, as many
slots as streams, continuous batching, prompt cache on, no sampler but the greedy one. Time between
tokens of a stream in ms. *Same*: streams whose first token both engines agree on.

"""

ATTENTION = f"""## Decode attention

One token of each stream attends to its context, by `kernels-bench` alone: GPT-2 medium's width in
heads of so many dimensions. In GB/s of keys and values, and *of that*: of the bandwidth read in
turns with it, or of float32's peak where that share is greater; medians of nine slices. Wanted are
{ATTENTION_WANTED:.0%}.

"""

START = """## Start and memory

"""


def spread(entry, digits=1, key="tokens_per_s"):
    """Median (lowest-highest), the reason why there is none, or a dash."""
    if "not_run" in (entry or {}):
        return f"not run: {entry['not_run']}"
    values = [run[key] for run in (entry or {}).get("runs", ())]
    if not values:
        return "–"
    text = f"{statistics.median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f}–{max(values):.{digits}f})"
    return text


def llama_cell(entries, key="tokens_per_s"):
    """The fastest of llama.cpp's ways."""
    measured = {name: median(entries.get(name)) or 0.0 for name in LLAMA if name in entries}
    if not measured:
        return "–"
    name = max(measured, key=measured.get)
    way = name.removeprefix("llama.cpp") if measured[name] else ""
    return spread(entries[name], key=key) + way


def met_cell(met):
    return {True: "yes", False: "**no**", None: "–"}[met]


def ratio_cell(entries, peer=None):
    """The median of the rounds' ratios, their quartiles, and how many they are."""
    ratios = paired_ratios(entries, peer or best_peer(entries)[0])
    return report.with_quartiles(ratios, unit="x") if ratios else "–"


def kv_ratio_cell(entries):
    """To llama.cpp with our type of keys and values."""
    return ratio_cell(entries, with_kv(fastest_way(entries)))


def allowed_cells(row, entries, weights, machine):
    """The machine's limit, and the share of it that is reached."""
    if not machine:
        return "–", "–"
    allowed = [some for _, some in allowed_to_runs(row, entries.get(OURS), weights, machine)]
    if not allowed or None in allowed:
        return "–", "–"
    share = share_reached(row, entries.get(OURS), weights, machine)
    return f"{statistics.median(allowed):.0f}", f"{share:.0%}"


def decode_row(row, entries, weights, machine):
    return (row.model, row.dtype, row.size, spread(entries.get(OURS)), llama_cell(entries),
            ratio_cell(entries), wanted_text(row), kv_ratio_cell(entries),
            *allowed_cells(row, entries, weights, machine),
            met_cell(is_met(row, entries, weights, machine)))  # fmt: skip


def prefill_row(row, entries, weights, machine):
    return (row.model, row.dtype, row.size, spread(entries.get(OURS)), llama_cell(entries),
            spread(entries.get(TRANSFORMERS)), ratio_cell(entries), wanted_text(row),
            *allowed_cells(row, entries, weights, machine),
            met_cell(is_met(row, entries)))  # fmt: skip


def streams_row(row, entries, _weights, _machine):
    peer, _ = best_peer(entries)
    ours, theirs = entries.get(OURS), entries.get(peer)
    gaps = [
        " / ".join("–" if (v := median(e, key)) is None else f"{v:.1f}" for e in (ours, theirs))
        for key in ("p50_ms", "p99_ms")
    ]
    return (row.dtype, row.size, spread(ours), llama_cell(entries), ratio_cell(entries),
            wanted_text(row), kv_ratio_cell(entries), *gaps, same_first_tokens(ours, theirs),
            met_cell(is_met(row, entries)))  # fmt: skip


def same_first_tokens(ours, theirs):
    pairs = [
        (a, b)
        for x, y in zip((ours or {}).get("runs", ()), (theirs or {}).get("runs", ()))
        for a, b in zip(x["first_ids"], y["first_ids"])
    ]
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}" if pairs else "–"


def attention_rows(row, entries):
    shares = attention_shares(entries)
    entry = entries.get(OURS) or {}
    if not shares:
        why = f"not run: {entry.get('not_run', 'no time')}"
        yield (row.dtype, row.size, "–", "–", why, "–", "–")
    for (streams, tokens), share in zip(ATTENTION_CONTEXTS, shares):
        yield (row.dtype, row.size, streams, tokens, spread(entry, 1, f"gb_per_s_{tokens}"),
               f"{share:.0%}", met_cell(share >= ATTENTION_WANTED))  # fmt: skip


def start_rows(row, entries):
    entry = entries.get(OURS)
    version, first, beyond = (
        median(entry, key) for key in ("version_ms", "first_token_s", "beyond_bytes")
    )
    if version is not None:
        yield ("`lmtp-serve --version`, ms", spread(entry, 1, "version_ms"),
               f"<= {VERSION_MS_MAX}", met_cell(version <= VERSION_MS_MAX))  # fmt: skip
    yield (f"{row.model} {row.dtype}: start to first token, warm page cache, s",
           spread(entry, 2, "first_token_s"), f"<= {START_S_MAX}",
           met_cell(None if first is None else first <= START_S_MAX))  # fmt: skip
    if beyond is None:
        return
    anonymous, weights, kv = (
        median(entry, key) / 1e6 for key in ("anonymous_bytes", "weight_bytes", "kv_bytes")
    )
    yield (f"anonymous memory after that, beyond weights and KV in use, MB (it is {anonymous:.0f}, "
           f"of which weights {weights:.0f}, KV {kv:.0f})", f"{beyond / 1e6:.0f}",
           f"<= {MEMORY_BEYOND_BYTES_MAX / 1e6:.0f}",
           met_cell(beyond <= MEMORY_BEYOND_BYTES_MAX))  # fmt: skip


SECTIONS = (
    ("decode", DECODE, decode_row, "llr" + "r" * 7 + "l",
     ("shape", "dtype", "streams", "lmtp-serve", "llama.cpp", "ratio", "wanted", "same KV type",
      "allowed", "of that", "met")),
    ("prefill", PREFILL, prefill_row, "llr" + "r" * 7 + "l",
     ("shape", "dtype", "tokens", "lmtp-serve", "llama.cpp", "transformers", "ratio", "wanted",
      "allowed", "of that", "met")),
    ("streams", STREAMS, streams_row, "lr" + "r" * 8 + "l",
     ("dtype", "streams", "lmtp-serve, tok/s", "llama-server, tok/s", "ratio", "wanted",
      "same KV type", "p50, ours / theirs", "p99, ours / theirs", "same", "met")),
)  # fmt: skip


def machine_at_best(measured):
    """What the machine can do: readings differ, and what is less than the best was disturbed."""
    return {key: max(m[key] for m in measured) for key in measured[0]}


def describe_roofline(measured):
    if not measured:
        return "nothing yet"
    best = machine_at_best(measured)
    read = [m["read_bytes_per_s"] / 1e9 for m in measured]
    return (
        f"at best {best['read_bytes_per_s'] / 1e9:.1f} GB/s read from memory (readings from "
        f"{min(read):.1f} on), {best['f32_flops_per_s'] / 1e9:.0f} GFLOP/s in float32"
    )


def page(data):
    facts = data["facts"]
    machine = machine_at_best(data["machine"]) if data["machine"] else None
    done = [(row, data["rows"][row.name]) for row in all_rows() if row.name in data["rows"]]
    sections = []
    for kind, text, make, align, head in SECTIONS:
        table = [
            make(row, entries, Weights(**data["weights"][row.model]), machine)
            for row, entries in done if row.kind == kind
        ]  # fmt: skip
        if table:
            text = text.format(decoded=facts["decoded"]) if kind == "streams" else text
            sections.append(text + report.table(head, table, align) + "\n")
    attention = [cells for row, entries in done if row.kind == "attention"
                 for cells in attention_rows(row, entries)]  # fmt: skip
    if attention:
        head = ("dtype", "head", "streams", "tokens of each", "GB/s", "of that", "met")
        sections.append(ATTENTION + report.table(head, attention, "l" + "r" * 5 + "l") + "\n")
    starts = [cells for row, entries in done if row.kind == "start"
              for cells in start_rows(row, entries)]  # fmt: skip
    if starts:
        head = ("what", "figure", "wanted", "met")
        sections.append(START + report.table(head, starts, "lrrl") + "\n")
    sections += [note + "\n" for note in facts.get("notes", ())]
    missing = [row.name for row in all_rows() if row.name not in data["rows"]]
    if missing:
        sections.append(f"Not measured in this run: {', '.join(missing)}.\n")
    count = facts["rounds"]
    rounds = "one round" if count == 1 else f"medians of {count} rounds (lowest–highest)"
    if left_out := facts.get("rounds_left_out", 0):
        rounds += f", {left_out} more left out for lack of time"
    return PAGE.format(**facts, factor=MODE_FACTOR, rounds_text=rounds,
                       roofline=describe_roofline(data["machine"]),
                       sections="\n".join(sections))  # fmt: skip

"""Says on one page whether lmtp-serve serves a model, how, how equal to transformers, how fast.

MODEL is a Hugging Face style folder, also a quantised one, a .gguf file, the folder of a LoRA
adapter (beside its base: --base, else what its adapter_config.json names), or a name of the hub.

Equal: the first greedy tokens of some prompts and the scores of a text, beside transformers in
float32 with the numbers that the files hold (dequantize.py reads quantised ones), over the very
tokens that the server chose, so that one difference does not hide the next. Both models are in
memory at once. Fast: lmtp-bench, with one stream and with eight.

After the pages of several models comes a table of their results.

Exit code 1 where a model is refused (the server's own sentence is shown) or anything differs.
"""

import argparse
import asyncio
import json
import pathlib
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

import dequantize
import reference_model
from reference_model import ADAPTER, NoReference, Reference
from servers import LmtpServe, bin_dir
from wire import Connection, StreamError, ids_of, logprobs_of

TEXTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):\n    ",
    "Q: What is 2 + 2?\nA:",
    "Übergrößenträger – naïve café, 東京, 🙂:",
)
SCORED = " and this is a sentence whose tokens are scored one by one."
NUM_RANDOM_IDS = 12
# Where the two best tokens of a step are this close, either may win: it is no difference.
TIE = 1e-3
TOLERANCE = 1e-3  # of each log probability
# Of their average, where the server rounds what transformers does not: activations, or weights.
ROUNDED_TOLERANCE = 0.25
ROUNDED_TIE = 1.0
BENCH_TIMEOUT_S = 1800
BENCH_TOKENS = (32, 64)  # of a prompt and of an answer
BENCH_STREAMS = (1, 8)


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="serve-check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="folder, .gguf file, adapter, or name"
    )
    parser.add_argument("--base", metavar="MODEL", help="of adapters")
    parser.add_argument("--tokens", type=int, default=32, help="greedy tokens a prompt (32)")
    parser.add_argument(
        "--tolerance", type=float,
        help=f"of log probabilities: of each ({TOLERANCE:g}); of their average "
        f"({ROUNDED_TOLERANCE:g}) where activations are rounded to 8 bits or weights to --dtype",
    )  # fmt: skip
    parser.add_argument("--no-speed", action="store_true", help="leave lmtp-bench out")
    parser.epilog = "Behind -- come options of lmtp-serve: -- --dtype bfloat16"
    own = sys.argv[1:]
    at = own.index("--") if "--" in own else len(own)
    args = parser.parse_args(own[:at])
    args.options = own[at + 1 :]
    return args


def row(name, text):
    print(f"  {name:<11} {text}", flush=True)


# ---- how it is served ----


def file_bytes(model):
    """Of the weights; 0 for a name of the hub."""
    path = pathlib.Path(model)
    files = [path] if path.is_file() else path.glob("*")
    ends = (".safetensors", ".bin", ".gguf")
    return sum(f.stat().st_size for f in files if f.name.endswith(ends))


def mb(count):
    return f"{count / 1e6:,.1f} MB"


def has_template(server, name):
    body = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    request = urllib.request.Request(
        f"http://{server.endpoint}/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return "there is one" if answer.status == 200 else "no"
    except urllib.error.HTTPError as e:
        return f"none usable: {json.loads(e.read())['error']['message']}"


def print_served(server, info, name, model, ready_s):
    stats, format_ = info["stats"], info.get("quantization")
    print(f"served: yes, as {info['architecture']}, {ready_s:.1f} s after the start")
    text = info["dtype"]
    if format_:
        weights = ", ".join(dict.fromkeys(format_["weights"]))
        text = f"{format_['method']}: {weights}; {format_['widened']} matrices widened; "
        text += f"{info['dtype']} else"
    row("dtype", f"{text}, on {info['device']}")
    row("parameters", f"{info['num_parameters']:,}, {mb(file_bytes(model))} of files")
    row("context", f"{info['context_length']} tokens, of a vocabulary of {info['vocab_size']}, "
        f"ended by {info['eos_token_ids']}")  # fmt: skip
    row("template", has_template(server, name))
    row("adapters", ", ".join(info.get("adapters") or []) or "none")
    kv_tokens = (stats["num_blocks"] - 1) * stats["tokens_per_block"]
    groups = stats["num_kv_groups"]
    in_groups = f" of one of {groups} groups" if groups > 1 else ""
    row("memory", f"{mb(server.rss_bytes())} resident, {mb(server.rss_bytes('VmHWM'))} at most; KV "
        f"cache {mb(stats['kv_cache_bytes'])}, {kv_tokens:,} tokens{in_groups}, taken as "
        "used")  # fmt: skip
    for note in info.get("notes") or []:
        row("note", note)


# ---- how equal ----


async def ids_of_texts(c):
    """The server's ids of TEXTS and SCORED; None where it has no tokenizer."""
    found = []
    for text in (*TEXTS, SCORED):
        stream_id = await c.send("TOKENIZE", text=text, add_special_tokens=text != SCORED)
        _, entry = await c.next_entry(stream_id)
        if entry.get("error"):
            return None
        found.append(entry["tokens"])
    return found


def make_prompts(ids, vocab_size, num_tokens, context):
    """(name, ids) pairs: texts where there is a tokenizer, and random ids; and what is scored."""
    rng = random.Random(0)
    draw = lambda: [rng.randrange(vocab_size) for _ in range(NUM_RANDOM_IDS)]
    prompts = [("random ids", draw()), ("other random ids", draw())]
    scored = draw()
    if ids:
        texts = [(repr(text), own) for text, own in zip(TEXTS, ids) if own]
        prompts, scored = texts + prompts, ids[-1] or scored
    behind = max(num_tokens, len(scored))
    return [(name, own) for name, own in prompts if len(own) + behind <= context], scored


async def ask(c, prompts, scored, num_tokens):
    generated = await asyncio.gather(
        *(c.generate(ids, max_tokens=num_tokens, temperature=0) for _, ids in prompts)
    )
    return generated, await asyncio.gather(*(c.score(ids, scored) for _, ids in prompts))


class Report:
    def __init__(self, tolerance, is_rounded):
        self.is_rounded = is_rounded
        self.tolerance = tolerance or (ROUNDED_TOLERANCE if is_rounded else TOLERANCE)
        self.tie = ROUNDED_TIE if is_rounded else TIE
        self.num_differences = 0
        self.num_tokens = self.num_equal = 0
        self.offs = []

    def difference(self, text):
        self.num_differences += 1
        print(f"  DIFFERS {text}")

    def greedy(self, prompt, entries, log_probs):
        ids = ids_of(entries)
        rows = log_probs(prompt + ids)[len(prompt) - 1 : -1]
        for i, (entry, probs) in enumerate(zip(entries, rows)):
            best = int(probs.argmax())
            wanted, chosen = float(probs[best]), float(probs[entry["token"]])
            self.num_tokens += 1
            self.num_equal += wanted - chosen <= TIE
            if wanted - chosen > self.tie:
                self.difference(
                    f"at token {i}: {entry['token']} ({entry['logprob']:.5f}), and transformers "
                    f"takes {best} ({wanted:.5f}; the server's has {chosen:.5f})"
                )
            self.logprob(i, entry["logprob"], chosen)

    def score(self, prompt, scored, entries, log_probs):
        rows = log_probs(prompt + scored)
        for i, logprob in enumerate(logprobs_of(entries)):
            at = len(prompt) + i - 1
            self.logprob(i, logprob, float(rows[at, scored[i]]) if at >= 0 else 0.0)

    def logprob(self, i, got, wanted):
        off = abs(got - wanted)
        self.offs.append(off)
        if not self.is_rounded and not off <= self.tolerance:
            self.difference(
                f"at token {i}: log probability {got:.6f}, and transformers gives {wanted:.6f}"
            )

    def average(self):
        average = sum(self.offs) / len(self.offs)
        if self.is_rounded and not average <= self.tolerance:
            self.difference(f"by {average:.4f} on average over {len(self.offs)} log probabilities")
        return average


def print_tokenizer(model, ids, report):
    """The server's ids beside transformers', where that reads the folder's tokenizer."""
    if ids is None:
        return row("tokenizer", "none: prompts are random ids alone")
    if reference_model.gguf_file(model):
        return row("tokenizer", "the file's own; not compared")
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
        theirs = [tokenizer.encode(text, add_special_tokens=text != SCORED)
                  for text in (*TEXTS, SCORED)]  # fmt: skip
    except Exception as e:  # any folder without a tokenizer that transformers knows
        return row("tokenizer", f"not compared: {type(e).__name__} in transformers")
    for text, ours, wanted in zip((*TEXTS, SCORED), ids, theirs):
        if ours != wanted:
            report.difference(f"{text!r}: its ids are {ours}, and transformers has {wanted}")
    row("tokenizer", f"{sum(a == b for a, b in zip(ids, theirs))} of {len(ids)} texts have the same"
        " ids")  # fmt: skip
    return None


def print_equal(model, adapter, info, ids, asked, report):
    """False where there is nothing to compare with."""
    prompts, scored, (generated, scores) = asked
    try:
        reference = Reference(model, adapter)
    except NoReference as e:
        print(f"equal: not compared, {e}")
        return False
    print(f"equal: beside {reference.how}")
    print_tokenizer(model, ids, report)
    for (_, prompt), entries, score in zip(prompts, generated, scores):
        report.greedy(prompt, entries, reference.log_probs)
        report.score(prompt, scored, score, reference.log_probs)
    row("tokens", f"{report.num_equal} of {report.num_tokens} greedy ones of {len(prompts)} "
        "prompts are transformers' choice")  # fmt: skip
    row("logprobs", f"{len(report.offs)} are {report.average():.1e} off on average, "
        f"{max(report.offs):.1e} at most; {report.tolerance:g} is allowed "
        f"{'on average' if report.is_rounded else 'for each'}")  # fmt: skip
    return True


def is_rounded(model, info):
    settings = reference_model.settings_of(model)
    return dequantize.rounds_activations(settings) or info["dtype"] != "float32"


# ---- how fast ----


def print_speed(server, name, info):
    print("fast: by lmtp-bench, on this machine as it is now")
    lengths = [min(n, info["context_length"] // 3) for n in BENCH_TOKENS]
    for streams in BENCH_STREAMS:
        command = [
            bin_dir() / "lmtp-bench", name, "--host", server.endpoint, "--max-concurrency", streams,
            "--num-prompts", 2 * streams, "--random-input-len", lengths[0], "--random-output-len",
            lengths[1], "--ignore-eos", "--json", "-",
        ]  # fmt: skip
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=BENCH_TIMEOUT_S
        )
        if done.returncode != 0:
            row("", f"lmtp-bench failed: {(done.stderr.strip() or '?').splitlines()[-1]}")
            return False
        [point] = json.loads(done.stdout)["points"]
        row(f"{streams} stream{'s' if streams > 1 else ''}",
            f"{point['output_throughput']:.1f} tokens/s, first token after "
            f"{point['mean_ttft_ms']:.1f} ms, then {point['mean_tpot_ms']:.1f} ms each "
            f"({lengths[0]} in, {lengths[1]} out)")  # fmt: skip
    return True


# ---- all of it ----


async def ask_server(args, name, server):
    async with Connection(server.endpoint, name) as c:
        info = await c.model_info()
        ids = await ids_of_texts(c)
        prompts, scored = make_prompts(ids, info["vocab_size"], args.tokens, info["context_length"])
        return info, ids, (prompts, scored, await ask(c, prompts, scored, args.tokens))


def served_name(adapter):
    """Its folder may be called like its base."""
    return pathlib.Path(adapter).resolve().name + "-lora"


def check(args, model, adapter, server, start):
    """(whether all is well, what the result is)."""
    ready_s = time.monotonic() - start
    name = served_name(adapter) if adapter else None
    info, ids, asked = asyncio.run(ask_server(args, name, server))
    print_served(server, info, name, model, ready_s)
    report = Report(args.tolerance, is_rounded(model, info))
    is_compared = print_equal(model, adapter, info, ids, asked, report)
    is_fast = args.no_speed or print_speed(server, name or info["model"], info)
    if report.num_differences:
        return False, f"{report.num_differences} differences beyond {report.tolerance:g}"
    equal = f"no difference beyond {report.tolerance:g}" if is_compared else "not compared"
    return is_fast, f"served, {equal}"


def write_page(args, model):
    """(whether all is well, what the result is)."""
    adapter, options = None, list(args.options)
    if reference_model.kind_of(model) == ADAPTER:
        model, adapter = args.base or reference_model.base_of(model), model
        if not model:
            print(adapter)
            return False, "it names no base; give --base MODEL"
    print(f"{adapter + ' on ' if adapter else ''}{model}")
    if adapter:
        options += ["--lora-modules", f"{served_name(adapter)}={pathlib.Path(adapter).resolve()}"]
    path = pathlib.Path(model)
    server = LmtpServe(path.resolve() if path.exists() else model, *options)
    start = time.monotonic()
    try:
        server.__enter__()
    except RuntimeError as e:
        if server.exit_code is None:
            raise
        lines = server.output.strip().splitlines() or [str(e)]
        print(f"served: no\n  {lines[-1]}")
        return False, "refused"
    try:
        return check(args, model, adapter, server, start)
    except StreamError as e:
        return False, f"the server said {e}"
    finally:
        server.__exit__()


def main():
    args = parse_arguments()
    results = []
    for i, model in enumerate(args.models):
        print(end="\n" if i else "")
        results.append(write_page(args, model))
        print(f"result: {results[-1][1]}", flush=True)
    if len(results) > 1:
        width = max(map(len, args.models))
        print()
        for model, (_, text) in zip(args.models, results):
            print(f"{model:<{width}}  {text}")
    sys.exit(0 if all(is_well for is_well, _ in results) else 1)


if __name__ == "__main__":
    main()

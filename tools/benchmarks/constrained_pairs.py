"""The time per token of free streams that have constrained ones beside them, and of those, over
that of as many free streams in all, from one lmtp-serve, in turns.

    .venv/bin/python tools/benchmarks/constrained_pairs.py [--tokenizer FOLDER]

The weights are random, of gpt2-medium's shape; the tokens are made up, or with --tokenizer those of
a folder that has GPT-2's. All streams are drawn at temperature 1. Half of the constrained ones
write sentences by a regular expression, half a JSON object with a list of texts: after the first
key hardly a token is forced, and no stream ends before its length.
"""

import argparse
import pathlib
import random
import statistics
import tempfile
import urllib.request

import random_models
import report
from servers import Server, bin_dir, free_port
from streams import run_lmtp

PROMPT_TOKENS = 16
WARM_TOKENS = 16
END = 50256  # of GPT-2
NOTES = {
    "type": "object",
    "properties": {
        "notes": {
            "type": "array",
            "minItems": 100,
            "items": {"type": "string", "minLength": 80, "maxLength": 240},
        }
    },
    "required": ["notes"],
}
GRAMMARS = [
    {"type": "regex", "value": r"([A-Z][a-z]*( [a-z]+){4,12}\. )+"},
    {"type": "json_schema", "value": NOTES},
]
COUNTED = ("masks_total", "masks_late_total", "mask_wait_seconds_total", "forced_tokens_total",
           "num_preemptions_total", "steps_total")  # fmt: skip


def run(server, num_free, num_constrained, num_tokens):
    """The free streams come first."""
    num = num_free + num_constrained
    prompts = [[random.randrange(END) for _ in range(PROMPT_TOKENS)] for _ in range(num)]
    more = [{"temperature": 1.0, "seed": i} for i in range(num)]
    for i in range(num_constrained):
        more[num_free + i]["grammar"] = GRAMMARS[i % len(GRAMMARS)]
    done = run_lmtp(server.endpoint, prompts, num_tokens, [END], more=more)
    if any(len(ids) != num_tokens for ids in done.ids):
        raise RuntimeError("a stream ended before its length")
    return done


def measure(server, options):
    """For each pair: how much longer a token of a free stream takes, and one of a constrained."""
    half = options.streams // 2

    def rate_of_free():
        return run(server, options.streams, 0, options.tokens).steady_tokens_per_s() / 2

    def rates_of_mixed():
        done = run(server, half, half, options.tokens)
        return done.steady_tokens_per_s(0, half), done.steady_tokens_per_s(half)

    run(server, half, half, WARM_TOKENS)
    ratios = []
    for i in range(options.pairs):
        turn = [rate_of_free, rates_of_mixed]
        found = {way: way() for way in turn[:: 1 if i % 2 == 0 else -1]}
        ratios.append([found[rate_of_free] / rate for rate in found[rates_of_mixed]])
        print(f"{1000 * half / found[rate_of_free]:.1f} ms a token; free {ratios[-1][0]:.3f}, "
              f"constrained {ratios[-1][1]:.3f}", flush=True)  # fmt: skip
    return ratios


def model_folder(options, made):
    """The random weights, in the folder `made` with the tokenizer that is asked for."""
    random_folder = random_models.random_model(options.shape)
    if options.tokenizer is None:
        return random_folder
    for name in ("config.json", "model.safetensors"):
        (made / name).symlink_to(random_folder / name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (made / name).symlink_to((options.tokenizer / name).resolve())
    return made


def counts(server):
    with urllib.request.urlopen(f"http://{server.endpoint}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.removeprefix("lmtp_").partition("{") for line in lines)
    return {name: rest.split()[-1] for name, _, rest in rows if name in COUNTED}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", default="gpt2-medium")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--streams", type=int, default=64, help="half of them constrained")
    parser.add_argument("--tokens", type=int, default=128, help="of a stream")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-cache", default="4GiB")
    parser.add_argument("--tokenizer", type=pathlib.Path)
    options = parser.parse_args()
    print(f"{report.machine()}\nrevision {report.revision()}\n")
    port = free_port()
    with tempfile.TemporaryDirectory() as made:
        folder = model_folder(options, pathlib.Path(made))
        ours = Server([bin_dir() / "lmtp-serve", folder, "--port", port, "--threads",
                       options.threads, "--dtype", options.dtype, "--kv-cache", options.kv_cache,
                       "--log-level", "warning"], port)  # fmt: skip
        with ours:
            ratios = measure(ours, options)
            counted = counts(ours)
    print("\n| streams | median | quartiles | ratios |\n|---|---|---|---|")
    for name, found in zip(("free", "constrained"), zip(*ratios)):
        low, median, high = statistics.quantiles(found, n=4, method="inclusive")
        print(f"| {options.streams // 2} {name} | {median:.3f} | {low:.3f} to {high:.3f} | "
              f"{' '.join(f'{ratio:.3f}' for ratio in sorted(found))} |")  # fmt: skip
    print("\n" + ", ".join(f"{name} {value}" for name, value in counted.items()))


if __name__ == "__main__":
    main()

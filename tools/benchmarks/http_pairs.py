"""Tokens a second of streams over /v1/completions beside the same over LMTP, from one lmtp-serve
(and beside llama-server's, where one is given), in turns.

    .venv/bin/python tools/benchmarks/http_pairs.py [--llama-server PROGRAM --gguf FILE]

The weights are random, of gpt2-medium's shape, with a tokenizer: HTTP answers the text of each
token, LMTP its id.
"""

import argparse
import pathlib
import random
import statistics

import random_models
import report
from servers import Server, bin_dir, free_port
from streams import run_llama, run_lmtp, run_openai

PROMPT_TOKENS = 16
TOKENS_MIN, TOKENS_MAX = 96, 900
END = 50256  # of GPT-2


def rates(ways, num_streams, options):
    """By way, tokens a second in each turn."""
    def measure(run, num_tokens):
        rng = random.Random(num_streams)
        prompts = [[rng.randrange(END) for _ in range(PROMPT_TOKENS)] for _ in range(num_streams)]
        return run(prompts, num_tokens).steady_tokens_per_s()

    warm = [measure(run, TOKENS_MIN) for run in ways.values()]
    num_tokens = int(options.seconds * warm[0] / num_streams)
    num_tokens = min(max(num_tokens, TOKENS_MIN), TOKENS_MAX)
    found = {name: [] for name in ways}
    for i in range(options.pairs):
        for name in list(ways)[:: 1 if i % 2 == 0 else -1]:
            found[name].append(measure(ways[name], num_tokens))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", default="gpt2-medium")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4, help="of one measurement, about")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path, help="the same weights for llama-server")
    options = parser.parse_args()
    print(f"{report.machine()}\nrevision {report.revision()}\n")
    print("| streams | LMTP, tokens/s | /v1/completions | median of HTTP/LMTP | ratios | "
          "llama-server |\n|---|---|---|---|---|---|", flush=True)
    port = free_port()
    ours = Server([bin_dir() / "lmtp-serve", random_models.random_model(options.shape), "--port",
                   port, "--threads", options.threads, "--dtype", options.dtype, "--kv-cache",
                   "2GiB", "--log-level", "warning"], port)  # fmt: skip
    with ours:
        for num_streams in map(int, options.streams.split(",")):
            ways = {"lmtp": lambda p, n: run_lmtp(ours.endpoint, p, n, [END]),
                    "http": lambda p, n: run_openai(ours.endpoint, p, n)}  # fmt: skip
            found = rates(ways, num_streams, options)
            ratios = sorted(h / l for h, l in zip(found["http"], found["lmtp"]))
            print(f"| {num_streams} | {statistics.median(found['lmtp']):.1f} | "
                  f"{statistics.median(found['http']):.1f} | {statistics.median(ratios):.3f} | "
                  f"{' '.join(f'{r:.3f}' for r in ratios)} | "
                  f"{llama_rate(num_streams, options)} |", flush=True)  # fmt: skip


def llama_rate(num_streams, options):
    """Its median, or nothing where there is none; a server of its own, while ours idles."""
    if options.llama_server is None:
        return ""
    port = free_port()
    server = Server([options.llama_server, "-m", options.gguf, "--port", port, "-t",
                     options.threads, "-np", num_streams, "-c", 1024 * num_streams], port)
    with server:
        found = rates({"llama": lambda p, n: run_llama(server.endpoint, p, n)}, num_streams,
                      options)["llama"]
    return f"{statistics.median(found):.1f}"


if __name__ == "__main__":
    main()

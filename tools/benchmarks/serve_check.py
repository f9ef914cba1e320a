"""Compares what lmtp-serve gives for a local model folder with what transformers gives.

For some prompts: the first greedy tokens, the log-probability of each, and the scores of a text.
transformers runs in float32 over the very tokens that the server chose, so that one difference does
not hide the next. Both models are in memory at once. Exit code 1 where anything differs.
"""

import argparse
import asyncio
import pathlib
import random
import sys

from servers import LmtpServe
from wire import Connection, ids_of, logprobs_of

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


def parse_arguments():
    parser = argparse.ArgumentParser(prog="serve-check", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="a Hugging Face style model folder")
    parser.add_argument("--tokens", type=int, default=32, help="greedy tokens a prompt (32)")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3,
        help="of log-probabilities (1e-3; give more for a --dtype that rounds)",
    )  # fmt: skip
    parser.add_argument("options", nargs="*", help="go to lmtp-serve: -- --dtype bfloat16")
    return parser.parse_args()


def load_reference(folder):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()

    def log_probs(ids):
        """[tokens, vocab]"""
        return torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)

    return model.config, log_probs


def make_prompts(folder, vocab_size):
    """(name, ids) pairs: texts where the folder has a tokenizer, and random ids."""
    rng = random.Random(0)
    draw = lambda: [rng.randrange(vocab_size) for _ in range(NUM_RANDOM_IDS)]
    prompts = [("random ids", draw()), ("other random ids", draw())]
    scored = draw()
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = [(repr(text), tokenizer.encode(text)) for text in TEXTS]
        scored = tokenizer.encode(SCORED, add_special_tokens=False) or scored
        prompts = [(name, ids) for name, ids in texts if ids] + prompts
    except Exception as e:  # any folder without a tokenizer that transformers knows
        print(f"no tokenizer ({type(e).__name__}): random ids alone")
    return prompts, scored


async def ask(endpoint, prompts, scored, num_tokens):
    async with Connection(endpoint) as c:
        info = await c.model_info()
        generated = await asyncio.gather(
            *(c.generate(ids, max_tokens=num_tokens, temperature=0) for _, ids in prompts)
        )
        scores = await asyncio.gather(*(c.score(ids, scored) for _, ids in prompts))
    return info, generated, scores


class Report:
    def __init__(self, tolerance):
        self.tolerance = tolerance
        self.num_differences = 0

    def difference(self, text):
        self.num_differences += 1
        print(f"  DIFFERS {text}")

    def greedy(self, name, prompt, entries, log_probs):
        ids = ids_of(entries)
        rows = log_probs(prompt + ids)[len(prompt) - 1 : -1]
        worst = 0.0
        for i, (entry, row) in enumerate(zip(entries, rows)):
            best = int(row.argmax())
            wanted, chosen = float(row[best]), float(row[entry["token"]])
            if best != entry["token"] and wanted - chosen > TIE:
                self.difference(
                    f"at token {i}: {entry['token']} ({entry['logprob']:.5f}), and transformers "
                    f"takes {best} ({wanted:.5f}; the server's has {chosen:.5f})"
                )
            worst = max(worst, self.logprob(i, entry["logprob"], chosen))
        print(f"greedy  {len(ids):4} tokens  worst {worst:.1e}  {name}")

    def score(self, name, prompt, scored, entries, log_probs):
        rows = log_probs(prompt + scored)
        worst = 0.0
        for i, logprob in enumerate(logprobs_of(entries)):
            at = len(prompt) + i - 1
            wanted = float(rows[at, scored[i]]) if at >= 0 else 0.0
            worst = max(worst, self.logprob(i, logprob, wanted))
        print(f"score   {len(scored):4} tokens  worst {worst:.1e}  {name}")

    def logprob(self, i, got, wanted):
        off = abs(got - wanted)
        if not off <= self.tolerance:
            self.difference(
                f"at token {i}: log-probability {got:.6f}, and transformers gives {wanted:.6f}"
            )
        return off


def main():
    args = parse_arguments()
    if not (args.folder / "config.json").exists():
        sys.exit(f"serve-check: {args.folder} is no model folder: it has no config.json")
    config, log_probs = load_reference(args.folder)
    prompts, scored = make_prompts(args.folder, config.vocab_size)
    with LmtpServe(args.folder.resolve(), *args.options) as server:
        answers = asyncio.run(ask(server.endpoint, prompts, scored, args.tokens))
    info, generated, scores = answers
    print(f"{info['architecture']}, {info['dtype']} on {info['device']}, against float32")
    report = Report(args.tolerance)
    for (name, ids), entries, score in zip(prompts, generated, scores):
        report.greedy(name, ids, entries, log_probs)
        report.score(name, ids, scored, score, log_probs)
    if report.num_differences:
        sys.exit(f"serve-check: {report.num_differences} differences beyond {args.tolerance:g}")
    print(f"no difference beyond {args.tolerance:g}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/goldens/<name>.json: what `transformers` gives, in float32 on a processor, for every
tiny checkpoint (checkpoints/: GPT-2; families/: the other architectures; ranks/: for several
ranks; experts/: mixtures of experts) and for models/demo.

    make_goldens.py [NAME...]          (all of them without a name)

Every greedy step is one whole forward pass without a KV cache; log-probabilities are log_softmax,
worked out in float64, of the float32 logits, to which logit_bias is added first. A prompt whose
continuation comes nearer to a tie than SMALLEST_GAP is passed over for the next one drawn, so that
rounding cannot change a token. `f32_error` is the largest difference from a float64 pass over the
same ids. `top5` stands on the first TOP5_STEPS steps only. An end token is one of
generation_config.json's, else config.json's; it ends a case (finish_reason "stop") and is the last
of its ids.
"""

import itertools
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
DEMO = HERE.parent.parent / "models" / "demo"
SMALLEST_GAP = 1e-3  # in log-probability, between the best and the second best token of a step
STEPS = 256
FAMILY_STEPS = 64
RANK_STEPS = 24
TOP5_STEPS = 64
DIFFERENT_MIN = 4  # an end token that comes at once, or one token for ever, shows little
DRAWS_MAX = 60
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
MADE_BY = f"{VERSIONS}, float32, cpu"
# Openings for the demo; later ones stand in where an earlier one comes too near to a tie.
DEMO_PROMPTS = (
    "Once upon a time there was a",
    "KING RICHARD:\nMy lord, ",
    "Alice thought to herself, ",
    "The old woman said",
    "First Servant:\n",
    "‘I am so hungry,’ said the wolf",
    "Now when the king",
    "Good morrow, cousin.",
    "The Mouse",
    "A miller had three sons",
)


class Reference:
    """One model folder, in float32 for the golden and in float64 to see how far float32 is off."""

    def __init__(self, folder):
        load = AutoModelForCausalLM.from_pretrained
        # transformers 5 multiplies them by what has no float64.
        is_5 = transformers.__version__.startswith("5")
        experts = {"experts_implementation": "eager"} if is_5 else {}
        self.f32, self.f64 = (
            # All of it: transformers 4 leaves the numbers of an xIELU in bfloat16.
            load(folder, dtype=dtype, attn_implementation="eager", **experts).to(dtype).eval()
            for dtype in (torch.float32, torch.float64)
        )
        config = json.loads((folder / "config.json").read_text())
        for part in self.f64.modules():
            family = type(part).__name__
            if family == "Ernie4_5_MoeSparseMoeBlock":
                part.gate.float()  # as its input is
            elif family == "Glm4MoeTopkRouter":
                part.register_forward_hook(lambda _, inputs, out: (out[0], out[1].double()))
        generation = json.loads((folder / "generation_config.json").read_text())
        eos = generation.get("eos_token_id", config.get("eos_token_id"))
        self.eos = eos if isinstance(eos, list) else [eos]
        self.bos = config["bos_token_id"]
        self.vocab = config["vocab_size"]
        # Behind longrope's first context other factors would hold, see rotary_config.h.
        lengths = ("original_max_position_embeddings", "max_position_embeddings", "n_positions")
        self.context = next(config[key] for key in lengths if key in config)

    def log_probs(self, model, ids, bias):
        """[tokens, vocab] float64."""
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double() + bias, -1)

    def bias_row(self, logit_bias):
        row = torch.zeros(self.vocab, dtype=torch.float64)
        for token, value in (logit_bias or {}).items():
            row[int(token)] = value
        return row


def rounded(x):
    return round(float(x), 7)


def greedy_case(ref, name, prompt, steps=STEPS, logit_bias=None):
    """Stops early at a step nearer to a tie than SMALLEST_GAP, which "smallest_gap" then shows."""
    bias, ids, out, gap = ref.bias_row(logit_bias), list(prompt), [], float("inf")
    steps = min(steps, ref.context - len(prompt))
    for i in range(steps):
        row = ref.log_probs(ref.f32, ids, bias)[-1]
        top = row.topk(5)
        gap = min(gap, float(top.values[0] - top.values[1]))
        token = int(top.indices[0])
        step = {"token": token, "logprob": rounded(row[token])}
        if i < TOP5_STEPS and steps not in (FAMILY_STEPS, RANK_STEPS):
            step["top5"] = [[int(t), rounded(v)] for v, t in zip(top.values, top.indices)]
        out.append(step)
        ids.append(token)
        if token in ref.eos or gap < SMALLEST_GAP:
            break
    exact = ref.log_probs(ref.f64, ids[:-1], bias)[len(prompt) - 1 :]
    case = {
        "name": name,
        "kind": "greedy",
        "made_by": MADE_BY,
        "prompt_ids": list(prompt),
        "max_tokens": steps,
        "ids": ids[len(prompt) :],
        "finish_reason": "stop" if ids[-1] in ref.eos else "length",
        "smallest_gap": rounded(gap),
        "f32_error": max(abs(float(e[s["token"]]) - s["logprob"]) for e, s in zip(exact, out)),
    }
    return case | ({"logit_bias": logit_bias} if logit_bias else {}) | {"steps": out}


def score_case(ref, name, prompt, scored):
    """Log-probability of each scored token behind all before it; the very first token of a sequence
    has 0.0."""
    ids = list(prompt) + list(scored)
    rows = [ref.log_probs(model, ids, 0) for model in (ref.f32, ref.f64)]
    at = range(len(prompt), len(ids))
    values, exact = ([float(r[i - 1, ids[i]]) if i else 0.0 for i in at] for r in rows)
    return {
        "name": name,
        "kind": "score",
        "made_by": MADE_BY,
        "prompt_ids": list(prompt),
        "scored_ids": list(scored),
        "logprobs": [rounded(v) for v in values],
        "f32_error": max(abs(a - b) for a, b in zip(values, exact)),
    }


def first_clear(ref, name, drawn, finish="length", **options):
    """The case of the first (prompt, bias) drawn that has no near tie and ends as asked."""
    for prompt, bias in itertools.islice(drawn, DRAWS_MAX):
        case = greedy_case(ref, name, prompt, logit_bias=bias, **options)
        clear = case["smallest_gap"] >= SMALLEST_GAP and case["finish_reason"] == finish
        if clear and len(set(case["ids"])) >= DIFFERENT_MIN:
            return case
    sys.exit(f"{name}: no prompt drawn has a clear greedy continuation that ends by {finish}")


class Draws:
    """Prompts and biases for one model, drawn by seed; `texts` (prompts as ids) come first."""

    def __init__(self, ref, seed, texts):
        self.ref, self.texts = ref, texts
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.no_end = {str(t): -100.0 for t in ref.eos}

    def ids(self, count):
        return [int(t) for t in self.rng.integers(0, self.ref.vocab, count)]

    def prompts(self, count, bias=lambda: None):
        for text in self.texts:
            yield text, bias()
        while True:
            yield self.ids(count), bias()

    def from_bos(self):
        yield [self.ref.bos], None
        while True:  # the end token, then a few others, banned until the way is clear
            yield [self.ref.bos], self.no_end | {str(t): -100.0 for t in self.ids(2)}

    def one_token(self):
        return ((prompt[-1:], bias) for prompt, bias in self.prompts(1, lambda: self.no_end))

    def half_context(self):
        half = self.ref.context // 2
        return (([*p, *self.ids(half - len(p))], bias) for p, bias in self.prompts(3))

    def nudges(self):
        values = zip(self.ids(12), self.rng.normal(0, 2, 12))
        return self.no_end | {str(t): round(float(v), 2) for t, v in values}

    def few(self):
        """All but sixteen tokens banned, as a constraint over a list of choices does."""
        keep = set(self.ids(16)) - set(self.ref.eos)
        return {str(t): -100.0 for t in range(self.ref.vocab) if t not in keep}

    def raised_end(self):
        return {str(self.ref.eos[-1]): round(float(self.rng.uniform(1, 12)), 2)}


def cases_of(ref, seed, texts=()):
    d = Draws(ref, seed, texts)
    half = ref.context // 2
    yield first_clear(ref, "greedy from bos", d.from_bos())
    yield first_clear(ref, "greedy, short prompt", d.prompts(3))
    yield first_clear(ref, "greedy, one token", d.one_token())
    yield first_clear(ref, "greedy, half the context", d.half_context())
    yield first_clear(ref, "greedy under bias", d.prompts(5, d.nudges))
    yield first_clear(ref, "greedy, sixteen tokens allowed", d.prompts(4, d.few), steps=64)
    ending = d.prompts(4, d.raised_end)
    yield first_clear(ref, "greedy to the end token", ending, finish="stop", steps=64)
    yield score_case(ref, "score behind nothing", [], d.ids(40))
    yield score_case(ref, "score one token behind nothing", [], d.ids(1))
    yield score_case(ref, "score behind bos", [ref.bos], d.ids(30))
    yield score_case(ref, "score one token", d.ids(7), d.ids(1))
    yield score_case(ref, "score to the context's end", d.ids(half), d.ids(ref.context - half))
    own = greedy_case(ref, "", d.ids(5), steps=32)
    yield score_case(ref, "score of a greedy continuation", own["prompt_ids"], own["ids"])


def family_cases_of(ref, seed):
    d = Draws(ref, seed, ())
    half = ref.context // 2
    yield first_clear(ref, "greedy, short prompt", d.prompts(3), steps=FAMILY_STEPS)
    yield first_clear(ref, "greedy, half the context", d.half_context(), steps=FAMILY_STEPS)
    yield first_clear(ref, "greedy under bias", d.prompts(5, d.nudges), steps=FAMILY_STEPS)
    yield score_case(ref, "score behind nothing", [], d.ids(40))
    yield score_case(ref, "score to the context's end", d.ids(half), d.ids(ref.context - half))


def rank_cases_of(ref, seed):
    d = Draws(ref, seed, ())
    yield first_clear(ref, "greedy, short prompt", d.prompts(3), steps=RANK_STEPS)
    yield first_clear(ref, "greedy, half the context", d.half_context(), steps=RANK_STEPS)
    yield score_case(ref, "score behind nothing", [], d.ids(40))


def line(case):
    """Steps one to a line, the rest of a case on one line."""
    steps = case.pop("steps", None)
    text = json.dumps(case, ensure_ascii=False)
    if steps:
        text = text[:-1] + ', "steps": [\n  ' + ",\n  ".join(json.dumps(s) for s in steps) + "]}"
    return text


def report(model, case):
    ids = case.get("ids", case.get("scored_ids"))
    gap = f"gap {case['smallest_gap']:.4f}, " if "ids" in case else ""
    print(
        f"{model} | {case['name']} | {len(ids)} tokens, {len(set(ids))} different, {gap}"
        f"error {case['f32_error']:.1e}",
        flush=True,
    )


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    folders = {f.name: f for f in sorted((HERE / "checkpoints").iterdir())} | {"demo": DEMO}
    folders |= {f"families/{f.name}": f for f in sorted((HERE / "families").iterdir())}
    # Later ones last: seeds are counted.
    by_age = lambda f: (f.name.endswith("-kv"), f.name)
    ranks = {f"ranks/{f.name}": f for f in sorted((HERE / "ranks").iterdir(), key=by_age)}
    experts = {f"experts/{f.name}": f for f in sorted((HERE / "experts").iterdir())}
    later = ["families/olmo"]
    for seed, name in enumerate([*sorted(folders.keys() - later), *ranks, *experts, *later]):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        texts = ()
        if name == "demo":
            tokenizer = AutoTokenizer.from_pretrained(DEMO)
            texts = [tokenizer.encode(t) for t in DEMO_PROMPTS]
        cases = []
        folder = (folders | ranks | experts)[name]
        ref = Reference(folder)
        kinds = {"families": family_cases_of, "experts": family_cases_of, "ranks": rank_cases_of}
        draws = kinds.get(name.split("/")[0])
        for case in draws(ref, seed) if draws else cases_of(ref, seed, texts):
            report(name, case)
            cases.append(case)
        text = "[\n" + ",\n".join(line(c) for c in cases) + "\n]\n"
        target = folder / "golden.json" if draws else HERE / f"{name}.json"
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/goldens/draws.json: which tokens transformers' warpers keep of rows of logits.

A list of {"logits", one or more of the parameters, "kept"}: ids, ascending. The warpers come in
LMTP's order, that of DrawParams (include/lmtp/base/draw_params.h). Rows are drawn by seed. Those
with ties, all of which transformers keeps, and those of which others stay if logits are off by 1e-4
are passed over.
"""

import json
import pathlib
import random

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

FILE = pathlib.Path(__file__).parent / "draws.json"
NUM_CASES = 200
WARPERS = {
    "temperature": TemperatureLogitsWarper,
    "min_p": MinPLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "typical_p": TypicalLogitsWarper,
}


def kept(case, noise=0.0):
    warpers = LogitsProcessorList(WARPERS[name](case[name]) for name in WARPERS if name in case)
    logits = torch.tensor([case["logits"]], dtype=torch.float64)
    scores = warpers(None, logits + noise * torch.randn_like(logits))
    return torch.isfinite(scores[0]).nonzero().flatten().tolist()


def draw_case(rng):
    width = rng.choice([5, 12, 40])
    spread = rng.choice([0.3, 1.0, 3.0])
    case = {
        "logits": [round(rng.gauss(0, spread), 4) for _ in range(width)],
        "temperature": rng.choice([0.5, 0.8, 1.0, 1.5]),
    }
    others = {
        "min_p": rng.choice([0.01, 0.05, 0.1, 0.3, 0.6, 0.9]),
        "top_k": rng.randint(1, width),
        "top_p": rng.choice([0.1, 0.5, 0.8, 0.95]),
        "typical_p": rng.choice([0.2, 0.5, 0.9, 0.95]),
    }
    names = rng.sample(sorted(others), rng.randint(1, len(others)))
    return case | {name: others[name] for name in names}


def main():
    rng = random.Random(20)
    torch.manual_seed(20)
    cases = []
    while len(cases) < NUM_CASES:
        case = draw_case(rng)
        case["kept"] = kept(case)
        has_ties = len(set(case["logits"])) < len(case["logits"])
        if not has_ties and all(kept(case, 1e-4) == case["kept"] for _ in range(20)):
            cases.append(case)
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main()

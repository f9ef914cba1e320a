"""Level 1.1: what entries say of their positions' probabilities."""

import functools
import math

from base_rules import near
from suite import PROMPT, expect, expect_equal, ids
from suite import rule as any_rule

rule = functools.partial(any_rule, level="1.1")


@rule("Log probabilities", "TEXT")
async def listed_tokens_have_their_logprobs(t):
    """logprob_token_ids have the log probabilities that top_logprobs has, in their order."""
    async with t.wire() as w:
        (best,) = await w.generate(max_tokens=1, top_logprobs=40)
        asked = [int(key) for key in reversed(best["top_logprobs"])]
        for entry in (
            *await w.generate(max_tokens=1, temperature=1.0, seed=5, logprob_token_ids=asked),
            *await w.score(PROMPT, [best["token"]], logprob_token_ids=asked),
        ):
            got = entry.get("token_logprobs", {})
            expect_equal(list(got), list(map(str, asked)), "tokens of token_logprobs")
            expect_equal(got, dict(best["top_logprobs"]), "log probabilities")


@rule("Log probabilities", "TEXT")
async def entropy_and_rank_are_those_of_the_reported_probabilities(t):
    """entropy is that of all probabilities, and rank counts the tokens as probable or more."""
    async with t.wire() as w:
        (best,) = await w.generate(max_tokens=1, top_logprobs=1000, entropy=True, rank=True)
        tops = list(best["top_logprobs"].items())
        asked = {"entropy": True, "rank": True}
        for at in (0, len(tops) // 2, len(tops) - 1):
            (entry,) = await w.score(PROMPT, [int(tops[at][0])], **asked)
            expect_equal(entry["entropy"], best["entropy"], "entropy of the same position")
            expect_equal(entry["rank"], sum(lp >= tops[at][1] for _, lp in tops), "rank")
        if abs(sum(math.exp(lp) for _, lp in tops) - 1) < 1e-6:
            expected = -sum(math.exp(lp) * lp for _, lp in tops if lp > -80)
            expect(near(best["entropy"], expected), f"{best['entropy']}, {expected} in float64")
        (entry,) = await w.generate(max_tokens=1)
        expect("entropy" not in entry and "rank" not in entry, f"not asked for: {entry}")


@rule("Log probabilities", "TEXT")
async def raw_logprobs_are_the_models(t):
    """logprobs "raw" are those of the model's logits, before bias and penalties; draws stay."""
    async with t.wire() as w:
        (plain,) = await w.generate(max_tokens=1, top_logprobs=5)
        best = str(plain["token"])
        fields = {"max_tokens": 6, "top_logprobs": 5, "temperature": 1.0, "seed": 5}
        fields["logit_bias"] = {best: -4}
        processed = await w.generate(**fields)
        raw = await w.generate(logprobs="raw", **fields)
        expect_equal(ids(raw), ids(processed), "draws")
        for key, value in plain["top_logprobs"].items():
            got = raw[0]["top_logprobs"].get(key)
            expect(got is not None and near(got, value), f"token {key}: {got}, {value} unbiased")
        got = processed[0]["top_logprobs"].get(best, -99)
        expect(not near(got, plain["logprob"]), f"processed has no bias: {got}")

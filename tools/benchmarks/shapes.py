"""The shapes of work that LMQL sends, each as one coroutine over a Connection.

Prompts are random ids, drawn anew for every round: a cache helps within a round, as it would within
one LMQL program, and not between rounds. Both servers get the same ones.
"""

import asyncio
import random

PREFIX = 200  # tokens of a program so far
CHUNK = 16  # LMQL's tokens per request


class Work:
    """One round's random choices for a model."""

    def __init__(self, vocab, eos, seed):
        self.vocab = vocab
        self.rng = random.Random(seed)
        self.no_end = {str(t): -100 for t in eos}

    def ids(self, count):
        return [self.rng.randrange(self.vocab) for _ in range(count)]


async def one(c, work):
    """one stream: 64 tokens behind 64"""
    await c.generate(work.ids(64), max_tokens=64, temperature=0.0, logit_bias=work.no_end)


async def eight(c, work):
    """eight streams at once: 32 tokens behind 64"""
    bias = work.no_end
    await asyncio.gather(
        *(
            c.generate(work.ids(64), max_tokens=32, temperature=0.0, logit_bias=bias)
            for _ in range(8)
        )
    )


async def chunks(c, work):
    """six chunks of 16 behind 200, under a mask of half the vocabulary"""
    prompt = work.ids(PREFIX)
    masked = work.rng.sample(range(work.vocab), work.vocab // 2)
    mask = dict.fromkeys(map(str, masked), -100) | work.no_end
    for _ in range(6):
        entries = await c.generate(prompt, max_tokens=CHUNK, temperature=0.0, logit_bias=mask)
        prompt = prompt + [e["token"] for e in entries]


async def beams(c, work):
    """eight steps of four beams, one token each, behind 200 and more"""
    prompt = work.ids(PREFIX)
    beam_ends = [[] for _ in range(4)]
    for _ in range(8):
        for k, end in enumerate(beam_ends):
            end.append(k + 3)
        await asyncio.gather(
            *(
                c.generate(prompt + end, max_tokens=1, temperature=0.0, top_logprobs=4)
                for end in beam_ends
            )
        )


async def scores(c, work):
    """eight texts of 6 tokens scored behind the same 200"""
    prompt = work.ids(PREFIX)
    await asyncio.gather(*(c.score(prompt, work.ids(6)) for _ in range(8)))


async def again(c, work):
    """the same once more, in both servers"""
    await scores(c, work)


async def mixed(c, work):
    """eight streams of 8 to 36 tokens behind 32 to 88, each at its own temperature"""
    await asyncio.gather(
        *(
            c.generate(
                work.ids(32 + 8 * i),
                max_tokens=8 + 4 * i,
                temperature=0.1 * i,
                logit_bias=work.no_end,
            )
            for i in range(8)
        )
    )


# Those of a group get the same work, one behind the other.
GROUPS = ((one,), (eight,), (chunks,), (beams,), (scores, again), (mixed,))


def steps_of(shape):
    """The fewest steps that this work takes, as (tokens, rows of logits) of each: whatever is known
    from before in a cache, all prompts at once, then one token of each stream; the last of scored
    tokens is looked up alone. None where all is known."""
    if shape is one:
        return [(64, 1)] + [(1, 1)] * 63
    if shape is eight:
        return [(8 * 64, 8)] + [(8, 8)] * 31
    if shape is chunks:
        return [(PREFIX, 1)] + [(1, 1)] * (6 * CHUNK - 1)
    if shape is beams:
        return [(PREFIX + 4, 4)] + [(4, 4)] * 7
    if shape is scores:
        return [(PREFIX + 8 * 5, 1 + 8 * 5)]
    if shape is again:
        return []
    lengths = [8 + 4 * i for i in range(8)]
    batches = [sum(length > n for length in lengths) for n in range(1, max(lengths))]
    return [(sum(32 + 8 * i for i in range(8)), 8)] + [(batch, batch) for batch in batches]

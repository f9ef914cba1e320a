"""What clients of a soak ask for, and what each stream gets when it is alone.

A program is a list of groups, whose streams run side by side; the next group comes when the last
one has ended. Each stream is a Stream, whose `alone` the soaked server must repeat.
"""

import dataclasses
import random

from wire import Connection

NUM_HEADERS, HEADER_TOKENS = 8, 96
QUESTION_TOKENS_MAX = 16
CHUNKS, CHUNK_TOKENS = 3, 12
NUM_CHOICES, CHOICE_TOKENS = 3, 4
NUM_BEAMS = 4
SCORED_TOKENS = 12
TOKENS_MAX = 40
PROMPT_TOKENS_MAX = 64
WIDE_TOKENS, WIDE_LOGPROBS = 24, 128  # 90 KB, which a slow reader leaves with the server


@dataclasses.dataclass
class Stream:
    verb: str
    request: dict
    alone: list


def essence(entries):
    """What numerics promise of a stream."""
    return [(e["token"], e["logprob"], e.get("top_logprobs"), e["finish_reason"]) for e in entries]


def draw_ids(rng, vocab, count):
    return [rng.randrange(vocab) for _ in range(count)]


def draw(rng, vocab):
    """One request and the most tokens that it can get."""
    prompt = draw_ids(rng, vocab, rng.randint(1, PROMPT_TOKENS_MAX))
    kind = rng.randrange(4)
    if kind == 0:
        scored = draw_ids(rng, vocab, SCORED_TOKENS)
        return "SCORE", {"prompt": prompt, "scored": scored}, SCORED_TOKENS
    count = rng.randint(1, TOKENS_MAX)
    params = {"prompt": prompt, "max_tokens": count, "temperature": 0}
    if kind == 1:
        params |= {"temperature": 0.9, "top_p": 0.9, "seed": rng.randrange(1 << 30)}
    elif kind == 2:
        params |= {"logit_bias": {str(t): -100 for t in range(0, vocab, 2)}, "top_logprobs": 3}
    return "GENERATE", params, count


def question(rng, vocab, headers):
    return rng.choice(headers) + draw_ids(rng, vocab, rng.randint(1, QUESTION_TOKENS_MAX))


# Each yields groups of (verb, request), and gets the token ids of their streams.


def one_stream(rng, vocab, headers):
    verb, request, _ = draw(rng, vocab)
    yield [(verb, request)]


def query(rng, vocab, headers):
    """As LMQL's: chunks, each behind what the last one gave and a text, then a choice by scores."""
    text = question(rng, vocab, headers)
    for _ in range(CHUNKS):
        masked = {str(token): -100 for token in draw_ids(rng, vocab, 8)}
        [tokens] = yield [("GENERATE", {"prompt": text, "max_tokens": CHUNK_TOKENS,
                                        "temperature": 0, "logit_bias": masked})]  # fmt: skip
        text = text + tokens + draw_ids(rng, vocab, 4)
    yield [("SCORE", {"prompt": text, "scored": draw_ids(rng, vocab, CHOICE_TOKENS)})
           for _ in range(NUM_CHOICES)]  # fmt: skip


def beams(rng, vocab, headers):
    text = question(rng, vocab, headers)
    yield [("GENERATE", {"prompt": text, "max_tokens": CHUNK_TOKENS, "temperature": 0.8,
                         "seed": rng.randrange(1 << 30)}) for _ in range(NUM_BEAMS)]  # fmt: skip


def wide(rng, vocab, headers):
    yield [("GENERATE", {"prompt": question(rng, vocab, headers), "max_tokens": WIDE_TOKENS,
                         "temperature": 0, "top_logprobs": min(vocab, WIDE_LOGPROBS)})]  # fmt: skip


async def run_alone(connection, program):
    """Its groups, one stream at a time."""
    groups, answers = [], None
    while True:
        try:
            wanted = program.send(answers)
        except StopIteration:
            return groups
        groups.append([])
        for verb, request in wanted:
            entries = await connection.collect(await connection.send(verb, **request))
            groups[-1].append(Stream(verb, request, essence(entries)))
        answers = [[token for token, *_ in stream.alone] for stream in groups[-1]]


async def make_programs(endpoint, kinds, seed):
    """One of each of `kinds`, as they run on the server at `endpoint`, which has no other load."""
    rng = random.Random(seed)
    async with Connection(endpoint) as c:
        vocab = (await c.model_info())["vocab_size"]
        headers = [draw_ids(rng, vocab, HEADER_TOKENS) for _ in range(NUM_HEADERS)]
        return [await run_alone(c, kind(rng, vocab, headers)) for kind in kinds]

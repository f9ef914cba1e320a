"""Level 1.1: prompts of parts, and buffers of a connection."""

import functools

from base_rules import refused
from suite import PROMPT, expect, expect_equal, ids, values
from suite import rule as any_rule
from text_rules import TEXT, tokens_of

NUM_BUFFERS_MAX = 256

rule = functools.partial(any_rule, level="1.1")


async def buffer(w, name, **fields):
    """The length that a BUFFER is answered with."""
    verb, entry = await w.ask("BUFFER", buffer=name, **fields)
    expect_equal((verb, entry.get("buffer")), ("MSG", name), f"the answer {entry}")
    return entry.get("length")


@rule("Prompts of parts", "BUFFERS", "TEXT")
async def parts_are_joined(t):
    """A prompt of parts is their tokens, one behind the other."""
    async with t.wire() as w:
        text = await tokens_of(w)
        for parts, flat in [
            ([PROMPT[:1], PROMPT[1:]], PROMPT),
            ([TEXT, PROMPT], text + PROMPT),
            ([[], PROMPT, []], PROMPT),
        ]:
            drawn = await w.generate(parts, max_tokens=4)
            expect_equal(values(drawn), values(await w.generate(flat, max_tokens=4)), f"{parts}")


@rule("Prompts of parts", "BUFFERS")
async def bare_numbers_are_no_parts(t):
    """A number among parts is refused, and the error names its place."""
    async with t.wire() as w:
        for prompt, place in (([1, "a"], 0), (["a", 1], 1), ([[1], 2], 1)):
            await refused(w, "GENERATE", f"prompt[{place}]", ["TOKEN"], prompt=prompt)
        await w.lives()


@rule("Buffers", "BUFFERS", "TEXT")
async def buffers_have_their_length(t):
    """BUFFER is answered with the buffer's length in tokens; append adds to it."""
    async with t.wire() as w:
        expect_equal(await buffer(w, "a", tokens=PROMPT), len(PROMPT), "length")
        longer = await buffer(w, "a", tokens=[1, 2], append=True)
        expect_equal(longer, len(PROMPT) + 2, "length with append")
        expect_equal(await buffer(w, "a", tokens=[7]), 1, "length of a new content")
        expect_equal(await buffer(w, "b", text=TEXT), len(await tokens_of(w)), "length of a text")


@rule("Buffers", "BUFFERS")
async def buffers_are_prompts(t):
    """A part {"buffer", "upto"} is the buffer's first tokens, as if they stood there."""
    async with t.wire() as w:
        await buffer(w, "a", tokens=PROMPT)
        flat = PROMPT + [5, 6] + PROMPT[:2]
        parts = [{"buffer": "a"}, [5, 6], {"buffer": "a", "upto": 2}]
        drawn = await w.generate(flat, max_tokens=4)
        expect_equal(values(await w.generate(parts, max_tokens=4)), values(drawn), "GENERATE")
        scored = await w.score(flat, [5, 6])
        expect_equal(values(await w.score(parts, [5, 6])), values(scored), "SCORE")
        too_long = [{"buffer": "a", "upto": len(PROMPT) + 1}]
        await refused(w, "GENERATE", "prompt[0]", ["TOKEN"], prompt=too_long)


@rule("Buffers", "BUFFERS")
async def freed_buffers_are_unknown(t):
    """FREE ends a buffer, with an answer where it has a stream_id; what is unknown is refused."""
    async with t.wire() as w:
        await buffer(w, "a", tokens=PROMPT)
        verb, entry = await w.ask("FREE", buffer="a")
        expect_equal((verb, entry.get("buffer"), entry.get("length")), ("MSG", "a", 0), "answer")
        for prompt in ([{"buffer": "a"}], [[5], {"buffer": "never"}]):
            entry = await refused(w, "GENERATE", None, ["TOKEN"], prompt=prompt)
            expect("unknown" in entry["error"], f"{entry}")
        await buffer(w, "b", tokens=[1])
        await w.send_text('FREE {"buffer": "b"}')
        await w.lives()
        await refused(w, "GENERATE", None, ["TOKEN"], prompt=[{"buffer": "b"}])


@rule("Buffers", "BUFFERS")
async def buffers_are_of_a_connection(t):
    """Another connection does not know this one's buffers."""
    async with t.wire() as w, t.wire() as other:
        await buffer(w, "a", tokens=PROMPT)
        await refused(other, "GENERATE", None, ["TOKEN"], prompt=[{"buffer": "a"}])
        await w.generate([{"buffer": "a"}], max_tokens=1)


@rule("Buffers", "BUFFERS")
async def buffers_have_a_limit(t):
    """A connection has 256 buffers at most; the next one is refused until one is freed."""
    async with t.wire() as w:
        for i in range(NUM_BUFFERS_MAX):
            await buffer(w, f"b{i}", tokens=[1])
        entry = await refused(w, "BUFFER", "buffer", ["MSG"], buffer="more", tokens=[1])
        expect("full" in entry["error"], f"{entry}")
        await w.ask("FREE", buffer="b0")
        expect_equal(await buffer(w, "more", tokens=[1]), 1, "length")


@rule("Buffers", "BUFFERS")
async def wrong_buffers_are_refused(t):
    """A wrong BUFFER or FREE is answered by a MSG error that names the field."""
    async with t.wire() as w:
        for field, fields in [
            ("buffer", {"tokens": [1]}), ("buffer", {"buffer": "", "tokens": [1]}),
            ("buffer", {"buffer": "x" * 65, "tokens": [1]}), ("buffer", {"buffer": 5, "text": ""}),
            ("tokens", {"buffer": "a", "tokens": [-1]}), ("tokens", {"buffer": "a", "tokens": "x"}),
            ("append", {"buffer": "a", "text": "", "append": 1}),
            ("text", {"buffer": "a", "text": 5}),
            (None, {"buffer": "a"}), (None, {"buffer": "a", "text": "a", "tokens": [1]}),
        ]:  # fmt: skip
            await refused(w, "BUFFER", field, ["MSG"], **fields)
        await refused(w, "FREE", "buffer", ["MSG"], buffer="never")
        await refused(w, "FREE", "buffer", ["MSG"], buffer=5)
        await w.lives()


@rule("Buffers", "BUFFERS", "CANCEL")
async def into_keeps_the_stream(t):
    """`into` keeps prompt and generated tokens as a buffer when the stream ends or is cancelled."""
    async with t.wire() as w:
        entries = await w.generate(into="a", max_tokens=6, ignore_eos=True)
        flat = PROMPT + ids(entries)
        drawn = await w.generate(flat, max_tokens=4)
        kept = await w.generate([{"buffer": "a"}], max_tokens=4)
        expect_equal(values(kept), values(drawn), "a stream behind the buffer")
        long, _ = await w.cancelled(into="b", ignore_eos=True)
        length = await buffer(w, "b", tokens=[], append=True)
        expect_equal(length, len(PROMPT) + len(w.tokens(long)), "length after CANCEL")


@rule("Buffers", "BUFFERS", "SAMPLES")
async def samples_have_no_into(t):
    """`into` with n > 1 is refused."""
    async with t.wire() as w:
        await refused(w, "GENERATE", "into", ["TOKEN"], prompt=PROMPT, into="a", n=2)
        await w.lives()

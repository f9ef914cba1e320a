"""Level 1.1: grammars, which a stream's text has to match."""

import functools
import json
import re

import jsonschema
from base_rules import refused
from edit_rules import held
from suite import OTHER_PROMPTS, expect, expect_equal, ids, texts, values
from suite import rule as any_rule

REGEX = "[a-z]{3,12}-[0-9]{2}: (yes|no, not at all)\\."
DRAWN = {"max_tokens": 120, "temperature": 1.2, "seed": 4, "text": True}
BY_REGEX = {"grammar": {"type": "regex", "value": REGEX}, **DRAWN}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,5}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["old", "new"]}, "minItems": 2, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # or a small model may not come to the end
}

rule = functools.partial(any_rule, level="1.1")


@rule("Grammars", "GRAMMAR")
async def texts_match_their_regex(t):
    """The whole text of a stream matches its regex, and its last token says "stop"."""
    async with t.wire() as w:
        for seed in range(4):
            entries = await w.generate(**BY_REGEX | {"seed": seed})
            expect(re.fullmatch(REGEX, texts(entries)), f"{texts(entries)!r} is not {REGEX}")
            expect_equal(entries[-1]["finish_reason"], "stop", "finish_reason")


@rule("Grammars", "GRAMMAR")
async def choices_are_one_of_them(t):
    """With a choice the text is one of those given."""
    choices = ["red", "reddish", "a long way home", "naïve"]
    async with t.wire() as w:
        for seed in range(4):
            by = {"grammar": {"type": "choice", "value": choices}, **DRAWN, "seed": seed}
            text = texts(await w.generate(**by))
            expect(text in choices, f"{text!r} is none of {choices}")


@rule("Grammars", "GRAMMAR")
async def json_is_of_its_schema(t):
    """With a schema, as an object or as text, the text is JSON that is valid by it."""
    async with t.wire() as w:
        for kind, schema in [("json", SCHEMA), ("json_schema", json.dumps(SCHEMA))]:
            text = texts(await w.generate(grammar={"type": kind, "value": schema}, **DRAWN))
            jsonschema.validate(json.loads(text), SCHEMA)


@rule("Grammars", "GRAMMAR")
async def grammars_leave_log_probabilities(t):
    """Log probabilities are those before the grammar: SCORE of the tokens gives the same."""
    async with t.wire() as w:
        entries = await w.generate([1, 2], **BY_REGEX)
        scored = await w.score([1, 2], ids(entries))
        for one, other in zip(entries, scored):
            expect(abs(one["logprob"] - other["logprob"]) < 1e-3, f"{one}, scored {other}")


@rule("Grammars", "GRAMMAR", "seeds")
async def grammars_hold_in_company(t):
    """A stream under a grammar has the same bits alone and beside others."""
    async with t.wire() as w:
        alone = await w.generate(**BY_REGEX)
        others = [await w.say("GENERATE", prompt=p, **BY_REGEX) for p in OTHER_PROMPTS]
        plain = await w.say("GENERATE", prompt=[7, 8], max_tokens=60, ignore_eos=True)
        beside = await w.generate(**BY_REGEX)
        for stream_id in [*others, plain]:
            await w.finish(stream_id)
        expect_equal(values(beside), values(alone), "the stream beside others")


@rule("Grammars", "GRAMMAR", "seeds")
async def resumed_tokens_count_for_grammars(t):
    """resumed tokens are the beginning of what must match; the rest has the same bits."""
    async with t.wire() as w:
        prompt = [46, 189]
        whole = await w.generate(prompt, **BY_REGEX)
        came = ids(whole)[: len(whole) // 2]
        rest = await w.generate(prompt + came, resumed=len(came), **BY_REGEX)
        expect_equal(values(rest), values(whole)[len(came) :], "the rest")


@rule("Grammars", "GRAMMAR", "SAMPLES", "seeds")
async def samples_each_have_the_grammar(t):
    """Each of several samples is the stream that its seed gives alone."""
    async with t.wire() as w:
        entries = await w.generate_samples(3, **BY_REGEX)
        for k in range(3):
            alone = await w.generate(**BY_REGEX | {"seed": BY_REGEX["seed"] + k})
            sample = [e for e in entries if e.get("index") == k]
            expect_equal(values(sample), values(alone), f"sample {k}")


@rule("Grammars", "GRAMMAR", "FORK")
async def edits_keep_the_grammar(t):
    """What a fork and a stream that was cut have in the end matches the grammar."""
    regex = "([a-z]{4} ){40}end"
    by = {"grammar": {"type": "regex", "value": regex}, **DRAWN, "max_tokens": 400}
    async with t.wire() as w:
        stream_id, fork = await w.say("GENERATE", prompt=[5, 6], **by), w.new_id()
        await w.wait(lambda v, e: e.get("stream_id") == stream_id and "token" in e, "a token")
        await w.say("BACKTRACK", stream_id=stream_id, drop=1)
        await w.say("FORK", stream_id=stream_id, streams=[fork])
        whole = held(await w.finish(stream_id))
        expect(re.fullmatch(regex, texts(whole)), f"{texts(whole)!r} is not {regex}")
        entries = await w.finish(fork)
        text = texts(whole[: entries[0]["fork_at"]]) + texts(entries)
        expect(re.fullmatch(regex, text), f"the fork's {text!r} is not {regex}")


@rule("Grammars", "GRAMMAR")
async def wrong_grammars_are_refused(t):
    """A grammar that is none is refused by name, and so are resumed tokens that it forbids."""
    async with t.wire() as w:
        for grammar in (
            5, {}, {"type": "regex"}, {"type": "rgx", "value": "a"},
            {"type": "choice", "value": []}, {"type": "choice", "value": [1]},
            {"type": "regex", "value": "(a"}, {"type": "regex", "value": "a", "flags": 1},
            {"type": "lark", "value": "start: x"}, {"type": "json_schema", "value": "{"},
            {"type": "gbnf", "value": "root = a"}, {"type": "llguidance", "value": "{}"},
            {"type": "json", "value": 5},
        ):  # fmt: skip
            await refused(w, "GENERATE", "grammar", ["TOKEN"], prompt=[1, 2], grammar=grammar)
        a = {"type": "regex", "value": "[0-9]+"}
        verb, entry = await w.ask("TOKENIZE", text="word", add_special_tokens=False)
        fields = {"prompt": [1, *entry["tokens"]], "resumed": len(entry["tokens"])}
        await refused(w, "GENERATE", None, ["TOKEN"], grammar=a, **fields)
        await w.lives()


@rule("Grammars", "GRAMMAR", "CANCEL")
async def streams_end_while_grammars_are_read(t):
    """CANCEL ends a stream whose grammar is being read, and its id is free then."""
    async with t.wire() as w:
        ends = []
        for i in range(8):
            value = "|".join(f"[a-z]{{{n}}}{i}" for n in range(100, 140))
            grammar = {"type": "regex", "value": value}
            stream_id = await w.say("GENERATE", prompt=[1], max_tokens=200, grammar=grammar)
            await w.send_text(f'CANCEL {{"stream_id": {stream_id}}}')
            ends.append((await w.end(stream_id)).get("code"))
            await w.say("GENERATE", stream_id=stream_id, prompt=[1], max_tokens=1)
            await w.wait(lambda v, e: "token" in e and e["stream_id"] == stream_id, "a token")
        expect("cancelled" in ends, f"none was cancelled: {ends}")
        await w.lives()

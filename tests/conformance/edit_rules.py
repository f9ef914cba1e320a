"""Level 1.1: FORK and BACKTRACK of streams that run."""

import functools

from suite import NUM_TRIES, PROMPT, Broken, expect, expect_equal, ids, texts, values
from suite import rule as any_rule

LONG = {"max_tokens": 480, "ignore_eos": True, "temperature": 0.9, "seed": 5}

rule = functools.partial(any_rule, level="1.1")


async def running(w, **fields):
    """The id of a stream that has had a token and goes on."""
    stream_id = await w.say("GENERATE", prompt=PROMPT, **{**LONG, **fields})
    await w.wait(lambda v, e: e.get("stream_id") == stream_id and "token" in e, "a token")
    return stream_id


async def edited(w, verb, num_forks=0, asked={}, **fields):
    """(the entries of a stream that was edited while it ran, its forks). Where a stream ends before
    the edit is there, another one is edited. asked: the stream's own fields."""
    for _ in range(NUM_TRIES):
        stream_id = await running(w, **asked)
        forks = [w.new_id() for _ in range(num_forks)]
        since = len(w.entries)
        await w.say(verb, stream_id=stream_id, **fields, **({"streams": forks} if forks else {}))
        entries = await w.finish(stream_id)
        await w.lives()  # what refuses it has come, too
        errors = [e["error"] for v, e in w.of(stream_id, since) if v == "MSG" and "error" in e]
        if not errors:
            errors = [e["error"] for fork in forks if "error" in (e := await w.end(fork))]
        if not errors:
            return entries, forks
    raise Broken(f"{verb} was refused: {errors[0]}")


def held(entries):
    """What a client has of a stream after all its entries."""
    kept = []
    for entry in entries:
        gone = entry.get("backtrack", 0)
        expect(gone <= len(kept), f"backtrack {gone} of {len(kept)} tokens")
        kept = kept[: len(kept) - gone] + [entry]
    return kept


@rule("FORK and BACKTRACK", "FORK")
async def forks_begin_with_their_stream(t):
    """Forks go on from one point of the stream; with its seed they have its tokens, bit for bit."""
    async with t.wire() as w:
        whole, forks = await edited(w, "FORK", 2, params={"seed": LONG["seed"]})
        points = set()
        for fork in forks:
            entries = await w.finish(fork)
            points.add(entries[0].get("fork_at"))
            expect_equal(entries[0].get("fork_of"), whole[0]["stream_id"], "fork_of")
            expect_equal(entries[0].get("fork_prompt"), len(PROMPT), "fork_prompt")
            expect(not any("fork_of" in e for e in entries[1:]), "fork_of beyond the first entry")
            expect_equal(values(entries), values(whole[entries[0]["fork_at"] :]), "the fork")
        expect_equal(len(points), 1, "different values of fork_at")


@rule("FORK and BACKTRACK", "FORK")
async def forks_draw_alone(t):
    """Without a seed in params each fork draws by its own; params change what they are asked to."""
    async with t.wire() as w:
        _, forks = await edited(w, "FORK", 4, params={"max_tokens": 450})
        texts = {tuple(ids(await w.finish(fork))[-40:]) for fork in forks}
        expect(len(texts) > 1, "all forks drew the same tokens")
        for fork in forks:
            entries = w.tokens(fork)
            expect_equal(entries[0]["fork_at"] + len(entries), 450, "tokens up to max_tokens")


@rule("FORK and BACKTRACK", "FORK")
async def backtracked_tokens_come_again(t):
    """After a drop the next entry says how many are gone, and a seeded stream draws them again."""
    async with t.wire() as w:
        whole = await w.generate(**LONG)
        entries, _ = await edited(w, "BACKTRACK", drop=1)
        expect_equal(sum(e.get("backtrack", 0) for e in entries), 1, "tokens that are gone")
        expect_equal(values(held(entries)), values(whole), "the stream")


@rule("FORK and BACKTRACK", "FORK")
async def appended_tokens_are_reported(t):
    """Appended tokens come as entries, with log probabilities; the stream goes on behind them."""
    async with t.wire() as w:
        entries, _ = await edited(w, "BACKTRACK", append=[7, 8, 9])
        at = [i for i, e in enumerate(entries) if e.get("appended")]
        expect_equal([entries[i]["token"] for i in at], [7, 8, 9], "appended entries")
        expect_equal(at, list(range(at[0], at[0] + 3)), "their places")
        expect_equal(len(entries), LONG["max_tokens"], "tokens, appended ones too")
        fresh = {**LONG, "max_tokens": LONG["max_tokens"] - at[0] - 3}
        drawn = await w.generate(PROMPT + ids(entries[: at[0] + 3]), **fresh)
        expect_equal(values(entries[at[0] + 3 :]), values(drawn), "what follows them")


async def is_refused(w, verb, field, fields):
    """By an error that names the field; of a stream that may have ended before, of another one."""
    for _ in range(NUM_TRIES):
        stream_id = await running(w)
        sent = {"stream_id": stream_id, **fields}
        if sent.get("streams") == ["itself"]:
            sent["streams"] = [stream_id]
        since = len(w.entries)
        await w.say(verb, **{name: value for name, value in sent.items() if value is not None})
        wanted = lambda v, e: v == "MSG" and "error" in e
        _, entry = await w.wait(wanted, f"a refusal of {verb} {fields}", since)
        await w.finish(stream_id)
        if field == "stream_id" or not entry["error"].startswith("stream_id:"):
            break
    expect(entry["error"].startswith(field + ":"), f"{entry['error']!r} names no {field}")


@rule("FORK and BACKTRACK", "FORK")
async def wrong_edits_are_refused(t):
    """A wrong FORK or BACKTRACK is answered by a MSG error, and the stream goes on."""
    async with t.wire() as w:
        new = w.new_id()
        for verb, field, fields in [
            ("FORK", "stream_id", {"stream_id": None, "streams": [new]}),
            ("BACKTRACK", "stream_id", {"stream_id": None, "drop": 1}),
            ("FORK", "streams", {}), ("FORK", "streams", {"streams": []}),
            ("FORK", "streams", {"streams": [new, new]}),
            ("FORK", "streams", {"streams": list(range(1000, 1065))}),
            ("FORK", "params.top_p", {"streams": [new], "params": {"top_p": 0}}),
            ("BACKTRACK", "drop", {"drop": -1}), ("BACKTRACK", "drop", {"drop": 5000}),
            ("BACKTRACK", "append", {"append": "x"}),
            ("BACKTRACK", "append", {"append": [1] * 500}),
        ]:  # fmt: skip
            await is_refused(w, verb, field, fields)
        await is_refused(w, "FORK", "streams", {"streams": ["itself"]})


@rule("Bad words", "MASK", "FORK")
async def bad_words_are_not_generated(t):
    """A word of several tokens is generated neither by a stream nor by its fork."""

    def has(tokens, words):
        return any(tokens[i : i + len(w)] == w for w in words for i in range(len(tokens)))

    async with t.wire() as w:
        plain = await w.generate(**LONG, text=True)
        for word in sorted(set(texts(plain).split()), key=len, reverse=True):
            words = []
            for text in (word, " " + word):
                _, entry = await w.ask("TOKENIZE", text=text, add_special_tokens=False)
                words.append(entry["tokens"])
            if min(map(len, words)) > 1 and has(ids(plain), words):
                break
        expect(has(ids(plain), words), f"{word!r} was not generated")
        whole, (fork,) = await edited(w, "FORK", 1, {"bad_words": word}, params={"seed": 6})
        entries = await w.finish(fork)
        forked = ids(whole)[: entries[0]["fork_at"]] + ids(entries)
        for tokens in (ids(whole), forked):
            expect(not has(tokens, words), f"{word!r} was generated")

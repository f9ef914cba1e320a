"""Level base: LMTP as clients of LMQL speak it, with what lmtp-serve always had beside it where
MODEL_INFO lists that."""

import json
import math

from suite import (
    NUM_TRIES,
    OTHER_PROMPTS,
    PROMPT,
    TOLERANCE,
    Broken,
    expect,
    expect_equal,
    ids,
    rule,
    values,
)

NUM_TOKENS = 8
UNKNOWN_MODEL_S = 20  # to look for it


def near(a, b):
    return abs(a - b) <= TOLERANCE


def same_tokens(ours, others, what):
    expect_equal(ids(ours), ids(others), f"tokens of {what}")
    for one, other in zip(ours, others):
        expect(near(one["logprob"], other["logprob"]), f"logprobs of {what}: {one}, {other}")


@rule("Transport")
async def answers_are_arrays(t):
    """The JSON of every message to the client is an array of objects, for MSG as for TOKEN."""
    async with t.wire() as w:
        await w.generate(max_tokens=2)
        await w.score(PROMPT, [5, 6])
        await w.ask("MODEL_INFO")
        for text in w.texts:
            verb, _, payload = text.partition(" ")
            expect(verb in ("TOKEN", "MSG"), f"{verb!r} is no verb to the client")
            entries = json.loads(payload)
            expect(isinstance(entries, list) and entries, f"no array with entries: {text[:100]}")
            expect(all(isinstance(e, dict) for e in entries), f"no objects: {text[:100]}")


@rule("Transport")
async def entries_have_stream_ids(t):
    """Every entry has the stream_id of the request that it answers."""
    async with t.wire() as w:
        asked = {await w.say("GENERATE", prompt=PROMPT, max_tokens=2) for _ in range(2)}
        asked.add(await w.say("SCORE", prompt=PROMPT, scored=[5]))
        asked.add(await w.say("MODEL_INFO"))
        await w.wait(lambda v, e: "model_info" in e, "model_info")
        for stream_id in asked:
            is_its = lambda v, e: e.get("stream_id") == stream_id
            await w.wait(is_its, f"entry with stream_id {stream_id}")
        for verb, entry in w.entries:
            expect(entry.get("stream_id") in asked, f"an entry of no request: {verb} {entry}")


@rule("Transport")
async def stream_ids_have_64_bits(t):
    """A stream's id is any whole number of 64 bits, and comes back as it was sent."""
    async with t.wire() as w:
        for stream_id in (0, -1, 2**53 + 1, -(2**63), 2**63 - 1):
            await w.generate(max_tokens=1, stream_id=stream_id)


@rule("Transport")
async def ended_ids_may_be_used_again(t):
    """After a stream's end another one may have its id."""
    async with t.wire() as w:
        for _ in range(2):
            since = len(w.entries)
            await w.say("GENERATE", prompt=PROMPT, max_tokens=2, stream_id=1)
            await w.end(1, since)


@rule("GENERATE")
async def token_fields_have_their_types(t):
    """An entry has token, logprob, finish_reason and top_logprobs, as the page has their types."""
    async with t.wire() as w:
        for entry in await w.generate(max_tokens=3):
            expect(isinstance(entry.get("token"), int), f"token is no id: {entry}")
            expect(isinstance(entry.get("logprob"), (int, float)), f"logprob is no number: {entry}")
            top = entry.get("top_logprobs")
            expect(isinstance(top, dict), f"top_logprobs is no object: {entry}")
            for key, value in top.items():
                expect(key.isdecimal() and isinstance(value, (int, float)), f"{key!r}: {value!r}")


@rule("GENERATE")
async def finish_reason_is_always_there(t):
    """finish_reason is in each entry: null until the last, then "stop" or "length"."""
    async with t.wire() as w:
        entries = await w.generate(max_tokens=3)
        expect(all("finish_reason" in e for e in entries), f"it is missing: {entries}")
        *others, last = [e["finish_reason"] for e in entries]
        expect(set(others) <= {None} and last in ("stop", "length"), f"{others}, {last!r}")


@rule("GENERATE", "eos")
async def max_tokens_counts(t):
    """A stream that meets no end of text has max_tokens tokens, and "length" on the last."""
    async with t.wire() as w:
        for count in (1, 2, 5):
            entries = await w.generate(max_tokens=count, **t.no_end)
            expect_equal(len(entries), count, f"tokens of max_tokens {count}")
            expect_equal(entries[-1]["finish_reason"], "length", "finish_reason")


@rule("GENERATE", "eos")
async def max_tokens_is_32(t):
    """Without max_tokens it is 32."""
    async with t.wire() as w:
        expect_equal(len(await w.generate(**t.no_end)), 32, "tokens")


@rule("GENERATE")
async def nothing_follows_the_end(t):
    """No entry of a stream comes behind the one with its finish_reason."""
    async with t.wire() as w:
        stream_id = await w.say("GENERATE", prompt=PROMPT, max_tokens=2)
        await w.finish(stream_id)
        await w.lives()
        entries = [e for _, e in w.of(stream_id)]
        expect_equal([e for e in entries if e.get("finish_reason")], entries[-1:], "the end")


@rule("GENERATE")
async def tokens_come_in_order(t):
    """A stream's tokens come one by one in their order: each is what its predecessors lead to."""
    async with t.wire() as w:
        whole = ids(await w.generate(max_tokens=NUM_TOKENS, **t.no_end))
        prompt = list(PROMPT)
        for at, token in enumerate(whole):
            single, *_ = await w.generate(prompt, max_tokens=1, **t.no_end)
            expect_equal(token, single["token"], f"token {at} of {whole}")
            prompt.append(token)


@rule("GENERATE")
async def greedy_is_deterministic(t):
    """At temperature 0, which is the default, equal requests have equal tokens."""
    async with t.wire() as w:
        first = await w.generate(max_tokens=NUM_TOKENS)
        same_tokens(await w.generate(max_tokens=NUM_TOKENS), first, "a second run")
        same_tokens(await w.generate(max_tokens=NUM_TOKENS, temperature=0), first, "temperature 0")


@rule("GENERATE")
async def greedy_takes_the_best(t):
    """At temperature 0 each token is the most probable one."""
    async with t.wire() as w:
        for entry in await w.generate(max_tokens=NUM_TOKENS, top_logprobs=5):
            best = max(entry["top_logprobs"].values())
            expect(entry["logprob"] >= best, f"{entry} is not the best")


@rule("GENERATE")
async def one_candidate_is_greedy(t):
    """top_k 1, and a top_p close to 0, leave the most probable token alone."""
    async with t.wire() as w:
        greedy = ids(await w.generate(max_tokens=NUM_TOKENS))
        for field in ({"top_k": 1}, {"top_p": 1e-6}):
            drawn = await w.generate(max_tokens=NUM_TOKENS, temperature=1.0, **field)
            expect_equal(ids(drawn), greedy, f"tokens with {field}")


@rule("GENERATE")
async def presence_penalty_forbids_repetition(t):
    """presence_penalty 100 leaves no token that occurred a chance."""
    async with t.wire() as w:
        fields = {"max_tokens": NUM_TOKENS, "logit_bias": {"200": 30}}
        seen = ids(await w.generate(presence_penalty=100, **fields))
        expect_equal(len(set(seen)), len(seen), f"different tokens of {seen}")


@rule("GENERATE")
async def top_logprobs_hold_the_token(t):
    """top_logprobs has as many entries as asked for, best first, and always the token's own."""
    async with t.wire() as w:
        for count in (0, 1, 3, 10):
            fields = {"temperature": 1.0} if t.has("seeds") else {}
            for e in await w.generate(max_tokens=4, top_logprobs=count, **fields):
                top = e["top_logprobs"]
                expect_equal(top.get(str(e["token"])), e["logprob"], "the token's own")
                expect(count <= len(top) <= count + 1, f"{len(top)} of {count}")
                expect_equal(list(top.values()), sorted(top.values(), reverse=True), "their order")


@rule("Log probabilities")
async def logprobs_are_not_positive(t):
    """A log probability is 0 at most."""
    async with t.wire() as w:
        entries = await w.generate(max_tokens=4, top_logprobs=4) + await w.score(PROMPT, [5, 6])
        for e in entries:
            expect(max([e["logprob"], *e.get("top_logprobs", {}).values()]) <= 0, f"{e}")


@rule("Log probabilities")
async def logprobs_are_normalised(t):
    """The probabilities of a step add up to 1 over the vocabulary."""
    async with t.wire() as w:
        entry, *_ = await w.generate(max_tokens=1, top_logprobs=1024)
        total = sum(map(math.exp, entry["top_logprobs"].values()))
        low = min(1024 / t.info.get("vocab_size", math.inf), 1) - TOLERANCE
        expect(low <= total <= 1 + TOLERANCE, f"the best 1024 add up to {total}")


@rule("Log probabilities")
async def logprobs_precede_temperature(t):
    """Log probabilities are those before temperature, top_k and top_p."""
    async with t.wire() as w:
        plain, *_ = await w.generate(max_tokens=1, top_logprobs=3)
        for field in ({"temperature": 0.5}, {"temperature": 1.0, "top_k": 2}):
            drawn, *_ = await w.generate(max_tokens=1, top_logprobs=3, **field)
            for key, value in plain["top_logprobs"].items():
                got = drawn["top_logprobs"].get(key, -math.inf)
                expect(near(got, value), f"token {key}: {got} with {field}, {value} without")


@rule("SCORE")
async def scores_come_in_order(t):
    """SCORE answers with the tokens of `scored` in order, and "stop" on the last alone."""
    async with t.wire() as w:
        entries = await w.score(PROMPT, [5, 6, 7, 5])
        expect_equal(ids(entries), [5, 6, 7, 5], "tokens")
        reasons = [e["finish_reason"] for e in entries]
        expect_equal(reasons, [None, None, None, "stop"], "finish_reason")


@rule("SCORE")
async def scores_have_no_alternatives(t):
    """Entries of a SCORE that does not ask for top_logprobs have none."""
    async with t.wire() as w:
        for entry in await w.score(PROMPT, [5, 6]):
            expect("top_logprobs" not in entry, f"{entry}")


@rule("SCORE")
async def scores_are_those_of_generate(t):
    """SCORE gives a token the log probability that GENERATE gave it."""
    async with t.wire() as w:
        greedy = await w.generate(max_tokens=NUM_TOKENS)
        same_tokens(await w.score(PROMPT, ids(greedy)), greedy, "SCORE and GENERATE")


@rule("SCORE")
async def nothing_precedes_the_first(t):
    """Behind an empty prompt the first token's log probability is 0."""
    async with t.wire() as w:
        first, second, *_ = await w.score([], PROMPT[:2])
        expect_equal(first["logprob"], 0.0, "logprob of the first")
        expect(second["logprob"] < 0, f"the second: {second}")


@rule("GENERATE")
async def bias_forces_and_forbids(t):
    """logit_bias 100 makes a token certain, and -100 impossible, in what is reported too."""
    async with t.wire() as w:
        best, *_ = await w.generate(max_tokens=1)
        forced = await w.generate(max_tokens=3, logit_bias={"200": 100})
        expect_equal(set(ids(forced)), {200}, "tokens with a bias of 100")
        expect(near(forced[0]["logprob"], 0), f"the forced token's logprob: {forced[0]}")
        other, *_ = await w.generate(max_tokens=1, logit_bias={str(best["token"]): -100})
        expect(other["token"] != best["token"], f"{other} was forbidden")


@rule("GENERATE", "eos")
async def eos_ends_the_stream(t):
    """The end-of-text token is sent, as the last, with "stop"."""
    async with t.wire() as w:
        entries = await w.generate(max_tokens=4, logit_bias={str(t.eos[0]): 100})
        expect_equal(ids(entries), t.eos[:1], "tokens")
        expect_equal(entries[0]["finish_reason"], "stop", "finish_reason")


@rule("GENERATE", "seeds")
async def seeds_draw_the_same(t):
    """Equal seeds draw equal tokens with equal bits, others draw others; -1 is 2^64 - 1."""
    async with t.wire() as w:
        draw = lambda seed: w.generate(max_tokens=24, temperature=1.5, seed=seed, **t.no_end)
        first = values(await draw(7))
        expect_equal(values(await draw(7)), first, "a second run")
        expect(values(await draw(8)) != first, "seed 8 draws what seed 7 does")
        expect_equal(values(await draw(-1)), values(await draw(2**64 - 1)), "seed -1")


@rule("GENERATE", "seeds")
async def chunks_under_one_seed_are_one_stream(t):
    """A draw depends on seed and position alone: chunks of a text equal one long stream."""
    async with t.wire() as w:
        fields = {"temperature": 1.2, "seed": 3, **t.no_end}
        whole = ids(await w.generate(max_tokens=12, **fields))
        chunk = ids(await w.generate(max_tokens=5, **fields))
        chunk += ids(await w.generate(PROMPT + chunk, max_tokens=7, **fields))
        expect_equal(chunk, whole, "two chunks")


@rule("MODEL_INFO")
async def model_info_is_one_entry(t):
    """MODEL_INFO is answered by one MSG entry that has model_info, an object with `model`."""
    async with t.wire() as w:
        verb, entry = await w.ask("MODEL_INFO")
        expect_equal(verb, "MSG", "verb")
        info = entry.get("model_info")
        expect(isinstance(info, dict) and isinstance(info.get("model"), str), f"{entry}")
        await w.lives()
        expect_equal(len(w.of(entry["stream_id"])), 1, "entries")


@rule("Transport")
async def streams_do_not_mix(t):
    """Streams that run at once on a connection give what each of them gives alone."""
    cases = [("SCORE", {"prompt": PROMPT, "scored": p}) for p in OTHER_PROMPTS]
    cases += [("GENERATE", {"prompt": p, "max_tokens": 3 * len(p)}) for p in OTHER_PROMPTS]
    cases[-1][1]["logit_bias"] = {"9": 5}
    async with t.wire() as w:
        alone = [await w.finish(await w.say(verb, **fields)) for verb, fields in cases]
        together = [await w.say(verb, **fields) for verb, fields in cases]
        for stream_id, entries, (verb, _) in zip(together, alone, cases):
            same_tokens(await w.finish(stream_id), entries, f"a {verb} among others")


@rule("Transport")
async def connections_do_not_mix(t):
    """Equal ids on two connections are two streams."""
    async with t.wire() as one, t.wire() as other:
        alone = [await one.generate(p, max_tokens=6) for p in OTHER_PROMPTS[:2]]
        for w, prompt in zip((one, other), OTHER_PROMPTS):
            await w.say("GENERATE", prompt=prompt, max_tokens=6, stream_id=1)
        for w, entries in zip((one, other), alone):
            same_tokens(await w.finish(1), entries, "stream 1")


async def refused(w, verb, field, kinds=("TOKEN", "MSG"), **fields):
    kind, entry = await w.error(verb, **fields)
    expect(kind in kinds, f"the answer is {kind} {entry}")
    if field:
        expect(entry["error"].startswith(field), f"{entry['error']!r} does not name {field}")
    return entry


@rule("Errors")
async def token_ids_are_of_the_vocabulary(t):
    """A prompt with an id that the vocabulary lacks ends its stream with an error, alone."""
    async with t.wire() as w:
        await refused(w, "GENERATE", None, ["TOKEN"], prompt=[1, 2**31 - 1])
        await w.lives()


WRONG_FIELDS = [
    ("prompt", [[], [-1], [1.5], 7]),
    ("temperature", [-0.1, 100.5, "x", True]),
    ("top_p", [0, 1.01, "x"]),
    ("top_k", [-1, 5.0]),
    ("repetition_penalty", [0, -1, 101]),
    ("presence_penalty", [101, "x"]),
    ("frequency_penalty", [-101, []]),
    ("top_logprobs", [-1, "5"]),
    ("max_tokens", [0, -1, 5.0, "x"]),
    ("seed", [1.5, 2**64, "x"]),
    ("logit_bias", [[], {"x": 1}, {"-1": 1}, {"1": "x"}, {"1": 2e30}]),
    ("model", [5, []]),
]


async def refuse_each(t, table, verb="GENERATE", **others):
    """Each wrong value of the table: an error that names its field, on its stream. Another stream
    of the connection goes on meanwhile."""
    async with t.wire() as w:
        alone = await w.generate(max_tokens=NUM_TOKENS)
        live = await w.say("GENERATE", prompt=PROMPT, max_tokens=NUM_TOKENS)
        for field, wrong in table:
            for value in wrong:
                fields = {"prompt": PROMPT, **others, field: value}
                await refused(w, verb, field, ["TOKEN"], **fields)
        same_tokens(await w.finish(live), alone, "the stream beside them")
        await w.lives()


@rule("GENERATE", "CANCEL")
async def wrong_fields_are_refused(t):
    """A field out of its range ends its stream with an error that names it; the others go on."""
    await refuse_each(t, WRONG_FIELDS)


@rule("GENERATE")
async def wrong_values_end_the_stream(t):
    """A negative temperature is answered by an error, not by tokens or silence."""
    async with t.wire() as w:
        await refused(w, "GENERATE", None, prompt=PROMPT, temperature=-1)
        await w.lives()


@rule("GENERATE")
async def null_fields_are_absent(t):
    """A field that is null counts as absent."""
    names = ("max_tokens", "temperature", "top_p", "top_k", "logit_bias", "top_logprobs")
    async with t.wire() as w:
        plain = await w.generate()
        same_tokens(await w.generate(**dict.fromkeys(names)), plain, "null fields")


@rule("GENERATE")
async def unknown_fields_are_ignored(t):
    """An unknown field changes nothing."""
    async with t.wire() as w:
        plain = await w.generate(max_tokens=3)
        same_tokens(await w.generate(max_tokens=3, no_such_field=1), plain, "an unknown field")


@rule("Errors")
async def broken_json_is_answered(t):
    """A message that is no JSON is answered by an error, and the connection lives."""
    async with t.wire() as w:
        await w.send_text('GENERATE {"stream_id": 7, "prompt": [1')
        await w.wait(lambda v, e: "error" in e and e.get("stream_id") in (7, None), "an error")
        await w.send_text("GENERATE hello")
        await w.wait(lambda v, e: "error" in e and e.get("stream_id") is None, "a MSG error")
        await w.lives()


@rule("Errors")
async def unknown_verbs_are_answered(t):
    """An unknown verb is answered by an error, and the connection lives."""
    async with t.wire() as w:
        await refused(w, "FETCH", None)
        await w.lives()


@rule("Errors")
async def unknown_models_are_refused(t):
    """A stream of an unknown model ends with TOKEN, and the error comes as MSG too."""
    async with t.wire() as w:
        stream_id = await w.say("GENERATE", prompt=PROMPT, model="no-such-model-0")
        for kind in ("TOKEN", "MSG"):
            its = lambda v, e: (v, e.get("stream_id"), "error" in e) == (kind, stream_id, True)
            await w.wait(its, f"{kind} error", limit_s=UNKNOWN_MODEL_S)
        await w.lives()


@rule("Errors")
async def live_ids_are_refused(t):
    """A stream id that is live is refused, and the live stream goes on."""
    async with t.wire() as w:
        fields = {"prompt": PROMPT, "max_tokens": 200, **t.no_end}
        alone = await w.generate(**fields)
        live, since = None, 0
        for _ in range(NUM_TRIES):  # it may end before the second message is there
            since = len(w.entries)
            live = await w.say("GENERATE", **fields)
            await w.say("GENERATE", stream_id=live, prompt=[5], max_tokens=1)
            its_end = lambda v, e: e.get("stream_id") == live and e.get("finish_reason")
            await w.wait(its_end, "end of the live stream")
            await w.lives()
            if any("error" in e for _, e in w.of(live, since)):
                return same_tokens(w.tokens(live), alone, "the live stream")
        raise Broken("a second stream of its id was taken")


@rule("CANCEL and LOADING", "CANCEL")
async def cancel_ends_the_stream(t):
    """CANCEL ends a stream with the error "cancelled", and no token comes behind it."""
    async with t.wire() as w:
        stream_id, last = await w.cancelled(**t.no_end)
        expect_equal(last.get("error"), "cancelled", "the error of the last entry")
        await w.lives()
        expect_equal(w.of(stream_id)[-1][1], last, "the last entry")


@rule("CANCEL and LOADING", "CANCEL")
async def cancel_of_nothing_is_silent(t):
    """CANCEL of an id that is not live is ignored."""
    async with t.wire() as w:
        await w.send_text('CANCEL {"stream_id": 12345}')
        await w.lives()
        expect_equal(w.of(12345), [], "entries")


@rule("Transport")
async def connections_end_alone(t):
    """A connection that goes with its streams disturbs no other."""
    async with t.wire() as w:
        alone = await w.generate(max_tokens=NUM_TOKENS)
        async with t.wire() as other:
            await other.say("GENERATE", prompt=[5], max_tokens=100)
            stream_id = await w.say("GENERATE", prompt=PROMPT, max_tokens=NUM_TOKENS)
        same_tokens(await w.finish(stream_id), alone, "the stream of another connection")

"""Level 1.1: samples, masks, log probabilities, notices, timeouts, error codes and exact retry."""

import base64
import functools
import random

import lmtp
from base_rules import refuse_each, refused
from suite import PROMPT, Skipped, expect, expect_equal, ids, texts, values
from suite import rule as any_rule
from text_rules import TEXT, WHOLE, text_to_stop_in

EXTENSIONS = "CANCEL LOADING TEXT BUFFERS NOTICES ERRORS SAMPLES MASK CHAT FORK"
RETRYABLE = {"overloaded", "unavailable", "model_failed", "shutting_down"}
ENTRY_ORDER = (
    "token stream_id index logprob backtrack appended forced fork_of fork_at fork_prompt "
    "finish_reason text stop_text top_logprobs token_logprobs entropy rank"
).split()
ERROR_ORDER = "stream_id index error code retryable retry_after_ms".split()
DRAWN = {"max_tokens": 16, "temperature": 1.1, "seed": 11, "ignore_eos": True}

rule = functools.partial(any_rule, level="1.1")


def expect_order(entry, order):
    expect_equal(list(entry), [name for name in order if name in entry], "the order of fields")


@rule("Versions and extensions")
async def model_info_says_1_1(t):
    """MODEL_INFO has lmtp "1.1", the extensions, and numerics of 16 hex digits."""
    async with t.wire() as w:
        info = (await w.ask("MODEL_INFO"))[1]["model_info"]
    expect_equal(info.get("lmtp"), "1.1", "lmtp")
    needed = set(EXTENSIONS.split()) - ({"FORK"} if info.get("workers") else set())
    missing = needed - set(info.get("extensions", []))
    expect(not missing, f"extensions lack {missing}")
    numerics = str(info.get("numerics"))
    expect(len(numerics) == 16 and set(numerics) <= set("0123456789abcdef"), f"{numerics!r}")


@rule("Versions and extensions")
async def base_streams_stay_base(t):
    """A stream that asks for nothing of 1.1 gets TOKEN entries with the base fields alone."""
    async with t.wire() as w:
        drawn = await w.say("GENERATE", prompt=PROMPT, max_tokens=4)
        scored = await w.say("SCORE", prompt=PROMPT, scored=[5])
        base = {"token", "stream_id", "logprob", "finish_reason"}
        for stream_id, wanted in ((drawn, base | {"top_logprobs"}), (scored, base)):
            await w.finish(stream_id)
            for verb, entry in w.of(stream_id):
                expect(verb == "TOKEN" and set(entry) == wanted, f"{verb} {entry}")


@rule("GENERATE", "TEXT", "SAMPLES")
async def entries_keep_their_order_of_fields(t):
    """The fields of an entry come in the page's order."""
    async with t.wire() as w:
        _, _, stop = await text_to_stop_in(w)
        for entry in await w.generate(text=True, stop=stop, n=2, **WHOLE):
            expect_order(entry, ENTRY_ORDER)
        expect_order((await w.error("GENERATE", prompt=[]))[1], ERROR_ORDER)


# --- errors -----------------------------------------------------------------------------


async def some_errors(t):
    """Errors by the codes that each may have."""
    async with t.wire() as w:
        _, ended = await w.cancelled(ignore_eos=True)
        context = t.info.get("context_length") or 0
        too_long = (await w.error("GENERATE", prompt=[5] * (context + 1)))[1]
        wrong = [
            (await w.error("GENERATE", prompt=PROMPT, temperature=-1))[1],
            (await w.error("SCORE", prompt=PROMPT, scored=[]))[1],
            (await w.error("FETCH"))[1],
        ]
        await w.send_text("GENERATE hello")
        wrong.append((await w.wait(lambda v, e: e.get("stream_id", 0) is None, "MSG error"))[1])
        unknown = []
        stream_id = await w.say("GENERATE", prompt=PROMPT, model="no-such-model-0")
        for kind in ("TOKEN", "MSG"):
            its = lambda v, e: (v, e.get("stream_id"), "error" in e) == (kind, stream_id, True)
            unknown.append((await w.wait(its, f"{kind} error"))[1])
        await w.lives()
    return {
        ("cancelled",): [ended], ("context_length",): [too_long], ("invalid_request",): wrong,
        # A server of any model may not know, where the hub cannot be reached.
        ("unknown_model", "model_failed"): unknown,
    }  # fmt: skip


@rule("Errors", "ERRORS")
async def errors_have_codes(t):
    """Every error, as TOKEN or MSG, has the code of its cause."""
    for codes, errors in (await some_errors(t)).items():
        for error in errors:
            what = f"code of {error.get('error')!r}: {error.get('code')!r}"
            expect(error.get("code") in codes, f"{what}, where {' or '.join(codes)} is right")


@rule("Errors", "ERRORS")
async def errors_say_whether_to_retry(t):
    """retryable is true for the codes that say so, which have retry_after_ms; the others do not."""
    for errors in (await some_errors(t)).values():
        for error in errors:
            expect_equal(error.get("retryable"), error.get("code") in RETRYABLE, f"{error}")
            expect_equal("retry_after_ms" in error, error.get("code") in RETRYABLE, f"{error}")


@rule("Timeouts", "ERRORS")
async def first_token_timeouts_end_streams(t):
    """A stream without a token within first_token_timeout_ms ends with the code timeout."""
    context = t.info.get("context_length") or 512
    async with t.wire() as w:
        for _ in range(5):  # a machine may be as fast as that
            prompt = [random.randrange(1, 256) for _ in range(context - 16)]
            fields = {"prompt": prompt, "max_tokens": 16, "first_token_timeout_ms": 1}
            last = await w.end(await w.say("GENERATE", **fields))  # behind a step's tokens
            if "error" in last:
                break
        expect("error" in last, "tokens came all the same")
        wanted = "timeout: no token came within 1 ms (first_token_timeout_ms)"
        expect_equal((last["error"], last.get("code")), (wanted, "timeout"), "the error")
        await w.generate(max_tokens=2, first_token_timeout_ms=86_400_000)


@rule("Timeouts", "ERRORS")
async def timeouts_end_streams(t):
    """A stream that is not done within timeout_ms ends with the code timeout."""
    context = t.info.get("context_length") or 512
    async with t.wire() as w:
        fields = {"max_tokens": context - len(PROMPT), "ignore_eos": True, "timeout_ms": 5}
        last = await w.end(await w.say("GENERATE", prompt=PROMPT, **fields))
        wanted = "timeout: the stream was not done within 5 ms (timeout_ms)"
        expect_equal((last.get("error"), last.get("code")), (wanted, "timeout"), "the error")
        await w.generate(max_tokens=2, timeout_ms=86_400_000)


# --- samples ----------------------------------------------------------------------------


@rule("Samples", "SAMPLES")
async def samples_are_streams_of_their_seeds(t):
    """Sample k of n has index k and the bits of a stream with seed + k; n 1 has no index."""
    async with t.wire() as w:
        entries = await w.generate_samples(3, **DRAWN)
        for k in range(3):
            alone = await w.generate(**DRAWN | {"seed": DRAWN["seed"] + k})
            expect(all("index" not in e for e in alone), "an index without n")
            sample = [e for e in entries if e.get("index") == k]
            expect_equal(values(sample), values(alone), f"sample {k}")


@rule("Samples", "SAMPLES")
async def samples_all_end(t):
    """Each sample ends once, with its finish_reason, and the stream with the last of them."""
    async with t.wire() as w:
        entries = await w.generate_samples(4, max_tokens=5, temperature=1.0, ignore_eos=True)
        expect(all("index" in e for e in entries), "an entry without an index")
        ends = sorted(e["index"] for e in entries if e["finish_reason"])
        expect_equal(ends, [0, 1, 2, 3], "indices of the ends")
        await w.lives()
        expect_equal(len(w.of(entries[0]["stream_id"])), 4 * 5, "entries")


@rule("Samples", "SAMPLES", "CANCEL")
async def cancel_ends_all_samples(t):
    """CANCEL ends every sample of its stream."""
    async with t.wire() as w:
        stream_id, _ = await w.cancelled(n=3, temperature=1, ignore_eos=True)
        ended = set()

        def all_ended(_, entry):
            if entry.get("stream_id") == stream_id and entry.get("error") == "cancelled":
                ended.add(entry.get("index"))
            return ended == {0, 1, 2}

        await w.wait(all_ended, 'error "cancelled" of each sample')
        await w.lives()
        behind = w.of(stream_id)[-3:]
        expect(all("error" in e for _, e in behind), f"tokens behind it: {behind}")


# --- log probabilities and masks -----------------------------------------------------------


@rule("GENERATE")
async def min_p_1_is_greedy(t):
    """min_p 1 leaves the most probable token alone."""
    async with t.wire() as w:
        drawn = DRAWN | {"min_p": 1}
        greedy = await w.generate(**DRAWN | {"temperature": 0})
        expect_equal(ids(await w.generate(**drawn)), ids(greedy), "tokens with min_p 1")


@rule("GENERATE")
async def typical_p_close_to_0_leaves_one_token(t):
    """typical_p close to 0 leaves one token, whatever the seed."""
    async with t.wire() as w:
        one, other = [
            ids(await w.generate(**DRAWN | {"typical_p": 1e-6, "seed": seed})) for seed in (1, 2)
        ]
        expect_equal(other, one, "tokens with typical_p and another seed")


def vocabulary(t):
    size = t.info["vocab_size"]
    if size > 8192:
        raise Skipped("the vocabulary is large")
    return size


@rule("Masks", "MASK", "vocabulary")
async def masks_allow_their_tokens_alone(t):
    """No token is drawn whose bit in `mask` is cleared, and the others share all probability."""
    allowed = [5, 9, 130, 200]
    async with t.wire() as w:
        mask = lmtp.mask(allowed, t.info["vocab_size"])
        entries = await w.generate(mask=mask, top_logprobs=4, **DRAWN)
        expect(set(ids(entries)) <= set(allowed), f"{ids(entries)} of {allowed}")
        for entry in entries:
            keys = {int(key) for key in entry["top_logprobs"]}
            expect_equal(keys, set(allowed), "alternatives")


@rule("Masks", "MASK", "vocabulary")
async def masks_are_biases(t):
    """A cleared bit is a logit_bias of minus infinity, beside the other biases, to the last bit."""
    size, allowed = vocabulary(t), [5, 9, 130, 200]
    async with t.wire() as w:
        forbid = {str(i): -1e30 for i in range(size) if i not in allowed}
        mask = lmtp.mask(allowed, size)
        by_bias = await w.generate(logit_bias=forbid | {"9": 3}, **DRAWN)
        by_mask = await w.generate(mask=mask, logit_bias={"9": 3}, **DRAWN)
        expect_equal(values(by_mask), values(by_bias), "the stream")


@rule("Masks", "MASK", "vocabulary")
async def masks_may_lack_padding(t):
    """A mask is taken with its padding and without, and bits beyond the vocabulary are ignored."""
    size = t.info["vocab_size"]
    bits = bytearray(base64.b64decode(lmtp.mask([9], size)))
    if size % 8:
        bits[-1] |= 0xFF << size % 8 & 0xFF
    padded = base64.b64encode(bits).decode()
    async with t.wire() as w:
        for mask in (padded, padded.rstrip("=")):
            expect_equal(ids(await w.generate(mask=mask, max_tokens=2)), [9, 9], "tokens")


@rule("Masks", "MASK", "vocabulary")
async def wrong_masks_are_refused(t):
    """A mask of another length, with no bit set or not in base64 is refused."""
    num_bytes = (t.info["vocab_size"] + 7) // 8
    encode = lambda content: base64.b64encode(content).decode()
    wrong = [encode(b"\xff" * (num_bytes + 1)), encode(b"\xff" * (num_bytes - 1))]
    wrong += [encode(b"\0" * num_bytes), "", "!" * num_bytes, encode(b"\xff" * num_bytes)[:-5], 5]
    await refuse_each(t, [("mask", wrong)])


# --- notices ------------------------------------------------------------------------------


@rule("Notices", "NOTICES")
async def notices_are_asked_for(t):
    """A stream without `notices` gets no notice beside LOADING."""
    async with t.wire() as w:
        stream_id = await w.say("GENERATE", prompt=PROMPT, max_tokens=4)
        await w.finish(stream_id)
        notices = [e for v, e in w.of(stream_id) if v == "MSG" and e.get("status") != "loading"]
        expect(not notices, f"{notices}")


@rule("Notices", "NOTICES")
async def accepted_comes_first(t):
    """With `notices` one `accepted` precedes the tokens: the model and the prompt's length."""
    async with t.wire() as w:
        for verb, more in (("GENERATE", {"max_tokens": 3}), ("SCORE", {"scored": [5]})):
            stream_id = await w.say(verb, prompt=PROMPT, notices=True, **more)
            await w.finish(stream_id)
            kinds = [e.get("status", "token") for _, e in w.of(stream_id)]
            kinds = [kind for kind in kinds if kind not in ("loading", "queued")]
            expect_equal((kinds[0], kinds.count("accepted")), ("accepted", 1), f"{kinds}")
            notice = next(e for _, e in w.of(stream_id) if e.get("status") == "accepted")
            expect_equal(notice.get("num_prompt"), len(PROMPT), "num_prompt")
            expect(isinstance(notice.get("model"), str), f"model: {notice}")


@rule("Notices", "NOTICES")
async def accepted_has_the_seed(t):
    """`accepted` has the seed that draws the same again, the one given or the server's own."""
    async with t.wire() as w:
        for given in ({}, {"seed": 77}):
            fields = {"max_tokens": 12, "temperature": 1.2, "ignore_eos": True}
            stream_id = await w.say("GENERATE", prompt=PROMPT, notices=True, **fields, **given)
            entries = await w.finish(stream_id)
            notice = next(e for _, e in w.of(stream_id) if e.get("status") == "accepted")
            seed = notice.get("seed")
            expect(seed == given.get("seed", seed) and 0 <= seed < 2**53, f"seed {seed} of {given}")
            again = await w.generate(seed=seed, **fields)
            expect_equal(values(again), values(entries), f"a second run with seed {seed}")


@rule("Notices", "NOTICES")
async def waiting_streams_know_their_place(t):
    """`queued` has a position from 1 on and an estimate; `resumed` follows `preempted`."""
    context = min(t.info.get("context_length") or 512, 512)
    async with t.wire() as w:
        fields = {"max_tokens": context - 8, "ignore_eos": True, "notices": True}
        streams = [await w.say("GENERATE", prompt=[i, i], **fields) for i in range(1, 49)]
        is_queued = lambda v, e: e.get("status") in ("queued", "preempted")
        ended = lambda v, e: e.get("stream_id") == streams[-1] and e.get("finish_reason")
        await w.wait(lambda v, e: is_queued(v, e) or ended(v, e), "notice or end")
        notices = [e for v, e in w.entries if is_queued(v, e)]
        for stream_id in streams:
            await w.send_text(f'CANCEL {{"stream_id": {stream_id}}}')
            await w.end(stream_id)
        if not notices:
            raise Skipped("it was not busy enough: serve with a small --kv-cache")
        for e in notices:
            if e["status"] == "queued":
                expect(e.get("position", 0) >= 1 and e.get("wait_ms_estimate", -1) >= 0, f"{e}")


# --- resumed and retry -----------------------------------------------------------------------


@rule("Exact retry", "TEXT")
async def resumed_streams_go_on(t):
    """Prompt and received tokens, same seed, `resumed`: the bits of the uninterrupted stream."""
    async with t.wire() as w:
        whole = await w.generate(text=True, **DRAWN)
        for at in (1, 7, 15):
            rest = await w.generate(
                PROMPT + ids(whole)[:at], text=True, resumed=at,
                **DRAWN | {"max_tokens": DRAWN["max_tokens"] - at},
            )  # fmt: skip
            expect_equal(values(rest), values(whole[at:]), f"the stream from token {at} on")
            expect_equal(texts(whole[:at]) + texts(rest), texts(whole), f"the text cut at {at}")


@rule("Exact retry", "TEXT")
async def resumed_text_counts_for_stops(t):
    """A stop string that begins in the resumed tokens ends the stream as it would have."""
    async with t.wire() as w:
        tokens, text, stop = await text_to_stop_in(w)
        fields = {**WHOLE, "text": True, "stop": stop}
        whole = await w.generate(**fields)
        for at in range(max(1, len(whole) - 3), len(whole)):
            rest = await w.generate(
                PROMPT + tokens[:at], resumed=at, **fields | {"max_tokens": 24 - at}
            )  # fmt: skip
            expect_equal(ids(rest), ids(whole)[at:], f"tokens from {at} on")
            expect_equal(texts(whole[:at]) + texts(rest), text[: text.find(stop)], "the text")
            expect_equal(rest[-1].get("stop_text"), stop, "stop_text")


@rule("Exact retry", "TEXT", "eos")
async def resumed_tokens_count_for_min_tokens(t):
    """Resumed tokens count for min_tokens, and not for max_tokens."""
    async with t.wire() as w:
        forced = {"logit_bias": {str(t.eos[0]): 1000}, "min_tokens": 5}
        tokens = ids(await w.generate(resumed=3, max_tokens=9, **forced))
        expect_equal(tokens.index(t.eos[0]) if t.eos[0] in tokens else None, 2, "tokens before EOS")
        entries = await w.generate(resumed=3, max_tokens=4, ignore_eos=True)
        expect_equal(len(entries), 4, "tokens of max_tokens 4")


@rule("Exact retry", "TEXT")
async def resumed_stays_in_the_prompt(t):
    """`resumed` beyond the prompt is refused."""
    async with t.wire() as w:
        await refused(w, "GENERATE", "resumed", ["TOKEN"], prompt=PROMPT, resumed=len(PROMPT) + 1)
        await w.generate(max_tokens=1, resumed=len(PROMPT))
        await w.lives()


@rule("Exact retry", "TEXT", "SAMPLES", "NOTICES")
async def clients_continue_exactly(t):
    """A client that loses its connection continues every sample, and has the same tokens."""
    async with t.client() as client:

        # So many that the connection is lost before the last has come.
        drawn = DRAWN | {"max_tokens": 200}

        async def tokens_of(cut_at):
            stream = client.generate(TEXT, n=2, **drawn)
            pieces, count = ["", ""], 0
            async for token in stream:
                pieces[token.index] += token.text
                count += 1
                if count == cut_at:
                    await (await client.connection()).close()
            return stream.received, pieces

        expect_equal(await tokens_of(cut_at=9), await tokens_of(cut_at=None), "tokens and text")


WRONG_FIELDS_1_1 = [
    ("text", [1, "x"]),
    ("add_special_tokens", [1, "x"]),
    ("skip_special_tokens", [0, "x"]),
    ("stop", [5, [5], "", [""], ["x"] * 17, "x" * 257, "é" * 129, {}]),
    ("include_stop", [1, "x"]),
    ("stop_token_ids", [5, ["x"], [-1], [1.5], [5] * 65, [2**31 - 1]]),
    ("ignore_eos", [1, "x"]),
    ("min_tokens", [-1, 1.5, "x"]),
    ("min_p", [-0.1, 1.01, "x"]),
    ("typical_p", [0, 1.01, "x"]),
    ("resumed", [-1, 5, 1.5, "x"]),
    ("n", [0, 65, -1, 1.5, "x"]),
    ("logprobs", ["cooked", 1, True, []]),
    ("notices", [1, "x"]),
    ("first_token_timeout_ms", [0, -1, 86_400_001, 1.5, "x"]),
    ("timeout_ms", [0, -1, 86_400_001, 1.5, "x"]),
    ("into", ["", "x" * 65, 5, []]),
    ("prompt", [[1, "a"], ["a", 1], [{}], [{"buffer": 5}], [[1, -1]], ["a"] * 257, True, "\ud800"]),
]  # fmt: skip


@rule("GENERATE", "TEXT")
async def wrong_new_fields_are_refused(t):
    """A field of 1.1 out of its range ends its stream with an error that names it."""
    await refuse_each(t, WRONG_FIELDS_1_1)


WRONG_SCORES = [
    ("scored", [[], "", 5, [-1], ["x"], [1, "x"]]),
    ("prompt", [[1, "a"], ["a", 1], [{}], "\ud800"]),
    ("top_logprobs", [-1, 1.5, "x"]),
    ("text", [1]),
    ("add_special_tokens", [1]),
    ("skip_special_tokens", [1]),
    ("notices", [1]),
    ("first_token_timeout_ms", [0, "x"]),
    ("timeout_ms", [0, 86_400_001]),
]


@rule("SCORE", "TEXT")
async def wrong_scores_are_refused(t):
    """A field of SCORE out of its range ends its stream with an error that names it."""
    await refuse_each(t, WRONG_SCORES, "SCORE", scored=[5])


@rule("GENERATE", "TEXT")
async def limits_are_taken(t):
    """What the page allows at most is taken."""
    async with t.wire() as w:
        for fields in (
            {"stop": ["x" * 256] * 16}, {"stop": "é" * 128}, {"stop_token_ids": [5] * 64},
            {"timeout_ms": 86_400_000}, {"into": "x" * 64}, {"prompt": [[5], *[[]] * 255]},
            {"min_tokens": 10_000}, {"stop": []}, {"stop_token_ids": []},
        ):  # fmt: skip
            await w.generate(**{"max_tokens": 1, **fields})


@rule("GENERATE", "TEXT")
async def new_null_fields_are_absent(t):
    """A field of 1.1 that is null counts as absent."""
    async with t.wire() as w:
        names = [name for name, _ in WRONG_FIELDS_1_1 if name != "prompt"]
        nulls = dict.fromkeys([*names, "mask"])
        plain = await w.generate(max_tokens=3)
        expect_equal(values(await w.generate(max_tokens=3, **nulls)), values(plain), "the stream")

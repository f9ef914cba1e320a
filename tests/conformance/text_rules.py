"""Level 1.1: text in and out, what ends a stream, TOKENIZE and DETOKENIZE."""

import functools

from base_rules import near, refuse_each, refused
from suite import NUM_TRIES, PROMPT, Broken, Skipped, expect, expect_equal, ids, texts, values
from suite import rule as any_rule

TEXT = "Once upon a time"
MANY_BYTES = "naïve café, 東京, 🙂🙃: ÿ"
NUM_TOKENS = 24
WHOLE = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 1.3, "seed": 5}

rule = functools.partial(any_rule, level="1.1")


async def tokens_of(w, text=TEXT, **fields):
    verb, entry = await w.ask("TOKENIZE", text=text, **fields)
    expect(verb == "MSG" and "tokens" in entry, f"TOKENIZE was answered by {verb} {entry}")
    return entry["tokens"]


async def text_of(w, tokens, **fields):
    verb, entry = await w.ask("DETOKENIZE", tokens=tokens, **fields)
    expect(verb == "MSG" and "text" in entry, f"DETOKENIZE was answered by {verb} {entry}")
    return entry["text"]


async def text_to_stop_in(w):
    """(tokens, text, stop) of a stream whose text has `stop` inside, and two tokens share it."""
    entries = await w.generate(text=True, **WHOLE)
    text = texts(entries)
    for num_tokens in range(NUM_TOKENS // 2, NUM_TOKENS - 2):
        at = len(texts(entries[:num_tokens])) - 2
        stop = text[at : at + 4]
        if at > 0 and len(stop) == 4 and stop.isascii() and text.find(stop) == at:
            return ids(entries), text, stop
    raise Skipped("its text has nothing to stop at")


@rule("TOKENIZE and DETOKENIZE", "TEXT")
async def detokenize_is_the_way_back(t):
    """DETOKENIZE of what TOKENIZE gives is the text, whatever its characters."""
    async with t.wire() as w:
        for text in (TEXT, MANY_BYTES, ""):
            tokens = await tokens_of(w, text, add_special_tokens=False)
            expect_equal(await text_of(w, tokens), text, "the text")


@rule("TOKENIZE and DETOKENIZE", "TEXT")
async def special_tokens_can_be_left_out(t):
    """add_special_tokens puts tokens in front at most; skip_special_tokens leaves theirs out."""
    async with t.wire() as w:
        plain = await tokens_of(w, add_special_tokens=False)
        both = await tokens_of(w)
        expect_equal(both[len(both) - len(plain) :], plain, "tokens behind the special ones")
        eos = t.eos[:1]
        expect_equal(await text_of(w, plain + eos), TEXT, "text without special tokens")
        shown = await text_of(w, plain + eos, skip_special_tokens=False)
        expect(not eos or len(shown) > len(TEXT), f"text with special tokens: {shown!r}")


@rule("TOKENIZE and DETOKENIZE", "TEXT")
async def wrong_questions_are_msg_errors(t):
    """A wrong TOKENIZE or DETOKENIZE is answered by one MSG error that names the field."""
    async with t.wire() as w:
        await refused(w, "TOKENIZE", "text", ["MSG"], text=5)
        await refused(w, "TOKENIZE", "text", ["MSG"])
        await refused(w, "TOKENIZE", "add_special_tokens", ["MSG"], text="a", add_special_tokens=1)
        await refused(w, "DETOKENIZE", "tokens", ["MSG"], tokens=["x"])
        await refused(w, "DETOKENIZE", "tokens", ["MSG"], tokens=[2**31 - 1])
        await w.lives()


@rule("TOKENIZE and DETOKENIZE", "TEXT")
async def questions_have_ids_of_their_own(t):
    """A TOKENIZE with the id of a live stream is refused, and the stream goes on."""
    async with t.wire() as w:
        for _ in range(NUM_TRIES):  # it may end before the second message is there
            live = await w.say("GENERATE", prompt=PROMPT, max_tokens=200, ignore_eos=True)
            await w.say("TOKENIZE", text="a", stream_id=live)
            ends = lambda v, e: e.get("stream_id") == live and e.get("finish_reason")
            await w.wait(ends, "end of the live stream")
            await w.lives()
            expect_equal(len(w.tokens(live)), 200, "its tokens")
            if any((v, "error" in e) == ("MSG", True) for v, e in w.of(live)):
                return
        raise Broken("a TOKENIZE with the id of a live stream was taken")


@rule("Text", "TEXT")
async def text_prompts_are_their_tokens(t):
    """A string as the prompt is the tokens that TOKENIZE gives; its stream has the same bits."""
    async with t.wire() as w:
        for special in (True, False):
            tokens = await tokens_of(w, add_special_tokens=special)
            by_text = await w.generate(TEXT, max_tokens=8, add_special_tokens=special)
            expect_equal(values(by_text), values(await w.generate(tokens, max_tokens=8)), "tokens")


@rule("Text", "TEXT")
async def text_comes_where_it_is_due(t):
    """Entries have `text` where the prompt has text or `text` is true, and nowhere else."""
    async with t.wire() as w:
        for prompt, fields, due in [
            (TEXT, {}, True), ([TEXT, [5]], {}, True), (PROMPT, {}, False),
            (PROMPT, {"text": True}, True), (TEXT, {"text": False}, False),
        ]:  # fmt: skip
            entries = await w.generate(prompt, max_tokens=3, **fields)
            expect_equal({"text" in e for e in entries}, {due}, f"text of {prompt} {fields}")


@rule("Text", "TEXT")
async def text_pieces_join(t):
    """The pieces of text, joined, are the decoded text."""
    async with t.wire() as w:
        for prompt in (TEXT, MANY_BYTES):
            tokens = await tokens_of(w, prompt)
            entries = await w.generate(prompt, **WHOLE)
            whole = await text_of(w, tokens + ids(entries))
            expect_equal(prompt + texts(entries), whole, "prompt and pieces")


@rule("SCORE", "TEXT")
async def scored_text_comes_back(t):
    """SCORE of a string: its pieces join to the string, and no character comes in halves."""
    async with t.wire() as w:
        for scored in (" there was", MANY_BYTES):
            entries = await w.score(TEXT, scored)
            expect_equal(texts(entries), scored, "the text")
            halves = [e for e in entries if "\ufffd" in e["text"]]
            expect(not halves, f"half characters: {halves}")


@rule("Candidates", "CANDIDATES")
async def candidates_are_sums_of_scores(t):
    """One entry has the sum of each candidate's scores, in their order, as ids and as text."""
    async with t.wire() as w:
        as_ids = [[7, 8, 9], [7], [8, 7], [7, 8], *([n] for n in range(20, 40))]
        as_text = [" there was", " there", " a b", " a c d"]
        for prompt, candidates in ((PROMPT, as_ids), (TEXT, as_text)):
            (entry,) = await w.finish(await w.say("SCORE", prompt=prompt, candidates=candidates))
            expect_equal(entry["token"], None, "its token")
            expect_equal(len(entry["candidates"]), len(candidates), "the number of candidates")
            for one, candidate in zip(entry["candidates"], candidates):
                scored = await w.score(prompt, candidate)
                expect_equal(one["num_tokens"], len(scored), f"tokens of {candidate}")
                total = sum(e["logprob"] for e in scored)
                expect(near(one["logprob"], total), f"{one} of {candidate}, whose sum is {total}")


@rule("Candidates", "CANDIDATES")
async def wrong_candidates_are_refused(t):
    """Candidates that are none, equal or empty end the stream with an error that names them."""
    wrong = [[], 5, "x", [5], [[]], [[5], [5]], [[-1]], [["x"]], [[5], [2**31 - 1]], [[5]] * 4097]
    await refuse_each(t, [("candidates", wrong)], "SCORE")
    await refuse_each(t, [("candidates", [[[5]]])], "SCORE", scored=[5])
    beside = [("top_logprobs", [1]), ("logprob_token_ids", [[5]]), ("text", [True])]
    await refuse_each(t, beside, "SCORE", candidates=[[5]])


@rule("DECIDE", "DECIDE")
async def an_answer_is_the_questions_alone(t):
    """A question has the same answer to the last bit alone, among others, and asked again."""
    yes = {"type": "noul", "instructions": "Is it a tale?"}
    who = {"type": "choice", "criteria": {"a lion": None, "a mouse": "a small one"}}
    sad = {"type": "score", "criteria": ["sad", {"level": [1]}, "merry"]}
    questions = {"yes": yes, "who": who, "sad": sad}
    async with t.wire() as w:
        ask = lambda asked: w.say("DECIDE", state={"text": TEXT}, questions=asked)
        (entry,) = await w.finish(await ask(questions))
        expect_equal(entry["token"], None, "its token")
        expect_equal(list(entry["answers"]), list(questions), "the names of the answers")
        for name in ("who", "sad"):
            total = sum(entry["answers"][name]["probabilities"].values())
            expect(near(total, 1), f"the probabilities of {name} sum to {total}")
        for names in (["sad"], ["who"], ["yes"], ["sad", "yes", "who"]):
            (other,) = await w.finish(await ask({name: questions[name] for name in names}))
            want = {name: entry["answers"][name] for name in names}
            expect_equal(other["answers"], want, "the answers")


@rule("DECIDE", "DECIDE")
async def wrong_decisions_are_refused(t):
    """A wrong state, scoring or question ends the stream with an error that names its field."""
    right = {"type": "noul"}
    wrong = [
        ("state", [5, None]), ("scoring", ["best", 1]), ("diagnostics", ["x"]),
        ("messages", ["x", [], [5]]), ("chat_template_kwargs", [{"enable_thinking": True}]),
        ("questions", [{}, [], {"a": right, "b": 5}, {"b": {"type": "score", "criteria": []}}]),
    ]  # fmt: skip
    await refuse_each(t, wrong[:3] + wrong[4:], "DECIDE", state="a", questions={"a": right})
    await refuse_each(t, wrong[3:4], "DECIDE", questions={"a": right})


@rule("SCORE", "TEXT")
async def scores_can_have_alternatives(t):
    """top_logprobs of SCORE are those of GENERATE; at an empty beginning the token alone, at 0."""
    async with t.wire() as w:
        drawn = await w.generate(max_tokens=6, top_logprobs=3)
        scored = await w.score(PROMPT, ids(drawn), top_logprobs=3)
        for one, other in zip(scored, drawn):
            expect_equal(list(one["top_logprobs"]), list(other["top_logprobs"]), "alternatives")
            for key, value in one["top_logprobs"].items():
                expect(near(value, other["top_logprobs"][key]), f"{one}, {other}")
        first, second = await w.score([], [PROMPT[0], 9], top_logprobs=3)
        expect_equal(first["top_logprobs"], {str(PROMPT[0]): 0.0}, "alternatives of nothing")
        expect("9" in second["top_logprobs"], f"{second} lacks its own token")


@rule("Text", "TEXT", "eos")
async def special_tokens_give_no_text(t):
    """A special token is "" in the text unless skip_special_tokens is false."""
    async with t.wire() as w:
        fields = {"max_tokens": 1, "text": True, "logit_bias": {str(t.eos[0]): 100}}
        expect_equal(texts(await w.generate(**fields)), "", "its text")
        expect(texts(await w.generate(**fields, skip_special_tokens=False)), "it has no text")


@rule("What ends a stream", "TEXT")
async def stop_strings_end_the_text(t):
    """A stream ends with "stop" before its stop string, which is the last entry's stop_text."""
    async with t.wire() as w:
        tokens, text, stop = await text_to_stop_in(w)
        entries = await w.generate(text=True, stop=stop, **WHOLE)
        expect_equal(texts(entries), text[: text.find(stop)], "the text")
        expect_equal(entries[-1].get("stop_text"), stop, "stop_text")
        expect_equal(entries[-1]["finish_reason"], "stop", "finish_reason")
        expect_equal(ids(entries), tokens[: len(entries)], "the tokens")
        expect(len(entries) < len(tokens), "it went on to max_tokens")


@rule("What ends a stream", "TEXT")
async def stop_strings_are_held_back(t):
    """Text that may begin a stop string is not sent before that is sure; none is lost."""
    async with t.wire() as w:
        _, text, begin = await text_to_stop_in(w)
        stop = begin + "\x01"
        entries = await w.generate(text=True, stop=[stop], **WHOLE)
        sent = ""
        for entry in entries[:-1]:
            sent += entry["text"]
            held = [n for n in range(1, len(stop)) if sent.endswith(stop[:n])]
            expect(not held, f"{sent!r} was sent, which may begin {stop!r}")
        expect_equal(texts(entries), text, "the whole text")
        expect("stop_text" not in entries[-1], f"it did not stop: {entries[-1]}")


@rule("What ends a stream", "TEXT")
async def the_first_stop_string_ends(t):
    """Of several stop strings the one that the text has first ends the stream."""
    async with t.wire() as w:
        _, text, stop = await text_to_stop_in(w)
        later = text[text.find(stop) + 1 :][:4]
        entries = await w.generate(text=True, stop=["\x01", later, stop], **WHOLE)
        expect_equal(entries[-1].get("stop_text"), stop, "stop_text")
        expect_equal(texts(entries), text[: text.find(stop)], "the text")


@rule("What ends a stream", "TEXT")
async def include_stop_keeps_it(t):
    """With include_stop the text ends behind the stop string."""
    async with t.wire() as w:
        _, text, stop = await text_to_stop_in(w)
        entries = await w.generate(text=True, stop=stop, include_stop=True, **WHOLE)
        expect_equal(texts(entries), text[: text.find(stop)] + stop, "the text")


@rule("What ends a stream", "TEXT")
async def stop_strings_work_without_text(t):
    """A stop string ends a stream that sends no text; its last entry has the stop_text."""
    async with t.wire() as w:
        _, _, stop = await text_to_stop_in(w)
        entries = await w.generate(stop=stop, **WHOLE)
        expect(all("text" not in e for e in entries), "it has text")
        expect_equal(entries[-1].get("stop_text"), stop, "stop_text")


@rule("What ends a stream", "TEXT")
async def stop_token_ids_end_the_stream(t):
    """A token of stop_token_ids is sent and ends the stream with "stop", without a stop_text."""
    async with t.wire() as w:
        tokens = ids(await w.generate(**WHOLE))
        entries = await w.generate(stop_token_ids=[tokens[5]], **WHOLE)
        expect_equal(ids(entries), tokens[: tokens.index(tokens[5]) + 1], "tokens")
        expect_equal(entries[-1]["finish_reason"], "stop", "finish_reason")
        expect("stop_text" not in entries[-1], f"{entries[-1]}")


@rule("What ends a stream", "TEXT", "eos")
async def ignore_eos_goes_on(t):
    """With ignore_eos the end-of-text token does not end the stream."""
    async with t.wire() as w:
        forced = {"logit_bias": {str(t.eos[0]): 100}, "max_tokens": 3}
        entries = await w.generate(ignore_eos=True, **forced)
        expect_equal(ids(entries), t.eos[:1] * 3, "tokens")
        expect_equal(entries[-1]["finish_reason"], "length", "finish_reason")


@rule("What ends a stream", "TEXT", "eos")
async def min_tokens_come_first(t):
    """Before min_tokens no end-of-text token and none of stop_token_ids is drawn."""
    async with t.wire() as w:
        forced = {"logit_bias": {str(t.eos[0]): 1000}, "max_tokens": 9, "min_tokens": 3}
        tokens = ids(await w.generate(**forced))
        expect(t.eos[0] not in tokens[:3], f"{tokens}: an end before min_tokens")
        expect_equal(tokens[3:], t.eos[:1], "tokens from min_tokens on")
        tokens = ids(await w.generate(logit_bias={"9": 1000}, stop_token_ids=[9], min_tokens=2))
        expect(9 not in tokens[:2] and tokens[2:] == [9], f"{tokens}, where 9 stops")


@rule("What ends a stream", "TEXT")
async def stop_strings_wait_for_min_tokens(t):
    """Before min_tokens a stop string does not end the stream."""
    async with t.wire() as w:
        _, _, stop = await text_to_stop_in(w)
        entries = await w.generate(text=True, stop=stop, min_tokens=NUM_TOKENS, **WHOLE)
        expect_equal(len(entries), NUM_TOKENS, "tokens")


CHAT = [
    {"role": "user", "content": "Tell a tale."},
    {"role": "assistant", "content": "Once upon a time"},
    {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def tokens_of_chat(w, messages, **fields):
    verb, entry = await w.ask("TOKENIZE", messages=messages, **fields)
    if "no chat template" in entry.get("error", ""):
        raise Skipped("the model has no chat template")
    expect(verb == "MSG" and "tokens" in entry, f"TOKENIZE was answered by {verb} {entry}")
    return entry["tokens"]


@rule("Chats", "CHAT")
async def chats_are_their_tokens(t):
    """Messages are the tokens that TOKENIZE gives; their stream has the same bits, and text."""
    async with t.wire() as w:
        for fields in ({}, {"add_generation_prompt": False}, {"chat_template_kwargs": {"x": 1}}):
            tokens = await tokens_of_chat(w, CHAT, **fields)
            of_chat = await w.generate(None, messages=CHAT, max_tokens=8, **fields)
            expect_equal(values(of_chat), values(await w.generate(tokens, max_tokens=8)), "tokens")
            expect_equal({"text" in e for e in of_chat}, {True}, "text of a chat")


@rule("Chats", "CHAT")
async def special_tokens_of_messages_are_text(t):
    """A special token that a message spells is not that token."""
    async with t.wire() as w:
        if not t.eos:
            raise Skipped("it has no end-of-text token")
        eos = await text_of(w, t.eos[:1], skip_special_tokens=False)
        said = lambda text: [{"role": "user", "content": text}]
        plain = await tokens_of_chat(w, said("a b"))
        marked = await tokens_of_chat(w, said(f"a{eos}b"))
        expect_equal(marked.count(t.eos[0]), plain.count(t.eos[0]), "end-of-text tokens")
        whole = await text_of(w, marked, skip_special_tokens=False)
        expect(f"a{eos}b" in whole, f"the message is not in {whole!r}")


@rule("Chats", "CHAT")
async def chats_continue_with_the_same_bits(t):
    """A chat's stream goes on behind its first tokens, which are then its prompt and resumed."""
    async with t.wire() as w:
        await tokens_of_chat(w, CHAT)
        fields = {"messages": CHAT, "seed": 7, "temperature": 1.0, "ignore_eos": True}
        whole = await w.generate(None, max_tokens=12, **fields)
        came = ids(whole)[:5]
        rest = await w.generate(came, resumed=5, max_tokens=7, **fields)
        expect_equal(values(rest), values(whole)[5:], "tokens")


@rule("Parsed replies", "PARSED")
async def a_parsed_reply_has_the_same_tokens(t):
    """A chat without tools gives the same tokens where its reply is parsed, and the same text."""
    async with t.wire() as w:
        await tokens_of_chat(w, CHAT)
        fields = {"messages": CHAT, "chat_template_kwargs": {"enable_thinking": False}}
        whole = await w.generate(None, max_tokens=8, **fields)
        parsed = await w.generate(None, max_tokens=8, parsed=True, **fields)
        expect_equal(values(parsed), values(whole), "tokens")
        if not any("reasoning" in e for e in parsed):
            expect_equal(texts(parsed), texts(whole), "text")


@rule("Parsed replies", "PARSED")
async def wrong_readings_are_refused(t):
    """What belongs to a parsed reply is refused without one, and where it is wrong."""
    async with t.wire() as w:
        await tokens_of_chat(w, CHAT)
        parsed = {"messages": CHAT, "parsed": True}
        for field, fields in [
            ("parsed", {"prompt": PROMPT, "parsed": True}), ("parsed", {**parsed, "parsed": 1}),
            ("tool_choice", {"messages": CHAT, "tool_choice": "auto"}),
            ("parallel_tool_calls", {"messages": CHAT, "parallel_tool_calls": False}),
            ("thinking_token_budget", {**parsed, "thinking_token_budget": -1}),
            ("tool_choice", {**parsed, "tool_choice": "required"}),
            ("tool_choice", {**parsed, "tools": [TOOL], "tool_choice": "some"}),
            ("tools", {**parsed, "tools": [{"type": "function"}]}),
        ]:  # fmt: skip
            await refused(w, "GENERATE", field, ["TOKEN"], **fields)
        await w.lives()


@rule("Chats", "CHAT")
async def wrong_chats_are_refused(t):
    """A wrong chat, and a prompt beside one, is refused by the name of its field."""
    async with t.wire() as w:
        for field, fields in [
            ("messages", {"messages": []}), ("messages", {"messages": "Hi"}),
            ("messages[1]", {"messages": [CHAT[0], 5]}), ("messages[0]", {"messages": [{}]}),
            ("tools", {"messages": CHAT, "tools": {}}),
            ("add_generation_prompt", {"messages": CHAT, "add_generation_prompt": 1}),
            ("chat_template_kwargs", {"messages": CHAT, "chat_template_kwargs": []}),
            ("prompt", {"messages": CHAT, "prompt": PROMPT}),
            ("prompt", {"messages": CHAT, "prompt": "a", "resumed": 1}),
        ]:  # fmt: skip
            await refused(w, "GENERATE", field, ["TOKEN"], **fields)
        await refused(w, "TOKENIZE", "messages", ["MSG"], messages=CHAT, text="a")
        await w.lives()

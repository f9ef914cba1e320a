"""Grammars by the clients of each API, on the demo and on a model with a chat template: what comes
out is judged by Python's own re, json and pydantic."""

import asyncio
import enum
import json
import pathlib
import re
import resource
import sys

import lark
import openai
import pydantic
import pytest
from aici_http import ask
from huggingface_hub import InferenceClient
from lmtp_socket import Socket
from servers import LmtpServe
from test_chat import MESSAGES, model, server  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"))

import lmtp  # noqa: E402

PROMPT = "Once upon a time"
# By name, in what llguidance and lark both read: how lark is told to read it, what the demo needs a
# bias on so that texts end, and the grammar.
LARK = {
    "arithmetic": ("lalr", "0123456789)", r"""
start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: NUMBER | "-" atom | "(" sum ")"
NUMBER: /[0-9]{1,4}(\.[0-9]{1,2})?/
"""),
    "JSON": ("lalr", "]}\"", r"""
start: "[" value "," value "," value "]"
value: object | list | STRING | NUMBER | "true" | "false" | "null"
object: "{" (pair ("," pair)*)? "}"
list: "[" (value ("," value)*)? "]"
pair: STRING ":" value
STRING: /"[^"\\\x00-\x1f]{0,20}"/
NUMBER: /-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?/
"""),
    "palindromes": ("earley", "", r"""
start: word word word
word: "a" word "a" | "b" word "b" | "c"
"""),
    "CSV": ("earley", "\n\"", r"""
start: row row row
row: field ("," field)* "\n"
field: PLAIN? | QUOTED
PLAIN: /[^,"\r\n]{1,12}/
QUOTED: /"([^"]|""){0,12}"/
"""),
}  # fmt: skip


class Mood(enum.Enum):
    glad = "glad"
    sad = "sad"


class Cat(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str = pydantic.Field(pattern="^[A-Z][a-z]{2,7}$")
    age: int = pydantic.Field(ge=0, le=30)
    mood: Mood
    friends: list[str] = pydantic.Field(max_length=2)


@pytest.fixture
def client(server):  # noqa: F811
    url = f"http://{server.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def test_openais_parse_gives_the_object(client):
    for seed in range(3):
        answer = client.chat.completions.parse(
            model="model", messages=MESSAGES, response_format=Cat, seed=seed, temperature=1,
            max_completion_tokens=400,
        )  # fmt: skip
        (choice,) = answer.choices
        if choice.finish_reason == "stop":
            assert isinstance(choice.message.parsed, Cat)
    anything = client.chat.completions.create(
        model="model", messages=MESSAGES, response_format={"type": "json_object"}, temperature=0,
        max_completion_tokens=20,
    )  # fmt: skip
    assert anything.choices[0].message.content.lstrip().startswith("{")


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"enum": [1, 2]}},
                "required": ["city", "days"],
                "additionalProperties": False,
                "x-guidance": {"whitespace_flexible": False},
            },
        },
    }
    for name in ("weather", "tides")
]


def assert_is_call(call):
    assert call.type == "function" and call.id and call.function.name in ("weather", "tides")
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Rome", "Oslo") and arguments["days"] in (1, 2)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "tides"}}, "stop")],
)
def test_forced_tools_are_calls(client, choice, reason):
    asked = {
        "model": "model", "messages": MESSAGES, "tools": TOOLS, "tool_choice": choice,
        "temperature": 1, "max_completion_tokens": 300, "seed": 4,
    }  # fmt: skip
    (whole,) = client.chat.completions.create(**asked).choices
    assert whole.finish_reason == reason and whole.message.content is None
    (call,) = whole.message.tool_calls
    assert_is_call(call)
    if choice != "required":
        assert call.function.name == "tides"
    pieces = list(client.chat.completions.create(**asked, stream=True))
    deltas = [p.choices[0].delta for p in pieces]
    calls = [c for d in deltas for c in d.tool_calls or []]
    assert [c.function.name for c in calls] == [call.function.name] + [None] * (len(calls) - 1)
    assert "".join(c.function.arguments for c in calls) == call.function.arguments
    assert pieces[-1].choices[0].finish_reason == reason and deltas[0].role == "assistant"
    with client.chat.completions.stream(**asked) as events:
        (final,) = events.get_final_completion().choices
    assert final.message.tool_calls[0].function.arguments == call.function.arguments


def test_tgis_grammar(demo):
    client = InferenceClient(f"http://{demo.endpoint}")
    pattern = "[0-9]{2,4}-[a-z]{3}"
    text = client.text_generation(
        PROMPT, grammar={"type": "regex", "value": pattern}, max_new_tokens=60,
        return_full_text=False)  # fmt: skip
    assert re.fullmatch(pattern, text)
    schema = Cat.model_json_schema()
    streamed = client.text_generation(
        PROMPT, grammar={"type": "json", "value": schema}, max_new_tokens=400, do_sample=True,
        seed=3, stream=True, details=True, return_full_text=False,
    )  # fmt: skip
    *_, last = streamed
    if last.details.finish_reason != "length":
        Cat.model_validate_json(last.generated_text)


@pytest.mark.parametrize(
    "pattern",
    [r"[A-Z][a-z]+(, [a-z]{2,8}){3}\.", r"\d{3}", r"(é|ü|日本){2,3}", r"a{0,3}b?", r"[^a-z]{5}x"],
)
def test_texts_are_matches_by_re(demo, pattern):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            for seed in range(3):
                tokens = [t async for t in client.generate(
                    PROMPT, temperature=1, seed=seed, max_tokens=200,
                    grammar={"type": "regex", "value": pattern})]  # fmt: skip
                assert tokens[-1].finish_reason in ("stop", "length")
                if tokens[-1].finish_reason == "stop":
                    assert re.fullmatch(pattern, "".join(t.text for t in tokens))

    run(go())


@pytest.mark.parametrize("name", LARK)
def test_texts_are_parsed_by_lark(demo, name):
    how, biased, grammar = LARK[name]
    parser = lark.Lark(grammar, parser=how)

    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            (end,) = (await client.model_info())["eos_token_ids"]
            bias = {(await client.tokenize(text))[0]: 3 for text in biased} | {end: 3}

            async def run_one(seed):
                return [t async for t in client.generate(
                    PROMPT, temperature=1, seed=seed, max_tokens=300, logit_bias=bias,
                    grammar={"type": "lark", "value": grammar})]  # fmt: skip

            return await asyncio.gather(*map(run_one, range(12)))

    streams = run(go())
    texts = {"".join(t.text for t in tokens) for tokens in streams
             if tokens[-1].finish_reason == "stop"}  # fmt: skip
    assert len(texts) >= 5, texts
    for text in texts:
        parser.parse(text)


def test_lmqls_operators(demo):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            async def text(**where):
                return await client.generate(PROMPT, temperature=1, seed=5, **where).text()

            plain = await text(max_tokens=60)
            stop = plain[20:22]
            before = await text(**lmtp.constraints(stops_before=stop, max_tokens=60))
            assert before == plain[: plain.find(stop)]
            at = await text(**lmtp.constraints(stops_at=[stop], max_tokens=60))
            assert at == before + stop
            ids = [t async for t in client.generate(PROMPT, **lmtp.constraints(max_tokens=3))]
            assert len(ids) == 3
            assert await text(**lmtp.constraints(one_of=["yes", "no"])) in ("yes", "no")
            assert re.fullmatch(r"[ab]{4}", await text(**lmtp.constraints(regex="[ab]{4}")))
            number = await text(**lmtp.constraints(is_int=True, max_tokens=5))
            assert int(number) is not None
            long = client.generate(PROMPT, **lmtp.constraints(min_tokens=9, max_tokens=9))
            assert len([t async for t in long]) == 9

    run(go())
    for wrong in ({"stops_before": "a", "stops_at": "b"}, {"regex": "a", "one_of": ["a"]}):
        with pytest.raises(ValueError):
            lmtp.constraints(**wrong)
    assert lmtp.constraints() == {}


def test_forced_tokens_have_the_bits_of_drawn_ones(demo):
    """Under a choice of one all tokens but the first are forced; SCORE has the same numbers."""
    text = " there was a little girl who lived in the forest"

    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            grammar = {"type": "choice", "value": [text]}
            tokens = [t async for t in client.generate(PROMPT, max_tokens=100, grammar=grammar)]
            assert "".join(t.text for t in tokens) == text
            assert any(t.forced for t in tokens) and not any(t.appended for t in tokens)
            prompt = await client.tokenize(PROMPT)
            free = []  # each drawn alone, under a mask of one
            for i, token in enumerate(tokens):
                mask = lmtp.mask([token.id], (await client.model_info())["vocab_size"])
                behind = prompt + [t.id for t in tokens[:i]]
                free += [t async for t in client.generate(
                    behind, max_tokens=1, mask=mask, logprobs="raw")]  # fmt: skip
            assert [(t.id, t.logprob) for t in free] == [(t.id, t.logprob) for t in tokens]

    run(go())


def test_alone_or_in_company_forced_or_drawn_the_bits_are_the_same(demo):
    """A stream that has stop strings is not forced. Free streams run beside constrained ones."""
    schema = {**Cat.model_json_schema(), "x-guidance": {"whitespace_flexible": False}}
    constrained = [
        {"type": "json_schema", "value": schema},
        {"type": "regex", "value": r'[a-z]{3,9} said: "Once upon a time, [a-z ]{5,60}"\.'},
        {"type": "lark", "value": LARK["JSON"][-1]},
    ]
    never = "no text has this"
    asked = [{"temperature": t} for t in (0, 1, 0.7)]  # free ones first
    num_free = len(asked)
    for grammar in constrained:
        asked += [{"grammar": grammar}, {"grammar": grammar, "stop": never}]
    for i, fields in enumerate(asked):
        seed = i if i < num_free else (i - num_free) // 2
        asked[i] = {"temperature": 1, "max_tokens": 80, "seed": seed, **fields}

    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            async def one(fields):
                return [t async for t in client.generate(PROMPT, **fields)]

            alone = [await one(fields) for fields in asked]
            together = await asyncio.gather(*map(one, [*asked, *asked]))
            return alone, together

    def bits(tokens):
        return [(t.id, t.logprob) for t in tokens]

    alone, together = run(go())
    for i, tokens in enumerate(alone):
        assert bits(tokens) == bits(together[i]) == bits(together[len(asked) + i]), asked[i]
    for forced, drawn in zip(alone[num_free::2], alone[num_free + 1 :: 2], strict=True):
        assert bits(forced) == bits(drawn)
        assert not any(t.forced for t in drawn)
    assert any(t.forced for t in alone[num_free]) and any(t.forced for t in alone[num_free + 2])


def test_bad_grammars_are_refused_and_the_connection_lives(demo):
    async def go():
        async with Socket(demo.endpoint) as s:
            for i, value in enumerate(["(a", "[z-a]", "a" * (257 << 10)]):
                grammar = {"type": "regex", "value": value}
                fields = {"stream_id": i, "prompt": [1], "grammar": grammar}
                await s.send_text(f"GENERATE {json.dumps(fields)}")
                _, entry = await s.wait_for(lambda _, e, i=i: e["stream_id"] == i)
                assert entry["error"].startswith("grammar") and entry["code"] == "invalid_request"
            await s.send_text('GENERATE {"stream_id": 9, "prompt": [1], "max_tokens": 1}')
            await s.wait_for(lambda _, e: e["stream_id"] == 9 and "token" in e)

    run(go())
    client = openai.OpenAI(base_url=f"http://{demo.endpoint}/v1", api_key="none", max_retries=0)
    with client, pytest.raises(openai.BadRequestError, match="^.*guided_regex: ") as e:
        client.completions.create(model="demo", prompt=PROMPT, extra_body={"guided_regex": "(a"})
    assert e.value.param == "guided_regex"


def token_of(server, text):
    tokenized = ask(server, "/tokenize", {"prompt": text, "add_special_tokens": False})
    return json.loads(tokenized[1])["tokens"][0]


def test_allowed_token_ids_narrow_a_grammar(demo):
    a, z = token_of(demo, "a"), token_of(demo, "z")
    body = {"prompt": PROMPT, "max_tokens": 20, "seed": 3, "return_token_ids": True}
    status, answer = ask(demo, "/v1/completions", {**body, "allowed_token_ids": [z, a]})
    (choice,) = json.loads(answer)["choices"]
    assert status == 200 and set(choice["token_ids"]) == {a, z} and len(choice["token_ids"]) == 20
    body["structured_outputs"] = {"regex": "[ab]{6}"}
    status, answer = ask(demo, "/v1/completions", {**body, "allowed_token_ids": [z, a]})
    assert status == 200 and json.loads(answer)["choices"][0]["text"] == "aaaaaa"
    status, answer = ask(demo, "/v1/completions", {**body, "allowed_token_ids": [z]})
    assert status == 422 and "none of the tokens that it allows here is possible" in answer


def has(tokens, word):
    return any(tokens[i : i + len(word)] == word for i in range(len(tokens)))


def test_bad_words_are_not_generated(demo):
    """By their tokens, of one or several, wherever the stream begins to be generated."""

    async def go():
        async with lmtp.connect(demo.endpoint) as client:

            async def tokens_of(prompt, num, **fields):
                asked = {"max_tokens": num, "ignore_eos": True, **fields}
                return [t.id async for t in client.generate(prompt, **asked)]

            plain = await tokens_of(PROMPT, 30)
            begin = await client.tokenize(PROMPT)
            texts = [await client.detokenize([token]) for token in plain]
            num_met = 0
            for text in "".join(texts).split()[:8]:
                words = [await client.tokenize(t, add_special_tokens=False)
                         for t in (text, " " + text)]  # fmt: skip
                changed = await tokens_of(PROMPT, 30, bad_words=[text])
                assert not any(has(changed, word) for word in words)
                at = min((i + len(w) - 1 for w in words for i in range(len(plain))
                          if plain[i : i + len(w)] == w), default=None)  # fmt: skip
                if at is None:
                    continue
                num_met += 1
                assert changed[:at] == plain[:at] and changed[at] != plain[at]
                resumed = await tokens_of(
                    begin + changed[:at], 30 - at, bad_words=[text], resumed=at
                )
                assert resumed == changed[at:]
            assert num_met >= 4, texts

    run(go())
    allowed = [token_of(demo, "q"), token_of(demo, "x")]
    body = {"prompt": PROMPT, "max_tokens": 20, "allowed_token_ids": allowed}
    body["structured_outputs"] = {"regex": "[qx]{6}"}
    for words, texts in ((["x"], ["qqqqqq"]), (["qq", "xx"], ["qxqxqx", "xqxqxq"])):
        status, answer = ask(demo, "/v1/completions", {**body, "bad_words": words})
        assert status == 200 and json.loads(answer)["choices"][0]["text"] in texts, answer
    status, answer = ask(demo, "/v1/completions", {**body, "bad_words": ["q", "x"]})
    assert status == 422 and "constraint" in answer


def test_a_grammar_without_a_thread_is_refused_and_the_server_lives():
    """As long as the machine gives no address space for the stack of what compiles it."""
    body = {"prompt": PROMPT, "max_tokens": 20, "structured_outputs": {"regex": "[ab]{3}"}}
    with LmtpServe("demo", "--kv-cache", "64MiB") as server:
        pid = server.process.pid
        taken = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * 4096
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (taken + (256 << 20), before[1]))
        status, answer = ask(server, "/v1/completions", body)
        assert status == 429 and "no thread with a stack" in answer, answer
        assert ask(server, "/v1/completions", {**body, "structured_outputs": None})[0] == 200
        resource.prlimit(pid, resource.RLIMIT_AS, before)
        assert ask(server, "/v1/completions", body)[0] == 200
    assert server.exit_code == 0, server.log_tail

"""Every field that LMTP 1.1 adds, with values of all kinds: refused where the schema refuses it, by
an answer that names the field and what is allowed; each answer is of the schema, and the connection
lives."""

import asyncio
import json
import re

import malformed_corpus as corpus
import pytest
from lmtp_socket import Socket, wait_all_freed
from test_malformed_goldens import OPTIONS
from wire_schema import NOT_OF_THE_SCHEMA, SCHEMA, is_valid, loads

from servers import LmtpServe

STREAM_ID = 7
RIGHT = {
    "GENERATE": corpus.GENERATE | {"stream_id": f"{STREAM_ID}"},
    "SCORE": corpus.SCORE,
    "DECIDE": {"stream_id": "7", "state": '"a"', "questions": '{"a": {"type": "noul"}}'},
    "TOKENIZE": {"stream_id": "7", "text": '"a"'},
    "DETOKENIZE": {"stream_id": "7", "tokens": "[5]"},
    "BUFFER": {"stream_id": "7", "buffer": '"a"', "tokens": "[5]"},
    "FREE": {"stream_id": "7", "buffer": '"a"'},
}
LEFT_OUT = {  # of the base, and messages, have tests of their own
    "GENERATE": {*corpus.GENERATE_FIELDS, "model", "messages"} - {"prompt"},
    "SCORE": {"stream_id", "model"},
    "DECIDE": {"stream_id", "model", "messages"},
    "TOKENIZE": {"messages"},
    "FREE": {"stream_id"},  # without it, there is no answer
}
VALUES = corpus.VALUES[::3]  # the goldens have all of them for the base
# Beside those of every field.
MORE_VALUES = {
    "prompt": [
        '["a", [5], {"buffer": "a"}]', '["a", 5]', '[5, "a"]', '[{"buffer": "none"}]',
        '[{"buffer": "a", "upto": 2}]', '[{"buffer": "a", "upto": -1}]', '[{"upto": 1}]',
        '[{"buffer": "a", "b": 1}]', '[{"buffer": ""}]', '["a", null]', '["a", [1.5]]',
        f'["a", [{corpus.VOCAB}]]', '[[], ""]',
        json.dumps(["a"] * 256), json.dumps(["a"] * 257), json.dumps("a " * 2000),
    ],
    "stop": [
        json.dumps(["a"] * 16), json.dumps(["a"] * 17), json.dumps("é" * 128),
        json.dumps("é" * 129), '["a", ""]', '["a", 1]',
    ],
    "stop_token_ids": [json.dumps([5] * 64), json.dumps([5] * 65)],
    "mask": [
        json.dumps("A" * 340 + "B="), json.dumps("A" * 341), json.dumps("/" * 344), '"=AAA"', '"A"',
        '"AA=A"', json.dumps("A" * 340 + "B"), json.dumps("A" * 340 + "B\n"),
    ],
    "resumed": ["3"], "n": ["64", "65"], "logprobs": ['"raw"', '"processed"', '"Raw"'],
    "timeout_ms": ["86400000", "86400001"], "first_token_timeout_ms": ["86400000", "86400001"],
    "grammar": [
        '{"type": "regex", "value": "a+"}', '{"type": "choice", "value": ["a", "b"]}',
        '{"type": "json"}', '{"type": "json_object", "value": null}',
        '{"type": "json", "value": 5}',
        '{"type": "json_schema", "value": {"type": "integer"}}', '{"type": "json_schema"}',
        '{"type": "rgx", "value": "a"}', '{"type": "regex"}', '{"type": "regex", "value": ["a"]}',
        '{"type": "choice", "value": "a"}', '{"type": "regex", "value": "a", "flags": "i"}',
        '{"value": "a"}', '{"type": 5, "value": "a"}',
    ],
    "into": [json.dumps("é" * 32), json.dumps("é" * 33)],
    "questions": [
        '{"a": {"type": "noul", "criteria": {"true": "b", "false": null}}}',
        '{"a": {"type": "noul", "criteria": {"yes": "b"}}}', '{"a": {"type": "yes"}}',
        '{"a": {"type": "choice", "criteria": {"b": null, "c": [1]}}}', '{"a": 5}',
        '{"a": {"type": "choice", "criteria": {"b": 5}}}', '{"a": {"type": "choice"}}',
        '{"a": {"type": "choice", "criteria": {"": "b"}}}', '{"a": {"type": "score"}}',
        '{"a": {"type": "score", "criteria": ["b", "c"], "instructions": {"d": 1}}}',
        '{"a": {"type": "score", "criteria": ["b", "b"]}}',
        '{"a": {"type": "score", "criteria": ["b", 5]}}', '{"a": {"type": "noul", "b": 1}}',
    ],
    "state": ['{"a": [1]}', '["a"]'], "scoring": ['"auto"', '"option_mean"', '"best"'],
    "chat_template_kwargs": ['{"enable_thinking": false}', '{"enable_thinking": true}'],
    "buffer": ['"a"', json.dumps("é" * 32), json.dumps("é" * 33)],
}  # fmt: skip
MORE_VALUES["scored"] = ['" b"', '"' + "a " * 2000 + '"']


# Errors that no schema finds, beside those of the base.
NO_MATTER_OF_SCHEMA = (
    NOT_OF_THE_SCHEMA + r"|is unknown|the context|upto is|the tokens of the prompt|bytes of text"
    r"|a bit for each|no token|this server runs none"
)
SAYS_WHAT = r"allowed|expected|needed|must|as JSON asks|no message needs that|start it with"


def cases(verb):
    """(field, text), the field with each value, without it, and twice."""
    for field in SCHEMA["$defs"][verb]["properties"]:
        if field in LEFT_OUT.get(verb, ()):
            continue
        others = {name: value for name, value in RIGHT[verb].items() if name != field}
        for value in VALUES + MORE_VALUES.get(field, []):
            yield field, corpus.message(verb, others | {field: value})
        again = RIGHT[verb].get(field, "1")
        yield field, corpus.message(verb, others)
        yield field, corpus.message(verb, others | {field: f'{again}, "{field}": {again}'})


def ends(verb, kind, entry):
    """Whether it is the last one of the answer."""
    if "error" in entry or verb not in ("GENERATE", "SCORE", "DECIDE"):
        return "status" not in entry
    return kind == "TOKEN" and bool(entry["finish_reason"])


async def answer_to(s, verb, text, num_samples=1):
    """Keeps in s.messages what comes, up to the last entry."""
    s.messages.clear()
    await s.send_text(text)
    num_ended, num_ends = 0, 1
    while num_ended < num_ends:
        seen = len(s.messages)
        assert await s.receive(), f"{text[:200]} ended the connection"
        for kind, entries in s.messages[seen:]:
            num_ended += sum(ends(verb, kind, entry) for entry in entries)
            if any("index" in entry for entry in entries):
                num_ends = num_samples


def read(text):
    """The message's fields; nothing where it is no JSON."""
    try:
        return loads(text.partition(" ")[2])
    except ValueError:
        return None


@pytest.fixture(scope="module")
def server():
    with LmtpServe("demo", *OPTIONS[:-4], "--threads", "1") as server:
        yield server


def is_of(error, field, message):
    """Whether it names the field, and says what is right."""
    names = [f"{field}: ", f"{field}[", f"{field}."]
    names += ["buffer: ", "scored: "] * (field == "prompt")
    names += ["payload: "] * (message is None or "is nested deeper" in error)
    return error.startswith(tuple(names)) and re.search(SAYS_WHAT, error)


@pytest.mark.parametrize("verb", RIGHT)
def test_is_answered_as_the_schema_says(server, verb):
    faults = []
    counts = {True: 0, False: 0}

    async def run():
        async with Socket(server.endpoint) as s:
            await answer_to(s, "BUFFER", corpus.message("BUFFER", RIGHT["BUFFER"]))
            for field, text in cases(verb):
                message = read(text)
                n = message.get("n") if message else None
                await answer_to(s, verb, text, n if isinstance(n, int) else 1)
                error = next((e["error"] for _, m in s.messages for e in m if "error" in e), None)
                counts[error is None] += 1
                is_right = all(is_valid(*m) for m in s.messages)
                if error:
                    is_right = is_right and is_of(error, field, message)
                if not re.search(NO_MATTER_OF_SCHEMA, error or ""):
                    is_wanted = message is not None and is_valid(verb, message)
                    is_right = is_right and is_wanted == (error is None)
                if not is_right:
                    faults.append(f"{text[:200]}: {s.messages}")
            await s.send("GENERATE", stream_id=1, prompt=[1], max_tokens=1)
            assert (await s.finish(1))[1] == "length"
        await wait_all_freed(server.endpoint)

    asyncio.run(run())
    assert not faults, f"{len(faults)}: " + "\n".join(faults[:40])
    assert min(counts.values()) > 0

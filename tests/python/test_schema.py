"""docs/schema/lmtp.json: it is a schema, takes a right message of each kind, and none of the
server's with a field too many or too few."""

import json
import pathlib
import re
import sys

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import malformed_corpus  # noqa: E402
from wire_schema import NOT_OF_THE_SCHEMA, SCHEMA, is_valid, loads  # noqa: E402

CLIENT = [
    'GENERATE {"stream_id": 1, "prompt": [1]}',
    'GENERATE {"stream_id": 1, "prompt": "", "stop": "x", "n": 2, "mask": "AQ==", "model": null}',
    'GENERATE {"stream_id": 1, "prompt": ["a", [], {"buffer": "b", "upto": 0}], "into": "c"}',
    'SCORE {"stream_id": 1, "prompt": [], "scored": "a", "top_logprobs": 2, "more": 1}',
    'SCORE {"stream_id": 1, "prompt": "a", "candidates": [[1], "b"], "scored": null}',
    'DECIDE {"stream_id": 1, "state": "", "questions": {"a": {"type": "noul"}}, "scoring": null}',
    'DECIDE {"stream_id": 1, "messages": [{"role": "user"}], "questions": {"a": {"type": "score",'
    ' "criteria": ["x", {}]}, "b": {"type": "choice", "criteria": {"c": null, "d": [1]}}}}',
    'TOKENIZE {"stream_id": 1, "text": ""}',
    'DETOKENIZE {"stream_id": 1, "tokens": []}',
    'BUFFER {"stream_id": 1, "buffer": "a", "tokens": []}',
    'BUFFER {"stream_id": 1, "buffer": "a", "text": "", "append": true, "tokens": null}',
    'FREE {"buffer": "a"}',
    'CONTROLLER {"stream_id": 1, "op": "upload", "binary": "AGFzbQ", "tags": 1}',
    'CONTROLLER {"stream_id": 1, "op": "tag", "module_id": "ab", "tags": ["x"], "model": "m"}',
    'CONTROLLER {"stream_id": 1, "op": "tag", "module_id": "ab", "tags": "x"}',
    'CONTROLLER {"stream_id": 1, "op": "list"}',
    'MODEL_INFO {"stream_id": 1}',
    'CANCEL {"stream_id": 1}',
]
WRONG = [
    'GENERATE {"stream_id": 1, "prompt": []}',
    'GENERATE {"stream_id": 1, "prompt": [1, "a"]}',
    'GENERATE {"stream_id": 1, "prompt": [{"buffer": "a", "to": 1}]}',
    'GENERATE {"stream_id": 1, "prompt": [1], "n": 2, "into": "a"}',
    'GENERATE {"stream_id": 1, "prompt": [1], "stop": [""]}',
    'GENERATE {"stream_id": 1, "prompt": [1], "timeout_ms": 0}',
    'GENERATE {"stream_id": 1, "prompt": [1], "max_tokens": 5.0}',
    'SCORE {"stream_id": 1, "prompt": [1], "scored": ""}',
    'SCORE {"stream_id": 1, "prompt": [1]}',
    'SCORE {"stream_id": 1, "prompt": [1], "candidates": null}',
    'SCORE {"stream_id": 1, "prompt": [1], "scored": [1], "candidates": [[1]]}',
    'SCORE {"stream_id": 1, "prompt": [1], "candidates": [[]]}',
    'SCORE {"stream_id": 1, "prompt": [1], "candidates": [[1], [1]]}',
    'SCORE {"stream_id": 1, "prompt": [1], "candidates": [[1]], "top_logprobs": 1}',
    'DECIDE {"stream_id": 1, "questions": {"a": {"type": "noul"}}}',
    'DECIDE {"stream_id": 1, "state": "a", "questions": {}}',
    'DECIDE {"stream_id": 1, "state": "a", "questions": {"a": {"type": "choice"}}}',
    'DECIDE {"stream_id": 1, "state": "a", "questions": {"a": {"type": "noul", "more": 1}}}',
    'DECIDE {"stream_id": 1, "state": "a", "messages": [{"role": "user"}],'
    ' "questions": {"a": {"type": "noul"}}}',
    'BUFFER {"stream_id": 1, "buffer": "a", "tokens": [1], "text": "a"}',
    'BUFFER {"stream_id": 1, "buffer": "a"}',
    'FREE {"buffer": ""}',
    'CONTROLLER {"stream_id": 1}',
    'CONTROLLER {"stream_id": 1, "op": "drop"}',
    'CONTROLLER {"stream_id": 1, "op": "upload"}',
    'CONTROLLER {"stream_id": 1, "op": "upload", "binary": "A"}',
    'CONTROLLER {"stream_id": 1, "op": "upload", "binary": ""}',
    'CONTROLLER {"stream_id": 1, "op": "tag", "module_id": "ab", "tags": []}',
    'CONTROLLER {"stream_id": 1, "op": "tag", "tags": ["x"]}',
    "CANCEL {}",
]
ENTRIES = [
    'TOKEN {"token": 1, "stream_id": 1, "logprob": -1.0, "finish_reason": null}',
    'TOKEN {"stream_id": 1, "error": "x", "code": "timeout", "retryable": false}',
    'MSG {"stream_id": null, "error": "x", "code": "overloaded", "retryable": true,'
    ' "retry_after_ms": 1000}',
    'MSG {"stream_id": 1, "status": "loading", "model": "demo", "progress": 40}',
    'MSG {"stream_id": 1, "status": "accepted", "seed": 1, "model": "demo", "num_prompt": 0}',
    'MSG {"stream_id": 1, "status": "queued", "position": 1, "wait_ms_estimate": 0}',
    'MSG {"stream_id": 1, "status": "preempted"}',
    'MSG {"stream_id": 1, "status": "recomputes", "num_tokens": 12}',
    'MSG {"stream_id": 1, "status": "draining", "deadline_ms": 30000}',
    'MSG {"stream_id": 1, "tokens": [1]}',
    'MSG {"stream_id": 1, "text": "a"}',
    'MSG {"stream_id": 1, "buffer": "a", "length": 0}',
    'MSG {"stream_id": 1, "controller": {"tags": []}}',
    'MSG {"stream_id": 1, "controller": {"module_id": "ab", "wasm_size": 1, "compiled_size": 2,'
    ' "time": 3}}',
]


def split(message):
    verb, _, payload = message.partition(" ")
    return verb, json.loads(payload)


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("message", CLIENT)
def test_what_clients_may_send(message):
    assert is_valid(*split(message))


@pytest.mark.parametrize("message", WRONG)
def test_what_clients_may_not_send(message):
    assert not is_valid(*split(message))


@pytest.mark.parametrize("message", ENTRIES)
def test_entries_of_the_server_are_exact(message):
    verb, entry = split(message)
    assert is_valid(verb, [entry])
    assert not is_valid(verb, entry), "it is not an array"
    assert not is_valid(verb, [entry | {"more": 1}])
    for name in entry:
        fewer = {key: value for key, value in entry.items() if key != name}
        assert not is_valid(verb, [fewer]), name
        assert not is_valid(verb, [entry | {name: {}}]), name


def test_candidates_are_the_end_of_their_stream():
    entry = {"token": None, "stream_id": 1, "logprob": 0.0, "finish_reason": "stop"}
    entry["candidates"] = [{"logprob": -1.5, "num_tokens": 2}]
    assert is_valid("TOKEN", [entry])
    for wrong in ({"token": 1}, {"finish_reason": None}, {"candidates": []},
                  {"candidates": [{"logprob": -1.5}]}):  # fmt: skip
        assert not is_valid("TOKEN", [entry | wrong]), wrong


def test_answers_are_the_end_of_their_stream():
    entry = {"token": None, "stream_id": 1, "logprob": 0.0, "finish_reason": "stop",
             "answers": {"a": {"type": "noul", "noul": 0.25}}, "diagnostics": {"a": {}},
             "usage": {"input_tokens": 5, "cached_tokens": 0}}  # fmt: skip
    assert is_valid("TOKEN", [entry])
    for wrong in ({"token": 1}, {"finish_reason": None}, {"answers": {}}, {"usage": {}},
                  {"answers": {"a": {"type": "noul"}}},
                  {"diagnostics": {"a": {"x": 1}}}):  # fmt: skip
        assert not is_valid("TOKEN", [entry | wrong]), wrong
    del entry["usage"]
    assert not is_valid("TOKEN", [entry])


def test_it_refuses_what_the_server_refuses():
    """Every field of the base messages with every value."""
    groups = json.loads((ROOT / "tests" / "goldens" / "malformed.json").read_text())
    answers = {case: entry["answer"] for entry in groups["fields"] for case in entry["to"]}
    num_valid = num_refused = 0
    for name, text in malformed_corpus.field_cases():
        verb, _, payload = text.partition(" ")
        try:
            message = loads(payload)
        except ValueError:
            continue
        answer = "".join(answers[name])
        if re.search(NOT_OF_THE_SCHEMA, answer):
            continue
        assert is_valid(verb, message) == ('"error": ' not in answer), (name, answer)
        num_valid += is_valid(verb, message)
        num_refused += not is_valid(verb, message)
    assert min(num_valid, num_refused) > 400

"""tools/dev/grammar_streams.py on the schemas that pydantic makes of Python's types: what the
server generated under them is valid by jsonschema and by pydantic."""

import asyncio
import dataclasses
import datetime
import enum
import ipaddress
import pathlib
import sys
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import jsonschema
import pydantic
from pydantic import Field
from servers import bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import grammar_check  # noqa: E402
import grammar_streams  # noqa: E402
from grammar_streams import lmtp  # noqa: E402

DEMO = ROOT / "models" / "demo"
GRAMMAR_CHECK = bin_dir() / "grammar-check"


class Mood(enum.Enum):
    glad = "glad"
    sad = "sad \u00e9 \"so\""


class Cat(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str = Field(pattern="^[A-Z][a-z]{2,7}$")
    mood: Optional[Mood] = None
    friends: list["Cat"] = Field(max_length=2)


class Lamp(pydantic.BaseModel):
    kind: Literal["lamp"]
    is_on: bool
    bulbs: dict[str, Annotated[float, Field(ge=0, lt=100)]]


TYPES = [
    bool, int, float, str, type(None), Any, uuid.UUID, datetime.date,
    datetime.time, ipaddress.IPv4Address, Mood, Cat, Lamp, Union[Cat, Lamp, int], list[int],
    list[Lamp], dict[str, int], dict[str, list[bool]], tuple[int, str], tuple[bool, ...],
    Literal["a", "b", 3], Optional[str], Annotated[int, Field(ge=-5, le=17)],
    Annotated[int, Field(multiple_of=7)], Annotated[float, Field(gt=0, le=2.5)],
    Annotated[str, Field(min_length=3, max_length=9)],
    Annotated[str, Field(pattern="^(ab|c){2,5}[0-9]+$")],
    Annotated[list[Mood], Field(min_length=2, max_length=4)], list[list[Optional[int]]],
]  # fmt: skip
REFUSED = {"unique": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
           "names": {"type": "object", "propertyNames": {"maxLength": 5}}}  # fmt: skip


def test_what_is_wrong_is_found():
    schema = pydantic.create_model("Value", value=(int, ...)).model_json_schema()
    case = {"name": "int", "schema": schema}
    # The demo's tokens of printable letters are in their order.
    for text, reason, expected in [
        ('{"value":1}', "stop", None), ('{"value":"a"}', "stop", "is not valid"),
        ('{"value":12', "length", None), ('{"value":"a', "length", "is no beginning"),
    ]:  # fmt: skip
        stream = grammar_streams.Stream(case, 1)
        stream.tokens = [lmtp.Token(ord(letter) - ord("!"), 0.0, letter) for letter in text]
        stream.tokens[-1] = dataclasses.replace(stream.tokens[-1], finish_reason=reason)
        found = grammar_streams.faults_of([stream], GRAMMAR_CHECK, DEMO)
        assert [fault.partition(":")[0] for _, fault in found] == [expected] * bool(expected)


def test_what_finishes_is_valid_and_what_is_cut_may_go_on(demo):
    models = {}
    for i, kind in enumerate(TYPES):
        models[f"{i}: {kind}"] = pydantic.create_model("Value", value=(kind, ...))
    schemas = {name: model.model_json_schema() for name, model in models.items()} | REFUSED
    cases = [{"name": name, "schema": schema} for name, schema in schemas.items()]
    streams = asyncio.run(grammar_streams.run_streams(
        demo.endpoint, cases, grammar_streams.DEMO_BIAS))  # fmt: skip
    assert {s.case["name"] for s in streams if s.is_refused} == set(REFUSED)
    faults = grammar_streams.faults_of(streams, GRAMMAR_CHECK, DEMO)
    assert [(s.case["name"], s.seed, fault) for s, fault in faults] == []
    finished = [s for s in streams if s.is_finished]
    assert len(finished) >= len(TYPES)
    for stream in finished:
        models[stream.case["name"]].model_validate_json(stream.text)


KEPT = {"type": "object", "additionalProperties": False}
TAGGED = [{**KEPT, "properties": {"k": {"const": k}, "a": True}, "required": ["k"]} for k in "xy"]
# What is rewritten before llguidance reads it: it would refuse twelve of these.
REWRITTEN = [
    {"type": "string", "format": "byte"},
    {"oneOf": [{"type": "integer"}, {"enum": ["a", "ab"]}, {"type": "null"}]},
    {"oneOf": TAGGED},
    {"oneOf": [{**KEPT, "properties": {"a": True}, "required": ["a"]},
               {**KEPT, "properties": {"b": True}, "required": ["b"]}]},
    {**KEPT, "properties": {"a": {"type": "integer"}, "b": True},
     "dependentRequired": {"a": ["b"]}},
    {**KEPT, "properties": {"k": True, "a": True, "b": True},
     "dependentSchemas": {"a": {"required": ["b"], "properties": {"b": {"type": "boolean"}}}}},
    {"type": "string", "not": {"enum": ["a", "", "x\ny", "\u00e9]"]}},
    {"not": {"const": "ab"}, "type": ["string", "null"]},
    {"type": ["integer", "boolean"], "not": {"enum": [1, True]}},
    {"not": {"enum": [0.5, 5]}, "type": "number"},
    {"not": {"type": ["object", "string", "number"]}},
    {**KEPT, "properties": {"a": True, "b": True}, "not": {"required": ["a", "b"]}},
    {"type": "string", "not": {"anyOf": [{"minLength": 3}, {"const": "b"}]}},
    {"type": "number", "not": {"minimum": 1}},
    {"type": "integer", "not": {"not": {"minimum": 1}}},
]  # fmt: skip
VALUES = [
    None, True, False, 0, 1, 4, 5, 6, -1, 0.5, 0.75, "", "a", "ab", "abc", "b", "x\ny", "\u00e9]",
    "\u00e9", "q", [], [1, "a"], {}, {"a": 1}, {"a": "x"}, {"b": 2}, {"b": True}, {"a": 1, "b": 2},
    {"a": 1, "b": True}, {"k": "x"}, {"k": "y", "a": 0}, {"k": "z"}, {"k": 1, "a": 2, "b": False},
]  # fmt: skip


def test_what_is_rewritten_has_the_same_values():
    cases = []
    for i, schema in enumerate(REWRITTEN):
        judge = jsonschema.Draft202012Validator(schema)
        tests = [{"data": value, "valid": judge.is_valid(value)} for value in VALUES]
        assert {test["valid"] for test in tests} == {True, False}
        cases.append({"name": str(i), "schema": schema, "tests": tests})
    for case, answer in zip(cases, grammar_check.check(cases, GRAMMAR_CHECK, DEMO), strict=True):
        assert "error" not in answer, (case["schema"], answer)
        wanted = [t["valid"] for t in case["tests"] for _ in grammar_check.texts_of(t["data"])]
        texts = [text for t in case["tests"] for text in grammar_check.texts_of(t["data"])]
        wrong = [text for text, want, got in zip(texts, wanted, answer["taken"]) if want != got]
        assert wrong == [], case["schema"]

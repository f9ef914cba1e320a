"""One chat through every door, /v1/chat/completions, /v1/responses, /v1/messages and LMTP: the
same tokens, the same log probabilities in bits, the same counts. The model writes what a bias has
it write."""

import asyncio
import json
import urllib.request

import numpy
import pytest
from lmtp_socket import Socket
from test_grammars import TOOLS
from test_tool_calls import ASK, MARKS, model, pieces, server  # noqa: F401

SYSTEM, TOP, MOST = "Be brief.", 3, 60
SYSTEM_MESSAGE = {"role": "system", "content": SYSTEM}
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
SCHEMAS = [
    {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
    for tool in TOOLS
]
# How each door says it: whatever the model likes, some call, that call.
CHOICES = {
    "auto": ("auto", "auto", {"type": "auto"}),
    "forced": ("required", "required", {"type": "any"}),
    "tides": (
        {"type": "function", "function": {"name": "tides"}},
        {"type": "function", "name": "tides"},
        {"type": "tool", "name": "tides"},
    ),
}


@pytest.fixture
def post(server):  # noqa: F811
    def post(path, **body):
        url = f"http://{server.endpoint}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    return post


@pytest.fixture
def generate(server):  # noqa: F811
    """The entries of an LMTP stream, and how many tokens its prompt had."""

    async def entries(fields):
        async with Socket(server.endpoint) as s:
            before = (await s.model_info())["stats"]["num_prompt_tokens"]
            await s.send("GENERATE", stream_id=1, **fields)
            got = [await s.token_of(1)]
            while "error" not in got[-1] and not got[-1]["finish_reason"]:
                got.append(await s.token_of(1))
            return got, (await s.model_info())["stats"]["num_prompt_tokens"] - before

    return lambda **fields: asyncio.run(entries(fields))


@pytest.fixture
def draws(model):  # noqa: F811
    """What all doors are told of how to draw; the model begins with the mark that it `writes`."""

    def fields(writes=None):
        bias = {str(model[1][mark]): 100 if mark == writes else -100 for mark in MARKS}
        return {"temperature": 1, "seed": 4, "logit_bias": bias}

    return fields


def bits(numbers):
    return numpy.array(numbers, numpy.float32).view(numpy.uint32).tolist()


def counts_of(usage):
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["completion_tokens"]
    cached = usage.get("cache_read_input_tokens", 0)
    return usage["input_tokens"] + cached, usage["output_tokens"]


def test_a_chat_is_the_same_at_all_doors(post, generate, draws):
    chat = post("/v1/chat/completions", messages=[SYSTEM_MESSAGE, *ASK], max_completion_tokens=MOST,
                logprobs=True, top_logprobs=TOP, return_token_ids=True, **draws())  # fmt: skip
    response = post("/v1/responses", instructions=SYSTEM, input=ASK, max_output_tokens=MOST,
                    top_logprobs=TOP, include=["message.output_text.logprobs"],
                    **draws())  # fmt: skip
    message = post("/v1/messages", system=SYSTEM, messages=ASK, max_tokens=MOST, **draws())
    entries, num_prompt = generate(messages=[SYSTEM_MESSAGE, *ASK], max_tokens=MOST,
                                   top_logprobs=TOP, **draws())  # fmt: skip

    (choice,) = chat["choices"]
    assert [entry["token"] for entry in entries] == choice["token_ids"]
    shown = choice["logprobs"]["content"]
    assert bits([entry["logprob"] for entry in entries]) == bits([one["logprob"] for one in shown])
    for entry, one in zip(entries, shown, strict=True):
        best = list(entry["top_logprobs"].values())[:TOP]
        assert bits(best) == bits([other["logprob"] for other in one["top_logprobs"]])
    (item,) = response["output"]
    (part,) = item["content"]
    assert part["logprobs"] == shown, "token, bytes, its log probability and those of others"

    text = choice["message"]["content"]
    assert part["text"] == text == "".join(entry["text"] for entry in entries)
    assert [block["text"] for block in message["content"]] == [text]
    counts = num_prompt, len(entries)
    assert counts == (len(chat["choices"][0]["prompt_token_ids"]), MOST)
    assert [counts_of(answer["usage"]) for answer in (chat, response, message)] == [counts] * 3
    stops = choice["finish_reason"], entries[-1]["finish_reason"], message["stop_reason"]
    assert stops == ("length", "length", "max_tokens")
    assert response["incomplete_details"]["reason"] == "max_output_tokens"


@pytest.mark.parametrize("choice", CHOICES)
def test_no_stop_string_ends_a_call_at_any_door(post, generate, draws, choice):
    """Each that the call has in it, in its form, its name or its arguments."""
    by_chat, by_response, by_message = CHOICES[choice]
    one = {"parallel_tool_calls": False, **draws("<tool_call>")}
    asked = {"messages": ASK, "tools": TOOLS, "tool_choice": by_chat, **one}
    whole = post("/v1/chat/completions", max_completion_tokens=200, **asked)
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    stop = ["</tool_call>", name[1:4], arguments[-6:], "{"]
    if choice != "auto":  # what opens a call is text until then
        stop.append("tool_call")

    chat = post("/v1/chat/completions", max_completion_tokens=200, stop=stop, **asked)
    assert chat["choices"][0]["message"]["tool_calls"][0]["function"] == call["function"]
    assert chat["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    response = post("/v1/responses", input=ASK, tools=FLAT, tool_choice=by_response,
                    max_output_tokens=200, **one)  # fmt: skip
    (item,) = response["output"]
    assert (item["name"], item["arguments"], item["status"]) == (name, arguments, "completed")
    message = post("/v1/messages", messages=ASK, tools=SCHEMAS, stop_sequences=stop, max_tokens=200,
                   tool_choice={**by_message, "disable_parallel_tool_use": True},
                   **draws("<tool_call>"))  # fmt: skip
    (block,) = message["content"]
    assert (block["name"], block["input"]) == (name, json.loads(arguments))
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    entries, _ = generate(max_tokens=200, parsed=True, stop=stop, **asked)
    assert pieces(entries) == ("", "", [[name, arguments, True]])
    assert "stop_text" not in entries[-1]
    counts = [counts_of(answer["usage"]) for answer in (whole, chat, response, message)]
    assert counts == counts[:1] * 4 and counts[0][1] == len(entries)

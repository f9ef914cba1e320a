import json

import openai
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, TOOL, V1, WEATHER, WEATHER_CALL, Weather,
    call_for, first_of, has_text, is_call, is_weather, row, same, user,
)  # fmt: skip

client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=ROW_S)
SETTINGS = {"model": MODEL, "temperature": 0, "max_tokens": MAX_TOKENS}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def chat(*messages, **options):
    """Texts are the user's."""
    messages = [user(m) if isinstance(m, str) else m for m in messages]
    return client.chat.completions.create(messages=messages, **SETTINGS, **options)


def calls_of(answer):
    choice = answer.choices[0]
    same(choice.finish_reason, "tool_calls")
    calls = choice.message.tool_calls or []
    same(len({call.id for call in calls}), len(calls))
    return calls


def is_call_of_weather(calls, city=None):
    call = first_of(calls, city)
    is_call(call.function.name, call.function.arguments, city)


def are_calls(calls, *cities):
    same(len(calls), len(cities))
    for call, city in zip(calls, cities, strict=True):
        is_call(call.function.name, call.function.arguments, city)


def joined(stream):
    """(text, {index: [id, name, arguments]}, finish reason) of a stream."""
    text, calls, reason = "", {}, None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, ["", "", ""])
                for i, piece in enumerate((delta.id, delta.function.name,
                                           delta.function.arguments)):  # fmt: skip
                    call[i] += piece or ""
    return text, calls, reason


def is_streamed_call(stream, city=None):
    text, calls, reason = joined(stream)
    same((text.strip(), list(calls), reason), ("", list(range(len(calls))), "tool_calls"))
    identifier, name, arguments = first_of(calls, city)
    has_text(identifier)
    is_call(name, arguments, city)


def after_call(result, **more):
    """The second turn of a call, with what the tool said, and more in the assistant's message."""
    asked = user(call_for("Paris"))
    called = chat(asked, tools=[TOOL], tool_choice="required").choices[0].message
    said = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": result}
    called = called.model_dump() | more if more else called
    message = chat(asked, called, said, tools=[TOOL]).choices[0].message
    assert WEATHER in (message.content or ""), f"the result is not in {message!r}"


@row("models")
def _():
    assert MODEL in [model.id for model in client.models.list()]


@row("chat")
def _():
    answer = chat(QUESTION)
    has_text(answer.choices[0].message.content)
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@row("chat, streamed")
def _():
    whole = chat(QUESTION).choices[0]
    stream = chat(QUESTION, stream=True, stream_options={"include_usage": True})
    same(joined(stream), (whole.message.content, {}, whole.finish_reason))


@row("tools, auto")
def _():
    are_calls(calls_of(chat(call_for("Paris"), tools=[TOOL])), "Paris")


@row("tools, auto, streamed")
def _():
    is_streamed_call(chat(call_for("Paris"), tools=[TOOL], stream=True), "Paris")


@row("tools, auto, answered by text")
def _():
    choice = chat(QUESTION, tools=[TOOL], tool_choice="auto").choices[0]
    has_text(choice.message.content)
    assert not choice.message.tool_calls, f"a call: {choice.message.tool_calls}"


@row("tools, required")
def _():
    is_call_of_weather(calls_of(chat(QUESTION, tools=[TOOL], tool_choice="required")))


@row("tools, required, streamed")
def _():
    is_streamed_call(chat(QUESTION, tools=[TOOL], tool_choice="required", stream=True))


@row("a named tool")
def _():
    answer = chat(QUESTION, tools=[TOOL], tool_choice=NAMED)
    are_calls(answer.choices[0].message.tool_calls, None)


@row("allowed_tools")
def _():
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
    is_call_of_weather(calls_of(chat(QUESTION, tools=[TOOL], tool_choice=allowed)))


@row("tools, none")
def _():
    has_text(chat(QUESTION, tools=[TOOL], tool_choice="none").choices[0].message.content)


@row("parallel calls")
def _():
    calls = calls_of(chat(call_for("Paris", "Oslo"), tools=[TOOL]))
    same(sorted(json.loads(c.function.arguments)["city"] for c in calls), ["Oslo", "Paris"])


@row("parallel_tool_calls=False")
def _():
    answer = chat(call_for("Paris", "Oslo"), tools=[TOOL], parallel_tool_calls=False)
    are_calls(calls_of(answer), None)


@row("a strict tool")
def _():
    parsed = client.chat.completions.parse(
        messages=[user(WEATHER_CALL)], tools=[openai.pydantic_function_tool(Weather)], **SETTINGS
    )
    is_weather(calls_of(parsed)[0].function.parsed_arguments)


@row("a vendor's tool beside")
def _():
    tools = [TOOL, {"type": "web_search"}]
    are_calls(calls_of(chat(call_for("Paris"), tools=tools)), "Paris")


@row("a tool's result")
def _():
    after_call(WEATHER)


@row("a tool's result, in parts")
def _():
    after_call([{"type": "text", "text": WEATHER}])


@row("a tool's result, after reasoning_content")
def _():
    after_call(WEATHER, content="", reasoning_content="Let me see.")


@row(".parse()")
def _():
    answer = client.chat.completions.parse(
        messages=[user(DESCRIBE)], response_format=Weather, **SETTINGS
    )
    is_weather(answer.choices[0].message.parsed)


@row(".stream() with a tool")
def _():
    with client.chat.completions.stream(
        messages=[user(call_for("Paris"))], tools=[TOOL], **SETTINGS
    ) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        are_calls(calls_of(stream.get_final_completion()), "Paris")
    same([(event.name, event.index) for event in done], [("get_weather", 0)])


@row("functions=, as in 2023")
def _():
    answer = chat(QUESTION, functions=[TOOL["function"]], function_call={"name": "get_weather"})
    call = answer.choices[0].message.function_call
    is_call(call.name, call.arguments)


@row("reasoning_effort")
def _():
    has_text(chat(QUESTION, reasoning_effort="low").choices[0].message.content)


@row("chat_template_kwargs")
def _():
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    has_text(chat(QUESTION, extra_body=kwargs).choices[0].message.content)


@row("cached_tokens")
def _():
    chat(QUESTION)
    details = chat(QUESTION).usage.prompt_tokens_details
    assert details and details.cached_tokens, f"prompt_tokens_details: {details}"


@row("X-Request-Id")
def _():
    same(chat(QUESTION, extra_headers={"X-Request-Id": "mine"})._request_id, "mine")

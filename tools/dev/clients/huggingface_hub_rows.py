from huggingface_hub import InferenceClient
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, SERVER, TOOL, V1, WEATHER, Weather, call_for,
    first_of, has_text, is_call, is_weather, row, same, user,
)  # fmt: skip

SETTINGS = {"max_tokens": MAX_TOKENS, "temperature": 0}
SCHEMA = {"type": "json_schema",
          "json_schema": {"name": "weather", "schema": Weather.model_json_schema()}}  # fmt: skip
client = InferenceClient(SERVER, timeout=ROW_S)


def ask(*messages, **options):
    return client.chat_completion(list(messages), **SETTINGS, **options)


def is_answer_with_call(answer, city=None):
    call = first_of(answer.choices[0].message.tool_calls or [], city)
    is_call(call.function.name, call.function.arguments, city)


@row("chat_completion without model=")
def _():
    has_text(ask(user(QUESTION)).choices[0].message.content)


@row("chat_completion without model=, streamed")
def _():
    chunks = list(ask(user(QUESTION), stream=True))
    has_text("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))


@row("chat_completion(model=)")
def _():
    has_text(ask(user(QUESTION), model=MODEL).choices[0].message.content)


@row("base_url=, chat.completions.create(model=)")
def _():
    other = InferenceClient(base_url=V1, api_key="none", timeout=ROW_S)
    answer = other.chat.completions.create(model=MODEL, messages=[user(QUESTION)], **SETTINGS)
    has_text(answer.choices[0].message.content)


@row("tools")
def _():
    is_answer_with_call(ask(user(call_for("Paris")), model=MODEL, tools=[TOOL]), "Paris")


@row("tools without model=")
def _():
    is_answer_with_call(ask(user(call_for("Paris")), tools=[TOOL], tool_choice="auto"), "Paris")


@row("tools, streamed")
def _():
    name = arguments = ""
    for chunk in ask(user(call_for("Paris")), model=MODEL, tools=[TOOL], stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    is_call(name, arguments, "Paris")


@row("tools, required")
def _():
    is_answer_with_call(ask(user(QUESTION), model=MODEL, tools=[TOOL], tool_choice="required"))


@row("tools, named")
def _():
    named = {"function": {"name": "get_weather"}}
    is_answer_with_call(ask(user(QUESTION), model=MODEL, tools=[TOOL], tool_choice=named))


@row("tool_prompt")
def _():
    has_text(ask(user(QUESTION), model=MODEL, tools=[TOOL], tool_choice="none",
                 tool_prompt="You may call:").choices[0].message.content)  # fmt: skip


@row("a tool's result")
def _():
    asked = user(call_for("Paris"))
    called = ask(asked, model=MODEL, tools=[TOOL], tool_choice="required").choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": WEATHER}
    text = ask(asked, called, result, model=MODEL, tools=[TOOL]).choices[0].message.content
    assert WEATHER in str(text), f"the result is not in {text!r}"


@row("response_format")
def _():
    answer = ask(user(DESCRIBE), model=MODEL, response_format=SCHEMA)
    is_weather(Weather.model_validate_json(answer.choices[0].message.content))

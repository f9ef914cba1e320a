import asyncio

import litellm
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, SERVER, TOOL, V1, WEATHER, Weather, call_for,
    first_of, has_text, is_call, is_weather, row, same, user,
)  # fmt: skip


def ask(*messages, provider="openai", **options):
    return litellm.completion(
        model=f"{provider}/{MODEL}", api_base=V1, api_key="none", messages=list(messages),
        temperature=0, max_tokens=MAX_TOKENS, num_retries=0, timeout=ROW_S, **options,
    )  # fmt: skip


def is_answer_with_call(answer, city=None):
    choice = answer.choices[0]
    call = first_of(choice.message.tool_calls or [], city)
    same(choice.finish_reason, "tool_calls")
    is_call(call.function.name, call.function.arguments, city)


for provider in ("openai", "hosted_vllm", "litellm_proxy"):

    @row(f"{provider}/, text")
    def _(provider=provider):
        has_text(ask(user(QUESTION), provider=provider).choices[0].message.content)

    @row(f"{provider}/, tools")
    def _(provider=provider):
        is_answer_with_call(ask(user(call_for("Paris")), tools=[TOOL], provider=provider), "Paris")


@row("tools, required")
def _():
    is_answer_with_call(ask(user(QUESTION), tools=[TOOL], tool_choice="required"))


@row("tools, streamed")
def _():
    messages = [user(call_for("Paris"))]
    chunks = list(ask(*messages, tools=[TOOL], stream=True))
    is_answer_with_call(litellm.stream_chunk_builder(chunks, messages), "Paris")


@row("a tool's result")
def _():
    asked = user(call_for("Paris"))
    called = ask(asked, tools=[TOOL], tool_choice="required").choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "name": "get_weather",
              "content": WEATHER}  # fmt: skip
    text = ask(asked, called, result, tools=[TOOL]).choices[0].message.content
    assert WEATHER in str(text), f"the result is not in {text!r}"


@row("response_format")
def _():
    answer = ask(user(DESCRIBE), response_format=Weather).choices[0].message.content
    is_weather(Weather.model_validate_json(answer))


@row("decisions")
def _():
    questions = [{"type": "predicate", "name": "a", "instructions": "Is it polite?"}]
    answer = litellm.decisions(
        model=f"openai/{MODEL}", input="Hello", questions=questions, api_base=V1, api_key="none",
        timeout=ROW_S)  # fmt: skip
    same(0 < answer.answers[0].probability < 1, True)


@row("systemone")
def _():
    questions = {"a": {"type": "noul", "instructions": "Is it polite?"}}
    answer = litellm.systemone(
        model=f"hosted_vllm/{MODEL}", state="Hello", questions=questions, api_base=V1,
        api_key="none", timeout=ROW_S)  # fmt: skip
    same("a" in str(answer), True)


@row("openai/responses/, tools")
def _():
    answer = ask(user(call_for("Paris")), tools=[TOOL], provider="openai/responses")
    is_answer_with_call(answer, "Paris")


@row("anthropic/, tools")
def _():
    answer = litellm.completion(
        model=f"anthropic/{MODEL}", messages=[user(call_for("Paris"))], tools=[TOOL],
        api_base=SERVER, api_key="none", temperature=0, max_tokens=MAX_TOKENS, num_retries=0,
        timeout=ROW_S)  # fmt: skip
    is_answer_with_call(answer, "Paris")


@row("responses()")
def _():
    answer = litellm.responses(
        model=f"openai/{MODEL}", input=QUESTION, api_base=V1, api_key="none", timeout=ROW_S,
        max_output_tokens=MAX_TOKENS)  # fmt: skip
    has_text(answer.output[-1].content[0].text)


for provider, base in {"anthropic": SERVER, "openai": V1}.items():

    @row(f"anthropic.messages, {provider}/")
    def _(provider=provider, base=base):
        answer = asyncio.run(litellm.anthropic.messages.acreate(
            model=f"{provider}/{MODEL}", api_base=base, api_key="none", timeout=ROW_S,
            messages=[user(QUESTION)], max_tokens=MAX_TOKENS))  # fmt: skip
        has_text(answer["content"][0]["text"])

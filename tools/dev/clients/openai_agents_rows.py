import asyncio

import openai
from agents import (
    Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
    set_tracing_disabled,
)  # fmt: skip
from rows import (
    CALLED, DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, Weather, call_for, call_text,
    get_weather, has_text, is_weather, loop_ran, repeat, row, same,
)  # fmt: skip

set_tracing_disabled(True)


def agent(name="one", tool_choice=None, api=OpenAIChatCompletionsModel, **options):
    client = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=0, timeout=ROW_S)
    return Agent(
        name=name, model=api(MODEL, client), instructions="Be helpful.",
        model_settings=ModelSettings(temperature=0, max_tokens=MAX_TOKENS, tool_choice=tool_choice),
        **options,
    )  # fmt: skip


def ask(agent, text):
    return Runner.run_sync(agent, text, max_turns=3).final_output


@row("text")
def _():
    has_text(ask(agent(), QUESTION))


@row("tools")
def _():
    loop_ran(ask(agent(tools=[function_tool(get_weather)]), call_for("Paris")))


@row("tools, streamed")
def _():
    async def streamed():
        result = Runner.run_streamed(
            agent(tools=[function_tool(get_weather)]), call_for("Paris"), max_turns=3
        )
        async for _ in result.stream_events():
            pass
        return result.final_output

    loop_ran(asyncio.run(streamed()))


@row("tools, required")
def _():
    ask(agent(tools=[function_tool(get_weather)], tool_choice="required"), call_for("Paris"))
    assert CALLED, "get_weather was not called"


@row("output_type")
def _():
    is_weather(ask(agent(output_type=Weather), DESCRIBE))


@row("tools and output_type")
def _():
    both = agent(tools=[function_tool(get_weather)], output_type=Weather)
    is_weather(ask(both, call_for("Paris")))
    same(CALLED, ["Paris"])


@row("handoffs")
def _():
    asked = repeat(call_text("transfer_to_two", "{}"))
    has_text(ask(agent(handoffs=[agent("two")]), asked))


# The default.
def responses_agent(**options):
    return agent(api=OpenAIResponsesModel, **options)


@row("responses, text")
def _():
    has_text(ask(responses_agent(), QUESTION))


@row("responses, tools")
def _():
    loop_ran(ask(responses_agent(tools=[function_tool(get_weather)]), call_for("Paris")))


@row("responses, tools, streamed")
def _():
    async def streamed():
        one = responses_agent(tools=[function_tool(get_weather)])
        result = Runner.run_streamed(one, call_for("Paris"), max_turns=3)
        async for _ in result.stream_events():
            pass
        return result.final_output

    loop_ran(asyncio.run(streamed()))


@row("responses, output_type")
def _():
    is_weather(ask(responses_agent(output_type=Weather), DESCRIBE))

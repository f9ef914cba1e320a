import asyncio

from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from rows import (
    CALLED, DESCRIBE, MAX_TOKENS, MODEL, QUESTION, SERVER, V1, Weather, call_for, get_weather,
    has_text, is_weather, loop_ran, row, same,
)  # fmt: skip

openai = OpenAIProvider(base_url=V1, api_key="none")
model = OpenAIChatModel(MODEL, provider=openai)


def agent(model=model, **options):
    return Agent(model, model_settings={"temperature": 0, "max_tokens": MAX_TOKENS}, **options)


@row("text")
def _():
    has_text(agent().run_sync(QUESTION).output)


@row("tools")
def _():
    loop_ran(agent(tools=[get_weather]).run_sync(call_for("Paris")).output)


@row("tools, streamed")
def _():
    async def streamed():
        async with agent(tools=[get_weather]).run_stream(call_for("Paris")) as run:
            return await run.get_output()

    loop_ran(asyncio.run(streamed()))


for name, output in {"output_type": Weather, "output_type, ToolOutput": ToolOutput(Weather),
                     "output_type, NativeOutput": NativeOutput(Weather),
                     "output_type, PromptedOutput": PromptedOutput(Weather)}.items():  # fmt: skip

    @row(name)
    def _(output=output):
        is_weather(agent(output_type=output).run_sync(DESCRIBE).output)


@row("tools and output_type, NativeOutput")
def _():
    both = agent(tools=[get_weather], output_type=NativeOutput(Weather))
    is_weather(both.run_sync(call_for("Paris")).output)
    same(CALLED, ["Paris"])


@row("output_type and text")
def _():
    assert agent(output_type=[Weather, str]).run_sync(QUESTION).output, "no output"


anthropic = AnthropicProvider(base_url=SERVER, api_key="none")
others = {
    "OpenAIResponsesModel": OpenAIResponsesModel(MODEL, provider=openai),
    "AnthropicModel": AnthropicModel(MODEL, provider=anthropic),
}
for name, other in others.items():

    @row(f"{name}, text")
    def _(other=other):
        has_text(agent(other).run_sync(QUESTION).output)

    @row(f"{name}, tools")
    def _(other=other):
        loop_ran(agent(other, tools=[get_weather]).run_sync(call_for("Paris")).output)

    @row(f"{name}, tools, streamed")
    def _(other=other):
        async def streamed():
            async with agent(other, tools=[get_weather]).run_stream(call_for("Paris")) as run:
                return await run.get_output()

        loop_ran(asyncio.run(streamed()))

    @row(f"{name}, output_type")
    def _(other=other):
        is_weather(agent(other, output_type=Weather).run_sync(DESCRIBE).output)

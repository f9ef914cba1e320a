import json

from rows import (
    CALLED, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, call_for, get_weather, has_text, row,
)  # fmt: skip
from smolagents import ChatMessage, CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

CODE = "Thought: done\n<code>\nfinal_answer(get_weather('Paris'))\n</code>"


def model(**options):
    return OpenAIServerModel(
        MODEL, V1, api_key="none", client_kwargs={"max_retries": 0, "timeout": ROW_S},
        temperature=0, max_tokens=MAX_TOKENS, **options,
    )  # fmt: skip


def message(text):
    return ChatMessage(role="user", content=[{"type": "text", "text": text}])


@row("model, text")
def _():
    has_text(model().generate([message(QUESTION)]).content)


@row("model, streamed")
def _():
    has_text("".join(d.content or "" for d in model().generate_stream([message(QUESTION)])))


@row("model, tools, auto")
def _():
    answer = model().generate([message(call_for("Paris"))], tools_to_call_from=[tool(get_weather)],
                              tool_choice="auto")  # fmt: skip
    assert answer.tool_calls, f"no call: {answer.content!r}"


@row("ToolCallingAgent")
def _():
    # It sends `required`; what so small a model answers beneath its instructions is any call.
    steps = list(ToolCallingAgent([tool(get_weather)], model(), max_steps=2).run(
        call_for("Paris"), stream=True))  # fmt: skip
    assert any(getattr(step, "tool_calls", None) for step in steps), "no tool was called"


@row("ToolCallingAgent, streamed")
def _():
    agent = ToolCallingAgent([tool(get_weather)], model(), max_steps=2, stream_outputs=True)
    steps = list(agent.run(call_for("Paris"), stream=True))
    assert any(getattr(step, "tool_calls", None) for step in steps), "no tool was called"


@row("CodeAgent")
def _():
    # It stops at its closing tag, and writes it itself.
    forced = model(extra_body={"structured_outputs": {"choice": [CODE]}})
    CodeAgent([tool(get_weather)], forced, max_steps=2).run("What is the weather in Paris?")
    assert CALLED == ["Paris"], f"called for {CALLED}"


@row("CodeAgent, structured")
def _():
    agent = CodeAgent([tool(get_weather)], model(), max_steps=1,
                      use_structured_outputs_internally=True)  # fmt: skip
    first, *_ = [s for s in agent.run("What is the weather in Paris?", stream=True)
                 if getattr(s, "model_output", None)]  # fmt: skip
    assert set(json.loads(first.model_output)) == {"thought", "code"}, first.model_output

import dspy
import litellm
from rows import (
    CALLED, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, call_for, get_weather, has_text, is_call, row,
    same,
)  # fmt: skip

# What it sends depends on what it knows of the model: 3.0 asks litellm, 3.4 its LM.
litellm.register_model({f"openai/{MODEL}": {
    "litellm_provider": "openai", "mode": "chat", "supports_function_calling": True,
    "supports_response_schema": True,
}})  # fmt: skip


class Known(dspy.LM):
    supports_function_calling = supports_response_schema = True
    supported_params = frozenset({"response_format", "tools", "tool_choice"})


# The form that ChatAdapter asks for is beyond so small a model: this is all it may say.
FIELDS = {"next_thought": "", "next_tool_name": "get_weather",
          "next_tool_args": '{"city": "Paris"}', "reasoning": "", "answer": "Paris",
          "completed": ""}  # fmt: skip
FORCED = {"structured_outputs": {"choice": [
    "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in FIELDS.items())]}}  # fmt: skip


def lm(**options):
    return Known(f"openai/{MODEL}", api_base=V1, api_key="none", temperature=0, cache=False,
                 max_tokens=MAX_TOKENS, num_retries=0, timeout=ROW_S, **options)  # fmt: skip


@row("LM")
def _():
    has_text(lm()(QUESTION)[0])


@row("Predict, ChatAdapter")
def _():
    with dspy.context(lm=lm(extra_body=FORCED), adapter=dspy.ChatAdapter()):
        has_text(dspy.Predict("question -> answer")(question=QUESTION).answer)


@row("Predict, JSONAdapter")
def _():
    with dspy.context(lm=lm(), adapter=dspy.JSONAdapter()):
        has_text(dspy.Predict("question -> answer")(question=QUESTION).answer)


@row("Predict, native calls")
def _():
    signature = dspy.Signature("question: str, tools: list[dspy.Tool] -> outputs: dspy.ToolCalls",
                               custom_types={"dspy.Tool": dspy.Tool})  # fmt: skip
    adapter = dspy.ChatAdapter(use_native_function_calling=True)
    with dspy.context(lm=lm(), adapter=adapter):
        # Said twice, since its instructions stand around it.
        question = f"{call_for('Paris')}\n\n{call_for('Paris')}"
        made = dspy.Predict(signature)(question=question, tools=[dspy.Tool(get_weather)])
    assert made.outputs and made.outputs.tool_calls, f"no call: {made}"
    is_call(made.outputs.tool_calls[0].name, made.outputs.tool_calls[0].args, "Paris")


@row("ReAct")
def _():
    with dspy.context(lm=lm(extra_body=FORCED), adapter=dspy.ChatAdapter()):
        agent = dspy.ReAct("question -> answer", tools=[get_weather], max_iters=1)
        has_text(agent(question=QUESTION).answer)
    same(CALLED, ["Paris"])


@row("streamify")
def _():
    with dspy.context(lm=lm(), adapter=dspy.JSONAdapter()):
        stream = dspy.streamify(dspy.Predict("question -> answer"), async_streaming=False)
        *_, last = stream(question=QUESTION)
    has_text(last.answer)

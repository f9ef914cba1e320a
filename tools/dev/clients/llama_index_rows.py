import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, Weather, call_for, first_of, get_weather,
    has_text, is_call, is_weather, loop_ran, row, same,
)  # fmt: skip

llm = OpenAILike(
    model=MODEL, api_base=V1, api_key="none", is_chat_model=True, is_function_calling_model=True,
    context_window=8192, max_tokens=MAX_TOKENS, temperature=0, max_retries=0, timeout=ROW_S,
)  # fmt: skip
tool = FunctionTool.from_defaults(get_weather)


def is_answer_with_call(answer, city=None):
    calls = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=True)
    call = first_of(calls, city)
    is_call(call.tool_name, call.tool_kwargs, city)


@row("complete")
def _():
    has_text(llm.complete(QUESTION).text)


@row("chat")
def _():
    has_text(llm.chat([ChatMessage(role="user", content=QUESTION)]).message.content)


@row("stream_chat")
def _():
    *_, last = llm.stream_chat([ChatMessage(role="user", content=QUESTION)])
    has_text(last.message.content)


@row("chat_with_tools")
def _():
    is_answer_with_call(llm.chat_with_tools([tool], call_for("Paris")), "Paris")


@row("stream_chat_with_tools")
def _():
    *_, last = llm.stream_chat_with_tools([tool], call_for("Paris"))
    is_answer_with_call(last, "Paris")


@row("chat_with_tools(tool_required=True)")
def _():
    is_answer_with_call(llm.chat_with_tools([tool], QUESTION, tool_required=True))


@row("predict_and_call")
def _():
    answer = llm.predict_and_call([tool], call_for("Paris"))
    loop_ran(answer.response)


@row("FunctionAgent")
def _():
    async def asked():
        agent = FunctionAgent(tools=[tool], llm=llm, system_prompt="Be helpful.")
        return await agent.run(call_for("Paris"), max_iterations=4)

    loop_ran(asyncio.run(asked()))


@row("as_structured_llm")
def _():
    is_weather(llm.as_structured_llm(Weather).complete(DESCRIBE).raw)


@row("structured_predict")
def _():
    is_weather(llm.structured_predict(Weather, PromptTemplate("{text}"), text=DESCRIBE))

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_openai import ChatOpenAI
from rows import (
    CALLED, DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, WEATHER, WEATHER_CALL, Weather,
    call_for, first_of, get_weather, has_text, is_call, is_weather, loop_ran, row, same, user,
)  # fmt: skip

llm = ChatOpenAI(model=MODEL, base_url=V1, api_key="none", temperature=0, max_tokens=MAX_TOKENS,
                 max_retries=0, timeout=ROW_S)  # fmt: skip


responses = ChatOpenAI(
    model=MODEL, base_url=V1, api_key="none", temperature=0, max_tokens=MAX_TOKENS, max_retries=0,
    timeout=ROW_S, use_responses_api=True,
)  # fmt: skip


def is_message_with_call(message, city=None):
    assert not message.invalid_tool_calls, f"broken {message.invalid_tool_calls}"
    call = first_of(message.tool_calls, city)
    is_call(call["name"], call["args"], city)


def joined(stream):
    first, *others = stream
    for chunk in others:
        first += chunk
    return first


@row("invoke")
def _():
    has_text(llm.invoke(QUESTION).content)


@row("stream")
def _():
    has_text(joined(llm.stream(QUESTION)).content)


@row("bind_tools")
def _():
    is_message_with_call(llm.bind_tools([get_weather]).invoke(call_for("Paris")), "Paris")


@row("bind_tools, streamed")
def _():
    stream = llm.bind_tools([get_weather]).stream(call_for("Paris"))
    is_message_with_call(joined(stream), "Paris")


@row('bind_tools(tool_choice="any")')
def _():
    is_message_with_call(llm.bind_tools([get_weather], tool_choice="any").invoke(QUESTION))


@row('bind_tools(tool_choice="get_weather")')
def _():
    named = llm.bind_tools([get_weather], tool_choice="get_weather", strict=True)
    is_message_with_call(named.invoke(QUESTION))


@row("create_agent")
def _():
    agent = create_agent(llm, [get_weather], system_prompt="Be helpful.")
    answer = agent.invoke({"messages": [user(call_for("Paris"))]}, {"recursion_limit": 6})
    loop_ran(answer["messages"][-1].content)


@row("create_agent, streamed")
def _():
    agent = create_agent(llm, [get_weather], system_prompt="Be helpful.")
    stream = agent.stream({"messages": [user(call_for("Paris"))]}, {"recursion_limit": 6},
                          stream_mode="messages")  # fmt: skip
    loop_ran("".join(str(message.content) for message, _ in stream))


@row("use_responses_api, invoke")
def _():
    has_text(responses.invoke(QUESTION).text)


@row("use_responses_api, stream")
def _():
    has_text(joined(responses.stream(QUESTION)).text)


@row("use_responses_api, bind_tools, streamed")
def _():
    stream = responses.bind_tools([get_weather]).stream(call_for("Paris"))
    is_message_with_call(joined(stream), "Paris")


@row('use_responses_api, bind_tools(tool_choice="any")')
def _():
    is_message_with_call(responses.bind_tools([get_weather], tool_choice="any").invoke(QUESTION))


@row("use_responses_api, create_agent")
def _():
    agent = create_agent(responses, [get_weather], system_prompt="Be helpful.")
    answer = agent.invoke({"messages": [user(call_for("Paris"))]}, {"recursion_limit": 6})
    loop_ran(answer["messages"][-1].text)


@row("use_responses_api, with_structured_output")
def _():
    is_weather(responses.with_structured_output(Weather).invoke(DESCRIBE))


@row("create_agent(response_format=)")
def _():
    agent = create_agent(llm, [get_weather], response_format=Weather)
    answer = agent.invoke({"messages": [user(WEATHER_CALL)]}, {"recursion_limit": 6})
    is_weather(answer["structured_response"])


@row("create_agent(response_format=ProviderStrategy)")
def _():
    agent = create_agent(llm, [get_weather], response_format=ProviderStrategy(Weather))
    answer = agent.invoke({"messages": [user(call_for("Paris"))]}, {"recursion_limit": 6})
    is_weather(answer["structured_response"])
    same(CALLED, ["Paris"])


for method in ("json_schema", "function_calling", "json_mode"):

    @row(f"with_structured_output, {method}")
    def _(method=method):
        is_weather(llm.with_structured_output(Weather, method=method).invoke(DESCRIBE))


def decisions_model():
    from langchain_openai.decisions import OpenAIDecisions

    return OpenAIDecisions(model=MODEL, base_url=V1, api_key="none", timeout=ROW_S)


@row("OpenAIDecisions")
def _():
    from langchain_openai.decisions import Choice, Predicate, Score

    answer = decisions_model().invoke({"input": "Hello", "questions": {
        "a": Predicate(instructions="Is it polite?"),
        "b": Choice(instructions="Which?", choices={"one": "1", "two": "2"}),
        "c": Score(instructions="How much?", levels=["little", "much"]),
    }})  # fmt: skip
    same(0 < answer.predicates["a"].probability < 1, True)
    same(answer.choices["b"].choice in ("one", "two"), True)


@row("OpenAIModelRouterMiddleware")
def _():
    from langchain_openai.middleware import ModelChoice, OpenAIModelRouterMiddleware

    names = {"fast": "Simple tasks.", "powerful": "Complex tasks."}
    router = OpenAIModelRouterMiddleware(
        choices={name: ModelChoice(llm, criteria) for name, criteria in names.items()},
        instructions="Which model suits the task?", model=decisions_model(),
    )  # fmt: skip
    answer = create_agent(llm, middleware=[router]).invoke({"messages": [user(QUESTION)]})
    route = answer["model_route"]
    same(route["choice"] in names and set(route["probabilities"]) == set(names), True)
    has_text(answer["messages"][-1].content)


@row("OpenAIAutoModeMiddleware")
def _():
    from langchain_openai.middleware import OpenAIAutoModeMiddleware

    auto_mode = OpenAIAutoModeMiddleware(tools=["get_weather"], model=decisions_model())
    agent = create_agent(llm, [get_weather], system_prompt="Be helpful.", middleware=[auto_mode])
    answer = agent.invoke({"messages": [user(call_for("Paris"))]}, {"recursion_limit": 6})
    said = next(message for message in answer["messages"] if message.type == "tool")
    if said.status == "error":  # the model found it risky
        assert "classified as risky" in said.content and not CALLED, f"{said}, {CALLED}"
    else:
        same((CALLED, said.content), (["Paris"], WEATHER))

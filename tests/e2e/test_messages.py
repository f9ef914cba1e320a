"""/v1/messages by Anthropic's own client, and that a chat has the same tokens there as at
/v1/chat/completions. The model writes what a bias has it write."""

import json
import urllib.error
import urllib.request

import anthropic
import openai
import pytest
from test_grammars import TOOLS
from test_tool_calls import ASK, MARKS, model, server  # noqa: F401

OFFERED = [
    {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
    for tool in TOOLS
]


@pytest.fixture
def url(server):  # noqa: F811
    return f"http://{server.endpoint}"


@pytest.fixture
def client(url):
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def asked(model):  # noqa: F811
    """Fields of a request in which the model begins with that mark."""

    def fields(writes=None, **more):
        bias = {str(model[1][mark]): 100 if mark == writes else -100 for mark in MARKS}
        own = {"temperature": 1, "seed": 4, "logit_bias": bias, **more.pop("extra_body", {})}
        given = {"model": "model", "messages": ASK, "max_tokens": 120}
        return {**given, "extra_body": own, **more}

    return fields


def chat_of(url, asked, **more):
    """The same at the other door."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        return client.chat.completions.create(**{**asked, **more})


def counts_of(usage):
    if hasattr(usage, "prompt_tokens"):
        return usage.prompt_tokens, usage.completion_tokens
    cached = usage.cache_read_input_tokens
    assert usage.cache_creation_input_tokens == 0 and usage.input_tokens > 0
    return usage.input_tokens + cached, usage.output_tokens


def test_a_chat_is_the_same_at_both_doors(client, url, asked):
    message = client.messages.create(**asked(), system="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    chat = chat_of(url, asked(), messages=[system, *ASK])
    (block,) = message.content
    assert block.type == "text" and block.text == chat.choices[0].message.content
    assert message.role == "assistant" and message.id.startswith("msg_")
    assert message._request_id == message.id
    assert message.stop_reason == "max_tokens" and message.stop_sequence is None
    assert counts_of(message.usage) == counts_of(chat.usage)
    again = client.beta.messages.create(**asked(), system="Be brief.", betas=["any-2025-01-01"])
    assert again.content[0].text == block.text
    assert again.usage.cache_read_input_tokens > 0 and again.usage.input_tokens == 1
    counted = client.messages.count_tokens(model="model", messages=ASK, system="Be brief.")
    assert counted.input_tokens == chat.usage.prompt_tokens


def test_a_stream_is_the_answer_in_pieces(client, asked):
    whole = client.messages.create(**asked())
    with client.messages.stream(**asked()) as stream:
        names = [event.type for event in stream if event.type != "text"]
        message = stream.get_final_message()
    assert message.content[0].text == whole.content[0].text
    assert counts_of(message.usage) == counts_of(whole.usage)
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[2:-3]) == {"content_block_delta"}
    stops = [whole.content[0].text[7:12], "never"]
    with client.messages.stream(**asked(stop_sequences=stops)) as stream:
        stopped = stream.get_final_message()
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stops[0])
    assert stopped.content[0].text == whole.content[0].text.partition(stops[0])[0]


@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
def test_calls_are_those_of_the_other_door(client, url, asked, choice):
    given = asked("<tool_call>")
    form = {"type": choice, "disable_parallel_tool_use": True}
    other = {"any": "required"}.get(choice, choice)
    if choice == "tool":
        form["name"] = "tides"
        other = {"type": "function", "function": {"name": "tides"}}
    message = client.messages.create(**given, tools=OFFERED, tool_choice=form)
    chat = chat_of(url, given, tools=TOOLS, tool_choice=other, parallel_tool_calls=False)
    (block,) = message.content
    (call,) = chat.choices[0].message.tool_calls
    assert (block.type, block.name) == ("tool_use", call.function.name)
    assert block.input == json.loads(call.function.arguments)
    assert message.stop_reason == "tool_use" and counts_of(message.usage) == counts_of(chat.usage)
    with client.messages.stream(**given, tools=OFFERED, tool_choice=form) as stream:
        assert stream.get_final_message().content[0].input == block.input
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
    turns = [{"role": "assistant", "content": message.content}]
    turns.append({"role": "user", "content": [result]})
    given = asked(messages=[*ASK, *turns])
    after = client.messages.create(**given, tools=OFFERED, tool_choice={"type": "none"})
    turns = [chat.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    chat = chat_of(url, given, messages=[*ASK, *turns], tools=TOOLS, tool_choice="none")
    assert after.content[0].text == chat.choices[0].message.content


def test_what_is_cut_is_no_call_yet_and_calls_may_be_several(client, asked):
    message = client.messages.create(**asked("<tool_call>", max_tokens=30), tools=OFFERED)
    assert message.stop_reason == "max_tokens" and message.content[0].input == {}
    given = asked("<tool_call>", max_tokens=330)
    message = client.messages.create(**given, tools=OFFERED)
    first, *others = message.content
    assert len(others) >= 2 and first.input
    with client.messages.stream(**given, tools=OFFERED) as stream:
        names = [block.name for block in stream.get_final_message().content]
    assert names == [block.name for block in message.content]


def test_thinking_has_its_budget_and_comes_back(client, url, asked):
    thinking = {"type": "enabled", "budget_tokens": 6}
    schema = {"type": "object", "properties": {"ok": {"enum": ["yes", "no"]}}, "required": ["ok"]}
    form = {"format": {"type": "json_schema", "schema": schema}}
    given = asked()
    message = client.messages.create(**given, thinking=thinking, output_config=form)
    thought, text = message.content
    assert json.loads(text.text)["ok"] in ("yes", "no") and message.stop_reason == "end_turn"
    assert thought.thinking and thought.signature
    assert message.usage.output_tokens_details.thinking_tokens >= 6
    with client.messages.stream(**given, thinking=thinking, output_config=form) as stream:
        streamed = stream.get_final_message().content
    assert [block.to_dict() for block in streamed] == [b.to_dict() for b in message.content]
    turns = [*ASK, {"role": "assistant", "content": message.content}, *ASK]
    counted = client.messages.count_tokens(model="model", messages=turns)
    said = {"role": "assistant", "content": text.text, "reasoning_content": thought.thinking}
    chat = chat_of(url, given, messages=[*ASK, said, *ASK], max_tokens=1)
    assert counted.input_tokens == chat.usage.prompt_tokens


def test_an_answer_that_has_begun_goes_on_up_to_the_end_of_the_context(client, url, asked):
    begun = [*ASK, {"role": "assistant", "content": "It is"}]
    own = {"ignore_eos": True}
    given = asked(messages=begun, max_tokens=9000, extra_body=own)
    message = client.messages.create(**given)
    assert message.stop_reason == "model_context_window_exceeded"
    own |= {"add_generation_prompt": False, "continue_final_message": True}
    chat = chat_of(url, asked(messages=begun, extra_body=own), max_tokens=20)
    assert message.content[0].text.startswith(chat.choices[0].message.content)


def test_refusals_have_its_form(client, url, asked):
    image = {"type": "image", "source": {"type": "url", "url": "http://localhost/a.png"}}
    for more, message in (
        ({"messages": [{"role": "user", "content": [image]}]}, "'image' is not supported"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: needs tools"),
        ({"messages": [{"role": "user", "content": "long " * 9000}]}, "prompt is too long: "),
    ):
        with pytest.raises(anthropic.BadRequestError, match=message) as refused:
            client.messages.create(**{**asked(), **more})
        assert refused.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError, match="no-model"):
        client.messages.create(**asked(model="no-model"))
    odd = {"type": "object", "$ref": "#/nowhere"}
    tools = [{"name": "odd", "input_schema": odd, "strict": True}]
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        client.messages.create(**asked(), tools=tools)
    request = urllib.request.Request(f"{url}/v1/messages", b"{}", {"Content-Type": "text/plain"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert json.load(refused.value)["error"]["type"] == "invalid_request_error"


def test_tools_of_the_vendor_are_left_out_and_named(server, client, asked):  # noqa: F811
    tools = [*OFFERED, {"type": "web_search_20250305", "name": "web_search"}]
    bash = {"type": "bash_20250124", "name": "bash"}
    counted = [
        client.messages.count_tokens(model="model", messages=ASK, tools=offered).input_tokens
        for offered in (tools, OFFERED, [*tools, bash])
    ]
    assert counted[0] == counted[1] < counted[2]
    given = asked("<tool_call>", tools=[bash], tool_choice={"type": "any"}, max_tokens=400)
    assert client.messages.create(**given).content[0].name == "bash"
    assert "'web_search_20250305'" in server.read_log()

"""/v1/responses by OpenAI's own client, its stream accumulator too, and that a chat has the same
tokens there as at /v1/chat/completions. The model writes what a bias has it write."""

import json
import re

import openai
import pytest
from test_grammars import TOOLS
from test_tool_calls import ASK, MARKS, model, server  # noqa: F401
from transformers import AutoTokenizer

OFFERED = [{"type": "function", **tool["function"]} for tool in TOOLS]


@pytest.fixture
def client(server):  # noqa: F811
    url = f"http://{server.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def asked(model):  # noqa: F811
    """Fields of a request in which the model begins with that mark."""

    def fields(writes=None, **more):
        bias = {str(model[1][mark]): 100 if mark == writes else -100 for mark in MARKS}
        own = {"seed": 4, "logit_bias": bias, **more.pop("extra_body", {})}
        given = {"model": "model", "input": ASK, "max_output_tokens": 120, "temperature": 1}
        return {**given, "extra_body": own, **more}

    return fields


def chat_of(client, asked, messages=ASK, **more):
    """The same at the other door."""
    asked = {k: v for k, v in asked.items() if k not in ("input", "max_output_tokens")}
    given = {"messages": messages, "max_completion_tokens": 120, **asked, **more}
    return client.chat.completions.create(**given)


def counts_of(usage):
    if hasattr(usage, "prompt_tokens"):
        return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    return usage.input_tokens, usage.output_tokens, usage.total_tokens


def streamed(client, asked):
    """The response that the client gathers from a stream, and the types of its events."""
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))
    return final, [event.type.removeprefix("response.") for event in events]


def test_a_chat_is_the_same_at_both_doors(client, asked):
    response = client.responses.create(**asked(), instructions="Be brief.", metadata={"a": "b"})
    chat = chat_of(client, asked(), [{"role": "system", "content": "Be brief."}, *ASK])
    assert response.output_text == chat.choices[0].message.content
    assert counts_of(response.usage) == counts_of(chat.usage)
    assert response.status == "incomplete" == response.output[-1].status
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.metadata == {"a": "b"} and response.instructions == "Be brief."
    assert response.parallel_tool_calls is True and response.id.startswith("resp_")


def test_a_stream_is_the_answer_in_openais_order(client, asked):
    whole = client.responses.create(**asked())
    events = list(client.responses.create(**asked(), stream=True))
    types = [event.type.removeprefix("response.") for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    head = ["created", "in_progress", "output_item.added", "content_part.added"]
    tail = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert types[:4] == head and types[-4:] == tail
    assert set(types[4:-4]) == {"output_text.delta"}
    deltas = "".join(event.delta for event in events[4:-4])
    assert deltas == whole.output_text == events[-1].response.output_text
    assert counts_of(events[-1].response.usage) == counts_of(whole.usage)


def test_a_schema_is_kept_and_reasoning_comes_first(client, asked):
    schema = {"type": "object", "properties": {"ok": {"enum": ["yes", "no"]}}, "required": ["ok"]}
    text = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}
    own = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 20}
    given = asked(text=text, extra_body=own, max_output_tokens=400)
    final, types = streamed(client, given)
    assert final.status == "completed" and json.loads(final.output_text)["ok"] in ("yes", "no")
    thought, said = final.output
    assert (thought.type, said.type) == ("reasoning", "message")
    assert types[-1] == "completed" and types.count("reasoning_text.done") == 1
    whole = client.responses.create(**given)
    assert whole.output[0].content[0].text == thought.content[0].text
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    turns = [*ASK, *whole.output, *ASK]
    after = client.responses.create(**asked(input=turns, max_output_tokens=1))
    reasoning = {"reasoning_content": thought.content[0].text}
    said = {"role": "assistant", "content": whole.output_text, **reasoning}
    chat = chat_of(client, asked(), [*ASK, said, *ASK], max_completion_tokens=1)
    assert counts_of(after.usage) == counts_of(chat.usage)


@pytest.mark.parametrize("choice", ["auto", "required", "tides"])
def test_calls_are_those_of_the_other_door_and_go_on_from_memory(client, asked, choice):
    form = {"type": "function", "name": "tides"} if choice == "tides" else choice
    other = {"type": "function", "function": {"name": "tides"}} if choice == "tides" else choice
    given = asked("<tool_call>", parallel_tool_calls=False)
    chat = chat_of(client, given, tools=TOOLS, tool_choice=other)
    (call,) = chat.choices[0].message.tool_calls
    given |= {"tools": OFFERED, "tool_choice": form}
    final, types = streamed(client, given)
    (item,) = final.output
    assert (item.type, item.status) == ("function_call", "completed")
    assert (item.name, item.arguments) == (call.function.name, call.function.arguments)
    assert types.count("function_call_arguments.done") == 1 and types[-1] == "completed"
    assert counts_of(final.usage) == counts_of(chat.usage)
    output = {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
    given = asked(tools=OFFERED, tool_choice="none")
    by_id = client.responses.create(**given | {"input": [output]}, previous_response_id=final.id)
    by_items = client.responses.create(**given | {"input": [*ASK, item, output]}, store=False)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    turns = [*ASK, chat.choices[0].message, result]
    chat = chat_of(client, asked(), turns, tools=TOOLS, tool_choice="none")
    text = chat.choices[0].message.content
    assert by_id.output_text == by_items.output_text == text
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(by_items.id)
    listed = [item.type for item in client.responses.input_items.list(by_id.id, order="asc")]
    assert listed == ["message", "function_call", "function_call_output"]


LARK = 'start: line+\nline: "> " /[a-f "]{2,9}/ LF\n%import common.LF\n'
RUN = {"type": "custom", "name": "run", "format": {
    "type": "grammar", "syntax": "lark", "definition": LARK}}  # fmt: skip


@pytest.mark.parametrize("choice", ["auto", "required", "run"])
def test_custom_tools_keep_their_grammar(client, asked, choice):
    form = {"type": "custom", "name": "run"} if choice == "run" else choice
    given = asked("<tool_call>", tools=[RUN], tool_choice=form, parallel_tool_calls=False)
    events = list(client.responses.create(**given, stream=True))
    (item,) = events[-1].response.output
    lines = item.input if item.status == "completed" else item.input.rpartition("\n")[0]
    assert all(re.fullmatch('> [a-f "]{2,9}', line) for line in lines.splitlines())
    assert (item.type, item.name) == ("custom_tool_call", "run") and item.input.startswith("> ")
    pieces = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    (done,) = [e for e in events if e.type == "response.custom_tool_call_input.done"]
    assert "".join(pieces) == done.input == item.input
    output = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "done"}
    turns = [*ASK, item, output]
    assert client.responses.create(**asked(input=turns, max_output_tokens=1)).output_text


def test_a_line_of_what_has_escapes_ends(client, model, asked):  # noqa: F811
    """As in Codex's apply_patch. In JSON a line's end begins as a quotation mark does."""
    tokenizer = AutoTokenizer.from_pretrained(model[0])
    backslash, letter = (tokenizer.convert_tokens_to_ids(one) for one in ("\\", "n"))
    lark = 'start: line+ "end"\nline: "> " /[a-f"]+/ LF\n%import common.LF\n'
    tool = {"type": "custom", "name": "run", "format": {
        "type": "grammar", "syntax": "lark", "definition": lark}}  # fmt: skip
    form = {"type": "custom", "name": "run"}
    given = asked("<tool_call>", tools=[tool], tool_choice=form, max_output_tokens=60)
    given["extra_body"]["logit_bias"] |= {str(backslash): 90, str(letter): 95}
    (item,) = client.responses.create(**given).output
    assert re.match('> [a-f"]+\n', item.input), item.input


def test_the_oldest_items_are_left_out_where_all_do_not_fit(client, asked):
    turns = [{"role": "user", "content": f"{i} long " * 99} for i in range(20)]
    given = asked(input=[{"role": "developer", "content": "Be brief."}, *turns, *ASK])
    with pytest.raises(openai.BadRequestError, match="prompt is too long"):
        client.responses.create(**given)
    kept = client.responses.create(**{**given, "max_output_tokens": 1}, truncation="auto")
    least = client.responses.create(**asked(max_output_tokens=1), instructions="Be brief.")
    assert least.usage.input_tokens <= kept.usage.input_tokens
    listed = client.responses.input_items.list(kept.id, limit=100)
    assert len(list(listed)) == len(turns) + 2


def test_log_probabilities_are_those_of_chats(client, asked):
    chat = chat_of(client, asked(), logprobs=True, top_logprobs=2, max_completion_tokens=9)
    wanted = [(one.token, one.logprob) for one in chat.choices[0].logprobs.content]
    given = asked(top_logprobs=2, include=["message.output_text.logprobs"], max_output_tokens=9)
    whole = client.responses.create(**given).output[0].content[0].logprobs
    assert [(one.token, one.logprob) for one in whole] == wanted
    assert all(len(one.top_logprobs) == 2 for one in whole)
    events = list(client.responses.create(**given, stream=True))
    pieces = [e.logprobs for e in events if e.type == "response.output_text.delta"]
    assert [(one.token, one.logprob) for piece in pieces for one in piece] == wanted


def test_what_is_deleted_while_it_is_written_is_not_kept(client, asked):
    stream = iter(client.responses.create(**asked(max_output_tokens=100), stream=True))
    begun = next(stream).response.id
    client.responses.delete(begun)
    assert [event.type for event in stream][-1] == "response.incomplete"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun)


def test_what_is_kept_can_be_asked_for_until_it_is_deleted(client, asked):
    response = client.responses.create(**asked(max_output_tokens=3))
    assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    more = [{"role": "user", "content": str(i)} for i in range(4)]
    last = client.responses.create(**asked(input=more, max_output_tokens=1))
    pages = client.responses.input_items.list(last.id, limit=3)
    assert [item.content[0].text for item in pages] == ["3", "2", "1", "0"]
    with pytest.raises(openai.BadRequestError, match="after: no item"):
        client.responses.input_items.list(last.id, after="other")
    client.responses.delete(response.id)
    for ask in (
        lambda: client.responses.retrieve(response.id),
        lambda: client.responses.delete(response.id),
        lambda: client.responses.create(**asked(), previous_response_id=response.id),
    ):
        with pytest.raises(openai.NotFoundError, match="not found") as refused:
            ask()
        assert refused.value.code.endswith("response_not_found")


def test_refusals_have_openais_form(client, asked):
    orphan = {"type": "function_call_output", "call_id": "c", "output": "x"}
    odd = {"type": "function", "name": "odd", "parameters": {"$ref": "#/nowhere"}, "strict": True}
    for more, message in (
        ({"background": True}, "background"),
        ({"input": [orphan]}, "No tool call found"),
        ({"input": "long " * 9000}, "prompt is too long"),
        ({"tools": [odd]}, "tools"),
    ):
        with pytest.raises(openai.BadRequestError, match=message) as refused:
            client.responses.create(**{**asked(), **more})
        assert refused.value.type == "invalid_request_error"
        assert refused.value.param in more

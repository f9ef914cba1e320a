"""Calls and reasoning read out of chats, by OpenAI's client. The model is the demo with the tokens
of a known format, which a bias has it write; what it fills in between, its grammar decides."""

import asyncio
import json
import pathlib

import openai
import pytest
from lmtp_socket import Socket, info_of
from servers import LmtpServe
from test_grammars import TOOLS, assert_is_call
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools[:9] %}{{ tool.function.name[-9:] }} {% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% endif %}"""
MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
ASK = [{"role": "user", "content": "How is the weather?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools") / "model"
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "demo")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.add_tokens(MARKS)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    weights = AutoModelForCausalLM.from_pretrained(ROOT / "models" / "demo")
    weights.resize_token_embeddings(len(tokenizer))
    weights.save_pretrained(folder)
    return folder, {mark: tokenizer.convert_tokens_to_ids(mark) for mark in MARKS}


@pytest.fixture(scope="module")
def server(model):
    with LmtpServe(model[0], "--kv-cache", "64MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture
def chat(server, model):
    """Asks; with `writes` the model begins with that mark, and goes on with it where it is free."""
    url = f"http://{server.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:

        def ask(writes=None, messages=ASK, **fields):
            bias = {str(model[1][mark]): -100 for mark in MARKS}
            if writes:
                bias[str(model[1][writes])] = 100
            asked = {"temperature": 1, "seed": 4, "max_completion_tokens": 120, "tools": TOOLS}
            return client.chat.completions.create(
                model="model", messages=messages, logit_bias=bias, **{**asked, **fields}
            )

        yield ask


def joined(pieces):
    """The message and the finish reason that a stream's deltas make."""
    calls, content, reasoning = [], "", ""
    for piece in pieces:
        (choice,) = piece.choices
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            if call.index == len(calls):
                assert call.id and call.type == "function"
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments
    return calls, content, reasoning, choice.finish_reason


def test_a_model_that_calls_nothing_is_read_as_text(chat):
    (choice,) = chat().choices
    assert choice.message.content and choice.message.tool_calls is None
    assert choice.finish_reason == "length"


def test_a_call_ends_the_reply_where_there_may_be_one(chat):
    (choice,) = chat("<tool_call>", parallel_tool_calls=False).choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert_is_call(call)
    calls, content, _, reason = joined(
        chat("<tool_call>", parallel_tool_calls=False, stream=True)
    )
    assert calls == [[call.function.name, call.function.arguments]]
    assert (content, reason) == ("", "tool_calls")


def test_calls_are_several_and_one_that_is_cut_is_not_whole(chat):
    (choice,) = chat("<tool_call>", max_completion_tokens=330).choices
    assert choice.finish_reason == "length"
    *whole, last = choice.message.tool_calls
    assert len(whole) >= 2 and len({call.id for call in [*whole, last]}) == len(whole) + 1
    for call in whole:
        assert_is_call(call)
    calls, *_ = joined(chat("<tool_call>", max_completion_tokens=330, stream=True))
    assert calls == [[c.function.name, c.function.arguments] for c in [*whole, last]]


@pytest.mark.parametrize("choice", ["required", "tides", "allowed"])
def test_a_choice_is_kept(chat, choice):
    tides = {"type": "function", "function": {"name": "tides"}}
    allowed = {"mode": "required", "tools": [tides]}
    forms = {"tides": tides, "allowed": {"type": "allowed_tools", "allowed_tools": allowed}}
    form = forms.get(choice, choice)
    answer = chat("<tool_call>", tool_choice=form, parallel_tool_calls=False).choices[0]
    (call,) = answer.message.tool_calls
    assert_is_call(call)
    assert answer.finish_reason == ("stop" if choice == "tides" else "tool_calls")
    assert choice == "required" or call.function.name == "tides"


def test_results_come_back_in_each_form(chat):
    function = {"name": "weather", "arguments": '{"city": "Rome", "days": 1}'}
    call = {"id": "call_1", "type": "function", "function": function}
    for content in ("sunny", [{"type": "text", "text": "sunny"}]):
        for said in ({"content": None}, {"content": ""}, {}):
            turn = {"role": "assistant", "tool_calls": [call], "reasoning": "Hm.", **said}
            result = {"role": "tool", "tool_call_id": "call_1", "content": content}
            assert chat(messages=[*ASK, turn, result]).choices[0].message.content


def test_reasoning_comes_first_and_then_what_was_asked(chat):
    schema = {"type": "object", "properties": {"ok": {"enum": ["yes", "no"]}}, "required": ["ok"]}
    asked = {
        "tools": openai.omit,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": True},
                       "thinking_token_budget": 6},
    }  # fmt: skip
    answer = chat(**asked)
    message = answer.choices[0].message
    assert json.loads(message.content)["ok"] in ("yes", "no")
    assert message.reasoning_content and message.reasoning == message.reasoning_content
    assert answer.usage.completion_tokens_details.reasoning_tokens >= 6
    _, content, reasoning, reason = joined(chat(**asked, stream=True))
    assert (content, reasoning) == (message.content, message.reasoning_content)
    assert reason == "stop"
    asked["extra_body"]["include_reasoning"] = False
    assert not hasattr(chat(**asked).choices[0].message, "reasoning_content")


def test_a_schema_that_cannot_be_kept_is_refused_where_it_is_strict(chat):
    function = {"name": "odd", "parameters": {"type": "object", "$ref": "#/nowhere"}}
    tools = [{"type": "function", "function": function}]
    choice = chat("<tool_call>", tools=tools).choices[0]
    assert choice.message.tool_calls[0].function.name == "odd"
    function["strict"] = True
    with pytest.raises(openai.BadRequestError, match="tools"):
        chat("<tool_call>", tools=tools)


@pytest.mark.parametrize("form", ["qwen3_coder", "olmo3"])
def test_strict_tools_of_pydantic_are_kept_in_tags_and_as_python(model, form):
    """Optional[Literal], definitions, a tree; what a form cannot keep is refused."""
    reference = {"$ref": "#/$defs/Node"}
    node = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]},
            "below": {"anyOf": [reference, {"type": "null"}]}}, "required": ["unit", "below"],
            "additionalProperties": False}  # fmt: skip
    level = {"anyOf": [{"type": "string", "enum": ["low", "high"]}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"level": level, "tree": reference},
              "required": ["level", "tree"], "additionalProperties": False,
              "$defs": {"Node": node}}  # fmt: skip
    function = {"name": "ask", "parameters": schema, "strict": True}
    asked = {"model": "model", "messages": ASK, "seed": 4, "max_completion_tokens": 300,
             "tools": [{"type": "function", "function": function}], "tool_choice": "required",
             "parallel_tool_calls": False,
             "logit_bias": {str(model[1]["<think>"]): -100}}  # fmt: skip
    with LmtpServe(model[0], "--kv-cache", "64MiB", "--tool-call-format", form) as server:
        url = f"http://{server.endpoint}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            (choice,) = client.chat.completions.create(**asked).choices
            arguments = json.loads(choice.message.tool_calls[0].function.arguments)
            assert arguments["level"] in ("low", "high", None)
            while arguments := arguments.get("tree") or arguments.get("below"):
                assert set(arguments) == {"unit", "below"} and arguments["unit"] in ("C", "F")
            schema["anyOf"] = [{"required": ["level"]}, {"required": ["tree"]}]
            with pytest.raises(openai.BadRequestError, match="'ask' is strict.*allowed are"):
                client.chat.completions.create(**asked)


@pytest.fixture
def generate(server, model):
    """The entries of an LMTP stream of the same chat."""

    def ask(writes=None, **fields):
        bias = {str(model[1][mark]): 100 if mark == writes else -100 for mark in MARKS}
        asked = {"temperature": 1, "seed": 4, "max_tokens": 120, "messages": ASK, "parsed": True,
                 "logit_bias": bias, **fields}  # fmt: skip

        async def entries():
            async with Socket(server.endpoint) as socket:
                await socket.send("GENERATE", stream_id=1, **asked)
                got = [await socket.token_of(1)]
                while "error" not in got[-1] and not got[-1]["finish_reason"]:
                    got.append(await socket.token_of(1))
                return got

        return asyncio.run(entries())

    return ask


def pieces(entries):
    """Text, reasoning, and the calls (name, arguments, whether whole) of a stream's entries."""
    calls = []
    for piece in (piece for entry in entries for piece in entry.get("calls", [])):
        if piece["index"] == len(calls):
            assert piece["id"]
            calls.append([piece["name"], "", False])
        call = calls[piece["index"]]
        call[1] += piece.get("arguments", "")
        call[2] = piece.get("complete", False)
    said = ("".join(entry.get(name, "") for entry in entries) for name in ("text", "reasoning"))
    return (*said, calls)


def test_lmtp_reads_calls_as_openai_does_and_goes_on_in_the_middle_of_one(chat, generate):
    num_tokens = 310
    asked = {"tools": TOOLS, "max_tokens": num_tokens}
    entries = generate("<tool_call>", **asked)
    (choice,) = chat("<tool_call>", max_completion_tokens=num_tokens).choices
    calls = [[c.function.name, c.function.arguments] for c in choice.message.tool_calls]
    whole = [True] * (len(calls) - 1) + [False]
    assert pieces(entries) == ("", "", [[*call, w] for call, w in zip(calls, whole, strict=True)])
    for num in (1, 3, 40, 200, num_tokens - 1):
        came = [entry["token"] for entry in entries[:num]]
        asked["max_tokens"] = num_tokens - num
        rest = generate("<tool_call>", prompt=came, resumed=num, **asked)
        assert [e["token"] for e in rest] == [e["token"] for e in entries[num:]]
        assert pieces(entries[:num] + rest) == pieces(entries)


def test_lmtp_keeps_a_choice_and_leaves_text_as_it_is_where_nothing_is_parsed(generate):
    tides = {"type": "function", "function": {"name": "tides"}}
    entries = generate("<tool_call>", tools=TOOLS, tool_choice=tides, parallel_tool_calls=False)
    (text, _, [[name, arguments, whole]]) = pieces(entries)
    assert (text, name, whole) == ("", "tides", True) and isinstance(json.loads(arguments), dict)
    assert any(entry.get("forced") for entry in entries)
    plain = generate("<tool_call>", tools=TOOLS, parsed=False)
    assert pieces(plain)[0].startswith("<tool_call>") and not pieces(plain)[2]
    for field, wrong in [
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "required", "grammar": {"type": "json"}}),
        ("controller", {"thinking_token_budget": 4, "controller": "none"}),
    ]:
        assert generate(**wrong)[0]["error"].startswith(field)


def test_from_its_opening_on_a_call_costs_what_a_forced_one_does(server, generate):
    counted = ("num_tokens_computed", "num_generated_tokens", "num_forced_tokens", "num_late_masks")

    def cost(**choice):
        before = asyncio.run(info_of(server.endpoint))["stats"]
        entries = generate("<tool_call>", tools=TOOLS[:1], parallel_tool_calls=False, **choice)
        after = asyncio.run(info_of(server.endpoint))["stats"]
        counts = {name: after[name] - before[name] for name in counted}
        if counts["num_late_masks"]:  # what waited for them was computed twice
            return cost(**choice)
        return [(e["token"], e.get("forced", False)) for e in entries], counts

    name = TOOLS[0]["function"]["name"]
    named = {"tool_choice": {"type": "function", "function": {"name": name}}}
    cost()  # the prompt is known from then on
    automatic, forced = cost(), cost(**named)
    assert automatic == forced
    assert automatic[1]["num_forced_tokens"] == sum(was for _, was in automatic[0]) > 0
    assert automatic[1]["num_generated_tokens"] == len(automatic[0])


def test_lmtp_tells_reasoning_from_what_a_grammar_decides(generate):
    asked = {
        "chat_template_kwargs": {"enable_thinking": True},
        "thinking_token_budget": 6,
        "grammar": {"type": "choice", "value": ["yes", "no"]},
    }
    text, reasoning, calls = pieces(generate(**asked))
    assert text in ("yes", "no") and reasoning and not calls


def test_stop_strings_are_of_the_text_alone(chat, generate):
    one = {"tools": TOOLS, "parallel_tool_calls": False}
    for stop in ("</tool_call>", "city"):
        entries = generate("<tool_call>", stop=[stop], **one)
        assert "stop_text" not in entries[-1] and pieces(entries)[2][0][2]
        (choice,) = chat("<tool_call>", stop=[stop], parallel_tool_calls=False).choices
        assert choice.finish_reason == "tool_calls"
    thinking = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 9}
    whole = generate(stop=["t ", " t"], **thinking)
    for num in range(1, 10):  # in the reasoning
        came = [entry["token"] for entry in whole[:num]]
        assert generate(stop=["t ", " t"], prompt=came, resumed=num, **thinking) == whole[num:]


def test_a_thousand_tools_are_offered(chat):
    """And one of them has a schema that nothing meets."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
    names = [f"a_tool_with_a_long_name_of_some_server_or_other_{i:07}" for i in range(1000)]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name in names
    ]
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    tools[7]["function"]["parameters"] = endless
    for choice in ("auto", "auto", "required"):
        if choice == "required":
            with pytest.raises(openai.BadRequestError, match="tools: '.*0000007' has parameters"):
                chat("<tool_call>", tools=tools, tool_choice=choice)
            del tools[7]
        asked = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
        (call,) = chat("<tool_call>", **asked).choices[0].message.tool_calls
        assert call.function.name in names
        if call.function.name != names[7]:
            assert json.loads(call.function.arguments) == {"city": "Rome"}

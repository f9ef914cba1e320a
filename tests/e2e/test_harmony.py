"""gpt-oss's template and special tokens, on the demo's weights: what a bias has the model begin
with, and what is read out of it."""

import json
import pathlib

import openai
import pytest
from jinja_process import real_templates
from servers import LmtpServe
from test_answers import ask
from transformers import AutoModelForCausalLM, AutoTokenizer

DEMO = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
MARKS = [f"<|{mark}|>" for mark in ("start", "end", "message", "channel", "constrain", "call",
                                    "return")]  # fmt: skip
WAYS = {"way": {"enum": ["left", "right"]}}
SCHEMA = {"type": "object", "properties": WAYS, "required": ["way"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "", "parameters": SCHEMA}}
    for name in ("turn", "look")
]
ASK = [{"role": "user", "content": "Where is the exit?"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harmony") / "model"
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.chat_template = real_templates()["openai-gpt-oss-120b"]
    tokenizer.save_pretrained(folder)
    weights = AutoModelForCausalLM.from_pretrained(DEMO)
    weights.resize_token_embeddings(len(tokenizer))
    ids = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in MARKS}
    ends = [tokenizer.eos_token_id, ids["<|return|>"], ids["<|call|>"]]
    weights.config.eos_token_id = weights.generation_config.eos_token_id = ends
    weights.save_pretrained(folder)
    analysis = tokenizer.encode("analysis", add_special_tokens=False)
    return folder, ids, analysis


@pytest.fixture(scope="module")
def server(model):
    with LmtpServe(model[0], "--kv-cache", "64MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture
def chat(server, model):
    """Asks; the model reasons first where it may, for 6 tokens."""
    _, ids, analysis = model
    bias = {str(ids[mark]): -100 for mark in MARKS}
    bias |= {str(ids["<|channel|>"]): 50, str(analysis[0]): 90}
    with openai.OpenAI(
        base_url=f"http://{server.endpoint}/v1", api_key="none", max_retries=0
    ) as client:

        def ask(**fields):
            asked = {"temperature": 1, "seed": 4, "max_completion_tokens": 200, "messages": ASK}
            asked |= {"extra_body": {"thinking_token_budget": 6}, "logprobs": True}
            return client.chat.completions.create(
                model="model", logit_bias=bias, **{**asked, **fields}
            )

        yield ask


def written(choice):
    return "".join(one.token for one in choice.logprobs.content)


@pytest.mark.parametrize("choice", ["required", "turn"])
def test_a_forced_call_comes_after_analysis(chat, choice):
    named = {"type": "function", "function": {"name": "turn"}}
    fields = {"tools": TOOLS, "tool_choice": choice if choice == "required" else named}
    for more in ({}, {"response_format": FORMAT}):  # which is of the content
        (choice,) = chat(**fields, **more).choices
        (call,) = choice.message.tool_calls
        assert call.function.name in ("turn", "look")
        assert json.loads(call.function.arguments)["way"] in ("left", "right")
        assert choice.message.content is None and choice.message.reasoning_content
        assert choice.finish_reason in ("tool_calls", "stop")
        assert "<|end|><|start|>assistant<|channel|>commentary to=functions." in written(choice)
        assert written(choice).endswith("<|call|>")


def test_json_comes_after_its_header(chat):
    for tools in (openai.omit, TOOLS):
        (choice,) = chat(response_format=FORMAT, tools=tools).choices
        assert choice.message.reasoning_content
        assert "assistant" not in choice.message.reasoning_content
        content = choice.message.content or choice.message.tool_calls[0].function.arguments
        assert json.loads(content)["way"] in ("left", "right")
        assert tools == TOOLS or choice.message.content
        if choice.message.content:
            header = "<|end|><|start|>assistant<|channel|>final<|message|>{"
            assert header in written(choice)


def test_earlier_reasoning_is_in_the_prompt(server):
    function = {"name": "turn", "arguments": '{"way": "left"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}

    def prompt(**said):
        turn = {"role": "assistant", "tool_calls": [call], **said}
        status, tokens = ask(server, "POST", "/tokenize", {"messages": [*ASK, turn, result]})
        assert status == 200, tokens
        status, text = ask(server, "POST", "/detokenize", {"tokens": tokens["tokens"]})
        assert status == 200, text
        return text["prompt"]

    for name in ("reasoning_content", "reasoning", "thinking"):
        assert "<|channel|>analysis<|message|>Hm.<|end|>" in prompt(**{name: "Hm."})
    assert "analysis<|message|>So:<|end|>" in prompt(reasoning="Hm.", content="So:")

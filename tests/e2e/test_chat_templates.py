"""lmtp-jinja writes what transformers' apply_chat_template does: of the chat templates of real
models, and of a table of expressions and statements (jinja_table.json)."""

import copy
import datetime
import json
import pathlib

from jinja_process import JinjaProcess, real_templates
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place, é.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "where"}},
            "required": ["place"],
        },
    },
}]  # fmt: skip
CALL = {
    "id": "call12345", "type": "function",
    "function": {"name": "get_weather", "arguments": {"place": "Köln", "days": 2}},
}  # fmt: skip

# As Rust's schemars, Python and JavaScript write numbers.
NUMBER_TOOLS = [{
    "type": "function",
    "function": {
        "name": "distance",
        "description": "Between two places.",
        "parameters": {
            "type": "object",
            "properties": {
                "from": {"type": "number", "description": "it", "minimum": 0.0, "maximum": 1e22},
                "id": {"type": "integer", "description": "it", "maximum": 18446744073709551615},
            },
            "required": ["from"],
        },
    },
}]  # fmt: skip
NUMBER_CALL = {
    "id": "call12345", "type": "function",
    "function": {"name": "distance", "arguments": {
        "from": 52.520008, "to": 1e-07, "time": 1732842387.125, "price": 1234567.89,
        "id": 18446744073709551616, "flags": [True, None, 1.0],
    }},
}  # fmt: skip


def said(role, content, **more):
    return {"role": role, "content": content, **more}


CHATS = {
    "one": {"messages": [said("user", "Hi there, 東京 <b>&\n")]},
    "turns": {"messages": [
        said("system", "Be brief."), said("user", "Hi"), said("assistant", "Hello.\n"),
        said("user", "  Tell a tale. "),
    ]},
    "answered": {
        "messages": [said("user", "Hi"), said("assistant", "Hello.")],
        "add_generation_prompt": False,
    },
    "tools": {"tools": TOOLS, "messages": [
        said("user", "Weather?"), said("assistant", "", tool_calls=[CALL]),
        said("tool", '{"degrees": 21.5}', tool_call_id="call12345", name="get_weather"),
    ]},
    "numbers": {"tools": NUMBER_TOOLS, "messages": [
        said("user", "How far is it?"), said("assistant", "", tool_calls=[NUMBER_CALL]),
        said("tool", "1732842387.125", tool_call_id="call12345", name="distance"),
    ]},
    "spaces": {"messages": [
        said("system", "\u3000簡潔に。\u00a0"), said("user", "\u2028こんにちは\u3000"),
        said("assistant", "\u00a0はい。\x85\n"), said("user", "\u2003É tarde?\u202f"),
    ]},
    "no_thinking": {
        "messages": [said("user", "Hi")], "template_kwargs": {"enable_thinking": False},
    },
}  # fmt: skip

WITH_CALLS = ("tools", "numbers")
# Where they are not alike: what only Python refuses.
KNOWN = {
    # lists that change: the sandbox
    *(f"Kimi-K2-{kind}/{chat}" for kind in ("Instruct", "Thinking") for chat in WITH_CALLS),
    *(f"llama-cpp-deepseek-r1/{chat}" for chat in WITH_CALLS),  # map(...) | tojson
}
ALIKE_LEAST = 450  # of the 73 templates times the chats above, beside those that both refuse


def by_transformers(template, chat):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    chat = copy.deepcopy(chat)
    try:
        return tokenizer.apply_chat_template(
            chat["messages"], tools=chat.get("tools"), chat_template=template, tokenize=False,
            add_generation_prompt=chat.get("add_generation_prompt", True),
            **chat.get("template_kwargs", {}),
        )  # fmt: skip
    except Exception as e:  # a template's own, or jinja2's
        return type(e)


def test_real_templates():
    templates = real_templates()
    assert len(templates) > 60
    alike, refused, unlike = 0, 0, {}
    for name, template in templates.items():
        with JinjaProcess(template, TOKENS) as process:
            assert process.answer == ("d", b""), (name, process.answer)
            for kind, chat in CHATS.items():
                today = datetime.date.today()
                wanted = by_transformers(template, chat)
                text, error = process.render({"add_generation_prompt": True, **chat})
                if today != datetime.date.today():  # which some write
                    continue
                if text == wanted:
                    alike += 1
                elif text is None and isinstance(wanted, type):
                    refused += 1
                else:
                    unlike[f"{name}/{kind}"] = (wanted, text or error)
    print(f"{alike} alike, {refused} refused by both")
    new = {case: sides for case, sides in unlike.items() if case not in KNOWN}
    assert set(unlike) == KNOWN, f"{json.dumps(new, default=str)}, alike: {KNOWN - set(unlike)}"
    assert alike >= ALIKE_LEAST


def test_table():
    table = json.loads(pathlib.Path(__file__).with_name("jinja_table.json").read_text())
    assert len(table["expressions"]) >= 250 and len(table["statements"]) >= 120
    chat = {"messages": table["messages"], "template_kwargs": table["variables"]}
    unlike = {}
    for source in [f"{{{{ {row} }}}}" for row in table["expressions"]] + table["statements"]:
        wanted = by_transformers(source, chat)
        with JinjaProcess(source, TOKENS) as process:
            text, error = None, process.answer
            if process.answer[0] == "d":
                text, error = process.render({"add_generation_prompt": True, **chat})
        if text != wanted and not (text is None and isinstance(wanted, type)):
            unlike[source] = (wanted, text or error)
    assert not unlike, json.dumps(unlike, default=str, ensure_ascii=False, indent=1)

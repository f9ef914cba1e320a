"""The chat templates of real models: lmtp-jinja writes what transformers' apply_chat_template
does."""

import copy
import datetime
import json

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
    "no_thinking": {
        "messages": [said("user", "Hi")], "template_kwargs": {"enable_thinking": False},
    },
}  # fmt: skip

# Where they are not alike: mostly Python alone refuses, for its sandbox, or since the template adds
# a tool call's arguments to a text, which Python's lists and objects do not allow.
KNOWN = {
    "Kimi-K2-Instruct/tools",  # sandbox
    "Kimi-K2-Thinking/tools",  # sandbox
    *(f"fireworks-ai-llama-3-firefunction-v2/{kind}" for kind in CHATS),  # wants datetime
    *(f"google-translategemma-4b-it/{kind}" for kind in ("one", "no_thinking")),  # wants languages
    "llama-cpp-deepseek-r1/tools",  # arguments
    "meetkai-functionary-medium-v3.1/tools",  # how Python prints an object
    "meetkai-functionary-medium-v3.2/tools",  # arguments
}
ALIKE_LEAST = 300  # of the 73 templates times the chats above, beside those that both refuse


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

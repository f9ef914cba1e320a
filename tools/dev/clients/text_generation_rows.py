from rows import MAX_TOKENS, QUESTION, ROW_S, SERVER, TOOL, call_for, has_text, is_call, row, user
from text_generation import Client
from text_generation.types import Message, Tool

client = Client(SERVER, timeout=ROW_S)


def ask(text, **options):
    return client.chat([Message(**user(text))], max_tokens=MAX_TOKENS, seed=1, **options)


@row("generate")
def _():
    has_text(client.generate("Once upon a time", max_new_tokens=8).generated_text)


@row("chat")
def _():
    has_text(ask(QUESTION).choices[0].message.content)


@row("chat, streamed")
def _():
    # 0.7.0 reads chunks of TGI 2.0 alone: `role` and `tool_calls` in each delta, and no [DONE].
    has_text("".join(c.choices[0].delta.content or "" for c in ask(QUESTION, stream=True)))


@row("chat, tools")
def _():
    tool = Tool(type="function", function=TOOL["function"])
    calls = ask(call_for("Paris"), tools=[tool], temperature=0.01).choices[0].message.tool_calls
    assert calls, "no call"
    call = calls[0]["function"] if isinstance(calls, list) else calls["function"]
    is_call(call["name"], call["arguments"], "Paris")

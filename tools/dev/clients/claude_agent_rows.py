import asyncio
import json
import pathlib

from claude_agent_sdk import (
    ClaudeAgentOptions, ResultMessage, ToolResultBlock, ToolUseBlock, query,
)  # fmt: skip
from rows import MODEL, QUESTION, SERVER, call_text, has_text, repeat, row, same

ENVIRONMENT = {
    "ANTHROPIC_BASE_URL": SERVER, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": MODEL,
    "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200",
    "DISABLE_AUTOUPDATER": "1",
}  # fmt: skip


def ask(text, tool=None):
    """The result, and the program's calls of its tool and their results. So small a model calls
    none by itself among the program's texts: it has to."""
    forced = {"type": "tool", "name": tool, "disable_parallel_tool_use": True}
    body = {"temperature": 0} | ({"tool_choice": forced} if tool else {})
    tools = [tool] if tool else []
    options = ClaudeAgentOptions(
        model=MODEL, system_prompt="Be helpful.", tools=tools, allowed_tools=tools, max_turns=1,
        permission_mode="acceptEdits", setting_sources=[],
        env=ENVIRONMENT | {"CLAUDE_CODE_EXTRA_BODY": json.dumps(body)},
    )  # fmt: skip
    found = {ResultMessage: [], ToolUseBlock: [], ToolResultBlock: []}

    async def asked():
        async for message in query(prompt=text, options=options):
            blocks = getattr(message, "content", None)
            for one in [message, *(blocks if isinstance(blocks, list) else [])]:
                found.get(type(one), []).append(one)

    try:
        asyncio.run(asked())
    except Exception as e:
        if not found[ToolResultBlock]:
            raise
        assert "maximum number of turns" in str(e), e
    return found.values()


@row("text")
def _():
    (result,), _, _ = ask(QUESTION)
    assert not result.is_error, result
    has_text(result.result)


def path_of(name):
    return pathlib.Path(name).resolve()


@row("a file is read")
def _():
    path = path_of("note.txt")
    path.write_text("The tide is at noon.\n")
    arguments = json.dumps({"file_path": str(path)})
    _, (call,), (result,) = ask(repeat(call_text("Read", arguments)), "Read")
    same((call.name, call.input["file_path"]), ("Read", str(path)))
    assert "noon" in str(result.content), result


@row("a file is written")
def _():
    path = path_of("new.txt")
    arguments = json.dumps({"file_path": str(path), "content": "noon"})
    ask(repeat(call_text("Write", arguments)), "Write")
    same(path.read_text(), "noon")

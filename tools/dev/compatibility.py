"""Writes docs/compatibility.md from compatibility.txt; with --check it says whether it differs."""

import json
import pathlib
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE, PAGE = ROOT / "tools" / "dev" / "compatibility.txt", ROOT / "docs" / "compatibility.md"
APIS = {"O": "OpenAI", "A": "Anthropic", "V": "vLLM", "T": "TGI"}
STATES = ("served", "refused", "ignored")
HEAD = """# Compatibility
What the server does with each field that OpenAI's, Anthropic's, vLLM's and TGI's requests have.

- served: [HTTP](http.md) says how
- refused: the answer is an error (400, TGI's 422) that names the field, unless the value changes
  nothing
- ignored: taken. The log names it once, unless it only says who asks, or what is to be kept

`tools/dev/compatibility.py` writes this page from `tools/dev/compatibility.txt`; a test holds that
table against the types of OpenAI's and Anthropic's packages, and against the server.
"""


class Row(NamedTuple):
    request: str  # "POST PATH", or the same and the member that has the fields
    field: str
    whose: str  # letters of APIS
    state: str  # one of STATES
    value: object  # that is refused, or ignored; None: it is served
    why: str


def rows():
    request = None
    for line in TABLE.read_text().splitlines():
        if line.startswith("POST "):
            request = line
        elif line and not line.startswith("#"):
            yield row_of(request, line)


def row_of(request, line):
    field, whose, rest = line.split(": ", 2)
    state, _, rest = rest.partition(" ")
    assert set(whose) <= set(APIS) and state in STATES, line
    if state == "served":
        return Row(request, field, whose, state, None, "")
    value, end = json.JSONDecoder().raw_decode(rest)
    assert rest[end : end + 2] == ": ", line
    return Row(request, field, whose, state, value, rest[end + 2 :])


def page():
    text, request = HEAD, None
    for row in rows():
        if row.request != request:
            request = row.request
            text += f"\n## `{request}`\n| field | of | |\n|---|---|---|\n"
        whose = ", ".join(APIS[letter] for letter in row.whose)
        state = f"{row.state}: {row.why}" if row.why else row.state
        text += f"| `{row.field}` | {whose} | {state} |\n"
    return text


def main():
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() == page():
            return 0
        print(f"{PAGE}: differs from {TABLE.name}; run tools/dev/compatibility.py")
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes src/text/jinja/python_text.inc: what Python's str says of characters, for chat templates,
which are written for it.

    tools/dev/python_text.py        (of any Python 3; its Unicode version is noted in the file)

Sets are written as the code points where they begin and end, cases as runs."""

import pathlib
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHARACTERS = [chr(c) for c in range(0x110000)]
SETS = ("isalpha", "isdecimal", "isdigit", "isnumeric", "isprintable")


def bounds(holds):
    """Where the set begins, ends, begins, ..."""
    found, inside = [], False
    for code_point, character in enumerate(CHARACTERS):
        if holds(character) != inside:
            found.append(code_point)
            inside = not inside
    return found


def runs(deltas):
    """(first, last, step, delta) of {code point: delta}."""
    found = []
    for code_point, delta in deltas:
        if found:
            first, last, step, same = found[-1]
            gap = code_point - last
            if same == delta and (gap == step or (first == last and gap == 2)):
                found[-1] = (first, code_point, gap, delta)
                continue
        found.append((code_point, code_point, 1, delta))
    return found


def wrapped(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def table(kind, name, items):
    return f"inline constexpr {kind} {name}[] = {{\n{wrapped(items)}\n}};\n"


def numbers(rows):
    return ["{" + ", ".join(map(str, row)) + "}" for row in rows]


def mapped(change):
    return runs([
        (code_point, ord(change(character)) - code_point)
        for code_point, character in enumerate(CHARACTERS)
        if len(change(character)) == 1 and change(character) != character
    ])  # fmt: skip


def spelled(change, usual):
    """Those that are several characters, or other than usual."""
    return [
        f'{{{ord(c)}, U"{"".join(f"{chr(92)}U{ord(x):08x}" for x in change(c))}"}}'
        for c in CHARACTERS
        if len(change(c)) > 1 or change(c) != usual(c)
    ]


def main():
    parts = [
        f"// Made by tools/dev/python_text.py with Unicode {unicodedata.unidata_version}; "
        "do not edit.\n"
    ]
    for name in SETS:
        found = bounds(getattr(str, name))
        parts.append(table("char32_t", "kI" + name[1:], map(str, found)))
    for name, holds in (("kIsupper", str.isupper), ("kIslower", str.islower)):
        cased = runs([(c, 0) for c, character in enumerate(CHARACTERS) if holds(character)])
        parts.append(table("CaseRun", name, numbers(cased)))
    parts.append(table("CaseRun", "kUpper", numbers(mapped(str.upper))))
    parts.append(table("CaseRun", "kLower", numbers(mapped(str.lower))))
    parts.append(table("CaseText", "kUpperTexts", spelled(str.upper, str.upper)))
    parts.append(table("CaseText", "kTitleTexts", spelled(str.title, str.upper)))
    path = ROOT / "src/text/jinja/python_text.inc"
    path.write_text("\n".join(parts))


if __name__ == "__main__":
    main()

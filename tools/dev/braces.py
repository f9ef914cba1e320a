"""Checks the style of braces in C++, for tidy.py.

The body of an if, for or while stands without braces where it is one statement that fits on the
line of its condition and no else follows; all other bodies stand in braces.
"""

import re

MAX_COLUMNS = 100

HEAD = re.compile(r"\b(if(?: constexpr)?|for|while) ?\(|\belse\b(?! if\b)")
DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:.*\\\n)*.*$")
# What is shorter on a line of its own and still better read in braces: declarations, more control.
STANDS_IN_BRACES = re.compile(r"(if|for|while|do|switch|else|const|auto|static|return \[)\b")
HIDDEN_IF = re.compile(r"(EXPECT|ASSERT)_")  # GoogleTest's macros end in an else


def end_of_condition(text, at):
    """The position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, at):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text)


def without_braces(text):
    """(position, message) of bodies that need braces; comments and strings of `text` are blank."""
    text = DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for match in HEAD.finditer(text):
        is_else = match[0] == "else"
        body = match.end() if is_else else end_of_condition(text, match.end() - 1)
        begin = body + len(text[body:]) - len(text[body:].lstrip())
        if text.startswith("{", begin) or (match[1] == "while" and text.startswith(";", begin)):
            continue
        end = text.find(";", begin)
        if is_else or "\n" in text[body:end]:
            yield match.start(), "the body of this statement stands in braces"
        elif match[0].startswith("if") and HIDDEN_IF.match(text, begin):
            yield match.start(), "this macro ends in an else, so it stands in braces"
        elif re.match(r";\s*else\b", text[end:end + 200]):
            yield match.start(), "an else follows, so this stands in braces"


def needless_braces(text, stripped):
    """(line, message) of bodies in braces that fit on the line of their condition."""
    whole, lines = text.split("\n"), stripped.split("\n")
    for number, (line, body, close) in enumerate(zip(lines, lines[1:], lines[2:]), 1):
        head = re.match(r"( *)(?:if(?: constexpr)?|for|while) (\(.*\)) \{$", line)
        if not head or close != head[1] + "}" or end_of_condition(head[2], 0) != len(head[2]):
            continue
        statement = body.strip()
        is_one = statement.endswith(";") and statement.count(";") == 1
        plain = is_one and "{" not in statement and not STANDS_IN_BRACES.match(statement)
        plain = plain and not HIDDEN_IF.match(statement)
        followed = re.match(r" *else\b", lines[number + 2]) if number + 2 < len(lines) else None
        num_columns = len(whole[number - 1]) - 1 + len(whole[number].strip())  # comments count
        if plain and not followed and num_columns <= MAX_COLUMNS:
            yield number, "this fits on one line, without braces"


def findings(text, stripped):
    """(line, message) of a file; `stripped` is its text with comments and strings blanked."""
    for at, message in without_braces(stripped):
        yield stripped.count("\n", 0, at) + 1, message
    yield from needless_braces(text, stripped)

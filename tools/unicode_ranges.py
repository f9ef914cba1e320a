#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_ranges.inc: letters, numbers, spaces and word characters as
Hugging Face `tokenizers` knows them. Its ids depend on these classes, and the libraries of a
distribution (PCRE2, ICU, Python) lag behind its version of Unicode by thousands of letters.

    tools/unicode_ranges.py > src/tokenizer/unicode_ranges.inc      (needs the package tokenizers)
"""
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODE_POINTS))


def ranges(outside):
    pieces = pre_tokenizers.Split(Regex(outside), "removed").pre_tokenize_str(TEXT)
    return [(CODE_POINTS[begin], CODE_POINTS[end - 1]) for _, (begin, end) in pieces]


def word_ranges():
    """What single_word tokens may not stand beside: another regular expression library, so asked
    for by what it does."""
    probe = Tokenizer(models.BPE())
    probe.add_tokens([AddedToken("w", single_word=True)])
    found = []
    for c in CODE_POINTS:
        if probe.encode("w" + chr(c)).ids:
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def table(name, pairs):
    print(f"inline constexpr CodePointRange {name}[] = {{")
    line = "   "
    for first, last in pairs:
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


def main():
    version = tokenizers.__version__
    print(f"// Made by tools/unicode_ranges.py with tokenizers {version}; do not edit.")
    table("kLetters", ranges(r"[^\p{L}]"))
    table("kNumbers", ranges(r"[^\p{N}]"))
    table("kSpaces", ranges(r"\S"))
    table("kWordChars", word_ranges())
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the Unicode tables of src/tokenizer as Hugging Face `tokenizers` knows them. Its ids
depend on them, and the libraries of a distribution (PCRE2, ICU, Python) lag behind its version of
Unicode by thousands of letters.

    tools/dev/unicode_ranges.py        (needs the package tokenizers; takes a minute)

unicode_ranges.inc: general categories, scripts, white space, word characters, what Digits and
Punctuation split at, lower case. unicode_forms.inc: decompositions and combining classes. All are
asked for by what the library does, since its parts use different versions of Unicode.
"""
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "src" / "tokenizer"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODE_POINTS))
CATEGORIES = (
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co",
)  # fmt: skip
# In the order of kScriptNames in unicode_data.cpp.
SCRIPTS = (
    "arabic", "armenian", "bengali", "bopomofo", "cyrillic", "devanagari", "ethiopic", "georgian",
    "greek", "gujarati", "gurmukhi", "han", "hangul", "hebrew", "hiragana", "kannada", "katakana",
    "khmer", "lao", "latin", "malayalam", "mongolian", "myanmar", "oriya", "sinhala", "tamil",
    "telugu", "thai", "tibetan",
)  # fmt: skip
# The code point that has each combining class; a class that Unicode does not use is not probed.
CLASS_CODE_POINTS = {
    1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2,
    13: 0x5B3, 14: 0x5B4, 15: 0x5B5, 16: 0x5B6, 17: 0x5B7, 18: 0x5B8, 19: 0x5B9, 20: 0x5BB,
    21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2, 26: 0xFB1E, 27: 0x64B, 28: 0x64C,
    29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670, 36: 0x711,
    84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71, 130: 0xF72,
    132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A,
    224: 0x302E, 226: 0x1D16D, 228: 0x5AE, 230: 0x300, 232: 0x302C, 233: 0x35C, 234: 0x35D,
    240: 0x345,
}  # fmt: skip


def merged(code_points):
    """Sorted code points as [first, last] ranges."""
    found = []
    for c in code_points:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def ranges(outside):
    pieces = pre_tokenizers.Split(Regex(outside), "removed").pre_tokenize_str(TEXT)
    return [(CODE_POINTS[begin], CODE_POINTS[end - 1]) for _, (begin, end) in pieces]


def category_runs():
    """(run length, index into CATEGORIES or the number of them) over all code points."""
    starts = []
    for index, name in enumerate(CATEGORIES):
        for first, last in ranges(rf"\P{{{name}}}"):
            if first < 0xD800 and last >= 0xE000:
                raise SystemExit(f"{name}: a range across the surrogates")
            starts.append((first, last, index))
    runs, at = [], 0
    for first, last, index in sorted(starts):
        if first > at:
            runs.append((first - at, len(CATEGORIES)))
        runs.append((last - first + 1, index))
        at = last + 1
    return runs


def script_ranges():
    """(first, last, index into SCRIPTS)"""
    return [(first, last, i) for i, name in enumerate(SCRIPTS)
            for first, last in ranges(rf"\P{{{name}}}")]  # fmt: skip


def word_ranges():
    """What single_word tokens may not stand beside: another regular expression library."""
    probe = Tokenizer(models.BPE())
    probe.add_tokens([AddedToken("w", single_word=True)])
    return merged(c for c in CODE_POINTS if not probe.encode("w" + chr(c)).ids)


def split_ranges(pre_tokenizer):
    """The characters that a pre-tokenizer isolates."""
    pieces = pre_tokenizer.pre_tokenize_str("".join("a" + chr(c) for c in CODE_POINTS))
    return merged(CODE_POINTS[a // 2] for _, (a, b) in pieces if b - a == 1 and a % 2 == 1)


def lower_runs():
    """(first, last, step, what to add) of characters whose lower case is one other character."""
    lower = normalizers.Lowercase()
    runs = []
    for c in CODE_POINTS:
        to = lower.normalize_str(chr(c))
        if to == chr(c) or c == 0x130:
            continue
        assert len(to) == 1, hex(c)
        delta = ord(to) - c
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            if c - last == (step or c - last) <= 2:
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 0, delta))
    return [(first, last, step or 1, delta) for first, last, step, delta in runs]


def decompositions(form, besides=()):
    """(code point, what it becomes) of all that `form` changes, but for Hangul and `besides`."""
    known = dict(besides)
    found = []
    for c in CODE_POINTS:
        to = form.normalize_str(chr(c))
        if to != chr(c) and not 0xAC00 <= c < 0xD7A4 and known.get(c) != to:
            found.append((c, to))
    return found


def compositions(canonical):
    """(first, second, composed) of the pairs that NFC composes."""
    nfc = normalizers.NFC()
    found = []
    for c, to in canonical:
        if len(to) < 2 or nfc.normalize_str(to) != chr(c):
            continue
        first = nfc.normalize_str(to[:-1])
        assert len(first) == 1, hex(c)
        found.append((ord(first), ord(to[-1]), c))
    return found


def combining_runs():
    """(first, last, class), by where NFD puts a character among those whose class is known."""
    nfd = normalizers.NFD()
    known = sorted(CLASS_CODE_POINTS.items())

    def sorts_before(a, b):  # class(a) < class(b), and neither is 0
        return nfd.normalize_str(chr(b) + chr(a)) == chr(a) + chr(b) and a != b

    def class_of(c):
        if any(c == mark for _, mark in known):
            return next(value for value, mark in known if mark == c)
        if nfd.normalize_str(chr(c)) != chr(c):
            return 0  # what decomposes does not stay
        if not sorts_before(c, 0x345) and not sorts_before(0x334, c):
            return 0
        same = [v for v, m in known if not sorts_before(c, m) and not sorts_before(m, c)]
        assert len(same) == 1, hex(c)
        return same[0]

    runs = []
    for c in CODE_POINTS:
        value = class_of(c)
        if value == 0:
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == value:
            runs[-1] = (runs[-1][0], c, value)
        else:
            runs.append((c, c, value))
    return runs


class Writer:
    def __init__(self, name):
        self.lines = [
            f"// Made by tools/dev/unicode_ranges.py with tokenizers {tokenizers.__version__};"
            " do not edit."
        ]
        self.path = FOLDER / name

    def table(self, declaration, items):
        self.lines.append(f"inline constexpr {declaration}[] = {{")
        line = "   "
        for item in items:
            if len(line) + len(item) + 2 > 100:
                self.lines.append(line)
                line = "   "
            line += f" {item},"
        self.lines += [line, "};"]

    def save(self):
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def braced(rows):
    return ["{" + ", ".join(f"0x{v:X}" if v >= 0 else f"-0x{-v:X}" for v in r) + "}" for r in rows]


def flat(entries):
    """[code point * 32 + length, what it becomes...] one after the other."""
    return [f"0x{v:X}" for c, to in entries for v in (c * 32 + len(to), *map(ord, to))]


def main():
    out = Writer("unicode_ranges.inc")
    runs = category_runs()
    out.table("std::uint32_t kCategoryRuns", [str(n * 32 + index) for n, index in runs])
    out.table("ScriptRange kScriptRanges", braced(script_ranges()))
    out.table("CodePointRange kSpaces", braced(ranges(r"\S")))
    out.table("CodePointRange kWordChars", braced(word_ranges()))
    out.table("CodePointRange kDigits", braced(split_ranges(pre_tokenizers.Digits(True))))
    out.table("CodePointRange kPunctuation", braced(split_ranges(pre_tokenizers.Punctuation())))
    out.table("LowerRun kLowerRuns", braced(lower_runs()))
    out.save()
    out = Writer("unicode_forms.inc")
    canonical = decompositions(normalizers.NFD())
    out.table("char32_t kCanonical", flat(canonical))
    out.table("char32_t kCompatible", flat(decompositions(normalizers.NFKD(), canonical)))
    out.table("Composition kCompositions", braced(compositions(canonical)))
    out.table("CombiningRun kCombiningRuns", braced(combining_runs()))
    out.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())

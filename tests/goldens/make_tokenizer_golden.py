#!/usr/bin/env python3
"""Writes what the library `tokenizers` makes of texts with models/demo/tokenizer.json.

tokenizer-demo.json: a list of {"text", "ids", "decoded"}; no special tokens are added, one spelt
out in the text becomes its id, and decoded keeps it.
tokenizer-demo-decode.json: a list of {"ids", "decoded"}, for ids that no text gives, bytes that are
no UTF-8 among them, which are decoded as U+FFFD.
Cases are drawn by seed where not written out.
"""

import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
EOT = "<|endoftext|>"
SPACES = (
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", "\r", "a", " a",
    "  a", "   a", "a ", "a  ", "\t \t ", " \t\n\r ", "x \n\n y", "x\n\n  y", "a\r\nb\r\n",
    " " * 50, " " * 51 + "x", "\n" * 30, " \n" * 10, "\n " * 10, "\u00a0", "a\u00a0b",
    "a\u2003b", "\u3000", "\u200b", "\u200d", "\u202e", "\ufeff", "\u2028\u2029",
    "\x0b\x0c", "\x1c\x1d\x1e\x1f",
)  # fmt: skip
WORDS = (
    "Hello world", "hello  world", "hello   world", "Hello, world!", " Hello", "HELLO WORLD",
    "hElLo", "Once upon a time", "I'm you're he's we'll they've I'd can't", "I'M YOU'RE HE'S WE'LL",
    "'s's 't't", "' s", "''s", "it's'", "’s ’ll ’t", "don’t", "‘Oh dear!’ said Alice",
    "ROMEO:\nBut, soft! what light through yonder window breaks?", "First Citizen:\n", "thethethe",
    " thethe the", "theking", "the king's son", "and and and", "zzzzqqqxxjj", "a" * 100,
    "Supercalifragilisticexpialidocious", "0", "1", "12", "123", "1234567890", "3.14159",
    "1,000,000", "2024-01-31", "0x1F", "a1b2c3", "½ ¾ ² ³ ①", "٣٤٥", "Ⅷ",
)  # fmt: skip
SPECIAL = (
    EOT, EOT + EOT, "a" + EOT + "b", "a " + EOT + " b", " " + EOT, EOT + "\n", "<|endoftext|",
    "|endoftext|>", "<|endoftext |>", "<|ENDOFTEXT|>", "<<|endoftext|>>", "<|im_start|>", "<s>",
    "</s>", "[PAD]", "<unk>",
)  # fmt: skip
ODD = (
    "\x00", "\x01\x02\x03", "\x7f", "\x1b[31mred\x1b[0m", "\u0080\u0085\u009f", "\ufffd", "\ufffe",
    "é", "e\u0301", "ñ", "n\u0303", "Å Å", "ﬁ", "ß", "İi̇", "Ǆǅǆ", "Zürich Straße naïve façade",
    "a\u0300\u0301\u0302\u0303", "日本語", "日本語のテキスト", "中文字符", "한국어 텍스트", "العربية", "עברית",
    "हिन्दी", "ไทย", "Ελληνικά", "Русский текст", "🙂", "🙂🙂", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏽", "☃️",
    "a🙂b", " 🙂 ", "𝕳𝖊𝖑𝖑𝖔", "𐍈", "\U0010ffff", "\U000e0001", "\uf8ff", "Ã©", "â\u0080\u0099",
    "\xc3\x28", "\xff\xfe", "Ġ", "Ċ", "ĠHello", "Ā",
)  # fmt: skip
SIGNS = (
    "-" * 40, "=" * 33, "!?!?!?", "...", "…", "—", "--", "a--b", "a - b", "“quoted”", '"quoted"',
    "`code`", "_under_score_", "snake_case camelCase PascalCase",
    "https://example.org/a?b=c&d=%20#e",
    "me@example.org", "C:\\dir\\file.txt", "$1.50 €2 £3 ¥4", '{"key": [1, 2.5, null, true]}',
    "def f(x):\n    return x  # comment\n", '<p class="a">b</p>', "a+b=c*d/e^f%g", "~!@#$%^&*()",
)  # fmt: skip
RANGES = {
    "accents": ((0x20, 0x250),),
    "scripts": ((0x300, 0x370), (0x400, 0x460), (0x5D0, 0x5EB), (0x900, 0x980)),
    "signs": ((0x2000, 0x2070), (0x3040, 0x30A0), (0x1F300, 0x1F650)),
}
ALPHABETS = (
    [chr(c) for c in range(0x20, 0x7F)],
    list(" \n\t\r'\u00a0abcde12"),
    *([*" a'\n7", *(chr(c) for r in ranges for c in range(*r))] for ranges in RANGES.values()),
    [EOT, "<|", "|>", "endoftext", " ", "'s", "’", "the", " the", "\n"],
)


def any_character(rng):
    """Half of them ASCII; never a surrogate, which no text has."""
    wide = rng.choice((range(0xD800), range(0xE000, 0x110000)))
    return chr(rng.choice(rng.choice((range(0x80), wide))))


def random_texts(rng):
    for i in range(150):
        alphabet = ALPHABETS[i % len(ALPHABETS)]
        yield "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40)))
    for _ in range(40):
        yield "".join(any_character(rng) for _ in range(rng.randint(1, 16)))


def write(name, rows):
    text = "[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n"
    (HERE / name).write_text(text, encoding="utf-8")
    print(name, len(rows), "cases")


def main():
    tokenizer = Tokenizer.from_file(str(HERE.parent.parent / "models" / "demo" / "tokenizer.json"))
    decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    rows = []
    for text in (*SPACES, *WORDS, *SPECIAL, *ODD, *SIGNS, *random_texts(random.Random(7))):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert decode(ids) == text, text  # whole characters went in, so whole ones come out
        rows.append({"text": text, "ids": ids, "decoded": decode(ids)})
    write("tokenizer-demo.json", rows)
    rng, broken = random.Random(8), []
    vocab_size = tokenizer.get_vocab_size()
    draw = lambda: rng.randrange(94, 256) if rng.random() < 0.7 else rng.randrange(vocab_size)
    for _ in range(60):
        ids = [draw() for _ in range(rng.randint(1, 12))]
        broken.append({"ids": ids, "decoded": decode(ids)})
    write("tokenizer-demo-decode.json", broken)


if __name__ == "__main__":
    main()

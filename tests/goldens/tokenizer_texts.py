"""Texts that tokenizers stumble over, drawn by seed, and the reference that says what is right.

Shared by make_tiny_tokenizers.py, which writes a few of them down, and by the test that compares
lmtp-client with the libraries over many.
"""

HAND_WRITTEN = (
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "a", " a", "  a", "a ", "a  b",
    "Hello world", " Hello  world ", "Once upon a time, there was a king.", "HELLO", "hElLo",
    "I'm you're he's we'll they've I'd can't", "I'M YOU'RE HE'S WE'LL THEY'VE I'D CAN'T",
    "it’s ‘quoted’", "'ſ 'S 'sS ''s", "(K) K k", "12345678901", "1 12 123 1234",
    "3.14 1,000 ½ ² Ⅷ ٣٤٥", "a1b2", "...", "a--b", "—", " —— ", "snake_case camelCase",
    "def f(x):\n    return x\n\n\n",
    "x\r\n\r\n  y", " \u00a0 \u2003x\u3000", "\u200b\u200d\ufeff", "\u0085\u2028\u2029x",
    "\x00\x01\x02", "\x1b[0m", "é", "e\u0301", "E\u0301\u0323x", "A\u030a Å \u212b",
    "ﬁ ß ẞ İ Ǆ", "ᾳ",
    "각 \u1100\u1161\u11a8 \u1100\u1161", "\u0f73\u0f75", "\u0344", "\u2126", "Ａｂ１",
    "日本語のテキスト", "从前有一个国王。", "한국어", "العربية", "हिन्दी", "Царь и", "😀", "👩‍👩‍👧", "🇩🇪",
    "a😀b", "\ufffd",
    "▁", "▁▁a", "a▁b", " ▁ ", "<0x0A>", "<0x41>", "Ġ", "ĠaĊ", "\U000323ae", "\U0010ffff",
    "zzzqqqxxj", "the king's son and the queen", "https://example.org/a?b=c#d", "\\ \" '",
)  # fmt: skip

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz ", "ABCDEFgh 'strevmd", "0123456789 .,", " \t\n\r\x0b\x0c",
    "\u00a0\u2003\u3000\u0085\u2028 a", "'sStTrReEvVmMlLdDſ ’", "!?.,;:-_()[]{}/\\ a1",
    "éèüßñ a\u0301\u0300\u0323\u0327", "aeiou\u0302\u0303\u0304\u0306\u031b\u0345 ",
    "жзийклмн Ёё", "国王和他的女儿。、 ", "あいうえおカキクケ ", "가각나다\u1100\u1161\u11a8\u11ab ",
    "كانملك\u064b\u064e ", "मनुष्य\u093c\u094d ", "😀🎉👍🏽🇩🇪\u200d\ufe0f a", "▁ a▁b", "<0x41>Fe ",
    "\x00\x01\x1f\x7f\u0080\u009f a", "\u200b\u200c\u200d\u2060\ufeff a", "ĠĊĀāé ",
    "½²³¹①Ⅷ٣५ 1", "ǅǆǄﬁﬀﬆ İıſK", "<|>[]/endof text",
)  # fmt: skip


def any_character(rng):
    """Never a surrogate, which no text has."""
    wide = rng.choice((range(0xD800), range(0xE000, 0x110000), range(0x3000), range(0x20000)))
    c = rng.choice(wide)
    return chr(c) if not 0xD800 <= c < 0xE000 else "\ud7ff"


def random_text(rng):
    kind = rng.random()
    if kind < 0.12:  # bytes that are no text, as Python and lmtp-client read them
        return rng.randbytes(rng.randint(1, 24)).decode("utf-8", "replace")
    if kind < 0.27:
        return "".join(any_character(rng) for _ in range(rng.randint(1, 16)))
    if kind < 0.31:  # a long run
        piece = rng.choice(rng.choice(ALPHABETS))
        if rng.random() < 0.3:
            piece += rng.choice("a \n")
        return piece * rng.randint(10, 120)
    if kind < 0.6:
        parts = rng.sample(ALPHABETS, 3)
        return "".join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(1, 40)))
    if kind < 0.7:
        return rng.choice(HAND_WRITTEN) + rng.choice(HAND_WRITTEN)
    alphabet = rng.choice(ALPHABETS)
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40)))


def edges(added):
    """Every added token with spaces and letters at its sides, and beside itself."""
    for token in added:
        for left in ("", " ", "  ", "a", "a ", "\n", "é", "_", "\u0301"):
            for right in ("", " ", "  ", "b", " b", "\n", "é", "_", "\u0301"):
                yield left + token + right
        yield token + token
        yield token + " " + token
        yield token[:-1]
        yield token.upper()
        yield token.lower()


def case_texts(added, rng):
    """A few of all kinds."""
    yield from HAND_WRITTEN
    for token in rng.sample(added, min(len(added), 6)):
        yield from (token, " " + token + " ", "a" + token + "b", "a  " + token + "  b")
    for _ in range(60):
        yield random_text(rng)


class Reference:
    """transformers' tokenizer of a folder whose files name a class, else that of `tokenizers`."""

    def __init__(self, folder):
        if (folder / "tokenizer_config.json").exists() or (folder / "config.json").exists():
            import transformers

            transformers.logging.set_verbosity_error()
            fast = transformers.AutoTokenizer.from_pretrained(str(folder))
            self.backend = fast.backend_tokenizer
            with_special = fast("x")["input_ids"]
            bos = fast.bos_token_id
        else:
            from tokenizers import Tokenizer

            self.backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
            with_special = self.backend.encode("x").ids
            bos = None
        prefix = with_special[: len(with_special) - len(self.encode("x"))]
        added = self.backend.get_added_tokens_decoder()
        self.added = [added[i].content for i in sorted(added)]
        self.vocab_size = max(self.backend.get_vocab(with_added_tokens=True).values()) + 1
        self.adds_bos = bool(prefix)
        # Where nothing says it, what comes in front of a text.
        self.bos_id = bos if bos is not None else (prefix[0] if len(prefix) == 1 else -1)
        self.special = sorted(i for i, token in added.items() if token.special)

    def encode(self, text):
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts):
        return [e.ids for e in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids):
        return self.backend.decode(ids, skip_special_tokens=False)

    def decode_all(self, many_ids):
        return self.backend.decode_batch(many_ids, skip_special_tokens=False)

"""One part of tokenizer.json at a time, beside the library `tokenizers`: regular expressions of all
kinds, pre-tokenizers, normalizers, models and decoders in combinations that published models have.
"""

import random
import sys

import pytest
from test_tokenizers import SOURCE, check_decode, check_encode
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(SOURCE / "tests" / "goldens"))
from tokenizer_texts import HAND_WRITTEN, random_text  # noqa: E402

LETTERS = "aAbBcCdDeEsStTkK 012_-.,'\n\r\t éÉ日本国々ひカ한ж²½ſK\u0301\u200d😀"
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
BEHAVIORS = ("isolated", "merged_with_next", "isolated", "removed", "isolated", "contiguous",
             "isolated", "merged_with_previous")  # fmt: skip
PATTERNS = (
    KIMI, CL100K,
    # deepseek-llm, BLOOM, Falcon
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-Ρ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$", r"[一-龥ࠀ-一가-퟿]+", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[0-9][0-9][0-9]",
    # places
    r"^", r"$", r"^a", r"a$", r"^\s", r"\s+$|^\w", r"\b", r"\B", r"\ba\b", r"\Bs", r"\Aa", r"a\z",
    r"\s\Z", r"\n$", r"$\n", r"^$", r"(?<=^a)b",
    # case
    r"(?i)a", r"(?i)[a-c]+", r"(?i)k|ſ", r"a(?i)b|c", r"(?:a(?i)b|c)d", r"(?i)a(?-i)b",
    r"(?-i:a)(?i:b)",
    r"(?i)[^s]", r"(?i:\p{L})+", r"(?i)[^\p{L}s]+", r"(?i)\p{Lu}+", r"(?i:\w+\S)", r"(?m).+",
    r"(?m:.)\n|.", r"(?i)'(?:[sdmt]|ll|ve|re)",
    # counts
    r"\d{2}+", r"\d{1,2}+", r"\d{2}?", r"\d{1,3}?", r"\d{2,}?", r"\d{,2}?", r"(?:ab){2}+",
    r"[ab]{1,2}+c",
    r"a?+a", r"a++b", r"[a-c]*+.", r"(?:a|b){2}?c", r"x*", r"a??",
    # sets
    r"[a-e&&[^aeiou]]+", r"[^a-e&&[^aeiou]]+", r"[a[b-c]e]+", r"[^a[b-c]e]+", r"[a-c&&b-e&&[^c]]",
    r"[\w&&[^\d_]]+", r"[\p{L}&&\p{Han}]+", r"[[^a-z]&&[^\s]]+", r"[a&b]+", r"[\w-]+", r"[a-c-e]+",
    r"[[:digit:]a]+", r"[[:space:]]+", r"[-a]+", r"[a-]+", r"[\]a]+", r"[a\-c]+", r"[^\S\n]+",
    # properties
    r"\p{Han}+", r"\p{hiragana}|\p{Katakana}", r"\P{Latin}+", r"\p{^Cyrillic}", r"\p{Hangul}+",
    r"\p{Letter}+", r"\p{Uppercase_Letter}", r"\p{lu}", r"\p{Punct}+", r"\p{Space}", r"\p{Digit}+",
    r"\h+", r"[\p{Han}\p{Nd}]+", r"\p{M}+", r"(?<n>a)b", r"(a|b)+c",
)  # fmt: skip


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(23)
    short = ("".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 14))) for _ in range(600))
    return [*HAND_WRITTEN, "\n", "a\n", "\n\na\n", "xaBaxaCacCd", *short,
            *(random_text(rng) for _ in range(300))]  # fmt: skip


def char_model():
    """Every byte is a token, and the mark that a Metaspace puts in front of each piece."""
    vocabulary = {"▁": 0, **{f"<0x{i:02X}>": i + 1 for i in range(256)}}
    return Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))


def compare(tokenizer, folder, texts, many_ids=None):
    tokenizer.save(str(folder / "tokenizer.json"))

    class Reference:
        @staticmethod
        def encode_all(given):
            return [e.ids for e in tokenizer.encode_batch_fast(given, add_special_tokens=False)]

        @staticmethod
        def decode_all(given):
            return tokenizer.decode_batch(given, skip_special_tokens=False)

    check_encode(folder, Reference, texts)
    check_decode(folder, Reference, many_ids or Reference.encode_all(texts))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern, tmp_path, texts):
    tokenizer = char_model()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), BEHAVIORS[PATTERNS.index(pattern) % len(BEHAVIORS)]),
        pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    compare(tokenizer, tmp_path, texts)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))

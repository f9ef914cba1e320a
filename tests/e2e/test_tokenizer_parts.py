"""One part of tokenizer.json at a time, beside the library `tokenizers`: regular expressions of all
kinds, pre-tokenizers, normalizers, models and decoders in combinations that published models have.
"""

import base64
import json
import random
import sys
import types

import pytest
import tiktoken
from test_tokenizers import NUM_TEXTS, SOURCE, check_decode, check_encode
from tokenizers import (
    AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers,
)  # fmt: skip

sys.path.insert(0, str(SOURCE / "tests" / "goldens"))
from make_tiny_tokenizers import OTHER_LINES, TEKKEN, sentencepiece_model  # noqa: E402
from tokenizer_texts import HAND_WRITTEN, Reference, random_text  # noqa: E402

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
    short = ("".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 14))) for _ in range(300))
    return [*HAND_WRITTEN, "\n", "a\n", "\n\na\n", "xaBaxaCacCd", *short,
            *(random_text(rng) for _ in range(200))]  # fmt: skip


def char_model():
    """Every byte is a token, and the mark that a Metaspace puts in front of each piece."""
    vocabulary = {"▁": 0, **{f"<0x{i:02X}>": i + 1 for i in range(256)}}
    return Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))


def compare(tokenizer, folder, texts, many_ids=None):
    tokenizer.save(str(folder / "tokenizer.json"))
    compare_with(tokenizer, folder, texts, many_ids)


def compare_with(tokenizer, folder, texts, many_ids=None):
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


def byte_level_bpe(merged=250):
    """GPT-2's spelling of bytes, and merges of what is often there."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merged, show_progress=False, special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([*HAND_WRITTEN, *OTHER_LINES] * 3, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


BYTE_LEVELS = {
    # Falcon
    "first": [pre_tokenizers.Punctuation("contiguous"), byte_level(use_regex=True),
              pre_tokenizers.Digits(False),
              pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")],
    "amid letters": [byte_level(), pre_tokenizers.Split("Ġ", "merged_with_next"),
                     pre_tokenizers.Split(Regex(r"\p{Lu}"), "isolated")],
    "twice": [byte_level(use_regex=True), byte_level()],
    "before a mark": [byte_level(), pre_tokenizers.Metaspace(replacement="Ġ", split=True)],
    "none": None,
    "with a prefix": [pre_tokenizers.Digits(True), byte_level(add_prefix_space=True)],
}  # fmt: skip
DECODERS = {
    "none": None,
    "bytes": decoders.ByteLevel(),
    "bytes and more": decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
    "more and bytes": decoders.Sequence([decoders.Replace("a", "é"), decoders.ByteLevel()]),
    "no bytes": decoders.Replace("Ġ", " "),
}


@pytest.mark.parametrize("steps", BYTE_LEVELS.values(), ids=BYTE_LEVELS)
@pytest.mark.parametrize("spelt", [False, True], ids=["plain", "spelt"])
def test_byte_level_anywhere(steps, spelt, tmp_path, texts):
    tokenizer = byte_level_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if steps else None
    if spelt:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    # With a letter beyond ASCII releases of the library decode such a token differently.
    tokenizer.add_tokens([AddedToken("n 1", normalized=True), AddedToken("<x>", normalized=False)])
    compare(tokenizer, tmp_path, [*texts, "a n 1<x> n 1", "n 1"])


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_decoders(decoder, tmp_path, texts):
    tokenizer = byte_level_bpe()
    tokenizer.decoder = decoder
    rng = random.Random(4)
    size = tokenizer.get_vocab_size()
    many_ids = [[rng.randrange(size) for _ in range(rng.randint(0, 12))] for _ in range(500)]
    compare(tokenizer, tmp_path, texts, many_ids)


def test_bytes_with_byte_fallback(tmp_path, texts):
    tokenizer = byte_level_bpe()
    described = json.loads(tokenizer.to_str())
    model = described["model"]
    model.update(byte_fallback=True, unk_token="<s>", fuse_unk=True)
    del model["vocab"]["Ċ"]
    model["merges"] = [merge for merge in model["merges"] if "Ċ" not in "".join(merge)]
    compare(Tokenizer.from_str(json.dumps(described)), tmp_path, texts)


WORDS = {
    "whitespace": pre_tokenizers.Whitespace(),
    "whitespace split": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(),
    "delimiter": pre_tokenizers.CharDelimiterSplit("a"),
    "bytes": byte_level(use_regex=True),
}


@pytest.mark.parametrize("pre_tokenizer", WORDS.values(), ids=WORDS)
def test_word_level(pre_tokenizer, tmp_path, texts):
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.WordLevelTrainer(vocab_size=300, show_progress=False,
                                        special_tokens=["<unk>", "<s>"])  # fmt: skip
    tokenizer.train_from_iterator([*HAND_WRITTEN, *OTHER_LINES], trainer)
    compare(tokenizer, tmp_path, texts)


def ranked_tokens(tokenizer):
    """The bytes of a byte-level model's tokens, by rank."""
    spelt = {c: b for b, c in transformers_bytes().items()}
    vocabulary = tokenizer.get_vocab()
    names = sorted((t for t in vocabulary if t != "<s>"), key=vocabulary.get)
    return [bytes(spelt[c] for c in name) for name in names]


def transformers_bytes():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return bytes_to_unicode()


@pytest.mark.parametrize("name", ["tokenizer.model", "tiktoken.model", "my.tiktoken"])
def test_tiktoken(name, tmp_path, texts):
    """Special tokens get the ids behind the ranks; where one is left out, a name of its own."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    lines = [f"{base64.b64encode(token).decode()} {rank}"
             for rank, token in enumerate(ranked_tokens(byte_level_bpe()))]  # fmt: skip
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    names = ["<|begin|>", f"<|reserved_token_{len(lines) + 1}|>", "<|end|>"]
    added = {str(len(lines) + i): {"content": names[i], "special": True, "normalized": False}
             for i in (0, 2)}  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    made = TikTokenConverter(vocab_file=str(path), additional_special_tokens=names,
                             extra_special_tokens=names).converted()  # fmt: skip
    compare_with(made, tmp_path, [*texts, "a<|begin|> b", names[1], names[2]])


@pytest.mark.parametrize("named", [True, False], ids=["named", "first"])
def test_tekken(named, tmp_path, texts):
    """Beside transformers 5's converter or, in the other environment, tiktoken itself."""
    ranks = ranked_tokens(byte_level_bpe())
    names = ["<unk>", "<s>", "</s>", "[INST]"]
    described = {
        "config": {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "version": "v3",
                   "default_vocab_size": len(ranks) + 30 - 7, "default_num_special_tokens": 30},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
                  for i, t in enumerate(ranks)],
    }  # fmt: skip
    if named:
        described["special_tokens"] = [
            {"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(names)
        ]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(described))
    used = ranks[:-7]  # those beyond the size are left out
    encoding = tiktoken.Encoding(
        "x", pat_str=TEKKEN, mergeable_ranks={t: i for i, t in enumerate(used)}, special_tokens={})
    plain = [t for t in texts if "<" not in t and "[" not in t]

    class Reference:
        @staticmethod
        def encode_all(given):
            return [[30 + i for i in encoding.encode(text)] for text in given]

        @staticmethod
        def decode_all(given):
            return [encoding.decode([i - 30 for i in ids]) for ids in given]

    check_encode(tmp_path, Reference, plain)
    check_decode(tmp_path, Reference, Reference.encode_all(plain))
    try:
        from transformers.integrations.mistral.tokenizer import MistralConverter
    except ImportError:
        return  # an older release gives special tokens no ids of their own
    if named:
        made = MistralConverter(str(path)).converted()
        compare_with(made, tmp_path, [*texts, "a[INST] b</s>", "<SPECIAL_12><s>", "[TOOL_CALLS]"])


FOLDED = (
    "ﬀﬁﬂﬃﬄﬅﬆ a", "Ａｂ１！　 a", "①②½²㎏㍿ﷺ℡…‥ 1", "ｶﾞﾊﾟｱﾞ゛゜ﾞ", "\r\n\t\v\x85 a",
    "áéI\u0307\u0301\u0323\u0345 ªª", "\u00a8\u00b4\u00b8\u02d8 a",
    "a\u0300\u0301\u0902\u200d\u200c\ufe0f\u00ad\u200b", "\u0600\u0605\u06dd\u070f 1ª",
    "각가\u1100\u1161\u11a8ㄱㅏ", "क\u093cष\u094d\u200d\u0958ª\u0303", "🇩🇪🇺©\u200d™\u0301👍🏽",
    "\0\x01\x7f\ufeff a",
)  # fmt: skip


def folded_text(rng):
    """Of what a charsmap changes, and of clusters that are looked up whole or by characters."""
    parts = rng.sample(FOLDED, 2)
    return "".join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(1, 20)))


@pytest.fixture(scope="module")
def folded_texts(texts):
    rng = random.Random(31)
    more = [rng.choice((random_text, folded_text))(rng) for _ in range(NUM_TEXTS // 4)]
    return [*texts, *(c + d for c in "".join(FOLDED) for d in "".join(FOLDED[:8])), *more]


@pytest.fixture(scope="module", params=["nmt_nfkc", "nfkc_cf"])
def converter(request, tmp_path_factory):
    """transformers' for models that their class says nothing else of (T5's and others), with such a
    model."""
    from transformers.convert_slow_tokenizer import SpmConverter

    path = tmp_path_factory.mktemp(request.param) / "spiece.model"
    path.write_bytes(sentencepiece_model(
        model_type="unigram", normalization_rule_name=request.param, byte_fallback=False,
        vocab_size=700,
    ))  # fmt: skip
    return SpmConverter(types.SimpleNamespace(vocab_file=str(path)))


def test_charsmap(converter, tmp_path, folded_texts):
    """Every character that comes out is seen, as its bytes."""
    charsmap = converter.proto.normalizer_spec.precompiled_charsmap
    assert len(charsmap) > 100_000
    tokenizer = char_model()
    tokenizer.normalizer = normalizers.Precompiled(charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    compare(tokenizer, tmp_path, folded_texts)


def test_charsmap_as_converted(converter, tmp_path, folded_texts):
    converted = converter.converted()
    assert '"Precompiled"' in converted.to_str()
    compare(converted, tmp_path, folded_texts)


@pytest.mark.parametrize("name", ["LlamaTokenizer", "GemmaTokenizer"])
def test_charsmap_that_a_class_ignores(name, tmp_path, folded_texts):
    model = sentencepiece_model(normalization_rule_name="nmt_nfkc")
    assert len(model) > 200_000  # with a charsmap
    (tmp_path / "tokenizer.model").write_bytes(model)
    config = {"tokenizer_class": name, "legacy": False, "pad_token": "<unk>", "eos_token": "<s>",
              "bos_token": "</s>"}  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    check_encode(tmp_path, Reference(tmp_path), folded_texts)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))

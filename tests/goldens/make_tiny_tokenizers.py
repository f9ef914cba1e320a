#!/usr/bin/env python3
"""Writes the small tokenizers under tests/goldens/tokenizers/, the same bytes on every run.

    make_tiny_tokenizers.py [FOLDER]

Each is put together as the tokenizers that a family of models is published with (normalizer,
pre-tokenizer, decoder, post-processor, kinds of added tokens, files), with a small vocabulary of
its own, trained on text drawn from the words of models/demo and a few lines in other scripts.
Beside each lies cases.json: texts, the ids and the decoded text that transformers' AutoTokenizer
(or, where no file names a class, `tokenizers` itself) gives.
"""

import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import (
    AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
    trainers,
)  # fmt: skip

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from tokenizer_texts import Reference, case_texts  # noqa: E402

MARK = "▁"
EOT = "<|endoftext|>"
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
OTHER_LINES = (
    "Der König und die Königin gingen über die Straße. Où est l'été? ¡Qué niño más feliz!",
    "Царь и царица жили долго и счастливо. Однажды весной они нашли лягушку.",
    "从前有一个国王和他的女儿。她非常喜欢金球。 昔々、王様とお姫様がいました。",
    "옛날 옛적에 왕과 공주가 살았습니다. كان يا ما كان ملك. היה היה מלך. एक राजा था।",
    "In 1697 he paid 12 gold coins, 3.50 silver and 1,000 coppers: 100% of it! (2024-01-31)",
    "def go(x):\n    return x + 1  # one more\n\nfor i in range(10):\n\tprint(i, '😀', \"🎉🎉\")\n",
    "I'm sure you're right, he'll say we've won; she'd go. IT'S THE KING'S! Don't 'twas.",
    "https://example.org/a/b?c=d&e=%20f  <p class=\"x\">{'k': [1, 2]}</p>   A-B_C*D=E/F^G~H",
)  # fmt: skip


def training_text():
    """Sentences of the demo's own words, as often as its tokenizer ranks them, and the lines."""
    vocabulary = json.loads((HERE.parents[1] / "models/demo/vocab.json").read_text())
    spelt = (w for w in sorted(vocabulary, key=vocabulary.get) if w.startswith("Ġ"))
    words = [w[1:] for w in spelt if w[1:].isalpha() and w[1:].isascii()]
    weights = [1.0 / (rank + 8) for rank in range(len(words))]
    rng = random.Random(3)
    lines = []
    for i in range(3000):
        sentence = rng.choices(words, weights, k=rng.randint(3, 12))
        lines.append(" ".join([sentence[0].capitalize(), *sentence[1:]]) + rng.choice(".!?;"))
        if i % 5 == 0:
            lines.append(OTHER_LINES[(i // 5) % len(OTHER_LINES)])
        if i % 7 == 0:
            number = rng.randrange(10 ** rng.randint(1, 9))
            lines.append(f"{number}  " + " " * rng.randint(0, 6))
    return lines


TEXT = training_text()


def special(text, **flags):
    return AddedToken(text, special=True, normalized=False, **flags)


def byte_level_bpe(pre_tokenizer, normalizer=None, size=600, unused=0, **options):
    """`unused`: every so many merges one is taken out, so that its token is reached by
    ignore_merges alone."""
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    if unused:
        described = json.loads(tokenizer.to_str())
        merges = described["model"]["merges"]
        described["model"]["merges"] = [m for i, m in enumerate(merges) if i % unused != unused - 1]
        tokenizer = Tokenizer.from_str(json.dumps(described))
    return tokenizer


def split_and_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def begins_with(token, token_id):
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, token_id)]
    )


def sentencepiece_model(**options):
    """The bytes of a tokenizer.model."""
    out = io.BytesIO()
    settings = dict(
        vocab_size=800, model_type="bpe", byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        allow_whitespace_only_pieces=True, character_coverage=0.999, minloglevel=2,
    )  # fmt: skip
    settings.update(options)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=out, **settings
    )
    return out.getvalue()


class Folder:
    def __init__(self, root, name):
        self.path = root / name
        self.path.mkdir(parents=True, exist_ok=True)
        for old in self.path.iterdir():
            old.unlink()

    def json(self, name, value):
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        (self.path / name).write_text(text, encoding="utf-8")

    def tokenizer(self, tokenizer):
        """Given as one or as text. Without line breaks, which would be half of the file."""
        described = json.loads(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str())
        text = json.dumps(described, ensure_ascii=False, separators=(",", ":")) + "\n"
        (self.path / "tokenizer.json").write_text(text, encoding="utf-8")

    def config(self, tokenizer_class, **values):
        self.json("tokenizer_config.json", {"tokenizer_class": tokenizer_class, **values})


def added_tokens_decoder(tokenizer):
    keys = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    return {
        str(i): {key: getattr(token, key) for key in keys}
        for i, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }


# --- byte-level BPE ---------------------------------------------------------------------------


def gpt_neox(folder):
    """Pythia: NFC, and runs of spaces as tokens that are looked for in the normalized text."""
    tokenizer = byte_level_bpe(
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True), normalizers.NFC()
    )
    tokenizer.add_special_tokens([special(EOT), special("<|padding|>")])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(12, 1, -1)])
    folder.tokenizer(tokenizer)
    folder.config(
        "GPTNeoXTokenizer", add_prefix_space=False, bos_token=EOT, eos_token=EOT, unk_token=EOT,
        clean_up_tokenization_spaces=True, model_max_length=2048,
    )  # fmt: skip


def opt(folder):
    """vocab.json and merges.txt of which the special tokens are the first, and BOS at the start."""
    tokenizer = byte_level_bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    folder.json("vocab.json", {token: i for i, token in enumerate(first + vocabulary)})
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    lines = ["#version: 0.2", *(" ".join(m) for m in merges)]
    (folder.path / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    token = lambda text: {"__type": "AddedToken", "content": text, **flags}
    folder.config(
        "GPT2Tokenizer", errors="replace", add_prefix_space=False, add_bos_token=True,
        bos_token=token("</s>"), eos_token=token("</s>"), unk_token=token("</s>"),
        pad_token=token("<pad>"),
    )  # fmt: skip
    plain = lambda text: {"content": text, **flags}
    folder.json("special_tokens_map.json", {
        "bos_token": plain("</s>"), "eos_token": plain("</s>"), "unk_token": plain("</s>"),
        "pad_token": plain("<pad>"),
    })  # fmt: skip


def llama3(folder):
    tokenizer = byte_level_bpe(split_and_bytes(GPT4 % "{1,3}"), unused=9, ignore_merges=True)
    names = ["begin_of_text", "end_of_text", *(f"reserved_special_token_{i}" for i in range(6)),
             "start_header_id", "end_header_id", "eot_id"]
    tokenizer.add_special_tokens([special(f"<|{name}|>") for name in names])
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), begins_with(begin, tokenizer.token_to_id(begin)),
    ])  # fmt: skip
    folder.tokenizer(tokenizer)
    folder.config(
        "PreTrainedTokenizerFast", added_tokens_decoder=added_tokens_decoder(tokenizer),
        bos_token=begin, eos_token="<|end_of_text|>", model_max_length=131072,
    )  # fmt: skip


def tekken(folder):
    """Mistral's later models."""
    tokenizer = byte_level_bpe(split_and_bytes(TEKKEN), unused=9, ignore_merges=True)
    names = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
    tokenizer.add_special_tokens([special(name) for name in names])
    tokenizer.post_processor = begins_with("<s>", tokenizer.token_to_id("<s>"))
    folder.tokenizer(tokenizer)
    folder.config(
        "PreTrainedTokenizerFast", added_tokens_decoder=added_tokens_decoder(tokenizer),
        bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True,
    )  # fmt: skip


def qwen_tokenizer():
    tokenizer = byte_level_bpe(split_and_bytes(GPT4 % ""), normalizers.NFC())
    tokenizer.add_special_tokens([special(t) for t in (EOT, "<|im_start|>", "<|im_end|>")])
    return tokenizer


def qwen2(folder):
    """The files of old: no tokenizer.json."""
    tokenizer = qwen_tokenizer()
    described = json.loads(tokenizer.to_str())["model"]
    folder.json("vocab.json", described["vocab"])
    lines = ["#version: 0.2", *(" ".join(m) for m in described["merges"])]
    (folder.path / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder.config(
        "Qwen2Tokenizer", add_prefix_space=False, bos_token=None, eos_token="<|im_end|>",
        pad_token=EOT, unk_token=None, errors="replace", split_special_tokens=False,
        added_tokens_decoder=added_tokens_decoder(tokenizer),
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )  # fmt: skip


def qwen3(folder):
    """tokenizer.json, and tokens that are added but not special."""
    tokenizer = qwen_tokenizer()
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in
                          ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    folder.tokenizer(tokenizer)
    folder.config(
        "Qwen2Tokenizer", add_prefix_space=False, bos_token=None, eos_token="<|im_end|>",
        pad_token=EOT, unk_token=None, errors="replace", add_bos_token=False,
        added_tokens_decoder=added_tokens_decoder(tokenizer),
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )  # fmt: skip


def gpt4(folder):
    """phi-4 and other heirs of cl100k; flags of added tokens in all combinations."""
    tokenizer = byte_level_bpe(split_and_bytes(GPT4 % "{1,3}"))
    tokenizer.add_special_tokens([special(EOT), special("<|left|>", lstrip=True),
                                  special("<|right|>", rstrip=True)])
    tokenizer.add_tokens([
        AddedToken("<|both|>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("alone", single_word=True, normalized=False),
        AddedToken("café", normalized=True), AddedToken("  ", normalized=False),
    ])  # fmt: skip
    folder.tokenizer(tokenizer)


def starcoder(folder):
    """Digits, Punctuation and a ByteLevel with a space in front."""
    tokenizer = byte_level_bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
    ]))  # fmt: skip
    tokenizer.add_special_tokens([special(EOT)])
    folder.tokenizer(tokenizer)
    folder.config("PreTrainedTokenizerFast", bos_token=EOT, eos_token=EOT, add_prefix_space=False)


def gpt2_override(folder):
    """tokenizer.json says add_prefix_space, tokenizer_config.json does not: transformers follows
    the latter. And it adds tokens that tokenizer.json does not have."""
    tokenizer = byte_level_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([AddedToken(EOT, special=True, normalized=True)])
    folder.tokenizer(tokenizer)
    folder.config("GPT2Tokenizer", bos_token=EOT, eos_token=EOT, unk_token=EOT, pad_token="<pad>",
                  additional_special_tokens=["<|sep|>"])  # fmt: skip


# --- sentencepiece ----------------------------------------------------------------------------

LLAMA_CONFIG = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True,
                    add_eos_token=False, sp_model_kwargs={})  # fmt: skip


def llama2(folder, **config):
    """tokenizer.model alone."""
    model = sentencepiece_model(user_defined_symbols=["<mine>"])
    (folder.path / "tokenizer.model").write_bytes(model)
    folder.config("LlamaTokenizer", **{**LLAMA_CONFIG, "legacy": True, **config})


def llama2_new(folder):
    """legacy off: a space in front of the text's beginning alone."""
    llama2(folder, legacy=False, pad_token="<pad>")


def llama2_bare(folder):
    """No space in front; no BOS."""
    llama2(folder, legacy=True, add_prefix_space=False, add_bos_token=False)


def llama_tokenizer(**options):
    """tokenizer.json as transformers' converter makes it from such a model."""
    from transformers import LlamaTokenizer
    from transformers.convert_slow_tokenizer import convert_slow_tokenizer

    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "tokenizer.model"
        path.write_bytes(sentencepiece_model())
        return convert_slow_tokenizer(LlamaTokenizer(str(path), **options))


def mistral(folder):
    """v0.3: Metaspace that puts a space in front of the text's beginning."""
    tokenizer = llama_tokenizer(legacy=False)
    tokenizer.add_special_tokens([special("[INST]"), special("[/INST]"), special("<unk>")])
    tokenizer.post_processor = begins_with("<s>", 1)
    folder.tokenizer(tokenizer)
    folder.config("LlamaTokenizer", **{**LLAMA_CONFIG, "legacy": False,
                                       "added_tokens_decoder": added_tokens_decoder(tokenizer)})


def phi3(folder):
    """Added tokens that take the white space after them along."""
    tokenizer = llama_tokenizer(legacy=True)
    tokenizer.add_special_tokens([special("<unk>"), special(EOT)])
    tokenizer.add_special_tokens(
        [special(f"<|{name}|>", rstrip=True) for name in ("assistant", "system", "end", "user")]
    )
    tokenizer.add_tokens([AddedToken("</s>", rstrip=True, normalized=False)])
    folder.tokenizer(tokenizer)
    folder.config(
        "LlamaTokenizer", add_bos_token=False, add_eos_token=False, legacy=False, bos_token="<s>",
        added_tokens_decoder=added_tokens_decoder(tokenizer), eos_token=EOT, pad_token=EOT,
        unk_token="<unk>",
    )  # fmt: skip


def gemma_model():
    symbols = ["<mask>", *(f"<unused{i}>" for i in range(4)), "<start_of_turn>", "<end_of_turn>",
               *("\n" * n for n in range(2, 6)), *(MARK * n for n in range(2, 9)), "<table>"]
    return sentencepiece_model(
        vocab_size=840, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>",
        eos_piece="<eos>", bos_piece="<bos>", user_defined_symbols=symbols, add_dummy_prefix=False,
    )  # fmt: skip


GEMMA_CONFIG = dict(bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>",
                    add_bos_token=True, add_eos_token=False)  # fmt: skip


def gemma(folder):
    """tokenizer.model alone."""
    (folder.path / "tokenizer.model").write_bytes(gemma_model())
    folder.config("GemmaTokenizer", **GEMMA_CONFIG)


def gemma2(folder):
    from transformers import GemmaTokenizerFast

    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "tokenizer.model"
        path.write_bytes(gemma_model())
        fast = GemmaTokenizerFast(str(path))
    tokenizer = fast.backend_tokenizer
    folder.tokenizer(tokenizer)
    folder.config("GemmaTokenizer", **GEMMA_CONFIG,
                  added_tokens_decoder=added_tokens_decoder(tokenizer))  # fmt: skip


def llama_unigram(folder):
    """A tokenizer.model that is Unigram, with bytes."""
    (folder.path / "tokenizer.model").write_bytes(sentencepiece_model(model_type="unigram"))
    folder.config("LlamaTokenizer", **LLAMA_CONFIG, legacy=True)


def unigram_tokenizer(normalizer, pre_tokenizer):
    """Of sentencepiece's pieces, since the trainer of `tokenizers` gives others on every run."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(
        model_type="unigram", byte_fallback=False, vocab_size=700,
    ))  # fmt: skip
    vocabulary = [
        (pieces.id_to_piece(i), round(pieces.get_score(i), 5)) for i in range(len(pieces))
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens([special("<unk>"), special("<s>"), special("</s>")])
    return tokenizer


def unigram(folder):
    """As tokenizers' SentencePieceUnigramTokenizer makes it."""
    tokenizer = unigram_tokenizer(
        normalizers.Sequence([
            normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "),
        ]),
        pre_tokenizers.Metaspace(prepend_scheme="always"),
    )  # fmt: skip
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = begins_with("<s>", 1)
    folder.tokenizer(tokenizer)


def unigram_odds(folder):
    """The remaining normalizers and behaviours."""
    tokenizer = unigram_tokenizer(
        normalizers.Sequence([
            normalizers.Strip(), normalizers.NFKD(), normalizers.Lowercase(),
            normalizers.Replace("--", "—"),
        ]),
        pre_tokenizers.Sequence([
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            pre_tokenizers.Split(Regex(r"\d+"), "merged_with_next"),
            pre_tokenizers.Split("—", "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"[\w▁]+"), "removed", invert=True),
        ]),
    )  # fmt: skip
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    folder.tokenizer(tokenizer)


def unigram_charsmap(folder):
    """As transformers' converter makes models with a precompiled_charsmap (T5 and others), here a
    small one. Some keys are longer than a character, some replacements empty."""
    from types import SimpleNamespace

    from transformers.convert_slow_tokenizer import SpmConverter

    spell = lambda text: " ".join(f"{ord(c):X}" for c in text)
    folds = {"\r\n": "\n", "\t": " ", "\u200b": "", "\u00ad": "", "ß": "ss", "B": "b"}
    folds["♪♪"] = "~"
    for c in "ﬁﬀ½①㎏ªＡｂ！\u3000\u00a0…ﷺｶｷ™\u0958\u00a8":
        folds[c] = unicodedata.normalize("NFKC", c)
    for c in "àèìÀÈáéíÁÉ":
        folds[unicodedata.normalize("NFD", c)] = c
    with tempfile.TemporaryDirectory() as scratch:
        rules, path = pathlib.Path(scratch) / "rules.tsv", pathlib.Path(scratch) / "tokenizer.model"
        rules.write_text("".join(f"{spell(k)}\t{spell(v)}\n" for k, v in sorted(folds.items())))
        options = {"model_type": "unigram", "byte_fallback": False, "vocab_size": 700}
        path.write_bytes(sentencepiece_model(normalization_rule_name="user_defined", **options,
                                             normalization_rule_tsv=str(rules)))  # fmt: skip
        folder.tokenizer(SpmConverter(SimpleNamespace(vocab_file=str(path))).converted())


FAMILIES = (
    gpt_neox, opt, llama3, tekken, qwen2, qwen3, gpt4, starcoder, gpt2_override, llama2, llama2_new,
    llama2_bare, mistral, phi3, gemma, gemma2, llama_unigram, unigram, unigram_odds,
    unigram_charsmap,
)  # fmt: skip


def write_cases(folder, every=1):
    reference = Reference(folder.path)
    rows = []
    for text in list(case_texts(reference.added, random.Random(11)))[::every]:
        ids = reference.encode(text)
        rows.append({"text": text, "ids": ids, "decoded": reference.decode(ids)})
    rng = random.Random(12)
    for _ in range(30):
        ids = [rng.randrange(reference.vocab_size) for _ in range(rng.randint(1, 10))]
        rows.append({"text": None, "ids": ids, "decoded": reference.decode(ids)})
    head = {key: getattr(reference, key) for key in ("vocab_size", "bos_id", "adds_bos", "special")}
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    text = f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n'
    (folder.path / "cases.json").write_text(text, encoding="utf-8")
    return len(rows)


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "tokenizers"
    for make in FAMILIES:
        folder = Folder(root, make.__name__.replace("_", "-"))
        make(folder)
        num_cases = write_cases(folder)
        size = sum(f.stat().st_size for f in folder.path.iterdir())
        print(f"{folder.path.name}: {num_cases} cases, {size // 1024} KiB")


if __name__ == "__main__":
    main()

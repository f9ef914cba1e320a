"""Writes the demo model's Hugging Face style folder, README.md with its measurements included."""

import json
import sys

import torch
from safetensors.torch import load_file, save_file

from demo_model import CONTEXT, bits_per_byte, continue_greedily

EOT = "<|endoftext|>"
SIZE_MAX = 6_000_000  # bytes, of the whole folder
SAMPLE_TOKENS = 60
# Openings in the manner of the texts; none was chosen by what the model makes of it.
SAMPLE_PROMPTS = (
    "Once upon a time there was",
    "The king said to",
    "Alice looked at the",
    "ROMEO:\n",
    "A poor man had three",
    "First Citizen:\n",
    "In the middle of the forest",
    "The Queen of Hearts",
    "KING HENRY:\n",
    "There was once an old",
)


def write_tokenizer(tok, out):
    """tokenizer.json spells merges as "a b" strings, which every release of `tokenizers` reads
    (pairs only since 0.20); vocab.json and merges.txt say the same for readers of the older
    form."""
    whole = json.loads(tok.to_str())
    model = whole["model"]
    model.pop("ignore_merges", None)
    model["merges"] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    special = {"bos_token": EOT, "eos_token": EOT, "unk_token": EOT}
    write = lambda name, text: (out / name).write_text(text + "\n", encoding="utf-8")
    write("tokenizer.json", json.dumps(whole, ensure_ascii=False, indent=1))
    write(
        "vocab.json",
        json.dumps(dict(sorted(model["vocab"].items(), key=lambda e: e[1])), ensure_ascii=False),
    )
    write("merges.txt", "\n".join(["#version: 0.2"] + model["merges"]))
    write("special_tokens_map.json", json.dumps(special, indent=2))
    write(
        "tokenizer_config.json",
        json.dumps(
            {
                "tokenizer_class": "GPT2Tokenizer",
                "add_prefix_space": False,
                "clean_up_tokenization_spaces": False,
                "model_max_length": CONTEXT,
                **special,
            },
            indent=2,
        ),
    )


def write_model(model, tok, out):
    c, eot = model.c, tok.token_to_id(EOT)
    ids = {"bos_token_id": eot, "eos_token_id": eot}
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "vocab_size": c["vocab_size"],
        "n_positions": CONTEXT,
        "n_ctx": CONTEXT,
        "n_embd": c["n_embd"],
        "n_layer": c["n_layer"],
        "n_head": c["n_head"],
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "embd_pdrop": c["dropout"],
        "resid_pdrop": c["dropout"],
        "attn_pdrop": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        **ids,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n")
    save_file(
        {n: t.half().contiguous() for n, t in model.state_dict().items()},
        str(out / "model.safetensors"),
        {"format": "pt"},
    )


def loops(ids):
    """True where the last 20 or more tokens repeat with a period (two whole periods at least), or
    where some 4-gram stands three times in the sample."""
    for period in range(1, len(ids) // 2 + 1):
        tail = ids[-max(20, 2 * period) :]
        if tail[period:] == tail[:-period]:
            return True
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return any(grams.count(g) >= 3 for g in grams)


def greedy_samples(model, tok):
    """[(prompt, continuation, whether it loops, its tokens)] for SAMPLE_PROMPTS, SAMPLE_TOKENS each
    or up to the end-of-text token."""
    model.eval()
    out = []
    for prompt in SAMPLE_PROMPTS:
        ids = torch.tensor([tok.encode(prompt).ids])
        new = continue_greedily(model, ids, SAMPLE_TOKENS)[0, ids.shape[1] :].tolist()
        eot = tok.token_to_id(EOT)
        new = new[: new.index(eot)] if eot in new else new
        out.append((prompt, tok.decode(new), loops(new), len(new)))
    return out


README = """# The demo model

A tiny GPT-2-architecture language model ({parameters:,} parameters, context {context}) with a
byte-level BPE tokenizer of its own ({vocab} entries), for `lmtp-serve demo` and for tests. It
babbles in the manner of its texts; it knows nothing. Both were made by `tools/dev/train_demo.py`,
which also wrote this file.

## Texts
All are in the public domain: {texts}.
Sources: Shakespeare's plays as gathered in "tinyshakespeare" (A. Karpathy, char-rnn); the brothers
Grimm's fairy tales, Project Gutenberg 2591; Lewis Carroll's "Alice's Adventures in Wonderland",
Project Gutenberg 11. A tenth of the paragraphs ({held:,} bytes, one drawn by seed from every ten)
was held out from tokenizer and model.

## Held-out text
**{bits:.3f} bits per byte** ({each}).
Measured with the float16 weights of this folder, run in float32: each text's held-out paragraphs in
their order, in windows of {context} tokens that overlap by half; every UTF-8 byte counts.

Trained for {minutes:.0f} minutes ({steps} steps of {tokens} tokens) on {threads} threads of a
processor; peak learning rates and the like:
{parts}.

## Ten greedy samples of 60 tokens
{loops} of the ten loop (the last 20 or more tokens repeat with a period, or a 4-gram stands three
times). The prompt is in bold.
{samples}"""


def show_sample(number, prompt, more, loop, count):
    """One sample as a quoted block; `\\` at a line's end is Markdown's line break."""
    notes = ["loops"] * loop + [f"{count} tokens, then its end"] * (count < SAMPLE_TOKENS)
    text = f"**{prompt.rstrip()}**{prompt[len(prompt.rstrip()) :]}{more}"
    lines = [line.rstrip() for line in text.split("\n")]
    quoted = "\n".join(
        f"> {line}{chr(92) if line and i + 1 < len(lines) and lines[i + 1] else ''}".rstrip()
        for i, line in enumerate(lines)
    )
    return f"\n{number}.{f' ({chr(59).join(notes)})' if notes else ''}\n\n{quoted}"


def write_readme(args, trainer, held, samples):
    """Measures the model as it lies in the folder and writes what it finds."""
    model, tok = trainer.model, trainer.tok
    each = [(path.stem, bits_per_byte(model, tok, [text])) for path, text in held]
    text = README.format(
        parameters=sum(p.numel() for p in model.parameters()),
        context=CONTEXT,
        vocab=tok.get_vocab_size(),
        texts=", ".join(f"`{path.name}`" for path, _ in held),
        held=sum(len(t.encode()) for _, t in held),
        bits=bits_per_byte(model, tok, [t for _, t in held]),
        each=", ".join(f"{n} {b:.3f}" for n, b in each),
        minutes=trainer.spent / 60,
        steps=trainer.step,
        tokens=args.tokens,
        parts=";\n".join(f"- {part}" for part in trainer.parts),
        threads=args.threads,
        loops=sum(s[2] for s in samples),
        samples="\n".join(show_sample(i, *sample) for i, sample in enumerate(samples, 1)),
    )
    (args.out / "README.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def write_folder(args, trainer, held):
    write_tokenizer(trainer.tok, args.out)
    write_model(trainer.model, trainer.tok, args.out)
    trainer.model.load_state_dict(
        {n: t.float() for n, t in load_file(str(args.out / "model.safetensors")).items()}
    )
    (args.out / "model.safetensors").chmod(0o644)
    write_readme(args, trainer, held, greedy_samples(trainer.model, trainer.tok))
    size = sum(f.stat().st_size for f in args.out.iterdir() if f.name != "work.pt")
    print("folder:", size, "bytes")
    if size > SIZE_MAX:
        sys.exit(
            f"the folder has {size} bytes, more than the {SIZE_MAX} allowed: "
            "take a smaller --width or --layers"
        )

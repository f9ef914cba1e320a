#!/usr/bin/env python3
"""Train the demo model that `lmtp-serve demo` serves, from plain text, on a processor.

    train_demo.py [--out models/demo] [--minutes 40] [--resume] TEXT...

Makes a byte-level BPE tokenizer and a small GPT-2-architecture model, and writes them as a Hugging
Face style folder (float16 safetensors). A tenth of the paragraphs is held out; neither the
tokenizer nor the model sees it. The bits per byte on that tenth and ten greedy samples, both from
the weights as saved, go into the folder's README.md.

How, and why, for so little text (under 2 MB):
  * BPE-dropout (Provilkov et al. 2020) spells the text anew for every pass, which delays
    overfitting.
  * Matrices are trained with Muon (Jordan et al. 2024), the rest with AdamW: fewer passes for the
    same loss.
  * Greedy decoding of tiny models loops. The last part of the time is therefore spent on
    sequence-level unlikelihood training (Welleck et al. 2019): the model continues training text
    greedily and is taught away from the n-grams that it repeats there, mixed half and half with
    plain training.
The schedule runs over wall time, so two runs do not give the same bits. A checkpoint (work.pt) is
kept in the folder while training; `--resume` goes on from it.
"""

import argparse
import json
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from demo_folder import EOT, write_folder
from demo_model import CONTEXT, Gpt2, bits_per_byte, continue_greedily

SEED = 1
HELD_OUT_SHARE = 0.1


def is_title(paragraph):
    """A story's or chapter's heading, which begins a document of its own: one line, no lower case,
    no speaker's colon."""
    line = paragraph.strip()
    return (
        "\n" not in line
        and ":" not in line
        and len(line) > 4
        and (line.isupper() or line.startswith("CHAPTER "))
    )


def split_text(text, rng):
    """Returns (training documents, held-out text). Paragraphs end at blank lines; a tenth of them,
    drawn from blocks of ten so that every part of the text is represented, is held out."""
    paragraphs = [p for p in text.replace("\r\n", "\n").split("\n\n") if p.strip()]
    held = set()
    for start in range(0, len(paragraphs), round(1 / HELD_OUT_SHARE)):
        block = range(start, min(start + round(1 / HELD_OUT_SHARE), len(paragraphs)))
        if len(block) == round(1 / HELD_OUT_SHARE):
            held.add(rng.choice(block))
    documents = [[]]
    for i, paragraph in enumerate(paragraphs):
        if is_title(paragraph) and documents[-1]:
            documents.append([])
        if i not in held:
            documents[-1].append(paragraph.strip("\n"))
    join = lambda parts: "\n\n".join(parts) + "\n\n"
    held_out = join(paragraphs[i].strip("\n") for i in sorted(held))
    return [join(d) for d in documents if d], held_out


def byte_level(model):
    tok = Tokenizer(model)
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def train_tokenizer(texts, vocab_size):
    """Ids lie as GPT-2's do: the 256 bytes, then the merges, the end-of-text token last."""
    tok = byte_level(models.BPE())
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[EOT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    trained = json.loads(tok.to_str())["model"]
    vocab = {t: (i - 1) % len(trained["vocab"]) for t, i in trained["vocab"].items()}
    tok = byte_level(models.BPE(vocab, [tuple(m) for m in trained["merges"]]))
    tok.add_special_tokens([EOT])
    return tok


class Corpus:
    """Training documents as one stream of ids, spelt anew whenever respell() is called: by turns
    with BPE-dropout and as the tokenizer spells in use."""

    def __init__(self, documents, tok, dropout):
        self.documents, self.tok, self.dropout, self.passes = documents, tok, dropout, 0
        self.eot = tok.token_to_id(EOT)
        self.respell()

    def respell(self):
        self.tok.model.dropout = self.dropout if self.passes % 2 == 0 and self.dropout else None
        self.passes += 1
        encoded = [e.ids for e in self.tok.encode_batch(self.documents)]
        self.tok.model.dropout = None
        ids = []
        for e in encoded:
            ids += [self.eot] + e
        self.data = torch.tensor(ids + [self.eot])

    def batch(self, rows, length):
        """[rows, length] ids; one row in eight begins with the end-of-text token at a random place,
        so that the model knows how to begin anything from it."""
        at = torch.randint(len(self.data) - length, (rows,))
        x = torch.stack([self.data[i : i + length] for i in at.tolist()])
        x[: rows // 8, 0] = self.eot
        return x


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by a Newton-Schulz iteration (Jordan et al. 2024,
    kellerjordan.github.io/posts/muon). For matrices only; the query, key and value parts of c_attn
    count as three."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @staticmethod
    def orthogonalise(g):
        x = g.bfloat16()
        wide = x.shape[0] <= x.shape[1]
        x = x if wide else x.t()
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.t()
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        return (x if wide else x.t()).float() * max(1, g.shape[1] / g.shape[0]) ** 0.5

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(m, group["momentum"])
                parts = g.split(g.shape[0], 1) if g.shape[1] == 3 * g.shape[0] else (g,)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(torch.cat([self.orthogonalise(y) for y in parts], 1), alpha=group["lr"])


def repeats(ids, prompt, n):
    """[rows, tokens] bool: the generated tokens that complete an n-gram seen before in the row."""
    mark = torch.zeros_like(ids, dtype=torch.bool)
    for r, row in enumerate(ids.tolist()):
        seen = set()
        for i in range(n - 1, len(row)):
            gram = tuple(row[i - n + 1 : i + 1])
            if gram in seen and i >= prompt:
                mark[r, i] = True
            seen.add(gram)
    return mark


def likelihood_loss(model, x, start=0):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x[:, :-1], start=start)
    return F.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())


def unlikelihood_loss(model, corpus, rows=32, count=72):
    """Mean of -log(1 - p) over the tokens with which greedy continuations repeat a 4-gram, and the
    share of those."""
    prompt = random.randint(3, 24)
    ids = corpus.batch(rows, prompt)
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ids = continue_greedily(model, ids, count)
    model.train()
    mark = repeats(ids, prompt, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids[:, :-1])
    p = logits.float().softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    loss = -torch.log((1 - p).clamp(min=1e-3)) * mark[:, 1:]
    return loss.sum() / max(1, int(mark.sum())), mark.sum().item() / (rows * count)


class Trainer:
    def __init__(self, args, model, corpus, held, tok):
        self.args, self.model, self.corpus, self.held, self.tok = args, model, corpus, held, tok
        matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and ".h." in n]
        tables = [p for n, p in model.named_parameters() if p.dim() == 2 and ".h." not in n]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        self.optimizers = [
            Muon(matrices, args.muon_lr, weight_decay=args.decay),
            torch.optim.AdamW(
                [
                    {"params": tables, "weight_decay": 0.01},
                    {"params": vectors, "weight_decay": 0.0},
                ],
                lr=args.adam_lr,
                betas=(0.9, 0.98),
            ),
        ]
        for o in self.optimizers:
            for g in o.param_groups:
                g["peak"] = g["lr"]
        self.spent, self.step = 0.0, 0  # spent: seconds of wall time
        self.parts = []  # what each start trained with, for the README

    def set_rate(self, done):
        scale = min(1, (self.step + 1) / 50) * min(1, (1 - done) / 0.7 + 0.01)
        for o in self.optimizers:
            for g in o.param_groups:
                g["lr"] = g["peak"] * scale

    def train_step(self, done):
        self.set_rate(done)
        share = None
        # Half windows cost less attention; they take either half of the positions. Until whole ones
        # follow, the held-out figure printed is far too high: it is taken with whole windows.
        half = done < 0.6
        length = CONTEXT // 2 if half else CONTEXT
        x = self.corpus.batch(self.args.tokens // length, length + 1)
        loss = likelihood_loss(self.model, x, random.choice((0, length)) if half else 0)
        loss.backward()
        if done > 1 - self.args.unlikelihood:
            extra, share = unlikelihood_loss(self.model, self.corpus)
            if extra.requires_grad:
                (self.args.alpha * extra).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for o in self.optimizers:
            o.step()
            o.zero_grad(set_to_none=True)
        return loss.item(), share

    def run(self):
        total, passed, saved = self.args.minutes * 60, 0, time.time()
        a = self.args
        if self.spent < total:
            self.parts.append(
                f"from minute {self.spent / 60:.0f} (of {a.minutes:g}) Muon {a.muon_lr:g}, "
                f"AdamW {a.adam_lr:g}, dropout {a.dropout:g}, BPE-dropout {a.bpe_dropout:g}, "
                f"unlikelihood {a.alpha:g} in the last {a.unlikelihood:.0%}"
            )
        while self.spent < total:
            start = time.time()
            loss, share = self.train_step(self.spent / total)
            self.step += 1
            passed += self.args.tokens
            if passed > len(self.corpus.data):
                passed = 0
                self.corpus.respell()
            self.spent += time.time() - start
            if self.step % 100 == 0:
                bits = bits_per_byte(self.model, self.tok, [h[:6000] for h in self.held])
                repeated = "" if share is None else f" repeated 4-grams {share:.3f}"
                print(
                    f"{self.spent / 60:5.1f} min step {self.step} loss {loss:.3f} "
                    f"held-out {bits:.3f} bits/byte{repeated}",
                    flush=True,
                )
            if time.time() - saved > 60:
                saved = time.time()
                self.save(self.args.out / "work.pt")

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimizers],
                "spent": self.spent,
                "step": self.step,
                "parts": self.parts,
            },
            path.with_suffix(".tmp"),
        )
        path.with_suffix(".tmp").replace(path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        for o, s in zip(self.optimizers, state["optimizers"]):
            peaks = [g["peak"] for g in o.param_groups]
            o.load_state_dict(s)
            for g, peak in zip(o.param_groups, peaks):
                g["peak"] = peak  # the rates asked for now, not those of the checkpoint
        self.spent, self.step = state["spent"], state["step"]
        self.parts = state.get("parts", [])


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("texts", nargs="+", type=pathlib.Path, metavar="TEXT")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models/demo"))
    p.add_argument("--minutes", type=float, default=40, help="wall time to train for")
    p.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder")
    p.add_argument("--vocab", type=int, default=2048)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--layers", type=int, default=5)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--tokens", type=int, default=6144, help="tokens a step")
    p.add_argument("--dropout", type=float, default=0.05)
    p.add_argument("--bpe-dropout", type=float, default=0.05)
    p.add_argument("--muon-lr", type=float, default=0.008)
    p.add_argument("--adam-lr", type=float, default=1e-3)
    p.add_argument("--decay", type=float, default=0.1)
    p.add_argument(
        "--unlikelihood",
        type=float,
        default=0.25,
        help="share of the time with unlikelihood training",
    )
    p.add_argument("--alpha", type=float, default=1.0, help="weight of the unlikelihood loss")
    p.add_argument("--threads", type=int, default=2)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(SEED)
    random.seed(SEED)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    split = random.Random(SEED)
    documents, held = [], []
    for path in sorted(args.texts, key=lambda p: p.name):
        d, h = split_text(path.read_text(encoding="utf-8"), split)
        documents += d
        held.append((path, h))
    tok = train_tokenizer(documents, args.vocab)
    corpus = Corpus(documents, tok, args.bpe_dropout)
    model = Gpt2(
        {
            "vocab_size": tok.get_vocab_size(),
            "n_embd": args.width,
            "n_layer": args.layers,
            "n_head": args.heads,
            "dropout": args.dropout,
        }
    )
    print(
        f"{len(documents)} documents, {sum(len(d.encode()) for d in documents)} bytes, "
        f"{len(corpus.data)} tokens; held out {sum(len(h.encode()) for _, h in held)} bytes; "
        f"{sum(p.numel() for p in model.parameters())} parameters",
        flush=True,
    )
    trainer = Trainer(args, model, corpus, [h for _, h in held], tok)
    if args.resume:
        trainer.load(args.out / "work.pt")
    trainer.run()
    trainer.save(args.out / "work.pt")
    write_folder(args, trainer, held)


if __name__ == "__main__":
    main()

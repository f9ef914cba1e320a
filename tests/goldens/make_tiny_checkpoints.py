#!/usr/bin/env python3
"""Writes the tiny random GPT-2 checkpoints under tests/goldens/checkpoints/, the same bytes on
every run.

    make_tiny_checkpoints.py [FOLDER]

Each has what a reader of GPT-2 checkpoints may get wrong: heads and sizes that are no powers of
two, an n_inner of its own, float16 and bfloat16 files, the hub's names (no `transformer.` in front,
masks among the tensors), an output matrix of its own, an unusual layer_norm_epsilon, a list of end
tokens. Weights are drawn wide enough that greedy output wanders and the best token leads clearly;
biases and norms are not at their neutral values, so that a forgotten one shows.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

SHAPES = {
    "five-heads-f16": dict(
        seed=11, dtype="float16", vocab_size=97, n_positions=160, n_embd=60, n_head=5, n_layer=3,
        n_inner=None, bos_token_id=96, eos_token_id=95,
    ),
    "narrow-mlp-bf16": dict(
        seed=12, dtype="bfloat16", vocab_size=256, n_positions=320, n_embd=48, n_head=3, n_layer=3,
        n_inner=100, bos_token_id=0, eos_token_id=255, generation_eos=[254, 255],
    ),
    "hub-names-f32": dict(
        seed=13, dtype="float32", vocab_size=256, n_positions=96, n_embd=36, n_head=3, n_layer=2,
        n_inner=None, bos_token_id=255, eos_token_id=255, hub_names=True,
    ),
    "untied-f32": dict(
        seed=14, dtype="float32", vocab_size=257, n_positions=330, n_embd=40, n_head=2, n_layer=2,
        n_inner=72, bos_token_id=256, eos_token_id=255, tie_word_embeddings=False,
        layer_norm_epsilon=1e-3,
    ),
}  # fmt: skip
COPIED_KEYS = (
    "vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner", "bos_token_id",
    "eos_token_id",
)  # fmt: skip


def draw_tensors(s):
    """Name -> float32 array, by transformers' names; matrices of a layer lie [in, out]."""
    rng = np.random.Generator(np.random.PCG64(s["seed"]))
    d, inner = s["n_embd"], s["n_inner"] or 4 * s["n_embd"]
    normal = lambda std, *shape: (rng.standard_normal(shape) * std).astype(np.float32)
    t = {
        "wte.weight": normal(0.4, s["vocab_size"], d),
        "wpe.weight": normal(0.8, s["n_positions"], d),
    }

    def norm(name):
        t[name + ".weight"] = 1 + normal(0.2, d)
        t[name + ".bias"] = normal(0.1, d)

    def matrix(name, n_in, n_out, gain):
        t[name + ".weight"] = normal(gain / np.sqrt(n_in), n_in, n_out)
        t[name + ".bias"] = normal(0.2, n_out)

    for i in range(s["n_layer"]):
        h = f"h.{i}."
        norm(h + "ln_1")
        matrix(h + "attn.c_attn", d, 3 * d, 1.5)
        matrix(h + "attn.c_proj", d, d, 1.0)
        norm(h + "ln_2")
        matrix(h + "mlp.c_fc", d, inner, 1.5)
        matrix(h + "mlp.c_proj", inner, d, 1.5)
    norm("ln_f")
    t["ln_f.weight"] = normal(1.0, d)  # signs at random, else a tied token's best next is itself
    if not s.get("tie_word_embeddings", True):
        t["lm_head.weight"] = normal(0.4, s["vocab_size"], d)
    return t


def checkpoint_tensors(s):
    dtype = getattr(torch, s["dtype"])
    tensors = {name: torch.from_numpy(a).to(dtype) for name, a in draw_tensors(s).items()}
    if not s.get("hub_names"):
        head = "lm_head.weight"
        return {n if n == head else "transformer." + n: t for n, t in tensors.items()}
    size = s["n_positions"]
    for i in range(s["n_layer"]):
        tensors[f"h.{i}.attn.bias"] = torch.ones(size, size).tril().view(1, 1, size, size)
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    return tensors


def write_checkpoint(folder, s):
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        **{key: s[key] for key in COPIED_KEYS},
        "n_ctx": s["n_positions"],
        "layer_norm_epsilon": s.get("layer_norm_epsilon", 1e-5),
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "tie_word_embeddings": s.get("tie_word_embeddings", True),
        "torch_dtype": s["dtype"],
    }
    generation = {
        "bos_token_id": s["bos_token_id"],
        "eos_token_id": s.get("generation_eos", s["eos_token_id"]),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    path = folder / "model.safetensors"
    save_file(checkpoint_tensors(s), str(path), {"format": "pt"})
    path.chmod(0o644)
    print(folder.name, path.stat().st_size, "bytes")


def main():
    here = pathlib.Path(__file__).parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "checkpoints"
    for name, shape in SHAPES.items():
        write_checkpoint(out / name, shape)


if __name__ == "__main__":
    main()

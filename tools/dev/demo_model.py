"""The demo model for training: GPT-2's architecture, with the names and the layout that
transformers gives its tensors, so that a state_dict is a checkpoint as it stands."""

import math

import torch
from torch import nn
import torch.nn.functional as F

CONTEXT = 512


class Conv1D(nn.Module):
    """A linear layer whose weight is stored [in, out], as GPT-2's checkpoints have it."""

    def __init__(self, n_in, n_out, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * std)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, out_std = c["n_embd"], 0.02 / math.sqrt(2 * c["n_layer"])
        self.heads, self.dropout = c["n_head"], c["dropout"]
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.ModuleDict(
            {"c_attn": Conv1D(d, 3 * d, 0.02), "c_proj": Conv1D(d, d, out_std)}
        )
        self.mlp = nn.ModuleDict(
            {"c_fc": Conv1D(d, 4 * d, 0.02), "c_proj": Conv1D(4 * d, d, out_std)}
        )

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.attn["c_attn"](self.ln_1(x)).split(d, 2)
        )
        if past is not None:
            k, v = (torch.cat((p, n), 2) for p, n in zip(past, (k, v))) if past else (k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t == k.shape[2] and t > 1)
        y = self.attn["c_proj"](y.transpose(1, 2).reshape(b, t, d))
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training), (k, v)


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c["vocab_size"], c["n_embd"]),
                "wpe": nn.Embedding(CONTEXT, c["n_embd"]),
                "h": nn.ModuleList(Block(c) for _ in range(c["n_layer"])),
                "ln_f": nn.LayerNorm(c["n_embd"]),
            }
        )
        nn.init.normal_(self.transformer["wte"].weight, std=0.02)
        nn.init.normal_(self.transformer["wpe"].weight, std=0.01)

    def forward(self, ids, past=None, start=0):
        """ids [rows, tokens] at positions from `start` -> logits [rows, tokens, vocab]; `past` (a
        list, one entry a layer) is a KV cache that is read and extended."""
        start = past[0][0].shape[2] if past and past[0] else start
        x = (
            self.transformer["wte"](ids)
            + self.transformer["wpe"].weight[start : start + ids.shape[1]]
        )
        x = F.dropout(x, self.c["dropout"], self.training)
        for i, block in enumerate(self.transformer["h"]):
            x, kv = block(x, None if past is None else past[i])
            if past is not None:
                past[i] = kv
        return F.linear(self.transformer["ln_f"](x), self.transformer["wte"].weight)


@torch.no_grad()
def continue_greedily(model, ids, count):
    """ids [rows, tokens] -> the same with `count` greedy tokens behind each row."""
    past, x, out = [()] * len(model.transformer["h"]), ids, [ids]
    for _ in range(count):
        x = model(x, past)[:, -1:].argmax(-1)
        out.append(x)
    return torch.cat(out, 1)


@torch.no_grad()
def bits_per_byte(model, tok, texts):
    """Bits a byte over all of `texts`, one by one. Windows of CONTEXT tokens overlap by half, so
    every token but a text's first ones is scored with at least half a context before it; each text
    begins behind the end-of-text token."""
    model.eval()
    nats, size = 0.0, 0
    for text in texts:
        ids = torch.tensor([tok.token_to_id("<|endoftext|>")] + tok.encode(text).ids)
        size += len(text.encode())
        done = 1
        while done < len(ids):
            start = max(0, done - CONTEXT // 2)
            window = ids[start : start + CONTEXT]
            lp = model(window[None, :-1])[0].float().log_softmax(-1)
            nats -= lp.gather(1, window[1:, None])[done - start - 1 :].sum().item()
            done = start + len(window)
    model.train()
    return nats / math.log(2) / size

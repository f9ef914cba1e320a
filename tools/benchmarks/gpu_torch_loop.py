"""GPT-2's batched greedy decoding as a plain torch loop, for where transformers is not installed:
eager, torch's attention, keys and values in place. Weights are random."""

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention


class TorchLoop:
    name = "a torch loop (transformers is not there)"

    def __init__(self, device, hidden, layers, heads, vocab):
        def random(*shape):
            return 0.02 * torch.randn(*shape, device=device, dtype=torch.bfloat16)

        self.hidden, self.heads = hidden, heads
        self.embedding, self.positions = random(vocab, hidden), random(1024, hidden)
        sizes = ((3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden))
        self.layers = [[(random(n, k), random(n)) for n, k in sizes] for _ in range(layers)]

    def norm(self, x):
        return layer_norm(x, (self.hidden,))

    def attention(self, x, weights, cache, first):
        """x: [batch, tokens, hidden]; cache: [2, batch, heads, all tokens, hidden / heads]"""
        batch, count = x.shape[:2]
        qkv = linear(x, *weights).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        cache[:, :, :, first : first + count] = qkv[1:]
        keys, values = cache[:, :, :, : first + count]
        out = scaled_dot_product_attention(qkv[0], keys, values, is_causal=count > 1)
        return out.transpose(1, 2).reshape(batch, count, self.hidden)

    def step(self, ids, caches, first):
        """The next token of each row: [batch, 1]"""
        positions = torch.arange(first, first + ids.shape[1], device=ids.device)
        x = self.embedding[ids] + self.positions[positions]
        for (qkv, out, up, down), cache in zip(self.layers, caches):
            x = x + linear(self.attention(self.norm(x), qkv, cache, first), *out)
            x = x + linear(gelu(linear(self.norm(x), *up), approximate="tanh"), *down)
        return linear(self.norm(x[:, -1:]), self.embedding).argmax(-1)

    def generate(self, ids, count):
        """[batch, prompt + count]"""
        batch, prompt = ids.shape
        caches = [
            torch.empty(2, batch, self.heads, prompt + count, self.hidden // self.heads,
                        device=ids.device, dtype=torch.bfloat16)
            for _ in self.layers
        ]  # fmt: skip
        made, first = [ids], 0
        for _ in range(count):
            made.append(self.step(made[-1], caches, first))
            first += made[-2].shape[1]
        return torch.cat(made, 1)

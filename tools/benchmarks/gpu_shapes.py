"""Sizes of the models that tools/gpu-check measures, and what a step of them must read and compute.
The same shapes as random:SHAPE has (src/model/model_config.cpp)."""

import dataclasses

BF16_BYTES = 2


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    gated: bool  # the MLP has two inputs
    vocab: int

    def linears(self):
        """(n, k) of a layer's matrix products."""
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            (width + 2 * kv_width, self.hidden),
            (self.hidden, width),
            (self.mlp * (2 if self.gated else 1), self.hidden),
            (self.hidden, self.mlp),
        )

    def layer_elements(self):
        return self.layers * sum(n * k for n, k in self.linears())

    def head_elements(self):
        return self.vocab * self.hidden

    def step_bytes(self, context):
        """That a decode step of one stream must read: every weight once, keys and values."""
        kv = 2 * self.layers * context * self.kv_heads * self.head_dim
        return BF16_BYTES * (self.layer_elements() + self.head_elements() + kv)

    def prefill_flops(self, count):
        """Of a prompt alone, with the logits of its last token."""
        seen = count * (count + 1) / 2
        attention = 4 * self.layers * seen * self.heads * self.head_dim
        return 2 * (count * self.layer_elements() + self.head_elements()) + attention


GPT2_MEDIUM = Shape(24, 1024, 16, 16, 64, 4096, False, 50257)
LLAMA3_8B = Shape(32, 4096, 32, 8, 128, 14336, True, 128256)
DEMO = Shape(5, 192, 4, 4, 48, 768, False, 2048)

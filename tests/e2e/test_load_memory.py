"""What loading takes: at most the packed weights and 512 MB are ever resident, whichever the files,
so that no weight is in memory twice, or wider than it is served."""

import asyncio
import json
import shutil

import gguf
import numpy as np
import pytest
import torch
from lmtp_socket import Socket
from safetensors.torch import save_file
from servers import LmtpServe

BEYOND_BYTES = 512_000_000
LAYERS, HIDDEN, MLP, KV, VOCAB = 7, 2048, 5632, 256, 1000
CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN,
    intermediate_size=MLP, num_hidden_layers=LAYERS, num_attention_heads=32,
    num_key_value_heads=4, vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-5,
    bos_token_id=1, eos_token_id=2, hidden_act="silu", tie_word_embeddings=False,
)  # fmt: skip
MATRICES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP),
}  # fmt: skip
GGUF_NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
NUM_ELEMENTS = LAYERS * sum(n * k for n, k in MATRICES.values())
TABLE_BYTES = 4 * 2 * VOCAB * HIDDEN


def limit(bytes_per_element):
    return NUM_ELEMENTS * bytes_per_element + TABLE_BYTES + BEYOND_BYTES


def save(folder, leaves_of, **settings):
    """A folder whose layers all have what `leaves_of` makes of a shape."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | settings))
    table = torch.randn(VOCAB, HIDDEN).bfloat16()
    tensors = {"model.embed_tokens.weight": table, "lm_head.weight": table.clone(),
               "model.norm.weight": torch.ones(HIDDEN)}  # fmt: skip
    for module, shape in MATRICES.items():
        leaves = leaves_of(shape)
        for layer in range(LAYERS):
            for leaf, tensor in leaves.items():
                tensors[f"model.layers.{layer}.{module}.{leaf}"] = tensor.clone()
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = torch.ones(HIDDEN)
    save_file(tensors, folder / "model.safetensors")
    return folder


def plain(folder):
    return save(folder, lambda shape: {"weight": (torch.randn(shape) * 0.02).bfloat16()})


def packed(folder):
    """compressed-tensors: 4 bits in groups of 32, with a bfloat16 scale each."""

    def leaves(shape):
        n, k = shape
        return {
            "weight_packed": torch.randint(-(2**31), 2**31 - 1, (n, k // 8), dtype=torch.int32),
            "weight_scale": torch.full((n, k // 32), 0.01).bfloat16(),
            "weight_shape": torch.tensor([n, k]),
        }

    weights = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
    group = dict(targets=["Linear"], weights=weights)
    return save(folder, leaves, quantization_config=dict(
        quant_method="compressed-tensors", format="pack-quantized", ignore=["lm_head"],
        config_groups={"group_0": group},
    ))  # fmt: skip


def q4_0(folder):
    """A GGUF file of random blocks."""
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for key, value in (("context_length", 256), ("embedding_length", HIDDEN),
                       ("block_count", LAYERS), ("feed_forward_length", MLP), ("head_count", 32),
                       ("head_count_kv", 4), ("layer_norm_rms_eps", 1e-5),
                       ("rope_dimension_count", 64), ("vocab_size", VOCAB)):  # fmt: skip
        getattr(writer, f"add_{key}")(value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, VOCAB)])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3] + [1] * (VOCAB - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(1)
    table = rng.standard_normal((VOCAB, HIDDEN), dtype=np.float32)
    for name in ("token_embd", "output"):
        writer.add_tensor(f"{name}.weight", table)
    ones = np.ones(HIDDEN, np.float32)
    writer.add_tensor("output_norm.weight", ones)
    blocks = {}
    for name, (n, k) in zip(GGUF_NAMES, MATRICES.values()):
        some = rng.integers(0, 256, (n, k // 32, 18), dtype=np.uint8)
        some[..., :2] = np.array([0.01], np.float16).view(np.uint8)
        blocks[name] = some.reshape(n, -1)
    for layer in range(LAYERS):
        for name, some in blocks.items():
            kind = gguf.GGMLQuantizationType.Q4_0
            writer.add_tensor(f"blk.{layer}.{name}.weight", some, raw_dtype=kind)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    for part in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{part}_to_file")()
    writer.close()
    return folder / "model.gguf"


def most_resident(model, *options):
    """Of the server when it has answered."""

    async def ask(endpoint):
        async with Socket(endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[5, 6, 7], max_tokens=2, ignore_eos=True)
            return (await s.finish(1))[0]

    with LmtpServe(model, "--kv-cache", "64MiB", *options) as server:
        assert len(asyncio.run(ask(server.endpoint))) == 2
        return server.rss_bytes("VmHWM")


@pytest.mark.parametrize(
    ("make", "options", "bytes_per_element"),
    [
        (packed, (), 9 / 16),
        (q4_0, (), 9 / 16),
        (plain, ("--dtype", "int4"), 9 / 16),
        (plain, ("--dtype", "int8"), 1.01),
        (plain, ("--dtype", "float32"), 2.01),
    ],
    ids=["packed-int4", "gguf-q4_0", "dtype-int4", "dtype-int8", "float32-of-bfloat16"],
)
def test_no_more_than_the_panels_is_resident(tmp_path, make, options, bytes_per_element):
    model = make(tmp_path / "model")
    try:
        most = most_resident(model, *options)
        print(f"{most / 1e6:.0f} of {limit(bytes_per_element) / 1e6:.0f} MB")
        # The weights are there, and nothing beside them.
        assert NUM_ELEMENTS * bytes_per_element * 0.98 < most <= limit(bytes_per_element)
        if "int4" in options:  # wider weights would be seen
            assert most_resident(model, "--dtype", "bfloat16") > most + NUM_ELEMENTS
    finally:
        shutil.rmtree(tmp_path)

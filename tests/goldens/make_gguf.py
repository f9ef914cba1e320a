#!/usr/bin/env python3
"""Writes tests/goldens/gguf/: GGUF files as llama.cpp's own converter writes them, and what
`transformers` gives, in float32, for the same weights (NAME.json, as make_goldens.py).

    make_gguf.py LLAMA_CPP [FAMILY...]

(LLAMA_CPP: its sources, as in llama-cpp-python's source distribution; FAMILY: of FAMILIES, alone)

- blocks.gguf: random blocks of each type that is read, and what the `gguf` package makes of them;
  as TYPE.sum a sum over what it makes of a thousand blocks of hashed numbers.
- a file for each family, of a checkpoint in families/ or checkpoints/, in F16 or BF16: the
  reference has the weights rounded so.
- mixed.gguf: a Llama with the tokenizer of tokenizers/llama2, its matrices of all types, as files
  called Q4_K_M mix them. Its weights are random blocks; transformers has them as the `gguf`
  package dequantizes them.
- tokenizers/: vocabularies alone, of tokenizers/, whose cases.json hold for them too.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import make_family_checkpoints
import make_goldens
import numpy as np
import torch
import transformers

SOURCE = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(SOURCE / "gguf-py"), str(SOURCE)]

import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, TextModel  # noqa: E402

HERE = pathlib.Path(__file__).parent
OUT = HERE / "gguf"
TYPE = gguf.GGMLQuantizationType
# NAME: folder, type of the file.
FAMILIES = {
    "llama3-tied": ("families/llama3-tied", "bf16"),
    "llama-linear-biased": ("families/llama-linear-biased", "f16"),
    "qwen2": ("families/qwen2", "f16"),
    "qwen3": ("families/qwen3", "f16"),
    "phi3-longrope": ("families/phi3-longrope", "f16"),
    "gemma2": ("families/gemma2", "f16"),
    "gpt-neox": ("families/gpt-neox", "f16"),
    "olmo2": ("families/olmo2", "f16"),
    "granite": ("families/granite", "f16"),
    "nemotron": ("families/nemotron", "f16"),
    "gpt-bigcode": ("families/gpt-bigcode", "f16"),
    "apertus": ("families/apertus", "f16"),
    "falcon": ("families/falcon", "f16"),
    "gpt2": ("checkpoints/five-heads-f16", "f16"),
    "mixtral": ("experts/mixtral", "f16"),
    "qwen2-moe": ("experts/qwen2-moe", "f16"),
    "qwen3-moe": ("experts/qwen3-moe", "f16"),
    "olmoe": ("experts/olmoe", "f16"),
    "granitemoe": ("experts/granitemoe", "f16"),
    "gpt-oss": ("experts/gpt-oss", "f16"),
    "glm4-moe": ("experts/glm4-moe", "f16"),
    "ernie4-5-moe": ("experts/ernie4-5-moe", "f16"),
}
TOKENIZERS = {
    "llama2": ("LlamaForCausalLM", None),
    "llama3": ("LlamaForCausalLM", "llama-bpe"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
}
# Scale, and where the scales of a block lie, so that its elements are some tenths around 0.
SCALES = {
    TYPE.Q4_K: (4e-4, 0, 2, 7.5),
    TYPE.Q5_K: (2e-4, 0, 2, 15.5),
    TYPE.Q6_K: (6e-5, 208, None, 0.0),
    TYPE.Q2_K: (1e-2, 80, 82, 1.5),
    TYPE.Q3_K: (2e-3, 108, None, 0.0),
    TYPE.IQ4_NL: (2e-3, 0, None, 0.0),
    TYPE.IQ4_XS: (1e-4, 0, None, 0.0),
    TYPE.IQ3_S: (1e-3, 0, None, 0.0),
    TYPE.IQ3_XXS: (1e-3, 0, None, 0.0),
    TYPE.IQ2_S: (3e-3, 0, None, 0.0),
    TYPE.IQ2_XS: (3e-3, 0, None, 0.0),
    TYPE.IQ2_XXS: (3e-3, 0, None, 0.0),
}
MIXED = {
    "embed_tokens": TYPE.Q4_K, "lm_head": TYPE.Q6_K, "q_proj": TYPE.Q4_K, "k_proj": TYPE.Q5_K,
    "v_proj": TYPE.Q6_K, "o_proj": TYPE.Q4_0, "gate_proj": TYPE.Q4_K, "up_proj": TYPE.Q6_K,
    "down_proj": TYPE.Q8_0,
}  # fmt: skip
MIXED_CONFIG = dict(
    hidden_size=256, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=32, max_position_embeddings=160, bos_token_id=1,
    eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
)  # fmt: skip


def random_blocks(rng, kind, shape):
    """Rows of blocks [rows, bytes] and their values [rows, columns]."""
    rows, columns = shape
    if kind not in SCALES:
        values = rng.normal(0, 0.15, shape).astype(np.float32)
        blocks = gguf.quants.quantize(values, kind)
        return blocks, gguf.quants.dequantize(blocks, kind)
    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    scale, at, min_at, min_factor = SCALES[kind]
    blocks = rng.integers(0, 256, (rows * columns // elements, num_bytes), dtype=np.uint8)

    def put(where, value):
        halves = (value * rng.uniform(0.5, 1.5, len(blocks))).astype(np.float16)
        blocks[:, where : where + 2] = halves.view(np.uint8).reshape(-1, 2)
        return halves

    scales = put(at, scale)
    if min_at is not None:
        minima = (scales.astype(np.float32) * min_factor).astype(np.float16)
        blocks[:, min_at : min_at + 2] = minima.view(np.uint8).reshape(-1, 2)
    blocks = blocks.reshape(rows, -1)
    return blocks, gguf.quants.dequantize(blocks, kind)


def sum_of_many(kind):
    """Of blocks of hashed numbers, those that are finite: their bits, each times an odd number."""
    _, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    x = np.arange(1024 * num_bytes, dtype=np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(x.astype(np.uint8).reshape(1024, -1), kind)
    bits = values[np.isfinite(values).all(axis=1)].view(np.uint32).astype(np.uint64).ravel()
    odd = 2 * np.arange(len(bits), dtype=np.uint64) + np.uint64(1)
    return f"{np.sum(bits * odd, dtype=np.uint64):016x}"


def write_blocks(path):
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "none")
    for kind in (TYPE.F32, TYPE.F16, TYPE.BF16, TYPE.Q8_0, TYPE.Q4_0, *SCALES, TYPE.Q4_1,
                 TYPE.Q5_0, TYPE.Q5_1, TYPE.MXFP4):  # fmt: skip
        elements, _ = gguf.GGML_QUANT_SIZES[kind]
        blocks, values = random_blocks(rng, kind, (2, 2 * elements))
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".values", values.astype(np.float32))
        if elements > 1:
            writer.add_string(kind.name + ".sum", sum_of_many(kind))
    for write in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{write}_to_file")()
    writer.close()


def put_synthetic_vocab(model):
    size = model.hparams["vocab_size"]
    writer = model.gguf_writer
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, size)])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([2, 3, 3] + [1] * (size - 3))
    ends = model.hparams["eos_token_id"]
    writer.add_bos_token_id(model.hparams["bos_token_id"])
    writer.add_eos_token_id(ends[0] if isinstance(ends, list) else ends)
    if isinstance(ends, list):
        writer.add_eot_token_id(ends[1])


def convert(folder, path, kind, vocab_only=False, set_vocab=None):
    hparams = ModelBase.load_hparams(folder, False)
    kinds = {"f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16}
    base = get_model_class(hparams["architectures"][0])
    own = {"model_arch": base.model_arch} | ({"set_vocab": set_vocab} if set_vocab else {})
    made = type("Made", (base,), own)(folder, kinds[kind], path, eager=True)
    if "n_positions" in made.hparams:
        made.hparams.setdefault("n_ctx", made.hparams["n_positions"])
    made.write_vocab() if vocab_only else made.write()


def write_golden(name, folder, seed):
    ref = make_goldens.Reference(folder)
    cases = list(make_goldens.family_cases_of(ref, seed))
    for case in cases:
        make_goldens.report(name, case)
    lines = ",\n".join(make_goldens.line(case) for case in cases)
    (OUT / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def write_family(name, source, kind, scratch):
    folder = scratch / name
    shutil.copytree(HERE / source, folder)
    config = json.loads((folder / "config.json").read_text())
    if "query_pre_attn_scalar" in config:  # which files do not have: it is the size of a head
        config["query_pre_attn_scalar"] = config["head_dim"]
        (folder / "config.json").write_text(json.dumps(config))
    if config["model_type"] in ("mixtral", "ernie4_5_moe"):
        config |= dict(sliding_window=None, use_bias=False)  # nor these
        (folder / "config.json").write_text(json.dumps(config))
    if "norm_topk_prob" in config and "n_group" not in config:  # nor these: as llama.cpp has it
        config |= dict(norm_topk_prob=config["model_type"] == "qwen3_moe")
        if "mlp_only_layers" in config:
            config |= dict(mlp_only_layers=[], decoder_sparse_step=1)
        (folder / "config.json").write_text(json.dumps(config))
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.from_pretrained(folder)
        ).eval()
        with torch.no_grad():
            make_family_checkpoints.draw(model, 9)
        model.save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).float()
    rounded = torch.float16 if kind == "f16" else torch.bfloat16
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "wpe" not in parameter_name:  # positions stay F32
                parameter.copy_(parameter.to(rounded).float())
    model.save_pretrained(folder)
    convert(folder, OUT / f"{name}.gguf", kind, set_vocab=put_synthetic_vocab)
    write_golden(name, folder, 1)


def write_mixed(scratch):
    folder = scratch / "mixed"
    shutil.copytree(HERE / "tokenizers/llama2", folder)
    size = json.loads((folder / "cases.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=size, **MIXED_CONFIG)
    model = transformers.LlamaForCausalLM(config).float()
    rng = np.random.default_rng(8)
    blocks_of_row = {}
    kinds = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.from_numpy(rng.uniform(0.8, 1.2, parameter.shape)))
                continue
            kinds[name] = kind = MIXED[name.split(".")[-2]]
            blocks, values = random_blocks(rng, kind, parameter.shape)
            parameter.copy_(torch.from_numpy(values))
            blocks_of_row |= {row.tobytes(): own for row, own in zip(values, blocks)}
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    quantize = gguf.quants.quantize

    def quantize_known(data, kind):
        # The converter moves whole rows alone.
        if gguf.GGML_QUANT_SIZES[kind][0] == 1:
            return quantize(data, kind)
        return np.stack([blocks_of_row[row.tobytes()] for row in data])

    gguf.quants.quantize = quantize_known
    TextModel.tensor_force_quant = lambda self, name, *_: kinds.get(name, False)
    convert(folder, OUT / "mixed.gguf", "f16")
    gguf.quants.quantize = quantize
    write_golden("mixed", folder, 2)


def write_tokenizers(scratch):
    (OUT / "tokenizers").mkdir(exist_ok=True)
    for name, (architecture, pre) in TOKENIZERS.items():
        folder = scratch / ("tokenizer-" + name)
        shutil.copytree(HERE / "tokenizers" / name, folder)
        size = json.loads((folder / "cases.json").read_text())["vocab_size"]
        config = {"architectures": [architecture], "vocab_size": size, "num_hidden_layers": 1}
        (folder / "config.json").write_text(json.dumps(config))
        TextModel.get_vocab_base_pre = lambda self, tokenizer, pre=pre: pre
        convert(folder, OUT / "tokenizers" / f"{name}.gguf", "f16", vocab_only=True)


def main():
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = pathlib.Path(scratch_name)
        for name in sys.argv[2:] or FAMILIES:
            write_family(name, *FAMILIES[name], scratch)
        if sys.argv[2:]:
            return
        write_blocks(OUT / "blocks.gguf")
        write_mixed(scratch)
        write_tokenizers(scratch)


if __name__ == "__main__":
    main()

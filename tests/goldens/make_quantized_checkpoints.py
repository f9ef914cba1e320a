#!/usr/bin/env python3
"""Writes tiny quantised checkpoints under tests/goldens/quantized/, by the libraries that do so
where these run without a GPU, and beside each what `transformers` gives in float32 for the weights
that a library reads from it. Two environments, in this order:

    make_quantized_checkpoints.py old     transformers 4.57.6, compressed-tensors 0.8.1,
                                          auto_gptq 0.7.1, autoawq 0.2.6
    make_quantized_checkpoints.py new     transformers 5.23.0, compressed-tensors 0.20.0,
                                          llmcompressor 0.14.0.1, auto_round 0.16.1,
                                          nvidia-modelopt 0.47.0

(each of them a virtual environment of tools/setup's with these packages, --no-deps, and what they
import: loguru, psutil, datasets, ...). NAMES behind the environment write those alone.

A matrix that is read is compared with a formula of this script, too: scale * (code - zero point) in
float32. w8a8 folders have no golden: their activations are rounded, which transformers does not do.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import make_family_checkpoints
import make_goldens
import quantized_formats as formats
import torch
import transformers
from quantized_formats import FLOAT16, FOLDERS, finish, linears, modules_of, same
from safetensors.torch import load_file, save_file

COMMON = dict(
    vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96, bos_token_id=1,
    eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
)  # fmt: skip
LONGER = dict(max_position_embeddings=160)  # for agent_bits_test
BFLOAT16 = torch.bfloat16


def make_model(family, seed, dtype, **options):
    config = getattr(transformers, family + "Config")(**COMMON | options)
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    make_family_checkpoints.draw(model, seed)
    return model.to(dtype)


def write_golden(folder, matrices, seed):
    """`matrices`: {module: float32 weight}, read from the folder by a library."""
    tensors = load_file(folder / "model.safetensors")
    floats = (torch.float32, BFLOAT16, FLOAT16)
    kept = {n: t.float() for n, t in tensors.items() if t.dtype in floats}
    leaves = ("weight_scale", "weight_scale_inv", "weight_global_scale", "weight_scale_2",
              "input_scale", "scale", "scales")  # fmt: skip
    kept = {n: t for n, t in kept.items() if n.rsplit(".", 1)[-1] not in leaves}
    kept |= {module + ".weight": weight.contiguous() for module, weight in matrices.items()}
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    for key in ("dtype", "torch_dtype"):
        config.pop(key, None)
    with tempfile.TemporaryDirectory() as name:
        plain = pathlib.Path(name)
        (plain / "config.json").write_text(json.dumps(config))
        shutil.copy(folder / "generation_config.json", plain)
        save_file(kept, plain / "model.safetensors", metadata={"format": "pt"})
        ref = make_goldens.Reference(plain)
        cases = list(make_goldens.family_cases_of(ref, seed))
    for case in cases:
        make_goldens.report(folder.name, case)
    text = "[\n" + ",\n".join(make_goldens.line(c) for c in cases) + "\n]\n"
    (folder / "golden.json").write_text(text)


# compressed-tensors


def observe(weight, args):
    """Smallest and largest number of what shares a scale."""
    if args.strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    rows = weight if args.strategy == "channel" else weight.unflatten(-1, (-1, args.group_size))
    keep = args.strategy == "channel"
    return rows.amin(-1, keepdim=keep), rows.amax(-1, keepdim=keep)


def write_compressed_old(name, model, groups, config_format, ordered=False, ignore=("lm_head",)):
    """By the library's own steps: schemes to modules, scales, compress, config."""
    from compressed_tensors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams

    generator = torch.Generator().manual_seed(7)
    config = QuantizationConfig(
        config_groups=groups, ignore=list(ignore), format=config_format,
        quantization_status="frozen",
    )  # fmt: skip
    apply_quantization_config(model, config)
    for _, module in linears(model):
        if not hasattr(module, "quantization_scheme"):
            continue
        args = module.quantization_scheme.weights
        weight = module.weight.data
        if ordered:  # groups of inputs that do not follow one another
            inputs = weight.shape[1]
            order = torch.randperm(inputs, generator=generator)
            index = torch.empty(inputs, dtype=torch.int32)
            index[order] = torch.arange(inputs, dtype=torch.int32) // args.group_size
            module.weight_g_idx.data.copy_(index)
            weight = weight[:, order]
        scale, zero = calculate_qparams(*observe(weight, args), args)
        module.weight_scale.data = scale.to(weight.dtype)
        if getattr(module, "weight_zero_point", None) is not None:
            module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype)
        if hasattr(module, "input_scale"):
            module.input_scale.data.fill_(0.05)
    compressor = ModelCompressor(quantization_config=config)
    tensors = compressor.compress(model)
    folder = FOLDERS / name
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    compressor.update_config(folder)
    config_path = folder / "config.json"
    settings = json.loads(config_path.read_text())
    settings["architectures"] = [type(model).__name__]
    config_path.write_text(json.dumps(settings, indent=2) + "\n")
    tensors = {n: t.contiguous() for n, t in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    finish(folder)


def read_compressed_old(folder):
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import (
        unpack_from_int32,
    )
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    tensors = load_file(folder / "model.safetensors")
    matrices = {}
    for module in modules_of(tensors, ".weight_scale"):
        leaf = lambda name: tensors.get(f"{module}.{name}")
        codes = leaf("weight")
        if codes is None:
            shape = torch.Size(leaf("weight_shape").tolist())
            codes = unpack_from_int32(leaf("weight_packed"), 4, shape)
        scale = leaf("weight_scale").float()
        zero, index = leaf("weight_zero_point"), leaf("weight_g_idx")
        weight = dequantize(codes, scale, zero, g_idx=index, dtype=torch.float32)
        groups = scale.shape[-1] if scale.ndim == 2 else 1
        at = torch.arange(codes.shape[1]) // (codes.shape[1] // groups) if index is None else index
        spread = lambda t: t.float() if t.ndim < 2 or groups == 1 else t.float()[:, at.long()]
        ours = spread(scale) * (codes.float() - (0 if zero is None else spread(zero)))
        same(weight, ours, f"{folder.name} {module}")
        matrices[module] = weight
    return matrices


def write_compressed_new(name, model, **modifier):
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier

    folder = FOLDERS / name
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        model = type(model).from_pretrained(plain)
        oneshot(model=model, recipe=QuantizationModifier(**{"targets": "Linear"} | modifier))
        model.save_pretrained(folder, save_compressed=True)
    (folder / "recipe.yaml").unlink(missing_ok=True)
    finish(folder)


def read_compressed_new(folder):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    schemes = QuantizationConfig.model_validate(config).config_groups.values()
    tensors = load_file(folder / "model.safetensors")
    matrices = {}
    for module in modules_of(tensors, ".weight_scale"):
        state = {
            n.removeprefix(module + "."): t.float() if t.dtype in (BFLOAT16, FLOAT16) else t
            for n, t in tensors.items()
            if n.startswith(module + ".")
        }
        [scheme] = schemes if len(schemes) == 1 else [
            s for s in schemes if (s.weights.num_bits == 4) == ("down_proj" in module)
        ]  # fmt: skip
        compressor = BaseCompressor.get_value_from_registry(scheme.format or config["format"])
        matrix = compressor.decompress(state, scheme)["weight"].float()
        if "weight_global_scale" in state:  # the library rounds products to bfloat16
            scales = state["weight_scale"].float() / state["weight_global_scale"]
            exact = formats.nvfp4(state["weight_packed"], scales)
            is_near = (matrix - exact).abs() <= exact.abs() / 128
            same(matrix, torch.where(is_near, matrix, exact), module)
            matrix = exact
        matrices[module] = matrix
    return matrices


def group(bits, **weights):
    weights = dict(num_bits=bits, type="int") | weights
    return {"group_0": {"targets": ["Linear"], "weights": weights}}


W8A8 = {
    "group_0": {
        "targets": ["Linear"],
        "weights": dict(num_bits=8, type="int", symmetric=True, strategy="channel"),
        "input_activations": dict(num_bits=8, type="int", dynamic=True, strategy="token"),
    }
}
STATIC = {
    "group_0": {
        "targets": ["Linear"],
        "weights": dict(num_bits=8, type="float", symmetric=True, strategy="tensor"),
        "input_activations": dict(num_bits=8, type="float", dynamic=False, strategy="tensor"),
    }
}
MIXED = {
    "group_0": {
        "targets": ["re:.*down_proj$"],
        "weights": dict(num_bits=4, strategy="group", group_size=32),
    },
    "group_1": {"targets": ["Linear"], "weights": dict(num_bits=8, strategy="channel")},
}  # fmt: skip
# name: (environment, family, type, options of the model, writer, reader or None)
CASES = {
    "ct-old-w8a8": ("old", "Llama", BFLOAT16, {}, lambda n, m: write_compressed_old(
        n, m, W8A8, "int-quantized"), None),
    "ct-old-w4-group": ("old", "Llama", BFLOAT16, {}, lambda n, m: write_compressed_old(
        n, m, group(4, strategy="group", group_size=32, symmetric=False), "pack-quantized"),
        read_compressed_old),
    "ct-old-w4-ordered": ("old", "Mistral", FLOAT16, {}, lambda n, m: write_compressed_old(
        n, m, group(4, strategy="group", group_size=16, actorder="group"), "pack-quantized",
        ordered=True), read_compressed_old),
    "ct-old-w8-naive": ("old", "Qwen2", torch.float32, {}, lambda n, m: write_compressed_old(
        n, m, group(8, strategy="channel", symmetric=False), "naive-quantized"),
        read_compressed_old),
    "ct-old-fp8-static": ("old", "Llama", BFLOAT16, {}, lambda n, m: write_compressed_old(
        n, m, STATIC, "float-quantized", ignore=["re:.*lm_head", "model.layers.1.mlp.down_proj"]),
        read_compressed_old),
    "gptq-w4-g32": ("old", "Llama", FLOAT16, {}, lambda n, m: formats.write_gptq(
        n, m, 4, 32, True, False, zero_biases=True), None),
    "gptq-w4-ordered": ("old", "Phi3", FLOAT16,
        LONGER | dict(original_max_position_embeddings=160),
        lambda n, m: formats.write_gptq(n, m, 4, 32, False, True), None),
    "gptq-v2-w8": ("old", "Qwen2", FLOAT16, {}, lambda n, m: formats.write_gptq(
        n, m, 8, -1, False, False, version=2), None),
    "awq-w4-g32": ("old", "Qwen2", FLOAT16, {}, lambda n, m: formats.write_awq(n, m, 32), None),
    "ct-new-w8a8": ("new", "Llama", BFLOAT16, LONGER, lambda n, m: write_compressed_new(
        n, m, scheme="W8A8", ignore=["lm_head"]), None),
    "ct-new-w4-asym": ("new", "Qwen3", BFLOAT16, dict(head_dim=16),
        lambda n, m: write_compressed_new(n, m, ignore=["lm_head"], config_groups=group(
            4, strategy="group", group_size=32, symmetric=False)), read_compressed_new),
    "ct-new-mixed": ("new", "Llama", BFLOAT16, {}, lambda n, m: write_compressed_new(
        n, m, config_groups=MIXED, ignore=["lm_head"]), read_compressed_new),
    "ct-new-fp8-dynamic": ("new", "Llama", BFLOAT16, {}, lambda n, m: write_compressed_new(
        n, m, scheme="FP8_DYNAMIC", ignore=["lm_head"]), read_compressed_new),
    "ct-new-fp8-block": ("new", "Llama", BFLOAT16, dict(intermediate_size=192, num_hidden_layers=1),
        lambda n, m: write_compressed_new(n, m, scheme="FP8_BLOCK", ignore=["lm_head"]),
        read_compressed_new),
    "fp8-blocks": ("new", "Qwen3", BFLOAT16, LONGER | dict(head_dim=16),
        lambda n, m: formats.write_fp8_blocks(n, m, 48), formats.read_fp8_blocks),
    "fp8-tensors": ("new", "Llama", BFLOAT16, {}, formats.write_fp8_tensors,
        formats.read_fp8_tensors),
    "smooth-int8": ("old", "Llama", FLOAT16, {},
        lambda n, m: formats.write_smooth_quant(n, m, "int8"), None),
    "smooth-fp8": ("new", "Llama", FLOAT16, {}, lambda n, m: formats.write_smooth_quant(
        n, m, "float8_e4m3fn"), formats.read_smooth_quant),
    "ct-new-nvfp4": ("new", "Llama", BFLOAT16, dict(intermediate_size=80),
        lambda n, m: write_compressed_new(n, m, scheme="NVFP4A16", ignore=["lm_head"]),
        read_compressed_new),
    "ct-new-mxfp4": ("new", "Qwen2", BFLOAT16, {}, lambda n, m: write_compressed_new(
        n, m, scheme="MXFP4", ignore=["lm_head"]), read_compressed_new),
    "modelopt-nvfp4": ("new", "Qwen3Moe", BFLOAT16, dict(
        head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48),
        lambda n, m: formats.write_modelopt(n, m, "NVFP4_DEFAULT_CFG"), formats.read_modelopt),
    "modelopt-fp8": ("new", "Llama", BFLOAT16, {}, lambda n, m: formats.write_modelopt(
        n, m, "FP8_DEFAULT_CFG"), formats.read_modelopt),
    "gptq-experts": ("old", "Qwen3Moe", FLOAT16, dict(
        head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64),
        lambda n, m: formats.write_gptq(n, m, 4, 32, True, False, plain=["gate"]), None),
    "awq-experts": ("old", "Mixtral", FLOAT16, dict(num_local_experts=4),
        lambda n, m: formats.write_awq(n, m, 32, plain=["gate"]), None),
}  # fmt: skip
# Written in the one environment, read in the other.
READ_LATER = {
    "gptq-w4-g32": formats.read_gptq,
    "gptq-w4-ordered": formats.read_gptq,
    "gptq-v2-w8": formats.read_gptq,
    "awq-w4-g32": formats.read_awq,
    "gptq-experts": formats.read_gptq,
    "awq-experts": formats.read_awq,
}


def main():
    torch.set_grad_enabled(False)
    which, wanted = sys.argv[1], sys.argv[2:]
    for seed, (name, case) in enumerate(CASES.items()):
        environment, family, dtype, options, write, read = case
        if wanted and name not in wanted:
            continue
        if environment == which:
            write(name, make_model(family, 300 + seed, dtype, **options))
        if environment != which:
            read = READ_LATER.get(name) if which == "new" else None
        if read is not None:
            write_golden(FOLDERS / name, read(FOLDERS / name), 300 + seed)


if __name__ == "__main__":
    main()

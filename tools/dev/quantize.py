"""Writes a checkpoint with the integers that --dtype int8 or int4 makes of its weights at load, as
compressed-tensors lays them out: served from there, it takes less disk and gives the same bits."""

import argparse
import json
import pathlib
import re
import shutil
import sys

import safetensors.torch
import torch

INPUTS_PER_GROUP = 32
# An embedding or an output head, int8 also where other weights are int4; and what is no matrix of a
# linear layer.
TABLE = re.compile(r"(^|\.)(embed_tokens|embed_in|embed_out|lm_head)$")
POSITIONS = re.compile(r"(^|\.)embed_positions$")
# What chooses experts, whose numbers no --dtype rounds.
ROUTER = r"(^|\.)(mlp|block_sparse_moe)\.(gate|router(\.layer)?|shared_expert_gate)$"
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.gguf")


class Refusal(Exception):
    """What is wrong, for the user."""


def to_int8(weight):
    """Codes and one scale an output: its largest magnitude is 127."""
    largest = weight.abs().amax(dim=1, keepdim=True)
    inverse = torch.where(largest > 0, 127.0 / largest, 0.0)
    scales = torch.where(largest > 0, largest / 127.0, 1.0)
    return torch.round(weight * inverse).to(torch.int8), scales


def to_int4(weight):
    """Codes from 0 to 15 and a scale for each group: its number of largest magnitude is -8 of it,
    so that all 16 codes are used. Numbers are scale * (code - 8)."""
    n, k = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -k % INPUTS_PER_GROUP))
    groups = padded.view(n, -1, INPUTS_PER_GROUP)
    largest = groups.gather(2, groups.abs().argmax(dim=2, keepdim=True))
    scales = (largest / -8.0).to(torch.bfloat16)
    exact = scales.float()
    is_zero = ~(exact.abs() >= 2.0**-120)
    inverse = torch.where(is_zero, 0.0, 1.0 / exact)
    codes = (torch.round(groups * inverse) + 8).clamp(0, 15)
    scales = torch.where(is_zero, torch.ones_like(scales), scales)
    return codes.view(n, -1)[:, :k].to(torch.int32), scales.squeeze(2)


def packed(codes):
    """Eight codes of 4 bits in 32 bits, the first in the lowest."""
    n, k = codes.shape
    words = torch.nn.functional.pad(codes.to(torch.int64), (0, -k % 8)).view(n, -1, 8)
    shifted = (words << torch.arange(0, 32, 4)).sum(dim=2)
    return torch.where(shifted >= 2**31, shifted - 2**32, shifted).to(torch.int32)


def quantised(name, tensor, to):
    """The tensors that stand for one; None: it stays as it is."""
    module = name.removesuffix(".weight")
    if tensor.dim() == 3 and re.search(r"\.experts\.|(input|output)_linear\.weight$", name):
        raise Refusal(
            f"tensor '{name}': experts in one tensor, for which compressed-tensors has no layout; "
            "serve it with --dtype"
        )
    if module == name or tensor.dim() != 2 or POSITIONS.search(module):
        return None
    if re.search(ROUTER, module):
        return None
    weight = tensor.float()
    if not torch.isfinite(weight).all():
        raise Refusal(f"tensor '{name}': it has numbers that are not finite")
    if to == "int8" or TABLE.search(module):
        codes, scales = to_int8(weight)
        return {name: codes, f"{module}.weight_scale": scales}
    codes, scales = to_int4(weight)
    return {
        f"{module}.weight_packed": packed(codes),
        f"{module}.weight_scale": scales,
        f"{module}.weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }


def group(targets, layout, weights, inputs):
    common = {"type": "int", "symmetric": True}
    return {
        "format": layout,
        "targets": targets,
        "weights": {**common, "dynamic": False, **weights},
        "input_activations": {**common, "num_bits": 8, "dynamic": True, **inputs},
        "output_activations": None,
    }


def quantization_config(to):
    """As compressed-tensors writes it: inputs are rounded to 8 bits, too."""
    int8 = ({"num_bits": 8, "strategy": "channel"}, {"strategy": "token"})
    by_group = {"strategy": "group", "group_size": INPUTS_PER_GROUP}
    tables = ["re:" + r".*(embed_tokens|embed_in|embed_out|lm_head)$"]
    if to == "int8":
        groups = [group(["Linear", *tables], "int-quantized", *int8)]
    else:
        groups = [
            group(tables, "int-quantized", *int8),
            group(["Linear"], "pack-quantized", {"num_bits": 4, **by_group}, by_group),
        ]
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if to == "int8" else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": {f"group_{i}": made for i, made in enumerate(groups)},
        "ignore": [f"re:.*{ROUTER}"],
        "kv_cache_scheme": None,
    }


def read_config(folder):
    try:
        config = json.loads((folder / "config.json").read_text())
    except OSError as error:
        raise Refusal(f"{folder}: no config.json can be read ({error.strerror})") from None
    if "quantization_config" in config:
        raise Refusal(f"{folder}: it is quantised already; name the folder that it was made from")
    if config.get("model_type") == "gpt2":
        raise Refusal(
            f"{folder}: GPT-2 has its matrices input by input, for which compressed-tensors has no "
            "layout; serve it with --dtype"
        )
    if not list(folder.glob("*.safetensors")):
        raise Refusal(f"{folder}: no *.safetensors; save the model with save_pretrained(FOLDER)")
    return config


def write(folder, out, to):
    config = read_config(folder)
    if out.exists() and any(out.iterdir()):
        raise Refusal(f"--out: {out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    files = {}
    size = 0
    for path in sorted(folder.glob("*.safetensors")):
        tensors = {}
        for name, tensor in safetensors.torch.load_file(path).items():
            if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                continue  # the embedding again
            tensors.update(quantised(name, tensor, to) or {name: tensor})
        files.update(dict.fromkeys(tensors, path.name))
        size += sum(t.numel() * t.element_size() for t in tensors.values())
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(tensors, out / path.name, metadata={"format": "pt"})
    if (folder / "model.safetensors.index.json").exists():
        index = {"metadata": {"total_size": size}, "weight_map": files}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    for path in folder.iterdir():
        if path.is_file() and not any(path.match(pattern) for pattern in WEIGHTS):
            shutil.copy(path, out / path.name)
    config["quantization_config"] = quantization_config(to)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return size


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tools/quantize", description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--to", choices=("int8", "int4"), required=True)
    parser.add_argument("--out", type=pathlib.Path, help="default: FOLDER-int8 or FOLDER-int4")
    args = parser.parse_args(arguments)
    folder = args.folder.resolve()
    out = args.out or folder.with_name(f"{folder.name}-{args.to}")
    try:
        size = write(folder, out, args.to)
    except (Refusal, OSError) as refusal:
        sys.exit(f"tools/quantize: {refusal}")
    print(f"{out}: {size / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()

"""The float32 state dict of a folder, quantised or not: an independent reading of each format, by
its definition, in plain torch. Nothing of lmtp-serve's loader is used.

    tensors = state_dict(folder)      {name: float32 tensor}, names as in the files

A quantised matrix becomes `MODULE.weight` [outputs, inputs]: scale * (code - zero point).
"""

import json
import pathlib

import torch
from safetensors.torch import load_file

AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where the outputs of a word's nibbles lie
# What belongs to a quantised matrix and is no weight of the model.
LEAVES = {
    "qweight", "qzeros", "scales", "g_idx", "scale", "input_scale", "weight_packed", "weight_scale",
    "weight_scale_inv", "weight_zero_point", "weight_g_idx", "weight_shape", "weight_scale_2",
    "weight_global_scale", "input_global_scale",
}  # fmt: skip


class Unknown(Exception):
    """A format that is not read here."""


def read_files(folder):
    """All tensors, as they are stored."""
    folder = pathlib.Path(folder)
    for name, load in (("model.safetensors", load_file), ("pytorch_model.bin", load_pickled)):
        if (folder / name).exists():
            return load(folder / name)
        index = folder / (name + ".index.json")
        if index.exists():
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            return {n: t for file in files for n, t in load(folder / file).items()}
    raise Unknown("there is neither model.safetensors nor pytorch_model.bin")


def load_pickled(path):
    return torch.load(path, map_location="cpu", weights_only=True)


def settings_of(folder):
    """quantization_config, or None."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return config.get("quantization_config") or config.get("compression_config")


def state_dict(folder):
    tensors, settings = read_files(folder), settings_of(folder)
    if settings is None:
        return {name: tensor.float() for name, tensor in tensors.items()}
    method = settings.get("quant_method", "compressed-tensors")
    read = METHODS.get(method)
    if read is None:
        raise Unknown(f"quant_method {method!r} is not read here")
    modules = {}
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        modules.setdefault(module, {})[leaf] = tensor
    result = {}
    for module, leaves in modules.items():
        if LEAVES & leaves.keys():
            result[f"{module}.weight"] = read(leaves, settings).contiguous()
        for leaf in leaves.keys() - LEAVES - {"weight"}:
            result[f"{module}.{leaf}"] = leaves[leaf].float()
        if not LEAVES & leaves.keys() and "weight" in leaves:
            result[f"{module}.weight"] = leaves["weight"].float()
    return result


def unpack(words, bits):
    """Unsigned codes along the last axis, of int32 words with the lowest bits first."""
    codes = (words.unsqueeze(-1) >> torch.arange(0, 32, bits)) & (2**bits - 1)
    return codes.flatten(-2)


def gptq(leaves, settings):
    """qweight [k / per, n], qzeros [groups, n / per], scales [groups, n], g_idx [k]."""
    bits = settings["bits"]
    codes = unpack(leaves["qweight"].T, bits)  # [n, k]
    scales = leaves["scales"].float()
    zeros = unpack(leaves["qzeros"], bits)[:, : scales.shape[1]]
    if settings.get("checkpoint_format") != "gptq_v2":
        zeros = zeros + 1  # auto_gptq stores one less
    inputs = codes.shape[1]
    size = settings["group_size"] if settings["group_size"] > 0 else inputs
    group = leaves.get("g_idx", torch.arange(inputs) // size).long()
    return scales.T[:, group] * (codes - zeros.T[:, group])


def awq(leaves, settings):
    """qweight [k, n / 8], qzeros [groups, n / 8], scales [groups, n]."""

    def codes_of(words):
        nibbles = unpack(words, 4)
        return nibbles.unflatten(-1, (-1, 8))[..., AWQ_ORDER].flatten(-2)

    codes = codes_of(leaves["qweight"])
    size = settings["group_size"] if settings["group_size"] > 0 else codes.shape[0]
    group = torch.arange(codes.shape[0]) // size
    zeros = codes_of(leaves["qzeros"])
    return (leaves["scales"].float()[group] * (codes - zeros[group])).T


def spread_blocks(scale, shape, block):
    """[outputs, inputs] of a scale for each block."""
    rows = torch.arange(shape[0]) // block[0]
    columns = torch.arange(shape[1]) // block[1]
    return scale[rows][:, columns]


def fp8(leaves, settings):
    codes = leaves["weight"].float()
    if "weight_scale_inv" in leaves:
        scale = leaves["weight_scale_inv"].float()
        if scale.dim() == 2 and settings.get("weight_block_size"):
            return codes * spread_blocks(scale, codes.shape, settings["weight_block_size"])
    else:
        scale = leaves["weight_scale"].float()
    return codes * (scale.reshape(-1, 1) if scale.numel() > 1 else scale.reshape(()))


def smooth_quant(leaves, _settings):
    return leaves["weight"].float() * leaves["scale"].float().reshape(-1, 1)


def fp4(pairs, scales):
    """Two e2m1 a byte, the lower half first; a scale for as many as there are columns of scales."""
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2).long()
    numbers = torch.cat([sizes, -sizes])[codes]
    size = -(-numbers.shape[1] // scales.shape[1])
    return scales.repeat_interleave(size, 1)[:, : numbers.shape[1]] * numbers


def modelopt(leaves, settings):
    if "weight_scale_2" in leaves:
        return fp4(leaves["weight"], leaves["weight_scale"].float() * leaves["weight_scale_2"])
    return fp8(leaves, settings)


def compressed(leaves, settings):
    """compressed-tensors: packed or not, whole numbers, e4m3 or e2m1, scales of whatever shape."""
    if "weight_global_scale" in leaves:
        scales = leaves["weight_scale"].float() / leaves["weight_global_scale"].float()
        return fp4(leaves["weight_packed"], scales)
    if leaves["weight_scale"].dtype == torch.uint8:
        return fp4(leaves["weight_packed"], torch.exp2(leaves["weight_scale"].float() - 127))
    scale = leaves["weight_scale"].float()
    if "weight_packed" in leaves:
        rows, inputs = leaves["weight_shape"].tolist()
        words = leaves["weight_packed"].shape[1]
        bits = next(b for b in (4, 8) if -(-inputs * b // 32) == words)
        codes = unpack(leaves["weight_packed"], bits)[:, :inputs].float() - 2 ** (bits - 1)
    else:
        bits, codes = 8, leaves["weight"].float()
        rows, inputs = codes.shape
    zero = leaves.get("weight_zero_point")
    if zero is not None and zero.dtype == torch.int32:  # packed, along the outputs
        zero = unpack(zero.T, bits).T[:rows].float() - 2 ** (bits - 1)
    zero = torch.zeros(()) if zero is None else zero.float()
    if scale.numel() == 1 and rows * inputs > 1 and scale.dim() < 2:
        return scale.reshape(()) * (codes - zero.reshape(()))
    if scale.dim() == 2 and scale.shape[0] != rows:
        return codes * spread_blocks(scale, codes.shape, block_of(settings))
    scale = scale.reshape(rows, -1)
    groups = scale.shape[1]
    if groups == 1:
        return scale * (codes - zero)
    index = leaves.get("weight_g_idx")
    if index is None:
        size = next(s for s in group_sizes(settings) if -(-inputs // s) == groups)
        index = torch.arange(inputs) // size
    spread = lambda t: t[:, index.long()] if t.dim() == 2 else t
    return spread(scale) * (codes - spread(zero))


def schemes_of(settings):
    return [g["weights"] for g in settings["config_groups"].values() if g.get("weights")]


def group_sizes(settings):
    return [w["group_size"] for w in schemes_of(settings) if (w.get("group_size") or 0) > 0]


def block_of(settings):
    return next(w["block_structure"] for w in schemes_of(settings) if w.get("block_structure"))


METHODS = {
    "gptq": gptq,
    "awq": awq,
    "fp8": fp8,
    "smooth_quant": smooth_quant,
    "compressed-tensors": compressed,
    "modelopt": modelopt,
}


def rounds_activations(settings):
    """Whether the format says that a product's inputs are whole numbers of 8 bits as well, so that
    lmtp-serve rounds them, which transformers in float32 does not."""
    if settings is None:
        return False
    if settings.get("quant_method") == "smooth_quant":
        return settings.get("quant_dtype", "int8") == "int8"
    inputs = [g.get("input_activations") for g in settings.get("config_groups", {}).values()]
    return any(i and i.get("num_bits") == 8 and i.get("type") == "int" for i in inputs)

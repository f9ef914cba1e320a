"""Writers and readers of quantised checkpoints that are not compressed-tensors', for
make_quantized_checkpoints.py: GPTQ by auto_gptq's packer and auto_round's layers, AWQ by autoawq's
packer and compressed-tensors' converter, fp8 and smooth_quant by the formulas of their formats."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file

FOLDERS = pathlib.Path(__file__).parent / "quantized"
FLOAT16 = torch.float16


def linears(model, ignored=("lm_head",)):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.rsplit(".", 1)[-1] not in ignored:
            yield name, module


def save_plain(model, folder, settings, tensors):
    """config.json with these settings, and a file of the model's tensors, `tensors` in place of the
    matrices that they quantise."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    config["quantization_config"] = settings
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    modules = {name.rsplit(".", 1)[0] for name in tensors}
    rest = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not (name.endswith(".weight") and name.removesuffix(".weight") in modules)
    }
    return {name: t.contiguous() for name, t in (rest | tensors).items()}


def finish(folder):
    generation = {"bos_token_id": 1, "eos_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)
    print(folder.name, sum(p.stat().st_size for p in folder.iterdir()), "bytes")


def same(weight, ours, name):
    if not torch.equal(weight, ours):
        sys.exit(f"{name}: two readers differ by {(weight - ours).abs().max()}")


def modules_of(tensors, leaf):
    return sorted(n.removesuffix(leaf) for n in tensors if n.endswith(leaf))


# GPTQ and AWQ


def load_alone(package, path):
    """A module of a package whose __init__ imports more than there is."""
    sys.modules.pop(package, None)
    found = importlib.util.find_spec(package)
    stub = types.ModuleType(package)
    stub.__path__ = list(found.submodule_search_locations)
    sys.modules[package] = stub
    parts = path.split("/")
    for i in range(1, len(parts)):
        inner = types.ModuleType(".".join([package, *parts[:i]]))
        inner.__path__ = [str(pathlib.Path(stub.__path__[0], *parts[:i]))]
        sys.modules[inner.__name__] = inner
    name = ".".join([package, *parts])
    spec = importlib.util.spec_from_file_location(
        name, pathlib.Path(stub.__path__[0], *parts).with_suffix(".py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grid(weight, bits, group_size, symmetric):
    """Scales and zero points [n, groups] of a grid of 2**bits numbers."""
    rows = weight.float().unflatten(-1, (-1, group_size))
    low, high = rows.amin(-1).clamp(max=0), rows.amax(-1).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / (2**bits - 1)).to(FLOAT16).float()
    zero = torch.full_like(scale, 2 ** (bits - 1)) if symmetric else (-low / scale).round()
    return scale, zero.clamp(1, 2**bits - 1)  # the first format has no 0


def nearest(weight, scale, zero, bits, at):
    """The numbers of that grid next to the weight's, so that a packer's rounding stays on it."""
    scale, zero = scale[:, at], zero[:, at]
    codes = (weight.float() / scale + zero).round().clamp(0, 2**bits - 1)
    return scale * (codes - zero)


def write_gptq(
    name, model, bits, group_size, symmetric, ordered, version=1, zero_biases=False, plain=()
):
    packer = load_alone("auto_gptq", "nn_modules/qlinear/qlinear_cuda")
    generator = torch.Generator().manual_seed(5)
    tensors = {}
    for module, linear in linears(model, ("lm_head", *plain)):
        inputs, outputs = linear.in_features, linear.out_features
        size = inputs if group_size == -1 else group_size
        order = torch.randperm(inputs, generator=generator) if ordered else torch.arange(inputs)
        index = torch.empty(inputs, dtype=torch.int32)
        index[order] = torch.arange(inputs, dtype=torch.int32) // size
        scale, zero = grid(linear.weight.data[:, order], bits, size, symmetric)
        on_grid = torch.nn.Linear(inputs, outputs, bias=False)
        on_grid.weight.data = nearest(linear.weight.data, scale, zero, bits, index.long())
        packed = packer.QuantLinear(bits, size, inputs, outputs, False)
        packed.pack(on_grid, scale, zero.clone(), index)
        if version == 2:  # what gptqmodel does when it loads the first format
            packed.qzeros += 0x11111111 if bits == 4 else 0x01010101
        state = packed.state_dict() | {"scales": packed.scales.to(FLOAT16)}
        tensors |= {f"{module}.{leaf}": tensor for leaf, tensor in state.items()}
        if zero_biases:
            tensors[f"{module}.bias"] = torch.zeros(outputs, dtype=FLOAT16)
    settings = dict(
        quant_method="gptq", bits=bits, group_size=group_size, desc_act=ordered, sym=symmetric,
        damp_percent=0.01, static_groups=False, true_sequential=True, model_name_or_path=None,
        model_file_base_name="model",
    )  # fmt: skip
    if version == 2:
        settings["checkpoint_format"] = "gptq_v2"
    if plain:
        settings["dynamic"] = {f"-:.*\\.{leaf}$": {} for leaf in plain}
    folder = FOLDERS / name
    save_file(save_plain(model, folder, settings, tensors), folder / "model.safetensors")
    finish(folder)


def read_gptq(folder):
    """By auto_round's layers, of ones as inputs; its act-order ones are not for a processor."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    is_new = config.get("checkpoint_format") == "gptq_v2"
    reader = load_alone("auto_round_extension", "torch/qlinear_torch" + ("" if is_new else "_zp"))
    tensors = load_file(folder / "model.safetensors")
    bits, matrices = config["bits"], {}
    for module in modules_of(tensors, ".qweight"):
        leaf = {n: tensors[f"{module}.{n}"] for n in ("qweight", "qzeros", "scales", "g_idx")}
        outputs, inputs = leaf["scales"].shape[1], leaf["g_idx"].shape[0]
        shifts = torch.arange(0, 32, bits)
        codes = (leaf["qweight"][:, None, :] >> shifts[None, :, None]) & (2**bits - 1)
        zeros = (leaf["qzeros"][:, :, None] >> shifts) & (2**bits - 1)
        zeros = zeros.reshape(zeros.shape[0], -1) + (0 if is_new else 1)
        at = leaf["g_idx"].long()
        ours = leaf["scales"].float()[at] * (codes.reshape(inputs, outputs) - zeros[at]).float()
        if not config["desc_act"]:
            layer = reader.QuantLinear(bits, config["group_size"], inputs, outputs, False)
            for n in ("qweight", "qzeros"):
                setattr(layer, n, leaf[n])
            layer.scales = leaf["scales"].float()
            layer.eval()
            same(layer(torch.eye(inputs)), ours, f"{folder.name} {module}")
        matrices[module] = ours.T
    return matrices


def write_awq(name, model, group_size, plain=()):
    packer = load_alone("awq", "modules/linear/gemm")
    tensors = {}
    for module, linear in linears(model, ("lm_head", *plain)):
        inputs = linear.in_features
        scale, zero = grid(linear.weight.data, 4, group_size, False)
        at = torch.arange(inputs) // group_size
        on_grid = torch.nn.Linear(inputs, linear.out_features, bias=False)
        on_grid.weight.data = nearest(linear.weight.data, scale, zero, 4, at)
        packed = packer.WQLinear_GEMM.from_linear(
            on_grid, 4, group_size, scales=scale.T.contiguous(), zeros=zero.T.contiguous()
        )
        tensors |= {f"{module}.{leaf}": tensor for leaf, tensor in packed.state_dict().items()}
    settings = dict(
        quant_method="awq", bits=4, group_size=group_size, version="gemm", zero_point=True,
        modules_to_not_convert=list(plain) or None,
    )  # fmt: skip
    folder = FOLDERS / name
    save_file(save_plain(model, folder, settings, tensors), folder / "model.safetensors")
    finish(folder)


def read_awq(folder):
    """By compressed-tensors' converter from AutoAWQ."""
    from compressed_tensors.compressors.pack_quantized import unpack_from_int32
    from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    tensors = AutoAWQConverter.from_autoawq_config(config).process(
        load_file(folder / "model.safetensors")
    )
    matrices = {}
    for module in modules_of(tensors, ".weight_packed"):
        leaf = lambda name: tensors[f"{module}.{name}"]
        shape, scale = leaf("weight_shape"), leaf("weight_scale").float()
        codes = unpack_from_int32(leaf("weight_packed"), 4, shape)
        zeros = unpack_from_int32(leaf("weight_zero_point"), 4, (shape[0], scale.shape[1]), 0)
        at = torch.arange(int(shape[1])) // config["group_size"]
        matrices[module] = scale[:, at] * (codes.int() - zeros.int()[:, at]).float()
    return matrices


# By this script: fp8 as transformers and vLLM have it, and lmdeploy's smooth_quant.


def write_fp8_blocks(name, model, size):
    tensors = {}
    for module, linear in linears(model):
        weight = linear.weight.data.float()
        n, k = weight.shape
        blocks = torch.nn.functional.pad(weight, (0, -k % size, 0, -n % size))
        blocks = blocks.unflatten(1, (-1, size)).unflatten(0, (-1, size))
        scale = blocks.abs().amax((1, 3)) / 448
        codes = blocks / scale[:, None, :, None]
        codes = codes.flatten(2, 3).flatten(0, 1)[:n, :k].to(torch.float8_e4m3fn)
        tensors |= {f"{module}.weight": codes, f"{module}.weight_scale_inv": scale}
    settings = dict(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[size, size]
    )
    folder = FOLDERS / name
    save_file(save_plain(model, folder, settings, tensors), folder / "model.safetensors")
    finish(folder)


def read_fp8_blocks(folder):
    from compressed_tensors.entrypoints.convert.converters import FP8BlockDequantizer

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    converter = FP8BlockDequantizer(
        targets=[r"re:.*_proj$"], weight_block_size=tuple(config["weight_block_size"]),
    )  # fmt: skip
    converter.dtype = torch.float32
    tensors = load_file(folder / "model.safetensors")
    modules = modules_of(tensors, ".weight_scale_inv")
    read = converter.process(dict(tensors))
    return {module: read[f"{module}.weight"].float() for module in modules}


def write_fp8_tensors(name, model):
    """A scale for a matrix, and one for its activations, as vLLM reads it."""
    tensors = {}
    for module, linear in linears(model):
        scale = linear.weight.data.float().abs().max() / 448
        codes = (linear.weight.data.float() / scale).to(torch.float8_e4m3fn)
        tensors |= {
            f"{module}.weight": codes,
            f"{module}.weight_scale": scale.reshape(()),
            f"{module}.input_scale": torch.tensor(0.02),
        }
    settings = dict(quant_method="fp8", activation_scheme="static", ignored_layers=["lm_head"])
    folder = FOLDERS / name
    save_file(save_plain(model, folder, settings, tensors), folder / "model.safetensors")
    finish(folder)


def read_fp8_tensors(folder):
    tensors = load_file(folder / "model.safetensors")
    return {
        module: tensors[f"{module}.weight"].float() * tensors[f"{module}.weight_scale"]
        for module in modules_of(tensors, ".weight_scale")
    }


def write_smooth_quant(name, model, quant_dtype):
    """lmdeploy's file: int8 in a pytorch_model.bin, later fp8 in safetensors too."""
    tensors = {}
    for module, linear in linears(model):
        weight = linear.weight.data.float()
        largest = weight.abs().amax(-1, keepdim=True)
        if quant_dtype == "int8":
            scale = largest / 127
            codes = (weight / scale).round().to(torch.int8)
        else:
            scale = largest / 448
            codes = (weight / scale).to(torch.float8_e4m3fn)
        tensors |= {f"{module}.weight": codes, f"{module}.scale": scale}
    settings = dict(quant_method="smooth_quant")
    folder = FOLDERS / name
    if quant_dtype == "int8":
        torch.save(save_plain(model, folder, settings, tensors), folder / "pytorch_model.bin")
    else:
        settings["quant_dtype"] = quant_dtype
        save_file(save_plain(model, folder, settings, tensors), folder / "model.safetensors")
    finish(folder)


def read_smooth_quant(folder):
    tensors = load_file(folder / "model.safetensors")
    return {
        module: tensors[f"{module}.weight"].float() * tensors[f"{module}.scale"]
        for module in modules_of(tensors, ".scale")
    }


def nvfp4(codes, scales):
    """Two codes a byte, the lower half first; a scale for 16 of them."""
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = torch.cat([sizes, -sizes])[torch.stack([codes & 15, codes >> 4], -1).long()]
    return scales.repeat_interleave(16, 1) * numbers.flatten(1)


def write_modelopt(name, model, algorithm):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    folder = FOLDERS / name
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        model = type(model).from_pretrained(plain)
        mtq.quantize(model, getattr(mtq, algorithm), lambda m: m(torch.arange(1, 90)[None]))
        export_hf_checkpoint(model, export_dir=folder)
    (folder / "hf_quant_config.json").unlink()
    finish(folder)


def read_modelopt(folder):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    tensors = load_file(folder / "model.safetensors")
    matrices = {}
    for module in modules_of(tensors, ".weight_scale"):
        codes, scale = tensors[module + ".weight"], tensors[module + ".weight_scale"].float()
        if codes.dtype != torch.uint8:
            matrices[module] = codes.float() * scale
            continue
        double_scale = tensors[module + ".weight_scale_2"]
        shape = torch.Size((codes.shape[0], 2 * codes.shape[1]))
        matrix = NVFP4QTensor(shape, torch.float32, codes).dequantize(
            scale=scale, double_scale=double_scale, block_sizes={-1: 16}
        )
        same(matrix, nvfp4(codes, scale * double_scale), module)
        matrices[module] = matrix
    return matrices

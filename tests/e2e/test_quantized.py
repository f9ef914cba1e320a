"""Quantised checkpoints that other libraries wrote, served by name, and broken ones beside them."""

import json
import pathlib
import shutil
import subprocess

import pytest
import torch
from auto_server import Auto, failure, finish, generate, run
from lmtp_socket import Socket
from safetensors.torch import load_file, save_file
from servers import LmtpServe, bin_dir

FOLDERS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "quantized"
QUANTIZE = FOLDERS.parents[2] / "tools" / "quantize"
TIMEOUT_S = 60
# What MODEL_INFO says of each; of those with rounded activations there is no golden.
SERVED = {
    "awq-experts": ("awq", ["int4 in groups of 32"], 0),
    "awq-w4-g32": ("awq", ["int4 in groups of 32"], 0),
    "ct-new-fp8-block": ("compressed-tensors", ["fp8 in blocks of 128x128"], 0),
    "ct-new-mixed": ("compressed-tensors", ["int8", "int4 in groups of 32"], 0),
    "ct-old-w4-ordered": ("compressed-tensors", ["int4 in groups of 16"], 10),
    "ct-new-w8a8": ("compressed-tensors", ["int8"], 0),
    "fp8-tensors": ("fp8", ["fp8"], 0),
    "gptq-experts": ("gptq", ["int4 in groups of 32"], 0),
    "gptq-w4-g32": ("gptq", ["int4 in groups of 32"], 0),
    "gptq-w4-ordered": ("gptq", ["int4 in groups of 32"], 0),
    "modelopt-nvfp4": ("modelopt", ["fp4 in groups of 16"], 0),
    "smooth-fp8": ("smooth_quant", ["fp8"], 0),
    "smooth-int8": ("smooth_quant", ["int8"], 0),
}


def case_of(folder):
    """A greedy case that no bias changes."""
    path = folder / "golden.json"
    cases = json.loads(path.read_text()) if path.exists() else []
    return next((c for c in cases if c["kind"] == "greedy" and "logit_bias" not in c), None)


def with_scale(tmp_path, value):
    """A copy of a folder of which one scale has that value."""
    folder = tmp_path / f"scale-{value}"
    shutil.copytree(FOLDERS / "ct-new-fp8-dynamic", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight_scale"][3] = value
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_every_format_is_served_and_broken_ones_harm_none(tmp_path):
    broken = [with_scale(tmp_path, value) for value in (float("nan"), 0.0)]

    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream, (name, (method, weights, widened)) in enumerate(SERVED.items(), start=1):
                folder = FOLDERS / name
                case = case_of(folder) or {"prompt_ids": [5, 6, 7], "max_tokens": 8}
                ids, _ = await finish(
                    s, stream, str(folder), prompt=case["prompt_ids"],
                    max_tokens=case["max_tokens"],
                )  # fmt: skip
                assert ids == case.get("ids", ids), name
                info = await s.model_info(model=str(folder))
                assert info["quantization"] == {
                    "method": method, "weights": weights, "widened": widened,
                }, name  # fmt: skip
                for path in broken[stream % 2 :: 2]:
                    error = await failure(s, 100 + stream, str(path))
                    assert "'model.layers.1.mlp.up_proj.weight_scale': a scale of output 3" in error

    with Auto(tmp_path) as server:
        run(ask(server))


async def streamed(endpoint):
    async with Socket(endpoint) as s:
        await generate(s, 1, None, prompt=[5, 6, 7], max_tokens=24, temperature=0)
        entries = []
        while not entries or entries[-1]["finish_reason"] is None:
            entries.append(await s.token_of(1))
        return [(entry["token"], entry["logprob"]) for entry in entries]


@pytest.mark.parametrize("name", ["families/llama", "experts/qwen2-moe", "experts/mixtral"])
@pytest.mark.parametrize("to", ["int8", "int4"])
def test_what_quantize_writes_has_the_bits_of_dtype(tmp_path, to, name):
    folder = FOLDERS.parent / name
    subprocess.run([QUANTIZE, folder, "--to", to, "--out", tmp_path / to], check=True)
    found = []
    for model, options in ((folder, ["--dtype", to]), (tmp_path / to, ["--dtype", "bfloat16"])):
        with LmtpServe(model, "--kv-cache", "16MiB", *options) as server:
            found.append(run(streamed(server.endpoint)))
    assert found[0] == found[1]


def test_the_ready_line_says_what_is_widened():
    with LmtpServe(FOLDERS / "ct-old-w4-ordered", "--kv-cache", "16MiB") as server:
        ready = server.ready_line()
    assert "compressed-tensors weights: int4 in groups of 16" in ready
    assert "10 quantised matrices are widened to float32" in ready


@pytest.mark.parametrize("leaf, change, words", [
    ("qzeros", None, "self_attn.q_proj.qzeros' is missing, and quantization_config asks for it"),
    ("scales", lambda t: t[:1], "self_attn.q_proj.scales': its shape is [1, 64], and config.json"),
    ("g_idx", lambda t: t + 1, "self_attn.q_proj.g_idx': input 32 is in group 2"),
    ("bias", torch.ones_like, "self_attn.q_proj.bias' is not 0"),
])  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, leaf, change, words):
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / "gptq-w4-g32", folder)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj." + leaf
    tensor = tensors.pop(name)
    if change is not None:
        tensors[name] = change(tensor).contiguous()
    save_file(tensors, folder / "model.safetensors")
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", folder, "--port", "0", "--kv-cache", "16MiB"],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr, done.stderr

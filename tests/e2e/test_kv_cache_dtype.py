"""Keys and values of another type than the weights': --kv-cache-dtype."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from auto_server import run
from lmtp_socket import info_of, seeded_streams
from servers import LmtpServe, bin_dir

OPTIONS = ("--kv-cache", "16MiB")
FP8 = ("--kv-cache-dtype", "fp8_e4m3")
PROMPT = list(range(5, 60))
NUM_STREAMS = 6
TIMEOUT_S = 60


def served(*options, dtype="float32"):
    return LmtpServe("demo", *OPTIONS, "--dtype", dtype, *options)


@pytest.mark.parametrize(
    "dtype, kv_dtype",
    [("bfloat16", "fp8_e4m3"), ("float32", "bfloat16"), ("float32", "float16")],
)
def test_a_stream_has_the_same_bits_alone_and_in_company(dtype, kv_dtype):
    numbers = range(NUM_STREAMS)
    option = ("--kv-cache-dtype", kv_dtype)
    with served(*option, dtype=dtype) as server:
        info = run(info_of(server.endpoint))
        assert (info["dtype"], info["kv_cache_dtype"]) == (dtype, kv_dtype)
        together = run(seeded_streams(server.endpoint, PROMPT, numbers))
    with served(*option, "--max-batched-tokens", "16", dtype=dtype) as server:
        for number in numbers:
            alone = run(seeded_streams(server.endpoint, PROMPT, [number]))
            assert alone[number] == together[number], number
    with served(dtype=dtype) as server:
        assert run(info_of(server.endpoint))["numerics"] != info["numerics"]
        others = run(seeded_streams(server.endpoint, PROMPT, numbers))
        assert others != together, "the option changes nothing"


def test_the_same_bytes_hold_twice_as_many_tokens():
    found = {}
    for options in ((), FP8, ("--kv-cache-dtype", "fp8"), ("--kv-cache-dtype", "float32")):
        with served(*options, dtype="bfloat16") as server:
            found[options] = run(info_of(server.endpoint))
    blocks = {options: info["stats"]["num_blocks"] for options, info in found.items()}
    # Block 0 holds nothing, and is not counted.
    assert 2 * blocks[()] <= blocks[FP8] <= 2 * blocks[()] + 2
    assert blocks["--kv-cache-dtype", "float32"] < blocks[()]
    assert blocks["--kv-cache-dtype", "fp8"] == blocks[FP8]
    numerics = {options: info["numerics"] for options, info in found.items()}
    assert numerics[FP8] == numerics["--kv-cache-dtype", "fp8"]
    assert len(set(numerics.values())) == 3


def test_narrower_keys_and_values_of_float32_weights():
    found = {}
    for kv_dtype in ("auto", "float32", "bfloat16", "bf16", "float16", "half"):
        with served("--kv-cache-dtype", kv_dtype) as server:
            found[kv_dtype] = run(info_of(server.endpoint))
    blocks = {kv_dtype: info["stats"]["num_blocks"] for kv_dtype, info in found.items()}
    assert blocks["auto"] == blocks["float32"]
    assert 2 * blocks["auto"] <= blocks["bfloat16"] == blocks["float16"] <= 2 * blocks["auto"] + 2
    numerics = {kv_dtype: info["numerics"] for kv_dtype, info in found.items()}
    assert numerics["auto"] == numerics["float32"]
    assert numerics["bfloat16"] == numerics["bf16"]
    assert numerics["float16"] == numerics["half"]
    assert len(set(numerics.values())) == 3


def test_the_ready_line_says_it():
    with served(*FP8) as server:
        ready = server.ready_line()
    assert re.search(r"KV cache 1[56]\S* MiB of fp8_e4m3 \(", ready), ready


def test_a_checkpoint_with_scales_of_its_own_is_refused(tmp_path):
    goldens = pathlib.Path(__file__).resolve().parents[1] / "goldens"
    folder = tmp_path / "scaled"
    shutil.copytree(goldens / "quantized" / "ct-new-fp8-block", folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run([bin_dir() / "lmtp-serve", folder, "--port", "0", *OPTIONS, *FP8],
                          capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode == 1
    assert "kv_cache_scheme" in done.stderr and "bfloat16" in done.stderr
    with LmtpServe(folder, *OPTIONS) as server:
        assert run(info_of(server.endpoint))["state"] == "ready"


def test_a_cpu_takes_no_swap_space():
    done = subprocess.run([bin_dir() / "lmtp-serve", "demo", "--port", "0", "--swap-space", "4"],
                          capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode == 1
    assert "--swap-space: " in done.stderr and "--kv-cache" in done.stderr
    with served("--swap-space", "0") as server:
        assert run(info_of(server.endpoint))["stats"]["num_host_blocks"] == 0


@pytest.mark.parametrize("value", ["fp8_e5m2", "int8"])
def test_what_cannot_be_had_says_what_can(value):
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", "demo", "--port", "0", "--kv-cache-dtype", value],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--kv-cache-dtype: " in done.stderr and "fp8_e4m3" in done.stderr

"""What makes the CUDA kernels fast is in their machine code, where a line of C++ can lose it and no
result is another: loads that are in flight together, and those before the wait."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import machine_code  # noqa: E402


@pytest.fixture(scope="module")
def kernels():
    build = ROOT / "build" / "release"
    if not machine_code.object_files(build):
        pytest.skip("built without CUDA")
    if machine_code.find_cuobjdump() is None:
        pytest.skip("no cuobjdump: tools/setup --cuda brings it")
    return machine_code.read_all(build)


def named(kernels, part):
    some = [kernel for kernel in kernels if kernel.name.startswith(part)]
    assert some, part
    return some


def test_registers_are_enough(kernels):
    # Arguments of cosines beyond 105615 are reduced by a table in local memory.
    assert [k.name for k in kernels if k.spills and k.name != "rotary_angles_kernel"] == []


def test_linear_layers_ask_for_weights_before_they_wait(kernels):
    for kernel in named(kernels, "linear_stream_kernel"):
        assert kernel.loads_before_wait >= 8, kernel.name
    for kernel in named(kernels, "linear_tiled_kernel"):
        assert kernel.copies_before_wait >= 8, kernel.name


def test_norms_ask_for_their_weights_before_they_wait(kernels):
    for kernel in named(kernels, "layer_norm_kernel") + named(kernels, "rms_norm_kernel"):
        assert kernel.loads_before_wait >= 1, kernel.name


def test_decode_attention_asks_for_many_keys_at_once(kernels):
    for kernel in named(kernels, "attention_decode_kernel"):
        assert kernel.loads_in_flight >= 12, kernel.name


def test_inputs_of_single_rows_come_together(kernels):
    for kernel in named(kernels, "linear_stream_kernel"):
        if kernel.name.endswith(", 1>"):
            assert kernel.loads_in_flight >= 16, kernel.name


def test_nobody_reads_before_the_wait_what_another_launch_writes(kernels):
    of_weights = ("linear_stream_kernel", "linear_tiled_kernel", "layer_norm_kernel",
                  "rms_norm_kernel")
    for kernel in kernels:
        if not kernel.name.startswith(of_weights):
            assert kernel.loads_before_wait + kernel.copies_before_wait == 0, kernel.name
    for kernel in named(kernels, "linear_stream_kernel"):
        output_tiles, row_eights = map(int, kernel.name.rstrip(">").split(", ")[1:])
        biases = output_tiles if row_eights == 1 else 0
        assert kernel.loads_before_wait in (8 + biases, 16 + biases), kernel.name

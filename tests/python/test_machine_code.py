"""What makes the CUDA kernels fast is in their machine code, where a line of C++ can lose it and no
result is another: loads that are in flight together, and those before the wait."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import machine_code  # noqa: E402


@pytest.fixture(scope="module")
def kernels():
    build = ROOT / "build" / "release"
    if not machine_code.object_files(build):
        pytest.skip("built without CUDA")
    if machine_code.find_cuobjdump() is None:
        pytest.skip("no cuobjdump: tools/setup --tests brings it")
    return machine_code.read_all(build)


def named(kernels, part):
    some = [kernel for kernel in kernels if kernel.name.startswith(part)]
    assert some, part
    return some


def numbers(kernel):
    """Of its template arguments."""
    return [int(n) for n in re.findall(r"[<,] ?(\d+)", kernel.name)]


def test_registers_are_enough(kernels):
    # Arguments of cosines beyond 105615 are reduced by a table in local memory.
    # A warp of codes and a row keeps up to two values over its loop in local memory, not in it.
    allowed = {k.name: 4 for k in kernels if re.search("Narrow<.*, 1, 1>", k.name)}
    allowed["rotary_angles_kernel"] = 1000
    assert [k.name for k in kernels if k.spills > allowed.get(k.name, 0)] == []


def test_codes_leave_registers_for_many_warps(kernels):
    for kernel in named(kernels, "linear_stream_kernel<Narrow<"):
        assert kernel.registers <= (64 if numbers(kernel)[1] <= 2 else 128), kernel.name


def test_weights_and_they_alone_are_asked_for_before_the_wait(kernels):
    for kernel in named(kernels, "linear_stream_kernel"):
        output_tiles, row_eights = numbers(kernel)
        has_any_scales = "AnyScales" in kernel.name
        biases = output_tiles if row_eights == 1 and not has_any_scales else 0
        weights = (8, 16)
        if "Narrow<" in kernel.name:
            # Of each four tiles the codes and the scales, of any type those of 16 bits or 32, and
            # offsets.
            codes = 1 if re.search("Int4Codes|E2M1Codes", kernel.name) else 2
            weights = (codes + 3,) if has_any_scales else (2 * (codes + 1),)
        assert kernel.loads_before_wait - biases in weights, kernel.name
    for kernel in named(kernels, "linear_tiled_kernel"):
        outputs, rows, outputs_of_warp, rows_of_warp, stages = numbers(kernel)
        warps = outputs // outputs_of_warp * (rows // rows_of_warp)
        # A lane copies a vector of a tile: of each output and 4 inputs, for all stages but one.
        assert kernel.copies_before_wait == (stages - 1) * outputs * 4 / warps, kernel.name
    for kernel in named(kernels, "linear_wgmma"):
        # The warps that copy weights of 8 tiles, and those that multiply, have a wait each.
        whole = kernel.name.startswith("linear_wgmma_kernel")
        assert kernel.bulk_copies_between(0 if whole else -1, 1 if whole else 0) == 8, kernel.name
    for name, num_weights in (("layer_norm_kernel", 2), ("rms_norm_kernel", 1)):
        for kernel in named(kernels, name):
            (vectors,) = numbers(kernel)
            # Of each a load of four columns and, for rows of other widths, four of one.
            assert kernel.loads_before_wait == num_weights * vectors * 5, kernel.name
        for kernel in named(kernels, f"round_{name}"):
            assert kernel.loads_before_wait == num_weights * numbers(kernel)[-1], kernel.name
    others = ("linear_stream", "linear_tiled", "layer_norm", "rms_norm", "round_layer", "round_rms")
    for kernel in kernels:
        if not kernel.name.startswith(others):
            assert kernel.loads_before_wait + kernel.copies_before_wait == 0, kernel.name


def test_decode_attention_asks_for_many_keys_at_once(kernels):
    for kernel in named(kernels, "attention_decode_kernel"):
        assert kernel.loads_in_flight >= 12, kernel.name


def test_the_merge_asks_for_eight_splits_at_once(kernels):
    for kernel in named(kernels, "attention_decode_kernel"):
        # Of each four sums, a maximum and a total.
        assert kernel.fresh_loads_in_flight >= 8 * 3, kernel.name


def test_the_sampler_asks_for_sixteen_logits_at_once(kernels):
    for kernel in named(kernels, "sample_kernel"):
        assert kernel.loads_between(("BRA", "BAR"), wanted=lambda _: True) >= 16, kernel.name


def test_the_last_of_shared_blocks_asks_for_sixteen_vectors_at_once(kernels):
    for kernel in named(kernels, "linear_tiled_kernel"):
        if "Int8" not in kernel.name:  # whose additions are those of addresses, too
            fresh = kernel.loads_between("FADD", wanted=lambda load: "STRONG.GPU" in load)
            assert fresh == 16, kernel.name


def test_inputs_of_single_rows_come_together(kernels):
    for kernel in named(kernels, "linear_stream_kernel"):
        # Inputs of Int8 are tiles, and weights of codes take fewer bytes.
        if kernel.name.endswith(", 1>") and not re.search("Narrow<|Int8", kernel.name):
            assert kernel.loads_in_flight >= 16, kernel.name

"""The grid finds a linear, and a sum over experts, whose bits depend on the number of rows: were
it silent, its zeros would mean nothing."""

import os
import pathlib
import re
import subprocess

NUMERICS = pathlib.Path(os.environ["LMTP_BIN_DIR"]).parent / "tests" / "numerics_grid"
ROOT = pathlib.Path(os.environ["LMTP_SOURCE_DIR"])
LLAMA = ROOT / "tests" / "goldens" / "families" / "llama"
EXPERTS = ROOT / "tests" / "goldens" / "experts" / "qwen2-moe"
# Eight streams have more than four rows in a step, one alone has not.
GRID = ("--batch", "1,8", "--chunk", "64", "--threads", "2", "--ranks", "1",
        "--sample")


def numerics(*arguments, model=LLAMA):
    command = [NUMERICS, "--model", model, *GRID, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    differing = {
        value: int(count)
        for value, count in re.findall(r"^[a-z ]{10} (\S+) +\d+ +(\d+) ", done.stdout, re.M)
    }
    return done, differing


def test_a_linear_that_depends_on_its_rows_makes_it_fail():
    done, differing = numerics("--break-linear")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERS" in done.stdout
    for value in ("8", "cold", "warm", "partial", "no", "yes", "f32", "bf16", "int8", "int4",
                  "bf16+fp8", "f32+bf16", "f32+f16"):
        assert differing[value] > 0, (value, done.stdout)


def test_a_sum_over_experts_that_depends_on_its_rows_makes_it_fail():
    done, differing = numerics("--break-combine", model=EXPERTS)
    assert done.returncode == 1, done.stdout + done.stderr
    for value in ("8", "cold", "f32", "bf16", "int8", "int4"):
        assert differing[value] > 0, (value, done.stdout)


def test_the_real_ones_do_not():
    for model in (LLAMA, EXPERTS):
        done, differing = numerics(model=model)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "DIFFERS" not in done.stdout
        assert set(differing.values()) == {0}, done.stdout

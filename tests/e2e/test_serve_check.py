"""tools/serve-check as a user runs it."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "tests" / "goldens" / "families"
TIMEOUT_S = 300


def serve_check(*arguments):
    return subprocess.run(
        [ROOT / "tools" / "serve-check", *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


@pytest.mark.parametrize("folder", [ROOT / "models" / "demo", FAMILIES / "qwen3"], ids=str)
def test_a_good_folder(folder):
    done = serve_check(folder, "--tokens", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference beyond" in done.stdout
    assert done.stdout.count("greedy ") == (7 if folder.name == "demo" else 2)


def test_a_difference_is_shown():
    done = serve_check(FAMILIES / "qwen3", "--tokens", "4", "--tolerance", "1e-12")
    assert done.returncode == 1
    assert "DIFFERS at token" in done.stdout
    assert "differences beyond 1e-12" in done.stderr


def test_no_folder():
    done = serve_check("/nonexistent")
    assert done.returncode == 1
    assert "no config.json" in done.stderr

"""tools/serve-check as a user runs it."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"
QWEN3 = GOLDENS / "families" / "qwen3"
TIMEOUT_S = 800
WORDS = {
    "folder": [
        "as GPT2LMHeadModel", "dtype       float32, on cpu", "context     512 tokens",
        "6 of 6 texts have the same ids", "56 of 56 greedy ones of 7 prompts",
    ],
    "quantised": [
        "compressed-tensors: int8; 0 matrices widened", "weights by dequantize.py",
        "is allowed on average",
    ],
    "gguf": [
        "gguf: int8 in groups of 16, int4 in groups of 32", "weights by the gguf package",
        "56 of 56 greedy ones of 7 prompts",
    ],
    "adapter": ["adapters    llama-lora", "and peft", "is allowed for each"],
    "unreadable": ["served: yes", "equal: not compared, transformers", "served, not compared"],
}  # fmt: skip


def serve_check(*arguments):
    return subprocess.run(
        [ROOT / "tools" / "serve-check", *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


def changed(folder, **settings):
    """A copy of a checkpoint with other settings."""
    shutil.copytree(QWEN3, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """By name, what one run says of them all; and its table."""
    folder = tmp_path_factory.mktemp("models")
    models = {
        "folder": ROOT / "models" / "demo",
        "quantised": GOLDENS / "quantized" / "ct-new-w8a8",
        "gguf": GOLDENS / "gguf" / "mixed.gguf",
        "adapter": GOLDENS / "adapters" / "llama",
        "unreadable": changed(folder / "unreadable", dtype="float7"),  # by transformers alone
        "refused": changed(folder / "refused", model_type="mamba"),
    }
    done = serve_check(*models.values(), "--base", GOLDENS / "families" / "llama", "--tokens", "8")
    assert done.returncode == 1, done.stdout + done.stderr
    *found, table = done.stdout.split("\n\n")
    assert len(found) == len(models), done.stdout + done.stderr
    return dict(zip(models, found)) | {"table": table}


@pytest.mark.parametrize("name", WORDS)
def test_what_is_served(pages, name):
    page = pages[name]
    for word in (*WORDS[name], "template", "memory", "KV cache"):
        assert word in page, page
    assert "DIFFERS" not in page and "result: served, no" in page, page
    speeds = re.findall(r"(\d) streams? +([\d.]+) tokens/s", page)
    assert [n for n, _ in speeds] == ["1", "8"]
    assert all(float(speed) > 0 for _, speed in speeds)


def test_what_is_refused_in_the_servers_words(pages):
    page = pages["refused"]
    assert "served: no\n  lmtp-serve: " in page and "mamba" in page
    assert page.endswith("result: refused")
    assert re.search(r"/refused +refused\n$", pages["table"])
    assert len(pages["table"].splitlines()) == len(pages) - 1


def test_a_difference_is_shown():
    done = serve_check(QWEN3, "--tokens", "4", "--tolerance", "1e-12", "--no-speed",
                       "--", "--kv-cache", "16MiB")  # fmt: skip
    assert done.returncode == 1
    assert "DIFFERS at token" in done.stdout
    assert "KV cache 16." in done.stdout
    assert "differences beyond 1e-12" in done.stdout

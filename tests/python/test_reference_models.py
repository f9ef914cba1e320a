"""The references of tools/serve-check beside the goldens: quantised folders by dequantize.py, GGUF
files and adapters by reference_model.py give what other libraries gave."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

import dequantize  # noqa: E402
import reference_model  # noqa: E402

GOLDENS = ROOT / "tests" / "goldens"
# Of others no model of transformers is made from the file.
OTHERS = {"olmo2", "granite", "nemotron", "gpt-bigcode", "apertus", "falcon",
          "mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "granitemoe", "gpt-oss", "glm4-moe",
          "ernie4-5-moe", "modelopt-nvfp4", "gptq-experts", "awq-experts"}  # fmt: skip
QUANTISED = sorted(
    p.parent
    for p in (GOLDENS / "quantized").glob("*/golden.json")
    if p.parent.name not in OTHERS
)
FILES = sorted(
    p
    for p in (GOLDENS / "gguf").glob("*.gguf")
    if p.with_suffix(".json").exists() and p.stem not in OTHERS
)
ADAPTERS = sorted(p for p in (GOLDENS / "adapters").iterdir() if p.is_dir())


def compare(golden, path, adapter=None):
    reference = reference_model.Reference(path, adapter)
    num_steps = 0
    for case in json.loads(golden.read_text()):
        if case["kind"] != "greedy" or "logit_bias" in case:
            continue
        prompt, steps = case["prompt_ids"], case["steps"]
        rows = reference.log_probs(prompt + case["ids"])[len(prompt) - 1 : -1]
        assert [int(row.argmax()) for row in rows] == [step["token"] for step in steps]
        got = [float(row[step["token"]]) for row, step in zip(rows, steps)]
        assert got == pytest.approx([step["logprob"] for step in steps], abs=2e-4)
        num_steps += len(steps)
    assert num_steps >= 20


@pytest.mark.parametrize("folder", QUANTISED, ids=lambda path: path.name)
def test_quantised_folders(folder):
    compare(folder / "golden.json", folder)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_gguf_files(file):
    assert reference_model.kind_of(file) == reference_model.GGUF
    compare(file.with_suffix(".json"), file)


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda path: path.name)
def test_adapters(folder):
    assert reference_model.kind_of(folder) == reference_model.ADAPTER
    base = GOLDENS / reference_model.base_of(folder)
    compare(folder / "golden.json", base if base.exists() else ROOT / "models" / "demo", folder)


def test_each_kind_is_there():
    assert len(QUANTISED) > 10 and len(FILES) == 9 and len(ADAPTERS) == 9


def test_what_is_not_read_says_so(tmp_path):
    settings = {"quantization_config": {"quant_method": "hqq"}, "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(dequantize.Unknown, match="hqq"):
        dequantize.state_dict(tmp_path)
    with pytest.raises(reference_model.NoReference, match="transformers .*hqq"):
        reference_model.Reference(tmp_path)

"""The environment that runs this file, .venv or .venv-newest, holds what its list says."""

import pathlib
import sys
from importlib import metadata

import huggingface_hub
import tokenizers
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEWEST = "venv-newest" in pathlib.Path(sys.prefix).name


def releases(name):
    lines = (ROOT / "tools" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_releases_are_those_of_the_list():
    wanted = releases("requirements.txt") | (releases("requirements-newest.txt") if NEWEST else {})
    assert {name: metadata.version(name) for name in wanted} == wanted
    for module in (transformers, tokenizers, huggingface_hub):
        assert module.__version__ == wanted[module.__name__]


def test_it_reads_the_demo():
    folder = ROOT / "models" / "demo"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer("Once upon a", return_tensors="pt").input_ids
    assert ids.tolist() == [[46, 789, 579, 258]]
    assert model.generate(ids, max_new_tokens=1, do_sample=False)[0, -1] == 198

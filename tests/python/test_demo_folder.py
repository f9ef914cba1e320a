"""models/demo as transformers sees it: it loads, keeps its limits, and still gives its goldens."""

import json
import pathlib
import re

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
GOLDENS = ROOT / "tests" / "goldens"
BITS_PER_BYTE_MAX = 2.0
FOLDER_BYTES_MAX = 6_000_000
CONTEXT_MIN = 512
LOOPING_SAMPLES_MAX = 2


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(DEMO)


@pytest.fixture(scope="module")
def model():
    load = transformers.AutoModelForCausalLM.from_pretrained
    return load(DEMO, torch_dtype=torch.float32, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def readme():
    return (DEMO / "README.md").read_text(encoding="utf-8")


def test_folder_is_small_and_whole():
    names = {f.name for f in DEMO.iterdir()}
    assert names == {
        "README.md", "config.json", "generation_config.json", "merges.txt", "model.safetensors",
        "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.json",
    }  # fmt: skip
    assert sum(f.stat().st_size for f in DEMO.iterdir()) <= FOLDER_BYTES_MAX


def test_ends_and_context(tokenizer, model):
    assert tokenizer.bos_token == tokenizer.eos_token == "<|endoftext|>"
    end = tokenizer.eos_token_id
    assert model.config.bos_token_id == model.config.eos_token_id == end
    assert model.generation_config.bos_token_id == model.generation_config.eos_token_id == end
    assert model.config.n_positions >= CONTEXT_MIN
    assert model.config.vocab_size == len(tokenizer)


def test_weights_are_float16():
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(DEMO / "model.safetensors", "pt") as f:
        assert {f.get_tensor(name).dtype for name in f.keys()} == {torch.float16}


def test_readme_states_a_held_out_figure_within_the_limit(readme):
    (figure,) = re.findall(r"\*\*([0-9.]+) bits per byte\*\*", readme)
    assert 0.5 < float(figure) <= BITS_PER_BYTE_MAX


def test_readme_has_ten_samples_of_which_few_loop(readme):
    samples = readme.split("## Ten greedy samples")[1]
    numbers = re.findall(r"^(\d+)\.( \(.*loops.*\))?", samples, re.MULTILINE)
    assert [int(n) for n, _ in numbers] == list(range(1, 11))
    (stated,) = re.findall(r"^(\d+) of the ten loop", samples, re.MULTILINE)
    assert int(stated) == sum(bool(loops) for _, loops in numbers) <= LOOPING_SAMPLES_MAX


def test_greedy_golden_still_holds(model):
    cases = json.loads((GOLDENS / "demo.json").read_text(encoding="utf-8"))
    case = next(c for c in cases if c["name"] == "greedy, short prompt")
    ids = torch.tensor([case["prompt_ids"] + case["ids"][:32]])
    with torch.no_grad():
        rows = model(ids).logits[0, len(case["prompt_ids"]) - 1 : -1].double().log_softmax(-1)
    assert rows.argmax(-1).tolist() == case["ids"][:32]
    for row, step in zip(rows, case["steps"]):
        assert row[step["token"]].item() == pytest.approx(step["logprob"], abs=1e-4)


def test_tokenizer_goldens_still_hold(tokenizer):
    load = lambda name: json.loads((GOLDENS / name).read_text(encoding="utf-8"))
    texts = load("tokenizer-demo.json")
    assert len(texts) > 300
    for case in texts:
        assert tokenizer.encode(case["text"], add_special_tokens=False) == case["ids"], case
    for case in texts + load("tokenizer-demo-decode.json"):
        decoded = tokenizer.decode(case["ids"], clean_up_tokenization_spaces=False)
        assert decoded == case["decoded"], case

"""tools/quantize: what it writes is what a library reads, and near the weights that it was made
from."""

import json
import pathlib
import sys

import pytest

safetensors = pytest.importorskip("safetensors.torch")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import quantize  # noqa: E402

EXPERTS = ROOT / "tests" / "goldens" / "experts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    # A group does not divide an MLP's 76; the head is not the embedding; in several files.
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=64, intermediate_size=76, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(path, max_shard_size="60KB")
    return path


def run(*arguments):
    quantize.main([str(argument) for argument in arguments])


def tensors_of(folder):
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors.update(safetensors.load_file(path))
    return tensors


def unpacked(words, shape):
    codes = (words.unsqueeze(2) >> torch.arange(0, 32, 4)) & 15
    return codes.reshape(words.shape[0], -1)[:, : shape[1]].float() - 8


def numbers(tensors, module):
    """The weights of a module, by compressed-tensors' definition."""
    scales = tensors[f"{module}.weight_scale"].float()
    if f"{module}.weight" in tensors:
        return tensors[f"{module}.weight"].float() * scales
    shape = tensors[f"{module}.weight_shape"].tolist()
    codes = unpacked(tensors[f"{module}.weight_packed"], shape)
    return codes * scales.repeat_interleave(32, dim=1)[:, : shape[1]]


@pytest.mark.parametrize("to, worst", [("int8", 0.01), ("int4", 0.10)])
def test_matrices_are_near_what_they_were_made_from(folder, tmp_path, to, worst):
    out = tmp_path / "out"
    run(folder, "--to", to, "--out", out)
    assert len(list(out.glob("*.safetensors"))) > 1
    made = tensors_of(out)
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == made.keys()
    for name, weight in tensors_of(folder).items():
        if weight.dim() != 2:
            assert torch.equal(made[name], weight)
            continue
        module = name.removesuffix(".weight")
        is_table = module in ("model.embed_tokens", "lm_head")
        assert (f"{module}.weight_packed" in made) == (to == "int4" and not is_table)
        error = (numbers(made, module) - weight.float()).norm() / weight.float().norm()
        assert error < (0.01 if is_table else worst), module
    config = json.loads((out / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (out / "generation_config.json").exists()


def test_a_matrix_is_no_worse_than_in_q4_0():
    gguf = pytest.importorskip("gguf")
    torch.manual_seed(1)
    for name, weight in (("normal", torch.randn(256, 512)), ("heavy", torch.randn(256, 512) ** 3)):
        codes, scales = quantize.to_int4(weight)
        ours = (codes.float() - 8) * scales.float().repeat_interleave(32, dim=1)
        kind = gguf.GGMLQuantizationType.Q4_0
        theirs = gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind)
        error = ((ours - weight).norm() / weight.norm()).item()
        q4_0 = ((torch.from_numpy(theirs) - weight).norm() / weight.norm()).item()
        print(f"{name}: relative error int4 {error:.5f}, Q4_0 {q4_0:.5f}")
        assert error < 1.01 * q4_0


def test_rows_and_groups_of_zeros_have_scales_that_are_not_zero():
    for to in (quantize.to_int8, quantize.to_int4):
        codes, scales = to(torch.zeros(3, 40))
        assert torch.equal(scales.float(), torch.ones_like(scales, dtype=torch.float32))
        assert set(codes.unique().tolist()) == {0 if to is quantize.to_int8 else 8}


def test_refusals_say_what_is_wrong(folder, tmp_path):
    def expect(message, *arguments):
        with pytest.raises(SystemExit, match=message):
            run(*arguments, "--to", "int4")

    expect("no config.json", tmp_path / "nothing", "--out", tmp_path / "a")
    expect("experts in one tensor", EXPERTS / "granitemoe", "--out", tmp_path / "e")
    expect("GPT-2", ROOT / "models" / "demo", "--out", tmp_path / "b")
    expect("--out", folder, "--out", ROOT / "models" / "demo")
    once = tmp_path / "once"
    run(folder, "--to", "int8", "--out", once)
    expect("quantised already", once, "--out", tmp_path / "c")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((folder / "config.json").read_text())
    safetensors.save_file({"x.weight": torch.full((2, 2), torch.nan)}, broken / "model.safetensors")
    expect("x.weight", broken, "--out", tmp_path / "d")

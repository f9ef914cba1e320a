#!/usr/bin/env python3
"""Writes LoRA adapters of tiny checkpoints under tests/goldens/adapters/, by the library `peft`,
and beside each what `transformers` and `peft` give with it, in float32 (golden.json, as
make_goldens.py's); the same bytes on every run with the same versions.

    make_adapters.py [NAME...]          (all of them without a name)

Run by hand, where `peft` is installed beside `transformers`. Together they have what a reader may
get wrong: fused matrices, matrices of the model that are rows of one here, ranks and scales of
layers of their own, each way to name targets, ranks that are no multiple of four.
"""

import json
import pathlib
import sys

import make_goldens
import peft
import torch
from make_goldens import Draws, first_clear, line, report, score_case
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
MADE_BY = make_goldens.VERSIONS + f", peft {peft.__version__}, float32, cpu"
make_goldens.MADE_BY = MADE_BY
STEPS = 24
# The model's folder, and the settings.
ADAPTERS = {
    "gpt2": ("checkpoints/untied-f32", dict(
        r=4, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True,
    )),
    "gpt-neox": ("families/gpt-neox", dict(
        r=7, lora_alpha=9, target_modules=["query_key_value", "dense_h_to_4h", "dense"],
    )),
    "llama": ("families/llama", dict(
        r=8, lora_alpha=16, target_modules="all-linear",
        rank_pattern={"q_proj": 3, "layers.1.mlp.down_proj": 6, r".*\.2\..*up_proj": 1},
        alpha_pattern={"v_proj": 4, "layers.1.mlp.down_proj": 12},
    )),
    "phi3": ("families/phi3", dict(
        r=5, lora_alpha=3, target_modules=["qkv_proj", "gate_up_proj", "o_proj"], use_rslora=True,
    )),
    "qwen3": ("families/qwen3", dict(
        r=2, lora_alpha=4,
        target_modules=r".*\.self_attn\.(q|v)_proj|.*layers\.(0|2)\.mlp\.gate_proj",
    )),
    "gemma2": ("families/gemma2", dict(
        r=16, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"],
        exclude_modules=["k_proj"], layers_to_transform=[0, 2],
    )),
    # Of the model that has a tokenizer: text over every protocol.
    "demo": ("../../models/demo", dict(
        r=3, lora_alpha=12, target_modules=["c_attn", "mlp.c_fc"], fan_in_fan_out=True,
        layers_to_transform=[1], layers_pattern="h",
    )),
}  # fmt: skip


class WithAdapter(make_goldens.Reference):
    def __init__(self, base, adapter):
        super().__init__(base)
        self.f32 = peft.PeftModel.from_pretrained(self.f32, adapter).eval()
        self.f64 = peft.PeftModel.from_pretrained(self.f64, adapter).double().eval()


def write(name, seed):
    base, settings = ADAPTERS[name]
    target = HERE / "adapters" / name
    model = AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(seed)
    for parameter in (p for key, p in model.named_parameters() if "lora_" in key):
        size = parameter.shape[1] ** 0.5
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.6 / size
        if name == "qwen3":  # adapters are often kept so
            parameter.data = parameter.data.bfloat16()
    model.peft_config["default"].base_model_name_or_path = base.replace("../../", "")
    model.save_pretrained(target, save_embedding_layers=False)
    (target / "README.md").unlink()
    config = json.loads((target / "adapter_config.json").read_text())
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):  # a set, in any order
            config[key].sort()
    (target / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (target / "adapter_model.safetensors").chmod(0o644)
    ref = WithAdapter(HERE / base, target)
    draws = Draws(ref, seed, ())
    cases = [
        first_clear(ref, "greedy, short prompt", draws.prompts(3), steps=STEPS),
        score_case(ref, "score behind nothing", [], draws.ids(40)),
        score_case(ref, "score behind a prompt", draws.ids(70), draws.ids(20)),
    ]
    for case in cases:
        report(name, case)
        case.pop("top5", None)
        for step in case.get("steps", []):
            step.pop("top5", None)
    text = "[\n" + ",\n".join(line(c) for c in cases) + "\n]\n"
    (target / "golden.json").write_text(text, encoding="utf-8")


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    for seed, name in enumerate(ADAPTERS):
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            write(name, 300 + seed)


if __name__ == "__main__":
    main()

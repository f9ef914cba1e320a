#!/usr/bin/env python3
"""Writes LoRA adapters of tiny checkpoints under tests/goldens/adapters/, by the library `peft`,
and beside each what `transformers` and `peft` give with it, in float32 (golden.json, as
make_goldens.py's); the same bytes on every run with the same versions.

    make_adapters.py [NAME...]          (all of them without a name; `names`: names.json)

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
    # Whose queries and keys lie in another order here, beside values that do not.
    "cohere2": ("families/cohere2", dict(
        r=3, lora_alpha=12, target_modules=["q_proj", "k_proj", "v_proj"],
    )),
    "granite": ("families/granite", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    # Of the model that has a tokenizer: text over every protocol.
    "demo": ("../../models/demo", dict(
        r=3, lora_alpha=12, target_modules=["c_attn", "mlp.c_fc"], fan_in_fan_out=True,
        layers_to_transform=[1], layers_pattern="h",
    )),
}  # fmt: skip


# Settings of which `names.json` has what they make of the llama's linear layers.
LIST = ["q_proj", "v_proj", "down_proj"]
NAMES = [
    dict(target_modules="all-linear"),
    dict(target_modules="All-Linear", exclude_modules=["mlp.up_proj"]),
    dict(target_modules="all-linear", exclude_modules=r".*layers\.[02]\..*|.*q_proj"),
    dict(target_modules=LIST),
    dict(target_modules=["proj", "self_attn.o_proj", "1.mlp.gate_proj"]),
    dict(target_modules=["model.layers.1.mlp.up_proj", "q_proj"], layers_to_transform=[0]),
    dict(target_modules=LIST, exclude_modules=["q_proj", "layers.2.mlp.down_proj"]),
    dict(target_modules=LIST, exclude_modules="q_proj"),
    dict(target_modules=LIST, exclude_modules=r".*q_proj"),
    dict(target_modules=LIST, layers_to_transform=1),
    dict(target_modules=LIST, layers_to_transform=[0, 2, 7]),
    dict(target_modules=LIST, layers_to_transform=[]),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern="layers"),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern=""),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern=["h", "layers"]),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern=r"la\w+"),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern="layer|layers"),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern="model"),
    dict(target_modules=LIST, layers_to_transform=[1], layers_pattern="ayers"),
    dict(target_modules=r".*q_proj"),
    dict(target_modules=r"q_proj"),
    dict(target_modules=r"layers\.0\..*"),
    dict(target_modules=r"model\.layers\.[0-1]\.(self_attn|mlp)\.(q|up)_proj"),
    dict(target_modules=r"(?i).*LAYERS\.1\..*Q_PROJ"),
    dict(target_modules=r".*(?<!q|k)_proj"),
    dict(target_modules=r"(?P<a>.*)\.mlp\.(?!up).*_proj"),
    dict(target_modules=r"model.layers.\d{,1}.self_attn.q_proj"),
    dict(target_modules=r".*\.0\.[[a-z_.]*q_proj"),
    dict(target_modules=r"(m)odel\..*\.\1lp\..*_proj"),
    dict(target_modules=r".*q_proj\Z"),
    dict(target_modules=r"(.*q_proj"),
    dict(target_modules=r".*\hq_proj"),
    dict(target_modules=r"(*F)q_proj"),
    dict(target_modules=r".*q_proj", layers_to_transform=[1]),
    dict(target_modules=LIST, rank_pattern={"q_proj": 3}, alpha_pattern={"v_proj": 5}),
    dict(target_modules=LIST, rank_pattern={"proj": 3, "self_attn": 4}),
    dict(target_modules=LIST, rank_pattern={r".*\.1\..*": 3, "q_proj": 5, r"layers.\d.*": 6}),
    dict(target_modules=LIST, rank_pattern={"^q_proj": 3, "^model.layers.0.self_attn.q_proj": 4}),
    dict(target_modules=LIST, rank_pattern={"q_proj|v_proj": 3, "down": 4}),
    dict(target_modules=LIST, rank_pattern={"q_pro": 3, "v_proj$": 4, r"(\w)own_proj": 2}),
    dict(target_modules=LIST, rank_pattern={r"(.)_proj(?=x)": 3, r"layers\.(\d)\.mlp.*": 2}),
    dict(target_modules=LIST, use_rslora=True, lora_alpha=3, rank_pattern={"q_proj": 5}),
    dict(target_modules=LIST, lora_alpha=-2, alpha_pattern={"2.*": 0}),
]


def write_names():
    """What peft itself makes of the settings: for each layer rank and scale, or null; no layers
    where it refuses them."""
    cases = []
    for settings in NAMES:
        model = AutoModelForCausalLM.from_pretrained(HERE / "families/llama")
        linears = [n for n, m in model.model.layers.named_modules() if hasattr(m, "in_features")]
        case = {"config": settings, "layers": {}}
        try:
            tuned = peft.get_peft_model(model, peft.LoraConfig(r=7, **settings)).base_model.model
        except Exception as error:
            if "in the base model" not in str(error) and "targeted" not in str(error):
                print(settings, "is refused:", error)
                del case["layers"]
            tuned = model
        case["config"] = {"r": 7} | settings
        for name in linears if "layers" in case else ():
            module = tuned.get_submodule(f"model.layers.{name}")
            has = hasattr(module, "scaling")
            of = [module.r["default"], module.scaling["default"]] if has else None
            case["layers"][f"model.layers.{name}"] = of
        cases.append(case)
    text = "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"
    (HERE / "adapters" / "names.json").write_text(text, encoding="utf-8")


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
    if len(sys.argv) < 2 or "names" in sys.argv[1:]:
        write_names()
    for seed, name in enumerate(ADAPTERS):
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            write(name, 300 + seed)


if __name__ == "__main__":
    main()

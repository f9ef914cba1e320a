"""Random LoRA adapters of a folder with a Llama, in peft's format: `random_adapters.py MODEL OUT
[--count 8] [--rank 16]` writes OUT/adapter-0 and so on, for all linear layers."""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def shapes_of(config):
    """{target: (path in a layer, outputs, inputs)}"""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    sizes = ((heads * head, hidden), (kv, hidden), (kv, hidden), (hidden, heads * head),
             (mlp, hidden), (mlp, hidden), (hidden, mlp))  # fmt: skip
    return {
        target: ("self_attn" if i < 4 else "mlp", *size)
        for i, (target, size) in enumerate(zip(TARGETS, sizes))
    }


def write_adapter(folder, config, rank, seed, base):
    """Deltas of about a hundredth of random weights: other tokens, and no infinities."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for target, (part, outputs, inputs) in shapes_of(config).items():
            name = f"base_model.model.model.layers.{layer}.{part}.{target}.lora_"
            a = rng.standard_normal((rank, inputs), dtype=np.float32) / inputs**0.5
            b = rng.standard_normal((outputs, rank), dtype=np.float32) * (0.01 / rank**0.5)
            tensors |= {f"{name}A.weight": a, f"{name}B.weight": b}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = dict(
        peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path=str(base), r=rank,
        lora_alpha=rank, lora_dropout=0.0, bias="none", target_modules=list(TARGETS),
        inference_mode=True, fan_in_fan_out=False,
    )  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def write_adapters(model, out, count, rank):
    """Their folders; those that are there already stay."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    folders = [pathlib.Path(out) / f"adapter-{i}" for i in range(count)]
    for seed, folder in enumerate(folders):
        if not (folder / "adapter_config.json").exists():
            write_adapter(folder, config, rank, seed, model)
    return folders


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    args = parser.parse_args()
    print(*write_adapters(args.model, args.out, args.count, args.rank), sep="\n")


if __name__ == "__main__":
    main()

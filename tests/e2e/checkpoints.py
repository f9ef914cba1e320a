"""What tests need to know of a checkpoint's folder."""

import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
SMALL = ROOT / "tests" / "goldens" / "families" / "llama3-tied"


def end_tokens(folder):
    """The tokens that end a text: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        config = json.loads(file.read_text()) if file.exists() else {}
        if config.get("eos_token_id") is not None:
            end = config["eos_token_id"]
            return end if isinstance(end, list) else [end]
    return []


def pickled_checkpoint(folder):
    """The small model once more in this folder, with weights as torch.save writes them."""
    import torch
    from safetensors.torch import load_file

    for name in ("config.json", "generation_config.json"):
        shutil.copy(SMALL / name, folder)
    torch.save(load_file(SMALL / "model.safetensors"), folder / "pytorch_model.bin")
    return folder


def no_end(folder):
    """The logit_bias under which a text goes on until max_tokens."""
    return {str(token): -100 for token in end_tokens(folder)}


NO_END = no_end(DEMO)

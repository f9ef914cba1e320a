"""What tests need to know of a checkpoint's folder."""

import json
import pathlib

DEMO = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"


def end_tokens(folder):
    """The tokens that end a text: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        config = json.loads(file.read_text()) if file.exists() else {}
        if config.get("eos_token_id") is not None:
            end = config["eos_token_id"]
            return end if isinstance(end, list) else [end]
    return []


def no_end(folder):
    """The logit_bias under which a text goes on until max_tokens."""
    return {str(token): -100 for token in end_tokens(folder)}


NO_END = no_end(DEMO)

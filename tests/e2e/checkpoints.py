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


ENDLESS_CONTEXT = 1_000_000
FOREVER = {"max_tokens": ENDLESS_CONTEXT}  # on that model


def write_endless(folder):
    """A model whose streams do not end before they are cancelled: its context is ENDLESS_CONTEXT
    tokens, of 128 bytes of KV cache each, and it never draws the end token. It reads and writes as
    the demo does, and makes no sense."""
    import numpy
    from safetensors.numpy import save_file

    vocab, width, (end,) = 2048, 8, end_tokens(DEMO)
    config = {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu",
        "vocab_size": vocab, "max_position_embeddings": ENDLESS_CONTEXT, "hidden_size": width,
        "intermediate_size": width, "num_attention_heads": 1, "num_hidden_layers": 1,
        "rotary_pct": 1.0, "bos_token_id": end, "eos_token_id": end, "tie_word_embeddings": False,
    }  # fmt: skip
    random = numpy.random.default_rng(1)
    layer = "gpt_neox.layers.0."
    shapes = {"gpt_neox.embed_in.weight": (vocab, width), "embed_out.weight": (vocab, width)}
    for name, size in (("attention.query_key_value", 3 * width), ("attention.dense", width),
                       ("mlp.dense_h_to_4h", width), ("mlp.dense_4h_to_h", width)):  # fmt: skip
        shapes |= {f"{layer}{name}.weight": (size, width), f"{layer}{name}.bias": (size,)}
    tensors = {n: random.standard_normal(s, dtype=numpy.float32) for n, s in shapes.items()}
    final = "gpt_neox.final_layer_norm"
    for norm in (f"{layer}input_layernorm", f"{layer}post_attention_layernorm", final):
        tensors[f"{norm}.weight"] = numpy.ones(width, numpy.float32)
        tensors[f"{norm}.bias"] = numpy.zeros(width, numpy.float32)
    # The last of what the head sees is always 1, and takes the end token's logit away.
    tensors[f"{final}.weight"][-1], tensors[f"{final}.bias"][-1] = 0, 1
    tensors["embed_out.weight"][:, -1] = 0
    tensors["embed_out.weight"][end] = [0] * (width - 1) + [-50]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(DEMO / name, folder)
    return folder


def no_end(folder):
    """The logit_bias under which a text goes on until max_tokens."""
    return {str(token): -100 for token in end_tokens(folder)}


NO_END = no_end(DEMO)

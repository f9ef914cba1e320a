"""A GGUF file as a model of transformers in float32: its metadata as a config, its tensors by the
`gguf` package's `dequantize` and table of names.

transformers' own `from_pretrained(gguf_file=...)` is not used: in 4.57.6 it reads few of our nine
test files rightly, the others without rope_freqs, with default sizes, or not at all.
"""

import gguf
import numpy as np
import torch
import transformers

GEMMA_27B_LAYERS = (46, 62)  # whose scores llama.cpp divides by hidden size / heads


class Unknown(Exception):
    """A file that no model here is made of."""


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.architecture = self.fields["general.architecture"].contents()

    def get(self, key, default=None):
        """A key of the architecture."""
        field = self.fields.get(f"{self.architecture}.{key}")
        return default if field is None else field.contents()

    def values(self, name):
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.array(values, dtype=np.float32))


def common(file):
    heads = file.get("attention.head_count")
    config = dict(
        vocab_size=int(file.tensors["token_embd.weight"].shape[1]),
        hidden_size=file.get("embedding_length"), num_hidden_layers=file.get("block_count"),
        intermediate_size=file.get("feed_forward_length"), num_attention_heads=heads,
        num_key_value_heads=file.get("attention.head_count_kv", heads),
        max_position_embeddings=file.get("context_length"),
        head_dim=file.get("attention.key_length", file.get("embedding_length") // heads),
        rms_norm_eps=file.get("attention.layer_norm_rms_epsilon"),
        rope_theta=file.get("rope.freq_base", 10000.0),
        tie_word_embeddings="output.weight" not in file.tensors, pad_token_id=None,
    )  # fmt: skip
    if file.get("rope.scaling.type") in ("linear", "yarn"):
        config["rope_scaling"] = {
            "rope_type": file.get("rope.scaling.type"), "factor": file.get("rope.scaling.factor"),
        }  # fmt: skip
        if original := file.get("rope.scaling.original_context_length"):
            config["rope_scaling"]["original_max_position_embeddings"] = original
    return config


def llama(file):
    return transformers.LlamaConfig(
        **common(file), attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
    )  # fmt: skip


def qwen2(file):
    return transformers.Qwen2Config(**common(file))


def qwen3(file):
    return transformers.Qwen3Config(**common(file))


def phi3(file):
    original = file.get("rope.scaling.original_context_length", file.get("context_length"))
    config = common(file) | dict(
        original_max_position_embeddings=original,
        sliding_window=file.get("attention.sliding_window") or None,
        partial_rotary_factor=file.get("rope.dimension_count")
        * file.get("attention.head_count") / file.get("embedding_length"),
    )  # fmt: skip
    del config["head_dim"]
    if "rope_factors_short.weight" in file.tensors:
        config["rope_scaling"] = {"type": "longrope"} | {
            f"{which}_factor": file.values(f"rope_factors_{which}.weight").tolist()
            for which in ("short", "long")
        }
    return transformers.Phi3Config(**config)


def gemma(file):
    """What Gemma 2 and 3 have alike."""
    config = common(file)
    scalar = config["head_dim"]
    if config["num_hidden_layers"] in GEMMA_27B_LAYERS:
        scalar = config["hidden_size"] // config["num_attention_heads"]
    return config | dict(
        query_pre_attn_scalar=scalar, sliding_window=file.get("attention.sliding_window")
    )


def gemma3(file):
    return transformers.Gemma3TextConfig(**gemma(file))


def gemma2(file):
    return transformers.Gemma2Config(
        **gemma(file), attn_logit_softcapping=file.get("attn_logit_softcapping"),
        final_logit_softcapping=file.get("final_logit_softcapping"),
    )  # fmt: skip


def gpt2(file):
    config = common(file)
    return transformers.GPT2Config(
        vocab_size=config["vocab_size"], n_positions=config["max_position_embeddings"],
        n_embd=config["hidden_size"], n_layer=config["num_hidden_layers"],
        n_head=config["num_attention_heads"], n_inner=config["intermediate_size"],
        layer_norm_epsilon=file.get("attention.layer_norm_epsilon"),
        tie_word_embeddings=config["tie_word_embeddings"],
    )  # fmt: skip


def gpt_neox(file):
    config = common(file)
    size = config["hidden_size"] // config["num_attention_heads"]
    return transformers.GPTNeoXConfig(
        **{k: config[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers",
                                  "num_attention_heads", "intermediate_size",
                                  "max_position_embeddings", "tie_word_embeddings")},
        layer_norm_eps=file.get("attention.layer_norm_epsilon"),
        rotary_pct=file.get("rope.dimension_count") / size, rotary_emb_base=config["rope_theta"],
        use_parallel_residual=file.get("use_parallel_residual"),
    )  # fmt: skip


CONFIGS = {
    "llama": llama, "qwen2": qwen2, "qwen3": qwen3, "phi3": phi3, "gemma2": gemma2,
    "gemma3": gemma3, "gpt2": gpt2, "gptneox": gpt_neox,
}  # fmt: skip


def undo(file, config, name, values):
    """What the converter changed in a tensor, by its name in transformers."""
    is_weight = name.endswith(".weight")
    if file.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads
        if ".k_proj." in name:
            heads = config.num_key_value_heads
        return values.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    if file.architecture in ("gemma2", "gemma3") and "norm" in name:
        return values - 1
    if file.architecture == "gpt2" and is_weight and (".c_" in name):
        return values.T
    if file.architecture == "gptneox" and "query_key_value" in name:
        heads = config.num_attention_heads
        return values.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
    return values


def load(path):
    """The model of transformers; Unknown with the reason where there is none."""
    file = File(path)
    if file.architecture not in CONFIGS:
        raise Unknown(f"no model of transformers is made here for {file.architecture!r}")
    config = CONFIGS[file.architecture](file)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == file.architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if own not in file.tensors:
            raise Unknown(f"the file has no {own or name}, which {type(model).__name__} needs")
        state[name] = undo(file, config, name, file.values(own)).contiguous()
    if config.tie_word_embeddings:
        model.tie_weights()
    model.load_state_dict(state, strict=not config.tie_word_embeddings)
    if "rope_freqs.weight" in file.tensors:
        model.model.rotary_emb.inv_freq /= file.values("rope_freqs.weight")
    return model

#!/usr/bin/env python3
"""Writes a tiny random checkpoint of every architecture under tests/goldens/families/, mixtures of
experts under tests/goldens/experts/, by the classes of `transformers` themselves; the same bytes on
every run with the same versions. Those under tests/goldens/ranks/ have 8 heads, so that 2 and 4
ranks can divide them; two of them have fewer KV heads than that.

    make_family_checkpoints.py [NAME...]          (all of them without a name)

Each has what a reader of that architecture may get wrong: grouped heads, head sizes of their own,
windows shorter than the context, every kind of rotary scaling, tied and untied heads, biases, soft
caps. Weights are drawn wide enough that greedy output wanders; biases and norms are not at their
neutral values, so that a forgotten one shows.
"""

import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).parent
# Of all that read hidden_size and its companions.
COMMON = dict(
    vocab_size=131, hidden_size=36, num_hidden_layers=3, num_attention_heads=6,
    max_position_embeddings=160, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
GATED = COMMON | dict(intermediate_size=52, num_key_value_heads=2, tie_word_embeddings=False)
LLAMA3_ROPE = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)  # fmt: skip
# A head of 8 turns in 4 pairs, of which phi3 uses three.
LONGROPE = dict(
    type="longrope", short_factor=[1.0, 1.1, 1.6], long_factor=[1.0, 2.5, 9.0]
)  # fmt: skip
SHAPES = {
    "gpt-neox": ("GPTNeoX", COMMON | dict(
        intermediate_size=70, hidden_size=48, num_attention_heads=3, rotary_pct=0.25,
        tie_word_embeddings=False,
    )),
    "gpt-neox-sequential": ("GPTNeoX", COMMON | dict(
        intermediate_size=70, rotary_pct=1.0, use_parallel_residual=False, hidden_act="gelu_new",
        tie_word_embeddings=True, rotary_emb_base=1000, rope_theta=1000, attention_bias=False,
    )),
    "opt": ("OPT", COMMON | dict(ffn_dim=52, word_embed_proj_dim=36)),
    "opt-narrow-embedding": ("OPT", COMMON | dict(
        ffn_dim=52, word_embed_proj_dim=20, do_layer_norm_before=False,
    )),
    "llama": ("Llama", GATED),
    "llama3-tied": ("Llama", GATED | dict(
        tie_word_embeddings=True, rope_scaling=LLAMA3_ROPE, rope_theta=500000.0, head_dim=8,
        eos_token_id=[2, 130],
    )),
    "llama-linear-biased": ("Llama", GATED | dict(
        num_key_value_heads=6, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3,
        rope_scaling=dict(type="linear", factor=2.5),
    )),
    "mistral": ("Mistral", GATED | dict(sliding_window=24, head_dim=10)),
    "qwen2": ("Qwen2", GATED | dict(tie_word_embeddings=True)),
    "qwen2-window": ("Qwen2", GATED | dict(
        use_sliding_window=True, sliding_window=20, max_window_layers=1, hidden_act="gelu",
    )),
    "qwen3": ("Qwen3", GATED | dict(head_dim=12, tie_word_embeddings=True)),
    "phi3": ("Phi3", GATED | dict(sliding_window=40, original_max_position_embeddings=160)),
    "phi3-longrope": ("Phi3", GATED | dict(
        hidden_size=48, partial_rotary_factor=0.75, rope_scaling=LONGROPE,
        max_position_embeddings=640, original_max_position_embeddings=160, sliding_window=None,
    )),
    "gemma2": ("Gemma2", GATED | dict(
        sliding_window=30, head_dim=8, query_pre_attn_scalar=12, tie_word_embeddings=True,
        attn_logit_softcapping=3.0, final_logit_softcapping=12.0,
    )),
}  # fmt: skip
# A family a kind of layer.
NEWER_SHAPES = {
    "gemma3": ("Gemma3Text", GATED | dict(
        num_hidden_layers=4, sliding_window=30, head_dim=8, query_pre_attn_scalar=12,
        sliding_window_pattern=2, rope_scaling=dict(rope_type="linear", factor=2.5),
        tie_word_embeddings=True,
    )),
    "olmo2": ("Olmo2", GATED | dict(attention_bias=True)),
    "granite": ("Granite", GATED | dict(
        attention_bias=True, mlp_bias=True, embedding_multiplier=3.0, logits_scaling=0.7,
        residual_multiplier=0.6, attention_multiplier=0.3,
    )),
    "cohere2": ("Cohere2", GATED | dict(
        num_hidden_layers=4, logit_scale=0.3, sliding_window=30, attention_bias=True,
        tie_word_embeddings=True,
    )),
    "phi": ("Phi", GATED | dict(hidden_size=48)),
    "nemotron": ("Nemotron", GATED | dict(hidden_size=48, attention_bias=True, mlp_bias=True)),
    "gpt-bigcode": ("GPTBigCode", dict(
        vocab_size=131, n_embd=36, n_layer=3, n_head=6, n_positions=160, bos_token_id=1,
        eos_token_id=2,
    )),
    "apertus": ("Apertus", GATED | dict(
        attention_bias=True, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, rms_norm_eps=1e-3,
    )),
    "hunyuan": ("HunYuanDenseV1", GATED | dict(
        head_dim=8, attention_bias=True, rope_scaling=dict(
            type="dynamic", alpha=20.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0,
            mscale_all_dim=1.0,
        ),
    )),
    "falcon": ("Falcon", COMMON | dict(
        new_decoder_architecture=True, num_kv_heads=2,
    )),
    "codegen": ("CodeGen", dict(
        vocab_size=131, n_embd=48, n_layer=3, n_head=8, n_positions=160, n_ctx=160, rotary_dim=4,
        n_inner=60, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )),
}  # fmt: skip
# The same, after all others, whose seeds are counted.
LATER_SHAPES = {
    "olmo": ("Olmo", GATED | dict(attention_bias=True)),
}  # fmt: skip
# Mixtures of experts, each with another router, or another way to store what it has.
EXPERT_SHAPES = {
    "qwen3-moe": ("Qwen3Moe", GATED | dict(
        hidden_size=32, num_attention_heads=8, head_dim=12, moe_intermediate_size=20,
        num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[1],
        attention_bias=True,
    )),
    "mixtral": ("Mixtral", GATED | dict(
        intermediate_size=28, num_local_experts=5, sliding_window=30,
    )),
    "olmoe": ("Olmoe", GATED | dict(
        intermediate_size=20, num_experts=7, num_experts_per_tok=3, attention_bias=True,
    )),
    "granitemoe": ("GraniteMoe", GATED | dict(
        intermediate_size=20, num_local_experts=6, num_experts_per_tok=3, attention_bias=True,
        embedding_multiplier=3.0, logits_scaling=0.7, residual_multiplier=0.6,
        attention_multiplier=0.3,
    )),
    # Also of tests/numerics: 4 ranks can divide it.
    "qwen2-moe": ("Qwen2Moe", GATED | dict(
        hidden_size=32, num_attention_heads=8, num_hidden_layers=4, moe_intermediate_size=20,
        shared_expert_intermediate_size=28, num_experts=6, num_experts_per_tok=2,
        decoder_sparse_step=2,
    )),
    "gpt-oss": ("GptOss", GATED | dict(
        head_dim=8, intermediate_size=20, num_local_experts=6, num_experts_per_tok=3,
        sliding_window=24, rope_scaling=dict(
            rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=40,
        ),
    )),
    "glm4-moe": ("Glm4Moe", GATED | dict(
        head_dim=12, moe_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=2,
        n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.7, use_qk_norm=True,
        attention_bias=True,
    )),
    "ernie4-5-moe": ("Ernie4_5_Moe", GATED | dict(
        moe_intermediate_size=20, moe_num_experts=6, moe_k=2, use_bias=True,
    )),
}  # fmt: skip
# In bfloat16, since they are many. An MLP of 44 is no whole number of panels, for any rank.
EIGHT_HEADS = dict(
    vocab_size=67, hidden_size=32, num_hidden_layers=2, num_attention_heads=8,
    max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
EIGHT_GATED = EIGHT_HEADS | dict(
    intermediate_size=44, num_key_value_heads=4, tie_word_embeddings=False
)  # fmt: skip
RANK_SHAPES = {
    "ranks/gpt2": ("GPT2", EIGHT_HEADS | dict(n_inner=44)),
    "ranks/gpt-neox": ("GPTNeoX", EIGHT_HEADS | dict(
        intermediate_size=44, rotary_pct=0.5, tie_word_embeddings=False,
    )),
    "ranks/opt": ("OPT", EIGHT_HEADS | dict(
        ffn_dim=44, word_embed_proj_dim=20, do_layer_norm_before=False,
    )),
    "ranks/llama": ("Llama", EIGHT_GATED | dict(attention_bias=True, mlp_bias=True)),
    "ranks/mistral": ("Mistral", EIGHT_GATED | dict(sliding_window=24, head_dim=6)),
    "ranks/qwen2": ("Qwen2", EIGHT_GATED | dict(tie_word_embeddings=True)),
    "ranks/qwen3": ("Qwen3", EIGHT_GATED | dict(head_dim=6, tie_word_embeddings=True)),
    "ranks/phi3": ("Phi3", EIGHT_GATED | dict(
        sliding_window=40, original_max_position_embeddings=64,
    )),
    "ranks/gemma2": ("Gemma2", EIGHT_GATED | dict(
        sliding_window=30, head_dim=6, query_pre_attn_scalar=12, tie_word_embeddings=True,
        attn_logit_softcapping=3.0, final_logit_softcapping=12.0,
    )),
    # The vocabulary and context are those that tests/numerics needs.
    "ranks/llama-two-kv": ("Llama", EIGHT_GATED | dict(
        vocab_size=131, max_position_embeddings=160, num_key_value_heads=2, attention_bias=True,
    )),
    "ranks/phi3-one-kv": ("Phi3", EIGHT_GATED | dict(
        num_key_value_heads=1, original_max_position_embeddings=64,
    )),
}  # fmt: skip


def draw(model, seed):
    generator = torch.Generator().manual_seed(seed)
    normal = lambda p: torch.randn(p.shape, generator=generator)
    final_norms = ("model.norm.weight", "final_layer_norm.weight", ".ln_f.weight")
    for name, p in model.named_parameters():
        around_one = not name.startswith("model.") or "Gemma" not in type(model).__name__
        if ("norm" in name or ".ln_" in name) and name.endswith("weight"):
            if name.endswith(final_norms) and "layers." not in name:
                p.copy_(normal(p))  # signs at random, else a tied token's best next is itself
            else:
                p.copy_(float(around_one) + 0.2 * normal(p))
        elif p.ndim == 1 and not name.endswith("sinks"):
            p.copy_(0.2 * normal(p))
        elif name.endswith("sinks"):
            p.copy_(normal(p))
        elif name.endswith("e_score_correction_bias"):
            p.copy_(0.1 * normal(p))
        elif "GptOss" in type(model).__name__ and name.endswith("gate_up_proj"):
            p.copy_(normal(p) * 5 / p.shape[1] ** 0.5)  # so that the limits count
        elif "embed" in name or "lm_head" in name:
            # Gemma's are scaled up, and logits at the soft cap would all be the same.
            p.copy_((0.5 if around_one else 0.2) * normal(p))
        else:
            p.copy_(normal(p) * 1.4 / p.shape[1] ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("act_fn.beta"):
            buffer.copy_(0.5 + 0.2 * normal(buffer))
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.1 * normal(buffer))


def write(name, seed):
    is_divided = name in RANK_SHAPES
    every = SHAPES | RANK_SHAPES | NEWER_SHAPES | EXPERT_SHAPES | LATER_SHAPES
    family, options = every[name]
    config = getattr(transformers, family + "Config")(**options)
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, family.replace("Text", "") + head)(config).eval()
    draw(model, seed)
    kind = "experts" if name in EXPERT_SHAPES else "families"
    folder = HERE / name if is_divided else HERE / kind / name
    (model.bfloat16() if is_divided else model.float()).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    generation = {"bos_token_id": 1, "eos_token_id": options["eos_token_id"]}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n")
    print(name, (folder / "model.safetensors").stat().st_size, "bytes")


def main():
    torch.set_grad_enabled(False)
    shapes = [*SHAPES, *RANK_SHAPES, *NEWER_SHAPES, *EXPERT_SHAPES, *LATER_SHAPES]
    for seed, name in enumerate(shapes):
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            write(name, 100 + seed)


if __name__ == "__main__":
    main()

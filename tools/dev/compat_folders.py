"""Writes tiny models as one release of transformers saves them, and what that release computes.

    compat_folders.py TO RELEASE CASE...        CASE: SHAPE:FORMAT:DTYPE

Runs in the environment of the release. Each case is a folder TO/RELEASE-SHAPE-FORMAT-DTYPE with
reference.json in it: greedy tokens and scores in float32 from the weights as they are stored, and
texts as the tokenizer that was saved beside them encodes them.
"""

import copy
import json
import pathlib
import random
import sys

import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"
sys.path.insert(0, str(GOLDENS))

from make_family_checkpoints import (  # noqa: E402
    COMMON,
    EXPERT_SHAPES,
    GATED,
    LATER_SHAPES,
    LLAMA3_ROPE,
    NEWER_SHAPES,
    SHAPES,
    draw,
)
from tokenizer_texts import HAND_WRITTEN, random_text  # noqa: E402

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40, beta_fast=4.0)
SHAPES = SHAPES | NEWER_SHAPES | EXPERT_SHAPES | LATER_SHAPES | {
    # Of experts transformers 5 has no biases.
    "ernie4-5-moe": ("Ernie4_5_Moe", GATED | dict(
        moe_intermediate_size=20, moe_num_experts=6, moe_k=2,
    )),
    "gpt2": ("GPT2", COMMON | dict(n_inner=50, scale_attn_by_inverse_layer_idx=True)),
    "gpt-neox-whole": ("GPTNeoX", COMMON | dict(
        intermediate_size=70, rotary_pct=1.0, tie_word_embeddings=False,
    )),
    "gemma": ("Gemma", GATED | dict(head_dim=8, tie_word_embeddings=True)),
    "ministral3": ("Ministral3", GATED | dict(head_dim=8, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16,
        max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.5,
    ))),
    "qwen2-vl": ("Qwen2VL", GATED),
    "qwen2-5-vl": ("Qwen2_5_VL", GATED),
    "qwen3-vl": ("Qwen3VL", GATED | dict(head_dim=8)),
    "olmo3": ("Olmo3", GATED | dict(num_hidden_layers=4, sliding_window=30)),
    "smollm3": ("SmolLM3", GATED | dict(no_rope_layer_interval=2)),
    "seed-oss": ("SeedOss", GATED | dict(head_dim=8, attention_out_bias=True)),
    "ernie4-5": ("Ernie4_5", GATED | dict(head_dim=8, use_bias=True)),
    "helium": ("Helium", GATED | dict(head_dim=6)),
    "glm": ("Glm", GATED | dict(head_dim=8)),
    "glm4": ("Glm4", GATED | dict(head_dim=8)),
    "cohere": ("Cohere", GATED | dict(logit_scale=0.3, tie_word_embeddings=True)),
    "exaone4": ("Exaone4", GATED | dict(num_hidden_layers=4, sliding_window=30)),
    "starcoder2": ("Starcoder2", GATED | dict(sliding_window=30)),
    "stablelm": ("StableLm", GATED | dict(hidden_size=48, use_qkv_bias=True)),
    "stablelm-parallel": ("StableLm", GATED | dict(hidden_size=48, use_parallel_residual=True)),
    "arcee": ("Arcee", GATED | dict(attention_bias=True, mlp_bias=True)),
    "gptj": ("GPTJ", dict(vocab_size=131, n_embd=48, n_layer=3, n_head=6, n_positions=160,
        rotary_dim=4, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
    )),
    "gpt-bigcode-heads": ("GPTBigCode", dict(vocab_size=131, n_embd=36, n_layer=3, n_head=6,
        n_positions=160, multi_query=False, bos_token_id=1, eos_token_id=2,
    )),
    "gpt-neo": ("GPTNeo", dict(vocab_size=131, hidden_size=36, num_layers=4, num_heads=6,
        max_position_embeddings=160, window_size=30, bos_token_id=1, eos_token_id=2,
        attention_types=[[["global", "local"], 2]],
    )),
    "falcon-one-norm": ("Falcon", COMMON | dict(
        new_decoder_architecture=True, num_kv_heads=3, num_ln_in_parallel_attn=1,
        ffn_hidden_size=70, bias=True,
    )),
    "falcon-multi-query": ("Falcon", COMMON | dict(bias=True)),
    "falcon-sequential": ("Falcon", COMMON | dict(
        multi_query=False, parallel_attn=False, bias=True, tie_word_embeddings=False,
    )),
    # As gpt-oss is published.
    "gpt-oss-mxfp4": ("GptOss", EXPERT_SHAPES["gpt-oss"][1] | dict(
        hidden_size=64, intermediate_size=96,
    )),
    "internlm3": ("InternLM3", GATED | dict(head_dim=8, attention_bias=True, mlp_bias=True)),
    "cwm": ("Cwm", GATED | dict(num_hidden_layers=5, sliding_window=30, rope_parameters=dict(
        rope_theta=1e4, **LLAMA3_ROPE,
    ), mlp_bias=True)),
    "iquestcoder": ("IQuestCoder", GATED | dict(head_dim=8, attention_bias=True, mlp_bias=True)),
    "ministral": ("Ministral", GATED | dict(head_dim=8, sliding_window=30, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention",
    ])),
    "vaultgemma": ("VaultGemma", SHAPES["gemma2"][1]),
    "jais2": ("Jais2", GATED | dict(head_dim=8)),
    "biogpt": ("BioGpt", COMMON | dict(intermediate_size=52)),
    "openai-gpt": ("OpenAIGPT", dict(
        vocab_size=131, n_embd=36, n_layer=3, n_head=6, n_positions=160, eos_token_id=2,
    )),
    "hyperclovax": ("HyperCLOVAX", GATED | dict(
        attention_bias=True, mlp_bias=True, embedding_multiplier=3.0, logits_scaling=0.7,
        attention_multiplier=0.3,
    )),
    "hyperclovax-before": ("HyperCLOVAX", GATED | dict(
        use_post_norm=False, residual_multiplier=0.6, logits_scaling=1.3,
    )),
    "dots1": ("Dots1", GATED | dict(
        head_dim=12, moe_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=2,
        n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        first_k_dense_replace=1, norm_topk_prob=True, attention_bias=True, sliding_window=30,
        max_window_layers=2,
    )),
    "solar-open": ("SolarOpen", GATED | dict(
        head_dim=12, moe_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=2,
        n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        attention_bias=True,
    )),
    "minimax-m2": ("MiniMaxM2", GATED | dict(
        head_dim=12, intermediate_size=20, num_local_experts=8, num_experts_per_tok=2,
        rotary_dim=6,
    )),
    "hunyuan-moe": ("HunYuanMoEV1", GATED | dict(
        head_dim=12, intermediate_size=20, num_experts=8, moe_topk=[2, 2, 2],
    )),
    "qwen3-vl-moe": ("Qwen3VLMoe", GATED | dict(
        head_dim=8, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=20,
    )),
    "phi-tied": ("Phi", GATED | dict(hidden_size=48, tie_word_embeddings=True)),
    "llama-relu6": ("Llama", GATED | dict(hidden_act="relu6")),
    "llama-quick-gelu": ("Llama", GATED | dict(hidden_act="quick_gelu")),
    "llava": ("Llava", GATED | dict(head_dim=8)),  # a Llama inside a larger model
    "qwen3-yarn": ("Qwen3", GATED | dict(head_dim=12, rope_scaling=YARN)),
    "llama-relu2": ("Llama", GATED | dict(hidden_act="relu2")),
    "llama-own-head": ("Llama", GATED | dict(tie_word_embeddings=True)),
    "llava-outer-tied": ("Llava", GATED | dict(head_dim=8)),  # whose text model's flag says no
    "llama-yarn": ("Llama", GATED | dict(
        rope_scaling=YARN | dict(mscale=0.8, mscale_all_dim=1.3, truncate=False, factor=2.0),
    )),
}  # fmt: skip
VISION = dict(
    model_type="clip_vision_model", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    num_attention_heads=2, image_size=28, patch_size=14,
)  # fmt: skip
MROPE = dict(type="mrope", rope_type="default", mrope_section=[1, 1, 1])
QWEN_VISION = {
    "Qwen2VL": dict(depth=1, embed_dim=16, hidden_size=36, num_heads=2, mlp_ratio=2),
    "Qwen2_5_VL": dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16,
                       out_hidden_size=36),
    "Qwen3VL": dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16,
                    out_hidden_size=36, deepstack_visual_indexes=[0]),
    "Qwen3VLMoe": dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16,
                       out_hidden_size=36, deepstack_visual_indexes=[0]),
}  # fmt: skip
# What its family is published with; others have Llama 3's.
TOKENIZERS = {
    "GPT2": "gpt2-override", "GPTNeoX": "gpt-neox", "OPT": "opt", "Llama": "llama3",
    "Llava": "llama3", "Mistral": "mistral", "Qwen2": "qwen2", "Qwen3": "qwen3", "Phi3": "phi3",
    "Gemma2": "gemma2",
}  # fmt: skip
NUM_TEXTS = 100
PROMPTS = ((1,), (5, 17, 99), tuple(range(3, 83)))
GREEDY_TOKENS = 24
SCORED_TOKENS = 120
# Where the two best tokens of a step are closer, rounding may choose: the case ends before.
GAP_MIN = 1e-3


def build(shape, seed, vocab_size):
    family, options = SHAPES[shape]
    options = copy.deepcopy(options) | {"vocab_size": vocab_size}
    name = family + "ForCausalLM"
    if family == "Llava":
        tied = shape == "llava-outer-tied"
        options = dict(text_config=transformers.LlamaConfig(**options), vision_config=VISION,
                       tie_word_embeddings=tied)
    elif family in QWEN_VISION:
        options = dict(text_config=options | dict(rope_scaling=MROPE),
                       vision_config=QWEN_VISION[family])
    if family in ("GPT2", "OpenAIGPT"):
        name = family + "LMHeadModel"
    elif family in ("InternLM3", "IQuestCoder"):  # which transformers reads as Llama
        name = "LlamaForCausalLM"
    elif "text_config" in options:
        name = family + "ForConditionalGeneration"
    config = getattr(transformers, family + "Config")(**options)
    model = getattr(transformers, name.replace("Text", ""))(config).eval()
    if shape == "llama-own-head":
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    draw(model, seed)
    return model


def as_mxfp4(folder):
    """Writes the experts of a folder as OCP's MXFP4, in blocks of 32 inputs."""
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        weight = tensors.pop(name).float().transpose(1, 2)  # [experts, outputs, inputs]
        groups = weight.unflatten(2, (-1, 32))
        scales = (groups.abs().amax(-1) / 6.0).clamp(min=2.0**-126).log2().ceil() + 127
        scaled = groups / torch.exp2(scales - 127).unsqueeze(-1)
        codes = (scaled.abs().unsqueeze(-1) - sizes).abs().argmin(-1) + 8 * (scaled < 0)
        codes = codes.to(torch.uint8)
        tensors[name + "_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).contiguous()
        tensors[name + "_scales"] = scales.to(torch.uint8).contiguous()
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                   "model.embed_tokens", "lm_head"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def save(model, folder, form):
    if form == "safetensors":
        model.save_pretrained(folder)
    elif form == "bin":  # which transformers 5 does not write any more
        model.save_pretrained(folder, safe_serialization=False)
    else:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")


def log_probs(model, ids):
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def greedy(model, prompt, ends):
    """(tokens, their log-probabilities), up to an end token or to where two come too near."""
    ids, values = list(prompt), []
    for _ in range(GREEDY_TOKENS):
        row = log_probs(model, ids)[-1]
        best = row.topk(2)
        if float(best.values[0] - best.values[1]) < GAP_MIN:
            break
        ids.append(int(best.indices[0]))
        values.append(float(best.values[0]))
        if ids[-1] in ends:
            break
    return {"prompt": list(prompt), "ids": ids[len(prompt) :], "logprobs": values}


def score(model, ids):
    rows = log_probs(model, ids)
    return {"ids": ids, "logprobs": [float(rows[i - 1, ids[i]]) for i in range(1, len(ids))]}


def end_tokens(model):
    end = model.generation_config.eos_token_id
    return end if isinstance(end, list) else [end]


def load(folder):
    inside = "text_config" in json.loads((folder / "config.json").read_text())
    auto = transformers.AutoModelForImageTextToText if inside else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.float().eval()  # of an xIELU transformers 4 leaves the numbers in bfloat16


def reference_of(folder, tokenizer):
    rng = random.Random(7)
    model = load(folder)
    texts = [*HAND_WRITTEN, *(random_text(rng) for _ in range(NUM_TEXTS))]
    ends = end_tokens(model)
    ids = [rng.randrange(len(tokenizer)) for _ in range(SCORED_TOKENS)]
    return {
        "made_by": f"transformers {transformers.__version__}",
        "eos": sorted(ends),
        "greedy": [greedy(model, prompt, ends) for prompt in PROMPTS],
        "score": score(model, ids),
        "texts": texts,
        "encoded": [tokenizer.encode(text, add_special_tokens=False) for text in texts],
    }


def write(to, release, case, seed):
    shape, form, dtype = case.split(":")
    folder = to / f"{release}-{shape}-{form}-{dtype}"
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        GOLDENS / "tokenizers" / TOKENIZERS.get(SHAPES[shape][0], "llama3")
    )
    folder.mkdir()
    model = build(shape, seed, len(tokenizer)).to(getattr(torch, dtype))
    save(model, folder, form)
    if shape.endswith("-mxfp4"):
        as_mxfp4(folder)
    tokenizer.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    (folder / "reference.json").write_text(json.dumps(reference_of(folder, tokenizer)))


def main():
    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    to, release, *cases = sys.argv[1:]
    for seed, case in enumerate(cases):
        write(pathlib.Path(to), release, case, 300 + seed)


if __name__ == "__main__":
    main()

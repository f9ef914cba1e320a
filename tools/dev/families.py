"""Offers every causal language model of transformers to lmtp-serve, made tiny, and prints which are
served, equal to transformers or not, and with which sentence the others are refused.

    tools/dev/families [TYPE...]     model types; without any, all that the newest release can make

Exit code 1 where one is served that is not equal.
"""

import argparse
import asyncio
import json
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
PYTHON = ROOT / ".venv-newest" / "bin" / "python"
SECONDS_MAX = 60  # for making one
# By every name that configs have for them.
SIZES = {
    131: "vocab_size",
    32: "hidden_size n_embd d_model dim embedding_size word_embed_proj_dim model_dim",
    2: "num_hidden_layers n_layer n_layers num_layers num_key_value_heads num_kv_heads",
    4: "num_attention_heads n_head n_heads num_heads rotary_dim",
    48: "intermediate_size ffn_dim n_inner ffn_hidden_size d_ff moe_intermediate_size",
    8: "head_dim kv_channels",
    160: "max_position_embeddings n_positions max_seq_len seq_length n_ctx",
}
ENDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def make(model_type, folder):
    """In transformers' environment: the model and what it computes."""
    import torch
    import transformers
    from compat_folders import PROMPTS, draw, greedy

    torch.set_grad_enabled(False)
    kind = type(transformers.AutoConfig.for_model(model_type))
    known = kind().to_dict().keys() | (kind.attribute_map or {}).keys()
    sizes = {name: size for size, names in SIZES.items() for name in names.split()}
    options = {name: size for name, size in sizes.items() if name in known}
    model = transformers.AutoModelForCausalLM.from_config(kind(**options, **ENDS)).float().eval()
    draw(model, 1)
    model.save_pretrained(folder)
    reference = [greedy(model, prompt, [2]) for prompt in PROMPTS]
    (folder / "reference.json").write_text(json.dumps(reference))


def make_all(to, types):
    import transformers  # once, before each type has a process of its own

    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for model_type in types or sorted(names):
        (to / model_type).mkdir()
        process = multiprocessing.get_context("fork").Process(
            target=make, args=(model_type, to / model_type)
        )
        process.start()
        process.join(SECONDS_MAX)
        if process.is_alive():
            process.kill()


async def compare(server, reference):
    from wire import Connection, ids_of, logprobs_of

    worst = 0.0
    async with Connection(server.endpoint) as c:
        for case in reference:
            if not case["ids"]:
                continue
            entries = await c.generate(case["prompt"], max_tokens=len(case["ids"]), temperature=0)
            if ids_of(entries) != case["ids"]:
                return "other tokens"
            pairs = zip(logprobs_of(entries), case["logprobs"], strict=True)
            worst = max(worst, *(abs(a - b) for a, b in pairs))
    return "equal" if worst <= 1e-4 else f"log probabilities differ by {worst:.1e}"


def offer(folder):
    from servers import LmtpServe

    try:
        with LmtpServe(folder, "--dtype", "float32") as server:
            return asyncio.run(compare(server, json.loads((folder / "reference.json").read_text())))
    except RuntimeError as error:
        said = [line for line in str(error).splitlines() if line.startswith("lmtp-serve: ")]
        why = (said[-1] if said else str(error)).split(": ", 2)[-1]
        return "refused: " + why.split("; supported are")[0][:150]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("types", nargs="*", metavar="TYPE")
    arguments = parser.parse_args()
    if arguments.make:
        return make_all(arguments.make, arguments.types)
    counts = {}
    with tempfile.TemporaryDirectory() as made:
        to = pathlib.Path(made)
        command = [PYTHON, __file__, "--make", to, *arguments.types]
        subprocess.run(command, check=True, capture_output=True)
        for folder in sorted(to.iterdir()):
            is_made = (folder / "reference.json").exists()
            result = offer(folder) if is_made else "not made"
            print(f"{folder.name}: {result}", flush=True)
            counts[result.split(":")[0]] = counts.get(result.split(":")[0], 0) + 1
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    sys.exit(0 if counts.keys() <= {"equal", "refused", "not made"} else 1)


if __name__ == "__main__":
    main()

"""Offers every causal language model of transformers to lmtp-serve, made tiny, and prints which are
served, equal to transformers or not, and with which sentence the others are refused.

    tools/dev/families [--list FILE] [TYPE...]     without a TYPE, all that the newest release knows

With --list each outcome is a row added to FILE, and types that have a row are left out: a run that
was stopped goes on. docs/families.md is such a file. Exit code 1 where one is served that is not
equal.
"""

import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
PYTHON = ROOT / ".venv-newest" / "bin" / "python"
SECONDS_MAX = 60  # of the processor, for making one
BYTES_MAX = 8 << 30
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
# What a type has no usable default for, or none that fits two layers.
BESIDES = {
    "dots1": dict(n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2),
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]]),
}
ENDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def make(model_type, folder):
    """In transformers' environment: the model and what it computes."""
    import torch
    import transformers
    from compat_folders import PROMPTS, draw, greedy

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    kind = type(transformers.AutoConfig.for_model(model_type))
    known = kind().to_dict().keys() | (kind.attribute_map or {}).keys()
    sizes = {name: size for size, names in SIZES.items() for name in names.split()}
    options = {name: size for name, size in sizes.items() if name in known}
    options |= BESIDES.get(model_type, {})
    model = transformers.AutoModelForCausalLM.from_config(kind(**options, **ENDS)).float().eval()
    draw(model, 1)
    model.save_pretrained(folder)
    reference = [greedy(model, prompt, [2]) for prompt in PROMPTS]
    (folder / "reference.json").write_text(json.dumps(reference))


def try_to_make(model_type, folder):
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES_MAX, BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what answers is the parent alone
    try:
        make(model_type, folder)
    except BaseException as error:  # noqa: BLE001: whatever a class of transformers may raise
        first = (str(error).strip() or repr(error)).splitlines()[0]
        (folder / "why.txt").write_text(f"{type(error).__name__}: {first}")


def make_those_asked_for(to):
    """Makes the types that stdin names, each in a process of its own, forked after the one import
    of transformers; says on stdout when that is over."""
    import transformers

    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    print(" ".join(sorted(names)), flush=True)
    for line in sys.stdin:
        folder = to / line.strip()
        folder.mkdir()
        process = multiprocessing.get_context("fork").Process(
            target=try_to_make, args=(folder.name, folder)
        )
        process.start()
        process.join(5 * SECONDS_MAX)
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode < 0:
            (folder / "why.txt").write_text(f"not within {SECONDS_MAX} s of the processor")
        print("done", flush=True)


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

    reference = folder / "reference.json"
    if not reference.exists():
        why = folder / "why.txt"
        said = why.read_text() if why.exists() else "its process was killed"
        return "not made: " + short(said)
    try:
        with LmtpServe(folder, "--dtype", "float32", "--kv-cache", "16MiB") as server:
            result = asyncio.run(compare(server, json.loads(reference.read_text())))
        config = json.loads((folder / "config.json").read_text())
        served = config.get("text_config", config)["model_type"]
        return result + ("" if served == folder.name else f", as `{served}`")
    except RuntimeError as error:
        said = [line for line in str(error).splitlines() if line.startswith("lmtp-serve: ")]
        why = (said[-1] if said else str(error)).split(": ", 2)[-1]
        return "refused: " + short(why.split("; supported are")[0])


def short(why):
    """In a row of a table."""
    if "can't allocate memory" in why:
        return f"needs more than {BYTES_MAX >> 30} GiB"
    return re.sub(r"\S*/tmp\S*/", "", why).replace("|", "/")[:150]


def listed(path):
    """type: outcome, of the rows of such a file."""
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", path.read_text(), re.MULTILINE) if path else []
    return dict(rows)


def offer_all(arguments, to):
    known = listed(arguments.list)
    command = [PYTHON, __file__, "--make", to]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-3, text=True) as maker:
        every = maker.stdout.readline().split()
        for model_type in arguments.types or every:
            if model_type in known:
                continue
            print(model_type, file=maker.stdin, flush=True)
            maker.stdout.readline()
            result = known[model_type] = offer(to / model_type)
            shutil.rmtree(to / model_type)
            print(f"{model_type}: {result}", flush=True)
            if arguments.list:
                with open(arguments.list, "a") as file:
                    print(f"| `{model_type}` | {result} |", file=file)
        maker.stdin.close()
    return known


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--list", type=pathlib.Path, metavar="FILE")
    parser.add_argument("types", nargs="*", metavar="TYPE")
    arguments = parser.parse_args()
    if arguments.make:
        return make_those_asked_for(arguments.make)
    with tempfile.TemporaryDirectory() as made:
        results = offer_all(arguments, pathlib.Path(made))
    counts = collections.Counter(re.split("[:,]", result)[0] for result in results.values())
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    sys.exit(0 if counts.keys() <= {"equal", "refused", "not made"} else 1)


if __name__ == "__main__":
    main()

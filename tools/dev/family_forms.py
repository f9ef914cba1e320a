"""Each family in the forms in which users run it besides its own: with a LoRA adapter of peft on
all linears, equal to transformers and peft in float32; and with --dtype int8 and int4, whose log
probabilities' correlation with float32's is printed and bounded.

    .venv/bin/python tools/dev/family_forms.py [SHAPE...]     shapes of tools/dev/compat-check

Shapes that the pinned release does not know are left out. Exit code 1 where one is refused or
differs.
"""

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import tempfile

from compat_check import AS_NEWEST, ONE_EACH, ROOT, computed, worst_of

sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from servers import LmtpServe  # noqa: E402
from wire import Connection, logprobs_of  # noqa: E402

VOCAB = 131
CORRELATION_MIN = {"int8": 0.98, "int4": 0.6}  # of a random model, whose weights are rounded worst


def make(to, shape, seed):
    import peft
    import torch
    import transformers
    from compat_folders import PROMPTS, SCORED_TOKENS, build, end_tokens, greedy, load, score

    torch.set_grad_enabled(False)
    build(shape, seed, VOCAB).float().save_pretrained(to)
    model = load(to)
    linears = {name.split(".")[-1] for name, module in model.named_modules()
               if isinstance(module, (torch.nn.Linear, transformers.pytorch_utils.Conv1D))
               and "vision" not in name and "visual" not in name and "projector" not in name}
    linears -= {"lm_head", "embed_out", "project_in", "project_out"}  # of no layer
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=sorted(linears),
                             init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(seed)
    tuned = peft.get_peft_model(model, config).eval()
    tuned.save_pretrained(to / "adapter")
    ends = end_tokens(model)
    ids = [(7 * i + seed) % VOCAB for i in range(SCORED_TOKENS)]
    reference = {"eos": sorted(ends), "greedy": [greedy(tuned, p, ends) for p in PROMPTS],
                 "score": score(tuned, ids)}
    (to / "reference.json").write_text(json.dumps(reference))


async def scores(server, ids):
    async with Connection(server.endpoint) as c:
        return logprobs_of(await c.score(ids[:1], ids[1:]))


def check(folder):
    reference = json.loads((folder / "reference.json").read_text())
    ids = reference["score"]["ids"]
    options = ["--kv-cache", "16MiB", "--log-level", "error"]
    with LmtpServe(folder, "--dtype", "float32", "--lora-modules", f"tuned={folder}/adapter",
                   *options) as server:
        wrong, count, worst = asyncio.run(computed(server.endpoint, "tuned", reference))
        plain = asyncio.run(scores(server, ids))
    said = [f"adapter: {count} tokens, {worst:.1e}"]
    if worst_of(plain, reference["score"]["logprobs"]) < 1e-3:
        wrong.append("the adapter changes nothing")
    for dtype, least in CORRELATION_MIN.items():
        with LmtpServe(folder, "--dtype", dtype, *options) as server:
            got = asyncio.run(scores(server, ids))
        correlation = statistics.correlation(got, plain)
        said.append(f"{dtype}: {correlation:.4f}")
        if not correlation >= least:
            wrong.append(f"{dtype} is too far from float32")
    return wrong, said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*")
    shapes = parser.parse_args().shapes or [s for s in ONE_EACH if s not in AS_NEWEST]
    num_wrong = 0
    for seed, shape in enumerate(shapes):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            try:
                make(folder, shape, 300 + seed)
                wrong, said = check(folder)
            except Exception as e:  # noqa: BLE001: the next shape is tried all the same
                lines = str(e).strip().splitlines() or [repr(e)]
                wrong, said = [f"{type(e).__name__}: {lines[-1][:300]}"], []
        num_wrong += bool(wrong)
        print(f"{'WRONG ' if wrong else ''}{shape}: {'; '.join([*wrong, *said])}", flush=True)
    print(f"{len(shapes)} families, {num_wrong} wrong")
    sys.exit(bool(num_wrong))


if __name__ == "__main__":
    main()

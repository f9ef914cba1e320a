"""Each family in the forms in which users run it besides its own: with a LoRA adapter of peft on
all linears, equal to transformers and peft in float32; and with --dtype int8 and int4, whose log
probabilities' correlation with float32's is printed and bounded.

    .venv/bin/python tools/dev/family_forms.py [SHAPE...]     shapes of tools/dev/compat-check
    .venv/bin/python tools/dev/family_forms.py --numerics [SHAPE...] [OPTION OF THE GRID...]

With --numerics each is put through the numerics grid's sample instead (docs/numerics.md), by one
rank and by two where the model can be divided: points, those whose bits differ, and configurations
whose conditions did not come about, such as a chunk as long as the limit. Shapes that the
pinned release does not know are left out, and made by .venv-newest/bin/python where it runs this.
Exit code 1 where one is refused or differs.
"""

import argparse
import asyncio
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from compat_check import AS_NEWEST, ONE_EACH, ROOT, computed, worst_of

sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from servers import LmtpServe  # noqa: E402
from wire import Connection, logprobs_of  # noqa: E402

VOCAB = 131
CORRELATION_MIN = {"int8": 0.98, "int4": 0.6}  # of a random model, whose weights are rounded worst


def make_plain(to, shape, seed):
    import torch
    from compat_folders import build

    torch.set_grad_enabled(False)
    build(shape, seed, VOCAB).float().save_pretrained(to)


def make(to, shape, seed):
    import peft
    import torch
    import transformers
    from compat_folders import PROMPTS, SCORED_TOKENS, end_tokens, greedy, load, score

    make_plain(to, shape, seed)
    model = load(to)
    linears = {name.split(".")[-1] for name, module in model.named_modules()
               if isinstance(module, (torch.nn.Linear, transformers.pytorch_utils.Conv1D))
               and "vision" not in name and "visual" not in name and "projector" not in name}
    # Those of no layer.
    linears -= {"lm_head", "embed_out", "output_projection", "project_in", "project_out"}
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


def sample(options, folder, ranks):
    program = options.program, "--sample", "--model", folder, "--ranks", ranks
    command = ["nice", "-n", str(options.nice), *program, *options.more]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check_numerics(options, folder):
    done, divided = sample(options, folder, "1,2"), ""
    if refused := re.search(r"cannot be divided among 2 ranks: (.*)", done.stdout):
        done, divided = sample(options, folder, "1"), f"not divided: {refused[1]}"
    by_ranks = done.stdout.partition("\nranks ")[2]
    of_ranks = re.search(r"^ {11}2 +(\d+) +(\d+)", by_ranks, re.MULTILINE)
    if of_ranks:
        divided = f"{of_ranks[1]} of them by 2 ranks, {of_ranks[2]} differ"
    end = re.search(r"(\d+) of (\d+) points .*\n(\d+) of .*; (\d+) s$", done.stdout.strip())
    if end is None:
        return [f"exit code {done.returncode}: {done.stdout[-300:]}"], []
    said = f"{end[2]} points, {end[1]} differ, {end[3]} configurations not so, {end[4]} s"
    return ["differs"] if done.returncode == 1 else [], [said, divided]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*")
    parser.add_argument("--numerics", action="store_true", help="the numerics grid's sample")
    parser.add_argument("--program", default=ROOT / "tools" / "numerics", help="instead of this")
    parser.add_argument("--nice", type=int, default=19)
    arguments, more = parser.parse_known_args()
    if more and not arguments.numerics:
        parser.error(f"unknown: {more}")
    arguments.more = more
    shapes = arguments.shapes or [s for s in ONE_EACH if s not in AS_NEWEST]
    num_wrong = 0
    for seed, shape in enumerate(shapes):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            try:
                if arguments.numerics:
                    make_plain(folder, shape, 300 + seed)
                    wrong, said = check_numerics(arguments, folder)
                else:
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

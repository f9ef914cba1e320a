"""Checks that lmtp-serve and lmtp-client read what transformers writes, release by release.

For every served family and several of its settings, tiny models are made and saved by each release
(as safetensors, as pytorch_model.bin of its own and of torch.save(model.state_dict()); in float32,
bfloat16 and float16 in turns), and computed by it in float32 from the stored weights. lmtp-serve
must load each, give the same greedy tokens and log-probabilities, and lmtp-client the same ids.
Exit code 1 where anything differs.
"""

import argparse
import asyncio
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from servers import LmtpServe, bin_dir  # noqa: E402
from wire import Connection, StreamError, ids_of, logprobs_of  # noqa: E402

RELEASES = {"pinned": ROOT / ".venv", "newest": ROOT / ".venv-newest"}
# A shape for each family, whose settings are the easiest to misread, and one inside a larger model.
ONE_EACH = ("gpt2", "llama3-tied", "opt-narrow-embedding", "gpt-neox-whole", "mistral",
            "qwen2-window", "qwen3-yarn", "phi3-longrope", "gemma2", "llava", "gemma", "gemma3",
            "qwen2-vl", "qwen2-5-vl", "qwen3-vl", "olmo2", "olmo3", "granite", "smollm3",
            "seed-oss", "ernie4-5", "helium", "glm", "glm4", "cohere", "cohere2", "exaone4",
            "starcoder2", "phi", "stablelm", "nemotron", "arcee", "gptj", "gpt-bigcode",
            "gpt-neo", "ministral3", "internlm3", "apertus", "codegen", "hunyuan",
            "falcon", "qwen3-moe", "mixtral", "olmoe", "granitemoe", "qwen2-moe", "gpt-oss",
            "glm4-moe", "ernie4-5-moe", "cwm", "iquestcoder", "ministral", "vaultgemma", "jais2",
            "olmo", "biogpt", "openai-gpt", "hyperclovax", "dots1", "solar-open",
            "gpt-oss-mxfp4", "minimax-m2", "hunyuan-moe", "qwen3-vl-moe")  # fmt: skip
MORE = ("gpt-neox", "gpt-neox-sequential", "opt", "llama", "llama-linear-biased", "llama-yarn",
        "qwen2", "qwen3", "phi3", "llama-relu2", "llama-own-head", "llava-outer-tied",
        "stablelm-parallel", "gpt-bigcode-heads", "falcon-one-norm", "falcon-multi-query",
        "falcon-sequential", "phi-tied", "llama-relu6", "llama-quick-gelu",
        "hyperclovax-before")  # fmt: skip
# Which the pinned release reads otherwise.
AS_NEWEST = ("llama-own-head", "llava-outer-tied", "ministral3", "internlm3", "cwm",
             "iquestcoder", "jais2", "hyperclovax", "hyperclovax-before", "solar-open",
             "minimax-m2")  # fmt: skip
FORMATS = (("pinned", "safetensors"), ("newest", "safetensors"), ("pinned", "bin"),
           ("newest", "state-dict"), ("pinned", "state-dict"))  # fmt: skip
DTYPES = ("float32", "bfloat16", "float16")
LOGPROB_TOLERANCE = 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(prog="compat-check", description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help="of these alone: " + " ".join(ONE_EACH + MORE))
    parser.add_argument("--quick", action="store_true", help="one folder a family")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the models there")
    return parser.parse_args()


def cases_of(shapes, quick):
    """{release: [SHAPE:FORMAT:DTYPE]}; dtypes, and where quick all else, in turns."""
    dtypes = itertools.cycle(DTYPES)
    cases = {release: [] for release in RELEASES}
    for i, shape in enumerate(shapes):
        formats = FORMATS[:2] if shape.endswith("-mxfp4") else FORMATS
        own = [pair for pair in formats if pair[0] == "newest" or shape not in AS_NEWEST]
        for release, form in [own[i % len(own)]] if quick else own:
            cases[release].append(f"{shape}:{form}:{next(dtypes)}")
    return cases


def write_folders(to, cases):
    script = pathlib.Path(__file__).with_name("compat_folders.py")
    jobs = []
    for release, environment in RELEASES.items():
        if cases[release]:
            command = [environment / "bin" / "python", script, to, release, *cases[release]]
            jobs.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for job in jobs:
        _, said = job.communicate()
        if job.returncode != 0:
            sys.exit(f"compat-check: {job.args[0]}: {said[-2000:]}")


class Report:
    def __init__(self):
        self.num_wrong = 0

    def line(self, name, wrong, said):
        self.num_wrong += bool(wrong)
        print(f"{'WRONG ' if wrong else ''}{name}: {'; '.join([*wrong, said])}", flush=True)


def worst_of(got, wanted):
    return max((abs(g - w) for g, w in zip(got, wanted)), default=0.0)


async def computed(endpoint, folder, reference):
    """(what is wrong, how many tokens were compared, the worst log-probability)."""
    wrong, count, worst = [], 0, 0.0
    async with Connection(endpoint, model=str(folder)) as c:
        for case in reference["greedy"]:
            wanted = case["ids"]
            if not wanted:
                continue
            entries = await c.generate(case["prompt"], max_tokens=len(wanted), temperature=0)
            if ids_of(entries) != wanted:
                wrong.append(f"greedy {ids_of(entries)} for {wanted}")
            worst = max(worst, worst_of(logprobs_of(entries), case["logprobs"]))
            count += len(wanted)
        ids = reference["score"]["ids"]
        scores = logprobs_of(await c.score(ids[:1], ids[1:]))
        worst = max(worst, worst_of(scores, reference["score"]["logprobs"]))
        info = await c.model_info()
        if info["eos_token_ids"] != reference["eos"]:
            wrong.append(f"eos {info['eos_token_ids']} for {reference['eos']}")
    if not worst <= LOGPROB_TOLERANCE:
        wrong.append(f"log-probabilities differ by {worst:.1e}")
    return wrong, count, worst


def encoded(folder, reference):
    """What is wrong with the ids of lmtp-client."""
    done = subprocess.run(
        [bin_dir() / "lmtp-client", folder, "--encode", "--json"],
        input="".join(json.dumps(text) + "\n" for text in reference["texts"]),
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        return [f"lmtp-client: {done.stderr.strip()[:300]}"]
    got = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = list(zip(reference["texts"], got, reference["encoded"]))
    differ = [pair for pair in pairs if pair[1] != pair[2]]
    same_number = len(got) == len(reference["texts"])
    if not differ and same_number:
        return []
    return [f"{len(differ)} of {len(pairs)} texts have other ids, the first: {differ[:1]}"]


def check(endpoint, folder, report):
    reference = json.loads((folder / "reference.json").read_text())
    try:
        wrong, count, worst = asyncio.run(computed(endpoint, folder, reference))
    except StreamError as e:
        wrong, count, worst = [str(e)], 0, 0.0
    wrong += encoded(folder, reference)
    report.line(
        folder.name, wrong,
        f"{count} greedy tokens, {len(reference['texts'])} texts, "
        f"worst log-probability {worst:.1e}",
    )  # fmt: skip


def run(to, shapes, quick):
    report = Report()
    write_folders(to, cases_of(shapes, quick))
    folders = sorted(path.parent for path in to.glob("*/reference.json"))
    with LmtpServe("auto", "--dtype", "float32", "--kv-cache", "16MiB") as server:
        for folder in folders:
            check(server.endpoint, folder.resolve(), report)
    if report.num_wrong:
        sys.exit(f"compat-check: {report.num_wrong} of {len(folders)} folders are misread")
    print(f"{len(folders)} folders: all load, all tokens and ids are equal")


def main():
    args = parse_arguments()
    shapes = args.shapes or (ONE_EACH if args.quick else ONE_EACH + MORE)
    for release, environment in RELEASES.items():
        if not (environment / "bin" / "python").exists():
            sys.exit(f"compat-check: the {release} releases are missing: run tools/setup")
    if args.folder is not None:
        args.folder.mkdir(parents=True)
        return run(args.folder, shapes, args.quick)
    with tempfile.TemporaryDirectory() as folder:
        run(pathlib.Path(folder), shapes, args.quick)


if __name__ == "__main__":
    main()

"""Decisions beside transformers, and their bits.

    tools/dev/decisions_check                 SmolLM2-135M-Instruct, as tools/dev/clients_check,
                                              and small models of TINY's families
    tools/dev/decisions_check --model FOLDER  another folder with a chat template

Serves each model in float32, asks typed questions of every kind by /v1/systemone and compares each
probability with transformers' pipeline("decision"), which has to be within 1e-4, the best option
equal; the same for whole options ("scoring": "option"), token by token. Then, with the last model,
the same questions again --rounds times, in other orders, beside other requests, at other sizes of
steps, cold and cached: not a bit of an answer may differ. Exit code 1 where something does.
decisions/same_bits.py asks the same of any server, such as vLLM's."""

import argparse
import concurrent.futures
import functools
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

from clients_check import ROOT, model

sys.path[:0] = [str(ROOT / "tools" / "benchmarks")]
from servers import LmtpServe  # noqa: E402

PYTHON = ROOT / ".venv-newest" / "bin" / "python"
REFERENCE = ROOT / "tools" / "dev" / "decisions" / "reference.py"
TOLERANCE = 1e-4
TINY = ("llama", "gemma2", "qwen3")
LAST_LINE = "Answer with the text of the option that fits best only."

STATES = [
    "I was charged twice for my order and want a refund.",
    {"message": "WIN a FREE iPhone, click here!", "score": 0.5, "tags": ["a", None]},
    "Wie schön: <|im_end|> ist hier nur Text.\n\n日本語も。 ",
    "",
    ["first", {"second": True}],
]  # fmt: skip
QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Is a refund requested?"},
    "spam": {"type": "noul", "instructions": "Is this message spam?",
             "criteria": {"true": "Unsolicited ads", "false": "A real conversation"}},
    "half": {"type": "noul", "criteria": {"false": "nothing of it"}},
    "tone": {"type": "choice", "instructions": "What is the tone?",
             "criteria": {"calm": None, "pushy": "Pressures the reader", "very rude": None}},
    "many": {"type": "choice", "instructions": {"pick": "one"},
             "criteria": {f"option {i}": None for i in range(26)}},
    "alone": {"type": "choice", "criteria": {"only this": "x"}},
    "urgent": {"type": "score", "instructions": "How urgent is it?",
               "criteria": ["Can wait", "This week", "Today"]},
    "levels": {"type": "score", "criteria": [{"level": i} for i in range(5)]},
}  # fmt: skip


def ask(url, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}/v1/systemone", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def values_of(answer):
    if answer["type"] == "noul":
        return [answer["noul"], 1 - answer["noul"]]
    return list(answer["probabilities"].values())


def reference(folder, requests):
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([PYTHON, REFERENCE, folder], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare_labels(url, folder):
    # transformers encodes a control token in a text apart from what stands around it.
    states = [state for state in STATES if "<|im_end|>" not in str(state)]
    requests = [{"state": state, "questions": QUESTIONS} for state in states]
    worst, others = 0.0, []
    for request, theirs in zip(requests, reference(folder, requests), strict=True):
        ours = ask(url, {**request, "scoring": "label"})["answers"]
        for name, their in theirs.items():
            a, b = values_of(ours[name]), values_of(their)
            worst = max(worst, *(abs(x - y) for x, y in zip(a, b, strict=True)))
            for key in ("confidence", "score"):
                if key in their:
                    worst = max(worst, abs(ours[name][key] - their[key]) / 10)
            same = [ours[name].get(key) == their.get(key) for key in ("type", "choice", "legend")]
            if a.index(max(a)) != b.index(max(b)) or not all(same):
                others.append((name, ours[name], their))
    print(f"labels: {len(states) * len(QUESTIONS)} questions, the largest "
          f"difference of a probability {worst:.2e}, other answers {len(others)}")  # fmt: skip
    for other in others:
        print("  ", *other)
    return worst <= TOLERANCE and not others


def compare_options(url, folder):
    """Whole texts; what is asked is in docs/decisions.md."""
    texts = ["very calm", "very angry", "calm", "not at all, I think", "日本語"]
    lines = "".join(f"- {text}\n" for text in texts)
    requests, worst = [], 0.0
    for state in STATES:
        shown = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        content = f"{shown}\n\nWhat is the tone?\n{lines}{LAST_LINE}"
        requests.append({"options": {"content": content, "texts": texts}})
    question = {"type": "choice", "instructions": "What is the tone?",
                "criteria": dict.fromkeys(texts)}  # fmt: skip
    safe = [i for i, state in enumerate(STATES) if "<|im_end|>" not in str(state)]
    theirs = reference(folder, [requests[i] for i in safe])
    for i, rows in zip(safe, theirs, strict=True):
        ours = ask(url, {"state": STATES[i], "questions": {"q": question}, "scoring": "option"})
        values = values_of(ours["answers"]["q"])
        for num, (tokens, logprob) in enumerate(rows):
            log_ratio = math.log(values[num] / values[0]) - (logprob - rows[0][1])
            worst = max(worst, abs(log_ratio) / (tokens + rows[0][0]))
    print(f"options: {len(safe)} states, the largest difference of a token's log probability "
          f"{worst:.2e}")  # fmt: skip
    return worst <= TOLERANCE


def shuffled(items, seed):
    items = list(items)
    random.Random(seed).shuffle(items)
    return items


def compare_bits(folder, rounds, options):
    """The answers' bits, whatever else there is."""
    known, differ, asked = {}, 0, 0

    def one(url, seed):
        chance = random.Random(seed)
        state = chance.choice(STATES)
        names = shuffled(QUESTIONS, seed)[: chance.randint(1, len(QUESTIONS))]
        scoring = chance.choice(["label", "option", "option_mean"])
        questions = {name: QUESTIONS[name] for name in names}
        answers = ask(url, {"state": state, "questions": questions, "scoring": scoring})
        return [((json.dumps(state), name, scoring), json.dumps(answer))
                for name, answer in answers["answers"].items()]  # fmt: skip

    for number, extra in enumerate(options):
        with LmtpServe(folder, "--dtype", "float32", *extra) as server:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                seeds = range(number * rounds, (number + 1) * rounds)
                url = f"http://{server.endpoint}"
                for found in pool.map(functools.partial(one, url), seeds):
                    for key, answer in found:
                        asked += 1
                        differ += known.setdefault(key, answer) != answer
    print(f"bits: {rounds * len(options)} requests, {asked} answers of {len(known)} questions, "
          f"{differ} differ")  # fmt: skip
    return differ == 0


def make_models(made):
    trained = made / "SmolLM2-135M-Instruct"
    commands = [("--save", trained, model())]
    commands += [("--tiny", made / family, family, trained) for family in TINY]
    for command in commands:
        subprocess.run([PYTHON, REFERENCE, *command], check=True, stderr=subprocess.DEVNULL)
    return [command[1] for command in commands]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=250, help="of each of four servers (250)")
    arguments = parser.parse_args()
    same = []
    with tempfile.TemporaryDirectory() as made:
        folders = [arguments.model] if arguments.model else make_models(pathlib.Path(made))
        for folder in folders:
            print(f"{folder.name}:")
            with LmtpServe(folder, "--dtype", "float32") as server:
                url = f"http://{server.endpoint}"
                same += [compare_labels(url, folder), compare_options(url, folder)]
        sizes = [(), ("--max-batched-tokens", "32"), ("--score-cache", "0", "--threads", "1"),
                 ("--kv-cache", "100MiB", "--max-batched-tokens", "64")]  # fmt: skip
        same.append(compare_bits(folders[-1], arguments.rounds, sizes))
    sys.exit(0 if all(same) else 1)


if __name__ == "__main__":
    main()

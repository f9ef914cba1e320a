#!/usr/bin/env python3
"""JSON schemas of others against grammar-check, whose tokens are the demo's: which are refused and
why, and whether the instances that come with a schema are taken or not as they should be.

FILE has a line for each schema: {"name", "schema", "tests": [{"valid", "data"}]}, the form of
guidance-ai/jsonschemabench. An instance is written as Python's json.dumps writes it, once compactly
and once with spaces; a valid one has its keys in whatever order it came with."""

import argparse
import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def reason_of(error):
    """The error without what is this schema's own: names, numbers, places."""
    error = error.removeprefix("grammar: ")
    if error.startswith("Unimplemented keys"):
        return error
    error = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "...", error)
    return re.sub(r"[0-9]+", "N", error)[:100]


def texts_of(data):
    yield json.dumps(data, ensure_ascii=False)
    yield json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    yield json.dumps(data, ensure_ascii=False, indent=2)


def ask_program(program, model, requests):
    """An answer for each; grammar_check.cpp has their fields."""
    run = subprocess.run([program, "schemas", model], stdout=subprocess.PIPE, text=True, check=True,
                         input="".join(json.dumps(asked) + "\n" for asked in requests))  # fmt: skip
    return [json.loads(line) for line in run.stdout.splitlines()]


def check(cases, program, model):
    return ask_program(program, model, [
        {"schema": json.dumps(case["schema"]),
         "texts": [text for test in case["tests"] for text in texts_of(test["data"])]}
        for case in cases
    ])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--program", default=ROOT / "build" / "release" / "bin" / "grammar-check")
    parser.add_argument("--model", default=ROOT / "models" / "demo", help="a tokenizer's folder")
    options = parser.parse_args()
    cases = [json.loads(line) for line in options.file.read_text().splitlines()]
    refused, wrong = collections.defaultdict(list), collections.defaultdict(list)
    num = collections.Counter()
    answers = check(cases, options.program, options.model)
    for case, answer in zip(cases, answers, strict=True):
        if "error" in answer:
            refused[reason_of(answer["error"])].append(case["name"])
            continue
        taken = iter(answer["taken"])
        for test in case["tests"]:
            for _ in texts_of(test["data"]):
                is_taken = next(taken)
                num[test["valid"], is_taken] += 1
                if is_taken != test["valid"] and case["name"] not in wrong[test["valid"]]:
                    wrong[test["valid"]].append(case["name"])
    times = [answer["ms"] for answer in answers]
    print(f"{len(cases)} schemas: {sum(map(len, refused.values()))} refused; compiled in "
          f"{statistics.median(times):.1f} ms (median), {max(times):.0f} ms (slowest)")  # fmt: skip
    for reason, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"  {len(names):4} {reason}   ({names[0]})")
    print(f"valid instances: {num[True, True]} texts taken, {num[True, False]} not")
    print("  " + "\n  ".join(wrong[True] or ["-"]))
    print(f"invalid instances: {num[False, False]} texts refused, {num[False, True]} taken")
    print("  " + "\n  ".join(wrong[False] or ["-"]))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Streams of lmtp-serve under JSON schemas of others: each schema that is not refused has two,
drawn with compact white space and a bias on quotes and closing brackets, as a small model would go
on for ever otherwise. What finished has to be valid by Python's jsonschema, in the draft that the
schema names; what was cut by its length has to be the beginning of a text that the grammar allows.

    .venv/bin/python tools/dev/grammar_streams.py FILE --model FOLDER

FILE is that of grammar_check.py, beside which this lies; the model should know straight quotes, as
stories260K does. Exit code 1 where a text is neither."""

import argparse
import asyncio
import collections
import json
import pathlib
import sys
import time

import jsonschema
from grammar_check import ROOT, ask_program, reason_of

sys.path[:0] = [str(ROOT / "docs" / "examples"), str(ROOT / "tools" / "benchmarks")]
import lmtp  # noqa: E402
from servers import LmtpServe, bin_dir  # noqa: E402

PROMPT = "Once"
SEEDS = (1, 2)
BIAS = {'"': 12.0, "]": 12.0, "}": 12.0}
DEMO_BIAS = {'"': 26.0, "]": 14.0, "}": 27.0}  # of these it has seen ] alone
STREAMS_AT_ONCE = 32


class Stream:
    def __init__(self, case, seed):
        self.case, self.seed = case, seed
        self.tokens = []
        self.error = None

    @property
    def text(self):
        return "".join(token.text for token in self.tokens)

    @property
    def ids(self):
        return [token.id for token in self.tokens]

    @property
    def is_finished(self):
        return not self.error and self.tokens[-1].finish_reason == "stop"

    @property
    def is_refused(self):
        return bool(self.error and self.error.startswith("grammar: "))


def compact(schema):
    options = {**schema.get("x-guidance", {}), "whitespace_flexible": False}
    return {**schema, "x-guidance": options}


async def bias_of_tokens(client, bias):
    """On each token that has no other letters than these: its last one's."""
    size = (await client.model_info())["vocab_size"]
    texts = await asyncio.gather(*(client.detokenize([token]) for token in range(size)))
    return {i: bias[text[-1]] for i, text in enumerate(texts) if text and set(text) <= set(bias)}


async def run_streams(endpoint, cases, bias=BIAS):
    """Two of each case; those of a case that is refused have the error."""
    async with lmtp.connect(endpoint) as client:
        of_tokens = await bias_of_tokens(client, bias)
        context = (await client.model_info())["context_length"]
        room = context - len(await client.tokenize(PROMPT))
        gate = asyncio.Semaphore(STREAMS_AT_ONCE)

        async def fill(stream):
            grammar = {"type": "json_schema", "value": compact(stream.case["schema"])}
            async with gate:
                try:
                    async for token in client.generate(
                        PROMPT, temperature=1.0, seed=stream.seed, max_tokens=room,
                        logit_bias=of_tokens, grammar=grammar):  # fmt: skip
                        stream.tokens.append(token)
                except lmtp.LMTPError as e:
                    stream.error = str(e)

        streams = [Stream(case, seed) for case in cases for seed in SEEDS]
        await asyncio.gather(*map(fill, streams))
    return streams


def fault_of(schema, text):
    """What jsonschema says against the text; None: it is valid."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        value = json.loads(text)
        worst = jsonschema.exceptions.best_match(kind(schema).iter_errors(value))
    except Exception as e:  # of the text, or of a schema that jsonschema cannot do either
        return f"{type(e).__name__}: {e}"
    return worst and worst.message


def faults_of(streams, program, model):
    """(stream, what is wrong) of each that is neither valid nor the beginning of what is allowed,
    or that ended by an error other than its schema's refusal."""
    faults = []
    cut = [s for s in streams if not s.error and not s.is_finished]
    begun = ask_program(program, model, [
        {"schema": json.dumps(compact(s.case["schema"])), "texts": [], "begun": [s.ids]}
        for s in cut])  # fmt: skip
    for stream, answer in zip(cut, begun, strict=True):
        if answer.get("begun") != [True]:
            faults.append((stream, f"is no beginning: {stream.text!r}"))
    for stream in streams:
        if stream.is_finished and (fault := fault_of(stream.case["schema"], stream.text)):
            faults.append((stream, f"is not valid: {fault}: {stream.text!r}"))
        elif stream.error and not stream.is_refused:
            faults.append((stream, stream.error))
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--model", required=True, type=pathlib.Path, help="a folder")
    options = parser.parse_args()
    cases = [json.loads(line) for line in options.file.read_text().splitlines()]
    start = time.monotonic()
    with LmtpServe(options.model, "--log-level", "warning") as server:
        streams = asyncio.run(run_streams(server.endpoint, cases))
        seconds = time.monotonic() - start
    refused = collections.defaultdict(set)
    for stream in streams:
        if stream.is_refused:
            refused[reason_of(stream.error)].add(stream.case["name"])
    print(f"{len(cases)} schemas: {sum(map(len, refused.values()))} refused")
    for reason, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"  {len(names):4} {reason}   ({min(names)})")
    faults = faults_of(streams, bin_dir() / "grammar-check", options.model)
    num_finished = sum(stream.is_finished for stream in streams)
    num_cut = sum(not s.error and not s.is_finished for s in streams)
    print(f"{num_finished} texts finished, {num_cut} were cut, in {seconds:.0f} s, of "
          f"{sum(len(s.tokens) for s in streams)} tokens; wrong:")  # fmt: skip
    for stream, fault in faults:
        print(f"  {stream.case['name']}, seed {stream.seed}: {fault[:300]}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

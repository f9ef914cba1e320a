#!/usr/bin/env python3
"""Schemathesis against lmtp-serve: requests that it makes of TGI's and of OpenAI's own
specification, right and wrong ones. Exit code 1 where one is answered with a server error (500 and
up), or not at all.

    python3 -m venv VENV && VENV/bin/pip install schemathesis
    tools/dev/schemathesis_check.py --schemathesis VENV/bin/schemathesis \\
        --tgi tgi-openapi.json --openai openai-openapi.json

The specifications are those that the projects publish: docs/openapi.json of
huggingface/text-generation-inference, openapi.json of openai/openai-openapi. Of the latter the
paths are taken that the server has. The network is not used."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
from servers import LmtpServe  # noqa: E402

OPENAI_PATHS = ("/completions", "/chat/completions", "/models", "/models/{model}")
REQUEST_TIMEOUT_S = 60


def references(value):
    """(kind, name) of each component that it refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield tuple(value["$ref"].split("/")[-2:])
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def cut(spec):
    """OpenAI's with our paths alone, and what they refer to: the whole one takes minutes."""
    spec["paths"] = {name: spec["paths"][name] for name in OPENAI_PATHS}
    spec["paths"]["/models/{model}"].pop("delete", None)
    spec["paths"]["/chat/completions"].pop("get", None)  # lists stored ones
    components, kept = spec["components"], {}
    wanted = list(references(spec["paths"]))
    while wanted:
        kind, name = wanted.pop()
        if name not in kept.setdefault(kind, {}):
            kept[kind][name] = components[kind][name]
            wanted += references(kept[kind][name])
    spec["components"] = kept
    spec.pop("security", None)
    return spec


def mended(value):
    """TGI's writes bounds as OpenAPI 3.1 does, and calls itself 3.0."""
    if isinstance(value, list):
        return [mended(part) for part in value]
    if not isinstance(value, dict):
        return value
    value = {name: mended(part) for name, part in value.items()}
    if isinstance(value.get("exclusiveMinimum"), (int, float)):
        value |= {"minimum": value["exclusiveMinimum"], "exclusiveMinimum": True}
    return value


def check(program, spec, url, options):
    command = [program, "run", spec, "--url", url, "--checks", "not_a_server_error",
               "--max-examples", str(options.max_examples), "--seed", str(options.seed),
               "--phases", "examples,coverage,fuzzing", "--continue-on-failure",
               "--request-timeout", str(REQUEST_TIMEOUT_S), "--suppress-health-check", "all",
               "--warnings", "off", "--no-color"]  # fmt: skip
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemathesis", default="schemathesis")
    parser.add_argument("--tgi", type=pathlib.Path, required=True)
    parser.add_argument("--openai", type=pathlib.Path, required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--max-examples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LmtpServe(options.model, "--kv-cache", "64MiB", "--log-level", "warning") as server,
    ):
        url = f"http://{server.endpoint}"
        codes = []
        for read, mend, base in [(options.tgi, mended, url), (options.openai, cut, f"{url}/v1")]:
            spec = pathlib.Path(folder) / read.name
            spec.write_text(json.dumps(mend(json.loads(read.read_text()))))
            codes.append(check(options.schemathesis, spec, base, options))
    print(f"exit code of the server: {server.exit_code}")
    return int(any(codes) or server.exit_code != 0)


if __name__ == "__main__":
    sys.exit(main())

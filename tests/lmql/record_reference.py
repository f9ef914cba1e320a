#!/usr/bin/env python3
"""Records what the queries of this folder give with LMQL's own server, `lmql serve-model`.

    record_reference.py [--model FOLDER] [--output FILE] [QUERY.lmql...]

Writes expected/<the folder's last component>.jsonl: a line that says how it was made, then one line
for each query with its results and, for each of its requests, the tokens that the client received.
With names of queries it replaces their lines only. tools/setup --tests must have run.
"""

import argparse
import asyncio
import hashlib
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tools" / "benchmarks")]

from relay import run_queries  # noqa: E402
from servers import Reference  # noqa: E402


def made_by(model, python):
    code = (
        "import lmql.version, torch, transformers;"
        "print('lmql', lmql.version.version, 'serve-model, transformers', transformers.__version__"
        " + ', torch', torch.__version__.split('+')[0] + ', float32, cpu')"
    )
    versions = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    weights = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    return {"made_by": versions.stdout.strip(), "model": model.name, "weights_sha256": weights}


def longest(streams):
    """Equal requests once, with the longest answer."""
    kept = {}
    for stream in streams:
        other = kept.get(stream.key())
        if other is None or len(other.entries) < len(stream.entries):
            kept[stream.key()] = stream
    return [s.as_json() for s in kept.values()]


def record(model, files):
    def say(line):
        print(line["query"], line.get("error", "ok"), line["wall_s"], "s", flush=True)

    with Reference(model) as reference:
        lines = asyncio.run(run_queries(reference.endpoint, model.name, model, files, say))
    if any("error" in line for line in lines):
        sys.exit("record_reference: nothing written")
    return [
        {"query": d["query"], "results": d["results"], "streams": longest(d["streams"])}
        for d in lines
    ]


def write(path, head, lines):
    """Lines of other queries stay where the same model and versions made them."""
    old = list(map(json.loads, path.open(encoding="utf-8"))) if path.exists() else []
    kept = {d["query"]: d for d in old[1:]} if old[:1] == [head] else {}
    merged = kept | {d["query"]: d for d in lines}
    queries = {f.stem for f in (HERE / "queries").glob("*.lmql")}
    with path.open("w", encoding="utf-8") as f:
        for line in [head, *(merged[q] for q in sorted(merged) if q in queries)]:
            f.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "demo")
    parser.add_argument("--output", type=pathlib.Path, help="instead of expected/")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    model = args.model.resolve()
    files = args.files or sorted((HERE / "queries").glob("*.lmql"))
    output = args.output or HERE / "expected" / f"{model.name}.jsonl"
    script = ROOT / "tools" / "benchmarks" / "reference-server"
    python = subprocess.run([script, "--python"], capture_output=True, text=True, check=True)
    head = made_by(model, python.stdout.strip())
    lines = record(model, files)
    write(output, head, lines)
    print(f"{output}: {len(lines)} queries, {sum(len(d['streams']) for d in lines)} streams")


if __name__ == "__main__":
    main()

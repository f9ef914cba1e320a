#!/usr/bin/env python3
"""Runs LMQL query files against an LMTP endpoint, offline.

    run_queries.py --endpoint HOST:PORT --model NAME --tokenizer FOLDER FILE.lmql...

One line of JSON for each file: {"query", "results": [{"text", "variables"}], "wall_s", "cpu_s"}, or
{"query", "error", ...}; cpu_s is this process's processor time. Exit code 1 where a query failed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

QUERY_TIMEOUT_S = 300


def keep_lmql_to(folder):
    """LMQL writes tokenizer caches below the home folder, also at its exit. Before its import."""
    os.environ.update(HOME=folder, LMQL_HOME=folder, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def as_json(value):
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(v) for v in value]
    return value.item() if hasattr(value, "item") else value


async def run(path, args):
    import lmql

    model = lmql.model(args.model, endpoint=args.endpoint, tokenizer=args.tokenizer)
    query = lmql.query(path.read_text(encoding="utf-8"), is_async=True)
    answer = await asyncio.wait_for(query(model=model), args.timeout)
    answers = answer if isinstance(answer, list) else [answer]
    return [{"text": a.prompt, "variables": as_json(a.variables)} for a in answers]


def line_of(path, args):
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # LMQL prints what it makes of a REGEX
            line = {"query": path.stem, "results": asyncio.run(run(path, args))}
    except (Exception, SystemExit) as e:  # LMQL leaves by exit() where a query does not compile
        line = {"query": path.stem, "error": f"{type(e).__name__}: {e}"}
    line["wall_s"] = round(time.perf_counter() - wall, 4)
    line["cpu_s"] = round(time.process_time() - cpu, 4)
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", default="localhost:8080")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tokenizer", required=True, help="a folder")
    parser.add_argument("--timeout", type=float, default=QUERY_TIMEOUT_S, help="seconds per query")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    args.tokenizer = os.path.abspath(args.tokenizer)
    failed = False
    with tempfile.TemporaryDirectory(prefix="lmql-home-", ignore_cleanup_errors=True) as home:
        keep_lmql_to(home)
        with contextlib.redirect_stdout(sys.stderr):
            import lmql  # noqa: F401  (seconds, that no query's figures should hold)
        for path in args.files:
            line = line_of(path, args)
            failed |= "error" in line
            print(json.dumps(line, ensure_ascii=False), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

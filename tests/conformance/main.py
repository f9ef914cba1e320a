"""Which rules of docs/lmtp.md an LMTP server keeps: tools/conformance URL.

A line for each rule. Exit code 1 where one is broken; what LMQL's own server is known to do
otherwise is shown as such and does not count.
"""

import argparse
import asyncio
import collections
import pathlib
import sys
import time
from xml.etree import ElementTree

# They fill the table.
import base_rules  # noqa: F401
import buffer_rules  # noqa: F401
import controller_rules  # noqa: F401
import edit_rules  # noqa: F401
import grammar_rules  # noqa: F401
import logprob_rules  # noqa: F401
import stream_rules  # noqa: F401
import text_rules  # noqa: F401
from known_faults import KNOWN_FAULTS
from suite import ROOT, RULES, Broken, Rule, Schema, Skipped, Target, lmtp

LEVELS = ("base", "1.1")
SCHEMA_RULE = Rule("messages-are-of-the-schema", "Every message is valid by the JSON Schema.",
                   "Transport", "base", (), None)  # fmt: skip
Result = collections.namedtuple("Result", "rule status what seconds")


async def run_rule(rule, target):
    began = time.monotonic()
    missing = [need for need in rule.needs if not target.has(need)]
    status, what = "pass", ""
    try:
        if missing:
            raise Skipped(f"the server has no {', '.join(missing)}")
        await rule.run(target)
    except Skipped as e:
        status, what = "skip", str(e)
    except Broken as e:
        status, what = "FAIL", str(e)
    except Exception as e:  # what a server can send that no rule foresaw
        status, what = "FAIL", f"{type(e).__name__}: {e}"
    if status == "FAIL" and "extensions" not in target.info and rule.name in KNOWN_FAULTS:
        status, what = "known", KNOWN_FAULTS[rule.name]
    return Result(rule, status, what, time.monotonic() - began)


async def run_rules(target, level, only=()):
    """The results of the level's rules, or of those named, as they come. learn() went before."""
    for rule in RULES:
        if (not only and LEVELS.index(rule.level) <= LEVELS.index(level)) or rule.name in only:
            yield await run_rule(rule, target)
    if not only or SCHEMA_RULE.name in only:
        what = "; ".join(target.violations)
        yield Result(SCHEMA_RULE, "FAIL" if what else "pass", what, 0)


async def run(target, level, only):
    await target.learn()
    results = []
    async for r in run_rules(target, level, only):
        results.append(r)
        print(f"{r.status:5} {r.rule.name:40} {r.seconds:6.2f} s", end="  ")
        print(r.what or r.rule.says, flush=True)
    return results


def write_junit(path, results, level):
    counts = collections.Counter(r.status for r in results)
    suite = ElementTree.Element(
        "testsuite", name=f"lmtp-{level}", tests=str(len(results)), failures=str(counts["FAIL"]),
        skipped=str(counts["skip"] + counts["known"]),
    )  # fmt: skip
    for r in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"lmtp.{r.rule.level}", name=r.rule.name,
            time=f"{r.seconds:.3f}",
        )  # fmt: skip
        if r.status != "pass":
            kind = "failure" if r.status == "FAIL" else "skipped"
            what = f"known fault: {r.what}" if r.status == "known" else r.what
            ElementTree.SubElement(case, kind, message=what)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", help="ws://HOST:PORT, HOST:PORT or unix:PATH")
    parser.add_argument("--level", choices=LEVELS, default="1.1", help="(%(default)s)")
    parser.add_argument("--model", help="a name for each request; LMQL's server wants one")
    parser.add_argument("--eos", type=int, action="append", help="where MODEL_INFO has none")
    parser.add_argument("--only", action="append", default=[], metavar="RULE", help="repeatable")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for an answer (60)")
    parser.add_argument("--junit", type=pathlib.Path, metavar="FILE", help="the results as XML")
    parser.add_argument(
        "--schema", type=pathlib.Path, metavar="DIR", default=ROOT / "docs" / "schema",
        help="lmtp.json and base.json (docs/schema)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="only print the table of rules")
    args = parser.parse_args()
    unknown = set(args.only) - {rule.name for rule in [*RULES, SCHEMA_RULE]}
    if unknown:
        parser.error(f"no such rule: {', '.join(sorted(unknown))}; --list has them")
    if not args.url and not args.list:
        parser.error("URL is missing")
    return args


def main():
    args = parse_arguments()
    if args.list:
        for rule in [*RULES, SCHEMA_RULE]:
            print(f"{rule.level:4}  {rule.name:40} {rule.says} [{rule.section}]")
        return 0
    target = Target(args.url, args.model, Schema(args.schema, args.level), args.timeout, args.eos)
    try:
        results = asyncio.run(run(target, args.level, args.only))
    except (lmtp.LMTPError, Broken) as e:
        print(f"conformance: {e}", file=sys.stderr)
        return 2
    if args.junit:
        write_junit(args.junit, results, args.level)
    counts = collections.Counter(r.status for r in results)
    print(", ".join(f"{counts[s]} {s}" for s in ("pass", "FAIL", "known", "skip")), end="; ")
    print(f"{target.num_messages} messages by the schema of level {args.level}")
    return int(counts["FAIL"] > 0)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Plants faults in a copy of the tree, one at a time, and says after how many seeds the simulation
(tools/simulate) finds each, and by what: docs/simulation.md has the table.

    tools/dev/simulate_faults.py                      all, three minutes of a processor each
    tools/dev/simulate_faults.py --minutes 1 late-rows
    tools/dev/simulate_faults.py --list

A fault is an edit of one place. Twelve and more take back a mend of this repository, whose commit
is named; the others are of kinds that a server like this has. An edit whose place is not there any
more is an error: the fault is to be planted anew, or left out.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "simulate-faults"

Fault = collections.namedtuple("Fault", "name of file old new")

FAULTS = [
    Fault("late-rows", "3a441930", "src/server/lmtp/events.cpp",
          "event.error.code == ErrorCode::kOverloaded && rows.begun",
          "false && rows.begun"),
    Fault("clock-of-shares", "1bf8d824", "src/scheduler/fair_shares.cpp",
          "  clock_ += num_unclocked_ / num_clients;\n", ""),
    Fault("drop-names", "f6b395af", "src/scheduler/edits.cpp",
          "std::max(0, sequence.num_prompt + sequence.num_emitted - length)", "num_dropped"),
    Fault("fork-prompt", "f6b395af", "src/scheduler/edits.cpp",
          ".num_prompt = sequence->num_prompt,",
          ".num_prompt = sequence->num_prompt + parent.num_backtracked,"),
    Fault("waits-after-stop", "0ab8ada6", "src/registry/registry_actor.cpp",
          "    slot->waiting.end_all(error, false);\n    slot->count_waiting();\n",
          "    slot->waiting.end_all(error, false);\n"),
    Fault("uncounted-refusals", "603479c9", "src/registry/waiting_requests.cpp",
          "  refusals.add(request, error.code);\n  send_end", "  (void)refusals;\n  send_end"),
    Fault("lost-device", "d478b3fa", "src/engine/engine.cpp",
          "return fail_all(\n          {ErrorCode::kDeviceLost,",
          "return (void)Error(\n          {ErrorCode::kDeviceLost,"),
    Fault("late-cancels", "c12db50c", "src/registry/registry_actor.cpp",
          "    slot->late_cancels.push_back(key);\n", ""),
    Fault("lost-ends", "e6605fb8", "src/engine/outbox.cpp",
          "  if (!failed_.empty()) keep_lost_ends();\n", ""),
    Fault("adapters-prefixes", "26f7f62f", "src/cache/sequence_blocks.cpp",
          "at == 0 ? PrefixCache::root(name_space)", "at == 0 ? PrefixCache::root(0)"),
    Fault("adapters-after-failure", "6b538d04", "src/scheduler/commit.cpp",
          "  adapters_.free_all();\n", ""),
    Fault("host-after-failure", "da4366c3", "src/scheduler/commit.cpp",
          "  if (prefix_cache_.host().num_total() > 0) prefix_cache_.clear();\n", ""),
    Fault("restart-after-failure", "28cfbf9f", "src/scheduler/commit.cpp",
          "  while (!running_.empty()) requeue(*running_.back());\n", ""),
    Fault("refused-command", "6c8a8973", "src/engine/engine_commands.cpp",
          "request != nullptr && request->sink != nullptr &&", "false && request != nullptr &&"),
    Fault("text-of-fork", "decee7a8", "src/server/lmtp/events.cpp",
          "      if (text) text->backtrack("
          "static_cast<std::size_t>(event.num_backtracked));\n", ""),
    Fault("leaked-block", "", "src/cache/sequence_blocks.cpp",
          "for (; ids_.size() > had; ids_.pop_back()) cache.pool().unpin(ids_.back(), false);",
          "ids_.resize(had);"),
    Fault("lost-wakeup", "", "src/scheduler/commit.cpp", "  line_.forget_refusal();\n", ""),
    Fault("lost-buffers", "", "src/server/lmtp/dispatch_operations.cpp",
          "  answer(entry, answers);\n  resume_deferred(id, peer, answers);\n",
          "  answer(entry, answers);\n"),
    Fault("double-end", "", "src/engine/engine_commands.cpp",
          "  scheduler->remove(cancel.key);\n  end_with_error(stream, cancel.reason);\n",
          "  scheduler->remove(cancel.key);\n"
          "  queue_error(cancel.key, stream->second.sink, cancel.reason);\n"
          "  end_with_error(stream, cancel.reason);\n"),
    Fault("end-in-a-plan", "", "src/scheduler/commit.cpp",
          "  release(sequence);\n  steps_.discard_planned_row(sequence);\n",
          "  release(sequence);\n"),
    Fault("edit-beside-preemption", "", "src/scheduler/scheduler.cpp",
          "if (!steps_.is_under_way() || sequence.admission_step != steps_.number()) {", "{"),
    Fault("retry-offset", "", "src/server/lmtp/operations.cpp",
          "sample.text.emplace(model, prompt, num_resumed, request.params,",
          "sample.text.emplace(model, prompt, 0, request.params,"),
    Fault("unfair-queue", "", "src/scheduler/waiting_line.cpp",
          "std::priority_queue<Turn, std::vector<Turn>, std::greater<>>",
          "std::priority_queue<Turn, std::vector<Turn>, std::less<>>"),
    Fault("late-notices", "", "src/server/lmtp/events.cpp",
          "    if (!notices_.empty()) protocol::serialize_notices(notices_, "
          "messages.emplace_back());\n"
          "    if (!entries_.empty()) protocol::serialize_tokens(entries_, "
          "messages.emplace_back());\n",
          "    if (!entries_.empty()) protocol::serialize_tokens(entries_, "
          "messages.emplace_back());\n"
          "    if (!notices_.empty()) protocol::serialize_notices(notices_, "
          "messages.emplace_back());\n"),
    Fault("timeouts-after-first", "", "src/server/lmtp/events.cpp",
          "    peer_.streams.met_first(id, stream);\n", ""),
]

# What a failing seed says -> the oracle that has found it. The first that fits.
ORACLES = [
    ("notices", r"notice|accepted|resumed|queued|preempted|draining|loading goes"),
    ("text", r"text is wrong|text: is wrong"),
    ("accounts", r"is idle and has|are left|are counted|clients are counted"),
    ("time", r"does not end|nothing comes|left behind|was cancelled|beyond its timeout|circles"
             r"|every thread waits|neither done nor refused|did not end|signal 24"),
    ("errors", r"nothing has caused|error of no"),
    ("edits", r"edit|is gone|appended|fork"),
    ("agent", r"cache does not hold|adapter was overwritten"),
    ("tokens", r"token is wrong|log probability|candidate|not what is scored"),
    ("ends", r"ended|end is not|more tokens than|no such|index|no stream"),
    ("checks", r"check failed|signal"),
]


def oracle_of(text):
    for name, pattern in ORACLES:
        if re.search(pattern, text):
            return name
    return "other"


def run(*command, **more):
    return subprocess.run(command, cwd=TREE, check=True, **more)


def build():
    run("cmake", "--build", "build/dev", "--target", "simulate", stdout=subprocess.DEVNULL)


def make_tree():
    if not TREE.exists():
        subprocess.run(["git", "worktree", "add", "--detach", TREE], cwd=ROOT, check=True)
    run("git", "checkout", "--detach", "--force", subprocess.check_output(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip())
    run("cmake", "--preset", "dev", stdout=subprocess.DEVNULL)


def simulate(seed, minutes):
    """The lines of each seed: {seed: what it said}, and how many ran."""
    done = subprocess.run(
        ["build/dev/tests/simulate", "--seed", str(seed), "--minutes", str(minutes), "--no-shrink",
         "--keep-going"], cwd=TREE, text=True, capture_output=True)
    num_run = done.stdout.count("seed ")
    failures, said = {}, []
    for line in done.stderr.splitlines():
        found = re.fullmatch(r"replay: .*--seed (\d+).*", line)
        if not found:
            said.append(line)
            continue
        failures[int(found[1])] = "\n".join(said)
        said = []
    return failures, num_run + len(failures)


def plant(fault, minutes, seed):
    path = TREE / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        sys.exit(f"{fault.name}: its place in {fault.file} is there {text.count(fault.old)} times")
    path.write_text(text.replace(fault.old, fault.new))
    try:
        build()
        failures, num_run = simulate(seed, minutes)
    finally:
        path.write_text(text)
    oracles = collections.Counter(oracle_of(said) for said in failures.values())
    first = min(failures) - seed + 1 if failures else None
    names = " ".join(f"{name} {count}" for name, count in oracles.most_common())
    print(f"| {fault.name} | {fault.of or 'planted'} | {first or 'not found'} | "
          f"{len(failures)} of {num_run} | {names} |", flush=True)
    if failures and os.environ.get("VERBOSE"):
        print(failures[min(failures)][:600], flush=True)
    return oracles


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    faults = [one for one in FAULTS if not arguments.names or one.name in arguments.names]
    if arguments.list:
        for fault in faults:
            print(f"{fault.name:24} {fault.of or 'planted':9} {fault.file}")
        return 0
    make_tree()
    print("| fault | takes back | first seed | seeds that find it | by |\n|---|---|---|---|---|")
    found = {fault.name: plant(fault, arguments.minutes, arguments.seed) for fault in faults}
    for oracle in sorted({name for oracles in found.values() for name in oracles}):
        missed = [name for name, oracles in found.items() if set(oracles) == {oracle}]
        print(f"without '{oracle}' missed: {', '.join(missed) or 'none'}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

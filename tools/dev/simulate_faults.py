#!/usr/bin/env python3
"""Plants faults in a copy of the tree and says after how many seeds the simulation (tools/simulate)
finds each, and by what: docs/simulation.md has the table.

    tools/dev/simulate_faults.py                      all, a minute of a processor each
    tools/dev/simulate_faults.py --minutes 3 late-rows
    tools/dev/simulate_faults.py --list

A fault is an edit of one place, which one build has beside all others: LMTP_FAULT=NAME in the
environment of the program is where PLANTED is true. Twelve and more take back a mend of this
repository, whose commit is named; the others are of kinds that a server like this has. An edit
whose place is not there any more is an error: the fault is to be planted anew, or left out.
"""

import argparse
import collections
import os
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "simulate-faults"
SEEDS_AT_ONCE = 10

Fault = collections.namedtuple("Fault", "name of file old new")

FAULTS = [
    Fault("late-rows", "3a441930", "src/server/lmtp/events.cpp",
          "event.error.code == ErrorCode::kOverloaded && rows.begun",
          "!PLANTED && event.error.code == ErrorCode::kOverloaded && rows.begun"),
    Fault("clock-of-shares", "1bf8d824", "src/scheduler/fair_shares.cpp",
          "  clock_ += num_unclocked_ / num_clients;",
          "  if (!PLANTED) clock_ += num_unclocked_ / num_clients;"),
    Fault("drop-names", "f6b395af", "src/scheduler/edits.cpp",
          "std::max(0, sequence.num_prompt + sequence.num_emitted - length)",
          "PLANTED ? num_dropped\n"
          "      : std::max(0, sequence.num_prompt + sequence.num_emitted - length)"),
    Fault("fork-prompt", "f6b395af", "src/scheduler/edits.cpp",
          ".num_prompt = sequence->num_prompt,",
          ".num_prompt = sequence->num_prompt + (PLANTED ? parent.num_backtracked : 0),"),
    Fault("waits-after-stop", "0ab8ada6", "src/registry/registry_actor.cpp",
          "    slot->waiting.end_all(error, false);\n    slot->count_waiting();\n",
          "    slot->waiting.end_all(error, false);\n    if (!PLANTED) slot->count_waiting();\n"),
    Fault("uncounted-refusals", "603479c9", "src/registry/waiting_requests.cpp",
          "  refusals_.add(*found, ErrorCode::kCancelled);",
          "  if (!PLANTED) refusals_.add(*found, ErrorCode::kCancelled);"),
    Fault("lost-device", "d478b3fa", "src/engine/engine.cpp",
          "return fail_all(device_lost());",
          "if (PLANTED) return;\n      return fail_all(device_lost());"),
    Fault("late-cancels", "c12db50c", "src/registry/registry_actor.cpp",
          "    slot->late_cancels.push_back(key);",
          "    if (!PLANTED) slot->late_cancels.push_back(key);"),
    Fault("half-taken", "4c26476c", "src/request/event.cpp",
          "  to.insert(to.end(), std::make_move_iterator(events.begin()),",
          "  for (StreamEvent& event : events) {\n"
          "    if (PLANTED) to.push_back(std::move(event));\n"
          "  }\n"
          "  if (PLANTED) return;\n"
          "  to.insert(to.end(), std::make_move_iterator(events.begin()),"),
    Fault("lost-ends", "e6605fb8", "src/engine/outbox.cpp",
          "  if (!failed_.empty()) keep_lost_ends();",
          "  if (!PLANTED && !failed_.empty()) keep_lost_ends();"),
    Fault("adapters-prefixes", "26f7f62f", "src/cache/sequence_blocks.cpp",
          "at == 0 ? PrefixCache::root(name_space)",
          "at == 0 ? PrefixCache::root(PLANTED ? 0 : name_space)"),
    Fault("adapters-after-failure", "6b538d04", "src/scheduler/commit.cpp",
          "  adapters_.free_all();", "  if (!PLANTED) adapters_.free_all();"),
    Fault("host-after-failure", "da4366c3", "src/scheduler/commit.cpp",
          "  if (prefix_cache_.host().num_total() > 0) prefix_cache_.clear();",
          "  if (!PLANTED && prefix_cache_.host().num_total() > 0) prefix_cache_.clear();"),
    Fault("restart-after-failure", "28cfbf9f", "src/scheduler/commit.cpp",
          "  while (!running_.empty()) requeue(*running_.back());",
          "  while (!PLANTED && !running_.empty()) requeue(*running_.back());"),
    Fault("refused-command", "6c8a8973", "src/engine/engine_commands.cpp",
          "request != nullptr && request->sink != nullptr &&",
          "!PLANTED && request != nullptr && request->sink != nullptr &&"),
    Fault("text-of-fork", "decee7a8", "src/server/lmtp/events.cpp",
          "      if (text) text->backtrack(static_cast<std::size_t>(event.num_backtracked));",
          "      if (text && !PLANTED) {\n"
          "        text->backtrack(static_cast<std::size_t>(event.num_backtracked));\n"
          "      }"),
    Fault("closes-without-memory", "1829c049", "src/engine/engine.cpp",
          "        guarded_twice([&] { refuse(*request, comes_back ? device_lost() : "
          "shutting_down()); });",
          "        if (PLANTED) {\n"
          "          refuse(*request, comes_back ? device_lost() : shutting_down());\n"
          "          continue;\n"
          "        }\n"
          "        guarded_twice([&] { refuse(*request, comes_back ? device_lost() : "
          "shutting_down()); });"),
    Fault("ends-by-choice", "f66fac2d", "src/engine/engine.cpp",
          "if (!finished()) take_commands();", "if (PLANTED || !finished()) take_commands();"),
    Fault("look-ups-after-stop", "fa256858", "src/registry/registry.cpp",
          "  if (!impl_->lookups.closed()) return false;",
          "  if (PLANTED || !impl_->lookups.closed()) return false;"),
    Fault("lost-refusals", "fa256858", "src/engine/outbox.cpp",
          "          std::holds_alternative<EditRefused>(event)) {",
          "          (!PLANTED && std::holds_alternative<EditRefused>(event))) {"),
    Fault("forced-without-memory", "d6cdf65a", "src/engine/steps_in_flight.cpp",
          "  while (!done && !empty()) {", "  while (!PLANTED && !done && !empty()) {"),
    Fault("leaked-block", "", "src/cache/sequence_blocks.cpp",
          "for (; ids_.size() > had; ids_.pop_back()) cache",
          "if (PLANTED) ids_.resize(had);\n"
          "      for (; ids_.size() > had; ids_.pop_back()) cache"),
    Fault("lost-wakeup", "", "src/scheduler/commit.cpp", "  line_.forget_refusal();",
          "  if (!PLANTED) line_.forget_refusal();"),
    Fault("lost-buffers", "", "src/server/lmtp/dispatch_operations.cpp",
          "  answer(entry, answers);\n  resume_deferred(id, peer, answers);",
          "  answer(entry, answers);\n  if (!PLANTED) resume_deferred(id, peer, answers);"),
    Fault("double-end", "", "src/engine/engine_commands.cpp",
          "  scheduler->remove(cancel.key);\n  end_with_error(stream, cancel.reason);",
          "  scheduler->remove(cancel.key);\n"
          "  if (PLANTED) queue_error(cancel.key, stream->second.sink, cancel.reason);\n"
          "  end_with_error(stream, cancel.reason);"),
    Fault("end-in-a-plan", "", "src/scheduler/commit.cpp",
          "  release(sequence);\n  steps_.discard_planned_row(sequence);",
          "  release(sequence);\n  if (!PLANTED) steps_.discard_planned_row(sequence);"),
    Fault("edit-beside-preemption", "", "src/scheduler/edits.cpp",
          "  sequence.score_place = {};\n",
          "  if (PLANTED && sequence.is_preempted) sequence.num_backtracked = 0;\n"
          "  sequence.score_place = {};\n"),
    Fault("retry-offset", "", "src/server/lmtp/operations.cpp",
          "sample.text.emplace(model, prompt, num_resumed, request.params,",
          "sample.text.emplace(model, prompt, PLANTED ? 0 : num_resumed, request.params,"),
    Fault("unfair-queue", "", "src/scheduler/waiting_line.cpp",
          "using Turns = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;",
          "struct Later {\n"
          "  bool operator()(const Turn& a, const Turn& b) const {\n"
          "    return PLANTED ? a < b : std::greater<>()(a, b);\n"
          "  }\n"
          "};\n"
          "using Turns = std::priority_queue<Turn, std::vector<Turn>, Later>;"),
    Fault("late-notices", "", "src/server/lmtp/events.cpp",
          "    if (!notices_.empty()) protocol::serialize_notices(notices_, "
          "messages.emplace_back());\n",
          "    static std::map<const Peer*, std::vector<NoticeEntry>> late;\n"
          "    if (PLANTED) notices_.swap(late[&peer_]);\n"
          "    if (!notices_.empty()) protocol::serialize_notices(notices_, "
          "messages.emplace_back());\n"),
    Fault("timeouts-after-first", "", "src/server/lmtp/events.cpp",
          "    peer_.streams.met_first(id, stream);",
          "    if (!PLANTED) peer_.streams.met_first(id, stream);"),
]

# What PLANTED asks. Several files may be one for the compiler.
PLANTED = """#ifndef LMTP_PLANTED
#define LMTP_PLANTED
#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>
inline bool lmtp_planted(std::string_view name) {
  static const char* const on = std::getenv("LMTP_FAULT");
  return on != nullptr && name == on;
}
#endif
"""

# What a failing seed says -> the oracle that has found it. The first that fits.
ORACLES = [
    ("agent", r"fake_agent\.h|cache does not hold|adapter was overwritten"),
    ("checks", r"check failed|signal (?!24)"),
    ("time", r"cancelled long ago"),
    ("notices", r"notice|accepted|resumed|queued|preempted|draining|loading goes"),
    ("text", r"text is wrong|text: is wrong"),
    ("accounts", r"is idle and has|are left|are counted|clients are counted"),
    ("time", r"does not end|nothing comes|left behind|was cancelled|beyond its timeout|circles"
             r"|every thread waits|neither done nor refused|did not end|signal 24"),
    ("errors", r"nothing has caused|error of no"),
    ("edits", r"edit|is gone|appended|fork"),
    ("tokens", r"token is wrong|log probability|candidate|not what is scored"),
    ("ends", r"ended|end is not|more tokens than|no such|index|no stream"),
]


def oracle_of(text):
    # What a line of the log, or the list of features, says beside it tells nothing.
    text = "\n".join(line.split(": {")[0] for line in text.splitlines() if line[:5] != "with:")
    for name, pattern in ORACLES:
        if re.search(pattern, text):
            return name
    return "other"


def plant(tree, faults):
    """All of them, each behind its name."""
    for file in sorted({fault.file for fault in faults}):
        text = (tree / file).read_text()
        for fault in faults:
            if fault.file != file:
                continue
            if text.count(fault.old) != 1:
                sys.exit(f"{fault.name}: {file} has its place {text.count(fault.old)} times")
            text = text.replace(fault.old,
                                fault.new.replace("PLANTED", f'lmtp_planted("{fault.name}")'))
        (tree / file).write_text(PLANTED + text)


def build():
    if not TREE.exists():
        subprocess.run(["git", "worktree", "add", "--detach", TREE], cwd=ROOT, check=True)
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    subprocess.run(["git", "checkout", "-q", "--detach", "--force", head], cwd=TREE, check=True)
    plant(TREE, FAULTS)
    subprocess.run(["cmake", "--preset", "dev"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build/dev", "--target", "simulate"], cwd=TREE, check=True,
                   stdout=sys.stderr)
    return TREE / "build/dev/tests/simulate"


def processor_seconds():
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def simulate(program, name, bounds):
    """{seed: what it said} of those that fail, {seed: its operations} of the others."""
    failures, operations, seed = {}, {}, bounds.seed
    due = processor_seconds() + 60 * bounds.minutes
    while len(failures) < bounds.failures and processor_seconds() < due:
        done = subprocess.run([program, "--seed", str(seed), "--seeds", str(SEEDS_AT_ONCE),
                               "--no-shrink", "--keep-going"], text=True, capture_output=True,
                              env={**os.environ, "LMTP_FAULT": name})
        seed += SEEDS_AT_ONCE
        for found in re.finditer(r"^seed (\d+): (\d+) operations", done.stdout, re.MULTILINE):
            operations[int(found[1])] = int(found[2])
        said = []
        for line in done.stderr.splitlines():
            found = re.fullmatch(r"replay: .*--seed (\d+).*", line)
            if not found:
                said.append(line)
                continue
            failures[int(found[1])] = "\n".join(said)
            said = []
    return failures, operations


# What `simulate --without` may leave out: the others are parts of the program.
SWITCHES = ("accounts", "agent", "checks", "edits", "ends", "errors", "notices", "text", "time",
            "tokens")


def needed_oracles(program, name, failures):
    """Those without which none of these seeds fails."""
    by = {seed: oracle_of(said) for seed, said in failures.items()}
    if len(set(by.values())) != 1 or not set(by.values()) <= set(SWITCHES):
        return []
    oracle = next(iter(by.values()))
    for seed in by:
        done = subprocess.run([program, "--seed", str(seed), "--no-shrink", "--without", oracle],
                              capture_output=True, env={**os.environ, "LMTP_FAULT": name})
        if done.returncode != 0:
            return []
    return [oracle]


def look_for(program, fault, bounds):
    failures, operations = simulate(program, fault.name, bounds)
    oracles = collections.Counter(oracle_of(said) for said in failures.values())
    first = min(failures, default=None)
    before = sum(count for of, count in operations.items() if first is None or of < first)
    after = "not found" if first is None else str(first - bounds.seed + 1)
    names = ", ".join(f"{name} {count}" for name, count in oracles.most_common())
    print(f"| {fault.name} | {fault.of or 'planted'} | {after} | {before} | "
          f"{len(failures)} of {len(failures) + len(operations)} | {names} |", flush=True)
    if failures and bounds.verbose:
        print("\n".join(f"{seed}: {said[:400]}" for seed, said in failures.items()), flush=True)
    needed = needed_oracles(program, fault.name, failures) if bounds.without else []
    return oracles, needed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--minutes", type=float, default=1.0, help="of the processor, a fault")
    parser.add_argument("--failures", type=int, default=10, help="seeds that fail are enough")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--without", action="store_true",
                        help="also without the oracle that has found it: whether another one does")
    parser.add_argument("--verbose", action="store_true", help="what each of these seeds says")
    parser.add_argument("--program", type=pathlib.Path, help="that has been built with the faults")
    arguments = parser.parse_args()
    faults = [one for one in FAULTS if not arguments.names or one.name in arguments.names]
    if arguments.list:
        for fault in faults:
            print(f"{fault.name:24} {fault.of or 'planted':9} {fault.file}")
        return 0
    program = arguments.program or build()
    print("| fault | takes back | seeds | operations before | seeds that fail | by |\n"
          "|---|---|---|---|---|---|")
    found = {fault.name: look_for(program, fault, arguments) for fault in faults}
    for oracle in sorted({name for oracles, _ in found.values() for name in oracles}):
        alone = [name for name, (oracles, _) in found.items() if set(oracles) == {oracle}]
        print(f"found by '{oracle}' first: {', '.join(alone) or 'none'}")
        missed = [name for name, (_, needed) in found.items() if oracle in needed]
        if arguments.without:
            print(f"missed without '{oracle}': {', '.join(missed) or 'none'}")
    return 0 if all(oracles for oracles, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

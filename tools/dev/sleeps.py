"""Finds tests that sleep, for tidy.py: how long is enough depends on what the machine does.

A test holds steps by StepGate (tests/support/step_gate.h), waits by eventually(), and gives times
where a class takes them.
"""

import re

SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(")
STEP_TIME = re.compile(r"\bstep_time\b")

# Who sleeps and may; each says why.
ALLOWED = {
    "tests/engine/engine_test.cpp": "steps whose time is measured and bounds the next ones",
    "tests/engine/masks_test.cpp": "masks that take so long that steps wait for them",
    "tests/server/fairness_test.cpp": "steps whose time is measured and bounds the next ones",
    "tests/aici/embedded_test.cpp": "lets something be asked again, in vain: it passes without",
    "tests/aici/player.h": "a client that pauses",
    "tests/client/retrying_client_test.cpp": "uses up a timeout, of which less is left then",
    "tests/kernels/worker_pool_test.cpp": "lets workers fall asleep: it passes where they do not",
    "tests/model/rank_group_test.cpp": "ranks that are late, which others wait for",
    "tests/registry/model_stress_test.cpp": "a pause between requests",
    "tests/server/hostile_test.cpp": "lets a stop or a timeout go by: it passes where that is late",
}


def findings(path, stripped):
    """(line, message) in the C++ file at `path`; comments and strings of `stripped` are blank."""
    if not path.startswith("tests/") or path.startswith("tests/support/"):
        return
    has_sleep = False
    for number, line in enumerate(stripped.splitlines(), 1):
        if SLEEP.search(line):
            has_sleep = True
            if path not in ALLOWED:
                yield number, "tests do not sleep: StepGate holds steps, eventually() waits"
        # AICI's runtimes have an option of that name.
        if STEP_TIME.search(line) and not path.startswith("tests/aici/"):
            yield number, "steps do not take a time of their own in tests: StepGate holds them"
    if path in ALLOWED and not has_sleep:
        yield 1, "does not sleep any more: take it off ALLOWED in tools/dev/sleeps.py"

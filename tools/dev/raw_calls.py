"""Finds clocks, threads, waits and random bits past the seam, for tidy.py: a simulation
(tests/simulation) has none of what is called so. lmtp/base/runtime.h is the seam.
"""

import re

RAW = re.compile(
    r"\bsteady_clock\b|\bsystem_clock\b|\bhigh_resolution_clock\b|\bsteady_timer\b"
    r"|\bstd::(?:jthread|async|promise|future|condition_variable|condition_variable_any"
    r"|random_device)\b|\bstd::thread\b(?!::hardware_concurrency)|\bthis_thread::sleep_\w+")

# What the seam is made of.
SEAM = "include/lmtp/base/runtime.h"

# Folders and files that are not converted yet; the list is to shrink.
NOT_CONVERTED = (
    "include/lmtp/client/", "include/lmtp/model/",
    "include/lmtp/trace/", "src/agent/", "src/aici/", "src/balance/", "src/client/",
    "src/hub/", "src/libtorch/", "src/model/", "src/server/generation/fresh.cpp",
    "src/server/http/", "src/server/lmtp/session", "src/server/lmtp/web_socket_session.h",
    "src/server/net/listener",
    "src/server/tgi/", "src/text/", "src/trace/", "src/wasm/")


def findings(path, stripped):
    """(line, message) in the C++ file at `path`; comments and strings of `stripped` are blank."""
    if not path.startswith(("include/", "src/")) or path.startswith((SEAM, *NOT_CONVERTED)):
        return
    for number, line in enumerate(stripped.splitlines(), 1):
        if RAW.search(line):
            yield number, "a simulation does not reach it: use what lmtp/base/runtime.h has"

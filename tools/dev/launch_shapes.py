"""Finds what nvcc 13.0 gets wrong, for tidy.py: where a template names some members of an aggregate
and leaves one out between them, those behind it are given to the next in order, without a warning.
"""

import re

# In the order of kernels/device_types.h.
ORDERS = (("x", "y", "z"), ("grid", "num_threads", "shared_bytes", "cluster", "overlaps"))


def named_members(stripped, at):
    """Those that the braces at `at` name, not those of braces within."""
    depth = 0
    for match in re.compile(r"[{}]|\.(\w+) = ").finditer(stripped, at):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return
        elif depth == 1:
            yield match[1]


def findings(stripped):
    """(line, message) of CUDA's text, with comments and strings blanked."""
    for match in re.finditer(r"\{(?=\s*\.)", stripped):
        names = list(named_members(stripped, match.start()))
        for order in ORDERS:
            if names and set(names) <= set(order):
                first, last = order.index(names[0]), order.index(names[-1])
                missing = set(order[first:last]) - set(names)
                if missing:
                    yield (stripped.count("\n", 0, match.start()) + 1,
                           f"nvcc mixes up members in templates: name {', '.join(missing)} too")

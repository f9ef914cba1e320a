"""What a server keeps from one round of the same load to the next."""

import statistics

GROWTH_MAX = 0.05  # of the memory after the warm rounds
WARM_ROUNDS = 2
SMALL_BYTES = 128 << 20


def memory_growth(rounds):
    """From the last warm round and the first third of those behind it to the last third, by their
    medians, as a fraction: a leak grows, and what slow readers have not taken yet at the end of a
    round is chance. A server of a small model counts as SMALL_BYTES: what an allocator keeps does
    not shrink with the model."""
    sizes = [r["rss"] for r in rounds[WARM_ROUNDS - 1 :]] or [rounds[-1]["rss"]]
    third = max(1, len(sizes) // 3)
    before, behind = statistics.median(sizes[:third]), statistics.median(sizes[-third:])
    return (behind - before) / max(before, SMALL_BYTES)

"""What a server keeps from one round of the same load to the next."""

GROWTH_MAX = 0.05  # of the memory after the warm rounds
WARM_ROUNDS = 2
SMALL_BYTES = 128 << 20


def memory_growth(rounds):
    """Of the highest round after the warm ones over the last warm one, as a fraction. A server of a
    small model counts as SMALL_BYTES: what an allocator keeps does not shrink with the model."""
    warm = rounds[min(WARM_ROUNDS, len(rounds)) - 1]["rss"]
    highest = max([r["rss"] for r in rounds[WARM_ROUNDS:]], default=warm)
    return (highest - warm) / max(warm, SMALL_BYTES)

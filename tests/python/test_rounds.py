"""tools/benchmarks/rounds.py: whether memory is flat."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "benchmarks"))

from rounds import GROWTH_MAX, SMALL_BYTES, memory_growth  # noqa: E402

MIB = 1 << 20


def rounds(*megabytes):
    return [{"rss": size * MIB} for size in megabytes]


def test_a_leak_grows():
    assert memory_growth(rounds(*range(200, 240))) > GROWTH_MAX
    assert memory_growth(rounds(200, 200, 200, 220)) > GROWTH_MAX
    assert memory_growth(rounds(200, 210, 232)) > GROWTH_MAX


def test_what_comes_and_goes_does_not():
    assert memory_growth(rounds(200, 200, 230, 200, 190, 230, 201, 199, 231)) < GROWTH_MAX


def test_warm_rounds_may_grow():
    assert memory_growth(rounds(50, 300, 300, 300)) == 0
    assert memory_growth(rounds(50)) == memory_growth(rounds(50, 300)) == 0


def test_a_small_server_counts_as_a_larger_one():
    assert memory_growth(rounds(40, 40, 46)) == 6 * MIB / SMALL_BYTES

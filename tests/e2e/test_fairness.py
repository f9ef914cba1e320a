"""tools/benchmarks/fairness.py for seconds: what it counts, and that answers are right."""

import asyncio

import fairness
import pytest
from streams import Visit


def test_quick_measures_each_load():
    options = fairness.parse_arguments(["--quick"])
    figures, missing = fairness.measure(options, fairness.QUICK)
    assert missing == []
    assert [f.load.partition(" ")[0].strip(",") for f in figures] == (
        ["storm"] * 5 + ["crowd"] * 8 + ["chunks"] * 6
    )
    assert sum(f.goal is not None for f in figures) == 4
    assert all(f.values and len(f.row()) == len(fairness.HEAD) for f in figures)


def test_other_tokens_are_found():
    options = fairness.parse_arguments(["--quick"])
    with fairness.serve(options) as (endpoint, work, _):
        visit = Visit(fairness.requests(work, 1, 8, 8))
        asyncio.run(visit.connect(endpoint))
        fairness.check(endpoint, work, [visit])
        visit.requests[0]["prompt"] = work.ids(8)
        with pytest.raises(fairness.WrongTokens):
            fairness.check(endpoint, work, [visit])


def visit_of(start, times):
    visit = Visit([{}])
    visit.start = start
    visit.messages = [(at, 'TOKEN [{"stream_id": 0, "token": 1}]') for at in times]
    return visit


def test_who_passed_a_chunk_is_counted():
    """Steps end at each whole second, what they give arrives within a tenth."""
    newcomers = fairness.Clients("", 0, None)
    newcomers.visits = [
        visit_of(0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        visit_of(0, [2.1, 3.0]),  # in the step of the chunk's end
        visit_of(0, [3.1, 4.0]),  # while nothing had come
        visit_of(0, [4.1, 5.0]),  # in the step that is under way when the next chunk comes
        visit_of(0, [5.1, 6.0]),  # let in after that
        visit_of(0, [7.1, 8.0]),  # with the chunk
        visit_of(0, []),
    ]
    chunks = [visit_of(0, [1.0, 2.0]), visit_of(3.5, [7.0, 8.0])]
    assert fairness.count_passed(chunks, newcomers) == [[3, 1]]


def test_a_step_is_the_mean_of_those_under_way():
    ends = [0.0, 1.0, 2.0, 4.0, 8.0]
    assert fairness.step_between(ends, 1.5, 1.9) == 1.0
    assert fairness.step_between(ends, 1.5, 3.0) == 1.5
    assert fairness.step_between(ends, 0.5, 4.0) == 4 / 3


def test_a_goal_is_met_by_a_share_of_the_values():
    def met(values):
        return fairness.Figure("", "", values, 3, fairness.ROUNDS_WANTED).row()[-2:]

    assert met([1, 2, 3, 3, 3, 4, 5]) == ("5 of 7", "yes")
    assert met([1, 2, 3, 3, 3.1, 4, 5]) == ("4 of 7", "no")

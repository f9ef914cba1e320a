"""tools/benchmarks/fairness.py for seconds: what it counts, and that answers are right."""

import asyncio

import fairness
import pytest
import traces
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


def request_of(track, connection, arrived, step):
    """Its events: what is before the first row is admitted with it."""
    common = {"pid": 2, "id": str(track)}
    return [
        {"name": "request", "ph": "b", "ts": 1e6 * arrived, "args": {"connection": connection}}
        | common,
        {"name": "prefill", "ph": "b", "ts": 1e6 * step, "args": {"step": step}} | common,
        {"name": "decode", "ph": "b", "ts": 1e6 * (step + 1), "args": {"step": step + 1}} | common,
    ]


def test_who_passed_a_chunk_is_counted():
    """Step n begins at second n."""
    steps = [{"name": "step", "ph": "X", "pid": 2, "ts": 1e6 * n, "args": {"step": n}}
             for n in range(10)]  # fmt: skip
    requests = [
        request_of(1, 1, 0.5, 1),
        request_of(2, 2, 0.6, 1),  # with the first chunk
        request_of(3, 3, 1.5, 2),  # while the program had nothing to compute
        request_of(4, 4, 1.6, 4),  # in the step that was under way when the next chunk came
        request_of(5, 1, 4.5, 6),
        request_of(6, 5, 3.0, 5),  # let in after that
        request_of(7, 6, 3.1, 6),  # with the chunk
        request_of(8, 7, 3.2, 8),
    ]
    events = steps + [event for one in requests for event in one]
    requests_of, begun = traces.of_events(events)
    assert traces.busiest_connection(requests_of) == 1
    assert traces.count_passed(1, requests_of, begun) == [(3, 1)]


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

"""Streams that survive a server that is killed. tools/benchmarks/kills.py does it more often."""

import kills


def test_streams_of_a_server_that_is_killed_equal_their_uninterrupted_runs():
    reports = []
    num_kills, num_cut, num_different = kills.run(5, num_streams=20, report=reports.append)
    assert num_kills == 5 and num_cut > 0, "a kill that meets no stream shows nothing"
    assert num_different == 0, reports

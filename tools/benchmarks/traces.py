"""When requests were let in, by the file of `lmtp-serve --trace` (docs/tracing.md)."""

import collections
import dataclasses
import itertools
import json


@dataclasses.dataclass
class Served:
    """A request, as the server's trace has it; times in seconds."""

    connection: int
    arrived: float
    step: int  # the first with a row of its


def of_events(events):
    """The requests that had a row, in the order of their arrival, and when each step began."""
    opened, first, begun = {}, {}, {}
    for event in events:
        arguments, track = event.get("args", {}), (event["pid"], event.get("id"))
        if event["name"] == "step":
            begun[arguments["step"]] = event["ts"] / 1e6
        elif event["name"] == "request" and event["ph"] == "b":
            opened[track] = (arguments["connection"], event["ts"] / 1e6)
        elif event["name"] in ("prefill", "decode") and track in opened and "step" in arguments:
            first.setdefault(track, arguments["step"])
    requests_of = [Served(*opened[track], step) for track, step in first.items()]
    return sorted(requests_of, key=lambda request: request.arrived), begun


def count_passed(connection, requests_of, begun):
    """For each request of the connection but the first (others that began since the step in which
    the one before it did, those of them that were let in after it had come)."""
    mine = [request for request in requests_of if request.connection == connection]
    others = [request for request in requests_of if request.connection != connection]
    return [(sum(before.step < other.step < chunk.step for other in others),
             sum(other.step < chunk.step and begun[other.step] > chunk.arrived
                 for other in others))
            for before, chunk in itertools.pairwise(mine)]  # fmt: skip


def busiest_connection(requests_of):
    counts = collections.Counter(request.connection for request in requests_of)
    return counts.most_common(1)[0][0]


def read(path):
    """of_events() of what a server that has ended wrote."""
    return of_events(json.loads(path.read_text(encoding="utf-8")))

"""tools/benchmarks/hostile, short: what is answered, what is kept and whether the server ends; no
times."""

import attacks
import hostile
import pytest
from servers import Certificate

PAIRS, RUNS = 2, 2


@pytest.fixture(scope="module", params=["plain", "tls"])
def outcome(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate = Certificate(folder) if request.param == "tls" else None
    with hostile.Victim("demo", certificate=certificate) as server:
        pairs, _ = hostile.hostile(server, PAIRS, RUNS)
    return server, pairs


def test_answers_are_right_and_nothing_is_kept(outcome):
    _, pairs = outcome
    assert hostile.faults(pairs) == []
    for attack in attacks.SHORT:
        assert sum(pair["counts"].get(attack.__name__, 0) for pair in pairs) > 0, pairs


def test_sigterm_ends_the_server_under_attack(outcome):
    server, _ = outcome
    assert server.exit_code == 0, server.log_tail

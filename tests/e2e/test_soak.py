"""tools/soak with few connections; under a sanitizer too, which finds what no table shows."""

import pytest
import soak
from lmtp_socket import uses_a_sanitizer
from servers import LmtpServe

CONNECTIONS, STREAMS, ROUNDS = 16, 4, 3


@pytest.fixture(scope="module")
def outcome():
    with LmtpServe("demo", "--kv-cache", "8MiB") as server:
        sanitized = uses_a_sanitizer(server)
        rounds = soak.soak(server, CONNECTIONS, STREAMS, ROUNDS)
    return server, rounds, sanitized


def test_everything_finishes_whole(outcome):
    server, rounds, _ = outcome
    assert len(rounds) == ROUNDS
    assert soak.all_whole(rounds, CONNECTIONS * STREAMS), rounds
    assert server.exit_code == 0, server.log_tail


def test_memory_is_flat(outcome):
    _, rounds, sanitized = outcome
    if sanitized:
        pytest.skip("a sanitizer keeps what is freed")
    assert soak.memory_growth(rounds) <= soak.GROWTH_MAX

"""tools/soak for seconds; under a sanitizer too, which finds what no table shows."""

import pytest
import soak
from lmtp_socket import uses_a_sanitizer
from rounds import memory_growth
from servers import LmtpServe

PLACES, STREAMS, ROUNDS, SECONDS, SEED = 16, 4, 3, 3, 7
# From one round of seconds to the next, what slow readers have not taken comes and goes by 12 MB.
SHORT_GROWTH_MAX = 0.4


@pytest.fixture(scope="module")
def programs():
    return soak.programs_alone("demo", SEED)


@pytest.fixture(scope="module")
def outcome(programs):
    with LmtpServe("demo", "--kv-cache", "8MiB") as server:
        sanitized = uses_a_sanitizer(server)
        rounds = soak.soak(server, programs, PLACES, STREAMS, ROUNDS, SECONDS, SEED)
    return server, rounds, sanitized


def test_each_stream_gets_what_it_gets_alone(outcome):
    server, rounds, _ = outcome
    assert len(rounds) == ROUNDS
    assert soak.all_right(rounds), rounds
    assert sum(r["left"] for r in rounds) > 0 and sum(r["attacks"] for r in rounds) > 0
    assert server.exit_code == 0, server.log_tail


def test_memory_is_flat(outcome):
    _, rounds, sanitized = outcome
    if sanitized:
        pytest.skip("a sanitizer keeps what is freed")
    assert memory_growth(rounds) <= SHORT_GROWTH_MAX


def test_other_bits_are_found(programs):
    """A stream that is compared with another one's tokens."""
    ordinary, slow = programs
    first, second = (next(p for p in ordinary[i:] if p[0][0].verb == "GENERATE") for i in (0, 40))
    first[0][0].alone, second[0][0].alone = second[0][0].alone, first[0][0].alone
    with LmtpServe("demo", "--kv-cache", "8MiB") as server:
        [found] = soak.soak(server, ([first, second], slow), 4, 2, 1, 1, SEED)
    assert found["wrong"] > 0 and not soak.all_right([found])

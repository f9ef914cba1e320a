"""Makes tools/benchmarks importable (servers.py starts lmtp-serve) and shares one demo server."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from servers import LmtpServe  # noqa: E402


@pytest.fixture(scope="module")
def demo():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--max-message-size", "1MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail

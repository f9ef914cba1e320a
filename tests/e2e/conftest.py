"""Makes tools/benchmarks importable (servers.py starts lmtp-serve), shares one demo server, one
whose streams do not end, and the fake hub, and tells the tests apart that need data from outside
the repository."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

from checkpoints import write_endless  # noqa: E402
from fake_hub import FakeHub  # noqa: E402
from hub_support import Machine  # noqa: E402
from servers import LmtpServe, bin_dir  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "test_data: needs the folder that LMTP_TEST_DATA names")


def pytest_collection_modifyitems(items):
    for item in items:
        if "test_data" in item.fixturenames:
            item.add_marker("test_data")


@pytest.fixture(scope="session")
def test_data():
    """The folder of larger test data. Who asks for it runs in a ctest entry of its own
    (lmtp_pytest's TEST_DATA), so that ctest says by name what was skipped."""
    folder = os.environ.get("LMTP_TEST_DATA")
    if not folder:
        pytest.skip("LMTP_TEST_DATA is not set")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def with_gloo():
    """Skips what needs gloo where the build is without libtorch."""
    if not (bin_dir().parent / "lib" / "lmtp" / "liblmtp_torch.so").exists():
        pytest.skip("built without libtorch: run tools/setup --torch")


@pytest.fixture(scope="module")
def demo():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--max-message-size", "1MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory):
    """The folder of a model whose streams go on until they are cancelled: for tests of what happens
    to a stream that runs."""
    return write_endless(tmp_path_factory.mktemp("models") / "endless")


@pytest.fixture(scope="module")
def endless(endless_model):
    with LmtpServe(endless_model, "--kv-cache", "64MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


@pytest.fixture
def hub():
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def machine(hub, tmp_path):
    return Machine(hub, tmp_path)

"""The installed server under a user who can read nothing of the installing one's home, as its
systemd unit runs it."""

import os
import urllib.request

import pytest
from installed import InstalledServe, installed

NOBODY = 65534


def test_another_user_can_run_it():
    if os.geteuid() != 0:
        pytest.skip("only root can start a program as another user")
    with installed() as prefix, InstalledServe(prefix, user=NOBODY) as server:
        assert os.stat(f"/proc/{server.process.pid}").st_uid == NOBODY
        with urllib.request.urlopen(f"http://{server.endpoint}/health") as answer:
            assert answer.status == 200
    assert server.exit_code == 0, server.log_tail

"""The pages of docs/how_to: their commands, as printed but for the port, one after another."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from servers import bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how_to").glob("*.md"))
TIMEOUT_S = 120


def blocks_of(page):
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, block) for language, block in found if language]


def port_of(server):
    """From the line that says that it is ready."""
    for line in server.stdout:
        if found := re.search(r" ready .*:(\d+)/$", line.strip()):
            return found[1]
    pytest.fail("the server has ended")


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_each_command_of_a_page_works(page, tmp_path):
    for name in ("models", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(bin_dir()), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    server, port = None, "8080"
    try:
        for language, block in blocks_of(page):
            if re.match(r"lmtp-serve (?!keygen)", block):
                command = ["bash", "-c", f"exec {block.strip()} --port 0"]
                server = subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env
                )
                port = port_of(server)
                continue
            block = block.replace("8080", port)
            command = [sys.executable, "-c"] if language == "python" else ["bash", "-ec"]
            done = subprocess.run(
                [*command, block],
                capture_output=True, text=True, cwd=tmp_path, env=env, timeout=TIMEOUT_S,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            if "http_code" in block:
                assert done.stdout.strip() == "401"
        assert server is not None, "it serves nothing"
    finally:
        if server is not None:
            server.send_signal(signal.SIGTERM)
            assert server.wait(TIMEOUT_S) == 0

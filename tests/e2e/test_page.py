"""The page at / says how to connect: what it says is done here."""

import asyncio
import html
import re
import shlex
import subprocess
import sys
import urllib.request

import pytest
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir

TIMEOUT_S = 120


def examples(server):
    """The texts of the page's examples."""
    with urllib.request.urlopen(f"http://{server.endpoint}/", timeout=TIMEOUT_S) as answer:
        page = answer.read().decode()
    return [html.unescape(text) for text in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)]


def test_lmql_does_what_the_page_says(demo):
    done = subprocess.run(
        [sys.executable, "-c", examples(demo)[0]],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 3, "the text behind the prompt"


def test_a_websocket_does_what_the_page_says(demo):
    async def run():
        async with Socket(demo.endpoint) as s:
            for line in examples(demo)[2].splitlines():
                await s.send_text(line)
            assert len((await s.finish(2))[0]) == 1
            _, info = await s.wait_for(lambda k, e: "model_info" in e)
            assert info["stream_id"] == 3
            _, last = await s.wait_for(
                lambda k, e: e["stream_id"] == 1 and (e.get("error") or e.get("finish_reason"))
            )
            assert last.get("error", "cancelled") == "cancelled"

    asyncio.run(run())


@pytest.mark.parametrize("model", ["demo", "auto"])
def test_the_client_does_what_the_page_says(model, tmp_path):
    with LmtpServe(model, "--kv-cache", "64MiB") as server:
        name, *arguments = shlex.split(examples(server)[1])
        done = subprocess.run(
            [bin_dir() / name, *arguments, "-p", "Once upon"],
            capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()

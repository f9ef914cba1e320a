"""lmtp-client NAME where NAME is on the hub: its tokenizer is fetched, and nothing else."""

import json
import signal
import subprocess

import pytest
from hub_support import BIN, NAME, TOKENIZER_FILES, add_demo, says, shown_at, wait_until

CLIENT = BIN / "lmtp-client"
TEXT = "Once upon a time"


@pytest.fixture
def hub(hub):
    return add_demo(hub)



def encode(machine, *args):
    done = machine.run(*args, "--encode", program=CLIENT, stdin=TEXT + "\n")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_the_tokenizer_is_fetched_once(hub, machine):
    ids = encode(machine, NAME)
    assert ids == encode(machine, "demo")
    snapshot = machine.repo(NAME) / "snapshots" / hub.repos[NAME].commit
    assert {p.name for p in snapshot.iterdir()} == {"config.json", *TOKENIZER_FILES}
    num_requests = len(hub.requests())
    assert encode(machine, NAME) == encode(machine, "anything", "--tokenizer", NAME) == ids
    assert len(hub.requests()) == num_requests


def test_an_unknown_name(hub, machine):
    done = machine.run("org/none", "-p", TEXT, program=CLIENT)
    assert (done.returncode, done.stdout) == (1, "")
    says(done.stderr, "lmtp-client: ", "no model 'org/none'", "check the name",
         "or give --tokenizer FOLDER")
    machine.hub = "http://hub.invalid"
    done = machine.run("org/none", "-p", TEXT, program=CLIENT)
    says(done.stderr, "'org/none' cannot be fetched", "cannot be reached", "check the network",
         "or give --tokenizer FOLDER")
    done = machine.run("org/none", "-p", TEXT, program=CLIENT, HF_HUB_OFFLINE="1")
    says(done.stderr, "nor in the local Hugging Face cache", "HF_HUB_OFFLINE")


def test_progress_is_for_terminals(hub, machine):
    hub.rule("vocab.json", method="GET", throttle=30_000)
    process, terminal = machine.start_at_terminal(NAME, "--encode", program=CLIENT)
    shown = shown_at(terminal)
    out = process.communicate()[0]
    assert (process.returncode, out) == (0, b"")
    says(shown.decode(), f"\rfetching {NAME} [", "] 0 %  asking the hub", " of 0.1 MB", " MB/s, ",
         " left")
    assert shown.endswith(b"\r\x1b[K"), "the line is taken away"


def test_ctrl_c_keeps_what_has_come(hub, machine):
    hub.rule("vocab.json", method="GET", throttle=10_000)
    process = machine.start(NAME, "--encode", program=CLIENT)
    etag = hub.repos[NAME].etag("vocab.json")
    wait_until(lambda: machine.partial_size(NAME, etag) > 2000, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == -signal.SIGINT
    encode(machine, NAME)
    assert hub.requests("vocab.json", "GET")[-1].headers["range"].startswith("bytes=")


def test_the_client_stays_small():
    libraries = subprocess.run(["ldd", CLIENT], capture_output=True, text=True, check=True).stdout
    assert "libcurl" in libraries and "torch" not in libraries

"""lmtp-serve doctor: what it finds, and its exit code."""

import json
import os
import shutil
import socket
import subprocess

from checkpoints import SMALL
from servers import bin_dir
from test_lifecycle import TIMEOUT_S

CHECKS = ["machine", "device", "cache", "model", "chat", "address", "dry run"]


def doctor(*arguments, **environment):
    """Its exit code, and what it says in order: (level, check, message)."""
    command = [bin_dir() / "lmtp-serve", "doctor", *arguments, "--log-format", "json"]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, [(f["level"], f["check"], f["message"]) for f in found]


def errors(found):
    return [(check, message) for level, check, message in found if level == "error"]


def test_all_is_well(tmp_path):
    code, found = doctor("demo", "--port", 0, HF_HUB_CACHE=str(tmp_path / "not yet"))
    assert code == 0 and errors(found) == [], found
    assert [check for _, check, _ in found if check != "cache"] == [
        check for check in CHECKS if check != "cache"
    ]
    assert "16 tokens of demo" in found[-1][2]
    assert not (tmp_path / "not yet").exists()


def test_text_is_for_people():
    command = [bin_dir() / "lmtp-serve", "doctor", "demo", "--port", "0"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    lines = text.splitlines()
    assert lines[0].split(": ")[:2] in (["ok", "machine"], ["warning", "machine"]), text
    assert lines[-1].startswith("ok: dry run: 16 tokens"), text


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, found = doctor("demo", "--port", other.getsockname()[1])
    assert code == 1
    ((check, message),) = errors(found)
    assert check == "address" and "another program listens there" in message
    assert found[-1][:2] == ("ok", "dry run")


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    cache = {"HF_HUB_CACHE": str(tmp_path / "file" / "hub"), "HF_HUB_OFFLINE": "1"}
    code, found = doctor("demo", "--port", "0", **cache)
    assert code == 0 and ("warning", "cache") in [f[:2] for f in found], found
    for arguments in (["auto"], ["org/some-model"]):  # both would download
        code, found = doctor(*arguments, "--port", "0", **cache)
        assert code == 1
        ((check, message),) = errors(found)
        assert check == "cache" and "HF_HUB_CACHE" in message, found


def test_a_model_that_is_not_here_is_not_downloaded(tmp_path):
    empty = {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:1"}
    code, found = doctor("org/some-model", "--port", "0", **empty)
    assert code == 0
    assert any(f[:2] == ("warning", "model") and "download" in f[2] for f in found), found
    assert "dry run" not in [check for _, check, _ in found]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_model(tmp_path):
    code, found = doctor(tmp_path, "--port", "0")
    assert code == 1 and [check for check, _ in errors(found)] == ["model"], found
    folder = shutil.copytree(SMALL, tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, found = doctor(folder, "--port", "0")
    assert code == 1 and [check for check, _ in errors(found)] == ["dry run"], found


def test_folders_of_models(tmp_path):
    (tmp_path / "not-a-model").mkdir()
    code, found = doctor("auto", "--model-dir", tmp_path, "--port", "0")
    assert code == 1
    ((check, message),) = errors(found)
    assert check == "model" and "not-a-model" in message
    assert found[-1][:2] == ("ok", "dry run")


def test_exposure_is_the_servers_own():
    code, found = doctor("demo", "--host", "0.0.0.0", "--port", "0")
    assert code == 1 and "--insecure" in errors(found)[0][1]
    code, found = doctor("demo", "--host", "0.0.0.0", "--port", "0", "--api-key", "k")
    assert code == 0
    assert any(f[:2] == ("warning", "address") and "unencrypted" in f[2] for f in found), found


def test_what_is_missing(tmp_path):
    code, found = doctor("demo", "--api-key-file", tmp_path / "none.json", "--port", "0")
    assert code == 1 and [check for check, _ in errors(found)] == ["address"], found
    code, found = doctor("demo", "--cuda", CUDA_VISIBLE_DEVICES="")
    assert code == 1 and found[-1][:2] == ("error", "device"), found

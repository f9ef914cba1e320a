"""The cache that huggingface_hub and fetch_model share: each finds what the other has fetched,
noted and left half done. Run with both releases that the tests know (.venv, .venv-newest)."""

import fcntl
import os
import shutil
import sys
import time

import pytest
from hub_support import (NAME, TOKENIZER_FILES, WEIGHTS, add_demo, add_tiny, names_in, says,
                         wait_until)

LONG_AGO_S = 1000
WEIGHTS_ALONE = "allow_patterns=['config.json', 'model.safetensors']"


@pytest.fixture
def tiny(hub):
    return add_tiny(hub)


@pytest.fixture(scope="session")
def release():
    import huggingface_hub
    return int(huggingface_hub.__version__.split(".")[0])


def snapshot_download(machine, more="", **env):
    return machine.python("import huggingface_hub as h\n"
                          f"print(h.snapshot_download('{NAME}', {more}))", **env)


def test_huggingface_hub_finds_what_we_fetched(hub, machine, tiny):
    folder = machine.fetch(NAME)
    num_requests = len(hub.requests())
    found = machine.python(
        "import huggingface_hub as h\n"
        f"print(h.snapshot_download('{NAME}', local_files_only=True))\n"
        f"print(h.hf_hub_download('{NAME}', 'model.safetensors', local_files_only=True))\n"
        "info = h.scan_cache_dir()\n"
        "print(len(info.warnings), [(r.repo_id, len(r.revisions), r.nb_files) for r in info.repos],"
        " [sorted(r.refs) for repo in info.repos for r in repo.revisions])")
    assert found.splitlines() == [str(folder), str(folder / "model.safetensors"),
                                  f"0 [('{NAME}', 1, {len(machine.blobs(NAME))})] [['main']]"]
    assert len(hub.requests()) == num_requests


def test_we_find_what_huggingface_hub_fetched(hub, machine, tiny):
    folder = snapshot_download(machine, "revision='main'")
    num_requests = len(hub.requests())
    assert str(machine.fetch(NAME, "--local")) == folder
    assert str(machine.fetch(NAME)) == folder
    # What is not there may be on the hub: one question.
    assert len(hub.requests()) == num_requests + 1
    assert str(machine.fetch(NAME)) == folder
    assert len(hub.requests()) == num_requests + 1
    # And what both have fetched is one set of files.
    machine.fetch(f"{NAME}@{tiny.commit}")
    assert not list(machine.repo(NAME).rglob("*.incomplete"))


def test_they_begin_where_we_were_stopped_or_anew(hub, machine, tiny, release):
    etag = tiny.etag("model.safetensors")
    hub.hold(etag, 400_000, times=1)
    says(machine.error(NAME, "--stop-at", "300000"), "was stopped")
    assert machine.partial_size(NAME, etag) > 0
    snapshot_download(machine, WEIGHTS_ALONE)
    resumed = hub.requests(etag)[-1].headers.get("range", "bytes=0-") != "bytes=0-"
    assert resumed == (release == 0)
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS


def test_we_go_on_where_they_were_killed(hub, machine, tiny, release):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, hang_after=0)
    theirs = machine.start("-c", "import huggingface_hub as h\n"
                           f"h.hf_hub_download('{NAME}', 'model.safetensors')",
                           program=sys.executable)
    wait_until(lambda: machine.partial(NAME, etag) and hub.requests(etag), theirs)
    theirs.kill()
    theirs.communicate()
    left = machine.partial(NAME, etag)
    assert left.name.count(".") == (1 if release == 0 else 2)
    # As it would be after a while: they write pieces of 10 MB.
    left.write_bytes(WEIGHTS[:400_000])
    os.utime(left, (time.time() - LONG_AGO_S,) * 2)
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.requests(etag)[-1].headers["range"] == "bytes=400000-"
    assert machine.partial(NAME, etag) is None


def test_what_is_being_written_under_another_name_is_left_alone(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    theirs = machine.repo(NAME) / "blobs" / f"{etag}.0a1b2c3d.incomplete"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(WEIGHTS[:400_000])
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert "range" not in hub.requests(etag)[-1].headers
    assert theirs.stat().st_size == 400_000


def test_waiting_shows_what_they_write(hub, machine, tiny):
    """They hold the lock and write under a name of their own."""
    etag = tiny.etag("model.safetensors")
    blobs, locks = machine.repo(NAME) / "blobs", machine.cache / ".locks" / machine.repo(NAME).name
    blobs.mkdir(parents=True)
    locks.mkdir(parents=True)
    theirs = blobs / f"{etag}.0a1b2c3d.incomplete"
    with (locks / f"{etag}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        theirs.write_bytes(WEIGHTS[:300_000])
        ours = machine.start(NAME, "--progress")
        for line in ours.stderr:
            if int(line.split()[1]) >= 300_000:
                break
        theirs.write_bytes(WEIGHTS)
        theirs.rename(blobs / etag)
    out, err = ours.communicate(timeout=60)
    assert ours.returncode == 0, err
    assert not hub.requests(etag)


def test_we_wait_for_huggingface_hubs_lock_and_it_for_ours(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, throttle=2_000_000, times=2)
    download = ("import huggingface_hub as h\n"
                f"h.snapshot_download('{NAME}', allow_patterns='model.safetensors')")
    theirs = machine.start("-c", download, program=sys.executable)
    wait_until(lambda: hub.requests(etag), theirs)
    assert machine.fetch(NAME).name == tiny.commit
    assert theirs.wait(60) == 0
    assert len(hub.requests(etag, server="cdn")) == 1
    # The other way round, with a lock that is certainly held.
    (machine.repo(NAME) / "blobs" / etag).unlink()
    hub.rule(etag, throttle=1_000_000)
    ours = machine.start(NAME)
    wait_until(lambda: len(hub.requests(etag, server="cdn")) == 2, ours)
    machine.python(f"import huggingface_hub as h\nh.hf_hub_download('{NAME}', 'model.safetensors')")
    assert ours.wait(60) == 0
    assert len(hub.requests(etag, server="cdn")) == 2


def test_blobs_in_a_store_that_repositories_share(hub, machine, tiny):
    """huggingface_hub 2 keeps what many repositories hold once, and links to it."""
    folder = machine.fetch(NAME)
    etag = tiny.etag("model.safetensors")
    blob = machine.repo(NAME) / "blobs" / etag
    stored = machine.cache / "blobs" / "ab" / ("ab" * 32)
    stored.parent.mkdir(parents=True)
    blob.rename(stored)
    blob.symlink_to(os.path.relpath(stored, blob.parent))
    num_requests = len(hub.requests(etag))
    assert machine.fetch(NAME) == folder
    (folder / "model.safetensors").unlink()
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert len(hub.requests(etag)) == num_requests, "it is there, and linked"
    # A store that was cleared is no model.
    stored.unlink()
    says(machine.error(NAME, "--local"), "lacks model.safetensors")
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert blob.is_file() and not blob.is_symlink()
    assert snapshot_download(machine, "local_files_only=True") == str(folder)


def test_what_the_hub_does_not_have_is_noted_for_both(hub, machine, tiny):
    folder = machine.fetch(NAME)
    notes = machine.repo(NAME) / ".no_exist" / tiny.commit
    assert names_in(notes) == ["added_tokens.json", "chat_template.jinja", "hf_quant_config.json",
                               "special_tokens_map.json", "spiece.model", "tekken.json",
                               "tokenizer.model", "tokenizer_config.json"]
    assert all(note.stat().st_size == 0 for note in notes.iterdir())
    asked = machine.python(
        "import huggingface_hub as h\n"
        "from huggingface_hub.file_download import _CACHED_NO_EXIST\n"
        f"print(h.try_to_load_from_cache('{NAME}', 'added_tokens.json') is _CACHED_NO_EXIST,"
        f" h.try_to_load_from_cache('{NAME}', 'config.json'), len(h.scan_cache_dir().warnings))")
    assert asked == f"True {folder / 'config.json'} 0"
    # And theirs for us: nothing is asked for what both say is not there.
    absent = names_in(notes)
    shutil.rmtree(notes)
    machine.python("import huggingface_hub as h\n"
                   "from huggingface_hub.utils import EntryNotFoundError\n"
                   f"for name in {absent}:\n"
                   f"  try: h.hf_hub_download('{NAME}', name)\n"
                   "  except EntryNotFoundError: pass")
    assert names_in(notes) == absent
    num_requests = len(hub.requests())
    assert machine.fetch(NAME) == folder
    assert len(hub.requests()) == num_requests


@pytest.mark.parametrize("purpose", ["serve", "tokenizer"])
def test_what_a_half_filled_cache_lacks_is_asked_for_once(hub, machine, tiny, purpose):
    tiny.files["qwen.tiktoken"] = b"IQ== 0"
    if purpose == "serve":
        arguments, there = [], ["config.json", "model.safetensors"]
        wanted = ["generation_config.json", "merges.txt", "qwen.tiktoken", "tokenizer.json",
                  "vocab.json"]
    else:
        arguments, there = ["--tokenizer"], ["tokenizer.json"]
        wanted = ["config.json", "merges.txt", "qwen.tiktoken", "vocab.json"]
    folder = snapshot_download(machine, f"allow_patterns={there}")
    assert names_in(machine.fetch(NAME, *arguments, "--local")) == there
    assert names_in(machine.fetch(NAME, *arguments, HF_HUB_OFFLINE="1")) == there
    assert str(machine.fetch(NAME, *arguments)) == folder
    assert names_in(machine.fetch(NAME, *arguments)) == sorted(there + wanted)
    num_requests = len(hub.requests())
    machine.fetch(NAME, *arguments)
    assert len(hub.requests()) == num_requests
    assert not hub.requests("pytorch_model.bin")


def test_a_half_filled_cache_without_its_hub_is_used_with_a_warning(hub, machine, tiny):
    folder = snapshot_download(machine, WEIGHTS_ALONE)
    hub.rule("/api/", status=503, times=99)
    done = machine.run(NAME, HF_HUB_ETAG_TIMEOUT="1")
    assert (done.returncode, done.stdout.strip()) == (0, folder)
    says(done.stderr, "warning", "without tokenizer.json", "generation_config.json", "HTTP 503",
         "HF_HUB_OFFLINE=1")
    # Another commit's files are not mixed with those of this one.
    hub.rules.clear()
    hub.add(NAME, {**tiny.files, "generation_config.json": b'{"eos_token_id": 1}'}, lfs=tiny.lfs)
    done = machine.run(NAME)
    assert (done.returncode, done.stdout.strip()) == (0, folder)
    says(done.stderr, "no revision")
    assert names_in(machine.fetch(NAME)) == ["config.json", "model.safetensors"]


def test_a_login_that_has_run_out(hub, machine, tiny):
    """As `hf auth login` of huggingface_hub 2 keeps it."""
    (machine.home / "token").write_text("bad")
    stored = machine.home / "stored_tokens"
    text = "[other]\nhf_token = x\nexpires_at = 1\n\n[mine]\nhf_token = bad\n"
    stored.write_text(text + f"refresh_token = r\nexpires_at = {int(time.time()) - 5}\n\n")
    says(machine.error(NAME), "the login whose token is in", "has run out", "`hf auth whoami`",
         "`hf auth login`")
    for rest in ("", f"expires_at = {int(time.time()) + 9999}\n"):
        stored.write_text(text + rest)
        says(machine.error(NAME), "does not accept the token", "/settings/tokens")
    says(machine.error(NAME, HF_TOKEN="bad"), "does not accept the token in HF_TOKEN")


def test_transformers_reads_what_we_fetched(hub, machine):
    add_demo(hub)
    folder = machine.fetch(NAME)
    assert not (folder / "README.md").exists()
    assert set(TOKENIZER_FILES) < set(names_in(folder))
    assert machine.python(
        "from transformers import AutoTokenizer, AutoModelForCausalLM as M\n"
        f"print(len(AutoTokenizer.from_pretrained('{NAME}', local_files_only=True)),"
        f" M.from_pretrained('{NAME}', local_files_only=True).config.vocab_size)",
        HF_HUB_OFFLINE="1").split() == ["2048", "2048"]

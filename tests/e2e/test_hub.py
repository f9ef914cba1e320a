"""fetch_model and a hub that works: what it asks for, what it leaves in the cache, and that
huggingface_hub and it find what the other has fetched."""

import json
import os
import sys

import pytest
from fake_hub import git_sha1, sha256
from hub_support import NAME, TOKENIZER_FILES, WEIGHTS, add_demo, says, wait_until


@pytest.fixture
def tiny(hub):
    files = {"config.json": b'{"model_type": "gpt2"}', "generation_config.json": b"{}",
             "tokenizer.json": b'{"a": 1}', "vocab.json": b"{}", "merges.txt": b"#version\n",
             "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickle", "tf_model.h5": b"tf",
             "flax_model.msgpack": b"flax", "model.gguf": b"gguf", "README.md": b"read me",
             "onnx/model.onnx": b"onnx", "model.fp16.safetensors": b"half"}
    return hub.add(NAME, files, lfs={"model.safetensors", "pytorch_model.bin"})


def names_in(folder):
    return sorted(p.name for p in folder.iterdir())


def test_serving_fetches_what_it_needs_into_the_cache(hub, machine, tiny):
    folder = machine.fetch(NAME)
    assert folder == machine.repo(NAME) / "snapshots" / tiny.commit
    wanted = ["config.json", "generation_config.json", "merges.txt", "model.safetensors",
              "tokenizer.json", "vocab.json"]
    assert names_in(folder) == wanted
    for name in wanted:
        assert os.readlink(folder / name) == f"../../blobs/{tiny.etag(name)}"
        assert (folder / name).read_bytes() == tiny.files[name]
    assert (machine.repo(NAME) / "refs" / "main").read_text() == tiny.commit
    assert machine.blobs(NAME) == sorted({tiny.etag(name) for name in wanted})
    assert tiny.etag("model.safetensors") == sha256(WEIGHTS)
    assert tiny.etag("config.json") == git_sha1(tiny.files["config.json"])
    assert all(s.headers["user-agent"].startswith("lmtp/") for s in hub.requests())


def test_what_is_there_is_not_asked_for_again(hub, machine, tiny):
    folder = machine.fetch(NAME)
    num_requests = len(hub.requests())
    assert machine.fetch(NAME) == folder
    assert machine.fetch(NAME, "--tokenizer") == folder
    assert machine.fetch(NAME, "--local") == folder
    assert machine.fetch(NAME, HF_HUB_OFFLINE="1") == folder
    assert len(hub.requests()) == num_requests


def test_a_client_fetches_the_tokenizer_alone_and_a_server_the_rest(hub, machine, tiny):
    folder = machine.fetch(NAME, "--tokenizer")
    assert names_in(folder) == ["config.json", "merges.txt", "tokenizer.json", "vocab.json"]
    says(machine.error(NAME, "--local"), "only partly", "lacks model.safetensors")
    num_asked = len(hub.requests("tokenizer.json"))
    assert machine.fetch(NAME) == folder
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert len(hub.requests("tokenizer.json")) == num_asked


def test_the_rest_comes_from_the_commit_that_is_there(hub, machine, tiny):
    old = machine.fetch(NAME, "--tokenizer")
    newer = hub.add(NAME, {**tiny.files, "config.json": b'{"model_type": "opt"}'}, lfs=tiny.lfs,
                    revisions={tiny.commit: tiny.commit})
    assert machine.fetch(NAME) == old
    # Where the hub has forgotten that commit, the branch is asked for.
    tiny_gone = hub.add(NAME, newer.files, lfs=newer.lfs)
    (old / "model.safetensors").unlink()
    assert machine.fetch(NAME).name == tiny_gone.commit != old.name


def test_sharded_weights(hub, machine):
    shards = {f"model-0000{i}-of-00003.safetensors": bytes([i]) * 300_000 for i in (1, 2, 3)}
    index = json.dumps({"weight_map": {f"layer.{i}": name for i, name in enumerate(shards)}})
    other = {"model-00001-of-00002.safetensors": b"of an older version"}
    repo = hub.add(NAME, {"config.json": b"{}", "model.safetensors.index.json": index.encode(),
                          **shards, **other}, lfs=set(shards))
    folder = machine.fetch(NAME)
    assert names_in(folder) == sorted(["config.json", "model.safetensors.index.json", *shards])
    (folder / "model-00002-of-00003.safetensors").unlink()
    says(machine.error(NAME, "--local"), "lacks model-00002-of-00003.safetensors", "index.json")
    assert machine.fetch(NAME) == folder
    assert (folder / "model-00002-of-00003.safetensors").read_bytes() == b"\2" * 300_000
    # A shard that the hub does not have is named.
    del repo.files["model-00003-of-00003.safetensors"]
    (folder / "model-00003-of-00003.safetensors").unlink()
    says(machine.error(NAME), "lacks model-00003-of-00003.safetensors", "names")


def test_pytorch_weights_where_there_are_no_others(hub, machine):
    hub.add(NAME, {"config.json": b"{}", "pytorch_model.bin": b"pickle", "tf_model.h5": b"tf"})
    assert names_in(machine.fetch(NAME)) == ["config.json", "pytorch_model.bin"]


def test_revisions(hub, machine, tiny):
    other = "b" * 40
    tiny.revisions |= {"v1.0": other, "refs/pr/7": other, other: other}
    folder = machine.fetch(NAME + "@v1.0")
    assert folder.name == other
    assert machine.fetch(f"{NAME}@{other}") == folder
    assert machine.fetch(NAME + "@refs/pr/7") == folder
    refs = machine.repo(NAME) / "refs"
    assert (refs / "v1.0").read_text() == (refs / "refs" / "pr" / "7").read_text() == other
    assert not (refs / other).exists() and not (refs / "main").exists()
    assert hub.requests("/revision/refs/pr/7"), "the slashes of a revision are quoted"


def test_a_renamed_repository_keeps_the_name_it_was_asked_by(hub, machine, tiny):
    hub.renamed["gpt2"] = NAME
    folder = machine.fetch("gpt2", HF_TOKEN="hf_secret")
    assert folder.parents[1].name == "models--gpt2"
    assert hub.requests("/org/tiny/resolve/")[0].token == "Bearer hf_secret"


def test_equal_files_are_one_blob_and_empty_ones_are_files(hub, machine):
    repo = hub.add(NAME, {"config.json": b"{}", "generation_config.json": b"{}",
                          "merges.txt": b"", "model.safetensors": b"weights"})
    folder = machine.fetch(NAME)
    assert (folder / "merges.txt").read_bytes() == b""
    assert (folder / "generation_config.json").read_bytes() == b"{}"
    assert len(machine.blobs(NAME)) == len(repo.files) - 1


def test_the_token_goes_to_the_hub_alone(hub, machine, tiny):
    tiny.token = "hf_secret"
    machine.fetch(NAME, HF_TOKEN=" hf_secret\n")
    at_hub, at_cdn = hub.requests(server="hub"), hub.requests(server="cdn")
    assert at_hub and all(s.token == "Bearer hf_secret" for s in at_hub)
    assert at_cdn and all(s.token is None for s in at_cdn)


def test_no_token_comes_back_from_elsewhere(hub, machine, tiny):
    """A redirect that leads away and back again gets no token."""
    back = f"{hub.url}/{NAME}/resolve/{tiny.commit}/tokenizer.json"
    hub.rule("tokenizer.json", method="GET", redirect=hub.cdn_url + "/away")
    hub.rule("/away", redirect=back)
    machine.fetch(NAME, "--tokenizer", HF_TOKEN="hf_secret")
    gets = hub.requests("tokenizer.json", method="GET", server="hub")
    assert [s.token for s in gets] == ["Bearer hf_secret", None]


@pytest.mark.parametrize("place", ["HF_HOME/token", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"])
def test_where_the_token_may_be(hub, machine, tiny, tmp_path, place):
    tiny.token = "hf_secret"
    env = {"HUGGING_FACE_HUB_TOKEN": "hf_secret"}
    if place != "HUGGING_FACE_HUB_TOKEN":
        path = tmp_path / ("token" if place == "HF_HOME/token" else "elsewhere")
        path.write_text("hf_secret\n")
        env = {"HF_TOKEN_PATH": str(path) if place == "HF_TOKEN_PATH" else None}
    machine.fetch(NAME, **env)
    says(machine.error("org/none", HF_HUB_DISABLE_IMPLICIT_TOKEN="1", **env), "no model 'org/none'")
    assert hub.requests("org/none")[0].token is None


def test_a_proxy_of_the_environment_is_used(hub, machine, tiny):
    machine.hub = "http://hub.invalid"  # which only the proxy knows
    assert machine.fetch(NAME, http_proxy=hub.url, NO_PROXY=None).name == tiny.commit
    says(machine.error("org/none"), "cannot be resolved", "hub.invalid", "check the network")


def test_progress_grows_to_the_whole(hub, machine, tiny):
    hub.rule(tiny.etag("model.safetensors"), throttle=4_000_000)
    done = machine.run(NAME, "--progress")
    shown = [tuple(map(int, line.split()[1:])) for line in done.stderr.splitlines()]
    total = sum(len(tiny.files[p.name]) for p in
                (machine.repo(NAME) / "snapshots" / tiny.commit).iterdir())
    assert shown[0] == (0, 0), "nothing is known before the hub has answered"
    assert {t for _, t in shown} == {0, total}
    assert [d for d, _ in shown] == sorted(d for d, _ in shown) and shown[-1][0] == total
    assert any(0 < d < total for d, _ in shown)


def test_stopping_keeps_what_has_come_and_the_next_goes_on_there(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, throttle=2_000_000)
    says(machine.error(NAME, "--stop-at", "300000"), "was stopped", "is kept")
    left = machine.repo(NAME) / "blobs" / (etag + ".incomplete")
    num_left = left.stat().st_size
    assert 0 < num_left < len(WEIGHTS)
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.requests(etag)[-1].headers["range"] == f"bytes={num_left}-"
    assert not left.exists()


@pytest.mark.parametrize("rule", [{"text": "/api/", "hang": True},
                                  {"text": "config.json", "hang": True},
                                  {"text": "/org/tiny/", "method": "GET", "hang": True}])
def test_stopping_works_while_the_hub_says_nothing(hub, machine, tiny, rule):
    hub.rule(times=99, **rule)
    says(machine.error(NAME, "--stop-after", "300"), "was stopped")


def test_two_threads_and_two_processes_fetch_each_file_once(hub, machine, tiny):
    hub.rule(tiny.etag("model.safetensors"), throttle=2_000_000, times=9)
    first, second = machine.start(NAME, "--threads", "2"), machine.start(NAME, "--threads", "2")
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert len(set(out.splitlines())) == 1 and len(out.splitlines()) == 2
    assert len(hub.requests(server="cdn")) == 1
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS


def test_one_process_goes_on_where_another_is_killed(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, throttle=1_000_000)
    first = machine.start(NAME)
    wait_until(lambda: machine.partial_size(NAME, etag) > 100_000, first)
    second = machine.start(NAME, "--progress")
    # The second shows what the first writes, so it is known to wait.
    for line in second.stderr:
        if int(line.split()[1]) > 150_000:
            break
    first.kill()
    first.communicate()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert "range" in hub.requests(server="cdn")[-1].headers


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
    folder = machine.python("import huggingface_hub as h\n"
                            f"print(h.snapshot_download('{NAME}', revision='main'))")
    num_requests = len(hub.requests())
    assert str(machine.fetch(NAME)) == folder
    assert str(machine.fetch(NAME, "--local")) == folder
    assert len(hub.requests()) == num_requests
    # And what both have fetched is one set of files.
    machine.fetch(f"{NAME}@{tiny.commit}")
    assert not list(machine.repo(NAME).rglob("*.incomplete"))


def test_each_goes_on_where_the_other_was_cut(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    left = machine.repo(NAME) / "blobs" / (etag + ".incomplete")
    left.parent.mkdir(parents=True)
    left.write_bytes(WEIGHTS[:500_000])
    machine.python("import huggingface_hub as h\n"
                   f"h.hf_hub_download('{NAME}', 'model.safetensors')")
    assert hub.requests(etag)[-1].headers["range"] == "bytes=500000-"
    (left.parent / etag).rename(left)
    with left.open("r+b") as file:
        file.truncate(400_000)
    assert (machine.fetch(NAME) / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.requests(etag)[-1].headers["range"] == "bytes=400000-"


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

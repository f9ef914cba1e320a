"""fetch_model and a hub that works: what it asks for, and what it leaves in the cache."""

import json
import os

import pytest
from fake_hub import git_sha1, sha256
from hub_support import NAME, WEIGHTS, add_tiny, names_in, safetensors, says, wait_until


@pytest.fixture
def tiny(hub):
    return add_tiny(hub)


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
    hub.hold(etag, 400_000, times=1)
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
    hub.hold(etag, 100_000, times=1)
    first = machine.start(NAME)
    wait_until(lambda: machine.partial_size(NAME, etag) >= 100_000, first)
    second = machine.start(NAME, "--progress")
    # The second shows what the first writes, so it is known to wait.
    for line in second.stderr:
        if int(line.split()[1]) >= 100_000:
            break
    first.kill()
    first.communicate()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert "range" in hub.requests(server="cdn")[-1].headers


# --- before the weights come ---------------------------------------------------------------

MANY = {f"layer.{i}.weight": {"dtype": "F32", "shape": [], "data_offsets": [0, 0]}
        for i in range(2000)}  # more than is asked for at first


@pytest.fixture
def sharded(hub):
    """Three shards of 1 MB, and a tokenizer of 1 MB."""
    shards = {"model-1.safetensors": safetensors({"a": {}}, 1_000_000),
              "model-2.safetensors": safetensors(MANY, 1_000_000),
              "model-3.safetensors": safetensors({"c": {}}, 1_000_000)}
    index = json.dumps({"weight_map": {name: name for name in shards}}).encode()
    return hub.add(NAME, {"config.json": b"{}", "model.safetensors.index.json": index, **shards,
                          "tokenizer.json": b" " * 1_000_000}, lfs={*shards, "tokenizer.json"})


def test_a_refused_config_costs_hundreds_of_bytes(hub, machine, sharded):
    says(machine.error(NAME, "--refuse", "config"), "is refused")
    assert hub.num_bytes_sent < 1000
    assert not hub.requests(server="cdn") and not hub.requests("index.json")
    assert not (machine.repo(NAME) / "refs" / "main").exists()
    assert names_in(machine.fetch(NAME)) == sorted(sharded.files), "the next one may take it"


def headers_shown(err):
    shown = [line.split(" ", 3)[1:] for line in err.splitlines() if line.startswith("header ")]
    return {name: (int(size), json.loads(text)) for name, size, text in shown}


def test_headers_come_by_parts_before_the_weights(hub, machine, sharded):
    says(machine.error(NAME, "--refuse", "weights"), "are refused")
    assert hub.num_bytes_sent < 500_000
    ranges = sorted(s.headers["range"] for s in hub.requests(method="GET", server="cdn"))
    length = len(sharded.files["model-2.safetensors"]) - 1_000_000
    assert ranges == ["bytes=0-65535"] * 3 + [f"bytes=65536-{length - 1}"]
    # Of what is there already, and of a hub that sends the whole whatever is asked for.
    for name in ("model-1.safetensors", "model-3.safetensors"):
        hub.rule(sharded.etag(name), method="GET", no_range=True)
    first = machine.run(NAME, "--headers")
    assert first.returncode == 0, first.stderr
    folder = machine.fetch(NAME, "--local")
    (folder / "model-2.safetensors").unlink()
    second = machine.run(NAME, "--headers")
    wanted = {"model-1.safetensors": {"a": {}}, "model-2.safetensors": MANY,
              "model-3.safetensors": {"c": {}}}
    for done in (first, second):
        assert headers_shown(done.stderr) == {
            name: (len(sharded.files[name]), header) for name, header in wanted.items()}


def test_a_header_that_cannot_be(hub, machine, sharded):
    huge = (17 << 20).to_bytes(8, "little") + bytes(18 << 20)
    sharded.files["model-1.safetensors"] = huge
    sharded.lfs.discard("model-2.safetensors")
    says(machine.error(NAME, "--headers"), "model-1.safetensors", "header claims 17.8 MB")
    sharded.files["model-1.safetensors"] = b"short"
    done = machine.run(NAME, "--headers")
    assert done.returncode == 0, done.stderr
    # One that is longer than its file is handed on as far as it goes.
    sharded.files["model-1.safetensors"] = (1 << 60).to_bytes(8, "little") + b"[1]"
    (machine.fetch(NAME, "--local") / "model-1.safetensors").unlink()
    assert headers_shown(machine.run(NAME, "--headers").stderr)["model-1.safetensors"] == (11, [1])


def test_trouble_with_a_header_passes(hub, machine, sharded):
    etag = sharded.etag("model-2.safetensors")
    hub.rule(etag, status=503)
    hub.rule(etag, cut_after=1000)
    hub.rule("model-1.safetensors", method="GET", status=502)
    done = machine.run(NAME, "--headers")
    assert done.returncode == 0, done.stderr
    assert headers_shown(done.stderr)["model-2.safetensors"][1] == MANY
    assert hub.requests(etag)[2].headers["range"] == "bytes=1000-65535"


def test_a_limit_of_what_is_fetched(hub, machine, sharded):
    says(machine.error(NAME, "--max", "3500000"), "is a download of 4.2 MB",
         "at most 3.5 MB are allowed")
    assert hub.num_bytes_sent < 1000
    machine.fetch(NAME, "--max", "4500000")
    hub.add("org/huge", {**sharded.files, "config.json": b" " * (65 << 20)})
    says(machine.error("org/huge"), "config.json of 'org/huge' has 68.2 MB, more than such a file")

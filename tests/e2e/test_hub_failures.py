"""fetch_model and a hub, a network or a disk that does not do as it should."""

import json
import pathlib
import shutil
import socket
import subprocess

import pytest
from fake_hub import FakeHub
from hub_support import NAME, WEIGHTS, Machine, says, wait_until

QUICK = {"HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}


@pytest.fixture
def tiny(hub):
    files = {"config.json": b'{"model_type": "gpt2"}', "tokenizer.json": b'{"a": 1}',
             "model.safetensors": WEIGHTS}
    return hub.add(NAME, files, lfs={"model.safetensors"})


def assert_whole(folder):
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


# --- no hub ------------------------------------------------------------------------------


def test_no_server_listens(machine):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        machine.hub = f"http://127.0.0.1:{closed.getsockname()[1]}"
        says(machine.error("gpt2-medium"), "'gpt2-medium' cannot be fetched", "no connection to",
             machine.hub, "check the network", "HF_ENDPOINT")


def test_a_hub_that_says_nothing_is_given_up(hub, machine, tiny):
    hub.rule("/api/", hang=True, times=9)
    says(machine.error(NAME, **QUICK), "did not answer within 1 s", "HF_HUB_ETAG_TIMEOUT")
    assert len(hub.requests()) == 1


def test_a_host_that_takes_no_connection(machine):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        # The queue of one is full; further connections are neither taken nor refused.
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        machine.hub = f"http://127.0.0.1:{address[1]}"
        says(machine.error(NAME, **QUICK), "did not answer within 1 s", "check the network")
        for client in waiting:
            client.close()


def test_unknown_hosts_and_addresses(machine):
    machine.hub = "http://hub.invalid"
    says(machine.error(NAME), "hub.invalid", "cannot be resolved")
    machine.hub = "hub.example"
    says(machine.error(NAME), "HF_ENDPOINT='hub.example'", "https://huggingface.co is wanted")
    machine.hub = "http://127.0.0.1:1"
    says(machine.error(NAME, http_proxy="http://proxy.invalid:3128", NO_PROXY=None),
         "the proxy", "does not work", "http_proxy")


def test_what_is_there_does_not_need_the_hub(hub, machine, tiny):
    folder = machine.fetch(NAME)
    machine.hub = "http://hub.invalid"
    assert machine.fetch(NAME) == folder


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(hub, machine, tiny, variable):
    says(machine.error(NAME, **{variable: "1"}), "'org/tiny' is neither a folder",
         str(machine.cache), variable + " forbids to fetch it", "unset it")
    says(machine.error(NAME, "--local"), "neither a folder", "downloads are not allowed here",
         "`hf download org/tiny`")
    assert not hub.requests() and not machine.cache.exists()


def test_names_that_are_not_the_hubs(hub, machine):
    says(machine.error("chatgpt"), "OpenAI")
    says(machine.error("./none"), "no such folder")
    says(machine.error("a/b/c"), "not a name on the Hugging Face hub")
    says(machine.error("auto"), "name one")
    assert not hub.requests()


# --- a hub that refuses ------------------------------------------------------------------


def test_refusals_of_the_hub(hub, machine, tiny):
    says(machine.error("org/none"), "has no model 'org/none'", "check the name", "set HF_TOKEN")
    says(machine.error("org/none", HF_TOKEN="hf_x"), "no model 'org/none'", "token in HF_TOKEN")
    says(machine.error(NAME, HF_TOKEN="bad"), "does not accept the token in HF_TOKEN",
         "Invalid credentials", "/settings/tokens")
    says(machine.error(NAME + "@dev"), "no revision 'dev'", hub.url)
    tiny.token = "hf_secret"
    says(machine.error(NAME), "no model 'org/tiny', or it is private")
    message = machine.error(NAME, HF_TOKEN="hf_other_secret")
    says(message, "no model 'org/tiny', or it is private")
    assert "hf_other_secret" not in message
    tiny.token, tiny.gated = None, True
    says(machine.error(NAME), "is gated", f"accept its terms at {hub.url}/org/tiny", "HF_TOKEN")
    says(machine.error(NAME, HF_TOKEN="hf_x"), "is gated", "the token in HF_TOKEN")


def test_refusals_of_one_file(hub, machine, tiny):
    hub.rule("/resolve/", status=403, headers={"X-Error-Message": "no scope"}, times=9)
    says(machine.error(NAME), "forbids to read", "(HTTP 403)", "no scope")
    hub.rules.clear()
    tiny.listed = [*tiny.files, "merges.txt"]
    says(machine.error(NAME), "no file merges.txt", "though the hub lists it")
    hub.rule("/resolve/", status=418, times=9)
    says(machine.error(NAME), "no usable answer", "(HTTP 418)", "check HF_ENDPOINT")


def test_trouble_that_passes(hub, machine, tiny):
    hub.rule("/api/", status=503)
    hub.rule("config.json", method="HEAD", status=502)
    hub.rule("config.json", method="GET", status=500)
    hub.rule(tiny.etag("model.safetensors"), status=429, headers={"Retry-After": "1"})
    hub.rule(tiny.etag("model.safetensors"), status=403)  # the signature has run out
    assert_whole(machine.fetch(NAME))
    assert len(hub.requests("model.safetensors", "GET", "hub")) == 3, "each time a new address"


def test_trouble_that_lasts(hub, machine, tiny):
    hub.rule("/api/", status=500, headers={"X-Error-Message": "oops"}, times=99)
    says(machine.error(NAME), "trouble of its own", "(HTTP 500)", "oops", "later")
    assert 2 <= len(hub.requests("/api/")) <= 6
    hub.rules.clear()
    hub.rule("/api/", status=429, headers={"Retry-After": "3600"}, times=99)
    says(machine.error(NAME), "limits how often", "(HTTP 429)", "HF_TOKEN")
    assert len(hub.requests("/api/")) <= 7, "an hour is not waited for"
    hub.rules.clear()
    hub.rule("config.json", status=503, times=99)
    says(machine.error(NAME), "trouble of its own", "config.json of 'org/tiny'")
    assert len(hub.requests("config.json")) == 6


# --- a network that cuts -----------------------------------------------------------------


def test_cuts_are_resumed(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    for _ in range(8):  # more than the attempts that bring nothing
        hub.rule(etag, cut_after=100_000)
    hub.rule("config.json", method="GET", cut_after=3)
    hub.rule("/api/", cut_after=10)
    assert_whole(machine.fetch(NAME))
    begins = [s.headers.get("range") for s in hub.requests(etag)]
    assert begins == [None] + [f"bytes={n * 100_000}-" for n in range(1, 9)]


def test_a_server_without_ranges_sends_all_again(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, cut_after=400_000)
    hub.rule(etag, no_range=True)
    assert_whole(machine.fetch(NAME))
    assert len(hub.requests(etag)) == 2


def test_a_server_that_sends_another_part(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, cut_after=400_000)
    hub.rule(etag, headers={"Content-Range": "bytes 5-9/10"})
    says(machine.error(NAME), "sends another part than it was asked for")


def test_stalls_are_cut_and_resumed(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, hang_after=300_000)
    hub.rule("config.json", method="GET", hang=True)
    assert_whole(machine.fetch(NAME, **QUICK))
    assert [s.headers.get("range") for s in hub.requests(etag)] == [None, "bytes=300000-"]


def test_a_network_that_brings_nothing_is_given_up(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    hub.rule(etag, cut_after=300_000)
    hub.rule(etag, cut_after=0, times=99)
    says(machine.error(NAME), "model.safetensors of 'org/tiny' cannot be fetched", "broke off",
         "what has come is kept")
    assert len(hub.requests(etag)) == 6, "the first failure is forgiven for what it brought"
    hub.rules.clear()
    assert_whole(machine.fetch(NAME))
    assert hub.requests(etag)[-1].headers["range"] == "bytes=300000-"


# --- a hub that lies ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_another_content_is_dropped(hub, machine, tiny, name):
    path = tiny.etag(name) if name in tiny.lfs else name
    lie = b"x" * len(tiny.files[name])
    hub.rule(path, method="GET", content=lie, times=9)
    says(machine.error(NAME), name, "does not have the hash", tiny.etag(name), "dropped")
    assert tiny.etag(name) not in machine.blobs(NAME)
    assert not (machine.repo(NAME) / "snapshots" / tiny.commit / name).exists()
    assert not (machine.repo(NAME) / "refs" / "main").exists()
    hub.rules.clear()
    assert_whole(machine.fetch(NAME))


def test_a_bad_beginning_is_fetched_again(hub, machine, tiny):
    etag = tiny.etag("model.safetensors")
    left = machine.repo(NAME) / "blobs" / (etag + ".incomplete")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another time" * 1000)
    assert_whole(machine.fetch(NAME))
    assert [s.headers.get("range") for s in hub.requests(etag)] == ["bytes=15000-", None]


def test_two_that_do_not_see_each_others_lock(hub, machine, tiny):
    """As on some network file systems: here the lock's file is taken away under the first."""
    etag = tiny.etag("model.safetensors")
    hub.hold(etag, 100_000)
    first = machine.start(NAME)
    wait_until(lambda: machine.partial_size(NAME, etag) >= 100_000, first)
    (machine.cache / ".locks" / machine.repo(NAME).name / f"{etag}.lock").unlink()
    second = machine.start(NAME)
    wait_until(lambda: len(hub.requests(etag)) == 2, second)
    hub.let_go()
    for process in (first, second):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert_whole(machine.fetch(NAME, "--local"))


def test_another_writer_spoils_what_has_come(hub, machine, tiny):
    """After a wrong content the download goes on in a file that no other process knows."""
    etag = tiny.etag("model.safetensors")
    left = machine.repo(NAME) / "blobs" / (etag + ".incomplete")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another time" * 1000)
    hub.rule(etag, method="GET")  # the rest of it
    hub.hold(etag)  # all of it, in a file apart
    process = machine.start(NAME)
    wait_until(lambda: len(hub.requests(etag)) == 2 and machine.partial(NAME, etag), process)
    assert machine.partial(NAME, etag).name.count(".") == 2
    left.write_bytes(b"of yet another time" * 1000)
    hub.let_go()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert_whole(machine.fetch(NAME, "--local"))


@pytest.mark.parametrize(("size", "parts"), [
    (1000, ("larger than the hub says", "1.0 kB")),
    (len(WEIGHTS) + 1, ("ends after 1048576 of 1048577 bytes",)),
    (1 << 49, ("needs 563 TB more on the disk", "make room", "HF_HUB_CACHE")),
    (1 << 60, ("no usable size",)),
    (-1, ("no usable size",)),
])
def test_sizes_that_are_not_true(hub, machine, tiny, size, parts):
    hub.rule("model.safetensors", method="HEAD", times=9,
             headers={"X-Linked-Size": str(size), "Content-Length": None})
    says(machine.error(NAME), *parts)
    assert tiny.etag("model.safetensors") not in machine.blobs(NAME)


@pytest.mark.parametrize(("headers", "part"), [
    ({"X-Linked-Etag": '"../../../evil"'}, "no usable ETag"),
    ({"X-Linked-Etag": '""', "ETag": None}, "no usable ETag"),
    ({"X-Linked-Etag": '".."'}, "no usable ETag"),
    ({"X-Linked-Etag": '"' + "a" * 200 + '"'}, "no usable ETag"),
    ({"X-Repo-Commit": None}, "does not answer as a hub does"),
    ({"X-Repo-Commit": "f" * 40}, "another commit"),
])
def test_headers_that_cannot_be(hub, machine, tiny, headers, part):
    hub.rule("model.safetensors", method="HEAD", headers=headers, times=9)
    says(machine.error(NAME), "model.safetensors", part, "check HF_ENDPOINT")


@pytest.mark.parametrize(("files", "part"), [
    (["config.json", "../../../evil"], "leads out of the repository"),
    (["config.json", "/etc/passwd"], "leads out of the repository"),
    (["config.json", "a\\..\\b"], "leads out of the repository"),
    (["README.md"], "no config.json"),
    (["config.json", "model.Q4.gguf"], "but GGUF"),
    (["config.json"], "nor other weights"),
])
def test_lists_that_cannot_be(hub, machine, tiny, files, part):
    tiny.listed = files
    says(machine.error(NAME), part)
    assert not hub.requests("/resolve/")


@pytest.mark.parametrize("content", [b"<html>sign in to the hotel's network</html>", b"", b"[1]",
                                     b'{"sha": "main", "siblings": []}', b"[" * 100_000])
def test_answers_that_are_no_list(hub, machine, tiny, content):
    hub.rule("/api/", content=content)
    says(machine.error(NAME), "no usable list", "check HF_ENDPOINT")


def test_a_list_without_end(hub, machine, tiny):
    hub.rule("/api/", content=b"[" * (80 << 20))
    says(machine.error(NAME), "has no end")


def test_an_index_that_leads_out(hub, machine):
    index = json.dumps({"weight_map": {"a": "../../../evil.safetensors"}}).encode()
    hub.add(NAME, {"config.json": b"{}", "model.safetensors.index.json": index})
    says(machine.error(NAME), "index.json", "not the name of a file")


def test_redirects_that_are_not_followed(hub, machine, tiny):
    hub.rule("/api/", redirect="file:///etc/passwd")
    says(machine.error(NAME), "redirect", "neither http nor https")
    hub.rule("/api/", redirect="/api/models/org/tiny/revision/main", times=99)
    says(machine.error(NAME), "more than 8 redirects")


def test_no_token_of_the_tokenizer_alone(hub, machine):
    hub.add(NAME, {"config.json": b"{}", "vocab.json": b"{}"})
    says(machine.error(NAME, "--tokenizer"), "has no tokenizer", "merges.txt")


# --- this machine ------------------------------------------------------------------------


def test_a_full_disk(hub, machine, tiny):
    blobs = machine.repo(NAME) / "blobs"
    blobs.mkdir(parents=True)
    left = blobs / (tiny.etag("model.safetensors") + ".incomplete")
    left.symlink_to("/dev/full")
    says(machine.error(NAME), "the disk is full", "make room", "HF_HUB_CACHE")
    left.unlink()
    assert_whole(machine.fetch(NAME))


def test_a_cache_that_cannot_be_written(hub, machine, tiny):
    machine.home.joinpath("hub").write_text("a file")
    says(machine.error(NAME), "the cache cannot be written", str(machine.cache))
    says(machine.error(NAME, HF_HOME=None, HOME=None), "set HOME")


def test_a_token_that_cannot_be_sent(hub, machine, tiny):
    message = machine.error(NAME, HF_TOKEN="hf_ä")
    says(message, "HF_TOKEN", "no token has")
    assert "ä" not in message and not hub.requests()


@pytest.fixture
def certificate(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is not installed")
    path = pathlib.Path(tmp_path) / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=a hub of the tests", "-keyout", str(path) + ".key", "-out", path,
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
                   check=True, capture_output=True)
    path.write_text(path.read_text() + pathlib.Path(str(path) + ".key").read_text())
    return path


@pytest.mark.parametrize("cdn_has_tls", [True, False])
def test_tls(tmp_path, certificate, cdn_has_tls):
    hub = FakeHub(certificate, certificate if cdn_has_tls else None)
    machine = Machine(hub, tmp_path)
    repo = hub.add(NAME, {"config.json": b"{}", "model.safetensors": WEIGHTS},
                   lfs={"model.safetensors"})
    says(machine.error(NAME), "TLS with " + hub.url + " failed", "REQUESTS_CA_BUNDLE")
    trusting = {"REQUESTS_CA_BUNDLE": str(certificate)}
    if cdn_has_tls:
        assert_whole(machine.fetch(NAME, **trusting))
    else:
        says(machine.error(NAME, **trusting), "a redirect from https to http")
        assert not hub.requests(repo.etag("model.safetensors"))
    hub.close()

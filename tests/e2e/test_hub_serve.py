"""lmtp-serve and names of the hub: one that is served by itself, and those that requests name."""

import asyncio
import json
import urllib.request

import pytest
from hub_support import (BIN, NAME, WEIGHTS, add_demo, demo_files, environment, safetensors, says,
                         shown_at)
from lmtp_socket import Socket
from servers import LmtpServe

SERVE = BIN / "lmtp-serve"


@pytest.fixture
def hub(hub):
    return add_demo(hub)


@pytest.fixture
def machine(machine, monkeypatch):
    """A home that servers started here share."""
    for key, value in environment(machine.hub, machine.home).items():
        monkeypatch.setenv(key, value)
    return machine


def ask(server, name, **more):
    """The tokens that follow, and the notices that the stream got meanwhile; or its error."""

    async def talk():
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=[46, 789, 579], max_tokens=8, model=name,
                         **more)
            ids = []
            while not ids or ids[-1]["finish_reason"] is None:
                ids.append(await s.token_of(1))
                if "error" in ids[-1]:
                    return ids[-1]["error"], []
            return [e["token"] for e in ids], [e for k, e in s.entries if k == "MSG"]

    return asyncio.run(talk())


def test_a_name_is_fetched_and_served(hub, machine, demo, monkeypatch):
    with LmtpServe(NAME) as server:
        tokens, _ = ask(server, NAME)
        assert tokens == ask(demo, "demo")[0] == ask(server, "tiny")[0]
    assert server.exit_code == 0, server.log_tail
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    num_requests = len(hub.requests())
    with LmtpServe(NAME) as server:
        assert ask(server, NAME)[0] == tokens
    assert len(hub.requests()) == num_requests


def test_a_terminal_sees_how_fast_it_comes(hub, machine):
    hub.rule(hub.repos[NAME].etag("model.safetensors"), throttle=4_000_000, times=2)
    process, terminal = machine.start_at_terminal(NAME, "--port", "0", program=SERVE)
    assert b" ready" in process.stdout.readline()
    process.terminate()
    shown = shown_at(terminal)
    process.stdout.close()
    assert process.wait(30) == 0
    says(shown.decode(), f"\rfetching {NAME} [", " MB/s, ", " left")


def test_a_name_that_cannot_be_fetched_is_one_line(hub, machine):
    for name, parts in (("org/none", ("no model 'org/none'", "set HF_TOKEN")),
                        (NAME + "@dev", ("no revision 'dev'",))):
        message = machine.error(name, "--port", "0", program=SERVE)
        says(message, "lmtp-serve: ", *parts)
    machine.hub = "http://hub.invalid"
    says(machine.error(NAME, "--port", "0", program=SERVE), "cannot be resolved")


def test_requests_ask_for_names(hub, machine, demo):
    hub.rule(hub.repos[NAME].etag("model.safetensors"), throttle=8_000_000, times=2)
    with LmtpServe("auto") as server:
        tokens, told = ask(server, NAME)
        assert tokens == ask(demo, "demo")[0]
        progress = [e["progress"] for e in told]
        assert told and progress == sorted(progress), told
        error, _ = ask(server, "org/none")
        says(error, "no model 'org/none'", "check the name")
        assert ask(server, NAME)[0] == tokens
    assert server.exit_code == 0, server.log_tail


def test_beyond_loopback_nothing_is_fetched_unless_allowed(hub, machine):
    with LmtpServe("auto", "--host", "0.0.0.0", "--insecure") as server:
        says(ask(server, NAME)[0], NAME)
    assert not hub.requests()
    with LmtpServe("auto", "--host", "0.0.0.0", "--insecure", "--allow-download") as server:
        assert isinstance(ask(server, NAME)[0], list)


def test_whose_names_may_be_fetched(hub, machine):
    hub.add("elsewhere/tiny", hub.repos[NAME].files, lfs=hub.repos[NAME].lfs)
    with LmtpServe("auto", "--host", "0.0.0.0", "--insecure", "--allow-download=org/*") as server:
        says(ask(server, "elsewhere/tiny")[0], "'elsewhere/tiny' is not served here")
        says(ask(server, "orgs/tiny")[0], "is not served here")
        assert not hub.requests()
        assert isinstance(ask(server, NAME)[0], list)
    with LmtpServe("auto", "--allow-download=other/*", "--allow-download=elsewhere/t*") as server:
        assert isinstance(ask(server, NAME)[0], list), "what is in the cache is served"
        says(ask(server, "org/more")[0], "downloads are not allowed here")
        assert not hub.requests("org/more")
        assert isinstance(ask(server, "elsewhere/tiny")[0], list)


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
         "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "intermediate_size": 11008, "max_position_embeddings": 4096}
REFUSED = {
    "unsupported": ({"model_type": "mamba"}, "model_type 'mamba' is not supported"),
    "quantised": ({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 3}}, "gptq"),
    "too large": ({**LLAMA, "hidden_size": 16384, "num_hidden_layers": 1000}, "memory (weights "),
}


def add_refused(hub, kind):
    """The repository org/KIND, of which nothing but config.json may be fetched."""
    name = "org/" + kind.replace(" ", "-")
    hub.add(name, {"config.json": json.dumps(REFUSED[kind][0]).encode(), "tokenizer.json": WEIGHTS,
                   "model.safetensors": WEIGHTS}, lfs={"model.safetensors"})
    hub.num_bytes_sent = 0
    return name


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_not_downloaded(hub, machine, kind):
    name = add_refused(hub, kind)
    says(machine.error(name, "--port", "0", program=SERVE), REFUSED[kind][1])
    assert hub.num_bytes_sent < 2000
    assert not hub.requests("model.safetensors") and not hub.requests("tokenizer.json")


def test_requests_do_not_download_what_is_refused(hub, machine):
    with LmtpServe("auto", "--force") as server:  # which goes on with a model, not with memory
        for kind in ("unsupported", "too large"):
            name = add_refused(hub, kind)
            says(ask(server, name)[0], REFUSED[kind][1])
            assert hub.num_bytes_sent < 2000


def demo_with(change):
    """The demo's weights, with another header."""
    content = demo_files()[0]["model.safetensors"]
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    change(header)
    return safetensors(header, 0) + content[8 + length:]


def set_type(header):
    header["transformer.h.0.mlp.c_fc.weight"]["dtype"] = "F8_E4M3"


def set_shape(header):
    header["transformer.h.0.mlp.c_fc.weight"]["shape"].append(2)


def quantise(header):
    header["transformer.h.0.mlp.c_fc.qweight"] = header.pop("transformer.h.0.mlp.c_fc.weight")


@pytest.mark.parametrize(("change", "parts"), [
    (set_type, ("h.0.mlp.c_fc.weight", "its type is F8_E4M3")),
    (set_shape, ("h.0.mlp.c_fc.weight", "its shape is")),
    (quantise, ("h.0.mlp.c_fc.weight", "missing")),
    (dict.clear, ("bytes lie behind its last tensor",)),
])
def test_weights_that_cannot_be_served_are_not_downloaded(hub, machine, change, parts):
    files, lfs = demo_files()
    hub.add(NAME, {**files, "model.safetensors": demo_with(change)}, lfs=lfs)
    says(machine.error(NAME, "--port", "0", program=SERVE), "model.safetensors", *parts)
    assert hub.num_bytes_sent < 70_000
    assert [s.headers["range"] for s in hub.requests(method="GET", server="cdn")] == [
        "bytes=0-65535"]
    assert not hub.requests("tokenizer.json", "GET")


def shards_of_the_demo():
    """Its files, with the weights in two."""
    files, _ = demo_files()
    content = files.pop("model.safetensors")
    data = 8 + int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8:data])
    tensors.pop("__metadata__", None)
    parts, weight_map = ({}, {}), {}
    held = [b"", b""]
    for i, (name, tensor) in enumerate(tensors.items()):
        begin, end = (data + at for at in tensor["data_offsets"])
        at = len(held[i % 2])
        held[i % 2] += content[begin:end]
        parts[i % 2][name] = {**tensor, "data_offsets": [at, at + end - begin]}
        weight_map[name] = f"model-{i % 2}.safetensors"
    files |= {f"model-{i}.safetensors": safetensors(parts[i], 0) + held[i] for i in (0, 1)}
    return files, weight_map


def test_weights_in_shards(hub, machine, demo):
    files, weight_map = shards_of_the_demo()
    lfs = {"model-0.safetensors", "model-1.safetensors"}

    def add(weight_map):
        index = json.dumps({"weight_map": weight_map}).encode()
        hub.add(NAME, {**files, "model.safetensors.index.json": index}, lfs=lfs)

    add({**weight_map, next(iter(weight_map)): "model-1.safetensors"})
    says(machine.error(NAME, "--port", "0", program=SERVE), "index.json", "is not in model-1")
    assert hub.num_bytes_sent < 200_000
    add(weight_map)
    with LmtpServe(NAME) as server:
        assert ask(server, NAME)[0] == ask(demo, "demo")[0]


def test_force_downloads_what_seems_too_large(hub, machine):
    name = add_refused(hub, "too large")
    done = machine.run(name, "--port", "0", "--force", program=SERVE)
    assert done.returncode == 1
    says(done.stderr, "warning", "of memory (weights ")
    assert hub.requests("model.safetensors")


def test_a_limit_of_the_download(hub, machine):
    says(machine.error(NAME, "--port", "0", "--download-max", "100kB", program=SERVE),
         "is a download of", "at most 100 kB are allowed here")
    assert hub.num_bytes_sent < 10_000
    with LmtpServe(NAME, "--download-max", "1GB") as server:
        assert isinstance(ask(server, NAME)[0], list)


def test_the_commit_is_told_as_tgi_tells_it(hub, machine):
    with LmtpServe(NAME) as server:
        with urllib.request.urlopen(f"http://{server.endpoint}/info") as answer:
            assert json.load(answer)["model_sha"] == hub.repos[NAME].commit


def test_a_half_filled_cache_gets_its_end_tokens(hub, machine):
    """config.json and the weights are in the cache: what says where texts end is not."""
    with LmtpServe(NAME) as server:
        tokens, _ = ask(server, NAME)
    hub.repos[NAME].files["generation_config.json"] = json.dumps(
        {"eos_token_id": tokens[3]}).encode()
    snapshot = machine.repo(NAME) / "snapshots" / hub.repos[NAME].commit
    for file in (*snapshot.glob("*token*"), snapshot / "generation_config.json",
                 *(machine.repo(NAME) / ".no_exist").glob("*/*")):
        file.unlink(missing_ok=True)
    with LmtpServe(NAME) as server:
        assert ask(server, NAME)[0] == tokens[:4]
    assert (snapshot / "tokenizer.json").is_file()

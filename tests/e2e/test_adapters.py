"""Adapters beside their model: as names over LMTP, OpenAI's and TGI's API; loaded and unloaded."""

import asyncio
import json
import pathlib
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import numpy
import openai
import pytest
from checkpoints import FOREVER
from huggingface_hub import InferenceClient
from lmtp_socket import Socket
from safetensors.numpy import load_file, save_file
from servers import LmtpServe, bin_dir

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"))

import lmtp  # noqa: E402

ADAPTERS = pathlib.Path(__file__).parents[1] / "goldens" / "adapters"
ADAPTER = ADAPTERS / "demo"
SAVED = ADAPTER / "adapter_model.safetensors"
GOLDEN = json.loads((ADAPTER / "golden.json").read_text())
GREEDY, SCORE = GOLDEN[0], GOLDEN[2]
TEXT = "Once upon a time"


@pytest.fixture(scope="module")
def server():
    options = ("--lora-modules", f"tales={ADAPTER}", "--allow-runtime-lora", "--max-cpu-loras", "3")
    with LmtpServe("demo", "--kv-cache", "64MiB", "--max-message-size", "1MiB", *options) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


def post(server, path, body):
    request = urllib.request.Request(
        f"http://{server.endpoint}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def load(server, name, path=ADAPTER, **more):
    body = {"lora_name": name, "lora_path": str(path), **more}
    return post(server, "/v1/load_lora_adapter", body)


def unload(server, name):
    return post(server, "/v1/unload_lora_adapter", {"lora_name": name})


def generate(server, model, **more):
    async def run():
        async with Socket(server.endpoint) as s:
            await s.send(
                "GENERATE", stream_id=1, model=model, prompt=GREEDY["prompt_ids"],
                max_tokens=GREEDY["max_tokens"], temperature=0, ignore_eos=True, **more,
            )  # fmt: skip
            entries = []
            while not entries or not entries[-1]["finish_reason"]:
                entries.append(await s.token_of(1))
                assert "error" not in entries[-1], entries
            return entries

    return asyncio.run(run())


def client_of(server):
    return openai.OpenAI(base_url=f"http://{server.endpoint}/v1", api_key="none", max_retries=0)


def test_what_it_gives_is_what_transformers_and_peft_give(server):
    steps = GREEDY["steps"]
    entries = generate(server, "tales")
    assert [e["token"] for e in entries] == [s["token"] for s in steps]
    for entry, step in zip(entries, steps):
        assert entry["logprob"] == pytest.approx(step["logprob"], abs=1e-4)
    with client_of(server) as client:
        done = client.completions.create(
            model="tales", prompt=GREEDY["prompt_ids"], max_tokens=len(steps), temperature=0,
            logprobs=0, extra_body={"ignore_eos": True},
        )  # fmt: skip
    assert done.model == "tales"
    assert done.choices[0].logprobs.token_logprobs == pytest.approx(
        [s["logprob"] for s in steps], abs=1e-4
    )


def test_a_score(server):
    async def run():
        async with Socket(server.endpoint) as s:
            await s.send(
                "SCORE", stream_id=1, model="tales", prompt=SCORE["prompt_ids"],
                scored=SCORE["scored_ids"],
            )  # fmt: skip
            return [(await s.token_of(1))["logprob"] for _ in SCORE["scored_ids"]]

    assert asyncio.run(run()) == pytest.approx(SCORE["logprobs"], abs=1e-4)


def test_the_model_itself_is_what_it_is_without_adapters(server, demo):
    alone = generate(demo, "demo")
    assert generate(server, "demo") == alone
    assert generate(server, "tales") != alone


def test_as_text_over_every_protocol(server):
    with client_of(server) as client:
        def text_of(model):
            return client.completions.create(
                model=model, prompt=TEXT, max_tokens=12, temperature=0
            ).choices[0].text  # fmt: skip

        texts = {name: text_of(name) for name in ("demo", "tales")}
    assert texts["demo"] != texts["tales"]
    for name, parameters in (("demo", {}), ("tales", {"adapter_id": "tales"})):
        body = {"inputs": TEXT, "parameters": {"max_new_tokens": 12, **parameters}}
        status, answer = post(server, "/generate", body)
        assert (status, json.loads(answer)["generated_text"]) == (200, texts[name])
    body = {"inputs": TEXT, "parameters": {"adapter_id": "nobody"}}
    assert post(server, "/generate", body)[0] == 404


def test_it_is_listed(server):
    with client_of(server) as client:
        models = {m.id: m for m in client.models.list().data}
        assert models["tales"].parent == "demo" and models["tales"].root == str(ADAPTER)
        assert models["demo"].parent is None
        assert client.models.retrieve("tales").parent == "demo"

    async def info():
        async with Socket(server.endpoint) as s:
            return await s.model_info(model="tales")

    info = asyncio.run(info())
    assert info["adapters"] == ["tales"] and info["model"] == "tales"
    stats = info["stats"]
    held = [stats[f"num_blocks_{of}"] for of in ("free", "evictable", "pinned", "adapter")]
    assert sum(held) == stats["num_blocks"] - 1 and held[3] > 0


def test_one_comes_and_goes_while_the_server_runs(server):
    status, text = load(server, "more")
    assert status == 200 and "more" in text, text
    status, text = load(server, "more")
    assert status == 400 and "load_inplace" in text
    assert load(server, "more", load_inplace=True)[0] == 200
    status, text = load(server, "demo")
    assert status == 400 and "is the name of a model" in text
    assert generate(server, "more") == generate(server, "tales")
    assert unload(server, "more")[0] == 200
    assert unload(server, "more")[0] == 404
    with client_of(server) as client, pytest.raises(openai.NotFoundError):
        client.completions.create(model="more", prompt=TEXT)


def test_more_than_are_held_are_read_again(server):
    """Three are held, of which `tales` stays."""
    names = ["one", "two", "three", "four"]
    alone = generate(server, "tales")
    for name in names:
        assert load(server, name)[0] == 200
    for name in names:
        assert generate(server, name) == alone
    log = server.wait_for_log("dropped adapter 'one' until it is asked for")
    assert "dropped adapter 'tales'" not in log
    with client_of(server) as client:
        assert {*names, "tales", "demo"} <= {m.id for m in client.models.list().data}
    for name in names:
        assert unload(server, name)[0] == 200


def test_with_the_real_clients(server):
    """openai's, huggingface_hub's and the project's own, one after the other."""
    with client_of(server) as client:
        body = {"lora_name": "real", "lora_path": str(ADAPTER)}
        answer = client.post("/load_lora_adapter", body=body, cast_to=str)
        assert answer.startswith("Success: LoRA adapter 'real' added successfully."), answer
        with pytest.raises(openai.BadRequestError) as refused:
            client.post("/load_lora_adapter", body=body, cast_to=str)
        assert refused.value.param == "lora_name" and refused.value.type == "invalid_request_error"
        assert {m.id: m.parent for m in client.models.list().data}["real"] == "demo"
        settings = dict(prompt=TEXT, max_tokens=16, temperature=0)
        text = client.completions.create(model="real", **settings).choices[0].text
        assert text != client.completions.create(model="demo", **settings).choices[0].text
    hub = InferenceClient(f"http://{server.endpoint}", provider="hf-inference", timeout=60)
    # At the root the prompt comes before, as in TGI.
    assert hub.text_generation(TEXT, max_new_tokens=16, adapter_id="real") == TEXT + text
    assert hub.text_generation(TEXT, max_new_tokens=16) != TEXT + text
    with client_of(server) as client:
        gone = client.post("/unload_lora_adapter", body={"lora_name": "real"}, cast_to=str)
        assert gone.startswith("Success: LoRA adapter 'real' removed successfully.")
        assert "real" not in {m.id for m in client.models.list().data}

    async def own():
        async with lmtp.connect(server.endpoint, model="tales") as client:
            assert await client.generate(TEXT, max_tokens=16, temperature=0).text() == text
            with pytest.raises(lmtp.LMTPError) as unknown:
                await client.generate(TEXT, max_tokens=16, model="real").text()
            assert unknown.value.code == "unknown_model"

    asyncio.run(own())


@pytest.fixture(scope="module")
def endless_adapted(endless_model, tmp_path_factory):
    """A server whose streams do not end, and an adapter for its model."""
    adapter = tmp_path_factory.mktemp("endless") / "adapter"
    shutil.copytree(ADAPTERS / "gpt-neox", adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config |= {"r": 1, "target_modules": ["dense"], "layers_to_transform": None}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    parts = "base_model.model.gpt_neox.layers.0.attention.dense.lora_"
    save_file({f"{parts}A.weight": numpy.ones((1, 8), numpy.float32),
               f"{parts}B.weight": numpy.ones((8, 1), numpy.float32)},
              adapter / "adapter_model.safetensors")  # fmt: skip
    options = ("--kv-cache", "64MiB", "--context-length", "400000", "--allow-runtime-lora")
    with LmtpServe(endless_model, *options) as server:
        yield server, adapter
    assert server.exit_code == 0, server.log_tail


async def begin_endless(s):
    await s.send("GENERATE", stream_id=1, model="passing", prompt=[5, 6, 7], temperature=0,
                 **FOREVER)  # fmt: skip
    return (await s.token_of(1))["token"]


def test_a_stream_is_edited_when_its_adapter_was_unloaded(endless_adapted):
    server, adapter = endless_adapted
    assert load(server, "passing", adapter)[0] == 200

    async def run():
        async with Socket(server.endpoint) as s:
            await begin_endless(s)
            assert (await asyncio.to_thread(unload, server, "passing"))[0] == 200
            await s.send("FORK", stream_id=1, streams=[2])
            await s.send("BACKTRACK", stream_id=1, drop=1)
            fork = [(await s.token_of(2)) for _ in range(3)]
            assert not any("error" in entry for entry in fork), fork
            await s.wait_for(lambda _, e: e["stream_id"] == 1 and "backtrack" in e)

    asyncio.run(run())


def test_what_runs_with_it_goes_on_with_it(endless_adapted):
    server, adapter = endless_adapted

    async def run():
        async with Socket(server.endpoint) as s:
            ids = [await begin_endless(s)]
            status, text = await asyncio.to_thread(unload, server, "passing")
            assert status == 200, text
            num_before = sum(e["stream_id"] == 1 for _, e in s.entries)
            while len(ids) < num_before + 500:
                ids.append((await s.token_of(1))["token"])
            return ids

    outcomes = []
    for _ in range(2):
        assert load(server, "passing", adapter)[0] == 200
        outcomes.append(asyncio.run(run()))
    for one, other in zip(*outcomes):
        assert one == other


def test_beyond_loopback_they_lie_under_a_model_dir(tmp_path):
    shutil.copytree(ADAPTER, tmp_path / "served" / "own")
    shutil.copytree(ADAPTER, tmp_path / "secret")
    (tmp_path / "served" / "link").symlink_to(tmp_path / "secret")
    options = ("--host", "0.0.0.0", "--insecure", "--allow-runtime-lora")
    options += ("--model-dir", str(tmp_path / "served"), "--kv-cache", "64MiB")
    with LmtpServe("auto", *options) as server:
        generate(server, "demo")
        base = {"base_model_name": "demo"}
        for path in ("../secret", tmp_path / "secret", "link", ADAPTER, "org/adapter"):
            status, text = load(server, "x", path, **base)
            assert status == 404 and "under --model-dir" in text, path
        assert load(server, "x", "own", **base)[0] == 200
        assert generate(server, "x") != generate(server, "demo")


def test_pipes_are_not_waited_for(tmp_path):
    with LmtpServe("demo", "--kv-cache", "64MiB", "--allow-runtime-lora") as server:
        shutil.copytree(ADAPTER, tmp_path / "pipe")
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (tmp_path / "pipe" / name).unlink()
            subprocess.run(["mkfifo", tmp_path / "pipe" / name], check=True)
            status, text = load(server, "pipe", tmp_path / "pipe")
            assert status == 400 and "not a file" in text
            (tmp_path / "pipe" / name).unlink()
            shutil.copy(ADAPTER / name, tmp_path / "pipe" / name)
        assert load(server, "pipe", tmp_path / "pipe")[0] == 200
    assert server.exit_code == 0, server.log_tail


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"r": 100}, "--max-lora-rank"),
        ({"target_modules": ["w"]}, "'w' is no linear layer"),
    ],
)
def test_a_broken_one_is_refused_and_all_else_goes_on(server, tmp_path, change, what):
    shutil.copytree(ADAPTER, tmp_path / "broken")
    path = tmp_path / "broken" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    status, text = load(server, "broken", tmp_path / "broken")
    assert status == 400 and what in text
    assert load(server, "broken", ADAPTERS / "llama")[0] == 400
    assert load(server, "broken", tmp_path / "nowhere")[0] == 404
    assert generate(server, "tales")[-1]["finish_reason"] == "length"


def test_a_server_does_not_start_with_a_broken_one():
    command = [bin_dir() / "lmtp-serve", "demo", "--port", "0"]
    command += ["--lora-modules", f"tales={ADAPTERS / 'llama'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "adapter 'tales'" in ended.stderr and "no linear layer of a gpt2" in ended.stderr
    command += ["--device", "cuda"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and "adapters are computed on CPUs alone" in ended.stderr


def test_it_holds_as_many_blocks_as_its_weights_take():
    """Each adapter that was used, whatever ran with it and however often."""
    names = ("one", "two", "three")
    options = ["--lora-modules", *(f"{name}={ADAPTER}" for name in names)]
    with LmtpServe("demo", "--kv-cache", "64MiB", *options) as server:

        async def stats():
            async with Socket(server.endpoint) as s:
                return (await s.model_info())["stats"]

        held = [asyncio.run(stats())["num_blocks_adapter"]]
        for name in (*names, "one"):
            generate(server, name)
            after = asyncio.run(stats())
            held.append(after["num_blocks_adapter"])
    num_elements = sum(tensor.size for tensor in load_file(SAVED).values())
    weights = 4 * num_elements  # float32 as keys and values are
    block = after["kv_cache_bytes"] / after["num_blocks"]
    assert held == [0, held[1], 2 * held[1], 3 * held[1], 3 * held[1]]
    # Ranks are padded to four.
    assert weights <= held[1] * block < weights * 4 / 3 + 2 * block
    assert after["num_adapter_loads"] == 3 and after["num_blocks_pinned"] == 0


def test_without_the_option_no_request_loads_any(demo):
    assert load(demo, "tales")[0] == 404

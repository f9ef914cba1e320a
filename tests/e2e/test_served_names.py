"""--served-model-name: what clients of each protocol are told, and what they may call the model."""

import asyncio
import json
import pathlib
import shutil
import urllib.error
import urllib.request

import openai
import pytest
from huggingface_hub import InferenceClient
from lmtp_socket import Socket
from servers import LmtpServe
from test_adapters import ADAPTER

DEMO = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secret") / "hidden-folder"
    shutil.copytree(DEMO, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    names = ("--served-model-name", "org/shown", "--served-model-name", "alias")
    adapter = ("--lora-modules", f"tales={ADAPTER}")
    with LmtpServe(folder, "--kv-cache", "64MiB", *names, *adapter) as server:
        server.ready_line()
        yield server
    assert server.exit_code == 0, server.log_tail
    lines = [line for line in server.output.splitlines() if " request " in line]
    assert any(" to 'org/shown': POST /v1/completions" in line for line in lines), lines
    assert not [line for line in lines if "hidden-folder" in line]


def get(server, path):
    try:
        with urllib.request.urlopen(f"http://{server.endpoint}{path}", timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_each_name_reaches_the_model_and_the_first_is_told(server, folder):
    with openai.OpenAI(base_url=f"http://{server.endpoint}/v1", api_key="none") as client:
        for name in ("org/shown", "alias", str(folder), folder.name, "tgi", "dummy"):
            asked = {"model": name, "max_tokens": 2}
            assert client.completions.create(prompt="Once", **asked).model == "org/shown", name
            chunks = client.chat.completions.create(messages=MESSAGES, stream=True, **asked)
            assert {chunk.model for chunk in chunks} == {"org/shown"}, name
            assert client.models.retrieve(name).id == "org/shown", name
        asked = {"model": "tales", "prompt": "Once", "max_tokens": 2}
        assert client.completions.create(**asked).model == "tales"
        with pytest.raises(openai.NotFoundError, match="'no' is not served here.*'org/shown'"):
            client.completions.create(**{**asked, "model": "no"})


def test_no_path_is_told(server, folder):
    pages = {p: get(server, p) for p in ("/", "/health", "/info", "/metrics", "/v1/models/alias")}
    models = json.loads(pages.setdefault("/v1/models", get(server, "/v1/models")))["data"]
    assert [(m["id"], m["root"]) for m in models] == [("org/shown",) * 2, ("tales",) * 2]
    assert json.loads(pages["/info"])["model_id"] == "org/shown"
    assert 'model_name="org/shown"' in pages["/metrics"]

    async def infos():
        async with Socket(server.endpoint) as s:
            names = {None: "org/shown", str(folder): "org/shown", "alias": "org/shown"}
            for name, told in {**names, "tales": "tales"}.items():
                info = await s.model_info(**({"model": name} if name else {}))
                assert info["model"] == told and info["tokenizer"] == "org/shown"
                pages[f"MODEL_INFO {name}"] = json.dumps(info)

    asyncio.run(infos())
    assert [where for where, text in pages.items() if "hidden-folder" in text] == []


def test_lmql_may_name_the_folder(server, folder):
    async def tokens_of(name):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, model=name, prompt=[5, 6], max_tokens=4)
            return await s.finish(1)

    answers = [asyncio.run(tokens_of(name)) for name in (str(folder), "org/shown")]
    assert answers[0] == answers[1]


def test_tgis_clients_need_no_name(server):
    """Hugging Face's sends "dummy"."""
    client = InferenceClient(f"http://{server.endpoint}")
    answer = client.chat_completion(MESSAGES, max_tokens=3, temperature=0)
    assert answer.model == "org/shown" and answer.choices[0].message.content
    pieces = client.chat_completion(MESSAGES, max_tokens=3, temperature=0, stream=True)
    assert "".join(p.choices[0].delta.content for p in pieces) == answer.choices[0].message.content

"""Models whose tokenizer has other ids than they have logits: a pad token that was added without
resizing, a GGUF file with fewer rows than tokens, rows without tokens. All that is kept to a
grammar is served there, with the ids that there are."""

import asyncio
import json
import re
import shutil

import gguf
import numpy
import pytest
from aici_http import ask
from checkpoints import DEMO
from lmtp_socket import Socket
from safetensors.numpy import load_file, save_file
from servers import LmtpServe
from test_doctor import doctor
from test_gguf import MIXED

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
PATTERN = "[0-9]{3}-[ab]{2}"
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
MESSAGES = [{"role": "user", "content": "Once"}]


def pad_beyond(folder):
    """[PAD], as add_special_tokens() adds it where resize_token_embeddings() is not called."""
    shutil.copytree(DEMO, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    (end,) = tokenizer["added_tokens"]
    tokenizer["added_tokens"].append({**end, "id": end["id"] + 1, "content": "[PAD]"})
    path.write_text(json.dumps(tokenizer))
    return folder


def fewer_rows(path):
    """The small GGUF file without the rows of its last 20 tokens."""
    reader = gguf.GGUFReader(MIXED)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kinds = field.types
        inner = kinds[-1] if kinds[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kinds[0], inner)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name in ("token_embd.weight", "output.weight"):
            data = data[:-20]
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def more_rows(folder):
    """Rows of the embedding without tokens, as a vocabulary that is filled up has them."""
    shutil.copytree(DEMO, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    (name,) = (name for name in tensors if name.endswith("wte.weight"))
    rows = tensors[name]
    tensors[name] = numpy.concatenate([rows, rows[:12]])
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": len(rows) + 12}))
    return folder


# How it is made, and how many ids its tokenizer has beyond its logits.
MODELS = {
    "pad beyond": (pad_beyond, 1),
    "fewer rows": (fewer_rows, 20),
    "more rows": (more_rows, 0),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    make, num_beyond = MODELS[request.param]
    name = "model.gguf" if make is fewer_rows else "model"
    return make(tmp_path_factory.mktemp("vocabulary") / name), num_beyond


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(TEMPLATE)
    with LmtpServe(model[0], "--kv-cache", "16MiB", "--chat-template", template) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


def post(server, path, **body):
    status, answer = ask(server, path, body)
    assert status == 200, answer
    return json.loads(answer)


def test_completions_are_kept_to_a_grammar(server):
    answer = post(server, "/v1/completions", model="", prompt="Once", temperature=1, seed=1,
                  max_tokens=60, structured_outputs={"regex": PATTERN})  # fmt: skip
    assert re.fullmatch(PATTERN, answer["choices"][0]["text"])
    answer = post(server, "/generate", inputs="Once",
                  parameters={"grammar": {"type": "regex", "value": PATTERN}})  # fmt: skip
    assert re.fullmatch(PATTERN, answer["generated_text"])


def test_chats_are_kept_to_a_grammar(server):
    def chat(**fields):
        answer = post(server, "/v1/chat/completions", model="", messages=MESSAGES, temperature=1,
                      seed=1, max_tokens=60, **fields)  # fmt: skip
        return answer["choices"][0]["message"]

    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    assert json.loads(chat(response_format=schema)["content"])["a"] in (1, 2)
    assert chat(response_format={"type": "json_object"})["content"].lstrip().startswith("{")
    (call,) = chat(tools=[TOOL], tool_choice="required")["tool_calls"]
    assert json.loads(call["function"]["arguments"])["a"] in (1, 2)


def test_streams_are_kept_to_a_grammar(server, model):
    async def run():
        async with Socket(server.endpoint) as s:
            await s.send("MODEL_INFO", stream_id=1)
            info = (await s.wait_for(lambda _, e: "model_info" in e))[1]["model_info"]
            size = info["vocab_size"]
            notes = [note for note in info.get("notes", []) if "the model's vocabulary" in note]
            beyond = f"the tokenizer has {size + model[1]} ids, the model's vocabulary {size}: "
            assert [note.startswith(beyond) for note in notes] == [True] * bool(model[1])
            for seed in range(5):
                await s.send("GENERATE", stream_id=2, prompt="Once", temperature=1, seed=seed,
                             max_tokens=60, text=True,
                             grammar={"type": "regex", "value": PATTERN})  # fmt: skip
                text, last = "", {}
                while not last.get("finish_reason"):
                    last = await s.token_of(2)
                    assert "error" not in last and last["token"] < size
                    text += last["text"]
                assert re.fullmatch(PATTERN, text)
            if model[1]:
                await s.send("GENERATE", stream_id=3, prompt=[size], max_tokens=1)
                _, entry = await s.wait_for(lambda _, e: e["stream_id"] == 3)
                assert entry["code"] == "invalid_request", entry

    asyncio.run(run())


def test_doctor_says_so(model):
    code, found = doctor(model[0], "--port", "0")
    said = [(level, text) for level, _, text in found if "the model's vocabulary" in text]
    assert code == 0 and [level for level, _ in said] == ["warning"] * bool(model[1]), found

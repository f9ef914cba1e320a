"""GET /openapi.json: it is valid, GET / lists what it lists, every answer has the fields that it
says, and every field that it says is in some answer."""

import json
import pathlib
import re
import shutil
import urllib.error
import urllib.request

import jsonschema
import pytest
from servers import LmtpServe
from test_aici import modules  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"enum": [{"a": 1}]}}}
TEXT = {"prompt": "Once upon", "max_tokens": 3, "logprobs": 1, "return_token_ids": True}
CHAT = {"messages": [{"role": "user", "content": "Once upon"}], "max_tokens": 3}
CHATS = [
    CHAT | {"logprobs": True, "top_logprobs": 1, "return_token_ids": True},
    CHAT | {"tools": [TOOL], "tool_choice": "required", "max_tokens": 64},
]
INPUTS = {
    "inputs": "Once upon",
    "parameters": {"max_new_tokens": 3, "details": True, "do_sample": True, "top_n_tokens": 1},
}
WHOLE = INPUTS | {
    "parameters": INPUTS["parameters"] | {"best_of": 2, "decoder_input_details": True}
}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
MESSAGES = CHAT | {"tools": [{"name": "f", "input_schema": {"enum": [{"a": 1}]}}]}
FUNCTION = {"type": "function", "name": "f", "parameters": TOOL["function"]["parameters"]}
CUSTOM = {"type": "custom", "name": "c"}
RESPONSES = [
    {"input": "Once upon", "max_output_tokens": 3},
    {"input": "Once upon", "tools": [FUNCTION], "tool_choice": "required"},
    {"input": "Once upon", "tools": [CUSTOM], "tool_choice": "required", "max_output_tokens": 64},
]
# By the path: bodies that together make an answer have every field. For others: Schemas.sample().
RANKED = {"prompt_logprobs": 1}
BODIES = {
    "/v1/completions": [TEXT | RANKED, TEXT | STREAM],
    "/v1/chat/completions": [CHAT | RANKED] + CHATS + [chat | STREAM for chat in CHATS],
    "/v1/responses": RESPONSES + [body | {"stream": True} for body in RESPONSES],
    "/v1/embeddings": [{"input": "Once"}],
    "/v1/rerank": [{"query": "Once", "documents": ["a"]}],
    "/rerank": [{"query": "Once", "documents": ["a"]}],
    "/v1/messages": [MESSAGES, MESSAGES | {"stream": True}],
    "/v1/messages/count_tokens": [CHAT],
    "/": [WHOLE, INPUTS | {"stream": True}],
    "/generate": [WHOLE],
    "/generate_stream": [INPUTS],
    "/invocations": [WHOLE, TEXT, CHAT, TEXT | STREAM, CHAT | STREAM],
    "/tokenize": [{"inputs": "Once"}, {"prompt": "Once", "return_token_strs": True}],
    "/chat_tokenize": [CHAT],
    "/v1/decisions": [{"input": "Once", "questions": [{"type": "predicate", "instructions": "?"}],
                       "diagnostics": True}],
    "/v1/systemone": [{"state": {}, "questions": {"q": {"type": "score", "criteria": ["a"]}}}],
    "/generative_scoring": [{"query": "Once", "items": ["a"], "label_token_ids": [1, 2]}],
    "/v1/run": [{"controller": "fork", "prompt": "Once", "max_tokens": 8}],
}
# Of a server of any model, and of one that is not ready: tests/server/http_test.cpp; of a model
# that reasons: test_messages.py.
NOT_SEEN = {("Health", "loaded"), ("Health", "error"), ("Health", "error_type"),
            ("MessageUsage", "output_tokens_details")}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "demo"
    shutil.copytree(ROOT / "models" / "demo", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    cache = tmp_path_factory.mktemp("cache")
    options = ["--aici", "--aici-cache", cache, "--kv-cache", "64MiB"]
    with LmtpServe(folder, *options) as running:
        yield running
    assert running.exit_code == 0, running.log_tail


@pytest.fixture(scope="module")
def document(server):
    return json.loads(ask(server, "GET", "/openapi.json")[2])


def ask(server, method, path, body=None, kind="application/json"):
    """Status, type and text of the answer."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    url = f"http://{server.endpoint}{path}"
    headers = {"Content-Type": kind} if body else {}
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.headers.get_content_type(), answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers.get_content_type(), e.read().decode()


class Schemas:
    """Of a document: checks values, and keeps which fields of which types it has seen."""

    def __init__(self, document):
        self.types = document["components"]["schemas"]
        self.seen = set()

    def named(self, schema):
        name = schema.get("$ref", "").rpartition("/")[2]
        return name, self.types[name] if name else schema

    def closed(self, schema):
        """The same without references, and with no fields but those that it names."""
        _, schema = self.named(schema)
        if "anyOf" in schema:
            return {"anyOf": [self.closed(each) for each in schema["anyOf"]]}
        if "items" in schema:
            return schema | {"items": self.closed(schema["items"])}
        if "properties" not in schema:
            return schema
        bases = [self.closed(base) for base in schema.get("allOf", [])]
        fields = {name: self.closed(field) for name, field in schema["properties"].items()}
        required = list(schema.get("required", []))
        for base in bases:
            fields |= base["properties"]
            required += base["required"]
        return {"type": "object", "properties": fields, "required": required,
                "additionalProperties": False}  # fmt: skip

    def fits(self, schema, value):
        return jsonschema.Draft202012Validator(self.closed(schema)).is_valid(value)

    def check(self, schema, value):
        jsonschema.validate(value, self.closed(schema), jsonschema.Draft202012Validator)
        self.note(schema, value)

    def note(self, schema, value):
        name, schema = self.named(schema)
        for each in schema.get("anyOf", []):
            if self.fits(each, value):
                self.note(each, value)
        if isinstance(value, list) and "items" in schema:
            for item in value:
                self.note(schema["items"], item)
        for base in schema.get("allOf", []):
            self.note(base, value)
        for field in schema.get("properties", {}) if isinstance(value, dict) else []:
            if field in value:
                self.seen.add((name, field))
                self.note(schema["properties"][field], value[field])

    def sample(self, schema):
        """A value with no fields but those that it must have."""
        schema = self.closed(schema)
        if "properties" in schema:
            return {name: self.sample(schema["properties"][name]) for name in schema["required"]}
        kind = schema.get("type")
        if kind == "array":
            return [self.sample(schema["items"])]
        return schema.get("minimum", 1) if kind == "integer" else "Once"

    def fields(self, schema):
        """All (type, field) that it leads to."""
        name, schema = self.named(schema)
        inner = [*schema.get("anyOf", []), *schema.get("allOf", [])]
        inner += [schema["items"]] if "items" in schema else []
        found = {(name, field) for field in schema.get("properties", {})}
        for part in [*inner, *schema.get("properties", {}).values()]:
            found |= self.fields(part)
        return found


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def contents(document, response):
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return response["content"]


def check_answer(schemas, content, kind, text):
    assert kind in content, (kind, text)
    schema = content[kind].get("schema")
    if kind == "application/json":
        schemas.check(schema, json.loads(text))
    if kind != "text/event-stream":
        return
    lines = text.split("\n")
    events = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    for event in events:
        if event.strip() != "[DONE]":
            schemas.check(schema, json.loads(event))


def test_it_is_valid(document):
    validator = pytest.importorskip("openapi_spec_validator", reason="is in .venv-newest")
    validator.validate(document)
    assert document["openapi"] == "3.1.0"
    assert len(json.dumps(document)) < 64_000


def test_the_page_lists_the_same(server, document):
    page = ask(server, "GET", "/")[2]
    rows = re.findall(r"<tr><td>(\w+)<td><code>(.*?)</code>", page)
    described = [(method, path) for path, method, _ in operations(document)]
    assert sorted(rows) == sorted(described)


def test_answers_have_the_fields_that_it_says(server, document, modules):  # noqa: F811
    schemas = Schemas(document)
    expected = set()
    answers = {}
    uploaded = ask(server, "POST", "/v1/controllers", modules["fork"], "application/wasm")
    tags = {"module_id": json.loads(uploaded[2])["module_id"], "tags": ["fork", "gone"]}
    answers["/v1/controllers", "POST"] = [uploaded]
    answers["/v1/controllers/tags", "POST"] = [ask(server, "POST", "/v1/controllers/tags", tags)]
    created = json.loads(ask(server, "POST", "/v1/responses", RESPONSES[0])[2])
    kept = "/v1/responses/" + created["id"]
    answers["/v1/responses/{id}", "GET"] = [
        ask(server, "GET", kept + items) for items in ("", "/input_items")
    ]
    answers["/v1/responses/{id}", "DELETE"] = [ask(server, "DELETE", kept)]
    for path, method, operation in operations(document):
        content = contents(document, operation["responses"]["200"])
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        bodies = [body and schemas.sample(body["schema"])]
        if method == "POST":
            bodies = BODIES.get(path, bodies)
        name = "gone" if "/tags/" in path else "demo"
        got = answers.get((path, method)) or [
            ask(server, method, path.replace("{name}", name), body) for body in bodies
        ]
        for status, kind, text in got:
            assert status == 200, (path, text)
            check_answer(schemas, content, kind, text)
        for kind in content.values():
            expected |= schemas.fields(kind.get("schema", {}))
    # A refusal has the form of its API.
    for path, method, operation in operations(document):
        content = contents(document, operation["responses"]["default"])
        for answer in [
            ask(server, method, path, b"[", "text/plain"),
            ask(server, method, path, b"[", "application/json"),
        ]:
            if answer[0] != 200:
                check_answer(schemas, content, *answer[1:])
        expected |= schemas.fields(content.get("application/json", {}).get("schema", {}))
    assert schemas.seen == expected - NOT_SEEN

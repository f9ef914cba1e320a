"""The table of tools/dev/compatibility.txt against OpenAI's and Anthropic's packages, and against
the server."""

import json
import pathlib
import sys
import urllib.error
import urllib.request

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_create
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params
from servers import LmtpServe
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))
import compatibility  # noqa: E402

ROWS = list(compatibility.rows())
TYPES = {
    ("POST /v1/completions", "O"): [completion_create_params.CompletionCreateParamsBase],
    ("POST /v1/chat/completions", "O"): [chat_params.CompletionCreateParamsBase],
    ("POST /v1/embeddings", "O"): [embedding_create_params.EmbeddingCreateParams],
    ("POST /v1/responses", "O"): [response_create_params.ResponseCreateParamsBase],
    ("POST /v1/messages", "A"): [
        message_create_params.MessageCreateParamsBase, beta_create.MessageCreateParamsBase,
    ],
    ("POST /v1/messages/count_tokens", "A"): [
        message_count_tokens_params.MessageCountTokensParams, beta_count.MessageCountTokensParams,
    ],
}  # fmt: skip
MESSAGES = [{"role": "user", "content": "Once upon"}]
LEAST = {
    "/v1/completions": {"prompt": "Once upon", "max_tokens": 1},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/embeddings": {"input": "Once upon"},
    "/v1/responses": {"input": "Once upon", "max_output_tokens": 1},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/generate": {"inputs": "Once upon", "parameters": {"max_new_tokens": 1}},
}
REFUSED = 400, 422  # TGI's


def test_the_page_is_that_of_the_table():
    assert compatibility.PAGE.read_text() == compatibility.page(), "run tools/dev/compatibility.py"


@pytest.mark.parametrize("request_, api", TYPES)
def test_every_field_of_the_packages_types_has_a_row(request_, api):
    fields = {name for kind in TYPES[request_, api] for name in kind.__annotations__}
    own = {row.field for row in ROWS if row.request == request_ and api in row.whose}
    assert own - fields <= {"stream"}, "the package has no such field"
    assert fields - own == set(), "these have no row"


MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "demo")
    tokenizer.add_tokens(MARKS)
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return tokenizer


@pytest.fixture(scope="module")
def url(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fim") / "model"
    tokenizer.save_pretrained(folder)
    weights = AutoModelForCausalLM.from_pretrained(ROOT / "models" / "demo")
    weights.resize_token_embeddings(len(tokenizer))
    weights.save_pretrained(folder)
    with LmtpServe(folder) as server:
        yield f"http://{server.endpoint}"
    assert server.exit_code == 0, server.log_tail


def answer_of(url, path, body):
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def test_what_is_served_is_in_the_specification(url):
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=60) as answer:
        openapi = json.load(answer)
    schemas = openapi["components"]["schemas"]

    def fields_of(schema):
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        fields = dict(schema.get("properties", {}))
        for base in schema.get("allOf", []):
            fields |= fields_of(base)
        return fields

    for row in ROWS:
        _, path, *member = row.request.split()
        content = openapi["paths"][path]["post"]["requestBody"]["content"]
        fields = fields_of(content["application/json"]["schema"])
        if member:
            fields = fields_of(fields[member[0]])
        if row.state == "served":
            assert row.field in fields, row


def test_what_is_refused_is_named_and_what_is_ignored_is_taken(url):
    wrong = []
    for row in ROWS:
        if row.state == "served":
            continue
        _, path, *member = row.request.split()
        body = json.loads(json.dumps(LEAST[path]))
        (body[member[0]] if member else body)[row.field] = row.value
        status, text = answer_of(url, path, body)
        is_refused = status in REFUSED and row.field in text
        is_right = status == 200 if row.state == "ignored" else is_refused
        if not is_right:
            wrong.append((row, status, text[:200]))
    assert not wrong, "\n".join(map(str, wrong))


def completion(url, **fields):
    status, text = answer_of(url, "/v1/completions", {"max_tokens": 1, **fields})
    assert status == 200, text
    return json.loads(text)


def test_a_suffix_is_after_what_is_filled_in(url, tokenizer):
    answer = completion(url, prompt="Once", suffix=" a time", return_token_ids=True)
    before, after, middle = tokenizer.convert_tokens_to_ids(MARKS)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in ("Once", " a time")]
    own = answer["choices"][0]["prompt_token_ids"]
    assert own[-len(ids[0] + ids[1]) - 3 :] == [before, *ids[0], after, *ids[1], middle]
    texts = "One<|fim_middle|>", "<|fim_suffix|>two<|endoftext|>"
    answer = completion(url, prompt=texts[0], suffix=texts[1], return_token_ids=True)
    own = answer["choices"][0]["prompt_token_ids"]
    assert [token for token in own[1:] if token in tokenizer.all_special_ids] == []
    assert [own.count(mark) for mark in (before, after, middle)] == [1, 1, 1]
    status, text = answer_of(url, "/v1/completions", {"prompt": [1, 2], "suffix": "x"})
    assert status == 400 and "suffix" in text


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        return json.load(answer)


def test_prompts_are_cut_to_what_fits_and_the_rest_of_vllms_routes(url, tokenizer):
    context = get(url, "/v1/models")["data"][0]["max_model_len"]
    long = "word " * context
    answer = completion(url, prompt=long, truncate_prompt_tokens=-1, max_tokens=7)
    assert answer["usage"]["prompt_tokens"] == context - 7
    assert get(url, "/load") == {"server_load": 0}
    info = get(url, "/tokenizer_info")
    assert info["chat_template"] == tokenizer.chat_template
    assert info["eos_token"] == tokenizer.eos_token and info["vocab_size"] >= len(tokenizer)

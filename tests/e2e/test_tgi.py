"""TGI's API, as Hugging Face's client speaks it, against LMTP on the same server."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import GenerationError, OverloadedError, ValidationError
from lmtp_socket import Socket
from servers import LmtpServe
from test_chat import MESSAGES, model, server  # noqa: F401

TIMEOUT_S = 120
PROMPT = "Once upon a time"


@pytest.fixture
def client(demo):
    return InferenceClient(f"http://{demo.endpoint}", provider="hf-inference", timeout=TIMEOUT_S)


def post(demo, path, body):
    request = urllib.request.Request(
        f"http://{demo.endpoint}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.headers, json.load(answer)


def over_lmtp(demo, prompt, **params):
    """Its entries, whose prompt is token ids."""

    async def run():
        async with Socket(demo.endpoint) as socket:
            await socket.send("GENERATE", stream_id=1, prompt=prompt, **params)
            entries = [await socket.token_of(1)]
            while not entries[-1]["finish_reason"]:
                entries.append(await socket.token_of(1))
            return entries

    return asyncio.run(run())


def test_a_text_and_its_stream(client):
    text = client.text_generation(PROMPT, max_new_tokens=24, return_full_text=False)
    assert text
    full = client.text_generation(PROMPT, max_new_tokens=24)
    assert full == PROMPT + text, "POST / has the prompt, by default"
    pieces = list(client.text_generation(PROMPT, max_new_tokens=24, stream=True))
    assert (len(pieces), "".join(pieces)) == (24, text)


def test_details_are_those_of_the_stream_and_of_lmtp(client, demo):
    asked = {"max_new_tokens": 24, "temperature": 0.8, "seed": 7, "details": True}
    whole = client.text_generation(
        PROMPT, decoder_input_details=True, top_n_tokens=3, return_full_text=False, **asked
    )
    details = whole.details
    assert (details.finish_reason, details.generated_tokens, details.seed) == ("length", 24, 7)
    assert "".join(token.text for token in details.tokens) == whole.generated_text
    assert [len(tops) for tops in details.top_tokens] == [3] * 24
    prompt = [token.id for token in details.prefill]
    assert details.prefill[0].logprob is None
    _, tokens = post(demo, "/tokenize", {"inputs": PROMPT})
    assert [token["id"] for token in tokens] == prompt
    assert [PROMPT[t["start"] : t["stop"]] for t in tokens] == [t["text"] for t in tokens]
    streamed = list(client.text_generation(PROMPT, stream=True, **asked))
    assert [event.index for event in streamed] == list(range(1, 25))
    assert streamed[-1].details.input_length == len(prompt)
    entries = over_lmtp(demo, prompt, max_tokens=24, temperature=0.8, seed=7)
    bits = [(entry["token"], entry["logprob"]) for entry in entries]
    assert [(token.id, token.logprob) for token in details.tokens] == bits
    assert [(event.token.id, event.token.logprob) for event in streamed] == bits


def test_a_chat_as_tokens_is_what_transformers_makes_of_it(server, model):  # noqa: F811
    tokenizer = model[1]
    _, answer = post(server, "/chat_tokenize", {"messages": MESSAGES})
    text, tokens = answer["templated_text"], answer["tokenize_response"]
    rendered = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    assert text == rendered
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert [token["id"] for token in tokens] == ids
    assert "".join(text[t["start"] : t["stop"]] for t in tokens) == text
    assert {t["text"] for t in tokens} >= {"<|im_start|>", "<|im_end|>"}


def test_a_chat_has_as_many_messages_as_its_bytes_hold(server):  # noqa: F811
    messages = [{"role": "user", "content": "x"} for _ in range(6000)]
    _, answer = post(server, "/chat_tokenize", {"messages": messages})
    assert answer["templated_text"].count("<|im_start|>user\nx<|im_end|>\n") == 6000


def test_numbers_and_spaces_of_a_chat_are_written_as_python_does(tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text(
        "{{ messages[0].content | trim }}|{{ messages[0].content[1:3] }}|"
        "{{ messages[1].tool_calls[0].function.arguments | tojson }}{{ tools }}"
    )
    numbers = [52.520008, 1234567.89, 1732842387.125, 1e-07, 1.0, 0.0, 2**64 - 1, 2**63, 2**70]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"minimum": 0.0}}}]
    call = {"id": "a", "type": "function"}
    messages = [
        {"role": "user", "content": "\u3000日本 é\u00a0"},
        {"role": "assistant", "content": None, "tool_calls": [
            call | {"function": {"name": "f", "arguments": json.dumps({"of": numbers})}},
        ]},
    ]  # fmt: skip
    with LmtpServe("demo", "--kv-cache", "16MiB", "--chat-template", template) as at:
        _, answer = post(at, "/chat_tokenize", {"messages": messages, "tools": tools})
    wanted = f"日本 é|日本|{json.dumps({'of': numbers})}{tools}"
    assert answer["templated_text"] == wanted


def test_of_two_the_better_one_is_the_answer(client):
    answer = client.text_generation(
        PROMPT, max_new_tokens=8, best_of=2, do_sample=True, details=True, stop=["nobody says it"]
    )
    mean = [
        sum(token.logprob for token in sequence.tokens) / len(sequence.tokens)
        for sequence in [answer.details, *answer.details.best_of_sequences]
    ]
    assert len(mean) == 2 and mean[0] >= mean[1]


def test_langchains_defaults_draw(client):
    """What langchain_huggingface's HuggingFaceEndpoint sends where nothing else is said."""
    asked = {"top_k": 10, "top_p": 0.95, "typical_p": 0.95, "temperature": 0.8}
    answers = [
        client.text_generation(
            PROMPT, max_new_tokens=20, details=True, seed=seed, **asked | more
        ).details.tokens
        for seed in (1, 2)
        for more in ({}, {"typical_p": 1e-6})
    ]
    first, first_typical, second, second_typical = ([t.id for t in tokens] for tokens in answers)
    assert first != second
    assert first_typical == second_typical, "one token alone is typical"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"temperature": -1.0}, "`temperature` must be strictly positive"),
        ({"top_n_tokens": 9}, "`top_n_tokens` must be >= 0 and <= 5. Given: 9"),
        ({"grammar": {"type": "regex", "value": "(a"}}, "grammar is not valid: "),
        ({"max_new_tokens": 10**6}, "`inputs` tokens + `max_new_tokens` must be <= "),
    ],
)
def test_what_is_wrong_is_a_validation_error(client, stream, asked, sentence):
    with pytest.raises(ValidationError, match="Input validation error: ") as error:
        list(client.text_generation(PROMPT, stream=stream, **asked))
    assert sentence in str(error.value)
    assert not isinstance(error.value, (GenerationError, OverloadedError))


def test_the_header_has_the_numbers(demo):
    headers, _ = post(demo, "/generate", {"inputs": PROMPT, "parameters": {"max_new_tokens": 5}})
    assert headers["x-generated-tokens"] == "5"
    assert int(headers["x-total-time"]) >= int(headers["x-inference-time"])
    assert float(headers["x-compute-time"]) > 0


def test_info_and_health(client, demo):
    info = client.get_endpoint_info()
    assert info["model_id"] == "demo"
    assert info["max_input_tokens"] + 1 == info["max_total_tokens"]
    assert client.health_check()
    with pytest.raises(urllib.error.HTTPError) as error:
        post(demo, "/tokenize", {"inputs": ""})
    assert error.value.code == 422

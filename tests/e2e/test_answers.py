"""What an answer is over HTTP, where public reports say that servers get it wrong: which tokens end
it, what penalties count, names and places of tokens, fields left empty, odd targets."""

import asyncio
import http.client
import json
import re
import urllib.error
import urllib.request

import pytest
from lmtp_socket import Socket
from repl_terminal import run_client
from servers import LmtpServe
from test_chat import MESSAGES, save
from transformers import AutoModelForCausalLM

PROMPT = "Once upon a time"
NUM_PADDED = 8  # ids that the model has and the tokenizer has not


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers") / "model"
    tokenizer = save(folder)
    padded = AutoModelForCausalLM.from_pretrained(folder)
    padded.resize_token_embeddings(len(tokenizer) + NUM_PADDED)
    padded.save_pretrained(folder)
    return folder, tokenizer


@pytest.fixture(scope="module")
def server(model):
    with LmtpServe(model[0], "--kv-cache", "64MiB") as server:
        yield server
    assert server.exit_code == 0, server.log_tail


def unique(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), f"a key stands twice: {pairs}"
    return dict(pairs)


def ask(server, method, target, body=None):
    """(status, answer) of a request whose target stands as it is."""
    connection = http.client.HTTPConnection(*server.endpoint.split(":"))
    content = None if body is None else json.dumps(body)
    connection.request(method, target, content, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    try:
        return response.status, json.loads(text, object_pairs_hook=unique)
    except ValueError:
        return response.status, text


def complete(server, path="/v1/completions", **fields):
    status, answer = ask(server, "POST", path, {"max_tokens": 6, "temperature": 0, **fields})
    assert status == 200, answer
    return answer


def test_a_stop_string_that_is_a_special_token_stops_there(server, model):
    end = model[1].convert_tokens_to_ids("<|im_end|>")
    drawn = {"logit_bias": {str(end): 100}, "ignore_eos": True}
    stop = {"stop": ["<|im_end|>"]}
    for path, prompt in (
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
    ):
        (long,) = complete(server, path, **prompt, **drawn)["choices"]
        assert long["finish_reason"] == "length"
        answer = complete(server, path, **prompt, **drawn, **stop)
        (choice,) = answer["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert (text, choice["finish_reason"], choice["stop_reason"]) == ("", "stop", "<|im_end|>")
        assert answer["usage"]["completion_tokens"] == 1

    async def stream():
        async with Socket(server.endpoint) as socket:
            await socket.send(
                "GENERATE", stream_id=1, prompt=PROMPT, text=True, include_stop=True,
                logit_bias={str(end): 100}, **stop,
            )  # fmt: skip
            return await socket.token_of(1)

    entry = asyncio.run(stream())
    assert entry["token"] == end and entry["finish_reason"] == "stop"
    assert entry["stop_text"] == entry["text"] == "<|im_end|>"


def test_a_token_that_the_template_ends_answers_with_ends_them(server, model):
    """Config.json names another; LMTP's plain prompts go on by it alone, as with LMQL's server."""
    end = model[1].convert_tokens_to_ids("<|im_end|>")
    bias = {str(end): 100}
    for path, prompt in (
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
    ):
        (choice,) = complete(server, path, **prompt, logit_bias=bias)["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert (text, choice["finish_reason"], choice["stop_reason"]) == ("", "stop", None)

    async def streams():
        async with Socket(server.endpoint) as socket:
            await socket.send("MODEL_INFO", stream_id=1)
            _, entry = await socket.wait_for(lambda _, entry: "model_info" in entry)
            ends = []
            for prompt in ({"prompt": PROMPT}, {"messages": MESSAGES}):
                await socket.send(
                    "GENERATE", stream_id=1, logit_bias=bias, max_tokens=3, **prompt
                )  # fmt: skip
                entries = [await socket.token_of(1)]
                while not entries[-1].get("finish_reason"):
                    entries.append(await socket.token_of(1))
                ends.append((len(entries), entries[-1]["finish_reason"]))
            return entry["model_info"], ends

    info, ends = asyncio.run(streams())
    assert end not in info["eos_token_ids"] and info["answer_end_token_ids"] == [end]
    assert ends == [(3, "length"), (1, "stop")]


def test_presence_and_frequency_count_what_is_generated(server, model):
    words = model[1](f"{PROMPT} {PROMPT}")["input_ids"]
    asked = {"prompt": words, "logprobs": 5, "logit_bias": {str(i): 30 for i in words[:4]}}
    plain = complete(server, **asked)["choices"][0]["logprobs"]
    penalized = complete(server, **asked, presence_penalty=2, frequency_penalty=1)
    after = penalized["choices"][0]["logprobs"]
    assert after["top_logprobs"][0] == plain["top_logprobs"][0], "nothing is generated yet"
    assert after["tokens"] != plain["tokens"], "then it is"
    repeated = complete(server, **asked, repetition_penalty=1.5)["choices"][0]["logprobs"]
    assert repeated["top_logprobs"][0] != plain["top_logprobs"][0], "of the prompt, too"


def test_a_text_that_several_tokens_have_is_named_once(server, model):
    first = len(model[1])
    bias = {str(first): 90, str(first + 1): 95, str(first + 2): 92}
    answer = complete(server, prompt=PROMPT, logprobs=4, max_tokens=1, logit_bias=bias)
    lists = answer["choices"][0]["logprobs"]
    assert lists["tokens"] == [""]
    assert lists["top_logprobs"][0][""] == lists["token_logprobs"][0] > -0.1


def test_offsets_are_places_in_the_text(server):
    prompt = "<|im_start|>Once upon"
    (choice,) = complete(server, prompt=prompt, echo=True, logprobs=1)["choices"]
    lists = choice["logprobs"]
    ends = [*lists["text_offset"][1:], len(choice["text"])]
    pieces = [choice["text"][a:b] for a, b in zip(lists["text_offset"], ends, strict=True)]
    shown = ["" if token.startswith("<|") else token for token in lists["tokens"]]
    assert pieces == shown


def test_an_empty_text_is_not_given(server):
    plain = complete(server, prompt=PROMPT)["choices"]
    for field in (
        "suffix", "grammar", "guided_grammar", "guided_json", "guided_choice", "guided_regex",
        "structural_tag", "adapter_id", "cache_salt", "bad_words", "prompt_embeds", "seed", "n",
        "logit_bias", "stream", "stream_options", "response_format", "min_tokens",
    ):  # fmt: skip
        assert complete(server, prompt=PROMPT, **{field: ""})["choices"] == plain, field
    chat = complete(server, "/v1/chat/completions", messages=MESSAGES)["choices"]
    for field, value in (
        ("functions", []), ("web_search_options", {}), ("function_call", "auto"), ("tools", ""),
        ("tool_choice", ""), ("modalities", ""), ("chat_template_kwargs", ""),
    ):  # fmt: skip
        asked = {"messages": MESSAGES, field: value}
        assert complete(server, "/v1/chat/completions", **asked)["choices"] == chat, field
    for wrong in ({"structured_outputs": {"regex": ""}}, {"stop": ""}):
        status, answer = ask(server, "POST", "/v1/completions", {"prompt": PROMPT, **wrong})
        assert status == 400 and next(iter(wrong)) in answer["error"]["message"]


def test_one_grammar_in_two_spellings(server):
    """As guidance sends it, for vLLM old and new."""
    lark = 'start: "yes" | "no"'
    both = {"guided_grammar": lark, "structured_outputs": {"grammar": lark}}
    assert complete(server, prompt=PROMPT, **both)["choices"][0]["text"] in ("yes", "no")
    both["guided_grammar"] = 'start: "no"'
    status, answer = ask(server, "POST", "/v1/completions", {"prompt": PROMPT, **both})
    assert status == 400 and "stands beside" in answer["error"]["message"]


def test_arguments_of_a_call_are_an_object(server):
    for parameters in ({}, {"description": "any"}, {"properties": {"a": {"type": "integer"}}}):
        tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
        answer = complete(
            server, "/v1/chat/completions", messages=MESSAGES, tools=[tool], temperature=1, seed=1,
            max_tokens=64, tool_choice={"type": "function", "function": {"name": "f"}},
        )  # fmt: skip
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["arguments"].startswith("{"), parameters


def test_targets(server):
    models = ask(server, "GET", "/v1/models")
    assert models[0] == 200
    assert ask(server, "GET", "/v1/models/") == models
    assert ask(server, "GET", f"http://{server.endpoint}/v1/models?x=1") == models
    status, _ = ask(server, "POST", f"HTTP://user@{server.endpoint}/v1/completions", {})
    assert status == 400, "as of the path alone: it is read, and has no prompt"
    status, _ = ask(server, "GET", "http://elsewhere.example/v1/models")
    assert status == 421, "the authority stands for Host"
    for path, instead in (
        ("/v1/v1/completions", "once"),
        ("/chat/completions", "/v1/chat/completions"),
    ):
        status, answer = ask(server, "POST", path, {})
        text = answer if isinstance(answer, str) else answer["error"]["message"]
        assert status == 404 and instead in text, (path, answer)


def test_a_body_that_is_too_long_and_sent_first_gets_its_answer(server):
    request = urllib.request.Request(
        f"http://{server.endpoint}/v1/completions", b" " * (40 << 20), method="POST"
    )
    with pytest.raises(urllib.error.HTTPError, match="413") as refusal:
        urllib.request.urlopen(request)
    assert "longer than" in refusal.value.read().decode()


def test_the_log_says_why_a_request_is_refused(server):
    status, answer = ask(server, "POST", "/v1/completions", {"prompt": PROMPT, "top_p": 17})
    assert status == 400
    log = server.wait_for_log(f": 400: {answer['error']['message']}")
    assert re.search(r": POST /v1/completions, id req-[0-9a-f]{32}: 400: ", log)


def test_an_id_leads_from_the_answer_to_the_log(server):
    trace = "0af7651916cd43dd8448eb211c80319c"
    asked = {"X-Request-Id": "order-17", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}

    def answer_to(path, body, headers):
        url = f"http://{server.endpoint}{path}"
        headers = {"Content-Type": "application/json", **headers}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, json.dumps(body).encode(), headers)
            ) as answer:
                return answer.headers
        except urllib.error.HTTPError as error:
            return error.headers

    for path, body in (
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 1}),
        ("/generate", {"inputs": PROMPT, "parameters": {"max_new_tokens": 1}}),
        ("/v1/chat/completions", {"messages": 1}),
    ):
        head = answer_to(path, body, asked)
        assert head["X-Request-Id"] == "order-17" and head["traceparent"] == asked["traceparent"]
        fresh = answer_to(path, body, {})["X-Request-Id"]
        log = server.wait_for_log(f", id {fresh}: ")
        mine = [line for line in log.splitlines() if f": POST {path}" in line and trace in line]
        assert len(mine) == 1 and ", id order-17" in mine[0]


def test_lmtp_client_without_a_model_has_the_servers_text(server):
    """It is not the demo, whose tokenizer the client would have."""
    command = ("--host", server.endpoint, "-p", PROMPT, "-n", 5)
    done = run_client(*command)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == run_client("--text", *command).stdout


def test_objects_have_the_properties_that_their_schema_names(server):
    """As OpenAI's strict mode, vLLM and llama.cpp mean it."""
    schema = {
        "properties": {"a": {"const": 1}}, "required": ["a"],
        "x-guidance": {"whitespace_flexible": False},
    }  # fmt: skip
    comma = ask(server, "POST", "/tokenize", {"prompt": ",", "add_special_tokens": False})
    bias = {str(comma[1]["tokens"][0]): 100}  # an open object goes on

    def text(**more):
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, **more}}
        asked = {"prompt": PROMPT, "max_tokens": 60, "response_format": form, "logit_bias": bias}
        return complete(server, **asked)["choices"][0]

    closed = text()
    assert closed["finish_reason"] == "stop" and json.loads(closed["text"]) == {"a": 1}
    assert not text(strict=False)["text"].startswith("{"), "which its letter allows"
    tgi = {"type": "json", "value": schema}
    asked = {"inputs": PROMPT, "parameters": {"max_new_tokens": 60, "grammar": tgi}}
    status, answer = ask(server, "POST", "/generate", asked)
    assert status == 200 and json.loads(answer["generated_text"]) == {"a": 1}, answer

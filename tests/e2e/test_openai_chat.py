"""/v1/chat/completions by OpenAI's own client and LangChain's, on a model with a chat template."""

import os
import pathlib
import signal

import openai
import pytest
from test_chat import ATTACK, MESSAGES, ids_of, model, server  # noqa: F401
from test_openai import counts_of

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def client(server):  # noqa: F811
    url = f"http://{server.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def chat(client, **more):
    options = {"messages": MESSAGES, "max_completion_tokens": 12, "temperature": 0, **more}
    return client.chat.completions.create(model="model", **options)


def test_a_chat_is_the_completion_of_its_prompt(client, model):  # noqa: F811
    more = {"extra_body": {"prompt_logprobs": 2}}
    answer = chat(client, logprobs=True, top_logprobs=2, **more)
    ids = ids_of(model[1], MESSAGES)
    completion = client.completions.create(
        model="model", prompt=ids, max_tokens=12, temperature=0, logprobs=2, **more
    )
    assert answer.prompt_logprobs == completion.choices[0].prompt_logprobs
    assert len(answer.prompt_logprobs) == len(ids)
    (choice,) = answer.choices
    assert answer.object == "chat.completion" and choice.message.role == "assistant"
    assert choice.message.content == completion.choices[0].text
    assert counts_of(answer) == counts_of(completion) and answer.usage.prompt_tokens == len(ids)
    content = choice.logprobs.content
    assert [t.logprob for t in content] == completion.choices[0].logprobs.token_logprobs
    assert all(len(t.top_logprobs) == 2 for t in content)
    assert b"".join(bytes(t.bytes) for t in content).decode() == choice.message.content


def test_a_stream_is_the_answer_in_pieces(client):
    options = {"n": 2, "temperature": 0.9, "seed": 3}
    whole = chat(client, **options)
    chunks = list(chat(client, **options, stream=True, stream_options={"include_usage": True}))
    assert counts_of(chunks[-1]) == counts_of(whole) and not chunks[-1].choices
    for choice in whole.choices:
        parts = [c.choices[0] for c in chunks[:-1] if c.choices[0].index == choice.index]
        assert [p.delta.role for p in parts] == ["assistant"] + [None] * (len(parts) - 1)
        assert "".join(p.delta.content for p in parts) == choice.message.content
        assert parts[-1].finish_reason == choice.finish_reason == "length"
    with client.chat.completions.stream(
        model="model", messages=MESSAGES, max_completion_tokens=5
    ) as events:
        events.until_done()
        snapshot = events.current_completion_snapshot
        assert snapshot.choices[0].finish_reason == "length" and snapshot.usage is None


def test_a_chat_whose_renderer_was_killed_is_asked_once_more(client, server):  # noqa: F811
    first = chat(client).choices[0].message.content
    parent = server.process.pid
    children = [
        int(pid)
        for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children")
        for pid in path.read_text().split()
    ]
    (renderer,) = [
        pid for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "lmtp-jinja\n"
    ]
    os.kill(renderer, signal.SIGKILL)
    assert chat(client).choices[0].message.content == first


def test_what_the_prompt_is_made_of(client, model):  # noqa: F811
    tokenizer = model[1]

    def prompt_of(**more):
        extra = {"return_token_ids": True, **more.pop("extra", {})}
        return chat(client, **more, extra_body=extra).choices[0].prompt_token_ids

    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert prompt_of(messages=parts) == ids_of(tokenizer, [{"role": "user", "content": "Hello"}])
    special = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert prompt_of(messages=ATTACK).count(special) == 2, "the template's own alone"
    tools = prompt_of(tools=[WEATHER], tool_choice="none")
    assert tools == ids_of(tokenizer, MESSAGES), "which this template does not show"
    continuing = {"add_generation_prompt": False, "continue_final_message": True}
    for text in ("```json\n", "The answer is ", " e", "e", "end", "|", "<|im_end|", "Then the"):
        opened = [*MESSAGES, {"role": "assistant", "content": text}]
        ids = ids_of(tokenizer, opened, **continuing)
        assert prompt_of(messages=opened, extra=continuing) == ids, text
        opened[-1]["content"] = [{"type": "text", "text": text}]
        assert prompt_of(messages=opened, extra=continuing) == ids, text
    answer = chat(client, messages=opened, extra_body={"echo": True, **continuing})
    assert answer.choices[0].message.content.startswith("Then the")


def test_without_max_tokens_it_goes_to_the_end_of_the_context(client, model):  # noqa: F811
    answer = chat(client, max_completion_tokens=None, extra_body={"ignore_eos": True})
    context = client.models.retrieve("model").max_model_len
    assert answer.usage.total_tokens == context and answer.choices[0].finish_reason == "length"


def test_what_is_not_there_is_refused(client):
    image = {"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}
    for more, message in (
        ({"tool_choice": "required"}, "tool_choice: needs tools"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "has no schema"),
        ({"messages": [{"role": "user", "content": [image]}]}, "messages.*is no text"),
        ({"messages": [{"role": "poet", "content": "O"}]}, "poets are not heard"),
        ({"messages": []}, "messages: is an array"),
        ({"top_logprobs": 2}, "top_logprobs: needs logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"messages": MESSAGES, "max_completion_tokens": 100_000}, "the context"),
    ):
        with pytest.raises(openai.BadRequestError, match=message) as e:
            chat(client, **more)
        assert e.value.param.partition(".")[0] in more


def test_a_model_without_a_template_says_so(demo):
    url = f"http://{demo.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as e:
            client.chat.completions.create(model="demo", messages=MESSAGES)
        assert e.value.param == "messages"


def test_langchain(server):  # noqa: F811
    from langchain_community.chat_models import ChatOpenAI

    llm = ChatOpenAI(
        model_name="model",
        openai_api_base=f"http://{server.endpoint}/v1",
        openai_api_key="none",
        temperature=0,
        max_tokens=12,
    )
    text = llm.invoke("Tell me a tale.").content
    assert text and "".join(piece.content for piece in llm.stream("Tell me a tale.")) == text

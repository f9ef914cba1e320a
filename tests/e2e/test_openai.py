"""OpenAI's API by its own client, and by LangChain's classes."""

import asyncio
import http.client
import json

import openai
import pytest
from checkpoints import ENDLESS_CONTEXT
from lmtp_socket import Socket, wait_all_freed
from servers import LmtpServe

PROMPT = "Once upon a time"


@pytest.fixture
def client(demo):
    with openai.OpenAI(
        base_url=f"http://{demo.endpoint}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def complete(client, **more):
    return client.completions.create(model="demo", **{"prompt": PROMPT, "max_tokens": 12, **more})


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == "demo" and model.object == "model"
    assert client.models.retrieve("demo") == model
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("org/other")
    assert e.value.code == "model_not_found"


def test_prompt_logprobs_are_those_of_an_echo(client):
    asked = {"extra_body": {"prompt_logprobs": 3}, "max_tokens": 1}
    echoed = complete(client, echo=True, logprobs=3, **asked).choices[0]
    (choice,) = complete(client, **asked).choices
    first, *others = choice.prompt_logprobs
    lists = echoed.logprobs
    assert first is None and choice.prompt_logprobs == echoed.prompt_logprobs
    assert len(others) + 1 == len(lists.tokens) - 1
    for at, entries in enumerate(others, start=1):
        own, *_ = entries.values()
        assert own["decoded_token"] == lists.tokens[at]
        assert own["logprob"] == lists.token_logprobs[at]
        ranked = sorted(entries.values(), key=lambda entry: entry["rank"])
        assert [e["rank"] for e in ranked[:3]] == [1, 2, 3] and own in ranked
        assert [e["logprob"] for e in ranked] == sorted(
            (e["logprob"] for e in ranked), reverse=True
        )
        assert set(lists.top_logprobs[at].values()) <= {e["logprob"] for e in ranked}
    with pytest.raises(openai.BadRequestError, match="-1, which is all of the vocabulary's"):
        complete(client, extra_body={"prompt_logprobs": -1})


def counts_of(answer):
    """Of a repeated request more of the prompt is cached."""
    return answer.usage.model_dump(exclude={"prompt_tokens_details"})


def test_a_stream_is_the_answer_in_pieces(client):
    options = {"temperature": 0.8, "seed": 7, "n": 2, "logprobs": 3}
    whole = complete(client, **options)
    assert whole.usage.completion_tokens == sum(len(c.logprobs.tokens) for c in whole.choices)
    assert whole.choices[0].text != whole.choices[1].text
    assert whole.system_fingerprint.startswith("fp_")
    assert whole._request_id == whole.id
    assert complete(client, **options).choices == whole.choices
    chunks = list(
        complete(client, **options, stream=True, stream_options={"include_usage": True})
    )
    assert counts_of(chunks[-1]) == counts_of(whole) and not chunks[-1].choices
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens - 1
    for choice in whole.choices:
        parts = [c.choices[0] for c in chunks[:-1] if c.choices[0].index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        assert parts[-1].finish_reason == choice.finish_reason
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert sum((getattr(p.logprobs, name) for p in parts), []) == getattr(
                choice.logprobs, name
            )


def test_asynchronously_and_many_at_once(demo):
    async def all_of_them():
        async with openai.AsyncOpenAI(
            base_url=f"http://{demo.endpoint}/v1", api_key="none"
        ) as client:
            async def streamed(seed):
                stream = await complete(client, seed=seed, stream=True)
                return "".join([c.choices[0].text async for c in stream])

            async def whole(seed):
                return (await complete(client, seed=seed)).choices[0].text

            texts = await asyncio.gather(*map(streamed, range(8)), *map(whole, range(8)))
            assert texts[:8] == texts[8:]
            assert len(set(texts)) > 1

    asyncio.run(all_of_them())


def test_prompts_of_every_kind(demo, client):
    tokens = post(demo, "/tokenize", {"prompt": PROMPT})["tokens"]
    assert post(demo, "/detokenize", {"tokens": tokens})["prompt"] == PROMPT
    (text,) = complete(client, temperature=0).choices
    for prompt in (tokens, [PROMPT], [tokens]):
        assert complete(client, temperature=0, prompt=prompt).choices == [text]
    both = complete(client, temperature=0, prompt=[PROMPT, "The king"], echo=True).choices
    assert both[0].text == PROMPT + text.text and both[1].text.startswith("The king")
    three = complete(client, best_of=3, n=2, extra_body={"ignore_eos": True})
    assert three.usage.completion_tokens == 36


def test_what_parameters_do(client):
    greedy = complete(client, temperature=0, logprobs=0).choices[0]
    first = greedy.logprobs.tokens[0]
    word = greedy.text.split()[1]
    stopped = complete(client, temperature=0, stop=[word]).choices[0]
    assert stopped.text == greedy.text[: greedy.text.index(word)]
    assert stopped.finish_reason == "stop" and stopped.stop_reason == word
    (first_id,) = complete(
        client, temperature=0, max_tokens=1, extra_body={"return_token_ids": True}
    ).choices[0].token_ids
    other = complete(client, temperature=0, max_tokens=1, logprobs=0, logit_bias={first_id: -100})
    assert other.choices[0].logprobs.tokens[0] != first
    for more, own in (
        ({"presence_penalty": 1.5, "frequency_penalty": 0.5, "top_p": 0.9, "user": "me"}, {}),
        ({}, {"top_k": 5, "repetition_penalty": 1.2}),
        ({}, {"min_p": 0.1, "typical_p": 0.9}),
    ):
        answer = complete(client, **more, extra_body={"ignore_eos": True, **own})
        assert answer.usage.completion_tokens == 12
    assert complete(client, extra_body={"min_tokens": 12}).usage.completion_tokens == 12
    one = complete(client, extra_body={"stop_token_ids": [first_id]}, temperature=0).choices[0]
    assert one.text == "" and one.stop_reason == first_id


def test_errors_by_their_class(demo, client):
    with pytest.raises(openai.BadRequestError) as e:
        complete(client, temperature=-1)
    assert e.value.param == "temperature" and e.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as e:
        complete(client, max_tokens=100_000)
    assert e.value.code == "context_length_exceeded"
    for more in (
        {"suffix": "end"},
        {"extra_body": {"structural_tag": {"a": 1}}},
    ):
        with pytest.raises(openai.BadRequestError, match="not supported"):
            complete(client, **more)
    with pytest.raises(openai.NotFoundError) as e:
        client.completions.create(model="gpt-4", prompt=PROMPT)
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.images.generate(prompt=PROMPT)
    with pytest.raises(openai.APIStatusError) as e:
        complete(client, prompt="x" * (2 << 20))
    assert e.value.status_code == 413
    assert complete(client, temperature=0).usage.completion_tokens == 12


def test_too_much_at_once_is_a_rate_limit():
    with LmtpServe("demo", "--max-concurrent-requests", "4") as server:
        client = openai.OpenAI(
            base_url=f"http://{server.endpoint}/v1", api_key="none", max_retries=0
        )
        with pytest.raises(openai.RateLimitError) as e:
            complete(client, n=8, max_tokens=200)
        assert e.value.response.headers["retry-after"] == "1"


def test_a_client_that_goes_ends_its_streams(endless):
    with openai.OpenAI(base_url=f"http://{endless.endpoint}/v1", api_key="none") as client:
        stream = client.completions.create(
            model="endless", prompt=PROMPT, n=4, max_tokens=ENDLESS_CONTEXT // 2, stream=True
        )
        next(iter(stream))
        stream.close()
        asyncio.run(wait_all_freed(endless.endpoint))


def post(demo, path, body):
    connection = http.client.HTTPConnection(demo.endpoint, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read()
    connection.close()
    return json.loads(text)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"temperature": 1.0, "seed": 123456789, "top_p": 0.9},
        {"temperature": 0.7, "seed": 5, "top_k": 20, "repetition_penalty": 1.1},
        {"temperature": 1.2, "seed": 6, "min_p": 0.1},
        {"temperature": 1.2, "seed": 7, "typical_p": 0.7},
    ],
)
def test_the_bits_are_those_of_lmtp(demo, params):
    """The same numbers are written for the same bits, and no others."""
    prompt = post(demo, "/tokenize", {"prompt": PROMPT})["tokens"]
    common = {"prompt": prompt, "max_tokens": 40, **params}

    async def over_lmtp():
        async with Socket(demo.endpoint) as s:
            await s.send("GENERATE", stream_id=1, top_logprobs=2, **common)
            await s.wait_for(lambda kind, entry: entry.get("finish_reason"))
            return [entry for _, entries in s.messages for entry in entries]

    tokens = asyncio.run(over_lmtp())
    for stream in (False, True):
        with openai.OpenAI(base_url=f"http://{demo.endpoint}/v1", api_key="none") as client:
            vllms = ("top_k", "repetition_penalty", "min_p", "typical_p")
            own = {k: v for k, v in params.items() if k in vllms}
            rest = {k: v for k, v in common.items() if k not in own}
            answer = client.completions.create(
                model="demo",
                logprobs=2,
                stream=stream,
                extra_body={"return_token_ids": True, **own},
                **rest,
            )
            choices = [c.choices[0] for c in answer] if stream else answer.choices
        assert sum((c.token_ids for c in choices), []) == [t["token"] for t in tokens]
        assert sum((c.logprobs.token_logprobs for c in choices), []) == [
            t["logprob"] for t in tokens
        ]
        assert [sorted(top.values()) for c in choices for top in c.logprobs.top_logprobs] == [
            sorted(t["top_logprobs"].values()) for t in tokens
        ]


def test_langchain(demo):
    from langchain_community.llms import OpenAI

    llm = OpenAI(
        model_name="demo",
        openai_api_base=f"http://{demo.endpoint}/v1",
        openai_api_key="none",
        temperature=0,
        max_tokens=12,
    )
    text = llm.invoke(PROMPT)
    assert text and "".join(llm.stream(PROMPT)) == text
    assert llm.batch([PROMPT, PROMPT]) == [text, text]
    assert asyncio.run(llm.ainvoke(PROMPT)) == text
    result = llm.generate([PROMPT, "The king"])
    assert result.llm_output["token_usage"]["completion_tokens"] == 24

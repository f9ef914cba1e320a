"""Decisions over HTTP: /v1/decisions by OpenAI's own client, /v1/systemone, and vLLM's
/generative_scoring; over LMTP DECIDE; their probabilities beside transformers' logits, and what
they cost."""

import asyncio
import json
import math
import random
import re
import shutil
import urllib.error
import urllib.request

import openai
import pytest
import torch
from lmtp_socket import Socket
from servers import LmtpServe
from test_chat import ROOT, TEMPLATE, ids_of, model, server  # noqa: F401
from test_scores import lmtp
from transformers import AutoModelForCausalLM, AutoTokenizer

STATE = "The lion was hungry and the mouse was small."
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PREDICATE = {"type": "noul", "instructions": "Is it a tale?"}
CHOICE = {"type": "choice", "instructions": "Who eats?",
          "criteria": {"the lion": "a king", "the mouse": None, "the man": None}}  # fmt: skip
SCORE = {"type": "score", "criteria": ["sad", "so so", "merry"]}
QUESTIONS = {"tale": PREDICATE, "who": CHOICE, "mood": SCORE}
WHO = ("Who eats?\nA. the lion: a king\nB. the mouse\nC. the man\n"
       "Answer with the letter of the option that fits best (A to C) only.")  # fmt: skip


def post(at, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://{at.endpoint}{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def ask(at, questions=QUESTIONS, state=STATE, **more):  # noqa: F811
    status, answer = post(at, "/v1/systemone", {"state": state, "questions": questions, **more})
    assert status == 200, answer
    return answer


def counters(at):
    with urllib.request.urlopen(f"http://{at.endpoint}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {name: int(re.search(rf"^lmtp_{name}_total{{.*?}} (\d+)", text, re.M)[1])
            for name in ("computed_tokens", "steps")}  # fmt: skip


class Logits:
    def __init__(self, folder):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def of(self, ids):
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)


@pytest.fixture(scope="module")
def logits(model):  # noqa: F811
    return Logits(model[0])


def prompt_of(tokenizer, text, before=()):
    return ids_of(tokenizer, [*before, {"role": "user", "content": text}])


def softmax(values):
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


def labels_of(tokenizer, labels):
    return [tokenizer.encode(label, add_special_tokens=False)[0] for label in labels]


def test_openais_client(server, model, logits):  # noqa: F811
    url = f"http://{server.endpoint}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        decision = client.decisions.create(
            model="model",
            input=[{"type": "message", "role": "system", "content": "Be brief."},
                   {"type": "message", "role": "user", "content": STATE}],
            questions=[
                {"type": "choice", "name": "who", "instructions": "Who eats?", "choices": [
                    {"value": "the lion", "description": "a king"},
                    {"value": "the mouse"}, {"value": "the man"}]},
                {"type": "choice", "instructions": "?", "choices": [
                    {"value": True}, {"value": "true"}]},
                {"type": "predicate", "instructions": [{"type": "input_text", "text": "Is it"},
                    {"type": "input_json", "data": {"a": [1.0, None]}}]},
                {"type": "score", "name": "mood", "instructions": "", "levels": [
                    {"label": "sad"}, {"label": "merry", "description": "very"}]},
            ],
        )  # fmt: skip
    who, same, predicate, mood = decision.answers
    before = [{"role": "system", "content": "Be brief."}]
    found = logits.of(prompt_of(model[1], f"{STATE}\n\n{WHO}", before))[-1]
    expected = softmax([found[label].item() for label in labels_of(model[1], "ABC")])
    assert [p.probability for p in who.probabilities] == pytest.approx(expected, abs=1e-4)
    best = max(expected)
    assert who.choice == ["the lion", "the mouse", "the man"][expected.index(best)]
    assert who.confidence == pytest.approx(max(0, (best - 1 / 3) / (1 - 1 / 3)), abs=1e-4)
    assert (who.name, same.name) == ("who", None)
    assert [p.value for p in same.probabilities] == [True, "true"]
    text = f'{STATE}\n\nIs it\n{{"a": [1.0, null]}}\nAnswer Yes or No only.'
    found = logits.of(prompt_of(model[1], text, before))[-1]
    yes, no = (found[label].item() for label in labels_of(model[1], ["Yes", "No"]))
    assert predicate.probability == pytest.approx(softmax([yes, no])[0], abs=1e-4)
    assert [p.label for p in mood.probabilities] == ["sad", "merry"]
    assert mood.score == pytest.approx(mood.probabilities[1].probability)
    usage = decision.usage
    assert usage.total_tokens == usage.input_tokens > usage.input_tokens_details.cached_tokens > 0
    assert set(decision.model_dump()) == {"answers", "model", "usage"}


def test_systemone(server, model, logits):  # noqa: F811
    answer = ask(server)
    found = logits.of(prompt_of(model[1], f"{STATE}\n\n{WHO}"))[-1]
    labels = [found[label].item() for label in labels_of(model[1], "ABC")]
    who, mood = answer["answers"]["who"], answer["answers"]["mood"]
    assert list(who["probabilities"].values()) == pytest.approx(softmax(labels), abs=1e-4)
    assert answer["diagnostics"]["who"]["label_mass"] == pytest.approx(
        sum(map(math.exp, labels)), abs=1e-4
    )
    p = mood["probabilities"]
    assert mood["legend"] == {"0": "sad", "1": "so so", "2": "merry"}
    assert mood["score"] == pytest.approx(p["1"] + 2 * p["2"])
    best = int(max(p, key=p.get))
    distance = sum(p[str(i)] * abs(i - best) for i in range(3))
    assert mood["confidence"] == pytest.approx(max(0, 1 - distance / (2 / 3)))
    assert answer["answers"]["tale"].keys() == {"type", "noul"}
    diagnosed = ask(server, diagnostics=True)
    assert diagnosed["answers"] == answer["answers"]
    assert diagnosed["diagnostics"]["who"]["argmax_is_label"] is (
        found.argmax().item() in labels_of(model[1], "ABC"))  # fmt: skip


def test_whole_options(server, model, logits):  # noqa: F811
    texts = ["the lion", "the lion king", "the man"]
    question = {"type": "choice", "instructions": "Who?", "criteria": dict.fromkeys(texts)}
    lines = "".join(f"- {text}\n" for text in texts)
    text = f"{STATE}\n\nWho?\n{lines}Answer with the text of the option that fits best only."
    prompt = prompt_of(model[1], text)
    sums, means = [], []
    for option in texts:
        ids = model[1].encode(option, add_special_tokens=False)
        found = logits.of(prompt + ids)
        sums.append(sum(found[len(prompt) - 1 + i][id].item() for i, id in enumerate(ids)))
        means.append(sums[-1] / len(ids))
    for scoring, expected in ("option", sums), ("option_mean", means):
        answer = ask(server, {"q": question}, scoring=scoring)["answers"]["q"]
        found = list(answer["probabilities"].values())
        assert found == pytest.approx(softmax(expected), abs=1e-4)


def num_nodes(prompts):
    return len({tuple(ids[: i + 1]) for ids in prompts for i in range(len(ids))})


def test_each_token_is_computed_once(model):  # noqa: F811
    """The state once, the tokens of 400 questions once, nothing of what was asked before."""
    chance = random.Random(5)
    state = "".join(chance.choice("abcdefgh ") for _ in range(400))
    words = [word for word in map(model[1].decode, range(2048)) if word.isalpha()][:400]
    prompts = [prompt_of(model[1], f"{state}\n\n{word}, is it?\nAnswer Yes or No only.")
               for word in words]  # fmt: skip
    shared = next(i for i, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1)
    assert len({ids[shared] for ids in prompts}) == len(words) == 400
    asked = {word: {"type": "noul", "instructions": f"{word}, is it?"} for word in words}
    with LmtpServe(model[0], "--kv-cache", "64MiB") as server:
        first = ask(server, asked, state=state)
        after = counters(server)
        assert after["computed_tokens"] == num_nodes(prompts)
        assert first["usage"]["input_tokens"] == sum(map(len, prompts))
        assert ask(server, asked, state=state)["answers"] == first["answers"]
        question = [{"type": "predicate", "instructions": f"{words[0]}, is it?"}]
        _, again = post(server, "/v1/decisions", {"input": state, "questions": question})
        details = again["usage"]["input_tokens_details"]
        assert details == {"cached_tokens": len(prompts[0]), "cache_write_tokens": 0}
        assert counters(server) == after


def test_the_bits_are_those_of_one_question_alone(server, model):  # noqa: F811
    whole = ask(server)["answers"]
    options = "--max-batched-tokens", "32", "--score-cache", "0"
    with LmtpServe(model[0], "--kv-cache", "64MiB", *options) as small:
        names = list(QUESTIONS)
        for seed in range(6):
            random.Random(seed).shuffle(names)
            part = {name: QUESTIONS[name] for name in names[: 1 + seed % 3]}
            for name, answer in ask(small, part)["answers"].items():
                assert json.dumps(answer) == json.dumps(whole[name])


def decided(at, **fields):  # noqa: F811
    """DECIDE's entry, or its error."""

    async def run():
        async with Socket(at.endpoint) as s:
            await s.send("DECIDE", stream_id=1, **fields)
            _, entry = await s.wait_for(lambda kind, _: kind == "TOKEN")
            return entry.get("error", entry)

    return asyncio.run(run())


@pytest.mark.parametrize("scoring", ["auto", "option", "option_mean"])
def test_over_lmtp(server, scoring):  # noqa: F811
    """The bits of /v1/systemone, and nothing is computed again."""
    for state in STATE, {"a": [1.0, "é", None]}:
        more = {"scoring": scoring, "instructions": "Be brief."}
        want = ask(server, state=state, **more)
        before = counters(server)
        entry = decided(server, state=state, questions=QUESTIONS, **more)
        assert counters(server) == before
        for member in "answers", "diagnostics":
            assert json.dumps(entry[member]) == json.dumps(want[member])
        assert entry["usage"]["input_tokens"] == want["usage"]["input_tokens"]

    async def by_the_example():
        async with lmtp.connect(server.endpoint) as client:
            return await client.decide(STATE, QUESTIONS, instructions="Be brief.", scoring=scoring)

    first = decided(server, state=STATE, questions=QUESTIONS, **more)
    assert asyncio.run(by_the_example()) == first["answers"]
    entry = decided(server, state=STATE, questions=QUESTIONS, diagnostics=True)
    assert entry["diagnostics"] == ask(server, diagnostics=True)["diagnostics"]


def test_a_chat_over_lmtp(server, model):  # noqa: F811
    """The bits of /v1/decisions, whether a content is a text or a list of them."""
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": STATE}]
    (answer,) = decide(server, said)["answers"]
    question = {"q": {"type": "noul", "instructions": "Is it?"}}
    entry = decided(server, messages=said, questions=question)
    assert entry["answers"]["q"]["noul"] == answer["probability"]
    ids = prompt_of(model[1], f"{STATE}\n\nIs it?\nAnswer Yes or No only.", said[:1])
    assert entry["usage"]["input_tokens"] == len(ids)
    parts = [said[0], {"role": "user", "content": [{"type": "text", "text": STATE}]}]
    assert decided(server, messages=parts, questions=question)["answers"] == entry["answers"]
    for content in [{"type": "image_url"}], [5], {"type": "text", "text": "a"}, 5:
        wrong = [{"role": "user", "content": content}]
        error = decided(server, messages=wrong, questions=question)
        assert isinstance(error, str), error
        assert error.startswith("messages[0].content: allowed are a string"), error


def test_what_is_wrong_over_lmtp_is_said(server):  # noqa: F811
    before = counters(server)
    questions = {f"q{i}": question for i, (question, _) in enumerate(WRONG_QUESTIONS)}
    status, error = post(server, "/v1/systemone", {"state": STATE, "questions": questions})
    assert decided(server, state=STATE, questions=questions) == f"questions: {error}"
    for more, sentence in WRONG:
        if more.keys() & {"images", "assets"}:
            continue
        error = decided(server, **{"state": STATE, "questions": QUESTIONS, **more})
        assert isinstance(error, str) and error.startswith((*more, "questions: ")), (more, error)
        wanted = "allowed is an object" if more == {"questions": []} else sentence
        assert wanted in error, (more, error)
    assert counters(server) == before


WRONG = [
    ({"state": None}, "state: is missing"),
    ({"state": 5}, "state: is 5; allowed are a text"),
    ({"questions": []}, "questions: "),
    ({"questions": {}}, "questions: has none"),
    ({"questions": {str(i): PREDICATE for i in range(401)}}, "allowed are at most 400"),
    ({"questions": {str(i): {**CHOICE, "criteria": {f"{j}": None for j in range(255)}}
                    for i in range(17)}}, "have 4335 options; allowed are at most 4096"),
    ({"state": "a tale " * 30000, "questions": {str(i): PREDICATE for i in range(400)}},
     "with so long a state allowed are at most"),
    ({"scoring": "best"}, "scoring: allowed are auto, label, option, option_mean"),
    ({"images": ["http://x/y.png"]}, "images: is not supported"),
    ({"assets": {"img": {"data_base64": "x"}}}, "assets: is not supported"),
    ({"chat_template_kwargs": {"enable_thinking": True}}, "allowed is false"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages: is not of"),
    ({"state": "a tale " * 1500}, "tokens with its question; allowed are at most"),
    ({"questions": {"q": {**CHOICE, "criteria": {f"{i}": None for i in range(27)}}},
      "scoring": "label"}, "question 'q': has 27 options; allowed are at most 26"),
    ({"questions": {name: {"type": "choice", "criteria": {f"{i}": None for i in range(27)}}
                    for name in "ab"}, "scoring": "label"}, "which reads their texts\nquestion"),
]  # fmt: skip
WRONG_QUESTIONS = [
    ("text", "type: allowed are noul, choice and score"),
    ({"type": "predicate"}, "type: allowed"),
    ({"type": "noul", "instruction": "?"}, "has 'instruction'; allowed are type"),
    ({"type": "noul", "criteria": {"yes": "x"}}, "criteria: allowed is an object of"),
    ({"type": "choice"}, "criteria: needed is an object"),
    ({"type": "choice", "criteria": {"": None}}, "an option without a name"),
    ({"type": "choice", "criteria": {"a": 5}}, "allowed are a text"),
    ({"type": "score", "criteria": []}, "criteria: needed is a list of levels"),
    ({"type": "score", "criteria": ["a", "a"]}, "criteria[1]: needed is a level"),
    ({"type": "score", "criteria": ["a", None]}, "criteria[1]: needed is a level"),
    ({"type": "choice", "criteria": {str(i): None for i in range(256)}}, "at most 255"),
]  # fmt: skip


def test_what_is_wrong_is_said(server):  # noqa: F811
    before = counters(server)
    for more, sentence in WRONG:
        body = {"state": STATE, "questions": QUESTIONS, **more}
        status, error = post(server, "/v1/systemone", body)
        assert status == 400 and sentence in error, (more, error)
    questions = {f"q{i}": question for i, (question, _) in enumerate(WRONG_QUESTIONS)}
    status, error = post(server, "/v1/systemone", {"state": STATE, "questions": questions})
    lines = error.split("\n")
    assert status == 400 and len(lines) == len(WRONG_QUESTIONS)
    for i, (line, (_, sentence)) in enumerate(zip(lines, WRONG_QUESTIONS, strict=True)):
        assert line.startswith(f"question 'q{i}': ") and sentence in line, line
    assert counters(server) == before


def item(**fields):
    return {"input": [fields]}


WRONG_INPUTS = [
    ({"input": None}, "input: is missing"),
    ({"input": []}, "input: has 0 items"),
    (item(role="tool", content="x"), "input[0]: needed is a message"),
    (item(role="user", content=[{"type": "input_image", "image_url": "x"}]), "is an image"),
    (item(role="user", content=[{"type": "input_file"}]), "has a part that is wrong"),
    (item(type="function_call_output", call_id="c", output="x"), "the call_id of a call before"),
    ({"questions": {"a": 1}}, "questions: is an object; needed is a list"),
    ({"questions": [{"type": "choice", "instructions": "?", "choices": [
        {"value": "a"}, {"value": "a"}]}, {"type": "noul"}]},
     "questions[0]: choices[1]: is equal to another one; needed are different ones\n"
     "questions[1]: type: allowed are predicate, choice and score"),
    ({"questions": [{"type": "choice", "instructions": "?", "choices": [{"value": ""}]}]},
     "choices: needed is a list of 2 to 255"),
    ({"questions": [{"type": "score", "instructions": "?", "levels": [{"label": "a"}, {}]}]},
     "levels[1]: needed is label"),
    ({"questions": [{"type": "predicate"}]}, "instructions is missing"),
    ({"input": STATE * 999}, "input: has "),
]  # fmt: skip


def test_what_is_wrong_is_said_by_openais_names(server):  # noqa: F811
    for more, sentence in WRONG_INPUTS:
        body = {"input": STATE, "questions": [{"type": "predicate", "instructions": "?"}], **more}
        status, error = post(server, "/v1/decisions", body)
        assert status == 400 and sentence in error, (more, error)


def decide(at, messages):
    body = {"input": messages, "questions": [{"type": "predicate", "instructions": "Is it?"}]}
    status, answer = post(at, "/v1/decisions", body)
    assert status == 200, answer
    return answer


def test_orders_of_roles(server, model):  # noqa: F811
    """The question is a user's turn; what a template refuses is a state."""
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
    question = "Is it?\nAnswer Yes or No only."
    answer = decide(server, said)
    assert answer["usage"]["input_tokens"] == len(prompt_of(model[1], question, said))
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "c", "output": "5"}
    decide(server, [*said, call, given])
    decide(server, [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}])


def test_a_template_that_refuses_roles_or_thinks(model, tmp_path):  # noqa: F811
    strict = tmp_path / "strict.jinja"
    strict.write_text(
        "{% set earlier = '<think>' + '</think>' %}"
        "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}"
        + TEMPLATE + "{{ '<think>\\n' }}"
    )
    options = "--chat-template", strict, "--kv-cache", "64MiB"
    with LmtpServe(model[0], *options) as server:
        said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
        answer = decide(server, said)
        text = f"{json.dumps(said)}\n\nIs it?\nAnswer Yes or No only."
        think = model[1].encode("<think>\n", add_special_tokens=False)
        assert answer["usage"]["input_tokens"] == len(prompt_of(model[1], text)) + len(think)
        body = {"state": "x", "questions": {"q": PREDICATE}, "scoring": "label"}
        status, error = post(server, "/v1/systemone", body)
        assert status == 400 and "opens a block of reasoning" in error, error
        assert '"scoring": "option"' in error


def copy_with(model, tmp_path, **files):  # noqa: F811
    folder = tmp_path / "own"
    shutil.copytree(model[0], folder)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_folders_own_files(model, logits, tmp_path):  # noqa: F811
    config = {"labels": {"choice": ["x", "y", "z"]}, "temperature": {"choice": 2.0},
              "sort_choices": True}  # fmt: skip
    template = ("<|im_start|>{{ state }}<|split|>{% for q in questions %}{{ q.instructions }} "
                "{{ q.labels | join('/') }}: <|mark|>{% endfor %}")  # fmt: skip
    folder = copy_with(model, tmp_path, decision__json=json.dumps(config),
                       decision_template__jinja=template)  # fmt: skip
    with LmtpServe(folder, "--kv-cache", "64MiB") as server:
        answers = ask(server, {"a": CHOICE, "b": CHOICE}, state="The <|mark|>")["answers"]

    def ids(text):
        return model[1].encode(text, add_special_tokens=False)

    start = [model[1].convert_tokens_to_ids("<|im_start|>")]
    piece = ids("Who eats? x/y/z: ")
    state = ids("The <|mark|>")
    for prompt, name in (start + state + piece, "a"), (start + state + piece + piece, "b"):
        found = logits.of(prompt)[-1]
        labels = [found[label].item() / 2 for label in labels_of(model[1], "xyz")]
        found = list(answers[name]["probabilities"].values())
        assert found == pytest.approx(softmax(labels), abs=1e-4)


def test_files_that_are_refused(model, tmp_path):  # noqa: F811
    folder = copy_with(model, tmp_path, decision__json='{"adapter": "lora"}')
    trained = tmp_path / "trained.jinja"
    trained.write_text("{{ state }}{% for o in question.options %}{{ o }}<|mark|>{% endfor %}")
    with LmtpServe(folder, "--kv-cache", "64MiB") as server:
        status, error = post(server, "/v1/systemone", {"state": "x", "questions": QUESTIONS})
        assert status == 400 and "adapter: decisions of an adapter" in error
    (folder / "decision.json").unlink()
    options = "--decision-template", trained, "--decision-temperature", "noul=0.5"
    with LmtpServe(folder, "--kv-cache", "64MiB", *options) as server:
        status, error = post(server, "/v1/systemone", {"state": "x", "questions": QUESTIONS})
        assert status == 400 and "trained heads" in error


def test_a_model_without_a_chat_template(demo):
    """The layout, then "Answer:" and a label with a space."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "demo")
    ids = tokenizer.encode(f"{STATE}\n\n{WHO}\nAnswer:", add_special_tokens=False)
    found = Logits(ROOT / "models" / "demo").of(ids)[-1]
    labels = [found[label].item() for label in labels_of(tokenizer, [" A", " B", " C"])]
    answer = ask(demo, {"who": CHOICE})["answers"]["who"]
    assert list(answer["probabilities"].values()) == pytest.approx(softmax(labels), abs=1e-4)


def test_generative_scoring(server, model, logits):  # noqa: F811
    query, items = "Is it good? ", ["A feast.", "A famine."]
    labels = [300, 20]
    body = {"query": query, "items": items, "label_token_ids": labels}
    status, answer = post(server, "/generative_scoring", body)
    assert status == 200 and answer["object"] == "list", answer
    _, whole = post(server, "/generative_scoring", {**body, "apply_softmax": False})
    for i, text in enumerate(items):
        ids = [*model[1].encode(query), *model[1].encode(text)]
        found = [math.exp(logits.of(ids)[-1][label].item()) for label in labels]
        assert answer["data"][i]["index"] == i
        assert answer["data"][i]["score"] == pytest.approx(found[0] / sum(found), rel=1e-3)
        assert whole["data"][i]["score"] == pytest.approx(found[0], rel=1e-3)
    for more, sentence in [
        ({"items": []}, "items: is missing or wrong"),
        ({"items": ["a", [1]]}, "items[1]: is not as the others"),
        ({"query": [5] * 600}, "items[0]: is with the query 60"),
        ({"label_token_ids": []}, "label_token_ids: needed are token ids"),
        ({"label_token_ids": [5, 5]}, "each once"),
        ({"label_token_ids": [99999]}, "is not in the vocabulary"),
    ]:
        status, error = post(server, "/generative_scoring", {**body, **more})
        assert status == 400 and sentence in error, error

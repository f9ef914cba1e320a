"""What `transformers serve` takes at /v1/systemone and what it answers, by its own types."""

import json
import math
import urllib.request

from rows import MODEL, ROW_S, SERVER, row, same
from transformers.cli.serving.systemone import SystemOneRequest
from transformers.decision import DecisionConfig, Question, parse_questions

SCHEMES = Question.questions_schemes  # each type's docstring is an example of its question


def ask(**body):
    """(the questions, the answers) of a request that transformers takes."""
    request = SystemOneRequest.model_validate({"model": MODEL, **body}, strict=True)
    sent = urllib.request.Request(f"{SERVER}/v1/systemone", request.model_dump_json().encode(),
                                  {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(sent, timeout=ROW_S) as answer:
        found = json.load(answer)
    same((found["model"], found["usage"]["output_tokens"]), (MODEL, 0))
    questions = parse_questions(request.questions, DecisionConfig())
    same(list(found["answers"]), [question.name for question in questions])
    return questions, found["answers"]


def is_answer(question, answer):
    """Exactly what transformers makes of these probabilities."""
    p = answer["noul"] if question.type == "noul" else None
    by_option = {"true": p, "false": 1 - p} if p is not None else answer["probabilities"]
    same(list(by_option), question.options)
    assert math.isclose(sum(by_option.values()), 1, abs_tol=1e-6), f"{by_option}"
    wanted = question.answer(list(by_option.values()))
    same(set(answer), set(wanted))
    for key, value in wanted.items():
        close = isinstance(value, float) and math.isclose(answer[key], value, abs_tol=1e-6)
        assert close or answer[key] == value, f"{key}: {answer[key]!r}, not {value!r}"


for kind, scheme in SCHEMES.items():

    @row(f"its example, {kind}")
    def _(scheme=scheme):
        (question,), answers = ask(state="WIN a FREE iPhone", questions={
            "q": json.loads(scheme.__doc__)})  # fmt: skip
        is_answer(question, answers["q"])


@row("all of them, of a JSON state")
def _():
    examples = {name: json.loads(scheme.__doc__) for name, scheme in SCHEMES.items()}
    questions, answers = ask(state={"message": "WIN a FREE iPhone", "tags": [1, None]},
                             questions=examples, assets={})  # fmt: skip
    for question in questions:
        is_answer(question, answers[question.name])

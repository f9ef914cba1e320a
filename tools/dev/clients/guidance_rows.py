import guidance
from guidance.models.experimental import VLLMModel
from rows import DESCRIBE, MODEL, QUESTION, V1, Weather, has_text, is_weather, row

MODELS = {"OpenAI": guidance.models.OpenAI, "VLLMModel": VLLMModel}


def ask(kind, text, grammar):
    lm = MODELS[kind](MODEL, base_url=V1, api_key="none", echo=False)
    with guidance.user():
        lm += text
    with guidance.assistant():
        lm += grammar
    return lm["answer"]


for kind in MODELS:

    @row(f"{kind}, gen")
    def _(kind=kind):
        has_text(ask(kind, QUESTION, guidance.gen("answer", max_tokens=20)))

    @row(f"{kind}, json")
    def _(kind=kind):
        answer = ask(kind, DESCRIBE, guidance.json("answer", schema=Weather))
        is_weather(Weather.model_validate_json(answer))


@row("VLLMModel, select")
def _():
    assert ask("VLLMModel", QUESTION, guidance.select(["Paris", "Rome"], "answer"))


@row("VLLMModel, gen with a regex")
def _():
    assert ask("VLLMModel", QUESTION, guidance.gen("answer", regex="[A-Z][a-z]{1,9}")).isalpha()

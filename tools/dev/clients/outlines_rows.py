from typing import Literal

import openai
import outlines
from outlines.types import CFG, Regex
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, QUESTION, ROW_S, V1, Weather, has_text, is_weather, row, same,
)  # fmt: skip

client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=ROW_S)
SETTINGS = {"max_tokens": MAX_TOKENS, "temperature": 0}
GRAMMAR = 'start: "yes" | "no"'


def by_openai(text, kind=None):
    return outlines.from_openai(client, MODEL)(text, kind, **SETTINGS)


def by_vllm(text, kind=None):
    return outlines.from_vllm(client, MODEL)(text, kind, **SETTINGS)


for name, ask in {"from_openai": by_openai, "from_vllm": by_vllm}.items():

    @row(f"{name}, text")
    def _(ask=ask):
        has_text(ask(QUESTION))

    @row(f"{name}, JSON")
    def _(ask=ask):
        is_weather(Weather.model_validate_json(ask(DESCRIBE, Weather)))


@row("from_vllm, regex")
def _():
    assert by_vllm(QUESTION, Regex("[A-Z][a-z]{1,9}")).isalpha()


@row("from_vllm, choice")
def _():
    assert by_vllm(QUESTION, Literal["Paris", "Rome"]) in ("Paris", "Rome")


@row("from_vllm, CFG")
def _():
    assert by_vllm("Is Paris in France?", CFG(GRAMMAR)) in ("yes", "no")


@row("from_vllm, streamed")
def _():
    model = outlines.from_vllm(client, MODEL)
    same("".join(model.stream(QUESTION, Literal["Paris"], **SETTINGS)), "Paris")

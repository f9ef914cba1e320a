from collections.abc import Iterable
from importlib import metadata

import instructor
import openai
from rows import (
    DESCRIBE, MAX_TOKENS, MODEL, PARIS, ROW_S, V1, WEATHER_CALL, Weather, is_weather, row, same,
    user,
)  # fmt: skip

SETTINGS = {"model": MODEL, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 1}
# Before 1.15, JSON_O1 leaves the form to the model.
OLD = metadata.version("instructor") < "1.15"
# Those of OpenAI's chat completions.
MODES = ("TOOLS", "TOOLS_STRICT", "FUNCTIONS", "JSON", "JSON_SCHEMA") + ("JSON_O1",) * (not OLD)
UNFORCED = {"MD_JSON": "```json\n%s\n```"} | ({"JSON_O1": "%s"} if OLD else {})


def completions(mode):
    client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, timeout=ROW_S)
    return instructor.from_openai(client, mode=instructor.Mode[mode]).chat.completions


for mode in MODES:

    @row(mode)
    def _(mode=mode):
        is_weather(completions(mode).create(
            messages=[user(DESCRIBE)], response_model=Weather, **SETTINGS))  # fmt: skip


# This model is too small for their instructions.
for mode, text in UNFORCED.items():

    @row(mode)
    def _(mode=mode, text=text):
        body = {"structured_outputs": {"choice": [text % PARIS]}}
        is_weather(completions(mode).create(
            messages=[user(DESCRIBE)], response_model=Weather, extra_body=body,
            **SETTINGS))  # fmt: skip


@row("PARALLEL_TOOLS")
def _():
    found = list(completions("PARALLEL_TOOLS").create(
        messages=[user(WEATHER_CALL)], response_model=Iterable[Weather], **SETTINGS))  # fmt: skip
    same(len(found), 1)
    is_weather(found[0])


@row("create_partial")
def _():
    *_, last = completions("TOOLS").create_partial(
        messages=[user(DESCRIBE)], response_model=Weather, **SETTINGS
    )
    is_weather(Weather.model_validate(last.model_dump()))


@row("create_iterable")
def _():
    found = list(completions("TOOLS").create_iterable(
        messages=[user(DESCRIBE)], response_model=Weather, **SETTINGS))  # fmt: skip
    for value in found:
        is_weather(Weather.model_validate(value.model_dump()))

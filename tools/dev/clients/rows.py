"""What the rows of tools/dev/clients_check share. CLIENT_rows.py defines a client's rows, functions
that raise where the client does not get what it should; run() calls them in the client's own
environment and prints a line of JSON as each begins and ends."""

import importlib
import json
import os
import signal
import sys

from pydantic import BaseModel

SERVER, MODEL = os.environ["LMTP_SERVER"], os.environ["LMTP_MODEL"]
V1 = f"{SERVER}/v1"
ROW_S = 60
MAX_TOKENS = 200
LEAST_TEXT, MOST_TEXT = 60, 400  # characters of an error
PARIS = '{"city": "Paris", "degrees": 18}'  # a Weather
QUESTION = "What is the capital of France?"
WEATHER = "18 degrees and sunny"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    },
}  # fmt: skip
ROWS = {}
CALLED = []  # the cities that get_weather was called with in this row


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


class TooLong(BaseException):
    """No Exception: clients catch these."""


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The city's name.
    """
    CALLED.append(city)
    return WEATHER


def row(name):
    def add(function):
        ROWS[name] = function
        return function

    return add


def repeat(text):
    """What a small model does reliably is to repeat what it reads: the user's text says what is
    called, in the format of the template."""
    return f"Repeat this text exactly:\n{text}"


def call_text(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def call_for(*cities):
    """What to say so that get_weather is called for each."""
    return repeat("\n".join(call_text("get_weather", f'{{"city": "{city}"}}') for city in cities))


WEATHER_CALL = repeat(call_text("Weather", PARIS))
DESCRIBE = repeat(PARIS)


def user(text):
    return {"role": "user", "content": text}


def same(got, wanted):
    assert got == wanted, f"{got!r}, not {wanted!r}"


def has_text(text):
    assert isinstance(text, str) and text.strip(), f"no text: {text!r}"


def is_weather(value):
    assert isinstance(value, Weather), f"{value!r} is no Weather"


def is_call(name, arguments, city=None):
    """Of get_weather, with its arguments as JSON or read; for this city where it is named."""
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    same((name, list(read), type(read["city"])), ("get_weather", ["city"], str))
    assert city in (None, read["city"]), f"{read!r} does not name {city}"


def first_of(calls, city=None):
    """The only one, or, where nothing says for what to call, the first: so small a model calls
    again."""
    assert len(calls) == 1 or (calls and city is None), f"calls {calls}"
    return calls[0]


def loop_ran(text):
    """The tool was called for Paris, once, and the model has read what it said."""
    same(CALLED, ["Paris"])
    assert WEATHER in str(text), f"the tool's result is not in {text!r}"


def first_line(error):
    """What a row says of it, with what it was raised from where it is too short to say that."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if error.__cause__ is not None and len(str(error)) < LEAST_TEXT:
        said = f"{said} <- {first_line(error.__cause__)}"
    return said[:MOST_TEXT]


def too_long(*_):
    raise TooLong(f"not over after {ROW_S} s")


def run(module, only):
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # clients print

    def say(**line):
        print(json.dumps(line), file=out)

    try:
        importlib.import_module(module)
    except Exception as e:
        say(row="import", error=first_line(e))
        return
    signal.signal(signal.SIGALRM, too_long)
    for name, function in ROWS.items():
        if only and only not in name:
            continue
        CALLED.clear()
        say(row=name)
        print(f"== {name}", file=sys.stderr, flush=True)
        try:
            signal.alarm(ROW_S)
            function()
            error = None
        except (Exception, TooLong) as e:
            error = first_line(e)
        finally:
            signal.alarm(0)
        say(row=name, error=error)
    sys.stderr.flush()
    os._exit(0)  # threads of clients may hang


if __name__ == "__main__":
    importlib.import_module("rows").run(*sys.argv[1:])

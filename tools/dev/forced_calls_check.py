"""Forces calls and reasoning under the chat templates of real models, and reads them.

    tools/dev/forced_calls_check                     all templates
    tools/dev/forced_calls_check Qwen3 GLM --rows    those with such a text in their name, each row

Serves SmolLM2-135M-Instruct (as tools/dev/clients_check does) with --chat-template, one server for
each template. What a model would answer is what the template itself writes of an assistant's turn:
the text that it puts behind the prompt. The controller allow_one.c lets that text follow, token by
token, in a chat with `parsed` (forced.c puts a row's smallest tokens there at once); what is read
has to be the turn, by value. Where a template does not write calls, CARDS has their form. Where no
format is known all has to stay text. Exit code 1 where a row fails.

--json FILE writes texts and turns there; tools/dev/vllm_calls.py reads the same texts by vLLM."""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from clients_check import ROOT, call, model

sys.path[:0] = [str(ROOT / "docs" / "examples"), str(ROOT / "tools" / "benchmarks")]
import lmtp  # noqa: E402
from servers import LmtpServe  # noqa: E402

AICI = ROOT / "docs" / "examples" / "aici"
MODULES = "allow_one", "forced"
FORCED_MAX = 256  # tokens of forced.c
SAID, THOUGHT = "I shall look.", "Rain, perhaps."
PLACE = "LMTPplace"
UNKNOWN = "delete_all"


def function(name, **types):
    properties = {key: {"type": kind, "description": "it"} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types),
                  "additionalProperties": False}  # fmt: skip
    return {"type": "function",
            "function": {"name": name, "description": "It.", "parameters": parameters}}  # fmt: skip


TOOLS = [
    function("get_weather", city="string", days="integer"),
    function("book", guest="object", nights="number"),
    function("now"),
]
WEATHER = ("get_weather", {"city": "Köln (left bank), [x] {y}", "days": 2})
QUOTED = ("get_weather", {"city": 'a "b" \'c\' \\ d, e=1\nf: </g> & 日本', "days": -3})
BOOK = ("book", {"guest": {"name": "Ada", "age": 36.5, "tags": ["x", None, True]}, "nights": 1.5})
NOW = ("now", {})
NEVER = (UNKNOWN, {"path": "/", "days": 1})

# What ends a turn; no model's text has it.
ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>", "<|end_of_text|>",
    "<seed:eos>", "<|END_OF_TURN_TOKEN|>", "<end_of_sentence>", "[e~[", "<SPECIAL_12>", "<sep>",
    "</assistant>", "<｜end▁of▁sentence｜>", "<|role_end|>", "<|tool_response>", "<turn|>",
    "<end_of_turn>", "<｜hy_eos:opensource｜>", "<|message_sep|>\n\n", "<|end_of_msg|>", "<|return|>",
    "<|user|>", "<|observation|>", "<|ifm|im_end|>",
)  # fmt: skip
ALWAYS_ENDS = "<SPECIAL_12>", "<｜end▁of▁sentence｜>"
# A prompt may end with reasoning that is open, which its template leaves out of earlier turns.
OPENED = {
    "<think>\n": "\n</think>\n\n", "<think>": "</think>\n\n", "<thinking>\n": "\n</thinking>\n\n",
    "Here are my reasoning steps:\n": "\n[BEGIN FINAL RESPONSE]\n",
    "<|START_THINKING|>": "<|END_THINKING|>", "<ifm|think>\n": "\n</ifm|think>\n",
    "<mm:think>": "</mm:think>",
}  # fmt: skip
CLOSED = ("<think></think>", "<think>\n</think>", "<think>\n\n</think>\n\n", "</think>",
          "<|channel>thought\n<channel|>")  # fmt: skip


def compact(value):
    return json.dumps(value, ensure_ascii=False)


def listed(begin, end):
    def write(calls):
        return begin + compact([{"name": n, "arguments": a} for n, a in calls]) + end

    return write


# Of templates that do not write calls, by the format that is found, as the models' cards have them.
CARDS = {
    "firefunction": listed(" functools", ""),
    "granite": listed("<|tool_call|>", ""),
    "deepseek_v3": lambda calls: "<｜tool▁calls▁begin｜>" + "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{compact(arguments)}\n```"
        "<｜tool▁call▁end｜>" for name, arguments in calls) + "<｜tool▁calls▁end｜>",
}  # fmt: skip
# Rows that no reader could read, or that a model would not write where it has a grammar.
KNOWN = {
    "ByteDance-Seed-OSS": ("nested", "text first", "reasoning and text"),  # objects as Python's
    "LFM2.5-8B-A1B": ("text in quotes",),  # quotes in quotes
    "llm-jp-llm-jp-4.1-8b-thinking": ("text first",),  # the text of a call is reasoning
    "openai-gpt-oss-120b": ("text first",),
    "openbmb-MiniCPM5-1B": ("nested", "text first", "reasoning and text"),  # as Seed-OSS
}
NOT_KNOWN = "\n".join(
    f"<tool_call>\n{compact({'name': name, 'arguments': arguments})}\n</tool_call>"
    for name, arguments in (WEATHER, NOW)
)


@dataclasses.dataclass
class Turn:
    """What an assistant says, and what is to be read of it."""

    calls: list = dataclasses.field(default_factory=list)
    content: str = ""
    reasoning: str = ""

    def message(self, calls=None):
        said = {"role": "assistant", "content": self.content}
        if self.reasoning:
            said["reasoning_content"] = said["reasoning"] = self.reasoning
            said["thinking"] = self.reasoning
        if self.calls:
            said["tool_calls"] = [
                {"id": f"call1234{i}", "type": "function",
                 "function": {"name": name, "arguments": compact(arguments)}}
                for i, (name, arguments) in enumerate(self.calls)
            ]  # fmt: skip
        return said


@dataclasses.dataclass
class Row:
    name: str
    text: str
    turn: Turn  # to be read
    is_cut: bool = False  # nothing is whole
    has_text: str | None = None  # in the place of turn.content: some of it
    max_tokens: bool = False  # ended by it, and not by the controller
    by_bytes: bool = False  # in the smallest tokens
    user: str = "Hi"
    got: Turn | None = None
    error: str = ""


class Template:
    """A served chat template: what it writes, and what is read."""

    def __init__(self, client, modules):
        self.client, self.modules = client, modules
        self.ids = {}

    async def rendered(self, *messages, **fields):
        """None where the template refuses."""
        try:
            ids = (await self.client._ask("TOKENIZE", {
                "messages": messages, "tools": TOOLS, "add_special_tokens": False, **fields,
            }))[0]["tokens"]  # fmt: skip
        except lmtp.LMTPError:
            return None
        return await self.client.detokenize(ids, skip_special_tokens=False)

    async def begin(self):
        self.user = {"role": "user", "content": "Hi"}
        self.prompt = await self.rendered(self.user)
        if self.prompt is None:
            parts = [{"type": "text", "text": "Hi", "source_lang_code": "en",
                      "target_lang_code": "de"}]  # fmt: skip
            self.user = {"role": "user", "content": parts}
            self.prompt = await self.rendered(self.user) or ""
        info = await self.client.model_info()
        self.format = info["tool_call_format"]
        self.ids_of_modules = [await self.client.upload_controller(wasm) for wasm in self.modules]

    async def written(self, turn):
        """What follows the prompt, and the reasoning in it; None where the template leaves some of
        the turn out, or has no such turn."""
        full = await self.rendered(self.user, turn.message(), add_generation_prompt=False)
        if full is not None and full.startswith(self.prompt):
            return self.checked(full[len(self.prompt):], turn)
        if self.prompt.endswith(CLOSED):  # it has told the model not to think
            return None if full is None or turn.reasoning else self.closed(full, turn)
        if turn.reasoning:
            return full and self.closed(full, turn)
        thought = dataclasses.replace(turn, reasoning=THOUGHT)
        return await self.written(thought) or (full and self.closed(full, turn))

    def closed(self, full, turn):
        """Where the prompt ends with more than a turn begins with."""
        for opened, closing in OPENED.items():
            header = self.prompt.removesuffix(opened)
            if header != self.prompt and full.startswith(header):
                body = full[len(header):]
                if turn.reasoning and body.startswith(turn.reasoning):
                    return self.checked(body, turn)
                for begin in (*CLOSED, closing):
                    body = body.removeprefix(begin)
                reasoning = turn.reasoning or THOUGHT
                thought = dataclasses.replace(turn, reasoning=reasoning)
                return self.checked(reasoning + closing + body.lstrip("\n"), thought)
        for closed in CLOSED:
            header = self.prompt.removesuffix(closed)
            if header != self.prompt and full.startswith(header):
                return self.checked(full[len(header):].removeprefix("</think>"), turn)
        return None

    def checked(self, text, turn):
        told = [turn.content, turn.reasoning, *(name for name, _ in turn.calls)]
        if any(text.count(part) < told.count(part) for part in told):
            return None
        for opened, closing in OPENED.items():
            if self.prompt.endswith(opened) and closing.strip() not in text:
                text = THOUGHT + closing + text  # it leaves this to who writes the content
                turn = dataclasses.replace(turn, reasoning=THOUGHT)
                break
        at = max(text.rfind(part) + len(part) for part in told if part)
        if any(end in text[:at] for end in ALWAYS_ENDS):  # two turns
            return None
        text = re.sub(r', "id": "call1234."', "", text)  # of earlier turns alone
        begins = (text.find(end, at) for end in ENDS)
        return text[: min((at for at in begins if at >= 0), default=len(text))], turn

    async def text_of(self, turn, name=""):
        if (written := await self.written(turn)) is not None:
            return written
        write = CARDS.get(self.format["name"])
        plain = await self.written(Turn(content=PLACE))
        if not turn.calls or write is None or plain is None or turn.reasoning:
            return None
        text, turn_of = plain
        said = turn.content + "\n" if turn.content else ""
        reads = dataclasses.replace(turn, reasoning=turn_of.reasoning)
        return text[: text.index(PLACE)] + said + write(turn.calls), reads

    async def rows(self):
        """All that is forced."""
        if not self.prompt:  # it refuses such a chat
            return []
        if self.format["name"] == "none":
            return await self.rows_of_text()
        rows = []
        turns = {
            "one call": Turn([WEATHER]), "text in quotes": Turn([QUOTED]), "nested": Turn([BOOK]),
            "no argument": Turn([NOW]), "two calls": Turn([WEATHER, NOW]),
            "the same call twice": Turn([WEATHER, WEATHER]), "text first": Turn([BOOK], SAID),
            "reasoning first": Turn([WEATHER], "", "Hm, rain?"),
            "reasoning and text": Turn([BOOK, NOW], SAID, "Hm, rain?"),
            "text alone": Turn([], SAID), "unknown tool": Turn([NEVER]),
            "known, then unknown": Turn([WEATHER, NEVER]),
        }  # fmt: skip
        for name, turn in turns.items():
            if (written := await self.text_of(turn)) is None:
                continue
            text, reads = written
            unknown = NEVER in turn.calls
            reads = dataclasses.replace(reads, calls=[c for c in turn.calls if c != NEVER])
            rows.append(Row(name, text, reads, has_text=UNKNOWN if unknown else None))
        if rows and rows[0].name == "one call":
            rows += await self.rows_of_one(rows[0])
        return rows

    async def rows_of_one(self, one):
        text, thought = one.text, one.turn.reasoning
        name, city = text.index("get_weather"), text.index("(left")
        last = text.rindex("2")
        cut = Turn(reasoning=thought)
        wrong = f"{text[:last]}2x{text[last + 1:]}"
        rows = [Row("a value that is none", wrong, cut, is_cut=True)]
        if len(text.encode()) <= FORCED_MAX:
            rows.append(dataclasses.replace(one, name="one call, in bytes", by_bytes=True))
        for where, at in ("name", name + 5), ("value", city + 3), ("last value", last):
            rows += [Row(f"cut in the {where}", text[:at], cut, is_cut=True),
                     Row(f"{where}: out of tokens", text[:at], cut, is_cut=True,
                         max_tokens=True)]  # fmt: skip
        plain = await self.written(Turn(content=PLACE))
        if plain is not None and "```" not in text:
            before, reads = plain[0].partition(PLACE)[0], plain[1].reasoning
            call_text = text.removeprefix(before)
            for end in (closing.strip() for closing in OPENED.values() if THOUGHT in call_text):
                call_text = call_text.partition(end)[2] or call_text
            said = f"So it is written:\n```\n{call_text}\n```\nNo more."
            rows += [Row("call in a fence", before + said, Turn([], said, reads)),
                     Row("user's imitation", before + SAID, Turn([], SAID, reads),
                         user=call_text)]  # fmt: skip
            thinks = await self.written(Turn(content=SAID, reasoning=PLACE))
            if thinks is not None and "think" in thinks[0].lower():
                imagined = call_text.strip()
                rows.append(Row("call in reasoning", thinks[0].replace(PLACE, imagined),
                                Turn([], SAID, imagined)))  # fmt: skip
        return rows

    async def rows_of_text(self):
        """Nothing is known of calls."""
        plain = await self.written(Turn(content=PLACE))
        before, turn = plain if plain is not None else ("", Turn())
        before = before.partition(PLACE)[0]
        rows = [Row("text", before + NOT_KNOWN, Turn([], "", turn.reasoning), has_text=NOT_KNOWN)]
        if (written := await self.written(Turn([WEATHER]))) is not None:
            rows.append(Row("its own calls", written[0], Turn([], "", written[1].reasoning),
                            has_text="Köln"))  # fmt: skip
        return rows

    async def ids_of(self, text, by_bytes):
        pieces = text if by_bytes else [text]
        for piece in set(pieces) - set(self.ids):
            self.ids[piece] = await self.client.tokenize(piece, add_special_tokens=False)
        return [token for piece in pieces for token in self.ids[piece]]

    async def force(self, row):
        ids = await self.ids_of(row.text, row.by_bytes)
        user = self.user if row.user == "Hi" else {"role": "user", "content": row.user}
        stream = self.client.chat(
            [user], tools=TOOLS, parsed=True, controller=self.ids_of_modules[row.by_bytes],
            controller_arg=" ".join(map(str, ids)),
            max_tokens=len(ids) + (0 if row.max_tokens or row.by_bytes else 8),
        )  # fmt: skip
        try:
            tokens = [token async for token in stream]
        except lmtp.LMTPError as e:
            row.error = str(e)
            return
        row.got, wrong = read(tokens)
        row.error = wrong or difference(row)


def read(tokens):
    """The turn that the pieces make, whose calls are [name, arguments, whether whole]; and what is
    wrong with the pieces."""
    turn = Turn([], *("".join(getattr(t, name) for t in tokens) for name in ("text", "reasoning")))
    ids, wrong = [], ""
    for piece in (piece for token in tokens for piece in token.calls):
        if piece["index"] == len(turn.calls):
            ids.append(piece["id"])
            turn.calls.append([piece["name"], "", False])
        one = turn.calls[piece["index"]]
        if one[2] or piece["index"] != len(turn.calls) - 1:
            wrong = f"a piece of a call that is over: {piece}"
        one[1] += piece.get("arguments", "")
        one[2] = piece.get("complete", False)
    if len(set(ids)) < len(ids) or not all(ids):
        wrong = f"ids {ids}"
    return turn, wrong


def valued(calls):
    out = []
    for name, arguments, _ in calls:
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
        out.append((name, arguments))
    return out


def difference(row):
    """What is wrong with what was read; empty: nothing."""
    got, wants = row.got, row.turn
    whole = [one for one in got.calls if one[2]]
    if row.is_cut:
        return f"whole calls of a cut text: {whole}" if whole else ""
    if valued(whole) != wants.calls or len(whole) != len(got.calls):
        return f"calls {got.calls} for {wants.calls}; text {got.content!r}"
    if row.has_text is not None:
        if row.has_text not in got.content:
            return f"text {got.content!r} without {row.has_text!r}"
    elif got.content.strip() != wants.content.strip():
        return f"text {got.content!r} for {wants.content!r}"
    if got.reasoning.strip() != wants.reasoning.strip():
        return f"reasoning {got.reasoning!r} for {wants.reasoning!r}"
    return ""


def compiled(folder):
    """allow_one.c and forced.c."""
    compiler, linker = (
        next(filter(None, map(shutil.which, (n, f"{n}-19", f"{n}-16", f"{n}-14"))), None)
        for n in ("clang", "wasm-ld")
    )
    if not compiler or not linker:
        sys.exit("forced_calls_check: clang or wasm-ld was not found: run tools/setup --tests")
    for name in MODULES:
        subprocess.run(
            [compiler, "--target=wasm32", "-O2", "-nostdlib", "-ffreestanding", "-mbulk-memory",
             f"-fuse-ld={linker}", "-Wl,--no-entry", "-I", AICI, "-o", folder / f"{name}.wasm",
             AICI / f"{name}.c"], check=True,
        )  # fmt: skip
    return [(folder / f"{name}.wasm").read_bytes() for name in MODULES]


async def check(path, modules, folder, served):
    """What is served, and its rows."""
    options = ("--chat-template", path, "--kv-cache", "512MiB", "--aici", "--aici-cache",
               folder / "cache")  # fmt: skip
    with LmtpServe(served, *options) as server:
        async with lmtp.connect(server.endpoint) as client:
            template = Template(client, modules)
            await template.begin()
            rows = await template.rows()
            rows = [row for row in rows if row.name not in KNOWN.get(path.stem, ())]
            await asyncio.gather(*map(template.force, rows))
            return template, rows


def as_json(path, template, row):
    return {"template": path.stem, "format": template.format["name"], "row": row.name,
            "prompt": template.prompt, "text": row.text, "is_cut": row.is_cut, "tools": TOOLS,
            "wants": dataclasses.asdict(row.turn), "error": row.error,
            "got": row.got and dataclasses.asdict(row.got)}  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="forced_calls_check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="TEXT", help="of the templates' names")
    parser.add_argument("--model", help="in the place of SmolLM2")
    parser.add_argument("--rows", action="store_true", help="prints each row's text as well")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the rows there")
    return parser.parse_args()


def main():
    arguments, found = parse_arguments(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        call(ROOT / "tools" / "setup", "--jinja", folder / "jinja")
        modules = compiled(folder)
        print("| template | format | source | rows | failed |\n|---|---|---|---|---|")
        for path in sorted((folder / "jinja" / "models" / "templates").glob("*.jinja")):
            if arguments.names and not any(text in path.stem for text in arguments.names):
                continue
            template, rows = asyncio.run(check(path, modules, folder, arguments.model or model()))
            failed = [row for row in rows if row.error]
            form = template.format
            print(f"| {path.stem} | {form['name']} | {form['source']} | {len(rows)} | "
                  f"{', '.join(row.name for row in failed)} |", flush=True)  # fmt: skip
            for row in rows if arguments.rows else failed:
                print(f"    {row.name}: {row.text!r}\n        {row.error or 'yes'}", flush=True)
            found += [as_json(path, template, row) for row in rows]
    if arguments.json:
        arguments.json.write_text(compact(found) + "\n")
    failed = sum(bool(row["error"]) for row in found)
    print(f"\n{len(found) - failed} of {len(found)} rows are read as they were meant")
    return int(failed > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())

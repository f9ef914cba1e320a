"""What the rules are written with: the table of them, the server under test, and raw sockets whose
every message is checked against the schemas."""

import asyncio
import contextlib
import dataclasses
import json
import math
import pathlib
import sys

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import lmtp  # noqa: E402

# Ids that small vocabularies have too.
PROMPT = [46, 189, 79, 158]
OTHER_PROMPTS = [[12], [5, 6, 7], [130, 20, 130], [200, 201, 202, 203, 204, 205]]
TOLERANCE = 1e-3  # of log probabilities that two ways of computing give
VIOLATIONS_MAX = 5
NUM_TRIES = 5  # of what a server may be too fast for


class Broken(Exception):
    """A rule is broken."""


class Skipped(Exception):
    """A rule cannot be tested on this server."""


def expect(holds, what):
    if not holds:
        raise Broken(what)


def expect_equal(got, wanted, what):
    expect(got == wanted, f"{what}: {got!r}, where {wanted!r} is right")


@dataclasses.dataclass
class Rule:
    name: str
    says: str
    section: str  # of docs/lmtp.md
    level: str
    needs: tuple
    run: object


RULES = []


def rule(section, *needs, level="base"):
    """Adds a function to the table, under its name; its docstring is what the rule says. `needs`:
    what MODEL_INFO's `extensions` must list, or "seeds", "eos", "vocabulary"."""

    def add(function):
        name = function.__name__.replace("_", "-")
        RULES.append(Rule(name, function.__doc__, section, level, needs, function))
        return function

    return add


class Schema:
    """The definitions of docs/schema by which a level's messages are checked."""

    def __init__(self, folder, level):
        name = "lmtp.json" if level == "1.1" else "base.json"
        document = json.loads((folder / name).read_text())
        checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
        )
        kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
        self.validators = {
            verb: kind({**document, "$ref": f"#/$defs/{verb}"}) for verb in ("TOKEN", "MSG")
        }

    def fault(self, text):
        """What is wrong with a message, or None."""
        verb, _, payload = text.partition(" ")
        if verb not in self.validators:
            return f"unknown verb: {text[:80]}"
        try:
            payload = json.loads(payload)
        except ValueError as e:
            return f"no JSON: {e}: {text[:80]}"
        worst = jsonschema.exceptions.best_match(self.validators[verb].iter_errors(payload))
        return worst and f"{worst.json_path}: {worst.message[:160]} in {text[:160]}"


class Target:
    """The server under test."""

    def __init__(self, url, model=None, schema=None, timeout_s=60, eos=None):
        self.url, self.model, self.schema, self.timeout_s = url, model, schema, timeout_s
        self.eos = list(eos or [])
        self.info = {}
        self.num_messages = 0
        self.violations = []

    async def learn(self):
        async with self.wire() as w:
            info = (await w.ask("MODEL_INFO"))[1].get("model_info", {})
            if not isinstance(info, dict) or info.get("state", "ready") != "ready":
                await w.generate(PROMPT[:1], max_tokens=1)  # waits for the model
                info = (await w.ask("MODEL_INFO"))[1].get("model_info", {})
        self.info = info if isinstance(info, dict) else {}
        self.eos = self.eos or self.info.get("eos_token_ids") or []

    def has(self, need):
        if need == "eos":
            return bool(self.eos)
        if need == "seeds":  # LMQL's own server has none
            return "extensions" in self.info
        if need == "vocabulary":
            return bool(self.info.get("vocab_size"))
        return need in self.info.get("extensions", [])

    @property
    def no_end(self):
        """The logit_bias under which no text ends by itself."""
        return {"logit_bias": {str(token): -100 for token in self.eos}} if self.eos else {}

    def see(self, text):
        self.num_messages += 1
        fault = self.schema and self.schema.fault(text)
        if fault and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(fault)

    def wire(self):
        return Wire(self)

    def client(self, **options):
        return lmtp.connect(self.url, self.model, on_message=self.see, **options)


class Wire(lmtp.Connection):
    """A socket on which anything may be said. Keeps all that comes, in order."""

    def __init__(self, target):
        super().__init__(target.url, on_message=None, api_key=None)
        self.target = target
        self.texts = []  # messages as they came
        self.entries = []  # (verb, entry), of messages that could be read
        self._came = asyncio.Event()
        self._next_id = 100

    async def __aenter__(self):
        return await self.open()

    async def __aexit__(self, *_):
        await self.close()

    def _dispatch(self, text):
        self.target.see(text)
        self.texts.append(text)
        verb, _, payload = text.partition(" ")
        with contextlib.suppress(ValueError):
            payload = json.loads(payload)
            for entry in payload if isinstance(payload, list) else [payload]:
                self.entries.append((verb, entry if isinstance(entry, dict) else {}))
        self._came.set()

    def _lose(self, why):
        super()._lose(why)
        self._came.set()

    def new_id(self):
        self._next_id += 1
        return self._next_id

    async def say(self, verb, **fields):
        """Sends a message; its stream id is fields' or a new one."""
        stream_id = fields.pop("stream_id", None)
        stream_id = self.new_id() if stream_id is None else stream_id
        model = {"model": self.target.model} if self.target.model else {}
        await self.send_text(f"{verb} {json.dumps({'stream_id': stream_id, **model, **fields})}")
        return stream_id

    async def wait(self, wanted, what, since=0, limit_s=math.inf):
        """The first (verb, entry) for which wanted(verb, entry), from the entry `since` on."""
        at = since
        limit_s = min(limit_s, self.target.timeout_s)
        deadline = asyncio.get_running_loop().time() + limit_s
        while True:
            for verb, entry in self.entries[at:]:
                if wanted(verb, entry):
                    return verb, entry
            at = len(self.entries)
            expect(self.is_open, f"the connection was closed, waiting for {what}")
            self._came.clear()
            try:
                left_s = deadline - asyncio.get_running_loop().time()
                await asyncio.wait_for(self._came.wait(), left_s)
            except asyncio.TimeoutError:
                raise Broken(f"no {what} within {limit_s} s") from None

    def of(self, stream_id, since=0):
        """All (verb, entry) of a stream so far."""
        return [(v, e) for v, e in self.entries[since:] if e.get("stream_id") == stream_id]

    def tokens(self, stream_id):
        return [e for v, e in self.of(stream_id) if v == "TOKEN" and "token" in e]

    async def end(self, stream_id, since=0):
        """Waits for a stream's end; its last entry."""

        def ends(verb, entry):
            if entry.get("stream_id") != stream_id or verb != "TOKEN":
                return False
            return "error" in entry or bool(entry.get("finish_reason"))

        return (await self.wait(ends, f"end of stream {stream_id}", since))[1]

    async def finish(self, stream_id):
        """The entries of a stream that must end well."""
        last = await self.end(stream_id)
        expect("error" not in last, f"stream {stream_id} ended with {last.get('error')!r}")
        return self.tokens(stream_id)

    async def generate(self, prompt=PROMPT, **fields):
        return await self.finish(await self.say("GENERATE", prompt=prompt, **fields))

    async def cancelled(self, **fields):
        """(stream id, last entry) of a stream that is cancelled at its first token, or before it
        where streams are too fast for that."""
        for i in range(NUM_TRIES):
            stream_id = await self.say("GENERATE", prompt=PROMPT, max_tokens=400, **fields)
            is_token = lambda v, e: e.get("stream_id") == stream_id and "token" in e
            if i < NUM_TRIES - 2:
                await self.wait(is_token, "a token")
            await self.send_text(f'CANCEL {{"stream_id": {stream_id}}}')
            last = await self.end(stream_id)
            if "error" in last:
                break
        return stream_id, last

    async def generate_samples(self, n, prompt=PROMPT, **fields):
        """The entries of a stream of n samples, in the order in which they came."""
        stream_id = await self.say("GENERATE", prompt=prompt, n=n, **fields)
        ended = set()

        def all_ended(_, entry):
            if entry.get("stream_id") == stream_id:
                expect("error" not in entry, f"it ended with {entry.get('error')!r}")
                if entry.get("finish_reason"):
                    ended.add(entry.get("index"))
            return len(ended) == n

        await self.wait(all_ended, f"end of all {n} samples")
        return self.tokens(stream_id)

    async def score(self, prompt, scored, **fields):
        return await self.finish(await self.say("SCORE", prompt=prompt, scored=scored, **fields))

    async def ask(self, verb, **fields):
        """(verb, entry) of the first answer that is no notice."""
        since = len(self.entries)
        stream_id = await self.say(verb, **fields)
        wanted = lambda v, e: e.get("stream_id") == stream_id and "status" not in e
        return await self.wait(wanted, f"answer to {verb}", since)

    async def error(self, verb, **fields):
        """(verb, entry) of the error that answers a message which is wrong."""
        kind, entry = await self.ask(verb, **fields)
        given = {k: (v if len(str(v)) < 60 else "...") for k, v in fields.items()}
        expect("error" in entry, f"{verb} with {given} was taken: {entry}")
        return kind, entry

    async def lives(self):
        """A fence: a whole stream on this connection, behind what was sent before."""
        expect(len(await self.generate([1], max_tokens=1)) >= 1, "a stream behind it has no token")


def ids(entries):
    return [e.get("token") for e in entries]


def texts(entries):
    return "".join(e.get("text", "") for e in entries)


def values(entries):
    """What must be equal where two streams have the same bits."""
    return [(e.get("token"), e.get("logprob"), e.get("top_logprobs")) for e in entries]

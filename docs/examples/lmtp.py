#!/usr/bin/env python3
"""An asyncio client of LMTP, the Language Model Transport Protocol, up to version 1.1.

One file that needs aiohttp or else websockets: copy it into your project. docs/lmtp.md of lmtp is
the protocol's specification.

    async with lmtp.connect("ws://127.0.0.1:8080") as client:  # wss://HOST/ where it speaks TLS
        async for token in client.generate("Once upon a time", max_tokens=40, temperature=0.8):
            print(token.text, end="", flush=True)

From the shell: python lmtp.py "Once upon a time" max_tokens=40 temperature=0.8

Retry is exact: a stream whose connection is lost, or that ends with a retryable error, is continued
behind the tokens that came, under the same seed, and has the bits of the uninterrupted one. Of a
server without 1.1 (LMQL's `lmql serve-model`) the name of the model must be given, prompts are token
ids, and no stream is continued.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Union

try:
    import aiohttp
except ImportError:
    aiohttp = None
    import websockets

if TYPE_CHECKING:
    from typing import Unpack

T = TypeVar("T")
# Token ids, a text, or parts: texts, lists of ids, {"buffer": NAME, "upto": N}.
Prompt = Union[str, "list[int]", "list[str | list[int] | dict[str, Any]]"]
Notice = Callable[["dict[str, Any]"], None]

CONNECT_TIMEOUT_S = 10
PING_INTERVAL_S = 30
BACK_OFF_S = (0.1, 0.7, 5.0)  # the wait before each further attempt; the last one repeats
DEFAULT_MAX_TOKENS = 32


class LMTPError(Exception):
    """An error entry of the server, or a lost connection (code "connection_lost")."""

    def __init__(self, entry: dict[str, Any]):
        super().__init__(entry["error"])
        self.code: str | None = entry.get("code")
        self.retryable: bool = entry.get("retryable", False)
        self.retry_after_s: float = entry.get("retry_after_ms", 0) / 1000
        self.index: int | None = entry.get("index")


@dataclass(frozen=True)
class Candidate:
    """What score_candidates() tells of one."""

    logprob: float  # of all its tokens together
    num_tokens: int


@dataclass(frozen=True)
class Token:
    """One entry of a stream. Joined, the texts of a stream are the decoded text."""

    id: int | None  # None: a controller ends, forks or cuts the stream without a token
    logprob: float
    text: str = ""  # "" where no text was asked for
    finish_reason: str | None = None  # "stop" or "length" at the end
    stop_text: str | None = None  # the stop string that ended the stream
    index: int = 0  # of the sample, 0 to n - 1
    backtrack: int = 0  # so many tokens before this one are no more the stream's
    appended: bool = False  # by Stream.backtrack(), or a controller
    forced: bool = False  # its grammar left no other
    fork_of_index: int | None = None  # a controller has forked this sample of that one, with its
    fork_at: int = 0  # first so many tokens
    top_logprobs: dict[int, float] = field(default_factory=dict)  # best first
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)  # pieces, by index
    token_logprobs: dict[int, float] = field(default_factory=dict)  # of logprob_token_ids
    entropy: float | None = None
    rank: int | None = None

    @classmethod
    def of(cls, entry: dict[str, Any], index: int = 0) -> Token:
        top, listed = (
            {int(key): value for key, value in entry.get(name, {}).items()}
            for name in ("top_logprobs", "token_logprobs")
        )
        return cls(
            entry["token"], entry["logprob"], entry.get("text", ""), entry["finish_reason"],
            entry.get("stop_text"), index, entry.get("backtrack", 0),
            entry.get("appended", False), entry.get("forced", False),
            entry.get("fork_of_index"), entry.get("fork_at", 0), top,
            entry.get("reasoning", ""), entry.get("calls", []), listed,
            entry.get("entropy"), entry.get("rank"),
        )  # fmt: skip


class ScoreParams(TypedDict, total=False):
    """Of SCORE; those of GenerateParams that have the same name mean the same."""

    model: str
    top_logprobs: int
    logprob_token_ids: list[int]  # those of Token.token_logprobs
    entropy: bool
    rank: bool
    text: bool
    add_special_tokens: bool
    skip_special_tokens: bool
    timeout_ms: int
    first_token_timeout_ms: int
    cache_salt: str


class GenerateParams(ScoreParams, total=False):
    """Of GENERATE; what is not given is the server's default, which is beside a parameter."""

    temperature: float  # 0
    top_p: float  # 1
    top_k: int  # 0
    min_p: float  # 0
    typical_p: float  # 1
    repetition_penalty: float  # 1
    presence_penalty: float  # 0
    frequency_penalty: float  # 0
    penalties_from: int  # 0
    max_tokens: int  # 32
    min_tokens: int  # 0
    ignore_eos: bool  # false
    seed: int  # none
    logit_bias: dict[int, float]  # none
    mask: str  # what mask() makes: the only tokens that are allowed
    grammar: dict[str, Any]  # {"type": "regex" (choice, json, lark, gbnf, ...), "value": ...}
    controller: str  # a tag or a module's id: it decides on the tokens
    controller_arg: Any
    n: int  # samples; Token.index tells them apart
    stop: str | list[str]
    include_stop: bool
    bad_words: str | list[str]  # that are not generated
    stop_token_ids: list[int]
    resumed: int
    logprobs: Literal["processed", "raw"]
    into: str  # keeps prompt and generated tokens as this buffer
    tools: list[dict[str, Any]]  # of a chat
    add_generation_prompt: bool
    chat_template_kwargs: dict[str, Any]
    parsed: bool  # Token.calls and Token.reasoning, told apart from the text
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    thinking_token_budget: int


def mask(allowed: Iterable[int], vocab_size: int) -> str:
    """The `mask` that allows these token ids alone; vocab_size as model_info() has it."""
    bits = bytearray((vocab_size + 7) // 8)
    for token in allowed:
        if not 0 <= token < vocab_size:
            raise ValueError(f"token {token} is not in the vocabulary of {vocab_size}")
        bits[token // 8] |= 1 << token % 8
    return base64.b64encode(bits).decode()


def constraints(
    *, stops_before: str | list[str] = (), stops_at: str | list[str] = (),
    max_tokens: int | None = None, min_tokens: int | None = None,
    one_of: Iterable[str] | None = None, regex: str | None = None, is_int: bool = False,
    schema: dict[str, Any] | None = None,
) -> GenerateParams:  # fmt: skip
    """LMQL's operators STOPS_BEFORE, STOPS_AT, len(TOKENS(X)), X in [...], REGEX and INT as fields of
    generate(): `client.generate(prompt, **constraints(one_of=["yes", "no"]))`."""
    if stops_before and stops_at:
        raise ValueError("stops_before and stops_at: one request ends in one of the two ways")
    grammars = [
        {"type": kind, "value": value}
        for kind, value in [
            ("choice", None if one_of is None else list(one_of)), ("regex", regex),
            ("regex", " ?-?[0-9]+" if is_int else None), ("json_schema", schema),
        ]
        if value is not None
    ]  # fmt: skip
    if len(grammars) > 1:
        raise ValueError("one_of, regex, is_int and schema: one of them is allowed")
    fields: GenerateParams = {}
    if stops_before or stops_at:
        stop = stops_before or stops_at
        fields["stop"] = [stop] if isinstance(stop, str) else list(stop)
        fields["include_stop"] = bool(stops_at)
    if max_tokens is not None:
        fields["max_tokens"] = max_tokens
    if min_tokens is not None:
        fields["min_tokens"] = min_tokens
    if grammars:
        fields["grammar"] = grammars[0]
    return fields


async def _open_socket(url: str, api_key: str | None):
    """(send, messages, close) of a WebSocket to ws:// or wss://HOST:PORT, HOST:PORT or unix:PATH."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    path = url[len("unix:") :] if url.startswith("unix:") else None
    url = "ws://localhost/" if path else url if "://" in url else f"ws://{url}"
    if aiohttp is None:
        options = {"max_size": None, "compression": None, "ping_interval": PING_INTERVAL_S,
                   "additional_headers": headers}  # fmt: skip
        opening = websockets.unix_connect(path, url, **options) if path else None
        ws = await (opening or websockets.connect(url, **options))
        return ws.send, ws, ws.close
    session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path) if path else None)
    try:
        ws = await session.ws_connect(
            url, max_msg_size=0, heartbeat=PING_INTERVAL_S, headers=headers
        )
    except BaseException:
        await session.close()
        raise

    async def messages():
        async for message in ws:
            yield message.data

    async def close():
        await ws.close()
        await session.close()

    return ws.send_str, messages(), close


class Connection:
    """One WebSocket: messages out, entries in. Retries are the Client's."""

    def __init__(self, url: str, on_message: Callable[[str], None] | None, api_key: str | None):
        self.url, self._api_key = url, api_key
        self.is_open = False
        self._on_message = on_message
        self._queues: dict[int, asyncio.Queue] = {}
        self.forks: dict[int, set[int]] = {}  # by stream, those that have not begun
        self._last_id = 0
        self._infos: dict[str | None, dict[str, Any]] = {}

    async def open(self) -> Connection:
        try:
            opening = asyncio.wait_for(_open_socket(self.url, self._api_key), CONNECT_TIMEOUT_S)
            self._send, self._messages, self._close = await opening
        except Exception as e:  # each library has classes of its own
            raise LMTPError(_lost(f"{self.url}: {e or type(e).__name__}")) from e
        self.is_open = True
        self._reader = asyncio.create_task(self._read())
        return self

    async def close(self) -> None:
        await self._close()
        await self._reader

    async def _read(self) -> None:
        why = f"{self.url} closed it"
        try:
            async for text in self._messages:
                self._dispatch(text)
        except Exception as e:
            why = f"{self.url}: {e or type(e).__name__}"
        finally:
            self._lose(why)

    def _dispatch(self, text: str) -> None:
        if self._on_message:
            self._on_message(text)
        for entry in json.loads(text.partition(" ")[2]):
            ids = {entry["stream_id"]}
            if "fork_of" in entry:
                self.forks.get(entry["fork_of"], set()).discard(entry["stream_id"])
            elif "error" in entry and text.startswith("MSG"):
                ids |= self.forks.pop(entry["stream_id"], set())
            for queue in filter(None, map(self._queues.get, ids)):
                queue.put_nowait(entry)

    def _lose(self, why: str) -> None:
        self.is_open = False
        for queue in self._queues.values():
            queue.put_nowait(_lost(why))

    async def send_text(self, text: str) -> None:
        try:
            await self._send(text)
        except Exception as e:
            raise LMTPError(_lost(f"{self.url}: {e or type(e).__name__}")) from e

    def new_id(self, queue: asyncio.Queue) -> int:
        """Of a stream whose entries come into the queue until forget()."""
        self._last_id += 1
        self._queues[self._last_id] = queue
        return self._last_id

    async def send(self, verb: str, fields: dict[str, Any], queue: asyncio.Queue) -> int:
        """The stream's id; entries of its answer come into the queue until forget()."""
        stream_id = self.new_id(queue)
        await self.send_text(f"{verb} {json.dumps({'stream_id': stream_id, **fields})}")
        if not self.is_open:
            queue.put_nowait(_lost(self.url))
        return stream_id

    def forget(self, stream_id: int) -> None:
        self._queues.pop(stream_id, None)
        self.forks.pop(stream_id, None)

    async def cancel(self, stream_id: int) -> None:
        self.forget(stream_id)
        if self.is_open:
            with contextlib.suppress(LMTPError):
                await self.send_text(f'CANCEL {{"stream_id": {stream_id}}}')

    async def ask(self, verb: str, fields: dict[str, Any], on_notice: Notice | None = None) -> list:
        """The entries of an answer: the tokens of a SCORE, else one."""
        queue: asyncio.Queue = asyncio.Queue()
        stream_id = await self.send(verb, fields, queue)
        entries = []
        try:
            while True:
                entries.append(await _next(queue, on_notice))
                if verb != "SCORE" or entries[-1]["finish_reason"]:
                    return entries
        except asyncio.CancelledError:
            await self.cancel(stream_id)
            raise
        finally:
            self.forget(stream_id)

    async def info(self, model: str | None) -> dict[str, Any]:
        """The model's numerics, once it is loaded, and what else MODEL_INFO has; asked for once."""
        if not self._infos.get(model, {}).get("numerics"):
            try:
                entry = (await self.ask("MODEL_INFO", {"model": model} if model else {}))[0]
            except LMTPError as e:
                if e.code == "connection_lost":
                    raise
                entry = {"model_info": {"lmtp": e.code and "1.1"}}  # no such model, or several
            info = entry["model_info"]
            self._infos[model] = info if isinstance(info, dict) else {}
        return self._infos[model]


def _lost(why: str) -> dict[str, Any]:
    return {"error": f"connection lost: {why}", "code": "connection_lost", "retryable": True}


async def _next(queue: asyncio.Queue, on_notice: Notice | None) -> dict[str, Any]:
    """The next entry that is no notice."""
    while True:
        entry = await queue.get()
        if "error" in entry:
            raise LMTPError(entry)
        if "status" not in entry:
            return entry
        if on_notice:
            on_notice(entry)


async def _back_off(failures: int, error: LMTPError) -> None:
    wait_s = BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1] * random.uniform(0.8, 1)
    await asyncio.sleep(max(wait_s, error.retry_after_s))


def _with_time_left(fields: dict[str, Any], began: float) -> dict[str, Any]:
    """What is left of the timeouts; where nothing is, the server says so."""
    spent_ms = int((time.monotonic() - began) * 1000)
    timeouts = ("first_token_timeout_ms", "timeout_ms")
    return fields | {t: max(1, fields[t] - spent_ms) for t in timeouts if t in fields}


class Stream:
    """The tokens of one GENERATE: `async for token in stream`. Leaving the loop cancels the rest."""

    def __init__(self, client: Client, fields: dict[str, Any], on_notice: Notice | None):
        self._client, self._fields, self._on_notice = client, fields, on_notice
        self.received: list[list[int]] = [[] for _ in range(fields.get("n", 1))]  # ids, by sample
        self._done: set[int] = set()
        self._numerics: str | None = None
        self._running: tuple[Connection, int] | None = None  # where, under which id
        self._fork: tuple[Connection, int, asyncio.Queue] | None = None  # it begins as one
        self._is_whole = True  # prompt and received tokens are all that it goes on from
        self._error: LMTPError | None = None  # the first of a controller's forks

    async def backtrack(self, drop: int = 0, append: Iterable[int] = ()) -> None:
        """Drops the last tokens that the server has drawn, and puts others behind the rest. The next
        token's `backtrack` says how many of those that came are gone. Of a stream of one sample,
        while it is read; what is refused is raised there."""
        await self._edit("BACKTRACK", {"drop": drop, "append": list(append)})

    async def fork(self, count: int = 1, **params: Any) -> list[Stream]:
        """Streams that go on from the tokens that the server has drawn, each to be read; `params`
        are where they differ. As backtrack(); forks are not continued by retries."""
        connection, stream_id = self._running_at()
        forks = [Stream(self._client, self._fields, self._on_notice) for _ in range(count)]
        ids = []
        for fork in forks:
            queue: asyncio.Queue = asyncio.Queue()
            ids.append(connection.new_id(queue))
            fork._fork, fork._is_whole = (connection, ids[-1], queue), False
        connection.forks.setdefault(stream_id, set()).update(ids)
        await self._edit("FORK", {"streams": ids, "params": params})
        return forks

    def _running_at(self) -> tuple[Connection, int]:
        if self._running is None:
            raise LMTPError({"error": "the stream does not run", "code": "invalid_request"})
        return self._running

    async def _edit(self, verb: str, fields: dict[str, Any]) -> None:
        connection, stream_id = self._running_at()
        await connection.send_text(f"{verb} {json.dumps({'stream_id': stream_id, **fields})}")

    def __aiter__(self) -> AsyncIterator[Token]:
        return self._tokens()

    async def text(self) -> str:
        """The whole text of a stream with one sample."""
        return "".join([token.text async for token in self])

    async def _tokens(self) -> AsyncIterator[Token]:
        self._began = time.monotonic()
        failures = 0
        while len(self._done) < len(self.received):
            try:
                async with contextlib.aclosing(self._attempt()) as tokens:
                    async for token in tokens:
                        failures = 0
                        yield token
            except LMTPError as e:
                failures += 1
                can_continue = "seed" in self._fields or not any(self.received)
                can_continue = can_continue and self._is_whole
                if not (e.retryable and can_continue) or failures > self._client.retry:
                    raise
                await _back_off(failures, e)
        if self._error:
            raise self._error

    def _requests(self) -> Iterable[tuple[set[int], dict[str, Any]]]:
        """What is asked for in this attempt: indices of samples, and the message's fields."""
        fields = dict(self._fields)
        if any(self.received):
            fields.pop("first_token_timeout_ms", None)
        fields = _with_time_left(fields, self._began)
        if not any(self.received):
            yield set(range(len(self.received))), fields
            return
        fields.pop("n", None)
        for index, ids in enumerate(self.received):
            if index not in self._done:
                resumed = fields.get("resumed", 0) + len(ids)
                max_tokens = fields.get("max_tokens", DEFAULT_MAX_TOKENS) - len(ids)
                yield {index}, {
                    **fields, "prompt": _join(fields.get("prompt"), ids), "resumed": resumed,
                    "max_tokens": max_tokens, "seed": (fields["seed"] + index) % 2**64,
                }  # fmt: skip

    async def _attempt(self) -> AsyncIterator[Token]:
        connection = await self._client.connection()
        model = self._fields.get("model")
        speaks_1_1 = (await connection.info(model)).get("lmtp")
        if speaks_1_1 and "seed" not in self._fields:
            self._fields["seed"] = random.getrandbits(53)
        queue: asyncio.Queue = asyncio.Queue()
        live: dict[int, set[int]] = {}  # stream id -> samples that have not ended
        is_first = True
        try:
            if self._fork:
                connection, stream_id, queue = self._fork
                live[stream_id] = {0}
            else:
                for samples, fields in self._requests():
                    live[await connection.send("GENERATE", fields, queue)] = samples
            if len(self.received) == 1:
                self._running = (connection, next(iter(live)))
            first = {stream_id: min(samples) for stream_id, samples in live.items()}
            while live:
                try:
                    entry = await _next(queue, self._on_notice)
                except LMTPError as e:
                    if e.index is None or not self._is_controlled:
                        raise
                    self._error = self._error or e  # the others go on
                    self._end(e.index, next(iter(live)), live, connection)
                    continue
                if self._is_controlled:
                    self._is_whole = False  # its controller alone knows how it goes on
                if "controller" in entry:
                    if self._on_notice:
                        self._on_notice(entry)
                    continue
                if is_first and speaks_1_1:
                    self._check_numerics((await connection.info(model)).get("numerics"))
                is_first = False
                stream_id = entry["stream_id"]
                index = first[stream_id] + entry.get("index", 0)
                if "fork_of_index" in entry:
                    shared = self.received[entry["fork_of_index"]][: entry["fork_at"]]
                    self.received.insert(index, shared)
                    live[stream_id].add(index)
                self._is_whole &= entry.get("backtrack", 0) <= len(self.received[index])
                if entry.get("backtrack"):
                    del self.received[index][-entry["backtrack"] :]
                if entry["token"] is not None:
                    self.received[index].append(entry["token"])
                if entry["finish_reason"]:
                    self._end(index, stream_id, live, connection)
                yield Token.of(entry, index)
        finally:
            self._running = None
            for stream_id in live:
                await connection.cancel(stream_id)

    @property
    def _is_controlled(self) -> bool:
        return "controller" in self._fields

    def _end(
        self, index: int, stream_id: int, live: dict[int, set[int]], connection: Connection
    ) -> None:
        self._done.add(index)
        live[stream_id].discard(index)
        if not live[stream_id]:
            del live[stream_id]
            connection.forget(stream_id)

    def _check_numerics(self, numerics: str | None) -> None:
        """Equal numerics, equal bits: other tokens than the first server's are not passed on."""
        if self._numerics not in (None, numerics) and any(self.received):
            what = f"the server has numerics {numerics}, the stream began with {self._numerics}"
            raise LMTPError({"error": f"retry: {what}", "code": "numerics"})
        self._numerics = numerics


def _join(prompt: Prompt | None, ids: list[int]) -> Prompt | None:
    """The prompt, None of a chat, with token ids behind it."""
    if not ids:
        return prompt
    if prompt is None:
        return ids
    if isinstance(prompt, str):
        return [prompt, ids]
    if all(isinstance(part, int) for part in prompt):
        return [*prompt, *ids]
    if isinstance(prompt[-1], list):
        return [*prompt[:-1], [*prompt[-1], *ids]]
    return [*prompt, ids]


class Client:
    """A server: `async with connect(URL) as client`. Any number of requests run at once over one
    connection, which is opened again when it was lost. `retry`: attempts behind a failed one."""

    def __init__(
        self, url: str, model: str | None, retry: int, on_message=None, api_key: str | None = None
    ):
        self.url, self.model, self.retry = url, model, retry
        self._on_message, self._api_key = on_message, api_key
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._buffers: dict[str, list[dict[str, Any]]] = {}  # what made them: connections have them

    async def __aenter__(self) -> Client:
        await self._retrying(self.connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection:
            await self._connection.close()

    async def connection(self) -> Connection:
        """The one that is open, else a new one with the buffers that buffer() made."""
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                if self._connection:
                    await self._connection.close()
                    self._connection = None
                connection = await Connection(self.url, self._on_message, self._api_key).open()
                try:
                    for fields in [fields for made in self._buffers.values() for fields in made]:
                        await connection.ask("BUFFER", fields)
                except BaseException:
                    await connection.close()
                    raise
                self._connection = connection
            return self._connection

    def generate(
        self, prompt: Prompt, on_notice: Notice | None = None, **params: Unpack[GenerateParams]
    ) -> Stream:
        """Begins when it is iterated. Notices are asked for where on_notice is given; what a
        controller logs comes there too. The samples that it forks end each by itself: the error of
        one is raised at the end. A stream that it decides on is not continued where it is lost."""
        return Stream(self, self._request(prompt, on_notice, params), on_notice)

    def chat(
        self, messages: list[dict[str, Any]], on_notice: Notice | None = None,
        **params: Unpack[GenerateParams],
    ) -> Stream:  # fmt: skip
        """What the model answers to messages, {"role": "user", "content": "..."} and so on."""
        fields = {**self._request(None, on_notice, params), "messages": messages}
        return Stream(self, fields, on_notice)

    async def score(
        self, prompt: Prompt, scored: str | list[int], on_notice: Notice | None = None,
        **params: Unpack[ScoreParams],
    ) -> list[Token]:  # fmt: skip
        """Log probabilities of the tokens of `scored` behind the prompt."""
        fields = {**self._request(prompt, on_notice, params), "scored": scored}
        return [Token.of(entry) for entry in await self._ask("SCORE", fields, on_notice)]

    async def score_candidates(
        self, prompt: Prompt, candidates: list[str | list[int]], on_notice: Notice | None = None,
        **params: Unpack[ScoreParams],
    ) -> list[Candidate]:  # fmt: skip
        """Log probabilities of whole texts behind the prompt, in their order."""
        fields = {**self._request(prompt, on_notice, params), "candidates": candidates}
        (entry,) = await self._ask("SCORE", fields, on_notice)
        return [Candidate(**one) for one in entry["candidates"]]

    async def decide(
        self, state: str | list[Any] | dict[str, Any] | None, questions: dict[str, dict[str, Any]],
        on_notice: Notice | None = None, **params: Any,
    ) -> dict[str, dict[str, Any]]:  # fmt: skip
        """Answers to typed questions, by their names: {"refund": {"type": "noul", "instructions":
        "Is a refund requested?"}}. A chat stands in messages=, beside the state None."""
        fields = {**self._request(None, on_notice, params), "questions": questions}
        if state is not None:
            fields["state"] = state
        (entry,) = await self._ask("DECIDE", fields, on_notice)
        return entry["answers"]

    async def tokenize(self, text: str, **params: Any) -> list[int]:
        return (await self._ask("TOKENIZE", {"text": text, **params}))[0]["tokens"]

    async def detokenize(self, tokens: list[int], **params: Any) -> str:
        return (await self._ask("DETOKENIZE", {"tokens": tokens, **params}))[0]["text"]

    async def buffer(self, name: str, content: str | list[int], **params: Any) -> int:
        """Keeps a text or token ids as {"buffer": name} for prompts; its length in tokens.
        append=True puts them behind what is there."""
        kind = "text" if isinstance(content, str) else "tokens"
        fields = self._with_model({"buffer": name, kind: content, **params})
        length = (await self._ask("BUFFER", fields))[0]["length"]
        kept = self._buffers.get(name, []) if params.get("append") else []
        self._buffers[name] = [*kept, fields]
        return length

    async def free(self, name: str) -> None:
        """Ends a buffer."""
        self._buffers.pop(name, None)
        await self._ask("FREE", {"buffer": name})

    async def upload_controller(self, wasm: bytes, **params: Any) -> str:
        """Brings a controller, a module in WebAssembly; its id."""
        binary = base64.b64encode(wasm).decode()
        return (await self._controller("upload", {"binary": binary, **params}))["module_id"]

    async def tag_controller(self, module_id: str, *tags: str, **params: Any) -> None:
        """Names for it, which `controller` of generate() takes as well as the id."""
        await self._controller("tag", {"module_id": module_id, "tags": tags, **params})

    async def untag_controllers(self, *tags: str, **params: Any) -> None:
        """Removes these names."""
        await self._controller("untag", {"tags": tags, **params})

    async def list_controllers(self, **params: Any) -> list[dict[str, Any]]:
        """All tags, the newest first: {"tag", "module_id", "updated_at", ...}."""
        return (await self._controller("list", params))["tags"]

    async def _controller(self, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        return (await self._ask("CONTROLLER", {"op": op, **fields}))[0]["controller"]

    async def model_info(self, model: str | None = None) -> dict[str, Any]:
        fields = {"model": model} if model else {}
        return (await self._ask("MODEL_INFO", fields))[0]["model_info"]

    def _with_model(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields if self.model is None else {"model": self.model, **fields}

    def _request(
        self, prompt: Prompt | None, on_notice: Notice | None, params: Any
    ) -> dict[str, Any]:
        given = {"prompt": prompt, "notices": True if on_notice else None, **params}
        return self._with_model({name: value for name, value in given.items() if value is not None})

    async def _ask(self, verb: str, fields: dict[str, Any], on_notice: Notice | None = None) -> list:
        began = time.monotonic()

        async def attempt():
            connection = await self.connection()
            left = _with_time_left(self._with_model(fields), began)
            return await connection.ask(verb, left, on_notice)

        return await self._retrying(attempt)

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await attempt()
            except LMTPError as e:
                failures += 1
                if not e.retryable or failures > self.retry:
                    raise
                await _back_off(failures, e)


def connect(
    url: str = "ws://127.0.0.1:8080", model: str | None = None, retry: int = 3,
    on_message: Callable[[str], None] | None = None, api_key: str | None = None,
) -> Client:  # fmt: skip
    """A client of the server at ws://HOST:PORT, wss://HOST:PORT (TLS; SSL_CERT_FILE names an
    authority that the system does not trust), HOST:PORT or unix:PATH, for `async with`. Requests
    that name no model are for `model`. on_message sees each message of the server as it came.
    `api_key` is for a server that asks for one."""
    return Client(url, model, retry, on_message, api_key)


async def _main() -> int:
    parser = argparse.ArgumentParser(description="Continues a prompt, by LMTP 1.1.")
    parser.add_argument("prompt")
    parser.add_argument("--url", default="ws://127.0.0.1:8080", help="or unix:PATH (%(default)s)")
    parser.add_argument(
        "--api-key", default=os.environ.get("LMTP_API_KEY"), help="[LMTP_API_KEY's value]")  # fmt: skip
    parser.add_argument("--model", help="a name; by default the model that the server has")
    parser.add_argument("params", nargs="*", metavar="NAME=VALUE", help="fields of GENERATE")
    args = parser.parse_intermixed_args()
    params = {}
    for param in args.params:
        name, is_param, value = param.partition("=")
        if not is_param:
            parser.error(f"{param}: is no NAME=VALUE")
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value  # a text without quotes
    try:
        async with connect(args.url, args.model, api_key=args.api_key) as client:
            async for token in client.generate(args.prompt, **params):
                print(token.text, end="", flush=True)
        print()
    except LMTPError as e:
        print(f"\nlmtp.py: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))

"""A WebSocket relay that keeps what passes between LMQL's client and an LMTP server, by streams."""

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import sys
import tempfile

import aiohttp
from aiohttp import web

RUNNER = pathlib.Path(__file__).resolve().parent / "run_queries.py"
DIGEST_CHARS = 16
LINE_BYTES_MAX = 1 << 24


def bias_digest(bias):
    """Of a logit_bias object, whatever the order of its entries."""
    entries = json.dumps(sorted((int(k), float(v)) for k, v in bias.items()))
    return hashlib.sha256(entries.encode()).hexdigest()[:DIGEST_CHARS]


class Stream:
    """One GENERATE or SCORE and what came back for it."""

    def __init__(self, verb, request):
        request = dict(request)
        self.verb = verb
        self.prompt, self.scored = request.pop("prompt"), request.pop("scored", None)
        bias = request.pop("logit_bias", None)
        self.bias = {"entries": len(bias), "digest": bias_digest(bias)} if bias else None
        for name in ("stream_id", "model"):
            request.pop(name)
        self.params = request
        self.entries = []

    def key(self):
        """Equal for equal requests."""
        request = [self.verb, self.prompt, self.scored, self.bias, self.params]
        return json.dumps(request, sort_keys=True)

    def as_json(self):
        whole = {
            "verb": self.verb,
            "prompt": self.prompt,
            "scored": self.scored,
            "bias": self.bias,
            "params": self.params,
            "ids": [e["token"] for e in self.entries],
            "logprobs": [round(e["logprob"], 5) for e in self.entries],
        }
        return {k: v for k, v in whole.items() if v is not None}


class Relay:
    """Listens on the loopback and passes everything on. `connections` holds one list of streams for
    each connection, in order; LMQL opens one a query."""

    def __init__(self, endpoint):
        self.upstream = "http://" + endpoint
        self.connections = []
        self.errors = []

    async def __aenter__(self):
        app = web.Application()
        app.add_routes([web.get("/", self.serve)])
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.endpoint = "127.0.0.1:%d" % self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    async def serve(self, request):
        streams = {}
        self.connections.append(streams)
        client = web.WebSocketResponse(max_msg_size=0)
        await client.prepare(request)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self.upstream, max_msg_size=0) as server,
        ):
            ways = [
                asyncio.create_task(self.pass_on(client, server, streams, self.keep_request)),
                asyncio.create_task(self.pass_back(server, client, streams)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            self.errors += [e for e in await asyncio.gather(*ways, return_exceptions=True)
                            if isinstance(e, Exception)]  # fmt: skip
        return client

    async def pass_on(self, source, sink, streams, keep):
        async for message in source:
            verb, payload = message.data.split(" ", 1)
            keep(streams, verb, json.loads(payload))
            if sink.closed:
                return
            await sink.send_str(message.data)

    async def pass_back(self, server, client, streams):
        # A client may leave amid a stream, as LMQL does when its query is done; a `client`
        # that does is not `closed` yet where its socket already is.
        with contextlib.suppress(ConnectionResetError):
            await self.pass_on(server, client, streams, self.keep_answer)

    def keep_request(self, streams, verb, payload):
        if verb in ("GENERATE", "SCORE"):
            streams[payload["stream_id"]] = Stream(verb, payload)

    def keep_answer(self, streams, verb, payload):
        for entry in payload:
            if entry.get("error"):
                self.errors.append(entry)
            elif verb == "TOKEN":
                streams[entry["stream_id"]].entries.append(entry)


async def run_queries(endpoint, model, tokenizer, files, on_line=lambda line: None):
    """The lines that run_queries.py prints, each with its Streams under "streams"."""
    with tempfile.TemporaryDirectory(prefix="lmql-") as folder:  # LMQL leaves files in it
        async with Relay(endpoint) as relay:
            lines = await run_runner(relay, model, tokenizer, files, folder, on_line)
    for line, streams in zip(lines, relay.connections):
        line["streams"] = list(streams.values())
    return lines


async def run_runner(relay, model, tokenizer, files, folder, on_line):
    command = [sys.executable, RUNNER, "--endpoint", relay.endpoint, "--model", model]
    runner = await asyncio.create_subprocess_exec(
        *command, "--tokenizer", tokenizer, *files,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=LINE_BYTES_MAX,
        env={**os.environ, "TMPDIR": folder},
    )  # fmt: skip
    lines = []
    async for line in runner.stdout:
        lines.append(json.loads(line))
        on_line(lines[-1])
    await runner.wait()
    # As many connections as queries: each query has its own.
    if relay.errors or len(lines) != len(files) or len(relay.connections) != len(files):
        raise RuntimeError(f"{len(lines)} of {len(files)} queries ran; {relay.errors}; {lines}")
    return lines

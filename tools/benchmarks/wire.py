"""A small LMTP client over aiohttp, for tests and benchmarks, with access to raw messages."""

import asyncio
import contextlib
import json
import ssl

import aiohttp

ANSWER_TIMEOUT_S = 600


class StreamError(Exception):
    """The server ended a stream with an error entry, or the connection with it."""


@contextlib.asynccontextmanager
async def open_socket(endpoint):
    """A WebSocket that takes messages of any size, to HOST:PORT or, over TLS, https://HOST:PORT."""
    url = endpoint if "://" in endpoint else "http://" + endpoint
    # SSL_CERT_FILE; reading it takes tens of milliseconds.
    trust = ssl.create_default_context() if url.startswith("https:") else True
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url, max_msg_size=0, ssl=trust) as ws:
            yield ws


class Connection:
    """One WebSocket. Every answer is a list of entries as received.

    async with Connection("127.0.0.1:8080") as c:
        entries = await c.generate([1, 2, 3], max_tokens=4)
    """

    def __init__(self, endpoint, model=None, timeout_s=ANSWER_TIMEOUT_S):
        self.endpoint = endpoint
        self.model = model
        self.timeout_s = timeout_s
        self.num_token_messages = 0
        self.stray = []  # entries of no stream that is waited for
        self._queues = {}
        self._last_id = 0

    async def __aenter__(self):
        self._opened = open_socket(self.endpoint)
        self.ws = await self._opened.__aenter__()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        await self.ws.close()
        await self._reader
        await self._opened.__aexit__(None, None, None)

    async def _read(self):
        async for message in self.ws:
            name, payload = message.data.split(" ", 1)
            self.num_token_messages += name == "TOKEN"
            for entry in json.loads(payload):
                queue = self._queues.get(entry.get("stream_id"))
                if queue is None:
                    self.stray.append((name, entry))
                else:
                    queue.put_nowait((name, entry))
        for queue in self._queues.values():
            queue.put_nowait(("CLOSED", {"error": f"connection closed ({self.ws.close_code})"}))

    async def send(self, verb, **payload):
        """Sends a request and returns its stream id; collect() gets the answer."""
        self._last_id += 1
        payload = {"stream_id": self._last_id, **payload}
        if self.model is not None:
            payload.setdefault("model", self.model)
        self._queues[payload["stream_id"]] = asyncio.Queue()
        await self.ws.send_str(f"{verb} {json.dumps(payload)}")
        return payload["stream_id"]

    async def next_entry(self, stream_id):
        queue = self._queues[stream_id]
        return await asyncio.wait_for(queue.get(), self.timeout_s)

    async def collect(self, stream_id):
        """All TOKEN entries of a stream up to the one with a finish_reason."""
        entries = []
        while True:
            name, entry = await self.next_entry(stream_id)
            if entry.get("error"):
                raise StreamError(entry["error"])
            if name != "TOKEN":  # a loading notice
                continue
            entries.append(entry)
            if entry["finish_reason"]:
                del self._queues[stream_id]
                return entries

    async def generate(self, prompt, **params):
        return await self.collect(await self.send("GENERATE", prompt=prompt, **params))

    async def score(self, prompt, scored, **params):
        return await self.collect(await self.send("SCORE", prompt=prompt, scored=scored, **params))

    async def model_info(self):
        stream_id = await self.send("MODEL_INFO", data={})
        _, entry = await self.next_entry(stream_id)
        del self._queues[stream_id]
        if entry.get("error"):
            raise StreamError(entry["error"])
        return entry["model_info"]


def ids_of(entries):
    return [e["token"] for e in entries]


def logprobs_of(entries):
    return [e["logprob"] for e in entries]

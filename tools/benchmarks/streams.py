"""Streams started together, and when each of their tokens arrived, at the least cost to the server.

The client shares the processor with the servers that it measures, so while they run it only keeps
what comes with its time of arrival; JSON is read when all is over. LMTP has one WebSocket for all
streams, HTTP one request a stream.
"""

import asyncio
import json
import re
import selectors
import socket
import time

from wire import open_socket

TIMEOUT_S = 600
RECEIVE_BYTES = 1 << 18


class Run:
    """What came back: by stream, the arrival times of its tokens and their ids."""

    def __init__(self, start, times, ids):
        self.start, self.times, self.ids = start, times, ids

    def num_tokens(self):
        return sum(map(len, self.times))

    def first_token_s(self):
        """Until every stream had its first token."""
        return max(t[0] for t in self.times) - self.start

    def tokens_per_s(self):
        """From the start of the first stream to the end of the last."""
        return self.num_tokens() / (max(t[-1] for t in self.times) - self.start)

    def steady_tokens_per_s(self, first=0, count=None):
        """While all streams decode: from the last first token to the first last one. `first` and
        `count`: only the tokens of so many streams from this one on."""
        begin, end = max(t[0] for t in self.times), min(t[-1] for t in self.times)
        counted = self.times[first:][:count]
        num_tokens = sum(begin < at <= end for times in counted for at in times)
        if end <= begin or num_tokens == 0:
            raise RuntimeError("the streams never decoded all at once: give them more tokens")
        return num_tokens / (end - begin)

    def gap_s(self, fraction):
        """The time between tokens of a stream that this part of all gaps do not exceed."""
        gaps = sorted(b - a for times in self.times for a, b in zip(times, times[1:]))
        return gaps[min(len(gaps) - 1, int(fraction * len(gaps)))]


# ---- lmtp-serve: a WebSocket ----


def run_lmtp(endpoint, prompts, max_tokens, eos, forbidden=None, timeout_s=TIMEOUT_S, more=None):
    """All prompts as streams of one connection, greedily, without the end-of-text tokens `eos`;
    `forbidden`: by stream, tokens that are not allowed either; `more`: by stream, other fields."""
    requests = []
    for i, prompt in enumerate(prompts):
        bias = {str(t): -100 for t in [*eos, *(forbidden[i] if forbidden else ())]}
        requests.append({"prompt": prompt, "max_tokens": max_tokens, "logit_bias": bias,
                         **(more[i] if more else {})})  # fmt: skip
    visit = Visit(requests)
    asyncio.run(asyncio.wait_for(visit.connect(endpoint), timeout_s))
    return visit.run()


class Visit:
    """Greedy streams that start together on one connection, and what has come of them so far."""

    def __init__(self, requests):
        self.requests = requests
        self.start, self.messages = None, []  # each message with its time

    async def connect(self, endpoint):
        async with open_socket(endpoint) as ws:
            await self.talk(ws)

    async def talk(self, ws):
        """Until all have ended."""
        texts = ["GENERATE " + json.dumps({"stream_id": i, "temperature": 0.0, **request})
                 for i, request in enumerate(self.requests)]  # fmt: skip
        num_ended = 0
        self.start = time.perf_counter()
        for text in texts:
            await ws.send_str(text)
        async for message in ws:
            self.messages.append((time.perf_counter(), message.data))
            num_ended += message.data.count('"finish_reason": "') + message.data.count('"error": ')
            if num_ended >= len(texts):
                return
        raise RuntimeError(f"lmtp-serve closed the connection ({ws.close_code})")

    def run(self):
        return read_lmtp(self.start, self.messages, len(self.requests))


def read_lmtp(start, messages, num_streams):
    times, ids = ([[] for _ in range(num_streams)] for _ in range(2))
    for at, message in messages:
        for entry in json.loads(message.partition(" ")[2]):
            if entry.get("error"):
                raise RuntimeError(f"lmtp-serve: {entry['error']}")
            if "token" in entry:
                times[entry["stream_id"]].append(at)
                ids[entry["stream_id"]].append(entry["token"])
    return Run(start, times, ids)


# ---- HTTP with server-sent events: llama-server, and lmtp-serve's /v1/completions ----

EVENT = re.compile(rb"data: (\{[^\n]*\})\n\n")
FINAL_FIELDS = ("stop", "tokens_predicted", "tokens_evaluated")  # all that its last event must say


def run_llama(endpoint, prompts, max_tokens):
    """All prompts at once, greedily, end of text ignored, with the sampler that costs least."""
    params = {"n_predict": max_tokens, "temperature": 0.0, "samplers": ["temperature"],
              "ignore_eos": True, "stream": True, "cache_prompt": True, "return_tokens": True,
              "response_fields": list(FINAL_FIELDS)}  # fmt: skip
    start, chunks = post_all(endpoint, "/completion", prompts, params)
    return read_llama(start, chunks, [(len(prompt), max_tokens) for prompt in prompts])


def run_openai(endpoint, prompts, max_tokens):
    """The same from /v1/completions, without the tokens' ids."""
    params = {"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True, "stream": True,
              "stream_options": {"include_usage": True}}  # fmt: skip
    start, chunks = post_all(endpoint, "/v1/completions", prompts, params)
    return read_openai(start, chunks, max_tokens)


def post_all(endpoint, path, prompts, params):
    """A connection for each prompt: (when all were asked, what came by connection)."""
    sockets = [connect(endpoint) for _ in prompts]
    requests = []
    for prompt in prompts:
        body = json.dumps({"prompt": prompt, **params}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {endpoint}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    try:
        start = time.perf_counter()
        for s, request in zip(sockets, requests):
            s.sendall(request)
        return start, receive_all(sockets)
    finally:
        for s in sockets:
            s.close()


def connect(endpoint):
    host, port = endpoint.split(":")
    s = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def receive_all(sockets):
    """By socket, the (time, bytes) that came until the other side closed it."""
    chunks = [[] for _ in sockets]
    with selectors.DefaultSelector() as selector:
        for i, s in enumerate(sockets):
            selector.register(s, selectors.EVENT_READ, i)
        while selector.get_map():
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"nothing came for {TIMEOUT_S} s")
            for key, _ in ready:
                data = key.fileobj.recv(RECEIVE_BYTES)
                if data:
                    chunks[key.data].append((time.perf_counter(), data))
                else:
                    selector.unregister(key.fileobj)
    return chunks


def read_llama(start, chunks, sizes):
    """`sizes`: by stream, the tokens of the prompt and those that had to come."""
    times, ids = ([[] for _ in chunks] for _ in range(2))
    for i, (pieces, size) in enumerate(zip(chunks, sizes)):
        buffer, counts, ended = b"", None, start
        for at, data in pieces:
            buffer += data
            end = 0
            for match in EVENT.finditer(buffer):
                end = match.end()
                event = json.loads(match[1])
                if event["stop"]:
                    counts, ended = (event["tokens_evaluated"], event["tokens_predicted"]), at
                else:
                    times[i] += [at] * len(event["tokens"])
                    ids[i] += event["tokens"]
            buffer = buffer[end:]
        if counts != size:
            raise RuntimeError(f"llama-server: tokens {counts}, not {size}: {buffer[:300]!r}")
        # While the text ends inside a letter no event comes, and the next one has only its own.
        times[i] += [ended] * (size[1] - len(times[i]))
    return Run(start, times, ids)


def read_openai(start, chunks, max_tokens):
    """Each token has an event, whether or not a letter ends with it."""
    times = []
    for pieces in chunks:
        times.append([])
        num_tokens = None
        for at, data in pieces:
            times[-1] += [at] * data.count(b'"finish_reason"')
            if usage := re.search(rb'"completion_tokens": ?(\d+)', data):
                num_tokens = int(usage[1])
        if (num_tokens, len(times[-1])) != (max_tokens, max_tokens):
            raise RuntimeError(f"/v1/completions: {len(times[-1])} events of {num_tokens} tokens, "
                               f"not {max_tokens}: {pieces[-1:]!r}")  # fmt: skip
    return Run(start, times, [[] for _ in chunks])

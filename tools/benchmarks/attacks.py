"""Clients that misbehave, for hostile: each does one thing again and again until it is asked
to stop, bounded in count and time, and only on the loopback.

    python attacks.py ADDRESS SEED

ADDRESS is PORT, or tls:PORT of a server whose certificate SSL_CERT_FILE trusts.

Runs all of them until its standard input ends, a minute at most. Prints "on" when all have begun,
and at the end one line of JSON: how often each was at it, and what was answered wrongly.
"""

import asyncio
import collections
import contextlib
import functools
import json
import os
import random
import socket
import ssl
import sys

SECONDS_MAX = 60
ANSWER_TIMEOUT_S = 120
SMALL_BUFFER = 4096
RECEIVE_BYTES = 1 << 16
VOCAB = 512  # ids that any model has
PREFIX_TOKENS, SCORED_TOKENS, SCORES_IN_FLIGHT = 64, 16, 64
HUGE_IDS = 5_000_000  # "1, " each: nearly --max-message-size
UNFINISHED_BYTES = 12 << 20
NUM_UNFINISHED = 4
REQUEST = (
    "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def frame(payload, first=0x81):
    """A frame as clients send it, masked by zeros; by default a whole text message."""
    payload = payload.encode() if isinstance(payload, str) else payload
    size = len(payload)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([first, 0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


def message(verb, **fields):
    return frame(f"{verb} {json.dumps(fields)}")


def many_streams():
    """Answers exceed the kernel's buffers if the client does not read."""
    fields = {"prompt": [5], "max_tokens": 80, "top_logprobs": 1024, "logit_bias": {"0": -100}}
    return b"".join(message("GENERATE", stream_id=i, **fields) for i in range(4))


@functools.cache
def huge_request():
    ids = "1, " * HUGE_IDS
    return frame(f'GENERATE {{"stream_id": 1, "prompt": [{ids}1]}}')


def post(body, fields=None):
    """A completion; by default of that body and its length."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = fields or f"Content-Length: {len(body)}"
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}{fields}\r\n\r\n".encode() + body


def long_completion():
    return post({"prompt": [5], "max_tokens": 80, "n": 4, "logprobs": 1024, "ignore_eos": True,
                 "stream": True})  # fmt: skip


@functools.cache
def huge_completion():
    return post(f'{{"prompt": [{"1, " * HUGE_IDS}1]}}'.encode())


class Tls:
    """What stands between a socket's bytes and what they say."""

    def __init__(self, receive, send):
        self.receive, self.send = receive, send
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = trust().wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    async def until_done(self, step):
        """What step() gives, once all that it needs has come; b"" if the server has closed."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self.flush()
                data = await self.receive()
                self.incoming.write(data) if data else self.incoming.write_eof()
            except ssl.SSLError:  # it closes, with a goodbye or without
                return b""
            else:
                await self.flush()
                return done

    async def flush(self):
        if self.outgoing.pending:
            await self.send(self.outgoing.read())


@functools.cache
def trust():
    return ssl.create_default_context()


class Client:
    """async with Client(address) as c: a socket, upgraded to a WebSocket if `upgrade`."""

    def __init__(self, address, upgrade=True, small_buffer=False):
        kind, _, port = address.rpartition(":")
        self.address = ("127.0.0.1", int(port))
        self.upgrade, self.small_buffer = upgrade, small_buffer
        self.tls = Tls(self.receive, self.send_all) if kind == "tls" else None
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if self.small_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        await self.loop.sock_connect(self.socket, self.address)
        if self.tls:
            await self.tls.until_done(self.tls.object.do_handshake)
        if self.upgrade:
            await self.send(f"{REQUEST}Host: localhost\r\n\r\n".encode())
            answer = await self.read_until(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 101"):
                self.socket.close()
                raise ConnectionError(answer[:40])
        return self

    async def __aexit__(self, *_):
        self.socket.close()

    async def receive(self):
        return await asyncio.wait_for(
            self.loop.sock_recv(self.socket, RECEIVE_BYTES), ANSWER_TIMEOUT_S)

    async def send_all(self, data):
        await asyncio.wait_for(self.loop.sock_sendall(self.socket, data), ANSWER_TIMEOUT_S)

    async def send(self, data):
        if self.tls:
            await self.tls.until_done(functools.partial(self.tls.object.write, data))
        else:
            await self.send_all(data)

    async def read(self):
        """Nothing if the server has closed."""
        if self.tls:
            return await self.tls.until_done(
                functools.partial(self.tls.object.read, RECEIVE_BYTES))
        return await self.receive()

    async def read_until(self, wanted):
        data = b""
        while wanted not in data:
            more = await self.read()
            if not more:
                raise ConnectionError("closed")
            data += more
        return data


async def half_close(address, rng, wrong, request=many_streams, upgrade=True):
    async with Client(address, upgrade, small_buffer=True) as c:
        await c.send(request())
        await asyncio.sleep(0.3)
        with contextlib.suppress(OSError):  # the server may have closed it
            c.socket.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.7)


async def http_half_close(address, rng, wrong):
    await half_close(address, rng, wrong, long_completion, upgrade=False)


async def stall(address, rng, wrong, request=many_streams, upgrade=True):
    async with Client(address, upgrade, small_buffer=True) as c:
        await c.send(request())
        await asyncio.sleep(1.5)


async def http_stall(address, rng, wrong):
    await stall(address, rng, wrong, long_completion, upgrade=False)


async def http_slow_body(address, rng, wrong):
    async with Client(address, upgrade=False) as c:
        await c.send(post(b"{", "Content-Length: 1000"))
        for _ in range(20):
            await asyncio.sleep(0.05)
            await c.send(b" ")


async def http_flood(address, rng, wrong):
    """Small completions, which it does not wait for."""
    async with Client(address, upgrade=False) as c:
        await c.send(post({"prompt": [5], "max_tokens": 200, "ignore_eos": True,
                           "stream": rng.random() < 0.5}))  # fmt: skip
        await asyncio.sleep(rng.choice([0, 0.01, 0.05]))


async def http_garbage(address, rng, wrong):
    """In the place of a body in chunks; some of it may be chunks."""
    body = rng.choice([b"", b"5\r\nabcde\r\n", b"fffffffffffffffff\r\n", b"-1\r\n"])
    body += rng.randbytes(rng.randrange(2000)) + b"\r\n"
    async with Client(address, upgrade=False) as c:
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            await c.send(post(body, "Transfer-Encoding: chunked"))
            answer = await asyncio.wait_for(c.read(), 0.1)
            if not answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 503")) and answer:
                wrong.append(f"garbage is answered with {answer[:40]!r}")


async def http_huge(address, rng, wrong):
    for request, status in [
        (post(b"", f"Content-Length: {1 << 40}"), b"413"),
        (huge_completion(), b"400"),
    ]:
        async with Client(address, upgrade=False) as c:
            await c.send(request)
            answer = (await c.read_until(b"\r\n"))[9:12]
            if answer not in (status, b"503"):  # it may be the one that has to give way
                wrong.append(f"a huge body is answered with {answer.decode()}")


async def flood_of_scores(address, rng, wrong):
    """Keeps a constant number of requests in flight."""
    ids = lambda n: [rng.randrange(1, VOCAB) for _ in range(n)]
    prefix = ids(PREFIX_TOKENS)
    score = lambda i: message("SCORE", stream_id=i, prompt=prefix, scored=ids(SCORED_TOKENS))
    async with Client(address) as c:
        await c.send(message("SCORE", stream_id=0, prompt=prefix, scored=ids(1)))
        await c.read_until(b'"stop"')
        await c.send(b"".join(map(score, range(1, SCORES_IN_FLIGHT + 1))))
        sent, ended, tail = SCORES_IN_FLIGHT, 0, b""
        while ended < 20 * SCORES_IN_FLIGHT:
            data = tail + await c.read()
            if data == tail:
                raise ConnectionError("closed")
            if b'"error"' in data:
                wrong.append("a SCORE was refused")
                return
            count = data.count(b'"stop"')
            tail = data[-5:] if not data.endswith(b'"stop"') else b""
            await c.send(b"".join(score(sent + i + 1) for i in range(count)))
            sent, ended = sent + count, ended + count


async def huge_prompt(address, rng, wrong):
    async with Client(address) as c:
        await c.send(huge_request())
        if b"prompt: " not in await c.read_until(b'"error"'):
            wrong.append("a prompt longer than any context was not refused")


async def unfinished_message(address, rng, wrong):
    async with Client(address) as c:
        with contextlib.suppress(ConnectionError):  # it may be the one that has to give way
            await c.send(frame(b" " * UNFINISHED_BYTES, first=0x01))
            await asyncio.sleep(1)


async def foreign_page(address, rng, wrong):
    for fields, status in (
        ("Host: localhost\r\nOrigin: https://attacker.example\r\n", b"403"),
        ("Host: localhost\r\nOrigin: null\r\n", b"403"),
        ("Host: attacker.example\r\n", b"421"),
    ):
        async with Client(address, upgrade=False) as c:
            await c.send(f"{REQUEST}{fields}\r\n".encode())
            if status not in (await c.read_until(b"\r\n"))[:16]:
                wrong.append(f"no {status.decode()} for {fields!r}")
    await asyncio.sleep(0.02)


async def random_frames(address, rng, wrong):
    async with Client(address) as c:
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            await c.send(frame(rng.randbytes(rng.randrange(300)), first=rng.randrange(256)))
            await c.send(rng.randbytes(rng.randrange(2000)))
            await asyncio.wait_for(c.read(), 0.1)


# How many of each run at a time.
ATTACKS = {half_close: 2, stall: 2, flood_of_scores: 1, huge_prompt: 1,
           unfinished_message: NUM_UNFINISHED, foreign_page: 1, random_frames: 2,
           http_half_close: 1, http_stall: 1, http_slow_body: 1, http_flood: 2, http_garbage: 1,
           http_huge: 1}  # fmt: skip
# Each happens once at least.
SHORT = (half_close, foreign_page, random_frames, http_half_close, http_flood, http_garbage)
ONCE_S_MAX = ANSWER_TIMEOUT_S  # where others want the processor too, all go on slowly


async def again_and_again(attack, address, seed, counts, wrong):
    rng = random.Random(f"{attack.__name__} {seed}")
    while True:
        try:
            await attack(address, rng, wrong)
        except (ConnectionError, asyncio.TimeoutError) as e:
            # A server that is overrun may close or refuse; one that hangs is at fault.
            if isinstance(e, asyncio.TimeoutError) and attack is not random_frames:
                wrong.append(f"{attack.__name__}: no answer")
            counts["cut"] += 1
            await asyncio.sleep(0.05)
        counts[attack.__name__] += 1


async def attack_all(address, seed):
    counts, wrong = collections.Counter(), []
    tasks = [
        asyncio.create_task(again_and_again(attack, address, f"{seed}.{i}", counts, wrong))
        for attack, number in ATTACKS.items()
        for i in range(number)
    ]
    await asyncio.sleep(0.5)
    print("on", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([ended, *tasks], timeout=SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    # On a fast server, or a busy machine, that may be sooner than an attack of a second is over.
    deadline = asyncio.get_running_loop().time() + ONCE_S_MAX
    while (asyncio.get_running_loop().time() < deadline
           and not all(counts[attack.__name__] for attack in SHORT)):  # fmt: skip
        await asyncio.sleep(0.05)
    wrong += [repr(task.exception()) for task in tasks if task.done()]  # none ends by itself
    print(json.dumps({"counts": counts, "wrong": sorted(set(wrong))}), flush=True)
    os._exit(0)  # leaves the connections without closing them


if __name__ == "__main__":
    asyncio.run(attack_all(sys.argv[1], sys.argv[2]))

"""A WebSocket for tests that care about each message: what is sent may be wrong, and every entry
that comes back is kept with the kind of message that it came in."""

import asyncio
import json
import pathlib

import aiohttp

ANSWER_TIMEOUT_S = 60
POLL_S = 0.02


class Socket:
    """async with Socket(endpoint) as s: await s.send("GENERATE", stream_id=1, prompt=[1])"""

    def __init__(self, endpoint):
        self.url = f"http://{endpoint}/"
        self.entries = []  # (kind, entry), oldest first; wait_for leaves the others
        self.messages = []  # (kind, entries), all that came

    async def __aenter__(self):
        self.session = aiohttp.ClientSession()
        try:
            self.ws = await self.session.ws_connect(self.url, max_msg_size=0)
        except BaseException:
            await self.session.close()
            raise
        return self

    async def __aexit__(self, *_):
        await self.ws.close()
        await self.session.close()

    async def send(self, verb, **payload):
        await self.send_text(f"{verb} {json.dumps(payload)}")

    async def send_text(self, text):
        await self.ws.send_str(text)

    async def vanish(self):
        """Ends the connection without a goodbye."""
        self.ws._response.connection.transport.abort()

    async def receive(self):
        """One message's entries go to self.entries; False where the connection has closed."""
        message = await self.ws.receive(timeout=ANSWER_TIMEOUT_S)
        if message.type is not aiohttp.WSMsgType.TEXT:
            self.close_reason = message.extra
            return False
        kind, payload = message.data.split(" ", 1)
        payload = json.loads(payload)
        assert isinstance(payload, list), message.data
        self.messages.append((kind, payload))
        for entry in payload:
            assert "stream_id" in entry, message.data
            self.entries.append((kind, entry))
        return True

    async def wait_for(self, wanted):
        """The first (kind, entry) for which wanted(kind, entry); takes it out."""
        seen = 0
        while True:
            for i in range(seen, len(self.entries)):
                if wanted(*self.entries[i]):
                    return self.entries.pop(i)
            seen = len(self.entries)
            assert await self.receive(), f"closed: {self.ws.close_code} {self.close_reason}"

    async def token_of(self, stream_id):
        _, entry = await self.wait_for(lambda k, e: k == "TOKEN" and e["stream_id"] == stream_id)
        return entry

    async def finish(self, stream_id):
        """Token ids and finish_reason of a stream, read to its end."""
        ids = []
        while True:
            entry = await self.token_of(stream_id)
            assert "error" not in entry, entry
            ids.append(entry["token"])
            if entry["finish_reason"]:
                return ids, entry["finish_reason"]

    async def error_of(self, stream_id):
        """The error that ends a stream; its tokens before that are dropped."""
        while True:
            entry = await self.token_of(stream_id)
            if "error" in entry:
                return entry["error"]
            assert entry["finish_reason"] is None, entry

    async def model_info(self, stream_id=999_999, **payload):
        await self.send("MODEL_INFO", stream_id=stream_id, **payload)
        kind, entry = await self.wait_for(
            lambda k, e: e["stream_id"] == stream_id and ("model_info" in e or "error" in e)
        )
        assert kind == "MSG"
        return entry.get("model_info", entry.get("error"))

    async def read_until_closed(self):
        """The close code."""
        while await self.receive():
            pass
        return self.ws.close_code


async def wait_until(condition, what):
    """Polls an async condition."""
    for _ in range(int(ANSWER_TIMEOUT_S / POLL_S)):
        if await condition():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"{what}: not within {ANSWER_TIMEOUT_S} s")


async def seeded_streams(endpoint, prompt, numbers, **sampling):
    """Each stream's tokens and log probabilities, all of them at once: number n is of the prompt
    from its token n on, drawn with the seed n."""
    async with Socket(endpoint) as s:
        for number in numbers:
            await s.send("GENERATE", stream_id=number, prompt=prompt[number:], max_tokens=40,
                         **{"temperature": 0.8, "seed": number} | sampling)  # fmt: skip
        found = {number: [] for number in numbers}
        for number, tokens in found.items():
            last = {"finish_reason": None}
            while last["finish_reason"] is None:
                last = await s.token_of(number)
                tokens.append((last["token"], last["logprob"]))
        return found


async def info_of(endpoint):
    async with Socket(endpoint) as s:
        return await s.model_info()


async def wait_all_freed(endpoint):
    """Until nothing runs, waits or holds a block; the blocks must then all be accounted for."""
    async with Socket(endpoint) as s:

        async def idle():
            nonlocal stats
            stats = (await s.model_info())["stats"]
            held = stats["num_running"] + stats["num_waiting"] + stats["num_blocks_pinned"]
            return held == 0

        stats = {}
        await wait_until(idle, "everything is freed")
        free = stats["num_blocks_free"] + stats["num_blocks_evictable"]
        assert stats["num_blocks"] in (0, free + 1), stats  # block 0 is never handed out


def uses_a_sanitizer(server):
    """Freed memory goes to a quarantine there, so its size says nothing."""
    program = pathlib.Path(f"/proc/{server.process.pid}/exe").read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program

#!/usr/bin/env python3
"""A proxy before an LMTP server that breaks one rule of the conformance suite.

    breaking_proxy.py HOST:PORT [--port P]

ws://127.0.0.1:P/NAME is the server with the fault NAME, which bears the name of the rule that must
notice it; ws://127.0.0.1:P/ is the server as it is.
"""

import argparse
import asyncio
import contextlib
import json

import aiohttp
import controller_faults  # noqa: F401
import decide_faults  # noqa: F401
import edit_faults  # noqa: F401
import grammar_faults  # noqa: F401
from aiohttp import web
from faults import FAULTS

class Request:
    """What a stream id was used for last."""

    def __init__(self, verb, fields):
        self.verb, self.fields = verb, fields
        self.answer = None  # the verb of the message that an entry came in
        self.num_entries = 0  # before that one
        self.held = None  # an entry that is to come later


class Link:
    """One client's connection and its own to the server."""

    def __init__(self, name):
        self.kind, self.function = FAULTS.get(name, (None, None))
        self.requests = {}

    def to_server(self, text):
        """What the server gets, or None."""
        verb, _, payload = text.partition(" ")
        try:
            fields = json.loads(payload)
            stream_id = fields.get("stream_id")
        except (ValueError, AttributeError):
            return text
        if isinstance(stream_id, int):
            self.requests[stream_id] = Request(verb, json.loads(payload))
        if self.kind != "request":
            return text
        passes = self.function(verb, fields) is not False
        return f"{verb} {json.dumps(fields)}" if passes else None

    def to_client(self, text):
        """The texts that the client gets."""
        verb, _, payload = text.partition(" ")
        entries = json.loads(payload)
        if self.kind == "message":
            return self.function(verb, entries)
        if self.kind != "entry":
            return [text]
        changed = []
        for entry in entries:
            request = self.requests.get(entry.get("stream_id"), Request("", {}))
            request.answer = verb
            replaced = self.function(entry, request)
            changed += [entry] if replaced is None else replaced
            request.num_entries += 1
        return [f"{verb} {json.dumps(changed)}"] if changed else []


class Proxy:
    """async with Proxy(endpoint) as proxy: proxy.url(name)"""

    def __init__(self, endpoint, port=0):
        self.upstream, self.port = f"http://{endpoint}/", port

    async def __aenter__(self):
        app = web.Application()
        app.add_routes([web.get("/{name:.*}", self.serve)])
        self.runner = web.AppRunner(app, shutdown_timeout=1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()

    def url(self, name=""):
        return f"ws://127.0.0.1:{self.port}/{name}"

    async def serve(self, request):
        link = Link(request.match_info["name"])
        client = web.WebSocketResponse(max_msg_size=0)
        await client.prepare(request)
        async with aiohttp.ClientSession() as session:
            async with session.ws_connect(self.upstream, max_msg_size=0) as server:
                back = asyncio.create_task(self.pass_back(link, server, client))
                async for message in client:
                    text = link.to_server(message.data)
                    if text is not None:
                        await server.send_str(text)
                await server.close()
                with contextlib.suppress(ConnectionError):
                    await back
        return client

    async def pass_back(self, link, server, client):
        async for message in server:
            for text in link.to_client(message.data):
                await client.send_str(text)
        await client.close(code=server.close_code or 1000)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("endpoint", metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=8081)
    args = parser.parse_args()
    async with Proxy(args.endpoint, args.port) as proxy:
        for name in ["", *FAULTS]:
            print(proxy.url(name))
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())

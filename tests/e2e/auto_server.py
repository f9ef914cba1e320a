"""What the tests of lmtp-serve auto share: the server, and how it is asked."""

import asyncio
import json
import pathlib
import urllib.request

from servers import Server, bin_dir, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
TINY = [str(ROOT / "tests" / "goldens" / "checkpoints" / name)
        for name in ("five-heads-f16", "hub-names-f32", "narrow-mlp-bf16", "untied-f32")]
SLOW = "random:gpt2"  # takes a second or more to load
NO_END = {"0": -100}


class Auto(Server):
    """A server of any model, with a Hugging Face cache of its own and a hub that is not there."""

    name = "lmtp-serve auto"

    def __init__(self, home, *options, hub=None, host="127.0.0.1", **environment):
        port = free_port()
        chosen = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9",
                  "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "NO_PROXY": "*", **environment}
        command = [bin_dir() / "lmtp-serve", "auto", "--host", host, "--port", port]
        if host != "127.0.0.1":
            command.append("--insecure")
        super().__init__([*command, "--kv-cache", "64MiB", *options], port, chosen)

    def http_json(self, path):
        with urllib.request.urlopen(f"http://{self.endpoint}{path}", timeout=5) as answer:
            return json.load(answer)


def run(coroutine):
    return asyncio.run(coroutine)


async def generate(s, stream, model, max_tokens=4, **more):
    payload = {"prompt": [5], "max_tokens": max_tokens, **more}
    if model is not None:
        payload["model"] = model
    await s.send("GENERATE", stream_id=stream, **payload)


async def finish(s, stream, model, **more):
    await generate(s, stream, model, **more)
    return await s.finish(stream)


async def failure(s, stream, model, **more):
    """The error of a request whose model cannot be had: the stream and the connection get it."""
    await generate(s, stream, model, **more)
    error = await s.error_of(stream)
    _, entry = await s.wait_for(
        lambda k, e: k == "MSG" and e["stream_id"] == stream and "error" in e)
    assert entry["error"] == error
    return error


def notices_of(s, stream):
    return [e for k, e in s.entries if k == "MSG" and e["stream_id"] == stream and "status" in e]


async def state_of(s, model):
    info = await s.model_info(model=model)
    return info if isinstance(info, str) else info["state"]

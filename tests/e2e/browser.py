"""A headless Chromium, driven over its DevTools protocol: no package beside aiohttp."""

import asyncio
import json
import pathlib
import shutil
import tempfile

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--no-first-run", "--disable-extensions", "about:blank",
)  # fmt: skip
TIMEOUT_S = 240


def program():
    """None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """async with Page(url) as page: await page.js("document.title")"""

    def __init__(self, url, width=1200, theme="light"):
        self.url, self.width, self.theme = url, width, theme
        self.number = 0
        self.answers = {}
        self.complaints = []  # of the console, and exceptions

    async def __aenter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lmtp-page-", ignore_cleanup_errors=True)
        self.process = await asyncio.create_subprocess_exec(
            program(), *OPTIONS, f"--user-data-dir={self.folder.name}",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(TIMEOUT_S):
            port = await self.read_port()
        self.session = aiohttp.ClientSession()
        async with self.session.get(f"http://127.0.0.1:{port}/json") as answer:
            (tab,) = [each for each in await answer.json() if each["type"] == "page"]
        self.socket = await self.session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
        self.reader = asyncio.create_task(self.read())
        await self.call("Runtime.enable")
        await self.call("Log.enable")
        await self.call("Page.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width, height=800, deviceScaleFactor=1, mobile=self.width < 500,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": self.theme}
        await self.call("Emulation.setEmulatedMedia", features=[theme])
        await self.call("Page.navigate", url=self.url)
        await self.until("document.readyState === 'complete'")
        return self

    async def __aexit__(self, *_):
        self.reader.cancel()
        await self.session.close()
        self.process.terminate()
        await self.process.wait()
        self.folder.cleanup()

    async def read_port(self):
        async for line in self.process.stderr:
            if b"DevTools listening on" in line:
                self.drain = asyncio.create_task(self.process.stderr.read())
                return int(line.split(b":")[2].split(b"/")[0])
        raise RuntimeError("chromium ended before it listened")

    async def read(self):
        async for message in self.socket:
            said = json.loads(message.data)
            if "id" in said:
                self.answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                details = said["params"]["exceptionDetails"]
                self.complaints.append(details.get("exception", details).get("description"))
            elif said["method"] == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])

    async def call(self, method, **params):
        self.number += 1
        future = self.answers[self.number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        answer = await asyncio.wait_for(future, TIMEOUT_S)
        assert "error" not in answer, answer
        return answer["result"]

    async def js(self, expression):
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression):
        """What it is once it is true. The page is asked once a frame."""
        return await self.js(
            "new Promise((done, failed) => { const begun = Date.now(); const look = () => {"
            f" const found = {expression}; if (found) return done(found);"
            f" if (Date.now() - begun > {TIMEOUT_S * 500}) return failed({json.dumps(expression)});"
            " requestAnimationFrame(look); }; look(); })"
        )

    async def click(self, selector):
        """As a person does, with the mouse: what covers it is what is clicked."""
        box = await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getClientRects()[0];"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, **at)

    async def type(self, selector, text):
        """In the place of what stands in the field."""
        await self.js(
            f"(e => {{ e.focus(); e.select?.(); }})(document.querySelector({json.dumps(selector)}))"
        )
        await self.call("Input.insertText", text=text)

    async def key(self, name):
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    async def screenshot(self, path):
        import base64

        answer = await self.call("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))

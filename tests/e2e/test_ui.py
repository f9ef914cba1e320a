"""The page at /ui in a headless Chromium, as a person uses it; and without a browser: its routes,
what they may load, its size, and tickets."""

import asyncio
import json
import urllib.error
import urllib.request

import aiohttp
import browser
import pytest
from servers import LmtpServe

TIMEOUT_S = 120
FILES = {"/ui": "text/html", "/ui/app.css": "text/css", "/ui/app.js": "text/javascript"}
SIZE_MAX = 60_000
KEY = "sk-of-the-page"
HOSTILE = '<img src=x onerror=alert(1)></div><script>document.title="x"</script>\u202e\u2066abc'

needs_browser = pytest.mark.skipif(
    browser.program() is None, reason="NO CHROMIUM: the page is not tried; apt install chromium"
)


def ask(server, path, method="GET", **fields):
    """(status, header, body)"""
    request = urllib.request.Request(f"http://{server.endpoint}{path}", method=method)
    for name, value in fields.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def test_its_files_load_nothing_from_elsewhere(demo):
    size = 0
    for path, kind in FILES.items():
        status, header, body = ask(demo, path)
        assert (status, header.get_content_type()) == (200, kind)
        rules = dict(rule.strip().split(" ", 1) for rule in
                     header["Content-Security-Policy"].split(";"))  # fmt: skip
        assert rules == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
            "connect-src": "'self'", "img-src": "'self' data:", "frame-ancestors": "'none'",
            "base-uri": "'none'", "form-action": "'none'",
        }  # fmt: skip
        assert header["X-Content-Type-Options"] == "nosniff"
        assert header["Cache-Control"] == "no-cache"
        assert b"://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"innerHTML" not in body
        size += len(body)
        kept = ask(demo, path, If_None_Match=header["ETag"])
        assert (kept[0], kept[2]) == (304, b"")
        assert ask(demo, path, If_None_Match='"another"')[0] == 200
    assert 10_000 < size <= SIZE_MAX
    assert b'<a href="ui">' in ask(demo, "/")[2]


def test_without_it():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--no-ui") as server:
        for path in FILES:
            assert ask(server, path)[0] == 404
        assert ask(server, "/ui/ticket", "POST")[0] == 404
        assert b'href="ui"' not in ask(server, "/")[2]
    assert server.exit_code == 0, server.log_tail


@pytest.fixture(scope="module")
def locked():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--api-key", KEY) as server:
        yield server
    assert server.exit_code == 0, server.log_tail
    assert KEY not in server.output


def test_a_ticket_stands_for_a_key_once(locked):
    assert {ask(locked, path)[0] for path in FILES} == {200}
    assert ask(locked, "/ui/ticket", "POST")[0] == 401
    assert ask(locked, "/ui/ticket", "POST", Authorization="Bearer wrong")[0] == 401
    status, _, body = ask(locked, "/ui/ticket", "POST", Authorization=f"Bearer {KEY}")
    assert status == 200
    said = json.loads(body)
    assert said["expires_in_s"] == 30
    assert len(said["ticket"]) == 32

    async def connect(query):
        """The status of the refusal, or what the server says of its model."""
        async with aiohttp.ClientSession() as session:
            try:
                url = f"http://{locked.endpoint}/{query}"
                async with session.ws_connect(url) as ws:
                    await ws.send_str('MODEL_INFO {"stream_id": 1}')
                    return (await ws.receive_str())[:4]
            except aiohttp.WSServerHandshakeError as e:
                return e.status

    assert asyncio.run(connect("?ticket=" + "0" * 32)) == 401
    assert asyncio.run(connect("?ticket=" + said["ticket"])) == "MSG "
    assert asyncio.run(connect("?ticket=" + said["ticket"])) == 401
    # It is no key: it opens nothing else.
    said = json.loads(ask(locked, "/ui/ticket", "POST", Authorization=f"Bearer {KEY}")[2])
    assert ask(locked, "/v1/models?ticket=" + said["ticket"])[0] == 401
    assert ask(locked, "/v1/models", Authorization=f"Bearer {said['ticket']}")[0] == 401


# --- in a browser ---

CONNECTED = "document.getElementById('link').textContent === 'connected'"


def text_of(name):
    return f"document.getElementById('{name}').textContent"


DONE = f"/^(length|stop)/.test({text_of('outcome')})"


def in_browser(url, use, **options):
    async def run():
        async with browser.Page(url, **options) as page:
            try:
                await use(page)
            except BaseException:
                print(await page.js("document.body.innerText"))
                raise
            assert page.complaints == []

    asyncio.run(run())


async def set_value(page, name, value):
    await page.js(f"document.getElementById('{name}').value = {json.dumps(value)}")


async def write(page, **params):
    for name, value in params.items():
        await set_value(page, f"p-{name}", value)
    await page.click("#go")
    await page.until(DONE)
    return await page.js(text_of("text"))


@needs_browser
def test_what_else_it_could_have_said(demo):
    async def use(page):
        await page.until(CONNECTED)
        text = await write(page, max_tokens=12, temperature=0, seed=5)
        spans = await page.js("document.querySelectorAll('#text span').length")
        assert spans == 12
        begin = await page.js("[...document.querySelectorAll('#text span')].slice(0, 4)"
                              ".map(span => span.textContent).join('')")  # fmt: skip
        await page.click("#text span:nth-child(5)")
        await page.until("document.querySelectorAll('#alternatives button').length >= 10")
        assert "Token 5" in await page.js(text_of("token-name"))
        second = await page.js("document.querySelector('#alternatives button:nth-child(2)')"
                               ".firstChild.textContent")  # fmt: skip
        await page.click("#alternatives button:nth-child(2)")
        await page.until(f"document.querySelectorAll('#tree li').length === 2 && {DONE}")
        forked = await page.js(text_of("text"))
        assert forked != text
        assert forked.startswith(begin + json.loads(second))
        # An edit: what stands there instead, and on from there.
        await page.click("#text span:nth-child(3)")
        await page.type("#edit-text", " zebra")
        await page.click("#edit")
        await page.until(f"document.querySelectorAll('#tree li').length === 3 && {DONE}")
        assert " zebra" in await page.js(text_of("text"))
        # By the keyboard, from the first branch.
        await page.click("#tree li:nth-child(1) button")
        await page.until(f"{text_of('text')} === {json.dumps(text)}")
        await page.js("document.getElementById('text').focus()")
        await page.key("ArrowRight")
        await page.key("ArrowRight")
        await page.key("Enter")
        await page.until(f"{text_of('token-name')}.startsWith('Token 2')")
        for kind, has in (("curl", "curl 'http"), ("Python", "urllib"), ("LMQL", "import lmql")):
            await page.js("document.getElementById('export').open = true")
            await set_value(page, "export-as", kind)
            await page.js("document.getElementById('export-as').onchange()")
            assert has in await page.js(text_of("exported"))

    in_browser(f"http://{demo.endpoint}/ui", use)


@needs_browser
def test_a_stream_that_runs(endless):
    count = "document.querySelectorAll('#text span').length"

    async def use(page):
        await page.until(CONNECTED)
        await set_value(page, "p-max_tokens", 100_000)
        await page.click("#go")
        await page.until(f"{count} > 5")
        await page.click("#fork-now")
        await page.until(f"document.querySelectorAll('#tree li').length === 2 && {count} > 20")
        await page.click("#text span:nth-child(4)")
        await page.type("#edit-text", "a")
        await page.click("#edit")
        await page.until("document.querySelector('#text span:nth-child(4).put') !== null")
        await page.click("#stop")
        await page.until(f"{text_of('outcome')}.startsWith('stopped')")
        assert await page.js("document.getElementById('stop').disabled")

    in_browser(f"http://{endless.endpoint}/ui", use)


@needs_browser
def test_what_models_write_is_text(demo):
    async def use(page):
        await page.until(CONNECTED)
        await set_value(page, "grammar-type", "choice")
        await set_value(page, "grammar", HOSTILE)
        assert await write(page, max_tokens=300) == HOSTILE
        assert await page.js("document.title") == "lmtp"
        assert await page.js("document.querySelectorAll('#write img, #text script').length") == 0
        assert HOSTILE[:9] in await page.js(text_of("tree"))

    in_browser(f"http://{demo.endpoint}/ui", use)


@needs_browser
def test_score_decide_and_look(demo):
    async def use(page):
        await page.until(CONNECTED)
        await page.click("[data-view=score]")
        await page.type("#score-text", "Once upon a time there was a king.")
        await page.click("#score-go")
        await page.until(f"{text_of('score-sum')}.includes('perplexity')")
        await page.click("#scored span:last-child")
        assert "rank" in await page.js(text_of("score-token"))
        await page.click("[data-view=decide]")
        await page.type("#state", "I was charged twice.")
        await page.type("#options", "billing\nshipping\nsales")
        await page.click("#decide-go")
        await page.until("document.querySelectorAll('.bar').length === 3")
        await page.click("[data-view=look]")
        await page.until("document.querySelectorAll('.gauge polyline').length >= 6")
        assert "demo" in await page.js(text_of("models"))

    in_browser(f"http://{demo.endpoint}/ui", use)


@needs_browser
def test_a_key_and_a_phone(locked):
    async def use(page):
        await page.until("!document.getElementById('gate').hidden")
        await page.type("#key", "wrong")
        await page.click("#gate button")
        await page.until(f"{text_of('error')}.includes('not accepted')")
        await page.type("#key", KEY)
        await page.click("#gate button")
        await page.until(CONNECTED)
        assert await write(page, max_tokens=8)
        assert KEY not in await page.js("document.documentElement.outerHTML + location.href")
        for view in ("write", "score", "decide", "look"):
            await page.click(f"[data-view={view}]")
            assert await page.js("document.documentElement.scrollWidth <= innerWidth"), view
        page.complaints = [each for each in page.complaints if "401" not in each]

    in_browser(f"http://{locked.endpoint}/ui", use, width=360, theme="dark")


@needs_browser
def test_the_server_is_lost_and_comes_back():
    first, back = (LmtpServe("demo", "--kv-cache", "64MiB") for _ in range(2))
    back.command, back.endpoint = first.command, first.endpoint
    count = "document.querySelectorAll('#text span').length"

    async def use(page):
        await page.until(CONNECTED)
        await set_value(page, "p-max_tokens", 400)
        await set_value(page, "p-seed", 7)
        await page.click("#go")
        await page.until(f"{count} > 10")
        first.process.kill()
        first.process.wait()
        await page.until(f"!({CONNECTED})")
        assert await page.js(count) < 400
        with back:
            await page.until(DONE)
            resumed = await page.js(text_of("text"))
            assert await page.js(count) == 400
            await page.click("#retry")  # the same seed, now in one piece
            await page.until(f"document.querySelectorAll('#tree li').length === 2 && {DONE}")
            assert await page.js(text_of("text")) == resumed
        page.complaints.clear()  # the browser's, that nobody answered

    with first:
        in_browser(f"http://{first.endpoint}/ui", use)

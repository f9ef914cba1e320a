"""docs/examples/lmtp.py against lmtp-serve, over each of the libraries that it can use."""

import asyncio
import json
import pathlib
import subprocess
import sys

import pytest
import websockets
from checkpoints import FOREVER
from lmtp_socket import wait_all_freed
from servers import LmtpServe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "lmtp.py"
sys.path.insert(0, str(PROGRAM.parent))

import lmtp  # noqa: E402

PROMPT = [46, 789, 579, 258]  # Once upon a
TIMEOUT_S = 120


@pytest.fixture(params=["aiohttp", "websockets"])
def library(request, monkeypatch):
    if request.param == "websockets":
        monkeypatch.setattr(lmtp, "aiohttp", None)
        monkeypatch.setattr(lmtp, "websockets", websockets, raising=False)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


def test_tokens_and_scores(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            tokens = [t async for t in client.generate(PROMPT, max_tokens=6, top_logprobs=3)]
            assert len(tokens) == 6 and tokens[-1].finish_reason == "length"
            for token in tokens:
                assert len(token.top_logprobs) == 3
                assert token.top_logprobs[token.id] == token.logprob
            scored = await client.score(PROMPT, [t.id for t in tokens])
            assert [t.logprob for t in scored] == pytest.approx([t.logprob for t in tokens])
            assert (await client.model_info())["model"] == "demo"

    run(go())


def test_leaving_the_loop_cancels(endless, library):
    async def go():
        async with lmtp.connect(f"ws://{endless.endpoint}/") as client:
            async for _ in client.generate(PROMPT, **FOREVER):
                break
            await wait_all_freed(endless.endpoint)  # while the connection lives
            assert len([t async for t in client.generate(PROMPT, max_tokens=2)]) == 2

    run(go())


def test_errors_are_raised(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            with pytest.raises(lmtp.LMTPError, match="^temperature: "):
                await anext(aiter(client.generate(PROMPT, temperature=-1)))
            with pytest.raises(lmtp.LMTPError, match="^scored: "):
                await client.score(PROMPT, [])
            assert len(await client.score(PROMPT, [5])) == 1
        with pytest.raises(lmtp.LMTPError, match="127.0.0.1:1") as error:
            await lmtp.connect("ws://127.0.0.1:1", retry=1).__aenter__()
        assert (error.value.code, error.value.retryable) == ("connection_lost", True)

    run(go())


def test_streams_share_a_connection(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:

            async def ids(prompt):
                return [t.id async for t in client.generate(prompt, max_tokens=12)]

            alone = [await ids([i, i + 1]) for i in range(1, 9)]
            assert await asyncio.gather(*(ids([i, i + 1]) for i in range(1, 9))) == alone

    run(go())


DRAWN = {"max_tokens": 40, "temperature": 1.1, "seed": 5, "ignore_eos": True}
TEXT = "Once upon a time"


def test_text(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            ids = await client.tokenize(TEXT)
            assert await client.detokenize(ids) == TEXT
            tokens = [t async for t in client.generate(TEXT, **DRAWN)]
            text = "".join(t.text for t in tokens)
            assert TEXT + text == await client.detokenize(ids + [t.id for t in tokens])
            assert await client.generate(TEXT, **DRAWN).text() == text
            stop = text[20:23]
            last = [t async for t in client.generate(TEXT, stop=stop, **DRAWN)][-1]
            assert (last.finish_reason, last.stop_text) == ("stop", stop)
            scored = await client.score(TEXT, " there", top_logprobs=2)
            assert "".join(t.text for t in scored) == " there" and scored[0].top_logprobs

    run(go())


def test_samples_notices_and_masks(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            notices = []
            stream = client.generate(TEXT, on_notice=notices.append, **{**DRAWN, "n": 3})
            texts = ["", "", ""]
            async for token in stream:
                texts[token.index] += token.text
            assert len(set(texts)) == 3 and [len(ids) for ids in stream.received] == [40] * 3
            assert [n["seed"] for n in notices if n["status"] == "accepted"][0] == 5
            seventh = client.generate(TEXT, **{**DRAWN, "seed": 7})
            assert await seventh.text() == texts[2]
            allowed = lmtp.mask([5, 9], (await client.model_info())["vocab_size"])
            masked = [t.id async for t in client.generate(TEXT, mask=allowed, **DRAWN)]
            assert len(masked) == 40 and set(masked) <= {5, 9}

    run(go())


def test_forks_and_backtracks(endless, library):
    async def begin(stream, count):
        """Where it was forked, and so many tokens."""
        tokens = []
        async for token in stream:
            tokens.append(token)
            if len(tokens) == count:
                return tokens[0].fork_at, [token.id for token in tokens]

    async def go():
        drawn = {**DRAWN, **FOREVER}
        async with lmtp.connect(endless.endpoint) as client:
            stream, kept, forks = client.generate(PROMPT, **drawn), [], None
            async for token in stream:
                del kept[len(kept) - token.backtrack :]
                kept.append(token.id)
                if forks is None:
                    same = await stream.fork(1, seed=drawn["seed"])
                    forks = same + await stream.fork(2)
                    await stream.backtrack(drop=1, append=[7, 8])
                elif kept[-12:-10] == [7, 8]:
                    break
            assert stream.received == [kept]
            (at, same), *others = [await begin(fork, 50) for fork in forks]
            drawn["max_tokens"] = at + 50
            assert same == [t.id async for t in client.generate(PROMPT, **drawn)][at:]
            (_, one), (_, other) = others
            assert len(one) == len(other) == 50 and one != other
            stream = client.generate(PROMPT, **DRAWN | FOREVER)
            with pytest.raises(lmtp.LMTPError, match="top_p"):
                async for _ in stream:
                    refused = (await stream.fork(1, top_p=5))[0]
                    await begin(refused, 1)
            with pytest.raises(lmtp.LMTPError, match="does not run"):
                await client.generate(PROMPT, **drawn).backtrack(1)

    run(go())


def test_timeouts(endless, library):
    async def go():
        async with lmtp.connect(endless.endpoint) as client:
            with pytest.raises(lmtp.LMTPError, match="^timeout: the stream was not done") as error:
                await client.generate(TEXT, **FOREVER, timeout_ms=5).text()
            assert (error.value.code, error.value.retryable) == ("timeout", False)

    run(go())


def test_a_retry_has_what_is_left_of_the_timeouts(endless, library, monkeypatch):
    asked = []
    send_text = lmtp.Connection.send_text

    async def lose_the_first(connection, text):
        if text.startswith("GENERATE "):
            asked.append(json.loads(text.removeprefix("GENERATE ")))
            await asyncio.sleep(0.01)
            if len(asked) == 1:
                await connection._close()
        await send_text(connection, text)

    async def go():
        monkeypatch.setattr(lmtp.Connection, "send_text", lose_the_first)
        fields = {**DRAWN, **FOREVER, "timeout_ms": 90_000, "first_token_timeout_ms": 80_000}
        async with lmtp.connect(endless.endpoint) as client:
            stream = client.generate(TEXT, **fields)
            async for _ in stream:
                if sum(map(len, stream.received)) == 1:
                    await (await client.connection()).close()
                elif len(asked) == 3:
                    break

    run(go())
    first, second, third = asked
    assert second["timeout_ms"] <= first["timeout_ms"] - 10
    assert second["first_token_timeout_ms"] == second["timeout_ms"] - 10_000
    assert third["timeout_ms"] <= second["timeout_ms"] - 10
    assert "first_token_timeout_ms" not in third, "a token came"


def test_a_lost_connection_changes_no_bit(demo, library):
    async def go():
        async with lmtp.connect(demo.endpoint) as client:
            await client.buffer("tale", TEXT)
            assert await client.buffer("tale", [11], append=True) > 4

            async def tokens_of(cuts, prompt):
                tokens = [[], []]
                async for t in client.generate(prompt, n=2, top_logprobs=3, **DRAWN):
                    tokens[t.index].append(t)
                    if sum(map(len, tokens)) in cuts:
                        await (await client.connection()).close()
                return tokens

            for prompt in (PROMPT, TEXT, [{"buffer": "tale"}, " there"], [TEXT, [11, 12]]):
                whole = await tokens_of((), prompt)
                assert [len(sample) for sample in whole] == [40, 40]
                assert await tokens_of((1, 2, 33, 79), prompt) == whole, prompt

    run(go())


def test_a_killed_server_changes_no_bit(library):
    server = LmtpServe("demo", "--kv-cache", "64MiB")

    def restart():
        server.process.kill()
        server.process.wait()
        server.__enter__()

    async def go():
        async with lmtp.connect(server.endpoint) as client:

            async def tokens_of(index, seed):
                tokens = []
                fields = {**DRAWN, "max_tokens": 200, "seed": seed}
                async for t in client.generate([index], **fields):
                    tokens.append(t)
                    if len(tokens) == 30 and index == 3:
                        began.set()
                return tokens

            async def all_streams():
                return await asyncio.gather(*(tokens_of(i, 100 + i) for i in range(1, 6)))

            began = asyncio.Event()
            whole = await all_streams()
            for _ in range(2):
                began.clear()
                again = asyncio.create_task(all_streams())
                await began.wait()
                await asyncio.to_thread(restart)
                assert await again == whole

    with server:
        run(go())


def test_other_numerics_end_the_stream(endless_model, library):
    server = LmtpServe(endless_model, "--kv-cache", "64MiB")

    async def go():
        async with lmtp.connect(server.endpoint) as client:
            with pytest.raises(lmtp.LMTPError, match="numerics") as error:
                async for _ in client.generate(PROMPT, **FOREVER):
                    if server.command[-1] != "bfloat16":
                        server.process.kill()
                        server.process.wait()
                        server.command += ["--dtype", "bfloat16"]
                        await asyncio.to_thread(server.__enter__)
            assert error.value.code == "numerics"

    with server:
        run(go())


def test_a_server_that_stays_away(endless_model, library):
    server = LmtpServe(endless_model, "--kv-cache", "64MiB")

    async def go():
        async with lmtp.connect(server.endpoint, retry=2) as client:
            with pytest.raises(lmtp.LMTPError) as error:
                async for _ in client.generate(PROMPT, **FOREVER):
                    server.process.kill()
            assert error.value.code == "connection_lost"

    with server:
        run(go())


def test_draining(endless_model, library):
    """Who asked is told as long as something of it runs, and what has begun comes to its end."""
    server = LmtpServe(endless_model, "--kv-cache", "64MiB")

    async def go():
        notices, began = [], asyncio.Event()

        async def finish_eight():
            stream = client.generate(PROMPT, n=8, max_tokens=450, temperature=1)
            async for _ in stream:
                if all(stream.received):
                    began.set()
            return stream.received

        async with lmtp.connect(server.endpoint) as client:
            eight = asyncio.create_task(finish_eight())
            await began.wait()
            stream = client.generate(PROMPT, on_notice=notices.append, **FOREVER)
            async for _ in stream:
                if len(stream.received[0]) == 1:
                    server.process.terminate()
                if any(n["status"] == "draining" for n in notices):
                    break
            assert [len(ids) for ids in await eight] == [450] * 8
        draining = [n for n in notices if n["status"] == "draining"]
        assert draining and all(0 < n["deadline_ms"] <= 30_000 for n in draining)

    with server:
        run(go())
        assert server.process.wait(TIMEOUT_S) == 0


def test_a_unix_socket(library, tmp_path):
    path = f"unix:{tmp_path}/lmtp.sock"
    with LmtpServe("demo", "--kv-cache", "64MiB", "--listen", path):

        async def go():
            async with lmtp.connect(path) as client:
                return await client.generate(TEXT, max_tokens=8).text()

        assert run(go())


def test_masks():
    assert lmtp.mask([0, 9], 16) == "AQI="
    assert lmtp.mask([], 3) == "AA=="
    with pytest.raises(ValueError, match="token 3 "):
        lmtp.mask([3], 3)


# The module is None where it cannot be imported.
WITHOUT = "import sys; sys.modules[sys.argv.pop(1)] = None; import lmtp, asyncio; "
WITHOUT += "sys.exit(asyncio.run(lmtp._main()))"


def shell(*arguments, without="nothing"):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, without, *arguments], cwd=PROGRAM.parent,
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


def test_errors_from_the_shell(demo):
    done = shell("Once upon", "--url", demo.endpoint, "top_p=0")
    assert done.returncode == 1
    assert "top_p: " in done.stderr
    assert shell("Once upon", "max_tokens").returncode == 2


@pytest.mark.parametrize("without", ["aiohttp", "websockets"])
def test_a_prompt_from_the_shell(demo, without):
    done = shell(TEXT, "--url", demo.endpoint, "max_tokens=8", 'stop=["\\n\\n"]', without=without)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()

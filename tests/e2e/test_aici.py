"""AICI controllers from the outside: uploaded, named and run over HTTP, and run over LMTP. They are
those of docs/examples/aici. The demo's first tokens are the characters from "!" on."""

import asyncio
import base64
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from aici_http import Run, ask
from checkpoints import FOREVER
from lmtp_socket import Socket
from repl_terminal import run_client
from servers import LmtpServe, bin_dir
from test_vocabularies import pad_beyond
from wire_schema import is_valid

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "aici"
sys.path.insert(0, str(EXAMPLES.parent))

import lmtp  # noqa: E402

TIMEOUT_S = 60
CLANG = next(filter(None, map(shutil.which, ("clang", "clang-19", "clang-16", "clang-14"))), None)
LINKER = next(filter(None, map(shutil.which, ("wasm-ld", "wasm-ld-19", "wasm-ld-14"))), None)


def ids_of(text):
    return " ".join(str(ord(character) - ord("!")) for character in text)


def text_of(ids):
    """Of tokens that a controller put there; an end without a token has none."""
    return "".join(chr(ord("!") + token) for token in ids if token is not None)


def compiled(source, folder):
    """The module, as cmake/LmtpWasmModules.cmake compiles it."""
    out = folder / f"{source.stem}.wasm"
    subprocess.run(
        [CLANG, "--target=wasm32", "-O2", "-nostdlib", "-ffreestanding", "-mbulk-memory",
         f"-fuse-ld={LINKER}", "-Wl,--no-entry", "-I", EXAMPLES, "-o", out, source], check=True,
    )  # fmt: skip
    return out.read_bytes()


def upload(server, wasm):
    return ask(server, "/v1/controllers", wasm, "application/wasm")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    if not CLANG or not LINKER:
        pytest.skip("clang or wasm-ld was not found: run tools/setup --tests")
    folder = tmp_path_factory.mktemp("modules")
    bad = [ROOT / "tests" / "aici" / name for name in ("bad.c", "no_fork.c", "reject.c")]
    sources = [*EXAMPLES.glob("*.c"), *bad]
    return {source.stem: compiled(source, folder) for source in sources}


# A script that starts the program with a cache of its own, as AICI's own are started.
STARTS_AICIRT = """#!/bin/sh
exec {program} "$@" --cache {cache}
"""


@pytest.fixture(scope="module", params=["embedded", "lmtp-aicirt a", "lmtp-aicirt c"])
def server(request, modules, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    options = ["--aici", "--aici-cache", cache]
    if request.param != "embedded":
        program = cache / "start"
        dialect = request.param[-1]
        program.write_text(STARTS_AICIRT.format(program=bin_dir() / "lmtp-aicirt", cache=cache))
        program.chmod(0o755)
        options = ["--aicirt", program, "--aicirt-dialect", dialect]
    with LmtpServe("demo", "--kv-cache", "64MiB", *options) as running:
        for name, wasm in modules.items():
            status, answer = upload(running, wasm)
            assert status == 200, answer
            body = {"module_id": json.loads(answer)["module_id"], "tags": [name]}
            status, answer = ask(running, "/v1/controllers/tags", body)
            assert status == 200 and json.loads(answer)["tags"][0]["tag"] == name, answer
        yield running
    assert running.exit_code == 0, running.log_tail


def test_uploads_are_listed(server, modules):
    status, answer = ask(server, "/v1/controllers/tags")
    tags = {tag["tag"]: tag for tag in json.loads(answer)["tags"]}
    assert status == 200 and set(tags) == set(modules)
    tag = tags["fork"]
    assert tag["wasm_size"] == len(modules["fork"]) and tag["updated_by"] == "localhost"
    assert set(tag) == {
        "tag", "module_id", "updated_at", "updated_by", "wasm_size", "compiled_size",
    }  # fmt: skip
    again = json.loads(upload(server, modules["fork"])[1])
    assert set(again) == {"module_id", "wasm_size", "compiled_size", "time"}
    assert again["module_id"] == tag["module_id"]
    by_id = Run(server, tag["module_id"])
    assert len(by_id.forks) == 4


def test_a_tag_is_removed(server, modules):
    answer = ask(server, "/v1/controllers/tags/unheard-of", method="DELETE")
    assert answer[0] == 400 and answer[1].startswith("APIError: "), answer
    if "removes none" in answer[1]:  # AICI's runtime has no such command
        return
    made = json.loads(upload(server, modules["fork"])[1])
    ask(server, "/v1/controllers/tags", {"module_id": made["module_id"], "tags": ["going"]})
    assert '"going"' in ask(server, "/v1/controllers/tags/going", method="DELETE")[1]
    assert ask(server, "/v1/run", {"controller": "going"})[0] == 400


def test_what_is_wrong_is_told(server):
    for path, body in [
        ("/v1/controllers", b"no wasm"),
        ("/v1/controllers/tags", {"module_id": "0" * 64, "tags": ["x"]}),
        ("/v1/controllers/tags", {"module_id": "0" * 64}),
        ("/v1/controllers/tags", b"["),
        ("/v1/run", {"controller": ""}),
        ("/v1/run", {"controller": "fork", "max_tokens": 0}),
        ("/v1/run", {"controller": "fork", "prompt": 7}),
        ("/v1/run", {"controller": "unheard-of"}),
    ]:
        status, answer = ask(server, path, body)
        assert status == 400 and answer.startswith("APIError: "), (path, answer)
    assert "controller" in answer
    assert ask(server, "/v1/run", b"{}", "text/plain")[0] == 415
    assert ask(server, "/v1/controllers/tags?a=b&model=another")[0] == 404


def test_masks_and_the_end(server):
    run = Run(server, "allow_one", ids_of("Hello"))
    fork = run.forks[0]
    assert fork["text"] == "Hello" and fork["finish_reason"] in ("eos", "aici-stop")
    cut = Run(server, "allow_one", ids_of("Hello"), max_tokens=3)
    assert cut.forks[0]["text"] == "Hel" and cut.forks[0]["finish_reason"] == "length"
    assert cut.usage == {"sampled_tokens": 3, "ff_tokens": 0, "cost": 6}


def test_tokens_that_are_put_there(server):
    run = Run(server, "forced", ids_of("abc"), prompt="", max_tokens=5)
    assert run.forks[0]["text"].startswith("abc") and run.forks[0]["finish_reason"] == "length"
    assert run.usage == {"sampled_tokens": 2, "ff_tokens": 3, "cost": 7}


def test_tokens_that_are_put_there_at_the_end(server):
    run = Run(server, "forced", ids_of("abc"))
    assert run.forks[0]["text"].endswith("abc") and run.usage["ff_tokens"] == 6


def test_tokens_that_are_taken_back(server):
    run = Run(server, "backtrack", ids_of("!?"))
    assert run.forks[0]["text"].endswith(" ↩ !?")


def test_tokens_that_are_rejected_are_drawn_again(modules, tmp_path):
    """From the tokens that were there before: the controller, which counts, is asked each time."""
    with LmtpServe("demo", "--kv-cache", "64MiB", "--aici", "--aici-cache", tmp_path) as server:
        module = json.loads(upload(server, modules["reject"])[1])["module_id"]
        runs = [Run(server, module, str(rejects), max_tokens=6) for rejects in (0, 1, 3)]
        assert Run(server, module, "2", prompt="", max_tokens=1).forks[0]["text"]
    assert server.exit_code == 0, server.log_tail
    for run, rejects in zip(runs, (0, 1, 3), strict=True):
        # Greedy, so that each draw is that of before; the first of the sixth token ends the stream.
        assert run.forks[0]["logs"] == ("no " * rejects + "yes ") * 5
        assert run.usage["sampled_tokens"] == 5 * (rejects + 1) + 1
        assert run.forks[0]["text"].count(" ↩ ") == 5 * rejects
        assert run.forks[0]["text"].split(" ↩ ")[-1] in runs[0].forks[0]["text"]


def test_a_model_of_fewer_logits_than_tokens_runs_controllers(modules, tmp_path):
    folder = pad_beyond(tmp_path / "model")
    with LmtpServe(folder, "--kv-cache", "64MiB", "--aici", "--aici-cache", tmp_path) as server:
        module = json.loads(upload(server, modules["allow_one"])[1])["module_id"]
        assert Run(server, module, ids_of("Hello")).forks[0]["text"] == "Hello"
        beyond = Run(server, json.loads(upload(server, modules["forced"])[1])["module_id"], "2048")
        assert "2048" in beyond.forks[0]["error"], "[PAD], which the model has no logits for"
    assert server.exit_code == 0, server.log_tail


def test_an_argument_of_json_keeps_its_order(server):
    run = Run(server, "forced", {"second": 66, "first": 65}, prompt="", max_tokens=5)
    assert run.forks[0]["text"].startswith(text_of([66, 65]))


def test_logs(server):
    assert '"backtrack"' in Run(server, "backtrack", ids_of("!?")).forks[0]["logs"]


def test_forks(server):
    run = Run(server, "fork", temperature=1)
    ways = text_of(ord(way) for way in "ABCD")  # the controller takes bytes for ids
    assert [run.forks[i]["text"][0] for i in range(4)] == list(ways)
    assert [run.forks[i].get("fork_of") for i in range(4)] == [None, 0, 0, 0]
    assert {fork["finish_reason"] for fork in run.forks.values()} == {"aici-stop"}
    assert run.usage["sampled_tokens"] == 12


def test_variables(server):
    forks = Run(server, "wait").forks.values()
    written = [write["WriteVar"] for fork in forks for write in fork["storage"]]
    assert written and set(written[0]) == {"name", "value", "op", "when_version_is"}


def test_a_trap_ends_its_sequence_alone(server):
    run = Run(server, "bad", "t")
    fork = run.forks[0]
    assert fork["finish_reason"] == "fail" and fork["error"]
    assert "before the trap" in fork["logs"] + fork["error"]
    before = Run(server, "bad", "init")
    assert before.status == 400 and "there is no way on" in before.error
    assert Run(server, "allow_one", ids_of("ok")).forks[0]["text"].startswith("ok")


def test_without_a_controller_the_argument_is_the_prompt(server):
    body = {"prompt": "Once upon", "max_tokens": 8, "temperature": 0}
    expected = json.loads(ask(server, "/v1/completions", body)[1])["choices"][0]
    run = Run(server, "none", "Once upon", prompt=None, max_tokens=8)
    assert run.forks[0]["text"] == expected["text"]
    assert run.forks[0]["finish_reason"] == {"length": "length", "stop": "eos"}[
        expected["finish_reason"]
    ]


def test_over_lmtp(server):
    async def scenario():
        async with Socket(server.endpoint) as s:
            asked = {"prompt": "Once", "temperature": 0, "max_tokens": 32}
            await s.send("GENERATE", stream_id=1, controller="forced",
                         controller_arg=ids_of("abc"), **asked)  # fmt: skip
            ids, reason = await s.finish(1)
            assert text_of(ids[:3]) == "abc" and reason == "stop"
            await s.send("GENERATE", stream_id=2, controller="fork", **asked)
            forks = {0: []}
            while not all(fork and fork[-1]["finish_reason"] for fork in forks.values()):
                entry = await s.token_of(2)
                forks.setdefault(entry.get("index", 0), []).append(entry)
            told = [forks[i].pop(0) for i in (1, 2, 3)]
            told = [(e["token"], e["fork_of_index"], e["fork_at"]) for e in told]
            assert told == [(None, 0, 0)] * 3
            assert [forks[i][0]["token"] for i in range(4)] == [ord(way) for way in "ABCD"]
            await s.send("GENERATE", stream_id=3, controller="bad", controller_arg="t", **asked)
            assert await s.error_of(3)
            await s.send("GENERATE", stream_id=4, controller="unheard-of", **asked)
            assert "controller" in await s.error_of(4)
            await s.send("GENERATE", stream_id=5, controller="backtrack",
                         controller_arg=ids_of("!?"), **asked)  # fmt: skip
            await s.finish(5)
            assert any("logs" in e.get("controller", {}) for k, e in s.entries if k == "MSG")
            for kind, payload in s.messages:
                assert is_valid(kind, payload), payload

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_free_streams_have_their_bits_beside_controllers(server):
    free = {i: {"prompt": "Once", "max_tokens": 60, "temperature": 1, "seed": i} for i in range(3)}
    free[3] = {**free[0], "grammar": {"type": "regex", "value": "[a-z ]{200}"}}
    controlled = [("fork", None), ("forced", ids_of("abc")), ("backtrack", ids_of("!?")),
                  ("bad", "t"), ("allow_one", ids_of("a" * 200))]  # fmt: skip

    async def bits(s, stream_id):
        found = []
        while not found or found[-1]["finish_reason"] is None:
            found.append(await s.token_of(stream_id))
        return [(entry["token"], entry["logprob"]) for entry in found]

    async def scenario():
        async with Socket(server.endpoint) as s:
            alone = {}
            for i, fields in free.items():
                await s.send("GENERATE", stream_id=i, **fields)
                alone[i] = await bits(s, i)
            num_before = len(s.messages)
            server.pause()  # until it can read all of them at once
            for i, (name, arg) in enumerate(controlled):
                more = {} if arg is None else {"controller_arg": arg}
                await s.send("GENERATE", stream_id=10 + i, controller=name, prompt="Once",
                             temperature=1, max_tokens=200, **more)  # fmt: skip
            for i, fields in free.items():
                await s.send("GENERATE", stream_id=i, **fields)
            server.proceed()
            assert {i: await bits(s, i) for i in free} == alone
            came = [e["stream_id"] for _, entries in s.messages[num_before:] for e in entries]
            begun = came.index(0)
            assert any(stream_id >= 10 for stream_id in came[begun:]), "they ran side by side"

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


async def controller(s, stream_id, **fields):
    """What a CONTROLLER is answered, or the error."""
    await s.send("CONTROLLER", stream_id=stream_id, **fields)
    kind, entry = await s.wait_for(lambda _, e: e["stream_id"] == stream_id)
    assert kind == "MSG" and ("controller" in entry) != ("error" in entry), entry
    return entry.get("controller", entry.get("error"))


def test_uploads_over_lmtp(server, modules):
    async def scenario():
        async with Socket(server.endpoint) as s:
            assert "CONTROLLER" in (await s.model_info())["extensions"]
            binary = base64.b64encode(modules["forced"]).decode()
            made = await controller(s, 1, op="upload", binary=binary)
            again = json.loads(upload(server, modules["forced"])[1])
            assert {**made, "time": 0} == {**again, "time": 0}
            named = await controller(s, 1, op="tag", module_id=made["module_id"], tags=["forced"])
            assert [tag["tag"] for tag in named["tags"]] == ["forced"]
            listed = await controller(s, 1, op="list")
            assert listed == json.loads(ask(server, "/v1/controllers/tags")[1])
            assert named["tags"][0] in listed["tags"] and len(listed["tags"]) == len(modules)
            await s.send("GENERATE", stream_id=2, controller="forced", prompt="Once",
                         controller_arg=ids_of("abc"))  # fmt: skip
            assert text_of((await s.finish(2))[0][:3]) == "abc"
            bad = base64.b64encode(b"no wasm").decode()
            assert "controller" in await controller(s, 3, op="upload", binary=bad)
            gone = await controller(s, 3, op="tag", module_id="0" * 64, tags=["x"])
            assert "controller" in gone, gone
            assert "op: " in await controller(s, 3, op="drop")
            assert "model: " in await controller(s, 3, op="list", model="another")
            for kind, payload in s.messages:
                assert is_valid(kind, payload), payload

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_uploads_by_the_python_client(server, modules):
    async def scenario():
        async with lmtp.connect(server.endpoint) as client:
            module_id = await client.upload_controller(modules["allow_one"])
            await client.tag_controller(module_id, "allow_one")
            tags = {tag["tag"]: tag["module_id"] for tag in await client.list_controllers()}
            assert tags["allow_one"] == module_id and set(tags) == set(modules)
            with pytest.raises(lmtp.LMTPError, match="controller: "):
                await client.upload_controller(b"no wasm")

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_streams_by_the_python_client(server):
    async def scenario():
        async with lmtp.connect(server.endpoint) as client:
            asked = {"prompt": "Once", "temperature": 0, "max_tokens": 32}
            stream = client.generate(controller="forced", controller_arg=ids_of("abc"), **asked)
            tokens = [token async for token in stream]
            assert text_of(token.id for token in tokens).startswith("abc")
            assert tokens[-1].finish_reason == "stop" and tokens[0].appended
            assert stream.received == [[t.id for t in tokens if t.id is not None]]
            stream = client.generate(controller="fork", **asked)
            forks = [t.fork_of_index async for t in stream if t.fork_of_index is not None]
            assert [ids[0] for ids in stream.received] == [ord(way) for way in "ABCD"]
            assert [len(ids) for ids in stream.received] == [3] * 4 and forks == [0] * 3
            notices = []
            by = {"controller": "backtrack", "controller_arg": ids_of("!?")}
            stream = client.generate(on_notice=notices.append, **by, **asked)
            assert sum([token.backtrack async for token in stream]) == 2
            assert text_of(stream.received[0][1:]) == "!?"
            assert any("tokens" in n.get("controller", {}).get("logs", "") for n in notices)
            stream = client.generate(controller="no_fork", **asked)
            with pytest.raises(lmtp.LMTPError, match="fork") as error:
                await stream.text()
            assert error.value.index == 1 and len(stream.received[0]) == 1, "the other one went on"

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_a_lost_stream_is_not_continued_by_the_python_client(endless_model, modules, tmp_path):
    async def scenario(server):
        async with lmtp.connect(server.endpoint) as client:
            module_id = await client.upload_controller(modules["allow_one"])
            fields = {"controller_arg": ids_of("a" * 50_000), **FOREVER}
            stream = client.generate("Once", controller=module_id, **fields)
            with pytest.raises(lmtp.LMTPError) as error:
                async for _ in stream:
                    await (await client.connection()).close()
            assert error.value.code == "connection_lost" and 0 < len(stream.received[0]) < 50_000

    options = ("--kv-cache", "64MiB", "--aici", "--aici-cache", tmp_path)
    with LmtpServe(endless_model, *options) as server:
        asyncio.run(asyncio.wait_for(scenario(server), TIMEOUT_S))


def test_the_client_program_uploads_and_uses_controllers(server, modules, tmp_path):
    path = tmp_path / "module.wasm"
    path.write_bytes(modules["allow_one"])
    lines = [
        f"/controller upload {path} allow_one", "/controller list",
        f"/controller allow_one {ids_of('Hello')}", "Once", "/controller", "/set",
        "Once controller=none max_tokens=1", "/controller off", "/controller",
    ]  # fmt: skip
    done = run_client("--host", server.endpoint, stdin="\n".join(lines))
    assert (done.returncode, done.stderr) == (0, "")
    made, *shown = done.stdout.splitlines()
    tags = dict(line.split()[:2] for line in shown[: len(modules)])
    assert set(tags) == set(modules) and tags["allow_one"] == made
    text, used, *settings, without, off = shown[len(modules) :]
    assert (text, used, off) == ("Hello", f"allow_one {ids_of('Hello')}", "none")
    assert {"controller=allow_one", f'controller_arg="{ids_of("Hello")}"'} <= set(settings)
    assert without != "H"


def test_the_client_program_shows_forks_and_logs(server):
    def run(*options):
        return run_client("--host", server.endpoint, "-p", "Once", *options)

    done = run("--controller", "fork", "--retry")
    ways = text_of(ord(way) for way in "ABCD")  # the controller takes bytes for ids
    assert (done.returncode, done.stderr) == (0, "")
    for beginning in [ways[0], *(f"[{i}] {ways[i]}" for i in (1, 2, 3))]:
        assert f"\n{beginning}" in "\n" + done.stdout, done.stdout
    done = run("--controller", "backtrack", "--controller-arg", ids_of("!?"), "--text")
    assert done.returncode == 0 and done.stdout.endswith("!?\n")
    assert '[controller] {"tokens":' in done.stderr, "what it logs"
    assert len(done.stdout) < 2 + len(run("-n", 3).stdout), "two of three tokens are gone"
    raw = run("--controller", "allow_one", "--controller-arg", ids_of("Hi"), "--raw")
    assert "'appended': True" not in raw.stdout and raw.stdout.endswith("\nOnceHi\n")


def test_the_client_program_tells_what_went_wrong(server):
    def run(*options):
        return run_client("--host", server.endpoint, "-p", "Once", *options)

    trapped = run("--controller", "bad", "--controller-arg", "t")
    assert trapped.returncode == 1 and trapped.stdout.count("\n") == 1
    assert "before the trap" in trapped.stderr and "error: " in trapped.stderr
    forked = run("--controller", "no_fork")
    assert forked.returncode == 1 and "[1 ended] " in forked.stderr and forked.stdout
    unknown = run("--controller", "unheard-of")
    assert (unknown.returncode, unknown.stdout) == (1, "") and "controller: " in unknown.stderr
    done = run_client(
        "--host", server.endpoint, stdin="/controller upload\n/controller upload /nowhere x\n"
    )
    assert done.returncode == 1 and done.stderr.count("error: ") == 2


# AICI's own controllers, which are not here, as they once went along with the demo.
@pytest.mark.parametrize("dialect", ["a", "c"])
def test_recorded_controllers_take_the_server_the_same_way_again(dialect, tmp_path):
    calls = ROOT / "tests" / "aici" / "calls" / "demo.jsonl"
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    report = tmp_path / "report"
    program = tmp_path / "start"
    program.write_text(
        f"#!/bin/sh\nDOUBLE_CALLS={calls} DOUBLE_REPORT={report} "
        f'exec {bin_dir().parent}/tests/lmtp_aicirt_double "$@"\n'
    )
    program.chmod(0o755)
    options = ["--aicirt", program, "--aicirt-tokenizer", lines[0]["vocab_size"]]
    with LmtpServe("demo", *options, "--aicirt-dialect", dialect) as running:
        for call in lines:
            if call.get("call") != "instantiate":
                continue
            prompt = "" if call["prompt"] == lines[1]["prompt"] else "Once"
            run = Run(running, call["controller"], call["arg"], prompt=prompt, max_tokens=200)
            assert not run.error and run.forks[0]["text"] == call["text"]
            assert run.forks[0]["finish_reason"] in ("eos", "aici-stop")
    assert running.exit_code == 0, running.log_tail
    assert not report.exists(), report.read_text()


def test_a_server_without_controllers_says_so(demo):
    for path, body in [
        ("/v1/controllers", b"\0asm"),
        ("/v1/controllers/tags", None),
        ("/v1/run", {"controller": "x"}),
    ]:
        status, answer = ask(demo, path, body)
        assert status == 400 and "--aici" in answer, (path, answer)

    async def scenario():
        async with Socket(demo.endpoint) as s:
            assert "CONTROLLER" not in (await s.model_info())["extensions"]
            assert "--aici" in await controller(s, 1, op="list")

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_uploads_from_other_machines_have_to_be_allowed():
    with LmtpServe("demo", "--kv-cache", "64MiB", "--host", "0.0.0.0", "--insecure") as open_server:
        for path, body in [("/v1/controllers", b"\0asm"), ("/v1/controllers/tags", {})]:
            status, answer = ask(open_server, path, body)
            assert status == 403 and "--aici-upload" in answer

        async def scenario():
            async with Socket(open_server.endpoint) as s:
                for fields in [
                    {"op": "upload", "binary": "AGFzbQ=="},
                    {"op": "tag", "module_id": "x", "tags": ["x"]},
                ]:
                    assert "--aici-upload" in await controller(s, 1, **fields)

        asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))

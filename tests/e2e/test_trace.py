"""--trace: the file is JSON that Perfetto reads, agrees with what the server and its clients have
counted, and never stands in the way of serving."""

import asyncio
import collections
import itertools
import json
import resource
import signal
import subprocess
import urllib.request

import pytest
from checkpoints import FOREVER
from lmtp_socket import Socket, wait_all_freed, wait_until
from servers import LmtpServe, bin_dir

PROMPT = [46, 789, 579, 258] * 20
SECRET = "sk-no-key-is-ever-traced"


async def generate(s, stream_id, max_tokens, prompt=PROMPT, **more):
    await s.send(
        "GENERATE", stream_id=stream_id, prompt=prompt, max_tokens=max_tokens, ignore_eos=True,
        **more,
    )  # fmt: skip


async def do_requests(endpoint):
    """What the client was sent of each stream, by the kind of its request, and the counters."""
    sent = {}
    async with Socket(endpoint) as s, Socket(endpoint) as other:
        for stream_id in (1, 2, 3):
            await generate(s, stream_id, 10 + stream_id, [stream_id, *PROMPT])
        await generate(other, 1, 7)
        for socket, stream_id in ((s, 1), (s, 2), (s, 3), (other, 1)):
            sent[socket, stream_id] = len((await socket.finish(stream_id))[0])
        await generate(s, 4, 5)  # from the cache
        sent[s, 4] = len((await s.finish(4))[0])
        await s.send("SCORE", stream_id=5, prompt=PROMPT, scored=[40, 41, 42])
        sent[s, 5] = len((await s.finish(5))[0])
        await generate(s, 6, 30, grammar={"type": "regex", "value": "[a-z]{30}"})
        sent[s, 6] = len((await s.finish(6))[0])
        await generate(s, 7, **FOREVER)
        await s.token_of(7)
        await s.send("CANCEL", stream_id=7)
        assert await s.error_of(7) == "cancelled"
        await wait_all_freed(endpoint)
        return list(sent.values()), (await s.model_info())["stats"]


@pytest.fixture(scope="module")
def traced(endless_model, tmp_path_factory):
    """(events, tokens that each whole stream got, stats of MODEL_INFO)."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    with LmtpServe(endless_model, "--kv-cache", "64MiB", "--trace", path) as server:
        sent, stats = asyncio.run(do_requests(server.endpoint))
    assert server.exit_code == 0, server.log_tail
    assert f"tracing to '{path}', up to 256 MiB" in server.output
    return json.loads(path.read_text()), sent, stats


def named(events, name):
    """All but the ends of spans."""
    return [event for event in events if event["name"] == name and event["ph"] != "e"]


def total(events, name, argument):
    return sum(event["args"][argument] for event in named(events, name))


def test_sums_are_what_the_server_has_counted(traced):
    events, sent, stats = traced
    assert len(named(events, "step")) == stats["num_steps"]
    computed = total(events, "step", "tokens")
    assert computed == stats["num_tokens_computed"]
    of_streams = [total(events, name, "tokens") for name in ("prefill", "decode", "score")]
    assert sum(of_streams) == computed and all(of_streams)
    assert total(events, "match", "cached_tokens") == stats["num_cached_tokens"] > 0
    assert len(named(events, "request")) == len(named(events, "queue")) == 8
    assert total(events, "step", "masks") == stats["num_masks"] > 0
    assert len(named(events, "masks")) > 0
    tokens = stats["num_generated_tokens"] + stats["num_scored_tokens"]
    assert total(events, "send", "tokens") == tokens
    by_stream = collections.Counter()
    for event in named(events, "send"):
        by_stream[event["id"]] += event["args"]["tokens"]
    cancelled = {e["id"] for e in events if e.get("args", {}).get("outcome") == "cancelled"}
    assert len(cancelled) == 1
    got = sorted(count for id, count in by_stream.items() if id not in cancelled)
    assert got == sorted(sent)


def test_processes_are_the_server_and_its_model(traced, endless_model):
    events = traced[0]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(names.values()) == ["lmtp-serve", str(endless_model)]
    assert {e["pid"] for e in events} == set(names)
    connections = {e["args"]["connection"] for e in named(events, "request")}
    assert len(connections) == 2
    assert connections <= {e["args"]["connection"] for e in named(events, "write")}


def test_spans_of_each_track_nest(traced):
    open_spans = collections.defaultdict(list)
    of_tracks = [event for event in traced[0] if "id" in event]
    for event in sorted(of_tracks, key=lambda e: e["ts"]):
        names = open_spans[event["cat"], event["id"]]
        if event["ph"] == "b":
            names.append(event["name"])
            assert len(names) == 1 or names[0] == "request"
        elif event["ph"] == "e":
            assert names.pop() == event["name"], event
        else:
            assert event["ph"] == "n" and names
    assert not any(open_spans.values())


def test_slices_of_the_engines_thread_nest(traced):
    slices = [(e["ts"], e["ts"] + e["dur"], e["name"]) for e in traced[0] if e["ph"] == "X"]
    inside = collections.Counter()
    stack = []
    for begin, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1][1] <= begin + 5e-4:
            stack.pop()
        if stack:
            assert end <= stack[-1][1] + 5e-4, (name, stack[-1])
            inside[name] += stack[-1][2] == "step"
        stack.append((begin, end, name))
    steps = sum(name == "step" for _, _, name in slices)
    for name in ("forward", "choose", "collect", "commit"):
        assert inside[name] == steps, name


def test_no_text_is_from_a_client(traced, endless_model):
    """All that is not a number is a name of ours, or the model's."""
    events = traced[0]
    words = {word for e in events for word in e.get("args", {}).values() if isinstance(word, str)}
    assert words == {
        "lmtp-serve", "server", str(endless_model), "engine", "generate", "score", "length", "stop",
        "cancelled", "the server has stopped",
    }  # fmt: skip


def complete(endpoint, **body):
    request = urllib.request.Request(
        f"http://{endpoint}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]


def test_neither_keys_nor_texts_are_in_it(tmp_path):
    path = tmp_path / "trace.json"
    options = ("--kv-cache", "64MiB", "--trace", path, "--api-key", SECRET, "--log-prompts")
    with LmtpServe("demo", *options) as server:
        text = complete(server.endpoint, model="demo", prompt="Once upon a hill", max_tokens=20)
    assert server.exit_code == 0, server.log_tail
    written = path.read_text()
    assert len(named(json.loads(written), "request")) == 1
    for secret in (SECRET, "Once", "hill", *map(" ".join, itertools.pairwise(text.split()))):
        assert secret not in written
    assert path.stat().st_mode & 0o777 == 0o600


NUM_KILLED = 4  # streams; what they leave is read whole


def num_begun(events):
    return sum(e["name"] == "request" and e["ph"] == "b" for e in events)


def test_a_server_that_was_killed_leaves_whole_events(endless_model, tmp_path):
    path = tmp_path / "trace.json"

    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream_id in range(NUM_KILLED):
                await generate(s, stream_id, **FOREVER)
            for stream_id in range(NUM_KILLED):
                await s.token_of(stream_id)

            async def has_steps():
                events = json.loads(path.read_text() + "]")
                return len(named(events, "step")) > 10 and num_begun(events) == NUM_KILLED

            await wait_until(has_steps, "steps of all streams are in the file")
            server.process.send_signal(signal.SIGKILL)

    with LmtpServe(endless_model, "--kv-cache", "64MiB", "--trace", path) as server:
        asyncio.run(ask(server))
    events = json.loads(path.read_text() + "]")
    assert len(named(events, "step")) > 10
    assert num_begun(events) == NUM_KILLED
    assert not any(e["name"] == "request" and e["ph"] == "e" for e in events), "none had ended"


async def serve_until(endpoint, is_over):
    """Streams, until tracing is over, and one behind that."""
    async with Socket(endpoint) as s:
        for stream_id in range(1, 1000):
            over = is_over()
            await generate(s, stream_id, 50)
            assert len((await s.finish(stream_id))[0]) == 50
            if over:
                return
    raise AssertionError("tracing has not ended")


def test_it_ends_at_its_limit_and_serving_goes_on(tmp_path):
    path = tmp_path / "trace.json"
    options = ("--kv-cache", "64MiB", "--trace", path, "--trace-limit", "64KiB")
    with LmtpServe("demo", *options) as server:
        asyncio.run(serve_until(server.endpoint, lambda: path.read_text().endswith("]\n")))
    assert server.exit_code == 0, server.log_tail
    assert server.output.count("has reached --trace-limit; tracing has ended") == 1
    text = path.read_text()
    assert 32 * 1024 < len(text) <= 64 * 1024
    ends = named(json.loads(text), "trace ends")
    assert [e["args"]["why"] for e in ends] == ["--trace-limit is reached"]


class ServeWithFullDisk(LmtpServe):
    """No file of it may be longer than this: what a full disk says, another number says."""

    popen_options = {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    }


def test_a_full_disk_ends_it_and_serving_goes_on(tmp_path):
    path = tmp_path / "trace.json"
    with ServeWithFullDisk("demo", "--kv-cache", "64MiB", "--trace", path, "--log-level",
                           "warning") as server:  # fmt: skip
        is_over = lambda: "tracing has ended" in server.read_log()  # noqa: E731
        asyncio.run(serve_until(server.endpoint, is_over))
    assert server.exit_code == 0, server.log_tail
    assert server.output.count("File too large; tracing has ended, serving goes on") == 1
    text = path.read_text()
    assert 10_000 < len(text) <= 20_000
    assert len(named(json.loads(text), "step")) > 0


@pytest.mark.parametrize(
    "path, why",
    [
        ("/dev/full", "No space left on device; make room, or give another file"),
        ("/", "Is a directory; give a file in a folder that this user may write to"),
        ("/no/such/trace", "No such file or directory; give a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_at_start(path, why):
    command = [bin_dir() / "lmtp-serve", "demo", "--port", "0", "--trace", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"lmtp-serve: --trace: '{path}' cannot be written: {why}" in done.stderr

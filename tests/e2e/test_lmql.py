"""LMQL itself against lmtp-serve, over the socket: at temperature 0 every query gives, token for
token, what it gives with LMQL's own server on the same model folder."""

import asyncio
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
import tokenizers
from lmtp_socket import Socket
from servers import LmtpServe

ROOT = pathlib.Path(__file__).resolve().parents[2]
LMQL_TESTS = ROOT / "tests" / "lmql"
sys.path.insert(0, str(LMQL_TESTS))

from relay import run_queries  # noqa: E402

DEMO = ROOT / "models" / "demo"
QUERIES = sorted((LMQL_TESTS / "queries").glob("*.lmql"))
DRAWN = {"10-draws"}
PROBABILITY_TOLERANCE = 1e-3
LOGPROB_TOLERANCE = 1e-3  # the reference computes padded batches of beams; 1e-5 is usual
PROGRAM_TIMEOUT_S = 120


def assert_equal(ours, reference, where):
    """As ==, with floats near."""
    if isinstance(reference, float):
        assert ours == pytest.approx(reference, abs=PROBABILITY_TOLERANCE), where
    elif isinstance(reference, dict):
        assert ours.keys() == reference.keys(), where
        for name, value in reference.items():
            assert_equal(ours[name], value, f"{where}.{name}")
    elif isinstance(reference, list):
        assert len(ours) == len(reference), where
        for i, value in enumerate(reference):
            assert_equal(ours[i], value, f"{where}[{i}]")
    else:
        assert ours == reference, where


@pytest.fixture(scope="module")
def recording():
    lines = list(map(json.loads, (LMQL_TESTS / "expected" / "demo.jsonl").open(encoding="utf-8")))
    weights = hashlib.sha256((DEMO / "model.safetensors").read_bytes()).hexdigest()
    assert lines[0]["weights_sha256"] == weights, "models/demo changed: run record_reference.py"
    return {line["query"]: line for line in lines[1:]}


@pytest.fixture(scope="module")
def server():
    with LmtpServe("demo") as running:
        yield running
    assert running.exit_code == 0


@pytest.fixture(scope="module")
def ours(server):
    lines = asyncio.run(run_queries(server.endpoint, "demo", DEMO, QUERIES))
    return {line["query"]: line for line in lines}


@pytest.mark.parametrize("query", [f.stem for f in QUERIES if f.stem not in DRAWN])
def test_results_equal_the_reference(query, ours, recording):
    assert "error" not in ours[query]
    assert_equal(ours[query]["results"], recording[query]["results"], query)


@pytest.mark.parametrize("query", [f.stem for f in QUERIES if f.stem not in DRAWN])
def test_tokens_on_the_wire_equal_the_reference(query, ours, recording):
    """The same requests come, since LMQL got the same answers; a stream that LMQL moved on from may
    have been cut at another place, here or there."""
    reference = {stream_key(s): s for s in recording[query]["streams"]}
    mine = [s.as_json() for s in ours[query]["streams"]]
    assert {stream_key(s) for s in mine} == reference.keys()
    for stream in mine:
        want = reference[stream_key(stream)]
        count = min(len(stream["ids"]), len(want["ids"]))
        assert count >= 1 or stream["verb"] == "GENERATE"
        assert stream["ids"][:count] == want["ids"][:count]
        assert stream["logprobs"][:count] == pytest.approx(
            want["logprobs"][:count], abs=LOGPROB_TOLERANCE
        )


def stream_key(stream):
    return json.dumps([stream.get(k) for k in ("verb", "prompt", "scored", "bias", "params")])


@pytest.mark.parametrize("query", sorted(DRAWN))
def test_drawn_queries_have_their_form(query, ours, recording):
    assert "error" not in ours[query]
    mine, want = ours[query]["results"], recording[query]["results"]
    assert [r["variables"].keys() for r in mine] == [r["variables"].keys() for r in want]
    assert len({r["text"] for r in mine}) > 1
    opening = os.path.commonprefix([r["text"] for r in want])
    assert opening and all(r["text"].startswith(opening[:10]) for r in mine)


def test_queries_ask_for_what_lmql_can_ask(recording):
    """The recordings hold each kind of request: a choice of another query must not lose one."""
    streams = [s for line in recording.values() for s in line["streams"]]
    assert any(s["verb"] == "SCORE" for s in streams)
    assert any(s["params"].get("top_logprobs", 1) > 1 for s in streams)
    assert any(s["params"].get("temperature", 0) > 0 for s in streams)
    assert max(s["bias"]["entries"] for s in streams if "bias" in s) > 500


# LMQL writes below the home folder; the tests' stays as it is.
OFFLINE = """
import os, tempfile
home = tempfile.TemporaryDirectory(prefix="lmql-home-", ignore_cleanup_errors=True)
os.environ.update(HOME=home.name, LMQL_HOME=home.name, HF_HUB_OFFLINE="1")
"""
WITHOUT_A_QUERY = """
import lmql
model = lmql.model("demo", endpoint="localhost:8080", tokenizer="models/demo")
print(repr(model.generate_sync("Once upon a time", max_tokens=24)))
print(model.score_sync("Once upon a time", [", there was", "xylophone zzz"]).argmax())
"""
LANGCHAIN = """
import asyncio, json
import lmql
from lmql.models.lmtp.lmtp_langchain import LMTP
tokenizer = lmql.model("demo", tokenizer="models/demo").get_tokenizer()
llm = LMTP(model="demo", endpoint="localhost:8080", tokenizer=tokenizer, max_length=24)
prompt = "Once upon a time"
print(json.dumps({
    "prompt": tokenizer(prompt)["input_ids"],
    "whole": llm.invoke(prompt),
    "awaited": asyncio.run(llm.ainvoke(prompt)),
    "stopped": llm.invoke(prompt, stop=["the"]),
}))
"""


def run_program(text, server, folder):
    """Its output; from the repository's root, as the README's reader would run it."""
    assert "localhost:8080" in text
    path = folder / "program.py"  # LMQL reads a query's source from its file
    path.write_text(OFFLINE + text.replace("localhost:8080", server.endpoint), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path], cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S,
        env={**os.environ, "TMPDIR": str(folder)},  # LMQL leaves files in it
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_generate_and_score_without_a_query(server, tmp_path):
    text, best = run_program(WITHOUT_A_QUERY, server, tmp_path).splitlines()
    assert len(text) > 24
    assert best == ", there was"


def test_lmqls_langchain_client(server, tmp_path):
    said = json.loads(run_program(LANGCHAIN, server, tmp_path).splitlines()[-1])

    async def generate():
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=said["prompt"], max_tokens=24)
            return (await s.finish(1))[0]

    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    text = tokenizer.decode(said["prompt"] + asyncio.run(generate()))
    assert said["whole"] == said["awaited"] == text.removeprefix("Once upon a time")
    assert said["stopped"] == said["whole"].partition("the")[0] != said["whole"]


def test_queries_on_a_model_with_the_real_vocabulary(test_data):
    lmql_folder, model = test_data / "lmql", test_data / "data" / "models" / "tiny-gpt2"
    recorded = map(json.loads, (lmql_folder / "expected" / "tiny-gpt2.jsonl").open())
    expected = {d["file"].removesuffix(".lmql"): d["results"] for d in recorded}
    files = sorted(lmql_folder.glob("*.lmql"))
    assert {f.stem for f in files} == expected.keys()
    with LmtpServe(model) as server:
        lines = asyncio.run(run_queries(server.endpoint, "tiny-gpt2", model, files))
    for line in lines:
        assert "error" not in line, line
        mine = [{"prompt": r["text"], "variables": r["variables"]} for r in line["results"]]
        if "sample" in line["query"]:
            assert len(mine) == len(expected[line["query"]])
        else:
            assert_equal(mine, expected[line["query"]], line["query"])

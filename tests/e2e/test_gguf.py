"""A model that is one GGUF file: weights, config and tokenizer, and files that are broken."""

import asyncio
import json
import pathlib
import shutil
import subprocess

import pytest
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "gguf"
MIXED = GOLDENS / "mixed.gguf"
CASE = next(c for c in json.loads((GOLDENS / "mixed.json").read_text()) if c["kind"] == "greedy")
NUM_TOKENS = 16
TIMEOUT_S = 60


def ask(model):
    """The golden's first tokens, MODEL_INFO, and the log."""

    async def talk(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=CASE["prompt_ids"], max_tokens=NUM_TOKENS)
            tokens = [await s.token_of(1) for _ in range(NUM_TOKENS)]
            await s.send("MODEL_INFO", stream_id=2)
            info = (await s.wait_for(lambda k, e: "model_info" in e))[1]["model_info"]
            return [token["token"] for token in tokens], info

    with LmtpServe(model, "--kv-cache", "16MiB") as server:
        tokens, info = asyncio.run(talk(server))
        server.ready_line()
    return tokens, info, server.log_tail


def test_one_file_is_a_model(tmp_path):
    tokens, info, log = ask(MIXED)
    assert tokens == CASE["ids"][:NUM_TOKENS]
    assert info["quantization"]["method"] == "gguf"
    assert "int4 in groups of 32" in info["quantization"]["weights"]
    assert info["quantization"]["widened"] == 0
    assert "gguf weights: int4 in groups of 32" in log
    # The same where it is the only one of a folder.
    shutil.copy(MIXED, tmp_path)
    assert ask(tmp_path)[0] == tokens


def test_its_tokenizer_is_in_it():
    folder = GOLDENS.parent / "tokenizers" / "llama2"
    cases = json.loads((folder / "cases.json").read_text())["cases"]
    # The converter makes an ordinary piece of the user-defined "<mine>".
    texts = [c for c in cases if c["text"] is not None and "<mine>" not in c["text"]][:50]
    run = subprocess.run(
        [bin_dir() / "lmtp-client", MIXED, "--encode", "--json"],
        input="".join(json.dumps(case["text"]) + "\n" for case in texts),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    assert [json.loads(line) for line in run.stdout.splitlines()] == [c["ids"] for c in texts]


def other(old, new):
    return lambda data: data.replace(old, new)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda data: data[:-100], ["lie beyond the end of the file"]),
        (lambda data: data[:1000], ["lies beyond the end of the file"]),
        (lambda data: b"GGML" + data[4:], ["not a GGUF file"]),
        (other(b"llama.block_count", b"llama.blocks_here"), ["'llama.block_count' is missing"]),
        (other(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"), ["q_proj.weight", "missing"]),
        (other(b"blk.1.ffn_norm", b"blk.0.ffn_norm"), ["is there twice"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, spoil, words):
    file = tmp_path / "model.gguf"
    file.write_bytes(spoil(MIXED.read_bytes()))
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", file, "--port", "0", "--kv-cache", "16MiB"],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr

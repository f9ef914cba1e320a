"""A model that is one GGUF file: weights, config and tokenizer, and files that are broken."""

import asyncio
import json
import pathlib
import shutil
import struct
import subprocess

import gguf
import numpy as np
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


# What files called Q4_K_M, Q3_K_M or Q2_K have where 256 does not divide the rows of a model, and
# the rest of Q2_K and Q3_K; the layers' differ, so that parts of one type are packed too.
TYPES = {
    "token_embd": "Q5_0", "output": "Q3_K",
    "blk.0.attn_q": "Q5_0", "blk.0.attn_k": "Q5_0", "blk.0.attn_v": "Q8_0",
    "blk.0.attn_output": "IQ4_NL", "blk.0.ffn_gate": "Q2_K", "blk.0.ffn_up": "Q3_K",
    "blk.0.ffn_down": "Q5_1", "blk.1.attn_q": "Q2_K", "blk.1.attn_k": "Q2_K",
    "blk.1.attn_v": "Q2_K", "blk.1.attn_output": "Q4_1", "blk.1.ffn_gate": "Q4_1",
    "blk.1.ffn_up": "Q4_1", "blk.1.ffn_down": "IQ4_NL",
}  # fmt: skip
# What files called IQ2_M, IQ3_XS or IQ4_XS have, and BF16 for all else.
CODEBOOKS = {
    "token_embd": "IQ3_S", "output": "IQ4_XS",
    "blk.0.attn_q": "IQ2_XXS", "blk.0.attn_k": "IQ2_XS", "blk.0.attn_v": "Q4_K",
    "blk.0.ffn_gate": "IQ2_S", "blk.0.ffn_up": "IQ2_S",
    "blk.1.attn_q": "IQ3_XXS", "blk.1.attn_k": "IQ3_XXS", "blk.1.attn_v": "IQ3_XXS",
    "blk.1.ffn_gate": "IQ4_XS", "blk.1.ffn_up": "IQ3_S",
}  # fmt: skip
# Of blocks that the package reads and does not write: where the halves are that scale a block.
HALVES = {
    "Q2_K": {80: 4e-3, 82: 6e-3}, "Q3_K": {108: 1e-3}, "Q4_K": {0: 4e-4, 2: 3e-3},
    "IQ4_NL": {0: 1e-3}, "IQ4_XS": {0: 1e-4}, "IQ3_S": {0: 1e-3}, "IQ3_XXS": {0: 1e-3},
    "IQ2_S": {0: 3e-3}, "IQ2_XS": {0: 3e-3}, "IQ2_XXS": {0: 3e-3},
}  # fmt: skip


def blocks_of(kind, values, rng):
    if kind.name not in HALVES:
        return gguf.quants.quantize(values, kind)
    elements, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (values.size // elements, num_bytes), dtype=np.uint8)
    for at, scale in HALVES[kind.name].items():
        blocks[:, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    return blocks.reshape(values.shape[0], -1)


def write_types(path, source, types, default, dequantized):
    """The file `source` with tensors of `types`, else `default` (None: as they are), or with the
    numbers that the package makes of these."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    rng = np.random.default_rng(5)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        of_array = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), field.types[0], of_array)
    for tensor in reader.tensors:
        own = types.get(tensor.name.removesuffix(".weight"), default)
        if own is None:
            writer.add_tensor(tensor.name, tensor.data)
            continue
        kind = gguf.GGMLQuantizationType[own]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        blocks = blocks_of(kind, values, rng)
        if dequantized:
            writer.add_tensor(tensor.name, gguf.quants.dequantize(blocks, kind))
        else:
            writer.add_tensor(tensor.name, blocks, raw_dtype=kind)
    for write in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{write}_to_file")()
    writer.close()
    return path


@pytest.mark.parametrize(
    "name, types, default",
    [
        ("mixed", TYPES, None),
        ("mixed", CODEBOOKS, "BF16"),
        ("gpt2", {}, "BF16"),  # with biases, positions, transposed matrices
        ("gemma2", {}, "BF16"),  # with norms that one is added to
    ],
)
def test_types_are_the_numbers_of_the_gguf_package(tmp_path, name, types, default):
    source = GOLDENS / f"{name}.gguf"
    cases = json.loads(source.with_suffix(".json").read_text())
    prompt = next(case["prompt_ids"] for case in cases if case["kind"] == "greedy")

    async def score(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=prompt, max_tokens=NUM_TOKENS,
                         top_logprobs=5)  # fmt: skip
            return [await s.token_of(1) for _ in range(NUM_TOKENS)]

    answers = []
    for dequantized in (False, True):
        model = write_types(tmp_path / f"{dequantized}.gguf", source, types, default, dequantized)
        with LmtpServe(model, "--kv-cache", "16MiB", "--dtype", "float32") as server:
            answers.append(asyncio.run(score(server)))
    assert answers[0] == answers[1]


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


def of_type(number):
    """The description of both layers' keys, up to their type."""
    return b"attn_k.weight" + struct.pack("<IQQI", 2, 256, 32, number)


def other(old, new):
    return lambda data: data.replace(old, new)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda data: data[:-100], ["lie beyond the end of the file"]),
        (lambda data: data[:1000], ["lies beyond the end of the file"]),
        (lambda data: b"GGML" + data[4:], ["not a GGUF file"]),
        (other(b"llama.block_count", b"llama.blocks_here"), ["'llama.block_count' is missing"]),
        (other(b"eos_token_id\4\0\0\0", b"eos_token_id\6\0\0\0"),
         ["'tokenizer.ggml.eos_token_id' has the type f32", "a whole number"]),
        (other(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"), ["q_proj.weight", "missing"]),
        (other(b"blk.1.ffn_norm", b"blk.0.ffn_norm"), ["is there twice"]),
        (other(of_type(13), of_type(34)), ["'blk.0.attn_k.weight': its type is TQ1_0, which is not "
                                           "read; F32", "and MXFP4 are read", "llama-quantize"]),
        (other(of_type(13), of_type(77)), ["its type is number 77", "a file of these is needed"]),
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
